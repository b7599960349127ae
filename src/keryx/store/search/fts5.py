# The type stubs of apsw name a type that Python 3.11 does not have.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""The search backend of SQLite: FTS5 in a second file beside the store, which can be deleted without loss."""

import asyncio
import logging
import os
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, assert_never, cast

import apsw

from keryx.core.errors import StoreBroken
from keryx.core.ids import SessionId
from keryx.core.search import And, Expr, Not, Or, Prefix, Term, WordSequence
from keryx.store.db import Transaction
from keryx.store.db.sqlite import (
    BUSY_MILLISECONDS,
    checkpoint,
    checkpoint_after_commits,
    enable_wal,
    get_extended_code,
    has_content,
    translate_error,
)
from keryx.store.search import documents
from keryx.store.search.documents import IndexDocument
from keryx.store.search.indexing import IndexBatch, IndexDamaged, IndexPage, IndexQuery, list_terms

log = logging.getLogger(__name__)

# Tokens come ready-made: only blanks part them, so every other printable character belongs to one.
_SCHEMA = """
drop table if exists search;
drop table if exists titles;
drop table if exists state;
create virtual table search using fts5(
  words, marks, tags,
  content = '', contentless_delete = 1, prefix = '1 2 3',
  tokenize = "ascii tokenchars '!#$%&()*+,-./:;<=>?@[\\]^_`{|}~'"
);
create table titles (id integer primary key, session text not null unique);
create table state (one integer primary key check (one = 1), value text not null);
"""
_REPAIRABLE_ERRORS = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.SQLError, apsw.FormatError)
# A full disk causes these. What is in the file is not wrong.
_NO_ROOM = {
    apsw.SQLITE_IOERR_WRITE,
    apsw.SQLITE_IOERR_TRUNCATE,
    apsw.SQLITE_IOERR_SHMSIZE,
    apsw.SQLITE_IOERR_SHMOPEN,
    apsw.SQLITE_IOERR_SHMMAP,
}
_TYPICAL_LENGTH = 100
# The phrases of a query that count for the order of its hits. Each place of each is counted.
_MAX_SCORED_PHRASES = 16
_CHECKPOINT_PAGES = 1000


def get_index_path(store: Path) -> Path:
    return store.with_name(f"{store.stem}-search.db")


def has_documents(store: Path) -> bool:
    """Whether a store, which may be gone, has left an index with something in it, or one that cannot be read."""
    path = get_index_path(store)
    if not has_content(path):
        return False
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            if _read_state(connection) is None:
                return False
            return any(True for _ in connection.execute("select rowid from search limit 1"))
    except apsw.Error:
        return True


class Fts5Backend:
    """Several threads and processes may use it at once. Its file is found by the name of the store's."""

    def __init__(self) -> None:
        self._path = Path()
        self._idle: list[tuple[apsw.Connection, tuple[int, int]]] = []

    def read_state(self, tx: Transaction) -> str | None:
        row = tx.row("pragma database_list")
        assert row is not None
        store = Path(row[2])
        self._path = get_index_path(store)
        with self._connection() as connection:
            return _read_state(connection)

    async def apply(self, batch: IndexBatch) -> bool:
        return await asyncio.to_thread(self._apply_batch, batch)

    def find_messages(self, tx: Transaction, ask: IndexQuery, *, below: int, limit: int) -> IndexPage:
        rows = self._match(
            """
            select rowid, relevance(search, :tags) from search
            where search match :query and rowid > 0 and rowid < :below
            order by rowid desc limit :limit
            """,
            ask,
            {"below": below, "limit": limit},
        )
        share = _get_part_weight(ask)
        found = {id_: worth * share for id_, worth in rows}
        return IndexPage(found, rows[-1][0] if len(rows) == limit else None)

    def find_titles(self, tx: Transaction, ask: IndexQuery, *, limit: int) -> dict[SessionId, float]:
        rows = self._match(
            """
            select t.session, f.worth
            from (
              select rowid as id, relevance(search, :tags) as worth from search
              where search match :query and rowid < 0
              order by rowid limit :limit
            ) f join titles t on t.id = -f.id
            """,
            ask,
            {"limit": limit},
        )
        share = _get_part_weight(ask)
        return {session: worth * share for session, worth in rows}

    def list_message_ids(self, tx: Transaction, *, above: int, upto: int) -> list[int]:
        with self._connection() as connection:
            rows = connection.execute(
                "select id from search_docsize where id > :above and id <= :upto",
                {"above": above, "upto": upto},
            )
            return [cast(int, row[0]) for row in rows]

    def check(self) -> None:
        with self._connection() as connection:
            connection.execute("insert into search (search) values ('integrity-check')")
            found = str(connection.pragma("quick_check"))
        if found != "ok":
            raise IndexDamaged(found)

    def reset(self) -> None:
        """Empty the file in place, as other processes may have it open."""
        self._close_connections()
        try:
            connection = apsw.Connection(str(self._path))
            connection.set_busy_timeout(BUSY_MILLISECONDS)
            connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 1)
            connection.execute("vacuum")
            connection.close()
        except apsw.Error as exc:
            raise StoreBroken(f"{self._path} is damaged ({exc}): delete it, search builds it again") from exc

    def close(self) -> None:
        """Close the file. If the disk refuses to sync it, it is emptied, to be filled again by the next search."""
        try:
            if self._idle:
                checkpoint(self._idle[-1][0])
        except apsw.Error as exc:
            log.warning("the disk refused to sync the search index, which is built again: %s", exc)
            self.reset()
        self._close_connections()

    def _close_connections(self) -> None:
        while self._idle:
            self._idle.pop()[0].close()

    def _apply_batch(self, batch: IndexBatch) -> bool:
        with self._connection() as connection:
            connection.execute("begin immediate")
            if _read_state(connection) != batch.previous_state:
                connection.execute("rollback")
                return False
            if batch.reset:
                connection.execute(_SCHEMA)
            for session in batch.removed_sessions:
                tag = _quote_tag(documents.build_session_tag(session))
                connection.execute(
                    "delete from search where rowid in (select rowid from search where search match ?)",
                    (tag,),
                )
                connection.execute("delete from titles where session = ?", (session,))
            for entry in batch.titles:
                connection.execute(
                    "insert into titles (session) values (?) on conflict do nothing", (entry.session,)
                )
                [(id_,)] = connection.execute("select id from titles where session = ?", (entry.session,))
                _replace_document(connection, -cast(int, id_), entry)
            for entry in batch.documents:
                _replace_document(connection, entry.id, entry)
            connection.execute("insert or replace into state (one, value) values (1, ?)", (batch.state,))
            connection.execute("commit")
        return True

    def _match(self, sql: str, ask: IndexQuery, params: dict[str, Any]) -> list[Any]:
        with self._connection() as connection:
            return connection.execute(
                sql, {"query": compile_query(ask), "tags": sum(map(len, ask.tags)), **params}
            ).fetchall()

    @contextmanager
    def _connection(self) -> Generator[apsw.Connection]:
        """Lend a connection. If the work fails, the connection is closed, and with it its transaction."""
        try:
            opened = self._take_connection()
        except apsw.Error as exc:
            raise self._translate_error(exc) from exc
        try:
            yield opened[0]
        except BaseException as exc:
            opened[0].close(True)
            if isinstance(exc, apsw.Error):
                raise self._translate_error(exc) from exc
            raise
        self._idle.append(opened)

    def _take_connection(self) -> tuple[apsw.Connection, tuple[int, int]]:
        """Return an open connection to the current file, which may have been deleted or replaced meanwhile."""
        while self._idle:
            connection, file = self._idle.pop()
            if file == _get_file_id(self._path):
                return connection, file
            connection.close()
        return _open_index(self._path), _get_file_id(self._path)

    def _translate_error(self, exc: apsw.Error) -> Exception:
        repairable = isinstance(exc, _REPAIRABLE_ERRORS) and get_extended_code(exc) not in _NO_ROOM
        return IndexDamaged(str(exc)) if repairable else translate_error(exc, self._path)


def compile_query(ask: IndexQuery) -> str:
    """Return the query in FTS5 syntax, the tags first."""
    tags = " AND ".join(_join_or(_quote_tag(tag) for tag in group) for group in ask.tags)
    match ask.expr:
        case None:
            return tags
        case Not(item):
            return f"({tags}) NOT {_compile_expr(item)}"
        case expr:
            return f"({tags}) AND {_compile_expr(expr)}"


def _compile_expr(expr: Expr) -> str:
    match expr:
        case And(items):
            wanted = " AND ".join(_compile_expr(item) for item in items if not isinstance(item, Not))
            unwanted = " OR ".join(_compile_expr(item.item) for item in items if isinstance(item, Not))
            return f"(({wanted}) NOT ({unwanted}))" if unwanted else f"({wanted})"
        case Or(items):
            return _join_or(map(_compile_expr, items))
        case Term(words, mark):
            return _join_or([_quote_phrase(words)] * bool(words) + [f'marks:"{mark}"'] * bool(mark))
        case WordSequence(words):
            return _quote_phrase(words)
        case Prefix(words):
            return f"{_quote_phrase(words)} *"
        case Not():
            raise AssertionError("a negation stands within And, or at the top")
        case _:
            assert_never(expr)


def _join_or(ways: Iterable[str]) -> str:
    return f"({' OR '.join(ways)})"


def _quote_phrase(words: Iterable[str]) -> str:
    return f'words:"{" ".join(words)}"'


def _quote_tag(tag: str) -> str:
    return f'tags:"{tag}"'


def _get_part_weight(ask: IndexQuery) -> float:
    """Return the weight of one part of the query."""
    return 1 / max(1, sum(1 for _ in list_terms(ask.expr)))


def _score_relevance(api: apsw.FTS5ExtensionApi, *arguments: Any) -> float:
    """Return how often the phrases of the query occur, relative to the length. The first phrases are tags."""
    [tags] = arguments
    length = 1 + api.column_size(0) / _TYPICAL_LENGTH
    worth = 0.0
    for phrase in range(tags, min(api.phrase_count, tags + _MAX_SCORED_PHRASES)):
        hits = len(api.phrase_column_offsets(phrase, 0)) or len(api.phrase_column_offsets(phrase, 1))
        worth += hits / (hits + length)
    return worth


def _open_index(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    try:
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # as in the store: nothing is compiled twice
        checkpoint_after_commits(connection, _CHECKPOINT_PAGES)
        enable_wal(connection)
        connection.execute("pragma synchronous = normal")
        connection.execute("pragma temp_store = memory")
        connection.execute("pragma cache_size = -16000")
        connection.register_fts5_function("relevance", _score_relevance)
    except BaseException:
        connection.close(True)
        raise
    return connection


def _get_file_id(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino


def _read_state(connection: apsw.Connection) -> str | None:
    if not connection.execute("select 1 from sqlite_schema where name = 'state'").fetchall():
        return None
    found = cast(list[tuple[str]], connection.execute("select value from state").fetchall())
    return found[0][0] if found else None


def _replace_document(connection: apsw.Connection, rowid: int | None, entry: IndexDocument) -> None:
    connection.execute(
        "insert or replace into search (rowid, words, marks, tags) values (?, ?, ?, ?)",
        (rowid, " ".join(entry.words), " ".join(entry.marks), " ".join(entry.tags)),
    )
