"""Policy: every choice the engine makes by setting, in one frozen value."""

from datetime import timedelta

import msgspec

from keryx.core import profiles
from keryx.core.access import Rules
from keryx.core.deliveries import Doubt
from keryx.core.lanes import Sharing
from keryx.core.profiles import Profiles
from keryx.core.resets import BUSY_LIMIT, Resets
from keryx.core.source import Source
from keryx.core.turns import BusyMode, Limits


class Keep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long things are remembered. `erase`: the grace period of a deleted session."""

    inbox: timedelta = timedelta(days=14)
    feed: timedelta = timedelta(days=7)
    lanes: timedelta = timedelta(days=90)
    erase: timedelta = timedelta(days=30)


class Notices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What people are told without having asked. `restart`: home channels hear that Keryx is back."""

    restart: bool = False


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """`access` holds the rule of each platform; one without a rule is closed."""

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
    send_timeout: timedelta = timedelta(seconds=60)
    give_up: timedelta = timedelta(hours=24)
    final_tries: int = 5

    def placed(self, source: Source) -> Source:
        """The source with the profile that its place belongs to."""
        profile = profiles.choose(source, self.profiles)
        return source if profile == source.profile else msgspec.structs.replace(source, profile=profile)
