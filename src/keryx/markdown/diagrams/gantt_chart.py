"""Gantt charts of Mermaid as SVG: tasks as bars over days, by section."""

import re
from dataclasses import dataclass
from datetime import date, timedelta

from keryx.markdown.diagrams.drawing import (
    NotDrawable,
    Point,
    build_label,
    split_lines,
    write_line,
    write_polygon,
    write_rect,
    write_svg,
    write_text,
)

_MAX_TASKS = 60
_MAX_DAYS = 3_650
_WIDTH = 480.0
_ROW = 26.0
_TICKS = 6
_TONES = 8
_HEADER = re.compile(r"gantt\Z")
_TITLE = re.compile(r"title\s+(.*)\Z")
_SECTION = re.compile(r"section\s+(.*)\Z")
_FORMAT = re.compile(r"dateFormat\s+(.*)\Z")
_IGNORED = re.compile(
    r"(?:axisFormat|tickInterval|todayMarker|weekday|weekend|includes|inclusiveEndDates|topAxis|accTitle|accDescr|click)\b"
)
_TASK = re.compile(r"(?P<name>[^:]+):(?P<facts>.*)\Z")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_LENGTH = re.compile(r"(\d{1,4})([dw])\Z")
_AFTER = re.compile(r"after\s+(.+)\Z")
_STATES = {"done", "active", "crit", "milestone"}


@dataclass(slots=True, frozen=True)
class _Task:
    name: str
    section: str
    begin: date
    end: date
    states: frozenset[str]


def draw(text: str) -> str:
    _, lines = split_lines(text, _HEADER)
    title, section = "", ""
    tasks: list[_Task] = []
    ends: dict[str, date] = {}
    for line in lines:
        if found := _TITLE.match(line):
            title = found[1]
        elif found := _SECTION.match(line):
            section = found[1]
        elif found := _FORMAT.match(line):
            if found[1] != "YYYY-MM-DD":
                raise NotDrawable
        elif not _IGNORED.match(line):
            tasks.append(_read_task(line, section, tasks, ends))
    if not 0 < len(tasks) <= _MAX_TASKS:
        raise NotDrawable
    return _draw_tasks(title, tasks)


def _read_task(line: str, section: str, before: list[_Task], ends: dict[str, date]) -> _Task:
    """Read a task. It begins on a day, after others, or after the one before it."""
    found = _TASK.match(line)
    if found is None:
        raise NotDrawable
    facts = [fact.strip() for fact in found["facts"].split(",") if fact.strip()]
    states = frozenset(fact for fact in facts if fact in _STATES)
    facts = [fact for fact in facts if fact not in _STATES]
    if not facts:
        raise NotDrawable
    *others, last = facts
    begin = before[-1].end if before else None
    name = ""
    for fact in others:
        if _DAY.match(fact):
            begin = _parse_day(fact)
        elif after := _AFTER.match(fact):
            known = [ends[other] for other in after[1].split() if other in ends]
            if not known:
                raise NotDrawable
            begin = max(known)
        else:
            name = fact
    if begin is None:
        raise NotDrawable
    if length := _LENGTH.match(last):
        end = _add_days(begin, int(length[1]) * (7 if length[2] == "w" else 1))
    elif _DAY.match(last):
        end = _parse_day(last)
    else:
        raise NotDrawable
    if end < begin:
        raise NotDrawable
    if name:
        ends[name] = end
    return _Task(found["name"].strip(), section, begin, end, states)


def _add_days(day: date, count: int) -> date:
    try:
        return day + timedelta(days=count)
    except OverflowError as exc:
        raise NotDrawable from exc


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as exc:
        raise NotDrawable from exc


def _draw_tasks(title: str, tasks: list[_Task]) -> str:
    first, last = min(task.begin for task in tasks), max(task.end for task in tasks)
    days = (last - first).days or 1
    if days > _MAX_DAYS:
        raise NotDrawable

    def place(day: date) -> float:
        return _WIDTH * (day - first).days / days

    rows = len(tasks) + len({task.section for task in tasks if task.section})
    heading = build_label(title)
    shapes = [write_text(heading, Point(0, -16 - heading.height / 2), kind="title", anchor="start")]
    points = [Point(0, -16 - heading.height), Point(max(_WIDTH + 8, heading.width), rows * _ROW + 28)]
    for day in dict.fromkeys(first + timedelta(days=days * n // _TICKS) for n in range(_TICKS + 1)):
        at = place(day)
        label = build_label(day.isoformat() if days > 300 or day == first else f"{day:%m-%d}")
        shapes.append(write_line(Point(at, 0), Point(at, rows * _ROW), kind="life"))
        shapes.append(write_text(label, Point(at, rows * _ROW + 14), kind="caption"))
        points += [Point(at - label.width / 2, 0), Point(at + label.width / 2, 0)]
    top = 0.0
    section = ""
    sections = list(dict.fromkeys(task.section for task in tasks))
    for task in tasks:
        if task.section and task.section != section:
            label = build_label(task.section)
            shapes.append(write_text(label, Point(0, top + _ROW / 2), kind="caption", anchor="start"))
            points.append(Point(label.width, top))
            top += _ROW
        section = task.section
        left, right = place(task.begin), place(task.end)
        number = sections.index(section) % _TONES
        kind = f"slice tone-{4 if 'crit' in task.states else 7 if 'done' in task.states else number}"
        middle = top + _ROW / 2
        if "milestone" in task.states:
            corners = (
                Point(left - 8, middle), Point(left, middle - 8), Point(left + 8, middle), Point(left, middle + 8),
            )  # fmt: skip
            bar, right = write_polygon(corners, kind=kind), left + 8
        else:
            bar = write_rect(Point(left, top + 4), max(right - left, 2), _ROW - 8, kind=kind, radius=3)
        label = build_label(task.name)
        shapes.append(bar + write_text(label, Point(right + 6, middle), anchor="start"))
        points.append(Point(right + 6 + label.width, top))
        top += _ROW
    return write_svg(shapes, points, kind="flowchart", name=title or ", ".join(task.name for task in tasks))
