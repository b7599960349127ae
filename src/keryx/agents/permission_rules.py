"""What "always allow" covers: the rule that is stored for a tool call, and all the rules that would allow it.

A rule is a text, such as `run_in_terminal(git *)`, `run_in_terminal(make; make install)`, `write_text_file(/home/ada/site/)` or `look`. A call
is allowed by a stored rule that is among its own rules, so no pattern is ever matched."""

import hashlib
import os.path
import re
import shlex
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from keryx.core.text import to_short_line, to_single_line, truncate
from keryx.core.texts import Phrase

_COMMAND_KEYS = ("command", "cmd", "script")
_PATH_KEYS = (
    "path",
    "file_path",
    "filePath",
    "filepath",
    "filename",
    "file",
    "source",
    "destination",
    "old_path",
    "new_path",
    "paths",
)
# What joins, redirects or expands commands in a shell.
_SHELL_SYNTAX = re.compile(r"[;&|<>`$(){}\n\r\\!#]")
_PLAIN_WORD = re.compile(r"[\w./+-]+")
# Programs that run what their arguments say: allowing one would allow every command.
_WRAPPER = re.compile(
    r"(ba|da|z|fi|k|c|tc)?sh|sudo|doas|su|env|xargs|nice|nohup|time|timeout|watch|exec|eval|command|builtin|source"
    r"|ssh|docker|podman|kubectl|python[\d.]*|node|deno|bun|perl|ruby|php|lua|g?awk|find|parallel|setsid|stdbuf|busybox"
)
_MAX_RULE_LENGTH = 200
# A longer command is allowed as a whole only: splitting it takes a time that grows with the square of its length.
_MAX_PARSED_LENGTH = 10_000
# The longest path of most systems. Each folder of a path is a rule.
_MAX_PATH_LENGTH = 4_096


class CallScope(msgspec.Struct, frozen=True):
    # The rule that a lasting consent to the call stores.
    rule: str
    # What the rule allows, as the label of a button.
    label: Phrase
    # All rules that allow the call, `rule` included.
    rules: tuple[str, ...]


def find_scope(tool: str, arguments: Mapping[str, Any], *, cwd: str) -> CallScope:
    """Return what a lasting consent to a call covers: commands with the same first word, or exactly this command; files in
    the same folder; else the tool."""
    if command := _read_command(arguments):
        word = _find_program(command)
        if word:
            rule = f"{tool}({word} *)"
            return CallScope(rule, Phrase("question.always_program", program=truncate(word, 40)), (rule,))
        rule = _build_exact_rule(tool, command)
        return CallScope(rule, Phrase("question.always_command"), (rule,))
    values = [value for key in _PATH_KEYS for value in _as_list(arguments.get(key))]
    if paths := [value for value in values if isinstance(value, str) and value]:
        paths = [os.path.normpath(os.path.join("/", cwd, path)) for path in paths]
        folder = os.path.commonpath([os.path.dirname(path) for path in paths])
        folders: list[str] = []
        while len(folder) <= _MAX_PATH_LENGTH and os.path.dirname(folder) != folder:
            folders.append(folder)
            folder = os.path.dirname(folder)
        if not folders:
            rule = _build_exact_rule(tool, " ".join(paths))
            return CallScope(rule, Phrase("question.always_exact", tool=tool), (rule,))
        rules = tuple(f"{tool}({f}/)" for f in folders)
        shown = to_short_line(folders[0], 80)
        return CallScope(rules[0], Phrase("question.always_folder", tool=tool, folder=shown), rules)
    return CallScope(tool, Phrase("question.always_tool", tool=tool), (tool,))


def _find_program(command: str) -> str:
    """Return the program of a simple command; empty if the shell might run another one too."""
    if len(command) > _MAX_PARSED_LENGTH or _SHELL_SYNTAX.search(command):
        return ""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    word = words[0] if words else ""
    known = _PLAIN_WORD.fullmatch(word) and not _WRAPPER.fullmatch(os.path.basename(word))
    return word if known else ""


def _build_exact_rule(tool: str, text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    line = to_single_line(text)
    exact = line if line == text and len(text) <= _MAX_RULE_LENGTH else f"{truncate(line, 100)} #{digest}"
    return f"{tool}({exact})"


def _read_command(arguments: Mapping[str, Any]) -> str:
    command: object = next((arguments[key] for key in _COMMAND_KEYS if arguments.get(key)), "")
    words = [*_as_list(command), *_as_list(arguments.get("args"))]
    if len(words) > 1 or isinstance(command, list):
        return shlex.join(map(str, words))
    return str(command)


def _as_list(value: object) -> list[object]:
    if isinstance(value, list):
        return cast(list[object], value)
    return [] if value is None else [value]
