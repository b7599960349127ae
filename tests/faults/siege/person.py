"""A hostile person: sends the hostile corpus by the API, opens what was sent as the page does, and by an editor.

python -m tests.faults.siege.person PORT SECONDS
"""

import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import httpx
from tests.hostile.corpus import build_messages

# How many characters the texts have.
SIZES = (300, 3_000, 30_000)
_STREAMS = 5
_EDITOR = [str(Path(sys.executable).with_name("keryx")), "acp"]
_PAGES = (
    "/api/start",
    "/api/sessions",
    "/api/search?q={query}",
    "/api/sessions/{session}",
    "/api/sessions/{session}/export?format=html",
    "/api/sessions/{session}/export?format=markdown",
)


def attack(port: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    corpus = [text for size in SIZES for text in build_messages(size)]
    random.shuffle(corpus)
    signed = {"Authorization": f"Bearer {os.environ['KERYX_WEB_TOKEN']}"}
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, headers=signed) as http,
        _Editor() as editor,
    ):
        for _ in range(_STREAMS):
            threading.Thread(target=_follow, args=(http, until), daemon=True).start()
        for number, text in enumerate(itertools.cycle(corpus)):
            if time.monotonic() > until:
                return
            try:
                _send(http, text)
                _call(http, text, number)
            except httpx.HTTPError:
                time.sleep(0.5)
            if number % 10 == 0:
                editor.send(text)
            time.sleep(random.uniform(0, 0.3))


def _send(http: httpx.Client, text: str) -> None:
    """Begin a conversation with the text, and look at it in every way."""
    # As programs write it: half a character is escaped.
    begun = http.post("/api/sessions", content=json.dumps({"text": text}))
    if begun.status_code >= 400:
        return
    session, query = begun.json().get("session", ""), quote(text[:500], errors="replace")
    for page in _PAGES:
        http.get(page.format(session=session, query=query))


def _call(http: httpx.Client, text: str, number: int) -> None:
    """Ask as other programs do, now and then with far too many values."""
    values = "[]," * 300_000 if number % 20 == 0 else ""
    said = json.dumps(f"### Task:{text}")
    message = f'{{"role": "user", "content": {said}}}'
    part = f'{{"messageId": "{number}", "role": "ROLE_USER", "parts": [{{"text": {said}}}]}}'
    bodies = {
        "/v1/chat/completions": f'{{"model": "keryx", "messages": [{message}], "x": [{values}0]}}',
        "/v1/responses": f'{{"model": "keryx", "input": {said}, "x": [{values}0]}}',
        "/a2a": f'{{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {{"message": {part}, "x": [{values}0]}}}}',
        "/mcp": f'{{"jsonrpc": "2.0", "id": 1, "method": {said}, "params": {{"x": [{values}0]}}}}',
    }
    path = list(bodies)[number % len(bodies)]
    http.post(path, content=bodies[path], headers={"Content-Type": "application/json"})


def _follow(http: httpx.Client, until: float) -> None:
    """Keep a page open."""
    while time.monotonic() < until:
        try:
            cursor = http.get("/api/start").raise_for_status().json()["cursor"]
            with http.stream("GET", "/api/stream", params={"cursor": cursor}) as stream:
                for _ in stream.iter_bytes():
                    if time.monotonic() > until:
                        return
        except httpx.HTTPError:
            time.sleep(1)


class _Editor:
    """`keryx acp` on the same store: prompts with the corpus, and frames that no editor would write."""

    def __enter__(self) -> "_Editor":
        self._process = subprocess.Popen(
            _EDITOR, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._session = ""
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        self._write({"id": 1, "method": "initialize", "params": {"protocolVersion": 1}})
        self._write({"id": 2, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}})
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(30)

    def send(self, text: str) -> None:
        if self._process.poll() is not None:
            self.__enter__()
        prompt = {"sessionId": self._session or text, "prompt": [{"type": "text", "text": text}]}
        self._write({"id": text[:100], "method": "session/prompt", "params": prompt})
        self._write({"id": 3, "method": "initialize", "params": text})
        noise: Sequence[bytes] = (
            b"[" * 100_000,
            b'{"jsonrpc": "2.0", "id": ' + b"9" * 10_000 + b"}",
            text.encode("utf-8", "replace"),
        )
        self._write_line(random.choice(noise))

    def _write(self, message: dict[str, object]) -> None:
        self._write_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def _write_line(self, line: bytes) -> None:
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except OSError:
            self._process.kill()
            self._process.wait(30)

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        """Read all answers, and take the session from the one to `session/new`."""
        assert process.stdout is not None
        for line in process.stdout:
            if b'"id":2' in line and b"sessionId" in line:
                self._session = json.loads(line)["result"]["sessionId"]


if __name__ == "__main__":
    attack(int(sys.argv[1]), float(sys.argv[2]))
