"""Numbers: those that tables give out themselves, never twice."""

from keryx.core.errors import StoreBroken
from keryx.store.database import Engine, Transaction


def issued(tx: Transaction, table: str, column: str) -> int:
    """The last number that a table gave out, 0 for none."""
    if tx.engine is Engine.SQLITE:
        row = tx.row("select seq from sqlite_sequence where name = :table", {"table": table})
        return row[0] if row else 0
    row = tx.row("select pg_get_serial_sequence(:table, :column)", {"table": table, "column": column})
    if row is None:
        raise StoreBroken(f"{table} gives out no numbers: restore a backup")
    row = tx.row(f"select case when is_called then last_value else last_value - 1 end from {row[0]}")
    return row[0] if row else 0


def issue_after(tx: Transaction, table: str, column: str, number: int) -> None:
    """Let the next number that the database gives out come after the last one that was given out elsewhere."""
    values = {"table": table, "number": number}
    if tx.engine is Engine.POSTGRES:
        tx.row(
            "select setval(pg_get_serial_sequence(:table, :column), greatest(:number, 1), :number > 0)",
            {**values, "column": column},
        )
    elif not tx.count("update sqlite_sequence set seq = :number where name = :table", values) and number:
        tx.run("insert into sqlite_sequence (name, seq) values (:table, :number)", values)
