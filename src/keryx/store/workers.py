"""Workers: the processes that run turns and send deliveries, and when each was last seen."""

from datetime import datetime

import msgspec

from keryx.core.ids import WorkerId
from keryx.store.database import Row, Transaction, micros, moment


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    id: WorkerId
    kind: str
    host: str
    pid: int
    started_at: datetime
    seen_at: datetime


_SELECT = "select id, kind, host, pid, started_at, seen_at from workers"


def see(tx: Transaction, worker: Worker) -> None:
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
            "started_at": micros(worker.started_at),
            "seen_at": micros(worker.seen_at),
        },
    )


def every(tx: Transaction) -> list[Worker]:
    return [_worker(row) for row in tx.rows(f"{_SELECT} order by started_at")]


def remove(tx: Transaction, worker: WorkerId) -> None:
    tx.run("delete from workers where id = :id", {"id": worker})


def _worker(row: Row) -> Worker:
    id_, kind, host, pid, started_at, seen_at = row
    return Worker(
        id=id_, kind=kind, host=host, pid=pid, started_at=moment(started_at), seen_at=moment(seen_at)
    )
