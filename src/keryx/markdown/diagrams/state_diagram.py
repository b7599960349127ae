"""State diagrams of Mermaid as SVG: states and transitions, with choices, forks, notes and one level of composite states."""

import re

from keryx.markdown.diagrams.drawing import NotDrawable, build_label, split_lines
from keryx.markdown.diagrams.flowchart import Chart, FlowEdge, FlowNode, draw_chart

_HEADER = re.compile(r"stateDiagram(?:-v2)?\s*\Z")
_IGNORED = re.compile(r"(?:classDef|class|style|hide|scale|accTitle|accDescr)\b")
_DIRECTION = re.compile(r"direction\s+(TB|TD|BT|LR|RL)\Z")
_TRANSITION = re.compile(
    r"(?P<source>\[\*\]|[\w.-]+)\s*-->\s*(?P<target>\[\*\]|[\w.-]+)\s*(?::\s*(?P<label>.*))?\Z"
)
_NAMED = re.compile(r"state\s+\"(?P<label>[^\"]*)\"\s+as\s+(?P<id>[\w.-]+)\s*(?P<open>\{)?\Z")
_KIND = re.compile(r"state\s+(?P<id>[\w.-]+)\s*<<(?P<kind>choice|fork|join)>>\Z")
_COMPOSITE = re.compile(r"state\s+(?P<id>[\w.-]+)\s*(?P<open>\{)?\Z")
_DESCRIBED = re.compile(r"(?P<id>[\w.-]+)\s*:\s*(?P<label>.+)\Z")
_NOTE = re.compile(r"note\s+(?:left|right)\s+of\s+(?P<id>[\w.-]+)\s*(?::\s*(?P<text>.*))?\Z")
_PLAIN = re.compile(r"[\w.-]+\Z")
_SHAPES = {"choice": "diamond", "fork": "bar", "join": "bar"}


def draw(text: str) -> str:
    _, lines = split_lines(text, _HEADER)
    return draw_chart(_StateDiagramReader().read(lines))


class _StateDiagramReader:
    def __init__(self) -> None:
        self._chart = Chart("TB")
        self._group = ""
        self._notes = 0

    def read(self, lines: list[str]) -> Chart:
        note: tuple[str, list[str]] | None = None
        for line in lines:
            if note is not None:
                if line == "end note":
                    self._add_note(note[0], " ".join(note[1]))
                    note = None
                else:
                    note[1].append(line)
            elif (found := _NOTE.match(line)) and found["text"] is None:
                note = (found["id"], [])
            else:
                self._read_line(line)
        if note is not None or self._group or any(name in self._chart.groups for name in self._chart.nodes):
            raise NotDrawable
        return self._chart

    def _read_line(self, line: str) -> None:
        if found := _TRANSITION.match(line):
            source, target = self._add_end(found["source"], "dot"), self._add_end(found["target"], "ring")
            self._chart.edges.append(FlowEdge(source, target, build_label(found["label"] or "")))
        elif found := _DIRECTION.match(line):
            self._chart.direction = self._chart.direction if self._group else found[1]
        elif found := _NAMED.match(line):
            self._name(found["id"], found["label"], bool(found["open"]))
        elif found := _KIND.match(line):
            self._add(found["id"]).shape = _SHAPES[found["kind"]]
        elif found := _COMPOSITE.match(line):
            self._name(found["id"], found["id"], bool(found["open"]))
        elif line == "}" and self._group:
            self._group = ""
        elif found := _NOTE.match(line):
            self._add_note(found["id"], found["text"])
        elif found := _DESCRIBED.match(line):
            self._add(found["id"]).label = build_label(found["label"])
        elif _PLAIN.match(line) and line != "--":
            self._add(line)
        elif not _IGNORED.match(line):
            raise NotDrawable

    def _name(self, name: str, label: str, opened: bool) -> None:
        if not opened:
            self._add(name).label = build_label(label)
            return
        if self._group or name in self._chart.groups:
            # A state within a state within a state has no place of its own in the layers.
            raise NotDrawable
        self._chart.groups[name] = label
        self._group = name

    def _add(self, name: str) -> FlowNode:
        known = self._chart.nodes.setdefault(name, FlowNode(build_label(name), "soft", self._group))
        known.group = known.group or self._group
        return known

    def _add_end(self, name: str, shape: str) -> str:
        """Add one end of a transition; `[*]` is where a diagram, or a composite state, begins or ends."""
        if name == "[*]":
            name = f"[*] {shape} {self._group}"
            self._add(name).label = build_label("")
            self._chart.nodes[name].shape = shape
        else:
            self._add(name)
        return name

    def _add_note(self, name: str, text: str) -> None:
        self._notes += 1
        self._add(name)
        note = f"note {self._notes}"
        self._chart.nodes[note] = FlowNode(build_label(text), "note", self._group)
        self._chart.edges.append(FlowEdge(name, note, build_label(""), "edge dotted", ends=False))
