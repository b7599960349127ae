"""The rate limits of Discord's API, as its responses report them: buckets of routes, the global limit, and the number of invalid requests, because Discord bans an address that sends too many."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from keryx.core.cache import LruCache

# Discord bans an address for 10,000 in ten minutes. Half of that leaves room for other programs.
MAX_INVALID_REQUESTS = 5_000
_INVALID_WINDOW_SECONDS = 600.0
_INVALID_STATUSES = (401, 403, 429)
_MAX_BUCKETS = 10_000


class Route(NamedTuple):
    """A method and a path. Limits count by route and by the top-level resource in its path."""

    method: str
    # With placeholders, such as `/channels/{}/messages/{}`.
    template: str
    params: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return self.template.format(*self.params)

    @property
    def name(self) -> str:
        return f"{self.method} {self.template}"

    @property
    def resource(self) -> str:
        """The id of a channel or server, or a webhook with its token; empty for all other routes."""
        if self.template.startswith(("/channels/{}", "/guilds/{}")):
            return self.params[0]
        return "/".join(self.params[:2]) if self.template.startswith("/webhooks/{}/{}") else ""


class RouteDelay(NamedTuple):
    seconds: float
    # It holds for all routes.
    account: bool


class _Bucket:
    __slots__ = ("remaining", "reset_at")

    def __init__(self) -> None:
        self.remaining = 1
        self.reset_at = 0.0


class RouteLimits:
    """Tells before a request how long it has to wait. Learns from responses."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        # The bucket of a route, once a response has named it.
        self._names = LruCache[str, str](_MAX_BUCKETS)
        self._buckets = LruCache[tuple[str, str], _Bucket](_MAX_BUCKETS)
        self._paused_until = 0.0
        self._invalid: deque[float] = deque()

    def find_delay(self, route: Route) -> RouteDelay | None:
        """Return how long a request to this route has to wait, or `None` if it may be sent. Count it as sent then."""
        now = self._now()
        while self._invalid and self._invalid[0] <= now - _INVALID_WINDOW_SECONDS:
            self._invalid.popleft()
        if len(self._invalid) >= MAX_INVALID_REQUESTS:
            return RouteDelay(self._invalid[0] + _INVALID_WINDOW_SECONDS - now, account=True)
        if self._paused_until > now:
            return RouteDelay(self._paused_until - now, account=True)
        bucket = self._buckets.get(self._find_key(route))
        if bucket is None:
            return None
        if bucket.reset_at <= now:
            # The next response says how many requests the new window has.
            bucket.remaining = max(bucket.remaining, 1)
        if bucket.remaining <= 0:
            return RouteDelay(bucket.reset_at - now, account=False)
        bucket.remaining -= 1
        return None

    def record(
        self, route: Route, status: int, headers: Mapping[str, str], *, retry_after: float = 0
    ) -> None:
        """Learn from a response. `retry_after` is that of a response with status 429."""
        now = self._now()
        shared = headers.get("x-ratelimit-scope") == "shared"
        if status in _INVALID_STATUSES and not shared:
            self._invalid.append(now)
        if status == 429 and headers.get("x-ratelimit-global", "").lower() == "true":
            self._paused_until = max(self._paused_until, now + retry_after)
            return
        if name := headers.get("x-ratelimit-bucket"):
            self._names.put(route.name, name)
        remaining, reset_after = (
            headers.get("x-ratelimit-remaining"),
            headers.get("x-ratelimit-reset-after"),
        )
        try:
            left = int(remaining) if remaining is not None else 0
            reset = float(reset_after) if reset_after is not None else 0.0
        except ValueError:
            return
        if status == 429:
            left, reset = 0, max(retry_after, reset if not shared else 0)
        elif remaining is None or reset_after is None:
            return
        bucket = self._buckets.get(self._find_key(route)) or _Bucket()
        # Responses may arrive in another order than the requests were counted.
        if bucket.reset_at > now and status != 429:
            left = min(left, bucket.remaining)
        bucket.remaining, bucket.reset_at = left, now + reset
        self._buckets.put(self._find_key(route), bucket)

    def _find_key(self, route: Route) -> tuple[str, str]:
        return self._names.get(route.name) or route.name, route.resource
