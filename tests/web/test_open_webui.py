"""The real Open WebUI in front of a real node."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests import left_out
from tests.cli.driver import WAIT, Cli, Node
from tests.free_ports import find_free_port
from tests.web import open_webui
from tests.web.open_webui import Chat
from tests.web.test_kills import WORDS, Browser, ask
from tests.web.test_openai_api import PIXEL

if not open_webui.is_installed():
    left_out.skip_module(
        "the real Open WebUI",
        why=f"version {open_webui.VERSION} is not in {open_webui.find_folder()}",
        command=open_webui.COMMAND,
    )


def list_sessions(node: Node) -> list[dict[str, Any]]:
    return ask(node, "GET", "/api/sessions")["sessions"]


def list_said(node: Node, session: str) -> list[str]:
    """Return what the model would see of a session, without notes."""
    found = ask(node, "GET", f"/api/sessions/{session}")["messages"]
    kept = [m for m in found if m["role"] != "notice" and not m.get("undone")]
    return [
        f"{m['role']} {m.get('mark') or ''}: {' '.join(p.get('text') or p['type'] for p in m['parts'])}"
        for m in kept
    ]


# It takes a minute to start, so everything is shown with one.
@pytest.mark.timeout(600)
def test_chats_stream_retry_carry_pictures_and_survive_a_kill(keryx: Cli, tmp_path: Path) -> None:
    port = str(find_free_port())
    with open_webui.serving(tmp_path / "open-webui", f"http://127.0.0.1:{port}/v1") as program:
        slow = Chat(program)
        with keryx.serving("--port", port) as node:
            assert program.list_models()[0] == "keryx"
            chat = Chat(program)
            chat.ask("one")
            found = chat.wait("followUps")
            assert found["content"] == "one"
            # The answers to its own requests came from Keryx, which has kept nothing of them.
            assert chat.wait_for_title()
            [session] = [s["id"] for s in list_sessions(node)]
            chat.ask("two")
            assert chat.wait()["content"] == "two"
            chat.ask_again()
            assert chat.wait()["content"] == "two"
            chat.ask("look", pictures=(f"data:image/png;base64,{PIXEL}",))
            assert chat.wait()["content"].startswith("look")
            assert [s["id"] for s in list_sessions(node)] == [session]
            said = list_said(node, session)
            assert said[:5] == [
                "user : one",
                "assistant : one",
                "user : two",
                "assistant : two",
                "user : look media",
            ]
            chunks = [json.loads(data) for data in program.stream("slow 2 alpha beta")[:-1]]
            pieces = [chunk["choices"][0]["delta"].get("content") for chunk in chunks if chunk["choices"]]
            assert [piece for piece in pieces if piece] != ["alpha beta"]
            assert "".join(filter(None, pieces)).strip() == "alpha beta"
            browser = Browser(ask(node, "GET", "/api/start")["cursor"])
            with browser.listening(node) as events:
                slow.ask(f"slow 4 {WORDS}")
                next(e for e in events if e["type"] == "draft" and len(browser.draft) > 60)
                node.process.send_signal(signal.SIGKILL)
                node.process.wait(WAIT)
        cut = slow.wait()
        assert cut["error"]
        assert not cut["content"].endswith("word39")
        with keryx.serving("--port", port) as node:
            slow.ask_again()
            assert slow.wait()["content"].strip() == WORDS
            begun = next(s["id"] for s in list_sessions(node) if s["title"].startswith("slow 4 word0"))
            said = list_said(node, begun)
    # The turn that was cut went on, and the retry got its answer.
    assert [text.partition(":")[0] for text in said] == ["user ", "assistant interrupted", "assistant "]
