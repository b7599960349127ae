"""Copies a whole store from one engine to the other, table by table, from one snapshot, and compares checksums at the end."""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence

import msgspec

from keryx.core import codec
from keryx.core.errors import Conflict, Invalid, StoreBroken
from keryx.core.records import Progress, ignore_progress
from keryx.store import changes
from keryx.store.db import (
    Database,
    Engine,
    Row,
    Transaction,
    Work,
    advance_sequence,
    get_last_issued,
)
from keryx.store.db.session_keys import SessionKeys

PAGE_SIZE = 500
# PostgreSQL numbers its transactions from 3, so imported entries sort before all of its own.
_FOREIGN_XID = 1
_CHECKSUM_MASK = (1 << 64) - 1


class TableSpec(msgspec.Struct, frozen=True):
    name: str
    key: tuple[str, ...]  # rows are read in the order of these columns
    sequence_column: str | None = None  # filled by a sequence of the database
    page_size: int = PAGE_SIZE  # rows read at once


# Parents before the rows that refer to them.
TABLES = (
    TableSpec("principals", ("id",)),
    TableSpec("identities", ("profile", "platform", "person")),
    TableSpec("grants", ("profile", "platform", "person")),
    TableSpec("pairings", ("profile", "platform", "person")),
    TableSpec("links", ("profile", "principal")),
    TableSpec("guesses", ("key",)),
    TableSpec("person_aliases", ("profile", "platform", "alias")),
    TableSpec("homes", ("profile", "platform")),
    TableSpec("projects", ("id",)),
    TableSpec("tags", ("id",)),
    TableSpec("sessions", ("id",)),
    TableSpec("session_tags", ("session", "tag")),
    TableSpec("aliases", ("profile", "alias")),
    TableSpec("epochs", ("session", "number")),
    TableSpec("imports", ("session",)),
    TableSpec("import_records", ("session", "n")),
    TableSpec("migration_items", ("profile", "program", "kind", "key")),
    TableSpec("watched_sessions", ("session",)),
    TableSpec("messages", ("id",), "id"),
    TableSpec("versions", ("session", "turn")),
    TableSpec("shares", ("id",)),
    TableSpec("media", ("id",)),
    TableSpec("media_chunks", ("media", "n"), page_size=8),
    TableSpec("media_holders", ("media", "profile", "owner")),
    TableSpec("media_links", ("session", "media")),
    TableSpec("turns", ("position",), "position"),
    TableSpec("downloads", ("position",), "position"),
    TableSpec("api_turns", ("position",), "position"),
    TableSpec("api_conversations", ("session",)),
    TableSpec("jobs", ("id",)),
    TableSpec("job_runs", ("job", "due_at")),
    TableSpec("pieces", ("turn", "n")),
    TableSpec("previews", ("turn",)),
    TableSpec("usage", ("id",), "id"),
    TableSpec("questions", ("id",)),
    TableSpec("consents", ("session", "tool")),
    TableSpec("bindings", ("session", "agent")),
    TableSpec("inbox", ("platform", "account", "event")),
    TableSpec("lanes", ("key",)),
    TableSpec("lane_moves", ("id",), "id"),
    TableSpec("overheard", ("position",), "position"),
    TableSpec("finals", ("session",)),
    TableSpec("deliveries", ("position",), "position"),
    TableSpec("receipts", ("message", "chat", "account", "platform")),
    TableSpec("buttons", ("question",)),
    TableSpec("gates", ("key",)),
    TableSpec("reads", ("profile", "principal", "session")),
    TableSpec("composers", ("profile", "principal", "place")),
    TableSpec("preferences", ("profile", "principal")),
    TableSpec("sign_ins", ("id",)),
    TableSpec("push_subscriptions", ("id",)),
    TableSpec("pushes", ("id",)),
    TableSpec("api_keys", ("id",)),
    TableSpec("users", ("name",)),
    TableSpec("passkeys", ("id",)),
    TableSpec("cursors", ("name",)),
    TableSpec("rules", ("platform",)),
    TableSpec("workers", ("id",)),
    TableSpec("connections", ("platform", "account", "worker")),
    TableSpec("listeners", ("platform", "account")),
    TableSpec("relay_instances", ("name",)),
    TableSpec("relay_rules", ("platform", "account", "chat", "person")),
    TableSpec("relay_chats", ("instance", "platform", "account", "chat")),
    TableSpec("relay_events", ("position",), "position"),
    TableSpec("relay_files", ("media", "position")),
    TableSpec("relay_sends", ("instance", "key")),
    TableSpec("graph_threads", ("number",), "number"),
    TableSpec("graph_checkpoints", ("thread", "namespace", "id")),
    TableSpec("graph_writes", ("thread", "checkpoint", "namespace", "task")),
    TableSpec("graph_lists", ("thread", "n")),
    TableSpec("graph_items", ("thread", "list", "position")),
    TableSpec("graph_texts", ("thread", "n")),
    TableSpec("graph_memories", ("profile", "owner", "namespace", "key")),
    TableSpec("adk_sessions", ("number",), "number"),
    TableSpec("adk_events", ("session", "n")),
    TableSpec("adk_states", ("profile", "owner", "app", "person")),
    TableSpec("changes", ("position",), "position"),
)


class CopiedTable(msgspec.Struct, frozen=True, kw_only=True):
    """The number of rows that were copied from a table, and their checksum, which does not depend on their order."""

    table: str
    rows: int
    checksum: str


async def copy_store(
    source: Database, target: Database, *, progress: Progress = ignore_progress
) -> list[CopiedTable]:
    """Copy everything into an empty store of the other kind, and read it back to compare.

    Raises `Conflict` if the target has anything in it, `StoreBroken` if what arrived is not what was sent."""
    if source.engine is target.engine is Engine.POSTGRES:
        raise Invalid("a copy goes from or to SQLite: for two PostgreSQL databases use pg_dump")

    def check_empty(tx: Transaction) -> None:
        for table in TABLES:
            if tx.row(f"select 1 from {table.name} limit 1"):
                raise Conflict(f"the target is not empty (it has {table.name}): give a new one")

    await target.read("copy", check_empty)
    loop = asyncio.get_running_loop()
    sent = await source.read("copy", lambda tx: _send_tables(tx, _TargetWriter(target, loop), progress))
    arrived = await target.read("copy", lambda tx: _checksum_tables(tx, progress))
    for ours, theirs in zip(sent, arrived, strict=True):
        if ours != theirs:
            raise StoreBroken(
                f"{ours.table} did not arrive whole ({ours.rows} rows sent, {theirs.rows} there): copy again into an empty store"
            )
    return sent


class _TargetWriter:
    """The target as a thread of the source sees it: each call is one transaction there."""

    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop) -> None:
        self._database = database
        self._loop = loop
        self.engine = database.engine

    def insert_rows(self, table: TableSpec, columns: Sequence[str], rows: Sequence[Row]) -> None:
        names, values = list(columns), [f":{name}" for name in columns]
        if table.name == "changes" and self.engine is Engine.POSTGRES:
            names, values = [*names, "xid"], [*values, str(_FOREIGN_XID)]
        sql = f"insert into {table.name} ({', '.join(names)}) values ({', '.join(values)})"

        def insert(tx: Transaction) -> None:
            for row in rows:
                tx.run(sql, dict(zip(columns, row, strict=True)))

        self._write(insert)

    def advance_sequence(self, table: str, column: str, number: int) -> None:
        self._write(lambda tx: advance_sequence(tx, table=table, column=column, number=number))

    def _write(self, work: Work[None]) -> None:
        asyncio.run_coroutine_threadsafe(self._database.write("copy", work), self._loop).result()


def _send_tables(tx: Transaction, target: _TargetWriter, progress: Progress) -> list[CopiedTable]:
    # What is sealed is copied as it is.
    tx.keys = SessionKeys(None, raw=True)
    sent: list[CopiedTable] = []
    for table in TABLES:
        counted = tx.row(f"select count(*) from {table.name}")
        total = counted[0] if counted else 0
        checksum = _TableChecksum(table.name)
        columns = _list_columns(tx, table)
        for page in _read_pages(tx, table, columns):
            rows = [_translate_row(tx, table, columns, row, target.engine) for row in page]
            checksum.add(columns, rows)
            target.insert_rows(table, columns, rows)
            progress(table.name, checksum.rows, total)
        if table.sequence_column:
            number = get_last_issued(tx, table.name, table.sequence_column)
            target.advance_sequence(table.name, table.sequence_column, number)
        sent.append(checksum.result())
    return sent


def _checksum_tables(tx: Transaction, progress: Progress) -> list[CopiedTable]:
    tx.keys = SessionKeys(None, raw=True)
    found: list[CopiedTable] = []
    for n, table in enumerate(TABLES):
        progress("checking", n, len(TABLES))
        checksum = _TableChecksum(table.name)
        columns = _list_columns(tx, table)
        for page in _read_pages(tx, table, columns):
            checksum.add(columns, page)
        found.append(checksum.result())
    progress("checking", len(TABLES), len(TABLES))
    return found


class _TableChecksum:
    """Weighs rows: the sum of their hashes, which does not depend on the order an engine reads them in."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._sum = 0
        self.rows = 0

    def add(self, columns: Sequence[str], rows: Sequence[Row]) -> None:
        for row in rows:
            text = codec.dumps(dict(sorted(zip(columns, row, strict=True))))
            digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            self._sum = (self._sum + int.from_bytes(digest, "big")) & _CHECKSUM_MASK
        self.rows += len(rows)

    def result(self) -> CopiedTable:
        return CopiedTable(table=self._table, rows=self.rows, checksum=f"{self._sum:016x}")


def _list_columns(tx: Transaction, table: TableSpec) -> list[str]:
    """The columns that both engines have, in the order of their names."""
    if tx.engine is Engine.SQLITE:
        rows = tx.rows("select name from pragma_table_info(:table) order by name", {"table": table.name})
    else:
        rows = tx.rows(
            """
            select column_name from information_schema.columns
            where table_schema = current_schema() and table_name = :table and column_name <> 'xid'
            order by column_name
            """,
            {"table": table.name},
        )
    return [str(row[0]) for row in rows]


def _read_pages(tx: Transaction, table: TableSpec, columns: Sequence[str]) -> Iterator[list[Row]]:
    """All rows of a table in small pages, each found by the key after the last. Names come from `TABLES` alone."""
    key = ", ".join(table.key)
    after = ", ".join(f":{name}" for name in table.key)
    chosen = f"select {', '.join(columns)} from {table.name}"
    rows = tx.rows(f"{chosen} order by {key} limit {table.page_size}")
    while rows:
        yield rows
        last = dict(zip(columns, rows[-1], strict=True))
        rows = tx.rows(
            f"{chosen} where ({key}) > ({after}) order by {key} limit {table.page_size}",
            {name: last[name] for name in table.key},
        )


def _translate_row(
    tx: Transaction, table: TableSpec, columns: Sequence[str], row: Row, engine: Engine
) -> Row:
    """Return a row as the other engine stores it. The trim point of the feed is a position in SQLite and a transaction in PostgreSQL; all else stays."""
    if table.name != "cursors" or engine is tx.engine:
        return row
    values = dict(zip(columns, row, strict=True))
    if values["name"] == changes.TRIM_CURSOR:
        if engine is Engine.POSTGRES:
            point = _FOREIGN_XID - 1
        else:
            [[first]] = tx.rows("select min(position) from changes")
            point = get_last_issued(tx, "changes", "position") if first is None else first - 1
        values["value"] = codec.dumps(str(point))
    return [values[name] for name in columns]
