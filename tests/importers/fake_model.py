"""A model on loopback that speaks the protocols of the programs: it answers with a fixed text, and calls a shell if asked to."""

import gzip
import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
SHELLS = ("Bash", "bash", "shell_command", "exec_command", "shell", "run_shell_command", "terminal", "exec")
ANSWER = "Hello, this is the fake model."
TOOL_ANSWER = "Tool said tool-ran."
COMMAND = "echo tool-ran"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # The bodies of all requests.
    seen: list[Json]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": "fake", "object": "model"}], "models": []})

    def do_POST(self) -> None:
        body: Json = json.loads(self._read_body() or b"{}")
        self.seen.append(body)
        path = self.path.partition("?")[0]
        if path.endswith("count_tokens"):
            self._send({"input_tokens": 100})
        elif path.endswith("/messages"):
            self._answer(body, list(_speak_messages(body)))
        elif path.endswith("/responses"):
            self._answer(body, list(_speak_responses(body)))
        elif path.endswith("/chat/completions"):
            self._answer(body, list(_speak_completions(body)))
        elif path.endswith((":generateContent", ":streamGenerateContent")):
            streams = path.endswith(":streamGenerateContent")
            self._answer({**body, "stream": streams}, list(_speak_gemini(body)))
        else:
            self._send({})

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline().strip() or b"0", 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def _answer(self, body: Json, events: list[tuple[str, Json | str]]) -> None:
        """Send the events as a stream, or the last one as a whole."""
        if not body.get("stream"):
            [whole] = [event for name, event in events if name == "whole"]
            self._send(whole)
            return
        lines: list[str] = []
        for name, event in events:
            if name != "whole":
                data = event if isinstance(event, str) else json.dumps(event)
                lines.append(f"event: {name}\ndata: {data}\n\n" if name else f"data: {data}\n\n")
        self._send("".join(lines), kind="text/event-stream")

    def _send(self, value: object, *, kind: str = "application/json") -> None:
        body = (value if isinstance(value, str) else json.dumps(value)).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _find_call(tools: list[Json], said: list[Json]) -> tuple[str, Json] | None:
    """Return the shell to call, if the last person asked for it and has no result yet."""
    last, after = "", False
    for entry in said:
        text = json.dumps(entry)
        kind = entry.get("type")
        result = entry.get("role") == "tool" or "tool_result" in text or kind == "function_call_output"
        result = result or "functionResponse" in text
        if result:
            after = True
        elif entry.get("role") == "user":
            last, after = text, False
    if "use-tool" not in last or after:
        return None
    declared = [f for tool in tools for f in tool.get("functionDeclarations", [tool.get("function", tool)])]
    functions = {f["name"]: f for f in declared if f.get("name")}
    name = next((name for name in SHELLS if name in functions), None)
    if name is None:
        return None
    schema: Json = functions[name].get("parameters") or functions[name].get("input_schema") or {}
    schema = schema or functions[name].get("parametersJsonSchema") or {}
    wanted: list[str] = schema.get("required") or []
    values: Json = {"array": ["bash", "-lc", COMMAND], "boolean": False, "number": 1, "integer": 1}
    known: Json = schema.get("properties") or {}
    filled = {key: values.get(known.get(key, {}).get("type"), "a command") for key in wanted}
    key = next((key for key in ("command", "cmd", "script") if key in known), "command")
    array = known.get(key, {}).get("type") == "array"
    return name, {**filled, key: values["array"] if array else COMMAND}


def _choose_text(said: list[Json]) -> str:
    return TOOL_ANSWER if said and "tool-ran" in json.dumps(said[-1]) else ANSWER


def _speak_completions(body: Json) -> Iterator[tuple[str, Json | str]]:
    said: list[Json] = body.get("messages") or []
    call = _find_call(body.get("tools") or [], said)
    message: Json = {"role": "assistant", "content": None if call else _choose_text(said)}
    if call:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        message["tool_calls"] = [
            {"index": 0, "id": f"call_{len(said)}", "type": "function", "function": function}
        ]
    details = {
        "prompt_tokens_details": {"cached_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    used = {"prompt_tokens": 120, "completion_tokens": 12, "total_tokens": 132, **details}
    reason = "tool_calls" if call else "stop"
    frame = {"id": f"chat-{len(said)}", "model": "fake", "created": 1_794_818_000}
    chunk = {**frame, "object": "chat.completion.chunk"}
    yield "", {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}
    yield "", {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    yield "", {**chunk, "choices": [], "usage": used}
    yield "", "[DONE]"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    yield "whole", {**frame, "object": "chat.completion", "choices": [choice], "usage": used}


def _speak_messages(body: Json) -> Iterator[tuple[str, Json | str]]:
    said: list[Json] = body.get("messages") or []
    call = _find_call(body.get("tools") or [], said)
    used = {
        "input_tokens": 100,
        "output_tokens": 12,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 0,
    }
    blocks: list[Json] = [{"type": "text", "text": "I will run it." if call else _choose_text(said)}]
    if call:
        blocks.append({"type": "tool_use", "id": f"toolu_{len(said)}", "name": call[0], "input": call[1]})
    reason = "tool_use" if call else "end_turn"
    message = {
        "id": f"msg_{len(said)}_{id(body)}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
    }
    start: Json = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": used}
    yield "message_start", {"type": "message_start", "message": start}
    for n, block in enumerate(blocks):
        if block["type"] == "text":
            empty: Json = {"type": "text", "text": ""}
            delta: Json = {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield "content_block_start", {"type": "content_block_start", "index": n, "content_block": empty}
        yield "content_block_delta", {"type": "content_block_delta", "index": n, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": n}
    end = {"stop_reason": reason, "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": end, "usage": used}
    yield "message_stop", {"type": "message_stop"}
    yield "whole", {**message, "content": blocks, "stop_reason": reason, "stop_sequence": None, "usage": used}


def _speak_responses(body: Json) -> Iterator[tuple[str, Json | str]]:
    said: list[Json] = body.get("input") or []
    call = _find_call(body.get("tools") or [], said)
    if call:
        item: Json = {"type": "function_call", "id": f"fc_{len(said)}", "call_id": f"call_{len(said)}", "name": call[0], "arguments": json.dumps(call[1]), "status": "completed"}  # fmt: skip
    else:
        text: Json = {"type": "output_text", "text": _choose_text(said), "annotations": []}
        item = {"type": "message", "id": f"msg_{len(said)}", "role": "assistant", "status": "completed", "content": [text]}  # fmt: skip
    used = {"input_tokens": 150, "input_tokens_details": {"cached_tokens": 30}, "output_tokens": 15, "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 165}  # fmt: skip
    response = {
        "id": f"resp_{len(said)}_{id(body)}",
        "object": "response",
        "model": "fake",
        "status": "completed",
    }
    whole = {**response, "output": [item], "usage": used}
    yield (
        "response.created",
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
    )
    yield (
        "response.output_item.added",
        {"type": "response.output_item.added", "output_index": 0, "item": item},
    )
    if not call:
        delta = {
            "type": "response.output_text.delta",
            "item_id": item["id"],
            "output_index": 0,
            "content_index": 0,
        }
        yield "response.output_text.delta", {**delta, "delta": item["content"][0]["text"]}
    yield "response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield "response.completed", {"type": "response.completed", "response": whole}
    yield "whole", whole


def _speak_gemini(body: Json) -> Iterator[tuple[str, Json | str]]:
    said: list[Json] = body.get("contents") or []
    call = _find_call(body.get("tools") or [], said)
    part = {"functionCall": {"name": call[0], "args": call[1]}} if call else {"text": _choose_text(said)}
    used = {"promptTokenCount": 120, "cachedContentTokenCount": 20, "candidatesTokenCount": 10, "totalTokenCount": 130}  # fmt: skip
    candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    whole = {"candidates": [candidate], "usageMetadata": used, "modelVersion": "fake", "responseId": "r"}
    yield "", whole
    yield "whole", whole


@contextmanager
def serve_model(seen: list[Json] | None = None) -> Generator[str]:
    """Serve the model; yield its address. The bodies of requests are appended to `seen`."""
    handler = type("_RecordingHandler", (_Handler,), {"seen": [] if seen is None else seen})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
