"""Receives one inbound event: dedupe it, find the lane, apply its reset policy, append the message and queue its turn, or run its command."""

from datetime import datetime
from functools import partial

import msgspec

from keryx.core import ids, lanes, prompt, resets
from keryx.core import source as sources
from keryx.core.access import CLOSED, AccessRule, find_rule, lacks_mention
from keryx.core.deliveries import Delivery, Target
from keryx.core.errors import Invalid
from keryx.core.ids import PrincipalId, SessionId
from keryx.core.lanes import Lane, LaneAddress
from keryx.core.media import Media, filter_media, name_media
from keryx.core.messages import Mark, Notice, Parts, Role, Text, join_text, text_parts
from keryx.core.ports.adapter import (
    InboundDeletion,
    InboundEvent,
    InboundFailure,
    InboundMessage,
    InboundReaction,
    Receipt,
    name_cursor,
)
from keryx.core.questions import format_confirmation
from keryx.core.resets import ResetReason
from keryx.core.sessions import END_SURFACE, EndReason, Session, SessionSettings, Viewer
from keryx.core.source import ChatType, Source
from keryx.core.text import truncate
from keryx.core.texts import Phrase
from keryx.core.turns import BusyMode
from keryx.engine import commands
from keryx.engine.policy import Policy
from keryx.engine.units import (
    access,
    control,
    downloads,
    gathering,
    message_events,
    questions,
    relay,
    revisions,
)
from keryx.engine.units import deliveries as delivery_units
from keryx.engine.units.user_messages import build_user_message, submit
from keryx.store import deliveries, inbox, jobs, media, messages, overheard, people, sessions, turns
from keryx.store import lanes as lane_store
from keryx.store.changes import Scope
from keryx.store.db import Transaction

_MAX_OVERHEARD = 20


def receive(
    tx: Transaction,
    inbound: InboundEvent,
    *,
    policy: Policy,
    command: commands.ParsedCommand | None = None,
    search_reply: str | None = None,
) -> Receipt:
    """Store one event: dedupe it, find its lane, queue a turn or run its command, and move the platform's cursor.

    A repeated event moves the cursor only and returns the first receipt. Raise `Conflict` if the digest of the first one
    was another. `search_reply` is the result of a /search, which runs before the transaction."""
    source = inbound.source
    # A secret is short, so it could be guessed from its hash.
    secret = command is not None and command.secret
    digest = inbound.digest if isinstance(inbound, InboundMessage) and not secret else ""
    earlier = inbox.find_receipt(
        tx, platform=source.platform, account=source.account, event=inbound.event, digest=digest
    )
    receipt = earlier
    if receipt is None and policy.relay is not None:
        receipt = relay.take(tx, inbound, policy.relay)
    if receipt is None:
        receipt = _apply(tx, inbound, policy, command, search_reply)
    if earlier is None:
        if receipt.session and ids.is_temporary(receipt.session):
            # A reply may quote what was said, and a short message could be guessed from its hash.
            secret, digest = True, ""
        stored = msgspec.structs.replace(receipt, reply=None) if secret else receipt
        inbox.record(
            tx,
            stored,
            platform=source.platform,
            account=source.account,
            event=inbound.event,
            digest=digest,
        )
    if inbound.cursor is not None:
        inbox.set_cursor(tx, name_cursor(source.platform, source.account), inbound.cursor)
    for scope, value in inbound.state.items():
        inbox.set_state(tx, name_cursor(source.platform, source.account, scope), value)
    return receipt if earlier is None else msgspec.structs.replace(receipt, duplicate=True)


def _apply(
    tx: Transaction,
    inbound: InboundEvent,
    policy: Policy,
    command: commands.ParsedCommand | None,
    search_reply: str | None,
) -> Receipt:
    match inbound:
        case InboundDeletion():
            return message_events.apply_deletion(tx, inbound)
        case InboundReaction():
            return message_events.apply_reaction(tx, inbound, policy.access, _find_person(tx, inbound.source))
        case InboundFailure():
            delivery_units.record_late_failure(tx, inbound, policy=policy)
            return Receipt(duplicate=False)
        case InboundMessage():
            receipt = _route(tx, inbound, policy, command, search_reply)
            if inbound.edits is None:
                downloads.begin(tx, inbound, receipt)
            return receipt
        case _:
            raise Invalid(f"an event of the type {type(inbound).__name__} cannot be received")


def _route(
    tx: Transaction,
    inbound: InboundMessage,
    policy: Policy,
    command: commands.ParsedCommand | None,
    search_reply: str | None,
) -> Receipt:
    if not access.admit(tx, inbound, policy.access):
        return _ignore(tx, inbound, policy, Phrase("receipt.forbidden"))
    rule = find_rule(policy.access, inbound.source.platform, inbound.source.account) or CLOSED
    local = inbound.principal is not None
    if inbound.reply and policy.holds(inbound.source.platform):
        # What was held until this person wrote is ready now, under each of their ids.
        others = access.find_other_ids(tx, inbound.source) if inbound.source.chat_type is ChatType.DM else []
        for chat in dict.fromkeys((inbound.reply.chat, *others)):
            deliveries.release_held(tx, msgspec.structs.replace(inbound.reply, chat=chat))
    if not inbound.addressed and (
        _continues_turn(tx, inbound, policy)
        or _takes_part(tx, inbound, rule, policy)
        or _edits_question(tx, inbound)
    ):
        inbound = msgspec.structs.replace(inbound, addressed=True)
    if not inbound.addressed and (local or lacks_mention(rule, inbound.source, addressed=False)):
        if not local and not rule.observe:
            return _ignore(tx, inbound, policy, Phrase("receipt.not_addressed"))
        inbound = msgspec.structs.replace(inbound, observed=True)
    person = _ensure_principal(tx, inbound)
    if inbound.observed and not local and _overhear(tx, inbound, person):
        return _ignore(tx, inbound, policy, Phrase("receipt.overheard"))
    viewer = Viewer(inbound.source.profile, person)
    lane = None if inbound.session else ensure_lane(tx, inbound, policy, person)
    if inbound.edits is not None:
        return message_events.apply_edit(tx, inbound, lane, viewer, policy.edits)
    if command is not None and not inbound.observed:
        return _run_command(tx, inbound, command, lane, viewer, policy, search_reply)
    current = inbound.session or (lane.session if lane else None)
    pending = sessions.find_pending(tx, current) if current else None
    if current and pending and pending.question:
        receipt = _try_answer(tx, inbound, current, viewer)
        if receipt is not None:
            return receipt
    inbound = downloads.add_placeholders(inbound)
    lane, notice = _reset_if_due(tx, lane, policy) if lane else (None, None)
    session = _ensure_session(tx, inbound, lane, viewer, policy)
    if ids.is_temporary(session.id):
        inbound = msgspec.structs.replace(inbound, parts=_leave_out_files(tx, session, inbound))
    if notice and inbound.reply:
        deliveries.enqueue(tx, inbound.reply, notice, of=session)
    if lane is not None and inbound.source.chat_type is not ChatType.DM:
        _append_overheard(tx, inbound, lane, session)
        pending = None
    if pending is None or session.id != current:
        pending = sessions.find_pending(tx, session.id)
    default = session.settings.busy
    window = policy.limits.gather
    message = build_user_message(
        inbound,
        person,
        inbound.busy or (BusyMode(default) if default else policy.busy),
        exact=_render_for_model(tx, inbound, lane, session, noted=pending.note),
        gather_until=gathering.get_end(tx, inbound, window),
    )
    turn = None
    # What arrives in two processes at once is not seen yet, so a message that names its group looks in any case.
    if pending.turn or inbound.group or inbound.continues:
        turn = gathering.find_turn(tx, session.id, inbound, person, window)
    if turn is not None:
        return gathering.join(tx, session, turn, message)
    return submit(tx, session, message, mirrored=pending.mirror)


def _ignore(tx: Transaction, inbound: InboundMessage, policy: Policy, why: str) -> Receipt:
    """Return the receipt of a message that leads to nothing, with its lane and what the rules say."""
    source = inbound.source
    aliases = access.find_aliases(tx, source)
    try:
        lane = lanes.build_address(source, sharing=policy.sharing, aliases=aliases).key
    except Invalid as exc:
        lane = Phrase("receipt.no_lane", reason=exc.text)
    rule = access.explain(tx, source, policy.access)
    reason = Phrase("receipt.ignored", reason=why, lane=lane, rule=rule)
    return Receipt(duplicate=False, reason=str(reason))


def _leave_out_files(tx: Transaction, session: Session, inbound: InboundMessage) -> Parts:
    """Return the parts of a message of a temporary session, with a note in the place of each file that is not sealed for it."""
    texts = tx.texts.speak(inbound.source.language, inbound.source.platform)
    return tuple(
        part
        if not isinstance(part, Media) or not part.media or media.is_sealed_for(tx, session.id, part.media)
        else Text(texts.say("temporary.file", name=part.name or texts.say("file.unnamed")))
        for part in inbound.parts
    )


def _overhear(tx: Transaction, inbound: InboundMessage, person: PrincipalId) -> bool:
    """Keep what was said in a group as context for the next question there. False in a direct chat, and for the edit of a message
    that was not overheard."""
    source = inbound.source
    # A picture or file is named, as it is in a message until it is fetched.
    named = (*map(name_media, filter_media(inbound.parts)), *(file.placeholder for file in inbound.files))
    said = "\n\n".join(filter(None, (join_text(inbound.parts), " ".join(named))))
    text = truncate(said, prompt.LONGEST_QUOTE)
    if source.chat_type is ChatType.DM:
        return False
    if inbound.edits is not None:
        return overheard.rewrite(tx, source, inbound.edits, text)
    if text:
        overheard.add(tx, source, text, event=inbound.event, said_by=person, keep=_MAX_OVERHEARD)
    return True


def _append_overheard(tx: Transaction, inbound: InboundMessage, lane: Lane, session: Session) -> None:
    """Append what was said in the chat since the last question of this lane."""
    source = inbound.source
    if source.thread is not None and source.thread == source.message:
        # The question begins a thread, but was asked in the chat itself.
        source = msgspec.structs.replace(source, thread=None)
    for said in overheard.take(tx, source, lane.key):
        messages.append(
            tx,
            session.id,
            Role.USER,
            text_parts(said.text),
            author=said.author,
            surface=inbound.surface,
            platform_id=said.platform_id,
            observed=True,
            said_by=said.said_by,
        )


def trim_inbox(tx: Transaction, *, before: datetime) -> None:
    """Forget events, and what was overheard, from before a moment."""
    inbox.trim(tx, before=before)
    message_events.trim_early(tx, before=before)
    overheard.trim(tx, before=before)


def _continues_turn(tx: Transaction, inbound: InboundMessage, policy: Policy) -> bool:
    """Whether an event belongs to a message to the agent that is not answered yet."""
    if not (inbound.group or inbound.continues):
        return False
    sender = find_sender(tx, inbound)
    return sender is not None and gathering.belongs_to_open_turn(
        tx, inbound, sender, policy.sharing, policy.limits.gather
    )


def _edits_question(tx: Transaction, inbound: InboundMessage) -> bool:
    """Whether an event edits a message to the agent: the new text need not mention it again."""
    if inbound.edits is None:
        return False
    original = message_events.find_received(tx, inbound.source, inbound.edits)
    return original is not None and original.turn is not None and not original.observed


def _takes_part(tx: Transaction, inbound: InboundMessage, rule: AccessRule, policy: Policy) -> bool:
    """Whether a message is in a thread in which the agent was addressed before, or that began below one of its answers."""
    source = inbound.source
    if not rule.follow_threads or not source.thread or policy.has_topics(source.platform):
        return False
    aliases = access.find_aliases(tx, source)
    address = lanes.build_address(source, sharing=policy.sharing, aliases=aliases)
    return lane_store.find_locked(tx, address.key) is not None or _find_root(tx, inbound) is not None


def _find_root(tx: Transaction, inbound: InboundMessage) -> Delivery | None:
    """Return the answer on which the thread of a message hangs."""
    source, root = inbound.source, inbound.thread_root
    chat = Target(source.platform, source.account, source.chat or "")
    return deliveries.find_by_message(tx, chat, root) if root else None


def find_sender(tx: Transaction, inbound: InboundMessage) -> PrincipalId | None:
    """Return who sent an event, or `None` for a person who has never sent one before."""
    return inbound.principal or _find_person(tx, inbound.source)


def _find_person(tx: Transaction, source: Source) -> PrincipalId | None:
    person = _resolve_person(tx, source)
    return (
        people.find(tx, profile=source.profile, platform=source.platform, person=person) if person else None
    )


def _ensure_principal(tx: Transaction, inbound: InboundMessage) -> PrincipalId:
    if inbound.principal is not None:
        return inbound.principal
    source, person = inbound.source, _resolve_person(tx, inbound.source)
    if not person:
        raise Invalid(f"a message from {source.platform!r} names nobody: set its user")
    return people.resolve(
        tx,
        profile=source.profile,
        platform=source.platform,
        person=person,
        name=source.user_name or "",
    )


def _resolve_person(tx: Transaction, source: Source) -> str:
    """Return the canonical id of the author of an event, empty if it names none."""
    person = access.identify(source)
    if not person:
        return ""
    return sources.resolve_user(source.platform, person, aliases=access.find_aliases(tx, source))


def ensure_lane(tx: Transaction, inbound: InboundMessage, policy: Policy, person: PrincipalId) -> Lane:
    """Return the lane of an event, created if there is none yet."""
    address = lanes.build_address(
        inbound.source, sharing=policy.sharing, aliases=access.find_aliases(tx, inbound.source)
    )
    return lane_store.ensure(tx, address, inbound.source, owner=person, target=inbound.reply)


def _ensure_session(
    tx: Transaction, inbound: InboundMessage, lane: Lane | None, viewer: Viewer, policy: Policy
) -> Session:
    """Return the session of a message, created if the lane has none."""
    if lane is None:
        named = _find_named_session(tx, inbound, viewer)
        return named or sessions.get(tx, _create_session(tx, inbound, viewer))
    current = lane.session
    if current is None:
        run, thread = None, inbound.source.thread
        if thread and lane.owner == viewer.principal and not lane_store.list_moves(tx, lane.key, limit=1):
            # A new thread under the answer of a scheduled run continues the session of that run.
            run = jobs.find_session_for_delivery(tx, viewer, lane.target, receipt=thread)
        copy = None if run or not policy.sharing.threads_inherit else _copy_for_thread(tx, inbound, lane)
        current = run or copy or _create_session(tx, inbound, Viewer(lane.profile, lane.owner))
        why = "move.run_thread" if run else "move.answer_thread" if copy else "move.first"
        lane_store.move(tx, lane, current, why=Phrase(why))
    if not inbound.observed:
        expires = resets.find_next_due(_find_reset_policy(lane, policy), last_active=tx.now)
        lane_store.touch(tx, lane, expires_at=expires)
    return sessions.get(tx, current)


def _copy_for_thread(tx: Transaction, inbound: InboundMessage, lane: Lane) -> SessionId | None:
    """Copy the conversation that led to the answer on which a new thread hangs. What others read in the thread is only what
    was said in the same chat."""
    if lane_store.list_moves(tx, lane.key, limit=1):
        return None
    answer = _find_root(tx, inbound)
    if answer is None or answer.session is None or answer.turn is None or answer.profile != lane.profile:
        return None
    session = sessions.get(tx, answer.session, deleted=True)
    if session.deleted_at is not None:
        return None
    alone = not lane.shared and lane.owner == session.owner
    return revisions.fork_for_thread(
        tx,
        session,
        answer.turn,
        owner=Viewer(lane.profile, lane.owner),
        surface=inbound.surface,
        origin=inbound.source,
        chat=None if alone else answer.target,
    )


def _find_named_session(tx: Transaction, inbound: InboundMessage, viewer: Viewer) -> Session | None:
    """Return the session that an event names, or `None` if it does not exist and the event may create it."""
    assert inbound.session is not None
    if inbound.begin and not sessions.exists(tx, inbound.session):
        return None
    return sessions.get(tx, inbound.session, viewer=viewer)


def _create_session(tx: Transaction, inbound: InboundMessage, owner: Viewer) -> SessionId:
    if inbound.session:
        sessions.unreserve(tx, inbound.session)
    return sessions.create(
        tx,
        id=inbound.session,
        profile=owner.profile,
        owner=owner.principal,
        surface=inbound.surface,
        origin=inbound.source,
        cwd=inbound.cwd,
        settings=inbound.settings or SessionSettings(),
    )


def _find_reset_policy(lane: Lane, policy: Policy) -> resets.ResetPolicy:
    return policy.resets.for_source(lane.source.platform, ChatType(lane.source.chat_type))


def find_reset_reason(tx: Transaction, lane: Lane, policy: Policy) -> ResetReason | None:
    """Return why a lane must start a new session, or `None`."""
    if lane.session is None:
        return None
    if lane.suspended:
        # Queued turns are answered first: two sessions at once would answer out of order in one chat.
        return None if turns.has_open(tx, lane.session) else ResetReason.SUSPENDED
    rule = _find_reset_policy(lane, policy)
    if resets.find_due_reason(rule, last_active=lane.active_at, now=tx.now) is None:
        return None
    running = turns.find_running(tx, lane.session)
    return resets.find_due_reason(
        rule,
        last_active=lane.active_at,
        now=tx.now,
        # The turn at the end of a session does not keep the session open.
        busy_since=running.started_at if running and running.surface != END_SURFACE else None,
        busy_limit=policy.resets.busy_limit,
    )


def expire_lane(tx: Transaction, *, lane: Lane, policy: Policy) -> None:
    """End the lane's session if it is due. The next message moves the lane and sends the notice."""
    address = LaneAddress(key=lane.key, shared=lane.shared)
    current = lane_store.ensure(tx, address, lane.source, owner=lane.owner)
    reason = find_reset_reason(tx, current, policy)
    if reason is None:
        running = turns.find_running(tx, current.session) if current.session else None
        next_due = resets.find_next_due(
            _find_reset_policy(current, policy),
            last_active=current.active_at,
            busy_since=running.started_at if running else None,
            busy_limit=policy.resets.busy_limit,
        )
        lane_store.set_expiry(tx, current, next_due if current.session else None)
        return
    assert current.session is not None
    sessions.lock(tx, current.session)
    control.end_session(tx, sessions.get(tx, current.session, deleted=True), EndReason(reason.value))
    lane_store.set_expiry(tx, current, None)


def _reset_if_due(tx: Transaction, lane: Lane, policy: Policy) -> tuple[Lane, str | None]:
    """Move the lane to a new session if its policy says so. Return the lane and the notice for the user."""
    reason = find_reset_reason(tx, lane, policy)
    if reason is None or lane.session is None:
        return lane, None
    lane, notice = control.reset(tx, lane, reason)
    return lane, notice if policy.notices.tell_reset(lane.source.platform) else None


def _render_for_model(
    tx: Transaction, inbound: InboundMessage, lane: Lane | None, session: Session, *, noted: bool
) -> str | None:
    """Return the text of a message for the model if it differs from the text of its parts. `noted` is false if there is neither
    a notice nor an observed message since the last message to the agent."""
    if inbound.observed:
        return None
    # What was said in a group since the last message to the agent, and how people reacted.
    overheard: list[tuple[str, str]] = []
    reactions: list[str] = []
    if lane is not None and noted:
        for message in messages.list_since_question(tx, session.id, limit=_MAX_OVERHEARD):
            if message.observed and message.text and message.mark is not Mark.WITHDRAWN:
                overheard.append((message.author, message.text))
            reactions += message_events.list_reactions(message)
    said = join_text(inbound.said)
    name = inbound.source.user_name or "someone" if lane and lane.shared else ""
    exact = prompt.format_message(
        said,
        name=name,
        quoted=inbound.quote or message_events.find_quote(tx, session.id, inbound.source, inbound.replies_to),
        overheard=overheard,
        reactions=reactions,
    )
    if exact is None and inbound.model_text is not None:
        return (prompt.format_speaker(name) if name else "") + said
    return exact


def _try_answer(
    tx: Transaction, inbound: InboundMessage, session: SessionId, viewer: Viewer
) -> Receipt | None:
    """Record a message as the answer to the open question, if it can be one."""
    if inbound.observed or inbound.files or not inbound.commands:
        return None
    match = questions.match_message(tx, session, viewer, inbound.said)
    if match is None:
        return None
    question, text = match
    closed = questions.record_answer(tx, question, viewer, text)
    reply = format_confirmation(closed, tx.texts.speak(inbound.source.language, inbound.source.platform))
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
    command: commands.ParsedCommand,
    lane: Lane | None,
    viewer: Viewer,
    policy: Policy,
    search_reply: str | None,
) -> Receipt:
    notice = None
    if lane and command.text and command.command and command.command.begins:
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
        text=command.text,
        begin=partial(_ensure_session, tx, inbound, lane, viewer, policy),
        search_reply=search_reply,
    )
    result = commands.run(command, call)
    seq, reply = result.seq, result.reply
    begun = result.session if session is None or result.session != session.id else None
    if begun and not sessions.get(tx, begun, deleted=True).last_seq:
        # No session is empty: one that a command created begins with the reply.
        seq = messages.append(
            tx,
            begun,
            Role.NOTICE,
            (Notice(reply),),
            surface=inbound.surface,
            platform_id=ids.escape(inbound.source.message or ""),
            said_by=viewer.principal,
        )
    if notice:
        reply = "\n\n".join(filter(None, (notice, reply)))
    viewer = Viewer(viewer.profile, result.asker or viewer.principal)
    _enqueue_reply(tx, inbound, reply, viewer, result.session, secret=command.secret)
    reason = "" if result.turn else str(Phrase("receipt.command", name=command.name))
    return Receipt(
        duplicate=False, session=result.session, turn=result.turn, seq=seq, reply=reply, reason=reason
    )


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
    """Fork a session up to a message and receive an event in the copy. A repeated event makes no second copy.

    With `through` 0 there is nothing to copy: a new session is created with the settings of the old one."""
    source = inbound.source
    if inbox.find_receipt(tx, platform=source.platform, account=source.account, event=inbound.event):
        return receive(tx, inbound, policy=policy)
    if through == 0:
        inbound = msgspec.structs.replace(inbound, settings=session.settings, cwd=session.cwd)
    else:
        copy = revisions.fork(tx, session, surface=surface, through=through, title=title)
        inbound = msgspec.structs.replace(inbound, session=copy.id)
    return receive(tx, inbound, policy=policy, command=commands.parse_inbound(inbound))
