"""Help: every command explains itself, and the reference says the same."""

import runpy
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cyclopts import App
from tests.cli.driver import Cli

from keryx.cli.commands import app

DOCS = Path(__file__).parents[2] / "docs"


def commands(tree: App, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, child in tree.resolved_commands().items():
        if name.startswith("-"):
            continue
        if child.default_command:
            yield (*path, name)
        yield from commands(child, (*path, name))


COMMANDS = list(commands(app))


def test_alone_it_says_what_to_try(keryx: Cli) -> None:
    out = keryx.ok().out
    for words in ("keryx chat", "keryx serve", "keryx sessions list", "--help"):
        assert words in out


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(keryx: Cli, command: tuple[str, ...]) -> None:
    out = keryx.ok(*command, "--help").out
    name = " ".join(command)
    assert f"\n    keryx {command[0]}" in out or f" keryx {name}" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_the_overview_of_commands_describes_each(keryx: Cli) -> None:
    lines = keryx.ok("--help").out.splitlines()
    for name in {command[0] for command in COMMANDS}:
        (line,) = [line for line in lines if line.startswith(f"│ {name} ")]
        assert len(line.strip("│ ").split()) > 2, line


def test_every_command_that_reads_speaks_json() -> None:
    silent = {("acp",), ("mcp",), ("chat",), ("store", "copy")}
    for command in COMMANDS:
        node = app
        for name in command:
            node = node[name]
        if command not in silent:
            assert "--json" in {n for a in node.assemble_argument_collection() for n in a.names}, command


def test_the_version(keryx: Cli) -> None:
    assert set(keryx.json("version")) == {"keryx", "python", "sqlite", "system"}
    assert keryx.ok("--version").out == keryx.ok("-V").out == keryx.ok("version").out


def test_a_shell_completes_commands(keryx: Cli, tmp_path: Path) -> None:
    script = tmp_path / "completion"
    keryx.variables["HOME"] = str(tmp_path)
    keryx.ok("--install-completion", "--shell", "bash", "--output", str(script))
    done = subprocess.run(
        [
            "bash",
            "--norc",
            "-c",
            f'. "{script}"; COMP_WORDS=(keryx sessions li); COMP_CWORD=2; _keryx; echo "${{COMPREPLY[@]}}"',
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "list\n"


def pages() -> dict[str, Callable[[], str]]:
    found: dict[str, Callable[[], str]] = runpy.run_path(str(DOCS / "generate.py"))["PAGES"]
    return found


@pytest.mark.parametrize("name", list(pages()))
def test_the_reference_is_up_to_date(name: str) -> None:
    written = (DOCS / "reference" / name).read_text(encoding="utf-8")
    assert written == pages()[name](), "run `python docs/generate.py`"
