"""The surface over both engines: served in this process, on pipes, beside what the store says."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Open
from tests.engine.world import inbound

from keryx.agents.echo import EchoAgent
from keryx.agents.editor_tools import EditorTools
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, SessionId, TurnId
from keryx.core.messages import text_parts
from keryx.core.ports.adapter import InboundMessage
from keryx.core.sessions import SessionSettings, Viewer
from keryx.core.source import Source
from keryx.core.turns import Turn, TurnState
from keryx.engine.policy import Policy
from keryx.engine.service import Service
from keryx.store.admin.verify import verify
from keryx.store.db import Database, Engine, Transaction
from keryx.surfaces.acp import EditorServerSettings, serve
from keryx.testing import CrashingDatabase, DatabaseFault, FaultTiming
from keryx.timing import SystemClock

Json = dict[str, Any]
OPERATORS = Viewer(DEFAULT_PROFILE, OPERATOR)
SECONDS = 30


class Editor:
    """The other end of two pipes."""

    def __init__(self, reader: asyncio.StreamReader, target: int, service: Service) -> None:
        self._reader = reader
        self._target = target
        self.service = service
        self.hub = service.hub
        self.updates: list[Json] = []
        self._answers: dict[int, Json] = {}
        self._last = 0

    def ask(self, method: str, **params: object) -> int:
        self._last += 1
        self.send({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        return self._last

    def send(self, message: Json) -> None:
        os.write(self._target, json.dumps(message).encode() + b"\n")

    async def answer(self, id_: int) -> Json:
        async with asyncio.timeout(SECONDS):
            while id_ not in self._answers:
                await self._next()
        return self._answers.pop(id_)

    async def call(self, method: str, **params: object) -> Any:
        return (await self.answer(self.ask(method, **params)))["result"]

    async def prompt(self, session: str, text: str) -> str:
        block = {"type": "text", "text": text}
        return (await self.call("session/prompt", sessionId=session, prompt=[block]))["stopReason"]

    async def until(self, text: str) -> None:
        async with asyncio.timeout(SECONDS):
            while text not in self.text():
                await self._next()

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(u["content"]["text"] for u in self.updates if u["sessionUpdate"] == kind)

    async def _next(self) -> None:
        message: Json = json.loads(await self._reader.readline())
        if message.get("method") == "session/update":
            self.updates.append(message["params"]["update"])
        elif "method" not in message:
            self._answers[message["id"]] = message


@asynccontextmanager
async def editor(database: Database, name: str) -> AsyncGenerator[Editor]:
    """An editor with a process's worth of engine behind it."""
    clock, agent = SystemClock(), EchoAgent()
    service = Service(
        database,
        clock,
        policy=Policy(),
        choose=lambda reading: agent,
        place=lambda reading, turn: "a test",
        kind=name,
        everything=False,
    )
    (ours, theirs), (answers, out) = os.pipe(), os.pipe()
    reader = asyncio.StreamReader(limit=1 << 26)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(answers, "rb")
    )
    async with service.running():
        task = asyncio.create_task(
            serve(
                service.hub,
                OPERATORS,
                clock,
                pin=service.worker.id,
                workspaces=EditorTools(),
                settings=EditorServerSettings(version="0"),
                source=ours,
                target=out,
            )
        )
        made = Editor(reader, theirs, service)
        await made.call("initialize", protocolVersion=1)
        try:
            yield made
        finally:
            os.close(theirs)
            await task
    transport.close()
    os.close(ours)
    os.close(out)


@pytest.fixture
async def editors(
    engine: Engine, request: pytest.FixtureRequest, opener: Open
) -> AsyncIterator[Sequence[Editor]]:
    """Two editors on one store, each with a database connection of its own."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(editor(await opener(), name)) for name in ("zed", "vim")]


def rows(tx: Transaction) -> tuple[int, ...]:
    tables = ("changes", "sessions", "messages", "turns", "inbox")
    found = [tx.row(f"select count(*) from {table}") for table in tables]
    return tuple(int(row[0]) for row in found if row)


async def test_both_editors_see_what_either_says_and_loading_writes_nothing(
    editors: Sequence[Editor], opener: Open, tmp_path: Path
) -> None:
    zed, vim = editors
    session = (await zed.call("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
    assert await zed.prompt(session, "!think hello") == "end_turn"
    database = await opener()
    before = await database.read("test", rows)
    for _ in range(2):
        vim.updates.clear()
        await vim.call("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        assert (vim.text("user_message_chunk"), vim.text()) == ("!think hello", "hello")
    assert await database.read("test", rows) == before
    assert await zed.prompt(session, "second") == "end_turn"
    await vim.until("second")
    assert await vim.prompt(session, "third") == "end_turn"
    await zed.until("third")
    assert zed.text("user_message_chunk") == "third"
    listed = await vim.call("session/list", cwd=str(tmp_path))
    assert [s["sessionId"] for s in listed["sessions"]] == [session]
    assert (await vim.call("session/list", cwd="/projects/b"))["sessions"] == []
    assert not await verify(database)


async def test_prompts_of_two_editors_run_one_after_the_other_and_a_cancel_takes_its_own(
    editors: Sequence[Editor],
) -> None:
    zed, vim = editors
    session = (await zed.call("session/new", cwd="/", mcpServers=[]))["sessionId"]
    await zed.prompt(session, "begin")
    await vim.call("session/load", sessionId=session, cwd="/", mcpServers=[])
    blocks = [{"type": "text", "text": "slow 30 one two three"}]
    running = zed.ask("session/prompt", sessionId=session, prompt=blocks)
    await zed.until("one")
    waiting = vim.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "mine"}])
    await vim.until("one")
    vim.send({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})
    assert (await vim.answer(waiting))["result"] == {"stopReason": "cancelled"}
    snapshot = await zed.hub.open(OPERATORS, SessionId(session))
    assert (
        snapshot.running and snapshot.running.pin == zed.service.worker.id and not snapshot.running.cancelling
    )
    vim.send({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})
    assert (await zed.answer(running))["result"] == {"stopReason": "cancelled"}


async def test_a_session_begins_with_its_first_message_and_never_twice(editors: Sequence[Editor]) -> None:
    hub = editors[0].hub
    first = InboundMessage(
        event="1",
        source=Source(platform="acp", chat="x", user="operator"),
        parts=text_parts("hello"),
        surface="acp",
        session=SessionId("01jd0abcdefghjkmnp"),
        begin=True,
        settings=SessionSettings(effort="high"),
        principal=OPERATOR,
        cwd="/work",
        pin=editors[0].service.worker.id,
    )
    receipt = await hub.receive(first)
    assert (await hub.receive(first)).duplicate
    assert receipt.session and receipt.turn
    made = await hub.session(OPERATORS, receipt.session)
    assert (made.settings.effort, made.cwd, made.surface) == ("high", "/work", "acp")
    cancelled = await hub.cancel(OPERATORS, receipt.turn)
    assert cancelled.id == receipt.turn
    ended = await over(editors[0], receipt.turn)
    assert (await hub.cancel(OPERATORS, receipt.turn)).state is ended.state
    assert ended.state in (TurnState.DONE, TurnState.CANCELLED)


async def test_a_cancel_takes_effect_though_the_store_was_away_when_it_was_asked_for(opener: Open) -> None:
    fault = DatabaseFault("cancel", FaultTiming.BEFORE)
    async with editor(CrashingDatabase(await opener(), fault), "zed") as zed:
        session = (await zed.call("session/new", cwd="/", mcpServers=[]))["sessionId"]
        blocks = [{"type": "text", "text": "slow 60 one two three"}]
        running = zed.ask("session/prompt", sessionId=session, prompt=blocks)
        await zed.until("one")
        snapshot = await zed.hub.open(OPERATORS, SessionId(session))
        assert snapshot.running
        zed.send({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})
        assert (await zed.answer(running))["result"] == {"stopReason": "cancelled"}
        ended = await over(zed, snapshot.running.id)
        assert (ended.state, fault.hits) == (TurnState.CANCELLED, 1)


async def test_what_waits_is_stopped_before_what_runs(opener: Open) -> None:
    """However long the store takes between the two: else the waiting prompt would be answered after the cancel."""
    fault = DatabaseFault("cancel", FaultTiming.BEFORE, nth=2)
    async with editor(CrashingDatabase(await opener(), fault), "zed") as zed:
        session = (await zed.call("session/new", cwd="/", mcpServers=[]))["sessionId"]

        def ask(text: str) -> int:
            return zed.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

        running, waiting = ask("slow 60 one two three"), ask("this waits")
        await zed.until("one")
        while len((await zed.hub.open(OPERATORS, SessionId(session))).queue) < 1:  # noqa: ASYNC110 as others see it
            await asyncio.sleep(0.01)
        turns = (await zed.hub.open(OPERATORS, SessionId(session))).queue
        zed.send({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})
        for id_ in (waiting, running):
            assert (await zed.answer(id_))["result"] == {"stopReason": "cancelled"}
        assert (await over(zed, turns[0].id)).state is TurnState.CANCELLED
        assert "this waits" not in zed.text()


async def test_so_does_one_of_a_turn_that_another_surface_asked_for(opener: Open) -> None:
    fault = DatabaseFault("stop", FaultTiming.BEFORE)
    async with editor(CrashingDatabase(await opener(), fault), "zed") as zed:
        session = (await zed.call("session/new", cwd="/", mcpServers=[]))["sessionId"]
        await zed.prompt(session, "begin")
        asked = inbound(
            "slow 60 one two three",
            session=SessionId(session),
            principal=OPERATOR,
            reply=None,
            pin=zed.service.worker.id,
        )
        turn = (await zed.hub.receive(asked)).turn
        await zed.until("one")
        zed.send({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})
        assert turn
        ended = await over(zed, turn)
        assert (ended.state, fault.hits) == (TurnState.CANCELLED, 1)


async def over(zed: Editor, turn: TurnId) -> Turn:
    """The turn, once it has ended."""
    async with asyncio.timeout(SECONDS):
        while not (found := await zed.hub.turn(OPERATORS, turn)).state.finished:  # noqa: ASYNC110 as others see it
            await asyncio.sleep(0.01)
    return found
