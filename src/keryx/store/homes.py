"""Homes: the chat of each platform that a target without a chat means."""

from datetime import datetime

import msgspec

from keryx.core import ids, wire
from keryx.core.deliveries import Target
from keryx.core.ids import PrincipalId, ProfileId
from keryx.store.database import Row, Transaction, micros, moment


class Home(msgspec.Struct, frozen=True, kw_only=True):
    profile: ProfileId
    platform: str
    target: Target
    name: str
    by: PrincipalId
    at: datetime


_SELECT = "select profile, platform, target, name, set_by, set_at from homes"


def put(
    tx: Transaction, target: Target, *, profile: ProfileId, name: str, by: PrincipalId, now: datetime
) -> None:
    """Let a chat be the home channel of its platform, in place of another."""
    tx.run(
        """
        insert into homes (profile, platform, target, name, set_by, set_at)
        values (:profile, :platform, :target, :name, :by, :now)
        on conflict (profile, platform)
        do update set target = excluded.target, name = excluded.name, set_by = excluded.set_by, set_at = excluded.set_at
        """,
        {
            "profile": profile,
            "platform": ids.plain(target.platform),
            "target": wire.dumps(target.place),
            "name": wire.dumps(name),
            "by": by,
            "now": micros(now),
        },
    )


def find(tx: Transaction, platform: str, *, profile: ProfileId) -> Home | None:
    row = tx.row(
        f"{_SELECT} where profile = :profile and platform = :platform",
        {"profile": profile, "platform": ids.plain(platform)},
    )
    return None if row is None else _home(row)


def every(tx: Transaction, profile: ProfileId | None = None) -> list[Home]:
    """The home channels of a profile, or of all, by platform."""
    rows = tx.rows(
        f"{_SELECT} where profile = coalesce(cast(:profile as text), profile) order by profile, platform",
        {"profile": profile},
    )
    return [_home(row) for row in rows]


def move(tx: Transaction, home: Home, target: Target) -> None:
    """Let a home channel go on under the new id of its chat."""
    tx.run(
        "update homes set target = :target where profile = :profile and platform = :platform",
        {"profile": home.profile, "platform": ids.plain(home.platform), "target": wire.dumps(target)},
    )


def remove(tx: Transaction, platform: str, *, profile: ProfileId) -> bool:
    return bool(
        tx.count(
            "delete from homes where profile = :profile and platform = :platform",
            {"profile": profile, "platform": ids.plain(platform)},
        )
    )


def _home(row: Row) -> Home:
    profile, platform, target, name, by, at = row
    return Home(
        profile=profile,
        platform=platform,
        target=wire.loads(target, Target),
        name=wire.loads(name, str) if name else "",
        by=by,
        at=moment(at),
    )
