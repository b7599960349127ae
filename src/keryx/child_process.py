"""A child process with piped standard streams: its output, the end of its error output, and a stop that ends its whole process group."""

import asyncio
import logging
import math
import os
import signal
import sys
from asyncio.subprocess import Process as Running
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio

from keryx import process_group
from keryx.core.text import to_single_line
from keryx.jsonrpc.frames import CHUNK_BYTES

log = logging.getLogger(__name__)
_STDERR_TAIL_BYTES = 16_384
# A longer line of its standard error is passed on in parts.
_MAX_LINE_BYTES = 40_000
_UNWANTED_PAUSE_SECONDS = 0.01
_MINUTE_SECONDS = 60.0
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


class LineLimit:
    """How many lines of a program are kept in a minute."""

    def __init__(self, name: str, most: int) -> None:
        """`name` is what the log calls the program."""
        self._name = name
        self._most = most
        self._lines = 0
        self._since = -math.inf

    @property
    def is_reached(self) -> bool:
        """Whether the rest of this minute is left out."""
        return self._lines > self._most

    def allows_line(self) -> bool:
        """Count a line. Above the limit one record in the log says so."""
        now = asyncio.get_running_loop().time()
        if now - self._since > _MINUTE_SECONDS:
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines == self._most + 1:
            log.warning("%s logs too much: the rest of this minute is left out", self._name)
        return not self.is_reached


class ChildProcess:
    def __init__(
        self,
        running: Running,
        transport: asyncio.SubprocessTransport,
        parent_pipe: int,
        on_error_line: Callable[[str], bool] | None = None,
    ) -> None:
        self._process = running
        self._on_error_line = on_error_line
        self._transport = transport
        self._parent_pipe: int | None = parent_pipe
        self._stderr = bytearray()
        self._stderr_task = asyncio.create_task(self._read_stderr())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr_tail(self) -> str:
        """The end of its standard error."""
        return self._stderr.decode("utf-8", "replace")

    @property
    def last_stderr_line(self) -> str:
        """The last line of its standard error that is not blank, shortened."""
        lines = [line for line in map(to_single_line, self.stderr_tail.splitlines()) if line]
        return lines[-1][:300] if lines else ""

    async def write(self, frame: bytes) -> None:
        """Write to its standard input; wait while it does not read. Raise `BrokenPipeError` if it has ended."""
        stdin = self._process.stdin
        assert stdin is not None
        if stdin.is_closing():
            raise BrokenPipeError("the program has ended")
        stdin.write(frame)
        try:
            await stdin.drain()
        except ConnectionError as exc:
            raise BrokenPipeError("the program has ended") from exc

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield its output as it arrives, until it closes it."""
        stdout = self._process.stdout
        assert stdout is not None
        while chunk := await stdout.read(CHUNK_BYTES):
            yield chunk

    async def wait(self) -> int:
        """Wait until it ends and return its exit code."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Terminate the whole process group, and kill it after three seconds. Safe to call more than once."""
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
        line = b""
        while stderr and (chunk := await stderr.read(CHUNK_BYTES)):
            self._stderr += chunk
            del self._stderr[:-_STDERR_TAIL_BYTES]
            if self._on_error_line is not None:
                *lines, line = (line + chunk).split(b"\n")
                if len(line) > _MAX_LINE_BYTES:
                    lines, line = [*lines, line], b""
                if not all(self._on_error_line(each.decode("utf-8", "replace")) for each in lines):
                    # What is read for nothing must not take the time of the event loop.
                    line = b""
                    await asyncio.sleep(_UNWANTED_PAUSE_SECONDS)
        if line and self._on_error_line is not None:
            self._on_error_line(line.decode("utf-8", "replace"))


async def start(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    merged: bool = False,
    on_error_line: Callable[[str], bool] | None = None,
) -> ChildProcess:
    """Start a program without a shell. With `merged`, its standard error is part of its output; else `on_error_line` is called
    with each line of it, and returns false as long as no more are wanted. Raise `OSError` if it cannot be started."""
    loop = asyncio.get_running_loop()
    read_end, write_end = os.pipe()
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(limit=CHUNK_BYTES, loop=loop),
            sys.executable,
            "-I",
            "-S",
            str(Path(process_group.__file__)),
            str(read_end),
            *command,
            env=dict(env),
            cwd=cwd,
            stderr=asyncio.subprocess.STDOUT if merged else asyncio.subprocess.PIPE,
            start_new_session=True,
            pass_fds=(read_end,),
        )
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    return ChildProcess(Running(transport, protocol, loop), transport, write_end, on_error_line)


def build_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program: the few variables that every program needs, and those given."""
    inherited = {k: v for k, v in os.environ.items() if k in _INHERITED_VARIABLES or k.startswith("XDG_")}
    return {**inherited, **variables}
