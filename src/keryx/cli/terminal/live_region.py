"""The lines at the bottom of a terminal that are drawn again as they change: the open end of an answer, and the status."""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from itertools import takewhile

from rich.cells import cell_len

from keryx.cli import output

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class LiveRegion:
    """Lines above the cursor that can be replaced. Whatever else is printed needs `clear` before it."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def supported(self) -> bool:
        """Whether the terminal can move its cursor."""
        return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines in the place of those before. If there are too many for the screen, the first are left out."""
        if not self.supported:
            return
        columns, rows = shutil.get_terminal_size((80, 24))
        shown = list(lines)
        while len(shown) > 1 and _count_rows(shown, columns) > rows - 1:
            del shown[0]
        kept = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._lines, shown, strict=False))
        )
        if kept == len(self._lines) == len(shown):
            return
        output.write(self._erase(kept, columns) + "".join(f"{line}\n" for line in shown[kept:]), end="")
        output.flush()
        self._lines = shown

    def clear(self) -> None:
        """Remove the lines from the screen."""
        if self._lines:
            output.write(self._erase(0, shutil.get_terminal_size((80, 24)).columns), end="")
            self._lines = []

    def _erase(self, kept: int, columns: int) -> str:
        """Return the sequence that erases all but the first lines. Lines that a narrower window has broken are counted."""
        rows = _count_rows(self._lines[kept:], columns)
        return f"\x1b[{rows}A\r\x1b[J" if rows else ""


def _count_rows(lines: Sequence[str], columns: int) -> int:
    return sum(max(1, -(-cell_len(_ESCAPES.sub("", line)) // columns)) for line in lines)
