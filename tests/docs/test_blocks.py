"""Every block of code in the README and the docs runs, and prints what the page shows."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
from tests.docs.shell import Shell, agrees, steps
from tests.free_ports import find_free_port

from keryx import config

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
_BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.M | re.S)
_PROGRAM = re.compile(r'^```python(?: title="([\w.]+)")?\n(.*?)^```', re.M | re.S)
KNOWN = {"console", "python", "toml", "text", "json", "sql", "ini", "nginx", "yaml"}


def blocks(page: Path, language: str) -> list[str]:
    return [body for name, body in _BLOCK.findall(page.read_text(encoding="utf-8")) if name == language]


def programs(page: Path) -> list[tuple[str, str]]:
    """The blocks of Python of a page, each with the name of its file: the title, or a number."""
    found = _PROGRAM.findall(page.read_text(encoding="utf-8"))
    return [(name or f"block{number}.py", body) for number, (name, body) in enumerate(found)]


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_block_says_what_it_is(page: Path) -> None:
    names = {name for name, _ in _BLOCK.findall(page.read_text(encoding="utf-8"))}
    assert names <= KNOWN


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", pages_with("console"), ids=title)
def test_the_transcript_is_real(page: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path, port=find_free_port())
    try:
        for body in blocks(page, "console"):
            for command, shown in steps(body):
                real = shell.run(command)
                assert agrees(shown, real), (
                    f"$ {command}\n--- the page shows\n{shown}\n--- it printed\n{real}"
                )
    finally:
        shell.close()


@pytest.mark.parametrize("page", pages_with("python"), ids=title)
def test_the_program_runs(page: Path, tmp_path: Path) -> None:
    for name, body in programs(page):
        program = tmp_path / name
        program.write_text(body, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(program)],
            cwd=tmp_path,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", pages_with("toml"), ids=title)
def test_the_settings_are_valid(page: Path, tmp_path: Path) -> None:
    for body in blocks(page, "toml"):
        tomllib.loads(body)
        (tmp_path / "keryx.toml").write_text(body, encoding="utf-8")
        assert msgspec.to_builtins(config.read({"KERYX_HOME": str(tmp_path)}))
