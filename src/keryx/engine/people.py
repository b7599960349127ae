"""People: the verbs about who may talk and who is who, as `hub.people`. They are for the operator alone."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from keryx.core import identity
from keryx.core.access import Verdict
from keryx.core.errors import Forbidden, Invalid, NotFound
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId
from keryx.core.ports import Clock
from keryx.core.sessions import Viewer
from keryx.core.source import Source
from keryx.engine import access, estate, kinship, pairing
from keryx.engine.estate import Write
from keryx.engine.policy import Policy
from keryx.store import grants, lanes, pairings, principals, sessions
from keryx.store.database import Database, Transaction
from keryx.store.grants import Grant
from keryx.store.pairings import Pairing
from keryx.store.principals import Principal

T = TypeVar("T")
Known = tuple[str, str]
"""A platform, and the id of a person on it."""


class Doorway(msgspec.Struct, frozen=True, kw_only=True):
    """Who stands at the door, and who was let in by a person."""

    waiting: list[Pairing]
    let_in: list[Grant]


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who has talked: how they are known, what was granted to them, and how much is theirs."""

    principal: Principal
    grants: list[Grant]
    lanes: int
    sessions: int


class People:
    def __init__(self, database: Database, clock: Clock, *, policy: Policy) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy

    async def allowed(self, source: Source) -> bool:
        """Whether this person may talk at this place now."""
        placed = self._policy.placed(source)
        verdict = await self._database.read(
            "access", lambda tx: access.judged(tx, placed, self._policy.access)
        )
        return verdict is Verdict.ALLOWED

    async def doorway(self, viewer: Viewer) -> Doorway:
        """Open requests, oldest first, and everybody who was let in by pairing."""
        now = self._clock.now()

        def work(tx: Transaction) -> Doorway:
            waiting = pairings.open_(tx, profile=viewer.profile, now=now)
            return Doorway(waiting=waiting, let_in=grants.every(tx, viewer.profile))

        return await self._read("people.doorway", viewer, work)

    async def approve(self, viewer: Viewer, platform: str, code: str, *, operator: bool = False) -> Grant:
        """Let in whoever was told this code. `NotFound` for a wrong one, `Forbidden` after too many of them."""
        now = self._clock.now()
        grant = await self._write(
            "people.approve",
            viewer,
            lambda tx: pairing.approve(
                tx,
                code,
                profile=viewer.profile,
                platform=platform,
                operator=operator,
                by=viewer.principal,
                now=now,
            ),
        )
        if grant is None:
            raise pairing.wrong_code(platform)
        return grant

    async def deny(self, viewer: Viewer, platform: str, person: str) -> None:
        """Forget a stranger's request."""
        now = self._clock.now()
        await self._write(
            "people.deny",
            viewer,
            lambda tx: pairing.deny(
                tx, profile=viewer.profile, platform=platform, person=identity.typed(person), now=now
            ),
        )

    async def clear(self, viewer: Viewer, platform: str | None) -> int:
        """Forget the request of every stranger who waits, on one platform or on all; gives how many there were."""
        now = self._clock.now()
        return await self._write(
            "people.clear",
            viewer,
            lambda tx: pairing.clear(tx, profile=viewer.profile, platform=platform, now=now),
        )

    async def revoke(self, viewer: Viewer, platform: str, person: str) -> None:
        """Take back what an approval gave."""
        now = self._clock.now()
        await self._write(
            "people.revoke",
            viewer,
            lambda tx: pairing.revoke(
                tx, profile=viewer.profile, platform=platform, person=identity.typed(person), now=now
            ),
        )

    async def every(self, viewer: Viewer) -> list[Person]:
        """Everybody who has talked, in the order in which they came."""
        return await self._read(
            "people.every",
            viewer,
            lambda tx: [_person(tx, p) for p in principals.every(tx, viewer.profile)],
        )

    async def find(self, viewer: Viewer, platform: str, handle: str) -> Person:
        """Whoever goes by an id on a platform."""

        def work(tx: Transaction) -> Person:
            holder = _holder(tx, viewer.profile, platform, handle)
            return _person(tx, principals.get(tx, holder, profile=viewer.profile))

        return await self._read("people.find", viewer, work)

    async def link(self, viewer: Viewer, one: Known, other: Known | None) -> PrincipalId:
        """Let two people be one; without `other`, let one be the operator. Gives who they are from now on."""
        now = self._clock.now()

        def work(tx: Transaction) -> PrincipalId:
            first = _holder(tx, viewer.profile, *one)
            second = OPERATOR if other is None else _holder(tx, viewer.profile, *other)
            return kinship.join(tx, first, second, profile=viewer.profile, now=now)

        return await self._write("people.link", viewer, work)

    async def unlink(self, viewer: Viewer, platform: str, handle: str) -> PrincipalId:
        """Let one way in which a person is known stand alone, with what began there."""
        now = self._clock.now()
        return await self._write(
            "people.unlink",
            viewer,
            lambda tx: kinship.split(
                tx, profile=viewer.profile, platform=platform, handle=identity.typed(handle), now=now
            ),
        )

    async def known_as(self, source: Source, other: str) -> None:
        """A platform says that the author of a source goes by another id, too."""
        placed = self._policy.placed(source)
        person = access.identified(placed)
        if not person:
            raise Invalid(f"a message from {placed.platform!r} names nobody: set its user")
        await self.learn_alias(Viewer(placed.profile, OPERATOR), placed.platform, person, other)

    async def learn_alias(self, viewer: Viewer, platform: str, one: str, other: str) -> None:
        """Two ids of a platform mean one person: everything of the two becomes one, and nothing is lost."""
        now = self._clock.now()
        await self._write(
            "people.alias",
            viewer,
            lambda tx: kinship.learn_alias(
                tx,
                one,
                other,
                profile=viewer.profile,
                platform=platform,
                sharing=self._policy.sharing,
                now=now,
            ),
        )

    async def export(self, viewer: Viewer, principal: PrincipalId, write: Write) -> None:
        """Write everything of a person as lines of JSON: who they are, their conversations, and what they said in those
        of others."""
        await self._read("people.export", viewer, lambda tx: estate.export(tx, viewer, principal, write))

    async def erase(self, viewer: Viewer, principal: PrincipalId) -> None:
        """Remove everything of a person for good. What they said in conversations of others is blanked."""
        now = self._clock.now()
        await self._write(
            "people.erase", viewer, lambda tx: estate.erase(tx, principal, profile=viewer.profile, now=now)
        )

    async def _read(self, label: str, viewer: Viewer, work: Callable[[Transaction], T]) -> T:
        _check(viewer)
        return await self._database.read(label, work)

    async def _write(self, label: str, viewer: Viewer, work: Callable[[Transaction], T]) -> T:
        _check(viewer)
        return await self._database.write(label, work)


def _check(viewer: Viewer) -> None:
    if viewer.principal != OPERATOR:
        raise Forbidden("this is for the operator")


def _holder(tx: Transaction, profile: ProfileId, platform: str, handle: str) -> PrincipalId:
    found = principals.holder(tx, profile=profile, platform=platform, handle=identity.typed(handle))
    if found is None:
        raise NotFound(f"{handle} on {platform} has not talked here: `keryx people list` shows who has")
    return found


def _person(tx: Transaction, principal: Principal) -> Person:
    profile, known = principal.profile, {(i.platform, i.person) for i in principal.identities}
    return Person(
        principal=principal,
        grants=[g for g in grants.every(tx, profile) if (g.platform, g.person) in known],
        lanes=len(lanes.of_owner(tx, profile=profile, owner=principal.id)),
        sessions=len(sessions.of_owner(tx, profile=profile, owner=principal.id)),
    )
