"""Tencent's iLink bot API: calls, the CDN for files with its encryption, and typed errors without the token in them."""

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from keryx.core.durations import parse_retry_after
from keryx.core.errors import Invalid, KeryxError, format_install_command
from keryx.core.texts import Phrase
from keryx.surfaces.gateway import BLOCK_BYTES, encrypt_aes
from keryx.surfaces.gateway.http_clients import HttpClientPool, build_timeout, read_body, translate_errors
from keryx.surfaces.gateway.wechat.payloads import CdnUploadType, UploadLocation

DEFAULT_URL = "https://ilinkai.weixin.qq.com"
DEFAULT_CDN_URL = "https://novac2c.cdn.weixin.qq.com/c2c"
# The version of Tencent's plug-in whose protocol this is.
PROTOCOL_VERSION = (2, 4, 9)
CIPHER_MISSING = Phrase("file.no_cipher", command=format_install_command("wechat"))
SESSION_EXPIRED = -14
NOT_NOW = -2
SYSTEM_ERROR = -1
_TIMEOUT_SECONDS = 20.0
_FILE_TIMEOUT_SECONDS = 60.0
_MAX_DESCRIPTION = 200
# The hosts that may get the token, or bring files, besides those of the settings.
_OWN_DOMAINS = ("weixin.qq.com", "wechat.com")

T = TypeVar("T", bound=msgspec.Struct)


class WeChatApiError(KeryxError):
    """A refusal. `code` is that of iLink, 0 if the status of HTTP says it all; `retry_after` is in seconds, 0 if none was
    named."""

    def __init__(self, status: int, code: int, description: str, *, retry_after: float = 0) -> None:
        super().__init__(f"WeChat says: {description or 'no reason is given'} ({code or status})")
        self.status = status
        self.code = code
        self.description = description
        self.retry_after = retry_after

    @property
    def expired(self) -> bool:
        """The session of the bot has ended: a new login is needed."""
        return self.code == SESSION_EXPIRED or self.status == 401


class WeChatUnreachable(KeryxError):
    pass


class WeChatNoResponse(KeryxError):
    """It is unknown whether WeChat has accepted the call. `timed_out` if it was silent for as long as it may be."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class CdnFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file on the CDN, as a message names it."""

    # Base64 of the key in hexadecimal form.
    aes_key: str
    download_param: str
    encrypted_size: int


class ILinkApi:
    """The calls of one bot; without a token those of a login. Opens its connections when they are needed."""

    def __init__(self, token: str = "", base_url: str = DEFAULT_URL, cdn_url: str = DEFAULT_CDN_URL) -> None:
        self._token = token
        self._base = base_url.rstrip("/")
        self._cdn = cdn_url.rstrip("/")
        self._clients = HttpClientPool(lambda trusted: httpx.AsyncClient(verify=trusted))

    async def post(
        self,
        method: str,
        body: Mapping[str, Any],
        kind: type[T],
        *,
        seconds: float = _TIMEOUT_SECONDS,
        query: Mapping[str, str] = {},
    ) -> T:
        """Return the answer of a method. Raise `WeChatApiError` for a refusal."""
        content = {**body, "base_info": _BASE_INFO} if self._token else dict(body)
        headers = {
            **_APP_HEADERS,
            "content-type": "application/json",
            "authorizationtype": "ilink_bot_token",
            "x-wechat-uin": base64.b64encode(str(secrets.randbits(32)).encode()).decode(),
        }
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        # Escaped, because a text may have characters that UTF-8 has not.
        return await self._request(
            "POST",
            f"{self._base}/ilink/bot/{method}",
            kind,
            seconds,
            content=json.dumps(content).encode(),
            headers=headers,
            params=dict(query),
        )

    async def get(
        self, method: str, kind: type[T], *, base_url: str = "", seconds: float, query: Mapping[str, str]
    ) -> T:
        """Return the answer of a method of the login, of the API at another address if one is given."""
        return await self._request(
            "GET",
            f"{(base_url or self._base).rstrip('/')}/ilink/bot/{method}",
            kind,
            seconds,
            headers=dict(_APP_HEADERS),
            params=dict(query),
        )

    async def upload(self, body: bytes, kind: CdnUploadType, *, to: str) -> CdnFile:
        """Encrypt a file and store it on the CDN, for messages to one person."""
        key, name = secrets.token_bytes(16), secrets.token_hex(16)
        encrypted = await asyncio.to_thread(encrypt_aes, body, key)
        checksum = await asyncio.to_thread(hashlib.md5, body, usedforsecurity=False)
        location = await self.post(
            "getuploadurl",
            {
                "filekey": name,
                "media_type": kind.value,
                "to_user_id": to,
                "rawsize": len(body),
                "rawfilemd5": checksum.hexdigest(),
                "filesize": len(encrypted),
                "no_need_thumb": True,
                "aeskey": key.hex(),
            },
            UploadLocation,
        )
        url = location.upload_full_url
        if not url or not is_own_url(url, self._cdn):
            url = f"{self._cdn}/upload?encrypted_query_param={quote(location.upload_param, safe='')}&filekey={name}"
        return CdnFile(
            aes_key=base64.b64encode(key.hex().encode()).decode(),
            download_param=await self._store(url, encrypted),
            encrypted_size=len(encrypted),
        )

    async def download(self, *, url: str, param: str, limit: int) -> bytes:
        """Return the bytes of a file on the CDN, which may be encrypted. Raise `Invalid` if there are more than
        `limit`, and a block of padding, or if it is not on WeChat."""
        address = url if url and is_own_url(url, self._cdn) else ""
        if not address and not param:
            raise Invalid(Phrase("file.elsewhere", platform="WeChat"))
        address = address or f"{self._cdn}/download?encrypted_query_param={quote(param, safe='')}"
        try:
            async with (
                self._clients.acquire() as client,
                client.stream("GET", address, timeout=build_timeout(_FILE_TIMEOUT_SECONDS)) as answer,
            ):
                if answer.status_code != 200:
                    raise WeChatApiError(answer.status_code, 0, _read_reason(answer))
                return await read_body(answer, limit, padding=BLOCK_BYTES)
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise WeChatUnreachable(
                Phrase("delivery.unreachable", platform="the CDN of WeChat", kind=type(exc).__name__)
            ) from None

    async def close(self) -> None:
        await self._clients.close()

    async def _store(self, url: str, encrypted: bytes) -> str:
        """Send a file to the CDN and return the parameter for fetching it."""
        try:
            async with self._clients.acquire() as client:
                answer = await client.post(
                    url,
                    content=encrypted,
                    headers={"content-type": "application/octet-stream"},
                    timeout=build_timeout(_FILE_TIMEOUT_SECONDS),
                )
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise WeChatUnreachable(
                Phrase("delivery.unreachable", platform="the CDN of WeChat", kind=type(exc).__name__)
            ) from None
        found = answer.headers.get("x-encrypted-param", "")
        if answer.status_code != 200 or not found:
            raise WeChatApiError(answer.status_code, 0, _read_reason(answer))
        return found

    async def _request(self, method: str, url: str, kind: type[T], seconds: float, **request: Any) -> T:
        with translate_errors("WeChat", WeChatUnreachable, WeChatNoResponse):
            try:
                async with self._clients.acquire() as client:
                    answer = await client.request(method, url, timeout=build_timeout(seconds), **request)
            except httpx.ReadTimeout:
                raise WeChatNoResponse(
                    Phrase("delivery.not_answered_kind", platform="WeChat", kind="ReadTimeout"),
                    timed_out=True,
                ) from None
        # An answer as `kind`. Messages are accepted with an empty object or an empty body.
        if answer.status_code != 200:
            wait = parse_retry_after(answer.headers, now=datetime.now(UTC))
            raise WeChatApiError(
                answer.status_code, 0, _read_reason(answer), retry_after=wait.total_seconds() if wait else 0
            )
        try:
            found: Any = json.loads(answer.content.strip() or b"{}")
            if not isinstance(found, dict):
                raise ValueError
            fields = {k: v for k, v in cast(dict[str, Any], found).items() if v is not None}
            code = int(fields.get("errcode") or fields.get("ret") or 0)
            if code:
                raise WeChatApiError(
                    answer.status_code, code, str(fields.get("errmsg", ""))[:_MAX_DESCRIPTION]
                )
            return msgspec.convert(fields, kind, strict=False)
        except (ValueError, TypeError, RecursionError, msgspec.ValidationError):
            raise WeChatNoResponse(Phrase("delivery.unreadable", platform="WeChat")) from None


def is_own_url(url: str, configured: str) -> bool:
    """Whether an address that was received is on the configured host, or by https on one of Tencent's for WeChat."""
    try:
        given, known = urlsplit(url), urlsplit(configured)
        host = given.hostname or ""
    except ValueError:
        return False
    if (given.scheme, host) == (known.scheme, known.hostname):
        return True
    return given.scheme == "https" and any(host == d or host.endswith(f".{d}") for d in _OWN_DOMAINS)


def _read_reason(answer: httpx.Response) -> str:
    return (answer.headers.get("x-error-message") or answer.reason_phrase)[:_MAX_DESCRIPTION]


_MAJOR, _MINOR, _PATCH = PROTOCOL_VERSION
_APP_HEADERS = {
    "ilink-app-id": "bot",
    "ilink-app-clientversion": str(_MAJOR << 16 | _MINOR << 8 | _PATCH),
}
_BASE_INFO = {
    "channel_version": ".".join(map(str, PROTOCOL_VERSION)),
    "bot_agent": f"Keryx/{version('keryx')}",
}
