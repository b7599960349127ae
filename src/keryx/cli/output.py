"""Output of commands: text and tables for people, styled on a terminal and plain in a pipe; JSON for programs."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from rich.cells import cell_len, set_cell_size

from keryx.core import codec
from keryx.core.errors import Invalid
from keryx.core.text import format_count as format_count
from keryx.core.text import replace_for_terminal

_STYLES = {
    "bold": "1",
    "dim": "2",
    "thought": "2;3",
    "good": "32",
    "bad": "31",
    "mark": "35",
    "name": "1;36",
    "hit": "1;4",
}
_GAP = "  "
_MIN_WIDTH = 40
STDIO = "-"


def write(text: str, *, end: str = "\n") -> None:
    sys.stdout.write(text + end)


def warn(text: str) -> None:
    """Print the text on stderr as one line."""
    sys.stdout.flush()
    sys.stderr.write(" ".join(sanitize(text, one_line=True).split(" ")) + "\n")
    sys.stderr.flush()


def hint(text: str) -> None:
    """Print a hint on stderr if that is a terminal."""
    if sys.stderr.isatty():
        warn(style_text(text, "dim", stream=sys.stderr))


def write_json(value: object) -> None:
    """Print a value as JSON on one line."""
    write(codec.dumps(value))


def write_result(text: str, value: object, json: bool) -> None:
    """Print the result of a command: the text, or with `json` the value."""
    write(codec.dumps(value) if json else sanitize(text))


def style_text(text: str, style: str, *, stream: TextIO | None = None) -> str:
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if text and supports_colour(stream or sys.stdout) else text


def supports_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def sanitize(text: str, *, one_line: bool = False) -> str:
    """Replace control characters if stdout is a terminal. `one_line` joins the lines in any case."""
    if one_line:
        text = re.sub(r"\s+", " ", text).strip()
    return replace_for_terminal(text) if sys.stdout.isatty() else text


def terminal_width() -> int:
    return max(_MIN_WIDTH, shutil.get_terminal_size((80, 24)).columns)


def wrap(text: str) -> str:
    """Wrap long lines between words if stdout is a terminal, with continuation lines indented."""
    if not sys.stdout.isatty():
        return text
    size = shutil.get_terminal_size((80, 24)).columns
    rows: list[str] = []
    for line in text.split("\n"):
        first, *words = line.split(" ")
        rows.append(first)
        for word in words:
            longer = f"{rows[-1]} {word}"
            if cell_len(longer) <= size:
                rows[-1] = longer
            else:
                rows.append(_GAP + word)
    return "\n".join(rows)


def truncate(text: str, size: int) -> str:
    """Cut a text to one line of at most `size` columns."""
    line = sanitize(text, one_line=True)
    return line if cell_len(line) <= size else set_cell_size(line, size - 1).rstrip() + "…"


def format_time(moment: datetime | None, *, now: datetime | None = None) -> str:
    """Format a time in the local zone: of today the hour, of this year the day and hour, else the date."""
    if moment is None:
        return ""
    local, today = moment.astimezone(), (now or datetime.now(UTC)).astimezone()
    if local.date() == today.date():
        return f"{local:%H:%M}"
    return f"{local:%d %b %H:%M}" if local.year == today.year else f"{local:%Y-%m-%d}"


def write_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, flexible: int, right: Sequence[int] = ()
) -> None:
    """Print aligned columns. On a terminal the flexible column is cut so that each row fits on a line."""
    cells = [[sanitize(cell, one_line=True) for cell in row] for row in rows]
    sizes = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    if sys.stdout.isatty():
        rest = sum(size for n, size in enumerate(sizes) if n != flexible) + len(_GAP) * (len(sizes) - 1)
        sizes[flexible] = min(sizes[flexible], max(10, terminal_width() - rest))
    write(style_text(_format_row(heads, sizes, right), "dim"))
    for row in cells:
        write(
            _format_row(
                [*row[:flexible], truncate(row[flexible], sizes[flexible]), *row[flexible + 1 :]],
                sizes,
                right,
            )
        )


def write_list(
    name: str,
    items: Sequence[object],
    json: bool,
    *,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    flexible: int,
    right: Sequence[int] = (),
    empty: str,
) -> None:
    """Print the items as a table, as a JSON object with one list called `name`, or `empty` if there are none."""
    if json:
        write_json({name: items})
    elif items:
        write_table(heads, rows, flexible=flexible, right=right)
    else:
        write(empty)


def write_fields(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair per line, without empty values."""
    lines = [(name, sanitize(value, one_line=True)) for name, value in pairs if value]
    size = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        write(f"{style_text(name.ljust(size), 'dim')}{_GAP}{value}")


def indent(text: str, by: int) -> str:
    return "\n".join(" " * by + line if line else "" for line in text.split("\n"))


def _format_row(cells: Sequence[str], sizes: Sequence[int], right: Sequence[int]) -> str:
    padded: list[str] = []
    for n, (cell, size) in enumerate(zip(cells, sizes, strict=True)):
        blank = " " * max(0, size - cell_len(cell))
        padded.append(blank + cell if n in right else cell + blank)
    return _GAP.join(padded).rstrip()


@contextmanager
def open_writer(name: str) -> Generator[Callable[[str], object]]:
    """Open stdout, or a file that gets its name only when it is complete."""
    if name == STDIO:
        yield sys.stdout.write
        return
    target = Path(name)
    partial = target.with_name(f"{target.name}.partial")
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
                yield stream.write
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as exc:
        raise Invalid(f"{name} cannot be written ({exc.strerror}): give another file with --output") from exc


def format_size(count: int) -> str:
    """Format a number of bytes in decimal units."""
    if count < 1000:
        return f"{count} bytes"
    power = min(4, (len(str(count)) - 1) // 3)
    return f"{count / 1000**power:.1f} {('KB', 'MB', 'GB', 'TB')[power - 1]}"
