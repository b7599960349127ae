"""Changes to keryx.toml in place: one table gets values, everything else stays as it is written."""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from keryx.core.errors import Invalid

Value: TypeAlias = str | list[str]
_TABLE_HEADER = re.compile(r"\s*\[")


def update(home: Path, table: str, values: Mapping[str, Value]) -> Path:
    """Set values of `[table]` in keryx.toml and return its path. Raise `Invalid`, without a change, if the format of
    the file does not allow it."""
    path = home / "keryx.toml"
    try:
        old = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        old = ""
    except (OSError, ValueError) as exc:
        raise Invalid(f"{path} cannot be read: {exc}") from exc
    new = update_text(old, table, values)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    _write_atomically(path.resolve(), new.encode(), mode=mode)
    return path


def update_text(text: str, table: str, values: Mapping[str, Value]) -> str:
    """Return the text of a settings file with these values set in the table."""
    try:
        wanted = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise Invalid(f"keryx.toml cannot be read: {exc}. Mend it first") from exc
    inner = wanted
    for name in table.split("."):
        inner = inner.setdefault(name, {})
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


def write_secret(home: Path, name: str, value: str) -> str:
    """Write a secret to a file that only its owner can read, and return the reference to it."""
    folder = home / "secrets"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / name
    _write_atomically(path, f"{value}\n".encode(), mode=0o600)
    return f"file:{path.absolute()}"


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


def _write_atomically(path: Path, body: bytes, *, mode: int) -> None:
    """Write the whole file or nothing. The file has its mode from the start."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as exc:
        raise Invalid(f"cannot write {path}: {exc.strerror}") from exc
