"""Stats: how much there is, for a person who wants to know."""

import os
from pathlib import Path
from typing import Any

import msgspec

from keryx.core.ids import SessionId
from keryx.core.sessions import Tokens, Viewer
from keryx.store.database import Engine, Params, Transaction


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    id: SessionId
    title: str
    messages: int
    tokens: int


class Stats(msgspec.Struct, frozen=True, kw_only=True):
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
    busiest: list[Busy]
    size: int
    free: int


def read(tx: Transaction, viewer: Viewer, *, busiest: int = 5) -> Stats:
    who = {"profile": viewer.profile, "owner": viewer.owner}
    live, archived, deleted = _one(tx, _SESSIONS, who)
    *tokens, cost = _one(tx, _TOKENS, who)
    size, free = _size(tx)
    roles = _by(tx, _ROLES, who)
    return Stats(
        sessions=live,
        archived=archived,
        deleted=deleted,
        by_surface=_by(tx, _SURFACES, who),
        messages=sum(roles.values()),
        by_role=roles,
        turns=_by(tx, _TURNS, who),
        deliveries=_by(tx, _DELIVERIES, who),
        lanes=_one(tx, _LANES, who)[0],
        tokens=Tokens(**dict(zip(Tokens.__struct_fields__, map(int, tokens), strict=True))),
        cost=None if cost is None else int(cost),
        busiest=[
            Busy(id=id_, title=title, messages=messages, tokens=int(spent))
            for id_, title, messages, spent in tx.rows(_BUSIEST, {**who, "limit": busiest})
        ],
        size=size,
        free=free,
    )


_MINE = "profile = :profile and owner = coalesce(cast(:owner as text), owner)"
_SESSIONS = f"""
select
  coalesce(sum(case when deleted_at is null then 1 else 0 end), 0),
  coalesce(sum(case when deleted_at is null and archived = 1 then 1 else 0 end), 0),
  coalesce(sum(case when deleted_at is not null then 1 else 0 end), 0)
from sessions where {_MINE}
"""
_SURFACES = f"select surface, count(*) from sessions where {_MINE} and deleted_at is null group by surface order by 2 desc"
_ROLES = f"""
select role, count(*) from messages where session in (select id from sessions where {_MINE} and deleted_at is null)
group by role order by 2 desc
"""
_TURNS = f"select state, count(*) from turns where {_MINE} group by state order by 2 desc"
_DELIVERIES = f"select state, count(*) from deliveries where {_MINE} group by state order by 2 desc"
_LANES = f"select count(*) from lanes where {_MINE}"
_TOKENS = f"""
select
  coalesce(sum(tokens_input), 0), coalesce(sum(tokens_output), 0), coalesce(sum(tokens_reasoning), 0),
  coalesce(sum(tokens_cache_read), 0), coalesce(sum(tokens_cache_write), 0), sum(cost)
from sessions where {_MINE} and deleted_at is null
"""
_BUSIEST = f"""
select id, title, messages,
  tokens_input + tokens_output + tokens_reasoning + tokens_cache_read + tokens_cache_write
from sessions where {_MINE} and deleted_at is null
order by messages desc, id limit :limit
"""


def _one(tx: Transaction, sql: str, params: Params) -> list[Any]:
    row = tx.row(sql, params)
    assert row is not None
    return list(row)


def _by(tx: Transaction, sql: str, params: Params) -> dict[str, int]:
    return {str(name): int(count) for name, count in tx.rows(sql, params)}


def _size(tx: Transaction) -> tuple[int, int]:
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
    return sum(_bytes(Path(f"{listed[2]}{suffix}")) for suffix in ("", "-wal")), int(pages[0]) * int(pages[1])


def _bytes(path: Path) -> int:
    return os.stat(path).st_size if path.exists() else 0
