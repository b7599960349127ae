"""The tables of settings in the how-to pages have every setting, and no page tells what does not work."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from keryx.agents.agent_config import AgentConfig, ToolServerConfig
from keryx.agents.llm import Model
from keryx.cli.commands.config import MEANINGS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_NAMES = re.compile(r"`([a-z_-]+)`")
_RELEASED = re.compile(r"(?<!\.)\bkeryx\[[a-z,-]+\]|pip install [\"']?keryx\b")


def list_rows(page: str, head: str) -> set[str]:
    """Return the names in the first cells of the table below a line of a page that begins with `head`."""
    lines = iter((DOCS / "how-to" / page).read_text(encoding="utf-8").splitlines())
    found: set[str] = set()
    for line in lines:
        if line.startswith(head):
            break
    for line in lines:
        if line.startswith("| `"):
            found.update(_NAMES.findall(line.split("|")[1]))
        elif found:
            return found
    return found


@pytest.mark.parametrize(
    ("page", "head", "kind"),
    [
        ("connect-a-model.md", "The settings of a `[[models]]` table", Model),
        ("tools.md", "| setting", ToolServerConfig),
        ("agents.md", "| setting", AgentConfig),
    ],
)
def test_a_table_has_every_setting(page: str, head: str, kind: type[msgspec.Struct]) -> None:
    assert list_rows(page, head) == set(kind.__struct_fields__)


def test_the_meaning_of_agents_names_every_setting() -> None:
    assert set(AgentConfig.__struct_fields__) <= set(_NAMES.findall(MEANINGS["agents"]))


def test_every_extra_has_a_row() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {"dev", "build"}
    assert list_rows("install.md", "| extra") == extras


@pytest.mark.parametrize("page", sorted(p.relative_to(ROOT).as_posix() for p in DOCS.rglob("*.md")))
def test_no_page_tells_to_install_what_is_not_released(page: str) -> None:
    assert not _RELEASED.findall((ROOT / page).read_text(encoding="utf-8"))


def test_no_message_and_no_other_text_does() -> None:
    files = [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "src").rglob("*.js"),
    ]
    assert not [f.name for f in files if _RELEASED.search(f.read_text(encoding="utf-8"))]
