"""A strict, scripted OpenAI-compatible endpoint on loopback: it refuses what real providers refuse, records what it
is sent, and plays one script per request."""

import io
import json
import select
import threading
import time
import wave
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, TypeAlias, cast

from tests.fakes import strict
from tests.fakes.strict import Json, Wrong

KEY = "test-key-0123456789"
MODEL = "test-model"
EARS = "test-ears"
MOUTH = "test-mouth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer with an error status, in the form of the big providers."""

    status: int
    message: str
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    raw: str | None = None


class Stall:
    """The stream stands still until the endpoint is released."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The stream stands still for a moment."""

    seconds: float


class Cut:
    """The connection breaks here."""


class End:
    """The stream ends here in good order, with nothing after it."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes of the stream as they are."""

    text: str


Step: TypeAlias = Json | Stall | Pause | Cut | End | Raw
Script: TypeAlias = Refusal | Sequence[Step]


def delta(finish: str | None = None, **fields: Any) -> Json:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def says(*texts: str) -> list[Json]:
    """Pieces of text."""
    return [delta(content=text) for text in texts]


def thinks(*texts: str, name: str = "reasoning_content") -> list[Json]:
    """Pieces of reasoning, in the field that the provider uses."""
    return [delta(**{name: text}) for text in texts]


def finish(reason: str = "stop", usage: Json | None = None) -> list[Json]:
    """The end of an answer, and the chunk with its usage."""
    counts = usage or {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return [delta(reason), {"choices": [], "usage": counts}]


def answer(*texts: str) -> list[Json]:
    """A whole answer."""
    return [*says(*texts), *finish()]


def fragments(*calls: tuple[str, str, str], size: int = 3) -> list[Json]:
    """Tool calls (id, name, arguments) as they stream: the name first, then the arguments in small pieces, all
    calls interleaved."""
    out: list[Json] = []
    for index, (call, name, _) in enumerate(calls):
        function = {"name": name, "arguments": ""}
        out.append(delta(tool_calls=[{"index": index, "id": call, "type": "function", "function": function}]))
    longest = max(len(arguments) for _, _, arguments in calls)
    for at in range(0, longest, size):
        for index, (_, _, arguments) in enumerate(calls):
            if piece := arguments[at : at + size]:
                out.append(delta(tool_calls=[{"index": index, "function": {"arguments": piece}}]))
    return out


def calls(*made: tuple[str, str, str]) -> list[Json]:
    """A whole step that calls tools (id, name, arguments)."""
    return [*fragments(*made), *finish("tool_calls")]


def throttled(seconds: str = "7") -> Refusal:
    return Refusal(
        status=429, message="Rate limit reached", code="rate_limit_exceeded", headers={"Retry-After": seconds}
    )


OVERFLOW = Refusal(
    status=400,
    message="This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
    code="context_length_exceeded",
)
DOWN = Refusal(status=503, message="The engine is currently overloaded")


class Endpoint:
    """Use as a context manager. Each request plays the next script, the last one again and again.

    `requests` are the bodies that were accepted, `refused` the reasons of those that were not, `dropped` counts
    streams that the client closed early. `fields` are further fields of assistant messages that are accepted."""

    def __init__(self, *scripts: Script, fields: frozenset[str] = frozenset()) -> None:
        self.scripts = list(scripts)
        self.requests: list[Json] = []
        self.refused: list[str] = []
        self.dropped = 0
        # What is heard in sounds, and the sounds that were sent, with their names.
        self.transcripts: list[str | Refusal | Stall | Raw] = ["hello there"]
        self.sounds: list[tuple[str, Any]] = []
        # What was said about each of them beside the model and the format.
        self.hints: list[dict[str, str]] = []
        # What texts sound like, and the requests for that.
        self.voices: list[bytes | Refusal | Raw] = [make_sound(0.2)]
        self.spoken: list[Json] = []
        self.fields = fields
        self._played = 0
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def release(self) -> None:
        """Let every stalled stream go on."""
        self._released.set()

    def stalled(self, connection: Any) -> bool:
        """Stand still until released; tells whether the client is still there."""
        while not self._released.wait(0.01):
            if select.select([connection], [], [], 0)[0]:
                self.drop()
                return False
        return True

    def drop(self) -> None:
        with self._lock:
            self.dropped += 1

    def judge(self, path: str, key: str, body: Json) -> Script:
        """The script for a request, or its refusal."""
        if path != "/v1/chat/completions":
            return Refusal(status=404, message="", raw="<html>not found</html>")
        if key != f"Bearer {KEY}":
            return Refusal(status=401, message=f"Incorrect API key provided: {key}", code="invalid_api_key")
        if body.get("model") != MODEL:
            return Refusal(
                status=404, message=f"The model `{body.get('model')}` does not exist", code="model_not_found"
            )
        with self._lock:
            try:
                strict.check(body, extra=self.fields)
            except Wrong as exc:
                self.refused.append(str(exc))
                return Refusal(status=400, message=str(exc), code="invalid_request_error")
            self.requests.append(body)
            return self.choose(body)

    def hear(self, key: str, kind: str, sent: bytes) -> "str | Refusal | Stall | Raw":
        """The transcript for a sound: the next one of `transcripts`, the last one again and again."""
        if key != f"Bearer {KEY}":
            return Refusal(status=401, message="Incorrect API key provided", code="invalid_api_key")
        form = message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + sent)
        fields = {part.get_param("name", header="content-disposition"): part for part in form.walk()}
        file, model = fields["file"], fields["model"]
        hints: dict[str, str] = {
            str(name): cast(bytes, fields[name].get_payload(decode=True)).decode()
            for name in ("language", "prompt", "temperature")
            if name in fields
        }
        with self._lock:
            self.hints.append(hints)
            self.sounds.append((str(file.get_filename()), file.get_payload(decode=True)))
            if model.get_payload(decode=True) != EARS.encode():
                return Refusal(status=404, message="The model does not exist", code="model_not_found")
            return self.transcripts[min(len(self.sounds), len(self.transcripts)) - 1]

    def speak(self, key: str, body: Json) -> "bytes | Refusal | Raw":
        """The sound of a text: the next one of `voices`, the last one again and again."""
        if key != f"Bearer {KEY}":
            return Refusal(status=401, message="Incorrect API key provided", code="invalid_api_key")
        with self._lock:
            self.spoken.append(body)
            if body["model"] != MOUTH:
                return Refusal(status=404, message="The model does not exist", code="model_not_found")
            return self.voices[min(len(self.spoken), len(self.voices)) - 1]

    def choose(self, body: Json) -> Script:
        """The script for a valid request: the next one. A model that reads what it is asked has its own."""
        self._played += 1
        return self.scripts[min(self._played, len(self.scripts)) - 1]


def make_sound(seconds: float) -> bytes:
    """A WAV file of silence."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(b"\0\0" * round(8000 * seconds))
    return file.getvalue()


def _handler(endpoint: Endpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # The first word would wait for the client to confirm the headers, which takes it 40 ms on a connection in use.
        disable_nagle_algorithm = True

        def handle(self) -> None:
            # A client that was killed resets its connections.
            with suppress(ConnectionResetError):
                super().handle()

        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            sent = self.rfile.read(size)
            if len(sent) < size:
                self.close_connection = True
                return
            if self.path == "/v1/audio/transcriptions":
                self._transcribe(sent)
                return
            body = json.loads(sent)
            if self.path == "/v1/audio/speech":
                self._speak(body)
                return
            script = endpoint.judge(self.path, self.headers.get("Authorization", ""), body)
            try:
                if isinstance(script, Refusal):
                    self._refuse(script)
                else:
                    self._stream(script)
            except (BrokenPipeError, ConnectionResetError):
                endpoint.drop()
                self.close_connection = True

        def _transcribe(self, sent: bytes) -> None:
            reply = endpoint.hear(self.headers.get("Authorization", ""), self.headers["Content-Type"], sent)
            if isinstance(reply, Stall):
                if not endpoint.stalled(self.connection):
                    self.close_connection = True
                    return
                reply = "late words"
            if isinstance(reply, Refusal):
                self._refuse(reply)
                return
            content = reply.text.encode() if isinstance(reply, Raw) else json.dumps({"text": reply}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _speak(self, body: Json) -> None:
            reply = endpoint.speak(self.headers.get("Authorization", ""), body)
            if isinstance(reply, Refusal):
                self._refuse(reply)
                return
            content = reply.text.encode() if isinstance(reply, Raw) else reply
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if isinstance(reply, Raw) else "audio/wav")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _refuse(self, refusal: Refusal) -> None:
            error = {
                "message": refusal.message,
                "type": "invalid_request_error",
                "param": None,
                "code": refusal.code,
            }
            content = (refusal.raw if refusal.raw is not None else json.dumps({"error": error})).encode()
            self.send_response(refusal.status)
            self.send_header("Content-Type", "text/html" if refusal.raw is not None else "application/json")
            self.send_header("Content-Length", str(len(content)))
            for name, value in refusal.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def _stream(self, script: Sequence[Step]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for step in script:
                match step:
                    case Stall() if endpoint.stalled(self.connection):
                        continue
                    case Stall() | Cut():
                        self.close_connection = True
                        return
                    case Pause(seconds):
                        time.sleep(seconds)
                    case End():
                        self.wfile.write(b"0\r\n\r\n")
                        return
                    case Raw(text):
                        self._chunk(text)
                    case _:
                        self._chunk(f"data: {json.dumps(_chunk(step))}\n\n")
            self._chunk("data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")

        def _chunk(self, text: str) -> None:
            data = text.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            """Tests read `requests`, not a log."""

    return Handler


def _chunk(step: Json) -> Json:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL} | step
