"""Api: calls of the Bot API, and its errors in our words.

    ApiError(KeryxError)    Telegram answered, and said no
    Unreached(KeryxError)   the request never left: safe to repeat
    Unanswered(KeryxError)  the request may have arrived, and no answer came back

Every address holds the token, so no error of the HTTP client is passed on: neither its text nor itself as a cause.
"""

import json
from typing import Any

import httpx
import msgspec

from keryx.core.errors import KeryxError
from keryx.core.ports import Attachment
from keryx.surfaces.gateway.clients import Clients

DEFAULT_URL = "https://api.telegram.org"
LARGEST_FILE = 20_000_000
"""What a bot may fetch from Telegram, in bytes."""

_CONNECT_SECONDS = 10.0
_SECONDS = 20.0
_FILE_SECONDS = 60.0


class ApiError(KeryxError):
    """`retry_after` is in seconds; `moved_to` is the new id of a group that became a supergroup."""

    def __init__(self, code: int, description: str, *, retry_after: float = 0, moved_to: str = "") -> None:
        super().__init__(f"Telegram says: {description} ({code})")
        self.code = code
        self.description = description
        self.retry_after = retry_after
        self.moved_to = moved_to


class Unreached(KeryxError):
    pass


class Unanswered(KeryxError):
    pass


class _Parameters(msgspec.Struct, frozen=True):
    retry_after: float = 0
    migrate_to_chat_id: int | None = None


class _Answer(msgspec.Struct, frozen=True):
    ok: bool
    result: Any = None
    error_code: int = 0
    description: str = ""
    parameters: _Parameters = _Parameters()


class Api:
    """One bot's calls. Opens its connections when they are needed; `close` lets them go."""

    def __init__(self, token: str, base_url: str = DEFAULT_URL) -> None:
        self._token = token
        self._base = base_url.rstrip("/")
        self._clients = Clients(lambda trusted: httpx.AsyncClient(verify=trusted))

    async def call(self, method: str, *, seconds: float = _SECONDS, **params: object) -> Any:
        """The result of a method. Parameters that are `None` are left out."""
        body = json.dumps({name: value for name, value in params.items() if value is not None})
        return await self._post(
            method, seconds, content=body.encode(), headers={"content-type": "application/json"}
        )

    async def upload(self, method: str, field: str, attachment: Attachment, **params: object) -> Any:
        """The result of a method that takes a file."""
        data = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in params.items()
            if value is not None
        }
        files = {field: (attachment.name, attachment.body, attachment.mime)}
        return await self._post(method, _FILE_SECONDS, data=data, files=files)

    async def fetch(self, file_id: str) -> bytes:
        """The bytes of a file that a person sent. `ApiError` when it is larger than a bot may fetch."""
        found = await self.call("getFile", file_id=file_id)
        path = str(found.get("file_path") or "") if isinstance(found, dict) else ""  # pyright: ignore
        if not path:
            raise ApiError(404, "the file is no longer there")
        return await self._download(path)

    async def close(self) -> None:
        await self._clients.close()

    async def _download(self, path: str) -> bytes:
        body = bytearray()
        try:
            url = f"{self._base}/file/bot{self._token}/{path}"
            async with (
                self._clients.one() as client,
                client.stream("GET", url, timeout=_limits(_FILE_SECONDS)) as answer,
            ):
                if answer.status_code != 200:
                    raise ApiError(answer.status_code, "the file cannot be fetched")
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > LARGEST_FILE:
                        raise ApiError(413, "file is too big")
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise Unanswered(f"the file could not be fetched ({_kind(exc)})") from None
        return bytes(body)

    async def _post(self, method: str, seconds: float, **request: Any) -> Any:
        try:
            url = f"{self._base}/bot{self._token}/{method}"
            async with self._clients.one() as client:
                answer = await client.post(url, timeout=_limits(seconds), **request)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as exc:
            raise Unreached(f"Telegram cannot be reached ({_kind(exc)})") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise Unreached("Telegram cannot be reached: its base_url is not a web address") from None
        except httpx.HTTPError as exc:
            raise Unanswered(f"Telegram did not answer ({_kind(exc)})") from None
        return _result(answer)


def _limits(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=_CONNECT_SECONDS)


def _kind(exc: Exception) -> str:
    return type(exc).__name__


def _result(answer: httpx.Response) -> Any:
    try:
        found = msgspec.convert(json.loads(answer.content), _Answer)
    except (ValueError, RecursionError):
        if answer.status_code == 200:
            raise Unanswered("Telegram gave an answer that cannot be read") from None
        raise ApiError(answer.status_code, answer.reason_phrase or "no reason is given") from None
    if found.ok:
        return found.result
    moved = found.parameters.migrate_to_chat_id
    raise ApiError(
        found.error_code or answer.status_code,
        found.description,
        retry_after=found.parameters.retry_after,
        moved_to="" if moved is None else str(moved),
    )
