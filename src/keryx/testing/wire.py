"""What fakes of platforms are built on: an HTTP server and a websocket server on loopback, and the base class of a fake, which injects the faults of `PlatformFaults`."""

import json
import random
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from keryx.testing.fault_injection import PlatformFaults

T = TypeVar("T")

# The discard port. No server listens there.
UNREACHABLE_URL = "http://127.0.0.1:9"


@dataclass(frozen=True, slots=True)
class WireRequest:
    method: str
    path: str
    query: dict[str, str]
    # Names are in lower case.
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class WireResponse:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    # The connection breaks in the middle of the body.
    torn: bool = False


# What the network of a hotel answers to every request.
_SIGN_IN_PAGE = WireResponse(
    200, b"<!DOCTYPE html><title>Please sign in</title>", {"content-type": "text/html"}
)


def json_response(value: object, status: int = 200) -> WireResponse:
    return WireResponse(status, json.dumps(value).encode(), {"content-type": "application/json"})


# Returning `None` breaks the connection without a response. Called in a thread for each connection.
HandleRequest = Callable[[WireRequest], WireResponse | None]


class LoopbackServer:
    """An HTTP server that runs in threads of the test's process while the block runs."""

    def __init__(self, handle: HandleRequest) -> None:
        self._server = _QuietServer(("127.0.0.1", 0), _build_handler(handle))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@asynccontextmanager
async def serve_websocket(
    handle: Callable[[ServerConnection], Awaitable[None]], *, refuse: HTTPStatus | None = None
) -> AsyncGenerator[str]:
    """Serve a websocket on the running event loop and yield its URL. With `refuse`, every connection gets this status."""

    def check(connection: ServerConnection, request: Request) -> Response | None:
        return connection.respond(refuse, f"{refuse.phrase}\n") if refuse else None

    async with serve(handle, "127.0.0.1", 0, process_request=check) as server:
        [socket] = server.sockets
        yield f"ws://127.0.0.1:{socket.getsockname()[1]}"


@dataclass
class WireFake:
    """The base class of a fake platform: a server that answers with `handle` while the block runs.

    Requests that something else answers (`garbled`) do not reach it. A fake passes what it hands over through `inject_event_faults` and `tear`, and what it accepts through `accept_send`,
    so that the faults are the same on every platform.
    """

    faults: PlatformFaults = field(default_factory=PlatformFaults)
    seed: int = 0

    def __post_init__(self) -> None:
        # Held while the state of the fake is read or changed; notified of changes.
        self.lock = threading.Condition()
        self._random = random.Random(self.seed)
        self._held: set[str] = set()

        def answer(request: WireRequest) -> WireResponse | None:
            garbled = self.faults.garbled and self.roll(self.faults.garbled)
            return _SIGN_IN_PAGE if garbled else self.handle(request)

        self._server = LoopbackServer(answer)

    def handle(self, request: WireRequest) -> WireResponse | None:
        """Answer one request. `None` breaks the connection."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        return self._server.url

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def set_faults(self, faults: PlatformFaults) -> None:
        self.faults = faults

    def wait_for(self, condition: Callable[[], bool], seconds: float = 60) -> bool:
        """Wait until a condition over the state of the fake is true. Return whether it is."""
        with self.lock:
            return bool(self.lock.wait_for(condition, seconds))

    def hold(self, name: str) -> None:
        """Let `wait_until_released` wait for `release`, as a slow download does."""
        with self.lock:
            self._held.add(name)

    def release(self, name: str) -> None:
        with self.lock:
            self._held.discard(name)
            self.lock.notify_all()

    def wait_until_released(self, name: str) -> None:
        """Return when nothing of this name, such as a file, is held."""
        self.wait_for(lambda: name not in self._held)

    def roll(self, share: float) -> bool:
        """Return true in this share of the calls."""
        return self._random.random() < share

    def inject_event_faults(self, events: Sequence[T]) -> list[T]:
        """Return the events as they are handed over: some of them twice (`duplicate`), or in another order (`reorder`)."""
        handed = [event for event in events for _ in range(2 if self.roll(self.faults.duplicate) else 1)]
        if self.roll(self.faults.reorder):
            self._random.shuffle(handed)
        return handed

    def tear(self, response: WireResponse) -> WireResponse:
        """Return a response, which may be cut off (`torn`)."""
        return replace(response, torn=self.roll(self.faults.torn))

    def accept_send(
        self, accept: Callable[[], WireResponse], *, throttled: WireResponse, broken: WireResponse
    ) -> WireResponse | None:
        """Call `accept`, which stores a message and returns the response to its sender.

        It is not called if the send is throttled (`throttle`) or the server fails (`broken`). The response to a message
        that was accepted may be lost (`lost_reply`).
        """
        roll = self._random.random()
        if roll < self.faults.throttle:
            return throttled
        if roll < self.faults.throttle + self.faults.broken:
            return broken
        response = accept()
        return None if response.status < 400 and self.roll(self.faults.lost_reply) else response


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore connections that a client has broken: tests kill clients."""


def _build_handler(handle: HandleRequest) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # A small response is sent in two writes; the second would wait for the client to confirm the first.
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = WireRequest(self.command, parts.path, dict(parse_qsl(parts.query)), headers, body)
            response = handle(request)
            if response is None:
                self.close_connection = True
                return
            if "date" in response.headers:
                self.send_response_only(response.status)
            else:
                self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body[: len(response.body) // 2] if response.torn else response.body)
            self.close_connection = self.close_connection or response.torn

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 the names that the base class calls

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
