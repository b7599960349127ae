"""Start-up: how long a command takes that asks one thing, beside the bare interpreter."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator

from bench import fill
from bench.spread import beside, ms
from bench.stage import Stage
from bench.table import Line, line

_SESSIONS = 1000
_COMMAND = "from keryx.cli import main; main()"


async def run(stage: Stage) -> AsyncIterator[Line]:
    if stage.dsn:
        return
    home = stage.folder / "home"
    home.mkdir()
    sessions = stage.size(_SESSIONS)
    place, _ = await stage.filled("startup", lambda db: fill.lanes_with_sessions(db, sessions))
    environ = {**os.environ, "KERYX_HOME": str(home), "KERYX_DATABASE": str(place.path)}
    # As for everybody whose installation keeps compiled modules.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)

    def python(*arguments: str) -> None:
        subprocess.run([sys.executable, *arguments], env=environ, stdout=subprocess.DEVNULL, check=True)

    async def ours(_: int) -> None:
        python("-c", _COMMAND, "sessions", "list")

    taken, floor = await beside(3 if stage.quick else 20, ours, lambda _: python("-c", "pass"))
    size = f"{sessions:,} sessions"
    yield line("keryx sessions list p50", size, ms(taken.p50), "ms", floor=ms(floor.p50), under=500)
