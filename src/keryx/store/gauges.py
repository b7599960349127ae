"""Gauges: how much there is, and how much of it waits; each count from an index of what it counts."""

import msgspec

from keryx.store.database import Transaction


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over the whole store. Turns and deliveries are counted by state, and only while unfinished."""

    sessions: int
    lanes: int
    turns: dict[str, int]
    deliveries: dict[str, int]


def read(tx: Transaction) -> Gauges:
    return Gauges(
        sessions=_count(tx, "select count(*) from sessions where deleted_at is null"),
        lanes=_count(tx, "select count(*) from lanes"),
        turns={
            "running": _count(tx, "select count(*) from turns where state = 'running'"),
            "queued": _count(tx, "select count(*) from turns where state = 'queued'"),
        },
        deliveries=_unsent(tx),
    )


def _unsent(tx: Transaction) -> dict[str, int]:
    counts: dict[str, int] = dict.fromkeys(("ready", "sending", "unknown", "failed", "dead"), 0)
    for states in ("'ready', 'sending'", "'unknown', 'failed', 'dead'"):
        rows = tx.rows(f"select state, count(*) from deliveries where state in ({states}) group by state")
        counts.update({str(state): int(count) for state, count in rows})
    return counts


def _count(tx: Transaction, sql: str) -> int:
    row = tx.row(sql)
    assert row is not None
    return int(row[0])
