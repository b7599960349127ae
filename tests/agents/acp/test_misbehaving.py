"""Agents that do what they must not: nothing of it harms a conversation, and people are told what is wrong."""

import asyncio
import os
import signal
import sys
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import pytest
from tests.agents.acp.conversation import Talk, alive, command, noted, player, said
from tests.builders import until

from keryx.agents.acp import AcpAgent
from keryx.agents.acp.agent_process import AgentTimeouts
from keryx.agents.agent_config import AgentConfig, AgentKind
from keryx.core.errors import AgentFailed
from keryx.core.ports.agent import AgentEvent, BindingEvent, ToolCallEvent, ToolResultEvent, UsageEvent
from keryx.core.questions import Question
from keryx.testing import FakeClock
from keryx.timing import SystemClock

ROOT = Path(__file__).parents[3]
HASTY = AgentTimeouts(cancel=timedelta(seconds=0.2))


async def leave(agent: AcpAgent, talk: Talk, question: str) -> list[AgentEvent]:
    """Begin a turn and cancel it once it was put to the agent; gives what came."""
    found: list[AgentEvent] = []

    async def follow() -> None:
        async with aclosing(agent.run(talk.context(question))) as events:
            async for event in events:
                if isinstance(event, BindingEvent):
                    talk.bindings["player"] = event.binding
                found.append(event)

    task = asyncio.create_task(follow())
    await until(lambda: bool(found))
    await asyncio.sleep(0.1)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=2)
    assert done
    return found


async def test_noise_before_and_between_messages_is_skipped(tmp_path: Path) -> None:
    async with player(tmp_path, "bad=noise") as agent:
        assert await Talk().say(agent, "hello") == "Hello."


async def test_too_much_noise_is_given_up_with_the_first_of_it_shown(tmp_path: Path) -> None:
    async with player(tmp_path, "bad=babble") as agent:
        with pytest.raises(AgentFailed, match="no message of the protocol, such as 'babble 0'"):
            await Talk().events(agent, "hello")


async def test_a_cancel_is_obeyed_and_the_same_process_goes_on(tmp_path: Path) -> None:
    talk = Talk()
    async with player(tmp_path) as agent:
        before = await talk.say(agent, "session")
        await leave(agent, talk, "silence")
        assert await talk.say(agent, "session") == before


async def test_tokens_of_a_cancelled_prompt_are_counted_with_the_next_one(tmp_path: Path) -> None:
    talk = Talk()
    async with player(tmp_path) as agent:
        assert await talk.say(agent, "hello") == "Hello."
        await leave(agent, talk, "silence")
        used = [
            [
                (e.usage.input, e.usage.output)
                for e in await talk.events(agent, "hello")
                if isinstance(e, UsageEvent)
            ]
            for _ in range(2)
        ]
    assert used == [[(22, 4)], [(2, 3)]]


async def test_an_ignored_cancel_ends_the_process_and_the_next_turn_resumes(tmp_path: Path) -> None:
    talk = Talk()
    async with player(tmp_path, "bad=deaf", timeouts=HASTY) as agent:
        session, pid = (await talk.say(agent, "session")).split()
        await leave(agent, talk, "silence")
        again, other = (await talk.say(agent, "session")).split()
    assert again == session and other != pid and not alive(pid)


async def test_an_exit_in_mid_turn_is_told_with_its_last_words_and_the_next_turn_resumes(
    tmp_path: Path,
) -> None:
    talk = Talk()
    async with player(tmp_path) as agent:
        with pytest.raises(AgentFailed, match=r"ended before it was done.*out of cheese"):
            await talk.events(agent, "exit")
        assert await talk.say(agent, "history") == "exit | history"


async def test_silence_is_told_once_and_offers_a_way_out(tmp_path: Path) -> None:
    clock, talk, found = FakeClock(), Talk(), list[AgentEvent]()
    async with player(tmp_path, clock=clock) as agent:

        async def follow() -> None:
            async with aclosing(agent.run(talk.context("silence"))) as events:
                async for event in events:
                    found.append(event)

        task = asyncio.create_task(follow())
        for _ in range(2):
            await until(lambda: bool(found) and clock.sleepers >= 2)
            clock.advance(120)
        await until(lambda: bool(noted(found)))
        assert noted(found) == ["The agent player has said nothing for 2 minutes. /stop ends the turn."]
        task.cancel()
        await asyncio.wait({task})


async def test_an_agent_that_says_nothing_at_all_is_given_up(tmp_path: Path) -> None:
    async with player(tmp_path, "bad=mute", timeouts=AgentTimeouts(open=timedelta(seconds=0.2))) as agent:
        with pytest.raises(AgentFailed, match=r"did not answer session/new within 0\.2 s"):
            await Talk().events(agent, "hello")


async def test_a_program_that_does_not_speak_the_protocol_is_given_up(tmp_path: Path) -> None:
    mute = AgentConfig(kind=AgentKind.ACP, command=(sys.executable, "-c", "import time; time.sleep(600)"))
    hasty = AgentTimeouts(start=timedelta(seconds=0.2))
    async with AcpAgent("mute", mute, work_folder=tmp_path, clock=SystemClock(), timeouts=hasty) as agent:
        with pytest.raises(AgentFailed, match=r"did not answer initialize within 0\.2 s"):
            await Talk().events(agent, "hello")


async def test_what_an_agent_asks_is_answered_when_its_turn_is_cancelled(tmp_path: Path) -> None:
    talk, put = Talk(), asyncio.Event()

    async def ask(question: Question) -> str | None:
        put.set()
        await asyncio.Event().wait()

    talk.ask = ask
    async with player(tmp_path, "bad=deaf") as agent:
        task = asyncio.create_task(talk.events(agent, "ask rm x"))
        async with asyncio.timeout(30):
            await put.wait()
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=30)
        assert done
        kept = tmp_path / "store" / "own-1"
        await until(lambda: "It was cancelled." in kept.read_text())


async def test_unknown_updates_and_endings_are_no_error(tmp_path: Path) -> None:
    async with player(tmp_path) as agent:
        events = await Talk().events(agent, "unknown")
    assert said(events) == "Still here."
    assert [type(e) for e in events if isinstance(e, ToolCallEvent | ToolResultEvent)] == [
        ToolCallEvent,
        ToolResultEvent,
    ]


async def test_a_storm_of_requests_is_answered_one_by_one(tmp_path: Path) -> None:
    async with player(tmp_path) as agent:
        assert await Talk().say(agent, "storm") == "500"


async def test_a_storm_of_permissions_asks_a_few_and_refuses_the_rest(tmp_path: Path) -> None:
    talk, put = Talk(), list[Question]()

    async def ask(question: Question) -> str | None:
        put.append(question)
        await asyncio.sleep(0.05)
        return None

    talk.ask = ask
    async with player(tmp_path) as agent:
        refused = int(await talk.say(agent, "permits"))
    assert len(put) + refused == 100 and refused >= 50


async def test_a_line_that_is_too_long_is_left_out_and_told(tmp_path: Path) -> None:
    async with player(tmp_path) as agent:
        events = await Talk().events(agent, "huge")
    assert said(events) == "After." and noted(events) == [
        "1 message of the agent was too long and is left out."
    ]


async def test_a_refusal_fails_the_turn_in_words(tmp_path: Path) -> None:
    async with player(tmp_path) as agent:
        with pytest.raises(AgentFailed, match="declined"):
            await Talk().events(agent, "refuse")


async def test_another_version_of_the_protocol_is_told(tmp_path: Path) -> None:
    async with player(tmp_path, "bad=future") as agent:
        with pytest.raises(AgentFailed, match="speaks version 7"):
            await Talk().events(agent, "hello")


async def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    missing = AgentConfig(kind=AgentKind.ACP, command=("no-such-agent",))
    async with AcpAgent("gone", missing, work_folder=tmp_path, clock=SystemClock()) as agent:
        with pytest.raises(AgentFailed, match="there is no program 'no-such-agent'"):
            await Talk().events(agent, "hello")


async def test_a_deaf_turn_in_a_shared_process_does_not_harm_the_others(tmp_path: Path) -> None:
    deaf, other = Talk(), Talk()
    gate = asyncio.Event()

    async def ask(question: Question) -> str | None:
        await gate.wait()
        return "allow"

    other.ask = ask
    async with player(tmp_path, "bad=deaf", timeouts=HASTY, shared=True) as agent:
        await deaf.say(agent, "hello")
        asking = asyncio.create_task(other.say(agent, "ask"))
        await leave(agent, deaf, "silence")
        assert await deaf.say(agent, "history") == "hello | silence | history"
        gate.set()
        assert await asking == "It was allow."


async def test_whatever_the_agent_started_ends_with_it(tmp_path: Path) -> None:
    script = tmp_path / "wrapper.sh"
    script.write_text(f"sleep 600 & echo $! > {tmp_path}/pid\nexec {' '.join(command(tmp_path))}\n")
    (tmp_path / "store").mkdir()
    wrapped = AgentConfig(kind=AgentKind.ACP, command=("/bin/sh", str(script)))
    async with AcpAgent("wrapped", wrapped, work_folder=tmp_path / "work", clock=SystemClock()) as agent:
        assert await Talk().say(agent, "hello") == "Hello."
        pid = (tmp_path / "pid").read_text()
        assert alive(pid)
    await until(lambda: not alive(pid))


_OWNER = """
import asyncio, sys
from pathlib import Path
from tests.agents.acp.conversation import Talk, player

async def main():
    async with player(Path(sys.argv[1]), *sys.argv[2:]) as agent:
        print(await Talk().say(agent, "session"), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("bad", ["", "bad=deaf"])
async def test_the_agent_does_not_outlive_a_keryx_that_was_killed(tmp_path: Path, bad: str) -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _OWNER, str(tmp_path), bad, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdout is not None
    pid = (await owner.stdout.readline()).split()[1].decode()
    assert alive(pid)
    os.kill(owner.pid, signal.SIGKILL)
    await owner.wait()
    await until(lambda: not alive(pid))
