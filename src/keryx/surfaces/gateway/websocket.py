"""Keeps a websocket of an adapter open: connects with back-off, sends heartbeats, and connects again when the connection is lost, so that the listener can resume."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from keryx.core.durations import Backoff
from keryx.core.errors import Forbidden, Unavailable
from keryx.core.ports.adapter import LinkState

log = logging.getLogger(__name__)

_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(minutes=1), jitter=0.2)
_CONNECT_TIMEOUT_SECONDS = 20.0
_CLOSE_TIMEOUT_SECONDS = 5.0
_MAX_FRAME_BYTES = 4_000_000
# Any code other than 1000 and 1001 lets Discord keep the session for a resume.
DEAD_CODE = 4000
_REFUSED_STATUSES = (401, 403)


class Websocket:
    """One connection, as the listener uses it."""

    def __init__(self, connection: ClientConnection, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._connection = connection
        self._sleep = sleep
        self._heartbeat: asyncio.Task[None] | None = None
        self._answered = True
        self.confirmed = False

    async def send(self, frame: str | bytes) -> None:
        """Send one frame. Raise `Unavailable` if the connection is lost."""
        try:
            await self._connection.send(frame)
        except ConnectionClosed as exc:
            raise Unavailable("the connection is lost") from exc

    def confirm(self) -> None:
        """The platform has accepted the sign-in or the resume: later failures begin a new back-off."""
        self.confirmed = True

    def start_heartbeat(self, interval: timedelta, build: Callable[[], str | bytes]) -> None:
        """Send the frame that `build` returns at every interval. The connection is closed if the one before was not
        answered, which the listener tells by `answer_heartbeat`."""
        self.stop()
        self._heartbeat = asyncio.create_task(self._beat(interval.total_seconds(), build))

    def answer_heartbeat(self) -> None:
        """The platform has answered the last heartbeat."""
        self._answered = True

    async def close(self, code: int = 1000) -> None:
        await self._connection.close(code)

    def stop(self) -> None:
        """End the heartbeat."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()

    async def _beat(self, seconds: float, build: Callable[[], str | bytes]) -> None:
        self._answered = True
        await self._sleep(seconds)
        while self._answered:
            self._answered = False
            try:
                await self.send(build())
            except Unavailable:
                return
            await self._sleep(seconds)
        log.info("a heartbeat was not answered: reconnecting")
        await self.close(DEAD_CODE)


class WebsocketListener(Protocol):
    """What an adapter does with its websocket. It keeps what it needs to resume."""

    async def find_url(self) -> str:
        """Return the URL to connect to, for a sign-in or a resume. Raise `Unavailable` to be called again, `Forbidden` to
        stop. The URL is not logged."""
        ...

    async def opened(self, socket: Websocket) -> None:
        """The connection is made: sign in or resume."""
        ...

    async def receive(self, socket: Websocket, frame: str | bytes) -> None:
        """Handle one frame. The next one is read when this has returned. `Unavailable` ends the connection, so that the
        next one brings the frame again, if the platform resumes."""
        ...

    def closed(self, code: int, reason: str) -> None:
        """The connection has ended. Decide whether the next one resumes. Raise `Forbidden` if none can succeed."""
        ...


async def listen(
    listener: WebsocketListener,
    *,
    report: Callable[[LinkState, str], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    max_frame_bytes: int = _MAX_FRAME_BYTES,
    close_code: int = 1000,
) -> None:
    """Stay connected until cancelled. Errors of the listener other than `Unavailable` end it. `close_code` is sent when this
    side ends a connection; Discord keeps a session only after certain codes."""
    failures, reason = 0, ""
    while True:
        # While attempts fail, the reason of the last one stays.
        report(LinkState.CONNECTING, reason)
        try:
            confirmed, reason = await _connect_once(listener, report, sleep, max_frame_bytes, close_code), ""
        except Unavailable as exc:
            confirmed, reason = False, str(exc)
            report(LinkState.CONNECTING, reason)
        failures = 1 if confirmed else failures + 1
        await sleep(_BACKOFF.seconds(failures))


async def _connect_once(
    listener: WebsocketListener,
    report: Callable[[LinkState, str], None],
    sleep: Callable[[float], Awaitable[None]],
    max_frame_bytes: int,
    close_code: int,
) -> bool:
    """Connect and read until the connection is lost. Return whether the platform had accepted it."""
    url = await listener.find_url()
    try:
        with anyio.fail_after(_CONNECT_TIMEOUT_SECONDS):
            connection = await connect(
                url, max_size=max_frame_bytes, close_timeout=_CLOSE_TIMEOUT_SECONDS, open_timeout=None
            )
    except InvalidStatus as exc:
        status = exc.response.status_code
        if status in _REFUSED_STATUSES:
            raise Forbidden(
                f"the platform refuses the connection ({status}): check the credentials"
            ) from None
        raise Unavailable(f"the platform does not open a connection ({status})") from None
    except (OSError, InvalidHandshake, InvalidURI, TimeoutError) as exc:
        raise Unavailable(f"the platform cannot be reached ({type(exc).__name__})") from None
    socket = Websocket(connection, sleep)
    try:
        await listener.opened(socket)
        async for frame in connection:
            await listener.receive(socket, frame)
            if socket.confirmed:
                report(LinkState.CONNECTED, "")
    except (ConnectionClosed, Unavailable) as exc:
        log.info("reconnecting a websocket (%s)", type(exc).__name__)
    finally:
        socket.stop()
        with anyio.move_on_after(_CLOSE_TIMEOUT_SECONDS, shield=True):
            await connection.close(close_code)
    listener.closed(connection.close_code or 1006, connection.close_reason or "")
    return socket.confirmed
