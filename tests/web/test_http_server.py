"""Connections: bounded in all and by address, and closed when the client is silent, slow or does not read."""

import asyncio
import resource
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, cast

import anyio
import h11
import msgspec
import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from keryx import config
from keryx.client_address import TrustedProxies, group_address, is_loopback
from keryx.core.errors import Invalid
from keryx.core.ids import DEFAULT_PROFILE, PrincipalId
from keryx.core.sessions import Viewer
from keryx.surfaces.web.auth import Caller
from keryx.surfaces.web.http_server import (
    MAX_REQUESTS_PER_PASS,
    ConnectionLimits,
    HttpServer,
    RequestParser,
    build_limits,
    find_oldest,
    raise_descriptor_limit,
)
from keryx.surfaces.web.settings import WebSettings

SECONDS = 30
LIMITS = ConnectionLimits(total=20, per_address=100, streams=5, head=60, idle=60, stall=60)
GET = b"GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n"
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    path = request.url.path
    if path == "/body":
        await PlainTextResponse(str(len(await request.body())))(scope, receive, send)
    elif path == "/large":
        await Response(b"x" * (16 << 20))(scope, receive, send)
    elif path == "/hang":
        await asyncio.Event().wait()
    else:
        await PlainTextResponse("fine")(scope, receive, send)


@asynccontextmanager
async def serving(
    limits: ConnectionLimits = LIMITS,
    *,
    shared: Callable[[str], bool] = lambda _: False,
    served: ASGIApp = app,
) -> AsyncGenerator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = HttpServer(served, limits, shared=shared)
        async with anyio.create_task_group() as group:
            group.start_soon(server.run_on, listener)
            with anyio.fail_after(SECONDS):
                yield listener.getsockname()[1]
            server.should_exit = True


async def connect(port: int, sent: bytes = b"", *, local: str = "127.0.0.1") -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(local, 0))
    writer.write(sent)
    return reader, writer


async def is_closed(client: Client) -> bool:
    """Wait for the end of a connection. Anything that was sent before is read."""
    try:
        while await client[0].read(65_536):
            pass
    except ConnectionError:
        pass
    client[1].close()
    return True


async def ask(port: int, sent: bytes = GET, *, local: str = "127.0.0.1") -> bytes:
    reader, writer = await connect(port, sent, local=local)
    line = await reader.readline()
    writer.close()
    return line


async def test_silent_connections_give_way_to_a_new_one() -> None:
    async with serving() as port:
        kept = await connect(port, GET)
        await kept[0].readuntil(b"fine")
        silent = [await connect(port) for _ in range(60)]
        assert b"200" in await ask(port)
        # The one that has made a request is kept for its next one.
        kept[1].write(GET)
        await kept[0].readuntil(b"fine")
        for client in silent[:40]:
            assert await is_closed(client)
        for client in [*silent[40:], kept]:
            client[1].close()


UNFINISHED = b"POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"


async def test_bodies_of_unknown_callers_that_do_not_come_give_way_to_a_new_connection() -> None:
    async with serving() as port:
        kept = await connect(port, GET)
        await kept[0].readuntil(b"fine")
        unfinished = [await connect(port, UNFINISHED) for _ in range(60)]
        assert b"200" in await ask(port)
        kept[1].write(GET)
        await kept[0].readuntil(b"fine")
        for client in unfinished[:40]:
            assert await is_closed(client)
        for client in [*unfinished[40:], kept]:
            client[1].close()


async def test_a_body_of_a_known_caller_is_not_cut_for_others() -> None:
    async def name_callers(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/body":
            scope["state"]["caller"] = "somebody"
        await app(scope, receive, send)

    async with serving(served=name_callers) as port:
        known = [await connect(port, UNFINISHED) for _ in range(19)]
        silent = [await connect(port) for _ in range(5)]
        assert b"200" in await ask(port)
        for reader, writer in known:
            writer.write(b"x" * 99)
            assert b"100" in await reader.readuntil(b"\r\n\r\n100")
        for client in [*known, *silent]:
            client[1].close()


async def test_bodies_that_one_person_does_not_finish_leave_half_of_the_connections_to_others() -> None:
    async def name_callers(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/body":
            name = dict(scope["headers"])[b"x-name"].decode()
            scope["state"]["caller"] = Caller(Viewer(DEFAULT_PROFILE, PrincipalId(name)))
        await app(scope, receive, send)

    def begin_body(name: bytes) -> bytes:
        return UNFINISHED.replace(b"\r\n\r\n", b"\r\nX-Name: " + name + b"\r\n\r\n")

    async with serving(served=name_callers) as port:
        anns = [await connect(port, begin_body(b"ann")) for _ in range(5)]
        many = [await connect(port, begin_body(b"mallory")) for _ in range(40)]
        assert b"200" in await ask(port)
        for reader, writer in [*anns, *many[-5:]]:
            writer.write(b"x" * 99)
            assert b"100" in await reader.readuntil(b"\r\n\r\n100")
        for client in many[:25]:
            assert await is_closed(client)
        for client in [*anns, *many[25:]]:
            client[1].close()


async def test_the_connection_that_gives_way_is_the_one_that_has_waited_longest() -> None:
    async with serving(msgspec.structs.replace(LIMITS, total=3)) as port:
        first = await connect(port, GET)
        await first[0].readuntil(b"fine")
        second = await connect(port)
        await asyncio.sleep(0.3)
        first[1].write(UNFINISHED)
        await asyncio.sleep(0.1)
        third = await connect(port)
        assert await is_closed(second)
        first[1].write(b"x" * 99)
        await first[0].readuntil(b"\r\n\r\n100")
        for client in (first, third):
            client[1].close()


@dataclass
class WaitingConnection:
    since: float
    incomplete: bool


@pytest.mark.parametrize(("accepted", "closed"), [(1, 3), (9, 0)], ids=["one", "many"])
def test_one_that_was_accepted_just_now_keeps_no_other_in_its_place(accepted: int, closed: int) -> None:
    """Else every new client would wait for a moment behind the one before."""
    answered = [WaitingConnection(n, incomplete=False) for n in range(8)]
    young = [WaitingConnection(20, incomplete=True) for _ in range(accepted)]
    find = partial(find_oldest, before=10, incomplete=8, answered=3)
    assert find(cast(Any, [*answered, *young])) == answered[:closed]
    # Those without a request are closed first, as soon as they have waited for a moment.
    old = WaitingConnection(9, incomplete=True)
    assert find(cast(Any, [*answered, *young, old])) == [old]


async def test_connections_that_are_being_answered_are_not_closed_for_others() -> None:
    released = asyncio.Event()

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        await released.wait()
        await PlainTextResponse("done")(scope, receive, send)

    async with serving(served=wait) as port:
        busy = [await connect(port, GET) for _ in range(20)]
        late = await connect(port, GET)
        await asyncio.sleep(0.1)
        released.set()
        for client in [*busy, late]:
            assert b"done" in await client[0].readuntil(b"done")
            client[1].close()


async def test_one_address_takes_only_its_share() -> None:
    limits = msgspec.structs.replace(LIMITS, total=100, per_address=5)
    async with serving(limits, shared=lambda address: address == "127.0.0.2") as port:
        hanging = [await connect(port, b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(5)]
        await asyncio.sleep(0.1)
        assert await is_closed(await connect(port, GET))
        assert b"200" in await ask(port, local="127.0.0.3")
        many = [await connect(port, GET, local="127.0.0.2") for _ in range(10)]
        for reader, _ in many:
            await reader.readuntil(b"fine")
        for client in [*hanging, *many]:
            client[1].close()


async def test_an_address_with_its_share_loses_its_oldest_silent_connection() -> None:
    limits = msgspec.structs.replace(LIMITS, per_address=2)
    async with serving(limits) as port:
        first, second = await connect(port), await connect(port)
        await asyncio.sleep(0.3)
        assert b"200" in await ask(port)
        assert await is_closed(first)
        second[1].close()


@pytest.mark.parametrize("sent", [b"", b"GET /ok HT", b"GET /ok HTTP/1.1\r\nHost: x\r\nX: "])
async def test_a_head_that_does_not_come_ends_the_connection(sent: bytes) -> None:
    async with serving(msgspec.structs.replace(LIMITS, head=0.2)) as port:
        assert await is_closed(await connect(port, sent))


async def test_a_head_in_drops_ends_the_connection() -> None:
    async with serving(msgspec.structs.replace(LIMITS, head=0.5)) as port:
        reader, writer = await connect(port, GET[:-2])
        dripping = asyncio.create_task(_drip(writer))
        assert await is_closed((reader, writer))
        dripping.cancel()


async def test_a_second_head_in_drops_ends_the_connection() -> None:
    async with serving(msgspec.structs.replace(LIMITS, idle=0.5)) as port:
        reader, writer = await connect(port, GET + GET[:-2])
        await reader.readuntil(b"fine")
        dripping = asyncio.create_task(_drip(writer))
        assert await is_closed((reader, writer))
        dripping.cancel()


async def _drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"X: y\r\n")
        await asyncio.sleep(0.05)


async def test_a_body_that_does_not_come_ends_the_connection() -> None:
    head = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    async with serving(msgspec.structs.replace(LIMITS, stall=0.2)) as port:
        assert await is_closed(await connect(port, head + b"some"))


async def test_what_was_sent_fast_earns_no_long_silence() -> None:
    head = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 40000000\r\n\r\n"
    async with serving(msgspec.structs.replace(LIMITS, stall=0.5)) as port:
        reader, writer = await connect(port, head)
        writer.write(b"x" * 4_000_000)
        await writer.drain()
        assert await is_closed((reader, writer))


async def test_a_body_that_comes_is_not_cut() -> None:
    head = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 400000\r\n\r\n"
    async with serving(msgspec.structs.replace(LIMITS, stall=2)) as port:
        reader, writer = await connect(port, head)
        for _ in range(20):
            writer.write(b"x" * 20_000)
            await asyncio.sleep(0.02)
        assert await reader.readuntil(b"400000")
        writer.close()


async def test_an_endless_body_after_the_answer_ends_the_connection() -> None:
    head = b"POST /ok HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving() as port:
        reader, writer = await connect(port, head)
        assert await reader.readuntil(b"fine")
        with pytest.raises(ConnectionError):
            await _send_for_ever(writer)
        writer.close()


async def _send_for_ever(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        await writer.drain()


async def test_a_client_that_does_not_read_its_answer_loses_its_connection() -> None:
    ended = asyncio.Event()

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b"x" * (16 << 20))(scope, receive, send)
        while (await receive())["type"] != "http.disconnect":
            pass
        ended.set()

    async with serving(msgspec.structs.replace(LIMITS, total=1, stall=0.5), served=large) as port:
        with socket.create_connection(("127.0.0.1", port)) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.sendall(GET)
            await ended.wait()
            # Its place is free again.
            reader, writer = await connect(port, GET)
            assert b"200" in await reader.readline()
            writer.close()


def test_the_limit_of_open_files_is_raised_and_leaves_a_reserve() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
        raised = raise_descriptor_limit()
        assert raised == resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(8_192, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    web = WebSettings()
    assert [build_limits(web, n).total for n in (8_192, 1_024, 256, 64)] == [1_200, 768, 64, 16]
    assert [build_limits(web, n).streams for n in (8_192, 300)] == [500, 37]


def test_the_client_behind_proxies_is_read_from_the_right() -> None:
    proxies = TrustedProxies(("127.0.0.1", "10.0.0.0/8", "fd00::/8"))
    for peer, forwarded, client in (
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", ["1.2.3.4, 198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", ["1.2.3.4", "198.51.100.1, 10.1.2.3"], "198.51.100.1"),
        ("127.0.0.1", ["10.1.1.1"], "10.1.1.1"),
        ("127.0.0.1", ["1.2.3.4, unknown, 10.1.2.3"], "10.1.2.3"),
        ("::ffff:127.0.0.1", ["[2001:db8::1]:443"], "2001:db8::1"),
        ("127.0.0.1", ["198.51.100.1:4711"], "198.51.100.1"),
        ("127.0.0.1", [""], "127.0.0.1"),
        ("testclient", ["198.51.100.1"], "testclient"),
    ):
        assert proxies.find_client(peer, forwarded) == client


def test_an_ipv6_client_is_its_network() -> None:
    assert group_address("2001:db8:1:2:3::4") == group_address("2001:db8:1:2::9") == "2001:db8:1:2::/64"
    assert group_address("2001:db8:1:3::4") != group_address("2001:db8:1:2::4")
    assert group_address("::ffff:192.0.2.1") == group_address("192.0.2.1") == "192.0.2.1"
    assert [is_loopback(a) for a in ("127.3.2.1", "::1", "localhost", "192.0.2.1", "x")] == [True] * 3 + [
        False
    ] * 2


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("KERYX_WEB_CONNECTIONS", "0", "connections"),
        ("KERYX_WEB_HEAD", "0s", "at least 1s"),
        ("KERYX_WEB_STALL", "soon", "duration"),
    ],
)
def test_wrong_limits_are_refused(variable: str, value: str, complaint: str) -> None:
    with pytest.raises(Invalid, match=complaint):
        config.read({variable: value, "KERYX_HOME": "/nowhere"})
    with pytest.raises(ValueError, match="neither an address nor a network"):
        WebSettings(trusted_proxies=("proxy.example",))
    assert WebSettings(head=timedelta(seconds=1)).head.total_seconds() == 1


POST_IN_CHUNKS = b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("path", [b"/body", b"/ok"])
async def test_a_body_of_short_chunks_is_refused(path: bytes) -> None:
    """Whether its bytes are read by the app or thrown away after the answer."""
    sent = POST_IN_CHUNKS.replace(b"/body", path) + b"1\r\nx\r\n" * 100_000
    async with serving() as port:
        client = await connect(port, sent)
        assert await is_closed(client)
        assert b"200" in await ask(port)


async def test_a_body_of_some_short_chunks_is_read() -> None:
    body = b"1\r\nx\r\n" * 400 + b"1000\r\n" + b"y" * 4_096 + b"\r\n0\r\n\r\n"
    async with serving() as port:
        # The counts begin anew with each request.
        reader, writer = await connect(port, (POST_IN_CHUNKS + body) * 3)
        for _ in range(3):
            await reader.readuntil(b"4496")
        writer.close()


@pytest.mark.parametrize("head", [b"X: " + b"a" * 55_000, b"a:\r\n" * 14_000, b"a: b\r\n c\r\n" * 6_000])
async def test_a_head_that_comes_at_once_is_not_longer_than_any_other(head: bytes) -> None:
    async with serving() as port:
        assert b"400" in await ask(port, b"GET /ok HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n")
        assert b"400" in await ask(port, b"GET /" + b"a" * 55_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")


@pytest.mark.parametrize(
    "headers",
    [
        b"a:\r\n" * 200,
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Content-Length: +5\r\n",
    ],
)
async def test_many_headers_and_two_lengths_are_refused(headers: bytes) -> None:
    sent = (
        b"POST /body HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n0\r\n\r\nGET /ok HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    async with serving() as port:
        reader, writer = await connect(port, sent)
        answer = await reader.read()
        writer.close()
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501"))
    assert b"fine" not in answer


async def test_many_trailers_are_refused() -> None:
    trailers = b"1\r\nx\r\n0\r\n" + b"a:\r\n" * 200 + b"\r\n"
    async with serving() as port:
        assert b"400" in await ask(port, POST_IN_CHUNKS + trailers)
        assert b"200" in await ask(port, POST_IN_CHUNKS + b"1\r\nx\r\n0\r\na: b\r\n\r\n")


def test_headers_are_counted_before_each_is_looked_at() -> None:
    parser = RequestParser()
    parser.may_begin = True
    parser.receive_data(b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 8_000 + b"malformed\r\n\r\n")
    with pytest.raises(h11.RemoteProtocolError, match="too many headers"):
        parser.next_event()


@pytest.mark.parametrize("path", [b"/ok", b"/body"])
@pytest.mark.parametrize("chunks", [b"-1\r\nabc", b"1\r\n \r\n-1\r\n"])
async def test_a_malformed_chunk_is_refused_without_an_error_in_the_log(
    path: bytes, chunks: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnect):
            if scope["path"] == "/body":
                await Request(scope, receive).body()
        await PlainTextResponse("fine")(scope, receive, send)

    head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving(served=answer) as port:
        client = await connect(port, head + chunks)
        assert b"400" in await client[0].readline()
        assert await is_closed(client)
        assert b"200" in await ask(port)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_noise_after_an_answer_has_begun_ends_the_connection_only() -> None:
    async with serving() as port:
        hanging = b"GET /hang HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
        clients = [await connect(port, hanging + b"hello" + b"\0" * 100_000)]
        clients.append(await connect(port, GET + b"\0\r\n\r\n" * 1_000))
        assert await is_closed(clients[1])
        clients[0][1].close()
        assert b"200" in await ask(port)


class PassCounter:
    """An app that counts the passes of the event loop, and the requests that begin in each."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.requests: Counter[int] = Counter()
        self._number = 0
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._number += 1
        self._handle = self._loop.call_soon(self._tick)

    def stop(self) -> None:
        self._handle.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.requests[self._number] += 1
        self.begun.set()
        await app(scope, receive, send)


async def test_a_burst_of_requests_leaves_time_for_the_rest_in_each_pass_of_the_event_loop() -> None:
    limits = msgspec.structs.replace(LIMITS, total=100)
    passes = PassCounter()
    async with serving(limits, served=passes) as port:
        burst = [await connect(port, GET * 200) for _ in range(30)]
        for reader, writer in burst:
            for _ in range(200):
                await reader.readuntil(b"fine")
            writer.close()
    passes.stop()
    assert passes.requests.total() == 30 * 200
    assert max(passes.requests.values()) <= MAX_REQUESTS_PER_PASS


async def test_a_request_does_not_wait_for_the_bursts_of_others() -> None:
    limits = msgspec.structs.replace(LIMITS, total=100)
    passes = PassCounter()
    async with serving(limits, served=passes) as port:
        burst = [await connect(port, GET * 2_000) for _ in range(30)]
        await passes.begun.wait()
        before = passes.requests.total()
        assert b"200" in await ask(port)
        between = passes.requests.total() - before
        for _, writer in burst:
            writer.transport.abort()
    passes.stop()
    # The passes for a new connection, with as many requests as each of them may have.
    assert between < 30 * MAX_REQUESTS_PER_PASS


async def test_requests_that_follow_each_other_at_once_are_answered_in_order() -> None:
    sent, bodies = b"", list[bytes]()
    for number in range(1, 300):
        body = b"x" * (number * 97 % 20_000)
        bodies.append(str(len(body)).encode())
        sent += b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    async with serving() as port:
        reader, writer = await connect(port, sent)
        for body in bodies:
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"200" in head.split(b"\r\n")[0]
            assert await reader.readexactly(len(body)) == body
        writer.close()


async def test_no_request_begins_while_the_answers_before_it_are_unread() -> None:
    begun = 0
    first = asyncio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal begun
        begun += 1
        first.set()
        await Response(b"x" * (4 << 20))(scope, receive, send)

    async with serving(served=answer) as port:
        with socket.create_connection(("127.0.0.1", port)) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.sendall(GET * 100)
            await first.wait()
            # Others are answered as often as its requests could have begun.
            for _ in range(20):
                assert b"200" in await ask(port)
            assert begun == 21
