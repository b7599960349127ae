"""Statements: what runs over one PostgreSQL connection, prepared when it comes again.

The cursors of psycopg wait for an answer in Python and take turns with all other threads several times a statement. Here
its libpq waits, in one call that lets the others run: half the work for the processor."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import count
from typing import Any, cast

import psycopg
from psycopg import abc, generators
from psycopg import errors as pg
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from keryx.store.database import Params, Row

# A plan is worth its while from here on, and so many are kept by each connection.
OFTEN, KEPT = 5, 500
# A statement with this remark is never prepared: its best plan depends on its values.
PLANNED_ANEW = "/* planned anew */"
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_ANEW = PLANNED_ANEW.encode()
_numbers = count()
_Key = tuple[bytes, tuple[int, ...]]


class Result:
    """What a statement gave. To be read before the next one runs."""

    __slots__ = ("_adapt", "_found")

    def __init__(self, found: PGresult, adapt: abc.Transformer) -> None:
        self._found = found
        self._adapt = adapt

    @property
    def count(self) -> int:
        """How many rows it has or changed."""
        return self._found.command_tuples or 0

    def rows(self, first: int = 0, end: int | None = None) -> list[Row]:
        there = self._found.ntuples
        last = there if end is None else min(end, there)
        return self._adapt.load_rows(min(first, last), last, tuple)


class Statements:
    """Those of one connection, which one thread uses at a time."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._server = connection.pgconn
        self._adapt = Transformer(connection)
        self._uses: Counter[_Key] = Counter()
        self._prepared: dict[_Key, bytes] = {}

    def command(self, text: bytes) -> None:
        """Run statements without values, as they are."""
        _check(self._server.exec_(text))

    def execute(self, sql: str, params: Params) -> Result:
        """Run a statement, in a transaction that begins with it if there is none."""
        if self._server.transaction_status == TransactionStatus.IDLE and not self._connection.autocommit:
            self.command(b"begin")
        text, names = _numbered(sql)
        values = self._adapt.dump_sequence([params[name] for name in names], [PyFormat.AUTO] * len(names))
        types, formats = self._adapt.types or (), self._adapt.formats
        name = self._name((text, types))
        found = (
            self._server.exec_prepared(name, cast(Sequence[bytes], values), formats)
            if name
            else self._server.exec_params(text, values, types, formats)
        )
        _check(found)
        self._adapt.set_pgresult(found)
        return Result(found, self._adapt)

    def _name(self, key: _Key) -> bytes | None:
        """The name of a prepared statement; none for one that is rare."""
        if name := self._prepared.get(key):
            return name
        if _ANEW in key[0]:
            return None
        self._uses[key] += 1
        if self._uses[key] <= OFTEN:
            return None
        if len(self._prepared) >= KEPT:
            self.command(b";".join(b"deallocate " + name for name in self._prepared.values()))
            self._prepared.clear()
            self._uses.clear()
        name = b"keryx_%d" % next(_numbers)
        # It may have to wait for a lock, and only this way others run meanwhile.
        self._server.send_prepare(name, *key)
        for found in self._connection.wait(generators.execute(self._server)):
            _check(found)
        self._prepared[key] = name
        return name


class Connection(psycopg.Connection[Any]):
    """One that keeps what it has prepared from one transaction to the next."""

    @cached_property
    def statements(self) -> Statements:
        return Statements(self)


def of(connection: psycopg.Connection[Any]) -> Statements:
    return connection.statements if isinstance(connection, Connection) else Statements(connection)


def _check(found: PGresult) -> None:
    if found.status not in (ExecStatus.FATAL_ERROR, ExecStatus.NONFATAL_ERROR):
        return
    if not found.error_field(DiagnosticField.SQLSTATE):  # the server said nothing: it is gone
        raise psycopg.OperationalError(found.get_error_message())
    raise pg.error_from_result(found)


@cache
def _numbered(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """`:name` becomes `$1`; gives the names in that order. The text comes from literals in store modules only."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    return _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", sql).encode(), names
