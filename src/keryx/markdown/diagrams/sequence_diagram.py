"""Sequence diagrams of Mermaid as SVG: participants, messages, notes, and the frames of loops and alternatives."""

import re
from dataclasses import dataclass, field

from keryx.markdown.diagrams.drawing import (
    LINE_HEIGHT,
    Label,
    NotDrawable,
    Point,
    build_label,
    write_arrowhead,
    write_line,
    write_path,
    write_rect,
    write_svg,
    write_text,
)

_MAX_PARTICIPANTS = 20
_MAX_STEPS = 200
_MAX_DEPTH = 8
_GAP = 40.0
_PAD = 10.0
_NAME = r"[\w .-]*?\w"
_PARTICIPANT = re.compile(
    rf"(?:create\s+)?(?:participant|actor)\s+(?P<id>{_NAME})(?:\s+as\s+(?P<name>.+))?\Z"
)
_MESSAGE = re.compile(
    rf"(?P<from>{_NAME})\s*(?P<arrow><<--?>>|--?>>?|--?x|--?\))\s*[+-]?\s*(?P<to>{_NAME})\s*(?::\s*(?P<text>.*))?\Z"
)
_NOTE = re.compile(
    rf"note\s+(?P<place>over|left\s+of|right\s+of)\s+(?P<first>{_NAME})(?:\s*,\s*(?P<last>{_NAME}))?\s*:\s*(?P<text>.+)\Z",
    re.IGNORECASE,
)
_FRAME = re.compile(r"(?P<kind>loop|alt|opt|par|critical|break|rect)\b\s*(?P<text>.*)\Z")
_NEXT = re.compile(r"(?:else|and|option)\b\s*(?P<text>.*)\Z")
_IGNORED = re.compile(r"(?:activate|deactivate|destroy|autonumber|box|links?)\b.*\Z")
_TITLE = re.compile(r"title\s*:?\s+(?P<title>.*)\Z")


@dataclass(slots=True)
class _Participant:
    label: Label
    x: float = 0.0


@dataclass(slots=True)
class _Frame:
    kind: str
    text: str
    top: float
    depth: int
    parts: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])


@dataclass(slots=True)
class _Message:
    source: str
    target: str
    arrow: str
    label: Label


@dataclass(slots=True)
class _Note:
    place: str
    first: str
    last: str
    label: Label


@dataclass(slots=True)
class _Begin:
    kind: str
    text: str


@dataclass(slots=True)
class _Part:
    text: str


@dataclass(slots=True)
class _End:
    pass


_Step = _Message | _Note | _Begin | _Part | _End


def draw(text: str) -> str:
    people: dict[str, _Participant] = {}
    steps: list[_Step] = []
    title = ""
    for line in filter(None, (line.strip().rstrip(";") for line in text.split("\n")[1:])):
        if named := _TITLE.match(line):
            title = named["title"]
        elif not _IGNORED.match(line):
            steps += _parse_step(line, people)
    if not people or len(people) > _MAX_PARTICIPANTS or len(steps) > _MAX_STEPS:
        raise NotDrawable
    depth = 0
    for step in steps:
        depth += isinstance(step, _Begin) - isinstance(step, _End)
        if not 0 <= depth <= _MAX_DEPTH or (isinstance(step, _Part) and depth == 0):
            raise NotDrawable
    if depth:
        raise NotDrawable
    _place_participants(people, steps)
    return _draw_steps(people, steps, title)


def _parse_step(line: str, people: dict[str, _Participant]) -> list[_Step]:
    """Parse a line. Raise `NotDrawable` for one that is not understood."""
    if found := _PARTICIPANT.match(line):
        people[found["id"]] = _Participant(build_label(found["name"] or found["id"]))
        return []
    if found := _NOTE.match(line):
        first, last = found["first"], found["last"] or found["first"]
        _add(people, first, last)
        place = found["place"].split()[0].lower()
        return [_Note(place, first, last, build_label(found["text"]))]
    if found := _FRAME.match(line):
        return [_Begin(found["kind"], "" if found["kind"] == "rect" else found["text"])]
    if found := _NEXT.match(line):
        return [_Part(found["text"])]
    if line == "end":
        return [_End()]
    found = _MESSAGE.match(line)
    if found is None:
        raise NotDrawable
    _add(people, found["from"], found["to"])
    return [_Message(found["from"], found["to"], found["arrow"], build_label(found["text"] or ""))]


def _add(people: dict[str, _Participant], *names: str) -> None:
    for name in names:
        people.setdefault(name, _Participant(build_label(name)))


def _place_participants(people: dict[str, _Participant], steps: list[_Step]) -> None:
    """Place participants from left to right, so that the texts between neighbours have room."""
    names = list(people)
    rank = {name: n for n, name in enumerate(names)}
    room = [
        (a.label.width + b.label.width) / 2 + _GAP
        for a, b in zip(people.values(), list(people.values())[1:], strict=False)
    ]
    for step in steps:
        if isinstance(step, _Message):
            low, high = sorted((rank[step.source], rank[step.target]))
            spans = range(low, high) if high > low else range(low, min(low + 1, len(room)))
            wanted = step.label.width + 24
        elif isinstance(step, _Note):
            low, high = sorted((rank[step.first], rank[step.last]))
            beside = {"left": range(max(0, low - 1), low), "right": range(low, min(low + 1, len(room)))}
            spans = beside.get(step.place, range(low, high))
            wanted = step.label.width + 2 * _PAD + 24 if step.place != "over" else step.label.width
        else:
            continue
        for n in spans:
            room[n] = max(room[n], wanted / max(1, len(spans)))
    x = 0.0
    for name, space in zip(names, [*room, 0.0], strict=True):
        people[name].x = x
        x += space


def _draw_steps(people: dict[str, _Participant], steps: list[_Step], title: str) -> str:
    box_height = max(p.label.height for p in people.values()) + 2 * _PAD
    left = min(p.x - p.label.width / 2 for p in people.values()) - 2 * _PAD
    right = max(p.x + p.label.width / 2 for p in people.values()) + 2 * _PAD
    shapes: list[str] = []
    frames: list[str] = []
    points: list[Point] = []
    open_frames: list[_Frame] = []
    y = box_height + 16
    for step in steps:
        match step:
            case _Message():
                y += step.label.height + 12
                shapes.append(_draw_message(people, step, y))
                loop = step.source == step.target
                reach = people[step.source].x + (44 + step.label.width if loop else 0)
                points.append(
                    Point(max(reach, people[step.source].x + step.label.width / 2 if loop else reach), y)
                )
                y += 24 if loop else 8
            case _Note():
                corner, width = _place_note(people, step, y + 8)
                height = step.label.height + _PAD
                shapes.append(write_rect(corner, width, height, kind="note", radius=2))
                shapes.append(write_text(step.label, Point(corner.x + width / 2, corner.y + height / 2)))
                points += [corner, Point(corner.x + width, corner.y)]
                y += height + 16
            case _Begin(kind, text):
                open_frames.append(_Frame(kind, text, y + 8, len(open_frames)))
                y += LINE_HEIGHT + 16
            case _Part(text):
                open_frames[-1].parts.append((y + 10, text))
                y += LINE_HEIGHT + 14
            case _End():
                y += 12
                frames.append(_draw_frame(open_frames.pop(), left, right, y))
    bottom = y + 16
    lines = [write_line(Point(p.x, box_height), Point(p.x, bottom), kind="life") for p in people.values()]
    boxes = [
        write_rect(
            Point(p.x - p.label.width / 2 - _PAD, 0),
            p.label.width + 2 * _PAD,
            box_height,
            kind="node",
            radius=4,
        )
        + write_text(p.label, Point(p.x, box_height / 2))
        for p in people.values()
    ]
    heading = build_label(title)
    if title:
        boxes.append(write_text(heading, Point((left + right) / 2, -16 - heading.height / 2), kind="title"))
        points.append(Point(left, -24 - heading.height))
    points += [Point(left - _PAD, 0), Point(right + _PAD, bottom)]
    name = title or ", ".join(" ".join(p.label.lines) for p in people.values())
    return write_svg([*frames, *lines, *boxes, *shapes], points, kind="sequence", name=name)


def _draw_message(people: dict[str, _Participant], step: _Message, y: float) -> str:
    begin, end = Point(people[step.source].x, y), Point(people[step.target].x, y)
    kind = "edge dotted" if step.arrow.startswith(("--", "<<--")) else "edge"
    if step.source == step.target:
        back = Point(end.x, y + 16)
        bend = f"M{begin.x:.1f} {y:.1f}h32v16H{end.x:.1f}"
        label = write_text(step.label, Point(begin.x + 40, y + 8), anchor="start")
        return write_path(bend, kind=kind) + _draw_end(step.arrow, back, Point(end.x + 32, y + 16)) + label
    drawn = write_line(begin, end, kind=kind) + _draw_end(step.arrow, end, begin)
    if step.arrow.startswith("<<"):
        drawn += write_arrowhead(begin, end)
    middle = Point((begin.x + end.x) / 2, y - 4 - step.label.height / 2)
    return drawn + write_text(step.label, middle)


def _draw_end(arrow: str, tip: Point, before: Point) -> str:
    if arrow.endswith("x"):
        cross = f"M{tip.x - 5:.1f} {tip.y - 5:.1f}l10 10m0 -10l-10 10"
        return write_path(cross, kind="edge")
    return write_arrowhead(tip, before) if arrow.endswith((">>", ")")) else ""


def _place_note(people: dict[str, _Participant], note: _Note, y: float) -> tuple[Point, float]:
    """Return the corner and the width of a note."""
    low, high = sorted((people[note.first].x, people[note.last].x))
    width = note.label.width + 2 * _PAD
    if note.place == "left":
        return Point(low - width - 8, y), width
    if note.place == "right":
        return Point(high + 8, y), width
    width = max(width, high - low + 24)
    return Point((low + high - width) / 2, y), width


def _draw_frame(frame: _Frame, left: float, right: float, bottom: float) -> str:
    inset = 6.0 * frame.depth
    corner = Point(left - _PAD + inset, frame.top)
    drawn = write_rect(corner, right - left + 2 * (_PAD - inset), bottom - frame.top, kind="frame", radius=4)
    name = "" if frame.kind == "rect" else frame.kind
    words = build_label(f"{name} [{frame.text}]" if frame.text else name)
    drawn += write_text(
        words, Point(corner.x + 8, frame.top + 4 + words.height / 2), kind="caption", anchor="start"
    )
    for y, text in frame.parts:
        drawn += write_line(Point(corner.x, y), Point(right + _PAD - inset, y), kind="edge dotted")
        label = build_label(f"[{text}]" if text else "")
        drawn += write_text(
            label, Point(corner.x + 8, y + 4 + label.height / 2), kind="caption", anchor="start"
        )
    return drawn
