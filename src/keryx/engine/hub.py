"""Hub: the facade. Three verbs for every surface, and small commands beside them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

import msgspec

from keryx.core.changes import Change
from keryx.core.connections import ClosedGate, Connection
from keryx.core.errors import NotFound, Unavailable
from keryx.core.ids import Cursor, SessionId, TurnId
from keryx.core.messages import Message, Parts, split_id
from keryx.core.ports import Clock, Inbound, Receipt
from keryx.core.sessions import EndReason, Listed, Listing, Session, Settings, TitleBy, Viewer
from keryx.core.turns import Turn
from keryx.engine import (
    branches,
    commands,
    control,
    revisions,
    router,
    snapshot,
    story,
    worker,
)
from keryx.engine.deliveries import Deliveries
from keryx.engine.desk import Desk
from keryx.engine.feed import Feed
from keryx.engine.jobs import Jobs
from keryx.engine.lanes import Lanes
from keryx.engine.media import Media
from keryx.engine.people import People
from keryx.engine.policy import Policy
from keryx.engine.projects import Projects
from keryx.engine.questions import Questions
from keryx.engine.signins import SignIns
from keryx.engine.snapshot import Snapshot
from keryx.engine.story import Story
from keryx.engine.usage import Usages
from keryx.engine.views import Views
from keryx.store import (
    changes,
    connections,
    cursors,
    gates,
    gauges,
    listings,
    lookup,
    messages,
    sessions,
    turns,
    workers,
)
from keryx.store.database import Database, Transaction
from keryx.store.gauges import Gauges
from keryx.store.search import Hit, Index
from keryx.store.workers import Worker

T = TypeVar("T")
P = ParamSpec("P")
Exporter: TypeAlias = Callable[[Database, Viewer, list[SessionId]], Awaitable[object]]

NODE = "serve"
_MUCH_INDEXED = 500


class Hub:
    """Every surface stands on this. Whoever asks is named by a `Viewer`, and sees nothing of others."""

    def __init__(
        self, database: Database, clock: Clock, *, policy: Policy, feed: Feed, index: Index | None = None
    ) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy
        self._feed = feed
        self._index = index or Index(database)
        self.views = Views(database, sharing=policy.sharing)
        self.desk = Desk(database, clock)
        self.sign_ins = SignIns(database, clock)
        self.questions = Questions(database, clock)
        self.usages = Usages(database, clock, budgets=policy.budgets)
        self.media = Media(database, clock, limit=policy.media.limit)
        self.people = People(database, clock, policy=policy)
        self.projects = Projects(database, clock)
        self.lanes = Lanes(database, clock, policy=policy)
        self.deliveries = Deliveries(database, clock, policy=policy)
        self.jobs = Jobs(database, clock, policy=policy)

    async def receive(self, inbound: Inbound) -> Receipt:
        """The only way in. Returns when the event is durable; a repeated one gives the first receipt."""
        now = self._clock.now()
        if inbound.principal is None:
            inbound = msgspec.structs.replace(inbound, source=self._policy.placed(inbound.source))
        sought = commands.sought(inbound)
        found = await self._look_up(inbound, sought) if sought else None
        return await self._database.write(
            "receive",
            partial(router.receive, inbound=inbound, policy=self._policy, now=now, found=found),
            place=_place(inbound),
        )

    async def search(self, viewer: Viewer, text: str, *, limit: int = 20, offset: int = 0) -> list[Hit]:
        """What the viewer may see of messages and titles that fit, best first. Any text is a query."""
        return await self._index.search(viewer, text, limit=limit, offset=offset, now=self._clock.now())

    async def catch_up_index(self) -> None:
        """Bring the search index up to date ahead of the next search, so that it need not wait. After much work, let go
        of the memory that it took."""
        if await self._index.catch_up() > _MUCH_INDEXED:
            self._index.close()

    def close(self) -> None:
        """Let go of the search index. The database is closed by whoever opened it."""
        self._index.close()

    async def open(
        self, viewer: Viewer, session: SessionId, *, limit: int = 50, before: int | None = None
    ) -> Snapshot:
        """A session with its last messages (below `before`), all from one read."""
        return await self._database.read(
            "open", partial(snapshot.take, viewer=viewer, id_=session, limit=limit, before=before)
        )

    def follow(
        self, viewer: Viewer, cursor: Cursor, *, session: SessionId | None = None
    ) -> AsyncIterator[Change]:
        """Everything after a cursor that the viewer may see, then live, for ever."""
        return self._feed.follow(viewer, cursor, session=session)

    def changes(self, cursor: Cursor) -> AsyncIterator[list[Change]]:
        """Everything of everybody after a cursor, in batches, for a surface that shares it among its viewers."""
        return self._feed.batches(cursor)

    async def now(self) -> Cursor:
        """The cursor of this moment, to follow from."""
        return await self._database.read("head", changes.head)

    async def position(self, name: str) -> str | None:
        """How far a platform has come."""
        return await self._database.read("cursor", lambda tx: cursors.get(tx, name))

    async def begin(self, name: str, value: str) -> None:
        """Store where a platform begins; once it has a position, that stays."""
        now = self._clock.now()

        def work(tx: Transaction) -> None:
            if cursors.get(tx, name) is None:
                cursors.move(tx, name, value, now=now)

        await self._database.write("cursor.begin", work)

    async def resolve(self, viewer: Viewer, text: str) -> Session:
        """Find a session by id, unique prefix, title or alias."""
        return await self._database.read("resolve", lambda tx: lookup.resolve(tx, viewer, text))

    async def session(self, viewer: Viewer, session: SessionId) -> Session:
        """A session by its id alone."""
        return await self._read("session", viewer, session, lambda _, found: found)

    async def sessions(self, viewer: Viewer, listing: Listing) -> tuple[list[Listed], str | None]:
        """One page of sessions, and the cursor of the next."""
        return await self._database.read("sessions", lambda tx: listings.page(tx, viewer, listing))

    async def messages(
        self, viewer: Viewer, session: SessionId, *, after: int = 0, limit: int = 1000
    ) -> list[Message]:
        """Messages above a number, oldest first."""
        return await self._read(
            "messages", viewer, session, lambda tx, s: messages.following(tx, s.id, after=after, limit=limit)
        )

    async def rename(self, viewer: Viewer, session: SessionId, title: str) -> str:
        now = self._clock.now()
        return await self._change(
            "rename", viewer, session, sessions.rename, title, by=TitleBy.PERSON, now=now
        )

    async def pin(self, viewer: Viewer, session: SessionId, pinned: bool) -> None:
        await self._change("pin", viewer, session, sessions.set_pinned, pinned, now=self._clock.now())

    async def archive(self, viewer: Viewer, session: SessionId, archived: bool) -> None:
        await self._change("archive", viewer, session, sessions.set_archived, archived, now=self._clock.now())

    async def end(self, viewer: Viewer, session: SessionId, reason: EndReason | None) -> None:
        """End a session with a reason, or reopen it with `None`."""
        await self._change("end", viewer, session, sessions.end, reason, now=self._clock.now())

    async def configure(self, viewer: Viewer, session: SessionId, settings: Settings) -> None:
        await self._change(
            "configure", viewer, session, sessions.set_settings, settings, now=self._clock.now()
        )

    async def delete(self, viewer: Viewer, session: SessionId, *, erase: bool = False) -> None:
        """Hide a session now and erase it after the grace period; with `erase`, erase it at once."""
        now, grace = self._clock.now(), self._policy.keep.erase
        await self._change("delete", viewer, session, control.delete, grace=grace, now=now, erase=erase)

    async def undelete(self, viewer: Viewer, session: SessionId) -> None:
        now = self._clock.now()

        def work(tx: Transaction) -> None:
            found = sessions.get(tx, session, viewer=viewer, deleted=True)
            sessions.unhide(tx, found, now=now)

        await self._database.write("undelete", work)

    async def fork(
        self,
        viewer: Viewer,
        session: SessionId,
        *,
        surface: str,
        through: int | None = None,
        title: str | None = None,
        cwd: str | None = None,
    ) -> Session:
        """An independent copy up to a message, by default up to the last complete turn, in the same folder or another."""
        copy = partial(revisions.fork, viewer=viewer, surface=surface, through=through, title=title, cwd=cwd)
        return await self._change("fork", viewer, session, copy, now=self._clock.now())

    async def branch(
        self,
        viewer: Viewer,
        session: SessionId,
        inbound: Inbound,
        *,
        surface: str,
        through: int | None = None,
        title: str | None = None,
    ) -> Receipt:
        """Fork, and say something to the copy, all or nothing; a repeated event gives the first receipt."""
        copy = partial(branches.branch, viewer=viewer, surface=surface, through=through, title=title)
        now = self._clock.now()
        return await self._change("branch", viewer, session, copy, inbound, policy=self._policy, now=now)

    async def export(self, viewer: Viewer, session: SessionId, exporter: Exporter) -> None:
        """Give a session to `exchange.export`, bound to a format, which only those load who ask for it."""
        await self._read("export.check", viewer, session, lambda tx, s: s.id)
        await exporter(self._database, viewer, [session])

    async def undo(self, viewer: Viewer, session: SessionId, count: int = 1) -> str:
        return await self._change("undo", viewer, session, revisions.undo, count, now=self._clock.now())

    async def redo(self, viewer: Viewer, session: SessionId) -> int:
        return await self._change("redo", viewer, session, revisions.redo, now=self._clock.now())

    async def retry(self, viewer: Viewer, session: SessionId, *, surface: str) -> Receipt:
        retry = partial(revisions.retry, asker=viewer.principal, surface=surface)
        return await self._change("retry", viewer, session, retry, now=self._clock.now())

    async def stop(self, viewer: Viewer, session: SessionId, *, queue: bool = False) -> Turn | None:
        """Ask the running turn to stop; with `queue`, drop what waits too. With nothing running, nothing happens."""
        now = self._clock.now()
        return await self._change(
            "stop", viewer, session, lambda tx, s: control.stop(tx, s.id, now=now, queue=queue)
        )

    async def cancel(self, viewer: Viewer, turn: TurnId) -> Turn:
        """Stop one turn, whether it waits or runs; gives it as it was. One that has ended stays as it is."""
        now = self._clock.now()

        def work(tx: Transaction) -> Turn:
            sessions.get(tx, turns.get(tx, turn).session, viewer=viewer, deleted=True)
            return control.cancel(tx, turn, now=now)

        return await self._database.write("cancel", work)

    async def drop(self, viewer: Viewer, turn: TurnId) -> None:
        """Take one waiting turn out of the queue."""
        now = self._clock.now()

        def work(tx: Transaction) -> None:
            found = turns.get(tx, turn)
            sessions.get(tx, found.session, viewer=viewer)
            control.drop(tx, turn, now=now)

        await self._database.write("drop", work)

    async def rewrite(self, viewer: Viewer, message: str, parts: Parts) -> None:
        """Change a message whose turn still waits. `Conflict` once an agent has begun to answer it."""
        session, seq = split_id(message)
        now = self._clock.now()
        await self._change(
            "rewrite", viewer, session, lambda tx, s: control.rewrite(tx, s.id, seq, parts, now=now)
        )

    async def turn(self, viewer: Viewer, turn: TurnId) -> Turn:
        def work(tx: Transaction) -> Turn:
            found = turns.get(tx, turn)
            if not viewer.sees(found.profile, found.owner):
                raise NotFound(f"there is no turn {turn!r}")
            return found

        return await self._database.read("turn", work)

    async def active(self, viewer: Viewer) -> list[Turn]:
        """Every running or waiting turn that the viewer may see."""
        return await self._database.read(
            "active", lambda tx: turns.active(tx, profile=viewer.profile, owner=viewer.owner)
        )

    async def why(self, viewer: Viewer, message: str) -> Story:
        """The whole story of one message."""
        session, seq = split_id(message)
        return await self._read("why", viewer, session, story.tell, seq)

    async def nodes(self) -> list[Worker]:
        """The processes that run every turn and are alive, as far as can be told."""
        return [w for w in await self._database.read("nodes", self._alive) if w.kind == NODE]

    async def connections(self) -> list[Connection]:
        """How each process that is alive stands with each platform."""

        def work(tx: Transaction) -> list[Connection]:
            there = {w.id for w in self._alive(tx)}
            return [c for c in connections.every(tx) if c.worker in there]

        return await self._database.read("connections", work)

    async def closed_gates(self) -> list[ClosedGate]:
        """The chats and accounts that nothing is sent to now, and until when."""
        now = self._clock.now()
        return await self._database.read("gates", lambda tx: gates.closed(tx, now=now))

    async def gauges(self) -> Gauges:
        """How much there is and how much of it waits, over all profiles and owners."""
        return await self._database.read("gauges", gauges.read)

    async def ready(self) -> None:
        """Return if the store answers and the feed reads; else raise with the reason."""
        await self._database.read("ready", changes.head)
        if not self._feed.reading:
            raise Unavailable("the change feed does not read now")

    async def _look_up(self, inbound: Inbound, text: str) -> str | None:
        """What a command is answered with. A search that does not work must not keep the event out."""
        try:
            person = await self._database.read("asker", lambda tx: router.asker(tx, inbound))
            if person is None:
                return None
            viewer = Viewer(inbound.source.profile, person)
            return commands.listed(await self.search(viewer, text, limit=commands.FOUND))
        except Unavailable as exc:
            return f"Search does not work now: {exc}."

    def _alive(self, tx: Transaction) -> list[Worker]:
        earliest = self._clock.now() - self._policy.limits.lease
        return [w for w in workers.every(tx) if w.seen_at >= earliest and not worker.dead(w)]

    async def _read(
        self,
        label: str,
        viewer: Viewer,
        session: SessionId,
        work: Callable[Concatenate[Transaction, Session, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return await self._database.read(
            label, lambda tx: work(tx, sessions.get(tx, session, viewer=viewer), *args, **kwargs)
        )

    async def _change(
        self,
        label: str,
        viewer: Viewer,
        session: SessionId,
        work: Callable[Concatenate[Transaction, Session, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return await self._database.write(
            label, lambda tx: work(tx, sessions.get(tx, session, viewer=viewer), *args, **kwargs)
        )


def _place(inbound: Inbound) -> str:
    """What an event touches that others may touch at the same time, as far as it can be told beforehand."""
    source = inbound.source
    parts = (source.platform, source.account, source.chat or source.user, source.thread)
    return inbound.session or " ".join(part or "" for part in parts)
