"""The brain: what Keryx adds to a bare streaming call of the openai library at the same endpoint, with one turn and with
many at once, and how the time to build a prompt grows with the conversation."""

import asyncio
import multiprocessing
import os
import time
from collections.abc import AsyncIterator, Coroutine, Generator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import openai
from openai.types.chat import ChatCompletionChunk

from bench.spread import ms, spread
from bench.stage import Stage
from bench.table import Line, line
from keryx.agents import history
from keryx.agents.history import Scene
from keryx.agents.llm import LlmAgent
from keryx.agents.models import Model, Models
from keryx.core.ids import SessionId, TurnId
from keryx.core.messages import Message, Role, words
from keryx.core.ports import Said, TurnContext
from keryx.core.sessions import Settings
from keryx.engine.clock import SystemClock
from keryx.testing.agents import recall
from keryx.testing.endpoint import KEY, MODEL, Endpoint, answer

_WORDS = 200
_VARIABLE = "KERYX_BENCH_KEY"


async def run(stage: Stage) -> AsyncIterator[Line]:
    if stage.dsn:
        return
    os.environ[_VARIABLE] = KEY
    with _endpoint() as base_url:
        model = Model(name="bench", base_url=base_url, id=MODEL, key=f"env:{_VARIABLE}", tools=False)
        async with (
            LlmAgent(Models([model])) as agent,
            openai.AsyncOpenAI(base_url=base_url, api_key=KEY) as bare,
        ):
            for at_once in (1, 50):
                async for found in _streams(stage, agent, bare, at_once):
                    yield found
    async for found in _prompts(stage, model):
        yield found


@contextmanager
def _endpoint() -> Generator[str]:
    """The address of an endpoint in a process of its own: its threads would take the time that is measured here."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield str(ours.recv())
    finally:
        ours.send("end")
        process.join()


def _serve(pipe: Connection) -> None:
    with Endpoint(answer(*(f"word{n} " for n in range(_WORDS)))) as endpoint:
        pipe.send(endpoint.base_url)
        pipe.recv()


async def _streams(
    stage: Stage, agent: LlmAgent, bare: openai.AsyncOpenAI, at_once: int
) -> AsyncIterator[Line]:
    rounds = max(2, stage.count(100) // at_once)
    ours: list[_Run] = []
    floor: list[_Run] = []
    for _ in range(rounds):
        ours += await _together([_ours(agent) for _ in range(at_once)])
        floor += await _together([_bare(bare) for _ in range(at_once)])
    size = f"{at_once} at once"
    first, first_floor = spread([r.first for r in ours]), spread([r.first for r in floor])
    yield line("model first word p50", size, ms(first.p50), "ms", floor=ms(first_floor.p50))
    speed, speed_floor = _speed(ours), _speed(floor)
    yield line("model words per turn", size, speed, "/s", floor=speed_floor)
    cpu, cpu_floor = (sum(r.cpu for r in runs) / len(runs) / _WORDS for runs in (ours, floor))
    yield line("model CPU per word", size, ms(cpu), "ms", floor=ms(cpu_floor))


async def _prompts(stage: Stage, model: Model) -> AsyncIterator[Line]:
    smallest: float | None = None
    for count in (10, 1000, 10_000):
        size = stage.size(count)
        talk = _conversation(size)
        times: list[float] = []
        for _ in range(stage.count(40)):
            began = time.perf_counter()
            history.build(talk, Scene(model=model, system="# Where you are\n"))
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


class _Run:
    """One answer: seconds to its first word, in all, and the share of processor time that it took."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.first = 0.0
        self.whole = 0.0
        self.cpu = 0.0

    def word(self) -> None:
        self.first = self.first or time.perf_counter() - self._began

    def end(self) -> "_Run":
        self.whole = time.perf_counter() - self._began
        return self


async def _together(runs: Sequence[Coroutine[Any, Any, _Run]]) -> list[_Run]:
    began = time.process_time()
    done = await asyncio.gather(*runs)
    for run_ in done:
        run_.cpu = (time.process_time() - began) / len(done)
    return done


async def _ours(agent: LlmAgent) -> _Run:
    measured = _Run()
    async for event in agent.run(_context()):
        if isinstance(event, Said):
            measured.word()
    return measured.end()


async def _bare(client: openai.AsyncOpenAI) -> _Run:
    measured = _Run()
    stream = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hello"}], stream=True
    )
    chunk: ChatCompletionChunk
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            measured.word()
    return measured.end()


def _speed(runs: list[_Run]) -> float:
    return _WORDS * len(runs) / sum(r.whole for r in runs)


def _conversation(size: int) -> list[Message]:
    now = SystemClock().now()
    return [
        Message(
            session=SessionId("s"),
            seq=n,
            role=Role.USER if n % 2 else Role.ASSISTANT,
            parts=words(f"message {n}: some words that somebody said about something"),
            at=now,
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
        asked=_conversation(1),
        history=recall(_conversation(1)),
        settings=Settings(),
        cwd="",
        clock=SystemClock(),
        steer=_nothing,
    )
