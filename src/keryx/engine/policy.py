"""Policy: every choice the engine makes by setting, in one frozen value."""

from datetime import timedelta
from typing import Annotated

import msgspec

from keryx.core import profiles
from keryx.core.access import Rules
from keryx.core.budgets import Budgets
from keryx.core.deliveries import Doubt
from keryx.core.jobs import Scheduling
from keryx.core.lanes import Sharing
from keryx.core.profiles import Profiles
from keryx.core.resets import BUSY_LIMIT, Resets
from keryx.core.source import Source
from keryx.core.turns import BusyMode, Limits

BUILTIN_TOOLS = "keryx"
"""How the set of built-in tools is called where sessions switch it on and off."""


class Keep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long things are remembered. `erase`: the grace period of a deleted session. `files`: how long a file is
    kept that no session shows."""

    inbox: timedelta = timedelta(days=14)
    feed: timedelta = timedelta(days=7)
    lanes: timedelta = timedelta(days=90)
    erase: timedelta = timedelta(days=30)
    files: timedelta = timedelta(days=1)


class Files(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of pictures, sounds and files. `limit`: the size of the largest, in bytes."""

    limit: Annotated[int, msgspec.Meta(ge=0)] = 20_000_000


class Notices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What people are told without having asked. `restart`: home channels hear that Keryx is back."""

    restart: bool = False


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """`access` holds the rule of each platform; one without a rule is closed. `tools` names the sets of tools that a
    session can switch on and off, `agents` those that it can have, the usual one first."""

    access: Rules = {}
    profiles: Profiles = {}
    sharing: Sharing = Sharing()
    resets: Resets = Resets()
    busy: BusyMode = BusyMode.QUEUE
    busy_limit: timedelta = BUSY_LIMIT
    limits: Limits = Limits()
    doubt: Doubt = Doubt.REPEAT
    keep: Keep = Keep()
    notices: Notices = Notices()
    media: Files = Files()
    jobs: Scheduling = Scheduling()
    budgets: Budgets = Budgets()
    send_timeout: timedelta = timedelta(seconds=60)
    give_up: timedelta = timedelta(hours=24)
    final_tries: int = 5
    tools: tuple[str, ...] = (BUILTIN_TOOLS,)
    agents: tuple[str, ...] = ()

    def placed(self, source: Source) -> Source:
        """The source with the profile that its place belongs to."""
        profile = profiles.choose(source, self.profiles)
        return source if profile == source.profile else msgspec.structs.replace(source, profile=profile)
