"""Watching: the start over thousands of old conversations, an idle minute, and the time until a new message is there."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

from bench.history import write_source
from bench.stage import Stage
from bench.table import Line, line
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR
from keryx.core.sessions import Viewer
from keryx.engine.loops.session_watcher import POLL_SECONDS, SessionWatcher, StoreTarget
from keryx.importers.watched_programs import WATCHED_PROGRAMS
from keryx.store.db import Database
from keryx.timing import SystemClock

_SESSIONS = 5_000
_NEW = 50
_POLLS_PER_MINUTE = 60
_RECORDS_EACH = 200
_DAYS = 60


async def run(stage: Stage) -> AsyncIterator[Line]:
    if stage.dsn:
        return
    count = stage.size(_SESSIONS)
    home = stage.folder / "watched"
    place = await asyncio.to_thread(write_source, home / ".qwen/projects", count * _RECORDS_EACH)
    files = sorted(place.rglob("*.jsonl"))
    _age(files[_NEW:])
    size = f"{len(files):,} conversations"
    async with stage.place().database() as database:
        first, began = _build(database, home), time.perf_counter()
        done = await first.poll()
        new = time.perf_counter() - began
        yield line("watch, first start", f"{size}, {done.files} of them new", new, "s", under=30)
        again, began = _build(database, home), time.perf_counter()
        await again.poll()
        yield line("watch, later start", size, (time.perf_counter() - began) * 1000, "ms", under=3000)
        for _ in range(3):
            await again.poll()
        yield line(
            "watch, CPU of an idle minute",
            size,
            await _spend_idle(again, 2 if stage.quick else 20),
            "ms",
            under=1500,
        )
        yield line("watch, until a message is here", size, await _measure_delay(again, files[0]), "ms", under=2500)  # fmt: skip


def _age(files: list[Path]) -> None:
    past = time.time() - timedelta(days=_DAYS).total_seconds()
    for file in files:
        os.utime(file, (past, past))


def _build(database: Database, home: Path) -> SessionWatcher:
    viewer = Viewer(DEFAULT_PROFILE, OPERATOR)
    return SessionWatcher(
        [WATCHED_PROGRAMS["qwen"]],
        StoreTarget(database, viewer, machine="bench"),
        SystemClock(),
        home=home,
        env={},
        since=timedelta(days=30),
    )


async def _spend_idle(watcher: SessionWatcher, polls: int) -> float:
    """Return the milliseconds of CPU that a minute takes in which nothing changes, from a part of one."""
    began = time.process_time()
    for _ in range(polls):
        await watcher.poll()
        await asyncio.sleep(POLL_SECONDS)
    return (time.process_time() - began) * 1000 * _POLLS_PER_MINUTE / polls


async def _measure_delay(watcher: SessionWatcher, file: Path) -> float:
    """Return the milliseconds from a write of a program until its message is in the store."""
    await asyncio.to_thread(_append, file)
    began = time.perf_counter()
    while True:
        if (await watcher.poll()).messages:
            return (time.perf_counter() - began) * 1000
        await asyncio.sleep(POLL_SECONDS)


def _append(file: Path) -> None:
    record = file.read_text().splitlines()[0].replace('"uuid": "', '"uuid": "new-')
    with file.open("a") as out:
        out.write(f"{record}\n")
