"""What the web page shows, each from one read: the home view, a session with a range of its messages, the board of active turns, and the rows that changes name."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

import msgspec

from keryx.core.changes import Change, ChangeKind, DraftChunk
from keryx.core.compaction import Epoch
from keryx.core.deliveries import Delivery, DeliveryState
from keryx.core.errors import CursorExpired
from keryx.core.ids import Cursor, SessionId, TurnId
from keryx.core.lanes import Lane, LaneSharing
from keryx.core.messages import Message, Text, ToolCall
from keryx.core.questions import AskedQuestion
from keryx.core.sessions import Activity, Project, Session, SessionFilter, SessionListItem, Viewer
from keryx.core.turns import Turn, TurnState
from keryx.core.usage import DailyUsage, UsageGrouping, UsageTotal
from keryx.engine.hub import lineage
from keryx.engine.hub.lineage import LineageEntry
from keryx.engine.hub.viewer_state import NEW_SESSION
from keryx.store import (
    change_feed,
    changes,
    deliveries,
    epochs,
    lanes,
    messages,
    projects,
    questions,
    usage,
    viewer_state,
)
from keryx.store import sessions as listings
from keryx.store import turns as turns_store
from keryx.store.db.database import Database, Transaction
from keryx.store.search.index import SearchHit
from keryx.store.viewer_state import UnsentMessage

_MAX_SEQ = 1 << 60
N = TypeVar("N", bound=str)
T = TypeVar("T")
_SESSION_KINDS = frozenset({ChangeKind.SESSION, ChangeKind.MESSAGE, ChangeKind.TURN, ChangeKind.LANE})
_TURN_KINDS = frozenset({ChangeKind.TURN, ChangeKind.CANCEL})
_MAX_CHANGES = 500
_UNSENT_STATES = (DeliveryState.UNKNOWN, DeliveryState.FAILED, DeliveryState.DEAD)
_MAX_UNSENT = 1000
_MAX_REPORT_LINES = 20


class MessageRange(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages to show: below `before`, above `after`, or `around` one; the last ones without any of these."""

    before: int | None = None
    after: int | None = None
    around: int | None = None
    limit: int = 50


class MessageSlice(msgspec.Struct, frozen=True, kw_only=True):
    """Messages, oldest first, and whether there are more on either side."""

    messages: list[Message]
    earlier: bool
    later: bool


def load_range(tx: Transaction, session: SessionId, window: MessageRange, *, last: int) -> MessageSlice:
    """The messages of a window; `last` is the number of the session's last message."""
    found = _read_range(tx, session, window)
    first = found[0].seq if found else 1
    end = found[-1].seq if found else last
    return MessageSlice(messages=found, earlier=first > 1, later=end < last)


def _read_range(tx: Transaction, session: SessionId, window: MessageRange) -> list[Message]:
    limit = window.limit
    if window.around is not None:
        older = messages.list_latest(tx, session, before=window.around, limit=limit // 2)
        newer = messages.list_after(tx, session, after=window.around - 1, limit=limit - len(older))
        if len(older) + len(newer) < limit:
            older = messages.list_latest(tx, session, before=window.around, limit=limit - len(newer))
        return [*older, *newer]
    if window.after is not None:
        return messages.list_after(tx, session, after=window.after, limit=limit)
    before = window.before if window.before is not None else _MAX_SEQ
    return messages.list_latest(tx, session, before=before, limit=limit)


class SessionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A session as one read saw it. Following from `cursor` misses nothing and repeats nothing."""

    session: Session
    activity: Activity
    messages: list[Message]
    earlier: bool
    running: Turn | None
    draft: list[DraftChunk]
    queue: list[Turn]
    questions: list[AskedQuestion]
    deliveries: list[Delivery]
    epochs: list[Epoch]
    cursor: Cursor


def take_snapshot(
    tx: Transaction, *, viewer: Viewer, id_: SessionId, limit: int, before: int | None
) -> SessionSnapshot:
    session = listings.get(tx, id_, viewer=viewer)
    window = messages.list_latest(tx, id_, limit=limit, before=before)
    running = turns_store.find_running(tx, id_)
    return SessionSnapshot(
        session=session,
        activity=listings.get_activity(tx, id_),
        messages=window,
        earlier=bool(window) and window[0].seq > 1,
        running=running,
        draft=turns_store.list_draft_pieces(tx, running.id) if running else [],
        queue=turns_store.list_queued(tx, id_),
        questions=questions.list_open(tx, id_),
        deliveries=deliveries.list_for_session(tx, id_, unfinished=True),
        epochs=epochs.list_all(tx, id_),
        cursor=changes.get_head(tx),
    )


class ChangeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Rows by id; what is gone is left out."""

    sessions: dict[SessionId, SessionListItem]
    turns: dict[TurnId, Turn]
    deliveries: dict[str, Delivery]
    lanes: dict[str, Lane]
    projects: dict[str, Project]
    questions: dict[str, AskedQuestion]


def load_details(tx: Transaction, batch: Sequence[Change]) -> ChangeDetails:
    named = {c.session for c in batch if c.session and c.kind in _SESSION_KINDS}
    return ChangeDetails(
        sessions={e.session.id: e for e in _read_named(tx, listings.get_many_with_activity, named)},
        turns={t.id: t for t in _read_named(tx, turns_store.get_many, _select_turns(batch))},
        deliveries={
            d.id: d
            for d in _read_named(tx, deliveries.get_many, _select_subjects(batch, ChangeKind.DELIVERY))
        },
        lanes={e.key: e for e in _read_named(tx, lanes.get_many, _select_subjects(batch, ChangeKind.LANE))},
        projects={
            p.id: p for p in _read_named(tx, projects.get_many, _select_subjects(batch, ChangeKind.PROJECT))
        },
        questions={
            a.id: a for a in _read_named(tx, questions.get_many, _select_subjects(batch, ChangeKind.QUESTION))
        },
    )


def load_drafts(tx: Transaction, turns: Iterable[str]) -> dict[str, list[DraftChunk]]:
    """The whole drafts of some turns, as they are now."""
    return {turn: turns_store.list_draft_pieces(tx, TurnId(turn)) for turn in turns}


def _select_turns(batch: Iterable[Change]) -> set[TurnId]:
    return {c.turn for c in batch if c.turn and c.kind in _TURN_KINDS}


def _select_subjects(batch: Iterable[Change], kind: ChangeKind) -> set[str]:
    return {c.subject for c in batch if c.kind is kind}


def _read_named(tx: Transaction, read: Callable[[Transaction, set[N]], list[T]], names: set[N]) -> list[T]:
    return read(tx, names) if names else []


__all__ = [
    "ActiveTurn",
    "Epoch",
    "HubViews",
    "Lane",
    "LineageEntry",
    "Project",
    "SearchHit",
    "SessionListPage",
    "SpendingReport",
    "UnsentMessage",
]


class SessionListPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of sessions with the viewer's read marks, and the cursor of the next page."""

    listed: list[SessionListItem]
    read: dict[SessionId, int]
    next: str | None


class HomeView(msgspec.Struct, frozen=True, kw_only=True):
    """What a page begins with. Following from `cursor` misses nothing. `visited`: not for the first time."""

    page: SessionListPage
    projects: list[Project]
    turns: list[Turn]
    questions: list[AskedQuestion]
    unsent: int
    composed: UnsentMessage
    preferences: dict[str, str]
    visited: bool
    cursor: Cursor


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation with a window of its messages, and what the viewer has there."""

    snapshot: SessionSnapshot
    window: MessageSlice
    inputs: list[Message]
    read: int
    composed: UnsentMessage
    lanes: list[Lane]


class ActiveTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that runs or waits: what was asked, and the last step of a running one."""

    turn: Turn
    listed: SessionListItem
    input_text: str
    step: ToolCall | None
    question: AskedQuestion | None


class SpendingReport(msgspec.Struct, frozen=True, kw_only=True):
    days: list[DailyUsage]
    people: list[UsageTotal]
    sessions: list[UsageTotal]


class HubViews:
    def __init__(self, database: Database, *, sharing: LaneSharing) -> None:
        self._database = database
        self._sharing = sharing

    async def load_home(self, viewer: Viewer, *, limit: int = 50) -> HomeView:
        return await self._database.read("view.begin", partial(_load_home, viewer=viewer, limit=limit))

    async def list_sessions(self, viewer: Viewer, listing: SessionFilter) -> SessionListPage:
        return await self._database.read("view.page", partial(_load_page, viewer=viewer, listing=listing))

    async def get_listed(self, viewer: Viewer, session: SessionId) -> tuple[SessionListItem, int]:
        """One session as a list shows it, and how far the viewer has read it."""

        def work(tx: Transaction) -> tuple[SessionListItem, int]:
            found = listings.get(tx, session, viewer=viewer, deleted=True)
            listed = SessionListItem(session=found, activity=listings.get_activity(tx, session))
            return listed, viewer_state.get_read_marks(tx, viewer, [found])[session]

        return await self._database.read("view.listed", work)

    async def open(self, viewer: Viewer, session: SessionId, window: MessageRange) -> SessionView:
        return await self._database.read(
            "view.open", partial(_load_session, viewer=viewer, id_=session, window=window)
        )

    async def messages(self, viewer: Viewer, session: SessionId, window: MessageRange) -> MessageSlice:
        def work(tx: Transaction) -> MessageSlice:
            found = listings.get(tx, session, viewer=viewer)
            return load_range(tx, found.id, window, last=found.last_seq)

        return await self._database.read("view.messages", work)

    async def message(self, viewer: Viewer, session: SessionId, seq: int) -> Message:
        def work(tx: Transaction) -> Message:
            return messages.get(tx, listings.get(tx, session, viewer=viewer).id, seq)

        return await self._database.read("view.message", work)

    async def queue(self, viewer: Viewer, session: SessionId) -> list[tuple[Turn, Message]]:
        """Waiting turns in order, each with the message that it will answer."""

        def work(tx: Transaction) -> list[tuple[Turn, Message]]:
            found = listings.get(tx, session, viewer=viewer)
            waiting = turns_store.list_queued(tx, found.id)
            return list(zip(waiting, _load_inputs(tx, waiting), strict=True))

        return await self._database.read("view.queue", work)

    async def list_active_turns(self, viewer: Viewer) -> list[ActiveTurn]:
        """Every turn that runs or waits, running ones first."""
        return await self._database.read("view.board", partial(_load_board, viewer=viewer))

    async def lineage(self, viewer: Viewer, session: SessionId) -> list[LineageEntry]:
        """The forks of a session and its neighbours in its lanes, older ones before what came of them."""
        work = partial(lineage.load, id_=session, viewer=viewer, sharing=self._sharing)
        return await self._database.read("view.lineage", work)

    async def titles(self, viewer: Viewer, named: Iterable[SessionId]) -> dict[str, str]:
        """The titles of those of these sessions that the viewer may see."""

        def work(tx: Transaction) -> dict[str, str]:
            found = [e.session for e in listings.get_many_with_activity(tx, named)]
            return {s.id: s.title for s in found if viewer.sees(s.profile, s.owner)}

        return await self._database.read("view.titles", work)

    async def check_cursor(self, cursor: Cursor) -> None:
        """Raise `Invalid` for what is no cursor. One that is too old passes: whoever follows it is told."""

        def work(tx: Transaction) -> None:
            try:
                change_feed.list_after(tx, cursor, limit=1)
            except CursorExpired:
                return

        await self._database.read("view.check", work)

    async def spending(self, viewer: Viewer, *, since: datetime, now: datetime) -> SpendingReport:
        """What the viewer may see of the usage between two moments: all of it by day, and who and what used most."""

        def work(tx: Transaction) -> SpendingReport:
            def most(by: UsageGrouping) -> list[UsageTotal]:
                return usage.list_totals(tx, viewer, by=by, since=since, until=now, limit=_MAX_REPORT_LINES)

            return SpendingReport(
                days=usage.list_daily(tx, viewer, since=since),
                people=most(UsageGrouping.PERSON),
                sessions=most(UsageGrouping.SESSION),
            )

        return await self._database.read("view.spending", work)

    async def load_details(
        self, batch: Sequence[Change], *, drafts: Iterable[str] = ()
    ) -> tuple[ChangeDetails, dict[str, list[DraftChunk]]]:
        """The rows that changes name, and the whole drafts of some turns, as they are now."""

        def work(tx: Transaction) -> tuple[ChangeDetails, dict[str, list[DraftChunk]]]:
            return load_details(tx, batch), load_drafts(tx, drafts)

        return await self._database.read("view.details", work)

    async def read_changes(
        self, cursor: Cursor
    ) -> tuple[list[Change], ChangeDetails, dict[str, list[DraftChunk]]]:
        """The next changes after a cursor, the rows they name, and the whole drafts that they add to. Raises
        `CursorExpired` for one that is too old, or that this store never gave out."""

        def work(tx: Transaction) -> tuple[list[Change], ChangeDetails, dict[str, list[DraftChunk]]]:
            change_feed.check_cursor(tx, cursor)
            found = change_feed.list_after(tx, cursor, limit=_MAX_CHANGES)
            grown = {c.turn for c in found if c.kind is ChangeKind.DRAFT and c.turn}
            return found, load_details(tx, found), load_drafts(tx, grown)

        return await self._database.read("view.missed", work)


def _load_home(tx: Transaction, *, viewer: Viewer, limit: int) -> HomeView:
    return HomeView(
        page=_load_page(tx, viewer=viewer, listing=SessionFilter(limit=limit)),
        projects=projects.list_for_viewer(tx, viewer),
        turns=turns_store.list_active(tx, profile=viewer.profile, owner=viewer.owner),
        questions=questions.list_open_for_viewer(tx, viewer),
        unsent=len(deliveries.list_recent(tx, viewer, states=_UNSENT_STATES, limit=_MAX_UNSENT)),
        composed=viewer_state.get_unsent(tx, viewer, NEW_SESSION),
        preferences=viewer_state.get_preferences(tx, viewer),
        visited=viewer_state.has_visited(tx, viewer),
        cursor=changes.get_head(tx),
    )


def _load_page(tx: Transaction, *, viewer: Viewer, listing: SessionFilter) -> SessionListPage:
    listed, after = listings.list_page(tx, viewer, listing)
    return SessionListPage(
        listed=listed, read=viewer_state.get_read_marks(tx, viewer, [e.session for e in listed]), next=after
    )


def _load_session(tx: Transaction, *, viewer: Viewer, id_: SessionId, window: MessageRange) -> SessionView:
    taken = take_snapshot(tx, viewer=viewer, id_=id_, limit=0, before=None)
    return SessionView(
        snapshot=taken,
        window=load_range(tx, id_, window, last=taken.session.last_seq),
        inputs=_load_inputs(tx, taken.queue),
        read=viewer_state.get_read_marks(tx, viewer, [taken.session])[id_],
        composed=viewer_state.get_unsent(tx, viewer, id_),
        lanes=lanes.list_for_session(tx, id_),
    )


def _load_inputs(tx: Transaction, waiting: Sequence[Turn]) -> list[Message]:
    return [messages.get(tx, turn.session, turn.input_seq) for turn in waiting]


def _load_board(tx: Transaction, *, viewer: Viewer) -> list[ActiveTurn]:
    active = turns_store.list_active(tx, profile=viewer.profile, owner=viewer.owner)
    waiting = {asked.turn: asked for asked in questions.list_open_for_viewer(tx, viewer)}
    listed = {
        entry.session.id: entry for entry in listings.get_many_with_activity(tx, {t.session for t in active})
    }
    found = [_load_active_turn(tx, turn, listed[turn.session], waiting.get(turn.id)) for turn in active]
    return sorted(found, key=lambda w: w.turn.state is not TurnState.RUNNING)


def _load_active_turn(
    tx: Transaction, turn: Turn, listed: SessionListItem, question: AskedQuestion | None
) -> ActiveTurn:
    running = turn.state is TurnState.RUNNING
    recent = messages.list_latest(tx, turn.session, limit=8) if running else []
    steps = [call for m in recent if m.turn == turn.id for call in m.calls]
    asked = messages.get(tx, turn.session, turn.input_seq)
    words = " ".join(p.text for p in asked.parts if isinstance(p, Text))
    step = steps[-1] if steps else None
    return ActiveTurn(turn=turn, listed=listed, input_text=words[:200], step=step, question=question)
