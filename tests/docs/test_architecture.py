"""The architecture page and the glossary name modules that exist."""

import re
from pathlib import Path

import pytest

import keryx

DOCS = Path(__file__).parents[2] / "docs"
SOURCE = Path(keryx.__file__).parent
_PATH = re.compile(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*(?:\.py)?)`")


def rows(page: str) -> list[list[str]]:
    """Return the cells of every row of every table, without the head."""
    text = (DOCS / "explanation" / page).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


@pytest.mark.parametrize("page", ["architecture.md", "glossary.md"])
def test_every_row_names_modules_that_exist(page: str) -> None:
    table = rows(page)
    assert len(table) > 25
    for cells in table:
        paths: list[str] = _PATH.findall(cells[-1])
        assert paths, cells
        assert not [path for path in paths if not (SOURCE / path).exists()], cells


def test_every_path_in_the_text_exists() -> None:
    text = (DOCS / "explanation/architecture.md").read_text(encoding="utf-8")
    paths = [path for path in _PATH.findall(text) if "/" in path]
    assert not [path for path in paths if not (SOURCE / path).exists()]
