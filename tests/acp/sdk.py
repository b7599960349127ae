"""Libraries for Node, such as the protocol's own one, kept in folders of the user's cache so that each is fetched once."""

import os
import shutil
import subprocess
from pathlib import Path

VERSION = "2.4.0"
NAME = "@agentclientprotocol/sdk"
SECONDS = 120


class Missing(Exception):
    """Why the library cannot be used here."""


def library(name: str = NAME, version: str = VERSION) -> Path:
    """The folder of a library."""
    npm = shutil.which("npm")
    if not npm or not shutil.which("node"):
        raise Missing("node and npm are not installed")
    kind = "acp" if name == NAME else name
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        / "keryx-tests"
        / f"{kind}-{version}"
    )
    found = cache / "node_modules" / name
    if not (found / "package.json").exists():
        _install(npm, cache, f"{name}@{version}")
    return found


def _install(npm: str, folder: Path, package: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", package]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    except (subprocess.SubprocessError, OSError) as exc:
        raise Missing(f"npm cannot fetch {package}: {type(exc).__name__}") from exc
