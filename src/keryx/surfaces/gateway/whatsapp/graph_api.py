"""The HTTP API of WhatsApp, on both platforms of Meta: calls, upload and download of files, and typed errors without the token in them."""

import base64
import binascii
import hashlib
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx
import msgspec

from keryx.core.durations import parse_retry_after
from keryx.core.errors import Invalid, KeryxError, Retryable, Unavailable
from keryx.core.media import Attachment
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.http_clients import (
    NO_REASON,
    HttpClientPool,
    build_timeout,
    read_body,
    translate_errors,
)

CLOUD_URL = "https://graph.facebook.com/v24.0"
AGENT_URL = "https://api.whatsapp.com"
_CONNECT_SECONDS = 10.0
_TIMEOUT_SECONDS = 30.0
_FILE_TIMEOUT_SECONDS = 60.0
# An app or a business has made too many calls.
_CALL_LIMITS = frozenset({4, 80007})
_BAD_TOKEN = 190
# The hosts that files are fetched from, besides that of the API. No other host gets the token.
_FILE_HOSTS = ("fbsbx.com", "facebook.com", "whatsapp.net", "whatsapp.com")

Sleep: TypeAlias = Callable[[float], Awaitable[None]]


class WhatsAppApiError(KeryxError):
    """A refusal. `code` is Meta's number, `status` that of HTTP; `retry_after` is in seconds, 0 if none was named."""

    def __init__(self, status: int, code: int, description: str, *, retry_after: float = 0) -> None:
        super().__init__(f"WhatsApp says: {description} ({code or status})")
        self.status = status
        self.code = code
        self.description = description
        self.retry_after = retry_after

    @classmethod
    def from_response(cls, answer: httpx.Response) -> "WhatsAppApiError":
        try:
            error = msgspec.convert(json.loads(answer.content), _ErrorResponse).error
        except (ValueError, RecursionError):
            error = _ApiError(message=answer.reason_phrase)
        wait = parse_retry_after(answer.headers, now=datetime.now(UTC))
        seconds = wait.total_seconds() if wait else 0
        return cls(answer.status_code, error.code, error.description, retry_after=seconds)

    @property
    def temporary(self) -> bool:
        """The same call may succeed later: after a pause, or with the token that replaces a refused one."""
        return (
            self.status == 429 or self.status >= 500 or self.code in _CALL_LIMITS or self.code == _BAD_TOKEN
        )


class WhatsAppUnreachable(KeryxError):
    pass


class WhatsAppNoResponse(KeryxError):
    pass


class _ErrorData(msgspec.Struct, frozen=True):
    details: str = ""


class _ApiError(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""
    error_data: Any = None

    @property
    def description(self) -> str:
        """What is said about the error. The details of some are not an object."""
        try:
            details = msgspec.convert(self.error_data or {}, _ErrorData).details
        except msgspec.ValidationError:
            details = ""
        return (details or self.message or NO_REASON).rstrip(".")


class _ErrorResponse(msgspec.Struct, frozen=True):
    error: _ApiError


class MediaLocation(msgspec.Struct, frozen=True):
    """Where a file is, and how large."""

    url: str
    mime_type: str = ""
    file_size: int = 0


class WhatsAppApi:
    """The calls of one number or agent. Opens its connections when they are needed."""

    def __init__(self, token: str, base_url: str) -> None:
        self._headers = {"authorization": f"Bearer {token}"}
        self._base = base_url.rstrip("/")
        self._clients = HttpClientPool(lambda trusted: httpx.AsyncClient(verify=trusted))

    async def get(self, path: str, *, seconds: float = _TIMEOUT_SECONDS, **query: str | int) -> Any:
        """Return the object at a path; `None` if there is nothing new (204)."""
        return await self._request("GET", path, seconds, params=query)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        # Escaped, because a text may have characters that UTF-8 has not.
        return await self._request("POST", path, _TIMEOUT_SECONDS, content=json.dumps(body).encode())

    async def upload(self, path: str, attachment: Attachment, mime: str) -> str:
        """Store a file and return its id."""
        found = await self._request(
            "POST",
            path,
            _FILE_TIMEOUT_SECONDS,
            data={"messaging_product": "whatsapp", "type": mime},
            files={"file": (attachment.name or "file", attachment.body, mime)},
        )
        return read_id(found)

    async def download(self, path: str, *, sha256: str, limit: int) -> bytes:
        """Return the bytes of a file that a person sent. Raise `Invalid` if it has more than `limit` bytes or is no longer
        there, and `Unavailable` if another attempt may succeed. An address holds for minutes, so it is asked for each time."""
        try:
            found = msgspec.convert(await self.get(path), MediaLocation)
        except msgspec.ValidationError:
            raise Unavailable("WhatsApp does not say where it is") from None
        except (WhatsAppUnreachable, WhatsAppNoResponse) as exc:
            raise Unavailable(str(exc)) from None
        except WhatsAppApiError as exc:
            if exc.temporary:
                raise Retryable(str(exc), after=timedelta(seconds=exc.retry_after)) from None
            words = f"{exc.description} ({exc.code or exc.status})"
            reason = Phrase("file.platform_says", platform="WhatsApp", reason=words)
            raise Invalid(str(exc), reason) from None
        if found.file_size > limit:
            raise Invalid(Phrase("file.too_large", limit=limit))
        if not self._may_get_token(found.url):
            raise Invalid(Phrase("file.elsewhere", platform="WhatsApp"))
        body = await self._download(found.url, limit)
        if sha256 and not _has_checksum(body, sha256):
            raise Unavailable("it has arrived with other bytes than it was sent with")
        return body

    async def close(self) -> None:
        await self._clients.close()

    async def _download(self, url: str, limit: int) -> bytes:
        try:
            async with (
                self._clients.acquire() as client,
                client.stream(
                    "GET", url, headers=self._headers, timeout=build_timeout(_FILE_TIMEOUT_SECONDS)
                ) as response,
            ):
                if response.status_code != 200:
                    # Also an address that no longer holds: the next attempt gets another one.
                    wait = parse_retry_after(response.headers, now=datetime.now(UTC))
                    raise Retryable(
                        f"WhatsApp does not give it out (status {response.status_code})",
                        after=wait or timedelta(0),
                    )
                return await read_body(response, limit)
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise Unavailable(f"WhatsApp cannot be reached ({type(exc).__name__})") from None

    def _may_get_token(self, url: str) -> bool:
        try:
            file, api = urlsplit(url), urlsplit(self._base)
            if (file.scheme, file.hostname, file.port) == (api.scheme, api.hostname, api.port):
                return True
        except ValueError:
            return False
        host = file.hostname or ""
        return file.scheme == "https" and any(host == h or host.endswith(f".{h}") for h in _FILE_HOSTS)

    async def _request(self, method: str, path: str, seconds: float, **request: Any) -> Any:
        kind = {"content-type": "application/json"} if "content" in request else {}
        with translate_errors("WhatsApp", WhatsAppUnreachable, WhatsAppNoResponse):
            async with self._clients.acquire() as client:
                answer = await client.request(
                    method,
                    f"{self._base}/{path}",
                    headers={**self._headers, **kind},
                    timeout=build_timeout(seconds),
                    **request,
                )
        if answer.status_code == 204:
            return None
        if answer.status_code != 200:
            raise WhatsAppApiError.from_response(answer)
        try:
            return json.loads(answer.content)
        except (ValueError, RecursionError):
            raise WhatsAppNoResponse(Phrase("delivery.unreadable", platform="WhatsApp")) from None


class RateWindow:
    """Counts calls over the last minute, for limits of a moving minute. A limit of 0 is none."""

    def __init__(self, limit: int, now: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._now = now
        self._calls: deque[float] = deque()

    def take(self) -> float:
        """Count a call if it is within the limit and return 0. Otherwise return how many seconds to wait."""
        now = self._now()
        while self._calls and self._calls[0] <= now - 60:
            self._calls.popleft()
        if self._limit and len(self._calls) >= self._limit:
            return self._calls[0] + 60 - now
        self._calls.append(now)
        return 0


def read_id(found: Any) -> str:
    """Return the id in a response. Raise `WhatsAppNoResponse` if there is none: the request was accepted."""
    try:
        return str(found["id"])
    except (TypeError, KeyError):
        raise WhatsAppNoResponse(Phrase("delivery.gave_no_id", platform="WhatsApp")) from None


def _has_checksum(body: bytes, sha256: str) -> bool:
    digest = hashlib.sha256(body)
    try:
        return base64.b64decode(sha256, validate=True) == digest.digest() or sha256 == digest.hexdigest()
    except (binascii.Error, ValueError):
        return False
