"""Limits on guessing passwords and tokens: by address for strangers, by growing delays for browsers that have signed in before."""

import hashlib
import hmac
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from keryx.core.cache import LruCache
from keryx.core.clock import Clock
from keryx.core.errors import Throttled
from keryx.core.texts import Phrase

log = logging.getLogger(__name__)

BROWSER_COOKIE_NAME = "keryx_browser"
BROWSER_LIFETIME = timedelta(days=365)
_MAX_PER_ADDRESS = 10
_MAX_IN_ALL = 60
_MAX_PER_USER = 10
_USER_WINDOW_SECONDS = 600.0
# What each address may try with a user after that, so that a stranger cannot lock a user out from elsewhere.
_MAX_PER_USER_AND_ADDRESS = 3
_WINDOW_SECONDS = 60.0
_BROWSER_WINDOW_SECONDS = 600.0
_MAX_KEYS = 1_000
# How many tries of known browsers are answered without a delay, and the delays after that.
_QUICK_TRIES = 3
_FIRST_DELAY_SECONDS = 0.5
_LONGEST_DELAY_SECONDS = 15.0
# How many tries may wait at a time: each holds a connection.
_MAX_WAITING = 8


class FailureCounter:
    """Counts failures by key within a window of time. Of many keys, those that failed least recently are forgotten."""

    def __init__(self, clock: Clock, *, window: float, most: int) -> None:
        self._clock = clock
        self._window = window
        self._most = most
        self._times: LruCache[str, deque[float]] = LruCache(_MAX_KEYS)

    def count(self, key: str) -> int:
        """Return how many failures there were, at most the most that are counted."""
        return len(self._get_recent(key))

    def get_wait(self, key: str) -> timedelta:
        """Return how long it takes until another failure is allowed."""
        times = self._get_recent(key)
        if len(times) < self._most:
            return timedelta(0)
        return timedelta(seconds=self._window - (self._clock.monotonic() - times[0]))

    def add(self, key: str) -> Callable[[], None]:
        """Count a failure. The returned function takes it back."""
        times, now = self._get_recent(key), self._clock.monotonic()
        times.append(now)
        self._times.put(key, times)

        def take_back() -> None:
            if now in times:
                times.remove(now)

        return take_back

    def clear(self, key: str) -> None:
        self._times.remove(key)

    def _get_recent(self, key: str) -> deque[float]:
        times = self._times.get(key)
        if times is None:
            return deque[float](maxlen=self._most)
        while times and self._clock.monotonic() - times[0] > self._window:
            times.popleft()
        return times


class GuessLimiter:
    """Limits wrong sign-ins and wrong tokens."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_address = FailureCounter(clock, window=_WINDOW_SECONDS, most=_MAX_PER_ADDRESS)
        self._in_all = FailureCounter(clock, window=_WINDOW_SECONDS, most=_MAX_IN_ALL)
        self._by_browser = FailureCounter(clock, window=_BROWSER_WINDOW_SECONDS, most=_MAX_PER_ADDRESS)
        self._by_user = FailureCounter(clock, window=_USER_WINDOW_SECONDS, most=_MAX_PER_USER)
        self._by_user_and_address = FailureCounter(
            clock, window=_USER_WINDOW_SECONDS, most=_MAX_PER_USER_AND_ADDRESS
        )
        self._wrong_tokens = FailureCounter(clock, window=_WINDOW_SECONDS, most=_MAX_PER_ADDRESS)
        self._waiting = 0

    @asynccontextmanager
    async def attempt(
        self, address: str, browser: str | None, *, user: str = ""
    ) -> AsyncGenerator[Callable[[], None]]:
        """Count a try to sign in as wrong, unless the yielded function is called. `user` is whose password is tried.

        A known browser waits longer and longer, and is never locked out by the failures of others. Raise `Throttled` for
        a stranger after too many failures from one address, with one user from this address, or in all, or if too many
        wait."""
        if browser is None:
            yield self._count_stranger(address, user)
            return
        slow_tries = self._by_browser.count(browser) - _QUICK_TRIES
        delay = min(_FIRST_DELAY_SECONDS * 2**slow_tries, _LONGEST_DELAY_SECONDS) if slow_tries >= 0 else 0
        self._by_browser.add(browser)
        await self._wait(delay)
        yield lambda: self._by_browser.clear(browser)

    def count_wrong_token(self, address: str) -> None:
        """Count a wrong token. Raise `Throttled` if too many came from the address. A right one is never refused: a token
        is too long to be guessed, and a program must not suffer from another one with an old token."""
        if wait := self._wrong_tokens.get_wait(address):
            log.warning("many wrong tokens come from %s", address)
            raise Throttled(Phrase("web.wrong_tokens"), after=wait)
        self._wrong_tokens.add(address)

    def _count_stranger(self, address: str, user: str) -> Callable[[], None]:
        pair = f"{user} {address}"
        wait = max(
            self._by_address.get_wait(address),
            self._in_all.get_wait(""),
            # Either of them lets a try through.
            min(self._by_user.get_wait(user), self._by_user_and_address.get_wait(pair)),
        )
        if wait:
            raise Throttled(Phrase("web.wrong_tries"), after=wait)
        undo = [self._by_address.add(address), self._in_all.add("")]
        if user:
            undo += [self._by_user.add(user), self._by_user_and_address.add(pair)]

        def mark_right() -> None:
            for take_back in undo:
                take_back()

        return mark_right

    async def _wait(self, seconds: float) -> None:
        if not seconds:
            return
        if self._waiting >= _MAX_WAITING:
            raise Throttled(Phrase("web.tries_wait"), after=timedelta(seconds=seconds))
        self._waiting += 1
        try:
            await self._clock.sleep(seconds)
        finally:
            self._waiting -= 1


class KnownBrowsers:
    """Signs the cookie that marks a browser as one that has signed in before. It grants no access: without the password or
    the token it only keeps the failures of others from locking the browser out."""

    def __init__(self, key: bytes, clock: Clock) -> None:
        self._key = hmac.digest(key, b"known browser", hashlib.sha256)
        self._clock = clock

    def find(self, cookie: str) -> str | None:
        """Return the id of a known browser, or None for a cookie that is forged or too old."""
        signed, _, signature = cookie.rpartition(".")
        id_, _, issued = signed.partition(".")
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), self._sign(signed).encode()):
            return None
        age = self._clock.now().timestamp() - int(issued)
        return id_ if age < BROWSER_LIFETIME.total_seconds() else None

    def issue(self, browser: str | None) -> str:
        """Return a cookie for a browser that has just signed in, which keeps its id."""
        signed = f"{browser or secrets.token_hex(16)}.{int(self._clock.now().timestamp())}"
        return f"{signed}.{self._sign(signed)}"

    def _sign(self, text: str) -> str:
        return hmac.new(self._key, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def build_browser_cookie_header(value: str, *, path: str, secure: bool) -> str:
    age = int(BROWSER_LIFETIME.total_seconds())
    text = f"{BROWSER_COOKIE_NAME}={value}; Path={path}; Max-Age={age}; HttpOnly; SameSite=Strict"
    return f"{text}; Secure" if secure else text
