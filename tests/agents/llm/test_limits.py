"""Limits of providers: a turn waits for the reset and goes on once, or another model steps in. On both engines."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import msgspec
import pytest
from tests.agents.conversation import VARIABLE
from tests.engine.world import AT_ONCE, OPERATORS, World
from tests.fakes.endpoint import (
    DOWN,
    KEY,
    MODEL,
    Cut,
    Endpoint,
    Refusal,
    Script,
    answer,
    calls,
    says,
    throttled,
)

from keryx import metrics
from keryx.agents.llm import Model, Models
from keryx.agents.llm.agent import LlmAgent
from keryx.agents.llm.chat_client import RetryPolicy
from keryx.core.durations import Backoff
from keryx.core.ids import DEFAULT_PROFILE, PrincipalId
from keryx.core.ports.adapter import Receipt
from keryx.core.sessions import API_SURFACE, SessionChange, SettingsChange, Viewer
from keryx.core.turns import TurnState
from keryx.store import turns, viewer_state
from keryx.store.db import Database
from keryx.testing import FakeClock

QUICK = RetryPolicy(tries=3, backoff=Backoff(first=timedelta(0), longest=timedelta(0)))
HELD = (
    "The limit of a is reached. Your message waits and is answered after {}. /stop cancels it; /model NAME asks another"
    " model now."
)
SPENT = Refusal(status=429, message="You exceeded your current quota", code="insufficient_quota")


class Providers:
    """Two models at endpoints of their own: `a`, perhaps with `b` as its fallback."""

    def __init__(self, stack: AsyncExitStack, database: Database, clock: FakeClock) -> None:
        self._stack = stack
        self._database = database
        self._clock = clock
        self.a: Endpoint
        self.b: Endpoint

    async def start(
        self, a: list[Script], b: list[Script] | None = None, *, fallback: bool = False, **limits: timedelta
    ) -> World:
        self.a, self.b = (self._stack.enter_context(Endpoint(*(s or [answer("?")]))) for s in (a, b))
        models = Models(
            Model(
                name=name,
                id=MODEL,
                base_url=endpoint.base_url,
                key=f"env:{VARIABLE}",
                titles=False,
                fallback=("b",) if name == "a" and fallback else (),
            )
            for name, endpoint in (("a", self.a), ("b", self.b))
        )
        agent = await self._stack.enter_async_context(LlmAgent(models, retry=QUICK))
        policy = msgspec.structs.replace(
            AT_ONCE,
            models=("a", "b"),
            agents=("llm",),
            model_agents={"llm": ""},
            limits=msgspec.structs.replace(AT_ONCE.limits, **limits),
        )
        world = World(self._database, self._clock, agent=agent, policy=policy)
        self._stack.push_async_callback(world.close)
        await world.start()
        return world


@pytest.fixture
async def providers(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Providers]:
    monkeypatch.setenv(VARIABLE, KEY)
    async with AsyncExitStack() as stack:
        yield Providers(stack, database, clock)


async def hold(world: World, text: str = "hi") -> Receipt:
    """Say something, and wait until its turn is held."""
    said = await world.say(text)
    assert said.turn
    await world.until(lambda tx: turns.get(tx, said.turn).hold is not None)  # pyright: ignore[reportArgumentType]
    return said


async def models_used(world: World, said: Receipt) -> list[str]:
    rows = await world.read(lambda tx: tx.rows("select model from usage where turn = :t", {"t": said.turn}))
    return [row[0] for row in rows]


async def test_a_turn_waits_for_its_limit_through_a_crash_and_goes_on_once(providers: Providers) -> None:
    failed, held = metrics.TURNS.get("failed"), metrics.TURNS.get("held")
    world = await providers.start([throttled("7200"), answer("At last.")])
    await world.write(viewer_state.set_zone, Viewer(DEFAULT_PROFILE, PrincipalId("ann")), "Europe/Berlin")
    said = await hold(world)
    assert await world.sent() == [HELD.format("15:00 (Europe/Berlin)")]
    assert (metrics.TURNS.get("failed"), metrics.TURNS.get("held")) == (failed, held + 1)
    turn = (await world.open(said.session)).queue[0]
    assert turn.hold and turn.hold.model == "a" and turn.hold.until == world.clock.now() + timedelta(hours=2)
    # It has no worker, and does not keep others waiting.
    assert turn.worker is None and turn.attempts == 0
    providers.a.scripts.insert(1, answer("Somebody else."))
    await world.ask("hello", chat="2", user="bob")
    await world.delivered(2)
    await world.restart()
    assert len(providers.a.requests) == 2
    world.advance(timedelta(hours=2))
    ended = await world.settle(said)
    assert (ended.state, ended.attempts, ended.hold) == (TurnState.DONE, 1, None)
    assert len(providers.a.requests) == 3
    assert (await world.sent(3))[-1] == "At last."
    assert [line for line in await world.transcript(said.session) if line.startswith("assistant")] == [
        "assistant: At last."
    ]


async def test_another_model_answers_a_message_that_waits(providers: Providers) -> None:
    world = await providers.start([throttled("7200")], [answer("Here I am.")])
    said = await hold(world)
    assert "for the limit of a" in await world.command("/status")
    assert (await world.command("/model b")).endswith("The message that waited is answered now.")
    await world.settle(said)
    assert (await models_used(world, said)) == ["b"]
    assert (await world.transcript(said.session))[-1] == "assistant: Here I am."


async def test_the_model_can_be_changed_on_the_page_too(providers: Providers) -> None:
    world = await providers.start([throttled("7200")], [answer("Here I am.")])
    said = await hold(world)
    assert said.session
    change = SessionChange(settings=SettingsChange(model="b"))
    await world.hub.change(OPERATORS, said.session, change)
    assert (await world.settle(said)).state is TurnState.DONE


async def test_a_message_that_waits_can_be_stopped(providers: Providers) -> None:
    world = await providers.start([throttled("7200"), answer("Next.")])
    said = await hold(world)
    assert await world.command("/stop") == "Stopping."
    assert (await world.settle(said)).state is TurnState.CANCELLED
    assert (await world.ask("next")).state is TurnState.DONE


async def test_a_limit_that_lasts_too_long_fails_with_its_time(providers: Providers) -> None:
    failed, held = metrics.TURNS.get("failed"), metrics.TURNS.get("held")
    world = await providers.start([throttled("7200")], hold=timedelta(hours=1))
    said = await world.say("hi")
    assert (await world.settle(said)).state is TurnState.FAILED
    # Alerts count it.
    assert (metrics.TURNS.get("failed"), metrics.TURNS.get("held")) == (failed + 1, held)
    sent = (await world.sent())[0]
    assert sent.startswith(
        "The limit of a is reached until 14:00 (UTC), and messages wait for at most 60 minutes."
    )


async def test_a_program_does_not_wait_for_a_limit(providers: Providers) -> None:
    world = await providers.start([throttled("7200")])
    said = await world.say("hi", surface=API_SURFACE)
    failed = await world.settle(said)
    assert failed.state is TurnState.FAILED and "until 14:00" in (failed.error or "")


async def test_a_limit_in_the_middle_keeps_what_was_done(providers: Providers) -> None:
    step = calls(("c1", "nothing", "{}"))
    world = await providers.start([step, throttled("7200"), throttled("7200"), answer("Done.")])
    said = await hold(world)
    # The limit holds on after the first reset; the person is told once.
    world.advance(timedelta(hours=2))
    await world.eventually(lambda: len(providers.a.requests) == 3)
    await world.until(lambda tx: turns.get(tx, said.turn).hold is not None)  # pyright: ignore[reportArgumentType]
    world.advance(timedelta(hours=2))
    await world.settle(said)
    assert [s for s in await world.sent(2) if s.startswith("The limit")] == [HELD.format("14:00 (UTC)")]
    # Without tools, past calls are told in words.
    assert "nothing" in str(providers.a.requests[-1]["messages"][2])


@pytest.mark.parametrize("failure", [DOWN, SPENT, throttled("7200")], ids=["down", "spent", "limited"])
async def test_a_fallback_steps_in_and_the_conversation_is_told_once(
    providers: Providers, failure: Refusal
) -> None:
    world = await providers.start([failure], [answer("From b.")], fallback=True)
    said = await world.say("hi")
    assert (await world.settle(said)).state is TurnState.DONE
    await world.ask("more")
    lines = await world.transcript(said.session)
    assert [line.split(":")[0] for line in lines] == ["user", "notice", "assistant", "user", "assistant"]
    assert lines[1].endswith("so model 'b' answers.")
    assert await models_used(world, said) == ["b"]
    # The model that failed was passed over by the second turn.
    assert len(providers.a.requests) <= 2
    # It comes back by itself, and the next failure is told again.
    providers.a.scripts.append(answer("From a."))
    providers.a._played = len(providers.a.scripts) - 1  # pyright: ignore[reportPrivateUsage]
    world.advance(timedelta(hours=3))
    back = await world.say("again")
    await world.settle(back)
    assert await models_used(world, back) == ["a"]


async def test_when_no_fallback_is_left_the_turn_waits_for_the_first_reset(providers: Providers) -> None:
    world = await providers.start([throttled("7200"), answer("From a.")], [throttled("9000")], fallback=True)
    said = await hold(world)
    held = (await world.open(said.session)).queue[0].hold
    assert held and held.model == "a"
    world.advance(timedelta(hours=2))
    await world.settle(said)
    assert await models_used(world, said) == ["a"]


async def test_no_fallback_steps_in_after_a_part_of_the_answer_was_shown(providers: Providers) -> None:
    world = await providers.start([[*says("Half an"), Cut()]], [answer("From b.")], fallback=True)
    said = await world.say("hi")
    assert (await world.settle(said)).state is TurnState.FAILED
    assert "assistant: Half an [failed]" in await world.transcript(said.session)
    assert providers.b.requests == []
