"""State of the chat platforms: gates that hold back sends, and the home channel of each platform."""

from datetime import datetime

from keryx.core import codec, ids
from keryx.core.clock import from_micros, to_micros
from keryx.core.deliveries import Home, Target
from keryx.core.ids import PrincipalId, ProfileId
from keryx.core.ports.adapter import ClosedGate
from keryx.store.db import Transaction, maybe_moment
from keryx.store.db.rows import RowMapper

_HOME_ROWS = RowMapper(Home, json={"name"}, columns={"by": "set_by", "at": "set_at"})
_SELECT_HOME = f"select {_HOME_ROWS.columns} from homes"


def close_gate(tx: Transaction, key: str, *, until: datetime, reason: str) -> None:
    """Keep a gate closed until a moment. A later moment wins."""
    tx.run(
        """
        insert into gates (key, not_before, reason) values (:key, :until, :reason)
        on conflict (key) do update
        set not_before = case when gates.not_before > excluded.not_before then gates.not_before else excluded.not_before end,
            reason = excluded.reason
        """,
        {"key": key, "until": to_micros(until), "reason": codec.dumps(reason)},
    )


def get_gates_open_at(tx: Transaction, target: Target) -> datetime | None:
    """When both gates of a target are open again; `None` if they are."""
    row = tx.row(
        "select max(not_before) from gates where key in (:chat, :account) and not_before > :now",
        {"chat": target.key, "account": target.account_key, "now": to_micros(tx.now)},
    )
    return maybe_moment(row[0]) if row else None


def reopen_gate(tx: Transaction, key: str, *, reason: str, at: datetime) -> None:
    """Set when a gate opens that was closed for `reason`. A gate that was closed for another reason stays as it
    is."""
    tx.run(
        "update gates set not_before = :at where key = :key and reason = :reason",
        {"key": key, "at": to_micros(at), "reason": codec.dumps(reason)},
    )


def cap_gates(tx: Transaction, *, until: datetime) -> None:
    """Shorten every delay that lasts beyond `until`. Used after the clock was set back."""
    tx.run("update gates set not_before = :until where not_before > :until", {"until": to_micros(until)})


def get_next_gate_opening(tx: Transaction) -> datetime | None:
    row = tx.row("select min(not_before) from gates where not_before > :now", {"now": to_micros(tx.now)})
    return maybe_moment(row[0]) if row else None


def list_closed_gates(tx: Transaction, *, limit: int = 100) -> list[ClosedGate]:
    """The gates that are closed now, those that open last first."""
    rows = tx.rows(
        "select key, not_before, reason from gates where not_before > :now order by not_before desc limit :limit",
        {"now": to_micros(tx.now), "limit": limit},
    )
    return [
        ClosedGate(key=key, until=from_micros(until), reason=codec.loads(reason, str))
        for key, until, reason in rows
    ]


def trim_gates(tx: Transaction) -> int:
    return tx.count("delete from gates where not_before <= :now", {"now": to_micros(tx.now)})


def set_home(tx: Transaction, target: Target, *, profile: ProfileId, name: str, by: PrincipalId) -> None:
    """Set the home channel of a platform."""
    tx.run(
        """
        insert into homes (profile, platform, target, name, set_by, set_at)
        values (:profile, :platform, :target, :name, :by, :now)
        on conflict (profile, platform)
        do update set target = excluded.target, name = excluded.name, set_by = excluded.set_by, set_at = excluded.set_at
        """,
        {
            "profile": profile,
            "platform": ids.escape(target.platform),
            "target": codec.dumps(target.without_reply),
            "name": codec.dumps(name),
            "by": by,
            "now": to_micros(tx.now),
        },
    )


def find_home(tx: Transaction, platform: str, *, profile: ProfileId) -> Home | None:
    row = tx.row(
        f"{_SELECT_HOME} where profile = :profile and platform = :platform",
        {"profile": profile, "platform": ids.escape(platform)},
    )
    return _HOME_ROWS.decode_optional(row)


def list_homes(tx: Transaction, profile: ProfileId | None = None) -> list[Home]:
    """The home channels of a profile, or of all, by platform."""
    rows = tx.rows(
        f"{_SELECT_HOME} where profile = coalesce(cast(:profile as text), profile) order by profile, platform",
        {"profile": profile},
    )
    return _HOME_ROWS.decode_all(rows)


def move_home(tx: Transaction, home: Home, target: Target) -> None:
    """Set the target of a home channel whose chat has a new id."""
    tx.run(
        "update homes set target = :target where profile = :profile and platform = :platform",
        {"profile": home.profile, "platform": ids.escape(home.platform), "target": codec.dumps(target)},
    )


def remove_home(tx: Transaction, platform: str, *, profile: ProfileId) -> bool:
    return bool(
        tx.count(
            "delete from homes where profile = :profile and platform = :platform",
            {"profile": profile, "platform": ids.escape(platform)},
        )
    )
