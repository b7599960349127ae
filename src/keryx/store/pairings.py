"""Pairings: strangers who were given a code. The code itself is not kept, only a salted hash of it.

People are named as `identity.handle` writes them."""

from datetime import datetime

import msgspec

from keryx.core import wire
from keryx.core.codes import Sealed
from keryx.core.deliveries import Target
from keryx.core.ids import ProfileId
from keryx.store.database import Row, Transaction, micros, moment


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """A stranger who may be let in by the code. `target` is where they wait for word."""

    profile: ProfileId
    platform: str
    person: str
    name: str
    target: Target
    told_at: datetime
    expires_at: datetime


_COLUMNS = "profile, platform, person, name, target, told_at, expires_at"


def put(tx: Transaction, pairing: Pairing, code: Sealed) -> None:
    """Remember a code that is told to a person; an earlier one of theirs is worth nothing any more."""
    tx.run(
        f"""
        insert into pairings ({_COLUMNS}, salt, digest)
        values (:profile, :platform, :person, :name, :target, :told_at, :expires_at, :salt, :digest)
        on conflict (profile, platform, person)
        do update set name = excluded.name, target = excluded.target, told_at = excluded.told_at,
          expires_at = excluded.expires_at, salt = excluded.salt, digest = excluded.digest
        """,
        {
            **_key(pairing.profile, pairing.platform, pairing.person),
            "name": wire.dumps(pairing.name),
            "target": wire.dumps(pairing.target),
            "told_at": micros(pairing.told_at),
            "expires_at": micros(pairing.expires_at),
            "salt": code.salt,
            "digest": code.digest,
        },
    )


def open_(
    tx: Transaction, *, profile: ProfileId, now: datetime, platform: str | None = None
) -> list[Pairing]:
    """The pairings that can still be approved, who asked first before the others."""
    rows = tx.rows(
        f"""
        select {_COLUMNS} from pairings
        where profile = :profile and expires_at > :now and platform = coalesce(cast(:platform as text), platform)
        order by expires_at, person
        """,
        {"profile": profile, "platform": platform, "now": micros(now)},
    )
    return [_pairing(row) for row in rows]


def find(tx: Transaction, *, profile: ProfileId, platform: str, person: str) -> Pairing | None:
    """What is known of a person's last code, in force or not."""
    row = tx.row(
        f"select {_COLUMNS} from pairings where profile = :profile and platform = :platform and person = :person",
        _key(profile, platform, person),
    )
    return None if row is None else _pairing(row)


def fitting(
    tx: Transaction, code: str, *, profile: ProfileId, platform: str, now: datetime
) -> Pairing | None:
    """The open pairing that a code belongs to."""
    for pairing in open_(tx, profile=profile, now=now, platform=platform):
        row = tx.row(
            "select salt, digest from pairings where profile = :profile and platform = :platform and person = :person",
            {"profile": pairing.profile, "platform": pairing.platform, "person": pairing.person},
        )
        if row is not None and Sealed(*row).fits(code):
            return pairing
    return None


def remove(tx: Transaction, *, profile: ProfileId, platform: str, person: str) -> bool:
    return bool(
        tx.count(
            "delete from pairings where profile = :profile and platform = :platform and person = :person",
            _key(profile, platform, person),
        )
    )


def trim(tx: Transaction, *, before: datetime) -> int:
    """Forget strangers whose codes ended before a moment."""
    return tx.count("delete from pairings where expires_at < :before", {"before": micros(before)})


def _key(profile: ProfileId, platform: str, person: str) -> dict[str, str]:
    return {"profile": profile, "platform": platform, "person": person}


def _pairing(row: Row) -> Pairing:
    profile, platform, person, name, target, told_at, expires_at = row
    return Pairing(
        profile=profile,
        platform=platform,
        person=person,
        name=wire.loads(name, str) if name else "",
        target=wire.loads(target, Target),
        told_at=moment(told_at),
        expires_at=moment(expires_at),
    )
