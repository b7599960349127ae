"""Bot tokens that rotate: the current pair is kept in a file that only its owner can read, and a new pair is in the file before it is used."""

import asyncio
import fcntl
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from keryx.core.texts import Phrase
from keryx.surfaces.gateway.slack.web_api import (
    FixedToken,
    SlackApi,
    SlackApiError,
    SlackNoResponse,
    SlackUnreachable,
)

# A token is replaced when it is valid for less than this.
_REFRESH_SECONDS = 2 * 3600.0
_DEFAULT_LIFETIME_SECONDS = 12 * 3600
# After a failure, while the old token is still valid.
_RETRY_SECONDS = 60.0


class TokenPair(msgspec.Struct, frozen=True, kw_only=True):
    access_token: str
    refresh_token: str
    # Seconds since 1970.
    expires_at: float
    # Identifies the refresh token of the settings that this pair descends from. Another one there begins anew.
    origin: str


class _RefreshAnswer(msgspec.Struct, frozen=True, kw_only=True):
    access_token: str
    refresh_token: str
    expires_in: int = _DEFAULT_LIFETIME_SECONDS


class RotatedToken:
    """Replaces the token of a bot before it expires. Processes on one machine share the file, and one of them refreshes."""

    def __init__(
        self,
        path: Path,
        *,
        token: str,
        refresh_token: str,
        client_id: str,
        client_secret: str,
        base_url: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        # Its own lifetime is unknown; it is replaced when Slack refuses it.
        self._first = TokenPair(
            access_token=token,
            refresh_token=refresh_token,
            expires_at=float("inf") if token else 0.0,
            origin=hashlib.sha256(refresh_token.encode()).hexdigest()[:16],
        )
        self._client_id = client_id
        self._client_secret = client_secret
        self._api = SlackApi(FixedToken(""), base_url)
        self._now = now
        self._pair: TokenPair | None = None
        self._retry_at = 0.0
        self._lock = asyncio.Lock()

    async def close(self) -> None:
        await self._api.close()

    async def read(self, *, refused: str = "") -> str:
        """Return a valid token that is not `refused`. Raise `SlackUnreachable` if no new one can be had now, and
        `SlackApiError` if Slack refuses to give one."""
        async with self._lock:
            pair = self._pair or await asyncio.to_thread(self._load)
            usable = pair.access_token != refused and pair.expires_at > self._now()
            if self._needs_refresh(pair, refused) and not (usable and self._now() < self._retry_at):
                try:
                    pair = await self._refresh(refused)
                except SlackUnreachable:
                    if not usable:
                        raise
                    self._retry_at = self._now() + _RETRY_SECONDS
            self._pair = pair
            return pair.access_token

    def _needs_refresh(self, pair: TokenPair, refused: str) -> bool:
        return pair.access_token == refused or pair.expires_at - self._now() < _REFRESH_SECONDS

    async def _refresh(self, refused: str) -> TokenPair:
        with await asyncio.to_thread(self._acquire):
            # Another process may have done it.
            stored = await asyncio.to_thread(self._load)
            if not self._needs_refresh(stored, refused):
                return stored
            fresh = await self._fetch(stored.refresh_token)
            await asyncio.to_thread(self._store, fresh)
            return fresh

    async def _fetch(self, refresh_token: str) -> TokenPair:
        try:
            answer = await self._api.call_as(
                "",
                "oauth.v2.access",
                client_id=self._client_id,
                client_secret=self._client_secret,
                grant_type="refresh_token",
                refresh_token=refresh_token,
            )
            found = msgspec.convert(answer, _RefreshAnswer)
        except (SlackNoResponse, msgspec.ValidationError):
            raise SlackUnreachable(Phrase("delivery.token_unreadable", platform="Slack")) from None
        except SlackApiError as exc:
            if exc.throttled or exc.uncertain:
                raise SlackUnreachable(
                    Phrase("delivery.no_new_token", platform="Slack", reason=exc.code)
                ) from None
            raise
        return TokenPair(
            access_token=found.access_token,
            refresh_token=found.refresh_token,
            expires_at=self._now() + found.expires_in,
            origin=self._first.origin,
        )

    def _load(self) -> TokenPair:
        try:
            pair = msgspec.json.decode(self._path.read_bytes(), type=TokenPair)
        except FileNotFoundError:
            return self._first
        except (OSError, msgspec.DecodeError) as exc:
            raise SlackUnreachable(
                Phrase("delivery.tokens_not_read", path=self._path, reason=type(exc).__name__)
            ) from None
        return pair if pair.origin == self._first.origin else self._first

    def _store(self, pair: TokenPair) -> None:
        """Replace the file. It is on the disk, whole, when this returns."""
        draft = self._path.with_suffix(".new")
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(msgspec.json.encode(pair))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as exc:
            raise SlackUnreachable(
                Phrase("delivery.tokens_not_stored", path=self._path, reason=exc.strerror)
            ) from None

    def _acquire(self) -> "_FileLock":
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return _FileLock(self._path.with_suffix(".lock"))
        except OSError as exc:
            raise SlackUnreachable(
                Phrase("delivery.tokens_not_locked", path=self._path.parent, reason=exc.strerror)
            ) from None


class _FileLock:
    """Held by one process at a time, and released when the process ends."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX)

    def __enter__(self) -> None:
        """Locked since it was made."""

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)
