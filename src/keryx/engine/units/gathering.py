"""Gathers messages that belong together into one turn: an album, a forward and its comment, the parts of a long text."""

from datetime import datetime, timedelta

from keryx.core import ids, lanes
from keryx.core.ids import PrincipalId, SessionId
from keryx.core.lanes import LaneSharing
from keryx.core.ports.adapter import InboundMessage, Receipt
from keryx.core.sessions import Session
from keryx.core.turns import Turn, TurnState
from keryx.engine.units import access, turn_writes
from keryx.engine.units.user_messages import UserMessage, append_input
from keryx.store import lanes as lane_store
from keryx.store import sessions, turns
from keryx.store.db import Transaction

# After a start, until the platforms have delivered what they kept.
START_DELAY = timedelta(seconds=3)


def get_end(tx: Transaction, inbound: InboundMessage, window: timedelta) -> datetime | None:
    """Return until when the turn of a message waits for more, `None` for not at all."""
    return tx.now + window if window and (inbound.group or inbound.more) else None


def belongs_to_open_turn(
    tx: Transaction, inbound: InboundMessage, sender: PrincipalId, sharing: LaneSharing, window: timedelta
) -> bool:
    """Whether a message that does not mention the agent belongs to one that does."""
    address = lanes.build_address(
        inbound.source, sharing=sharing, aliases=access.find_aliases(tx, inbound.source)
    )
    lane = lane_store.find_locked(tx, address.key)
    return bool(lane and lane.session and find_turn(tx, lane.session, inbound, sender, window))


def find_turn(
    tx: Transaction, session: SessionId, inbound: InboundMessage, sender: PrincipalId, window: timedelta
) -> Turn | None:
    """Return the turn of the same person that a message belongs to, if nobody has seen anything of its answer yet. Locks
    the session if it may be one."""
    if not window or inbound.observed:
        return None
    newest = turns.find_newest(tx, session, sender)
    # What belongs together may arrive in two processes at once; only then does the lock tell what has come before.
    if newest is None or not (inbound.group or inbound.continues or _may_join(tx, inbound, newest, window)):
        return None
    sessions.lock(tx, session)
    newest = turns.find_newest(tx, session, sender)
    if newest is None or not _may_join(tx, inbound, newest, window):
        return None
    turn = turns.get(tx, newest.id)
    same_place = (turn.reply and turn.reply.key) == (inbound.reply and inbound.reply.key)
    if not same_place or turn.pin != inbound.pin or turn.cancelling:
        return None
    return turn if turn_writes.is_unanswered(tx, turn) else None


def _may_join(tx: Transaction, inbound: InboundMessage, turn: turns.NewestTurn, window: timedelta) -> bool:
    if inbound.continues and tx.now - turn.created_at <= window:
        return True
    if turn.gathering is None:
        return False
    waits = turn.gathering.until is not None and tx.now < turn.gathering.until
    same_group = inbound.group != "" and turn.gathering.group == ids.escape(inbound.group)
    return same_group or (waits and inbound.addressed)


def join(tx: Transaction, session: Session, turn: Turn, message: UserMessage) -> Receipt:
    """Give a message to a turn. One that runs begins again with all its messages."""
    seq = append_input(tx, session, message, turn.id)
    if turn.state is TurnState.RUNNING:
        turns.restart(tx, turn)
        turn = turns.get(tx, turn.id)
    turns.gather(tx, turn, not_before=message.not_before)
    return Receipt(duplicate=False, session=session.id, turn=turn.id, seq=seq)
