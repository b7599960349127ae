"""Real programs talk to a fake model, and what they wrote is imported. Each test runs where its program is installed."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.importers.fake_model import ANSWER, TOOL_ANSWER, serve_model
from tests.importers.real_programs import REAL_PROGRAMS, Place, find_program
from tests.importers.test_programs import ON_SQLITE, count, list_sessions, read_messages, read_tables, take
from tests.web import open_webui
from tests.web.open_webui import Chat

from keryx.core.messages import Role
from keryx.importers.conversation import ImportLog
from keryx.store.admin.verify import verify
from keryx.store.db import Database

TOOL_TALK = [
    (Role.USER, "hello there"),
    (Role.ASSISTANT, ANSWER),
    (Role.USER, "please use-tool now"),
    (Role.ASSISTANT, ""),
    (Role.TOOL, ""),
    (Role.ASSISTANT, TOOL_ANSWER),
]
# Of programs in which the model is not offered a shell by its name.
PLAIN_TALK = [*TOOL_TALK[:2], (Role.USER, "one more thing"), (Role.ASSISTANT, ANSWER)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with serve_model() as model:
        yield Place(tmp_path / "home", model)


def talk_with_claude(place: Place) -> Path:
    env = place.set_up_claude()
    place.run("claude", "-p", "hello there", **env)
    place.run("claude", "-c", "-p", "please use-tool now", "--dangerously-skip-permissions", **env)
    return place.home / ".claude/projects"


def talk_with_codex(place: Place) -> Path:
    env = place.set_up_codex()
    place.run("codex", "exec", "--skip-git-repo-check", "hello there", **env)
    place.run("codex", "exec", "--skip-git-repo-check", "resume", "--last", "please use-tool now", **env)
    return place.home / ".codex"


def talk_with_opencode(place: Place) -> Path:
    place.set_up_opencode()
    place.run("opencode", "run", "hello there")
    place.run("opencode", "run", "-c", "please use-tool now")
    return place.home / ".local/share/opencode"


def talk_with_hermes(place: Place) -> Path:
    model = {"default": "fake", "provider": "custom", "base_url": f"{place.model}/v1", "api_key": "x", "context_length": 200000}  # fmt: skip
    place.write(".hermes/config.yaml", {"model": model})
    env = {"HERMES_HOME": str(place.home / ".hermes")}
    place.run("hermes", "chat", "-q", "hello there", "-Q", **env)
    place.run("hermes", "chat", "-c", "-q", "please use-tool now", "-Q", "--yolo", **env)
    return place.home / ".hermes"


def talk_with_pi(place: Place) -> Path:
    model = {"id": "fake", "name": "fake", "input": ["text"], "contextWindow": 100000, "maxTokens": 4000, "reasoning": False, "cost": {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0}}  # fmt: skip
    rig = {"baseUrl": f"{place.model}/v1", "api": "openai-completions", "apiKey": "x", "models": [model]}
    place.write(".pi/agent/models.json", {"providers": {"rig": rig}})
    place.run("pi", "--provider", "rig", "--model", "fake", "-p", "hello there")
    place.run("pi", "--provider", "rig", "--model", "fake", "-c", "-p", "please use-tool now")
    return place.home / ".pi/agent/sessions"


def talk_with_qwen(place: Place) -> Path:
    env = place.set_up_qwen()
    place.run("qwen", "-p", "hello there", **env)
    place.run("qwen", "-y", "-c", "-p", "please use-tool now", **env)
    return place.home / ".qwen/projects"


def talk_with_gemini(place: Place) -> Path:
    env = place.set_up_gemini()
    place.run("gemini", "-p", "hello there", "--skip-trust", **env)
    words = ("-y", "-p", "please use-tool now", "--resume", "latest", "--skip-trust")
    place.run("gemini", *words, **env)
    return place.home / ".gemini/tmp"


def talk_with_goose(place: Place) -> Path:
    env = place.set_up_goose()
    place.run("goose", "run", "-n", "demo", "--with-builtin", "developer", "-t", "hello there", **env)
    words = ("-n", "demo", "-r", "--with-builtin", "developer", "-t", "please use-tool now")
    place.run("goose", "run", *words, **env)
    return place.home / ".local/share/goose/sessions"


def talk_with_openclaw(place: Place) -> Path:
    place.set_up_openclaw()
    for text in ("hello there", "one more thing"):
        place.run("openclaw", "agent", "--local", "--session-id", "t1", "--message", text, "--json")
    return place.home / ".openclaw"


def talk_with_open_webui(place: Place) -> Path:
    open_webui.require()
    folder = place.home / "open-webui"
    with open_webui.serving(folder, f"{place.model}/v1") as program:
        chat = Chat(program, model="fake")
        for text in ("hello there", "one more thing"):
            chat.ask(text)
            chat.wait()
    return folder / "webui.db"


PROGRAMS: dict[str, Callable[[Place], Path]] = {
    "claude-code": talk_with_claude,
    "codex": talk_with_codex,
    "opencode": talk_with_opencode,
    "hermes": talk_with_hermes,
    "pi": talk_with_pi,
    "qwen": talk_with_qwen,
    "goose": talk_with_goose,
    "gemini": talk_with_gemini,
    "openclaw": talk_with_openclaw,
    "open-webui": talk_with_open_webui,
}
WITHOUT_TOOLS = ("openclaw", "open-webui")


@pytest.mark.parametrize("name", sorted(REAL_PROGRAMS))
def test_a_real_program_starts(name: str) -> None:
    """Programs that are not installed are left out of `make faults`, and named."""
    assert os.access(find_program(name), os.X_OK)


@pytest.mark.faults
@pytest.mark.timeout(900)
@ON_SQLITE
@pytest.mark.parametrize("name", list(PROGRAMS))
async def test_what_a_real_program_wrote_is_imported_whole_and_once(
    database: Database, place: Place, name: str
) -> None:
    source = PROGRAMS[name](place)
    log = ImportLog()
    report = await take(database, name, source, log=log)
    expected = PLAIN_TALK if name in WITHOUT_TOOLS else TOOL_TALK
    assert log.damages == []
    assert not [what for what in log.losses if "of type" in what], log.losses
    found = [s for s in await database.read("test", list_sessions) if s.messages >= len(expected)]
    assert len(found) == 1
    said = await read_messages(database, found[0].id)
    # What an answer says before it calls a tool is its own affair.
    shown = [(m.role, "" if m.calls or m.role is Role.TOOL else m.text.strip('"')) for m in said]
    assert shown == expected
    results = [m for m in said if "tool-ran" in str(m.parts) and m.role is Role.TOOL]
    assert len(results) == report.tool_calls == (0 if name in WITHOUT_TOOLS else 1)
    assert found[0].tokens.output > 0
    assert await verify(database) == []
    before = await read_tables(database)
    assert set(count(await take(database, name, source))) <= {"unchanged"}
    assert await read_tables(database) == before
