"""A conversation of another program goes on here with its own session, one writer at a time, and nothing is there twice."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.builders import OPERATORS
from tests.engine.world import AT_ONCE, World
from tests.importers.samples import Json
from tests.importers.test_programs import BOTH_ENGINES, ON_SQLITE
from tests.watch.test_session_watcher import QUESTION, REPLY, Desk, append, claude_talk, watch_one

from keryx.core.errors import Forbidden
from keryx.core.ids import OPERATOR
from keryx.core.messages import Role
from keryx.core.ports.agent import AgentEvent, BindingEvent, TextDelta, TurnContext
from keryx.core.sessions import Binding, Session, SessionChange, SettingsChange, TakeoverRules
from keryx.core.turns import Turn, TurnState
from keryx.engine import takeover
from keryx.importers.watched_programs import ProgramProcess
from keryx.store import imports, sessions
from keryx.store.admin.verify import verify
from keryx.store.db import Database, Transaction

pytestmark = ON_SQLITE
RULES = TakeoverRules(machine="desk", agents={"claude-code": "coder"})


class Program:
    """Claude Code as an agent: it writes to its own file what it is asked and what it answers."""

    def __init__(self, desk: Desk, file: Path) -> None:
        self._desk = desk
        self._file = file
        self._numbers = iter(range(1000, 2000, 10))
        self.bindings: list[Binding] = []
        self.between: Any = None

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        binding = context.bindings["coder"]
        self.bindings.append(binding)
        yield BindingEvent(msgspec.structs.replace(binding, turn=context.turn))
        asked = context.turn_messages[-1].text
        question, answer = self._build_records(f"[09:01] {asked}\n", f"About {asked}.")
        append(self._file, question)
        self._desk.touch(self._file)
        if self.between:
            await self.between()
        append(self._file, answer)
        self._desk.touch(self._file)
        yield TextDelta(f"About {asked}.")
        seq = max(m.seq for m in await context.history())
        yield BindingEvent(msgspec.structs.replace(binding, turn=context.turn, seq=seq))

    def _build_records(self, question: str, answer: str) -> list[Json]:
        number = next(self._numbers)
        now = self._desk.clock.now().isoformat()
        return [{**record, "timestamp": now} for record in claude_talk(number, "w1", question, answer)]


class Scene:
    def __init__(self, desk: Desk, file: Path, world: World, program: Program) -> None:
        self.desk = desk
        self.file = file
        self.world = world
        self.program = program

    async def session(self) -> Session:
        [session] = await self.desk.sessions()
        return session

    async def ask(self, text: str) -> Turn:
        return await self.world.ask(text, session=(await self.session()).id, principal=OPERATOR, reply=None)

    async def command(self, text: str) -> str:
        session = (await self.session()).id
        return await self.world.command(text, session=session, principal=OPERATOR, reply=None)

    async def texts(self) -> list[str]:
        said = await self.desk.messages(await self.session())
        return [m.text for m in said if m.role in (Role.USER, Role.ASSISTANT)]

    def type_in_terminal(self, number: int, question: str, answer: str | None) -> None:
        records = claude_talk(number, "w1", question, answer or "")
        now = self.desk.clock.now().isoformat()
        kept = [{**record, "timestamp": now} for record in (records if answer else records[:1])]
        append(self.file, *kept)
        self.desk.touch(self.file)

    def open_terminal(self) -> None:
        self.desk.processes = [ProgramProcess("claude-code", 3, "/home/ada/project", 0)]


@pytest.fixture
async def scene(database: Database, tmp_path: Path) -> AsyncIterator[Scene]:
    desk, file = await watch_one(database, tmp_path / "home")
    program = Program(desk, file)
    policy = msgspec.structs.replace(AT_ONCE, takeovers=RULES)
    world = World(database, desk.clock, agent=program, policy=policy)
    await world.start()
    try:
        yield Scene(desk, file, world, program)
    finally:
        await world.close()


@BOTH_ENGINES
async def test_a_turn_continues_the_session_of_the_program_and_is_not_imported_again(scene: Scene) -> None:
    turn = await scene.ask("what now")
    assert turn.state is TurnState.DONE
    [binding] = scene.program.bindings
    assert (binding.id, binding.seq, binding.kept) == ("s1", 2, True)
    assert (await scene.desk.poll()).messages == 0
    assert await scene.texts() == ["hello there", "Hello.", "what now", "About what now."]

    scene.type_in_terminal(30, QUESTION, REPLY)
    assert (await scene.desk.poll()).messages == 2
    session = await scene.session()
    stored = await scene.desk.database.read("test", lambda tx: sessions.list_bindings(tx, session.id))
    assert (stored["coder"].turn, stored["coder"].seq) == (None, 6)

    await scene.ask("and then")
    assert (await scene.desk.poll()).messages == 0
    assert (await scene.texts())[4:] == [QUESTION, REPLY, "and then", "About and then."]
    assert await verify(scene.desk.database) == []


async def test_what_the_program_writes_in_the_middle_of_a_turn_is_not_imported(scene: Scene) -> None:
    polls: list[int] = []

    async def poll() -> None:
        polls.append((await scene.desk.poll()).messages)

    scene.program.between = poll
    await scene.ask("what now")
    await poll()
    assert polls == [0, 0]
    assert await scene.texts() == ["hello there", "Hello.", "what now", "About what now."]


async def test_a_turn_that_was_killed_and_ran_again_is_not_imported(scene: Scene) -> None:
    reached = asyncio.Event()

    async def hang() -> None:
        reached.set()
        await asyncio.Event().wait()

    scene.program.between = hang
    session = (await scene.session()).id
    receipt = await scene.world.say("what now", session=session, principal=OPERATOR, reply=None)
    await reached.wait()
    scene.program.between = None
    await scene.world.restart()
    assert (await scene.world.settle(receipt)).state is TurnState.DONE
    assert (await scene.desk.poll()).messages == 0
    assert await scene.texts() == ["hello there", "Hello.", "what now", "About what now."]


async def test_the_same_words_typed_later_in_the_terminal_are_another_question(scene: Scene) -> None:
    await scene.ask("yes")
    scene.desk.clock.advance(timedelta(minutes=10))
    scene.type_in_terminal(30, "yes", "Done.")
    assert (await scene.desk.poll()).messages == 2
    assert (await scene.texts())[2:] == ["yes", "About yes.", "yes", "Done."]


@BOTH_ENGINES
async def test_while_the_program_works_in_the_terminal_a_turn_is_refused_with_words(scene: Scene) -> None:
    scene.open_terminal()
    scene.type_in_terminal(30, QUESTION, None)
    await scene.desk.poll()
    turn = await scene.ask("what now")
    assert turn.state is TurnState.FAILED
    assert "works on this in the terminal" in str(turn.error)
    assert not scene.program.bindings
    assert "works on this in the terminal" in await scene.command("/takeover")


@BOTH_ENGINES
async def test_an_open_terminal_is_told_and_a_person_decides(scene: Scene) -> None:
    scene.open_terminal()
    scene.type_in_terminal(30, QUESTION, REPLY)
    await scene.desk.poll()
    turn = await scene.ask("what now")
    assert turn.state is TurnState.FAILED and "still open in a terminal" in str(turn.error)
    assert "goes on here with Claude Code" in await scene.command("/takeover")
    assert (await scene.ask("what now")).state is TurnState.DONE
    await scene.desk.poll()
    assert (await scene.ask("and then")).state is TurnState.DONE

    scene.type_in_terminal(40, "me again", "Yes?")
    await scene.desk.poll()
    assert (await scene.ask("and now")).state is TurnState.FAILED
    scene.desk.processes = []
    await scene.desk.poll()
    assert (await scene.ask("and now")).state is TurnState.DONE


async def test_a_state_that_nobody_confirms_is_forgotten(scene: Scene) -> None:
    scene.open_terminal()
    scene.type_in_terminal(30, QUESTION, REPLY)
    await scene.desk.poll()
    scene.desk.clock.advance(timedelta(minutes=3))
    assert (await scene.ask("what now")).state is TurnState.DONE


async def test_resume_in_a_chat_says_where_the_conversation_is_kept(scene: Scene) -> None:
    session = await scene.session()
    reply = await scene.world.command(f"/resume {session.id}", principal=OPERATOR)
    assert "2 messages" in reply and "Claude Code on desk keeps it" in reply
    scene.open_terminal()
    scene.desk.touch(scene.file)
    await scene.desk.poll()
    await scene.world.command("/new", principal=OPERATOR)
    assert "still open in a terminal" in await scene.world.command(
        f"/resume {session.id}", principal=OPERATOR
    )


async def set_pushed(scene: Scene, **fields: Any) -> None:
    session = await scene.session()
    row: dict[str, Any] = {"machine": "desk", "pushed": False, "file": "f", **fields}
    await scene.desk.database.write(
        "test", lambda tx: imports.watch(tx, session.id, **row, stamp=None, wrote_at=None)
    )


@pytest.mark.parametrize("fields", [{"pushed": True}, {"machine": "laptop"}])
async def test_a_conversation_of_another_machine_is_not_continued_here(
    scene: Scene, fields: dict[str, Any]
) -> None:
    await set_pushed(scene, **fields)
    turn = await scene.ask("what now")
    assert turn.state is TurnState.FAILED and "only Keryx there" in str(turn.error)
    assert not scene.program.bindings


async def test_a_person_may_choose_another_agent(scene: Scene) -> None:
    session = await scene.session()
    change = SessionChange(settings=SettingsChange(agent="other"))
    await scene.world.hub.change(OPERATORS, session.id, change)
    loaded = await scene.desk.database.read(
        "test", lambda tx: takeover.prepare(tx, sessions.get(tx, session.id), RULES)
    )
    assert loaded is None


async def test_without_an_agent_for_the_program_it_is_said_how_to_get_one(scene: Scene) -> None:
    session = await scene.session()

    def prepare(tx: Transaction) -> None:
        takeover.prepare(tx, sessions.get(tx, session.id), TakeoverRules(machine="desk"))

    with pytest.raises(Forbidden, match=r'continues = "claude-code"'):
        await scene.desk.database.read("test", prepare)


async def test_gemini_is_not_continued_unless_the_settings_say_so(database: Database, tmp_path: Path) -> None:
    desk = Desk(database, tmp_path / "home", "gemini")
    desk.write_sample("gemini")
    await desk.poll()
    [session] = await desk.sessions()

    def refuse(tx: Transaction) -> list[str]:
        watched = imports.find_watched(tx, session.id)
        assert watched
        rules = (TakeoverRules(machine="desk", agents=agents) for agents in ({}, {"gemini": "coder"}))
        return [str(takeover.find_refusal(tx, watched, found) or "") for found in rules]

    refused, allowed = await database.read("test", refuse)
    assert "would lose this conversation" in refused and allowed == ""
