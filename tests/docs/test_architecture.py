"""The architecture page and the glossary name modules that exist, and the table answers what a newcomer asks."""

import re
from pathlib import Path

import pytest

import keryx

DOCS = Path(__file__).parents[2] / "docs"
SOURCE = Path(keryx.__file__).parent
_PATH = re.compile(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*(?:\.(?:js|py))?)`")

# What a newcomer looks for, in words of the field, and the file that has it.
QUESTIONS = (
    ("lease renewal", "engine/loops/leases.py"),
    ("cron parsing", "core/schedules.py"),
    ("the SSE endpoint", "surfaces/web/stream/endpoint.py"),
    ("unread marks", "store/viewer_state.py"),
    ("the thread pool", "store/db/threads.py"),
    ("LISTEN/NOTIFY", "store/db/notify.py"),
    ("the turn's timeout", "engine/loops/driver.py"),
    ("merging two users", "engine/units/identities.py"),
    ("erasing a person", "engine/units/privacy.py"),
    ("the handler of GET /api/projects", "surfaces/web/routes/projects.py"),
    ("the MCP client", "agents/mcp/mcp_client.py"),
    ("group commit", "store/db/sqlite.py"),
    ("retries of sends", "engine/units/deliveries.py"),
    ("dedupe of received events", "store/inbox.py"),
    ("row mapper", "store/db/rows.py"),
    ("LRU cache", "core/cache.py"),
    ("wake-up signal", "timing.py"),
    ("back-off", "core/durations.py"),
    ("texts and languages", "core/texts/english.py"),
    ("Markdown to HTML, sanitising", "markdown/html.py"),
    ("code highlighting", "markdown/highlight.py"),
    ("titles of conversations", "core/sessions.py"),
    ("voice messages", "agents/llm/speech.py"),
    ("the local model", "agents/llm/local_model.py"),
    ("JSON of the API", "surfaces/web/presenters.py"),
    ("the OpenAPI document", "surfaces/web/openapi.py"),
    ("rendering of an answer while it grows", "surfaces/web/stream/incremental_renderer.py"),
    ("steering and stopping a turn", "engine/loops/mailbox.py"),
    ("splitting a delivery", "engine/loops/delivery_parts.py"),
    ("checks of keryx doctor", "cli/commands/doctor.py"),
    ("tags", "store/projects.py"),
    ("keys of programs", "store/api_turns.py"),
)
# Words that say nothing about the subject.
_FILLERS = {"a", "and", "of", "or", "the", "to"}


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


@pytest.mark.parametrize(("question", "answer"), QUESTIONS)
def test_a_row_with_the_words_of_a_question_names_the_file(question: str, answer: str) -> None:
    words = set(re.findall(r"[\w/'-]+", question.lower())) - _FILLERS
    fitting = [
        cells
        for cells in rows("architecture.md")
        if words <= set(re.findall(r"[\w/'-]+", cells[0].lower() + " " + cells[1].lower()))
    ]
    assert any(f"`{answer}`" in cells[1] for cells in fitting), [cells[0] for cells in fitting]
