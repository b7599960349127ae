"""A light remote sends what programs write to a Keryx elsewhere: later if it must, once, and with the rights of its key."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.builders import OPERATORS
from tests.engine.world import World
from tests.importers.samples import write_lines
from tests.importers.test_programs import BOTH_ENGINES, ON_SQLITE
from tests.watch.test_session_watcher import GROW, QUESTION, REPLY, Desk, append, claude_talk
from tests.web.conftest import begin, site, world
from tests.web.site import ORIGIN, TOKEN, Site, open_site

from keryx.cli.push_client import PushTarget, check_address
from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.core.ids import OPERATOR
from keryx.core.sessions import ProgramState, Viewer
from keryx.engine.loops.session_watcher import SessionWatcher
from keryx.importers.watched_programs import WATCHED_PROGRAMS, ProgramProcess
from keryx.store import imports

__all__ = ["begin", "site", "world"]
pytestmark = ON_SQLITE


class Line(httpx.AsyncBaseTransport):
    """The way to the server: it may be cut, or lose answers."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.cut = False
        self.lose_answers = False
        self.bodies: list[bytes] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.cut:
            raise httpx.ConnectError("no way there")
        if request.url.path == "/api/watch/sessions":
            self.bodies.append(request.content)
        answer = await self._inner.handle_async_request(request)
        if self.lose_answers:
            await answer.aread()
            raise httpx.ReadError("the answer is lost")
        return answer


class Laptop:
    """Files of programs, a watcher without a store, and the server that it pushes to."""

    def __init__(self, world: World, site: Site, desk: Desk, key: str, owner: Viewer) -> None:
        self.world = world
        self.site = site
        self.desk = desk
        self.line = Line(httpx.ASGITransport(app=site.app))
        self.key = key
        self.owner = owner
        self.watcher = self.build()

    def build(self) -> SessionWatcher:
        self.target = PushTarget(ORIGIN, self.key, machine="laptop", transport=self.line)
        return SessionWatcher(
            [WATCHED_PROGRAMS[name] for name in self.desk.names],
            self.target,
            self.desk.clock,
            home=self.desk.home,
            env={},
            since=timedelta(days=30),
            list_processes=lambda programs: self.desk.processes,
        )

    async def poll(self) -> int:
        self.desk.clock.advance(timedelta(minutes=1))
        return (await self.watcher.poll()).messages

    async def texts(self) -> list[str]:
        [session] = await self.desk.sessions()
        return [m.text for m in await self.desk.messages(session)]


@pytest.fixture
async def laptop(world: World, tmp_path: Path) -> AsyncIterator[Laptop]:
    await world.ask("hello", user="ann", principal=None)
    _, secret = await world.hub.api_keys.add(OPERATORS, "laptop", person=("fake", "ann"))
    key = await world.hub.api_keys.check(secret)
    assert key is not None
    desk = Desk(world.database, tmp_path / "home", "claude-code")
    async with open_site(world.hub, world.clock, token=TOKEN) as made:
        yield Laptop(world, made, desk, secret, key.viewer)


def write_talk(laptop: Laptop) -> Path:
    file = laptop.desk.place("claude-code") / "-work/s1.jsonl"
    write_lines(file, claude_talk(0, "", "hello there", "Hello."))
    laptop.desk.touch(file)
    return file


async def list_pushed(laptop: Laptop) -> list[Any]:
    return [s for s in await laptop.desk.sessions() if s.surface == "claude-code"]


async def read_texts(laptop: Laptop) -> list[str]:
    [session] = await list_pushed(laptop)
    return [m.text for m in await laptop.desk.messages(session)]


async def test_conversations_go_to_the_person_of_the_key_and_only_new_records_are_sent(
    laptop: Laptop,
) -> None:
    file = write_talk(laptop)
    assert await laptop.poll() == 2
    [session] = await list_pushed(laptop)
    assert session.owner == laptop.owner.principal != OPERATOR
    # A folder of the laptop is none here, where only the operator chooses one.
    assert session.cwd == ""
    append(file, *claude_talk(10, "w1", QUESTION, REPLY))
    laptop.desk.touch(file)
    assert await laptop.poll() == 2
    assert await read_texts(laptop) == ["hello there", "Hello.", QUESTION, REPLY]
    sent = json.loads(laptop.line.bodies[-1])["entries"]
    assert [entry["id"] for entry in sent] == ["w0", "w10", "w11"] and "parts" not in sent[0]

    laptop.watcher = laptop.build()
    assert await laptop.poll() == 0
    watched = await laptop.world.database.read("test", lambda tx: imports.find_watched(tx, session.id))
    assert watched is not None and (watched.machine, watched.pushed) == ("laptop", True)


@BOTH_ENGINES
async def test_what_cannot_be_sent_is_sent_later_and_an_answer_that_is_lost_doubles_nothing(
    laptop: Laptop,
) -> None:
    file = write_talk(laptop)
    laptop.line.cut = True
    for _ in range(3):
        with pytest.raises(Unavailable, match="cannot be reached"):
            await laptop.poll()
    laptop.line.cut = False
    assert await laptop.poll() == 2
    append(file, *claude_talk(10, "w1", QUESTION, REPLY))
    laptop.desk.touch(file)
    laptop.line.lose_answers = True
    with pytest.raises(Unavailable):
        await laptop.poll()
    laptop.line.lose_answers = False
    await laptop.poll()
    laptop.watcher = laptop.build()
    await laptop.poll()
    assert await read_texts(laptop) == ["hello there", "Hello.", QUESTION, REPLY]


async def test_a_long_conversation_is_sent_in_batches(laptop: Laptop) -> None:
    file = laptop.desk.place("claude-code") / "-work/long.jsonl"
    talk = [
        record
        for n in range(0, 1400, 2)
        for record in claude_talk(n, f"w{n - 1}" if n else "", f"question {n}", "Yes.")
    ]
    write_lines(file, talk)
    laptop.desk.touch(file)
    assert await laptop.poll() == 1400
    assert len(laptop.line.bodies) == 3
    [session] = await list_pushed(laptop)
    assert (session.messages, session.turns) == (1400, 700)


async def test_a_state_is_told_and_the_conversation_is_not_continued_here(laptop: Laptop) -> None:
    file = write_talk(laptop)
    laptop.desk.processes = [ProgramProcess("claude-code", 3, "/home/ada/project", 0)]
    await laptop.poll()
    [session] = await list_pushed(laptop)
    watched = await laptop.world.database.read("test", lambda tx: imports.find_watched(tx, session.id))
    assert watched is not None and watched.state is ProgramState.OPEN
    operator = {"Authorization": f"Bearer {TOKEN}"}
    status = await laptop.site.get(f"/api/sessions/{session.id}/program", headers=operator)
    assert (status["title"], status["machine"], status["state"]) == ("Claude Code", "laptop", "open")
    assert "only Keryx there" in status["refusal"] and "can_take_over" not in status
    refused = await laptop.site.problem(409, "POST", f"/api/sessions/{session.id}/takeover", headers=operator)
    assert "laptop keeps this conversation" in refused
    assert file.exists()


@BOTH_ENGINES
async def test_every_program_can_be_pushed(world: World, laptop: Laptop) -> None:
    laptop.desk.names = tuple(WATCHED_PROGRAMS)
    for name in laptop.desk.names:
        laptop.desk.write_sample(name)
    laptop.watcher = laptop.build()
    assert await laptop.poll() > 40
    for name, grow in GROW.items():
        laptop.desk.touch(grow(laptop.desk.place(name)))
    assert await laptop.poll() == 2 * len(GROW)


async def test_a_wrong_key_is_named_and_nothing_is_taken(laptop: Laptop) -> None:
    write_talk(laptop)
    laptop.key = "kx-wrong"
    laptop.watcher = laptop.build()
    with pytest.raises(Forbidden, match="the key is wrong or was revoked"):
        await laptop.poll()
    assert await list_pushed(laptop) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"program": "claude-code"}',
        json.dumps({"program": "sh", "machine": "m", "id": "1", "place": "", "created_at": "2026-01-01T00:00:00Z", "surface": "sh"}).encode(),
        json.dumps({"program": "qwen", "machine": "m", "id": "x" * 2000, "place": "", "created_at": "2026-01-01T00:00:00Z", "surface": "qwen"}).encode(),
    ],
)  # fmt: skip
async def test_what_is_no_conversation_is_refused(laptop: Laptop, body: bytes) -> None:
    bearer = {"Authorization": f"Bearer {laptop.key}", "Content-Type": "application/json"}
    answer = await laptop.site.request("POST", "/api/watch/sessions", content=body, headers=bearer)
    assert answer.status_code == 400 or answer.status_code == 422, answer.text


@pytest.mark.parametrize("url", ["http://keryx.example.org", "keryx.example.org", "ftp://x", ""])
def test_a_key_is_sent_only_where_nobody_reads_it(url: str) -> None:
    with pytest.raises(Invalid):
        check_address(url)
