"""Flowcharts of Mermaid as SVG: parsed into nodes and edges, laid out in layers, drawn with the usual shapes."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from keryx.markdown.diagrams.drawing import (
    LINE_HEIGHT,
    Label,
    NotDrawable,
    Point,
    build_label,
    write_arrowhead,
    write_circle,
    write_curve,
    write_line,
    write_polygon,
    write_rect,
    write_svg,
    write_text,
    write_tip,
)

_MAX_NODES = 80
_MAX_EDGES = 160
# With the places that long edges take in the layers between.
_MAX_PLACES = 600
_MAX_GROUPS = 12
_SWEEPS = 6
_LAYER_GAP = 44.0
_NODE_GAP = 28.0
_PAD = 12.0
_HEADER = re.compile(
    r"(?:graph|flowchart)(?:-elk)?[ \t]*(?P<direction>TB|TD|BT|LR|RL)?[ \t]*(?:;|\n|\Z)", re.IGNORECASE
)
_IGNORED = re.compile(r"(?:classDef|class|style|linkStyle|click|accTitle|accDescr)\b")
_DIRECTION = re.compile(r"direction\s+(?:TB|TD|BT|LR|RL)\Z")
_GROUP = re.compile(r"subgraph\b\s*(?P<rest>.*)\Z")
_GROUP_NAME = re.compile(r"(?P<id>[\w-]+)\s*\[(?P<title>[^\]]*)\]\Z")
_ID = re.compile(r"[\w\u0080-\U0010ffff]+(?:[-.](?![-.=>])[\w\u0080-\U0010ffff]+)*")
_STYLE = re.compile(r":::[\w-]+")
# What opens a shape, what closes it, and what it looks like. Longer ones first.
_SHAPES = (
    ("(((", ")))", "circle"),
    ("((", "))", "circle"),
    ("([", "])", "round"),
    ("[[", "]]", "box"),
    ("[(", ")]", "round"),
    ("[/", "/]", "slanted"),
    ("[\\", "\\]", "slanted"),
    ("{{", "}}", "hexagon"),
    ("[", "]", "box"),
    ("(", ")", "soft"),
    ("{", "}", "diamond"),
    (">", "]", "box"),
)
_LINK = re.compile(
    r"\s*(?P<start>[<ox](?=[-=]))?"
    r"(?:(?P<open>--|==|-\.)(?:\s+|(?=[^\s=>.|ox-]))"
    r"(?P<text>\"[^\"]*\"|[^|\"\n]{0,240}?[^|\"\n\s=.-])\s*(?P<close>-{2,}|={2,}|\.+-)(?P<close_end>[>ox])?"
    r"|(?P<line>-{2,}|={2,}|-\.+-)(?P<end>[>ox])?"
    r")(?:\s*\|(?P<label>[^|]*)\|)?\s*"
)


@dataclass(slots=True)
class FlowNode:
    label: Label
    shape: str = "box"
    group: str = ""
    # Below the label of a "record", each under a line.
    sections: tuple[Label, ...] = ()


@dataclass(slots=True)
class FlowEdge:
    source: str
    target: str
    label: Label
    kind: str = "edge"
    begins: bool = False
    ends: bool = True
    # What the ends look like.
    begin_tip: str = "head"
    end_tip: str = "head"


@dataclass(slots=True)
class Chart:
    """Nodes and edges, to be laid out in layers. Other kinds of diagrams are drawn as one, too."""

    direction: str
    nodes: dict[str, FlowNode] = field(default_factory=dict[str, FlowNode])
    edges: list[FlowEdge] = field(default_factory=list[FlowEdge])
    # Titles of groups.
    groups: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class _NodeBox:
    """The position of a node in a layer, or of an edge that crosses the layer. `across` and `along` are its sizes."""

    across: float
    along: float
    layer: int = 0
    position: float = 0.0
    group: str = ""
    above: list["_NodeBox"] = field(default_factory=list["_NodeBox"])
    below: list["_NodeBox"] = field(default_factory=list["_NodeBox"])


def draw(text: str) -> str:
    return draw_chart(_parse(text))


def draw_chart(chart: Chart) -> str:
    """Return a chart as SVG. Raise `NotDrawable` for one without nodes, or with too much in it."""
    if not chart.nodes or len(chart.nodes) > _MAX_NODES or len(chart.edges) > _MAX_EDGES:
        raise NotDrawable
    upright = chart.direction in ("TB", "TD", "BT")
    places: dict[str, _NodeBox] = {}
    for name, node in chart.nodes.items():
        width, height = _measure(node)
        across, along = (width, height) if upright else (height, width)
        places[name] = _NodeBox(across, along, group=node.group)
    forward = _order_edges(chart)
    routes = _build_layers(chart, places, forward, upright=upright)
    layers = _sort_layers([*places.values(), *(p for route in routes for p in route[1:-1])])
    _position(layers)
    # How far down the middle of each layer is.
    depths: list[float] = []
    end = 0.0
    for layer in layers:
        thickness = max((p.along for p in layer), default=0.0)
        depths.append(end + thickness / 2)
        end += thickness + _LAYER_GAP
    return _draw_chart(chart, places, forward, routes, depths)


def _parse(text: str) -> Chart:
    header = _HEADER.match(text)
    if header is None:
        raise NotDrawable
    chart = Chart((header["direction"] or "TB").upper())
    open_groups: list[str] = []
    for line in filter(None, (line.strip() for line in re.split(r"[\n;]", text[header.end() :]))):
        if _IGNORED.match(line) or _DIRECTION.match(line):
            continue
        if found := _GROUP.match(line):
            if open_groups:
                # A group within a group has no place of its own in the layers.
                raise NotDrawable
            open_groups.append(_add_group(chart, found["rest"].strip()))
        elif line == "end":
            if not open_groups:
                raise NotDrawable
            open_groups.pop()
        else:
            # A chain of nodes: `A & B -->|text| C[label] --> D`.
            group = open_groups[-1] if open_groups else ""
            before, at = _parse_nodes(chart, line, 0, group)
            while at < len(line):
                link = _LINK.match(line, at)
                if link is None:
                    raise NotDrawable
                after, at = _parse_nodes(chart, line, link.end(), group)
                for source in before:
                    for target in after:
                        chart.edges.append(_build_edge(source, target, link))
                before = after
        if len(chart.nodes) > _MAX_NODES or len(chart.edges) > _MAX_EDGES:
            raise NotDrawable
    if open_groups or any(name in chart.groups for name in chart.nodes):
        raise NotDrawable
    return chart


def _add_group(chart: Chart, rest: str) -> str:
    found = _GROUP_NAME.match(rest)
    name, title = (found["id"], found["title"]) if found else (rest.strip('"'), rest)
    if len(chart.groups) >= _MAX_GROUPS or name in chart.groups:
        raise NotDrawable
    chart.groups[name] = title
    return name


def _build_edge(source: str, target: str, link: re.Match[str]) -> FlowEdge:
    line = link["line"] or link["open"]
    end = link["end"] or link["close_end"]
    kind = "edge dotted" if line.startswith("-.") else "edge thick" if line.startswith("=") else "edge"
    label = build_label(link["label"] or link["text"] or "")
    return FlowEdge(source, target, label, kind, link["start"] == "<", end == ">")


def _parse_nodes(chart: Chart, line: str, at: int, group: str) -> tuple[list[str], int]:
    names: list[str] = []
    while True:
        found = _ID.match(line, at)
        if found is None:
            raise NotDrawable
        name, at = found[0], found.end()
        label, shape, at = _parse_shape(line, at)
        styled = _STYLE.match(line, at)
        at = styled.end() if styled else at
        known = chart.nodes.get(name)
        if known is None:
            known = chart.nodes[name] = FlowNode(build_label(name if label is None else label), shape)
        elif label is not None:
            known.label, known.shape = build_label(label), shape
        if group and not known.group:
            known.group = group
        names.append(name)
        more = re.compile(r"\s*&\s*").match(line, at)
        if more is None:
            return names, at
        at = more.end()


def _parse_shape(line: str, at: int) -> tuple[str | None, str, int]:
    for opening, closing, shape in _SHAPES:
        if not line.startswith(opening, at):
            continue
        begin = at + len(opening)
        if line.startswith('"', begin):
            quote = line.find('"', begin + 1)
            end = line.find(closing, quote + 1) if quote >= 0 else -1
        else:
            end = line.find(closing, begin)
        if end >= 0:
            return line[begin:end], shape, end + len(closing)
    return None, "box", at


def _measure(node: FlowNode) -> tuple[float, float]:
    """Return the width and the height of a node."""
    width, height = max(node.label.width, 12) + 2 * _PAD, max(node.label.height, LINE_HEIGHT) + 2 * _PAD - 4
    match node.shape:
        case "circle":
            size = max(width, height)
            return size, size
        case "diamond":
            return width * 1.5, height * 1.6
        case "hexagon" | "slanted" | "round":
            return width + 16, height
        case "record":
            widest = max((s.width for s in node.sections), default=0.0)
            # The label is larger than other texts.
            return max(1.3 * node.label.width, widest) + 2 * _PAD, height + sum(
                s.height + 8 for s in node.sections
            )
        case "dot" | "ring":
            return 18.0, 18.0
        case "bar":
            return 70.0, 8.0
        case _:
            return width, height


def _order_edges(chart: Chart) -> list[tuple[str, str]]:
    """Return each edge in the direction in which it goes down: those that close a circle are turned round."""
    following: defaultdict[str, list[str]] = defaultdict(list)
    for edge in chart.edges:
        following[edge.source].append(edge.target)
    state: dict[str, int] = {}
    turned: set[tuple[str, str]] = set()
    for root in chart.nodes:
        if root in state:
            continue
        state[root] = 1
        stack: list[tuple[str, Iterator[str]]] = [(root, iter(following[root]))]
        while stack:
            name, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                state[name] = 2
                stack.pop()
            elif state.get(target) == 1:
                turned.add((name, target))
            elif target not in state:
                state[target] = 1
                stack.append((target, iter(following[target])))
    return [
        (e.target, e.source) if (e.source, e.target) in turned else (e.source, e.target) for e in chart.edges
    ]


def _build_layers(
    chart: Chart, places: dict[str, _NodeBox], forward: list[tuple[str, str]], *, upright: bool
) -> list[list[_NodeBox]]:
    """Give each node a layer, and each edge a place in the layers between. An edge with a text has one at least, for the
    text. Return the places that each edge goes through; none for an edge from a node to itself."""
    incoming: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    outgoing: defaultdict[str, list[str]] = defaultdict(list)
    for edge, (high, low) in zip(chart.edges, forward, strict=True):
        if high != low:
            incoming[low].append((high, 2 if edge.label.lines else 1))
            outgoing[high].append(low)
    waiting = {name: len(incoming[name]) for name in places}
    ready = [name for name in places if not waiting[name]]
    for name in ready:
        places[name].layer = max((places[high].layer + step for high, step in incoming[name]), default=0)
        for low in outgoing[name]:
            waiting[low] -= 1
            if not waiting[low]:
                ready.append(low)
    routes: list[list[_NodeBox]] = []
    count = len(places)
    for edge, (high, low) in zip(chart.edges, forward, strict=True):
        if high == low:
            routes.append([])
            continue
        first, last = places[high], places[low]
        between = [_NodeBox(8, 0, layer=n) for n in range(first.layer + 1, last.layer)]
        count += len(between)
        if count > _MAX_PLACES:
            raise NotDrawable
        if edge.label.lines:
            size = (edge.label.width + 8, edge.label.height)
            middle = between[len(between) // 2]
            middle.across, middle.along = size if upright else size[::-1]
        route = [first, *between, last]
        for a, b in pairwise(route):
            a.below.append(b)
            b.above.append(a)
        routes.append(route)
    return routes


def _sort_layers(places: list[_NodeBox]) -> list[list[_NodeBox]]:
    """Order the places of each layer by the mean of their neighbours, back and forth, so that few edges cross. Nodes of a
    group stay together."""
    layers: list[list[_NodeBox]] = [[] for _ in range(max(p.layer for p in places) + 1)]
    for place in places:
        layers[place.layer].append(place)
    for layer in layers:
        _number_places(layer)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            means = {id(p): _find_mean(p.above if down else p.below, p.position) for p in layer}
            by_group: defaultdict[str, list[float]] = defaultdict(list)
            for p in layer:
                by_group[p.group].append(means[id(p)])
            centre = {name: sum(values) / len(values) for name, values in by_group.items() if name}
            layer.sort(key=lambda p: (centre.get(p.group, means[id(p)]), p.group, means[id(p)]))
            _number_places(layer)
    return layers


def _number_places(layer: list[_NodeBox]) -> None:
    for n, place in enumerate(layer):
        place.position = float(n)


def _find_mean(neighbours: list[_NodeBox], otherwise: float) -> float:
    return sum(p.position for p in neighbours) / len(neighbours) if neighbours else otherwise


def _position(layers: list[list[_NodeBox]]) -> None:
    """Move places within their layer towards their neighbours, as far as those beside them allow."""
    for layer in layers:
        at = 0.0
        for place in layer:
            place.position = at + place.across / 2
            at += place.across + _NODE_GAP
        for place in layer:
            place.position -= (at - _NODE_GAP) / 2
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            wanted = [_find_mean(p.above if down else p.below, p.position) for p in layer]
            # Each box as near to what it wants as it can be, in order and without overlaps: the mean of
            # packing from the left and from the right.
            left, right = [0.0] * len(layer), [0.0] * len(layer)
            for n, place in enumerate(layer):
                least = left[n - 1] + (layer[n - 1].across + place.across) / 2 + _NODE_GAP if n else wanted[n]
                left[n] = max(wanted[n], least)
            for n in reversed(range(len(layer))):
                most = (
                    right[n + 1] - (layer[n + 1].across + layer[n].across) / 2 - _NODE_GAP
                    if n + 1 < len(layer)
                    else wanted[n]
                )
                right[n] = min(wanted[n], most)
            for place, a, b in zip(layer, left, right, strict=True):
                place.position = (a + b) / 2


def _draw_chart(
    chart: Chart,
    places: dict[str, _NodeBox],
    forward: list[tuple[str, str]],
    routes: list[list[_NodeBox]],
    depths: list[float],
) -> str:
    upright = chart.direction in ("TB", "TD", "BT")
    sign = -1 if chart.direction in ("BT", "RL") else 1

    def locate(place: _NodeBox, shift: float = 0.0) -> Point:
        along = sign * (depths[place.layer] + shift)
        return Point(place.position, along) if upright else Point(along, place.position)

    centres = {name: locate(place) for name, place in places.items()}
    groups, points = _draw_groups(chart, centres)
    shapes: list[str] = []
    texts: list[str] = []
    for edge, (high, _), route in zip(chart.edges, forward, routes, strict=True):
        if not route:
            shapes.append(_draw_loop(edge, centres[edge.source], _measure(chart.nodes[edge.source])))
            continue
        line = [
            locate(route[0], route[0].along / 2),
            *(locate(p) for p in route[1:-1]),
            locate(route[-1], -route[-1].along / 2),
        ]
        if edge.label.lines:
            middle = locate(route[1:-1][len(route[1:-1]) // 2])
            corner = Point(middle.x - edge.label.width / 2 - 4, middle.y - edge.label.height / 2)
            texts.append(write_rect(corner, edge.label.width + 8, edge.label.height, kind="back", radius=2))
            texts.append(write_text(edge.label, middle, kind="label"))
            points += [corner, Point(middle.x + edge.label.width / 2, middle.y)]
        if edge.source != high:
            line.reverse()
        points += line
        shapes.append(write_curve(line, kind=edge.kind, upright=upright))
        if edge.ends:
            shapes.append(write_tip(line[-1], _approach(line[-1], line[-2], upright=upright), edge.end_tip))
        if edge.begins:
            shapes.append(write_tip(line[0], _approach(line[0], line[1], upright=upright), edge.begin_tip))
    for name, node in chart.nodes.items():
        width, height = _measure(node)
        centre = centres[name]
        texts.append(_draw_node(node, centre, width, height))
        points += [
            Point(centre.x - width / 2, centre.y - height / 2),
            Point(centre.x + width / 2, centre.y + height / 2),
        ]
    name = ", ".join(" ".join(node.label.lines) for node in list(chart.nodes.values())[:20])
    return write_svg([*groups, *shapes, *texts], points, kind="flowchart", name=name)


def _approach(tip: Point, before: Point, *, upright: bool) -> Point:
    """Return a point from which an edge reaches its end: curves arrive upright, or level."""
    return Point(tip.x, before.y) if upright else Point(before.x, tip.y)


def _draw_groups(chart: Chart, centres: dict[str, Point]) -> tuple[list[str], list[Point]]:
    """Draw a box around the nodes of each group. Raise `NotDrawable` if it would take in other nodes."""
    shapes: list[str] = []
    points: list[Point] = []
    boxes: list[tuple[float, float, float, float]] = []
    for group, title in chart.groups.items():
        corners = [
            (centres[name].x + side * size[0] / 2, centres[name].y + side * size[1] / 2)
            for name, node in chart.nodes.items()
            if node.group == group
            for size in [_measure(node)]
            for side in (-1, 1)
        ]
        if not corners:
            continue
        label = build_label(title)
        left, right = min(x for x, _ in corners) - _PAD, max(x for x, _ in corners) + _PAD
        top, bottom = min(y for _, y in corners) - label.height - _PAD, max(y for _, y in corners) + _PAD
        middle = (left + right) / 2
        left, right = min(left, middle - label.width / 2 - 8), max(right, middle + label.width / 2 + 8)
        inside = [name for name, p in centres.items() if left < p.x < right and top < p.y < bottom]
        overlaps = any(left < b[2] and b[0] < right and top < b[3] and b[1] < bottom for b in boxes)
        if overlaps or any(chart.nodes[name].group != group for name in inside):
            raise NotDrawable
        boxes.append((left, top, right, bottom))
        shapes.append(write_rect(Point(left, top), right - left, bottom - top, kind="cluster", radius=6))
        shapes.append(write_text(label, Point(middle, top + 4 + label.height / 2), kind="caption"))
        points += [Point(left, top), Point(right, bottom)]
    return shapes, points


def _draw_loop(edge: FlowEdge, centre: Point, size: tuple[float, float]) -> str:
    right, top = centre.x + size[0] / 2, centre.y - size[1] / 4
    low = centre.y + size[1] / 4
    line = [Point(right, top), Point(right + 24, centre.y), Point(right, low)]
    drawn = write_curve(line, kind=edge.kind, upright=False)
    if edge.ends:
        drawn += write_arrowhead(line[-1], Point(right + 24, low))
    label_at = Point(right + 30, centre.y)
    return drawn + write_text(edge.label, label_at, kind="label", anchor="start")


def _draw_node(node: FlowNode, centre: Point, width: float, height: float) -> str:
    x, y = centre
    left, right, top, bottom = x - width / 2, x + width / 2, y - height / 2, y + height / 2
    match node.shape:
        case "record":
            return _draw_record(node, Point(left, top), width, height)
        case "dot":
            return write_circle(centre, 7, kind="head")
        case "ring":
            return write_circle(centre, 9, kind="node") + write_circle(centre, 5, kind="head")
        case "bar":
            return write_rect(Point(left, top), width, height, kind="head", radius=2)
        case "note":
            shape = write_rect(Point(left, top), width, height, kind="note", radius=2)
        case "circle":
            shape = write_circle(centre, width / 2, kind="node")
        case "diamond":
            shape = write_polygon(
                (Point(x, top), Point(right, y), Point(x, bottom), Point(left, y)), kind="node"
            )
        case "hexagon":
            corners = (
                Point(left + 12, top), Point(right - 12, top), Point(right, y),
                Point(right - 12, bottom), Point(left + 12, bottom), Point(left, y),
            )  # fmt: skip
            shape = write_polygon(corners, kind="node")
        case "slanted":
            corners = (
                Point(left + 12, top),
                Point(right, top),
                Point(right - 12, bottom),
                Point(left, bottom),
            )
            shape = write_polygon(corners, kind="node")
        case "round":
            shape = write_rect(Point(left, top), width, height, kind="node", radius=height / 2)
        case "soft":
            shape = write_rect(Point(left, top), width, height, kind="node", radius=8)
        case _:
            shape = write_rect(Point(left, top), width, height, kind="node", radius=2)
    return shape + write_text(node.label, centre)


def _draw_record(node: FlowNode, corner: Point, width: float, height: float) -> str:
    shapes = [write_rect(corner, width, height, kind="node", radius=2)]
    at = corner.y + height - sum(s.height + 8 for s in node.sections)
    shapes.append(write_text(node.label, Point(corner.x + width / 2, (corner.y + at) / 2), kind="title"))
    for section in node.sections:
        shapes.append(write_line(Point(corner.x, at), Point(corner.x + width, at), kind="edge"))
        middle = Point(corner.x + _PAD, at + 4 + section.height / 2)
        shapes.append(write_text(section, middle, anchor="start"))
        at += section.height + 8
    return "".join(shapes)
