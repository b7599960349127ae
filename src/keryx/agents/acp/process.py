"""Process: the program of an agent, on a leash: what it writes is read line by line, and it never outlives its owner."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process as Running
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio

from keryx.agents.acp import leash
from keryx.core.titles import line

LONGEST_LINE = 32_000_000
_CHUNK = 262_144
_TAIL = 16_384
_END_SECONDS = leash.GRACE_SECONDS + 2
_KEPT = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")


class Process:
    """A running agent. `dropped` counts lines that were longer than `LONGEST_LINE` and were left out."""

    def __init__(self, running: Running, transport: asyncio.SubprocessTransport, lifeline: int) -> None:
        self._running = running
        self._transport = transport
        self._lifeline: int | None = lifeline
        self._written = bytearray()
        self._listener = asyncio.create_task(self._listen())
        self.dropped = 0

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def code(self) -> int | None:
        """The exit code, `None` while it runs."""
        return self._running.returncode

    @property
    def tail(self) -> str:
        """The end of what it wrote to its standard error."""
        return self._written.decode("utf-8", "replace")

    @property
    def last_words(self) -> str:
        """The last line of its standard error, short and on one line."""
        rows = [row for row in map(line, self.tail.splitlines()) if row]
        return rows[-1][:300] if rows else ""

    async def write(self, frame: bytes) -> None:
        """Returns when it is on its way; a program that does not read makes its writers wait. Raises
        `BrokenPipeError` when it is gone."""
        stdin = self._running.stdin
        assert stdin is not None
        if stdin.is_closing():
            raise BrokenPipeError("the agent is gone")
        stdin.write(frame)
        try:
            await stdin.drain()
        except ConnectionError as exc:
            raise BrokenPipeError("the agent is gone") from exc

    async def chunks(self) -> AsyncIterator[bytes]:
        """What it writes as it comes, for a program that writes no lines."""
        stdout = self._running.stdout
        assert stdout is not None
        while chunk := await stdout.read(_CHUNK):
            yield chunk

    async def wait(self) -> int:
        """Wait for its end; gives the exit code."""
        return await self._running.wait()

    async def lines(self) -> AsyncIterator[bytes]:
        """Each line as it comes, without its end, until the program closes its output. Blank lines are left out."""
        line, over = bytearray(), False
        async for chunk in self.chunks():
            *ends, rest = chunk.split(b"\n")
            for piece in ends:
                line += piece
                if over or len(line) > LONGEST_LINE:
                    self.dropped += 1
                elif found := bytes(line).strip():
                    yield found
                line, over = bytearray(), False
            line += rest
            if len(line) > LONGEST_LINE:
                line, over = bytearray(), True
        if found := bytes(line).strip():
            yield found

    async def end(self) -> None:
        """Ask the whole process group to end, and kill it after three seconds. Safe to call more than once."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_END_SECONDS):
                await self._running.wait()
            if self._running.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
            self._transport.close()
            self._listener.cancel()
            await asyncio.wait({self._listener})

    async def _listen(self) -> None:
        stderr = self._running.stderr
        while stderr and (chunk := await stderr.read(_CHUNK)):
            self._written += chunk
            del self._written[:-_TAIL]


async def start(command: Sequence[str], *, env: Mapping[str, str], cwd: str, merged: bool = False) -> Process:
    """Start a program without a shell. `merged`: its standard error is part of its output. Raises `OSError` when it
    cannot be started."""
    loop = asyncio.get_running_loop()
    theirs, ours = os.pipe()
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(limit=_CHUNK, loop=loop),
            sys.executable,
            "-I",
            "-S",
            str(Path(leash.__file__)),
            str(theirs),
            *command,
            env=dict(env),
            cwd=cwd,
            stderr=asyncio.subprocess.STDOUT if merged else asyncio.subprocess.PIPE,
            start_new_session=True,
            pass_fds=(theirs,),
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return Process(Running(transport, protocol, loop), transport, ours)


def environment(given: Mapping[str, str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a program finds in its environment: the few variables that every program needs, and what it is given."""
    environ = os.environ if environ is None else environ
    kept = {k: v for k, v in environ.items() if k in _KEPT or k.startswith("XDG_")}
    return {**kept, **given}
