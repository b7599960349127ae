"""What diagrams are drawn with: shapes and texts of SVG with their estimated sizes. Shapes are outlines in the colour of the text; a style sheet may fill them."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from textwrap import TextWrapper
from typing import NamedTuple

LINE_HEIGHT = 18.0
_CHAR_WIDTH = 7.3
_MAX_LINE_CHARS = 26
_MAX_LABEL_CHARS = 240
_MAX_LABEL_LINES = 10
_MAX_LIST_LINES = 30
_MAX_LIST_CHARS = 60
_BREAK = re.compile(r"<br\s*/?>|\\n", re.IGNORECASE)
_WRAPPER = TextWrapper(_MAX_LINE_CHARS, break_long_words=False, break_on_hyphens=False)
_HEAD = 8.0
_MARGIN = 8.0


class NotDrawable(Exception):
    """The source has something that cannot be drawn, or too much of it."""


def split_lines(text: str, header: re.Pattern[str]) -> tuple[re.Match[str], list[str]]:
    """Return what the first line matches, and the other lines without those that are blank. Raise `NotDrawable` if the first
    line is another one."""
    first, *lines = (line.strip() for line in text.split("\n"))
    found = header.match(first)
    if found is None:
        raise NotDrawable
    return found, [line for line in lines if line]


class Point(NamedTuple):
    x: float
    y: float


class Label(NamedTuple):
    """A text in lines, with the size that it takes."""

    lines: tuple[str, ...]
    width: float
    height: float


def build_label(text: str) -> Label:
    """Break a text into lines. Raise `NotDrawable` for one that is too long."""
    text = text.strip().strip("`").strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1].strip().strip("`")
    if len(text) > _MAX_LABEL_CHARS:
        raise NotDrawable
    parts = (" ".join(part.split()) for part in _BREAK.split(text))
    lines = [line for part in parts for line in _WRAPPER.wrap(part)]
    if len(lines) > _MAX_LABEL_LINES:
        raise NotDrawable
    width = max((_measure(line) for line in lines), default=0.0)
    return Label(tuple(lines), width, LINE_HEIGHT * len(lines))


def _measure(text: str) -> float:
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return _CHAR_WIDTH * (len(text) + 0.8 * wide)


def write_svg(shapes: Iterable[str], points: Sequence[Point], *, kind: str, name: str) -> str:
    """Return a drawing that has room for all points. `name` is read to those who do not see it."""
    left = min((p.x for p in points), default=0.0) - _MARGIN
    top = min((p.y for p in points), default=0.0) - _MARGIN
    width = max((p.x for p in points), default=0.0) + _MARGIN - left
    height = max((p.y for p in points), default=0.0) + _MARGIN - top
    box = f"{_number(left)} {_number(top)} {_number(width)} {_number(height)}"
    return (
        f'<svg class="diagram {kind}" viewBox="{box}" width="{_number(width)}" height="{_number(height)}" role="img" '
        f'aria-label="{escape(name)}">{"".join(shapes)}</svg>'
    )


def write_text(label: Label, at: Point, *, kind: str = "", anchor: str = "middle") -> str:
    """Return a text around a point."""
    top = at.y - label.height / 2 + LINE_HEIGHT * 0.72
    return "".join(
        f'<text{_class(kind)} x="{_number(at.x)}" y="{_number(top + n * LINE_HEIGHT)}" text-anchor="{anchor}" '
        f'font-size="13" fill="currentColor">{escape(line)}</text>'
        for n, line in enumerate(label.lines)
    )


def write_rect(corner: Point, width: float, height: float, *, kind: str, radius: float = 0) -> str:
    size = f'width="{_number(width)}" height="{_number(height)}" rx="{_number(radius)}"'
    return f'<rect{_class(kind)} x="{_number(corner.x)}" y="{_number(corner.y)}" {size} {_OUTLINE}></rect>'


def write_circle(centre: Point, radius: float, *, kind: str) -> str:
    at = f'cx="{_number(centre.x)}" cy="{_number(centre.y)}" r="{_number(radius)}"'
    return f"<circle{_class(kind)} {at} {_OUTLINE}></circle>"


def write_polygon(points: Iterable[Point], *, kind: str) -> str:
    corners = " ".join(f"{_number(p.x)},{_number(p.y)}" for p in points)
    return f'<polygon{_class(kind)} points="{corners}" {_OUTLINE}></polygon>'


def write_path(commands: str, *, kind: str) -> str:
    return f'<path{_class(kind)} d="{commands}" {_OUTLINE}></path>'


def write_line(begin: Point, end: Point, *, kind: str) -> str:
    return write_path(f"M{format_point(begin)}L{format_point(end)}", kind=kind)


def write_curve(points: Sequence[Point], *, kind: str, upright: bool) -> str:
    """Return a smooth line through points. Between two of them it leaves and arrives upright, or level."""
    parts = [f"M{format_point(points[0])}"]
    for a, b in pairwise(points):
        middle = Point((a.x + b.x) / 2, (a.y + b.y) / 2)
        first, second = (
            (Point(a.x, middle.y), Point(b.x, middle.y))
            if upright
            else (Point(middle.x, a.y), Point(middle.x, b.y))
        )
        parts.append(f"C{format_point(first)} {format_point(second)} {format_point(b)}")
    return write_path("".join(parts), kind=kind)


def write_arrowhead(tip: Point, before: Point) -> str:
    """Return the head of an arrow that comes from a point."""
    dx, dy = tip.x - before.x, tip.y - before.y
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    ux, uy = dx / length, dy / length
    base = Point(tip.x - ux * _HEAD, tip.y - uy * _HEAD)
    half = _HEAD * 0.45
    sides = (Point(base.x - uy * half, base.y + ux * half), Point(base.x + uy * half, base.y - ux * half))
    return write_polygon((tip, *sides), kind="head")


def write_tip(tip: Point, before: Point, shape: str) -> str:
    """Return the end of an edge that comes from a point: a "head", a "triangle", a "diamond", or a "filled" one."""
    if shape == "head":
        return write_arrowhead(tip, before)
    dx, dy = tip.x - before.x, tip.y - before.y
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    ux, uy = dx / length, dy / length
    back = Point(tip.x - ux * 12, tip.y - uy * 12)
    if shape == "triangle":
        sides = (Point(back.x - uy * 7, back.y + ux * 7), Point(back.x + uy * 7, back.y - ux * 7))
        return write_polygon((tip, *sides), kind="node")
    middle = Point(tip.x - ux * 8, tip.y - uy * 8)
    end = Point(tip.x - ux * 16, tip.y - uy * 16)
    corners = (
        tip,
        Point(middle.x - uy * 5, middle.y + ux * 5),
        end,
        Point(middle.x + uy * 5, middle.y - ux * 5),
    )
    return write_polygon(corners, kind="head" if shape == "filled" else "node")


def build_list(lines: Iterable[str]) -> Label:
    """Return lines of a list as one text, each on a line of its own. Raise `NotDrawable` for too many or too long ones."""
    shown = tuple(line.strip() for line in lines)
    if len(shown) > _MAX_LIST_LINES or any(len(line) > _MAX_LIST_CHARS for line in shown):
        raise NotDrawable
    return Label(shown, max((_measure(line) for line in shown), default=0.0), LINE_HEIGHT * len(shown))


def format_point(point: Point) -> str:
    return f"{_number(point.x)} {_number(point.y)}"


_OUTLINE = 'fill="none" stroke="currentColor"'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
