"""The processes that run turns and send deliveries, with their last heartbeat."""

from datetime import datetime

import msgspec

from keryx.core.clock import from_micros, to_micros
from keryx.core.ids import WorkerId
from keryx.store.db.database import Row, Transaction


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    id: WorkerId
    kind: str
    host: str
    pid: int
    started_at: datetime
    seen_at: datetime


_SELECT = "select id, kind, host, pid, started_at, seen_at from workers"


def heartbeat(tx: Transaction, worker: Worker) -> None:
    tx.run(
        """
        insert into workers (id, kind, host, pid, started_at, seen_at)
        values (:id, :kind, :host, :pid, :started_at, :seen_at)
        on conflict (id) do update set seen_at = excluded.seen_at
        """,
        {
            "id": worker.id,
            "kind": worker.kind,
            "host": worker.host,
            "pid": worker.pid,
            "started_at": to_micros(worker.started_at),
            "seen_at": to_micros(worker.seen_at),
        },
    )


def list_all(tx: Transaction) -> list[Worker]:
    return [_from_row(row) for row in tx.rows(f"{_SELECT} order by started_at")]


def remove(tx: Transaction, worker: WorkerId) -> None:
    tx.run("delete from workers where id = :id", {"id": worker})


def _from_row(row: Row) -> Worker:
    id_, kind, host, pid, started_at, seen_at = row
    return Worker(
        id=id_,
        kind=kind,
        host=host,
        pid=pid,
        started_at=from_micros(started_at),
        seen_at=from_micros(seen_at),
    )
