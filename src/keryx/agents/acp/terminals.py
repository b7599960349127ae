"""Terminals: commands that an agent has run, in the folders of its session, until the turn ends."""

import asyncio
import shutil
from collections.abc import Mapping

from keryx.agents.acp import process
from keryx.agents.acp.process import Process
from keryx.agents.acp.roots import Roots
from keryx.agents.acp.rpc import MISSING, PARAMS, Fault, Json, count, tables, text

MOST = 16
_MOST_BYTES = 1_000_000


class _Terminal:
    def __init__(self, running: Process, limit: int) -> None:
        self._running = running
        self._limit = limit
        self._output = bytearray()
        self.truncated = False
        self.code: int | None = None
        self._reader = asyncio.create_task(self._read())

    @property
    def output(self) -> str:
        return self._output.decode("utf-8", "replace")

    def status(self) -> Json | None:
        return None if self.code is None else {"exitCode": self.code, "signal": None}

    async def exited(self) -> Json:
        await asyncio.wait({self._reader})
        return self.status() or {"exitCode": None, "signal": None}

    async def kill(self) -> None:
        await self._running.end()
        self._reader.cancel()
        await asyncio.wait({self._reader})

    async def _read(self) -> None:
        async for chunk in self._running.chunks():
            self._output += chunk
            if len(self._output) > self._limit:
                self.truncated = True
                del self._output[: -self._limit]
        self.code = await self._running.wait()


class Terminals:
    """All of them end with `close`; their output can be read until then."""

    def __init__(self, roots: Roots, env: Mapping[str, str], cwd: str) -> None:
        self._roots = roots
        self._env = env
        self._cwd = cwd
        self._open: dict[str, _Terminal] = {}
        self._released: dict[str, str] = {}
        self._made = 0

    async def create(self, params: Json) -> Json:
        if len(self._open) >= MOST:
            raise Fault(PARAMS, f"{MOST} terminals are open: release some first")
        cwd = self._roots.within(text(params.get("cwd")) or self._cwd)
        given = {text(e.get("name")): text(e.get("value")) for e in tables(params.get("env"))}
        limit = min(count(params.get("outputByteLimit")) or _MOST_BYTES, _MOST_BYTES)
        try:
            running = await process.start(
                _command(params), env={**self._env, **given}, cwd=str(cwd), merged=True
            )
        except (OSError, ValueError) as exc:
            raise Fault(PARAMS, f"the command cannot be run: {exc}") from exc
        self._made += 1
        name = f"terminal-{self._made}"
        self._open[name] = _Terminal(running, limit)
        return {"terminalId": name}

    def output(self, params: Json) -> Json:
        found = self._find(params)
        return {"output": found.output, "truncated": found.truncated, "exitStatus": found.status()}

    async def exited(self, params: Json) -> Json:
        return await self._find(params).exited()

    async def kill(self, params: Json) -> Json:
        await self._find(params).kill()
        return {}

    async def release(self, params: Json) -> Json:
        found = self._find(params)
        name = text(params.get("terminalId"))
        self._released[name] = found.output
        del self._open[name]
        await found.kill()
        return {}

    def shown(self, name: str) -> str:
        """The output of a terminal of this turn, open or released; empty for any other."""
        found = self._open.get(name)
        return found.output if found else self._released.get(name, "")

    async def close(self) -> None:
        await asyncio.gather(*(terminal.kill() for terminal in self._open.values()))
        self._open.clear()

    def _find(self, params: Json) -> _Terminal:
        name = text(params.get("terminalId"))
        found = self._open.get(name)
        if found is None:
            raise Fault(MISSING, f"there is no terminal {name[:80]!r}")
        return found


def _command(params: Json) -> list[str]:
    """A program with its arguments; a line of a shell where no arguments are given apart."""
    program = text(params.get("command"))
    given = params.get("args")
    arguments = [str(a) for a in given] if isinstance(given, list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if not program:
        raise Fault(PARAMS, "a terminal needs a command")
    if not arguments and shutil.which(program) is None:
        return ["/bin/sh", "-c", program]
    return [program, *arguments]
