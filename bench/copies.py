"""Copies: the rows that the product writes for one thing, written for many others in one statement a table."""

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from keryx.store.admin.copy import TABLES, TableSpec
from keryx.store.db import Engine, Row, Transaction, Work
from keryx.store.db.sqlite import SqliteDatabase

Value = str | int
_VALUES = {
    Engine.SQLITE: ("json_extract(value, '$[{}]')", "json_each(:copies)"),
    Engine.POSTGRES: ("value ->> {}", "json_array_elements(cast(:copies as json))"),
}


class Column(msgspec.Struct, frozen=True):
    name: str
    type: str


class Sample(msgspec.Struct, frozen=True):
    """Rows of one table. What in them differs between the things is named by `marks`."""

    table: str
    columns: list[Column]
    rows: list[Row]
    marks: Mapping[str, Value]

    def statement(self, engine: Engine) -> tuple[str, dict[str, Any]]:
        """Inserts these rows for every entry of the JSON array `copies`: a number that orders them, then the values
        of the marks."""
        value, entries = _VALUES[engine]
        params: dict[str, Any] = {}
        named = [f"{value.format(n)} as {name}" for n, name in enumerate(("number", *self.marks))]
        rows = [
            ", ".join(self._cell(c, cell, params) for c, cell in zip(self.columns, row, strict=True))
            for row in self.rows
        ]
        selects = [
            f"select cast(number as bigint), cast({n} as bigint), {row} from entries"
            for n, row in enumerate(rows)
        ]
        names = ", ".join(column.name for column in self.columns)
        sql = f"""
        with entries as (select {", ".join(named)} from {entries}),
             made (a_number, a_row, {names}) as ({" union all ".join(selects)})
        insert into {self.table} ({names}) select {names} from made order by a_number, a_row
        """
        return sql, params

    def _cell(self, column: Column, cell: Value | None, params: dict[str, Any]) -> str:
        """One cell as SQL: what is marked comes from the entry, all else is as it was."""
        if cell is None:
            return f"cast(null as {column.type})"
        names = {str(value): name for name, value in self.marks.items()}
        pattern = "|".join(re.escape(value) for value in sorted(names, key=len, reverse=True))
        pieces = [p for p in re.split(f"({pattern})", str(cell)) if p] if isinstance(cell, str) else [cell]
        found = [names.get(str(p)) or f":{_parameter(p, params)}" for p in pieces or [""]]
        return " || ".join(f"cast({name} as {column.type})" for name in found)


async def sampled(
    make: Work[Mapping[str, Value]], *, after: Work[object] | None = None, without: Sequence[str] = ()
) -> list[Sample]:
    """What a unit of work writes, after another one, into an empty store. It gives the marks."""
    with tempfile.TemporaryDirectory(prefix="keryx-sample-") as folder:
        async with SqliteDatabase(Path(folder) / "sample.db") as database:
            if after is not None:
                await database.write("sample", after)
            before = await database.read("sample", _everything)
            marks = await database.write("sample", make)
            found = await database.read("sample", _everything)
    samples = [
        Sample(table, columns, [row for row in rows if row not in before[table][1]], marks)
        for table, (columns, rows) in found.items()
    ]
    return [sample for sample in samples if sample.rows and sample.table not in without]


def write(tx: Transaction, samples: Sequence[Sample], copies: Sequence[tuple[Value, ...]]) -> None:
    """Write what the samples hold once for each copy, which is the values of the marks in their order."""
    tx.noted = True
    entries = json.dumps([(n, *values) for n, values in enumerate(copies)])
    for sample in samples:
        sql, params = sample.statement(tx.engine)
        tx.run(sql, {**params, "copies": entries})


def _everything(tx: Transaction) -> dict[str, tuple[list[Column], list[Row]]]:
    """Every table, a row after what it refers to. Numbers that a table gives out itself are left out."""
    return {table.name: _contents(tx, table) for table in TABLES}


def _contents(tx: Transaction, table: TableSpec) -> tuple[list[Column], list[Row]]:
    rows = tx.rows("select name, type from pragma_table_info(:table)", {"table": table.name})
    columns = [
        Column(name, "bigint" if kind == "INTEGER" else "text")
        for name, kind in rows
        if name != table.sequence_column
    ]
    names = ", ".join(column.name for column in columns)
    return columns, tx.rows(f"select {names} from {table.name} order by {', '.join(table.key)}")


def _parameter(value: Value, params: dict[str, Any]) -> str:
    """A name for a value; parameters are named with letters alone."""
    name = "p_" + "".join(chr(ord("a") + int(digit)) for digit in str(len(params)))
    params[name] = value
    return name
