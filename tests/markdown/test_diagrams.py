"""Diagrams of Mermaid: the common kinds are drawn, their texts are kept, and anything else is left as it was written."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from keryx.markdown import diagrams, html

FLOW = """flowchart TD
    A[Start] --> B{Is it <b>ready</b>?}
    B -->|Yes| C([Ship it<br/>today])
    B -- "No, wait" --> D[(Store)] & E((End))
    D -.-> A
    E ==> E
    click A href "https://a.example"
    style A fill:#f9f
"""
SEQUENCE = """sequenceDiagram
    participant A as Ann
    A->>+B: hello
    alt known
        B-->>-A: hello, Ann
    else not known
        B--xA: who?
    end
    Note right of A: she waits
    A->>A: thinks
"""
PIE = 'pie showData title Pets\n  "Dogs" : 3\n  "Cats & kittens" : 1\n'


STATES = """stateDiagram-v2
    [*] --> Still
    Still --> Moving : push
    Moving --> Still
    state "A long name" as L
    Moving --> L
    note right of L
      careful
    end note
    state pick <<choice>>
    L --> pick
    state Deep {
      a --> b
      b --> [*]
    }
    pick --> a : inside
"""
CLASSES = """classDiagram
    class Animal {
      <<interface>>
      +int age
      +walk(speed) bool
    }
    Animal <|-- Duck : is
    class Box~T~
    Box : +List~int~ items
    Duck "1" o-- "*" Egg : lays
    Duck ..> Egg
"""
ENTITIES = """erDiagram
    CUSTOMER ||--o{ ORDER : places
    ORDER {
        int id PK
        string name "as printed"
    }
    CUSTOMER }|..|{ ADDRESS : "lives at"
"""
MIND = "mindmap\n  root((Centre))\n    Origins\n      Long history\n      ::icon(fa fa-book)\n    id[Pen & paper]\n"
TIME = (
    "timeline\n  title Past\n  section Early\n  2002 : LinkedIn\n  2004 : Facebook : Google\n       : Orkut\n"
)


GIT = """gitGraph
    commit id: "first"
    branch develop
    commit
    checkout main
    commit tag: "v1" type: HIGHLIGHT
    merge develop id: "joined"
"""
GANTT = """gantt
    title Plan
    dateFormat YYYY-MM-DD
    section Build
    Walls :crit, w, 2026-01-01, 10d
    Roof :after w, 1w
    section Move
    Done :milestone, 2026-02-01, 0d
"""


def texts(drawn: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(drawn).iter("text")]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (FLOW, ["Yes", "No, wait", "Start", "Is it <b>ready</b>?", "Ship it", "today", "Store", "End"]),
        (
            SEQUENCE,
            ["Ann", "hello", "hello, Ann", "who?", "she waits", "thinks", "alt [known]", "[not known]"],
        ),
        (PIE, ["Pets", "Dogs (3, 75 %)", "Cats & kittens (1, 25 %)"]),
        (STATES, ["Still", "push", "Moving", "A long name", "careful", "Deep", "a", "b", "inside"]),
        (
            CLASSES,
            [
                "«interface»",
                "Animal",
                "+int age",
                "+walk(speed) bool",
                "is",
                "Box<T>",
                "+List<int> items",
                "1 lays *",
            ],
        ),
        (
            ENTITIES,
            [
                "CUSTOMER",
                "1 places 0..*",
                "int id PK",
                "string name (as printed)",
                "1..* lives at 1..*",
                "ADDRESS",
            ],
        ),
        (MIND, ["Centre", "Origins", "Long history", "Pen & paper"]),
        (TIME, ["Past", "Early", "2002", "LinkedIn", "2004", "Facebook", "Google", "Orkut"]),
        (GIT, ["main", "develop", "first", "v1", "joined"]),
        (GANTT, ["Plan", "Build", "Walls", "Roof", "Move", "Done", "2026-01-01"]),
        ("graph LR\n  subgraph g [Both]\n  a-->b\n  end\n  b-->c", ["Both", "a", "b", "c"]),
    ],
)
def test_a_diagram_is_drawn_with_all_its_texts(source: str, expected: list[str]) -> None:
    drawn = diagrams.draw(source)
    assert drawn is not None
    assert set(expected) <= set(texts(drawn))


def test_nothing_lies_outside_of_the_drawing() -> None:
    for source in (FLOW, SEQUENCE, PIE, STATES, CLASSES, ENTITIES, MIND, TIME, GIT, GANTT):
        drawn = diagrams.draw(source)
        assert drawn is not None
        root = ElementTree.fromstring(drawn)
        left, top, width, height = map(float, root.attrib["viewBox"].split())
        for element in root.iter():
            if "x" in element.attrib:
                assert left <= float(element.attrib["x"]) <= left + width
                assert top <= float(element.attrib["y"]) <= top + height


def test_boxes_of_a_flowchart_do_not_overlap() -> None:
    source = "flowchart TD\n" + "\n".join(f"a{n} --> b{n % 5}\nb{n % 5} --> c{n % 3}" for n in range(12))
    drawn = diagrams.draw(source)
    assert drawn is not None
    boxes = [
        tuple(float(element.attrib[name]) for name in ("x", "y", "width", "height"))
        for element in ElementTree.fromstring(drawn).iter("rect")
        if element.attrib["class"] == "node"
    ]
    assert len(boxes) == 20
    for n, (x, y, w, h) in enumerate(boxes):
        for x2, y2, w2, h2 in boxes[n + 1 :]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


@pytest.mark.parametrize(
    "source",
    [
        "gantt\n  title x",
        "flowchart TD\n  A --> ",
        "flowchart TD\n  A[never closed --> B",
        "flowchart TD\n  subgraph a\n  subgraph b\n  x\n  end\n  end",
        "sequenceDiagram\n  loop x\n  A->>B: y",
        "pie\n  Dogs : 3",
        'pie\n  "Dogs" : 0',
        "flowchart TD\n" + "\n".join(f"a{n} --> b" for n in range(200)),
        "flowchart TD\nA[" + "x" * 500 + "]",
    ],
)
def test_what_is_not_understood_is_shown_as_it_was_written(source: str) -> None:
    assert diagrams.draw(source) is None
    page = html.render(f"```mermaid\n{source}\n```")
    assert page.startswith('<pre class="code" data-language="mermaid"><code>')
    assert "<svg" not in page


@pytest.mark.parametrize(
    "source",
    [
        "stateDiagram-v2\n a --> b\n state c {\n state d {\n e --> f\n }\n }",
        "stateDiagram-v2\n note right of a\n never ends",
        "classDiagram\n class a {\n +b",
        "classDiagram\n namespace n {\n class a\n }",
        "erDiagram\n a ||--|| ",
        "erDiagram\n a {\n int",
        "mindmap\n a\n b",
        "timeline\n : nothing before",
        "gitGraph\n merge nowhere",
        "gitGraph\n",
        "gantt\n a : 2026-02-30, 1d",
        "gantt\n a : 1d",
        "gantt\n a : 0001-01-01, 9999-01-01",
        "gantt\n a : 9999-12-31, 9999d",
    ],
)
def test_other_kinds_are_drawn_whole_or_not_at_all(source: str) -> None:
    assert diagrams.draw(source) is None


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("stateDiagram-v2", "a{n} --> b{n} : {n}"),
        ("classDiagram", "A{n} <|-- B{n} : x"),
        ("classDiagram", "class A~~~~~{n}"),
        ("erDiagram", "A{n} ||--|| B{n} : x"),
        ("mindmap", "  ((((({n}"),
        ("timeline", "{n} : a : b : c"),
        ("gitGraph", 'commit id: "{n}"'),
        ("gantt", "t{n} : 2026-01-01, {n}d"),
    ],
)
def test_too_large_a_diagram_is_not_drawn(header: str, line: str) -> None:
    source = "\n".join([header, *(line.replace("{n}", str(n)) for n in range(300))])
    assert diagrams.draw(source) is None


def test_the_page_keeps_the_source_below_the_drawing_and_has_no_more_than_a_few_drawings() -> None:
    page = html.render(f"```mermaid\n{FLOW}\n```")
    assert page.count("<svg") == 1
    assert "click A href" in page.partition("<details>")[2]
    assert "a.example" not in page.partition("<details>")[0]
    assert re.search(r'viewBox="[-\d. ]+"', page)
    many = html.render(f"```mermaid\n{PIE}{'%%' + 'x' * 3000}\n```\n" * 20)
    assert many.count("<svg") == 6
