"""The REST API of a BlueBubbles server: calls, upload and download of files, and typed errors without the password, which is in the address of every call."""

import json
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from keryx.core.errors import Invalid, KeryxError, Unavailable
from keryx.core.media import UNKNOWN_MIME, Attachment
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.http_clients import NO_REASON, HttpClientPool
from keryx.surfaces.gateway.imessage.payloads import BlueBubblesInfo

_CONNECT_SECONDS = 10.0
_TIMEOUT_SECONDS = 30.0
# The server answers when Messages has stored the message.
SEND_SECONDS = 55.0
_FILE_SECONDS = 60.0
# The most rows that the server returns at once.
MAX_ROWS = 1000

T = TypeVar("T")


class BlueBubblesError(KeryxError):
    """A refusal. `code` is the number that Messages gives a message that it could not send, 0 if there is none."""

    def __init__(self, status: int, description: str, *, code: int = 0) -> None:
        super().__init__(f"BlueBubbles says: {description} ({status})")
        self.status = status
        self.description = description
        self.code = code

    @classmethod
    def read(cls, answer: httpx.Response) -> "BlueBubblesError":
        try:
            body = msgspec.convert(json.loads(answer.content), _FailureBody)
        except (ValueError, RecursionError):
            # From a proxy before the server.
            return cls(answer.status_code, answer.reason_phrase or NO_REASON)
        try:
            code = msgspec.convert(body.data or {}, _SentRow).error
        except msgspec.ValidationError:
            code = 0
        reason = body.error.message or body.message or NO_REASON
        return cls(answer.status_code, reason.rstrip(".!"), code=code)


class BlueBubblesUnreachable(KeryxError):
    pass


class BlueBubblesNoResponse(KeryxError):
    pass


class _FailureReason(msgspec.Struct, frozen=True):
    message: str = ""


class _SentRow(msgspec.Struct, frozen=True):
    error: int = 0


class _FailureBody(msgspec.Struct, frozen=True):
    message: str = ""
    error: _FailureReason = _FailureReason()
    data: Any = None


class BlueBubblesApi:
    """The calls to one server. Opens its connections when they are needed."""

    def __init__(self, base_url: str, password: str) -> None:
        self._base = f"{base_url.rstrip('/')}/api/v1"
        self._query = {"password": password}
        self._clients = HttpClientPool(lambda trusted: httpx.AsyncClient(verify=trusted))

    async def get_info(self) -> BlueBubblesInfo:
        return convert(await self.get("server/info"), BlueBubblesInfo)

    async def get(self, path: str) -> Any:
        return await self._request("GET", path, _TIMEOUT_SECONDS)

    async def delete(self, path: str) -> Any:
        return await self._request("DELETE", path, _TIMEOUT_SECONDS)

    async def post(self, path: str, body: dict[str, Any], *, seconds: float = _TIMEOUT_SECONDS) -> Any:
        content = json.dumps(body).encode()
        return await self._request(
            "POST", path, seconds, content=content, headers={"content-type": "application/json"}
        )

    async def query_rows(
        self,
        conditions: dict[str, int],
        *,
        newest: bool = False,
        limit: int = MAX_ROWS,
        after: int = 0,
        chat: str = "",
    ) -> list[Any]:
        """Return rows of the table of messages, in no particular order. `conditions` compares columns, such as
        `message.ROWID >`, with numbers; `after` is in milliseconds since 1970."""
        body: dict[str, Any] = {
            "limit": limit,
            "sort": "DESC" if newest else "ASC",
            "with": ["chat", "attachment", "attributedbody"],
            "where": [
                {"statement": f"{compared} :p{number}", "args": {f"p{number}": value}}
                for number, (compared, value) in enumerate(conditions.items())
            ],
        }
        if after:
            body["after"] = after
        if chat:
            body["chatGuid"] = chat
        return convert(await self.post("message/query", body), list[Any])

    async def upload(self, fields: dict[str, str], attachment: Attachment, name: str) -> Any:
        """Send a file as a message."""
        return await self._request(
            "POST",
            "message/attachment",
            SEND_SECONDS,
            data=fields,
            files={"attachment": (name, attachment.body, attachment.mime or UNKNOWN_MIME)},
        )

    async def download(self, guid: str, *, limit: int) -> bytes:
        """Return the bytes of a file that a person sent, as it was sent. Raise `Invalid` if it has more than `limit` bytes
        or does not exist, and `Unavailable` if another attempt may succeed."""
        body = bytearray()
        url = f"{self._base}/attachment/{quote(guid, safe='')}/download"
        try:
            async with (
                self._clients.acquire() as client,
                client.stream(
                    "GET",
                    url,
                    params={**self._query, "original": "true"},
                    timeout=httpx.Timeout(_FILE_SECONDS, connect=_CONNECT_SECONDS),
                ) as response,
            ):
                if response.status_code == 404:
                    raise Invalid(Phrase("file.gone"))
                if response.status_code != 200:
                    # 500 also for a file that is still in iCloud.
                    raise Unavailable(f"BlueBubbles does not give it out (status {response.status_code})")
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > limit:
                        raise Invalid(Phrase("file.too_large", limit=limit))
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise Unavailable(f"BlueBubbles cannot be reached ({type(exc).__name__})") from None
        return bytes(body)

    async def close(self) -> None:
        await self._clients.close()

    async def _request(self, method: str, path: str, seconds: float, **request: Any) -> Any:
        """Return the data of a response. No error is chained: those of the client name the address."""
        try:
            async with self._clients.acquire() as client:
                answer = await client.request(
                    method,
                    f"{self._base}/{path}",
                    params=self._query,
                    timeout=httpx.Timeout(seconds, connect=_CONNECT_SECONDS),
                    **request,
                )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as exc:
            raise BlueBubblesUnreachable(
                Phrase("delivery.unreachable", platform="BlueBubbles", kind=type(exc).__name__)
            ) from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise BlueBubblesUnreachable(
                Phrase(
                    "delivery.unreachable_because",
                    platform="BlueBubbles",
                    reason="its base_url is not a web address",
                )
            ) from None
        except httpx.HTTPError as exc:
            raise BlueBubblesNoResponse(
                Phrase("delivery.not_answered_kind", platform="BlueBubbles", kind=type(exc).__name__)
            ) from None
        if not answer.is_success:
            raise BlueBubblesError.read(answer)
        try:
            found = json.loads(answer.content)
            return found.get("data")
        except (ValueError, RecursionError, AttributeError):
            raise BlueBubblesNoResponse(Phrase("delivery.unreadable", platform="BlueBubbles")) from None


def convert(found: Any, kind: type[T]) -> T:
    """Return the data of a response as a value. Raise `BlueBubblesNoResponse` if it has another form."""
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as exc:
        raise BlueBubblesNoResponse(
            Phrase("delivery.other_form", platform="BlueBubbles", reason=exc)
        ) from None
