"""Steps: the tool calls of an agent as they are stored: each announced once, answered once, one step after the other."""

import difflib
from collections.abc import Callable, Iterable

from keryx.agents.acp.rpc import Json, table, tables, text
from keryx.core import wire
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.ports import Called, Event, Returned
from keryx.core.titles import capped, line

UNTOLD = "The agent did not tell how this ended."
_LONGEST_NAME = 120
_LONGEST_OUTPUT = 100_000
_FINISHED = ("completed", "failed")


class _Tool:
    def __init__(self, id_: str) -> None:
        self.id = id_
        self.told: Json = {}
        self.ready = False
        self.name = ""

    def add(self, told: Json) -> None:
        self.told.update({k: v for k, v in told.items() if v is not None})
        self.ready = self.ready or self._status != "pending" or bool(self.told.get("rawInput"))

    @property
    def _status(self) -> str:
        return text(self.told.get("status")) or "pending"

    @property
    def finished(self) -> bool:
        return self._status in _FINISHED

    def call(self) -> ToolCall:
        self.name = title(self.told)
        return ToolCall(self.id, self.name, given(self.told))

    def result(self, terminal: Callable[[str], str]) -> ToolResult:
        output = capped(_output(self.told, terminal), _LONGEST_OUTPUT)
        if not self.finished:
            return ToolResult(self.id, self.name, output or UNTOLD, failed=True)
        return ToolResult(self.id, self.name, output, failed=self._status == "failed")


class Steps:
    """`terminal` gives the output of a terminal that a tool refers to. A call waits to be announced until its input is
    known or it has begun, and until the calls before it are answered."""

    def __init__(self, terminal: Callable[[str], str]) -> None:
        self._terminal = terminal
        self._tools: dict[str, _Tool] = {}
        self._waiting: list[_Tool] = []
        self._open: list[_Tool] = []

    def take(self, told: Json, *, asks: bool = False) -> list[Event]:
        """What a tool call or an update of one brings. `asks`: a person is asked about it, so it is ready."""
        id_ = text(told.get("toolCallId"))[:200]
        if not id_:
            return []
        tool = self._tools.get(id_)
        if tool is None:
            tool = self._tools[id_] = _Tool(id_)
            self._waiting.append(tool)
        tool.add(told)
        tool.ready = tool.ready or asks
        return self._advance()

    def known(self, id_: str) -> Json:
        """What was told of a tool call so far."""
        tool = self._tools.get(id_)
        return tool.told if tool else {}

    def close(self) -> list[Event]:
        """The turn is over: every call is announced and answered."""
        for tool in self._tools.values():
            tool.ready = True
        return self._advance(over=True)

    def _advance(self, *, over: bool = False) -> list[Event]:
        events = self._returned(over)
        while not self._open and (ready := [t for t in self._waiting if t.ready]):
            self._waiting = [t for t in self._waiting if not t.ready]
            self._open = ready
            events += [Called(tuple(t.call() for t in ready)), *self._returned(over)]
        return events

    def _returned(self, over: bool) -> list[Event]:
        done = [t for t in self._open if t.finished or over]
        self._open = [t for t in self._open if t not in done]
        return [Returned(t.result(self._terminal)) for t in done]


def title(told: Json) -> str:
    """A tool call in a few words, as a person reads it."""
    words = line(text(told.get("title"))) or line(text(told.get("name"))) or line(text(told.get("kind")))
    return capped(words, _LONGEST_NAME) or "tool"


def given(told: Json) -> str:
    """The input of a tool call as JSON; where it has none, the files it names."""
    if told.get("rawInput") is not None:
        return wire.dumps(told["rawInput"])
    paths = [text(place.get("path")) for place in tables(told.get("locations"))]
    return wire.dumps({"paths": paths} if paths else {})


def exact(told: Json) -> str:
    """Exactly what a tool is about to do, for a person who is asked: the command, else the input, and the changes."""
    raw = told.get("rawInput")
    command = table(raw).get("command")
    if isinstance(command, list):
        command = " ".join(map(str, command))  # pyright: ignore[reportUnknownArgumentType]
    shown = command if isinstance(command, str) else "" if not raw else wire.dumps(raw)
    return "\n".join(part for part in (shown, _output(told, lambda _: "")) if part)


def _output(told: Json, terminal: Callable[[str], str]) -> str:
    parts = [part for entry in tables(told.get("content")) if (part := _shown(entry, terminal))]
    if not parts and told.get("rawOutput") is not None:
        raw = told["rawOutput"]
        return raw if isinstance(raw, str) else wire.dumps(raw)
    return "\n".join(parts)


def _shown(entry: Json, terminal: Callable[[str], str]) -> str:
    match entry.get("type"):
        case "content":
            block = table(entry.get("content"))
            return (
                text(block.get("text"))
                or text(table(block.get("resource")).get("text"))
                or text(block.get("uri"))
            )
        case "diff":
            return "\n".join(_diff(entry))
        case "terminal":
            return terminal(text(entry.get("terminalId")))
        case _:
            return ""


def _diff(entry: Json) -> Iterable[str]:
    path = text(entry.get("path"))
    old, new = text(entry.get("oldText")), text(entry.get("newText"))
    return difflib.unified_diff(old.splitlines(), new.splitlines(), path, path, lineterm="", n=2)
