"""Search: what a person finds in the conversations that are theirs, best first.

The index is derived: it is brought up to date before each search and can be thrown away. It says which messages
have the words; the store says which of them may be seen.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

from keryx.core.errors import StoreBroken
from keryx.core.ids import ProjectId, SessionId
from keryx.core.messages import Message
from keryx.core.query import Filters, Is, Not, Query, parse
from keryx.core.search import Snippet, highlight
from keryx.core.sessions import Session, Viewer
from keryx.store import entries, feed, indexed, indexing, messages, sessions
from keryx.store.database import AMONG_IDS, AMONG_NAMES, Database, Engine, Transaction, micros
from keryx.store.indexing import Ask, Backend, Batch, Damaged
from keryx.store.search_postgres import PostgresSearch
from keryx.store.search_sqlite import SqliteSearch

T = TypeVar("T")
Progress = Callable[[int, int], None]
log = logging.getLogger(__name__)

WINDOW = 300
_WIDEST = 5_000
_TITLES = 50
_TOP = 1 << 62
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
_TRIES = 3
_HELD_SECONDS = 0.005
_HELD_TRIES = 40
_OLD = timedelta(days=30) // timedelta(microseconds=1)
_RECENCY = 0.4
_TITLE = 0.5
_FEW = 200
_NOWHERE = "session:"
_OF_SESSIONS = {Is.PINNED: "s.pinned = 1", Is.ARCHIVED: "s.archived = 1"}
_OF_MESSAGES = {
    Is.COMPACTED: "m.seq < (select e.first_seq from epochs e where e.session = s.id and e.number = s.epoch)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A message that was found, with its neighbours that still stand; or a title, without a message."""

    session: Session
    message: Message | None
    snippet: Snippet
    before: Message | None
    after: Message | None
    score: float


class Index:
    """Search over one database. Any number of processes may have one at the same time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._backend: Backend = (
            SqliteSearch() if database.engine is Engine.SQLITE else PostgresSearch(database)
        )
        self._turn = asyncio.Lock()

    async def search(
        self, viewer: Viewer, text: str, *, now: datetime, limit: int = 20, offset: int = 0
    ) -> list[Hit]:
        """What fits the query and the viewer may see, as of this moment. Any text is a query; one without
        words and filters finds nothing. The newest `WINDOW` hits are ranked by relevance and age and come first,
        then the next ones."""
        query = parse(text)
        if query == Query():
            return []

        asked = partial(_search, self._backend, viewer, query, now, limit, offset)

        async def look() -> list[Hit]:
            found = await self._database.read("search", lambda tx: asked(tx) if self._current(tx) else None)
            if found is None:
                await self._advance(None)
                found = await self._database.read("search", asked)
            return found

        return await self._mending(look)

    async def catch_up(self, progress: Progress | None = None) -> int:
        """Take in what has changed, or everything if the index is new, damaged or too far behind; gives the
        number of messages taken in. `progress` is told how far the filling of an index has come, and its end."""
        return await self._mending(lambda: self._advance(progress))

    async def rebuild(self, progress: Progress | None = None) -> int:
        """Throw the index away and fill it again. Searches meanwhile wait for it; writers do not."""

        async def again() -> int:
            begun = False
            while not begun:
                begun = await self._backend.put(await self._database.read("search.restart", self._restart))
            return await self._advance(progress)

        return await self._mending(again)

    async def wrong(self) -> str:
        """How the index differs from the messages; empty if it does not, or is not there yet. What comes in or goes
        meanwhile is no difference, so only what is found twice counts."""
        try:
            if await self._database.read("verify", self._backend.state) is None:
                return ""
            await self._advance(None)
            self._backend.check()
            found = await self._database.read("verify", self._wrong)
            if found:
                await self._advance(None)
                found &= await self._database.read("verify", self._wrong)
        except Damaged as exc:
            return f"is damaged ({exc})"
        kinds = Counter(kind for _, kind in found)
        return ", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items()))

    def close(self) -> None:
        self._backend.close()

    async def _mending(self, work: Callable[[], Awaitable[T]]) -> T:
        for _ in range(_TRIES):
            try:
                return await work()
            except Damaged as exc:
                log.warning("the search index is damaged and is built again: %s", exc)
                await asyncio.to_thread(self._backend.mend)
        raise StoreBroken("the search index is damaged again and again: check the disk")

    async def _advance(self, progress: Progress | None) -> int:
        """Step on until nothing is left. One of many callers does it, the others find it done."""
        count = held = 0
        async with self._turn:
            while True:
                batch, waiting = await self._database.read("search.step", self._step)
                if batch is None and (not waiting or held == _HELD_TRIES):
                    return count
                if batch is None:
                    held += 1
                    await asyncio.sleep(_HELD_SECONDS)
                elif await self._backend.put(batch):
                    count += len(batch.entries)
                    if progress and batch.progress:
                        progress(*batch.progress)

    def _current(self, tx: Transaction) -> bool:
        return indexing.current(tx, self._backend.state(tx))

    def _step(self, tx: Transaction) -> tuple[Batch | None, bool]:
        batch = indexing.step(tx, self._backend.state(tx))
        return batch, batch is None and feed.held_back(tx)

    def _wrong(self, tx: Transaction) -> set[tuple[int, str]]:
        return indexed.wrong(tx, self._backend)

    def _restart(self, tx: Transaction) -> Batch:
        return indexing.restart(tx, self._backend.state(tx))


class _Candidate(NamedTuple):
    """A message by the number of its row, or a title with number 0."""

    score: float
    id: int
    session: SessionId


def _search(
    backend: Backend, viewer: Viewer, query: Query, now: datetime, limit: int, offset: int, tx: Transaction
) -> list[Hit]:
    asked = _Asked(backend, viewer, query, now, tx)
    chosen = asked.ranked(offset + limit)[offset : offset + limit]
    return _hits(tx, query, chosen)


class _Asked:
    """One search within one read of the store."""

    def __init__(
        self, backend: Backend, viewer: Viewer, query: Query, now: datetime, tx: Transaction
    ) -> None:
        filters = query.filters
        self._backend = backend
        self._tx = tx
        self._now = micros(now)
        self._query = query
        before = min((t for t in (filters.before, _ago(now, filters.before_age)) if t), default=None)
        after = max((t for t in (filters.after, _ago(now, filters.after_age)) if t), default=None)
        self._before = _TOP if before is None else micros(before)
        self._after = -_TOP if after is None else micros(after)
        self._where, self._params = _conditions(tx, viewer, filters)
        tags = entries.wanted(viewer, filters) + self._narrowed()
        self._titles_ask = Ask(tags, query.expr)
        times = [entries.within(after, before)] if before or after else []
        self._ask = Ask(tags + times, query.expr)

    def ranked(self, count: int) -> list[_Candidate]:
        """At least `count` candidates if there are so many: windows of the newest ones, each best first."""
        ranked: list[_Candidate] = []
        window = self._titles()
        below: int | None = _TOP
        while below is not None and len(ranked) < count:
            found, below = self._window(below)
            ranked += sorted(window + found, reverse=True)
            window = []
        return ranked

    def _window(self, below: int | None) -> tuple[list[_Candidate], int | None]:
        found: list[_Candidate] = []
        size = WINDOW
        while below is not None and len(found) < WINDOW:
            page = self._backend.messages(self._tx, self._ask, below=below, limit=size)
            found += self._visible(page.found)
            below = page.below
            size = min(2 * size, _WIDEST)
        return found, below

    def _visible(self, found: dict[int, float]) -> list[_Candidate]:
        if not found:
            return []
        facts = [_OF_MESSAGES[fact] for fact in self._query.filters.is_ if fact in _OF_MESSAGES]
        undone = "m.undone > 0" if Is.UNDONE in self._query.filters.is_ else "m.undone = 0"
        rows = self._tx.rows(
            f"""
            select m.id, m.session, m.at
            from messages m cross join sessions s
            where s.id = m.session and m.id {AMONG_IDS[self._tx.engine]} and {" and ".join([undone, *facts, *self._where])}
            """,
            {**self._params, "ids": json.dumps(list(found))},
        )
        return [
            _Candidate(found[id_] + self._recency(at), id_, session)
            for id_, session, at in rows
            if self._in_time(at)
        ]

    def _titles(self) -> list[_Candidate]:
        """Titles that fit. What is asked only of messages is never true of a title."""
        filters = self._query.filters
        of_messages = filters.sender or filters.tool or filters.has or set(filters.is_) - set(_OF_SESSIONS)
        if of_messages or self._query.expr is None or isinstance(self._query.expr, Not):
            return []
        found = self._backend.titles(self._tx, self._titles_ask, limit=_TITLES)
        if not found:
            return []
        rows = self._tx.rows(
            f"select s.id, s.active_at from sessions s where s.id {AMONG_NAMES[self._tx.engine]} and {' and '.join(self._where)}",
            {**self._params, "names": json.dumps(list(found))},
        )
        return [
            _Candidate(found[id_] + self._recency(at) + _TITLE, 0, id_)
            for id_, at in rows
            if self._in_time(at)
        ]

    def _narrowed(self) -> list[list[str]]:
        """With a filter on sessions, the tags of the few that pass it, so that the index looks at no others."""
        if not self._query.filters.project and not set(self._query.filters.is_) & set(_OF_SESSIONS):
            return []
        rows = self._tx.rows(
            f"select s.id from sessions s where {' and '.join(self._where)} limit :limit",
            {**self._params, "limit": _FEW + 1},
        )
        return [[entries.of_session(row[0]) for row in rows] or [_NOWHERE]] if len(rows) <= _FEW else []

    def _in_time(self, at: int) -> bool:
        return self._after <= at < self._before

    def _recency(self, at: int) -> float:
        return _RECENCY / (1 + max(0, self._now - at) / _OLD)


def _conditions(tx: Transaction, viewer: Viewer, filters: Filters) -> tuple[list[str], dict[str, Any]]:
    """What the store must say of a session, each a fixed text; and the values."""
    where = ["s.profile = :profile", "s.deleted_at is null"]
    params: dict[str, Any] = {"profile": viewer.profile}
    if viewer.owner is not None:
        where.append("s.owner = :owner")
        params["owner"] = viewer.owner
    where += [_OF_SESSIONS[fact] for fact in filters.is_ if fact in _OF_SESSIONS]
    if filters.project:
        where.append(f"s.project {AMONG_NAMES[tx.engine].replace(':names', ':projects')}")
        params["projects"] = json.dumps(_projects(tx, viewer, filters.project))
    return where, params


def _projects(tx: Transaction, viewer: Viewer, names: tuple[str, ...]) -> list[ProjectId]:
    wanted = {name.casefold() for name in names}
    rows = tx.rows("select id, name from projects where profile = :profile", {"profile": viewer.profile})
    return [id_ for id_, name in rows if name.casefold() in wanted]


def _ago(now: datetime, age: timedelta | None) -> datetime | None:
    return None if age is None else now - min(age, now - _BEGINNING)


def _hits(tx: Transaction, query: Query, chosen: list[_Candidate]) -> list[Hit]:
    """The candidates with all that is shown of them."""
    if not chosen:
        return []
    around = _neighbours(tx, [candidate.id for candidate in chosen])
    shown = _messages(tx, {id_ for row in around.values() for id_ in row if id_})
    known = {s.id: s for s in sessions.among(tx, {candidate.session for candidate in chosen})}
    hits: list[Hit] = []
    for candidate in chosen:
        session = known[candidate.session]
        here, before, after = around.get(candidate.id, (0, 0, 0))
        message = shown.get(here)
        hits.append(
            Hit(
                session=session,
                message=message,
                snippet=highlight(entries.text(message) if message else session.title, query),
                before=shown.get(before),
                after=shown.get(after),
                score=candidate.score,
            )
        )
    return hits


def _neighbours(tx: Transaction, ids: list[int]) -> dict[int, tuple[int, int, int]]:
    """Each message with the ones before and after it that still stand, all by the numbers of their rows."""
    rows = tx.rows(
        f"""
        select m.id,
          (select b.id from messages b where b.session = m.session and b.seq < m.seq and b.undone = 0
           order by b.seq desc limit 1),
          (select a.id from messages a where a.session = m.session and a.seq > m.seq and a.undone = 0
           order by a.seq limit 1)
        from messages m where m.id {AMONG_IDS[tx.engine]}
        """,
        {"ids": json.dumps(ids)},
    )
    return {id_: (id_, before or 0, after or 0) for id_, before, after in rows}


def _messages(tx: Transaction, ids: set[int]) -> dict[int, Message]:
    rows = tx.rows(
        f"select m.id, {messages.columns('m')} from messages m where m.id {AMONG_IDS[tx.engine]}",
        {"ids": json.dumps(list(ids))},
    )
    found = messages.from_rows([row[1:] for row in rows])
    return {row[0]: message for row, message in zip(rows, found, strict=True)}
