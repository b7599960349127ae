"""A hostile model: an OpenAI-compatible endpoint that streams without end, answers far too much, breaks its frames and
calls tools in masses. The text of the last message chooses which.

python -m tests.faults.siege.model      prints its address and serves until it is ended
"""

import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "siege-key"
MODEL = "siege-model"
HUGE = 100_000_000
_PIECE = 50_000


def endless() -> Iterator[dict[str, Any]]:
    """Small pieces for ever."""
    for number in itertools.count():
        time.sleep(0.01)
        yield _delta(content=f"word {number} ")


def huge() -> Iterator[dict[str, Any]]:
    """An answer of 100 MB."""
    for _ in range(HUGE // _PIECE):
        yield _delta(content="x" * _PIECE)
    yield _delta("stop")


def thoughts() -> Iterator[dict[str, Any]]:
    """Reasoning of 100 MB, and not a word of an answer."""
    for _ in range(HUGE // _PIECE):
        yield _delta(reasoning_content="y" * _PIECE)
    yield _delta("stop")


def tool_storm() -> Iterator[dict[str, Any]]:
    """Two thousand tool calls in one step."""
    for index in range(2_000):
        function = {"name": "no_such_tool", "arguments": "{" * (index % 500)}
        call = {"index": index, "id": f"call-{index}", "type": "function", "function": function}
        yield _delta(tool_calls=[call])
    yield _delta("tool_calls")


def arguments() -> Iterator[dict[str, Any]]:
    """One tool call with 100 MB of arguments."""
    function = {"name": "no_such_tool", "arguments": ""}
    yield _delta(tool_calls=[{"index": 0, "id": "call", "type": "function", "function": function}])
    for _ in range(HUGE // _PIECE):
        yield _delta(tool_calls=[{"index": 0, "function": {"arguments": "[" * _PIECE}}])
    yield _delta("tool_calls")


def garbage() -> Iterator[bytes]:
    """Frames that are no JSON, nest without end, or have other types than promised."""
    yield b"data: {not json\n\n"
    yield b"data: " + b"[" * 200_000 + b"\n\n"
    yield b'data: {"choices": 7}\n\n'
    yield b'data: {"choices": [{"delta": null}]}\n\n'
    yield b"data: " + b"9" * 1_000_000 + b"\n\n"
    yield b"\xff\xfe\x00" * 1_000 + b"\n\n"


def long_line() -> Iterator[bytes]:
    """One line of 100 MB without an end."""
    yield b"data: "
    for _ in range(HUGE // _PIECE):
        yield b"z" * _PIECE


_LIMIT = {"message": "try again in" + " " * 3_000, "retry_after": "9" * 1_000_000, "code": "model" * 100_000}
# Errors instead of an answer: a status, headers and a body.
ERRORS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "limited": (
        429,
        {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9" * 8_000},
        json.dumps({"error": _LIMIT}).encode(),
    ),
    "wordy": (400, {}, json.dumps({"error": {"message": "a model " * 400_000}}).encode()),
    "nested": (500, {}, b'{"error": ' + b"[" * 100_000),
    "markup": (502, {"Retry-After": "soon"}, b"<html>" * 500_000),
}
WAYS = {way.__name__: way for way in (endless, huge, thoughts, tool_storm, arguments, garbage, long_line)}
NAMES = (*WAYS, *ERRORS)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        words = _last_words(body["messages"])
        if words in ERRORS:
            self._refuse(*ERRORS[words])
            return
        way = WAYS.get(words, garbage)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for step in way():
                data = step if isinstance(step, bytes) else f"data: {json.dumps(step)}\n\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def _refuse(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


def _last_words(messages: Sequence[dict[str, Any]]) -> str:
    """The last word of the last message of a person: it names a way."""
    said = [str(m["content"]) for m in messages if m["role"] == "user"]
    return said[-1].split()[-1] if said and said[-1].split() else ""


def _delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "delta": fields, "finish_reason": finish}],
    }


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
    server.serve_forever()
