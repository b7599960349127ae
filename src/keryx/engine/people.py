"""People: the verbs about who may talk and who is who, as `hub.people`. They are for the operator alone."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from keryx.core.access import Verdict
from keryx.core.errors import Forbidden
from keryx.core.ids import OPERATOR
from keryx.core.ports import Clock
from keryx.core.sessions import Viewer
from keryx.core.source import Source
from keryx.engine import access, pairing
from keryx.engine.policy import Policy
from keryx.store import grants, pairings
from keryx.store.database import Database, Transaction
from keryx.store.grants import Grant
from keryx.store.pairings import Pairing

T = TypeVar("T")


class Doorway(msgspec.Struct, frozen=True, kw_only=True):
    """Who stands at the door, and who was let in by a person."""

    waiting: list[Pairing]
    let_in: list[Grant]


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
            lambda tx: pairing.deny(tx, profile=viewer.profile, platform=platform, person=person, now=now),
        )

    async def revoke(self, viewer: Viewer, platform: str, person: str) -> None:
        """Take back what an approval gave."""
        now = self._clock.now()
        await self._write(
            "people.revoke",
            viewer,
            lambda tx: pairing.revoke(tx, profile=viewer.profile, platform=platform, person=person, now=now),
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
