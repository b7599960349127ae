"""Copying: a whole store from one engine to the other, table by table, from one snapshot, checked at the end."""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from keryx.core import wire
from keryx.core.errors import Conflict, Invalid, StoreBroken
from keryx.core.progress import Progress, silent
from keryx.store import changes
from keryx.store.database import Database, Engine, Row, Transaction, Work
from keryx.store.numbers import issue_after, issued

PAGE = 500
# PostgreSQL gives transactions numbers from 3 on, so entries that came from elsewhere lie before all of its own.
_FOREIGN_XID = 1
_MASK = (1 << 64) - 1


class Table(msgspec.Struct, frozen=True):
    """A table with the key it is read by, the column whose numbers the database gives out, and how many rows of it
    are read at once."""

    name: str
    key: tuple[str, ...]
    numbered: str | None = None
    page: int = PAGE


# In the order in which rows may refer to each other.
TABLES = (
    Table("principals", ("id",)),
    Table("identities", ("profile", "platform", "person")),
    Table("grants", ("profile", "platform", "person")),
    Table("pairings", ("profile", "platform", "person")),
    Table("links", ("profile", "principal")),
    Table("guesses", ("key",)),
    Table("person_aliases", ("profile", "platform", "alias")),
    Table("homes", ("profile", "platform")),
    Table("projects", ("id",)),
    Table("sessions", ("id",)),
    Table("aliases", ("profile", "alias")),
    Table("epochs", ("session", "number")),
    Table("messages", ("id",), "id"),
    Table("media", ("id",)),
    Table("media_chunks", ("media", "n"), page=8),
    Table("media_holders", ("media", "profile", "owner")),
    Table("media_links", ("session", "media")),
    Table("turns", ("position",), "position"),
    Table("jobs", ("id",)),
    Table("job_runs", ("job", "due_at")),
    Table("pieces", ("turn", "n")),
    Table("previews", ("turn",)),
    Table("usage", ("id",), "id"),
    Table("questions", ("id",)),
    Table("consents", ("session", "tool")),
    Table("bindings", ("session", "agent")),
    Table("inbox", ("platform", "account", "event")),
    Table("lanes", ("key",)),
    Table("lane_moves", ("id",), "id"),
    Table("finals", ("session",)),
    Table("deliveries", ("position",), "position"),
    Table("buttons", ("question",)),
    Table("gates", ("key",)),
    Table("reads", ("profile", "principal", "session")),
    Table("composers", ("profile", "principal", "place")),
    Table("preferences", ("profile", "principal")),
    Table("sign_ins", ("id",)),
    Table("cursors", ("name",)),
    Table("rules", ("platform",)),
    Table("workers", ("id",)),
    Table("connections", ("platform", "account", "worker")),
    Table("changes", ("position",), "position"),
)


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows of a table were copied, and the checksum of them, whatever their order."""

    table: str
    rows: int
    checksum: str


async def copy(source: Database, target: Database, *, progress: Progress = silent) -> list[Copied]:
    """Copy everything into an empty store of the other kind, and read it back to compare.

    Raises `Conflict` if the target has anything in it, `StoreBroken` if what arrived is not what was sent."""
    if source.engine is target.engine is Engine.POSTGRES:
        raise Invalid("a copy goes from or to SQLite: for two PostgreSQL databases use pg_dump")
    await target.read("copy", _check_empty)
    loop = asyncio.get_running_loop()
    sent = await source.read("copy", lambda tx: _send(tx, _Receiver(target, loop), progress))
    arrived = await target.read("copy", lambda tx: _weigh(tx, progress))
    for ours, theirs in zip(sent, arrived, strict=True):
        if ours != theirs:
            raise StoreBroken(
                f"{ours.table} did not arrive whole ({ours.rows} rows sent, {theirs.rows} there): copy again into an empty store"
            )
    return sent


class _Receiver:
    """The target as a thread of the source sees it: each call is one transaction there."""

    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop) -> None:
        self._database = database
        self._loop = loop
        self.engine = database.engine

    def write(self, work: Work[None]) -> None:
        asyncio.run_coroutine_threadsafe(self._database.write("copy", work), self._loop).result()


def _check_empty(tx: Transaction) -> None:
    for table in TABLES:
        if tx.row(f"select 1 from {table.name} limit 1"):
            raise Conflict(f"the target is not empty (it has {table.name}): give a new one")


def _send(tx: Transaction, target: _Receiver, progress: Progress) -> list[Copied]:
    sent: list[Copied] = []
    for table in TABLES:
        total = _count(tx, table)
        scale = _Scale(table.name)
        columns = _columns(tx, table)
        for page in _pages(tx, table, columns):
            rows = [_translated(tx, table, columns, row, target.engine) for row in page]
            scale.add(columns, rows)
            target.write(partial(_insert, table=table, columns=columns, rows=rows))
            progress(table.name, scale.rows, total)
        if table.numbered:
            number = issued(tx, table.name, table.numbered)
            target.write(partial(issue_after, table=table.name, column=table.numbered, number=number))
        sent.append(scale.result())
    return sent


def _weigh(tx: Transaction, progress: Progress) -> list[Copied]:
    found: list[Copied] = []
    for n, table in enumerate(TABLES):
        progress("checking", n, len(TABLES))
        scale = _Scale(table.name)
        columns = _columns(tx, table)
        for page in _pages(tx, table, columns):
            scale.add(columns, page)
        found.append(scale.result())
    progress("checking", len(TABLES), len(TABLES))
    return found


class _Scale:
    """Weighs rows: the sum of their hashes, which does not depend on the order an engine reads them in."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._sum = 0
        self.rows = 0

    def add(self, columns: Sequence[str], rows: Sequence[Row]) -> None:
        for row in rows:
            text = wire.dumps(dict(sorted(zip(columns, row, strict=True))))
            digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            self._sum = (self._sum + int.from_bytes(digest, "big")) & _MASK
        self.rows += len(rows)

    def result(self) -> Copied:
        return Copied(table=self._table, rows=self.rows, checksum=f"{self._sum:016x}")


def _columns(tx: Transaction, table: Table) -> list[str]:
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


def _count(tx: Transaction, table: Table) -> int:
    row = tx.row(f"select count(*) from {table.name}")
    return row[0] if row else 0


def _pages(tx: Transaction, table: Table, columns: Sequence[str]) -> Iterator[list[Row]]:
    """All rows of a table in small pages, each found by the key after the last. Names come from `TABLES` alone."""
    key = ", ".join(table.key)
    after = ", ".join(f":{name}" for name in table.key)
    chosen = f"select {', '.join(columns)} from {table.name}"
    rows = tx.rows(f"{chosen} order by {key} limit {table.page}")
    while rows:
        yield rows
        last = dict(zip(columns, rows[-1], strict=True))
        rows = tx.rows(
            f"{chosen} where ({key}) > ({after}) order by {key} limit {table.page}",
            {name: last[name] for name in table.key},
        )


def _translated(tx: Transaction, table: Table, columns: Sequence[str], row: Row, engine: Engine) -> Row:
    """The trim point of the feed is a position in SQLite and a transaction in PostgreSQL; all else stays."""
    if table.name != "cursors" or engine is tx.engine:
        return row
    values = dict(zip(columns, row, strict=True))
    if values["name"] == changes.TRIMMED:
        values["value"] = wire.dumps(str(_trim_point(tx, engine)))
    return [values[name] for name in columns]


def _trim_point(tx: Transaction, engine: Engine) -> int:
    if engine is Engine.POSTGRES:
        return _FOREIGN_XID - 1
    row = tx.row("select min(position) from changes")
    return row[0] - 1 if row and row[0] is not None else issued(tx, "changes", "position")


def _insert(tx: Transaction, table: Table, columns: Sequence[str], rows: Sequence[Row]) -> None:
    names, values = list(columns), [f":{name}" for name in columns]
    if table.name == "changes" and tx.engine is Engine.POSTGRES:
        names, values = [*names, "xid"], [*values, str(_FOREIGN_XID)]
    sql = f"insert into {table.name} ({', '.join(names)}) values ({', '.join(values)})"
    for row in rows:
        tx.run(sql, dict(zip(columns, row, strict=True)))
