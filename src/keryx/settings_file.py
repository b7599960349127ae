"""keryx.toml and the files of its secrets: names, values of single tables, and changes in place that leave everything else as it is written."""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from keryx.core.errors import Invalid

Value: TypeAlias = str | list[str]
_TABLE_HEADER = re.compile(r"\s*\[")


def format_variable(table: str, name: str) -> str:
    """Return the variable of a setting: KERYX_TELEGRAM_BASE_URL for `base_url` of `[telegram]`."""
    return f"KERYX_{table}_{name}".upper().replace("-", "_").replace(".", "_")


def read_table(home: Path, table: str) -> Mapping[str, Any]:
    """Return `[table]` of keryx.toml, which is empty if there is none. Raise `Invalid` for a file that cannot be read."""
    found = _parse(_read(home / "keryx.toml"))
    for name in table.split("."):
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
        _write_atomically(find_secret(home, name), f"{value}\n".encode(), mode=0o600)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    _write_atomically(path.resolve(), text.encode(), mode=mode)
    return path


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
        lines = "; ".join(f"{key} = {_format_value(value)}" for key, value in values.items())
        raise Invalid(f"keryx.toml cannot be changed by itself: write in it, under [{table}]: {lines}")
    return new


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
        line = f"{key} = {_format_value(value)}"
        places = [n for n, old in enumerate(body) if re.match(rf"\s*{re.escape(key)}\s*=", old)]
        if places:
            body[places[0]] = line
        else:
            fresh.append(line)
    return "\n".join([*lines[: start + 1], *fresh, *body, *lines[end:]]) + "\n"


def _format_value(value: Value) -> str:
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
