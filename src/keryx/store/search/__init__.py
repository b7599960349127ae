"""The search index of a store: runs a query, filters and ranks what the viewer may see, and keeps the index up to date."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from keryx.core.clock import to_micros
from keryx.core.errors import StoreBroken
from keryx.core.ids import SessionId
from keryx.core.messages import Message
from keryx.core.search import SESSION_STATES, Not, Query, StateFilter, parse, subtract_age
from keryx.core.search.snippets import SCAN_LIMIT, Snippet, highlight
from keryx.core.sessions import Session, Viewer
from keryx.fair_limits import FairQueue
from keryx.store import change_feed, sessions
from keryx.store.db import Database, Engine, Transaction
from keryx.store.search import documents, indexing
from keryx.store.search.fts5 import Fts5Backend
from keryx.store.search.indexing import IndexBatch, IndexDamaged, IndexQuery, SearchBackend
from keryx.store.search.tsvector import TsvectorBackend

T = TypeVar("T")
IndexProgress = Callable[[int, int], None]
log = logging.getLogger(__name__)

RANK_WINDOW = 300
# Searches at once: each takes a reader of the store, and the others are for everything else.
_MAX_SEARCHES = 2
# The characters that are scanned for the snippets of one search, and at least of each text.
_MAX_SCANNED_CHARS = 200_000
_MIN_SCANNED_CHARS = 1_000
_MAX_PAGE = 5_000
_MAX_TITLES = 50
_UNBOUNDED = 1 << 62
_MAX_REPAIRS = 3
_HELD_BACK_SECONDS = 0.005
_MAX_HELD_BACK_WAITS = 40
_AGE_SCALE_MICROS = timedelta(days=30) // timedelta(microseconds=1)
_RECENCY_WEIGHT = 0.4
_TITLE_BONUS = 0.5
_MAX_SESSION_TAGS = 200
_NO_SESSION_TAG = "session:"
_MESSAGE_CONDITIONS = {
    StateFilter.COMPACTED: "m.seq < (select e.first_seq from epochs e where e.session = s.id and e.number = s.epoch)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A matching message with its active neighbours, or a matching title without a message."""

    session: Session
    message: Message | None
    snippet: Snippet
    before: Message | None
    after: Message | None
    score: float


class SearchIndex:
    """Search over one database. Any number of processes may have one at the same time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._backend: SearchBackend = (
            Fts5Backend() if database.engine is Engine.SQLITE else TsvectorBackend(database)
        )
        self._update_lock = asyncio.Lock()
        self._searches = FairQueue(_MAX_SEARCHES)

    async def search(
        self,
        viewer: Viewer,
        text: str,
        *,
        limit: int = 20,
        offset: int = 0,
        session: SessionId | None = None,
    ) -> list[SearchHit]:
        """Return what matches the query and the viewer may see, as of now. Any text is a query; one without words and
        filters matches nothing. The newest `RANK_WINDOW` hits come first, ranked by relevance and age; then the next
        ones. With `session`, only messages of that session."""
        query = parse(text)
        if query == Query():
            return []

        def run(tx: Transaction) -> list[SearchHit]:
            ranked = _QueryRun(self._backend, viewer, query, tx, session).rank(offset + limit)
            return _build_hits(tx, query, ranked[offset : offset + limit])

        async def update_and_run() -> list[SearchHit]:
            found = await self._database.read("search", lambda tx: run(tx) if self._is_current(tx) else None)
            if found is None:
                await self._apply_pending(None)
                found = await self._database.read("search", run)
            return found

        async with self._searches.hold(viewer.principal):
            return await self._retry_after_repair(update_and_run)

    async def catch_up(self, progress: IndexProgress | None = None) -> int:
        """Index what has changed, or everything if the index is new, damaged or too far behind; return the number of
        messages indexed. `progress` is called while an index is filled."""
        return await self._retry_after_repair(lambda: self._apply_pending(progress))

    async def rebuild(self, progress: IndexProgress | None = None) -> int:
        """Throw the index away and fill it again. Searches meanwhile wait for it; writers do not."""

        async def again() -> int:
            begun = False
            while not begun:
                begun = await self._backend.apply(
                    await self._database.read("search.restart", self._begin_rebuild)
                )
            return await self._apply_pending(progress)

        return await self._retry_after_repair(again)

    async def describe_differences(self) -> str:
        """Describe how the index differs from the messages; empty if it does not, or does not exist yet. Messages
        change while it is checked, so only what is found twice counts."""
        try:
            if await self._database.read("verify", self._backend.read_state) is None:
                return ""
            await self._apply_pending(None)
            self._backend.check()
            found = await self._database.read("verify", self._find_differences)
            if found:
                await self._apply_pending(None)
                found &= await self._database.read("verify", self._find_differences)
        except IndexDamaged as exc:
            return f"is damaged ({exc})"
        kinds = Counter(kind for _, kind in found)
        return ", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items()))

    async def count_pending(self, *, most: int) -> int | None:
        """Run a query, and return how many changes the index lacks, at most `most`; `None` if it must be filled first.
        Changes nothing. Raise `IndexDamaged` if the index is damaged."""

        def look(tx: Transaction) -> int | None:
            pending = indexing.count_pending(tx, self._backend.read_state(tx), most=most)
            newest = tx.row("select id, session from messages order by id desc limit 1")
            if pending is not None and newest is not None:
                query = IndexQuery([[documents.build_session_tag(newest[1])]], None)
                self._backend.find_messages(tx, query, below=newest[0] + 1, limit=1)
            return pending

        return await self._database.read("search.look", look)

    def close(self) -> None:
        self._backend.close()

    async def _retry_after_repair(self, work: Callable[[], Awaitable[T]]) -> T:
        for _ in range(_MAX_REPAIRS):
            try:
                return await work()
            except IndexDamaged as exc:
                log.warning("the search index is damaged and is built again: %s", exc)
                await asyncio.to_thread(self._backend.reset)
        raise StoreBroken("the search index is damaged again and again: check the disk")

    async def _apply_pending(self, progress: IndexProgress | None) -> int:
        """Apply batches until none is left. Concurrent callers wait for the first, and then find nothing to do."""
        count = held = 0
        async with self._update_lock:
            while True:
                batch, waiting = await self._database.read("search.step", self._next_batch)
                if batch is None and (not waiting or held == _MAX_HELD_BACK_WAITS):
                    return count
                if batch is None:
                    held += 1
                    await asyncio.sleep(_HELD_BACK_SECONDS)
                elif await self._backend.apply(batch):
                    count += len(batch.documents)
                    if progress and batch.progress:
                        progress(*batch.progress)

    def _is_current(self, tx: Transaction) -> bool:
        return indexing.is_current(tx, self._backend.read_state(tx))

    def _next_batch(self, tx: Transaction) -> tuple[IndexBatch | None, bool]:
        batch = indexing.next_batch(tx, self._backend.read_state(tx))
        return batch, batch is None and change_feed.has_held_back(tx)

    def _find_differences(self, tx: Transaction) -> set[tuple[int, str]]:
        return indexing.find_differences(tx, self._backend)

    def _begin_rebuild(self, tx: Transaction) -> IndexBatch:
        return indexing.begin_rebuild(tx, self._backend.read_state(tx))


class _Candidate(NamedTuple):
    """A message by the number of its row, or a title with number 0."""

    score: float
    id: int
    session: SessionId


class _QueryRun:
    """One search within one read of the store."""

    def __init__(
        self,
        backend: SearchBackend,
        viewer: Viewer,
        query: Query,
        tx: Transaction,
        session: SessionId | None = None,
    ) -> None:
        filters = query.filters
        self._session = session
        self._backend = backend
        self._tx = tx
        self._now = to_micros(tx.now)
        self._query = query
        before = min(
            (t for t in (filters.before, subtract_age(tx.now, filters.before_age)) if t), default=None
        )
        after = max((t for t in (filters.after, subtract_age(tx.now, filters.after_age)) if t), default=None)
        self._before = _UNBOUNDED if before is None else to_micros(before)
        self._after = -_UNBOUNDED if after is None else to_micros(after)
        # The SQL conditions on a session, each a fixed text, and their values.
        where = ["s.profile = :profile", "s.deleted_at is null"]
        params: dict[str, Any] = {"profile": viewer.profile}
        if viewer.owner is not None:
            where.append("s.owner = :owner")
            params["owner"] = viewer.owner
        self._where, self._params = [*where, *sessions.build_conditions(tx, viewer, filters, params)], params
        tags = documents.build_filter_tags(viewer, filters) + self._build_session_tags()
        self._title_query = IndexQuery(tags, query.expr)
        times = [documents.build_time_tags(after, before)] if before or after else []
        self._message_query = IndexQuery(tags + times, query.expr)

    def rank(self, count: int) -> list[_Candidate]:
        """Return at least `count` candidates, if there are as many: windows of the newest, each sorted by score."""
        ranked: list[_Candidate] = []
        window = self._find_titles()
        below: int | None = _UNBOUNDED
        while below is not None and len(ranked) < count:
            found, below = self._next_window(below)
            ranked += sorted(window + found, reverse=True)
            window = []
        return ranked

    def _next_window(self, below: int | None) -> tuple[list[_Candidate], int | None]:
        found: list[_Candidate] = []
        size = RANK_WINDOW
        while below is not None and len(found) < RANK_WINDOW:
            page = self._backend.find_messages(self._tx, self._message_query, below=below, limit=size)
            found += self._filter_visible(page.found)
            below = page.below
            size = min(2 * size, _MAX_PAGE)
        return found, below

    def _filter_visible(self, found: dict[int, float]) -> list[_Candidate]:
        if not found:
            return []
        facts = [_MESSAGE_CONDITIONS[fact] for fact in self._query.filters.is_ if fact in _MESSAGE_CONDITIONS]
        undone = "m.undone <> 0" if StateFilter.UNDONE in self._query.filters.is_ else "m.undone = 0"
        rows = self._tx.rows(
            f"""
            select m.id, m.session, m.at
            from messages m cross join sessions s
            where s.id = m.session and m.id {self._tx.in_ids} and {" and ".join([undone, *facts, *self._where])}
            """,
            {**self._params, "ids": json.dumps(list(found))},
        )
        return [
            _Candidate(found[id_] + self._score_recency(at), id_, session)
            for id_, session, at in rows
            if self._is_in_range(at)
        ]

    def _find_titles(self) -> list[_Candidate]:
        """Return matching titles; none if the query has a filter that only messages can match."""
        filters = self._query.filters
        of_messages = filters.sender or filters.tool or filters.has or set(filters.is_) - SESSION_STATES
        if of_messages or self._session or self._query.expr is None or isinstance(self._query.expr, Not):
            return []
        found = self._backend.find_titles(self._tx, self._title_query, limit=_MAX_TITLES)
        if not found:
            return []
        rows = self._tx.rows(
            f"select s.id, s.active_at from sessions s where s.id {self._tx.in_names} and {' and '.join(self._where)}",
            {**self._params, "names": json.dumps(list(found))},
        )
        return [
            _Candidate(found[id_] + self._score_recency(at) + _TITLE_BONUS, 0, id_)
            for id_, at in rows
            if self._is_in_range(at)
        ]

    def _build_session_tags(self) -> list[list[str]]:
        """With a filter on sessions, return the tags of those that pass it, if they are few: the index skips all others."""
        if self._session is not None:
            return [[documents.build_session_tag(self._session)]]
        filters = self._query.filters
        if not (filters.project or filters.tag or filters.person or set(filters.is_) & SESSION_STATES):
            return []
        rows = self._tx.rows(
            f"select s.id from sessions s where {' and '.join(self._where)} limit :limit",
            {**self._params, "limit": _MAX_SESSION_TAGS + 1},
        )
        return (
            [[documents.build_session_tag(row[0]) for row in rows] or [_NO_SESSION_TAG]]
            if len(rows) <= _MAX_SESSION_TAGS
            else []
        )

    def _is_in_range(self, at: int) -> bool:
        return self._after <= at < self._before

    def _score_recency(self, at: int) -> float:
        return _RECENCY_WEIGHT / (1 + max(0, self._now - at) / _AGE_SCALE_MICROS)


def _build_hits(tx: Transaction, query: Query, chosen: list[_Candidate]) -> list[SearchHit]:
    """Load what is shown of the candidates."""
    if not chosen:
        return []
    # The row ids of the messages, each with those of the active messages before and after it.
    rows = tx.rows(
        f"""
        select m.id,
          (select b.id from messages b where b.session = m.session and b.seq < m.seq and b.undone = 0
           order by b.seq desc limit 1),
          (select a.id from messages a where a.session = m.session and a.seq > m.seq and a.undone = 0
           order by a.seq limit 1)
        from messages m where m.id {tx.in_ids}
        """,
        {"ids": json.dumps([candidate.id for candidate in chosen])},
    )
    around = {row[0]: row for row in rows}
    shown = indexing.load_messages(tx, {id_ for row in rows for id_ in row if id_})
    known = {s.id: s for s in sessions.get_many(tx, {candidate.session for candidate in chosen})}
    hits: list[SearchHit] = []
    scan = min(SCAN_LIMIT, max(_MIN_SCANNED_CHARS, _MAX_SCANNED_CHARS // len(chosen)))
    for candidate in chosen:
        session = known[candidate.session]
        here, before, after = around.get(candidate.id, (None, None, None))
        message = shown.get(here)
        hits.append(
            SearchHit(
                session=session,
                message=message,
                snippet=highlight(
                    documents.extract_text(message) if message else session.title, query, scan=scan
                ),
                before=shown.get(before),
                after=shown.get(after),
                score=candidate.score,
            )
        )
    return hits
