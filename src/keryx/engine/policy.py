"""Policy: every choice the engine makes by setting, in one frozen value."""

from datetime import timedelta

import msgspec

from keryx.core.deliveries import Doubt
from keryx.core.lanes import Sharing
from keryx.core.resets import BUSY_LIMIT, Resets
from keryx.core.turns import BusyMode, Limits

BUILTIN_TOOLS = "keryx"
"""How the set of built-in tools is called where sessions switch it on and off."""


class Keep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long things are remembered. `erase`: the grace period of a deleted session."""

    inbox: timedelta = timedelta(days=14)
    feed: timedelta = timedelta(days=7)
    lanes: timedelta = timedelta(days=90)
    erase: timedelta = timedelta(days=30)


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """`tools` names the sets of tools that a session can switch on and off."""

    sharing: Sharing = Sharing()
    resets: Resets = Resets()
    busy: BusyMode = BusyMode.QUEUE
    busy_limit: timedelta = BUSY_LIMIT
    limits: Limits = Limits()
    doubt: Doubt = Doubt.REPEAT
    keep: Keep = Keep()
    send_timeout: timedelta = timedelta(seconds=60)
    give_up: timedelta = timedelta(hours=24)
    final_tries: int = 5
    tools: tuple[str, ...] = (BUILTIN_TOOLS,)
