"""Entity relationship diagrams of Mermaid as SVG: entities with their attributes, and how many of each belong together."""

import re

from keryx.markdown.diagrams.drawing import NotDrawable, build_label, build_list, split_lines
from keryx.markdown.diagrams.flowchart import Chart, FlowEdge, FlowNode, draw_chart

_HEADER = re.compile(r"erDiagram\s*\Z")
_IGNORED = re.compile(r"(?:classDef|class|style|accTitle|accDescr)\b")
_DIRECTION = re.compile(r"direction\s+(TB|TD|BT|LR|RL)\Z")
_NAME = r"(?:\"[^\"]+\"|[\w-]+)"
_RELATION = re.compile(
    rf"(?P<source>{_NAME})\s*(?P<first>\|o|\|\||\}}o|\}}\|)(?P<line>--|\.\.)(?P<last>o\||\|\||o\{{|\|\{{)\s*"
    rf"(?P<target>{_NAME})\s*(?::\s*(?P<label>.*))?\Z"
)
_ENTITY = re.compile(
    rf"(?P<id>{_NAME})(?:\s*\[\"?(?P<label>[^\]\"]*)\"?\])?\s*(?P<open>\{{)?(?P<close>\}})?\Z"
)
_ATTRIBUTE = re.compile(
    r"(?P<kind>[\w\[\](),-]+)\s+(?P<name>[*\w\[\]()-]+)\s*(?P<keys>(?:PK|FK|UK)(?:\s*,\s*(?:PK|FK|UK))*)?\s*(?:\"(?P<note>[^\"]*)\")?\Z"
)
# How many there are at an end, by the sign beside it, read from its entity on.
_COUNTS = {"||": "1", "|o": "0..1", "o|": "0..1", "}o": "0..*", "o{": "0..*", "}|": "1..*", "|{": "1..*"}


def draw(text: str) -> str:
    _, lines = split_lines(text, _HEADER)
    chart = Chart("TB")
    attributes: dict[str, list[str]] = {}
    opened = ""
    for line in lines:
        if opened:
            opened = _read_attribute(line, opened, attributes)
        elif found := _RELATION.match(line):
            source, target = (_add(chart, attributes, found[end]) for end in ("source", "target"))
            words = (
                _COUNTS[found["first"]],
                (found["label"] or "").strip().strip('"'),
                _COUNTS[found["last"]],
            )
            kind = "edge dotted" if found["line"] == ".." else "edge"
            chart.edges.append(
                FlowEdge(source, target, build_label(" ".join(filter(None, words))), kind, ends=False)
            )
        elif found := _DIRECTION.match(line):
            chart.direction = found[1]
        elif _IGNORED.match(line):
            continue
        elif found := _ENTITY.match(line):
            name = _add(chart, attributes, found["id"])
            if found["label"]:
                chart.nodes[name].label = build_label(found["label"])
            opened = name if found["open"] and not found["close"] else ""
        else:
            raise NotDrawable
    if opened:
        raise NotDrawable
    for name, node in chart.nodes.items():
        node.sections = (build_list(attributes[name]),) if attributes[name] else ()
    return draw_chart(chart)


def _add(chart: Chart, attributes: dict[str, list[str]], name: str) -> str:
    name = name.strip('"')
    chart.nodes.setdefault(name, FlowNode(build_label(name), "record"))
    attributes.setdefault(name, [])
    return name


def _read_attribute(line: str, entity: str, attributes: dict[str, list[str]]) -> str:
    """Read a line of an entity; return the entity that is still open after it."""
    if line == "}":
        return ""
    found = _ATTRIBUTE.match(line)
    if found is None:
        raise NotDrawable
    note = f"({found['note']})" if found["note"] else ""
    attributes[entity].append(" ".join(filter(None, (found["kind"], found["name"], found["keys"], note))))
    return entity
