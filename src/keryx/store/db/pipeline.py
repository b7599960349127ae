"""Statements over one PostgreSQL connection: prepared when they repeat, and queued so that several share one round trip."""

import re
import select
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
from keryx.store.db import NEVER_PREPARE, UNSTORABLE_TEXT, Params, Row
from keryx.store.db.deadlines import StatementDeadline

# A plan is worth its while from here on, and so many are kept by each connection.
PREPARE_THRESHOLD, MAX_PREPARED = 5, 500
MAX_QUEUED = 50
# A server says a word or two to a connection without a statement, and closes it after its last.
_MAX_UNREAD = 4
_FLUSH_BYTES = 64_000
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_NEVER_PREPARE_MARK = NEVER_PREPARE.encode()
_statement_numbers = count()
_StatementKey = tuple[bytes, tuple[int, ...]]


class StatementResult:
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


class BoundStatement(NamedTuple):
    """A statement and its values, ready to be sent: by its name, or without one by its text."""

    name: bytes | None
    text: bytes
    values: Sequence[abc.Buffer | None]
    types: tuple[int, ...]
    formats: Sequence[Format]


class StatementPipeline:
    """The statements of one connection, for use by one thread at a time. Queued statements are sent with the next one
    that returns a result, which saves their round trip."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._server = connection.pgconn
        self._adapt = Transformer(connection)
        self._uses: Counter[_StatementKey] = Counter()
        self._prepared: dict[_StatementKey, bytes] = {}
        self._queued: list[BoundStatement] = []
        self.deadline = StatementDeadline(self._server)
        # Whether the end of the transaction was sent: from then on it may be committed, even if an error comes back.
        self.commit_sent = False

    def begin(self, text: bytes) -> None:
        """Begin a transaction with the next statement, if there is none. What an earlier one left unsent is forgotten."""
        self._queued = [] if self._in_transaction else [_bind_text(text)]
        self.commit_sent = False

    def commit(self) -> None:
        """End the transaction, unless it has not even begun."""
        if self._in_transaction or len(self._queued) > 1:
            self.deadline.check()
            self.commit_sent = True
            self.command(b"commit")

    @property
    def _in_transaction(self) -> bool:
        return self._server.transaction_status != TransactionStatus.IDLE

    def command(self, text: bytes) -> None:
        """Run a statement without values, as it is, after what was put off."""
        if self._queued:
            self._flush(_bind_text(text))
        else:
            with self.deadline:
                found = self._server.exec_(text)
            _raise_on_error(found)

    def queue(self, sql: str, params: Params) -> None:
        """Run a statement with the next one. Its failure is that one's."""
        ready = self._bind(sql, params)  # which may send what was put off before
        self._queued.append(ready)
        if sum(map(len, filter(None, ready.values))) > _FLUSH_BYTES or len(self._queued) >= MAX_QUEUED:
            self._flush(self._queued.pop())

    def execute(self, sql: str, params: Params) -> StatementResult:
        """Run a statement, in a transaction that begins with it if there is none."""
        ready = self._bind(sql, params)
        if self._queued:
            found = self._flush(ready)
        elif ready.name:
            values = cast(Sequence[bytes], ready.values)
            with self.deadline:
                found = self._server.exec_prepared(ready.name, values, ready.formats)
        else:
            with self.deadline:
                found = self._server.exec_params(ready.text, ready.values, ready.types, ready.formats)
        _raise_on_error(found)
        self._adapt.set_pgresult(found)
        return StatementResult(found, self._adapt)

    def _bind(self, sql: str, params: Params) -> BoundStatement:
        if not self._queued and not self._in_transaction and not self._connection.autocommit:
            self.begin(b"begin")
        text, names = _number_parameters(sql)
        try:
            values = self._adapt.dump_sequence([params[name] for name in names], [PyFormat.AUTO] * len(names))
        except (UnicodeEncodeError, psycopg.DataError) as exc:
            raise Invalid(UNSTORABLE_TEXT) from exc
        types, formats = self._adapt.types or (), self._adapt.formats or ()
        return BoundStatement(self._get_prepared_name((text, types)), text, values, types, formats)

    def _flush(self, last: BoundStatement) -> PGresult:
        """Send the queued statements and this one in one round trip; return the result of this one."""
        sent, self._queued = [*self._queued, last], []
        server = self._server
        with self.deadline:
            server.enter_pipeline_mode()
            for name, text, values, types, formats in sent:
                if name:
                    server.send_query_prepared(name, values, formats)
                else:
                    server.send_query_params(text, values, types, formats)
            server.pipeline_sync()
            answers = self._connection.wait(_fetch_results(server, len(sent)))
        server.exit_pipeline_mode()
        for found in answers:
            _raise_on_error(found)
        return answers[-1]

    def _get_prepared_name(self, key: _StatementKey) -> bytes | None:
        """The name of a prepared statement; none for one that is rare."""
        if name := self._prepared.get(key):
            return name
        if _NEVER_PREPARE_MARK in key[0]:
            return None
        self._uses[key] += 1
        if self._uses[key] <= PREPARE_THRESHOLD:
            return None
        if self._queued:
            self._flush(self._queued.pop())
        if len(self._prepared) >= MAX_PREPARED:
            self.command(b";".join(b"deallocate " + name for name in self._prepared.values()))
            self._prepared.clear()
            self._uses.clear()
        name = b"keryx_%d" % next(_statement_numbers)
        # It may have to wait for a lock, and only this way others run meanwhile.
        with self.deadline:
            self._server.send_prepare(name, *key)
            answers = self._connection.wait(generators.execute(self._server))
        for found in answers:
            _raise_on_error(found)
        self._prepared[key] = name
        return name


class PipelineConnection(psycopg.Connection[Any]):
    """One that keeps what it has prepared from one transaction to the next."""

    @cached_property
    def statements(self) -> StatementPipeline:
        return StatementPipeline(self)

    def rollback(self) -> None:
        if self.statements.deadline.suspect:
            self.close()
            return
        with self.statements.deadline:
            super().rollback()

    def has_ended(self) -> bool:
        """Return whether the server has closed the connection, or it was given up. For one that no statement runs on."""
        if self.statements.deadline.suspect or self.closed:
            return True
        try:
            for _ in range(_MAX_UNREAD):
                poll = select.poll()
                poll.register(self.pgconn.socket, select.POLLIN)
                if not poll.poll(0):
                    return False
                self.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
        return True

    def close(self) -> None:
        with self.statements.deadline.lock:
            super().close()


def get_pipeline(connection: psycopg.Connection[Any]) -> StatementPipeline:
    return (
        connection.statements if isinstance(connection, PipelineConnection) else StatementPipeline(connection)
    )


def _bind_text(text: bytes) -> BoundStatement:
    return BoundStatement(None, text, (), (), ())


def _fetch_results(server: PGconn, count: int) -> PQGen[list[PGresult]]:
    """The answers to statements that were sent together, each with its end, and to the end of them all."""
    yield from generators.send(server)
    found: list[PGresult] = []
    for _ in range(count + 1):
        found += yield from generators.fetch_many(server)
    return found[:-1]


def _raise_on_error(found: PGresult) -> None:
    if found.status not in (ExecStatus.FATAL_ERROR, ExecStatus.NONFATAL_ERROR):
        return
    if not found.error_field(DiagnosticField.SQLSTATE):  # the server said nothing: it is gone
        raise psycopg.OperationalError(found.get_error_message())
    raise pg.error_from_result(found)


@cache
def _number_parameters(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """Replace each `:name` by `$n`; return the names in that order. The text comes from literals in store modules
    only."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    return _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", sql).encode(), names
