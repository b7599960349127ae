"""Encodes batches of changes as server-sent events, each once."""

import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from keryx.core import codec
from keryx.core.cache import LruCache
from keryx.core.changes import Change, ChangeKind, DraftChunk
from keryx.core.ids import Cursor
from keryx.core.messages import Mark, Message, Role
from keryx.core.sessions import Viewer
from keryx.engine.hub.views import ChangeDetails
from keryx.markdown import html
from keryx.surfaces.web import presenters, schema
from keryx.surfaces.web.stream import events
from keryx.surfaces.web.stream.events import Event
from keryx.surfaces.web.stream.incremental_renderer import IncrementalRenderer

REVISED = "revised"
_MAX_DRAFTS = 1_000
# Processor time for the drafts of one batch. Further ones are sent as text, and with blocks when more of them comes.
_DRAFT_SECONDS = 0.05
_SESSION_KINDS = frozenset({ChangeKind.SESSION, ChangeKind.MESSAGE, ChangeKind.TURN})


class EncodedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One encoded event. It is for streams that have not seen the change with this index."""

    index: int
    profile: str
    owner: str
    owner_only: bool
    body: bytes

    def visible_to(self, viewer: Viewer) -> bool:
        if self.owner_only:
            return viewer.profile == self.profile and viewer.principal == self.owner
        return viewer.sees(self.profile, self.owner)


class ChangeEncoder:
    """Encodes changes as events. Keeps the state of running drafts, so that only their additions are sent."""

    def __init__(self) -> None:
        self._drafts: LruCache[str, IncrementalRenderer] = LruCache(_MAX_DRAFTS)

    def find_unknown_drafts(self, batch: Iterable[Change]) -> set[str]:
        """Return the turns whose drafts began before this encoder: it needs their whole text."""
        first_pieces = {c.turn: c.piece for c in reversed(list(batch)) if c.turn and c.piece}
        return {turn for turn, first in first_pieces.items() if turn not in self._drafts and first.n > 1}

    def count_chars(self, batch: Iterable[Change], drafts: Mapping[str, list[DraftChunk]]) -> int:
        """Return how many characters of drafts `encode_batch` renders at most."""
        texts = {c.turn: c.piece.text for c in batch if c.turn and c.piece}
        known = (draft.open_chars for turn in texts if (draft := self._drafts.get(turn)))
        return (
            sum(known) + sum(map(len, texts.values())) + sum(len(c.text) for d in drafts.values() for c in d)
        )

    def encode_batch(
        self,
        batch: Sequence[Change],
        details: ChangeDetails,
        drafts: Mapping[str, list[DraftChunk]],
        messages: Mapping[str, schema.MessageSchema],
    ) -> list[EncodedEvent]:
        """Return the events of a batch in the order of its changes. Several changes of one thing become one event with its
        current state; a session comes before the messages and turns in it. `messages` are those with HTML; any other
        long one has its text without markup."""
        slots: list[list[EncodedEvent]] = [[] for _ in batch]
        last = {_subject_key(change): index for index, change in enumerate(batch)}
        # The sessions that the batch changes, with the index of the last change of each.
        sessions: dict[str, int] = {
            c.session: i for i, c in enumerate(batch) if c.session and c.kind in _SESSION_KINDS
        }
        for index, change in enumerate(batch):
            session = change.session
            if change.kind in _SESSION_KINDS and session in sessions and session in details.sessions:
                listed = details.sessions[session]
                if listed.session.deleted_at is None:
                    event = events.SessionEvent(session=presenters.session(listed))
                    slots[index].append(encode_change(change, sessions[session], event, mark=False))
                del sessions[session]
            if change.kind is ChangeKind.DRAFT:
                continue
            if (
                last[_subject_key(change)] == index
                and (event := _build_event(change, details, messages)) is not None
            ):
                slots[index].append(encode_change(change, index, event))
        self._reset_replaced_drafts(batch)
        end = time.thread_time() + _DRAFT_SECONDS
        for run in _group_pieces_by_turn(batch):
            slots[run[-1][0]].extend(self._encode_draft(run, drafts, render=time.thread_time() < end))
        self._drop_finished_drafts(batch, details)
        return [event for slot in slots for event in slot]

    def _encode_draft(
        self, run: list[tuple[int, Change]], drafts: Mapping[str, list[DraftChunk]], *, render: bool
    ) -> Iterable[EncodedEvent]:
        """Yield the additions to the draft of one turn. Only the last has the cursor: a reader that disconnects between
        them gets all of them again."""
        index, change = run[-1]
        turn = change.turn or ""
        growing = self._drafts.get(turn)
        whole = drafts.get(turn)
        fresh = growing is None or growing.empty
        if growing is None:
            growing = IncrementalRenderer()
            self._drafts.put(turn, growing)
        pieces = whole if whole is not None else [c.piece for _, c in run if c.piece]
        steps = growing.add(pieces, render=render)
        for number, step in enumerate(steps):
            event = events.DraftEvent(
                session=change.session or "",
                turn=turn,
                n=step.n,
                part=step.part,
                text=step.text,
                thought=step.thought,
                fresh=fresh and number == 0,
                keep=step.keep,
                blocks=step.blocks,
                media=presenters.media(step.media) if step.media else None,
            )
            yield encode_change(change, index, event, mark=number == len(steps) - 1)

    def _reset_replaced_drafts(self, batch: Sequence[Change]) -> None:
        """Reset drafts that became messages. Pieces before such a message are not sent, so this may happen first."""
        for change in batch:
            draft = self._drafts.get(change.turn) if change.turn and replaces_draft(change) else None
            if draft is not None:
                draft.reset()

    def _drop_finished_drafts(self, batch: Sequence[Change], details: ChangeDetails) -> None:
        """Drop drafts of finished turns, and the oldest if there are too many."""
        for change in batch:
            turn = details.turns.get(change.turn) if change.turn else None
            if change.turn and turn is not None and turn.state.finished:
                self._drafts.remove(change.turn)


def encode_event(event: Event, cursor: Cursor | None) -> bytes:
    """Encode a server-sent event."""
    mark = f"id: {cursor}\n" if cursor else ""
    return f"{mark}data: {codec.dumps(event)}\n\n".encode()


def encode_change(change: Change, index: int, event: Event, *, mark: bool = True) -> EncodedEvent:
    return EncodedEvent(
        index=index,
        profile=change.profile,
        owner=change.owner,
        owner_only=change.kind in (ChangeKind.READ, ChangeKind.PROJECT, ChangeKind.TAG),
        body=encode_event(event, change.cursor if mark else None),
    )


def _subject_key(change: Change) -> tuple[ChangeKind, str]:
    kind = ChangeKind.TURN if change.kind is ChangeKind.CANCEL else change.kind
    return kind, f"{change.subject}\0{change.note}" if change.kind is ChangeKind.SESSION else change.subject


def _group_pieces_by_turn(batch: Sequence[Change]) -> list[list[tuple[int, Change]]]:
    """Group the pieces of drafts by turn, except those that a message of the batch replaces."""
    open_runs: dict[str, list[tuple[int, Change]]] = {}
    for index, change in enumerate(batch):
        if change.turn is None:
            continue
        if change.kind is ChangeKind.DRAFT:
            open_runs.setdefault(change.turn, []).append((index, change))
        elif replaces_draft(change):
            open_runs.pop(change.turn, None)
    return list(open_runs.values())


def replaces_draft(change: Change) -> bool:
    """Return whether a change is a message that replaces the draft of its turn."""
    message = change.message
    return (
        change.kind is ChangeKind.MESSAGE
        and message is not None
        and message.role is Role.ASSISTANT
        and message.mark is not Mark.LATE
    )


def _build_event(
    change: Change, details: ChangeDetails, messages: Mapping[str, schema.MessageSchema]
) -> Event | None:
    """Build the event of a change, apart from the event of its session."""
    match change.kind:
        case ChangeKind.SESSION:
            return events.RevisedEvent(session=change.subject) if change.note == REVISED else None
        case ChangeKind.SESSION_GONE:
            return events.GoneEvent(session=change.subject)
        case ChangeKind.MESSAGE:
            return _build_message_event(change.message, messages) if change.message else None
        case ChangeKind.TURN | ChangeKind.CANCEL:
            turn = details.turns.get(change.turn) if change.turn else None
            if turn is None:
                return None
            facts = details.answers.get(turn.id)
            return events.TurnEvent(
                turn=presenters.turn(turn), answer=presenters.answer(facts) if facts else None
            )
        case ChangeKind.DELIVERY:
            delivery = details.deliveries.get(change.subject)
            return events.DeliveryEvent(delivery=presenters.delivery(delivery)) if delivery else None
        case ChangeKind.LANE:
            lane = details.lanes.get(change.subject)
            return events.LaneEvent(lane=presenters.lane(lane)) if lane else None
        case ChangeKind.PROJECT:
            project = details.projects.get(change.subject)
            if project is None:
                return events.ProjectGoneEvent(project=change.subject)
            return events.ProjectEvent(project=presenters.project(project))
        case ChangeKind.TAG:
            tag = details.tags.get(change.subject)
            if tag is None:
                return events.TagGoneEvent(tag=change.subject)
            return events.TagEvent(tag=presenters.tag(tag))
        case ChangeKind.QUESTION:
            question = details.questions.get(change.subject)
            return events.QuestionEvent(question=presenters.question(question)) if question else None
        case ChangeKind.ACCESS:
            platform, _, _ = change.subject.partition(":")
            return events.AccessEvent(platform=platform, what=change.note)
        case ChangeKind.JOB:
            return events.JobEvent(job=change.subject, what=change.note)
        case ChangeKind.READ:
            return events.ReadEvent(session=change.subject, seq=int(change.note))
        case ChangeKind.DRAFT | ChangeKind.RELAY:
            return None


def _build_message_event(message: Message, known: Mapping[str, schema.MessageSchema]) -> events.MessageEvent:
    render = html.render if presenters.is_quick(message) else html.render_plain
    return events.MessageEvent(message=known.get(message.id) or presenters.message(message, render=render))
