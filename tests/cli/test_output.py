"""Tables on a narrow terminal."""

import ast
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from keryx import cli
from keryx.cli import output

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_WORDS = "a rather long cell that no narrow terminal can show in full"


class NarrowTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def list_tables() -> Iterator[tuple[str, ast.Call]]:
    """Return each call that prints a table, with where it is."""
    for path in sorted(Path(cli.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in ("write_table", "write_list"):
                assert isinstance(node, ast.Call)
                yield f"{path.stem}:{node.lineno}", node


def read_heads(call: ast.Call) -> list[str] | None:
    """Return the heads of a table, `None` if they are made while the command runs."""
    given = [k.value for k in call.keywords if k.arg == "heads"] or call.args[:1]
    if not isinstance(given[0], ast.Tuple):
        return None
    return [e.value if isinstance(e, ast.Constant) else "heading" for e in given[0].elts]  # pyright: ignore[reportReturnType]


TABLES = {place: call for place, call in list_tables() if read_heads(call)}


@pytest.mark.parametrize("place", TABLES)
@pytest.mark.parametrize("cell", [_WORDS, "x" * 90, "12", ""])
def test_every_table_of_every_command_fits_forty_columns(
    place: str, cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = read_heads(TABLES[place])
    assert heads
    options = {
        k.arg: ast.literal_eval(k.value) for k in TABLES[place].keywords if k.arg in ("flexible", "title")
    }
    shown = NarrowTerminal()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stdout", shown)
    output.write_table(heads, [[cell] * len(heads), ["1"] * len(heads)], **options)
    lines = _COLOURS.sub("", shown.getvalue()).splitlines()
    assert lines and max(map(cell_len, lines)) <= 40


def test_nearly_every_table_is_looked_at() -> None:
    assert len(TABLES) > 20
