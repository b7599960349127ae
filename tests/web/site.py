"""The web surface over a hub, called in this process as a browser or a program would."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.types import ASGIApp, Message

from keryx.client_address import TrustedProxies
from keryx.core.clock import Clock
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR
from keryx.core.ports.agent import SpeakText, TranscribeSound
from keryx.core.ports.setup import SetupService
from keryx.core.sessions import Viewer
from keryx.engine.hub import Hub
from keryx.surfaces.web.request import Installation
from keryx.surfaces.web.schema import ModelSchema, Setting
from keryx.surfaces.web.server import WebApp

SECONDS = 60
HOST = "localhost:7337"
ORIGIN = f"http://{HOST}"
TOKEN = "a-token-of-some-length"
PASSWORD = "correct horse"
KEY = b"k" * 32
OPERATORS = Viewer(DEFAULT_PROFILE, OPERATOR)
INSTALLATION = Installation(
    version="1.2.3",
    agent="echo",
    models=(ModelSchema(name="small", host="models.example", default=True),),
    settings=(Setting(name="port", value="7337", source="default"),),
)


class Site:
    """A client of the API. `get` and the other methods require a success and return the JSON document."""

    def __init__(self, app: ASGIApp, web: WebApp, *, token: str = "") -> None:
        self.app = app
        self.web = web
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app, raise_app_exceptions=True),
            base_url=ORIGIN,
            headers=headers,
            timeout=SECONDS,
        )

    async def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        return await self.client.request(method, path, **more)

    async def get(self, path: str, **more: Any) -> Any:
        return await self._request_json("GET", path, **more)

    async def post(self, path: str, body: object = None, **more: Any) -> Any:
        return await self._request_json("POST", path, json=body or {}, **more)

    async def patch(self, path: str, body: object) -> Any:
        return await self._request_json("PATCH", path, json=body)

    async def put(self, path: str, body: object) -> Any:
        return await self._request_json("PUT", path, json=body)

    async def delete(self, path: str) -> Any:
        return await self._request_json("DELETE", path)

    async def problem(self, status: int, method: str, path: str, **more: Any) -> str:
        """Return the detail of a problem document, which must have this status."""
        answer = await self.request(method, path, **more)
        assert answer.status_code == status, (answer.status_code, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        document = answer.json()
        assert document["status"] == status
        assert len(document["detail"]) > 15
        return document["detail"]

    async def _request_json(self, method: str, path: str, **more: Any) -> Any:
        answer = await self.request(method, path, **more)
        assert answer.status_code < 300, (answer.status_code, answer.text)
        return answer.json() if answer.content else None


@asynccontextmanager
async def open_site(
    hub: Hub,
    clock: Clock,
    *,
    token: str = "",
    password: str = "",
    operator: Viewer = OPERATORS,
    hosts: tuple[str, ...] = (),
    installation: Installation = INSTALLATION,
    trusted_proxies: tuple[str, ...] = (),
    transcribe: TranscribeSound | None = None,
    speak: SpeakText | None = None,
    setup: SetupService | None = None,
) -> AsyncGenerator[Site]:
    web = WebApp(
        hub,
        clock,
        operator=operator,
        key=KEY,
        token=token,
        password=password,
        hosts=hosts,
        installation=installation,
        proxies=TrustedProxies(trusted_proxies),
        transcribe=transcribe,
        speak=speak,
        setup=setup,
    )
    async with web.lifespan() as app:
        site = Site(app, web)
        async with site.client:
            yield site


@dataclass
class ReceivedEvent:
    """One event of a stream, with the cursor that a browser then has."""

    cursor: str
    data: dict[str, Any]


@dataclass
class Listener:
    """A browser's end of a stream: keeps the events and the last cursor, over any number of connections."""

    app: ASGIApp
    cursor: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    path: str = "/api/stream"
    events: list[ReceivedEvent] = field(default_factory=list[ReceivedEvent])
    status: int = 0
    _buffer: bytes = b""
    _event: dict[str, str] = field(default_factory=dict[str, str])
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def connect(
        self, *, close_after: int | None = None, reading: asyncio.Event | None = None
    ) -> AsyncGenerator["Listener"]:
        """Listen while the block runs, or until this many bytes came; read nothing while `reading` is not set."""
        self._buffer, self._event = b"", {}
        closed = self._closed = asyncio.Event()
        left = close_after

        async def receive() -> Message:
            await closed.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal left
            if message["type"] == "http.response.start":
                self.status = message["status"]
                return
            if reading is not None:
                await reading.wait()
            body: bytes = message.get("body", b"")
            if left is not None:
                body, left = body[:left], max(0, left - len(body))
            self._feed(body)
            if left == 0 or not message.get("more_body"):
                closed.set()
            self._changed.set()

        task = asyncio.ensure_future(self.app(self._scope(), receive, send))
        try:
            yield self
        finally:
            closed.set()
            async with asyncio.timeout(SECONDS):
                await task

    async def wait_for(self, type_: str, **fields: object) -> dict[str, Any]:
        """Wait for an event of this type with these fields, and return the last such event."""
        async with asyncio.timeout(SECONDS):
            while True:
                self._changed.clear()
                for event in reversed(self.events):
                    if event.data["type"] == type_ and _matches(event.data, fields):
                        return event.data
                await self._changed.wait()

    async def wait_until(self, reached: Callable[[], bool]) -> None:
        """Wait until the events that came fulfil a condition."""
        async with asyncio.timeout(SECONDS):
            while not reached():
                self._changed.clear()
                await self._changed.wait()

    async def wait_closed(self, *, within: float) -> bool:
        """Wait until the connection is closed. Return false on timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._closed.wait()
        return self._closed.is_set()

    async def idle(self) -> None:
        """Wait until nothing more comes."""
        before = -1
        while before != len(self.events):
            before = len(self.events)
            for _ in range(20):
                await asyncio.sleep(0)

    def of_type(self, type_: str) -> list[dict[str, Any]]:
        return [event.data for event in self.events if event.data["type"] == type_]

    def _scope(self) -> dict[str, Any]:
        headers = {"host": HOST, "last-event-id": self.cursor, **self.headers}
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(k.encode(), v.encode()) for k, v in headers.items() if v],
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 7337),
        }

    def _feed(self, body: bytes) -> None:
        """Parse the stream as a browser does: an incomplete event is dropped."""
        self._buffer += body
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            name, _, value = line.decode().partition(": ")
            if name:
                self._event[name] = value
                continue
            self.cursor = self._event.get("id", self.cursor)
            if "data" in self._event:
                self.events.append(ReceivedEvent(self.cursor, json.loads(self._event["data"])))
            self._event = {}


def _matches(data: object, fields: dict[str, object]) -> bool:
    """Return whether a document has these values; `turn__state` is the state within the turn."""
    for path, wanted in fields.items():
        found: Any = data
        for name in path.split("__"):
            found = found.get(name) if isinstance(found, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if found != wanted:
            return False
    return True


async def post_until(
    site: Site, path: str, body: object, stop: Callable[[dict[str, Any]], bool], **headers: str
) -> list[dict[str, Any]]:
    """Post a request, read the events of its stream up to one that `stop` accepts, then go away."""
    closed, sent = asyncio.Event(), [json.dumps(body).encode()]
    events: list[dict[str, Any]] = []

    async def receive() -> Message:
        if sent:
            return {"type": "http.request", "body": sent.pop(), "more_body": False}
        await closed.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        for line in message.get("body", b"").decode().splitlines():
            if line.startswith("data: {") and not closed.is_set():
                events.append(json.loads(line.removeprefix("data: ")))
                if stop(events[-1]):
                    closed.set()

    fields = {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 7337),
    }
    async with asyncio.timeout(SECONDS):
        await site.app(scope, receive, send)
    return events
