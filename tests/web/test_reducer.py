"""The page's state: the browser's rule and its twin agree on every fixture, and on events nobody thought of."""

import json
import random
import shutil
import subprocess
from functools import reduce as fold
from pathlib import Path
from typing import Any

import pytest
from tests import left_out
from tests.web import reducer
from tests.web.reducer import EMPTY, Event, State

FOLDER = Path(__file__).parent
FIXTURES = sorted((FOLDER / "fixtures").glob("*.json"))
NODE = shutil.which("node")

needs_node = pytest.mark.skipif(
    not NODE,
    reason=left_out.reason("tests of the browser's rule", why="node is not installed", command=left_out.NODE),
)


def in_browser(*sequences: list[Event]) -> list[State]:
    """The states that the page's own module gives."""
    assert NODE
    ran = subprocess.run(
        [NODE, str(FOLDER / "reduce.mjs")],
        input=json.dumps(sequences),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(ran.stdout)


def in_python(events: list[Event]) -> State:
    return fold(reducer.reduce, events, EMPTY)


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)
def test_the_twin_gives_what_a_fixture_expects(path: Path) -> None:
    fixture = load(path)
    assert in_python(fixture["events"]) == fixture["expected"]


@needs_node
def test_the_page_gives_what_every_fixture_expects() -> None:
    fixtures = [load(path) for path in FIXTURES]
    assert in_browser(*[f["events"] for f in fixtures]) == [f["expected"] for f in fixtures]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)
def test_an_event_that_comes_twice_changes_nothing(path: Path) -> None:
    events = load(path)["events"]
    twice = [again for event in events for again in (event, event)]
    assert in_python(twice) == in_python(events)


@needs_node
def test_both_agree_on_events_in_any_order() -> None:
    rng = random.Random(5)
    pool = [event for path in FIXTURES for event in load(path)["events"]]
    opening = next(e for e in pool if e["type"] == "start")
    sequences = [
        [opening, *rng.choices(pool, k=rng.randrange(5, 60))] if n % 4 else rng.choices(pool, k=30)
        for n in range(300)
    ]
    assert in_browser(*sequences) == [in_python(events) for events in sequences]
