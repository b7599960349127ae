"""Grants: people who were let in one by one, as by pairing. People are named as `identity.handle` writes them."""

from datetime import datetime

import msgspec

from keryx.core import wire
from keryx.core.changes import Kind
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId
from keryx.store import changes
from keryx.store.database import Row, Transaction, micros, moment


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """`operator`: may also give the commands of operators."""

    profile: ProfileId
    platform: str
    person: str
    name: str
    operator: bool
    by: PrincipalId
    at: datetime


_SELECT = "select profile, platform, person, name, operator, granted_by, granted_at from grants"


def add(
    tx: Transaction,
    *,
    profile: ProfileId,
    platform: str,
    person: str,
    name: str,
    operator: bool,
    by: PrincipalId,
    now: datetime,
) -> Grant:
    """Let somebody in, or change on which terms they are."""
    tx.run(
        """
        insert into grants (profile, platform, person, name, operator, granted_by, granted_at)
        values (:profile, :platform, :person, :name, :operator, :by, :now)
        on conflict (profile, platform, person)
        do update set name = excluded.name, operator = excluded.operator, granted_by = excluded.granted_by,
          granted_at = excluded.granted_at
        """,
        {
            **_key(profile, platform, person),
            "name": wire.dumps(name),
            "operator": int(operator),
            "by": by,
            "now": micros(now),
        },
    )
    note(tx, profile, platform, person, "granted", now)
    found = find(tx, profile=profile, platform=platform, person=person)
    assert found is not None
    return found


def find(tx: Transaction, *, profile: ProfileId, platform: str, person: str) -> Grant | None:
    row = tx.row(
        f"{_SELECT} where profile = :profile and platform = :platform and person = :person",
        _key(profile, platform, person),
    )
    return None if row is None else _grant(row)


def every(tx: Transaction, profile: ProfileId) -> list[Grant]:
    rows = tx.rows(
        f"{_SELECT} where profile = :profile order by platform, granted_at, person", {"profile": profile}
    )
    return [_grant(row) for row in rows]


def remove(tx: Transaction, *, profile: ProfileId, platform: str, person: str, now: datetime) -> bool:
    """Take a grant back; gives whether there was one."""
    removed = tx.count(
        "delete from grants where profile = :profile and platform = :platform and person = :person",
        _key(profile, platform, person),
    )
    if removed:
        note(tx, profile, platform, person, "revoked", now)
    return bool(removed)


def rename(tx: Transaction, *, profile: ProfileId, platform: str, old: str, new: str) -> None:
    """Let a grant follow a person to another id of theirs; the stronger of two remains."""
    params = {**_key(profile, platform, new), "old": old}
    tx.run(
        """
        update grants set operator = 1
        where profile = :profile and platform = :platform and person = :person and exists (
          select 1 from grants o
          where o.profile = :profile and o.platform = :platform and o.person = :old and o.operator = 1)
        """,
        params,
    )
    tx.run(
        """
        update grants set person = :person
        where profile = :profile and platform = :platform and person = :old and not exists (
          select 1 from grants o
          where o.profile = :profile and o.platform = :platform and o.person = :person)
        """,
        params,
    )
    tx.run(
        "delete from grants where profile = :profile and platform = :platform and person = :old",
        {"profile": profile, "platform": platform, "old": old},
    )


def note(tx: Transaction, profile: ProfileId, platform: str, person: str, what: str, now: datetime) -> None:
    """Tell followers that who may talk has changed."""
    changes.note(tx, Kind.ACCESS, f"{platform}:{person}", profile=profile, owner=OPERATOR, at=now, note=what)


def _key(profile: ProfileId, platform: str, person: str) -> dict[str, str]:
    return {"profile": profile, "platform": platform, "person": person}


def _grant(row: Row) -> Grant:
    profile, platform, person, name, operator, by, at = row
    return Grant(
        profile=profile,
        platform=platform,
        person=person,
        name=wire.loads(name, str) if name else "",
        operator=bool(operator),
        by=by,
        at=moment(at),
    )
