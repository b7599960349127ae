"""Counts over a store: statistics for a viewer, gauges for monitoring, and work that is stuck."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from keryx.core.clock import to_micros
from keryx.core.deliveries import UNSENT_STATES
from keryx.core.ids import SessionId
from keryx.core.sessions import Viewer
from keryx.core.usage import Tokens
from keryx.store.db import Engine, Params, Transaction, maybe_moment

_VISIBLE = "profile = :profile and owner = coalesce(cast(:owner as text), owner)"
_SESSIONS = f"""
select
  coalesce(sum(case when deleted_at is null then 1 else 0 end), 0),
  coalesce(sum(case when deleted_at is null and archived = 1 then 1 else 0 end), 0),
  coalesce(sum(case when deleted_at is not null then 1 else 0 end), 0)
from sessions where {_VISIBLE}
"""
_SURFACES = f"select surface, count(*) from sessions where {_VISIBLE} and deleted_at is null group by surface order by 2 desc"
_ROLES = f"""
select role, count(*) from messages where session in (select id from sessions where {_VISIBLE} and deleted_at is null)
group by role order by 2 desc
"""
_TURNS = f"select state, count(*) from turns where {_VISIBLE} group by state order by 2 desc"
_DELIVERIES = f"select state, count(*) from deliveries where {_VISIBLE} group by state order by 2 desc"
_LANES = f"select count(*) from lanes where {_VISIBLE}"
_TOKENS = f"""
select
  coalesce(sum(tokens_input), 0), coalesce(sum(tokens_output), 0), coalesce(sum(tokens_reasoning), 0),
  coalesce(sum(tokens_cache_read), 0), coalesce(sum(tokens_cache_write), 0), sum(cost)
from sessions where {_VISIBLE} and deleted_at is null
"""
_BUSIEST = f"""
select id, title, messages,
  tokens_input + tokens_output + tokens_reasoning + tokens_cache_read + tokens_cache_write
from sessions where {_VISIBLE} and deleted_at is null
order by messages desc, id limit :limit
"""


class BusySession(msgspec.Struct, frozen=True, kw_only=True):
    id: SessionId
    title: str
    messages: int
    tokens: int


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of what a viewer may see. `size` is the whole store on disk, in bytes, and `free` what it could give back."""

    sessions: int
    archived: int
    deleted: int
    by_surface: dict[str, int]
    messages: int
    by_role: dict[str, int]
    turns: dict[str, int]
    deliveries: dict[str, int]
    lanes: int
    tokens: Tokens
    cost: int | None
    busiest: list[BusySession]
    size: int
    free: int


def read_stats(tx: Transaction, viewer: Viewer, *, busiest: int = 5) -> StoreStats:
    who = {"profile": viewer.profile, "owner": viewer.owner}
    live, archived, deleted = _read_row(tx, _SESSIONS, who)
    *tokens, cost = _read_row(tx, _TOKENS, who)
    size, free = _measure_size(tx)
    roles = _count_by(tx, _ROLES, who)
    return StoreStats(
        sessions=live,
        archived=archived,
        deleted=deleted,
        by_surface=_count_by(tx, _SURFACES, who),
        messages=sum(roles.values()),
        by_role=roles,
        turns=_count_by(tx, _TURNS, who),
        deliveries=_count_by(tx, _DELIVERIES, who),
        lanes=_read_row(tx, _LANES, who)[0],
        tokens=Tokens(**dict(zip(Tokens.__struct_fields__, map(int, tokens), strict=True))),
        cost=None if cost is None else int(cost),
        busiest=[
            BusySession(id=id_, title=title, messages=messages, tokens=int(spent))
            for id_, title, messages, spent in tx.rows(_BUSIEST, {**who, "limit": busiest})
        ],
        size=size,
        free=free,
    )


def _read_row(tx: Transaction, sql: str, params: Params) -> list[Any]:
    row = tx.row(sql, params)
    assert row is not None
    return list(row)


def _count_by(tx: Transaction, sql: str, params: Params) -> dict[str, int]:
    return {str(name): int(count) for name, count in tx.rows(sql, params)}


def _measure_size(tx: Transaction) -> tuple[int, int]:
    if tx.engine is Engine.POSTGRES:
        row = tx.row(
            """
            select coalesce(sum(pg_total_relation_size(c.oid)), 0) from pg_class c
            where c.relkind = 'r' and c.relnamespace = cast(current_schema() as regnamespace)
            """
        )
        return int(row[0]) if row else 0, 0
    listed = tx.row("pragma database_list")
    pages = tx.row("select page_size, freelist_count from pragma_page_size, pragma_freelist_count")
    assert listed is not None and pages is not None
    files = [Path(f"{listed[2]}{suffix}") for suffix in ("", "-wal")]
    return sum(file.stat().st_size for file in files if file.exists()), int(pages[0]) * int(pages[1])


class StoreGauges(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over the whole store. Turns and deliveries are counted by state, and only while unfinished."""

    sessions: int
    lanes: int
    turns: dict[str, int]
    deliveries: dict[str, int]
    # The age in seconds of the oldest queued turn that no turn of its session precedes.
    oldest_waiting: float


def read_gauges(tx: Transaction) -> StoreGauges:
    unsent: dict[str, int] = {state.value: 0 for state in UNSENT_STATES}
    for states in ("'ready', 'sending'", "'unknown', 'failed', 'dead'", "'held'"):
        unsent |= _count_by(
            tx, f"select state, count(*) from deliveries where state in ({states}) group by state", {}
        )
    row = tx.row("select min(ready_at) from turns where state = 'queued' and ready_at is not null")
    since = maybe_moment(row[0]) if row else None
    return StoreGauges(
        sessions=_read_count(tx, "select count(*) from sessions where deleted_at is null"),
        lanes=_read_count(tx, "select count(*) from lanes"),
        turns={
            "running": _read_count(tx, "select count(*) from turns where state = 'running'"),
            "queued": _read_count(tx, "select count(*) from turns where state = 'queued'"),
        },
        deliveries=unsent,
        oldest_waiting=max((tx.now - since).total_seconds(), 0.0) if since else 0.0,
    )


def _read_count(tx: Transaction, sql: str) -> int:
    row = tx.row(sql)
    assert row is not None
    return int(row[0])


class StuckWork(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over the whole store."""

    # Queued turns, and since when the oldest waits.
    waiting: int
    oldest: datetime | None
    # Running turns whose lease expired.
    overdue: int
    # Turns that were given up after several crashes.
    parked: int
    # Deliveries that wait, and those whose end is unknown or that failed.
    unsent: int
    doubtful: int
    # The latest time in the store, if it lies in the future.
    ahead: datetime | None


def read_stuck_work(tx: Transaction, *, patience: timedelta, slack: timedelta) -> StuckWork:
    """Count what waits longer than `patience` and what was given up, and compare the clocks within `slack`."""
    since = {"since": to_micros(tx.now - patience)}
    waiting = tx.row(
        "select count(*), min(created_at) from turns where state = 'queued' and created_at < :since", since
    )
    overdue = tx.row("select count(*) from turns where state = 'running' and lease_until < :since", since)
    parked = tx.row("select count(*) from turns where state = 'parked'")
    unsent = tx.row("select count(*) from deliveries where state = 'ready' and created_at < :since", since)
    doubtful = tx.row("select count(*) from deliveries where state in ('unknown', 'failed', 'dead')")
    latest = tx.row("select max(active_at) from sessions")
    assert waiting and overdue and parked and unsent and doubtful and latest
    ahead = maybe_moment(latest[0])
    return StuckWork(
        waiting=waiting[0],
        oldest=maybe_moment(waiting[1]),
        overdue=overdue[0],
        parked=parked[0],
        unsent=unsent[0],
        doubtful=doubtful[0],
        ahead=ahead if ahead and ahead > tx.now + slack else None,
    )
