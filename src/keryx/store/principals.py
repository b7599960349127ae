"""Principals: the people behind platform identities. One person may have several identities."""

from datetime import datetime

from keryx.core import ids, wire
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId
from keryx.store.database import Transaction, micros


def resolve(
    tx: Transaction, *, profile: ProfileId, platform: str, person: str, name: str, now: datetime
) -> PrincipalId:
    """The principal of an identity, made at first contact."""
    known = find(tx, profile=profile, platform=platform, person=person)
    if known is not None:
        return known
    principal = PrincipalId(ids.new(now))
    label = wire.dumps(name)
    tx.run(
        "insert into principals (id, profile, name, created_at) values (:id, :profile, :name, :now)",
        {"id": principal, "profile": profile, "name": label, "now": micros(now)},
    )
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


def name(tx: Transaction, principal: PrincipalId) -> str:
    if principal == OPERATOR:
        return "operator"
    row = tx.row("select name from principals where id = :id", {"id": principal})
    return "" if row is None else wire.loads(row[0], str)


def _key(profile: ProfileId, platform: str, person: str) -> dict[str, str]:
    return {"profile": profile, "platform": ids.plain(platform), "person": ids.plain(person)}
