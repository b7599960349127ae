"""Who may talk and who is who: pairing, grants, identities, export and erasure. For the operator only."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from keryx.core import source
from keryx.core.access import Grant, Pairing, Verdict
from keryx.core.clock import Clock
from keryx.core.errors import Forbidden, Invalid, NotFound
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId
from keryx.core.sessions import Viewer
from keryx.core.source import Source
from keryx.engine.policy import Policy
from keryx.engine.units import access as pairing
from keryx.engine.units import identities, privacy
from keryx.engine.units.privacy import LineWriter
from keryx.store import access, lanes, people, sessions
from keryx.store.db.database import Database, Transaction
from keryx.store.people import Principal

T = TypeVar("T")
PersonHandle = tuple[str, str]
"""A platform, and the id of a person on it."""


class PairingOverview(msgspec.Struct, frozen=True, kw_only=True):
    """Who stands at the door, and who was let in by a person."""

    waiting: list[Pairing]
    granted: list[Grant]


class PersonSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who has talked: how they are known, what was granted to them, and how much is theirs."""

    principal: Principal
    grants: list[Grant]
    lanes: int
    sessions: int


class HubPeople:
    def __init__(self, database: Database, clock: Clock, *, policy: Policy) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy

    async def is_allowed(self, source: Source) -> bool:
        """Whether this person may talk at this place now."""
        placed = self._policy.assign_profile(source)
        verdict = await self._database.read(
            "access", lambda tx: pairing.judge(tx, placed, self._policy.access)
        )
        return verdict is Verdict.ALLOWED

    async def list_pairings(self, viewer: Viewer) -> PairingOverview:
        """Open requests, oldest first, and everybody who was let in by pairing."""

        def work(tx: Transaction) -> PairingOverview:
            waiting = access.list_open_pairings(tx, profile=viewer.profile)
            return PairingOverview(waiting=waiting, granted=access.list_grants(tx, viewer.profile))

        return await self._read("people.doorway", viewer, work)

    async def approve(self, viewer: Viewer, platform: str, code: str, *, operator: bool = False) -> Grant:
        """Let in whoever was told this code. `NotFound` for a wrong one, `Forbidden` after too many of them."""
        grant = await self._write(
            "people.approve",
            viewer,
            lambda tx: pairing.approve_pairing(
                tx,
                code,
                profile=viewer.profile,
                platform=platform,
                operator=operator,
                by=viewer.principal,
            ),
        )
        if grant is None:
            raise pairing.build_wrong_code_error(platform)
        return grant

    async def deny(self, viewer: Viewer, platform: str, person: str) -> None:
        """Forget a stranger's request."""
        await self._write(
            "people.deny",
            viewer,
            lambda tx: pairing.deny_pairing(
                tx, profile=viewer.profile, platform=platform, person=source.parse_handle(person)
            ),
        )

    async def clear_pairings(self, viewer: Viewer, platform: str | None) -> int:
        """Forget the request of every stranger who waits, on one platform or on all; gives how many there were."""
        return await self._write(
            "people.clear",
            viewer,
            lambda tx: pairing.clear_pairings(tx, profile=viewer.profile, platform=platform),
        )

    async def revoke(self, viewer: Viewer, platform: str, person: str) -> None:
        """Take back what an approval gave."""
        await self._write(
            "people.revoke",
            viewer,
            lambda tx: pairing.revoke_grant(
                tx, profile=viewer.profile, platform=platform, person=source.parse_handle(person)
            ),
        )

    async def list_all(self, viewer: Viewer) -> list[PersonSummary]:
        """Everybody who has talked, in the order in which they came."""
        return await self._read(
            "people.every",
            viewer,
            lambda tx: [_load_person(tx, p) for p in people.list_all(tx, viewer.profile)],
        )

    async def find(self, viewer: Viewer, platform: str, handle: str) -> PersonSummary:
        """Whoever goes by an id on a platform."""

        def work(tx: Transaction) -> PersonSummary:
            holder = _find_principal(tx, viewer.profile, platform, handle)
            return _load_person(tx, people.get(tx, holder, profile=viewer.profile))

        return await self._read("people.find", viewer, work)

    async def link(self, viewer: Viewer, one: PersonHandle, other: PersonHandle | None) -> PrincipalId:
        """Let two people be one; without `other`, let one be the operator. Gives who they are from now on."""

        def work(tx: Transaction) -> PrincipalId:
            first = _find_principal(tx, viewer.profile, *one)
            second = OPERATOR if other is None else _find_principal(tx, viewer.profile, *other)
            return identities.merge(tx, first, second, profile=viewer.profile)

        return await self._write("people.link", viewer, work)

    async def unlink(self, viewer: Viewer, platform: str, handle: str) -> PrincipalId:
        """Let one way in which a person is known stand alone, with what began there."""
        return await self._write(
            "people.unlink",
            viewer,
            lambda tx: identities.split(
                tx, profile=viewer.profile, platform=platform, handle=source.parse_handle(handle)
            ),
        )

    async def add_alias(self, source: Source, other: str) -> None:
        """A platform says that the author of a source goes by another id, too."""
        placed = self._policy.assign_profile(source)
        person = pairing.identify(placed)
        if not person:
            raise Invalid(f"a message from {placed.platform!r} names nobody: set its user")
        await self.learn_alias(Viewer(placed.profile, OPERATOR), placed.platform, person, other)

    async def learn_alias(self, viewer: Viewer, platform: str, one: str, other: str) -> None:
        """Two ids of a platform mean one person: everything of the two becomes one, and nothing is lost."""
        await self._write(
            "people.alias",
            viewer,
            lambda tx: identities.learn_alias(
                tx,
                one,
                other,
                profile=viewer.profile,
                platform=platform,
                sharing=self._policy.sharing,
            ),
        )

    async def export(self, viewer: Viewer, principal: PrincipalId, write: LineWriter) -> None:
        """Write everything of a person as lines of JSON: who they are, their conversations, and what they said in those
        of others."""
        await self._read("people.export", viewer, lambda tx: privacy.export(tx, viewer, principal, write))

    async def erase(self, viewer: Viewer, principal: PrincipalId) -> None:
        """Remove everything of a person for good. What they said in conversations of others is blanked."""
        await self._write(
            "people.erase", viewer, lambda tx: privacy.erase(tx, principal, profile=viewer.profile)
        )

    async def _read(self, label: str, viewer: Viewer, work: Callable[[Transaction], T]) -> T:
        _check_operator(viewer)
        return await self._database.read(label, work)

    async def _write(self, label: str, viewer: Viewer, work: Callable[[Transaction], T]) -> T:
        _check_operator(viewer)
        return await self._database.write(label, work)


def _check_operator(viewer: Viewer) -> None:
    if viewer.principal != OPERATOR:
        raise Forbidden("this is for the operator")


def _find_principal(tx: Transaction, profile: ProfileId, platform: str, handle: str) -> PrincipalId:
    found = people.find_by_handle(tx, profile=profile, platform=platform, handle=source.parse_handle(handle))
    if found is None:
        raise NotFound(f"{handle} on {platform} has not talked here: `keryx people list` shows who has")
    return found


def _load_person(tx: Transaction, principal: Principal) -> PersonSummary:
    profile, known = principal.profile, {(i.platform, i.person) for i in principal.identities}
    return PersonSummary(
        principal=principal,
        grants=[g for g in access.list_grants(tx, profile) if (g.platform, g.person) in known],
        lanes=len(lanes.list_for_owner(tx, profile=profile, owner=principal.id)),
        sessions=len(sessions.list_ids_for_owner(tx, profile=profile, owner=principal.id)),
    )
