"""The tool server of the tests over HTTP, as a process that can be killed and started again."""

import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.free_ports import find_free_port

from keryx.agents.agent_config import ToolServerConfig

SCRIPT = str(Path(__file__).with_name("tool_server.py"))


class Far:
    def __init__(self, runs: Path) -> None:
        self._port = find_free_port()
        self._command = [sys.executable, SCRIPT, str(runs), str(self._port)]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/mcp"

    @property
    def server(self) -> ToolServerConfig:
        return ToolServerConfig(name="far", url=self.url, headers={"Authorization": "text:Bearer x"})

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not self._listens() and time.monotonic() < deadline:
            time.sleep(0.05)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
