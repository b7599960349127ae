"""A shell that plays the transcripts of the docs."""

import os
import re
import secrets
import signal
import subprocess
import sys
from pathlib import Path

from tests import fork_server

# A command of Keryx as a fork of the server of the tests. A node is a process of its own, which can be killed.
_PROGRAM = """#!{python} -ISE
import json, os, socket, struct, sys
if sys.argv[1:2] == ["serve"]:
    os.execv({real!r}, [{real!r}, *sys.argv[1:]])
control = socket.socket(fileno={descriptor})
ours, theirs = socket.socketpair()
request = {{"arguments": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "terminal": False}}
socket.send_fds(control, [json.dumps(request).encode()], [0, 1, 2, theirs.fileno()])
theirs.close()
control.detach()
ours.recv(4)
code = struct.unpack("i", ours.recv(4))[0]
sys.exit(code if code >= 0 else 128 - code)
"""
_JOB_ENDED = re.compile(r"bash: line \d+: +\d+ (Killed|Terminated)")


class Shell:
    """One bash per page, in a home of its own. Output of background jobs belongs to the command that runs then."""

    def __init__(self, home: Path, *, port: int) -> None:
        self._port = port
        environ = {k: v for k, v in os.environ.items() if not k.startswith("KERYX_")}
        descriptor = fork_server.get_descriptor()
        programs = home / ".programs"
        programs.mkdir()
        program = programs / "keryx"
        real = str(Path(sys.executable).with_name("keryx"))
        program.write_text(_PROGRAM.format(python=sys.executable, real=real, descriptor=descriptor))
        program.chmod(0o700)
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=home,
            start_new_session=True,
            pass_fds=[descriptor],
            env={
                **environ,
                "HOME": str(home),
                "PATH": f"{programs}:{Path(sys.executable).parent}:{environ['PATH']}",
                "KERYX_PORT": str(port),
                "COLUMNS": "100",
                "TERM": "dumb",
            },
        )

    def run(self, command: str) -> str:
        """Run a command; gives what it printed."""
        end = secrets.token_hex(8)
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{command.replace('7337', str(self._port))}\necho {end}\n".encode())
        self._process.stdin.flush()
        lines: list[str] = []
        while line := self._process.stdout.readline().decode():
            if line.rstrip("\n").endswith(end):
                lines.append(line.rstrip("\n").removesuffix(end))
                break
            lines.append(line)
        said = [line for line in lines if not _JOB_ENDED.match(line)]
        return "".join(said).replace(str(self._port), "7337")

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                stream.close()


def steps(transcript: str) -> list[tuple[str, str]]:
    """The commands of a transcript, each with the output that is shown below it."""
    found: list[tuple[str, str]] = []
    for line in transcript.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found:
            command, output = found[-1]
            found[-1] = (command, f"{output}{line}\n")
    return found


def agrees(shown: str, real: str) -> bool:
    """Whether real output is what the page shows; `…` stands for anything."""
    pattern = ".*?".join(re.escape(part.strip()) for part in shown.strip().split("…"))
    text = "\n".join(line.rstrip() for line in real.strip().splitlines())
    return re.fullmatch(rf"\s*{pattern}\s*".replace(".*?", r"\s*.*?\s*"), text, re.S) is not None
