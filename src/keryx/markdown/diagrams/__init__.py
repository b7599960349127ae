"""Mermaid diagrams as SVG: flowcharts, sequence diagrams and pie charts, as answers of models have them. A diagram with anything else
is not drawn, so that it is shown as it was written."""

import math
import re

from keryx.markdown.diagrams import flowchart, sequence_diagram
from keryx.markdown.diagrams.drawing import (
    LINE_HEIGHT,
    NotDrawable,
    Point,
    build_label,
    format_point,
    write_circle,
    write_path,
    write_rect,
    write_svg,
    write_text,
)

LANGUAGE = "mermaid"
# A longer diagram is shown as it was written.
MAX_DIAGRAM_CHARS = 8_000
_MAX_LINES = 400
_COMMENT = re.compile(r"^\s*%%.*$", re.MULTILINE)
_FRONT_MATTER = re.compile(r"\A\s*---\n.*?\n---\n", re.DOTALL)

# Of pie charts.
_MAX_SLICES = 24
_TONES = 8
_RADIUS = 90.0
_HEADER = re.compile(r"pie(?:\s+(?P<values>showData))?(?:\s+title\s+(?P<title>[^\n]*))?\s*\Z")
_TITLE = re.compile(r"title\s+(?P<title>.*)\Z")
_SLICE = re.compile(r"\"(?P<label>[^\"]*)\"\s*:\s*(?P<value>\d{1,15}(?:\.\d{1,9})?)\Z")


def draw(source: str) -> str | None:
    """Return a diagram as SVG, or `None` if it is too long, of another kind, or not understood to the last line. The time that
    it takes is bounded by the limits of each kind."""
    if len(source) > MAX_DIAGRAM_CHARS or source.count("\n") > _MAX_LINES:
        return None
    text = _COMMENT.sub("", _FRONT_MATTER.sub("", source)).strip()
    for beginning, draw_kind in _KINDS:
        if beginning.match(text):
            try:
                return draw_kind(text)
            except NotDrawable:
                return None
    return None


def _draw_pie_chart(text: str) -> str:
    header, *lines = (line.strip() for line in text.split("\n"))
    found = _HEADER.match(header)
    if found is None:
        raise NotDrawable
    title = found["title"] or ""
    slices: list[tuple[str, float]] = []
    for line in filter(None, lines):
        if named := _TITLE.match(line):
            title = named["title"]
        elif part := _SLICE.match(line):
            slices.append((part["label"], float(part["value"])))
        else:
            raise NotDrawable
    total = sum(value for _, value in slices)
    if not 0 < len(slices) <= _MAX_SLICES or not 0 < total < math.inf:
        raise NotDrawable
    return _draw_slices(title, slices, total, values=bool(found["values"]))


def _draw_slices(title: str, slices: list[tuple[str, float]], total: float, *, values: bool) -> str:
    heading = build_label(title)
    shapes: list[str] = []
    points = [Point(-_RADIUS, -_RADIUS - heading.height - 8), Point(_RADIUS, _RADIUS)]
    if title:
        shapes.append(write_text(heading, Point(0, -_RADIUS - 8 - heading.height / 2), kind="title"))
        points += [Point(-heading.width / 2, -_RADIUS), Point(heading.width / 2, _RADIUS)]
    angle = -math.pi / 2
    left, top = _RADIUS + 32, -len(slices) * (LINE_HEIGHT + 4) / 2
    for n, (name, value) in enumerate(slices):
        end = angle + 2 * math.pi * value / total
        kind = f"slice tone-{n % _TONES}"
        shapes.append(_draw_slice(angle, end, kind=kind))
        angle = end
        share = f"{100 * value / total:.1f}".removesuffix(".0")
        label = build_label(f"{name} ({value:g}, {share} %)" if values else f"{name} ({share} %)")
        shapes.append(write_rect(Point(left, top + 3), 12, 12, kind=kind, radius=2))
        shapes.append(
            write_text(label, Point(left + 20, top + label.height / 2), kind="caption", anchor="start")
        )
        top += label.height + 4
        points.append(Point(left + 20 + label.width, top))
    name = title or ", ".join(name for name, _ in slices)
    return write_svg(shapes, points, kind="pie", name=name)


def _draw_slice(begin: float, end: float, *, kind: str) -> str:
    if end - begin > 2 * math.pi - 0.001:
        return write_circle(Point(0, 0), _RADIUS, kind=kind)
    first = Point(_RADIUS * math.cos(begin), _RADIUS * math.sin(begin))
    last = Point(_RADIUS * math.cos(end), _RADIUS * math.sin(end))
    far = int(end - begin > math.pi)
    arc = f"A{_RADIUS:g} {_RADIUS:g} 0 {far} 1 {format_point(last)}"
    return write_path(f"M0 0L{format_point(first)}{arc}Z", kind=kind)


_KINDS = (
    (re.compile(r"(?:graph|flowchart)\b", re.IGNORECASE), flowchart.draw),
    (re.compile(r"sequenceDiagram\b"), sequence_diagram.draw),
    (re.compile(r"pie\b"), _draw_pie_chart),
)
