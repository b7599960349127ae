"""Pie charts of Mermaid as SVG, with a legend of values and shares."""

import math
import re

from keryx.markdown.diagrams.drawing import (
    LINE_HEIGHT,
    NotDrawable,
    Point,
    build_label,
    format_point,
    split_lines,
    write_circle,
    write_path,
    write_rect,
    write_svg,
    write_text,
)

_MAX_SLICES = 24
_TONES = 8
_RADIUS = 90.0
_HEADER = re.compile(r"pie(?:\s+(?P<values>showData))?(?:\s+title\s+(?P<title>[^\n]*))?\s*\Z")
_TITLE = re.compile(r"title\s+(?P<title>.*)\Z")
_SLICE = re.compile(r"\"(?P<label>[^\"]*)\"\s*:\s*(?P<value>\d{1,15}(?:\.\d{1,9})?)\Z")


def draw(text: str) -> str:
    found, lines = split_lines(text, _HEADER)
    title = found["title"] or ""
    slices: list[tuple[str, float]] = []
    for line in lines:
        if named := _TITLE.match(line):
            title = named["title"]
        elif part := _SLICE.match(line):
            slices.append((part["label"], float(part["value"])))
        else:
            raise NotDrawable
    total = sum(value for _, value in slices)
    if not 0 < len(slices) <= _MAX_SLICES or not 0 < total < math.inf:
        raise NotDrawable
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
        label = build_label(f"{name} ({value:g}, {share} %)" if found["values"] else f"{name} ({share} %)")
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
