"""The Telegram Bot API: calls, file transfer, typed errors without the token in them, calls that retry until Telegram is back, and detection of bot-wide rate limits."""

import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import msgspec

from keryx.core.durations import Backoff
from keryx.core.errors import Forbidden, KeryxError, Throttled
from keryx.core.media import Attachment
from keryx.core.ports.adapter import AdapterContext, LinkState
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.http_clients import (
    NO_REASON,
    HttpClientPool,
    build_timeout,
    read_body,
    translate_errors,
)
from keryx.timing import Sleep

DEFAULT_URL = "https://api.telegram.org"
# The largest file that a bot may fetch.
MAX_FILE_BYTES = 20_000_000
_TIMEOUT_SECONDS = 20.0
_FILE_TIMEOUT_SECONDS = 60.0
BAD_TOKEN = Phrase("connect.telegram_bad_token")
BOT_IN_USE = "another program listens as this bot: stop it, or give each program a bot of its own"
WEBHOOK_IN_USE = (
    "a webhook is set for this bot, by another program: `keryx gateway setup telegram --take-over` removes it"
)
_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30))
_MAX_CONFLICTS = 5
# A rate limit of this many chats at the same time is one of the whole bot.
BOT_WIDE_CHATS = 3


class TelegramApiError(KeryxError):
    """`retry_after` is in seconds; `moved_to` is the new id of a group that became a supergroup."""

    def __init__(self, code: int, description: str, *, retry_after: float = 0, moved_to: str = "") -> None:
        super().__init__(f"Telegram says: {description} ({code})")
        self.code = code
        self.description = description
        self.retry_after = retry_after
        self.moved_to = moved_to


class TelegramUnreachable(KeryxError):
    pass


class TelegramNoResponse(KeryxError):
    pass


class _ResponseParameters(msgspec.Struct, frozen=True):
    retry_after: float = 0
    migrate_to_chat_id: int | None = None


class _ApiResponse(msgspec.Struct, frozen=True):
    ok: bool
    result: Any = None
    error_code: int = 0
    description: str = ""
    parameters: _ResponseParameters = _ResponseParameters()


class TelegramApi:
    """One bot's calls. Opens its connections when they are needed."""

    def __init__(self, token: str, base_url: str = DEFAULT_URL) -> None:
        self._token = token
        self._base = base_url.rstrip("/")
        self._clients = HttpClientPool(lambda trusted: httpx.AsyncClient(verify=trusted))

    async def call(self, method: str, *, seconds: float = _TIMEOUT_SECONDS, **params: object) -> Any:
        """Return the result of a method. Parameters that are `None` are left out."""
        body = json.dumps({name: value for name, value in params.items() if value is not None})
        return await self._post(
            method, seconds, content=body.encode(), headers={"content-type": "application/json"}
        )

    async def upload(self, method: str, field: str, attachment: Attachment, **params: object) -> Any:
        """Return the result of a method that takes a file."""
        data = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in params.items()
            if value is not None
        }
        files = {field: (attachment.name, attachment.body, attachment.mime)}
        return await self._post(method, _FILE_TIMEOUT_SECONDS, data=data, files=files)

    async def fetch_file(self, file_id: str, *, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the bytes of a file that a person sent. Raise `Invalid` for one larger than `limit`, and
        `TelegramApiError` for one larger than a bot may fetch."""
        found = await self.call("getFile", file_id=file_id)
        path = str(found.get("file_path") or "") if isinstance(found, dict) else ""  # pyright: ignore
        if not path:
            raise TelegramApiError(404, "the file is no longer there")
        return await self._download(path, min(limit, MAX_FILE_BYTES))

    async def close(self) -> None:
        await self._clients.close()

    async def _download(self, path: str, limit: int) -> bytes:
        try:
            url = f"{self._base}/file/bot{self._token}/{path}"
            async with (
                self._clients.acquire() as client,
                client.stream("GET", url, timeout=build_timeout(_FILE_TIMEOUT_SECONDS)) as answer,
            ):
                if answer.status_code != 200:
                    raise TelegramApiError(answer.status_code, "the file cannot be fetched")
                return await read_body(answer, limit)
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise TelegramNoResponse(Phrase("delivery.not_fetched", kind=type(exc).__name__)) from None

    async def _post(self, method: str, seconds: float, **request: Any) -> Any:
        url = f"{self._base}/bot{self._token}/{method}"
        with translate_errors("Telegram", TelegramUnreachable, TelegramNoResponse):
            async with self._clients.acquire() as client:
                answer = await client.post(url, timeout=build_timeout(seconds), **request)
        try:
            found = msgspec.convert(json.loads(answer.content), _ApiResponse)
        except (ValueError, RecursionError):
            if answer.status_code == 200:
                raise TelegramNoResponse(Phrase("delivery.unreadable", platform="Telegram")) from None
            raise TelegramApiError(answer.status_code, answer.reason_phrase or NO_REASON) from None
        if found.ok:
            return found.result
        moved = found.parameters.migrate_to_chat_id
        raise TelegramApiError(
            found.error_code or answer.status_code,
            found.description,
            retry_after=found.parameters.retry_after,
            moved_to="" if moved is None else str(moved),
        )


class RetryingApi:
    """Retries calls until they succeed. Raises what a retry cannot solve: `Forbidden` for a refused token and for a
    bot that another program polls, `TelegramApiError` for any other refusal."""

    def __init__(self, api: TelegramApi, context: AdapterContext, sleep: Sleep) -> None:
        self._api = api
        self._context = context
        self._sleep = sleep

    async def call(self, method: str, *, seconds: float = 20.0, **params: object) -> Any:
        failures = conflicts = 0
        while True:
            least = 0.0
            try:
                found = await self._api.call(method, seconds=seconds, **params)
            except (TelegramUnreachable, TelegramNoResponse) as exc:
                self._context.report(LinkState.CONNECTING, str(exc))
            except TelegramApiError as exc:
                conflicts += exc.code == 409
                least = self._handle_error(exc, conflicts)
            else:
                self._context.report(LinkState.CONNECTED)
                return found
            failures += 1
            await self._sleep(max(least, _BACKOFF.seconds(failures)))

    def _handle_error(self, error: TelegramApiError, conflicts: int) -> float:
        """Return the seconds to wait at least. Raise an error that a retry cannot solve."""
        if error.code in (401, 404):
            raise Forbidden(BAD_TOKEN) from None
        if error.code == 429:
            self._context.report(LinkState.THROTTLED, f"Telegram asks to wait {error.retry_after:g} s")
            return error.retry_after
        if error.code == 409 and "webhook" in error.description.lower():
            raise Forbidden(WEBHOOK_IN_USE) from None
        if error.code == 409 and conflicts < _MAX_CONFLICTS:
            # The poll of a process that was just killed may still hang at Telegram.
            return 0
        if error.code == 409:
            raise Forbidden(BOT_IN_USE) from None
        if error.code < 500:
            raise error
        self._context.report(LinkState.CONNECTING, str(error))
        return 0


class FloodDetector:
    """Tells a rate limit of one chat from one of the whole bot, by how many chats are limited at the same time."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._paused_until: dict[str, float] = {}

    def classify(self, error: Throttled, chat: str) -> Throttled:
        now = self._now()
        self._paused_until = {name: until for name, until in self._paused_until.items() if until > now}
        self._paused_until[chat] = now + error.after.total_seconds()
        return Throttled(str(error), after=error.after, account=len(self._paused_until) >= BOT_WIDE_CHATS)
