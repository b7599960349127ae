"""The brain: what Keryx adds to a bare streaming call of the openai library at the same endpoint, with one turn and with
many at once, in the agent alone and through a whole node; and how the time to build a prompt grows with the conversation."""

import os
import time
from collections.abc import AsyncIterator, Sequence

import msgspec
import openai
from tests.fakes.endpoint import KEY, MODEL

from bench import fill, streams
from bench.fill import Filled
from bench.node import node
from bench.spread import ms, spread
from bench.stage import OPEN, Stage, inbound
from bench.streams import WORDS, Run
from bench.table import Line, line
from keryx.agents.llm import Model, Models, history
from keryx.agents.llm.agent import LlmAgent
from keryx.agents.llm.history import PromptContext
from keryx.core.changes import ChangeKind
from keryx.core.clock import to_micros
from keryx.core.ids import DEFAULT_PROFILE, SessionId, TurnId
from keryx.core.messages import Message, Role, text_parts
from keryx.core.ports.agent import TextDelta, TurnContext
from keryx.core.sessions import SessionSettings, Viewer
from keryx.core.turns import TurnLimits, TurnState
from keryx.engine.hub import Hub
from keryx.store.db.metrics import MeteredDatabase
from keryx.testing import fixed_history
from keryx.timing import SystemClock

_AT_ONCE = 50
_VARIABLE = "KERYX_BENCH_KEY"
_ALL = msgspec.structs.replace(OPEN, limits=TurnLimits(at_once=_AT_ONCE))
_PACES = {"at full speed": 0.0, "40 words/s": 0.025}


async def run(stage: Stage) -> AsyncIterator[Line]:
    os.environ[_VARIABLE] = KEY
    for pace, pause in _PACES.items():
        with streams.endpoint(pause) as base_url:
            async with (
                LlmAgent(Models([_model(base_url)])) as agent,
                openai.AsyncOpenAI(base_url=base_url, api_key=KEY) as client,
            ):
                for at_once in (1, stage.size(_AT_ONCE)):
                    size = f"{at_once}, {pace}"
                    rounds = 1 if stage.quick else max(2, (4 if pause else 200) // at_once)
                    if not pause and not stage.dsn:
                        async for found in _at_agent(agent, client, size, rounds, at_once):
                            yield found
                    async for found in _through_node(stage, agent, client, size, rounds, at_once):
                        yield found
    if not stage.dsn:
        async for found in _prompts(stage):
            yield found


def _model(base_url: str = "") -> Model:
    return Model(name="bench", base_url=base_url, id=MODEL, key=f"env:{_VARIABLE}", tools=False, titles=False)


async def _at_agent(
    agent: LlmAgent, client: openai.AsyncOpenAI, size: str, rounds: int, at_once: int
) -> AsyncIterator[Line]:
    ours: list[Run] = []
    floor: list[Run] = []
    for _ in range(rounds):
        ours += await streams.together([_said(agent) for _ in range(at_once)])
        floor += await streams.together([streams.bare(client) for _ in range(at_once)])
    for found in streams.lines("agent", size, ours, floor):
        yield found


async def _said(agent: LlmAgent) -> Run:
    measured = Run()
    async for event in agent.run(_context()):
        if isinstance(event, TextDelta):
            measured.word()
    return measured.end()


async def _through_node(
    stage: Stage, agent: LlmAgent, client: openai.AsyncOpenAI, size: str, rounds: int, at_once: int
) -> AsyncIterator[Line]:
    """From a message received to what its reader sees, each in a conversation of its own, for the next prompt is longer.
    The first ones do what a process does once, such as to connect to the endpoint, and are not counted if there are
    others. The first word takes three commits more than a bare call: the message, the claim of its turn, and the word."""
    place = stage.place()
    ours: list[Run] = []
    floor: list[Run] = []
    async with place.database() as database:
        filled = await fill.lanes_with_sessions(database, rounds * at_once)
        async with node(database, agent, _ALL) as (hub, _):
            before = _drafts(database)
            for first in range(0, rounds * at_once, at_once):
                lanes = range(first, first + at_once)
                ours += await streams.together([_exchange(hub, n, filled[n]) for n in lanes])
                floor += await streams.together([streams.bare(client) for _ in lanes])
            drafts = (_drafts(database) - before) / len(ours) / WORDS
    for found in streams.lines("node", size, ours[at_once:] or ours, floor[at_once:] or floor):
        yield found
    yield line("node: commits per word", size, drafts, "")


async def _exchange(hub: Hub, n: int, place: Filled) -> Run:
    """Ask, and follow the conversation until the end of the turn."""
    cursor = await hub.head_cursor()
    measured = Run()
    await hub.receive(inbound(n, time.monotonic_ns()))
    async for change in hub.follow(Viewer(DEFAULT_PROFILE, place.owner), cursor, session=place.session):
        answered = change.message is not None and change.message.role is Role.ASSISTANT
        if change.kind is ChangeKind.DRAFT or answered:
            measured.word()
        if change.kind is ChangeKind.TURN and TurnState(change.note).finished:
            break
    return measured.end()


def _drafts(database: MeteredDatabase) -> int:
    found = database.meters.get("turn.progress")
    return found.units if found else 0


async def _prompts(stage: Stage) -> AsyncIterator[Line]:
    smallest: float | None = None
    for count in (10, 1000, 10_000):
        size = stage.size(count)
        talk = _conversation(size)
        times: list[float] = []
        for _ in range(stage.count(40)):
            began = time.perf_counter()
            history.build(talk, PromptContext(model=_model(), system="# Where you are\n"))
            times.append(time.perf_counter() - began)
        each = spread(times).p50 / size
        smallest = smallest or each
        yield line(
            "prompt built, per message",
            f"{size:,} messages",
            ms(each),
            "ms",
            against=ms(smallest),
            most=2,
            what="10 messages",
        )


def _conversation(size: int) -> Sequence[Message]:
    now = to_micros(SystemClock().now())
    return [
        Message(
            session=SessionId("s"),
            seq=n,
            role=Role.USER if n % 2 else Role.ASSISTANT,
            parts=text_parts(f"message {n}: some words that somebody said about something"),
            micros=now,
            turn=TurnId(f"t{(n + 1) // 2}"),
        )
        for n in range(1, size + 1)
    ]


async def _nothing() -> list[Message]:
    return []


def _context() -> TurnContext:
    return TurnContext(
        session=SessionId("s"),
        turn=TurnId("t1"),
        attempt=1,
        place="",
        turn_messages=_conversation(1),
        history=fixed_history(_conversation(1)),
        settings=SessionSettings(),
        cwd="",
        clock=SystemClock(),
        fetch_new_messages=_nothing,
    )
