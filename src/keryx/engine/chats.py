"""Chats: what follows when a platform gives a chat another id."""

from datetime import datetime
from typing import TypeVar

import msgspec

from keryx.core import lanes
from keryx.core.deliveries import Target
from keryx.core.lanes import Sharing
from keryx.core.source import Source
from keryx.store import homes, jobs
from keryx.store import lanes as lane_store
from keryx.store.database import Transaction
from keryx.store.lanes import Lane

P = TypeVar("P", Source, Target)
_WHY = "the chat has a new id"


def move(
    tx: Transaction, *, platform: str, account: str, old: str, new: str, sharing: Sharing, now: datetime
) -> None:
    """Let every lane, every job and the home channel of a chat go on under the chat's new id. A lane that has begun there
    already stays as it is; doing it twice changes nothing."""
    for lane in lane_store.of_chat(tx, platform=platform, account=account, chat=old):
        if lane.session is not None:
            _move(tx, lane, new, sharing, now)

    def moved(place: P) -> P:
        here = (place.platform, place.account, place.chat) == (platform, account, old)
        return msgspec.structs.replace(place, chat=new) if here else place

    for job in jobs.everybodys(tx):
        targets, source = tuple(map(moved, job.targets)), job.source and moved(job.source)
        if (targets, source) != (job.targets, job.source):
            jobs.move_chat(tx, job, targets, source)
    for home in homes.every(tx):
        if (target := moved(home.target)) != home.target:
            homes.move(tx, home, target)


def _move(tx: Transaction, lane: Lane, new: str, sharing: Sharing, now: datetime) -> None:
    source = msgspec.structs.replace(lane.source, chat=new)
    address = lanes.address(source, sharing=sharing)
    there = lane_store.ensure(tx, address, source, owner=lane.owner, now=now)
    if there.session is not None:
        return
    lane_store.move(tx, there, lane.session, why=_WHY, now=now)
    lane_store.set_mirror(tx, there, lane.mirror)
    lane_store.set_instructions(tx, there, lane.instructions)
    lane_store.touch(tx, there, now=lane.active_at, expires_at=lane.expires_at)
    lane_store.move(tx, lane, None, why=_WHY, now=now)
    lane_store.postpone(tx, lane, None)
