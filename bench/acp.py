"""The editor: from a prompt to its first piece and per piece, beside a bare echo agent of the protocol's own library;
loading a session, and a page of the list."""

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench import fill
from bench.spread import Spread, ms, spread
from bench.stage import Place, Stage
from bench.table import Line, line

_KERYX = ("-c", "from keryx.cli import main; main()", "acp")
_ECHO = ("-m", "bench.acp_echo")
_ROOT = Path(__file__).parent.parent
_LONGEST = 1 << 26


async def run(stage: Stage) -> AsyncIterator[Line]:
    if stage.dsn:
        return
    async for found in _prompts(stage):
        yield found
    async for found in _loads(stage):
        yield found
    async for found in _lists(stage):
        yield found


async def _prompts(stage: Stage) -> AsyncIterator[Line]:
    count, words = stage.count(200), 200
    async with editor(stage, stage.place()) as ours, _started(_ECHO, {}) as bare:
        first, plain = await _in_turns(count, ours, bare, "slow 0 hello")
        yield line("acp first piece p50", "1 piece", ms(first[0].p50), "ms", floor=ms(plain[0].p50))
        yield line("acp first piece p95", "1 piece", ms(first[0].p95), "ms", floor=ms(plain[0].p95))
        text = "slow 0 " + " ".join(f"word{n}" for n in range(words))
        long, plain = await _in_turns(stage.count(40), ours, bare, text)
        yield line(
            "acp per piece, mean",
            f"{words} pieces",
            ms(long[1].mean) / words,
            "ms",
            floor=ms(plain[1].mean) / words,
        )


async def _loads(stage: Stage) -> AsyncIterator[Line]:
    for count in (1000, 10_000):
        size = stage.size(count)
        place, session = await stage.filled(
            f"messages-{size}", lambda db, size=size: fill.session_with_messages(db, size)
        )
        async with editor(stage, place) as ours:
            times: list[float] = []
            for _ in range(stage.count(20)):
                taken, updates = await ours.timed(
                    "session/load", sessionId=session, cwd="/tmp", mcpServers=[]
                )
                assert updates >= size
                times.append(taken)
        yield line("acp load p50", f"{size:,} messages", ms(spread(times).p50), "ms")


async def _lists(stage: Stage) -> AsyncIterator[Line]:
    count = stage.size(100_000)
    place, _ = await stage.lanes(count)
    async with editor(stage, place) as ours:
        for name, params in (("acp list p50", {}), ("acp list p50, one folder", {"cwd": "/nobody/here"})):
            times = [(await ours.timed("session/list", **params))[0] for _ in range(stage.count(100))]
            yield line(name, f"50 of {count:,} sessions", ms(spread(times).p50), "ms", under=20)


async def _in_turns(
    count: int, ours: "Editor", bare: "Editor", text: str
) -> tuple[tuple[Spread, Spread], tuple[Spread, Spread]]:
    """Times to the first piece and to the answer, of each agent, taken in turns."""
    firsts: tuple[list[float], list[float]] = ([], [])
    wholes: tuple[list[float], list[float]] = ([], [])
    for _ in range(count):
        for which, agent in enumerate((ours, bare)):
            first, whole = await agent.prompted(text)
            firsts[which].append(first)
            wholes[which].append(whole)
    return (spread(firsts[0]), spread(wholes[0])), (spread(firsts[1]), spread(wholes[1]))


class Editor:
    """The least an editor can be: it sends lines and reads lines."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._last = 0
        self._session = ""

    async def open(self) -> None:
        await self._answer(await self._send("initialize", protocolVersion=1, clientCapabilities={}))
        answer = await self._answer(await self._send("session/new", cwd="/tmp", mcpServers=[]))
        self._session = answer["result"]["sessionId"]

    async def prompted(self, text: str) -> tuple[float, float]:
        """Seconds to the first piece of the answer, and to its end."""
        began = time.perf_counter()
        block = {"type": "text", "text": text}
        id_ = await self._send("session/prompt", sessionId=self._session, prompt=[block])
        first = 0.0
        while True:
            message = await self._line()
            if message.get("id") == id_:
                return first, time.perf_counter() - began
            update = message.get("params", {}).get("update", {})
            if not first and update.get("sessionUpdate") == "agent_message_chunk":
                first = time.perf_counter() - began

    async def timed(self, method: str, **params: object) -> tuple[float, int]:
        """Seconds to the answer of a request, and how many lines came before it."""
        began = time.perf_counter()
        id_, lines = await self._send(method, **params), 0
        while (message := await self._line()).get("id") != id_:
            lines += 1
        assert "error" not in message, message
        return time.perf_counter() - began, lines

    async def _send(self, method: str, **params: object) -> int:
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()
        return self._last

    async def _answer(self, id_: int) -> dict[str, Any]:
        while (message := await self._line()).get("id") != id_:
            pass
        return message

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout
        return json.loads(await self._process.stdout.readline())


@asynccontextmanager
async def editor(stage: Stage, place: Place) -> AsyncGenerator[Editor]:
    """`keryx acp` on a store, with a session open."""
    home = stage.folder / f"home-{place.path.stem}"
    home.mkdir(exist_ok=True)
    more = {"KERYX_HOME": str(home), "KERYX_AGENT": "echo", "KERYX_DATABASE": str(place.path)}
    async with _started(_KERYX, more) as started:
        yield started


@asynccontextmanager
async def _started(arguments: tuple[str, ...], more: Mapping[str, str]) -> AsyncGenerator[Editor]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdin=PIPE,
        stdout=PIPE,
        env={**os.environ, **more},
        limit=_LONGEST,
        cwd=_ROOT,
    )
    try:
        made = Editor(process)
        await made.open()
        yield made
    finally:
        assert process.stdin
        process.stdin.close()
        await process.wait()
