"""Siege: what well-behaved users see of a node while hostile people, networks, models, plug-ins and a neighbour act at
once, beside the same users of the same node in quiet."""

from collections.abc import AsyncIterator

import anyio.to_thread
from tests.faults.siege.siege import ATTACKERS, Siege

from bench.stage import Stage
from bench.table import Line, line, none_of

_TARGETS: dict[str, dict[str, float]] = {
    "answer in a chat, p95": {"most": 2},
    "health, p99": {"under": 50},
    "event, p95": {},
    "commit to event, p95": {},
}


async def run(stage: Stage) -> AsyncIterator[Line]:
    home = stage.folder / "siege"
    home.mkdir()
    quiet, seconds = (5, 5) if stage.quick else (60, 120)
    siege = Siege(home, seconds, quiet, ATTACKERS, database=stage.dsn)
    verdict = await anyio.to_thread.run_sync(siege.run)
    size = f"{len(ATTACKERS)} attackers"
    for figure in verdict.figures:
        if figure.name in _TARGETS:
            target = _TARGETS[figure.name]
            yield line(figure.name, size, figure.siege, "ms", floor=figure.quiet, what="quiet", **target)
    yield none_of("lost in the siege", size, len(verdict.chats.lost))
    yield none_of("doubled in the siege", size, len(verdict.chats.silent_duplicates))
