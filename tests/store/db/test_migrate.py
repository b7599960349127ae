from collections.abc import Callable

import pytest
from tests.builders import Store, a_session
from tests.conftest import Open

from keryx.core.errors import StoreBroken
from keryx.store.db import Engine, Transaction, migrate
from keryx.store.db.migrate import Migration


def newer(tx: Transaction) -> None:
    tx.run("insert into migrations (number, name, checksum, applied_at) values (999, 'future', 'x', 0)")


def changed(tx: Transaction) -> None:
    tx.run("update migrations set checksum = 'other' where number = 1")


async def test_applying_again_changes_nothing(store: Store) -> None:
    await store.write(a_session)
    assert await store.write(migrate.apply) == 0
    assert await store.read(lambda tx: len(tx.rows("select id from sessions"))) == 1


async def test_opening_again_keeps_what_was_stored(opener: Open) -> None:
    first = await opener()
    session = await Store(first).write(a_session)
    await first.__aexit__(None, None, None)
    again = Store(await opener())
    assert [row[0] for row in await again.read(lambda tx: tx.rows("select id from sessions"))] == [session.id]


@pytest.mark.parametrize(
    ("damage", "advice"), [(newer, "upgrade Keryx"), (changed, "use the Keryx that wrote it")]
)
async def test_a_schema_that_is_not_ours_is_refused(
    opener: Open, damage: Callable[[Transaction], None], advice: str
) -> None:
    await Store(await opener()).write(damage)
    with pytest.raises(StoreBroken, match=advice):
        await opener()


async def test_every_known_migration_is_remembered_with_its_checksum(store: Store) -> None:
    def applied(tx: Transaction) -> list[Migration]:
        rows = tx.rows("select number, name, checksum from migrations order by number")
        found = {m.number: m for m in migrate.list_all()}
        assert [(m.number, m.name, m.checksum) for m in found.values()] == [tuple(row) for row in rows]
        return list(found.values())

    assert [m.number for m in await store.read(applied)] == [m.number for m in migrate.list_all()]


async def test_both_engines_have_the_same_tables_and_columns(store: Store) -> None:
    """Compared with the text of the migrations, so that each engine is checked alone."""

    def columns(tx: Transaction, table: str) -> set[str]:
        if tx.engine is Engine.SQLITE:
            return {
                str(row[0]) for row in tx.rows("select name from pragma_table_info(:table)", {"table": table})
            }
        return {
            str(row[0])
            for row in tx.rows(
                "select column_name from information_schema.columns"
                " where table_name = :table and table_schema = current_schema()",
                {"table": table},
            )
        }

    wanted: dict[str, set[str]] = {}
    for migration in migrate.list_all():
        for statement in migrate.split_statements(migration.text, Engine.SQLITE):
            statement = "\n".join(x for x in statement.splitlines() if not x.startswith("--"))
            words = statement.split()
            if statement.startswith("create table"):
                lines = [line.split()[0] for line in statement.splitlines()[1:-1] if line.startswith("  ")]
                wanted[words[2]] = {w for w in lines if w not in ("primary", "constraint", "check", "unique")}
            elif statement.startswith("drop table"):
                del wanted[words[2]]
            elif statement.startswith("alter table") and words[3:5] == ["rename", "to"]:
                wanted[words[5]] = wanted.pop(words[2])
            elif statement.startswith("alter table"):
                assert words[3:5] == ["add", "column"]
                wanted[words[2]].add(words[5])
    for table, expected in wanted.items():
        found = await store.read(columns, table)
        assert found - {"xid"} == expected, table


def test_blocks_belong_to_their_engine() -> None:
    text = "create table a (i integer) strict;\n--@sqlite\ns;\n--@postgres\np;\n--@both\nb;\n"
    assert migrate.split_statements(text, Engine.SQLITE) == ["create table a (i integer) strict", "s", "b"]
    assert migrate.split_statements(text, Engine.POSTGRES) == ["create table a (i bigint)", "p", "b"]
