"""Connections: how each process stands with each platform. What a process reported goes when the process does."""

import msgspec

from keryx.core import wire
from keryx.core.connections import Connection
from keryx.core.ids import WorkerId
from keryx.core.ports import Link
from keryx.store.database import Row, Transaction, micros, moment


def put(tx: Transaction, connection: Connection) -> None:
    """Keep what a process that is known reports; the last report counts."""
    tx.run(
        """
        insert into connections
          (platform, account, worker, link, detail, since, received, sent, failed, throttled)
        select :platform, :account, w.id, :link, :detail, cast(:since as bigint), cast(:received as bigint),
          cast(:sent as bigint), cast(:failed as bigint), cast(:throttled as bigint)
        from workers w where w.id = :worker
        on conflict (platform, account, worker) do update
        set link = excluded.link, detail = excluded.detail, since = excluded.since, received = excluded.received,
            sent = excluded.sent, failed = excluded.failed, throttled = excluded.throttled
        """,
        {
            **msgspec.structs.asdict(connection),
            "platform": wire.dumps(connection.platform),
            "account": wire.dumps(connection.account),
            "link": connection.link.value,
            "detail": wire.dumps(connection.detail),
            "since": micros(connection.since),
        },
    )


def every(tx: Transaction) -> list[Connection]:
    rows = tx.rows(
        """
        select platform, account, worker, link, detail, since, received, sent, failed, throttled
        from connections order by platform, account, worker
        """
    )
    return [_connection(row) for row in rows]


def _connection(row: Row) -> Connection:
    platform, account, worker, link, detail, since, received, sent, failed, throttled = row
    return Connection(
        platform=wire.loads(platform, str),
        account=wire.loads(account, str),
        worker=WorkerId(worker),
        link=Link(link),
        detail=wire.loads(detail, str),
        since=moment(since),
        received=received,
        sent=sent,
        failed=failed,
        throttled=throttled,
    )
