"""Tables as lines of a fixed-width font."""

from keryx.surfaces.gateway.render.measure import width
from keryx.surfaces.gateway.render.tree import Cell, Row, Table, visible

WIDEST_COLUMN = 32
"""Columns are padded up to here. A longer cell pushes the rest of its row to the right."""

LINE, CROSS = "─", "┼"


def lines(table: Table) -> list[str]:
    """One line for each row, and a rule below the header. The rest of a row that was cut starts where it was cut."""
    shown = [(row, [_shown(cell) for cell in row.cells]) for row in table.rows]
    widths = _widths(shown)
    result: list[str] = []
    for row, cells in shown:
        result.append(_line(row, cells, widths))
        if row.header:
            result.append((LINE + CROSS + LINE).join(LINE * size for size in widths))
    return result


def _shown(cell: Cell) -> str:
    return "".join(map(visible, cell.children)).replace("\n", " ")


def _widths(shown: list[tuple[Row, list[str]]]) -> list[int]:
    widths: list[int] = []
    for row, cells in shown:
        widths.extend([0] * (row.start + len(cells) - len(widths)))
        for column, text in enumerate(cells, row.start):
            widths[column] = max(widths[column], min(width(text), WIDEST_COLUMN))
    return widths


def _line(row: Row, cells: list[str], widths: list[int]) -> str:
    pieces: list[str] = []
    for column, (cell, text) in enumerate(zip(row.cells, cells, strict=True), row.start):
        if column and not cell.continued:
            pieces.append("| ")
        pieces.append(text + " " * (widths[column] - width(text) + 1))
    return "".join(pieces).rstrip()
