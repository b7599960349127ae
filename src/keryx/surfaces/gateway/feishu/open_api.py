"""Feishu's server API: calls with a token that is fetched and renewed, file transfer, and typed errors without a secret in them."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import httpx
import msgspec

from keryx.core.durations import parse_retry_after
from keryx.core.errors import Forbidden, KeryxError
from keryx.core.media import Attachment
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.feishu.payloads import ConnectionEndpoint, FeishuIdentity
from keryx.surfaces.gateway.http_clients import (
    NO_REASON,
    HttpClientPool,
    build_timeout,
    read_body,
    translate_errors,
)

FEISHU_URL = "https://open.feishu.cn"
LARK_URL = "https://open.larksuite.com"
_TIMEOUT_SECONDS = 20.0
_FILE_TIMEOUT_SECONDS = 60.0
# A token is valid for two hours, and a new one is handed out in its last half hour.
_RENEW_BEFORE_SECONDS = 900.0
_DEFAULT_RETRY_AFTER = timedelta(seconds=1)
_JSON_MIME = "application/json"
_JSON = f"{_JSON_MIME}; charset=utf-8"
_ID_SEGMENT = re.compile(r"/(?:o[a-z]{1,2}|img|file)_[^/]*")
_RESET_HEADER = "x-ogw-ratelimit-reset"
_TOKEN_PATH = "/open-apis/auth/v3/tenant_access_token/internal"
_ENDPOINT_PATH = "/callback/ws/endpoint"
CONNECTION_LIMIT = 1000040350

BAD_SECRET = Phrase("connect.feishu_bad_secret")
NO_BOT = Phrase("connect.feishu_no_bot")
# The App ID or the App Secret is wrong: for a token, and for a long connection.
_REFUSED_CREDENTIALS = frozenset({10003, 10012, 10014, 403, 514, 1000040344})
# The token is missing, wrong or out of date.
_REFUSED_TOKENS = frozenset({99991661, 99991663, 99991664, 99991665, 99991668, 99991671, 99991677})
# Too many calls of the app; and too many messages to one chat, or edits of one message.
_ACCOUNT_LIMITS = frozenset({99991400, 1000004, 1000005})
_CHAT_LIMITS = frozenset({11020, 11021, 11232, 11233, 230020})
# The platform may have done what it was asked to: 230049 is a message that is being sent.
_UNCERTAIN_CODES = frozenset({230049, 1500, 2200})
_LACKS_SCOPE = frozenset({99991672, 99991679, 230027})


class FeishuApiError(KeryxError):
    """A refusal. `code` is Feishu's number for it."""

    def __init__(self, call: str, code: int, message: str, *, retry_after: timedelta | None = None) -> None:
        words = " ".join(message.split())[:300] or NO_REASON
        reason = f"{words} ({code})"
        if code in _REFUSED_CREDENTIALS or code in _REFUSED_TOKENS:
            reason = BAD_SECRET
        elif code in _LACKS_SCOPE:
            reason = f"the app lacks a permission. Add it on the page Permissions & Scopes of the app and publish a version ({code}: {words})"
        super().__init__(f"Feishu refuses {call}: {reason}")
        self.call = call
        self.code = code
        self.message = message
        # Set if the platform asks to wait.
        self.retry_after = retry_after

    @property
    def account_limited(self) -> bool:
        return self.code in _ACCOUNT_LIMITS

    @property
    def uncertain(self) -> bool:
        return self.code in _UNCERTAIN_CODES

    @property
    def unauthorized(self) -> bool:
        return self.code in _REFUSED_CREDENTIALS or self.code in _REFUSED_TOKENS

    @property
    def lacks_scope(self) -> bool:
        return self.code in _LACKS_SCOPE


class FeishuUnreachable(KeryxError):
    """Nothing was done: the platform could not be reached, or gave no token."""


class FeishuNoResponse(KeryxError):
    """The platform may have done what it was asked to."""


FEISHU_ERRORS = (FeishuApiError, FeishuUnreachable, FeishuNoResponse)


def check_access(error: FeishuApiError) -> None:
    """Raise `Forbidden` for a refusal of the credentials or of a permission."""
    if error.unauthorized:
        raise Forbidden(BAD_SECRET) from None
    if error.lacks_scope:
        raise Forbidden(str(error)) from None


class FeishuFile(NamedTuple):
    body: bytes
    mime: str


class FeishuApi:
    """The calls of one app. Opens its connections when they are needed."""

    def __init__(
        self,
        app_id: str,
        app_secret: str,
        base_url: str = FEISHU_URL,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app_id = app_id
        self._app_secret = app_secret
        self._base = base_url.rstrip("/")
        self._now = now
        self._token = ""
        self._renew_at = 0.0
        self._renewal = asyncio.Lock()
        self._clients = HttpClientPool(lambda trusted: httpx.AsyncClient(verify=trusted))

    async def close(self) -> None:
        await self._clients.close()

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        seconds: float = _TIMEOUT_SECONDS,
    ) -> dict[str, Any]:
        """Return the answer to a call. A token that is refused is replaced once."""
        request: dict[str, Any] = {}
        if body is not None:
            request = {"content": encode_json(body).encode(), "headers": {"content-type": _JSON}}
        if query is not None:
            request["params"] = dict(query)
        return await self._authorize(method, path, seconds, request)

    async def upload(
        self, path: str, fields: Mapping[str, str], name: str, file: Attachment
    ) -> dict[str, Any]:
        """Send a file as the field `name` of a form."""
        content = (file.name or "file", file.body, file.mime or "application/octet-stream")
        request = {"data": dict(fields), "files": {name: content}}
        return await self._authorize("POST", path, _FILE_TIMEOUT_SECONDS, request)

    async def identify(self) -> FeishuIdentity:
        """Return who the bot is. Raise `Forbidden` if the app has none."""
        answer = await self.call("GET", "/open-apis/bot/v3/info")
        try:
            me = msgspec.convert(answer.get("bot"), FeishuIdentity)
        except msgspec.ValidationError:
            raise Forbidden(NO_BOT) from None
        if not me.open_id:
            raise Forbidden(NO_BOT)
        return me

    async def open_connection(self) -> ConnectionEndpoint:
        """Return the address of a new long connection, which contains a ticket, and how it is kept."""
        credentials = {"AppID": self.app_id, "AppSecret": self._app_secret}
        answer = await self._send(
            "POST", _ENDPOINT_PATH, _TIMEOUT_SECONDS, {"json": credentials, "headers": {"locale": "en"}}
        )
        found = _read_answer("a long connection", answer)
        try:
            return msgspec.convert(found.get("data"), ConnectionEndpoint)
        except msgspec.ValidationError:
            raise FeishuNoResponse(Phrase("delivery.no_connection_address", platform="Feishu")) from None

    async def download(self, message: str, key: str, kind: str, *, limit: int) -> FeishuFile:
        """Return a file of a message. Raise `Invalid` for one that has more than `limit` bytes. A token that is refused is
        replaced once."""
        path = f"/open-apis/im/v1/messages/{quote(message, safe='')}/resources/{quote(key, safe='')}"
        token = await self.fetch_token()
        try:
            return await self._stream_file(token, path, kind, limit)
        except FeishuApiError as exc:
            if exc.code not in _REFUSED_TOKENS:
                raise
        return await self._stream_file(await self.fetch_token(refused=token), path, kind, limit)

    async def fetch_token(self, *, refused: str = "") -> str:
        """Return a token to call with, another one than `refused`. One is fetched for all callers that wait."""
        async with self._renewal:
            if self._token and self._token != refused and self._now() < self._renew_at:
                return self._token
            body = {"app_id": self.app_id, "app_secret": self._app_secret}
            try:
                answer = await self._send("POST", _TOKEN_PATH, _TIMEOUT_SECONDS, {"json": body})
                found = _read_answer("a token", answer)
                token, seconds = str(found["tenant_access_token"]), float(found["expire"])
            except FeishuNoResponse as exc:
                raise FeishuUnreachable(str(exc)) from None
            except (KeyError, TypeError, ValueError):
                raise FeishuUnreachable(Phrase("delivery.no_token", platform="Feishu")) from None
            self._token = token
            self._renew_at = self._now() + max(seconds - _RENEW_BEFORE_SECONDS, seconds / 2)
            return token

    async def _stream_file(self, token: str, path: str, kind: str, limit: int) -> FeishuFile:
        try:
            async with (
                self._clients.acquire() as client,
                client.stream(
                    "GET",
                    f"{self._base}{path}",
                    params={"type": kind},
                    headers={"authorization": f"Bearer {token}"},
                    timeout=build_timeout(_FILE_TIMEOUT_SECONDS),
                ) as answer,
            ):
                if answer.status_code != 200:
                    await answer.aread()
                    _read_answer("the file", answer)
                body = await read_body(answer, limit)
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise FeishuNoResponse(Phrase("delivery.not_fetched", kind=type(exc).__name__)) from None
        return FeishuFile(body, answer.headers.get("content-type", "").partition(";")[0].strip())

    async def _authorize(
        self, method: str, path: str, seconds: float, request: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Make a call with the token. One that is refused for its token has done nothing, and is made again."""
        # Errors are logged, without the ids of people and chats.
        call = f"{method} {_ID_SEGMENT.sub('/…', path)}"
        token = await self.fetch_token()
        for last in (False, True):
            headers = {**request.get("headers", {}), "authorization": f"Bearer {token}"}
            answer = await self._send(method, path, seconds, {**request, "headers": headers})
            try:
                return _read_answer(call, answer)
            except FeishuApiError as exc:
                if exc.code not in _REFUSED_TOKENS or last:
                    raise
            token = await self.fetch_token(refused=token)
        raise AssertionError("the second attempt returns or raises")

    async def _send(
        self, method: str, path: str, seconds: float, request: Mapping[str, Any]
    ) -> httpx.Response:
        with translate_errors("Feishu", FeishuUnreachable, FeishuNoResponse):
            async with self._clients.acquire() as client:
                return await client.request(
                    method, f"{self._base}{path}", timeout=build_timeout(seconds), **request
                )


def read_data(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of an answer that most calls are made for; empty if it has none."""
    data: Any = answer.get("data")
    return cast("Mapping[str, Any]", data) if isinstance(data, dict) else {}


def encode_json(value: object) -> str:
    """Return JSON without escapes, as limits are counted. Lone surrogates are replaced."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode()


class _FeishuStatus(msgspec.Struct, frozen=True):
    code: int
    msg: str = ""


def _read_answer(call: str, answer: httpx.Response) -> dict[str, Any]:
    """Return the answer of a call that succeeded. Raise `FeishuApiError` for a refusal, `FeishuNoResponse` for anything that
    leaves open what was done."""
    try:
        found = json.loads(answer.content)
        status = msgspec.convert(found, _FeishuStatus)
    except (ValueError, RecursionError):
        if answer.status_code == 429:
            raise FeishuApiError(call, 99991400, "too many calls", retry_after=_read_wait(answer)) from None
        if 400 <= answer.status_code < 500:
            raise FeishuApiError(call, -answer.status_code, "it gives no reason") from None
        raise FeishuNoResponse(
            Phrase("delivery.broke_down_status", platform="Feishu", status=answer.status_code)
        ) from None
    if status.code == 0 and answer.status_code < 400:
        return found
    limited = answer.status_code == 429 or status.code in _ACCOUNT_LIMITS | _CHAT_LIMITS
    if answer.status_code >= 500 and not limited and status.code not in _REFUSED_TOKENS:
        raise FeishuNoResponse(
            Phrase(
                "delivery.broke_down_status", platform="Feishu", status=f"{answer.status_code}, {status.code}"
            )
        )
    wait = _read_wait(answer) if limited else None
    raise FeishuApiError(call, status.code, status.msg, retry_after=wait)


def _read_wait(answer: httpx.Response) -> timedelta:
    try:
        return timedelta(seconds=max(0.0, float(answer.headers.get(_RESET_HEADER, ""))))
    except (ValueError, OverflowError):
        return parse_retry_after(answer.headers, now=datetime.now(UTC)) or _DEFAULT_RETRY_AFTER
