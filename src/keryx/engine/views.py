"""Views: what a page shows, each from one read: the beginning, one conversation, the board, a family of forks."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial

import msgspec

from keryx.core.changes import Change, Kind, Piece
from keryx.core.deliveries import DeliveryState
from keryx.core.errors import CursorExpired
from keryx.core.ids import Cursor, SessionId
from keryx.core.lanes import Sharing
from keryx.core.messages import Message, Text, ToolCall
from keryx.core.questions import Asked
from keryx.core.sessions import Listed, Listing, Viewer
from keryx.core.turns import Turn, TurnState
from keryx.engine import details, lineage, snapshot, windows
from keryx.engine.desk import NEW
from keryx.engine.details import Details
from keryx.engine.lineage import Branch
from keryx.engine.snapshot import Snapshot
from keryx.engine.windows import Shown, Window
from keryx.store import (
    changes,
    deliveries,
    desks,
    feed,
    lanes,
    listings,
    messages,
    projects,
    questions,
    sessions,
    spending,
    turns,
)
from keryx.store.database import Database, Transaction
from keryx.store.desks import Composed
from keryx.store.epochs import Epoch
from keryx.store.lanes import Lane
from keryx.store.projects import Project
from keryx.store.search import Hit
from keryx.store.spending import By, Daily, Line

__all__ = ["AtWork", "Branch", "Composed", "Epoch", "Hit", "Lane", "Page", "Project", "Spending", "Views"]

_BATCH = 500
_UNSENT = (DeliveryState.UNKNOWN, DeliveryState.FAILED, DeliveryState.DEAD)
_MANY = 1000
_MOST = 20


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of sessions with the viewer's read marks, and the cursor of the next page."""

    listed: list[Listed]
    read: dict[SessionId, int]
    next: str | None


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """What a page begins with. Following from `cursor` misses nothing. `visited`: not for the first time."""

    page: Page
    projects: list[Project]
    turns: list[Turn]
    questions: list[Asked]
    unsent: int
    composed: Composed
    preferences: dict[str, str]
    visited: bool
    cursor: Cursor


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation with a window of its messages, and what the viewer has there."""

    snapshot: Snapshot
    shown: Shown
    inputs: list[Message]
    read: int
    composed: Composed
    lanes: list[Lane]


class AtWork(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that runs or waits: what was asked, and the last step of a running one."""

    turn: Turn
    listed: Listed
    asked: str
    step: ToolCall | None
    question: Asked | None


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    days: list[Daily]
    people: list[Line]
    sessions: list[Line]


class Views:
    def __init__(self, database: Database, *, sharing: Sharing) -> None:
        self._database = database
        self._sharing = sharing

    async def begin(self, viewer: Viewer, *, limit: int = 50) -> Beginning:
        return await self._database.read("view.begin", partial(_begin, viewer=viewer, limit=limit))

    async def page(self, viewer: Viewer, listing: Listing) -> Page:
        return await self._database.read("view.page", partial(_page, viewer=viewer, listing=listing))

    async def listed(self, viewer: Viewer, session: SessionId) -> tuple[Listed, int]:
        """One session as a list shows it, and how far the viewer has read it."""

        def work(tx: Transaction) -> tuple[Listed, int]:
            found = sessions.get(tx, session, viewer=viewer, deleted=True)
            listed = Listed(session=found, activity=listings.activity(tx, session))
            return listed, desks.marks(tx, viewer, [found])[session]

        return await self._database.read("view.listed", work)

    async def open(self, viewer: Viewer, session: SessionId, window: Window) -> Opening:
        return await self._database.read(
            "view.open", partial(_open, viewer=viewer, id_=session, window=window)
        )

    async def messages(self, viewer: Viewer, session: SessionId, window: Window) -> Shown:
        def work(tx: Transaction) -> Shown:
            found = sessions.get(tx, session, viewer=viewer)
            return windows.show(tx, found.id, window, last=found.last_seq)

        return await self._database.read("view.messages", work)

    async def message(self, viewer: Viewer, session: SessionId, seq: int) -> Message:
        def work(tx: Transaction) -> Message:
            return messages.get(tx, sessions.get(tx, session, viewer=viewer).id, seq)

        return await self._database.read("view.message", work)

    async def queue(self, viewer: Viewer, session: SessionId) -> list[tuple[Turn, Message]]:
        """Waiting turns in order, each with the message that it will answer."""

        def work(tx: Transaction) -> list[tuple[Turn, Message]]:
            found = sessions.get(tx, session, viewer=viewer)
            waiting = turns.queued(tx, found.id)
            return list(zip(waiting, _inputs(tx, waiting), strict=True))

        return await self._database.read("view.queue", work)

    async def board(self, viewer: Viewer) -> list[AtWork]:
        """Every turn that runs or waits, running ones first."""
        return await self._database.read("view.board", partial(_board, viewer=viewer))

    async def lineage(self, viewer: Viewer, session: SessionId) -> list[Branch]:
        """The forks of a session and its neighbours in its lanes, older ones before what came of them."""
        work = partial(lineage.read, id_=session, viewer=viewer, sharing=self._sharing)
        return await self._database.read("view.lineage", work)

    async def titles(self, viewer: Viewer, named: Iterable[SessionId]) -> dict[str, str]:
        """The titles of those of these sessions that the viewer may see."""

        def work(tx: Transaction) -> dict[str, str]:
            found = [e.session for e in listings.among(tx, named)]
            return {s.id: s.title for s in found if viewer.sees(s.profile, s.owner)}

        return await self._database.read("view.titles", work)

    async def check(self, cursor: Cursor) -> None:
        """Raise `Invalid` for what is no cursor. One that is too old passes: whoever follows it is told."""

        def work(tx: Transaction) -> None:
            try:
                feed.after(tx, cursor, limit=1)
            except CursorExpired:
                return

        await self._database.read("view.check", work)

    async def spending(self, viewer: Viewer, *, since: datetime, now: datetime) -> Spending:
        """What the viewer may see of the usage between two moments: all of it by day, and who and what used most."""

        def work(tx: Transaction) -> Spending:
            def most(by: By) -> list[Line]:
                return spending.report(tx, viewer, by=by, since=since, until=now, limit=_MOST)

            return Spending(
                days=spending.by_day(tx, viewer, since=since),
                people=most(By.PERSON),
                sessions=most(By.SESSION),
            )

        return await self._database.read("view.spending", work)

    async def details(
        self, batch: Sequence[Change], *, drafts: Iterable[str] = ()
    ) -> tuple[Details, dict[str, list[Piece]]]:
        """The rows that changes name, and the whole drafts of some turns, as they are now."""

        def work(tx: Transaction) -> tuple[Details, dict[str, list[Piece]]]:
            return details.of(tx, batch), details.drafts(tx, drafts)

        return await self._database.read("view.details", work)

    async def missed(self, cursor: Cursor) -> tuple[list[Change], Details, dict[str, list[Piece]]]:
        """The next changes after a cursor, the rows they name, and the whole drafts that they add to. Raises
        `CursorExpired` for one that is too old, or that this store never gave out."""

        def work(tx: Transaction) -> tuple[list[Change], Details, dict[str, list[Piece]]]:
            feed.check(tx, cursor)
            found = feed.after(tx, cursor, limit=_BATCH)
            grown = {c.turn for c in found if c.kind is Kind.DRAFT and c.turn}
            return found, details.of(tx, found), details.drafts(tx, grown)

        return await self._database.read("view.missed", work)


def _begin(tx: Transaction, *, viewer: Viewer, limit: int) -> Beginning:
    return Beginning(
        page=_page(tx, viewer=viewer, listing=Listing(limit=limit)),
        projects=projects.every(tx, viewer),
        turns=turns.active(tx, profile=viewer.profile, owner=viewer.owner),
        questions=questions.page(tx, viewer),
        unsent=len(deliveries.page(tx, viewer, states=_UNSENT, limit=_MANY)),
        composed=desks.composed(tx, viewer, NEW),
        preferences=desks.preferences(tx, viewer),
        visited=desks.visited(tx, viewer),
        cursor=changes.head(tx),
    )


def _page(tx: Transaction, *, viewer: Viewer, listing: Listing) -> Page:
    listed, after = listings.page(tx, viewer, listing)
    return Page(listed=listed, read=desks.marks(tx, viewer, [e.session for e in listed]), next=after)


def _open(tx: Transaction, *, viewer: Viewer, id_: SessionId, window: Window) -> Opening:
    taken = snapshot.take(tx, viewer=viewer, id_=id_, limit=0, before=None)
    return Opening(
        snapshot=taken,
        shown=windows.show(tx, id_, window, last=taken.session.last_seq),
        inputs=_inputs(tx, taken.queue),
        read=desks.marks(tx, viewer, [taken.session])[id_],
        composed=desks.composed(tx, viewer, id_),
        lanes=lanes.of_session(tx, id_),
    )


def _inputs(tx: Transaction, waiting: Sequence[Turn]) -> list[Message]:
    return [messages.get(tx, turn.session, turn.input_seq) for turn in waiting]


def _board(tx: Transaction, *, viewer: Viewer) -> list[AtWork]:
    active = turns.active(tx, profile=viewer.profile, owner=viewer.owner)
    waiting = {asked.turn: asked for asked in questions.page(tx, viewer)}
    listed = {entry.session.id: entry for entry in listings.among(tx, {t.session for t in active})}
    found = [_at_work(tx, turn, listed[turn.session], waiting.get(turn.id)) for turn in active]
    return sorted(found, key=lambda w: w.turn.state is not TurnState.RUNNING)


def _at_work(tx: Transaction, turn: Turn, listed: Listed, question: Asked | None) -> AtWork:
    running = turn.state is TurnState.RUNNING
    recent = messages.latest(tx, turn.session, limit=8) if running else []
    steps = [call for m in recent if m.turn == turn.id for call in m.calls]
    asked = messages.get(tx, turn.session, turn.input_seq)
    words = " ".join(p.text for p in asked.parts if isinstance(p, Text))
    step = steps[-1] if steps else None
    return AtWork(turn=turn, listed=listed, asked=words[:200], step=step, question=question)
