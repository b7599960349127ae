"""Kinship: two ids turn out to be one person, or one person to be two. Nothing that was said is lost."""

from datetime import datetime

from keryx.core import identity, ids, lanes
from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId
from keryx.core.lanes import Sharing
from keryx.core.source import Source
from keryx.engine import access
from keryx.store import belongings, grants, handles, jobs, links, pairings, principals, sessions
from keryx.store import lanes as lane_store
from keryx.store.database import Transaction
from keryx.store.lanes import Lane

_LONGEST = 200


def join(
    tx: Transaction, one: PrincipalId, other: PrincipalId, *, profile: ProfileId, now: datetime
) -> PrincipalId:
    """Let two people be one. The operator stays the operator; of others, the one who came first stays."""
    if one == other:
        return one
    if OPERATOR in (one, other):
        principals.ensure_operator(tx, profile=profile, now=now)
    kept, gone = (one, other) if other != OPERATOR and (one == OPERATOR or one < other) else (other, one)
    belongings.give(tx, profile=profile, old=gone, new=kept, now=now)
    links.remove(tx, gone, profile=profile)
    principals.remove(tx, gone)
    return kept


def split(tx: Transaction, *, profile: ProfileId, platform: str, handle: str, now: datetime) -> PrincipalId:
    """Let one way in which a person is known stand alone, with the chats, conversations and jobs that began
    there."""
    old = principals.holder(tx, profile=profile, platform=platform, handle=handle)
    if old is None:
        raise NotFound(f"{handle} on {platform} is nobody that Keryx knows: `keryx people list` shows them")
    known = principals.identities(tx, old, profile=profile)
    if len(known) < 2 and old != OPERATOR:
        raise Conflict(f"{handle} on {platform} is linked with nobody: there is nothing to cut")
    name = next((i.name for i in known if (i.platform, i.person) == (platform, handle)), "")
    new = principals.add(tx, profile=profile, name=name, now=now)
    principals.hand_over(tx, profile=profile, platform=platform, handle=handle, principal=new)
    for id_ in sessions.of_owner(tx, profile=profile, owner=old):
        session = sessions.get(tx, id_, deleted=True)
        if session.origin and _from(tx, session.origin, platform, handle):
            sessions.give(tx, session, new, now=now)
    for lane in lane_store.of_owner(tx, profile=profile, owner=old):
        if _from(tx, lane.source, platform, handle):
            lane_store.give(tx, lane, new)
    for job in jobs.of_owner(tx, profile=profile, owner=old):
        if job.source and _from(tx, job.source, platform, handle):
            jobs.give(tx, job, new, now=now)
    for owner in (old, new):
        _part(tx, owner, profile=profile, now=now)
    return new


def learn_alias(
    tx: Transaction,
    one: str,
    other: str,
    *,
    profile: ProfileId,
    platform: str,
    sharing: Sharing,
    now: datetime,
) -> None:
    """Two ids of a platform mean one person: their people, grants and lanes become one, and keep both histories."""
    if not identity.aliased(platform):
        raise Invalid(f"on {platform} one person has one id: there is nothing to learn")
    first, second = (identity.canonical(platform, user) for user in (one, other))
    if not first or not second or max(len(first), len(second)) > _LONGEST:
        raise Invalid(f"ids of people have 1 to {_LONGEST} characters")
    _, person, old = handles.learn(tx, profile=profile, platform=platform, one=first, other=second, now=now)
    if person == old:
        return
    place, known, former = ids.plain(platform), ids.plain(person), ids.plain(old)
    owner = _unite(tx, profile, place, known, former, now)
    grants.rename(tx, profile=profile, platform=place, old=former, new=known)
    pairings.remove(tx, profile=profile, platform=place, person=former)
    if owner is not None:
        for lane in lane_store.of_owner(tx, profile=profile, owner=owner):
            _readdress(tx, lane, sharing, now)


def _unite(
    tx: Transaction, profile: ProfileId, platform: str, known: str, former: str, now: datetime
) -> PrincipalId | None:
    """Let two identities be one, under the first; gives whose it is, `None` if neither has talked yet."""
    kept = principals.holder(tx, profile=profile, platform=platform, handle=known)
    gone = principals.holder(tx, profile=profile, platform=platform, handle=former)
    if gone is None:
        return kept
    if kept is None:
        principals.rename_identity(tx, profile=profile, platform=platform, old=former, new=known)
        return gone
    owner = join(tx, kept, gone, profile=profile, now=now)
    principals.forget_identity(tx, profile=profile, platform=platform, handle=former)
    return owner


def _readdress(tx: Transaction, lane: Lane, sharing: Sharing, now: datetime) -> None:
    """Bring a lane to the address that its source has now, joining it with the lane that is there."""
    known = access.aliases(tx, lane.source)
    key = lanes.address(lane.source, sharing=sharing, aliases=known).key
    if key == lane.key:
        return
    there = lane_store.by_key(tx, key)
    if there is None:
        lane_store.rekey(tx, lane, key)
        return
    lane_store.absorb(tx, there, lane)
    newer = lane if there.session is None or (lane.session and lane.active_at > there.active_at) else there
    moved = lane_store.move(tx, there, newer.session, why=f"joined with {lane.key}", now=now)
    if newer is lane:
        lane_store.touch(tx, moved, now=lane.active_at, expires_at=lane.expires_at)


def _part(tx: Transaction, owner: PrincipalId, *, profile: ProfileId, now: datetime) -> None:
    """Let no lane of a person be in a session of somebody else."""
    for lane in lane_store.of_owner(tx, profile=profile, owner=owner):
        if lane.session and sessions.get(tx, lane.session, deleted=True).owner != owner:
            lane_store.move(tx, lane, None, why="unlinked", now=now)


def _from(tx: Transaction, source: Source, platform: str, handle: str) -> bool:
    person = access.identified(source)
    if ids.plain(source.platform) != platform or not person:
        return False
    return identity.handle(source.platform, person, aliases=access.aliases(tx, source)) == handle
