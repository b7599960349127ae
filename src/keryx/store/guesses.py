"""Guesses: how often a wrong code was tried, so that nobody can try them all."""

from datetime import datetime

from keryx.store.database import Transaction, micros


def wrong(tx: Transaction, key: str, *, since: datetime) -> int:
    """How many wrong codes were tried, the last of them after `since`."""
    row = tx.row(
        "select wrong from guesses where key = :key and last_at > :since",
        {"key": key, "since": micros(since)},
    )
    return 0 if row is None else int(row[0])


def count(tx: Transaction, key: str, *, since: datetime, now: datetime) -> int:
    """Count one more; those before `since` are forgotten. Gives how many there are now."""
    row = tx.row(
        """
        insert into guesses (key, wrong, last_at) values (:key, 1, :now)
        on conflict (key) do update set last_at = excluded.last_at,
          wrong = case when guesses.last_at > :since then guesses.wrong + 1 else 1 end
        returning wrong
        """,
        {"key": key, "now": micros(now), "since": micros(since)},
    )
    assert row is not None
    return int(row[0])


def alone(tx: Transaction, key: str, *, now: datetime) -> None:
    """Let one transaction at a time go on from here, for whatever shares the key."""
    tx.run(
        """
        insert into guesses (key, wrong, last_at) values (:key, 0, :now)
        on conflict (key) do update set last_at = excluded.last_at
        """,
        {"key": key, "now": micros(now)},
    )


def forget(tx: Transaction, key: str) -> None:
    tx.run("delete from guesses where key = :key", {"key": key})


def trim(tx: Transaction, *, before: datetime) -> int:
    return tx.count("delete from guesses where last_at < :before", {"before": micros(before)})
