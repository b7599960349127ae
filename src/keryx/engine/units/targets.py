"""Delivery targets: resolve them by name or home channel, check that the viewer may use them, and post to them."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from keryx.core.deliveries import LOCAL, Target, parse_targets
from keryx.core.errors import Invalid
from keryx.core.ids import OPERATOR, ProfileId
from keryx.core.ports.adapter import PlatformReach, check_target, find_account
from keryx.core.sessions import Viewer
from keryx.core.texts import Phrase
from keryx.core.turns import Turn
from keryx.store import deliveries, inbox, lanes, platforms
from keryx.store.db import Transaction

RESTART_NOTICE = Phrase("chat.restarted")
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
    """Return the targets that a text names, each with its chat. `accounts` are the connected platforms.

    Raise `Invalid` for a platform that is not connected or has no home channel, and for an impossible id."""
    named = [
        t if t is origin else find_account(t, accounts or {}) for t in parse_targets(text, origin=origin)
    ]
    return [_complete_target(tx, target, profile, accounts) for target in named]


def _complete_target(
    tx: Transaction, target: Target, profile: ProfileId, accounts: Mapping[str, PlatformReach] | None
) -> Target:
    if accounts is not None and target.platform not in accounts:
        known = ", ".join(sorted(accounts))
        raise Invalid(Phrase("target.not_connected", platform=target.platform, choices=known))
    if target.chat or target.platform == LOCAL:
        reach = (accounts or {}).get(target.platform, PlatformReach())
        check_target(target, reach)
        return msgspec.structs.replace(target, account=target.account or reach.account)
    home = platforms.find_home(tx, target.platform, profile=profile)
    if home is None or target.account not in ("", home.target.account):
        raise Invalid(Phrase("target.no_home", platform=target.platform))
    return home.target


def announce_restart(tx: Transaction) -> int:
    """Send a notice to every home channel, at most every five minutes. Return the number of notices."""
    last, homes = inbox.get_cursor(tx, _NOTICE_CURSOR), platforms.list_homes(tx)
    if not homes or (last is not None and datetime.fromisoformat(last) > tx.now - _NOTICE_INTERVAL):
        return 0
    inbox.set_cursor(tx, _NOTICE_CURSOR, tx.now.isoformat())
    text = tx.texts.speak().render(RESTART_NOTICE)
    for home in homes:
        deliveries.enqueue(tx, home.target, text, of=Viewer(home.profile, OPERATOR))
    return len(homes)


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
    """Enqueue a text for each target that `where` names, and return the targets. See `resolve_for_viewer`."""
    if not text.strip():
        raise Invalid("there is nothing to send: give a text")
    targets = resolve_for_viewer(tx, viewer, where, origin=turn.reply, reach=reach, alone=alone)
    for target in targets:
        deliveries.enqueue(tx, target, text, of=turn)
    return targets


def resolve_for_viewer(
    tx: Transaction,
    viewer: Viewer,
    where: str,
    *,
    origin: Target | None,
    reach: Mapping[str, PlatformReach],
    alone: bool,
) -> list[Target]:
    """Return the targets that `where` names. A platform without a chat is its home channel.

    Raise `Invalid` for a chat that the viewer does not talk in. Without `alone`, others read the conversation, and only
    `origin` is allowed. The operator may also send to every home channel and to the local folder."""
    allowed: list[Target] = []
    if alone:
        sources = [lane.source for lane in lanes.list_recent(tx, viewer)]
        allowed += [Target(s.platform, s.account, s.chat, s.thread or "") for s in sources if s.chat]
        if viewer.principal == OPERATOR:
            allowed += [*(home.target for home in platforms.list_homes(tx, viewer.profile)), Target(LOCAL)]
    named = resolve(tx, where, profile=viewer.profile, origin=origin, accounts=reach or None)
    return [_check_allowed(t, origin, list(dict.fromkeys(allowed))) for t in named]


def _check_allowed(target: Target, origin: Target | None, allowed: list[Target]) -> Target:
    """Return the allowed target that is meant; an account or a chat that was left out is completed."""
    if target == origin:
        return target
    exact = [t for t in allowed if t.key == target.key]
    here = [t for t in allowed if t.platform == target.platform]
    matches = exact[:1] or [
        t for t in here if not target.chat or (t.chat, t.thread) == (target.chat, target.thread)
    ]
    if len(matches) != 1:
        names = ", ".join(str(t) for t in allowed[:_MAX_LISTED]) or "none"
        key = "target.several" if matches else "target.unknown"
        raise Invalid(Phrase(key, target=repr(str(target)), choices=names))
    return matches[0]
