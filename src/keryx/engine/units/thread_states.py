"""The threads that platforms open for conversations: what each one should show, and what it shows already."""

import hashlib
from datetime import datetime, timedelta

import msgspec

from keryx.core import codec
from keryx.core.deliveries import Target
from keryx.core.ids import LaneKey, SessionId, is_temporary
from keryx.core.lanes import Lane
from keryx.store import deliveries, inbox, lanes, sessions, turns
from keryx.store.db import Transaction

_PREFIX = "thread_state:"
# Threads that were used before this stay as they are.
_MAX_AGE = timedelta(days=30)


class ThreadState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a thread shows of its conversation."""

    # A hash of the title, which is data of people; empty if the platform has chosen the name.
    title: str = ""
    archived: bool = False


class ThreadUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """How a thread differs from its conversation."""

    lane: LaneKey
    target: Target
    # The new name; empty if it stays.
    title: str
    archive: bool
    # Something may still be sent there, which would open an archived thread again.
    busy: bool
    # What it shows after the update.
    state: ThreadState


def list_lanes(tx: Transaction, *, platform: str, account: str) -> list[LaneKey]:
    """Return the lanes of the threads of an account that were used lately."""
    found = lanes.list_shared(tx, since=tx.now - _MAX_AGE)
    return [lane.key for lane in found if _is_thread(lane, platform, account)]


def list_session_lanes(
    tx: Transaction, changed: frozenset[SessionId], *, platform: str, account: str
) -> list[LaneKey]:
    """Return the lanes of the threads of an account that have one of these sessions."""
    found = [lane for session in sorted(changed) for lane in lanes.list_for_session(tx, session)]
    return [lane.key for lane in found if _is_thread(lane, platform, account)]


def find_update(tx: Transaction, key: LaneKey, *, platform: str, account: str) -> ThreadUpdate | None:
    """Return what the thread of a lane does not show yet; `None` if it shows all, or is not the thread of one conversation."""
    lane = next(iter(lanes.get_many(tx, [key])), None)
    if lane is None or not _is_thread(lane, platform, account):
        return None
    moves = lanes.list_moves(tx, key, limit=2)
    session = next(iter(sessions.get_many(tx, [lane.session])), None) if lane.session else None
    # A lane without a session has ended one, or never had one: a thread that has only seen a command.
    ended = session is None or session.ended_at is not None or session.deleted_at is not None
    if session is None and not moves:
        return None
    stored = inbox.get_cursor(tx, _PREFIX + key)
    shown = codec.loads(stored, ThreadState) if stored else ThreadState()
    # The name of a thread is kept by its platform.
    title = session.title if session and not is_temporary(session.id) else ""
    named = hashlib.sha256(title.encode()).hexdigest()[:16] if title else shown.title
    wanted = ThreadState(named, ended)
    if wanted == shown:
        return None
    open_turn = any(move.session and turns.has_open(tx, move.session) for move in moves)
    return ThreadUpdate(
        lane=key,
        target=lane.target,
        title=title if named != shown.title else "",
        archive=ended and not shown.archived,
        busy=ended and (open_turn or deliveries.has_waiting(tx, lane.target)),
        state=wanted,
    )


def record(tx: Transaction, update: ThreadUpdate) -> None:
    """Record that a thread shows what it should, or cannot."""
    inbox.set_state(tx, _PREFIX + update.lane, codec.dumps(update.state))


def trim(tx: Transaction, *, before: datetime) -> None:
    inbox.trim_states(tx, _PREFIX, before=before)


def _is_thread(lane: Lane, platform: str, account: str) -> bool:
    """Whether a lane is the conversation of all people in a thread of an account."""
    target = lane.target
    return lane.shared and bool(target.thread) and (target.platform, target.account) == (platform, account)
