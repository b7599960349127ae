"""Statements: what runs over one PostgreSQL connection, prepared when it comes again.

The cursors of psycopg wait for an answer in Python and take turns with all other threads several times a statement. Here
its libpq waits, in one call that lets the others run: half the work for the processor."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import count
from typing import Any, NamedTuple, cast

import psycopg
from psycopg import abc, generators
from psycopg import errors as pg
from psycopg.abc import PQGen
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import DiagnosticField, ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from keryx.core.errors import Invalid
from keryx.store.database import PLANNED_ANEW, UNSTORABLE, Params, Row

# A plan is worth its while from here on, and so many are kept by each connection.
OFTEN, KEPT = 5, 500
MOST_AT_ONCE = 50
_LARGE = 64_000
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


class Prepared(NamedTuple):
    """A statement and its values, ready to be sent: by its name, or without one by its text."""

    name: bytes | None
    text: bytes
    values: Sequence[abc.Buffer | None]
    types: tuple[int, ...]
    formats: Sequence[Format]


class Statements:
    """Those of one connection, which one thread uses at a time. What is put off is sent with the next one that
    somebody waits for, so that it costs no way to the server of its own."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._server = connection.pgconn
        self._adapt = Transformer(connection)
        self._uses: Counter[_Key] = Counter()
        self._prepared: dict[_Key, bytes] = {}
        self._later: list[Prepared] = []

    def begin(self, text: bytes) -> None:
        """Begin a transaction with the next statement, if there is none. What an earlier one left unsent is forgotten."""
        self._later = [] if self._within else [_plain(text)]

    def commit(self) -> None:
        """End the transaction, unless it has not even begun."""
        if self._within or len(self._later) > 1:
            self.command(b"commit")

    @property
    def _within(self) -> bool:
        return self._server.transaction_status != TransactionStatus.IDLE

    def command(self, text: bytes) -> None:
        """Run a statement without values, as it is, after what was put off."""
        if self._later:
            self._send(_plain(text))
        else:
            _check(self._server.exec_(text))

    def put_off(self, sql: str, params: Params) -> None:
        """Run a statement with the next one. Its failure is that one's."""
        ready = self._ready(sql, params)  # which may send what was put off before
        self._later.append(ready)
        if sum(map(len, filter(None, ready.values))) > _LARGE or len(self._later) >= MOST_AT_ONCE:
            self._send(self._later.pop())

    def execute(self, sql: str, params: Params) -> Result:
        """Run a statement, in a transaction that begins with it if there is none."""
        ready = self._ready(sql, params)
        if self._later:
            found = self._send(ready)
        elif ready.name:
            found = self._server.exec_prepared(ready.name, cast(Sequence[bytes], ready.values), ready.formats)
        else:
            found = self._server.exec_params(ready.text, ready.values, ready.types, ready.formats)
        _check(found)
        self._adapt.set_pgresult(found)
        return Result(found, self._adapt)

    def _ready(self, sql: str, params: Params) -> Prepared:
        if not self._later and not self._within and not self._connection.autocommit:
            self.begin(b"begin")
        text, names = _numbered(sql)
        try:
            values = self._adapt.dump_sequence([params[name] for name in names], [PyFormat.AUTO] * len(names))
        except (UnicodeEncodeError, psycopg.DataError) as exc:
            raise Invalid(UNSTORABLE) from exc
        types, formats = self._adapt.types or (), self._adapt.formats or ()
        return Prepared(self._name((text, types)), text, values, types, formats)

    def _send(self, last: Prepared) -> PGresult:
        """Send what was put off and this one in one go; gives what this one gave."""
        sent, self._later = [*self._later, last], []
        server = self._server
        server.enter_pipeline_mode()
        for name, text, values, types, formats in sent:
            if name:
                server.send_query_prepared(name, values, formats)
            else:
                server.send_query_params(text, values, types, formats)
        server.pipeline_sync()
        answers = self._connection.wait(_answers(server, len(sent)))
        server.exit_pipeline_mode()
        for found in answers:
            _check(found)
        return answers[-1]

    def _name(self, key: _Key) -> bytes | None:
        """The name of a prepared statement; none for one that is rare."""
        if name := self._prepared.get(key):
            return name
        if _ANEW in key[0]:
            return None
        self._uses[key] += 1
        if self._uses[key] <= OFTEN:
            return None
        if self._later:
            self._send(self._later.pop())
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


def _plain(text: bytes) -> Prepared:
    return Prepared(None, text, (), (), ())


def _answers(server: PGconn, count: int) -> PQGen[list[PGresult]]:
    """The answers to statements that were sent together, each with its end, and to the end of them all."""
    yield from generators.send(server)
    found: list[PGresult] = []
    for _ in range(count + 1):
        found += yield from generators.fetch_many(server)
    return found[:-1]


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
