"""The client-server API of Matrix, as far as Keryx uses it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from keryx.core.errors import (
    Forbidden,
    Invalid,
    NotFound,
    NotSent,
    Unavailable,
    Uncertain,
)
from keryx.surfaces.gateway.clients import Clients
from keryx.surfaces.gateway.matrix.events import CREATE, MESSAGE, Batch, Event, Page
from keryx.surfaces.gateway.matrix.failures import Away, failure, problem, send_failure

CLIENT = "/_matrix/client/v3"
_SECONDS = 15.0
_MEDIA_SECONDS = 60.0

T = TypeVar("T")


class Whoami(msgspec.Struct, frozen=True):
    user_id: str


class Login(msgspec.Struct, frozen=True):
    user_id: str
    access_token: str


class Member(msgspec.Struct, frozen=True):
    display_name: str | None = None


class _Members(msgspec.Struct, frozen=True):
    joined: dict[str, Member]


class _Sent(msgspec.Struct, frozen=True):
    event_id: str


class _Uploaded(msgspec.Struct, frozen=True):
    content_uri: str


class _Base(msgspec.Struct, frozen=True):
    base_url: str


class _WellKnown(msgspec.Struct, frozen=True):
    homeserver: _Base = msgspec.field(name="m.homeserver")


class Homeserver:
    """One account's view of its homeserver. The token goes into a header, and into nothing that is raised or logged.
    Connections are opened when they are needed; `close` lets them go."""

    def __init__(self, url: str, token: str = "") -> None:
        base, headers = checked(url), {"authorization": f"Bearer {token}"} if token else {}
        self._clients = Clients(
            lambda trusted: httpx.AsyncClient(
                verify=trusted, base_url=base, headers=headers, timeout=httpx.Timeout(_SECONDS, connect=10)
            )
        )

    async def close(self) -> None:
        await self._clients.close()

    async def whoami(self) -> str:
        """The user whom the token belongs to."""
        return (await self._get(f"{CLIENT}/account/whoami", Whoami)).user_id

    async def login(self, user: str, password: str, *, device: str) -> Login:
        """A new access token for a password."""
        body = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": user},
            "password": password,
            "initial_device_display_name": device,
        }
        try:
            return _decoded(await self._ask("POST", f"{CLIENT}/login", body=body), Login)
        except NotFound as exc:
            raise Forbidden("the homeserver does not accept this name and password") from exc

    async def sync(self, since: str | None, *, filter: str, wait: timedelta) -> Batch:
        params = {"filter": filter, "timeout": str(int(wait.total_seconds() * 1000))}
        if since is not None:
            params["since"] = since
        return await self._get(
            f"{CLIENT}/sync", Batch, params=params, seconds=wait.total_seconds() + _MEDIA_SECONDS
        )

    async def history(self, room: str, *, start: str, stop: str, filter: str, most: int) -> Page:
        """Events of a room from one position up to another, oldest first."""
        params = {"dir": "f", "from": start, "to": stop, "limit": str(most), "filter": filter}
        return await self._get(f"{_room(room)}/messages", Page, params=params)

    async def event(self, room: str, event: str) -> Event | None:
        """One event, `None` if it is not there or not for this account."""
        return await self._find(f"{_room(room)}/event/{_quoted(event)}", Event)

    async def state(self, room: str, kind: str, as_type: type[T], *, key: str = "") -> T | None:
        return await self._find(_state(room, kind, key), as_type)

    async def created(self, room: str) -> Event | None:
        """The event by which a room began, with who sent it."""
        try:
            return await self._get(_state(room, CREATE), Event, params={"format": "event"})
        except NotFound:
            return None

    async def members(self, room: str) -> dict[str, str]:
        """Everybody in a room, with the name they go by there."""
        found = await self._find(f"{_room(room)}/joined_members", _Members)
        return {user: m.display_name or "" for user, m in found.joined.items()} if found else {}

    async def display_name(self, user: str) -> str:
        found = await self._find(f"{CLIENT}/profile/{_quoted(user)}/displayname", dict[str, Any])
        name = (found or {}).get("displayname")
        return name if isinstance(name, str) else ""

    async def account_data(self, user: str, kind: str, *, room: str = "") -> dict[str, Any]:
        """What this account keeps under a name on its server; nothing if it keeps none."""
        return await self._find(_account_data(user, kind, room), dict[str, Any]) or {}

    async def keep_account_data(self, user: str, kind: str, value: Mapping[str, Any], *, room: str) -> None:
        await self._ask("PUT", _account_data(user, kind, room), body=value)

    async def join(self, room: str) -> None:
        await self._ask("POST", f"{_room(room)}/join", body={})

    async def mark_read(self, room: str, event: str) -> None:
        await self._ask("POST", f"{_room(room)}/read_markers", body={"m.fully_read": event, "m.read": event})

    async def typing(self, room: str, user: str, *, seconds: float) -> None:
        """Show that the user writes, for so long; with no time, stop showing it."""
        body = {"typing": True, "timeout": int(seconds * 1000)} if seconds else {"typing": False}
        await self._ask("PUT", f"{_room(room)}/typing/{_quoted(user)}", body=body)

    async def download(self, mxc: str, *, limit: int) -> bytes:
        """The bytes of a file. `Invalid` if it has more than `limit`, or the address is none."""
        server, _, name = mxc.removeprefix("mxc://").partition("/")
        if not mxc.startswith("mxc://") or not server or not name or "/" in name:
            raise Invalid("its address is not one of Matrix")
        path = f"/_matrix/client/v1/media/download/{_quoted(server)}/{_quoted(name)}"
        body = bytearray()
        try:
            async with (
                self._clients.one() as client,
                client.stream("GET", path, timeout=_MEDIA_SECONDS) as answer,
            ):
                if answer.status_code != 200:
                    await answer.aread()
                    raise Unavailable(f"the homeserver does not give it out ({problem(answer)})")
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > limit:
                        raise Invalid(f"it is larger than {limit} bytes")
        except httpx.HTTPError as exc:
            raise Unavailable(f"the homeserver cannot be reached: {_named(exc)}") from exc
        return bytes(body)

    async def upload(self, name: str, mime: str, body: bytes) -> str:
        """Store a file on the homeserver; gives its address. Nobody sees it yet, so every failure may be repeated."""
        try:
            async with self._clients.one() as client:
                answer = await client.post(
                    "/_matrix/media/v3/upload",
                    params={"filename": name},
                    headers={"content-type": mime or "application/octet-stream"},
                    content=body,
                    timeout=_MEDIA_SECONDS,
                )
        except httpx.HTTPError as exc:
            raise NotSent(f"the file could not be uploaded: {_named(exc)}") from exc
        if answer.status_code >= 500:
            raise NotSent(f"the file could not be uploaded: {problem(answer)}")
        if answer.status_code != 200:
            raise send_failure(answer)
        try:
            return msgspec.json.decode(answer.content, type=_Uploaded).content_uri
        except msgspec.DecodeError as exc:
            raise NotSent("the homeserver's answer to an upload cannot be read") from exc

    async def send(self, room: str, transaction: str, content: Mapping[str, Any]) -> str:
        """Send a message, once per transaction; gives the event's id. Raises one of the `SendError`s."""
        path = f"{_room(room)}/send/{MESSAGE}/{_quoted(transaction)}"
        try:
            async with self._clients.one() as client:
                answer = await client.put(path, content=msgspec.json.encode(content), headers=_JSON)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as exc:
            raise NotSent(f"the homeserver cannot be reached: {_named(exc)}") from exc
        except httpx.HTTPError as exc:
            raise Uncertain(f"the homeserver broke the connection: {_named(exc)}") from exc
        if answer.status_code != 200:
            raise send_failure(answer)
        try:
            return msgspec.json.decode(answer.content, type=_Sent).event_id
        except msgspec.DecodeError as exc:
            raise Uncertain("the homeserver's answer cannot be read") from exc

    async def _find(self, path: str, kind: type[T]) -> T | None:
        try:
            return await self._get(path, kind)
        except NotFound:
            return None

    async def _get(
        self, path: str, kind: type[T], *, params: Mapping[str, str] | None = None, seconds: float = _SECONDS
    ) -> T:
        return _decoded(await self._ask("GET", path, params=params, seconds=seconds), kind)

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        seconds: float = _SECONDS,
    ) -> bytes:
        try:
            async with self._clients.one() as client:
                answer = await client.request(
                    method,
                    path,
                    params=params,
                    content=None if body is None else msgspec.json.encode(body),
                    headers=None if body is None else _JSON,
                    timeout=httpx.Timeout(seconds, connect=10),
                )
        except httpx.HTTPError as exc:
            raise Away(f"the homeserver cannot be reached: {_named(exc)}") from exc
        if answer.status_code != 200:
            raise failure(answer)
        return answer.content


_JSON = {"content-type": "application/json"}


def checked(url: str) -> str:
    """The address of a homeserver, without a slash at its end. `Invalid` if it is no address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.username or parts.query:
        raise Invalid("this is not the address of a homeserver: write it like https://matrix.example.org")
    return url.rstrip("/")


async def discovered(text: str) -> str:
    """The address of the homeserver that a domain, or an address, stands for: domains may point elsewhere."""
    url = checked(text if "://" in text else f"https://{text}")
    try:
        async with httpx.AsyncClient(timeout=_SECONDS, follow_redirects=True) as client:
            answer = await client.get(f"{url}/.well-known/matrix/client")
        known = msgspec.json.decode(answer.content, type=_WellKnown) if answer.status_code == 200 else None
    except httpx.HTTPError as exc:
        raise Away(
            f"{url} cannot be reached ({_named(exc)}): write the domain of your homeserver, or its whole address"
        ) from exc
    except (msgspec.DecodeError, UnicodeError):
        known = None
    return checked(known.homeserver.base_url) if known else url


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise Away("the homeserver's answer cannot be read: is its address right?") from exc


def _named(exc: httpx.HTTPError) -> str:
    return str(exc) or type(exc).__name__


def _account_data(user: str, kind: str, room: str) -> str:
    place = f"/rooms/{_quoted(room)}" if room else ""
    return f"{CLIENT}/user/{_quoted(user)}{place}/account_data/{_quoted(kind)}"


def _room(room: str) -> str:
    return f"{CLIENT}/rooms/{_quoted(room)}"


def _state(room: str, kind: str, key: str = "") -> str:
    return f"{_room(room)}/state/{_quoted(kind)}" + (f"/{_quoted(key)}" if key else "")


def _quoted(text: str) -> str:
    """Foreign text as one segment of a path; dots alone would lead elsewhere."""
    quoted = quote(text, safe="", errors="surrogatepass")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")
