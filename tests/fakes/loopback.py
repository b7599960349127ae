"""A small HTTP server on loopback for fakes of platforms. It lives in the test's process, in threads of its own."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """`torn`: the connection breaks in the middle of the body."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    torn: bool = False


Handle = Callable[[Request], Response | None]


class Loopback:
    """Serves `handle` while the block runs. `None` for an answer breaks the connection instead."""

    def __init__(self, handle: Handle) -> None:
        self._server = _Server(("127.0.0.1", 0), _handler(handle))

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


def as_json(value: object, status: int = 200) -> Response:
    return Response(status, json.dumps(value).encode(), {"content-type": "application/json"})


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed breaks its connections: that is what these servers are for."""


def _handler(handle: Handle) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # A small answer goes out in two writes, and would wait for the client to confirm the first.
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = handle(Request(self.command, parts.path, dict(parse_qsl(parts.query)), headers, body))
            if answer is None:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body[: len(answer.body) // 2] if answer.torn else answer.body)
            self.close_connection = self.close_connection or answer.torn

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 the names that the base class calls

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
