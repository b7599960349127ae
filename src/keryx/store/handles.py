"""Handles: which ids of a platform mean the same person, as far as it was learned."""

from collections.abc import Iterable
from datetime import datetime

from keryx.core import ids, wire
from keryx.core.identity import NO_ALIASES, Aliases
from keryx.core.ids import ProfileId
from keryx.store.database import Transaction, micros


def known(tx: Transaction, *, profile: ProfileId, platform: str, people: Iterable[str]) -> Aliases:
    """What is known of these ids, each as `identity.canonical` writes it."""
    found: dict[str, str] = {}
    for person in people:
        row = tx.row(
            "select person from person_aliases where profile = :profile and platform = :platform and alias = :alias",
            {"profile": profile, "platform": ids.plain(platform), "alias": wire.dumps(person)},
        )
        if row is not None:
            found[person] = wire.loads(row[0], str)
    return Aliases(found) if found else NO_ALIASES


def of_person(tx: Transaction, *, profile: ProfileId, platform: str, person: str) -> list[str]:
    """The other ids of a person, in order."""
    rows = tx.rows(
        """
        select alias from person_aliases
        where profile = :profile and platform = :platform and person = :person order by alias
        """,
        {"profile": profile, "platform": ids.plain(platform), "person": wire.dumps(person)},
    )
    return [wire.loads(row[0], str) for row in rows]


def learn(
    tx: Transaction, *, profile: ProfileId, platform: str, one: str, other: str, now: datetime
) -> tuple[Aliases, str, str]:
    """Let two ids mean one person from now on. Gives what is known of them, the id that the person goes by, and
    the one that they went by before; the two are the same if nothing is new."""
    before = known(tx, profile=profile, platform=platform, people=(one, other))
    ends = {before.resolve(one), before.resolve(other)}
    after = before.learn(one, other)
    person = after.resolve(one)
    old = next((end for end in ends if end != person), person)
    if old == person:
        return after, person, person
    params = {"profile": profile, "platform": ids.plain(platform), "person": wire.dumps(person)}
    tx.run(
        """
        update person_aliases set person = :person
        where profile = :profile and platform = :platform and person = :old
        """,
        {**params, "old": wire.dumps(old)},
    )
    tx.run(
        """
        insert into person_aliases (profile, platform, alias, person, learned_at)
        values (:profile, :platform, :alias, :person, :now)
        """,
        {**params, "alias": wire.dumps(old), "now": micros(now)},
    )
    return after, person, old
