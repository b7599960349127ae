import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from bench.__main__ import BENCHMARKS
from bench.table import Line, line, none_of, show
from tests import left_out
from tests.browser.driver import chromium

_ROOT = Path(__file__).parent.parent
_SECONDS = 250
_RUN_ABOVE = {"receive", "exchange", "queues", "list", "search", "load"}


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", *arguments],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=_SECONDS,
    )
    return done.stdout


def test_a_quick_run_prints_and_saves_every_figure_beside_its_floor(tmp_path: Path) -> None:
    saved = tmp_path / "lines.json"
    shown = run("receive", "exchange", "queues", "--json", str(saved))
    lines = msgspec.json.decode(saved.read_bytes(), type=list[Line])
    assert [found for found in lines if show(found) not in shown] == []
    received = [found for found in lines if found.name == "receive p50"]
    assert [found.size for found in received] == ["10 lanes", "100 lanes", "1,000 lanes"]
    assert all(found.floor and found.ratio and found.ok is not None for found in received)
    assert {"exchange p50", "claim a turn p50", "claim a delivery p50"} <= {found.name for found in lines}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["list", "search", "load"])
def test_the_benchmarks_of_the_main_promises_come_to_an_end_with_figures(name: str) -> None:
    assert any(character.isdigit() for character in run(name).partition("----\n")[2])


@pytest.mark.faults
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name not in _RUN_ABOVE])
def test_every_benchmark_comes_to_an_end_with_figures(name: str) -> None:
    if name == "page" and chromium() is None:
        left_out.skip("the benchmark of the page", why="there is no Chromium", command=left_out.CHROMIUM)
    shown = run(name).partition("----\n")[2]
    assert any(character.isdigit() for character in shown)


def test_a_missed_target_is_shown_as_missed() -> None:
    assert show(line("load", "10", 5, "ms", floor=2, most=2)).endswith("MISS")
    assert show(line("load", "10", 3, "ms", floor=2, most=2)).endswith("ok")
    assert show(line("rate", "10", 3, "/s", floor=2, least=2)).endswith("MISS")
    assert show(line("list", "10", 6, "ms", under=5)).endswith("MISS")
    assert show(none_of("queries", "10", 1)).endswith("MISS")
