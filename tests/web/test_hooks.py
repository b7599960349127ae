"""What platforms post: answered by its adapter, bounded while it is read, and told nothing of what fails inside."""

import asyncio
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from keryx.core.errors import Conflict, Invalid, Retryable, Unavailable
from keryx.core.ports.adapter import Adapter, Webhook, WebhookRequest, WebhookResponse
from keryx.store.db import Engine
from keryx.surfaces.web.request import BodyMemory
from keryx.surfaces.web.routes import hooks
from keryx.testing import RecordingAdapter

pytestmark = pytest.mark.engines(Engine.SQLITE)


class Hooked(RecordingAdapter):
    """Answers what it is told to, and keeps the requests."""

    def __init__(self, path: str = "fake/x", *, error: Exception | None = None) -> None:
        super().__init__("fake")
        self.hook = Webhook(path=path, handle=self._answer, limit=100)
        self.requests: list[WebhookRequest] = []
        self.status = 202
        self.rejected = 0
        self._error = error

    async def _answer(self, request: WebhookRequest) -> WebhookResponse:
        self.requests.append(request)
        if self._error:
            raise self._error
        return WebhookResponse(status=self.status, body=b'{"ok":true}', mime="application/json")


async def post(
    adapter: Hooked,
    path: str = "/hooks/fake/x",
    content: bytes | AsyncIterator[bytes] = b"{}",
    *,
    listening: bool = True,
    method: str = "POST",
) -> httpx.Response:
    app = build_app(adapter, listening=listening)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.request(method, path, content=content, headers={"X-Sign": "abc"})


def build_app(*adapters: Adapter, listening: bool = True) -> ASGIApp:
    def count(adapter: Adapter) -> None:
        if isinstance(adapter, Hooked):
            adapter.rejected += 1

    routes = hooks.build_hook_routes(adapters, listening=lambda _: listening, on_rejection=count)
    routed = Starlette(routes=routes)
    memory = BodyMemory(1 << 24, 150)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["body_memory"] = memory
        await routed(scope, receive, send)

    return app


async def test_the_adapter_answers() -> None:
    adapter = Hooked()
    answer = await post(adapter, content=b"body")
    assert (answer.status_code, answer.json()) == (202, {"ok": True})
    assert answer.headers["content-type"] == "application/json"
    assert (adapter.requests[0].body, adapter.requests[0].headers["x-sign"]) == (b"body", "abc")


async def test_an_unknown_path_is_not_found() -> None:
    adapter = Hooked()
    assert (await post(adapter, "/hooks/other")).status_code == 404
    assert (await post(adapter, "/hooks/")).status_code == 404
    assert (await post(adapter, method="GET")).status_code == 405
    assert adapter.requests == []


class Challenged(Hooked):
    """Answers a challenge in the query, as platforms verify an address by GET."""

    def __init__(self, path: str = "fake/x") -> None:
        super().__init__(path)
        self.hook = Webhook(path=path, handle=self._verify, methods=("GET", "POST"))

    async def _verify(self, request: WebhookRequest) -> WebhookResponse:
        self.requests.append(request)
        return WebhookResponse(body=request.query.get("challenge", "").encode(), headers={"X-Seen": "1"})


async def test_a_hook_sees_method_query_and_the_rest_of_the_path_and_answers_itself() -> None:
    adapter = Challenged()
    answer = await post(adapter, "/hooks/fake/x/a/b%20c?challenge=12%2034&mode=one&mode=two", method="GET")
    assert (answer.status_code, answer.text, answer.headers["x-seen"]) == (200, "12 34", "1")
    seen = adapter.requests[0]
    assert (seen.method, seen.path, seen.query) == ("GET", "a/b c", {"challenge": "12 34", "mode": "two"})
    refused = await post(adapter, method="DELETE")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, POST")
    assert (await post(adapter, "/hooks/fake/xy")).status_code == 404


async def test_of_two_hooks_the_one_with_the_longer_path_answers() -> None:
    outer, inner = Challenged("fake"), Challenged("fake/x")
    app = build_app(outer, inner)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1"
    ) as client:
        for path in ("fake", "fake/y", "fake/x", "fake/x/z"):
            await client.post(f"/hooks/{path}")
    assert [r.path for r in outer.requests] == ["", "y"]
    assert [r.path for r in inner.requests] == ["", "z"]


async def test_an_adapter_that_does_not_listen_yet_is_asked_later() -> None:
    answer = await post(Hooked(), listening=False)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


async def test_a_body_that_is_too_large_is_refused() -> None:
    adapter = Hooked()
    assert (await post(adapter, content=b"x" * 100)).status_code == 202
    assert (await post(adapter, content=b"x" * 101)).status_code == 413
    assert len(adapter.requests) == 1


@pytest.mark.parametrize(
    ("status", "rejected"), [(202, 0), (400, 1), (401, 1), (403, 1), (404, 0), (429, 0), (503, 0)]
)
async def test_what_the_adapter_does_not_take_for_a_request_of_its_platform_is_counted(
    status: int, rejected: int
) -> None:
    adapter = Hooked()
    adapter.status = status
    assert (await post(adapter)).status_code == status
    assert adapter.rejected == rejected


async def test_what_no_adapter_gets_to_see_is_counted_as_well() -> None:
    adapter = Hooked()
    await post(adapter, content=b"x" * 101)
    assert adapter.rejected == 1
    adapter.hook = msgspec.structs.replace(adapter.hook, required_headers=("x-proof",))
    assert (await post(adapter)).status_code == 401
    assert adapter.rejected == 2
    await post(Hooked(), method="DELETE")
    assert (await post(adapter, "/hooks/other", method="DELETE")).status_code == 404
    assert adapter.rejected == 2


async def test_a_body_without_a_length_is_refused_while_it_is_read() -> None:
    adapter = Hooked()
    given = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal given
        for _ in range(1000):
            given += 1
            yield b"x" * 60

    answer = await post(adapter, content=endless())
    assert answer.status_code == 413
    assert (given < 10, adapter.requests) == (True, [])


@pytest.mark.parametrize(
    ("error", "status"),
    [(RuntimeError("secret"), 500), (Conflict("secret"), 500), (Retryable("secret"), 503)],
)
async def test_what_fails_inside_is_told_to_nobody(error: Exception, status: int) -> None:
    answer = await post(Hooked(error=error))
    assert answer.status_code == status
    assert "secret" not in answer.text


async def test_a_post_without_the_headers_that_prove_its_sender_is_refused_before_its_body() -> None:
    adapter = Hooked()
    read: list[bytes] = []

    async def send_body() -> AsyncIterator[bytes]:
        read.append(b"{}")
        yield b"{}"

    adapter.hook = msgspec.structs.replace(adapter.hook, required_headers=("x-sign", "x-time"))
    assert (await post(adapter, content=send_body())).status_code == 401
    assert read == []
    adapter.hook = msgspec.structs.replace(adapter.hook, required_headers=("x-sign",))
    assert (await post(adapter, content=send_body())).status_code == 202
    assert read == [b"{}"]


async def test_when_strangers_send_too_much_at_once_the_body_that_began_first_gives_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    adapter, finished = Hooked(), asyncio.Event()
    transport = httpx.ASGITransport(app=build_app(adapter))

    async def send_body(begun: asyncio.Event) -> AsyncIterator[bytes]:
        yield b"x" * 60
        begun.set()
        await finished.wait()
        yield b"x"

    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            posts: list[asyncio.Task[httpx.Response]] = []
            for _ in range(4):
                begun = asyncio.Event()
                posts.append(group.create_task(client.post("/hooks/fake/x", content=send_body(begun))))
                await begun.wait()
            # 150 bytes are allowed, so the first two are refused without having ended.
            assert (await posts[0]).status_code == (await posts[1]).status_code == 503
            finished.set()
        assert [post.result().status_code for post in posts[2:]] == [202, 202]
        assert (await client.post("/hooks/fake/x", content=b"x" * 100)).status_code == 202
    assert [len(request.body) for request in adapter.requests] == [61, 61, 100]
    assert {record.name for record in caplog.records} == {"keryx.surfaces.web.request"}


async def test_bodies_of_strangers_take_nothing_from_those_of_known_callers() -> None:
    memory = BodyMemory(100, 50)
    with memory.read(known=True) as known, memory.read(known=False) as unknown:
        memory.add(unknown, b"x" * 50)
        memory.add(known, b"x" * 100)
        with pytest.raises(Unavailable):
            memory.add(known, b"x")
        assert not unknown.scope.cancel_called
    with memory.read(known=True) as known:
        memory.add(known, b"x" * 100)


async def test_a_slow_body_of_a_known_caller_gives_way_to_the_next() -> None:
    memory = BodyMemory(100, 50, grace=0)

    async def send_slowly() -> None:
        with memory.read(known=True) as slow:
            memory.add(slow, b"x" * 90)
            with memory.read(known=True) as other:
                memory.add(other, b"x" * 90)
            assert bytes(other.content) == b"x" * 90
            await anyio.lowlevel.checkpoint()

    with pytest.raises(Unavailable):
        await send_slowly()
    with memory.read(known=True) as third:
        memory.add(third, b"x" * 100)


def test_two_adapters_cannot_share_a_path() -> None:
    with pytest.raises(Invalid, match="another path"):
        build_app(Hooked(), Hooked())
