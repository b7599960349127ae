"""Reset policies: when a lane starts a new session after idle time or at a daily hour."""

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from typing import Annotated

import msgspec

from keryx.core import clock
from keryx.core.errors import Invalid
from keryx.core.source import ChatType

BUSY_LIMIT = timedelta(hours=24)

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
_TICK = datetime.resolution
_LONGEST_IDLE = timedelta(days=36_500)


class ResetMode(StrEnum):
    NONE = "none"
    IDLE = "idle"
    DAILY = "daily"
    BOTH = "both"


class ResetReason(StrEnum):
    IDLE = "idle"
    DAILY = "daily"
    SUSPENDED = "suspended"


class ResetPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a lane starts a new session. Raises `Invalid` for a wrong hour, zone or idle time in every mode."""

    mode: ResetMode = ResetMode.NONE
    # Reset after this long without a message.
    idle: timedelta = timedelta(hours=24)
    # The local hour of the daily reset.
    hour: Annotated[int, msgspec.Meta(ge=0, le=23)] = 4
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if not timedelta(0) < self.idle <= _LONGEST_IDLE:
            raise Invalid("idle: give a time above zero, at most a century")
        if not 0 <= self.hour <= 23:
            raise Invalid(f"hour: {self.hour} is not an hour of the day; give 0 to 23")
        clock.find_zone(self.zone)


class ResetPolicies(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A default policy, and overrides that replace it as a whole."""

    default: ResetPolicy = msgspec.field(default_factory=ResetPolicy)
    chat_types: Mapping[ChatType, ResetPolicy] = {}
    platforms: Mapping[str, ResetPolicy] = {}
    # By platform, then by chat type.
    places: Mapping[str, Mapping[ChatType, ResetPolicy]] = {}
    # For how long a running turn keeps its session.
    busy_limit: timedelta = BUSY_LIMIT

    def for_source(self, platform: str, chat_type: ChatType) -> ResetPolicy:
        """Return the most specific policy: platform with chat type, then platform, then chat type, then the default."""
        exact = self.places.get(platform, {}).get(chat_type)
        return exact or self.platforms.get(platform) or self.chat_types.get(chat_type) or self.default


def find_due_reason(
    policy: ResetPolicy,
    *,
    last_active: datetime,
    now: datetime,
    busy_since: datetime | None = None,
    busy_limit: timedelta = BUSY_LIMIT,
) -> ResetReason | None:
    """Return why a lane must start a new session now, or `None`. Of two reasons, return the one that became due first.

    `last_active` is the last message of a person, `busy_since` the start of background work that still runs. A due lane
    stays due until one of them changes. A clock that jumps back makes nothing due.
    """
    if busy_since is not None and now < _after_deadline(busy_since, busy_limit):
        return None
    return next((reason for moment, reason in _list_moments(policy, last_active) if moment <= now), None)


def find_next_due(
    policy: ResetPolicy,
    *,
    last_active: datetime,
    busy_since: datetime | None = None,
    busy_limit: timedelta = BUSY_LIMIT,
) -> datetime | None:
    """Return when `find_due_reason` first returns a reason if nothing changes until then; `None` for never."""
    moments = _list_moments(policy, last_active)
    if not moments:
        return None
    first, _ = moments[0]
    return first if busy_since is None else max(first, _after_deadline(busy_since, busy_limit))


def _list_moments(policy: ResetPolicy, last_active: datetime) -> list[tuple[datetime, ResetReason]]:
    """Return when each reason of the policy becomes due, in order of time."""
    moments: list[tuple[datetime, ResetReason]] = []
    if policy.mode in (ResetMode.IDLE, ResetMode.BOTH):
        moments.append((_after_deadline(last_active, policy.idle), ResetReason.IDLE))
    if policy.mode in (ResetMode.DAILY, ResetMode.BOTH):
        moments.append((_find_next_daily(policy, last_active), ResetReason.DAILY))
    return sorted(moments)


def _after_deadline(since: datetime, limit: timedelta) -> datetime:
    """Return the first moment strictly after a deadline."""
    return since + limit + _TICK


def _find_next_daily(policy: ResetPolicy, after: datetime) -> datetime:
    zone = clock.find_zone(policy.zone)
    day = after.astimezone(zone).date()
    while True:
        wall = datetime.combine(day, time(policy.hour))
        moment = wall.replace(tzinfo=zone).astimezone(UTC)
        exists = True
        if clock.to_wall_time(moment, zone) != wall:
            moment = clock.find_gap_end(wall, zone)
            # A local day that the zone skipped has no reset.
            exists = day in (clock.to_wall_time(at, zone).date() for at in (moment - _SECOND, moment))
        if exists and moment > after:
            return moment
        day += _DAY
