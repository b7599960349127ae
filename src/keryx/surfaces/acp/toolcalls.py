"""Tool calls as an editor shows them: a title with the exact command or path, a kind, places and contents."""

import os
import re
from collections.abc import Mapping
from typing import Any

from keryx.core import wire
from keryx.core.errors import Invalid
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.titles import capped, line
from keryx.surfaces.acp.peer import Json

INTERRUPTED = "The tool was interrupted before it answered."
LONGEST_TITLE = 200

_PATHS = ("path", "file_path", "filename", "file", "uri")
_SUBJECTS = ("command", *_PATHS, "url", "query", "pattern", "text")
_NEW = ("content", "new_text", "newText", "new_string")
_OLD = ("old_text", "oldText", "old_string")
_WORDS = re.compile(r"[a-z]+")
_KINDS: tuple[tuple[str, frozenset[str]], ...] = (
    ("read", frozenset({"read", "cat", "open", "view", "get", "list", "ls"})),
    ("edit", frozenset({"write", "edit", "patch", "replace", "insert", "create", "append", "apply"})),
    ("delete", frozenset({"delete", "remove", "rm", "unlink"})),
    ("move", frozenset({"move", "rename", "mv"})),
    ("search", frozenset({"search", "grep", "find", "glob", "query"})),
    ("execute", frozenset({"run", "execute", "exec", "shell", "bash", "terminal", "command", "python"})),
    ("fetch", frozenset({"fetch", "http", "download", "browse", "url", "web"})),
    ("think", frozenset({"think", "plan", "todo", "reason"})),
)


def begun(call: ToolCall, id_: str, *, status: str = "in_progress") -> Json:
    """The update that shows a call."""
    return {
        "sessionUpdate": "tool_call",
        "toolCallId": id_,
        "title": title(call.name, call.input),
        "kind": kind(call.name),
        "status": status,
        "rawInput": raw(call.input),
        **_places(call.input),
        **_contents(_diff(call.input)),
    }


def ended(result: ToolResult, id_: str) -> Json:
    """The update that shows how a call ended."""
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": id_,
        "status": "failed" if result.failed else "completed",
        **_contents(_output(result.output)),
        "rawOutput": {"output": result.output},
    }


def whole(call: ToolCall, result: ToolResult | None, id_: str, *, running: bool) -> Json:
    """A call with its final state, in one update. One that nobody will answer any more has failed."""
    if result is None:
        shown = begun(call, id_, status="in_progress" if running else "failed")
        return shown if running else {**shown, **_contents(_output(INTERRUPTED))}
    diff = [] if result.failed else _diff(call.input)
    last = ended(result, id_)
    return {
        **begun(call, id_, status=last["status"]),
        **_contents([*diff, *_output(result.output)]),
        "rawOutput": last["rawOutput"],
    }


def title(name: str, given: str) -> str:
    """The name of a tool with what it is about to touch."""
    values = arguments(given)
    subject = next((str(values[key]) for key in _SUBJECTS if values.get(key)), "")
    if not subject and given.strip() not in ("", "{}"):
        subject = given
    # Control and bidi characters could make a command look like another one.
    return capped(line(f"{name}: {subject}" if subject else name), LONGEST_TITLE)


def kind(name: str) -> str:
    words = _WORDS.findall(name.lower())
    return next((k for k, known in _KINDS if known.intersection(words)), "other")


def raw(given: str) -> Json:
    """The input of a call as an object, whatever the model wrote."""
    return arguments(given) or {"input": given}


def arguments(given: str) -> Json:
    try:
        return wire.loads(given, dict[str, Any])
    except Invalid:
        return {}


def text_block(text: str) -> Json:
    return {"type": "text", "text": text}


def _output(text: str) -> list[Json]:
    return [{"type": "content", "content": text_block(text)}] if text else []


def _contents(found: list[Json]) -> Json:
    return {"content": found} if found else {}


def _diff(given: str) -> list[Json]:
    """What a call writes, for those that name a file and its new text."""
    values = arguments(given)
    path, new, old = _text(values, _PATHS), _text(values, _NEW), _text(values, _OLD)
    if not path or new is None or not os.path.isabs(path):
        return []
    return [{"type": "diff", "path": path, "oldText": old, "newText": new}]


def _places(given: str) -> Json:
    path = _text(arguments(given), _PATHS)
    return {"locations": [{"path": path}]} if path and os.path.isabs(path) else {}


def _text(values: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((v for key in keys if isinstance(v := values.get(key), str)), None)
