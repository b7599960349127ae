"""keryx.toml and the files of its secrets: names, values of single tables, and changes in place that leave everything else as it is written."""

import hashlib
import os
import re
import threading
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from keryx.core.errors import Conflict, Invalid
from keryx.core.texts import Phrase

# `None` removes a key.
Value: TypeAlias = str | bool | int | float | Sequence[str] | Mapping[str, str | float] | None
_TABLE_HEADER = re.compile(r"\s*\[")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
# Held while the file is read, changed and written.
_LOCK = threading.Lock()


def format_variable(table: str, name: str) -> str:
    """Return the variable of a setting: KERYX_TELEGRAM_BASE_URL for `base_url` of `[telegram]`."""
    return f"KERYX_{table}_{name}".upper().replace("-", "_").replace(".", "_")


def read_table(home: Path, table: str) -> Mapping[str, Any]:
    """Return `[table]` of keryx.toml, which is empty if there is none. Raise `Invalid` for a file that cannot be read."""
    return read_table_of(_read(home / "keryx.toml"), table)


def read_table_of(text: str, table: str) -> Mapping[str, Any]:
    """Return `[table]` of the text of a settings file, all of it for an empty name."""
    found = _parse(text)
    for name in table.split(".") if table else ():
        inner: object = found.get(name)
        if not isinstance(inner, dict):
            return {}
        found = cast(dict[str, Any], inner)
    return found


def write(
    home: Path, tables: Mapping[str, Mapping[str, Value]], secrets: Mapping[str, str] | None = None
) -> Path:
    """Set values of tables in keryx.toml and return its path, after the secrets were written to the files that they are
    the contents of. Raise `Invalid`, without a change, if the format of keryx.toml does not allow it."""

    def update(text: str) -> str:
        for table, values in tables.items():
            text = update_text(text, table, values)
        return text

    return change(home, update, secrets)


def change(
    home: Path,
    update: Callable[[str], str],
    secrets: Mapping[str, str] | None = None,
    *,
    check: Callable[[str], object] | None = None,
) -> Path:
    """Write what `update` makes of the text of keryx.toml, after the secrets, and return its path. Raise what `update` and
    `check` raise, without a change; `check` gets the new text."""
    path = home / "keryx.toml"
    with _LOCK:
        old = _read(path)
        text = update(old)
        if check is not None:
            check(text)
        _make_folder(home)
        if _read(path) != old:
            raise Conflict(Phrase("setup.file_changed"))
        for name, value in (secrets or {}).items():
            write_secret(home, name, value)
        return write_text(home, text)


def compute_revision(value: object) -> str:
    """Return a short text that changes with a value of keryx.toml; empty if there is none."""
    if value is None:
        return ""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]


def read_items(home: Path, array: str) -> list[dict[str, Any]]:
    """Return the tables `[[array]]` of keryx.toml. Raise `Invalid` for a file that cannot be read."""
    return _list_items(_parse(_read(home / "keryx.toml")), array)


def remove_secrets(home: Path, names: Iterable[str]) -> None:
    """Remove files of secrets that nothing refers to any more."""
    for name in names:
        find_secret(home, name).unlink(missing_ok=True)


def find_secret(home: Path, name: str) -> Path:
    """Return the file of a secret, which only its owner can read."""
    return (home / "secrets" / name).absolute()


def update_text(text: str, table: str, values: Mapping[str, Value]) -> str:
    """Return the text of a settings file with these values set in the table, or at the top of the file if it has no name."""
    wanted = _parse(text)
    inner = wanted
    for name in table.split(".") if table else ():
        found: object = inner.setdefault(name, {})
        if not isinstance(found, dict):
            raise Invalid(f"keryx.toml has a value for {name} where [{table}] is to be: remove it first")
        inner = cast(dict[str, Any], found)
    _update_values(inner, values)
    place = f"under [{table}]" if table else "above its first table"
    return _check(_edit_table(text.splitlines(), table, values), wanted, place, values)


def remove_table(text: str, table: str) -> str:
    """Return the text of a settings file without a table and the tables below it."""
    wanted = _parse(text)
    *path, last = table.split(".")
    inner = wanted
    for name in path:
        inner = inner.get(name, {})
    inner.pop(last, None)
    lines = text.splitlines()
    for block in reversed(_find_blocks(lines, rf"\[\s*{re.escape(table)}\s*(\.[^\]]*)?\]")):
        _remove_lines(lines, *block)
    # The tables above can be left without an entry, and are gone then.
    parsed = _parse("\n".join(lines))
    for depth in range(len(path), 0, -1):
        inner = wanted
        for name in path[: depth - 1]:
            inner = inner.get(name, {})
        if inner.get(path[depth - 1]) == {} and not _has_table(parsed, path[:depth]):
            inner.pop(path[depth - 1])
    return _check(lines, wanted, f"without [{table}]", {})


def update_item(text: str, array: str, name: str, values: Mapping[str, Value] | None) -> str:
    """Return the text of a settings file with these values set in the table `[[array]]` that has a name, which is added if
    there is none. Without values it is removed."""
    wanted = _parse(text)
    items = _list_items(wanted, array)
    place = next((n for n, item in enumerate(items) if item.get("name") == name), None)
    lines = text.splitlines()
    # A table below, such as [models.prices], belongs to the item above it.
    blocks = _find_blocks(lines, rf"\[\[\s*{re.escape(array)}\s*\]\]", below=rf"\[+\s*{re.escape(array)}\.")
    if len(blocks) != len(items):
        raise Invalid(
            f"keryx.toml has {array} in a form that cannot be changed by itself: write [[{array}]] tables"
        )
    if values is None:
        if place is not None:
            items.pop(place)
            _remove_lines(lines, *blocks[place])
        if not items:
            wanted.pop(array, None)
        return _check(lines, wanted, f"without the [[{array}]] of {name}", {})
    if place is None:
        items.append({"name": name})
        wanted[array] = items
        gap = [""] if lines and lines[-1].strip() else []
        blocks.append((len(lines) + len(gap), len(lines) + len(gap) + 1))
        lines += [*gap, f"[[{array}]]"]
        values, place = {"name": name, **values}, len(items) - 1
    _update_values(items[place], values)
    start, end = blocks[place]
    lines[start:end] = [lines[start], *_edit_entries(lines[start + 1 : end], values, array)]
    return _check(lines, wanted, f"in the [[{array}]] of {name}", values)


def _remove_lines(lines: list[str], start: int, end: int) -> None:
    """Remove a table, and one of two blank lines that are neighbours then."""
    del lines[start:end]
    blank = start > 0 and not lines[start - 1].strip()
    if blank and (start == len(lines) or not lines[start].strip()):
        del lines[start - 1]


def _update_values(table: dict[str, Any], values: Mapping[str, Value]) -> None:
    for key, value in values.items():
        if value is None:
            table.pop(key, None)
        else:
            table[key] = list(value) if isinstance(value, list | tuple) else value


def _check(lines: list[str], wanted: dict[str, Any], place: str, values: Mapping[str, Value]) -> str:
    """Return the lines as a text if they say what is wanted. Raise `Invalid` if they do not."""
    new = "\n".join(lines) + "\n" if lines else ""
    try:
        right = tomllib.loads(new) == wanted
    except tomllib.TOMLDecodeError:
        right = False
    if not right:
        shown = "; ".join(
            f"{key} = {format_value(value)}" for key, value in values.items() if value is not None
        )
        raise Invalid(f"keryx.toml cannot be changed by itself: write in it, {place}: {shown}")
    return new


def remove_value(text: str, table: str, key: str) -> str:
    """Return the text of a settings file without a value of a table, and without the table if that leaves nothing in it."""
    text = update_text(text, table, {key: None})
    lines = text.splitlines()
    start, end = _find_blocks(lines, rf"\[\s*{re.escape(table)}\s*\]")[0]
    # A comment, or a table below, stays.
    if read_table_of(text, table) or any(line.strip() for line in lines[start + 1 : end]):
        return text
    return remove_table(text, table)


def format_entry(name: str, values: Mapping[str, Value]) -> str:
    """Return the text of one entry of a list of tables, such as `[[models]]`."""
    lines = [f"[[{name}]]", *(f"{key} = {format_value(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def read_text(home: Path) -> str:
    """Return the text of keryx.toml, empty if there is none. Raise `Invalid` if it cannot be read, or is not TOML."""
    text = _read(home / "keryx.toml")
    _parse(text)
    return text


def write_text(home: Path, text: str, *, name: str = "keryx.toml") -> Path:
    """Write keryx.toml, or a copy of it under another name that only its owner can read."""
    path = home / name
    _make_folder(home)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    _write_atomically(path.resolve(), text.encode(), mode=mode)
    return path


def write_secret(home: Path, name: str, value: str) -> Path:
    """Write a secret to a file that only its owner can read, and return the file."""
    path = find_secret(home, name)
    _write_atomically(path, f"{value}\n".encode(), mode=0o600)
    return path


def _list_items(parsed: Mapping[str, Any], array: str) -> list[dict[str, Any]]:
    found: object = parsed.get(array, [])
    return cast(list[dict[str, Any]], found) if isinstance(found, list) else []


def _has_table(parsed: Mapping[str, Any], path: Sequence[str]) -> bool:
    inner: object = parsed
    for name in path:
        if not isinstance(inner, dict) or name not in inner:
            return False
        inner = cast(dict[str, object], inner)[name]
    return True


def _find_blocks(lines: Sequence[str], header: str, *, below: str = "") -> list[tuple[int, int]]:
    """Return where each table with a header begins and ends, with the tables `below` it."""
    begins = re.compile(rf"\s*{header}\s*(#.*)?\Z")
    belongs = re.compile(rf"\s*{below}") if below else None
    blocks: list[tuple[int, int]] = []
    for start, line in enumerate(lines):
        if begins.match(line):
            end = start + 1
            while end < len(lines) and (
                not _TABLE_HEADER.match(lines[end]) or (belongs and belongs.match(lines[end]))
            ):
                end += 1
            blocks.append((start, end))
    return blocks


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as exc:
        raise Invalid(f"{path} cannot be read: {exc}") from exc


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise Invalid(f"keryx.toml cannot be read: {exc}. Mend it first") from exc


def _edit_table(lines: list[str], table: str, values: Mapping[str, Value]) -> list[str]:
    if not table:
        end = next((n for n, line in enumerate(lines) if _TABLE_HEADER.match(line)), len(lines))
        return [*_edit_entries(lines[:end], values), *lines[end:]]
    blocks = _find_blocks(lines, rf"\[\s*{re.escape(table)}\s*\]")
    if not blocks:
        gap = [""] if lines and lines[-1].strip() else []
        lines = [*lines, *gap, f"[{table}]"]
        blocks = [(len(lines) - 1, len(lines))]
    start, end = blocks[0]
    return [*lines[: start + 1], *_edit_entries(lines[start + 1 : end], values), *lines[end:]]


def _edit_entries(lines: list[str], values: Mapping[str, Value], table: str = "") -> list[str]:
    """Return the lines of a table with these values. A table below it that has the name of a value is replaced by it."""
    fresh: list[str] = []
    for key, value in values.items():
        if table:
            for start, end in reversed(_find_blocks(lines, rf"\[\s*{re.escape(f'{table}.{key}')}\s*\]")):
                del lines[start:end]
        new = [] if value is None else [f"{key} = {format_value(value)}"]
        # What stands below a table of its own belongs to that.
        own = next((n for n, line in enumerate(lines) if _TABLE_HEADER.match(line)), len(lines))
        place = next((n for n in range(own) if re.match(rf"\s*{re.escape(key)}\s*=", lines[n])), None)
        if place is None:
            fresh += new
        else:
            lines[place : _find_entry_end(lines, place)] = new
    return [*fresh, *lines]


def _find_entry_end(lines: Sequence[str], start: int) -> int:
    """Return where a value that can have several lines ends."""
    for end in range(start + 1, len(lines) + 1):
        try:
            tomllib.loads("\n".join(lines[start:end]))
        except tomllib.TOMLDecodeError:
            continue
        return end
    return start + 1


def format_value(value: Value) -> str:
    """Return a value as keryx.toml has it."""
    if isinstance(value, Mapping):
        keys = (key if _BARE_KEY.match(key) else msgspec.json.encode(key).decode() for key in value)
        entries = (f"{key} = {format_value(inner)}" for key, inner in zip(keys, value.values(), strict=True))
        return f"{{ {', '.join(entries)} }}"
    return msgspec.json.encode(value).decode()


def _make_folder(folder: Path) -> None:
    """Make a folder that only its owner can look into, if there is none."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise Invalid(f"cannot make {folder}: {exc.strerror}") from exc


def _write_atomically(path: Path, body: bytes, *, mode: int) -> None:
    """Write the whole file or nothing. The file has its mode from the start."""
    _make_folder(path.parent)
    try:
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as exc:
        raise Invalid(f"cannot write {path}: {exc.strerror}") from exc
