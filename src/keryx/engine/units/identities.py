"""Merge and split people, learn aliases, and move a chat to a new id. No message is lost."""

from typing import TypeVar

import msgspec

from keryx.core import ids, lanes
from keryx.core import source as sources
from keryx.core.deliveries import Target
from keryx.core.errors import Conflict, Invalid
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId
from keryx.core.lanes import Lane, LaneSharing
from keryx.core.source import Source
from keryx.core.texts import Phrase
from keryx.engine.units import access
from keryx.store import access as access_store
from keryx.store import imports, jobs, overheard, people, platforms, sessions
from keryx.store import lanes as lane_store
from keryx.store.db import Transaction

_MAX_ID_LENGTH = 200
P = TypeVar("P", Source, Target)
_MOVE_REASON = Phrase("move.new_id")


def merge(tx: Transaction, one: PrincipalId, other: PrincipalId, *, profile: ProfileId) -> PrincipalId:
    """Merge two people and return who remains: the operator, or else the one who came first."""
    if one == other:
        return one
    if OPERATOR in (one, other):
        people.ensure_operator(tx, profile=profile)
    remaining, absorbed = (
        (one, other) if other != OPERATOR and (one == OPERATOR or one < other) else (other, one)
    )
    people.transfer_ownership(tx, profile=profile, old=absorbed, new=remaining)
    people.remove_link_code(tx, absorbed, profile=profile)
    people.remove(tx, absorbed)
    return remaining


def split(tx: Transaction, *, profile: ProfileId, platform: str, handle: str) -> PrincipalId:
    """Split one identity off a person, with the lanes, sessions and jobs that began there. Return the new person."""
    old = people.find_by_handle(tx, profile=profile, platform=platform, handle=handle)
    if old is None:
        raise people.build_unknown_error(f"{platform}:{handle}")
    known_identities = people.list_identities(tx, old, profile=profile)
    if len(known_identities) < 2 and old != OPERATOR:
        raise Conflict(f"{handle} on {platform} is linked with nobody: there is nothing to cut")
    name = next((i.name for i in known_identities if (i.platform, i.person) == (platform, handle)), "")
    new = people.add(tx, profile=profile, name=name)
    people.reassign_identity(tx, profile=profile, platform=platform, handle=handle, principal=new)
    for id_ in sessions.list_ids_for_owner(tx, profile=profile, owner=old):
        session = sessions.get(tx, id_, deleted=True)
        if session.origin and _is_author(tx, session.origin, platform, handle):
            sessions.change_owner(tx, session, new)
            imports.change_owner(tx, session.id, old=session.owner, new=new)
    for lane in lane_store.list_for_owner(tx, profile=profile, owner=old):
        if _is_author(tx, lane.source, platform, handle):
            lane_store.change_owner(tx, lane, new)
    for job in jobs.list_for_owner(tx, profile=profile, owner=old):
        if job.source and _is_author(tx, job.source, platform, handle):
            jobs.change_owner(tx, job, new)
    for owner in (old, new):
        for lane in lane_store.list_for_owner(tx, profile=profile, owner=owner):
            if lane.session and sessions.get(tx, lane.session, deleted=True).owner != owner:
                lane_store.move(tx, lane, None, why=Phrase("move.unlinked"))
    return new


def learn_alias(
    tx: Transaction,
    one: str,
    other: str,
    *,
    profile: ProfileId,
    platform: str,
    sharing: LaneSharing,
) -> None:
    """Record that two ids of a platform belong to one person, and merge their people, grants and lanes."""
    if not sources.supports_aliases(platform):
        raise Invalid(f"on {platform} one person has one id: there is nothing to learn")
    first, second = (sources.normalize_user(platform, user) for user in (one, other))
    if not first or not second or max(len(first), len(second)) > _MAX_ID_LENGTH:
        raise Invalid(f"ids of people have 1 to {_MAX_ID_LENGTH} characters")
    _, person, old = people.link_aliases(tx, profile=profile, platform=platform, one=first, other=second)
    if person == old:
        return
    platform, person, old = ids.escape(platform), ids.escape(person), ids.escape(old)
    owner = _merge_identities(tx, profile, platform, person, old)
    access_store.rename_grant(tx, profile=profile, platform=platform, old=old, new=person)
    access_store.remove_pairing(tx, profile=profile, platform=platform, person=old)
    if owner is not None:
        for lane in lane_store.list_for_owner(tx, profile=profile, owner=owner):
            _readdress(tx, lane, sharing)


def _merge_identities(
    tx: Transaction, profile: ProfileId, platform: str, person: str, old: str
) -> PrincipalId | None:
    """Merge two identities under the first. Return the owner, `None` if neither has talked yet."""
    owner = people.find_by_handle(tx, profile=profile, platform=platform, handle=person)
    old_owner = people.find_by_handle(tx, profile=profile, platform=platform, handle=old)
    if old_owner is None:
        return owner
    if owner is None:
        people.rename_identity(tx, profile=profile, platform=platform, old=old, new=person)
        return old_owner
    merged = merge(tx, owner, old_owner, profile=profile)
    people.remove_identity(tx, profile=profile, platform=platform, handle=old)
    return merged


def _readdress(tx: Transaction, lane: Lane, sharing: LaneSharing) -> None:
    """Move a lane to the current address of its source, and merge it with the lane that is there."""
    aliases = access.find_aliases(tx, lane.source)
    key = lanes.build_address(lane.source, sharing=sharing, aliases=aliases).key
    if key == lane.key:
        return
    other = lane_store.find_locked(tx, key)
    if other is None:
        lane_store.rekey(tx, lane, key)
        return
    lane_store.merge_history(tx, other, lane)
    newer = lane if other.session is None or (lane.session and lane.active_at > other.active_at) else other
    moved = lane_store.move(tx, other, newer.session, why=Phrase("move.joined", lane=lane.key))
    if newer is lane:
        lane_store.touch(tx, moved, active_at=lane.active_at, expires_at=lane.expires_at)


def _is_author(tx: Transaction, source: Source, platform: str, handle: str) -> bool:
    person = access.identify(source)
    if ids.escape(source.platform) != platform or not person:
        return False
    return sources.build_handle(source.platform, person, aliases=access.find_aliases(tx, source)) == handle


def move_chat(
    tx: Transaction, *, platform: str, account: str, old: str, new: str, sharing: LaneSharing
) -> None:
    """Move every lane, every job and the home channel of a chat to the chat's new id. A lane that has a session there
    already is not changed. Idempotent."""
    for lane in lane_store.list_for_chat(tx, platform=platform, account=account, chat=old):
        if lane.session is not None:
            _move_lane(tx, lane, new, sharing)

    def move(address: P) -> P:
        matches = (address.platform, address.account, address.chat) == (platform, account, old)
        return msgspec.structs.replace(address, chat=new) if matches else address

    for job in jobs.list_all(tx):
        targets, source = tuple(map(move, job.targets)), job.source and move(job.source)
        if (targets, source) != (job.targets, job.source):
            jobs.move_chat(tx, job, targets, source)
    overheard.move_chat(tx, platform=platform, account=account, old=old, new=new)
    for home in platforms.list_homes(tx):
        if (target := move(home.target)) != home.target:
            platforms.move_home(tx, home, target)


def _move_lane(tx: Transaction, lane: Lane, new: str, sharing: LaneSharing) -> None:
    source = msgspec.structs.replace(lane.source, chat=new)
    address = lanes.build_address(source, sharing=sharing)
    new_lane = lane_store.ensure(tx, address, source, owner=lane.owner)
    if new_lane.session is not None:
        return
    lane_store.move(tx, new_lane, lane.session, why=_MOVE_REASON)
    lane_store.set_mirror(tx, new_lane, lane.mirror)
    lane_store.set_instructions(tx, new_lane, lane.instructions)
    lane_store.touch(tx, new_lane, active_at=lane.active_at, expires_at=lane.expires_at)
    lane_store.move(tx, lane, None, why=_MOVE_REASON)
    lane_store.set_expiry(tx, lane, None)
