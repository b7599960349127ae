"""Files of stored messages that are still on their platform, and which worker fetches them."""

import json
from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from keryx.core import codec, ids
from keryx.core.clock import to_micros
from keryx.core.ids import SessionId, TurnId, WorkerId
from keryx.core.media import RemoteFile
from keryx.store.db import Transaction, maybe_moment
from keryx.store.db.rows import RowMapper


class Download(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    # The message, and the place of the file among its parts.
    session: SessionId
    seq: int
    part: int
    # The turn that waits for it.
    turn: TurnId
    file: RemoteFile
    # Counted before the file is fetched.
    attempts: int
    created_at: datetime


_ROWS = RowMapper(Download)


def add(
    tx: Transaction,
    session: SessionId,
    seq: int,
    *,
    turn: TurnId,
    platform: str,
    account: str,
    files: Sequence[RemoteFile],
    first: int,
) -> None:
    """Add the files of a message. The first of them has the place `first` among its parts."""
    for part, file in enumerate(files, start=first):
        tx.run(
            """
            insert into downloads (session, seq, part, turn, platform, account, file, created_at)
            values (:session, :seq, :part, :turn, :platform, :account, :file, :now)
            """,
            {
                "session": session,
                "seq": seq,
                "part": part,
                "turn": turn,
                "platform": ids.escape(platform),
                "account": ids.escape(account),
                "file": codec.dumps(file),
                "now": to_micros(tx.now),
            },
        )


def has_any(tx: Transaction, turn: TurnId) -> bool:
    """Whether a turn waits for a file."""
    return tx.row("select 1 from downloads where turn = :turn limit 1", {"turn": turn}) is not None


def claim(
    tx: Transaction,
    worker: WorkerId,
    *,
    platform: str,
    account: str,
    most: int,
    share: int,
    active: Collection[int],
    alive_since: datetime,
) -> list[Download]:
    """Take the next files of an account for a worker and count the attempt, with those that are being fetched at most `share` of
    one session. Files of a worker that has ended, or was not
    seen since `alive_since`, are taken over; so are those that this one took and that are not `active`, as after a claim
    whose outcome was not known."""
    rows = tx.rows(
        f"""
        update downloads
        set worker = :worker, attempts = attempts + case when worker = :worker then 0 else 1 end
        where position in (
          select d.position from downloads d
          where d.position in (
            select r.position from (
              select
                position,
                row_number() over (
                  partition by session
                  order by case when worker is null then 1 else 0 end, position
                ) as place
              from downloads
              where platform = :platform and account = :account and not_before <= :now
            ) r
            where r.place <= :share
          ) and (
            d.worker is null
            or (d.worker = :worker and not (cast(d.position as text) {tx.in_names}))
            or not exists (select 1 from workers w where w.id = d.worker and w.seen_at >= :alive_since)
          )
          order by d.position limit :most{tx.skip_locked}
        )
        returning {_ROWS.columns}
        """,
        {
            **_encode_account(platform, account),
            "worker": worker,
            "most": most,
            "share": share,
            "names": json.dumps([str(position) for position in active]),
            "now": to_micros(tx.now),
            "alive_since": to_micros(alive_since),
        },
    )
    return sorted(_ROWS.decode_all(rows), key=lambda download: download.position)


def get_next_attempt_at(tx: Transaction, *, platform: str, account: str) -> datetime | None:
    """When the next file that waits for another attempt may be fetched."""
    row = tx.row(
        """
        select min(not_before) from downloads
        where platform = :platform and account = :account and worker is null and not_before > :now
        """,
        {**_encode_account(platform, account), "now": to_micros(tx.now)},
    )
    return maybe_moment(row[0]) if row else None


def release(tx: Transaction, download: Download, *, not_before: datetime, counted: bool = True) -> None:
    """Give a file back, to be fetched after a time. Unless `counted`, the attempt was none."""
    tx.run(
        """
        update downloads set worker = null, not_before = :not_before, attempts = attempts - :uncounted
        where position = :position
        """,
        {
            "position": download.position,
            "not_before": to_micros(not_before),
            "uncounted": 0 if counted else 1,
        },
    )


def remove(tx: Transaction, download: Download) -> bool:
    """Remove a file that was fetched or given up. False if it was removed before."""
    return bool(tx.count("delete from downloads where position = :position", {"position": download.position}))


def remove_for_message(tx: Transaction, session: SessionId, seq: int) -> int:
    """Remove the files of a message, and return how many there were."""
    return tx.count(
        "delete from downloads where session = :session and seq = :seq", {"session": session, "seq": seq}
    )


def list_old(tx: Transaction, *, before: datetime, limit: int = 100) -> list[Download]:
    """Return files that have waited since before a time."""
    rows = tx.rows(
        f"select {_ROWS.columns} from downloads where created_at < :before order by position limit :limit",
        {"before": to_micros(before), "limit": limit},
    )
    return _ROWS.decode_all(rows)


def _encode_account(platform: str, account: str) -> dict[str, str]:
    return {"platform": ids.escape(platform), "account": ids.escape(account)}
