"""Delivery targets: resolve them by name or home channel, check that the viewer may use them, and post to them."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from keryx.core.deliveries import LOCAL, Target, parse_targets
from keryx.core.errors import Invalid
from keryx.core.ids import OPERATOR, ProfileId
from keryx.core.ports.adapter import PlatformReach, check_target
from keryx.core.sessions import Viewer
from keryx.core.turns import Turn
from keryx.store import deliveries, inbox, lanes, platforms
from keryx.store.db.database import Transaction

RESTART_NOTICE = "Keryx is back."
_NOTICE_CURSOR = "notices:restart"
_NOTICE_INTERVAL = timedelta(minutes=5)
_MAX_LISTED = 20


def resolve(
    tx: Transaction,
    text: str,
    *,
    profile: ProfileId,
    origin: Target | None = None,
    accounts: Mapping[str, PlatformReach] | None = None,
) -> list[Target]:
    """The targets that a text names, each with its chat. `accounts` are the connected platforms. `Invalid` for a
    platform that is not among them or has no home channel, and for what cannot be an id there."""
    return [_complete_target(tx, target, profile, accounts) for target in parse_targets(text, origin=origin)]


def _complete_target(
    tx: Transaction, target: Target, profile: ProfileId, accounts: Mapping[str, PlatformReach] | None
) -> Target:
    if accounts is not None and target.platform not in accounts:
        known = ", ".join(sorted(accounts))
        raise Invalid(f"{target.platform} is not connected: choose among {known}, or set it up first")
    if target.chat or target.platform == LOCAL:
        reach = (accounts or {}).get(target.platform, PlatformReach())
        check_target(target, reach)
        return msgspec.structs.replace(target, account=target.account or reach.account)
    home = platforms.find_home(tx, target.platform, profile=profile)
    if home is None:
        raise Invalid(
            f"{target.platform} has no home channel: write /home in the chat that is to be it,"
            f" or name a chat, as in {target.platform}:123"
        )
    return home.target


def announce_restart(tx: Transaction) -> int:
    """Tell every home channel that Keryx is back, at most once in a while; gives how many are told."""
    last, found = inbox.get_cursor(tx, _NOTICE_CURSOR), platforms.list_homes(tx)
    if not found or (last is not None and datetime.fromisoformat(last) > tx.now - _NOTICE_INTERVAL):
        return 0
    inbox.set_cursor(tx, _NOTICE_CURSOR, tx.now.isoformat())
    for home in found:
        deliveries.enqueue(tx, home.target, RESTART_NOTICE, of=Viewer(home.profile, OPERATOR))
    return len(found)


def post(
    tx: Transaction,
    turn: Turn,
    viewer: Viewer,
    where: str,
    text: str,
    *,
    reach: Mapping[str, PlatformReach],
    alone: bool,
) -> list[Target]:
    """Write a delivery for each target that `where` names; gives the targets. A platform alone means its home channel.
    `Invalid` for a place that is not the viewer's. Without `alone`, others listen in, and only the place that asked is allowed."""
    if not text.strip():
        raise Invalid("there is nothing to send: give a text")
    found = resolve_for_viewer(tx, viewer, where, origin=turn.reply, reach=reach, alone=alone)
    for target in found:
        deliveries.enqueue(tx, target, text, of=turn)
    return found


def resolve_for_viewer(
    tx: Transaction,
    viewer: Viewer,
    where: str,
    *,
    origin: Target | None,
    reach: Mapping[str, PlatformReach],
    alone: bool,
) -> list[Target]:
    """The targets that `where` names, each a place of the viewer's. Without `alone` only `origin` is allowed."""
    places = _list_allowed(tx, viewer) if alone else []
    named = resolve(tx, where, profile=viewer.profile, origin=origin, accounts=reach or None)
    return [_check_allowed(t, origin, places) for t in named]


def _check_allowed(target: Target, origin: Target | None, places: list[Target]) -> Target:
    if target == origin:
        return target
    exact = [p for p in places if p.key == target.key]
    found = exact[:1] or [p for p in places if _matches(target, p)]
    if len(found) != 1:
        names = ", ".join(str(p) for p in places[:_MAX_LISTED]) or "none"
        why = "names several places" if found else "is no place that this person talks in"
        raise Invalid(f"{str(target)!r} {why}: send to origin, or to one of these: {names}")
    return found[0]


def _list_allowed(tx: Transaction, viewer: Viewer) -> list[Target]:
    """Where a viewer talks, the latest first; the operator also has the folder of local answers."""
    sources = [lane.source for lane in lanes.list_recent(tx, viewer)]
    talked = [Target(s.platform, s.account, s.chat, s.thread or "") for s in sources if s.chat]
    if viewer.principal != OPERATOR:
        return list(dict.fromkeys(talked))
    at_home = [home.target for home in platforms.list_homes(tx, viewer.profile)]
    return list(dict.fromkeys([*talked, *at_home, Target(LOCAL)]))


def _matches(target: Target, place: Target) -> bool:
    if target.platform != place.platform:
        return False
    return not target.chat or (target.chat, target.thread) == (place.chat, place.thread)
