"""Cursors: how far a platform, or a part of Keryx, has come. Moved in the commit that they depend on."""

from datetime import datetime

from keryx.core import wire
from keryx.store.database import Transaction, micros


def get(tx: Transaction, name: str) -> str | None:
    row = tx.row("select value from cursors where name = :name", {"name": name})
    return None if row is None else wire.loads(row[0], str)


def move(tx: Transaction, name: str, value: str, *, now: datetime) -> None:
    tx.run(
        """
        insert into cursors (name, value, moved_at) values (:name, :value, :now)
        on conflict (name) do update set value = excluded.value, moved_at = excluded.moved_at
        """,
        {"name": name, "value": wire.dumps(value), "now": micros(now)},
    )
