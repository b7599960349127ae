"""What one inbound event does: dedupe, find the lane, apply its reset policy, append the message and queue its turn, or run its command."""

from functools import partial

import msgspec

from keryx.core import ids, lanes, prompt, resets
from keryx.core import source as sources
from keryx.core.access import CLOSED, lacks_mention
from keryx.core.errors import Invalid
from keryx.core.ids import PrincipalId, SessionId
from keryx.core.lanes import Lane, LaneAddress
from keryx.core.messages import Mark, Notice, Role, Text, join_text
from keryx.core.ports.adapter import InboundMessage, Receipt
from keryx.core.questions import format_confirmation
from keryx.core.resets import ResetReason
from keryx.core.sessions import EndReason, Session, SessionSettings, Viewer
from keryx.core.source import ChatType
from keryx.core.turns import BusyMode, TurnState
from keryx.engine import commands
from keryx.engine.policy import Policy
from keryx.engine.units import access, control, questions, revisions
from keryx.engine.units.user_messages import build_user_message, submit
from keryx.store import deliveries, inbox, jobs, messages, people, sessions, turns
from keryx.store import lanes as lane_store
from keryx.store.changes import Scope
from keryx.store.db.database import Transaction

_MAX_OVERHEARD = 20


def receive(
    tx: Transaction,
    inbound: InboundMessage,
    *,
    policy: Policy,
    command: commands.ParsedCommand | None = None,
    found: str | None = None,
) -> Receipt:
    """Store one event: dedupe it, find its lane, queue a turn or run its command, and move the platform's cursor.

    A repeated event moves the cursor only and returns the first receipt. `found` is the result of a /search, which runs
    before the transaction."""
    source = inbound.source
    earlier = inbox.find_receipt(tx, platform=source.platform, account=source.account, event=inbound.event)
    receipt = earlier or _route(tx, inbound, policy, command, found)
    if earlier is None:
        kept = msgspec.structs.replace(receipt, reply=None) if command and command.secret else receipt
        inbox.record(tx, kept, platform=source.platform, account=source.account, event=inbound.event)
    if inbound.cursor is not None:
        inbox.set_cursor(tx, *inbound.cursor)
    return (
        receipt
        if earlier is None
        else Receipt(
            duplicate=True, session=receipt.session, turn=receipt.turn, seq=receipt.seq, reply=receipt.reply
        )
    )


def _route(
    tx: Transaction,
    inbound: InboundMessage,
    policy: Policy,
    command: commands.ParsedCommand | None,
    found: str | None,
) -> Receipt:
    heard = _apply_platform_rule(inbound, policy) if access.admit(tx, inbound, policy.access) else None
    if heard is None:
        return Receipt(duplicate=False)
    inbound = heard
    person = _ensure_principal(tx, inbound)
    viewer = Viewer(inbound.source.profile, person)
    lane = None if inbound.session else ensure_lane(tx, inbound, policy, person)
    if inbound.edits is not None:
        return _apply_edit(tx, inbound, lane, viewer)
    if command is not None and not inbound.observed:
        return _run_command(tx, inbound, command, lane, viewer, policy, found)
    answered = _try_answer(tx, inbound, lane, viewer)
    if answered is not None:
        return answered
    lane, notice = _reset_if_due(tx, lane, policy) if lane else (None, None)
    session = _ensure_session(tx, inbound, lane, viewer, policy)
    if notice and inbound.reply:
        deliveries.enqueue(tx, inbound.reply, notice, of=session)
    mode = _choose_busy_mode(inbound, session, policy)
    asked = build_user_message(inbound, person, mode, exact=_render_for_model(tx, inbound, lane, session))
    return submit(tx, session, asked)


def find_asker(tx: Transaction, inbound: InboundMessage) -> PrincipalId | None:
    """Who sent an event, as far as is known yet."""
    source, person = inbound.source, access.identify(inbound.source)
    if inbound.principal is not None or not person:
        return inbound.principal
    known = sources.resolve_user(source.platform, person, aliases=access.find_aliases(tx, source))
    return people.find(tx, profile=source.profile, platform=source.platform, person=known)


def _apply_platform_rule(inbound: InboundMessage, policy: Policy) -> InboundMessage | None:
    """An event as the rule of its platform takes it: to be answered, only to be observed, or not at all."""
    rule = policy.access.get(inbound.source.platform, CLOSED)
    local = inbound.principal is not None
    if inbound.addressed or (not local and not lacks_mention(rule, inbound.source, addressed=False)):
        return inbound
    return msgspec.structs.replace(inbound, observed=True) if local or rule.observe else None


def _ensure_principal(tx: Transaction, inbound: InboundMessage) -> PrincipalId:
    if inbound.principal is not None:
        return inbound.principal
    source, person = inbound.source, access.identify(inbound.source)
    if not person:
        raise Invalid(f"a message from {source.platform!r} names nobody: set its user")
    return people.resolve(
        tx,
        profile=source.profile,
        platform=source.platform,
        person=sources.resolve_user(source.platform, person, aliases=access.find_aliases(tx, source)),
        name=source.user_name or "",
    )


def ensure_lane(tx: Transaction, inbound: InboundMessage, policy: Policy, person: PrincipalId) -> Lane:
    """The lane of an event, made at first contact."""
    address = lanes.build_address(
        inbound.source, sharing=policy.sharing, aliases=access.find_aliases(tx, inbound.source)
    )
    return lane_store.ensure(tx, address, inbound.source, owner=person, target=inbound.reply)


def _ensure_session(
    tx: Transaction, inbound: InboundMessage, lane: Lane | None, viewer: Viewer, policy: Policy
) -> Session:
    """The session that a message belongs to, made with this message if the lane has none."""
    if lane is None:
        return _find_named_session(tx, inbound, viewer) or _create_session(tx, inbound, viewer)
    current = lane.session
    if current is None:
        run = _find_run(tx, inbound, lane, viewer)
        current = run or sessions.create(
            tx,
            profile=lane.profile,
            owner=lane.owner,
            surface=inbound.surface,
            origin=inbound.source,
            cwd=inbound.cwd,
            settings=inbound.settings or SessionSettings(),
        )
        why = "a thread of a scheduled run" if run else "first message"
        lane_store.move(tx, lane, current, why=why)
    if not inbound.observed:
        expires = resets.find_next_due(_find_reset_policy(lane, policy), last_active=tx.now)
        lane_store.touch(tx, lane, expires_at=expires)
    return sessions.get(tx, current)


def _find_run(tx: Transaction, inbound: InboundMessage, lane: Lane, viewer: Viewer) -> SessionId | None:
    """The scheduled run that goes on in a new thread, if that hangs on the run's answer."""
    thread = inbound.source.thread
    if not thread or lane.owner != viewer.principal or lane_store.list_moves(tx, lane.key, limit=1):
        return None
    return jobs.find_session_for_delivery(tx, viewer, lane.target, receipt=thread)


def _find_named_session(tx: Transaction, inbound: InboundMessage, viewer: Viewer) -> Session | None:
    """The session that an event names; `None` if it may begin one and this is the beginning."""
    assert inbound.session is not None
    if inbound.begin and not sessions.exists(tx, inbound.session):
        return None
    return sessions.get(tx, inbound.session, viewer=viewer)


def _create_session(tx: Transaction, inbound: InboundMessage, viewer: Viewer) -> Session:
    made = sessions.create(
        tx,
        id=inbound.session,
        profile=viewer.profile,
        owner=viewer.principal,
        surface=inbound.surface,
        origin=inbound.source,
        cwd=inbound.cwd,
        settings=inbound.settings or SessionSettings(),
    )
    return sessions.get(tx, made)


def _find_reset_policy(lane: Lane, policy: Policy) -> resets.ResetPolicy:
    return policy.resets.for_source(lane.source.platform, ChatType(lane.source.chat_type))


def find_reset_reason(tx: Transaction, lane: Lane, policy: Policy) -> ResetReason | None:
    """Why a lane must start afresh, by the one rule; the expiry sweep asks the same question."""
    if lane.session is None:
        return None
    if lane.suspended:
        # What waits is answered first: two conversations at once would answer in one chat out of order.
        return None if turns.has_open(tx, lane.session) else ResetReason.SUSPENDED
    rule = _find_reset_policy(lane, policy)
    if resets.find_due_reason(rule, last_active=lane.active_at, now=tx.now) is None:
        return None
    running = turns.find_running(tx, lane.session)
    return resets.find_due_reason(
        rule,
        last_active=lane.active_at,
        now=tx.now,
        busy_since=running.started_at if running else None,
        busy_limit=policy.busy_limit,
    )


def expire_lane(tx: Transaction, *, lane: Lane, policy: Policy) -> None:
    """End the lane's session if it is due. The lane moves, and the person is told, with the next message."""
    address = LaneAddress(key=lane.key, shared=lane.shared)
    current = lane_store.ensure(tx, address, lane.source, owner=lane.owner)
    reason = find_reset_reason(tx, current, policy)
    if reason is None:
        running = turns.find_running(tx, current.session) if current.session else None
        next_due = resets.find_next_due(
            _find_reset_policy(current, policy),
            last_active=current.active_at,
            busy_since=running.started_at if running else None,
            busy_limit=policy.busy_limit,
        )
        lane_store.set_expiry(tx, current, next_due if current.session else None)
        return
    assert current.session is not None
    sessions.lock(tx, current.session)
    control.end_session(tx, sessions.get(tx, current.session, deleted=True), EndReason(reason.value))
    lane_store.set_expiry(tx, current, None)


def _reset_if_due(tx: Transaction, lane: Lane, policy: Policy) -> tuple[Lane, str | None]:
    """Move the lane to a fresh session if its policy says so; gives the lane, and what the person is told."""
    reason = find_reset_reason(tx, lane, policy)
    if reason is None or lane.session is None:
        return lane, None
    return control.reset(tx, lane, reason)


def _choose_busy_mode(inbound: InboundMessage, session: Session, policy: Policy) -> BusyMode:
    chosen = session.settings.busy
    return inbound.busy or (BusyMode(chosen) if chosen else policy.busy)


def _render_for_model(
    tx: Transaction, inbound: InboundMessage, lane: Lane | None, session: Session
) -> str | None:
    """What the model is given for a message, where that is more than what was said."""
    if inbound.observed:
        return None
    among_others = inbound.source.chat_type is not ChatType.DM
    return prompt.format_message(
        join_text(inbound.parts),
        name=inbound.source.user_name or "someone" if lane and lane.shared else "",
        quoted=inbound.quote,
        overheard=_load_overheard(tx, session.id) if among_others else (),
    )


def _load_overheard(tx: Transaction, session: SessionId) -> list[tuple[str, str]]:
    """Who said what here since somebody last spoke to the agent, oldest first: the last of it, if it is much."""
    found: list[tuple[str, str]] = []
    for message in reversed(messages.list_latest(tx, session, limit=_MAX_OVERHEARD)):
        if message.role is Role.USER and not message.observed:
            break
        if message.observed and message.text:
            found.append((message.author, message.text))
    return found[::-1]


def _apply_edit(tx: Transaction, inbound: InboundMessage, lane: Lane | None, viewer: Viewer) -> Receipt:
    """Take over an edit if its turn still waits; else note it for people."""
    given = sessions.get(tx, inbound.session, viewer=viewer).id if inbound.session else None
    session = given or (lane.session if lane else None)
    original = messages.find_by_platform_id(tx, session, ids.escape(inbound.edits or "")) if session else None
    if session is None or original is None:
        return Receipt(duplicate=False, session=session)
    turn = turns.find(tx, original.turn) if original.turn else None
    waiting = turn is not None and turn.state is TurnState.QUEUED
    if waiting:
        messages.rewrite(tx, original, inbound.parts)
        return Receipt(duplicate=False, session=session, turn=original.turn, seq=original.seq)
    text = "".join(p.text for p in inbound.parts if isinstance(p, Text))
    seq = messages.append(
        tx,
        session,
        Role.NOTICE,
        (Notice(text, kind=f"edit of {original.seq}"),),
        mark=Mark.EDITED,
        said_by=viewer.principal,
    )
    return Receipt(duplicate=False, session=session, seq=seq)


def _try_answer(
    tx: Transaction, inbound: InboundMessage, lane: Lane | None, viewer: Viewer
) -> Receipt | None:
    """Take a message as the answer to the question that waits here, if it can be one."""
    session = inbound.session or (lane.session if lane else None)
    if session is None or inbound.observed or not inbound.commands:
        return None
    found = questions.match_message(tx, session, viewer, inbound.parts)
    if found is None:
        return None
    asked, text = found
    asked = questions.record_answer(tx, asked, viewer, text)
    reply = format_confirmation(asked)
    _enqueue_reply(tx, inbound, reply, viewer, session)
    return Receipt(duplicate=False, session=session, reply=reply)


def _enqueue_reply(
    tx: Transaction,
    inbound: InboundMessage,
    text: str,
    viewer: Viewer,
    session: SessionId | None,
    *,
    secret: bool = False,
) -> None:
    if inbound.reply and text:
        scope = Scope(viewer.profile, viewer.principal, session)
        deliveries.enqueue(tx, inbound.reply, text, of=scope, secret=secret)


def _run_command(
    tx: Transaction,
    inbound: InboundMessage,
    asked: commands.ParsedCommand,
    lane: Lane | None,
    viewer: Viewer,
    policy: Policy,
    found: str | None,
) -> Receipt:
    notice = None
    if lane and asked.text and asked.command and asked.command.begins:
        lane, notice = _reset_if_due(tx, lane, policy)
    session = sessions.get(tx, lane.session) if lane and lane.session else None
    if inbound.session:
        session = _find_named_session(tx, inbound, viewer)
    call = commands.CommandCall(
        tx=tx,
        inbound=inbound,
        lane=lane,
        session=session,
        viewer=viewer,
        policy=policy,
        now=tx.now,
        text=asked.text,
        begin=partial(_ensure_session, tx, inbound, lane, viewer, policy),
        found=found,
    )
    done = commands.run(asked, call)
    if session is None:
        done = _append_first_reply(tx, inbound, done, viewer)
    if notice:
        done = msgspec.structs.replace(done, reply="\n\n".join(filter(None, (notice, done.reply))))
    viewer = Viewer(viewer.profile, done.asker or viewer.principal)
    _enqueue_reply(tx, inbound, done.reply, viewer, done.session, secret=asked.secret)
    return Receipt(duplicate=False, session=done.session, turn=done.turn, seq=done.seq, reply=done.reply)


def _append_first_reply(
    tx: Transaction, inbound: InboundMessage, done: commands.CommandResult, viewer: Viewer
) -> commands.CommandResult:
    """A conversation that a command began, begins with what the command replied: none is ever empty."""
    if done.session is None or sessions.get(tx, done.session, deleted=True).last_seq:
        return done
    seq = messages.append(
        tx,
        done.session,
        Role.NOTICE,
        (Notice(done.reply),),
        surface=inbound.surface,
        platform_id=ids.escape(inbound.source.message or ""),
        said_by=viewer.principal,
    )
    return msgspec.structs.replace(done, seq=seq)


def receive_in_fork(
    tx: Transaction,
    session: Session,
    inbound: InboundMessage,
    *,
    viewer: Viewer,
    surface: str,
    through: int | None,
    title: str | None,
    policy: Policy,
) -> Receipt:
    """Copy a session up to a message and take an event in there. Nothing before the first message is copied: then a
    new session begins with the settings of the old one. A repeated event makes no second copy."""
    source = inbound.source
    if inbox.find_receipt(tx, platform=source.platform, account=source.account, event=inbound.event):
        return receive(tx, inbound, policy=policy)
    if through == 0:
        said = msgspec.structs.replace(inbound, settings=session.settings, cwd=session.cwd)
    else:
        copy = revisions.fork(tx, session, surface=surface, through=through, title=title)
        said = msgspec.structs.replace(inbound, session=copy.id)
    return receive(tx, said, policy=policy, command=commands.parse_inbound(said))
