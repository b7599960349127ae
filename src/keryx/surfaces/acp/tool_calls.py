"""Tool calls as an editor shows them: a title with the exact command or path, a kind, locations and contents."""

import os
import re
from collections.abc import Mapping
from typing import Any

from keryx.core import codec
from keryx.core.errors import Invalid
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.text import to_short_line
from keryx.jsonrpc import Json, build_text_block

MAX_TITLE_LENGTH = 200

_PATH_KEYS = ("path", "file_path", "filename", "file", "uri")
_SUBJECT_KEYS = ("command", *_PATH_KEYS, "url", "query", "pattern", "text")
_NEW_TEXT_KEYS = ("content", "new_text", "newText", "new_string")
_OLD_TEXT_KEYS = ("old_text", "oldText", "old_string")
_WORD_PATTERN = re.compile(r"[a-z]+")
_KIND_WORDS: tuple[tuple[str, frozenset[str]], ...] = (
    ("read", frozenset({"read", "cat", "open", "view", "get", "list", "ls"})),
    ("edit", frozenset({"write", "edit", "patch", "replace", "insert", "create", "append", "apply"})),
    ("delete", frozenset({"delete", "remove", "rm", "unlink"})),
    ("move", frozenset({"move", "rename", "mv"})),
    ("search", frozenset({"search", "grep", "find", "glob", "query"})),
    ("execute", frozenset({"run", "execute", "exec", "shell", "bash", "terminal", "command", "python"})),
    ("fetch", frozenset({"fetch", "http", "download", "browse", "url", "web"})),
    ("think", frozenset({"think", "plan", "todo", "reason"})),
)


def build_call(call: ToolCall, id_: str, *, status: str = "in_progress") -> Json:
    """Build the update for a new call."""
    path = _find_text(parse_arguments(call.input), _PATH_KEYS)
    return {
        "sessionUpdate": "tool_call",
        "toolCallId": id_,
        "title": format_title(call.name, call.input),
        "name": call.name,
        "kind": find_kind(call.name),
        "status": status,
        "rawInput": parse_raw_input(call.input),
        **({"locations": [{"path": path}]} if path and os.path.isabs(path) else {}),
        **_build_contents(_build_diff(call.input)),
    }


def build_call_update(call: ToolCall, id_: str) -> Json:
    """Build the update for a call whose name or input has changed. Its status stays."""
    fields = ("toolCallId", "title", "name", "kind", "rawInput", "locations")
    update = {k: v for k, v in build_call(call, id_).items() if k in fields}
    return {"sessionUpdate": "tool_call_update", **update}


def build_result(result: ToolResult, id_: str) -> Json:
    """Build the update for the result of a call."""
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": id_,
        "status": "failed" if result.failed else "completed",
        **_build_contents(_build_output(result.output)),
        "rawOutput": {"output": result.output},
    }


def build_finished_call(
    call: ToolCall, result: ToolResult | None, id_: str, *, running: bool, interrupted: str
) -> Json:
    """Build one update for a call and its result. Without a result, and not running, the call has failed, and `interrupted` is
    shown as its output."""
    if result is None:
        update = build_call(call, id_, status="in_progress" if running else "failed")
        return update if running else {**update, **_build_contents(_build_output(interrupted))}
    diff = [] if result.failed else _build_diff(call.input)
    last = build_result(result, id_)
    return {
        **build_call(call, id_, status=last["status"]),
        **_build_contents([*diff, *_build_output(result.output)]),
        "rawOutput": last["rawOutput"],
    }


def format_title(name: str, input_: str) -> str:
    """Return the name of a tool with its command, path or other subject."""
    values = parse_arguments(input_)
    subject = next((str(values[key]) for key in _SUBJECT_KEYS if values.get(key)), "")
    if not subject and input_.strip() not in ("", "{}"):
        subject = input_
    # Control and bidi characters could make a command look like another one.
    return to_short_line(f"{name}: {subject}" if subject else name, MAX_TITLE_LENGTH)


def find_kind(name: str) -> str:
    words = _WORD_PATTERN.findall(name.lower())
    return next((k for k, known in _KIND_WORDS if known.intersection(words)), "other")


def parse_raw_input(input_: str) -> Json:
    """Return the input of a call as an object, even if the model did not write one."""
    return parse_arguments(input_) or {"input": input_}


def parse_arguments(input_: str) -> Json:
    try:
        return codec.loads(input_, dict[str, Any])
    except Invalid:
        return {}


def _build_output(text: str) -> list[Json]:
    return [{"type": "content", "content": build_text_block(text)}] if text else []


def _build_contents(contents: list[Json]) -> Json:
    return {"content": contents} if contents else {}


def _build_diff(input_: str) -> list[Json]:
    """Return the change of a call that names a file and its new text."""
    values = parse_arguments(input_)
    path, new, old = (
        _find_text(values, _PATH_KEYS),
        _find_text(values, _NEW_TEXT_KEYS),
        _find_text(values, _OLD_TEXT_KEYS),
    )
    if not path or new is None or not os.path.isabs(path):
        return []
    return [{"type": "diff", "path": path, "oldText": old, "newText": new}]


def _find_text(values: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((v for key in keys if isinstance(v := values.get(key), str)), None)
