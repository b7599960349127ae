"""Digest: a batch of changes as the events that streams send, each encoded once."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from keryx.core import wire as codec
from keryx.core.changes import Change, Kind, Piece
from keryx.core.ids import Cursor
from keryx.core.messages import Mark, Role
from keryx.core.sessions import Viewer
from keryx.engine.details import Details
from keryx.surfaces.web import events, show
from keryx.surfaces.web.events import Event
from keryx.surfaces.web.growing import Growing

REVISED = "revised"
_MOST_DRAFTS = 1_000
_OF_SESSIONS = frozenset({Kind.SESSION, Kind.MESSAGE, Kind.TURN})


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One event, encoded. It may be sent to whoever has not seen all changes up to the one with this index."""

    index: int
    profile: str
    owner: str
    own: bool
    body: bytes

    def visible(self, viewer: Viewer) -> bool:
        if self.own:
            return viewer.profile == self.profile and viewer.principal == self.owner
        return viewer.sees(self.profile, self.owner)


class Digest:
    """Remembers the drafts that grow, so that each step of them is told as a step."""

    def __init__(self) -> None:
        self._drafts: dict[str, Growing] = {}

    def unknown(self, batch: Iterable[Change]) -> set[str]:
        """The turns whose drafts began before this digest did: it must be given them whole."""
        found = {c.turn: c.piece for c in reversed(list(batch)) if c.turn and c.piece}
        return {turn for turn, first in found.items() if turn not in self._drafts and first.n > 1}

    def tell(
        self, batch: Sequence[Change], details: Details, drafts: Mapping[str, list[Piece]]
    ) -> list[Told]:
        """The events of a batch in the order of its changes. What changed several times is told once, as it is now;
        a session is told before what happened in it."""
        slots: list[list[Told]] = [[] for _ in batch]
        last = {_subject(change): index for index, change in enumerate(batch)}
        sessions = _last_of_sessions(batch)
        for index, change in enumerate(batch):
            session = change.session
            if change.kind in _OF_SESSIONS and session in sessions and session in details.sessions:
                listed = details.sessions[session]
                if listed.session.deleted_at is None:
                    event = events.SessionEvent(session=show.session(listed))
                    slots[index].append(_told(change, sessions[session], event, mark=False))
                del sessions[session]
            if change.kind is Kind.DRAFT:
                continue
            if last[_subject(change)] == index and (event := _event(change, details)) is not None:
                slots[index].append(_told(change, index, event))
        self._replaced(batch)
        for run in _runs(batch):
            slots[run[-1][0]].extend(self._grow(run, drafts))
        self._forget(batch, details)
        return [told for slot in slots for told in slot]

    def _grow(self, run: list[tuple[int, Change]], drafts: Mapping[str, list[Piece]]) -> Iterable[Told]:
        """What a run of pieces of one turn adds to its draft. Only the last step has the cursor: a reader that was cut
        between steps gets all of them again."""
        index, change = run[-1]
        turn = change.turn or ""
        growing = self._drafts.get(turn)
        whole = drafts.get(turn)
        fresh = growing is None or growing.empty
        if growing is None:
            growing = self._drafts[turn] = Growing()
        pieces = whole if whole is not None else [c.piece for _, c in run if c.piece]
        steps = growing.add(pieces)
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
                media=show.media(step.media) if step.media else None,
            )
            yield _told(change, index, event, mark=number == len(steps) - 1)

    def _replaced(self, batch: Sequence[Change]) -> None:
        """Drafts that became messages begin anew. Pieces before such a message are not told any more, so it does not
        matter that this is known before them."""
        for change in batch:
            if change.turn in self._drafts and replaces_draft(change):
                self._drafts[change.turn].reset()

    def _forget(self, batch: Sequence[Change], details: Details) -> None:
        """Drafts of turns that ended are dropped."""
        for change in batch:
            turn = details.turns.get(change.turn) if change.turn else None
            if change.turn and turn is not None and turn.state.finished:
                self._drafts.pop(change.turn, None)
        while len(self._drafts) > _MOST_DRAFTS:
            del self._drafts[next(iter(self._drafts))]


def encode(event: Event, cursor: Cursor | None) -> bytes:
    """An event as it goes over the wire."""
    mark = f"id: {cursor}\n" if cursor else ""
    return f"{mark}data: {codec.dumps(event)}\n\n".encode()


def heavy(batch: Iterable[Change]) -> int:
    """About how many characters are to be rendered."""
    return sum(len(c.message.text) for c in batch if c.message) + sum(
        len(c.piece.text) for c in batch if c.piece
    )


def _told(change: Change, index: int, event: Event, *, mark: bool = True) -> Told:
    return Told(
        index=index,
        profile=change.profile,
        owner=change.owner,
        own=change.kind in (Kind.READ, Kind.PROJECT),
        body=encode(event, change.cursor if mark else None),
    )


def _subject(change: Change) -> tuple[Kind, str]:
    kind = Kind.TURN if change.kind is Kind.CANCEL else change.kind
    return kind, f"{change.subject}\0{change.note}" if change.kind is Kind.SESSION else change.subject


def _last_of_sessions(batch: Sequence[Change]) -> dict[str, int]:
    """The sessions that a batch changes, with the index of the last change of each."""
    return {c.session: i for i, c in enumerate(batch) if c.session and c.kind in _OF_SESSIONS}


def _runs(batch: Sequence[Change]) -> list[list[tuple[int, Change]]]:
    """The pieces of each draft that no message has taken the place of."""
    open_runs: dict[str, list[tuple[int, Change]]] = {}
    for index, change in enumerate(batch):
        if change.turn is None:
            continue
        if change.kind is Kind.DRAFT:
            open_runs.setdefault(change.turn, []).append((index, change))
        elif replaces_draft(change):
            open_runs.pop(change.turn, None)
    return list(open_runs.values())


def replaces_draft(change: Change) -> bool:
    """Whether a change is a message that takes the place of its turn's draft."""
    message = change.message
    return (
        change.kind is Kind.MESSAGE
        and message is not None
        and message.role is Role.ASSISTANT
        and message.mark is not Mark.LATE
    )


def _event(change: Change, details: Details) -> Event | None:
    """What is told of a change beside its session."""
    match change.kind:
        case Kind.SESSION:
            return events.RevisedEvent(session=change.subject) if change.note == REVISED else None
        case Kind.SESSION_GONE:
            return events.GoneEvent(session=change.subject)
        case Kind.MESSAGE:
            return events.MessageEvent(message=show.message(change.message)) if change.message else None
        case Kind.TURN | Kind.CANCEL:
            turn = details.turns.get(change.turn) if change.turn else None
            return events.TurnEvent(turn=show.turn(turn)) if turn else None
        case Kind.DELIVERY:
            delivery = details.deliveries.get(change.subject)
            return events.DeliveryEvent(delivery=show.delivery(delivery)) if delivery else None
        case Kind.LANE:
            lane = details.lanes.get(change.subject)
            return events.LaneEvent(lane=show.lane(lane)) if lane else None
        case Kind.PROJECT:
            project = details.projects.get(change.subject)
            if project is None:
                return events.ProjectGoneEvent(project=change.subject)
            return events.ProjectEvent(project=show.project(project))
        case Kind.QUESTION:
            asked = details.questions.get(change.subject)
            return events.QuestionEvent(question=show.question(asked)) if asked else None
        case Kind.ACCESS:
            platform, _, _ = change.subject.partition(":")
            return events.AccessEvent(platform=platform, what=change.note)
        case Kind.JOB:
            return events.JobEvent(job=change.subject, what=change.note)
        case Kind.READ:
            return events.ReadEvent(session=change.subject, seq=int(change.note))
        case Kind.DRAFT:
            return None
