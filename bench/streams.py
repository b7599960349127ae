"""Streams: answers of a model word by word, at an endpoint in a process of its own, and what they took."""

import asyncio
import multiprocessing
import time
from collections.abc import Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import openai
from openai.types.chat import ChatCompletionChunk
from tests.fakes.endpoint import MODEL, Endpoint, Pause, Step, finish, says

from bench.spread import ms, spread
from bench.table import Line, line

WORDS = 200


class Run:
    """One answer: seconds to its first word, in all, and the share of processor time that it took."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.first = 0.0
        self.whole = 0.0
        self.cpu = 0.0

    def word(self) -> None:
        self.first = self.first or time.perf_counter() - self._began

    def end(self) -> "Run":
        self.whole = time.perf_counter() - self._began
        return self


@contextmanager
def endpoint(pause: float = 0) -> Generator[str]:
    """The address of an endpoint that waits this many seconds after each word. It has a process of its own: its threads
    would take the time that is measured here."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, pause), daemon=True)
    process.start()
    try:
        yield str(ours.recv())
    finally:
        ours.send("end")
        process.join()


def _serve(pipe: Connection, pause: float) -> None:
    script: list[Step] = []
    for n in range(WORDS):
        script += [*says(f"word{n} "), *([Pause(pause)] if pause else [])]
    with Endpoint([*script, *finish()]) as found:
        pipe.send(found.base_url)
        pipe.recv()


async def together(runs: Sequence[Coroutine[Any, Any, Run]]) -> list[Run]:
    began = time.process_time()
    done = await asyncio.gather(*runs)
    for run in done:
        run.cpu = (time.process_time() - began) / len(done)
    return done


async def bare(client: openai.AsyncOpenAI) -> Run:
    """What the library alone does."""
    measured = Run()
    stream = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hello"}], stream=True
    )
    chunk: ChatCompletionChunk
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            measured.word()
    return measured.end()


def lines(name: str, size: str, ours: Sequence[Run], floor: Sequence[Run]) -> Iterator[Line]:
    """What the answers took, beside bare calls."""
    first, first_floor = (ms(spread([r.first for r in runs]).p50) for runs in (ours, floor))
    yield line(f"{name}: first word p50", size, first, "ms", floor=first_floor)
    speed, speed_floor = (WORDS * len(runs) / sum(r.whole for r in runs) for runs in (ours, floor))
    yield line(f"{name}: words per turn", size, speed, "/s", floor=speed_floor)
    cpu, cpu_floor = (ms(sum(r.cpu for r in runs) / len(runs) / WORDS) for runs in (ours, floor))
    yield line(f"{name}: CPU per word", size, cpu, "ms", floor=cpu_floor)
