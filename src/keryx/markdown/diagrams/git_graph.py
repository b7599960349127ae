"""Git graphs of Mermaid as SVG: commits from left to right, one line for each branch."""

import re
from dataclasses import dataclass, field

from keryx.markdown.diagrams.drawing import (
    NotDrawable,
    Point,
    build_label,
    split_lines,
    write_circle,
    write_curve,
    write_line,
    write_svg,
    write_text,
)

_MAX_COMMITS = 100
_MAX_BRANCHES = 12
_STEP = 64.0
_LANE = 56.0
_RADIUS = 8.0
_TONES = 8
_HEADER = re.compile(r"gitGraph(?:\s+(?:LR|TB|BT))?\s*:?\s*\Z")
_COMMAND = re.compile(r"(?P<verb>commit|branch|checkout|switch|merge|cherry-pick)\b\s*(?P<rest>.*)\Z")
_NAME = re.compile(r"(?P<name>\"[^\"]+\"|[\w/.-]+)\s*(?P<rest>.*)\Z")
_OPTION = re.compile(
    r"\s*(?P<name>id|tag|type|msg|order|parent)\s*:\s*(?P<value>\"[^\"]*\"|\w+)|\s*(?P<text>\"[^\"]*\")"
)


@dataclass(slots=True)
class _Commit:
    lane: int
    parents: list[int]
    words: str = ""
    tag: str = ""


@dataclass(slots=True)
class _History:
    commits: list[_Commit] = field(default_factory=list[_Commit])
    # The last commit of each branch, none before the first, in the order of their lines.
    branches: dict[str, int | None] = field(default_factory=lambda: {"main": None})
    current: str = "main"


def draw(text: str) -> str:
    _, lines = split_lines(text, _HEADER)
    history = _History()
    for line in lines:
        found = _COMMAND.match(line)
        if found is None:
            raise NotDrawable
        _run(history, found["verb"], found["rest"])
        if len(history.commits) > _MAX_COMMITS or len(history.branches) > _MAX_BRANCHES:
            raise NotDrawable
    if not history.commits:
        raise NotDrawable
    places = [Point(n * _STEP, commit.lane * _LANE) for n, commit in enumerate(history.commits)]
    used = {commit.lane for commit in history.commits}
    edges: list[str] = []
    shapes: list[str] = []
    points = [Point(0, -30), Point(places[-1].x + _RADIUS, len(history.branches) * _LANE - 16)]
    for lane, name in enumerate(history.branches):
        if lane in used:
            label = build_label(name)
            at = Point(-_RADIUS - 14 - label.width, lane * _LANE)
            edges.append(write_line(Point(-_RADIUS - 8, at.y), Point(places[-1].x, at.y), kind="life"))
            shapes.append(write_text(label, at, kind="caption", anchor="start"))
            points.append(at)
    for n, (commit, at) in enumerate(zip(history.commits, places, strict=True)):
        for parent in commit.parents:
            edges.append(write_curve([places[parent], at], kind="edge", upright=False))
        shapes.append(write_circle(at, _RADIUS, kind=f"slice tone-{commit.lane % _TONES}"))
        words = build_label(commit.words)
        shapes.append(write_text(words, Point(at.x, at.y + _RADIUS + 6 + words.height / 2), kind="label"))
        points += [
            Point(at.x - words.width / 2, at.y),
            Point(at.x + words.width / 2, at.y + words.height + 20),
        ]
        if commit.tag:
            tag = build_label(commit.tag)
            shapes.append(write_text(tag, Point(at.x, at.y - _RADIUS - 4 - tag.height / 2), kind="title"))
            points += [Point(at.x - tag.width, at.y - 30), Point(at.x + tag.width, at.y)]
        if n and not commit.parents:
            raise NotDrawable
    return write_svg([*edges, *shapes], points, kind="flowchart", name=", ".join(history.branches))


def _run(history: _History, verb: str, rest: str) -> None:
    if verb in ("commit", "cherry-pick"):
        options = _read_options(rest)
        _add_commit(history, options.get("id") or options.get("msg") or options.get("text", ""), options)
        return
    found = _NAME.match(rest)
    if found is None:
        raise NotDrawable
    name, options = found["name"].strip('"'), _read_options(found["rest"])
    if verb == "branch":
        if name in history.branches:
            raise NotDrawable
        history.branches[name] = history.branches[history.current]
        history.current = name
    elif name not in history.branches:
        raise NotDrawable
    elif verb == "merge":
        merged = history.branches[name]
        if merged is None or name == history.current:
            raise NotDrawable
        _add_commit(history, options.get("id", ""), options)
        history.commits[-1].parents.append(merged)
    else:
        history.current = name


def _read_options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _OPTION.match(text, at)
        if found is None:
            raise NotDrawable
        options[found["name"] or "text"] = (found["value"] or found["text"]).strip('"')
        at = found.end()
    return options


def _add_commit(history: _History, words: str, options: dict[str, str]) -> None:
    before = history.branches[history.current]
    lane = list(history.branches).index(history.current)
    parents = [] if before is None else [before]
    history.commits.append(_Commit(lane, parents, words, options.get("tag", "")))
    history.branches[history.current] = len(history.commits) - 1
