"""Posts: what an agent sends somewhere by itself, and where it may send to."""

from collections.abc import Mapping
from datetime import datetime

from keryx.core.deliveries import LOCAL, Target
from keryx.core.errors import Invalid
from keryx.core.ids import OPERATOR
from keryx.core.sessions import Viewer
from keryx.core.shapes import Reach
from keryx.core.turns import Turn
from keryx.engine import homes
from keryx.store import deliveries, lanes
from keryx.store import homes as home_store
from keryx.store.database import Transaction

_LISTED = 20


def post(
    tx: Transaction,
    turn: Turn,
    viewer: Viewer,
    where: str,
    text: str,
    *,
    reach: Mapping[str, Reach],
    alone: bool,
    now: datetime,
) -> list[Target]:
    """Write a delivery for each target that `where` names; gives the targets. A platform alone means its home channel.
    `Invalid` for a place that is not the viewer's. Without `alone`, others listen in, and only the place that asked is allowed."""
    if not text.strip():
        raise Invalid("there is nothing to send: give a text")
    found = targets(tx, viewer, where, origin=turn.reply, reach=reach, alone=alone)
    for target in found:
        deliveries.enqueue(
            tx,
            target,
            text,
            profile=turn.profile,
            owner=turn.owner,
            session=turn.session,
            turn=turn.id,
            now=now,
        )
    return found


def targets(
    tx: Transaction,
    viewer: Viewer,
    where: str,
    *,
    origin: Target | None,
    reach: Mapping[str, Reach],
    alone: bool,
) -> list[Target]:
    """The targets that `where` names, each a place of the viewer's. Without `alone` only `origin` is allowed."""
    places = _places(tx, viewer) if alone else []
    named = homes.resolve(tx, where, profile=viewer.profile, origin=origin, accounts=reach or None)
    return [_checked(t, origin, places) for t in named]


def _checked(target: Target, origin: Target | None, places: list[Target]) -> Target:
    if target == origin:
        return target
    exact = [p for p in places if p.key == target.key]
    found = exact[:1] or [p for p in places if _fits(target, p)]
    if len(found) != 1:
        names = ", ".join(str(p) for p in places[:_LISTED]) or "none"
        why = "names several places" if found else "is no place that this person talks in"
        raise Invalid(f"{str(target)!r} {why}: send to origin, or to one of these: {names}")
    return found[0]


def _places(tx: Transaction, viewer: Viewer) -> list[Target]:
    """Where a viewer talks, the latest first; the operator also has the folder of local answers."""
    sources = [lane.source for lane in lanes.page(tx, viewer)]
    talked = [Target(s.platform, s.account, s.chat, s.thread or "") for s in sources if s.chat]
    if viewer.principal != OPERATOR:
        return list(dict.fromkeys(talked))
    at_home = [home.target for home in home_store.every(tx, viewer.profile)]
    return list(dict.fromkeys([*talked, *at_home, Target(LOCAL)]))


def _fits(target: Target, place: Target) -> bool:
    if target.platform != place.platform:
        return False
    return not target.chat or (target.chat, target.thread) == (place.chat, place.thread)
