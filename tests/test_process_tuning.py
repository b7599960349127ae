"""The process: threads that compute give way quickly, and free memory goes back to the system."""

import subprocess
import sys

import pytest

from keryx.process_tuning import shorten_switch_interval

GROW_AND_SHRINK = """
import sys, threading, time
from keryx import process_tuning

def grow():
    # Blocks of one heap, of which some stay, so that the heap does not shrink by itself.
    blocks = [bytes(5_000 + n % 1_000) for n in range(40_000)]
    kept.extend(blocks[::2_000])

kept = []
process_tuning.limit_heaps()
with process_tuning.return_memory(every=0.2):
    before = process_tuning.read_resident_memory()
    threads = [threading.Thread(target=grow) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until = time.monotonic() + 30
    while process_tuning.read_resident_memory() > before + (64 << 20) and time.monotonic() < until:
        time.sleep(0.01)
    sys.exit(time.monotonic() >= until)
"""


def test_threads_give_way_quickly() -> None:
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        shorten_switch_interval()
        assert sys.getswitchinterval() <= 0.001
        sys.setswitchinterval(0.0001)
        shorten_switch_interval()
        assert sys.getswitchinterval() == pytest.approx(0.0001, rel=0.1)
    finally:
        sys.setswitchinterval(before)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no malloc_trim")
def test_free_memory_goes_back_to_the_system() -> None:
    assert subprocess.run([sys.executable, "-c", GROW_AND_SHRINK], check=False, timeout=60).returncode == 0
