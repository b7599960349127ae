"""Principals: the people behind platform identities. One person may have several identities."""

from datetime import datetime

import msgspec

from keryx.core import ids, wire
from keryx.core.errors import NotFound
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId
from keryx.store.database import Row, Transaction, micros, moment


def resolve(
    tx: Transaction, *, profile: ProfileId, platform: str, person: str, name: str, now: datetime
) -> PrincipalId:
    """The principal of an identity, made at first contact."""
    known = find(tx, profile=profile, platform=platform, person=person)
    if known is not None:
        return known
    principal = add(tx, profile=profile, name=name, now=now)
    label = wire.dumps(name)
    tx.run(
        """
        insert into identities (profile, platform, person, principal, name, created_at)
        values (:profile, :platform, :person, :principal, :name, :now)
        """,
        {**_key(profile, platform, person), "principal": principal, "name": label, "now": micros(now)},
    )
    return principal


def find(tx: Transaction, *, profile: ProfileId, platform: str, person: str) -> PrincipalId | None:
    """The principal of an identity, or `None` before its first contact."""
    row = tx.row(
        "select principal from identities where profile = :profile and platform = :platform and person = :person",
        _key(profile, platform, person),
    )
    return None if row is None else PrincipalId(row[0])


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a person is known: an id on a platform, as `identity.handle` writes it."""

    platform: str
    person: str
    name: str
    at: datetime


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """A person, with every way in which they are known."""

    id: PrincipalId
    profile: ProfileId
    name: str
    at: datetime
    identities: tuple[Identity, ...] = ()


def every(tx: Transaction, profile: ProfileId) -> list[Principal]:
    """Everybody of a profile who has talked, oldest first."""
    rows = tx.rows(
        "select id, profile, name, created_at from principals where profile = :profile order by created_at, id",
        {"profile": profile},
    )
    return [_principal(tx, row) for row in rows]


def get(tx: Transaction, principal: PrincipalId, *, profile: ProfileId) -> Principal:
    row = tx.row(
        "select id, profile, name, created_at from principals where id = :id and profile = :profile",
        {"id": principal, "profile": profile},
    )
    if row is None:
        raise NotFound(f"there is nobody with the id {principal!r}: `keryx people list` shows them")
    return _principal(tx, row)


def identities(tx: Transaction, principal: PrincipalId, *, profile: ProfileId) -> list[Identity]:
    """Every way in which a person is known, oldest first."""
    rows = tx.rows(
        """
        select platform, person, name, created_at from identities
        where principal = :id and profile = :profile order by created_at, platform, person
        """,
        {"id": principal, "profile": profile},
    )
    return [
        Identity(platform=platform, person=person, name=wire.loads(name, str) if name else "", at=moment(at))
        for platform, person, name, at in rows
    ]


def holder(tx: Transaction, *, profile: ProfileId, platform: str, handle: str) -> PrincipalId | None:
    """Whose an identity is, by its handle."""
    row = tx.row(
        "select principal from identities where profile = :profile and platform = :platform and person = :person",
        {"profile": profile, "platform": platform, "person": handle},
    )
    return None if row is None else PrincipalId(row[0])


def add(tx: Transaction, *, profile: ProfileId, name: str, now: datetime) -> PrincipalId:
    """A new person, not yet known on any platform."""
    principal = PrincipalId(ids.new(now))
    _insert(tx, principal, profile, name, now)
    return principal


def ensure_operator(tx: Transaction, *, profile: ProfileId, now: datetime) -> None:
    """Let identities belong to the operator, who is known without a row otherwise."""
    if tx.row("select 1 from principals where id = :id", {"id": OPERATOR}) is None:
        _insert(tx, OPERATOR, profile, "operator", now)


def hand_over(
    tx: Transaction, *, profile: ProfileId, platform: str, handle: str, principal: PrincipalId
) -> None:
    """Let one identity mean another person."""
    tx.run(
        """
        update identities set principal = :principal
        where profile = :profile and platform = :platform and person = :person
        """,
        {"profile": profile, "platform": platform, "person": handle, "principal": principal},
    )


def forget_identity(tx: Transaction, *, profile: ProfileId, platform: str, handle: str) -> None:
    tx.run(
        "delete from identities where profile = :profile and platform = :platform and person = :person",
        {"profile": profile, "platform": platform, "person": handle},
    )


def rename_identity(tx: Transaction, *, profile: ProfileId, platform: str, old: str, new: str) -> None:
    """Let an identity go by another id of the same person, which must be free."""
    tx.run(
        """
        update identities set person = :new
        where profile = :profile and platform = :platform and person = :old
        """,
        {"profile": profile, "platform": platform, "old": old, "new": new},
    )


def remove(tx: Transaction, principal: PrincipalId) -> None:
    """Forget a person and every way in which they are known. What belongs to them must be gone or moved."""
    tx.run("delete from identities where principal = :id", {"id": principal})
    tx.run("delete from principals where id = :id", {"id": principal})


def name(tx: Transaction, principal: PrincipalId) -> str:
    if principal == OPERATOR:
        return "operator"
    row = tx.row("select name from principals where id = :id", {"id": principal})
    return "" if row is None else wire.loads(row[0], str)


def _insert(tx: Transaction, principal: PrincipalId, profile: ProfileId, name: str, now: datetime) -> None:
    tx.run(
        "insert into principals (id, profile, name, created_at) values (:id, :profile, :name, :now)",
        {"id": principal, "profile": profile, "name": wire.dumps(name), "now": micros(now)},
    )


def _principal(tx: Transaction, row: Row) -> Principal:
    id_, profile, name, at = row
    return Principal(
        id=id_,
        profile=profile,
        name=wire.loads(name, str) if name else "",
        at=moment(at),
        identities=tuple(identities(tx, id_, profile=profile)),
    )


def _key(profile: ProfileId, platform: str, person: str) -> dict[str, str]:
    return {"profile": profile, "platform": ids.plain(platform), "person": ids.plain(person)}
