"""Discord's REST API for one bot: calls within the rate limits, file transfer, and typed errors without the token in them."""

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import Any, TypeVar

import httpx
import msgspec

from keryx.core.durations import parse_retry_after
from keryx.core.errors import Forbidden, Invalid, KeryxError, Retryable, Unavailable
from keryx.core.media import UNKNOWN_MIME, Attachment
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.discord.payloads import (
    DiscordApplication,
    DiscordAttachment,
    DiscordChannel,
    DiscordMember,
    DiscordMessage,
    GatewayInfo,
)
from keryx.surfaces.gateway.discord.route_limits import Route, RouteLimits
from keryx.surfaces.gateway.http_clients import (
    NO_REASON,
    HttpClientPool,
    build_timeout,
    read_body,
    translate_errors,
)
from keryx.timing import Sleep

log = logging.getLogger(__name__)

DEFAULT_URL = "https://discord.com/api/v10"
BAD_TOKEN = Phrase("connect.discord_bad_token")
_CONNECT_SECONDS = 10.0
_TIMEOUT_SECONDS = 20.0
_FILE_TIMEOUT_SECONDS = 60.0
_LONGEST_WAIT_SECONDS = 60.0
_MAX_TRIES = 5
MAX_PAGE = 100
_SMALL_SKEW = timedelta(seconds=2)

T = TypeVar("T")


class DiscordError(KeryxError):
    """A refusal. `code` is Discord's own, 0 if it has none."""

    def __init__(self, status: int, code: int, message: str, *, fields: str = "") -> None:
        super().__init__(f"Discord says: {message} ({code or status})" + (f": {fields}" if fields else ""))
        self.status = status
        self.code = code
        # The names of the fields that were refused, as text.
        self.fields = fields


class DiscordRateLimit(KeryxError):
    """The request was not sent, or was refused, because there were too many."""

    def __init__(self, after: float, *, account: bool) -> None:
        super().__init__(f"Discord asks to wait {after:g} s")
        self.after = after
        self.account = account


class DiscordUnreachable(KeryxError):
    pass


class DiscordNoResponse(KeryxError):
    pass


class _ErrorBody(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""
    errors: Any = None
    retry_after: float = 0
    is_global: bool = msgspec.field(name="global", default=False)


class DiscordApi:
    """One bot's calls. Opens its connections when they are needed. After a refused token nothing is sent any more until
    `retry_token`."""

    def __init__(
        self,
        token: str,
        base_url: str = DEFAULT_URL,
        *,
        limits: RouteLimits | None = None,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._token = token
        self._base = base_url.rstrip("/")
        self._limits = limits or RouteLimits()
        self._sleep = sleep
        self._refused = False
        self._now = now
        # How far the clock of Discord is ahead of ours.
        self._ahead = timedelta()
        # Discord refuses requests without a name of this form.
        self._user_agent = f"DiscordBot (keryx, {version('keryx')})"
        self._clients = HttpClientPool(lambda trusted: httpx.AsyncClient(verify=trusted))

    def now(self) -> datetime:
        """Return the time on Discord, whose ids contain it, as far as it is known from the last response."""
        return self._now() + self._ahead

    def retry_token(self) -> None:
        """Allow requests again after the token was refused."""
        self._refused = False

    async def close(self) -> None:
        await self._clients.close()

    async def request(
        self,
        route: Route,
        body: object = None,
        *,
        files: Sequence[Attachment] = (),
        query: dict[str, str] | None = None,
        authorize: bool = True,
        seconds: float = _TIMEOUT_SECONDS,
    ) -> Any:
        """Send one request and return the decoded response. Raise `DiscordRateLimit` without sending it while its bucket is
        exhausted."""
        if self._refused and authorize:
            raise DiscordError(401, 0, "the token was refused")
        delay = self._limits.find_delay(route)
        if delay is not None:
            raise DiscordRateLimit(delay.seconds, account=delay.account)
        headers = {"user-agent": self._user_agent}
        if authorize:
            headers["authorization"] = f"Bot {self._token}"
        content: dict[str, Any] = {"headers": headers}
        if files:
            content["data"] = {"payload_json": json.dumps(body)}
            content["files"] = {
                f"files[{n}]": (f.name or "file", f.body, f.mime or UNKNOWN_MIME) for n, f in enumerate(files)
            }
            seconds = _FILE_TIMEOUT_SECONDS
        elif body is not None:
            content["content"] = json.dumps(body).encode()
            headers["content-type"] = "application/json"
        response = await self._send(route, seconds, params=query, **content)
        self._note_time(response.headers.get("date", ""))
        return self._read_response(route, response)

    async def call(self, route: Route, body: object = None, **options: Any) -> Any:
        """Send a request, wait for rate limits, and retry while Discord is not available. Raise `DiscordError` for a
        refusal, and `Unavailable` after several tries. For requests that may be repeated."""
        for attempt in range(1, _MAX_TRIES + 1):
            try:
                return await self.request(route, body, **options)
            except DiscordRateLimit as exc:
                error: KeryxError = exc
                if exc.after > _LONGEST_WAIT_SECONDS:
                    break
                await self._sleep(exc.after)
            except DiscordError as exc:
                if exc.status == 401:
                    raise Forbidden(BAD_TOKEN) from None
                if exc.status < 500:
                    raise
                error = exc
                await self._sleep(attempt)
            except (DiscordUnreachable, DiscordNoResponse) as exc:
                error = exc
                await self._sleep(attempt)
        raise Unavailable(str(error)) from None  # pyright: ignore[reportPossiblyUnboundVariable]

    async def find_application(self) -> DiscordApplication:
        return self._convert(await self.call(Route("GET", "/applications/@me")), DiscordApplication)

    async def find_gateway(self) -> GatewayInfo:
        return self._convert(await self.call(Route("GET", "/gateway/bot")), GatewayInfo)

    async def find_channel(self, channel: str) -> DiscordChannel | None:
        """Return a channel, or `None` if it does not exist or the bot may not see it."""
        return await self._find(Route("GET", "/channels/{}", (channel,)), DiscordChannel)

    async def find_member(self, guild: str, user: str) -> DiscordMember | None:
        """Return a member of a server, or `None` for a person who is not in it."""
        return await self._find(Route("GET", "/guilds/{}/members/{}", (guild, user)), DiscordMember)

    async def list_messages(self, channel: str, *, after: str) -> list[object] | None:
        """Return the next messages after an id, undecoded, or `None` if the bot may not read the channel."""
        try:
            found = await self.call(
                Route("GET", "/channels/{}/messages", (channel,)),
                query={"after": after, "limit": str(MAX_PAGE)},
            )
        except DiscordError as exc:
            log.info("the messages of a channel cannot be read: %s", exc)
            return None
        if not isinstance(found, list):
            raise Unavailable("Discord gave an answer that cannot be read")
        return found  # pyright: ignore[reportUnknownVariableType]

    async def find_messages_after(self, channel: str, after: str) -> list[DiscordMessage]:
        """Return the next messages after an id with one request, for a search before a send."""
        found = await self.request(
            Route("GET", "/channels/{}/messages", (channel,)),
            query={"after": after, "limit": str(MAX_PAGE)},
        )
        try:
            return msgspec.convert(found, list[DiscordMessage])
        except msgspec.ValidationError:
            raise DiscordNoResponse(Phrase("delivery.unreadable", platform="Discord")) from None

    async def find_file(self, channel: str, message: str, attachment: str) -> DiscordAttachment:
        """Return a file of a message with an address that is valid now. Raise `Invalid` if it is no longer there."""
        route = Route("GET", "/channels/{}/messages/{}", (channel, message))
        found = await self._find(route, DiscordMessage)
        if found is None:
            raise Invalid(Phrase("file.no_history"))
        for file in found.all_attachments:
            if file.id == attachment:
                return file
        raise Invalid(Phrase("file.gone"))

    async def download(self, url: str, *, limit: int) -> bytes:
        """Return the bytes of a file that a person sent. Raise `Invalid` for one that has more than `limit` bytes or is not
        there, and `Unavailable` if another attempt may succeed. The token is not sent."""
        headers = {"user-agent": self._user_agent}
        try:
            async with (
                self._clients.acquire() as client,
                client.stream(
                    "GET", url, timeout=build_timeout(_FILE_TIMEOUT_SECONDS), headers=headers
                ) as answer,
            ):
                status = answer.status_code
                if status == 429 or status >= 500:
                    after = parse_retry_after(answer.headers, now=self._now())
                    raise Retryable(
                        f"Discord does not give it out (status {status})", after=after or timedelta()
                    )
                if status != 200:
                    raise Invalid(Phrase("file.refused", platform="Discord", status=str(status)))
                return await read_body(answer, limit)
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise Unavailable(f"Discord cannot be reached ({type(exc).__name__})") from None

    async def _find(self, route: Route, kind: type[T]) -> T | None:
        try:
            return self._convert(await self.call(route), kind)
        except DiscordError:
            return None

    async def _send(self, route: Route, seconds: float, **content: Any) -> httpx.Response:
        with translate_errors("Discord", DiscordUnreachable, DiscordNoResponse):
            async with self._clients.acquire() as client:
                return await client.request(
                    route.method, self._base + route.path, timeout=build_timeout(seconds), **content
                )

    def _note_time(self, date: str) -> None:
        """Compare the clocks. A header has whole seconds, so small differences are none."""
        try:
            ahead = parsedate_to_datetime(date) - self._now()
        except (TypeError, ValueError):
            return
        self._ahead = ahead if abs(ahead) > _SMALL_SKEW else timedelta()

    def _read_response(self, route: Route, response: httpx.Response) -> Any:
        status = response.status_code
        if status < 400:
            self._limits.record(route, status, response.headers)
            try:
                return json.loads(response.content) if response.content else None
            except (ValueError, RecursionError):
                raise DiscordNoResponse(Phrase("delivery.unreadable", platform="Discord")) from None
        try:
            body = msgspec.json.decode(response.content, type=_ErrorBody)
        except (msgspec.DecodeError, RecursionError):
            body = _ErrorBody(message=response.reason_phrase or NO_REASON)
        asked = parse_retry_after(response.headers, now=self._now())
        after = body.retry_after or (asked.total_seconds() if asked else 0.0)
        self._limits.record(route, status, response.headers, retry_after=after)
        if status == 429:
            account = body.is_global or response.headers.get("x-ratelimit-scope") == "global"
            raise DiscordRateLimit(after or 1.0, account=account)
        if status == 401:
            self._refused = True
        raise DiscordError(
            status, body.code, body.message, fields=json.dumps(body.errors)[:300] if body.errors else ""
        )

    def _convert(self, found: object, kind: type[T]) -> T:
        try:
            return msgspec.convert(found, kind)
        except msgspec.ValidationError:
            raise Unavailable("Discord gave an answer that cannot be read") from None
