"""Mermaid diagrams as SVG, one module for each kind, as answers of models have them. A diagram with anything else is not drawn, so that it is shown as it was written."""

import re

from keryx.markdown.diagrams import (
    class_diagram,
    entity_diagram,
    flowchart,
    gantt_chart,
    git_graph,
    mindmap,
    pie_chart,
    sequence_diagram,
    state_diagram,
    timeline,
)
from keryx.markdown.diagrams.drawing import NotDrawable

LANGUAGE = "mermaid"
# A longer diagram is shown as it was written.
MAX_DIAGRAM_CHARS = 8_000
_MAX_LINES = 400
_COMMENT = re.compile(r"^\s*%%.*$", re.MULTILINE)
_FRONT_MATTER = re.compile(r"\A\s*---\n.*?\n---\n", re.DOTALL)
_KINDS = (
    (re.compile(r"(?:graph|flowchart)\b", re.IGNORECASE), flowchart.draw),
    (re.compile(r"sequenceDiagram\b"), sequence_diagram.draw),
    (re.compile(r"pie\b"), pie_chart.draw),
    (re.compile(r"stateDiagram\b"), state_diagram.draw),
    (re.compile(r"classDiagram\b"), class_diagram.draw),
    (re.compile(r"erDiagram\b"), entity_diagram.draw),
    (re.compile(r"mindmap\b"), mindmap.draw),
    (re.compile(r"timeline\b"), timeline.draw),
    (re.compile(r"gitGraph\b"), git_graph.draw),
    (re.compile(r"gantt\b"), gantt_chart.draw),
)


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
