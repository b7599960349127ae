"""Undo, redo, retry and fork. History is kept: messages become inactive or are copied."""

from collections.abc import Sequence

import msgspec

from keryx.core.deliveries import Target
from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.core.ids import PrincipalId, SessionId, TurnId, WorkerId, is_temporary
from keryx.core.messages import Message, Parts, Role, edit_exact, is_active
from keryx.core.ports.adapter import Receipt
from keryx.core.sessions import Session, SessionSettings, TitleBy, Viewer
from keryx.core.source import Source
from keryx.core.texts import Phrase
from keryx.engine.units.user_messages import UserMessage, append_input, submit
from keryx.store import epochs, messages, sessions, turns
from keryx.store.db import Transaction

_PAGE = 200


class UndoneTurns(msgspec.Struct, frozen=True):
    """What an undo took back: the number of turns, and for editing the text of the last user message, or of the one that
    was named."""

    turns: int
    text: str


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
    return UndoneTurns(len(inputs), inputs[-1 if message is None else 0].text)


def redo(tx: Transaction, session: Session) -> int:
    """Restore what the last undo took, and return the number of messages. Raise `NotFound` after a new message."""
    sessions.lock(tx, session.id)
    refuse_while_busy(tx, session.id, "redo")
    last = messages.find_last_undo(tx, session.id)
    if last is None or messages.has_user_message_after(tx, session.id, last.first_seq):
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
) -> Receipt:
    """Undo the last turn and submit its user messages again, with the same reply address. Only `pin` may run it, if set."""
    sessions.lock(tx, session.id)
    refuse_while_busy(tx, session.id, "retry")
    inputs = _last_inputs(tx, session.id, 1)
    if not inputs or inputs[0].turn is None:
        raise NotFound(Phrase("turn.nothing_to_retry"))
    return _submit_again(
        tx, session, _list_inputs(tx, inputs[0]), asker=asker, surface=surface, source=source, pin=pin
    )


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
) -> Receipt:
    """Undo the last turn, whose user messages are `inputs`, and submit them as one turn with the same reply address."""
    turn = turns.find(tx, inputs[0].turn) if inputs[0].turn else None
    undo(tx, session, 1)
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
        )
        for original in inputs
    ]
    receipt = submit(tx, session, first)
    for message in rest:
        append_input(tx, session, message, receipt.turn)
    return receipt


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
