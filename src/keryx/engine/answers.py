"""Answers: what a turn has said, and how that goes to the place that asked."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from keryx.core import jobs, media, titles
from keryx.core.media import Media
from keryx.core.messages import Mark, Message, Part, Reasoning, Role, Text, join
from keryx.core.previews import PreviewState
from keryx.core.sessions import JOB_SURFACE
from keryx.core.turns import Turn
from keryx.engine import mirror
from keryx.store import deliveries, drafts, messages, previews
from keryx.store.database import Transaction

STOPPED = "(stopped)"
FILES = "Attached:"
_LONGEST_TOOL = 60


class Answer(msgspec.Struct, frozen=True):
    """What goes to the place that asked: words, then files."""

    text: str = ""
    media: tuple[Media, ...] = ()


class Draft(msgspec.Struct, frozen=True):
    """What a running turn has said so far, and the tool it called last."""

    text: str = ""
    tool: str = ""


def given(entries: Iterable[Message]) -> Answer:
    """The answer among the messages of a turn: every step of it, without what an interrupted attempt had begun."""
    steps = [m for m in entries if m.role is Role.ASSISTANT and m.mark is None]
    files = [p for m in steps for p in media.of(m.parts)]
    return Answer(_joined(m.text for m in steps), tuple(dict.fromkeys(files)))


def draft(tx: Transaction, turn: Turn) -> Draft:
    """What the answer of a running turn would be if it ended now."""
    steps = [m for m in _written(tx, turn) if m.mark is None]
    pieces = drafts.pieces(tx, turn.id)
    parts = join(p.media or (Reasoning(p.text) if p.thought else Text(p.text)) for p in pieces)
    calls = [c.name for m in steps for c in m.calls]
    return Draft(
        _joined([*(m.text for m in steps), _text(parts)]),
        titles.capped(titles.line(calls[-1]), _LONGEST_TOOL) if calls else "",
    )


def silent(turn: Turn, answer: Answer) -> bool:
    """Whether a scheduled run has nothing to tell."""
    return turn.surface == JOB_SURFACE and not answer.media and jobs.silent(answer.text)


def deliver(tx: Transaction, turn: Turn, answer: Answer, *, now: datetime) -> None:
    """Send an answer to the place that asked, if there is one, to where else it is wanted, and to the chats that mirror
    the session."""
    mirror.answer(tx, turn, answer.text, media=answer.media, now=now)
    for target in turn.also:
        deliveries.enqueue(
            tx,
            target,
            answer.text,
            media=answer.media,
            profile=turn.profile,
            owner=turn.owner,
            session=turn.session,
            turn=turn.id,
            now=now,
        )
    if turn.reply is None:
        return
    shown = previews.find(tx, turn.id) is not None
    delivery = deliveries.enqueue(
        tx,
        turn.reply,
        # Words take the place of the preview, so there must be some.
        answer.text or (FILES if shown else ""),
        media=answer.media,
        profile=turn.profile,
        owner=turn.owner,
        session=turn.session,
        turn=turn.id,
        now=now,
    )
    if shown:
        previews.end(tx, turn.id, delivery)


def aside(tx: Transaction, turn: Turn, text: str, *, now: datetime) -> None:
    """Send something beside the answer to the place that asked, if there is one."""
    if turn.reply:
        deliveries.enqueue(
            tx,
            turn.reply,
            text,
            profile=turn.profile,
            owner=turn.owner,
            session=turn.session,
            turn=turn.id,
            now=now,
        )


def tell(tx: Transaction, turn: Turn, text: str, *, now: datetime) -> None:
    """Send a notice to the place that asked. Where the turn was shown it stands below what it had said."""
    shown = previews.find(tx, turn.id) if turn.reply else None
    said = _left(tx, turn) if shown else ""
    deliver(tx, turn, Answer(_joined([said, text])), now=now)


def stopped(tx: Transaction, turn: Turn, *, now: datetime) -> None:
    """A turn was stopped: where it was shown, that is marked. Where it was not, whoever stopped it knows."""
    shown = previews.find(tx, turn.id) if turn.reply else None
    if shown is not None and shown.state is not PreviewState.LOST:
        tell(tx, turn, STOPPED, now=now)


def _left(tx: Transaction, turn: Turn) -> str:
    """What a turn that ended early had said, with the words that it had begun last."""
    written = _written(tx, turn)
    begun = [m for m in written[-1:] if m.mark is not None]
    return _joined(m.text for m in [*(m for m in written if m.mark is None), *begun])


def _written(tx: Transaction, turn: Turn) -> list[Message]:
    found = messages.of_turn(tx, turn.session, turn.id, first=turn.input_seq)
    return [m for m in found if m.role is Role.ASSISTANT and m.mark is not Mark.LATE]


def _text(parts: Iterable[Part]) -> str:
    return _joined(p.text for p in parts if isinstance(p, Text))


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(text for text in texts if text)
