"""A node as a process: started, killed and started again."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).parents[2]


class Node:
    """A node on a store, with its stderr kept for the report: `python -m tests.fakes.node`, or another command that
    writes a line when it is at work."""

    def __init__(
        self, url: str, home: Path, *, database: str = "", command: Sequence[str] = (), **environ: str
    ) -> None:
        self._command = command or [sys.executable, "-m", "tests.fakes.node", url]
        self._environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("KERYX_")},
            "KERYX_HOME": str(home),
            "KERYX_DATABASE": database,
            "KERYX_AGENT": "echo",
            **environ,
        }
        self.process: subprocess.Popen[bytes]
        self._log = tempfile.NamedTemporaryFile(prefix="keryx-node-", suffix=".log")  # noqa: SIM115 closed with the node

    def start(self, *, wait: bool = True, **extra: str) -> None:
        self.process = subprocess.Popen(
            self._command,
            cwd=_ROOT,
            env={**self._environ, **extra},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        if wait:
            self.wait_ready()

    def wait_ready(self, seconds: float = 60) -> bool:
        """Whether the node is at work. One that ended before that is not."""
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], seconds)
        return bool(readable) and bool(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.end()

    def pause(self, seconds: float) -> None:
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)

    def end(self, seconds: float = 30) -> None:
        self.process.wait(seconds)
        if self.process.stdout:
            self.process.stdout.close()

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text(errors="replace")

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        self._log.close()
