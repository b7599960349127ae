"""The processes that run turns and send deliveries, with their last heartbeat."""

from datetime import datetime

import msgspec

from keryx.core.ids import WorkerId
from keryx.store.db.database import Transaction
from keryx.store.db.rows import RowMapper


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    id: WorkerId
    kind: str
    host: str
    pid: int
    started_at: datetime
    seen_at: datetime


_ROWS = RowMapper(Worker)


def heartbeat(tx: Transaction, worker: Worker) -> None:
    tx.run(
        """
        insert into workers (id, kind, host, pid, started_at, seen_at)
        values (:id, :kind, :host, :pid, :started_at, :seen_at)
        on conflict (id) do update set seen_at = excluded.seen_at
        """,
        _ROWS.encode(worker),
    )


def list_all(tx: Transaction) -> list[Worker]:
    return _ROWS.decode_all(tx.rows(f"select {_ROWS.columns} from workers order by started_at"))


def remove(tx: Transaction, worker: WorkerId) -> None:
    tx.run("delete from workers where id = :id", {"id": worker})
