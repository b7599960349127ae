"""keryx.toml and the files of its secrets: names, values of single tables, and changes in place that leave everything else as it is written."""

import os
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from keryx.core.errors import Invalid

Value: TypeAlias = str | bool | int | list[str]
_TABLE_HEADER = re.compile(r"\s*\[")


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
    path = home / "keryx.toml"
    text = _read(path)
    for table, values in tables.items():
        text = update_text(text, table, values)
    _make_folder(home)
    for name, value in (secrets or {}).items():
        write_secret(home, name, value)
    return write_text(home, text)


def find_secret(home: Path, name: str) -> Path:
    """Return the file of a secret, which only its owner can read."""
    return (home / "secrets" / name).absolute()


def update_text(text: str, table: str, values: Mapping[str, Value]) -> str:
    """Return the text of a settings file with these values set in the table."""
    wanted = _parse(text)
    inner = wanted
    for name in table.split("."):
        found: object = inner.setdefault(name, {})
        if not isinstance(found, dict):
            raise Invalid(f"keryx.toml has a value for {name} where [{table}] is to be: remove it first")
        inner = cast(dict[str, Any], found)
    inner.update(values)
    new = _edit_lines(text.splitlines(), table, values)
    try:
        right = tomllib.loads(new) == wanted
    except tomllib.TOMLDecodeError:
        right = False
    if not right:
        lines = "; ".join(f"{key} = {format_value(value)}" for key, value in values.items())
        raise Invalid(f"keryx.toml cannot be changed by itself: write in it, under [{table}]: {lines}")
    return new


def remove_values(text: str, table: str, keys: Collection[str]) -> str:
    """Return the text of a settings file without these values of a table, and without the table if that leaves it empty."""
    lines = text.splitlines()
    header = re.compile(rf"\s*\[\s*{re.escape(table)}\s*\]\s*(#.*)?\Z")
    start = next((n for n, line in enumerate(lines) if header.match(line)), None)
    if start is None:
        return text
    end = next((n for n in range(start + 1, len(lines)) if _TABLE_HEADER.match(lines[n])), len(lines))
    names = "|".join(map(re.escape, keys))
    body = [line for line in lines[start + 1 : end] if not re.match(rf"\s*(?:{names})\s*=", line)]
    head = lines[: start + 1]
    if not any(line.strip() for line in body):
        head, body = lines[:start], []
        while head and not head[-1].strip():
            head.pop()
        if head and lines[end:]:
            head.append("")
    kept = [*head, *body, *lines[end:]]
    new = "\n".join(kept) + "\n" if kept else ""
    wanted = _parse(text)
    inner: Any = wanted
    for name in table.split("."):
        inner = inner[name]
    for key in keys:
        inner.pop(key, None)
    try:
        right = _drop_empty(tomllib.loads(new)) == _drop_empty(wanted)
    except tomllib.TOMLDecodeError:
        right = False
    if not right:
        raise Invalid(f"keryx.toml cannot be changed by itself: remove from [{table}]: {', '.join(keys)}")
    return new


def _drop_empty(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table without the tables in it that are empty."""
    inner = {
        key: _drop_empty(cast(dict[str, Any], value)) if isinstance(value, dict) else value
        for key, value in table.items()
    }
    return {key: value for key, value in inner.items() if value != {}}


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


def _edit_lines(lines: list[str], table: str, values: Mapping[str, Value]) -> str:
    header = re.compile(rf"\s*\[\s*{re.escape(table)}\s*\]\s*(#.*)?\Z")
    start = next((n for n, line in enumerate(lines) if header.match(line)), None)
    if start is None:
        gap = [""] if lines and lines[-1].strip() else []
        lines = [*lines, *gap, f"[{table}]"]
        start = len(lines) - 1
    end = next((n for n in range(start + 1, len(lines)) if _TABLE_HEADER.match(lines[n])), len(lines))
    body = lines[start + 1 : end]
    fresh: list[str] = []
    for key, value in values.items():
        line = f"{key} = {format_value(value)}"
        places = [n for n, old in enumerate(body) if re.match(rf"\s*{re.escape(key)}\s*=", old)]
        if places:
            body[places[0]] = line
        else:
            fresh.append(line)
    return "\n".join([*lines[: start + 1], *fresh, *body, *lines[end:]]) + "\n"


def format_value(value: Value) -> str:
    """Return a value as keryx.toml has it."""
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
