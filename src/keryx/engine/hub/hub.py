"""Hub: receive, open and follow for every surface, and the commands on sessions and turns."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

import msgspec

from keryx.core.changes import Change
from keryx.core.clock import Clock
from keryx.core.errors import NotFound, Unavailable
from keryx.core.ids import Cursor, SessionId, TurnId
from keryx.core.messages import Message, Parts, parse_id
from keryx.core.ports.adapter import ClosedGate, InboundMessage, PlatformStatus, Receipt
from keryx.core.sessions import (
    EndReason,
    Session,
    SessionFilter,
    SessionListItem,
    SessionSettings,
    TitleBy,
    Viewer,
)
from keryx.core.turns import Turn
from keryx.engine import commands
from keryx.engine.hub import trace, views
from keryx.engine.hub.deliveries import HubDeliveries
from keryx.engine.hub.jobs import HubJobs
from keryx.engine.hub.lanes import HubLanes
from keryx.engine.hub.people import HubPeople
from keryx.engine.hub.projects import HubProjects
from keryx.engine.hub.questions import HubQuestions
from keryx.engine.hub.sign_ins import HubSignIns
from keryx.engine.hub.trace import MessageTrace
from keryx.engine.hub.usage import HubUsage
from keryx.engine.hub.viewer_state import HubViewerState
from keryx.engine.hub.views import HubViews, SessionSnapshot
from keryx.engine.loops import leases
from keryx.engine.loops.feed import Feed
from keryx.engine.media import MediaStorage
from keryx.engine.policy import Policy
from keryx.engine.units import control, receive, revisions
from keryx.store import changes, inbox, messages, platforms, sessions, turns, workers
from keryx.store.admin import stats
from keryx.store.admin.stats import StoreGauges
from keryx.store.db.database import Database, Transaction
from keryx.store.search.index import SearchHit, SearchIndex
from keryx.store.workers import Worker

T = TypeVar("T")
P = ParamSpec("P")
SessionExporter: TypeAlias = Callable[[Database, Viewer, list[SessionId]], Awaitable[object]]

NODE_KIND = "serve"
_LARGE_INDEX_BATCH = 500


class Hub:
    """Every surface stands on this. Whoever asks is named by a `Viewer`, and sees nothing of others."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        policy: Policy,
        feed: Feed,
        index: SearchIndex | None = None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy
        self._feed = feed
        self._index = index or SearchIndex(database)
        self.views = HubViews(database, sharing=policy.sharing)
        self.viewer_state = HubViewerState(database, clock)
        self.sign_ins = HubSignIns(database, clock)
        self.questions = HubQuestions(database, clock)
        self.usage = HubUsage(database, clock, budgets=policy.budgets)
        self.media = MediaStorage(database, limit=policy.media.limit)
        self.people = HubPeople(database, clock, policy=policy)
        self.projects = HubProjects(database, clock)
        self.lanes = HubLanes(database, clock, policy=policy)
        self.deliveries = HubDeliveries(database, clock, policy=policy)
        self.jobs = HubJobs(database, clock, policy=policy)

    async def receive(self, inbound: InboundMessage) -> Receipt:
        """The only way in. Returns when the event is durable; a repeated one gives the first receipt."""
        if inbound.principal is None:
            inbound = msgspec.structs.replace(inbound, source=self._policy.assign_profile(inbound.source))
        command = commands.parse_inbound(inbound)
        found = None
        if command and commands.needs_search(command, inbound):
            found = await self._search_for_command(inbound, command.text)
        return await self._database.write(
            "receive",
            partial(receive.receive, inbound=inbound, policy=self._policy, command=command, found=found),
            place=_find_contention_key(inbound),
        )

    async def search(self, viewer: Viewer, text: str, *, limit: int = 20, offset: int = 0) -> list[SearchHit]:
        """What the viewer may see of messages and titles that fit, best first. Any text is a query."""
        return await self._index.search(viewer, text, limit=limit, offset=offset)

    async def catch_up_index(self) -> None:
        """Bring the search index up to date ahead of the next search, so that it need not wait. After much work, let go
        of the memory that it took."""
        if await self._index.catch_up() > _LARGE_INDEX_BATCH:
            self._index.close()

    def close(self) -> None:
        """Let go of the search index. The database is closed by whoever opened it."""
        self._index.close()

    async def open(
        self, viewer: Viewer, session: SessionId, *, limit: int = 50, before: int | None = None
    ) -> SessionSnapshot:
        """A session with its last messages (below `before`), all from one read."""
        return await self._database.read(
            "open", partial(views.take_snapshot, viewer=viewer, id_=session, limit=limit, before=before)
        )

    def follow(
        self, viewer: Viewer, cursor: Cursor, *, session: SessionId | None = None
    ) -> AsyncIterator[Change]:
        """Everything after a cursor that the viewer may see, then live, for ever."""
        return self._feed.follow(viewer, cursor, session=session)

    def follow_all(self, cursor: Cursor) -> AsyncIterator[list[Change]]:
        """Everything of everybody after a cursor, in batches, for a surface that shares it among its viewers."""
        return self._feed.batches(cursor)

    async def head_cursor(self) -> Cursor:
        """The cursor of this moment, to follow from."""
        return await self._database.read("head", changes.get_head)

    async def platform_cursor(self, name: str) -> str | None:
        """How far a platform has come."""
        return await self._database.read("cursor", lambda tx: inbox.get_cursor(tx, name))

    async def init_cursor(self, name: str, value: str) -> None:
        """Store where a platform begins; once it has a position, that stays."""

        def work(tx: Transaction) -> None:
            if inbox.get_cursor(tx, name) is None:
                inbox.set_cursor(tx, name, value)

        await self._database.write("cursor.begin", work)

    async def resolve(self, viewer: Viewer, text: str) -> Session:
        """Find a session by id, unique prefix, title or alias."""
        return await self._database.read("resolve", lambda tx: sessions.resolve(tx, viewer, text))

    async def session(self, viewer: Viewer, session: SessionId) -> Session:
        """A session by its id alone."""
        return await self._read_session("session", viewer, session, lambda _, found: found)

    async def sessions(
        self, viewer: Viewer, listing: SessionFilter
    ) -> tuple[list[SessionListItem], str | None]:
        """One page of sessions, and the cursor of the next."""
        return await self._database.read("sessions", lambda tx: sessions.list_page(tx, viewer, listing))

    async def messages(
        self, viewer: Viewer, session: SessionId, *, after: int = 0, limit: int = 1000
    ) -> list[Message]:
        """Messages above a number, oldest first."""
        return await self._read_session(
            "messages", viewer, session, lambda tx, s: messages.list_after(tx, s.id, after=after, limit=limit)
        )

    async def rename(self, viewer: Viewer, session: SessionId, title: str) -> str:
        return await self._write_session("rename", viewer, session, sessions.rename, title, by=TitleBy.PERSON)

    async def pin(self, viewer: Viewer, session: SessionId, pinned: bool) -> None:
        await self._write_session("pin", viewer, session, sessions.set_pinned, pinned)

    async def archive(self, viewer: Viewer, session: SessionId, archived: bool) -> None:
        await self._write_session("archive", viewer, session, sessions.set_archived, archived)

    async def end(self, viewer: Viewer, session: SessionId, reason: EndReason | None) -> None:
        """End a session with a reason, or reopen it with `None`."""
        await self._write_session("end", viewer, session, sessions.end, reason)

    async def configure(self, viewer: Viewer, session: SessionId, settings: SessionSettings) -> None:
        await self._write_session("configure", viewer, session, sessions.set_settings, settings)

    async def delete(self, viewer: Viewer, session: SessionId, *, erase: bool = False) -> None:
        """Hide a session now and erase it after the grace period; with `erase`, erase it at once."""
        grace = self._policy.keep.erase
        await self._write_session("delete", viewer, session, control.delete, grace=grace, erase=erase)

    async def undelete(self, viewer: Viewer, session: SessionId) -> None:

        def work(tx: Transaction) -> None:
            found = sessions.get(tx, session, viewer=viewer, deleted=True)
            sessions.undelete(tx, found)

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
        copy = partial(revisions.fork, surface=surface, through=through, title=title, cwd=cwd)
        return await self._write_session("fork", viewer, session, copy)

    async def branch(
        self,
        viewer: Viewer,
        session: SessionId,
        inbound: InboundMessage,
        *,
        surface: str,
        through: int | None = None,
        title: str | None = None,
    ) -> Receipt:
        """Fork, and say something to the copy, all or nothing; a repeated event gives the first receipt."""
        copy = partial(receive.receive_in_fork, viewer=viewer, surface=surface, through=through, title=title)
        return await self._write_session("branch", viewer, session, copy, inbound, policy=self._policy)

    async def export(self, viewer: Viewer, session: SessionId, exporter: SessionExporter) -> None:
        """Give a session to `exchange.export`, bound to a format, which only those load who ask for it."""
        await self._read_session("export.check", viewer, session, lambda tx, s: s.id)
        await exporter(self._database, viewer, [session])

    async def undo(self, viewer: Viewer, session: SessionId, count: int = 1) -> str:
        return await self._write_session("undo", viewer, session, revisions.undo, count)

    async def redo(self, viewer: Viewer, session: SessionId) -> int:
        return await self._write_session("redo", viewer, session, revisions.redo)

    async def retry(self, viewer: Viewer, session: SessionId, *, surface: str) -> Receipt:
        retry = partial(revisions.retry, asker=viewer.principal, surface=surface)
        return await self._write_session("retry", viewer, session, retry)

    async def stop(self, viewer: Viewer, session: SessionId, *, queue: bool = False) -> Turn | None:
        """Ask the running turn to stop; with `queue`, drop what waits too. With nothing running, nothing happens."""
        return await self._write_session(
            "stop", viewer, session, lambda tx, s: control.stop(tx, s.id, queue=queue)
        )

    async def cancel(self, viewer: Viewer, turn: TurnId) -> Turn:
        """Stop one turn, whether it waits or runs; gives it as it was. One that has ended stays as it is."""

        def work(tx: Transaction) -> Turn:
            sessions.get(tx, turns.get(tx, turn).session, viewer=viewer, deleted=True)
            return control.cancel(tx, turn)

        return await self._database.write("cancel", work)

    async def drop(self, viewer: Viewer, turn: TurnId) -> None:
        """Take one waiting turn out of the queue."""

        def work(tx: Transaction) -> None:
            found = turns.get(tx, turn)
            sessions.get(tx, found.session, viewer=viewer)
            control.drop(tx, turn)

        await self._database.write("drop", work)

    async def rewrite(self, viewer: Viewer, message: str, parts: Parts) -> None:
        """Change a message whose turn still waits. `Conflict` once an agent has begun to answer it."""
        session, seq = parse_id(message)
        await self._write_session(
            "rewrite", viewer, session, lambda tx, s: control.rewrite(tx, s.id, seq, parts)
        )

    async def turn(self, viewer: Viewer, turn: TurnId) -> Turn:
        def work(tx: Transaction) -> Turn:
            found = turns.get(tx, turn)
            if not viewer.sees(found.profile, found.owner):
                raise NotFound(f"there is no turn {turn!r}")
            return found

        return await self._database.read("turn", work)

    async def list_active_turns(self, viewer: Viewer) -> list[Turn]:
        """Every running or waiting turn that the viewer may see."""
        return await self._database.read(
            "active", lambda tx: turns.list_active(tx, profile=viewer.profile, owner=viewer.owner)
        )

    async def trace(self, viewer: Viewer, message: str) -> MessageTrace:
        """The whole story of one message."""
        session, seq = parse_id(message)
        return await self._read_session("why", viewer, session, trace.build, seq)

    async def list_nodes(self) -> list[Worker]:
        """The processes that run every turn and are alive, as far as can be told."""
        return [w for w in await self._database.read("nodes", self._list_live_workers) if w.kind == NODE_KIND]

    async def platform_statuses(self) -> list[PlatformStatus]:
        """How each process that is alive stands with each platform."""

        def work(tx: Transaction) -> list[PlatformStatus]:
            there = {w.id for w in self._list_live_workers(tx)}
            return [c for c in platforms.list_connections(tx) if c.worker in there]

        return await self._database.read("connections", work)

    async def closed_gates(self) -> list[ClosedGate]:
        """The chats and accounts that nothing is sent to now, and until when."""
        return await self._database.read("gates", lambda tx: platforms.list_closed_gates(tx))

    async def gauges(self) -> StoreGauges:
        """How much there is and how much of it waits, over all profiles and owners."""
        return await self._database.read("gauges", stats.read_gauges)

    async def check_ready(self) -> None:
        """Return if the store answers and the feed reads; else raise with the reason."""
        await self._database.read("ready", changes.get_head)
        if not self._feed.reading:
            raise Unavailable("the change feed does not read now")

    async def _search_for_command(self, inbound: InboundMessage, text: str) -> str | None:
        """What a command is answered with. A search that does not work must not keep the event out."""
        try:
            person = await self._database.read("asker", lambda tx: receive.find_asker(tx, inbound))
            if person is None:
                return None
            viewer = Viewer(inbound.source.profile, person)
            return commands.render_hits(await self.search(viewer, text, limit=commands.SEARCH_LIMIT))
        except Unavailable as exc:
            return f"Search does not work now: {exc}."

    def _list_live_workers(self, tx: Transaction) -> list[Worker]:
        earliest = self._clock.now() - self._policy.limits.lease
        return [w for w in workers.list_all(tx) if w.seen_at >= earliest and not leases.is_dead(w)]

    async def _read_session(
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

    async def _write_session(
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


def _find_contention_key(inbound: InboundMessage) -> str:
    """What an event touches that others may touch at the same time, as far as it can be told beforehand."""
    source = inbound.source
    parts = (source.platform, source.account, source.chat or source.user, source.thread)
    return inbound.session or " ".join(part or "" for part in parts)
