"""Lanes: the session that each chat or place talks to now, and the history of its moves."""

import json
from collections.abc import Iterable
from datetime import datetime

import msgspec

from keryx.core import codec
from keryx.core import source as sources
from keryx.core.changes import ChangeKind
from keryx.core.clock import from_micros, to_micros
from keryx.core.deliveries import Target
from keryx.core.errors import NotFound
from keryx.core.ids import LaneKey, PrincipalId, ProfileId, SessionId
from keryx.core.lanes import Lane, LaneAddress, LaneMove
from keryx.core.sessions import Viewer
from keryx.core.source import Source
from keryx.core.texts import Phrase
from keryx.store import changes
from keryx.store.db import Row, Transaction, maybe_micros
from keryx.store.db.rows import RowMapper

# A lane that was made before anything asked for an answer there has no target.
_ROWS = RowMapper(Lane, json={"instructions"}, without={"target"})
_SELECT = f"select {_ROWS.columns}, target from lanes"


def ensure(
    tx: Transaction,
    address: LaneAddress,
    source: Source,
    *,
    owner: PrincipalId,
    target: Target | None = None,
) -> Lane:
    """The lane of an address, made at first contact, locked until the end of the transaction. `target` is where
    answers to it go."""
    found = find_locked(tx, address.key)
    if found is not None:
        return found
    tx.run(
        """
        insert into lanes (key, profile, owner, source, shared, target, created_at, active_at)
        values (:key, :profile, :owner, :source, :shared, :target, :now, :now)
        on conflict (key) do nothing
        """,
        {
            "key": address.key,
            "profile": source.profile,
            "owner": owner,
            "source": sources.encode(source),
            "shared": int(address.shared),
            "target": target and codec.dumps(target.without_reply),
            "now": to_micros(tx.now),
        },
    )
    made = find_locked(tx, address.key)
    assert made is not None
    return made


def get(tx: Transaction, key: str, *, viewer: Viewer) -> Lane:
    row = tx.row(f"{_SELECT} where key = :key", {"key": key})
    if row is None or not viewer.sees(row[1], row[2]):
        raise NotFound(f"there is no lane {key!r}: `keryx lanes list` shows them", Phrase("lane.unknown"))
    return _from_row(row)


def list_recent(
    tx: Transaction, viewer: Viewer, *, since: datetime | None = None, limit: int = 200
) -> list[Lane]:
    """Lanes by activity, newest first."""
    rows = tx.rows(
        f"""
        {_SELECT}
        where profile = :profile and active_at >= :since and owner = coalesce(cast(:owner as text), owner)
        order by active_at desc
        limit :limit
        """,
        {
            "profile": viewer.profile,
            "owner": viewer.owner,
            "since": to_micros(since) if since else 0,
            "limit": limit,
        },
    )
    return [_from_row(row) for row in rows]


def get_many(tx: Transaction, keys: Iterable[str]) -> list[Lane]:
    """Those of these lanes that exist, in no order."""
    rows = tx.rows(f"{_SELECT} where key {tx.in_names}", {"names": json.dumps(list(keys))})
    return [_from_row(row) for row in rows]


def list_for_session(tx: Transaction, session: SessionId) -> list[Lane]:
    return [_from_row(row) for row in tx.rows(f"{_SELECT} where session = :session", {"session": session})]


def list_for_chat(tx: Transaction, *, platform: str, account: str, chat: str) -> list[Lane]:
    """The lanes of one chat, of every profile. Reads all lanes: for what happens to a chat once in its life."""
    name = codec.dumps(chat).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    rows = tx.rows(f"{_SELECT} where source like :name escape '\\' order by key", {"name": f"%{name}%"})
    found = [_from_row(row) for row in rows]
    return [
        lane
        for lane in found
        if (lane.source.platform, lane.source.account, lane.source.chat) == (platform, account, chat)
    ]


def list_shared(tx: Transaction, *, since: datetime) -> list[Lane]:
    """The lanes of several people that were used since a time. Reads all lanes: for the beginning of a process."""
    rows = tx.rows(
        f"{_SELECT} where shared = 1 and active_at >= :since order by key", {"since": to_micros(since)}
    )
    return [_from_row(row) for row in rows]


def list_mirrors(tx: Transaction, session: SessionId) -> list[Lane]:
    """The lanes that show what is said to a session elsewhere."""
    rows = tx.rows(f"{_SELECT} where session = :session and mirror = 1", {"session": session})
    return sorted((_from_row(row) for row in rows), key=lambda lane: lane.key)


def list_for_owner(tx: Transaction, *, profile: ProfileId, owner: PrincipalId) -> list[Lane]:
    """Every lane of a person, the last used first."""
    rows = tx.rows(
        f"{_SELECT} where profile = :profile and owner = :owner order by active_at desc, key",
        {"profile": profile, "owner": owner},
    )
    return [_from_row(row) for row in rows]


def list_moves(tx: Transaction, key: LaneKey, *, limit: int = 100) -> list[LaneMove]:
    """Which sessions the lane had and why it moved, newest first."""
    rows = tx.rows(
        "select session, why, at from lane_moves where lane = :lane order by id desc limit :limit",
        {"lane": key, "limit": limit},
    )
    return [LaneMove(session=session, why=why, at=from_micros(at)) for session, why, at in rows]


def list_moves_around(tx: Transaction, key: LaneKey, session: SessionId, *, limit: int) -> list[LaneMove]:
    """The moves of a lane before and after it came to a session, oldest first; none if it never did. Reads what the
    one lane had."""
    row = tx.row(
        "select min(id) from lane_moves where lane = :lane and session = :session",
        {"lane": key, "session": session},
    )
    if row is None or row[0] is None:
        return []
    params = {"lane": key, "here": row[0], "limit": limit}
    earlier = tx.rows(
        "select session, why, at from lane_moves where lane = :lane and id < :here order by id desc limit :limit",
        params,
    )
    later = tx.rows(
        "select session, why, at from lane_moves where lane = :lane and id >= :here order by id limit :limit",
        params,
    )
    return [
        LaneMove(session=id_, why=why, at=from_micros(at)) for id_, why, at in (*reversed(earlier), *later)
    ]


def move(tx: Transaction, lane: Lane, session: SessionId | None, *, why: str) -> Lane:
    """Set the current session of a lane, or none until the next message creates one."""
    tx.run(
        "update lanes set session = :session, suspended = 0 where key = :key",
        {"key": lane.key, "session": session},
    )
    tx.run(
        "insert into lane_moves (lane, session, why, at) values (:lane, :session, :why, :at)",
        {"lane": lane.key, "session": session, "why": str(why), "at": to_micros(tx.now)},
    )
    moved = msgspec.structs.replace(lane, session=session, suspended=False)
    changes.note(tx, ChangeKind.LANE, lane.key, moved, note=str(why))
    return moved


def touch(
    tx: Transaction, lane: Lane, *, expires_at: datetime | None, active_at: datetime | None = None
) -> None:
    """Record that a person spoke, now or at `active_at`. Nothing else counts as activity."""
    tx.run(
        "update lanes set active_at = :now, expires_at = :expires_at where key = :key",
        {"key": lane.key, "now": to_micros(active_at or tx.now), "expires_at": maybe_micros(expires_at)},
    )


def set_expiry(tx: Transaction, lane: Lane, expires_at: datetime | None) -> None:
    """Set when the expiry sweep looks at the lane again."""
    tx.run(
        "update lanes set expires_at = :expires_at where key = :key",
        {"key": lane.key, "expires_at": maybe_micros(expires_at)},
    )


def set_suspended(tx: Transaction, lane: Lane, suspended: bool) -> None:
    tx.run("update lanes set suspended = :value where key = :key", {"key": lane.key, "value": int(suspended)})
    changes.note(tx, ChangeKind.LANE, lane.key, lane, note="suspended" if suspended else "freed")


def set_mirror(tx: Transaction, lane: Lane, mirror: bool) -> None:
    tx.run("update lanes set mirror = :value where key = :key", {"key": lane.key, "value": int(mirror)})


def set_instructions(tx: Transaction, lane: Lane, text: str) -> None:
    tx.run(
        "update lanes set instructions = :text where key = :key",
        {"key": lane.key, "text": codec.dumps(text) if text else ""},
    )


def change_owner(tx: Transaction, lane: Lane, owner: PrincipalId) -> None:
    """Transfer a lane to another person."""
    tx.run("update lanes set owner = :owner where key = :key", {"key": lane.key, "owner": owner})


def rekey(tx: Transaction, lane: Lane, key: LaneKey) -> Lane:
    """Change the key of a lane, with its history. The new key must be free."""
    tx.run(
        """
        insert into lanes
          (key, profile, owner, session, source, shared, suspended, mirror, created_at, active_at, expires_at,
           target, instructions, overheard)
        select
          :new, profile, owner, session, source, shared, suspended, mirror, created_at, active_at, expires_at,
          target, instructions, overheard
        from lanes where key = :old
        """,
        {"old": lane.key, "new": key},
    )
    moved = msgspec.structs.replace(lane, key=key)
    merge_history(tx, moved, lane)
    return moved


def merge_history(tx: Transaction, lane: Lane, other: Lane) -> None:
    """Append the history of one lane to another and remove the first."""
    tx.run("update lane_moves set lane = :key where lane = :other", {"key": lane.key, "other": other.key})
    tx.run("delete from lanes where key = :key", {"key": other.key})


def find_locked(tx: Transaction, key: LaneKey) -> Lane | None:
    """Return the lane of a key, locked until the end of the transaction."""
    row = tx.row(f"{_SELECT} where key = :key{tx.for_update}", {"key": key})
    return None if row is None else _from_row(row)


def remove(tx: Transaction, lane: Lane) -> None:
    """Remove a lane with its history; its session stays."""
    tx.run("delete from lanes where key = :key", {"key": lane.key})
    changes.note(tx, ChangeKind.LANE, lane.key, lane, note="removed")


def list_expired(tx: Transaction, *, limit: int = 50) -> list[Lane]:
    """Lanes whose time to look at has come."""
    rows = tx.rows(
        f"{_SELECT} where expires_at <= :now order by expires_at limit :limit",
        {"now": to_micros(tx.now), "limit": limit},
    )
    return [_from_row(row) for row in rows]


def delete_idle(tx: Transaction, *, before: datetime) -> int:
    """Remove lanes without activity since `before`, but not those with instructions; their sessions stay."""
    return tx.count(
        "delete from lanes where active_at < :before and instructions = ''", {"before": to_micros(before)}
    )


def _from_row(row: Row) -> Lane:
    target = codec.loads(row[-1], Target) if row[-1] else None
    lane = _ROWS.decode(row, target=target)
    if target is not None:
        return lane
    source = lane.source
    place = Target(source.platform, source.account, source.chat or source.user or "", source.thread or "")
    return msgspec.structs.replace(lane, target=place)
