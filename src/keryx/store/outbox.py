"""Outbox: which deliveries a sender may take next, each the first of its target, with both gates open."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from keryx.core import ids
from keryx.core.deliveries import Delivery, Target
from keryx.core.ids import LeaseToken, WorkerId
from keryx.store.database import Params, Row, Transaction, maybe_moment, micros
from keryx.store.deliveries import RETURNED, from_row

_OLDEST = 64
_TARGETS = 16
# Others may be taking the same ones.
_SPARE = 7

Held = tuple[Delivery, LeaseToken]


class Claimed(NamedTuple):
    """Deliveries that a sender got. `waiting`: others of its account are left, which may not go now."""

    held: list[Held]
    waiting: bool


def claim(
    tx: Transaction,
    *,
    most: int,
    platform: str,
    account: str,
    worker: WorkerId,
    now: datetime,
    lease: timedelta,
    after: str = "",
) -> Claimed:
    """Lease the next deliveries of an account, up to `most`. When very much is held up, targets take turns: the one
    behind the target `after` comes next."""
    params = {
        "platform": ids.plain(platform),
        "account": ids.plain(account),
        "gate": Target(platform, account).account_key,
        "now": micros(now),
        "oldest": _OLDEST,
        "targets": _TARGETS,
        "candidates": most + _SPARE,
    }

    def taken(candidates: Iterable[str], count: int) -> list[Held]:
        found: list[Held] = []
        for candidate in candidates:
            if len(found) < count and (held := _take(tx, candidate, worker, now, lease)):
                found.append(held)
        return found

    found = taken(_among_oldest(tx, params), most)
    waiting = _waiting(tx, params)
    while waiting > _OLDEST and len(found) < most:
        after = found[-1][0].target.key if found else after
        if not (more := taken(_among_targets(tx, {**params, "after": after}), 1)):
            break
        found += more
    return Claimed(found, waiting > 0)


def next_at(tx: Transaction, *, now: datetime) -> datetime | None:
    """When the next delivery that is held back may go."""
    row = tx.row(
        "select min(not_before) from deliveries where state = 'ready' and not_before > 0 and not_before > :now",
        {"now": micros(now)},
    )
    return maybe_moment(row[0]) if row else None


def _among_oldest(tx: Transaction, params: Params) -> list[str]:
    """What may go, among the oldest: enough, unless very much waits for a place that is held up."""
    rows = tx.rows(
        """
        select oldest.id
        from (
          select id, target_key, position, not_before from deliveries
          where state = 'ready' and platform = :platform and account = :account
          order by position
          limit :oldest
        ) oldest
        where oldest.not_before <= :now
          and coalesce((select a.not_before from gates a where a.key = :gate), 0) <= :now
          and coalesce((select g.not_before from gates g where g.key = oldest.target_key), 0) <= :now
          and not exists (
            select 1 from deliveries e
            where e.target_key = oldest.target_key and e.state in ('ready', 'sending') and e.position < oldest.position
          )
        order by oldest.position
        limit :candidates
        """,
        params,
    )
    return [row[0] for row in rows]


def _waiting(tx: Transaction, params: Params) -> int:
    """How many wait, of which no more are counted than tells whether the oldest are all."""
    row = tx.row(
        """
        select count(*) from (
          select 1 from deliveries
          where state = 'ready' and platform = :platform and account = :account
          order by position
          limit :oldest + 1
        ) counted
        """,
        params,
    )
    assert row is not None
    return int(row[0])


def _among_targets(tx: Transaction, params: Params) -> list[str]:
    """What may go among the next targets, when more waits than the oldest: each costs one step, whatever waits behind."""
    if tx.row("select 1 from gates where key = :gate and not_before > :now", params):
        return []
    for after in dict.fromkeys((params["after"], "")):
        while walked := _walk(tx, {**params, "after": after}):
            if found := sorted(row[1] for row in walked if row[1]):
                return found
            after = walked[-1][0]
    return []


def _walk(tx: Transaction, params: Params) -> list[Row]:
    """The next targets in order of their keys, each with its first delivery if that may go. What a subquery gives
    cannot be joined in another order, so the plan is the same whatever the engine believes about the table."""
    return tx.rows(
        """
        with recursive targets (key, n) as (
          select min(target_key), 1 from deliveries where state in ('ready', 'sending') and target_key > :after
          union all
          select (
            select min(e.target_key) from deliveries e
            where e.state in ('ready', 'sending') and e.target_key > targets.key
          ), n + 1
          from targets where targets.key is not null and n < :targets
        )
        select targets.key, (
          select d.id from deliveries d
          where d.position = (
              select min(e.position) from deliveries e
              where e.target_key = targets.key and e.state in ('ready', 'sending')
            )
            and d.state = 'ready' and d.platform = :platform and d.account = :account and d.not_before <= :now
            and coalesce((select g.not_before from gates g where g.key = d.target_key), 0) <= :now
        )
        from targets where targets.key is not null
        """,
        params,
    )


def _take(tx: Transaction, delivery: str, worker: WorkerId, now: datetime, lease: timedelta) -> Held | None:
    # The state is an expression, so that an index of all that waits is never taken for shorter than one id.
    if tx.skip_locked and not tx.row(
        f"select 1 from deliveries where id = :id and state || '' = 'ready'{tx.skip_locked}", {"id": delivery}
    ):
        return None
    row = tx.row(
        f"""
        update deliveries as d
        set state = 'sending', attempts = d.attempts + 1, worker = :worker, lease = :lease, lease_until = :until
        where d.id = :id and d.state || '' = 'ready' and not exists (
          select 1 from deliveries e
          where e.target_key = d.target_key and e.state in ('ready', 'sending') and e.position < d.position
        )
        returning {RETURNED}
        """,
        {"id": delivery, "worker": worker, "lease": ids.token(), "until": micros(now + lease)},
    )
    return None if row is None else (from_row(row), LeaseToken(row[-1]))
