"""Undo, redo, retry, versions of questions, deletion of single messages, and fork. History is kept: messages become inactive or are copied; only an erasure removes text."""

from collections.abc import Sequence

import msgspec

from keryx.core import ids
from keryx.core.deliveries import Target
from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.core.ids import PrincipalId, SessionId, TurnId, WorkerId, is_temporary
from keryx.core.messages import (
    REMOVED,
    Mark,
    Message,
    Notice,
    Parts,
    Role,
    Text,
    ToolCall,
    ToolResult,
    TurnVersion,
    edit_exact,
    find_hidden_undos,
    is_active,
    text_parts,
)
from keryx.core.ports.adapter import Receipt
from keryx.core.sessions import Session, SessionSettings, TitleBy, Viewer
from keryx.core.source import Source
from keryx.core.texts import Phrase
from keryx.engine.units import downloads
from keryx.engine.units.privacy import ERASED
from keryx.engine.units.user_messages import UserMessage, append_input, submit
from keryx.store import epochs, media, messages, sessions, turns
from keryx.store.db import Transaction

_PAGE = 200


class UndoneTurns(msgspec.Struct, frozen=True):
    """What an undo took back: the number of turns, and for editing the last user message, or the one that was named."""

    turns: int
    message: Message

    @property
    def text(self) -> str:
        return self.message.text


def undo(tx: Transaction, session: Session, count: int = 1, *, message: int | None = None) -> UndoneTurns:
    """Undo the last turns, or with `message` the turn of that message and all later ones."""
    if count < 1:
        raise Invalid(Phrase("turn.undo_number"))
    sessions.lock(tx, session.id)
    refuse_while_busy(tx, session.id, "undo")
    if message is None:
        inputs = _last_inputs(tx, session.id, count)
    else:
        inputs = _last_inputs(tx, session.id, since=_find_first_input(tx, session.id, message))
    if not inputs:
        raise NotFound(Phrase("turn.nothing_to_undo"))
    epoch = epochs.find_current(tx, session.id)
    if epoch and inputs[0].seq < epoch.first_seq:
        raise Conflict(Phrase("turn.undo_compacted"))
    group = sessions.next_undo_group(tx, session.id)
    for entry in inputs:
        assert entry.turn is not None
        messages.set_undone(tx, session.id, entry.turn, first=entry.seq, group=group)
    sessions.note_revision(tx, session)
    return UndoneTurns(len(inputs), inputs[-1 if message is None else 0])


def redo(tx: Transaction, session: Session) -> int:
    """Restore what the last undo took, and return the number of messages. Raise `NotFound` after a new message."""
    sessions.lock(tx, session.id)
    refuse_while_busy(tx, session.id, "redo")
    last = messages.find_last_undo(tx, session.id)
    hidden = find_hidden_undos(messages.list_versions(tx, session.id))
    if (
        last is None
        or last.group in hidden
        or messages.has_user_message_after(tx, session.id, last.first_seq)
    ):
        raise NotFound(Phrase("turn.nothing_to_redo"))
    restored = messages.restore(tx, session.id, last.group)
    sessions.note_revision(tx, session)
    return restored


def retry(
    tx: Transaction,
    session: Session,
    *,
    asker: PrincipalId,
    surface: str,
    source: Source | None = None,
    pin: WorkerId | None = None,
    message: int | None = None,
    model: str | None = None,
) -> Receipt:
    """Submit the user messages of the last turn again, or with `message` those of the turn of that message: another version of
    it, with the same reply address. What there was from there on is the version before. Only `pin` may run it, if set.
    `model` answers this turn alone."""
    sessions.lock(tx, session.id)
    refuse_while_busy(tx, session.id, "retry")
    since = 1 if message is None else _find_first_input(tx, session.id, message)
    inputs = _last_inputs(tx, session.id, 1 if message is None else None, since=since)
    if not inputs or inputs[0].turn is None or (message is not None and inputs[0].seq != since):
        raise NotFound(Phrase("turn.nothing_to_retry"))
    return _submit_again(
        tx,
        session,
        _list_inputs(tx, inputs[0]),
        asker=asker,
        surface=surface,
        source=source,
        pin=pin,
        model=model,
    )


def edit(
    tx: Transaction,
    session: Session,
    seq: int,
    parts: Parts,
    *,
    asker: PrincipalId,
    surface: str,
    source: Source | None = None,
) -> Receipt:
    """Submit a user message with other parts: another version of its turn, with the same reply address. What there was from
    there on is the version before."""
    sessions.lock(tx, session.id)
    _refuse_while_open(tx, session.id)
    edited = messages.get(tx, session.id, seq)
    if edited.role is not Role.USER or edited.turn is None or not is_active(edited):
        raise Conflict(Phrase("turn.not_editable"))
    inputs = [
        msgspec.structs.replace(m, parts=parts, exact=edit_exact(m, parts)) if m.seq == seq else m
        for m in messages.list_for_turn(tx, session.id, edited.turn, first=1)
        if m.role is Role.USER and is_active(m)
    ]
    return _submit_again(tx, session, inputs, asker=asker, surface=surface, source=source)


def edit_answer(tx: Transaction, session: Session, seq: int, parts: Parts, *, editor: PrincipalId) -> Receipt:
    """Put other words in the place of those of an answer: another version of its turn, with the same questions and steps,
    which no agent answers. The answer is marked as edited. What there was from its question on is the version before."""
    sessions.lock(tx, session.id)
    _refuse_while_open(tx, session.id)
    edited = messages.get(tx, session.id, seq)
    if edited.role is not Role.ASSISTANT or edited.turn is None or not is_active(edited) or not edited.text:
        raise Conflict(Phrase("turn.not_editable"))
    entries = [m for m in messages.list_for_turn(tx, session.id, edited.turn, first=1) if is_active(m)]
    inputs = [m for m in entries if m.role is Role.USER]
    if not inputs:
        raise Conflict(Phrase("turn.not_editable"))
    undo(tx, session, message=inputs[0].seq)
    sessions.remove_bindings(tx, session.id)
    turn = TurnId(ids.new(tx.now))
    numbers: dict[int, int] = {}
    for entry in entries:
        changed = entry.seq == seq
        numbers[entry.seq] = messages.append(
            tx,
            session.id,
            entry.role,
            (*(p for p in entry.parts if not isinstance(p, Text)), *parts) if changed else entry.parts,
            turn=turn,
            author=entry.author,
            surface=entry.surface,
            platform_id=entry.platform_id,
            mark=Mark.EDITED if changed else entry.mark,
            exact=None if changed else entry.exact,
            said_by=editor if changed else None,
        )
    _add_version(tx, session.id, inputs[0], turn, numbers[inputs[0].seq])
    return Receipt(duplicate=False, session=session.id, turn=turn, seq=numbers[seq])


def choose_version(tx: Transaction, session: Session, turn: TurnId) -> None:
    """Go on with another version of a question: what followed it comes back, and what follows the one in use is kept with that.
    Raise `Conflict` if the conversation was compacted since, or is not at this question."""
    sessions.lock(tx, session.id)
    _refuse_while_open(tx, session.id)
    versions = messages.list_versions(tx, session.id)
    wanted = next((v for v in versions if v.turn == turn), None)
    if wanted is None:
        raise NotFound(Phrase("turn.no_version"))
    used = next((v for v in versions if v.first == wanted.first and v.undone == 0), None)
    if used is None:
        raise Conflict(Phrase("turn.version_undone"))
    if used == wanted:
        return
    epoch = epochs.find_current(tx, session.id)
    if epoch and min(wanted.seq, used.seq) < epoch.first_seq:
        raise Conflict(Phrase("turn.undo_compacted"))
    group = sessions.next_undo_group(tx, session.id)
    messages.set_undone_since(tx, session.id, first=used.seq, group=group)
    messages.restore(tx, session.id, wanted.undone)
    sessions.remove_bindings(tx, session.id)
    sessions.note_revision(tx, session)


def delete_message(tx: Transaction, session: Session, seq: int, *, erase: bool = False) -> None:
    """Take one message out of the conversation, with the results of the tools that it called. With `erase`, put other words in
    its place, for good. Raise `Conflict` while its turn is open."""
    sessions.lock(tx, session.id)
    message = messages.get(tx, session.id, seq)
    turn = turns.find(tx, message.turn) if message.turn else None
    if turn is not None and turn.session == session.id and not turn.state.finished:
        raise Conflict(Phrase("turn.open"))
    together = [message, *_list_results(tx, message)]
    for entry in together if erase else ():
        downloads.cancel(tx, entry)
        messages.redact(tx, entry, _build_erased(entry))
        media.unlink(tx, session.id, entry.parts, seq=entry.seq)
    messages.set_removed(tx, session.id, [m.seq for m in together if not m.undone])
    sessions.remove_bindings(tx, session.id)
    sessions.note_revision(tx, session)


def restore_message(tx: Transaction, session: Session, seq: int) -> None:
    """Bring a message back that was deleted alone, with the results of its tools."""
    sessions.lock(tx, session.id)
    message = messages.get(tx, session.id, seq)
    if message.undone != REMOVED:
        raise NotFound(Phrase("turn.nothing_to_redo"))
    together = [message, *_list_results(tx, message)]
    messages.restore_removed(tx, session.id, [m.seq for m in together])
    sessions.remove_bindings(tx, session.id)
    sessions.note_revision(tx, session)


def _list_results(tx: Transaction, message: Message) -> list[Message]:
    """Return the messages with results of the tools that a message called."""
    calls = {call.id for call in message.calls}
    if not calls or message.turn is None:
        return []
    later = messages.list_for_turn(tx, message.session, message.turn, first=message.seq + 1)
    return [m for m in later if any(isinstance(p, ToolResult) and p.id in calls for p in m.parts)]


def _build_erased(message: Message) -> Parts:
    """Return what stands in the place of an erased message. Calls of tools and their results stay pairs."""
    results = [p for p in message.parts if isinstance(p, ToolResult)]
    if results:
        return tuple(ToolResult(p.id, p.name, ERASED, failed=p.failed) for p in results)
    calls = [ToolCall(p.id, p.name, "{}") for p in message.calls]
    return (Notice(ERASED),) if message.role is Role.NOTICE else (*text_parts(ERASED), *calls)


def answer_edit(
    tx: Transaction,
    session: Session,
    edited: Message,
    parts: Parts,
    *,
    asker: PrincipalId,
    surface: str,
    source: Source | None,
) -> Receipt | None:
    """Undo the last turn and submit its user messages again, one of them with other parts. Return `None` if the message
    is not of the last turn, or that cannot be undone. The caller has locked the session."""
    last = _last_inputs(tx, session.id, 1)
    if not last or edited.turn is None or last[0].turn != edited.turn or turns.has_open(tx, session.id):
        return None
    epoch = epochs.find_current(tx, session.id)
    if epoch and last[0].seq < epoch.first_seq:
        return None
    inputs = [
        msgspec.structs.replace(m, parts=parts, exact=edit_exact(m, parts)) if m.seq == edited.seq else m
        for m in _list_inputs(tx, last[0])
    ]
    return _submit_again(tx, session, inputs, asker=asker, surface=surface, source=source)


def _list_inputs(tx: Transaction, first: Message) -> list[Message]:
    """Return all user messages of the turn that begins with a message."""
    assert first.turn is not None
    entries = messages.list_for_turn(tx, first.session, first.turn, first=first.seq)
    return [m for m in entries if m.role is Role.USER and is_active(m)]


def _submit_again(
    tx: Transaction,
    session: Session,
    inputs: Sequence[Message],
    *,
    asker: PrincipalId,
    surface: str,
    source: Source | None,
    pin: WorkerId | None = None,
    model: str | None = None,
) -> Receipt:
    """Undo the turn whose user messages are `inputs` and all later ones, and submit these messages as one turn with the same
    reply address: another version."""
    before = inputs[0].turn
    assert before is not None
    turn = turns.find(tx, before)
    undo(tx, session, message=inputs[0].seq)
    sessions.remove_bindings(tx, session.id)
    first, *rest = [
        UserMessage(
            parts=original.parts,
            asker=asker,
            surface=surface,
            author=original.author,
            platform_id=original.platform_id,
            reply=turn.reply if turn else None,
            pin=pin,
            source=source,
            exact=original.exact,
            model=model,
        )
        for original in inputs
    ]
    receipt = submit(tx, session, first)
    for message in rest:
        append_input(tx, session, message, receipt.turn)
    assert receipt.turn is not None and receipt.seq is not None
    _add_version(tx, session.id, inputs[0], receipt.turn, receipt.seq)
    return receipt


def _add_version(tx: Transaction, session: SessionId, before: Message, turn: TurnId, seq: int) -> None:
    """Record that a turn, whose first question has a number, is another version of that of a question."""
    assert before.turn is not None
    known = {v.turn: v.first for v in messages.list_versions(tx, session)}
    origin = known.get(before.turn, before.turn)
    messages.add_version(tx, session, TurnVersion(before.turn, origin, before.seq))
    messages.add_version(tx, session, TurnVersion(turn, origin, seq))


def fork(
    tx: Transaction,
    session: Session,
    *,
    surface: str,
    through: int | None = None,
    title: str | None = None,
    cwd: str | None = None,
) -> Session:
    """Make an independent copy up to a message, by default up to the end. Running and queued turns are not copied."""
    if is_temporary(session.id):
        raise Invalid(f"session {session.id} is temporary: it is not copied", Phrase("temporary.not_copied"))
    sessions.lock(tx, session.id)
    end = session.last_seq if through is None else through
    if end < 1 or end > session.last_seq:
        raise Invalid(
            f"there is nothing to fork at message {end} of {session.id}: give one from 1 to {session.last_seq}"
        )
    child = sessions.create(
        tx,
        profile=session.profile,
        owner=session.owner,
        surface=surface,
        origin=session.origin,
        parent=session.id,
        parent_seq=end,
        cwd=session.cwd if cwd is None else cwd,
        settings=session.settings,
    )
    if not messages.copy(tx, source=session.id, target=child, through=end):
        raise NotFound(Phrase("turn.nothing_to_fork"))
    messages.copy_versions(tx, source=session.id, target=child)
    epochs.copy(tx, source=session.id, target=child, through=end)
    sessions.copy_counters(tx, source=session.id, target=child)
    copy = sessions.get(tx, child)
    if session.project is not None:
        sessions.set_project(tx, copy, session.project)
    if title is not None:
        sessions.rename(tx, copy, title, by=TitleBy.PERSON)
    elif session.title:
        sessions.rename(tx, copy, sessions.next_title(tx, copy, session.title), by=TitleBy.RULE)
    return sessions.get(tx, child)


def fork_for_thread(
    tx: Transaction,
    session: Session,
    turn: TurnId,
    *,
    owner: Viewer,
    surface: str,
    origin: Source,
    chat: Target | None,
) -> SessionId | None:
    """Copy what led to an answer into a session for the thread that hangs on it. With `chat`, only what was answered in that
    chat, because others read the thread. Return `None` if there is nothing to copy."""
    sessions.lock(tx, session.id)
    asked = turns.find(tx, turn)
    if asked is None or asked.session != session.id or is_temporary(session.id):
        return None
    last = messages.list_for_turn(tx, session.id, turn, first=asked.input_seq)[-1].seq
    own = owner == Viewer(session.profile, session.owner)
    child = sessions.create(
        tx,
        profile=owner.profile,
        owner=owner.principal,
        surface=surface,
        origin=origin,
        parent=session.id if own else None,
        parent_seq=last if own else None,
        cwd=session.cwd if own else "",
        settings=session.settings if own else SessionSettings(),
    )
    if chat is None:
        copied = messages.copy(tx, source=session.id, target=child, through=last)
        epochs.copy(tx, source=session.id, target=child, through=last)
    else:
        there = turns.list_answered_in(tx, session.id, chat, until=asked)
        copied = messages.copy_turns(tx, source=session.id, target=child, turns=there)
    if not copied:
        sessions.erase(tx, sessions.get(tx, child))
        return None
    sessions.copy_counters(tx, source=session.id, target=child)
    if own and session.title:
        copy = sessions.get(tx, child)
        sessions.rename(tx, copy, sessions.next_title(tx, copy, session.title), by=TitleBy.RULE)
    return child


def refuse_while_busy(tx: Transaction, session: SessionId, verb: str) -> None:
    """Raise `Conflict` if a turn of the session is running or queued."""
    if turns.find_running(tx, session) or turns.list_queued(tx, session):
        raise Conflict(Phrase("command.busy", verb=verb))


def _refuse_while_open(tx: Transaction, session: SessionId) -> None:
    if turns.has_open(tx, session):
        raise Conflict(Phrase("turn.open"))


def _last_inputs(
    tx: Transaction, session: SessionId, count: int | None = None, *, since: int = 1
) -> list[Message]:
    """Return the first user message of each of the last turns that are not undone, oldest turn first; only messages from
    `since` on are read."""
    inputs: dict[TurnId, Message] = {}
    before: int | None = None
    while count is None or len(inputs) <= count:
        page = messages.list_latest(tx, session, limit=_PAGE, before=before)
        for message in reversed(page):
            if message.seq >= since and message.role is Role.USER and message.turn and is_active(message):
                inputs[message.turn] = message
        if not page or page[0].seq <= since:
            break
        before = page[0].seq
    newest_first = sorted(inputs.values(), key=lambda m: m.seq, reverse=True)
    return newest_first[:count][::-1]


def _find_first_input(tx: Transaction, session: SessionId, seq: int) -> int:
    """Return the number of the first user message of the turn that a message belongs to, or its own if it has no turn.
    Raise `NotFound` if it does not exist."""
    message = messages.get(tx, session, seq)
    if message.turn is None:
        return seq
    said = messages.list_for_turn(tx, session, message.turn, first=1)
    return min((m.seq for m in said if m.role is Role.USER), default=seq)
