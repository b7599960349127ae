"""Disks that are full, and disks that refuse to sync."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import left_out
from tests.fakes.platform import Platform
from tests.faults.node import Node
from tests.faults.sync_scenario import MESSAGES

from keryx.core.deliveries import REPEAT_MARK

SOURCE = Path(__file__).with_name("syncfault.c")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 12 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(place)], check=False, capture_output=True
    )
    if mounted.returncode:
        left_out.skip(
            "tests of a full disk",
            why=f"a small disk cannot be mounted: {mounted.stderr.decode().strip()}",
            command=left_out.SMALL_DISK,
        )
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def sync_fault(tmp_path: Path) -> Path:
    """A library that makes syncs fail while a flag file exists."""
    compiler = shutil.which("cc")
    if compiler is None:
        left_out.skip(
            "the test of a failing disk sync", why="there is no C compiler", command=left_out.COMPILER
        )
    library = tmp_path / "syncfault.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


def test_a_full_disk_stops_intake_and_space_brings_it_back(small_disk: Path) -> None:
    with Platform() as platform, Node(platform.url, small_disk) as node:
        node.start()
        platform.say("chat", "before")
        assert platform.wait_for(lambda: len(platform.shown) == 1, 60)
        filler = small_disk / "filler"
        _fill(filler)
        platform.say("chat", "x" * 500_000)
        platform.say("chat", "during")
        time.sleep(3)
        assert node.process.poll() is None, node.log[-2000:]
        assert len(platform.shown) == 1, "nothing is answered that could not be stored"
        filler.unlink()
        assert platform.wait_for(lambda: len(platform.shown) >= 3, 60), node.log[-3000:]
        assert "disk" in node.log and "full" in node.log
    assert [s.text[:6] for s in platform.shown] == ["before", "xxxxxx", "during"]


def test_a_failed_sync_ends_the_process_and_acknowledges_nothing(tmp_path: Path, sync_fault: Path) -> None:
    flag = tmp_path / "fail"
    environ = {"LD_PRELOAD": str(sync_fault), "SYNC_FAULT": str(flag)}
    with Platform() as platform, Node(platform.url, tmp_path, **environ) as node:
        node.start()
        platform.say("chat", "one")
        assert platform.wait_for(lambda: len(platform.shown) == 1, 60)
        flag.touch()
        platform.say("chat", "two")
        node.end()
        assert node.process.returncode == 74
        assert "refused to sync" in node.log
        assert len(platform.shown) == 1
        flag.unlink()
        node.start()
        assert platform.wait_for(lambda: platform.shown[-1].text == "two", 60)
    # The end may come before it is stored that the first answer has arrived: then that is repeated, with the mark.
    assert [s.text for s in platform.shown if s.text != f"{REPEAT_MARK}one"] == ["one", "two"]


@dataclass(frozen=True)
class ScenarioRun:
    code: int
    acknowledged: list[str]
    log: str
    # The name of each file that was synced, in order.
    synced: list[str]


def run_scenario(library: Path, home: Path, *, failing: int = 0) -> ScenarioRun:
    """Run the scenario; one of its syncs may fail, and only that one."""
    home.mkdir()
    trace = home.with_suffix(".trace")
    environ = {"LD_PRELOAD": str(library), "SYNC_TRACE": str(trace), "SYNC_FAULT_AT": str(failing)}
    done = _run_scenario(home, "write", **environ)
    synced = [Path(line[1:]).name for line in trace.read_text().splitlines()]
    return ScenarioRun(done.returncode, done.stdout.split(), done.stderr, synced)


def _run_scenario(home: Path, what: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.faults.sync_scenario", str(home), what],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def check_failed_sync(library: Path, home: Path, failing: int) -> int:
    """Let this sync fail and check that the store ends the process, and that the index is built again. Return the exit
    code."""
    run = run_scenario(library, home, failing=failing)
    name = run.synced[failing - 1]
    context = f"sync {failing}, of {name}: {run.code} {run.log}"
    if name.startswith("keryx-search"):
        assert run.code == 0 and "built again" in run.log, context
    elif name.startswith("keryx"):
        assert run.code == 74 and "refused to sync" in run.log, context
    else:
        assert run.code in (0, 74), context
    if run.code == 0:
        assert len(run.acknowledged) == MESSAGES, context
    kept = _run_scenario(home, "read")
    assert kept.returncode == 0, (context, kept.stderr)
    assert kept.stdout.split()[: len(run.acknowledged)] == run.acknowledged, context
    return run.code


@pytest.mark.faults
def test_one_failed_sync_of_each_file_ends_the_process_or_discards_the_index(
    tmp_path: Path, sync_fault: Path
) -> None:
    """At the making of the store, at a checkpoint, and at the end."""
    synced = run_scenario(sync_fault, tmp_path / "whole").synced
    count = len(synced)
    stores = [n for n in range(1, count + 1) if synced[n - 1] == "keryx.db"]
    logs = [n for n in range(1, count + 1) if synced[n - 1] == "keryx.db-wal"]
    index = [n for n in range(1, count + 1) if synced[n - 1].startswith("keryx-search")]
    for n in {*stores, logs[0], logs[-1], index[0], index[-1]}:
        check_failed_sync(sync_fault, tmp_path / str(n), n)


@pytest.mark.faults
def test_every_sync_that_fails_once_ends_the_process_or_discards_the_index(
    tmp_path: Path, sync_fault: Path
) -> None:
    synced = run_scenario(sync_fault, tmp_path / "whole").synced
    codes = [check_failed_sync(sync_fault, tmp_path / str(n), n) for n in range(1, len(synced) + 1)]
    # SQLite syncs the folder too and ignores failures. That of the store before its first commit counts.
    assert [code for code, name in zip(codes, synced, strict=True) if name == "whole"].count(74) == 1


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:  # or the close would try once more what found no room
        try:
            while True:
                file.write(os.urandom(64 * 1024))
        except OSError:
            pass
