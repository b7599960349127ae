"""The brain storm: a model that calls tools, a tool server that counts its effects, a strict endpoint, small contexts, and
kill -9 again and again.

python -m tests.faults.brain_storm --kills 100
"""

import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.fakes.endpoint import KEY, MODEL, Endpoint, Pause, Script, answer, calls, finish, says
from tests.fakes.platform import Platform
from tests.fakes.strict import Json
from tests.faults.campaign import command
from tests.faults.node import Node
from tests.faults.storm import Report, Storm
from tests.free_ports import find_free_port

from keryx.core.messages import INTERRUPTED_OUTPUT

CHATS = 6
PER_SECOND = 2
SET_ASIDE = "This message was tried"
MARKER = "— Older messages were summarized"
AFRESH = "Started a new conversation because the last one was stopped"
_SERVER = Path(__file__).parents[1] / "agents" / "tool_server.py"
_SAID = re.compile(r"chat-\d+ says \d+")
# What the model does for a message before it answers, step by step: `look` may be repeated, `post` may not.
_PLANS = (
    (),
    (("post",),),
    (("look", "post", "look"),),
    (("look",), ("post",)),
    (("look", "look"), ("post",)),
)
_SETTINGS = """
[[models]]
name = "storm"
base_url = "{model}"
id = "{id}"
key = "env:TEST_KEY"
context = 1200
titles = false
[[tools]]
name = "test"
url = "{tools}"
[permissions]
"*" = "allow"
"""


class Model(Endpoint):
    """Follows the plan of the message that it is to answer, as far as the conversation shows it done."""

    def choose(self, body: Json) -> Script:
        talk: list[Json] = body["messages"]
        if str(talk[-1]["content"]).endswith("Write the new summary."):
            return answer("They said this and that.")
        at = max(n for n, m in enumerate(talk) if m["role"] == "user" and _SAID.search(str(m["content"])))
        text = _SAID.findall(str(talk[at]["content"]))[-1]
        done = sum("tool_calls" in m for m in talk[at:])
        steps = plan(text) if body.get("tools") else ()
        if done < len(steps):
            return [Pause(0.05), *calls(*_step(text, done))]
        half = len(text) // 2
        return [*says(text[:half]), Pause(0.1), *says(text[half:]), *finish()]

    def told(self) -> dict[str, str]:
        """What the model was told of each call, by its id."""
        return {
            m["tool_call_id"]: str(m["content"])
            for body in self.requests
            for m in body["messages"]
            if m["role"] == "tool"
        }


@dataclass
class Verdict:
    """What people saw, what the endpoint refused, and what the tools did."""

    chats: Report
    refused: list[str]
    doubled: list[str]
    invented: list[str]
    figures: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def clean(self) -> bool:
        return self.chats.clean and not (self.refused or self.doubled or self.invented)

    def table(self) -> str:
        found = {
            "requests refused": self.refused,
            "run twice, and may not be": self.doubled,
            "told as done, and was not": self.invented,
        }
        lines = [self.chats.table(), *(f"{name:34}{n:>8}" for name, n in self.figures.items())]
        for name, texts in found.items():
            lines += [f"{name:34}{len(texts):>8}", *(f"    {text}" for text in texts[:10])]
        return "\n".join(lines)


class Chats:
    """The platform without what a chat is told beside its answers; a message that was set aside counts as answered."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._said: dict[str, list[str]] = {}

    def say(self, chat: str, text: str) -> None:
        self._said.setdefault(chat, []).append(text)
        self._platform.say(chat, text)

    def texts(self, chat: str) -> list[str]:
        shown = [t for t in self._platform.texts(chat) if MARKER not in t and AFRESH not in t]
        answered = set(_SAID.findall("\n".join(shown)))
        unanswered = iter([t for t in self._said[chat] if t not in answered])
        return [next(unanswered, t) if SET_ASIDE in t else t for t in shown]


def run(
    home: Path,
    kills: int,
    *,
    seed: int,
    between: tuple[float, float],
    database: str = "",
    progress: bool = False,
) -> Verdict:
    effects = home / "effects"
    with Platform(seed=seed) as platform, Model() as model, _tools(effects) as tools:
        settings = _SETTINGS.format(model=model.base_url, id=MODEL, tools=tools)
        (home / "keryx.toml").write_text(settings)
        with Node(platform.url, home, database=database, KERYX_AGENT="llm", TEST_KEY=KEY) as node:
            storm = Storm(Chats(platform), node, chats=CHATS, per_second=PER_SECOND, seed=seed)
            report = storm.run(kills, between=between, progress=progress)
        return _judge(report, platform, model, effects)


def _judge(report: Report, platform: Platform, model: Model, effects: Path) -> Verdict:
    ran = Counter(line for line in effects.read_text().splitlines() if line.startswith("post "))
    told = model.told()
    posted = [output for output in told.values() if output.startswith("posted ")]
    shown = [s.text for s in platform.shown]
    return Verdict(
        report,
        model.refused,
        [line for line, n in ran.items() if n > 1],
        [output for output in posted if f"post {output.removeprefix('posted ')}" not in ran],
        {
            "requests to the model": len(model.requests),
            "tool calls": len(told),
            "told as unknown": sum(output == INTERRUPTED_OUTPUT for output in told.values()),
            "compactions told": sum(MARKER in text for text in shown),
            "set aside after three deaths": sum(SET_ASIDE in text for text in shown),
        },
    )


def plan(text: str) -> tuple[tuple[str, ...], ...]:
    return _PLANS[int(text.rpartition(" ")[2]) % len(_PLANS)]


def _step(text: str, step: int) -> list[tuple[str, str, str]]:
    name = {"look": "q", "post": "text"}
    number = text.rpartition(" ")[2]
    return [
        (f"c{number}-{step}-{n}", f"test_{tool}", f'{{"{name[tool]}": "{text}"}}')
        for n, tool in enumerate(plan(text)[step])
    ]


@contextmanager
def _tools(effects: Path) -> Generator[str]:
    """A tool server that outlives the node; gives its address."""
    port = find_free_port()
    effects.touch()
    server = subprocess.Popen(
        [sys.executable, str(_SERVER), str(effects), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _until_open(port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.terminate()
        server.wait(30)


def _until_open(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the tool server does not listen"
            time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(command(__doc__, 100, partial(run, between=(0.2, 4.0), progress=True)))
