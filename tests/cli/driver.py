"""Drives the real command line: in this process, as a process of its own, and on a terminal."""

import fcntl
import io
import json
import logging
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tests import fork_server
from tests.cli.screen import Screen

from keryx.cli.commands import run

WAIT = 60.0
_ROWS = 24
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()=>][0-9A-Z]?|\x1b\][^\x07]*\x07|\r")


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """Keryx with a home folder of its own, and whatever variables a test sets."""

    def __init__(self, home: Path, **variables: str) -> None:
        self.home = home
        self.variables = {
            "KERYX_HOME": str(home),
            "KERYX_AGENT": "echo",
            "KERYX_PORT": "0",
            **variables,
        }

    def __call__(self, *arguments: str, stdin: str | bytes = b"") -> Result:
        """Run one command in this process."""
        given = stdin if isinstance(stdin, bytes) else stdin.encode()
        streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
        with (
            mock.patch.dict(os.environ, self.variables),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), "utf-8")),
            redirect_stdout(streams[0]),
            redirect_stderr(streams[1]),
            _logging_kept(),
        ):
            code = run(arguments)
        out, err = (_text(stream) for stream in streams)
        return Result(code, out, err)

    def ok(self, *arguments: str, stdin: str | bytes = b"") -> Result:
        result = self(*arguments, stdin=stdin)
        assert result.code == 0, result
        return result

    def json(self, *arguments: str) -> Any:
        return self.ok(*arguments, "--json").json

    def json_of(self, *arguments: str, stdin: str | bytes) -> Any:
        return self.ok(*arguments, stdin=stdin).json

    def session(self, text: str = "hello") -> str:
        """A session with one answered question; gives its id."""
        return str(self.json("send", "--wait", text)["session"])

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start a command as a process of its own."""
        return fork_server.start(*arguments, env=self.environment(**variables), text=True)

    def environment(self, **variables: str) -> dict[str, str]:
        return {**os.environ, **self.variables, **variables}

    @contextmanager
    def serving(self, *arguments: str, **variables: str) -> Generator["Node"]:
        """A node that is ready, ended with the block."""
        process = self.start("serve", "--json", *arguments, **variables)
        assert process.stdout and process.stderr
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield Node(process, json.loads(line)["address"])
        finally:
            end(process)

    @contextmanager
    def terminal(self, *arguments: str, columns: int = 80, **variables: str) -> Generator["Terminal"]:
        """A command on a terminal."""
        environment = self.environment(**{"TERM": "xterm", **variables})
        # The size of the terminal counts, not that of the terminal in which the tests run.
        if "COLUMNS" not in variables:
            environment.pop("COLUMNS", None)
        terminal = Terminal(*arguments, env=environment, columns=columns)
        try:
            yield terminal
        finally:
            terminal.close()

    def until(self, wanted: str, *arguments: str) -> str:
        """Repeat a command until its output has the wanted words."""
        deadline = time.monotonic() + WAIT
        while True:
            found = self(*arguments)
            if wanted in found.out:
                return found.out
            assert time.monotonic() < deadline, found
            # A command takes about as long itself.
            time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Node:
    process: subprocess.Popen[str]
    address: str


class Terminal:
    """What a person sees and types."""

    def __init__(self, *arguments: str, env: dict[str, str], columns: int = 80) -> None:
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
        self._process = fork_server.start_on_terminal(*arguments, env=env, terminal=theirs)
        self._shown = Screen(columns, _ROWS)
        self.code: int | None = None
        self._screen = ""
        self.raw = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def see(self, wanted: str) -> str:
        """Wait until something new has the wanted words; gives all up to them, and forgets it."""
        deadline = time.monotonic() + WAIT
        while wanted not in self._screen:
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"{wanted!r} did not appear in {self._screen!r}")
        seen, _, self._screen = self._screen.partition(wanted)
        return seen

    def show(self, *wanted: str) -> str:
        """Wait until the screen, with what has scrolled away, has all the wanted words; gives all of it."""
        deadline = time.monotonic() + WAIT
        while not all(words in self._shown.text for words in wanted):
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"{wanted!r} did not appear on\n{self._shown.text}")
        return self._shown.text

    @property
    def screen(self) -> str:
        return self._shown.text

    def exit(self) -> int:
        """Wait for the end; gives the exit code."""
        while self._read(WAIT):
            pass
        self.code = self._process.wait(WAIT)
        return self.code

    def kill(self) -> None:
        self._process.kill()
        self.exit()

    def close(self) -> None:
        if self.code is None:
            self.kill()
        os.close(self._fd)

    def _read(self, seconds: float) -> bool:
        if seconds <= 0 or not select.select([self._fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            return False
        text = data.decode("utf-8", "replace")
        self.raw += text
        self._shown.feed(text)
        if self._shown.replies:
            os.write(self._fd, self._shown.replies.encode())
            self._shown.replies = ""
        self._screen += _ESCAPES.sub("", text)
        return bool(data)


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process, if it still runs, and close its pipes."""
    if process.poll() is None:
        process.kill()
    process.communicate()


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8", "surrogatepass")


@contextmanager
def _logging_kept() -> Generator[None]:
    """A command sets up the log of its process; this one is shared by all tests."""
    loggers = [logging.getLogger(name) for name in ("", "keryx", "uvicorn")]
    handlers, levels = loggers[0].handlers[:], [logger.level for logger in loggers]
    try:
        yield
    finally:
        loggers[0].handlers[:] = handlers
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
