"""Credentials: how a caller shows who they are: a token, or the cookie that a token or a password was exchanged for."""

import hashlib
import hmac
import os
import secrets
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from keryx.core.errors import Throttled
from keryx.core.ports import Clock
from keryx.engine.signins import LIFE

COOKIE = "keryx"
_TRIES = 10
_ALL_TRIES = 60
_WINDOW = 60.0
_ADDRESSES = 1_000


class Seal:
    """Signs cookies, so that a forged one is refused before anything is looked up."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def cookie(self, id_: str, secret: str) -> str:
        return f"{id_}.{secret}.{self._sign(f'{id_}.{secret}')}"

    def opened(self, cookie: str) -> tuple[str, str] | None:
        """The id and the secret of a cookie that was signed here."""
        signed, _, signature = cookie.rpartition(".")
        id_, _, secret = signed.partition(".")
        if not (id_ and secret and hmac.compare_digest(signature.encode(), self._sign(signed).encode())):
            return None
        return id_, secret

    def _sign(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


class Tries:
    """Limits how often somebody may guess: by address, and in all. A try counts before it is judged."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wrong: dict[str, deque[float]] = {}
        self._all: deque[float] = deque()

    @contextmanager
    def one(self, address: str) -> Generator[Callable[[], None]]:
        """One try, which counts as wrong unless the given function is called. Raises `Throttled` if too many were wrong
        within the last minute."""
        self._check(address)
        if len(self._wrong) >= _ADDRESSES:
            del self._wrong[next(iter(self._wrong))]
        now, mine = self._clock.monotonic(), self._wrong.setdefault(address, deque(maxlen=_TRIES))
        mine.append(now)
        self._all.append(now)

        def right() -> None:
            for tries in (mine, self._all):
                if now in tries:
                    tries.remove(now)

        yield right

    def _check(self, address: str) -> None:
        for wrong, most in ((self._wrong.get(address, deque()), _TRIES), (self._all, _ALL_TRIES)):
            self._forget(wrong)
            if len(wrong) >= most:
                wait = _WINDOW - (self._clock.monotonic() - wrong[0])
                raise Throttled(
                    "too many wrong tries: wait a minute, then try again", after=timedelta(seconds=wait)
                )

    def _forget(self, wrong: deque[float]) -> None:
        while wrong and self._clock.monotonic() - wrong[0] > _WINDOW:
            wrong.popleft()


def same(given: str, token: str) -> bool:
    """Whether two tokens are the same, in a time that tells nothing of where they differ."""
    return hmac.compare_digest(
        hashlib.sha256(given.encode("utf-8", "surrogatepass")).digest(),
        hashlib.sha256(token.encode()).digest(),
    )


def set_cookie(value: str, *, secure: bool) -> str:
    """The header that gives a browser its cookie; an empty value takes it away."""
    age = int(LIFE.total_seconds()) if value else 0
    text = f"{COOKIE}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict"
    return f"{text}; Secure" if secure else text


def read_key(folder: Path) -> bytes:
    """The key of the seal: made once, readable by nobody else. Blocks for as long as a small file takes."""
    path = folder / "secrets" / "web.key"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = path.read_bytes()
        return key if len(key) >= 32 else _renewed(path)
    with os.fdopen(handle, "wb") as file:
        key = secrets.token_bytes(32)
        file.write(key)
    return key


def _renewed(path: Path) -> bytes:
    """A file that was cut short by a crash holds no key: everybody signs in again."""
    path.unlink()
    return read_key(path.parent.parent)
