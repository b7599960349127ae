"""One peer on a list of frames: order, correlation, cancellation, and exactly one response to each request."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.builders import until

from keryx.core.errors import NotFound
from keryx.jsonrpc import Json, RpcError, frames, peer
from keryx.jsonrpc.frames import FrameTooLong
from keryx.jsonrpc.peer import IncomingRequest, Peer, RequestId, Response


class Wire:
    """The frames that the peer sends to us, and the messages that we wrote to it."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.written: list[Json] = []

    async def write(self, data: bytes) -> None:
        self.written += [json.loads(line) for line in data.splitlines()]

    def put(self, **message: Any) -> None:
        self.frames.put_nowait(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def read(self) -> AsyncIterator[bytes]:
        while frame := await self.frames.get():
            yield frame

    async def until_written(self, count: int) -> None:
        await until(lambda: len(self.written) >= count)


class Recorder:
    """Handles messages in order and remembers them."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    async def handle_request(self, request: IncomingRequest) -> None:
        await asyncio.sleep(0)
        self.seen.append((request.id, request.method, request.params))

    async def handle_notification(self, method: str, params: Json) -> None:
        await asyncio.sleep(0)
        self.seen.append(method)

    async def handle_invalid(self, id_: RequestId, error: RpcError, frame: bytes) -> None:
        self.seen.append((id_, error.code))


class Methods:
    """`wait` never returns, `early` responds itself, `missing` fails."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()

    async def handle_request(self, request: IncomingRequest) -> object:
        match request.method:
            case "wait":
                self.waiting.set()
                return await asyncio.Event().wait()
            case "early":
                await request.respond("early")
                raise NotFound("too late to tell")
            case "missing":
                raise NotFound("there is none")
            case _:
                return request.params

    async def handle_notification(self, method: str, params: Json) -> None:
        return


async def test_messages_and_responses_are_handled_in_the_order_of_the_stream() -> None:
    wire, recorder = Wire(), Recorder()
    one = Peer(wire.write, sends_cancel=False)

    async def pass_on(response: Response) -> None:
        recorder.seen.append(response.result)

    await one.start_request("prompt", {}, pass_on)
    wire.put(method="update")
    wire.put(id=7, method="read", params={"path": "a"})
    wire.put(id=1, result={"done": True})
    wire.put(method="update")
    wire.frames.put_nowait(None)
    await one.run(wire.read(), recorder)
    assert recorder.seen == ["update", (7, "read", {"path": "a"}), {"done": True}, "update"]


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b"{bad", (None, -32700)),
        (b"[1]", (None, -32600)),
        (b'{"id":1,"method":"x"}', (None, -32600)),
        (b'{"jsonrpc":"2.0","id":true,"method":"x"}', (None, -32600)),
        (b'{"jsonrpc":"2.0","id":"a"}', ("a", -32600)),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"x","params":[1]}', (1.5, -32602)),
    ],
)
async def test_an_invalid_message_is_passed_on_with_its_id_if_it_has_one(
    frame: bytes, expected: object
) -> None:
    wire, recorder = Wire(), Recorder()
    wire.frames.put_nowait(frame)
    wire.frames.put_nowait(None)
    await Peer(wire.write, sends_cancel=False).run(wire.read(), recorder)
    assert recorder.seen == [expected]


@pytest.mark.parametrize("response", [{}, {"result": None}, {"result": {}}])
async def test_a_response_without_a_result_is_an_empty_one(response: Json) -> None:
    wire = Wire()
    one = Peer(wire.write, sends_cancel=True)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(one.run(wire.read(), Recorder()))
        wire.put(id=1, **response)
        assert await one.request("write", {}, seconds=10) == {}
        wire.frames.put_nowait(None)
        await running
    assert [m["method"] for m in wire.written] == ["write"]


@pytest.mark.parametrize("error", ["no", {"code": "x"}, {"code": -32000, "message": "log\nin"}])
async def test_an_error_of_any_shape_is_raised(error: object) -> None:
    wire = Wire()
    one = Peer(wire.write, sends_cancel=True)
    async with asyncio.TaskGroup() as group:
        group.create_task(one.run(wire.read(), Recorder()))
        wire.put(id=1, error=error)
        with pytest.raises(RpcError, match=r"no reason given|log in"):
            await one.request("write", {}, seconds=10)
        wire.frames.put_nowait(None)


@pytest.mark.parametrize("sends_cancel", [True, False])
async def test_a_request_that_is_given_up_is_cancelled_at_a_peer_that_knows_how(sends_cancel: bool) -> None:
    wire = Wire()
    one = Peer(wire.write, sends_cancel=sends_cancel)
    with pytest.raises(TimeoutError):
        await one.request("wait", {}, seconds=0)
    assert [m["method"] for m in wire.written] == ["wait", *(["$/cancel_request"] * sends_cancel)]


async def test_waiting_requests_fail_with_the_connection() -> None:
    one = Peer(Wire().write, sends_cancel=False)
    waiting = asyncio.create_task(one.request("wait", {}, seconds=10))
    await asyncio.sleep(0)
    one.fail_pending(lambda: ConnectionError("it ended"))
    with pytest.raises(ConnectionError, match="it ended"):
        await waiting


async def test_every_request_is_answered_exactly_once() -> None:
    wire, methods = Wire(), Methods()
    one = Peer(wire.write, sends_cancel=True)
    async with asyncio.TaskGroup() as group:
        group.create_task(peer.serve(one, wire.read(), methods))
        wire.put(id="w", method="wait")
        await methods.waiting.wait()
        wire.put(id="e", method="early")
        wire.put(id=3, method="missing")
        wire.put(id=4, method="echo", params={"a": 1})
        await wire.until_written(3)
        wire.put(method="$/cancel_request", params={"requestId": "w"})
        wire.put(method="$/cancel_request", params={"requestId": 4})
        await wire.until_written(4)
        wire.frames.put_nowait(None)
    outcomes = {m["id"]: m.get("result") or m["error"]["code"] for m in wire.written}
    assert len(wire.written) == 4
    assert outcomes == {"e": "early", 3: -32002, 4: {"a": 1}, "w": -32800}


async def test_lines_are_split_across_chunks_and_a_long_one_keeps_its_place() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for chunk in (b"on", b'e\n\n  \r\n{"jsonrpc":"2.0","id":5,', b"x" * 100, b"\ntwo\r\nlast"):
            yield chunk

    found = [frame async for frame in frames.read_frames(chunks(), limit=50)]
    assert [f.id if isinstance(f, FrameTooLong) else f for f in found] == [b"one", 5, b"two", b"last"]


async def test_a_line_of_too_many_values_keeps_its_place() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"id": 5, "params": [' + b"[]," * 30 + b"0]}\nlast"

    found = [frame async for frame in frames.read_frames(chunks(), limit=500, values=50)]
    assert [f.id if isinstance(f, FrameTooLong) else f for f in found] == [5, b"last"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ({"code": -32603, "message": "Internal error", "data": "no\nchat"}, "Internal error: no chat"),
        ({"code": -32603, "message": "Internal error", "data": {"why": 3}}, "Internal error"),
        (
            {"code": -32603, "message": "Internal error", "data": {"details": "no\nsession"}},
            "Internal error: no session",
        ),
        ("odd", "no reason given"),
    ],
)
def test_the_message_of_an_error_has_the_text_that_explains_it(error: object, words: str) -> None:
    assert str(RpcError.from_json(error)) == words
