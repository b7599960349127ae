"""Web: the list over HTTP, beside a bare route with the same bytes; streams: delay, memory, and reconnects."""

import asyncio
import gc
import random
import socket
import time
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.web.site import KEY, OPERATORS, Listener

from bench import fill
from bench.spread import Spread, ms, spread
from bench.stage import Place, Stage, inbound
from bench.table import Line, line, none_of
from keryx.core.access import EVERYBODY, AccessRule
from keryx.engine.hub import Hub
from keryx.engine.loops.feed import Feed
from keryx.engine.policy import Policy
from keryx.surfaces.web.server import WebApp
from keryx.timing import SystemClock

_LIST = "/api/sessions"
HOST = [(b"host", b"localhost")]
_GZIP = [*HOST, (b"accept-encoding", b"gzip")]
_REQUEST = f"GET {_LIST} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
_CONNECTIONS = 8
_OPEN = Policy(access={fill.PLATFORM: AccessRule(allow=(EVERYBODY,))})


async def run(stage: Stage) -> AsyncIterator[Line]:
    # First of all: later, the process has free memory that new streams would be given unseen.
    yield await _idle(stage)
    async for found in _listing(stage):
        yield found
    async for found in _filtering(stage):
        yield found
    async for found in _streaming(stage):
        yield found
    yield none_of("gaps and repeats", *await _reconnects(stage))


async def _listing(stage: Stage) -> AsyncIterator[Line]:
    for count in (100, 10_000, stage.size(100_000)):
        place, _ = await stage.lanes(count)
        size = f"50 of {count:,} sessions"
        async with site(place) as (_, app):
            times: list[float] = []
            body = b""
            for _ in range(stage.count(300)):
                began = time.perf_counter()
                body = await _asked(app, _LIST, HOST)
                times.append(time.perf_counter() - began)
            packed = len(await _asked(app, _LIST, _GZIP))
            yield line("list page p50", size, ms(spread(times).p50), "ms", under=15)
            yield line("list page p95", size, ms(spread(times).p95), "ms")
            yield line("list page", size, len(body) / 1000, "kB", under=30)
            yield line("list page, gzip", size, packed / 1000, "kB")
            seconds = 0.3 if stage.quick else 3.0
            ours = await _rate(app, seconds)
            bare = await _rate(_bare(body), seconds)
            yield line("list requests", size, ours, "/s", floor=bare)


async def _filtering(stage: Stage) -> AsyncIterator[Line]:
    """The list under each filter: of many conversations that match, and of few, which are the oldest."""
    count = stage.size(100_000)
    place, _ = await stage.filled(f"filters-{count}", lambda db: fill.filtered_sessions(db, count))
    size = f"50 of {count:,} sessions"
    async with site(place) as (_, app):
        for query in ("", *fill.FILTERS):
            path = f"{_LIST}?{urlencode({'q': query})}" if query else _LIST
            times: list[float] = []
            for _ in range(stage.count(100)):
                began = time.perf_counter()
                await _asked(app, path, HOST)
                times.append(time.perf_counter() - began)
            yield line(f"list {query or 'without a filter'} p50", size, ms(spread(times).p50), "ms", under=15)


async def _streaming(stage: Stage) -> AsyncIterator[Line]:
    place, _ = await stage.filled("streams", lambda db: fill.lanes_with_sessions(db, 10))
    for streams in (1, 50, stage.size(500)):
        size = f"{streams:,} streams"
        async with site(place) as (hub, app):
            delays = await _delays(hub, app, streams, rounds=stage.count(200))
        yield line("commit to event p50", size, ms(delays.p50), "ms")
        yield line("commit to event p95", size, ms(delays.p95), "ms")


async def _idle(stage: Stage) -> Line:
    streams = stage.size(500)
    place, _ = await stage.filled("streams", lambda db: fill.lanes_with_sessions(db, 10))
    async with site(place) as (_, app):
        return line("memory of an idle stream", f"{streams:,} streams", await _memory(app, streams), "KiB")


async def _delays(hub: Hub, app: ASGIApp, streams: int, *, rounds: int) -> Spread:
    seen: asyncio.Queue[float] = asyncio.Queue()
    gone = asyncio.Event()

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if b'"type":"message"' in message.get("body", b""):
            seen.put_nowait(time.perf_counter())

    cursor = (await hub.head_cursor()).encode()
    asked = scope("/api/stream", [*HOST, (b"last-event-id", cursor)])
    delays: list[float] = []
    async with anyio.create_task_group() as group:
        for _ in range(streams):
            group.start_soon(answered, app, dict(asked), receive, send)
        for n in range(rounds + 5):
            await hub.receive(inbound(0, time.monotonic_ns()))
            committed = time.perf_counter()
            arrived = [await seen.get() - committed for _ in range(streams)]
            delays += arrived if n >= 5 else []
        gone.set()
    return spread(delays)


async def _memory(app: ASGIApp, streams: int) -> float:
    """How many KiB of objects each open connection that hears nothing keeps. What the process holds in all would say
    little here: what earlier measurements gave back is used again."""
    async with served(app) as port:
        request = b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
        warm = [await asyncio.to_thread(_connected, port, request) for _ in range(20)]
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        held = [await asyncio.to_thread(_connected, port, request) for _ in range(streams)]
        gc.collect()
        grown = (tracemalloc.get_traced_memory()[0] - before) / 1024
        tracemalloc.stop()
        for connection in (*warm, *held):
            connection.close()
    return grown / streams


def _connected(port: int, request: bytes) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=10)
    made.sendall(request)
    while b"\n\nid: " not in made.recv(4096):
        pass
    return made


async def _reconnects(stage: Stage) -> tuple[str, int]:
    """How many messages a browser missed or got twice over many cut connections."""
    wanted = stage.size(10_000)
    place, _ = await stage.filled("reconnects", lambda db: fill.lanes_with_sessions(db, 10))
    chance = random.Random(5)
    cuts = sent = 0
    async with site(place) as (hub, app):
        listener = Listener(app, await hub.head_cursor())
        while cuts < wanted:
            async with listener.connect(close_after=chance.randrange(60, 1500)):
                cut = await listener.wait_closed(within=0.05)
            cuts += cut
            for _ in range(0 if cut else 100):
                await hub.receive(inbound(sent % 10, f"reconnect-{sent}"))
                sent += 1
        async with listener.connect():
            while await listener.wait_closed(within=0.2):
                pass
    seen = [event["message"]["id"] for event in listener.of_type("message")]
    return f"{cuts:,} reconnects", abs(sent - len(set(seen))) + len(seen) - len(set(seen))


@asynccontextmanager
async def site(place: Place) -> AsyncGenerator[tuple[Hub, ASGIApp]]:
    clock = SystemClock()
    async with place.database() as database, anyio.create_task_group() as group:
        feed = Feed(database, clock)
        hub = Hub(database, policy=_OPEN, feed=feed)
        await group.start(feed.run)
        web = WebApp(hub, clock, operator=OPERATORS, key=KEY)
        async with web.lifespan() as app:
            yield hub, app
        group.cancel_scope.cancel()


def _bare(body: bytes) -> ASGIApp:
    async def answer(_: Request) -> Response:
        return Response(body, media_type="application/json")

    return Starlette(routes=[Route(_LIST, answer)])


async def _rate(app: ASGIApp, seconds: float) -> float:
    """Answers in a second over some connections that are kept, client and server in one process."""
    async with served(app) as port:
        await _ask_until(port, 0)
        end = time.perf_counter() + seconds
        counts = await asyncio.gather(*(_ask_until(port, end) for _ in range(_CONNECTIONS)))
    return sum(counts) / seconds


async def _ask_until(port: int, end: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = 0
    while count == 0 or time.perf_counter() < end:
        writer.write(_REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        count += 1
    writer.close()
    return count


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncGenerator[int]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        yield listener.getsockname()[1]
        server.should_exit = True
        await serving


async def _asked(app: ASGIApp, path: str, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The body that an app answers with, without a network."""
    parts: list[bytes] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        parts.append(message.get("body", b""))

    path, _, query = path.partition("?")
    await app({**scope(path, headers), "query_string": query.encode()}, receive, send)
    return b"".join(parts)


async def answered(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


def scope(path: str, headers: list[tuple[bytes, bytes]]) -> dict[str, object]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }
