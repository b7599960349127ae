"""Memory: resident size and open files of a process while many messages pass through it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from bench import fill
from bench.node import node
from bench.stage import Place, Stage, inbound
from bench.table import Line, line

_MESSAGES = 50_000
_LANES = 1000
_CALLERS = 64
_STEPS = 5
_LOOKS = 5
_BETWEEN_LOOKS = 0.2
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Sample(msgspec.Struct, frozen=True):
    messages: int
    mebibytes: float
    files: int


async def run(stage: Stage) -> AsyncIterator[Line]:
    """Half of the messages are questions, half their answers; in a process of its own, judged after the first step."""
    place = stage.place()
    samples = await asyncio.to_thread(_elsewhere, place, stage.size(_MESSAGES))
    first = samples[0]
    for sample in samples:
        size = f"after {sample.messages:,} messages"
        if sample is first:
            yield line("RSS", size, sample.mebibytes, "MiB")
            yield line("open files", size, sample.files, "")
        else:
            yield line(
                "RSS", size, sample.mebibytes, "MiB", against=first.mebibytes, most=1.1, what="the first step"
            )
    last = samples[-1]
    yield line("RSS at the end", f"after {last.messages:,} messages", last.mebibytes, "MiB", under=100)
    yield line(
        "open files", f"after {last.messages:,} messages", last.files, "", against=first.files, most=1,
        what="the first step",
    )  # fmt: skip


def _elsewhere(place: Place, messages: int) -> list[Sample]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.memory", str(place.path), place.dsn, str(messages)],
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=list[Sample])


async def _measure(place: Place, messages: int) -> list[Sample]:
    samples: list[Sample] = []
    async with place.database() as database:
        await fill.lanes_with_sessions(database, _LANES)
        async with node(database) as (hub, adapter):

            async def caller(first: int, count: int) -> None:
                for n in range(first, first + count * _CALLERS, _CALLERS):
                    answered = adapter.answer(n % _LANES)
                    await hub.receive(inbound(n % _LANES, n))
                    await answered

            each = max(1, messages // 2 // _STEPS // _CALLERS)
            for step in range(_STEPS):
                base = step * each * _CALLERS
                await asyncio.gather(*(caller(base + c, each) for c in range(_CALLERS)))
                # As every minute, however long a step takes here.
                await hub.catch_up_index()
                # It is open or not, as the last to catch up left it: then files could not be compared.
                hub.close()
                samples.append(await _at_rest(2 * adapter.sent))
    return samples


async def _at_rest(messages: int) -> Sample:
    """The least of some looks: what a sweep takes and gives back at this moment is not held."""
    resident: list[float] = []
    files: list[int] = []
    for _ in range(_LOOKS):
        resident.append(_resident())
        files.append(len(os.listdir("/proc/self/fd")))
        await asyncio.sleep(_BETWEEN_LOOKS)
    return Sample(messages, min(resident), min(files))


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 1024**2


if __name__ == "__main__":
    file, dsn, count = sys.argv[1:]
    found = asyncio.run(_measure(Place(Path(file), dsn), int(count)))
    sys.stdout.buffer.write(msgspec.json.encode(found))
