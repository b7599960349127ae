from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from keryx.store.db import NEVER_PREPARE, NO_PARAMS, pipeline
from keryx.store.db.pipeline import (
    MAX_PREPARED,
    MAX_QUEUED,
    PREPARE_THRESHOLD,
    PipelineConnection,
    StatementPipeline,
)

_PREPARED = "select count(*) from pg_prepared_statements where name like 'keryx%'"


@pytest.fixture
def connection(postgres: str) -> Iterator[PipelineConnection]:
    with PipelineConnection.connect(postgres) as made:
        yield made


def prepared(connection: PipelineConnection) -> int:
    row = connection.execute(_PREPARED).fetchone()
    assert row is not None
    return row[0]


def test_a_statement_that_comes_again_is_prepared_once_for_each_kind_of_values(
    connection: PipelineConnection,
) -> None:
    for n in range(PREPARE_THRESHOLD):
        assert connection.statements.execute("select :n + 1", {"n": n}).rows() == [(n + 1,)]
    assert prepared(connection) == 0
    for n in (*range(3), *range(1 << 40, (1 << 40) + PREPARE_THRESHOLD + 1)):
        assert connection.statements.execute("select :n + 1", {"n": n}).rows() == [(n + 1,)]
    assert prepared(connection) == 2


def test_a_statement_whose_plan_depends_on_its_values_is_never_prepared(
    connection: PipelineConnection,
) -> None:
    for n in range(2 * PREPARE_THRESHOLD):
        assert connection.statements.execute(f"{NEVER_PREPARE} select :n + 1", {"n": n}).rows() == [(n + 1,)]
    assert prepared(connection) == 0


def test_what_was_prepared_goes_when_it_becomes_too_much(connection: PipelineConnection) -> None:
    for n in range(MAX_PREPARED + 1):
        for _ in range(PREPARE_THRESHOLD + 1):
            connection.statements.execute(f"select {n}", NO_PARAMS)
    assert prepared(connection) == 1
    assert connection.statements.execute("select 0", NO_PARAMS).rows() == [(0,)]


def test_a_name_that_comes_twice_is_one_value_and_a_cast_is_no_name(connection: PipelineConnection) -> None:
    found = connection.statements.execute("select :a || :b || :a::text, '%'", {"a": "x", "b": "y"})
    assert found.rows() == [("xyx", "%")]


def test_rows_are_read_in_slices_that_may_end_beyond_them(connection: PipelineConnection) -> None:
    found = connection.statements.execute("select * from generate_series(1, 3)", NO_PARAMS)
    assert (found.rows(0, 2), found.rows(2, 4), found.rows(4, 6)) == ([(1,), (2,)], [(3,)], [])


def test_statements_are_one_transaction_until_it_is_ended(connection: PipelineConnection) -> None:
    run = connection.statements.execute
    run("create temp table kept (n bigint)", NO_PARAMS)
    connection.commit()
    assert run("insert into kept select generate_series(1, 5)", NO_PARAMS).count == 5
    connection.rollback()
    assert run("select n from kept", NO_PARAMS).rows() == []


def test_a_refusal_and_a_lost_server_are_told_apart(connection: PipelineConnection, postgres: str) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.statements.execute("select 1 from nowhere", NO_PARAMS)
    connection.rollback()
    with psycopg.connect(postgres, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s)", (connection.info.backend_pid,))
    for _ in range(2):
        with pytest.raises(psycopg.OperationalError):
            connection.statements.execute("select 1", NO_PARAMS)


def test_statements_of_other_connections_do_not_get_in_each_others_way(postgres: str) -> None:
    with psycopg.connect(postgres) as plain:
        for _ in range(2):
            fresh = pipeline.get_pipeline(plain)
            for n in range(PREPARE_THRESHOLD + 1):
                assert fresh.execute("select cast(:n as bigint)", {"n": n}).rows() == [(n,)]


@pytest.fixture
def kept(connection: PipelineConnection) -> StatementPipeline:
    """A table with two rows, and what is said of it."""
    made = connection.statements
    made.execute("create temp table kept (n bigint primary key, text text)", NO_PARAMS)
    made.execute("insert into kept values (1, 'one'), (2, 'two')", NO_PARAMS)
    made.commit()
    return made


def add(made: StatementPipeline, n: int, text: str = "") -> None:
    made.queue("insert into kept values (:n, :text)", {"n": n, "text": text})


def numbers(made: StatementPipeline) -> list[int]:
    return [row[0] for row in made.execute("select n from kept order by n", NO_PARAMS).rows()]


@pytest.mark.parametrize("count", [1, PREPARE_THRESHOLD + 3, 3 * MAX_QUEUED + 1])
def test_what_is_put_off_is_there_for_the_next_statement_and_after_the_commit(
    kept: StatementPipeline, count: int
) -> None:
    for n in range(count):
        add(kept, 10 + n)
    assert numbers(kept) == [1, 2, *range(10, 10 + count)]
    kept.queue("delete from kept where n >= :n", {"n": 10})
    kept.commit()
    assert numbers(kept) == [1, 2]


def test_what_is_large_is_not_kept_in_memory(kept: StatementPipeline) -> None:
    for n in range(10, 14):
        add(kept, n, "x" * 10_000_000)
    assert numbers(kept) == [1, 2, 10, 11, 12, 13]


@pytest.mark.parametrize("ask", [numbers, StatementPipeline.commit], ids=["asking", "committing"])
def test_what_was_put_off_and_fails_fails_with_the_next_statement(
    connection: PipelineConnection, kept: StatementPipeline, ask: Callable[[StatementPipeline], object]
) -> None:
    add(kept, 3)
    add(kept, 2)
    add(kept, 4)
    with pytest.raises(psycopg.errors.UniqueViolation):
        ask(kept)
    connection.rollback()
    assert numbers(kept) == [1, 2]


def test_what_was_put_off_is_forgotten_with_its_transaction(
    connection: PipelineConnection, kept: StatementPipeline
) -> None:
    add(kept, 3)
    connection.rollback()
    kept.begin(b"begin")
    assert numbers(kept) == [1, 2]


def test_a_transaction_without_a_statement_is_none(connection: PipelineConnection) -> None:
    connection.statements.begin(b"begin")
    connection.statements.commit()
    assert connection.info.transaction_status is TransactionStatus.IDLE


def test_a_server_that_is_lost_with_what_was_put_off_is_told(kept: StatementPipeline, postgres: str) -> None:
    (pid,) = kept.execute("select pg_backend_pid()", NO_PARAMS).rows()[0]
    kept.commit()
    add(kept, 3)
    with psycopg.connect(postgres, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s)", (pid,))
    for _ in range(2):
        with pytest.raises(psycopg.OperationalError):
            kept.commit()
