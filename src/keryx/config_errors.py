"""What is wrong with a setting, in the words of the settings: its name, where it is written, the allowed words, and what was probably meant."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

_UNKNOWN_FIELD = re.compile(r"unknown field `([^`]+)`")
_WRONG_WORD = re.compile(r"Invalid enum value '(.*)'\Z")
_EXPECTED = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "array": "a list",
    "object": "a table",
}
_WRITTEN_TYPES = {int: "int", float: "float", bool: "bool", str: "str", list: "array", dict: "object"}
_FIELD = re.compile(r"(\w+)(?:\.\w+)*(?=:| must )")
_INDEX = re.compile(r"\[[^\]]*\]")
_TOML_KEY = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_TOML_NAME = rf"{_TOML_KEY}(?:\s*\.\s*{_TOML_KEY})*"
_TOML_LINE = re.compile(rf"\s*(?:\[\[?\s*(?P<table>{_TOML_NAME})\s*\]|(?P<key>{_TOML_NAME})\s*=)")
_TOML_PART = re.compile(_TOML_KEY)


class WrongSetting(ValueError):
    """`name` is the dotted name of a setting, `word` what was written there if that is known, `kind` of which type of msgspec
    it was. A struct that raises it for itself is refused by msgspec with this error as the cause."""

    def __init__(self, name: str, text: str, word: str = "", kind: str = "") -> None:
        super().__init__(text)
        self.name = name
        self.word = word
        self.kind = kind


def explain(
    text: str, kind: Any, *, table: str = "", more: Iterable[str] = (), hidden: Iterable[str] = ()
) -> WrongSetting:
    """Explain an error of msgspec, such as `Expected ... - at `$.limits.at_once``, for settings of the type `kind`. They are
    those of `[table]`, or the whole file, where `more` tables are known and `hidden` ones are never suggested."""
    what, _, where = text.partition(" - at `$")
    where = where.rstrip("`").removeprefix(".").replace("[...]", ".*")
    # The type of a setting by its path, such as `tools[0].policy` or `agents.*.kind`.
    hint = kind
    for part in where.split(".") if where else ():
        hint = hint if part == "*" else get_type_hints(hint)[_INDEX.sub("", part)]
        if part == "*" or _INDEX.search(part):
            hint = [a for a in get_args(hint) if a is not Ellipsis][-1]
        hint = next((a for a in get_args(hint) if a is not type(None) and type(None) in get_args(hint)), hint)
    place = ".".join(filter(None, (table, where)))
    if unknown := _UNKNOWN_FIELD.search(what):
        name = f"{place}.{unknown[1]}" if place else unknown[1]
        known = {*get_type_hints(hint), *(() if where else more)}.difference(hidden)
        return WrongSetting(
            name, f"Unknown setting {name}{suggest(unknown[1], known, name[: -len(unknown[1])])}"
        )
    words = _list_words(hint)
    if (wrong := _WRONG_WORD.search(what)) and words:
        near = difflib.get_close_matches(wrong[1], words, n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        return WrongSetting(
            place, f"{place} = {wrong[1]!r} is not known. Choose {', '.join(words)}.{meant}", wrong[1]
        )
    got = found[2] if (found := _EXPECTED.search(what)) else ""
    what = _EXPECTED.sub(_describe_type, what)
    # A struct that checks several values together begins with the name of the wrong one.
    named = get_type_hints(hint) if isinstance(hint, type) and issubclass(hint, msgspec.Struct) else ()
    if (field := _FIELD.match(what)) and field[1] in named:
        return WrongSetting(f"{place}.{field[0]}".removeprefix("."), f"{place}.{what}".removeprefix("."))
    return WrongSetting(place, f"{place}: {what}" if place else what, kind=got)


def suggest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return the end of a sentence about an unknown name: the known name that is nearest, if one is near."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else "; `keryx config example` shows every setting."


def describe(path: Path, wrong: WrongSetting) -> str:
    """Return what is wrong with a setting of keryx.toml, with the line where it is written. Blocks."""
    if not path.is_file():
        return f"the configuration is wrong: {wrong}"
    lines = list(_list_names_of_lines(path.read_text(encoding="utf-8")))
    found: list[tuple[int, str, str]] = []
    parts = _INDEX.sub("", wrong.name).split(".")
    # Within an inline table there is only the line of the table.
    while parts and not found:
        pattern = r"\.".join("[^.]+" if part == "*" else re.escape(part) for part in parts)
        found = [entry for entry in lines if re.fullmatch(pattern, entry[2])]
        parts.pop()
    written = re.compile(rf"(?<!\w){re.escape(wrong.word)}(?!\w)" if wrong.word else "")
    found = [entry for entry in found if written.search(entry[1])]
    found = [entry for entry in found if _may_have_type(entry[1], wrong.kind)] or found
    if not found:
        return f"{path}: {wrong}"
    number, _, names = found[0]
    text, stars = str(wrong), wrong.name
    # The stars for the names of tables are replaced by the names that are written.
    if not stars.endswith("*"):
        stars, names = stars.rpartition(".")[0], names.rpartition(".")[0]
    if "*" in stars and stars.count(".") == names.count("."):
        text = text.replace(stars, names)
    return f"{path}, line {number}: {text}"


def _describe_type(found: re.Match[str]) -> str:
    words = [_TYPE_NAMES.get(name, name) for name in found[1].split(" | ")]
    return f"write {' or '.join(words)}"


def _may_have_type(line: str, kind: str) -> bool:
    """Whether a line sets a value of a type of msgspec. True if that cannot be told from the line."""
    try:
        value: object = tomllib.loads(f"x = {line.partition('=')[2]}")["x"]
    except tomllib.TOMLDecodeError:
        return True
    return (
        not kind
        or next((name for type_, name in _WRITTEN_TYPES.items() if type(value) is type_), kind) == kind
    )


def _list_words(hint: Any) -> list[str]:
    """Return the words that a setting accepts, or a table of settings; empty for any other setting."""
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return [item.value for item in hint]
    return list(dict.fromkeys(word for inner in get_args(hint) for word in _list_words(inner)))


def _list_names_of_lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Return the number, the text and the dotted name of each line that has one."""
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if found := _TOML_LINE.match(line):
            parts = _TOML_PART.findall(found["table"] or found["key"])
            name = ".".join(part.strip("\"'") for part in parts)
            if found["table"]:
                table = name
            yield number, line, name if found["table"] or not table else f"{table}.{name}"
