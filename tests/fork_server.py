"""Starts Keryx as a process of its own, as a fork of one that has imported everything: that takes longer than most tests.

What is read only when Python starts is that of the first process. A test that sets such a variable gets a new process."""

import atexit
import gc
import io
import json
import os
import select
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from fcntl import ioctl
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

# The modules that the commands import by the time they are ready.
_MODULES = (
    "keryx.cli.commands.acp",
    "keryx.cli.commands.chat",
    "keryx.cli.commands.send",
    "keryx.cli.commands.serve",
)
# Variables that Python or the C library reads once.
_START_VARIABLES = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_")
_REQUEST_BYTES = 1 << 20
_WAIT = 60.0
_NUMBER = struct.Struct("i")


def build_command(*arguments: str) -> list[str]:
    """Return the command line of a new process."""
    return [sys.executable, "-W", "error", "-c", "from keryx.cli import main; main()", *arguments]


class ForkedProcess(subprocess.Popen[Any]):
    """A process that the fork server has started and waits for."""

    def __init__(self, arguments: Sequence[str], pid: int, status: socket.socket) -> None:
        self.args = list(arguments)
        self.pid = pid
        self.returncode: Any = None
        self.stdin = self.stdout = self.stderr = None
        self._status = status
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        with self._lock:
            if self.returncode is None:
                if not select.select([self._status], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
                self.returncode = _receive_number(self._status)
                self._status.close()
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        until = None if timeout is None else time.monotonic() + timeout
        said: dict[str, Any] = {}

        def read(name: str, stream: IO[Any]) -> None:
            said[name] = stream.read()
            stream.close()

        readers = [
            threading.Thread(target=read, args=(name, stream), daemon=True)
            for name, stream in (("stdout", self.stdout), ("stderr", self.stderr))
            if stream and not stream.closed
        ]
        for reader in readers:
            reader.start()
        if self.stdin and not self.stdin.closed:
            with suppress(BrokenPipeError):
                if input:
                    self.stdin.write(input)
                self.stdin.close()
        for reader in readers:
            reader.join(None if until is None else max(0.0, until - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(None if until is None else max(0.0, until - time.monotonic()))
        return said.get("stdout"), said.get("stderr")


def start(*arguments: str, env: Mapping[str, str], text: bool = False) -> subprocess.Popen[Any]:
    """Start a command of Keryx with pipes as its standard streams."""
    if not _can_fork(env):
        return subprocess.Popen(
            build_command(*arguments),
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=text,
        )
    (stdin, ours_in), (ours_out, stdout), (ours_err, stderr) = os.pipe(), os.pipe(), os.pipe()
    process = _fork(arguments, env, (stdin, stdout, stderr))
    process.stdin = _open(ours_in, "w", text)
    process.stdout = _open(ours_out, "r", text)
    process.stderr = _open(ours_err, "r", text)
    return process


def start_on_terminal(*arguments: str, env: Mapping[str, str], terminal: int) -> subprocess.Popen[Any]:
    """Start a command of Keryx on a terminal of its own. Closes the descriptor."""
    if _can_fork(env):
        return _fork(arguments, env, (terminal, terminal, terminal), terminal=True)

    def take_terminal() -> None:
        ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        build_command(*arguments),
        env=env,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(terminal)
    return process


def get_descriptor() -> int:
    """Return the descriptor of the connection to the server, for a program that sends it requests of its own."""
    return _start_server()[0].fileno()


def _can_fork(env: Mapping[str, str]) -> bool:
    """Whether a process with these variables may be a fork."""

    def choose(variables: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in variables.items() if name.startswith(_START_VARIABLES)}

    return hasattr(os, "pidfd_open") and choose(env) == choose(_start_server()[1])


def _fork(
    arguments: Sequence[str], env: Mapping[str, str], streams: tuple[int, int, int], *, terminal: bool = False
) -> ForkedProcess:
    control, _ = _start_server()
    request = {"arguments": arguments, "env": dict(env), "cwd": str(Path.cwd()), "terminal": terminal}
    ours, theirs = socket.socketpair()
    with closing(theirs):
        socket.send_fds(control, [json.dumps(request).encode()], [*streams, theirs.fileno()])
    for stream in set(streams):
        os.close(stream)
    return ForkedProcess(build_command(*arguments), _receive_number(ours), ours)


def _open(descriptor: int, mode: str, text: bool) -> IO[Any]:
    return os.fdopen(descriptor, mode) if text else os.fdopen(descriptor, f"{mode}b")


@cache
def _start_server() -> tuple[socket.socket, dict[str, str]]:
    """Return the connection to the server of this process, which ends with it, and the variables of the server."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # A program that is given as an argument imports from where it runs, as `build_command` does.
    program = f"import runpy; runpy.run_path({__file__!r}, run_name='fork_server')"
    env = dict(os.environ)
    with closing(theirs):
        server = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program, str(theirs.fileno())],
            env=env,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def stop() -> None:
        ours.close()
        server.wait(_WAIT)

    atexit.register(stop)
    return ours, env


def _receive_number(status: socket.socket) -> int:
    status.settimeout(_WAIT)
    data = status.recv(_NUMBER.size)
    assert data, "the fork server has ended"
    return _NUMBER.unpack(data)[0]


def _serve(control: socket.socket) -> None:
    """Fork on each request, and tell how each process ended. Returns in the process that is to be Keryx."""
    for module in _MODULES:
        import_module(module)
    gc.collect()
    gc.freeze()
    # The descriptors that tell the end of a process, with its number and the connection to who waits for it.
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready in select.select([control.fileno(), *running], [], [])[0]:
            if ready != control.fileno():
                pid, status = running.pop(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.close(ready)
                with closing(status), suppress(OSError):
                    status.send(_NUMBER.pack(code))
                continue
            data, descriptors, _, _ = socket.recv_fds(control, _REQUEST_BYTES, 4)
            if not data:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                for descriptor, (_, status) in running.items():
                    os.close(descriptor)
                    status.close()
                control.close()
                os.close(descriptors.pop())
                _become(json.loads(data), descriptors)
                return
            status = socket.socket(fileno=descriptors.pop())
            for descriptor in descriptors:
                os.close(descriptor)
            status.send(_NUMBER.pack(pid))
            running[os.pidfd_open(pid)] = pid, status


def _become(request: dict[str, Any], streams: Sequence[int]) -> None:
    """Set up this process as a new one is."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if request["terminal"]:
        os.setsid()
        ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["-c", *request["arguments"]]
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(
            os.fdopen(number, mode, buffering=-1, closefd=False),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=number == 2 or os.isatty(number),
        )
        for number, (mode, stream) in enumerate((("rb", sys.stdin), ("wb", sys.stdout), ("wb", sys.stderr)))
    )


if __name__ == "fork_server":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    main = import_module("keryx.cli").main
    main()
