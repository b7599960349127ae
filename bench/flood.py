"""Flood: what other chats see while one agent says far too much, and what memory is left after it."""

import asyncio
import gc
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path

import msgspec

from bench import fill
from bench.node import NullAdapter, node
from bench.spread import Spread, ms, spread
from bench.stage import OPEN, Place, Stage, inbound
from bench.table import Line, line
from keryx import markdown
from keryx.agents.echo import EchoAgent
from keryx.core.ports.adapter import LengthUnit, OutgoingPart, RenderedPart
from keryx.core.ports.agent import AgentEvent, TextDelta, TurnContext
from keryx.core.turns import TurnLimits
from keryx.engine.hub import Hub
from keryx.markdown import plain
from keryx.markdown.split import LengthLimit, split_document

_LANES = 20
_EXCHANGES = 200
_CHARACTERS = 100_000_000
# Answers whose cost is compared, with limits that let them pass.
_GROWTH = (1_000_000, 10_000_000)
_UNLIMITED = msgspec.structs.replace(OPEN, limits=TurnLimits(answer=10**9, output=10**9))
_WORDS = "all work and no play makes a **dull** answer\n\n"
_LIMIT = LengthLimit(4096, LengthUnit.CHARACTERS)
_REST_SECONDS = 2
_PAGE = os.sysconf("SC_PAGE_SIZE")


class FloodFigures(msgspec.Struct, frozen=True):
    quiet: float
    beside: float
    longest: float
    before: float
    after: float
    # CPU time per million characters of a short and of a long answer.
    short_answer: float
    long_answer: float


class FloodAgent:
    """Says as many characters as it is asked to, in pieces of this size, and echoes everything else."""

    def __init__(self, piece: int) -> None:
        self._piece = (_WORDS * (piece // len(_WORDS) + 1))[:piece]
        self._echo = EchoAgent()

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        word, _, number = context.turn_messages[-1].text.partition(" ")
        if word != "flood":
            async for event in self._echo.run(context):
                yield event
            return
        for _ in range(-(-int(number) // len(self._piece))):
            yield TextDelta(self._piece)


async def run(stage: Stage) -> AsyncIterator[Line]:
    for piece in (100, _CHARACTERS):
        found = await asyncio.to_thread(_elsewhere, stage.place(), piece, stage.count(_EXCHANGES))
        size = f"pieces of {piece:,}"
        yield line(
            "exchange p95 beside a flood",
            size,
            ms(found.beside),
            "ms",
            floor=ms(found.quiet),
            most=2,
            what="quiet",
        )
        yield line("longest exchange in the flood", size, ms(found.longest), "ms")
        yield line("RSS after the flood", size, found.after, "MiB", floor=found.before, what="before", most=2)
        yield line(
            "CPU per MB of a 10 MB answer",
            size,
            ms(found.long_answer),
            "ms",
            floor=ms(found.short_answer),
            what="of 1 MB",
            most=1.5,
        )


def _elsewhere(place: Place, piece: int, count: int) -> FloodFigures:
    arguments = [str(place.path), place.dsn, str(piece), str(count)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.flood", *arguments], stdout=subprocess.PIPE, check=True
    )
    return msgspec.json.decode(done.stdout, type=FloodFigures)


async def _measure(place: Place, piece: int, count: int) -> FloodFigures:
    async with place.database() as database:
        await fill.lanes_with_sessions(database, _LANES)
        async with node(database, FloodAgent(piece), adapter=SplittingAdapter()) as (hub, adapter):
            await _exchange_all(hub, adapter, count)
            quiet = await _exchange_all(hub, adapter, count)
            before = _measure_rss()
            floods = [asyncio.create_task(_flood(hub, adapter))]
            await asyncio.sleep(0.2)
            beside = await _exchange_all(hub, adapter, count)
            await floods[0]
            # Further floods show whether memory grows with each.
            for _ in range(3):
                await _flood(hub, adapter)
            gc.collect()
            after = _measure_rss()
        async with node(database, FloodAgent(min(piece, 1000)), _UNLIMITED, SplittingAdapter()) as (
            hub,
            adapter,
        ):
            # The first answer of a node pays for its start, and for what earlier floods left to do.
            await _measure_cpu(hub, adapter, _GROWTH[0])
            await asyncio.sleep(_REST_SECONDS)
            short, long = [await _measure_cpu(hub, adapter, count) for count in _GROWTH]
        return FloodFigures(quiet.p95, beside.p95, beside.times[-1], before, after, short, long)


class SplittingAdapter(NullAdapter):
    """Renders and splits as a platform with messages of 4,096 characters does. A flood is answered with its last part."""

    def parts(self, text: str) -> Sequence[RenderedPart]:
        parts = split_document(markdown.parse(text), plain.render, _LIMIT.fill_ratio)
        return [RenderedPart(part) for part in parts]

    async def send(self, part: OutgoingPart) -> str:
        if part.target.chat == "0" and not part.text.startswith("[cut:"):
            return "flood"
        return await super().send(part)


async def _flood(hub: Hub, adapter: NullAdapter, characters: int = _CHARACTERS) -> None:
    answered = adapter.answer(0)
    await hub.receive(inbound(0, time.monotonic_ns(), f"flood {characters}"))
    await answered


async def _measure_cpu(hub: Hub, adapter: NullAdapter, characters: int) -> float:
    """Return the CPU time that a million characters of such an answer cost, in seconds."""
    began = time.process_time()
    await _flood(hub, adapter, characters)
    return (time.process_time() - began) * 1e6 / characters


async def _exchange_all(hub: Hub, adapter: NullAdapter, count: int) -> Spread:
    times: list[float] = []
    for n in range(count):
        lane = 1 + n % (_LANES - 1)
        began = time.perf_counter()
        answered = adapter.answer(lane)
        await hub.receive(inbound(lane, time.monotonic_ns()))
        await answered
        times.append(time.perf_counter() - began)
        # As people do, who do not all write at once.
        await asyncio.sleep(0.005)
    return spread(times)


def _measure_rss() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 2**20


if __name__ == "__main__":
    path, dsn, size, times = sys.argv[1:]
    figures = asyncio.run(_measure(Place(Path(path), dsn), int(size), int(times)))
    sys.stdout.buffer.write(msgspec.json.encode(figures))
