"""A conversation in a chat with an agent of the protocol behind it, on the whole engine and on both stores."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
from tests.agents.acp.conversation import player
from tests.engine.world import AT_ONCE, FAKE, World

from keryx.agents.acp import AcpAgent
from keryx.agents.agent_config import AgentConfig, AgentKind
from keryx.core.ids import OPERATOR
from keryx.core.messages import ToolCall
from keryx.core.source import SourceRule
from keryx.core.turns import TurnLimits, TurnState
from keryx.store import messages, sessions
from keryx.store.db import Database
from keryx.timing import SystemClock

QUICK = msgspec.structs.replace(
    AT_ONCE,
    limits=TurnLimits(settle=timedelta(0), lease=timedelta(seconds=1)),
    agents=("player", "other"),
    agent_rules={"other": (SourceRule(platform=FAKE, chat="3"),)},
)


@asynccontextmanager
async def world_of(database: Database, agent: AcpAgent) -> AsyncGenerator[World]:
    async with agent:
        world = World(database, SystemClock(), agent=agent, policy=QUICK)
        await world.start()
        try:
            yield world
        finally:
            await world.close()


async def test_a_chat_is_answered_and_its_session_is_bound(database: Database, tmp_path: Path) -> None:
    async with world_of(database, player(tmp_path)) as world:
        turn = await world.ask("hello")
        assert (await world.sent(1))[-1] == "Hello."
        bound = await world.read(sessions.list_bindings, turn.session)
        assert bound["player"].id == "own-1" and bound["player"].turn == turn.id
        assert await world.transcript(turn.session) == ["user: hello", "assistant: Hello."]


async def test_a_permission_is_a_question_in_the_chat(database: Database, tmp_path: Path) -> None:
    async with world_of(database, player(tmp_path)) as world:
        asked = await world.say("ask rm -rf build")
        question = (await world.sent(1))[-1]
        assert "player: Run a command" in question and "rm -rf build" in question
        await world.command("/deny")
        await world.settle(asked)
        assert (await world.transcript(asked.session))[-2:] == [
            "tool: <not run>",
            "assistant: It was deny.",
        ]


async def test_the_transcript_shows_the_command_that_an_agent_told_last(
    database: Database, tmp_path: Path
) -> None:
    async with world_of(database, player(tmp_path, "bad=slow")) as world:
        asked = await world.say("opencode ls -la")
        await world.sent(1)
        await world.command("/allow")
        turn = await world.settle(asked)
        shown = "\n".join(await world.transcript(turn.session))
        entries = await world.read(messages.list_latest, turn.session, limit=20)
    calls = [p for m in entries for p in m.parts if isinstance(p, ToolCall)]
    assert [(c.name, json.loads(c.input)["command"]) for c in calls] == [("List", "ls -la")], shown


async def test_a_cancel_reaches_the_agent_and_the_next_message_is_answered(
    database: Database, tmp_path: Path
) -> None:
    async with world_of(database, player(tmp_path)) as world:
        asked = await world.say("silence")
        await world.until(
            lambda tx: bool(sessions.list_bindings(tx, asked.session)) if asked.session else False
        )
        await world.command("/stop")
        assert (await world.settle(asked)).state is TurnState.CANCELLED
        turn = await world.ask("history")
        assert (await world.transcript(turn.session))[-1].endswith("UTC)\nhistory")


async def test_a_turn_waits_until_the_limit_of_an_agent_resets_and_goes_on_once(
    database: Database, tmp_path: Path
) -> None:
    async with world_of(database, player(tmp_path)) as world:
        turn = await world.ask("limited 2 seconds")
        told, answered = await world.sent(2)
        assert "limit" in told and "waits" in told
        assert answered == "Back again."
        assert turn.state is TurnState.DONE and turn.hold is None
        transcript = await world.transcript(turn.session)
        assert [line for line in transcript if line.startswith(("user", "assistant"))] == [
            "user: limited 2 seconds",
            "assistant: Back again.",
        ]


async def test_a_killed_node_in_mid_turn_resumes_the_bound_session_and_doubles_nothing(
    database: Database, tmp_path: Path
) -> None:
    async with world_of(database, player(tmp_path)) as world:
        await world.ask("remember this")
        asked = await world.say("ask rm x")
        await world.sent(2)
        await world.crash()
        async with player(tmp_path) as again:
            world.agent = again
            await world.start()
            await world.running(asked)
            await world.command("/allow")
            await world.settle(asked)
            turn = await world.ask("history")
            shown = await world.transcript(turn.session)
            heard = shown[-1]
            bound = await world.read(sessions.list_bindings, turn.session)
            await world.close()
    assert bound["player"].id == "own-1"
    assert heard.count("remember this") == 1 and "You were interrupted" in heard
    assert shown.count("user: remember this") == 1 and shown.count("assistant: It was allow.") == 1


async def test_a_lost_session_is_told_in_the_chat(database: Database, tmp_path: Path) -> None:
    async with world_of(database, player(tmp_path)) as world:
        await world.ask("hello")
    (tmp_path / "store" / "own-1").unlink()
    async with world_of(database, player(tmp_path)) as world:
        await world.ask("hello")
        assert [t for t in await world.sent(2) if "begins afresh" in t]


async def test_keryx_itself_can_be_the_agent(database: Database, tmp_path: Path) -> None:
    home = tmp_path / "inner"
    inner = AgentConfig(
        kind=AgentKind.ACP,
        command=(str(Path(sys.executable).with_name("keryx")), "acp"),
        env={"KERYX_HOME": f"text:{home}", "KERYX_AGENT": "text:echo"},
    )
    for question in ("hello there", "!tool grep x"):
        agent = AcpAgent("inner", inner, work_folder=tmp_path / "work", clock=SystemClock())
        async with world_of(database, agent) as world:
            turn = await world.ask(question)
            shown = await world.transcript(turn.session)
            bound = (await world.read(sessions.list_bindings, turn.session))["inner"]
    assert [line for line in shown if "afresh" in line] == [] and bound.id
    assert [line.rsplit("\n")[-1] for line in shown] == [
        "user: hello there",
        "hello there",
        "user: !tool grep x",
        "assistant: Calling grep. <grep: x>",
        "tool: <grep was given x>",
        "assistant: grep was given x",
    ]


async def test_an_operator_chooses_who_answers(database: Database, tmp_path: Path) -> None:
    async with world_of(database, player(tmp_path)) as world:
        await world.ask("hello")
        assert "Available: player, other" in await world.command("/agent")
        assert "Only operators" in await world.command("/agent other", user="ann")
        mine = {"user": "ann", "principal": OPERATOR}
        turn = await world.ask("hello", chat="2", **mine)
        assert "no agent 'nobody'" in await world.command("/agent nobody", chat="2", **mine)
        assert await world.command("/agent other", chat="2", **mine) == (
            "Agent: other. It applies from your next message."
        )
        assert (await world.open(turn.session)).session.settings.agent == "other"
        await world.command("/agent default", chat="2", **mine)
        assert (await world.open(turn.session)).session.settings.agent is None


async def test_the_agent_of_a_lane_stays_over_a_reset_and_a_choice_does_not(
    database: Database, tmp_path: Path
) -> None:
    async with world_of(database, player(tmp_path)) as world:
        mine = {"user": "ann", "principal": OPERATOR}
        await world.ask("hello", chat="2", **mine)
        assert "Agent: player (default)" in await world.command("/agent", chat="2", **mine)
        await world.ask("hello", chat="3", **mine)
        assert "Agent: other (default)" in await world.command("/agent", chat="3", **mine)
        await world.command("/agent player", chat="3", **mine)
        assert "Agent: player." in await world.command("/agent", chat="3", **mine)
        await world.command("/new", chat="3", **mine)
        await world.ask("hello", chat="3", **mine)
        assert "Agent: other (default)" in await world.command("/agent", chat="3", **mine)
