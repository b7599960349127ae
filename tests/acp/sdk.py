"""The protocol's own TypeScript library, kept in a folder of the user's cache so that it is fetched once."""

import os
import shutil
import subprocess
from pathlib import Path

VERSION = "2.4.0"
NAME = "@agentclientprotocol/sdk"
SECONDS = 120


class Missing(Exception):
    """Why the library cannot be used here."""


def library() -> Path:
    """The folder of the library."""
    npm = shutil.which("npm")
    if not npm or not shutil.which("node"):
        raise Missing("node and npm are not installed")
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "keryx-tests" / f"acp-{VERSION}"
    )
    found = cache / "node_modules" / NAME
    if not (found / "package.json").exists():
        _install(npm, cache)
    return found


def _install(npm: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", f"{NAME}@{VERSION}"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    except (subprocess.SubprocessError, OSError) as exc:
        raise Missing(f"npm cannot fetch {NAME}: {type(exc).__name__}") from exc
