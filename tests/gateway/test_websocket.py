"""The websocket of an adapter, against a real server on loopback."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from http import HTTPStatus

import pytest
from tests.builders import until
from websockets.asyncio.server import ServerConnection

from keryx.core.errors import Forbidden, Unavailable
from keryx.core.ports.adapter import LinkState
from keryx.surfaces.gateway.websocket import Websocket, listen
from keryx.testing.wire import serve_websocket

Serve = Callable[[ServerConnection], Awaitable[None]]


class Listener:
    """Signs in, or resumes behind the last number that it saw."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.frames: list[str | bytes] = []
        self.codes: list[int] = []
        self.last = ""
        self.heartbeat = timedelta(0)
        self.sent = 0
        self.acks = 0
        self.fatal = 0

    async def find_url(self) -> str:
        return self.url

    async def opened(self, socket: Websocket) -> None:
        await socket.send(f"resume {self.last}" if self.last else "hello")
        if self.heartbeat:
            socket.start_heartbeat(self.heartbeat, self._beat)

    def _beat(self) -> str:
        self.sent += 1
        return "beat"

    async def receive(self, socket: Websocket, frame: str | bytes) -> None:
        if frame == "ack":
            self.acks += 1
            socket.answer_heartbeat()
            return
        self.frames.append(frame)
        self.last = str(frame)
        socket.confirm()

    def closed(self, code: int, reason: str) -> None:
        self.codes.append(code)
        if code == self.fatal:
            raise Forbidden("signed out")


@asynccontextmanager
async def platform(handle: Serve, *, refuse: HTTPStatus | None = None) -> AsyncGenerator[str]:
    async with serve_websocket(handle, refuse=refuse) as url:
        yield f"{url}/?token=secret"


class Reports:
    def __init__(self) -> None:
        self.states: list[LinkState] = []
        self.details: list[str] = []

    def __call__(self, state: LinkState, detail: str) -> None:
        self.states.append(state)
        self.details.append(detail)


@asynccontextmanager
async def listening(
    listener: Listener, reports: Reports, *, pause: Callable[[float], Awaitable[None]] | None = None
) -> AsyncGenerator[asyncio.Task[None]]:
    task = asyncio.create_task(listen(listener, report=reports, sleep=pause or Pauses()))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


class Pauses:
    """Sleeps without waiting, as far as the other side can keep up."""

    async def __call__(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))


async def test_while_attempts_fail_the_reason_of_the_last_one_stays() -> None:
    async def handle(connection: ServerConnection) -> None: ...

    async with platform(handle, refuse=HTTPStatus.BAD_GATEWAY) as url:
        reports = Reports()
        async with listening(Listener(url), reports):
            await until(lambda: len(reports.details) > 6)
    assert reports.details[0] == "" and all("502" in detail for detail in reports.details[1:])


async def test_a_lost_connection_is_resumed_where_it_was() -> None:
    said: list[str] = []

    async def handle(connection: ServerConnection) -> None:
        said.append(str(await connection.recv()))
        await connection.send(f"m{len(said)}")
        if len(said) < 3:
            connection.transport.abort()
        else:
            await connection.wait_closed()

    async with platform(handle) as url:
        listener, reports = Listener(url), Reports()
        async with listening(listener, reports):
            await until(lambda: len(listener.frames) == 3)
    assert said == ["hello", "resume m1", "resume m2"]
    assert listener.frames == ["m1", "m2", "m3"]
    assert listener.codes[:2] == [1006, 1006]
    assert LinkState.CONNECTED in reports.states


async def test_a_heartbeat_that_is_not_answered_ends_the_connection() -> None:
    beats: list[str] = []

    async def handle(connection: ServerConnection) -> None:
        async for frame in connection:
            beats.append(str(frame))
            if frame == "beat" and len(beats) < 4:
                await connection.send("ack")

    async def pause(seconds: float) -> None:
        """An interval lasts until the answer is there, or for the last one until the server has the heartbeat."""
        sent = listener.sent
        await until(lambda: listener.acks == sent or len(beats) == 4)

    async with platform(handle) as url:
        listener = Listener(url)
        listener.heartbeat = timedelta(seconds=41)
        async with listening(listener, Reports(), pause=pause):
            await until(lambda: bool(listener.codes))
    assert beats[:4] == ["hello", "beat", "beat", "beat"]
    assert listener.codes[0] == 4000


async def test_refused_credentials_end_it_without_the_address() -> None:
    async def handle(connection: ServerConnection) -> None:
        raise AssertionError("nobody gets here")

    async with platform(handle, refuse=HTTPStatus.UNAUTHORIZED) as url:
        with pytest.raises(Forbidden, match="401") as caught:
            await listen(Listener(url), report=Reports(), sleep=Pauses())
    assert "secret" not in repr(caught.value) and caught.value.__cause__ is None


async def test_a_close_code_may_be_final() -> None:
    async def handle(connection: ServerConnection) -> None:
        await connection.close(4004, "wrong token")

    async with platform(handle) as url:
        listener = Listener(url)
        listener.fatal = 4004
        with pytest.raises(Forbidden, match="signed out"):
            await listen(listener, report=Reports(), sleep=Pauses())


async def test_a_platform_out_of_reach_is_tried_again() -> None:
    reports = Reports()
    async with listening(Listener("ws://127.0.0.1:9/?token=secret"), reports):
        await until(lambda: len(reports.states) > 6)
    assert set(reports.states) == {LinkState.CONNECTING}
    assert any("cannot be reached" in detail for detail in reports.details)
    assert not any("secret" in detail for detail in reports.details)


async def test_an_address_that_cannot_be_had_is_asked_for_again() -> None:
    asked = 0

    async def handle(connection: ServerConnection) -> None:
        await connection.send("m1")
        await connection.wait_closed()

    class Slow(Listener):
        async def find_url(self) -> str:
            nonlocal asked
            asked += 1
            if asked < 3:
                raise Unavailable("not now")
            return self.url

    async with platform(handle) as url:
        listener = Slow(url)
        async with listening(listener, Reports()):
            await until(lambda: listener.frames == ["m1"])
    assert asked == 3


async def test_a_frame_that_is_too_long_ends_the_connection_only() -> None:
    sent = 0

    async def handle(connection: ServerConnection) -> None:
        nonlocal sent
        sent += 1
        await connection.send("x" * 100 if sent == 1 else "short")
        await connection.wait_closed()

    async with platform(handle) as url:
        listener = Listener(url)
        task = asyncio.create_task(listen(listener, report=Reports(), sleep=Pauses(), max_frame_bytes=50))
        await until(lambda: listener.frames == ["short"])
        assert len(listener.codes) == 1
        task.cancel()
        await asyncio.wait({task})


async def test_a_connection_is_closed_with_the_code_of_the_platform() -> None:
    closed: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    async def handle(connection: ServerConnection) -> None:
        await connection.send("1")
        await connection.wait_closed()
        closed.set_result(connection.close_code)

    async with platform(handle) as url:
        listener = Listener(url)
        task = asyncio.create_task(listen(listener, report=Reports(), close_code=4000))
        await until(lambda: bool(listener.frames))
        task.cancel()
        await asyncio.wait({task})
        async with asyncio.timeout(60):
            assert await closed == 4000
