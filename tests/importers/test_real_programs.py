"""Real programs talk to a fake model, and what they wrote is imported. Each test runs where its program is installed."""

import json
import os
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.free_ports import find_free_port
from tests.importers.fake_model import ANSWER, TOOL_ANSWER, serve_model
from tests.importers.real_programs import REAL_PROGRAMS, Place, find_program
from tests.importers.test_growth import model_texts
from tests.importers.test_programs import ON_SQLITE, count, list_sessions, read_messages, read_tables, take
from tests.web import open_webui
from tests.web.open_webui import Chat

from keryx.core.messages import Role
from keryx.importers.conversation import ImportLog
from keryx.store.admin.verify import verify
from keryx.store.db import Database
from keryx.store.db.sqlite import SqliteDatabase

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
    assert datetime.now(UTC) - found[0].created_at < timedelta(hours=1)
    assert all(found[0].created_at - timedelta(seconds=5) <= m.at <= datetime.now(UTC) for m in said)
    assert await verify(database) == []
    before = await read_tables(database)
    assert set(count(await take(database, name, source))) <= {"unchanged"}
    assert await read_tables(database) == before


def go_on_with_claude(place: Place) -> Iterator[str]:
    env = place.set_up_claude()
    for text in ("one more thing", "/compact", "and now?"):
        yield place.run("claude", "-c", "-p", text, **env)
    # What was compacted is not in the file of the fork.
    yield place.run("claude", "-c", "--fork-session", "-p", "another way", **env)


def go_on_with_codex(place: Place) -> Iterator[str]:
    env = place.set_up_codex()
    start = ("codex", "exec", "--skip-git-repo-check")
    yield place.run(*start, "resume", "--last", "one more thing", **env)
    compact = ("-c", "model_auto_compact_token_limit=100")
    yield place.run(*start, *compact, "resume", "--last", "and now?", **env)
    [file] = (place.home / ".codex/sessions").rglob("rollout-*.jsonl")
    yield place.run(*start, "fork", file.stem[-36:], "another way", **env)


def go_on_with_opencode(place: Place) -> Iterator[str]:
    yield place.run("opencode", "run", "-c", "one more thing")
    with closing(sqlite3.connect(place.home / ".local/share/opencode/opencode.db")) as connection:
        [(session,)] = connection.execute("select id from session").fetchall()
    yield place.run("opencode", "run", "--session", session, "--fork", "another way")
    yield compact_opencode(place, session)
    yield place.run("opencode", "run", "--session", session, "and now?")


def compact_opencode(place: Place, session: str) -> str:
    """Only its screen and its server can compact a session."""
    port = find_free_port()
    program = subprocess.Popen(
        [find_program("opencode"), "serve", "--port", str(port)],
        cwd=place.work,
        env={"HOME": str(place.home), "PATH": os.environ["PATH"], "CI": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/session", timeout=10).close()
                break
            except OSError:
                assert time.monotonic() < until and program.poll() is None
                time.sleep(0.2)
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/session/{session}/summarize",
            data=json.dumps({"providerID": "rig", "modelID": "fake"}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()
    finally:
        program.terminate()
        program.wait(20)


def go_on_with_goose(place: Place) -> Iterator[str]:
    env = place.set_up_goose()
    for text in ("one more thing", "/compact", "and now?"):
        yield place.run("goose", "run", "-n", "demo", "-r", "-t", text, **env)


def go_on_with_pi(place: Place) -> Iterator[str]:
    start = ("pi", "--provider", "rig", "--model", "fake")
    yield place.run(*start, "-c", "-p", "one more thing")
    [file] = (place.home / ".pi/agent/sessions").rglob("*.jsonl")
    yield place.run(*start, "--fork", str(file), "-p", "another way")


def go_on_with_qwen(place: Place) -> Iterator[str]:
    yield place.run("qwen", "-c", "-p", "one more thing", **place.set_up_qwen())


def go_on_with_gemini(place: Place) -> Iterator[str]:
    env = place.set_up_gemini()
    for text in ("one more thing", "and now?"):
        yield place.run("gemini", "-p", text, "--resume", "latest", "--skip-trust", **env)


def go_on_with_hermes(place: Place) -> Iterator[str]:
    env = {"HERMES_HOME": str(place.home / ".hermes")}
    yield place.run("hermes", "chat", "-c", "-q", "one more thing", "-Q", **env)


def go_on_with_openclaw(place: Place) -> Iterator[str]:
    yield place.run("openclaw", "agent", "--local", "--session-id", "t1", "--message", "and now?", "--json")


# How each goes on, and the forks and compactions in it.
FURTHER: dict[str, tuple[Callable[[Place], Iterator[str]], int, int]] = {
    # The fork has the compaction, too.
    "claude-code": (go_on_with_claude, 1, 2),
    "codex": (go_on_with_codex, 1, 2),
    "opencode": (go_on_with_opencode, 1, 1),
    "goose": (go_on_with_goose, 0, 1),
    "pi": (go_on_with_pi, 1, 0),
    "qwen": (go_on_with_qwen, 0, 0),
    "gemini": (go_on_with_gemini, 0, 0),
    "hermes": (go_on_with_hermes, 0, 0),
    "openclaw": (go_on_with_openclaw, 0, 0),
}


async def describe(database: Database) -> list[object]:
    """What is stored of each session, without ids."""
    found = await database.read("test", list_sessions)
    places = {session.id: n for n, session in enumerate(found)}
    described: list[object] = []
    for n, session in enumerate(found):
        said = [(m.role, m.text, m.undone, m.epoch) for m in await read_messages(database, session.id)]
        parent = session.parent and (places[session.parent], session.parent_seq)
        described.append((parent, session.tokens, said, await model_texts(database, n)))
    return described


@pytest.mark.faults
@pytest.mark.timeout(900)
@ON_SQLITE
@pytest.mark.parametrize("name", list(FURTHER))
async def test_what_a_real_program_adds_comes_alone_with_forks_and_compactions(
    database: Database, place: Place, tmp_path: Path, name: str
) -> None:
    """Imported step by step, it is what a single import at the end brings."""
    source = PROGRAMS[name](place)
    await take(database, name, source)
    go_on, forks, compactions = FURTHER[name]
    added = [0, 0]
    for _ in go_on(place):
        log = ImportLog()
        report = await take(database, name, source, log=log)
        assert log.damages == []
        assert report.created + report.extended == 1
        assert report.messages or report.compactions
        added = [added[0] + report.forks, added[1] + report.compactions]
        assert set(count(await take(database, name, source))) <= {"unchanged"}
    assert added == [forks, compactions]
    found = await database.read("test", list_sessions)
    assert [s.parent_seq is not None for s in found if s.parent] == [True] * forks
    async with SqliteDatabase(tmp_path / "whole.db") as whole:
        await take(whole, name, source)
        assert await describe(database) == await describe(whole)
    assert await verify(database) == []
