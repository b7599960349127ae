"""A real node is killed in mid-answer: a browser comes back with its cursor and has the same text, nothing doubled."""

import json
import signal
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
from openai import APIConnectionError, OpenAI
from openai.types.responses import ResponseStreamEvent
from tests.cli.driver import WAIT, Cli, Node
from tests.web.test_openai_api import PIXEL

RETRY = {"x-stainless-retry-count": "1"}
WORDS = " ".join(f"word{n}" for n in range(40))


class Browser:
    """Reads a stream over real sockets, and keeps what a page would have."""

    def __init__(self, cursor: str) -> None:
        self.cursor = cursor
        self.messages: list[dict[str, Any]] = []
        self.states: list[str] = []
        self.draft = ""
        self._n = 0

    @contextmanager
    def listening(self, node: Node) -> Generator[Iterator[dict[str, Any]]]:
        headers = {"Last-Event-ID": self.cursor}
        with (
            httpx.Client(base_url=node.address, timeout=WAIT, verify=False) as client,
            client.stream("GET", "/api/stream", headers=headers) as answer,
        ):
            assert answer.status_code == 200
            yield self._events(answer.iter_lines())

    def _events(self, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
        event: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(": ")
            if name:
                event[name] = value
                continue
            self.cursor = event.get("id", self.cursor)
            if "data" in event:
                data = json.loads(event["data"])
                self._take(data)
                yield data
            event = {}

    def _take(self, event: dict[str, Any]) -> None:
        if event["type"] == "message":
            self.messages.append(event["message"])
            if event["message"]["role"] == "assistant":
                self.draft, self._n = "", 0
        elif event["type"] == "turn":
            self.states.append(event["turn"]["state"])
        elif event["type"] == "draft":
            if event.get("fresh"):
                self.draft, self._n = "", 0
            if event["n"] > self._n:
                self.draft, self._n = self.draft + event.get("text", ""), event["n"]


def ask(node: Node, method: str, path: str, body: object = None) -> Any:
    with httpx.Client(base_url=node.address, timeout=WAIT, verify=False) as client:
        answer = client.request(method, path, json=body)
    assert answer.status_code < 300, answer.text
    return answer.json()


def test_a_browser_comes_back_after_a_kill_in_mid_answer(keryx: Cli) -> None:
    with keryx.serving() as node:
        browser = Browser(ask(node, "GET", "/api/start")["cursor"])
        with browser.listening(node) as events:
            sent = ask(node, "POST", "/api/sessions", {"text": f"slow 4 {WORDS}"})
            next(e for e in events if e["type"] == "draft" and len(browser.draft) > 60)
            node.process.send_signal(signal.SIGKILL)
            node.process.wait(WAIT)
    shown = browser.draft
    with keryx.serving() as node, browser.listening(node) as events:
        next(e for e in events if e["type"] == "turn" and e["turn"]["state"] == "done")
        found = ask(node, "GET", f"/api/sessions/{sent['session']}")
    ids = [m["id"] for m in browser.messages]
    assert len(ids) == len(set(ids))
    assert [m["id"] for m in found["messages"]] == sorted(ids, key=lambda i: int(i.rpartition(".")[2]))
    texts = [m["parts"][0]["text"] for m in found["messages"]]
    kept = next(m for m in found["messages"] if m.get("mark") == "interrupted")
    assert kept["parts"][0]["text"].startswith(shown)
    assert texts[-1].strip() == WORDS
    assert browser.states.count("done") == 1


def find_clear(keryx: Cli, word: str) -> list[str]:
    """Return the files below the home in which a word can be read."""
    files = [path for path in keryx.home.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path.name for path in files if word.encode() in path.read_bytes()]


def test_a_temporary_conversation_survives_a_kill_and_leaves_nothing(keryx: Cli) -> None:
    secret = "Xylophonquartz"
    with keryx.serving() as node:
        browser = Browser(ask(node, "GET", "/api/start")["cursor"])
        with browser.listening(node) as events:
            body = {"text": f"slow 4 {secret} {WORDS}", "temporary": True}
            session = ask(node, "POST", "/api/sessions", body)["session"]
            next(e for e in events if e["type"] == "draft" and len(browser.draft) > 60)
            node.process.send_signal(signal.SIGKILL)
            node.process.wait(WAIT)
    assert find_clear(keryx, secret) == []
    [key] = keryx.home.glob("*-keys/*")
    with keryx.serving() as node:
        with browser.listening(node) as events:
            next(e for e in events if e["type"] == "turn" and e["turn"]["state"] == "done")
        found = ask(node, "GET", f"/api/sessions/{session}")["messages"]
        assert found[-1]["parts"][0]["text"].strip() == f"{secret} {WORDS}"
        with httpx.Client(base_url=node.address, timeout=WAIT, verify=False) as client:
            assert client.delete(f"/api/sessions/{session}").is_success
        # The key is gone with the answer to that, whatever happens to the process.
        node.process.send_signal(signal.SIGKILL)
        node.process.wait(WAIT)
    assert not key.exists()
    assert find_clear(keryx, secret) == []
    with keryx.serving() as node:
        assert ask(node, "GET", "/api/sessions")["sessions"] == []


def test_a_stop_closes_streams_at_once(keryx: Cli) -> None:
    with keryx.serving() as node:
        browser = Browser(ask(node, "GET", "/api/start")["cursor"])
        with browser.listening(node) as events:
            began = time.monotonic()
            node.process.send_signal(signal.SIGTERM)
            assert list(events) == []
            assert node.process.wait(WAIT) == 0
            assert time.monotonic() - began < WAIT


def test_another_address_needs_a_token_or_a_password(keryx: Cli) -> None:
    refused = keryx("serve", "--host", "0.0.0.0")
    assert refused.code != 0
    assert "KERYX_WEB_TOKEN" in refused.err
    with keryx.serving("--host", "0.0.0.0", KERYX_WEB_TOKEN="a-token-of-some-length") as node:
        port = node.address.rpartition(":")[2]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT, verify=False) as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/api/start").status_code == 401
            bearer = {"Authorization": "Bearer a-token-of-some-length"}
            assert client.get("/api/start", headers=bearer).status_code == 200
            shown = client.get("/api/settings", headers=bearer).text
    assert "a-token-of-some-length" not in shown
    kept = keryx.ok("config", "password", stdin="correct horse\n").out.strip()
    assert "correct horse" not in kept
    with keryx.serving("--host", "0.0.0.0", KERYX_WEB_PASSWORD=kept) as node:
        port = node.address.rpartition(":")[2]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT, verify=False) as client:
            assert client.get("/api/start").status_code == 401
            assert client.post("/api/sign-in", json={"secret": "correct horse"}).status_code == 200
            assert kept not in client.get("/api/settings").text


def test_a_client_of_openai_continues_its_stream_after_a_kill_in_mid_answer(keryx: Cli) -> None:
    seen: list[ResponseStreamEvent] = []
    with keryx.serving() as node, suppress(APIConnectionError):
        with OpenAI(base_url=f"{node.address}/v1", api_key="none", timeout=WAIT) as client:
            for event in client.responses.create(model="keryx", input=f"slow 4 {WORDS}", stream=True):
                seen.append(event)
                if event.type == "response.output_text.delta" and event.sequence_number > 60:
                    node.process.send_signal(signal.SIGKILL)
    created = seen[0]
    assert seen[-1].type == "response.output_text.delta"
    assert created.type == "response.created"
    with (
        keryx.serving() as node,
        OpenAI(base_url=f"{node.address}/v1", api_key="none", timeout=WAIT) as client,
    ):
        rest = client.responses.retrieve(
            created.response.id, stream=True, starting_after=seen[-1].sequence_number
        )
        seen += list(rest)
        # A client that knows nothing of the stream sends its request again, and gets the same answer.
        repeated = client.responses.create(model="keryx", input=f"slow 4 {WORDS}", extra_headers=RETRY)
        title: Any = {"role": "user", "content": "### Task:\nGenerate a concise title.\n### Output:\nJSON"}
        titled = client.chat.completions.create(model="keryx", messages=[title])
        sessions = ask(node, "GET", "/api/sessions")["sessions"]
        look: Any = [
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
            {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="},
        ]
        files = client.responses.create(
            model="keryx", previous_response_id=repeated.id, input=[{"role": "user", "content": look}]
        )
        page = client.responses.input_items.list(files.id)
    numbers = [event.sequence_number for event in seen]
    assert numbers == sorted(set(numbers))
    items = {event.output_index: event.item for event in seen if event.type == "response.output_item.done"}
    texts = dict.fromkeys(items, "")
    for event in seen:
        if event.type == "response.output_text.delta":
            texts[event.output_index] += event.delta
    for index, item in items.items():
        assert item.type == "message" and item.content[0].type == "output_text"
        assert item.content[0].text == texts[index]
    assert [item.status for item in items.values() if item.type == "message"] == ["incomplete", "completed"]
    last = seen[-1]
    assert last.type == "response.completed"
    assert last.response.output_text.strip() == WORDS
    assert repeated.id == created.response.id
    assert titled.choices[0].message.content
    assert len(sessions) == 1
    [asked] = page.data
    assert asked.type == "message"
    assert [part.type for part in asked.content] == ["input_text", "input_image", "input_file"]


def test_streams_of_agent_protocols_go_on_after_a_kill(keryx: Cli) -> None:
    text = f"slow 4 {WORDS}"
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}]}
    run: dict[str, Any] = {
        "threadId": "t1",
        "runId": "r1",
        "messages": [{"id": "u1", "role": "user", "content": text}],
    }
    arguments = {"name": "say_in_conversation", "arguments": {"text": text}}
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": arguments}
    version = {"A2A-Version": "1.0"}
    accept = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    with keryx.serving() as node, httpx.Client(base_url=node.address, timeout=WAIT, verify=False) as client:
        with (
            client.stream("POST", "/a2a/message:stream", json={"message": message}, headers=version) as a2a,
            client.stream("POST", "/mcp", json=call, headers=accept) as mcp,
            client.stream("POST", "/ag-ui", json=run) as ag_ui,
        ):
            task = json.loads(next(a2a.iter_lines()).removeprefix("data: "))["task"]["id"]
            event = next(line for line in mcp.iter_lines() if line.startswith("id: ")).removeprefix("id: ")
            lines = (line for line in ag_ui.iter_lines() if '"delta"' in line)
            pieces = [json.loads(next(lines).removeprefix("data: ")) for _ in range(3)]
            node.process.send_signal(signal.SIGKILL)
            node.process.wait(WAIT)
    begun = "".join(piece["delta"] for piece in pieces)
    run["messages"].append({"id": pieces[0]["messageId"], "role": "assistant", "content": begun})
    with keryx.serving() as node, httpx.Client(base_url=node.address, timeout=WAIT, verify=False) as client:
        again = client.post("/a2a/message:send", json={"message": message}, headers=version).json()["task"]
        resumed = client.get("/mcp", headers={**accept, "Last-Event-ID": event}).text
        rest = client.post("/ag-ui", json=run).text
        sessions = client.get("/api/sessions").json()["sessions"]
    assert (again["id"], again["status"]["state"]) == (task, "TASK_STATE_COMPLETED")
    assert "".join(part["text"] for a in again["artifacts"] for part in a["parts"]).strip() == WORDS
    answer = next(line for line in resumed.splitlines() if line.startswith("data: {"))
    assert json.loads(answer.removeprefix("data: "))["result"]["content"][0]["text"].strip() == WORDS
    events = [
        json.loads(line.removeprefix("data: ")) for line in rest.splitlines() if line.startswith("data: {")
    ]
    later = [e for e in events if "delta" in e and not e["messageId"].startswith(pieces[0]["messageId"])]
    assert "".join(e["delta"] for e in later).strip() == WORDS
    assert events[-1]["type"] == "RUN_FINISHED"
    assert len(sessions) == 3
