"""Home channels: where a platform's name alone leads, and who is told when Keryx is back."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from keryx.core.deliveries import LOCAL, Target, parse_target
from keryx.core.errors import Invalid
from keryx.core.ids import OPERATOR, ProfileId
from keryx.core.shapes import Reach, check_target
from keryx.store import cursors, deliveries, homes
from keryx.store.database import Transaction

BACK = "Keryx is back."
_TOLD = "notices:restart"
_SELDOM = timedelta(minutes=5)


def resolve(
    tx: Transaction,
    text: str,
    *,
    profile: ProfileId,
    origin: Target | None = None,
    accounts: Mapping[str, Reach] | None = None,
) -> list[Target]:
    """The targets that a text names, each with its chat. `accounts` are the connected platforms. `Invalid` for a
    platform that is not among them or has no home channel, and for what cannot be an id there."""
    return [_complete(tx, target, profile, accounts) for target in parse_target(text, origin=origin)]


def _complete(
    tx: Transaction, target: Target, profile: ProfileId, accounts: Mapping[str, Reach] | None
) -> Target:
    if accounts is not None and target.platform not in accounts:
        known = ", ".join(sorted(accounts))
        raise Invalid(f"{target.platform} is not connected: choose among {known}, or set it up first")
    if target.chat or target.platform == LOCAL:
        reach = (accounts or {}).get(target.platform, Reach())
        check_target(target, reach)
        return msgspec.structs.replace(target, account=target.account or reach.account)
    home = homes.find(tx, target.platform, profile=profile)
    if home is None:
        raise Invalid(
            f"{target.platform} has no home channel: write /home in the chat that is to be it,"
            f" or name a chat, as in {target.platform}:123"
        )
    return home.target


def tell_back(tx: Transaction, *, now: datetime) -> int:
    """Tell every home channel that Keryx is back, at most once in a while; gives how many are told."""
    last, found = cursors.get(tx, _TOLD), homes.every(tx)
    if not found or (last is not None and datetime.fromisoformat(last) > now - _SELDOM):
        return 0
    cursors.move(tx, _TOLD, now.isoformat(), now=now)
    for home in found:
        deliveries.enqueue(tx, home.target, BACK, profile=home.profile, owner=OPERATOR, now=now)
    return len(found)
