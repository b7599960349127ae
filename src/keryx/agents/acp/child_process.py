"""A child process with piped standard streams: lines from its output, the end of its error output, and a stop that takes its whole process group."""

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

from keryx.agents.acp import process_group
from keryx.core.text import to_single_line

MAX_LINE_BYTES = 32_000_000
_CHUNK_BYTES = 262_144
_STDERR_TAIL_BYTES = 16_384
_STOP_SECONDS = process_group.GRACE_SECONDS + 2
_INHERITED_VARIABLES = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
)


class ChildProcess:
    """A running agent. `dropped` counts lines that were longer than `LONGEST_LINE` and were left out."""

    def __init__(self, running: Running, transport: asyncio.SubprocessTransport, lifeline: int) -> None:
        self._process = running
        self._transport = transport
        self._parent_pipe: int | None = lifeline
        self._stderr = bytearray()
        self._stderr_task = asyncio.create_task(self._read_stderr())
        self.dropped_lines = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, `None` while it runs."""
        return self._process.returncode

    @property
    def stderr_tail(self) -> str:
        """The end of what it wrote to its standard error."""
        return self._stderr.decode("utf-8", "replace")

    @property
    def last_stderr_line(self) -> str:
        """The last line of its standard error, short and on one line."""
        rows = [row for row in map(to_single_line, self.stderr_tail.splitlines()) if row]
        return rows[-1][:300] if rows else ""

    async def write(self, frame: bytes) -> None:
        """Returns when it is on its way; a program that does not read makes its writers wait. Raises
        `BrokenPipeError` when it is gone."""
        stdin = self._process.stdin
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
        stdout = self._process.stdout
        assert stdout is not None
        while chunk := await stdout.read(_CHUNK_BYTES):
            yield chunk

    async def wait(self) -> int:
        """Wait for its end; gives the exit code."""
        return await self._process.wait()

    async def lines(self) -> AsyncIterator[bytes]:
        """Each line as it comes, without its end, until the program closes its output. Blank lines are left out."""
        line, over = bytearray(), False
        async for chunk in self.chunks():
            *ends, rest = chunk.split(b"\n")
            for piece in ends:
                line += piece
                if over or len(line) > MAX_LINE_BYTES:
                    self.dropped_lines += 1
                elif found := bytes(line).strip():
                    yield found
                line, over = bytearray(), False
            line += rest
            if len(line) > MAX_LINE_BYTES:
                line, over = bytearray(), True
        if found := bytes(line).strip():
            yield found

    async def stop(self) -> None:
        """Ask the whole process group to end, and kill it after three seconds. Safe to call more than once."""
        if self._parent_pipe is not None:
            os.close(self._parent_pipe)
            self._parent_pipe = None
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_STOP_SECONDS):
                await self._process.wait()
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
            self._transport.close()
            self._stderr_task.cancel()
            await asyncio.wait({self._stderr_task})

    async def _read_stderr(self) -> None:
        stderr = self._process.stderr
        while stderr and (chunk := await stderr.read(_CHUNK_BYTES)):
            self._stderr += chunk
            del self._stderr[:-_STDERR_TAIL_BYTES]


async def start(
    command: Sequence[str], *, env: Mapping[str, str], cwd: str, merged: bool = False
) -> ChildProcess:
    """Start a program without a shell. `merged`: its standard error is part of its output. Raises `OSError` when it
    cannot be started."""
    loop = asyncio.get_running_loop()
    theirs, ours = os.pipe()
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(limit=_CHUNK_BYTES, loop=loop),
            sys.executable,
            "-I",
            "-S",
            str(Path(process_group.__file__)),
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
    return ChildProcess(Running(transport, protocol, loop), transport, ours)


def build_environment(given: Mapping[str, str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a program finds in its environment: the few variables that every program needs, and what it is given."""
    environ = os.environ if environ is None else environ
    kept = {k: v for k, v in environ.items() if k in _INHERITED_VARIABLES or k.startswith("XDG_")}
    return {**kept, **given}
