"""Timelines of Mermaid as SVG: one column for each period, with what happened below it."""

import re

from keryx.markdown.diagrams.drawing import (
    NotDrawable,
    Point,
    build_label,
    split_lines,
    write_line,
    write_rect,
    write_svg,
    write_text,
)

_MAX_EVENTS = 80
_WIDTH = 212.0
_GAP = 12.0
_TONES = 8
_HEADER = re.compile(r"timeline(?:\s+(?:LR|TD))?\s*\Z")
_TITLE = re.compile(r"title\s+(.*)\Z")
_SECTION = re.compile(r"section\s+(.*)\Z")


def draw(text: str) -> str:
    _, lines = split_lines(text, _HEADER)
    title, section = "", ""
    # Each period with the section that it is in and what happened.
    periods: list[tuple[str, str, list[str]]] = []
    for line in lines:
        if found := _TITLE.match(line):
            title = found[1]
        elif found := _SECTION.match(line):
            section = found[1]
        else:
            name, *events = (part.strip() for part in re.split(r"(?:^|\s):\s", line))
            if name:
                periods.append((section, name, events))
            elif periods:
                periods[-1][2].extend(events)
            else:
                raise NotDrawable
    if not periods or sum(1 + len(events) for _, _, events in periods) > _MAX_EVENTS:
        raise NotDrawable
    return _draw_periods(title, periods)


def _draw_periods(title: str, periods: list[tuple[str, str, list[str]]]) -> str:
    shapes: list[str] = []
    width = len(periods) * (_WIDTH + _GAP) - _GAP
    heading = build_label(title)
    points = [Point(0, -heading.height - 34), Point(max(width, heading.width), 0)]
    shapes.append(write_text(heading, Point(0, -34 - heading.height / 2), kind="title", anchor="start"))
    sections = list(dict.fromkeys(section for section, _, _ in periods))
    tallest = max(build_label(name).height for _, name, _ in periods) + 12
    shown = ""
    for n, (section, name, events) in enumerate(periods):
        left = n * (_WIDTH + _GAP)
        if section and section != shown:
            shapes.append(write_text(build_label(section), Point(left, -18), kind="caption", anchor="start"))
        shown = section
        tone = sections.index(section) if section else n
        shapes.append(write_rect(Point(left, 0), _WIDTH, tallest, kind="node", radius=4))
        shapes.append(write_rect(Point(left, 0), _WIDTH, 4, kind=f"slice tone-{tone % _TONES}", radius=2))
        shapes.append(write_text(build_label(name), Point(left + _WIDTH / 2, tallest / 2 + 2), kind="title"))
        at = tallest + _GAP
        for event in events:
            label = build_label(event)
            shapes.append(
                write_rect(Point(left + 6, at), _WIDTH - 12, label.height + 12, kind="node", radius=4)
            )
            shapes.append(write_text(label, Point(left + _WIDTH / 2, at + 6 + label.height / 2)))
            at += label.height + 12 + 6
        points.append(Point(left + _WIDTH, at))
    shapes.append(write_line(Point(0, tallest + _GAP / 2), Point(width, tallest + _GAP / 2), kind="life"))
    return write_svg(
        shapes, points, kind="flowchart", name=title or ", ".join(name for _, name, _ in periods)
    )
