from collections.abc import Iterator

import psycopg
import pytest

from keryx.store import statements
from keryx.store.database import NOTHING
from keryx.store.statements import KEPT, OFTEN, PLANNED_ANEW, Connection

_PREPARED = "select count(*) from pg_prepared_statements where name like 'keryx%'"


@pytest.fixture
def connection(postgres: str) -> Iterator[Connection]:
    with Connection.connect(postgres) as made:
        yield made


def prepared(connection: Connection) -> int:
    row = connection.execute(_PREPARED).fetchone()
    assert row is not None
    return row[0]


def test_a_statement_that_comes_again_is_prepared_once_for_each_kind_of_values(
    connection: Connection,
) -> None:
    for n in range(OFTEN):
        assert connection.statements.execute("select :n + 1", {"n": n}).rows() == [(n + 1,)]
    assert prepared(connection) == 0
    for n in (*range(3), *range(1 << 40, (1 << 40) + OFTEN + 1)):
        assert connection.statements.execute("select :n + 1", {"n": n}).rows() == [(n + 1,)]
    assert prepared(connection) == 2


def test_a_statement_whose_plan_depends_on_its_values_is_never_prepared(connection: Connection) -> None:
    for n in range(2 * OFTEN):
        assert connection.statements.execute(f"{PLANNED_ANEW} select :n + 1", {"n": n}).rows() == [(n + 1,)]
    assert prepared(connection) == 0


def test_what_was_prepared_goes_when_it_becomes_too_much(connection: Connection) -> None:
    for n in range(KEPT + 1):
        for _ in range(OFTEN + 1):
            connection.statements.execute(f"select {n}", NOTHING)
    assert prepared(connection) == 1
    assert connection.statements.execute("select 0", NOTHING).rows() == [(0,)]


def test_a_name_that_comes_twice_is_one_value_and_a_cast_is_no_name(connection: Connection) -> None:
    found = connection.statements.execute("select :a || :b || :a::text, '%'", {"a": "x", "b": "y"})
    assert found.rows() == [("xyx", "%")]


def test_rows_are_read_in_slices_that_may_end_beyond_them(connection: Connection) -> None:
    found = connection.statements.execute("select * from generate_series(1, 3)", NOTHING)
    assert (found.rows(0, 2), found.rows(2, 4), found.rows(4, 6)) == ([(1,), (2,)], [(3,)], [])


def test_statements_are_one_transaction_until_it_is_ended(connection: Connection) -> None:
    run = connection.statements.execute
    run("create temp table kept (n bigint)", NOTHING)
    connection.commit()
    assert run("insert into kept select generate_series(1, 5)", NOTHING).count == 5
    connection.rollback()
    assert run("select n from kept", NOTHING).rows() == []


def test_a_refusal_and_a_lost_server_are_told_apart(connection: Connection, postgres: str) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.statements.execute("select 1 from nowhere", NOTHING)
    connection.rollback()
    with psycopg.connect(postgres, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s)", (connection.info.backend_pid,))
    for _ in range(2):
        with pytest.raises(psycopg.OperationalError):
            connection.statements.execute("select 1", NOTHING)


def test_statements_of_other_connections_do_not_get_in_each_others_way(postgres: str) -> None:
    with psycopg.connect(postgres) as plain:
        for _ in range(2):
            fresh = statements.of(plain)
            for n in range(OFTEN + 1):
                assert fresh.execute("select cast(:n as bigint)", {"n": n}).rows() == [(n,)]
