"""Output: text for people, aligned and styled on a terminal and plain in a pipe; JSON for programs."""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TextIO

from rich.cells import cell_len, set_cell_size

from keryx.core import wire

# Whoever writes a message must not be able to steer the terminal of whoever reads it.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
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
_NARROW = 40


def write(text: str, *, end: str = "\n") -> None:
    sys.stdout.write(text + end)


def warn(text: str) -> None:
    """One line on stderr, however many the text has."""
    sys.stdout.flush()
    sys.stderr.write(" ".join(plain(text, one_line=True).split(" ")) + "\n")
    sys.stderr.flush()


def note(text: str) -> None:
    """A hint for a person at a terminal, on stderr; kept out of pipes and scripts."""
    if sys.stderr.isatty():
        warn(styled(text, "dim", stream=sys.stderr))


def json(value: object) -> None:
    """One JSON document on one line."""
    write(wire.dumps(value))


def answer(text: str, value: object, json: bool) -> None:
    """What became of a command: a text for people, or a value for programs."""
    write(wire.dumps(value) if json else plain(text))


def styled(text: str, style: str, *, stream: TextIO | None = None) -> str:
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if text and coloured(stream or sys.stdout) else text


def coloured(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def plain(text: str, *, one_line: bool = False) -> str:
    """Foreign text that is safe on a terminal. In a pipe it stays as it is, but for line breaks."""
    if one_line:
        text = re.sub(r"\s+", " ", text).strip()
    return _CONTROL.sub("\ufffd", text) if sys.stdout.isatty() else text


def width() -> int:
    return max(_NARROW, shutil.get_terminal_size((80, 24)).columns)


def folded(text: str) -> str:
    """On a terminal, broken between words where a line does not fit; what goes on stands a little to the right."""
    if not sys.stdout.isatty():
        return text
    size = shutil.get_terminal_size((80, 24)).columns
    return "\n".join(row for line in text.split("\n") for row in _fold(line, size))


def _fold(line: str, size: int) -> list[str]:
    if cell_len(line) <= size:
        return [line]
    words = line.split(" ")
    rows = [words[0]]
    for word in words[1:]:
        longer = f"{rows[-1]} {word}"
        if cell_len(longer) <= size:
            rows[-1] = longer
        else:
            rows.append(_GAP + word)
    return rows


def cut(text: str, size: int) -> str:
    """One line of at most `size` columns."""
    line = plain(text, one_line=True)
    return line if cell_len(line) <= size else set_cell_size(line, size - 1).rstrip() + "…"


def when(moment: datetime | None, *, now: datetime | None = None) -> str:
    """A time as a person says it: today the hour, this year the day and hour, else the date. In the local zone."""
    if moment is None:
        return ""
    local, today = moment.astimezone(), (now or datetime.now(UTC)).astimezone()
    if local.date() == today.date():
        return f"{local:%H:%M}"
    return f"{local:%d %b %H:%M}" if local.year == today.year else f"{local:%Y-%m-%d}"


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, flexible: int, right: Sequence[int] = ()
) -> None:
    """Aligned columns. On a terminal the flexible column is cut so that each row fits on its line."""
    cells = [[plain(cell, one_line=True) for cell in row] for row in rows]
    sizes = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    if sys.stdout.isatty():
        rest = sum(size for n, size in enumerate(sizes) if n != flexible) + len(_GAP) * (len(sizes) - 1)
        sizes[flexible] = min(sizes[flexible], max(10, width() - rest))
    write(styled(_row(heads, sizes, right), "dim"))
    for row in cells:
        write(
            _row([*row[:flexible], cut(row[flexible], sizes[flexible]), *row[flexible + 1 :]], sizes, right)
        )


def fields(pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair a line; empty values are left out."""
    shown = [(name, plain(value, one_line=True)) for name, value in pairs if value]
    size = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        write(f"{styled(name.ljust(size), 'dim')}{_GAP}{value}")


def indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line if line else "" for line in text.split("\n"))


def _row(cells: Sequence[str], sizes: Sequence[int], right: Sequence[int]) -> str:
    padded = [_pad(cell, size, n in right) for n, (cell, size) in enumerate(zip(cells, sizes, strict=True))]
    return _GAP.join(padded).rstrip()


def _pad(cell: str, size: int, right: bool) -> str:
    blank = " " * max(0, size - cell_len(cell))
    return blank + cell if right else cell + blank
