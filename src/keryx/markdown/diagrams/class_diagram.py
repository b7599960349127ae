"""Class diagrams of Mermaid as SVG: classes with their members, and the relations between them."""

import re

from keryx.markdown.diagrams.drawing import NotDrawable, build_label, build_list, split_lines
from keryx.markdown.diagrams.flowchart import Chart, FlowEdge, FlowNode, draw_chart

_HEADER = re.compile(r"classDiagram(?:-v2)?\s*\Z")
_IGNORED = re.compile(r"(?:classDef|cssClass|style|click|link|callback|accTitle|accDescr)\b")
_DIRECTION = re.compile(r"direction\s+(TB|TD|BT|LR|RL)\Z")
_NAME = r"[\w.]+(?:~[\w, ~]+~)?"
_CLASS = re.compile(
    rf"class\s+(?P<id>{_NAME})(?:\s*\[\"(?P<label>[^\"]*)\"\])?\s*(?:<<(?P<kind>[\w ]+)>>\s*)?(?P<open>\{{)?(?P<close>\}})?\Z"
)
_KIND = re.compile(rf"<<(?P<kind>[\w ]+)>>\s*(?P<id>{_NAME})?\Z")
_MEMBER = re.compile(rf"(?P<id>{_NAME})\s*:\s*(?P<member>.+)\Z")
_RELATION = re.compile(
    rf"(?P<source>{_NAME})\s*(?:\"(?P<first>[^\"]*)\"\s*)?(?P<begin><\||\*|o|<)?(?P<line>--|\.\.)(?P<end>\|>|\*|o|>)?"
    rf"\s*(?:\"(?P<last>[^\"]*)\"\s*)?(?P<target>{_NAME})\s*(?::\s*(?P<label>.*))?\Z"
)
_TIPS = {"<|": "triangle", "|>": "triangle", "*": "filled", "o": "diamond", "<": "head", ">": "head"}


def draw(text: str) -> str:
    _, lines = split_lines(text, _HEADER)
    return draw_chart(_ClassReader().read(lines))


class _ClassReader:
    def __init__(self) -> None:
        self._chart = Chart("TB")
        self._members: dict[str, list[str]] = {}
        self._kinds: dict[str, str] = {}
        self._open = ""

    def read(self, lines: list[str]) -> Chart:
        for line in lines:
            self._read_line(line)
        if self._open:
            raise NotDrawable
        for name, node in self._chart.nodes.items():
            if kind := self._kinds.get(name):
                node.label = build_label(f"«{kind}»<br>{' '.join(node.label.lines)}")
            members = self._members[name]
            values = [m for m in members if "(" not in m]
            methods = [m for m in members if "(" in m]
            node.sections = tuple(build_list(part) for part in (values, methods) if part)
        return self._chart

    def _read_line(self, line: str) -> None:
        if self._open:
            if line == "}":
                self._open = ""
            elif found := _KIND.match(line):
                self._kinds[self._open] = found["kind"]
            else:
                self._members[self._open].append(_write_generics(line))
        elif found := _CLASS.match(line):
            name = self._add(found["id"])
            if found["label"]:
                self._chart.nodes[name].label = build_label(found["label"])
            if found["kind"]:
                self._kinds[name] = found["kind"]
            self._open = name if found["open"] and not found["close"] else ""
        elif (found := _KIND.match(line)) and found["id"]:
            self._kinds[self._add(found["id"])] = found["kind"]
        elif found := _DIRECTION.match(line):
            self._chart.direction = found[1]
        elif found := _RELATION.match(line):
            self._relate(found)
        elif found := _MEMBER.match(line):
            self._members[self._add(found["id"])].append(_write_generics(found["member"]))
        elif not _IGNORED.match(line):
            raise NotDrawable

    def _add(self, name: str) -> str:
        known, _, generic = name.partition("~")
        if known not in self._chart.nodes:
            self._chart.nodes[known] = FlowNode(build_label(known), "record")
            self._members[known] = []
        if generic:
            self._chart.nodes[known].label = build_label(_write_generics(name))
        return known

    def _relate(self, found: re.Match[str]) -> None:
        words = (found["first"], found["label"], found["last"])
        edge = FlowEdge(
            self._add(found["source"]),
            self._add(found["target"]),
            build_label(" ".join(word.strip() for word in words if word)),
            "edge dotted" if found["line"] == ".." else "edge",
            begins=bool(found["begin"]),
            ends=bool(found["end"]),
        )
        edge.begin_tip, edge.end_tip = _TIPS.get(found["begin"], "head"), _TIPS.get(found["end"], "head")
        self._chart.edges.append(edge)


def _write_generics(text: str) -> str:
    """Return a text with `List~int~` as `List<int>`, and without the signs for static and abstract."""
    text = text.strip().rstrip("$*;").strip()
    while "~" in text:
        before, _, rest = text.partition("~")
        inside, end, after = rest.rpartition("~")
        text = f"{before}<{inside}>{after}" if end else f"{before}{rest}"
    return text
