"""A client for the parts of the Matrix client-server API that Keryx uses. Translates the errors of a homeserver to Keryx errors."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from keryx.core.durations import parse_retry_after
from keryx.core.errors import (
    CredentialsRefused,
    Forbidden,
    Invalid,
    KeryxError,
    MessageGone,
    NotFound,
    NotSent,
    Refused,
    Retryable,
    SendError,
    TargetGone,
    Throttled,
    Unavailable,
    Uncertain,
)
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.http_clients import HttpClientPool, check_url, read_body
from keryx.surfaces.gateway.matrix.event_types import (
    CREATE,
    MEMBER,
    MESSAGE,
    BackupVersion,
    HistoryPage,
    KeyClaim,
    KeyQuery,
    MatrixEvent,
    SyncResponse,
    parse_state,
)

TOKEN_REFUSED = Phrase("connect.matrix_bad_token")
_DEFAULT_PAUSE = timedelta(seconds=5)
_MAX_ERROR_LENGTH = 200
_TOKEN_ERRORS = {"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED"}
_UNKNOWN_PARENT = "unknown event"
CLIENT_PATH = "/_matrix/client/v3"
_TIMEOUT_SECONDS = 15.0
_MEDIA_TIMEOUT_SECONDS = 60.0
# How long a homeserver asks others for the keys of their people.
_KEYS_TIMEOUT_MS = 8000
T = TypeVar("T")
_JSON_HEADERS = {"content-type": "application/json"}


class HomeserverThrottled(Retryable):
    """The homeserver limits the rate of requests."""


class HomeserverUnavailable(Unavailable):
    """The homeserver cannot be reached, or fails."""


class MatrixErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """An error response."""

    code: str = msgspec.field(name="errcode", default="")
    error: str = ""
    retry_after_ms: float = 0
    status: int = 0
    retry_after: float = 0

    def __str__(self) -> str:
        said = " ".join(self.error[:_MAX_ERROR_LENGTH].split()) or "no reason given"
        return f"{self.status} {self.code}: {said}" if self.code else f"HTTP {self.status}"

    @property
    def throttled(self) -> bool:
        return self.status == 429 or self.code == "M_LIMIT_EXCEEDED"

    @property
    def token_refused(self) -> bool:
        return self.code in _TOKEN_ERRORS or self.status == 401

    @property
    def after(self) -> timedelta:
        if self.retry_after_ms > 0:
            return timedelta(milliseconds=self.retry_after_ms)
        return timedelta(seconds=self.retry_after) if self.retry_after > 0 else _DEFAULT_PAUSE


def translate_error(answer: httpx.Response) -> KeryxError:
    """Return the error of a refused request."""
    body = parse_error_body(answer)
    if body.throttled:
        return HomeserverThrottled(Phrase("delivery.homeserver_pause"), after=body.after)
    if body.token_refused:
        return Forbidden(TOKEN_REFUSED)
    if body.status in (403, 404):
        return NotFound(f"the homeserver does not give it out ({body})")
    if body.status >= 500:
        return HomeserverUnavailable(Phrase("delivery.homeserver_problem", reason=body))
    return Invalid(f"the homeserver refuses the request ({body})")


def translate_send_error(answer: httpx.Response) -> SendError:
    """Return the error of a refused message."""
    body = parse_error_body(answer)
    if body.throttled:
        return Throttled(Phrase("delivery.homeserver_pause"), after=body.after, account=True)
    if body.token_refused:
        return CredentialsRefused(TOKEN_REFUSED)
    if body.status >= 500:
        return Uncertain(Phrase("delivery.homeserver_problem", reason=body))
    if body.status == 400 and _UNKNOWN_PARENT in body.error.lower():
        return MessageGone(Phrase("delivery.edit_gone"))
    if body.status == 403:
        return TargetGone(Phrase("reason.detailed", reason=Phrase("gone.not_in_room"), detail=str(body)))
    return Refused(Phrase("delivery.homeserver_refuses", reason=body))


def parse_error_body(answer: httpx.Response) -> MatrixErrorBody:
    try:
        body = msgspec.json.decode(answer.content, type=MatrixErrorBody, strict=False)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        body = MatrixErrorBody()
    wait = parse_retry_after(answer.headers, now=datetime.now(UTC)) or timedelta(0)
    return msgspec.structs.replace(body, status=answer.status_code, retry_after=wait.total_seconds())


class WhoamiResponse(msgspec.Struct, frozen=True):
    user_id: str
    device_id: str = ""


class MatrixLogin(msgspec.Struct, frozen=True):
    user_id: str
    access_token: str


class RoomMember(msgspec.Struct, frozen=True):
    display_name: str | None = None


class _JoinedMembers(msgspec.Struct, frozen=True):
    joined: dict[str, RoomMember]


class _SendResponse(msgspec.Struct, frozen=True):
    event_id: str


class _UploadResponse(msgspec.Struct, frozen=True):
    content_uri: str


class _MemberEvents(msgspec.Struct, frozen=True):
    chunk: tuple[MatrixEvent, ...]


class _BackupCreated(msgspec.Struct, frozen=True):
    version: str


class _BackupRoom(msgspec.Struct, frozen=True):
    sessions: dict[str, dict[str, Any]]


class _BackupKeys(msgspec.Struct, frozen=True):
    rooms: dict[str, _BackupRoom]


class _HomeserverAddress(msgspec.Struct, frozen=True):
    base_url: str


class _WellKnown(msgspec.Struct, frozen=True):
    homeserver: _HomeserverAddress = msgspec.field(name="m.homeserver")


class Homeserver:
    """The calls of one account. Opens its connections when they are needed. Neither errors nor logs contain the token."""

    def __init__(self, url: str, token: str = "") -> None:
        base, headers = normalize_url(url), {"authorization": f"Bearer {token}"} if token else {}
        self._clients = HttpClientPool(
            lambda trusted: httpx.AsyncClient(
                verify=trusted,
                base_url=base,
                headers=headers,
                timeout=httpx.Timeout(_TIMEOUT_SECONDS, connect=10),
            )
        )

    async def close(self) -> None:
        await self._clients.close()

    async def whoami(self) -> str:
        """Return the user of the token."""
        return (await self._get(f"{CLIENT_PATH}/account/whoami", WhoamiResponse)).user_id

    async def find_device(self) -> str:
        """Return the id of the device that the token belongs to, or an empty text."""
        return (await self._get(f"{CLIENT_PATH}/account/whoami", WhoamiResponse)).device_id

    async def login(self, user: str, password: str, *, device: str) -> MatrixLogin:
        """Return a new access token for a password."""
        body = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": user},
            "password": password,
            "initial_device_display_name": device,
        }
        try:
            return _decode_response(
                await self._request("POST", f"{CLIENT_PATH}/login", body=body), MatrixLogin
            )
        except NotFound as exc:
            raise Forbidden("the homeserver does not accept this name and password") from exc

    async def sync(self, since: str | None, *, filter: str, wait: timedelta) -> SyncResponse:
        params = {"filter": filter, "timeout": str(int(wait.total_seconds() * 1000))}
        if since is not None:
            params["since"] = since
        return await self._get(
            f"{CLIENT_PATH}/sync",
            SyncResponse,
            params=params,
            seconds=wait.total_seconds() + _MEDIA_TIMEOUT_SECONDS,
        )

    async def fetch_history(self, room: str, *, start: str, stop: str, filter: str, most: int) -> HistoryPage:
        """Return events of a room from one position up to another, oldest first."""
        params = {"dir": "f", "from": start, "to": stop, "limit": str(most), "filter": filter}
        return await self._get(f"{_build_room_path(room)}/messages", HistoryPage, params=params)

    async def find_event(self, room: str, event: str) -> MatrixEvent | None:
        """Return one event, or `None` if it does not exist or this account may not read it."""
        return await self._find(f"{_build_room_path(room)}/event/{_quote_segment(event)}", MatrixEvent)

    async def find_state(self, room: str, kind: str, as_type: type[T], *, key: str = "") -> T | None:
        return await self._find(_build_state_path(room, kind, key), as_type)

    async def find_creation(self, room: str) -> MatrixEvent | None:
        """Return the `m.room.create` event with its sender."""
        try:
            return await self._get(_build_state_path(room, CREATE), MatrixEvent, params={"format": "event"})
        except NotFound:
            return None

    async def list_members(self, room: str) -> dict[str, str]:
        """Return the display names of all members of a room by user id."""
        found = await self._find(f"{_build_room_path(room)}/joined_members", _JoinedMembers)
        return {user: m.display_name or "" for user, m in found.joined.items()} if found else {}

    async def get_display_name(self, user: str) -> str:
        found = await self._find(f"{CLIENT_PATH}/profile/{_quote_segment(user)}/displayname", dict[str, Any])
        name = (found or {}).get("displayname")
        return name if isinstance(name, str) else ""

    async def get_account_data(self, user: str, kind: str, *, room: str = "") -> dict[str, Any]:
        """Return the data that the account stores on its server under a name; empty if there is none."""
        return await self._find(_build_account_data_path(user, kind, room), dict[str, Any]) or {}

    async def set_account_data(
        self, user: str, kind: str, value: Mapping[str, Any], *, room: str = ""
    ) -> None:
        await self._request("PUT", _build_account_data_path(user, kind, room), body=value)

    async def join(self, room: str) -> None:
        await self._request("POST", f"{_build_room_path(room)}/join", body={})

    async def mark_read(self, room: str, event: str) -> None:
        await self._request(
            "POST", f"{_build_room_path(room)}/read_markers", body={"m.fully_read": event, "m.read": event}
        )

    async def set_typing(self, room: str, user: str, *, seconds: float) -> None:
        """Show for these seconds that the user is typing; with 0 seconds, stop showing it."""
        body = {"typing": True, "timeout": int(seconds * 1000)} if seconds else {"typing": False}
        await self._request("PUT", f"{_build_room_path(room)}/typing/{_quote_segment(user)}", body=body)

    async def download(self, mxc: str, *, limit: int) -> bytes:
        """Return the bytes of a file. Raise `Invalid` for more than `limit` bytes, for an invalid address, and for a file
        that is not there."""
        server, _, name = mxc.removeprefix("mxc://").partition("/")
        if not mxc.startswith("mxc://") or not server or not name or "/" in name:
            raise Invalid(Phrase("file.elsewhere", platform="Matrix"))
        path = f"/_matrix/client/v1/media/download/{_quote_segment(server)}/{_quote_segment(name)}"
        try:
            async with (
                self._clients.acquire() as client,
                client.stream("GET", path, timeout=_MEDIA_TIMEOUT_SECONDS) as answer,
            ):
                if answer.status_code != 200:
                    await answer.aread()
                    refusal = parse_error_body(answer)
                    if refusal.throttled:
                        raise HomeserverThrottled(Phrase("delivery.homeserver_pause"), after=refusal.after)
                    gone = answer.status_code in (400, 403, 404, 410)
                    reason = Phrase("file.refused", platform="Matrix", status=str(refusal))
                    raise (Invalid if gone else Unavailable)(reason)
                return await read_body(answer, limit)
        except httpx.HTTPError as exc:
            raise Unavailable(f"the homeserver cannot be reached: {_describe_error(exc)}") from exc

    async def upload(self, name: str, mime: str, body: bytes) -> str:
        """Upload a file and return its `mxc` URI. It is not visible yet, so every failure may be retried."""
        try:
            async with self._clients.acquire() as client:
                answer = await client.post(
                    "/_matrix/media/v3/upload",
                    params={"filename": name} if name else None,
                    headers={"content-type": mime or "application/octet-stream"},
                    content=body,
                    timeout=_MEDIA_TIMEOUT_SECONDS,
                )
        except httpx.HTTPError as exc:
            raise NotSent(Phrase("delivery.not_uploaded", reason=_describe_error(exc))) from exc
        if answer.status_code >= 500:
            raise NotSent(Phrase("delivery.not_uploaded", reason=parse_error_body(answer)))
        if answer.status_code != 200:
            raise translate_send_error(answer)
        try:
            return msgspec.json.decode(answer.content, type=_UploadResponse).content_uri
        except (msgspec.DecodeError, RecursionError) as exc:
            raise NotSent(Phrase("delivery.upload_unreadable")) from exc

    async def send(
        self, room: str, transaction: str, content: Mapping[str, Any], *, kind: str = MESSAGE
    ) -> str:
        """Send a message once per transaction id and return the event id. Raise a `SendError` on failure."""
        return await self._put_event(
            f"{_build_room_path(room)}/send/{_quote_segment(kind)}/{_quote_segment(transaction)}", content
        )

    async def redact(self, room: str, event: str, transaction: str) -> None:
        """Remove the content of an event. Raise a `SendError` on failure."""
        path = f"{_build_room_path(room)}/redact/{_quote_segment(event)}/{_quote_segment(transaction)}"
        await self._put_event(path, {})

    async def list_recipients(self, room: str) -> list[str]:
        """Return the users who are in a room or invited to it. Raise `NotFound` if this account is not."""
        found = await self._get(f"{_build_room_path(room)}/members", _MemberEvents)
        return [
            event.state_key
            for event in found.chunk
            if event.type == MEMBER
            and event.state_key
            and parse_state(event).membership in ("join", "invite")
        ]

    async def upload_keys(self, body: Mapping[str, Any]) -> None:
        """Publish keys of this device."""
        await self._request("POST", f"{CLIENT_PATH}/keys/upload", body=body)

    async def query_keys(self, users: Sequence[str]) -> KeyQuery:
        body = {"device_keys": {user: list[str]() for user in users}, "timeout": _KEYS_TIMEOUT_MS}
        return await self._post(f"{CLIENT_PATH}/keys/query", body, KeyQuery)

    async def claim_keys(self, devices: Mapping[str, Sequence[str]]) -> KeyClaim:
        """Take one one-time key of each device."""
        wanted = {user: dict.fromkeys(names, "signed_curve25519") for user, names in devices.items()}
        body = {"one_time_keys": wanted, "timeout": _KEYS_TIMEOUT_MS}
        return await self._post(f"{CLIENT_PATH}/keys/claim", body, KeyClaim)

    async def send_to_devices(
        self, kind: str, transaction: str, messages: Mapping[str, Mapping[str, Mapping[str, Any]]]
    ) -> None:
        """Send a message to each device, by user and device, once per transaction id."""
        path = f"{CLIENT_PATH}/sendToDevice/{_quote_segment(kind)}/{_quote_segment(transaction)}"
        await self._request("PUT", path, body={"messages": messages})

    async def upload_identity(self, body: Mapping[str, Any]) -> None:
        """Publish the cross-signing keys of the account."""
        await self._request("POST", f"{CLIENT_PATH}/keys/device_signing/upload", body=body)

    async def upload_signatures(self, body: Mapping[str, Any]) -> None:
        await self._request("POST", f"{CLIENT_PATH}/keys/signatures/upload", body=body)

    async def find_backup(self) -> BackupVersion | None:
        return await self._find(f"{CLIENT_PATH}/room_keys/version", BackupVersion)

    async def create_backup(self, algorithm: str, auth_data: Mapping[str, Any]) -> str:
        """Create a key backup and return its version."""
        body = {"algorithm": algorithm, "auth_data": auth_data}
        return (await self._post(f"{CLIENT_PATH}/room_keys/version", body, _BackupCreated)).version

    async def upload_backup(self, version: str, rooms: Mapping[str, Any]) -> None:
        await self._request(
            "PUT", f"{CLIENT_PATH}/room_keys/keys", params={"version": version}, body={"rooms": rooms}
        )

    async def download_backup(self, version: str) -> dict[str, dict[str, dict[str, Any]]]:
        """Return the keys of a backup by room and session."""
        found = await self._get(
            f"{CLIENT_PATH}/room_keys/keys",
            _BackupKeys,
            params={"version": version},
            seconds=_MEDIA_TIMEOUT_SECONDS,
        )
        return {room: value.sessions for room, value in found.rooms.items()}

    async def _post(self, path: str, body: Mapping[str, Any], kind: type[T]) -> T:
        return _decode_response(await self._request("POST", path, body=body), kind)

    async def _put_event(self, path: str, content: Mapping[str, Any]) -> str:
        try:
            async with self._clients.acquire() as client:
                answer = await client.put(path, content=msgspec.json.encode(content), headers=_JSON_HEADERS)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as exc:
            raise NotSent(Phrase("delivery.homeserver_unreachable", reason=_describe_error(exc))) from exc
        except httpx.HTTPError as exc:
            raise Uncertain(Phrase("delivery.connection_broken", reason=_describe_error(exc))) from exc
        if answer.status_code != 200:
            raise translate_send_error(answer)
        try:
            return msgspec.json.decode(answer.content, type=_SendResponse).event_id
        except (msgspec.DecodeError, RecursionError) as exc:
            raise Uncertain(Phrase("delivery.homeserver_unreadable")) from exc

    async def _find(self, path: str, kind: type[T]) -> T | None:
        try:
            return await self._get(path, kind)
        except NotFound:
            return None

    async def _get(
        self,
        path: str,
        kind: type[T],
        *,
        params: Mapping[str, str] | None = None,
        seconds: float = _TIMEOUT_SECONDS,
    ) -> T:
        return _decode_response(await self._request("GET", path, params=params, seconds=seconds), kind)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        seconds: float = _TIMEOUT_SECONDS,
    ) -> bytes:
        try:
            async with self._clients.acquire() as client:
                answer = await client.request(
                    method,
                    path,
                    params=params,
                    content=None if body is None else msgspec.json.encode(body),
                    headers=None if body is None else _JSON_HEADERS,
                    timeout=httpx.Timeout(seconds, connect=10),
                )
        except httpx.HTTPError as exc:
            raise HomeserverUnavailable(
                Phrase("delivery.homeserver_unreachable", reason=_describe_error(exc))
            ) from exc
        if answer.status_code != 200:
            raise translate_error(answer)
        return answer.content


def normalize_url(url: str) -> str:
    """Return the URL of a homeserver without a trailing slash. Raise `Invalid` for anything else."""
    return check_url(url, "this is not the address of a homeserver: write it like https://matrix.example.org")


async def discover_url(text: str) -> str:
    """Return the URL of the homeserver of a domain or URL, following the well-known file of a domain."""
    url = normalize_url(text if "://" in text else f"https://{text}")
    try:
        async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, follow_redirects=True) as client:
            answer = await client.get(f"{url}/.well-known/matrix/client")
        known = msgspec.json.decode(answer.content, type=_WellKnown) if answer.status_code == 200 else None
    except httpx.HTTPError as exc:
        raise HomeserverUnavailable(
            Phrase("delivery.homeserver_address", address=url, reason=_describe_error(exc))
        ) from exc
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        known = None
    return normalize_url(known.homeserver.base_url) if known else url


def _decode_response(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise HomeserverUnavailable(Phrase("delivery.homeserver_wrong_address")) from exc


def _describe_error(exc: httpx.HTTPError) -> str:
    return str(exc) or type(exc).__name__


def _build_account_data_path(user: str, kind: str, room: str) -> str:
    scope = f"/rooms/{_quote_segment(room)}" if room else ""
    return f"{CLIENT_PATH}/user/{_quote_segment(user)}{scope}/account_data/{_quote_segment(kind)}"


def _build_room_path(room: str) -> str:
    return f"{CLIENT_PATH}/rooms/{_quote_segment(room)}"


def _build_state_path(room: str, kind: str, key: str = "") -> str:
    return f"{_build_room_path(room)}/state/{_quote_segment(kind)}" + (
        f"/{_quote_segment(key)}" if key else ""
    )


def _quote_segment(text: str) -> str:
    """Quote foreign text as one segment of a path. A segment of dots alone would change the path."""
    quoted = quote(text, safe="", errors="surrogatepass")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")
