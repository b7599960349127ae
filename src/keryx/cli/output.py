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
from keryx.core.errors import Invalid, Unavailable
from keryx.core.records import Progress, ignore_progress
from keryx.core.text import format_count as format_count
from keryx.core.text import replace_for_terminal

STYLES = {
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
# A flexible column is not made narrower than this.
_MIN_COLUMN = 10
STDIO = "-"
_RETRY_COMMAND = re.compile(r"(?<![\w/`])/retry\b")


def write(text: str, *, end: str = "\n") -> None:
    with translate_errors():
        sys.stdout.write(text + end)


def flush() -> None:
    with translate_errors():
        sys.stdout.flush()


def adapt_hints(text: str, session: str | None) -> str:
    """Return a text about a turn with a command that works in a shell in place of the slash command /retry."""
    return _RETRY_COMMAND.sub(f"`keryx sessions retry {session}`", text) if session else text


@contextmanager
def translate_errors() -> Generator[None]:
    """Raise `Unavailable` if stdout cannot be written, as on a full disk. `BrokenPipeError` is raised as it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as exc:
        discard_rest()
        reason = exc.strerror or type(exc).__name__
        raise Unavailable(
            f"the output cannot be written ({reason}): free some space, or send it elsewhere"
        ) from exc


def discard_rest() -> None:
    """Send further output nowhere. The interpreter would complain at its exit about what it cannot write."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def warn(text: str) -> None:
    """Print the text on stderr as one line."""
    flush()
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
    write(codec.dumps(value) if json else wrap(sanitize(text)))


def style_text(text: str, style: str, *, stream: TextIO | None = None) -> str:
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if text and supports_colour(stream or sys.stdout) else text


def supports_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def sanitize(text: str, *, one_line: bool = False) -> str:
    """Replace control characters if stdout is a terminal. `one_line` joins the lines in any case."""
    if one_line:
        text = re.sub(r"\s+", " ", text).strip()
    return replace_for_terminal(text) if sys.stdout.isatty() else text


def screen_width() -> int:
    return shutil.get_terminal_size((80, 24)).columns


def terminal_width() -> int:
    """Return the width of tables and lists, which narrower terminals break themselves."""
    return max(_MIN_WIDTH, screen_width())


def wrap(text: str) -> str:
    """Wrap long lines between words if stdout is a terminal, with continuation lines indented."""
    if not sys.stdout.isatty():
        return text
    size = screen_width()
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
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    flexible: int,
    right: Sequence[int] = (),
    title: int | None = None,
) -> None:
    """Print aligned columns. On a terminal the flexible column is cut so that each row fits on a line. If the others leave
    it no room, each row is an entry of its own, with a value on each line; `title` is the column on its first line, the
    flexible one if it is not given."""
    cells = [[sanitize(cell, one_line=True) for cell in row] for row in rows]
    sizes = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    if sys.stdout.isatty():
        rest = sum(size for n, size in enumerate(sizes) if n != flexible) + len(_GAP) * (len(sizes) - 1)
        room = terminal_width() - rest
        if room < min(sizes[flexible], _MIN_COLUMN):
            # Each row as its title in bold, with the other values below it.
            title = flexible if title is None else title
            size = max((cell_len(head) for n, head in enumerate(heads) if n != title), default=0)
            room = terminal_width()
            for row in cells:
                write(style_text(truncate(row[title], room) or "–", "bold"))
                for n, (head, cell) in enumerate(zip(heads, row, strict=True)):
                    if n != title and cell:
                        label = f"{_GAP}{style_text(head, 'dim')}{' ' * (size - cell_len(head))}{_GAP}"
                        write(label + truncate(cell, room - size - 2 * len(_GAP)))
            return
        sizes[flexible] = min(sizes[flexible], room)
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
        write(wrap(empty))


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
        return format_count(count, "byte")
    power = min(4, (len(str(count)) - 1) // 3)
    return f"{count / 1000**power:.1f} {('KB', 'MB', 'GB', 'TB')[power - 1]}"


@contextmanager
def show_progress() -> Generator[Progress]:
    """Show a progress bar on stderr that disappears when the work is done. In a pipe it shows nothing."""
    if not sys.stderr.isatty():
        yield ignore_progress
        return
    # Slow to import, and seldom needed.
    from rich import console, progress  # noqa: PLC0415

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console.Console(stderr=True), transient=True) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def update(stage: str, done: int, total: int, /) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage)
            bars.update(tasks[stage], completed=done, total=total or None)

        yield update
