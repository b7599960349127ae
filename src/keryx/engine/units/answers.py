"""Answers of turns: collected from messages, sent to the chat that asked, and mirrored to other chats of the session."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from keryx.core import jobs, media, text
from keryx.core.deliveries import Preview, PreviewState, Target
from keryx.core.ids import OPERATOR, SessionId, TurnId
from keryx.core.media import Media
from keryx.core.messages import (
    Mark,
    Message,
    Notice,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    merge_parts,
)
from keryx.core.ports.adapter import StepState, ToolStep
from keryx.core.sessions import END_SURFACE, JOB_SURFACE, Session
from keryx.core.texts import Phrase, Reader, Texts
from keryx.core.turns import STOP_REASONS, Turn, TurnState
from keryx.store import deliveries, lanes, messages, people, platforms, questions, turns
from keryx.store.changes import Scope
from keryx.store.db import Transaction

_MAX_TOOL_NAME = 60
_MAX_STEPS = 50


class TurnAnswer(msgspec.Struct, frozen=True):
    """What is sent to the chat that asked: the text, then the files."""

    text: str = ""
    media: tuple[Media, ...] = ()


class TurnDraft(msgspec.Struct, frozen=True):
    """What a running turn has said since its last message was sent."""

    text: str = ""
    # The tool that was called last.
    tool: str = ""
    # The number of the last message that was sent, and how many questions were asked: what follows is shown below.
    sent_seq: int = 0
    asked: int = 0
    # It waits for an answer of a person.
    asking: bool = False
    # The tool calls since the last message that was sent.
    steps: tuple[ToolStep, ...] = ()
    # The language of the person who asked, until there is a text.
    language: str | None = None


def collect(entries: Iterable[Message], *, after: int = 0) -> TurnAnswer:
    """Return the answer in the messages of a turn: all its steps after a message, without the text of interrupted
    attempts, and the notices that say why it ended early."""
    told = [
        m
        for m in entries
        if m.seq > after
        and (_is_step(m) or any(isinstance(p, Notice) and p.kind in STOP_REASONS for p in m.parts))
    ]
    files = [p for m in told for p in media.filter_media(m.parts)]
    return TurnAnswer(_join_texts(m.text for m in told), tuple(dict.fromkeys(files)))


def _is_step(message: Message) -> bool:
    return message.role is Role.ASSISTANT and message.mark is None


def load_draft(tx: Transaction, turn: Turn) -> TurnDraft:
    """Return what would be sent if a running turn ended now."""
    sent_seq = turns.get_sent_seq(tx, turn.id)
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    steps = [m for m in entries if _is_step(m)]
    pieces = turns.list_draft_pieces(tx, turn.id, thoughts=False)
    parts = merge_parts(p.media or (Reasoning(p.text) if p.thought else Text(p.text)) for p in pieces)
    calls = [c.name for m in steps for c in m.calls]
    results = {p.id: p for m in entries for p in m.parts if isinstance(p, ToolResult)}
    # The calls of a message begin after it was sent.
    shown = [_describe_call(call, results) for m in steps if m.seq >= sent_seq for call in m.calls]
    unsent = [m.text for m in steps if m.seq > sent_seq]
    said = _join_texts([*unsent, *(p.text for p in parts if isinstance(p, Text))])
    return TurnDraft(
        said,
        _shorten_name(calls[-1]) if calls else "",
        sent_seq,
        len(questions.list_for_turn(tx, turn.id)),
        _is_asking(tx, turn),
        tuple(shown[-_MAX_STEPS:]),
        None if said else people.get_language(tx, turn.id),
    )


def _describe_call(call: ToolCall, results: Mapping[str, ToolResult]) -> ToolStep:
    result = results.get(call.id)
    state = StepState.RUNNING if result is None else StepState.FAILED if result.failed else StepState.DONE
    return ToolStep(call.id, _shorten_name(call.name), state)


def _shorten_name(tool: str) -> str:
    return text.truncate(text.to_single_line(tool), _MAX_TOOL_NAME)


def may_type(tx: Transaction, turn: Turn) -> bool:
    """Whether typing may be shown for a running turn: nothing stops sends to the chat, and no person is asked."""
    closed = turn.reply is None or platforms.get_gates_open_at(tx, turn.reply) is not None
    return not closed and not _is_asking(tx, turn)


def _is_asking(tx: Transaction, turn: Turn) -> bool:
    """Whether a running turn waits for an answer of a person."""
    return any(q.turn == turn.id and not q.left for q in questions.list_open(tx, turn.session))


def send_step(tx: Transaction, turn: Turn, seq: int) -> None:
    """Send a step of a running turn, if it says something, as a message of its own. The rest of the answer follows in
    other messages. A step that an interrupted attempt has sent is not sent again. A scheduled run, which may turn out
    to have nothing to report, sends its answer as a whole, and so does every turn whose target is `whole`."""
    if turn.reply is None or turn.reply.whole or turn.also or turn.surface == JOB_SURFACE:
        return
    answer = collect([messages.get(tx, turn.session, seq)])
    if answer.text.strip() or answer.media:
        if not _repeats_attempt(tx, turn, answer):
            deliver(tx, turn, answer)
        turns.set_sent_seq(tx, turn, seq)


def _repeats_attempt(tx: Transaction, turn: Turn, answer: TurnAnswer) -> bool:
    """Whether the newest step says what an earlier attempt of the turn has said as often as this one."""
    if turn.interrupted_at is None or turn.started_at is None:
        return False
    began = turn.started_at
    same = [m for m in _load_steps(tx, turn) if _is_step(m) and collect([m]) == answer]
    earlier = sum(m.at < began for m in same)
    return len(same) - earlier <= earlier


def is_silent(turn: Turn, answer: TurnAnswer) -> bool:
    """Whether a scheduled run has nothing to report."""
    return turn.surface == JOB_SURFACE and not answer.media and jobs.is_silent(answer.text)


def deliver(tx: Transaction, turn: Turn, answer: TurnAnswer) -> None:
    """Enqueue an answer for the chat that asked, if there is one, for the other targets of the turn, and for the chats
    that mirror the session."""
    mirror_answer(tx, turn, answer.text, media=answer.media)
    for target in turn.also:
        deliveries.enqueue(tx, target, answer.text, of=turn, media=answer.media)
    if turn.reply is None:
        return
    previewed = _find_preview(tx, turn) is not None
    delivery = deliveries.enqueue(
        tx,
        turn.reply,
        # Text replaces the preview, so it must not be empty.
        answer.text or (speak(tx, turn).say("turn.files") if previewed else ""),
        media=answer.media,
        of=turn,
    )
    if previewed:
        deliveries.set_preview_delivery(tx, turn.id, delivery)


def end_preview(tx: Transaction, turn: Turn) -> None:
    """Remove what a turn shows, if it has nothing more to say."""
    if turn.reply and _find_preview(tx, turn):
        deliveries.withdraw_preview(tx, turn.id, deliveries.enqueue(tx, turn.reply, "", of=turn))


def speak(tx: Transaction, turn: Turn) -> Texts:
    """Return the texts for the person who asked, in their language."""
    platform = turn.reply.platform if turn.reply else ""
    readers = (Reader.OPERATOR,) if turn.asker == OPERATOR else ()
    return tx.texts.speak(people.get_language(tx, turn.id), platform, *readers)


def send_aside(tx: Transaction, turn: Turn, text: str) -> None:
    """Send a text in addition to the answer to the chat that asked, if there is one."""
    if turn.reply:
        deliveries.enqueue(tx, turn.reply, speak(tx, turn).render(text), of=turn)


def send_notice(tx: Transaction, turn: Turn, text: str) -> None:
    """Send a notice to the chat that asked. If the turn had a preview, the notice follows the text of the turn so far."""
    texts: list[str] = []
    if turn.reply and _find_preview(tx, turn):
        sent_seq = turns.get_sent_seq(tx, turn.id)
        steps = [m for m in _load_steps(tx, turn) if m.seq > sent_seq]
        # The last step may be incomplete, which its mark says.
        texts = [m.text for n, m in enumerate(steps, start=1) if m.mark is None or n == len(steps)]
    deliver(tx, turn, TurnAnswer(_join_texts([*texts, speak(tx, turn).render(text)])))


def mark_stopped(tx: Transaction, turn: Turn) -> None:
    """Mark the preview of a turn that was stopped. Without a preview, the user sees the stop already."""
    preview = _find_preview(tx, turn) if turn.reply else None
    if preview is not None and preview.state is not PreviewState.LOST:
        send_notice(tx, turn, Phrase("turn.stopped_mark"))


def _find_preview(tx: Transaction, turn: Turn) -> Preview | None:
    """Return what a turn shows, unless a delivery takes its place already."""
    preview = deliveries.find_preview(tx, turn.id)
    return preview if preview and preview.delivery is None else None


def load_final_text(tx: Transaction, turn: Turn) -> str | None:
    """Return the whole answer of a turn, `None` if it did not end well."""
    if turns.get(tx, turn.id).state is not TurnState.DONE:
        return None
    return _join_texts(m.text for m in _load_steps(tx, turn) if m.mark is None)


def _load_steps(tx: Transaction, turn: Turn) -> list[Message]:
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    return [m for m in entries if m.role is Role.ASSISTANT and m.mark is not Mark.LATE]


def _join_texts(texts: Iterable[str]) -> str:
    return "\n\n".join(text for text in texts if text)


def mirror_message(
    tx: Transaction,
    session: Session,
    text: str,
    *,
    author: str,
    surface: str,
    reply: Target | None,
    turn: TurnId | None,
) -> None:
    """Send a user's message to every other chat that mirrors the session."""
    if text:
        who = f" {author}:" if author else ""
        scope = Scope(session.profile, session.owner, session.id, turn)
        _enqueue_mirrors(tx, session.id, f"[{_name_origin(reply, surface)}]{who} {text}", reply, of=scope)


def mirror_answer(tx: Transaction, turn: Turn, text: str, *, media: Sequence[Media] = ()) -> None:
    """Send an answer, or a notice in its place, to every other chat that mirrors the session."""
    if turn.surface == END_SURFACE:
        return
    mark = f"[{_name_origin(turn.reply, turn.surface)}]"
    _enqueue_mirrors(tx, turn.session, f"{mark} {text}", turn.reply, of=turn, media=media)


def mirror_notice(tx: Transaction, turn: Turn, text: str) -> None:
    """Send a notice about the session itself to every other chat that mirrors it."""
    _enqueue_mirrors(tx, turn.session, speak(tx, turn).render(text), turn.reply, of=turn)


def _name_origin(reply: Target | None, surface: str) -> str:
    return reply.platform if reply else surface


def _enqueue_mirrors(
    tx: Transaction,
    session: SessionId,
    text: str,
    origin: Target | None,
    *,
    of: Turn | Scope,
    media: Sequence[Media] = (),
) -> None:
    seen = {origin.key} if origin else set[str]()
    for lane in lanes.list_mirrors(tx, session):
        if lane.target.key not in seen:
            seen.add(lane.target.key)
            deliveries.enqueue(tx, lane.target, text, of=of, media=media)
