"""A hostile person: sends the hostile corpus by the API, opens what was sent as the page does, and by an editor.

python -m tests.faults.siege.person PORT SECONDS
"""

import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import httpx
from tests.hostile.corpus import build_messages

# How many characters the texts have.
SIZES = (300, 3_000, 30_000)
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
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http, _Editor() as editor:
        for number, text in enumerate(itertools.cycle(corpus)):
            if time.monotonic() > until:
                return
            try:
                _send(http, text)
            except httpx.HTTPError:
                time.sleep(0.5)
            if number % 10 == 0:
                editor.send(text)
            time.sleep(random.uniform(0, 0.3))


def _send(http: httpx.Client, text: str) -> None:
    """Begin a conversation with the text, and look at it in every way."""
    begun = http.post("/api/sessions", json={"text": text})
    if begun.status_code >= 400:
        return
    session, query = begun.json().get("session", ""), quote(text[:500], errors="replace")
    for page in _PAGES:
        http.get(page.format(session=session, query=query))


class _Editor:
    """`keryx acp` on the same store, with frames that no editor would write."""

    def __enter__(self) -> "_Editor":
        self._process = subprocess.Popen(
            _EDITOR, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(30)

    def send(self, text: str) -> None:
        frames: Sequence[bytes] = (
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": text}).encode(),
            json.dumps(
                {"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": {"sessionId": text}}
            ).encode(),
            b"[" * 100_000,
            b'{"jsonrpc": "2.0", "id": ' + b"9" * 10_000 + b"}",
            text.encode("utf-8", "replace"),
        )
        if self._process.poll() is not None:
            self.__enter__()
        try:
            assert self._process.stdin is not None
            os.write(self._process.stdin.fileno(), random.choice(frames) + b"\n")
        except OSError:
            self._process.kill()
            self._process.wait(30)


if __name__ == "__main__":
    attack(int(sys.argv[1]), float(sys.argv[2]))
