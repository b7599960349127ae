"""The processes that run turns and send deliveries: their last heartbeat, and their connections to chat platforms."""

from datetime import datetime

import msgspec

from keryx.core import codec
from keryx.core.clock import to_micros
from keryx.core.ids import WorkerId
from keryx.core.ports.adapter import PlatformStatus
from keryx.store.db import Transaction
from keryx.store.db.rows import RowMapper


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    id: WorkerId
    kind: str
    host: str
    pid: int
    started_at: datetime
    seen_at: datetime


_ROWS = RowMapper(Worker)
_CONNECTION_ROWS = RowMapper(PlatformStatus, json={"platform", "account", "detail"})


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


def find_listener(tx: Transaction, *, platform: str, account: str) -> WorkerId | None:
    """Return the worker that listens to an account."""
    row = tx.row(
        "select worker from listeners where platform = :platform and account = :account",
        {"platform": codec.dumps(platform), "account": codec.dumps(account)},
    )
    return None if row is None else WorkerId(row[0])


def set_listener(
    tx: Transaction, worker: WorkerId, *, platform: str, account: str, previous: WorkerId | None
) -> bool:
    """Make a worker the listener of an account, unless another one replaced `previous` first. Return whether it is."""
    changed = tx.count(
        """
        insert into listeners (platform, account, worker, since)
        select :platform, :account, w.id, cast(:now as bigint) from workers w where w.id = :worker
        on conflict (platform, account) do update
        set worker = excluded.worker, since = excluded.since
        where listeners.worker = :previous
        """,
        {
            "platform": codec.dumps(platform),
            "account": codec.dumps(account),
            "worker": worker,
            "previous": previous or worker,
            "now": to_micros(tx.now),
        },
    )
    return bool(changed)


def save_connection(tx: Transaction, connection: PlatformStatus) -> None:
    """Store the last status that a worker reported. Reports of unknown workers are ignored."""
    tx.run(
        """
        insert into connections
          (platform, account, worker, link, detail, since, received, sent, failed, throttled, rejected)
        select :platform, :account, w.id, :link, :detail, cast(:since as bigint), cast(:received as bigint),
          cast(:sent as bigint), cast(:failed as bigint), cast(:throttled as bigint),
          cast(:rejected as bigint)
        from workers w where w.id = :worker
        on conflict (platform, account, worker) do update
        set link = excluded.link, detail = excluded.detail, since = excluded.since, received = excluded.received,
            sent = excluded.sent, failed = excluded.failed, throttled = excluded.throttled,
            rejected = excluded.rejected
        """,
        _CONNECTION_ROWS.encode(connection),
    )


def list_connections(tx: Transaction) -> list[PlatformStatus]:
    rows = tx.rows(f"select {_CONNECTION_ROWS.columns} from connections order by platform, account, worker")
    return _CONNECTION_ROWS.decode_all(rows)
