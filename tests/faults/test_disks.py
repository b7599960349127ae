"""Disks that are full, and disks that refuse to sync."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import left_out
from tests.fakes.platform import Platform
from tests.faults.node import Node

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


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:  # or the close would try once more what found no room
        try:
            while True:
                file.write(os.urandom(64 * 1024))
        except OSError:
            pass
