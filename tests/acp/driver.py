"""Drives `keryx acp` as an editor would, by raw JSON-RPC lines on the pipes of a real process."""

import json
import os
import queue
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import fork_server
from tests.builders import limit

WAIT = 60.0
Json = dict[str, Any]
Answer = Callable[[Json], Json]


def command() -> list[str]:
    return fork_server.build_command("acp")


def variables(home: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "KERYX_HOME": str(home), "KERYX_AGENT": "echo", **more}


def endless(words: str) -> str:
    """A prompt whose answer begins with these words, a fifth of a second each, and does not end within a test."""
    return f"slow 300 {words}{' more' * 1500} end"


class Refused(Exception):
    """An error answer."""

    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]


class Editor:
    """One process and what it has sent. `answers` holds what is answered to requests of the agent, by method."""

    def __init__(self, home: Path, **more: str) -> None:
        self.process = fork_server.start("acp", env=variables(home, **more))
        self.answers: dict[str, Answer] = {}
        self.asked: list[Json] = []
        self.seen: list[Json] = []
        self.noise: list[bytes] = []
        self._last = 0
        self._changed = threading.Condition()
        self._ended = False
        self._stderr: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=t, daemon=True) for t in (self._read, self._drain)]
        for thread in self._threads:
            thread.start()

    def send(self, message: object) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        assert self.process.stdin
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def ask(self, method: str, *, id: object = None, **params: object) -> object:
        """Send a request and do not wait; gives its id."""
        self._last += 1
        number = self._last if id is None else id
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    def notify(self, method: str, **params: object) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def result(self, id: object) -> Any:
        """Wait for the answer to a request."""
        message = self.wait(lambda m: "method" not in m and m.get("id") == id)
        if "error" in message:
            raise Refused(message["error"])
        return message["result"]

    def call(self, method: str, **params: object) -> Any:
        return self.result(self.ask(method, **params))

    def wait(self, fits: Callable[[Json], bool], *, since: int = 0, seconds: float = WAIT) -> Json:
        """Wait until something that fits has been sent; gives the first."""

        def look() -> list[Json | None]:
            found = next((m for m in self.seen[since:] if fits(m)), None)
            return [found] if found is not None or self._ended else []

        with self._changed:
            found = next(iter(self._changed.wait_for(look, seconds)), None)
        assert found is not None, f"it did not come; seen: {self.seen[-8:]}, stderr: {self.stderr()}"
        return found

    def initialize(self, **capabilities: object) -> Json:
        return self.call("initialize", protocolVersion=1, clientCapabilities=capabilities)

    def new(self, cwd: Path | str = "/tmp") -> str:
        return str(self.call("session/new", cwd=str(cwd), mcpServers=[])["sessionId"])

    def load(self, session: str, cwd: Path | str = "/tmp") -> Json:
        return self.call("session/load", sessionId=session, cwd=str(cwd), mcpServers=[])

    def prompt(self, session: str, text: str) -> str:
        return str(self.result(self.say(session, text))["stopReason"])

    def say(self, session: str, text: str) -> object:
        """Prompt and do not wait; gives the id of the request."""
        return self.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    def updates(self, session: str | None = None, *, since: int = 0) -> list[Json]:
        with self._changed:
            found = [m["params"] for m in self.seen[since:] if m.get("method") == "session/update"]
        return [u["update"] for u in found if session in (None, u["sessionId"])]

    def mark(self) -> int:
        """Where `since` begins to look from here."""
        with self._changed:
            return len(self.seen)

    def texts(self, session: str, kind: str = "agent_message_chunk", *, since: int = 0) -> str:
        return "".join(
            u["content"]["text"] for u in self.updates(session, since=since) if u["sessionUpdate"] == kind
        )

    def until_text(self, session: str, text: str, *, since: int = 0) -> None:
        """Wait until the answer so far has these words."""
        self.wait(lambda _: text in self.texts(session, since=since))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(WAIT)

    def hang_up(self, *, seconds: float = 5.0) -> int:
        """Close the pipe; gives the exit code. It must end in time."""
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(limit(seconds))

    def stderr(self) -> str:
        found: list[bytes] = []
        while not self._stderr.empty():
            found.append(self._stderr.get())
        return b"".join(found).decode("utf-8", "replace")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT)
        for thread in self._threads:
            thread.join(WAIT)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass  # What was still to be written has no reader.

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                self.noise.append(line)
                continue
            with self._changed:
                self.seen.append(message)
                self._changed.notify_all()
            self._answer(message)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _answer(self, message: Json) -> None:
        if "method" not in message or "id" not in message:
            return
        self.asked.append(message)
        answer = self.answers.get(message["method"])
        if answer:
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": answer(message["params"])})

    def _drain(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self._stderr.put(line)


@contextmanager
def editor(home: Path, **more: str) -> Generator[Editor]:
    started = Editor(home, **more)
    try:
        yield started
    finally:
        started.close()


def story(updates: list[Json]) -> list[tuple[str, str, str]]:
    """A conversation as it is shown: kind, message id and text of each message, its chunks joined."""
    found: dict[tuple[str, str], str] = {}
    for update in updates:
        kind = update["sessionUpdate"]
        if kind.endswith("_chunk"):
            key = (kind, update["messageId"])
            found[key] = found.get(key, "") + update["content"]["text"]
        elif kind in ("tool_call", "tool_call_update"):
            key = ("tool", update["toolCallId"])
            found[key] = str(update.get("status") or found.get(key, ""))
    return [(kind, id_, text) for (kind, id_), text in found.items()]
