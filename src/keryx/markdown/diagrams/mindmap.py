"""Mind maps of Mermaid as SVG: a tree by indentation, from left to right."""

import re

from keryx.markdown.diagrams.drawing import NotDrawable, build_label
from keryx.markdown.diagrams.flowchart import Chart, FlowEdge, FlowNode, draw_chart

_DECORATION = re.compile(r"\s*(?:::icon\([^)]*\)|:::.*)\Z")
# What opens a shape, what closes it, and what it looks like. Longer ones first.
_SHAPES = (
    ("))", "((", "round"),
    ("((", "))", "circle"),
    ("{{", "}}", "hexagon"),
    ("[", "]", "box"),
    (")", "(", "round"),
    ("(", ")", "soft"),
)
_NODE = re.compile(r"(?P<id>[^\[({)]*)(?P<shape>[\[({)].*)?\Z")


def draw(text: str) -> str:
    header, *lines = text.split("\n")
    if header.strip() != "mindmap":
        raise NotDrawable
    chart = Chart("LR")
    # The branch that ends at the last node, by indentation.
    branch: list[tuple[int, str]] = []
    for line in lines:
        if not line.strip() or _DECORATION.match(line):
            continue
        depth = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
        while branch and branch[-1][0] >= depth:
            branch.pop()
        if chart.nodes and not branch:
            raise NotDrawable
        name = f"n{len(chart.nodes)}"
        chart.nodes[name] = _read_node(line.strip())
        if branch:
            chart.edges.append(FlowEdge(branch[-1][1], name, build_label(""), ends=False))
        branch.append((depth, name))
    return draw_chart(chart)


def _read_node(text: str) -> FlowNode:
    found = _NODE.match(text)
    for opening, closing, shape in _SHAPES if found and found["shape"] else ():
        inside = found["shape"] if found else ""
        if (
            inside.startswith(opening)
            and inside.endswith(closing)
            and len(inside) > len(opening) + len(closing)
        ):
            return FlowNode(build_label(inside[len(opening) : -len(closing)]), shape)
    return FlowNode(build_label(text), "soft")
