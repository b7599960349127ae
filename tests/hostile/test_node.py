"""The whole node over the corpus: it is sent by the API and looked at as the page does, while others go on asking. How long these wait is
measured by `python -m bench siege`; here they must be answered at all."""

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from tests.cli.driver import WAIT, Cli, Node
from tests.fork_server import build_command
from tests.hostile import corpus

# One expression of Pygments needed longer than anybody lived for this.
FROZE = '```fish\n"' + "\\" * 60 + "\n```"
VIEWS = (
    "/api/start?session={session}",
    "/api/search?q={query}",
    "/api/sessions/{session}/export?format=html&redact=true",
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    keryx = Cli(tmp_path / "home")
    with keryx.serving(KERYX_LOG_LEVEL="error") as running:
        yield running


class Asker:
    """Asks for `/healthz` again and again until the end of the block. An answer that does not come in time is an error."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.answers = 0
        self.errors: list[str] = []

    def __enter__(self) -> "Asker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        with httpx.Client(base_url=self._node.address, timeout=10) as http:
            while not self._over.wait(0.05):
                try:
                    http.get("/healthz").raise_for_status()
                    self.answers += 1
                except httpx.HTTPError as exc:
                    self.errors.append(repr(exc))


def look(http: httpx.Client, session: str, text: str) -> None:
    """Open a conversation in every way."""
    query = quote(text[:300], errors="replace")
    for view in VIEWS:
        answer = http.get(view.format(session=session, query=query))
        assert answer.status_code in (200, 400), (view, answer.text)


@pytest.mark.parametrize(
    "text", [FROZE, *(corpus.build_fence(language, 4_000) for language in ("autohotkey", "rst"))]
)
def test_a_message_that_froze_a_node_is_answered(node: Node, text: str) -> None:
    with Asker(node) as asker, httpx.Client(base_url=node.address, timeout=WAIT, verify=False) as http:
        session = http.post("/api/sessions", json={"text": text}).raise_for_status().json()["session"]
        look(http, session, text)
    assert asker.errors == []
    node.process.terminate()
    assert node.process.wait(WAIT) == 0


def test_every_text_of_the_corpus_leaves_the_node_to_the_others(node: Node) -> None:
    with Asker(node) as asker, httpx.Client(base_url=node.address, timeout=WAIT, verify=False) as http:
        for text in corpus.build_messages(800):
            # JSON as other programs write it: half a character is escaped.
            content = json.dumps({"text": text})
            answer = http.post("/api/sessions", content=content)
            # What is blank is refused in words.
            assert answer.status_code in (201, 400), answer.text
            if session := answer.json().get("session"):
                look(http, session, text)
        begun = http.post("/api/sessions", json={"text": "hello"}).json()["session"]
    assert asker.errors == []
    assert asker.answers > 0
    assert begun


def test_an_editor_that_sends_the_corpus_is_answered(tmp_path: Path) -> None:
    """Every frame gets its answer, and the process goes on to the end of its input."""
    frames = [text.encode("utf-8", "replace").replace(b"\n", b" ") for text in corpus.build_messages(2_000)]
    frames += [
        b"[" * 100_000,
        b'{"jsonrpc": "2.0", "id": ' + b"9" * 10_000 + b"}",
        b"\xff\xfe",
        b"{}" * 10_000,
    ]
    last = b'{"jsonrpc": "2.0", "id": 77, "method": "initialize", "params": {"protocolVersion": 1}}'
    keryx = Cli(tmp_path / "home")
    done = subprocess.run(
        build_command("acp"),
        input=b"\n".join([*frames, last]) + b"\n",
        capture_output=True,
        env=keryx.environment(),
        timeout=WAIT * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert b'"id":77' in done.stdout
