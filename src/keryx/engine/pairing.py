"""Pairing: an operator lets a stranger in by the code that the stranger was told, or sends them away."""

from datetime import datetime, timedelta

from keryx.core.errors import Forbidden, NotFound
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId
from keryx.engine import access
from keryx.store import deliveries, grants, guesses, pairings
from keryx.store.database import Transaction
from keryx.store.grants import Grant

MOST_WRONG = 5
LOCKED = timedelta(hours=1)
WELCOME = "You are in. Say something, or /help lists the commands."


def check(tx: Transaction, key: str, *, now: datetime) -> None:
    """Raise `Forbidden` while too many wrong codes were tried."""
    if guesses.wrong(tx, key, since=now - LOCKED) >= MOST_WRONG:
        raise Forbidden(
            f"{MOST_WRONG} wrong codes were tried, so no code is taken for an hour: wait, then ask for a new code"
        )


def approve(
    tx: Transaction,
    code: str,
    *,
    profile: ProfileId,
    platform: str,
    operator: bool,
    by: PrincipalId,
    now: datetime,
) -> Grant | None:
    """Let in whoever was told this code, and tell them. `None` for a wrong code, which is counted."""
    guesses.alone(tx, access.door(profile, platform), now=now)
    key = f"pairing:{profile}:{platform}"
    check(tx, key, now=now)
    pairing = pairings.fitting(tx, code, profile=profile, platform=platform, now=now)
    if pairing is None:
        guesses.count(tx, key, since=now - LOCKED, now=now)
        return None
    guesses.forget(tx, key)
    pairings.remove(tx, profile=profile, platform=platform, person=pairing.person)
    grant = grants.add(
        tx,
        profile=profile,
        platform=platform,
        person=pairing.person,
        name=pairing.name,
        operator=operator,
        by=by,
        now=now,
    )
    deliveries.enqueue(tx, pairing.target, WELCOME, profile=profile, owner=OPERATOR, now=now)
    return grant


def wrong_code(platform: str) -> NotFound:
    return NotFound(
        f"no open request on {platform} has this code: `keryx pairing list` shows who waits; a code holds for one hour at most, and the last one that a person was told counts"
    )


def deny(tx: Transaction, *, profile: ProfileId, platform: str, person: str, now: datetime) -> None:
    """Forget a stranger's request. They are not told."""
    if not pairings.remove(tx, profile=profile, platform=platform, person=person):
        raise NotFound(f"{person} on {platform} has no open request: `keryx pairing list` shows them")
    grants.note(tx, profile, platform, person, "denied", now)


def clear(tx: Transaction, *, profile: ProfileId, platform: str | None, now: datetime) -> int:
    """Forget every open request, on one platform or on all; gives how many there were."""
    found = pairings.open_(tx, profile=profile, now=now, platform=platform)
    for pairing in found:
        access.forget(tx, pairing, now=now)
    return len(found)


def revoke(tx: Transaction, *, profile: ProfileId, platform: str, person: str, now: datetime) -> None:
    """Take back what an approval gave. What waits of this person is not answered any more."""
    if not grants.remove(tx, profile=profile, platform=platform, person=person, now=now):
        raise NotFound(
            f"{person} on {platform} was not let in by pairing: `keryx pairing list` shows who was, and"
            f" [access.{platform}] in keryx.toml lists others"
        )
