"""Conversion of what is written to settings, and what is wrong with one: its name, where it is written, the allowed words, and what was probably meant."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec

from keryx.core import durations
from keryx.core.errors import Invalid

_TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_MISSING_FIELD = re.compile(r"missing required field `([^`]+)`")
_FIELD = re.compile(r"(\w+)(?:[.\[][^\s:]*)?(?=:| must )")
_TOML_KEY = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_TOML_NAME = rf"{_TOML_KEY}(?:\s*\.\s*{_TOML_KEY})*"
_TOML_LINE = re.compile(
    rf"\s*(?:\[\[\s*(?P<item>{_TOML_NAME})\s*\]\]|\[\s*(?P<table>{_TOML_NAME})\s*\]|(?P<key>{_TOML_NAME})\s*=)"
)
_TOML_PART = re.compile(_TOML_KEY)
_MULTILINE_QUOTES = re.compile(r'"""|' + "'''")
_LAST_STEP = re.compile(r"(?:\.[^.\[]+|\[\d+\]|^[^.\[]+)\Z")

_Kind = TypeVar("_Kind", bound=msgspec.Struct)


class WrongSetting(ValueError):
    """`name` is the dotted name of a setting, with the index of an item of a list: `models[0].id`."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


def convert(
    values: Mapping[str, Any],
    kind: type[_Kind],
    *,
    table: str = "",
    more: Iterable[str] = (),
    hidden: Iterable[str] = (),
    dec_hook: Callable[[type[Any], Any], Any] | None = None,
) -> _Kind:
    """Return settings of the type `kind`, which are those of `[table]` or of the whole file. Raise `WrongSetting` for one that
    is wrong. `more` names are known in it, and `hidden` ones are never suggested."""

    def parse(value: Any, hint: Any) -> Any:
        return msgspec.convert(value, hint, strict=False, dec_hook=dec_hook)

    parsed = _parse_spans(dict(values), kind, table)
    try:
        return parse(parsed, kind)
    except (msgspec.ValidationError, Invalid) as exc:
        search = _Search(parse=parse, more={table: {*more}}, hidden=frozenset(hidden))
        if wrong := search.find(parsed, kind, table):
            raise wrong from exc
        raise


def suggest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return the end of a sentence about an unknown name: the known name that is nearest, if one is near."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else "; `keryx config example` shows every setting."


def describe(path: Path, wrong: WrongSetting) -> str:
    """Return what is wrong with a setting of keryx.toml, with the line where it is written. Blocks."""
    if not path.is_file():
        return f"the configuration is wrong: {wrong}"
    lines = list(_list_names_of_lines(path.read_text(encoding="utf-8")))
    name = wrong.name
    # Within an inline table there is only the line of the table.
    while name:
        for number, written in lines:
            if written == name or (name == wrong.name and written.startswith((f"{name}.", f"{name}["))):
                return f"{path}, line {number}: {wrong}"
        name = _LAST_STEP.sub("", name)
    return f"{path}: {wrong}"


class _Search:
    """The search for the value that makes settings wrong: msgspec tells neither the index of an item nor the name of a table."""

    def __init__(
        self,
        *,
        parse: Callable[[Any, Any], Any],
        more: Mapping[str, set[str]],
        hidden: frozenset[str],
    ) -> None:
        self._parse = parse
        self._more = more
        self._hidden = hidden

    def find(self, value: Any, hint: Any, place: str) -> WrongSetting | None:
        """Return what is wrong with a value at a place; the innermost wrong value counts."""
        hint, limits = _unwrap(hint, value)
        for child, inner, name in self._list_children(value, hint, place):
            if isinstance(inner, WrongSetting):
                return inner
            if wrong := self.find(child, inner, name):
                return wrong
        try:
            self._parse(value, Annotated[hint, *limits] if limits else hint)
        except (msgspec.ValidationError, Invalid) as exc:
            return self._explain(exc, value, hint, place, limits)
        return None

    def _list_children(self, value: Any, hint: Any, place: str) -> Iterator[tuple[Any, Any, str]]:
        """Return the values within a value with their types and places. The type of one that must not be there is an error."""
        if isinstance(value, list) and get_origin(hint) is tuple:
            inner = get_args(hint)[0]
            for number, item in enumerate(cast(list[object], value)):
                yield item, inner, f"{place}[{number}]"
        if not isinstance(value, dict):
            return
        table = cast(dict[str, object], value)
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            hints = get_type_hints(hint, include_extras=True)
            known = {*hints, *self._more.get(place, ())}.difference(self._hidden)
            for key, item in table.items():
                name = f"{place}.{key}" if place else key
                unknown = WrongSetting(
                    name, f"Unknown setting {name}{suggest(key, known, name[: -len(key)])}"
                )
                yield item, hints.get(key, unknown), name
        elif get_origin(hint) in (dict, Mapping):
            kind, inner = get_args(hint)
            for key, item in table.items():
                name = f"{place}.{key}"
                words = _list_words(kind)
                unknown = WrongSetting(name, f"{name}: {describe_word(key, words)}") if words else None
                yield item, inner if unknown is None or key in words else unknown, name

    def _explain(
        self, exc: Exception, value: Any, hint: Any, place: str, limits: tuple[Any, ...]
    ) -> WrongSetting:
        if missing := _MISSING_FIELD.search(str(exc)):
            name = f"{place}.{missing[1]}"
            return WrongSetting(name, f"{name} is missing")
        cause = exc.__cause__ if isinstance(exc, msgspec.ValidationError) else exc
        if isinstance(cause, WrongSetting):
            # A struct names the wrong one of several settings.
            return cause
        if cause is not None:
            return self._find_blamed(str(cause), value, hint, place)
        words = _list_words(hint)
        if words:
            what = f" = {describe_word(value, words)}"
            if isinstance(value, (dict, list)):
                what = f": choose {', '.join(words)}"
            return WrongSetting(place, f"{place}{what}")
        return WrongSetting(place, f"{place}: {_describe_type(hint, limits)}")

    def _find_blamed(self, text: str, value: Any, hint: Any, place: str) -> WrongSetting:
        """Explain an error that a struct raises when its values do not fit: the text begins with the name of the wrong one, or
        without that one there is no error."""
        given = cast(dict[str, object], value) if isinstance(value, dict) else {}
        start = f"{place}." if place else ""
        if (field := _FIELD.match(text)) and isinstance(hint, type) and field[1] in get_type_hints(hint):
            return WrongSetting(f"{start}{field[0]}", f"{start}{text}")
        blamed = [key for key in given if self._is_right({k: v for k, v in given.items() if k != key}, hint)]
        name = f"{start}{blamed[0]}" if len(blamed) == 1 else place
        return WrongSetting(name, f"{name}: {text}" if name else text)

    def _is_right(self, value: Any, hint: Any) -> bool:
        try:
            self._parse(value, hint)
        except (msgspec.ValidationError, Invalid):
            return False
        return True


def _unwrap(hint: Any, value: object) -> tuple[Any, tuple[Any, ...]]:
    """Return the type that a value should have, and its limits: of several types, the one that fits the form of the value."""
    if get_origin(hint) is Annotated:
        inner, *limits = get_args(hint)
        return inner, tuple(limits)
    choices = [a for a in get_args(hint) if a is not NoneType]
    if get_origin(hint) in (tuple, dict, Mapping) or not choices:
        return hint, ()
    if len(choices) == 1:
        return _unwrap(choices[0], value)
    if isinstance(value, dict):
        return next((a for a in choices if get_origin(a) in (dict, Mapping)), hint), ()
    return hint, ()


def describe_word(word: object, words: Sequence[str]) -> str:
    """Return what is wrong with a word that is none of those that a setting accepts, and which one was probably meant."""
    near = difflib.get_close_matches(str(word), words, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    return f"{word!r} is not known. Choose {', '.join(words)}.{meant}"


def _describe_type(hint: Any, limits: tuple[Any, ...]) -> str:
    """Return what to write for a type, as an order: `write a whole number from 1 on`."""
    least = most = None
    for limit in limits:
        if isinstance(limit, msgspec.Meta):
            if limit.description:
                return limit.description
            least, most = limit.ge, limit.le
    if get_origin(hint) is tuple:
        tables = any(isinstance(a, type) and issubclass(a, msgspec.Struct) for a in get_args(hint))
        return "write a list of tables" if tables else "write a list"
    name = _TYPE_NAMES.get(hint, "a table")
    if least is None:
        return f"write {name}"
    return (
        f"write {name} from {least:g} to {most:g}" if most is not None else f"write {name} from {least:g} on"
    )


def _list_words(hint: Any) -> list[str]:
    """Return the words that a setting accepts; empty for a setting of any other kind."""
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return [item.value for item in hint]
    return list(dict.fromkeys(word for inner in get_args(hint) for word in _list_words(inner)))


def _parse_spans(value: Any, hint: Any, name: str) -> Any:
    """Parse every duration of the settings, such as `10m`, wherever the types have one."""
    if hint is timedelta:
        span = durations.parse(value) if isinstance(value, str) else None
        if span is None:
            raise WrongSetting(name, f"{name} = {value!r} is not a duration. Write 30s, 10m, 2h or 7d.")
        return span
    inner = [a for a in get_args(hint) if a is not Ellipsis]
    if isinstance(value, list) and get_origin(hint) is tuple and inner:
        items = enumerate(cast(list[Any], value))
        return [_parse_spans(item, inner[0], f"{name}[{number}]") for number, item in items]
    if not isinstance(value, dict):
        return cast(object, value)
    table = cast(dict[str, Any], value)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = get_type_hints(hint)
    elif get_origin(hint) in (dict, Mapping):
        hints = dict.fromkeys(table, inner[1])
    else:
        return table
    return {
        key: _parse_spans(v, hints.get(key), f"{name}.{key}" if name else key) for key, v in table.items()
    }


def _list_names_of_lines(text: str) -> Iterator[tuple[int, str]]:
    """Return the number and the dotted name of each line that has one."""
    table = ""
    counts: dict[str, int] = {}
    quoted = False
    for number, line in enumerate(text.splitlines(), 1):
        found = None if quoted else _TOML_LINE.match(line)
        if len(_MULTILINE_QUOTES.findall(line)) % 2:
            quoted = not quoted
        if not found:
            continue
        parts = _TOML_PART.findall(found["item"] or found["table"] or found["key"])
        name = ".".join(part.strip("\"'") for part in parts)
        if found["key"]:
            yield number, f"{table}.{name}" if table else name
            continue
        # A table below `[[models]]` is one of its last item.
        for outer, count in counts.items():
            if name.startswith(f"{outer}."):
                name = f"{outer}[{count - 1}]{name.removeprefix(outer)}"
                break
        if found["item"]:
            counts[name] = counts.get(name, 0) + 1
            name = f"{name}[{counts[name] - 1}]"
        table = name
        yield number, name
