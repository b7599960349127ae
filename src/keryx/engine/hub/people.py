"""Who may talk and who is who: pairing, grants, identities, export and erasure, for the operator only; and browser sign-ins."""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import msgspec

from keryx.core import ids, source
from keryx.core.access import Grant, Pairing, Verdict
from keryx.core.errors import Forbidden, Invalid, NotFound
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId
from keryx.core.sessions import Viewer
from keryx.core.source import Source
from keryx.engine.hub.verbs import HubPart, bind_read, bind_write, read_unit, write_unit
from keryx.engine.policy import Policy
from keryx.engine.units import access as pairing
from keryx.engine.units import identities, privacy, relay
from keryx.engine.units.privacy import LineWriter
from keryx.store import access, lanes, people, sessions
from keryx.store.access import SignIn
from keryx.store.db import Database, Transaction
from keryx.store.people import Principal

SIGN_IN_LIFETIME = timedelta(days=30)
_SEEN_INTERVAL = timedelta(hours=1)
P = ParamSpec("P")
T = TypeVar("T")
Part = TypeVar("Part", bound=HubPart)
PersonHandle = tuple[str, str]
"""A platform, and the id of a person on it."""


class PairingOverview(msgspec.Struct, frozen=True, kw_only=True):
    # Open requests, oldest first.
    waiting: list[Pairing]
    # The people who were approved.
    granted: list[Grant]


class PersonSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A person who has talked."""

    principal: Principal
    grants: list[Grant]
    # Numbers of lanes and sessions that the person owns.
    lanes: int
    sessions: int


def _for_operator(
    method: Callable[Concatenate[Part, Transaction, Viewer, P], T],
) -> Callable[Concatenate[Part, Transaction, Viewer, P], T]:
    """Raise `Forbidden` unless the viewer is the operator."""

    @wraps(method)
    def check_and_call(self: Part, tx: Transaction, viewer: Viewer, *args: P.args, **kwargs: P.kwargs) -> T:
        if viewer.principal != OPERATOR:
            raise Forbidden("this is for the operator")
        return method(self, tx, viewer, *args, **kwargs)

    return check_and_call


class HubPeople(HubPart):
    def __init__(self, database: Database, *, policy: Policy) -> None:
        super().__init__(database)
        self._policy = policy

    @read_unit("access")
    def is_allowed(self, tx: Transaction, source: Source) -> bool:
        """Whether the author of a source may talk in its chat now."""
        if self._policy.relay is not None and relay.may_enter(tx, source):
            return True
        placed = self._policy.assign_profile(source)
        return pairing.judge(tx, placed, self._policy.access) is Verdict.ALLOWED

    @read_unit("people.doorway")
    @_for_operator
    def list_pairings(self, tx: Transaction, viewer: Viewer) -> PairingOverview:
        waiting = access.list_open_pairings(tx, profile=viewer.profile)
        return PairingOverview(waiting=waiting, granted=access.list_grants(tx, viewer.profile))

    @write_unit("people.approve")
    @_for_operator
    def approve(
        self, tx: Transaction, viewer: Viewer, platform: str, code: str, *, operator: bool = False
    ) -> Grant:
        """Grant access to the person who has this code, in the profile of the chat that was told the code. Raise
        `NotFound` for a wrong code."""
        return pairing.approve_pairing(tx, code, platform=platform, operator=operator, by=viewer.principal)

    @write_unit("people.deny")
    @_for_operator
    def deny(self, tx: Transaction, viewer: Viewer, platform: str, person: str) -> None:
        """Discard a stranger's request."""
        handle = source.parse_handle(person)
        pairing.deny_pairing(tx, profile=viewer.profile, platform=platform, person=handle)

    @write_unit("people.role")
    @_for_operator
    def set_role(
        self, tx: Transaction, viewer: Viewer, platform: str, person: str, *, operator: bool
    ) -> Grant:
        """Set whether a person with a grant may use the commands of operators. Raise `NotFound` without a grant."""
        handle = source.parse_handle(person)
        grant = access.find_grant(tx, profile=viewer.profile, platform=platform, person=handle)
        if grant is None:
            raise NotFound(f"{person} on {platform} was not let in: `keryx pairing list` shows who was")
        return access.add_grant(
            tx,
            profile=viewer.profile,
            platform=platform,
            person=handle,
            name=grant.name,
            operator=operator,
            by=viewer.principal,
        )

    @write_unit("people.merge")
    @_for_operator
    def merge(
        self, tx: Transaction, viewer: Viewer, one: PrincipalId, other: PrincipalId | None
    ) -> PrincipalId:
        """Merge two people by their ids; without `other`, merge one with the operator. Return who they are from now on."""
        for principal in filter(None, (one, other)):
            people.get(tx, principal, profile=viewer.profile)
        return identities.merge(tx, one, other or OPERATOR, profile=viewer.profile)

    @write_unit("people.clear")
    @_for_operator
    def clear_pairings(self, tx: Transaction, viewer: Viewer, platform: str | None) -> int:
        """Discard every open request, on one platform or on all, and return their number."""
        return pairing.clear_pairings(tx, profile=viewer.profile, platform=platform)

    @write_unit("people.revoke")
    @_for_operator
    def revoke(self, tx: Transaction, viewer: Viewer, platform: str, person: str) -> None:
        handle = source.parse_handle(person)
        pairing.revoke_grant(tx, profile=viewer.profile, platform=platform, person=handle)

    @read_unit("people.every")
    @_for_operator
    def list_all(self, tx: Transaction, viewer: Viewer) -> list[PersonSummary]:
        """Return all people who have talked, in the order of their first message."""
        return [_load_person(tx, p) for p in people.list_all(tx, viewer.profile)]

    @read_unit("people.find")
    @_for_operator
    def find(self, tx: Transaction, viewer: Viewer, platform: str, handle: str) -> PersonSummary:
        """Return the person who has an id on a platform."""
        principal = _find_principal(tx, viewer.profile, platform, handle)
        return _load_person(tx, people.get(tx, principal, profile=viewer.profile))

    @write_unit("people.link")
    @_for_operator
    def link(
        self, tx: Transaction, viewer: Viewer, one: PersonHandle, other: PersonHandle | None
    ) -> PrincipalId:
        """Merge two people; without `other`, merge one with the operator. Return who they are from now on."""
        first = _find_principal(tx, viewer.profile, *one)
        second = OPERATOR if other is None else _find_principal(tx, viewer.profile, *other)
        return identities.merge(tx, first, second, profile=viewer.profile)

    @write_unit("people.unlink")
    @_for_operator
    def unlink(self, tx: Transaction, viewer: Viewer, platform: str, handle: str) -> PrincipalId:
        """Split one identity off a person, with what began there. Return the new person."""
        handle = source.parse_handle(handle)
        return identities.split(tx, profile=viewer.profile, platform=platform, handle=handle)

    async def add_alias(self, source: Source, other: str) -> None:
        """Record that the author of a source has another id on the same platform."""
        if self._policy.relay is not None and await self._database.write(
            "relay.alias", lambda tx: relay.queue_alias(tx, source, other)
        ):
            return
        placed = self._policy.assign_profile(source)
        person = pairing.identify(placed)
        if not person:
            raise Invalid(f"a message from {placed.platform!r} names nobody: set its user")
        await self.learn_alias(Viewer(placed.profile, OPERATOR), placed.platform, person, other)

    @write_unit("people.alias")
    @_for_operator
    def learn_alias(self, tx: Transaction, viewer: Viewer, platform: str, one: str, other: str) -> None:
        """Merge everything of two ids of a platform that belong to one person."""
        profile, sharing = viewer.profile, self._policy.sharing
        identities.learn_alias(tx, one, other, profile=profile, platform=platform, sharing=sharing)

    @read_unit("people.export")
    @_for_operator
    def export(self, tx: Transaction, viewer: Viewer, principal: PrincipalId, write: LineWriter) -> None:
        """Write everything of a person as lines of JSON: identity, conversations, and messages in those of others."""
        privacy.export(tx, viewer, principal, write)

    @write_unit("people.erase")
    @_for_operator
    def erase(self, tx: Transaction, viewer: Viewer, principal: PrincipalId) -> None:
        """Erase everything of a person. Their messages in conversations of others are blanked."""
        privacy.erase(tx, principal, profile=viewer.profile)


def _find_principal(tx: Transaction, profile: ProfileId, platform: str, handle: str) -> PrincipalId:
    principal = people.find_by_handle(
        tx, profile=profile, platform=platform, handle=source.parse_handle(handle)
    )
    if principal is None:
        raise NotFound(f"{handle} on {platform} has not talked here: `keryx people list` shows who has")
    return principal


def _load_person(tx: Transaction, principal: Principal) -> PersonSummary:
    profile, handles = principal.profile, {(i.platform, i.person) for i in principal.identities}
    return PersonSummary(
        principal=principal,
        grants=[g for g in access.list_grants(tx, profile) if (g.platform, g.person) in handles],
        lanes=len(lanes.list_for_owner(tx, profile=profile, owner=principal.id)),
        sessions=len(sessions.list_ids_for_owner(tx, profile=profile, owner=principal.id)),
    )


class HubSignIns(HubPart):
    list_all = bind_read("sign_ins", access.list_sign_ins)
    end = bind_write("sign_in.end", access.remove_sign_in)

    @write_unit("sign_in.begin")
    def create(self, tx: Transaction, viewer: Viewer, *, browser: str) -> tuple[str, str]:
        """Return the id of a new sign-in and its secret, which cannot be read again."""
        secret = secrets.token_urlsafe(32)
        sign_in = SignIn(
            id=ids.new(tx.now),
            viewer=viewer,
            digest=_hash_secret(secret),
            browser=browser[:200],
            created_at=tx.now,
            seen_at=tx.now,
            expires_at=tx.now + SIGN_IN_LIFETIME,
        )
        access.add_sign_in(tx, sign_in)
        return sign_in.id, secret

    async def check(self, id_: str, secret: str) -> Viewer | None:
        """Return the viewer of a sign-in, `None` if it has ended or the secret is wrong."""
        sign_in = await self._database.read("sign_in.check", lambda tx: access.find_sign_in(tx, id_))
        if sign_in is None or not hmac.compare_digest(sign_in.digest, _hash_secret(secret)):
            return None
        if self._database.clock.now() - sign_in.seen_at > _SEEN_INTERVAL:
            await self._database.write("sign_in.see", lambda tx: access.touch_sign_in(tx, id_))
        return sign_in.viewer


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
