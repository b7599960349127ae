"""Tunes the Python process that runs a node: how long a thread keeps the interpreter, and how free memory goes back to the system."""

import ctypes
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

# How long a thread keeps the interpreter while another one waits for it. The default, 5 ms, would let a busy thread
# delay every step of the event loop by as much.
_SWITCH_SECONDS = 0.0001
# Parameters of `mallopt` in glibc: the least size of a block that has pages of its own, which go back when it is freed,
# and the number of heaps. Without the second, each thread has its own heap, which keeps what the thread once needed.
_M_MMAP_THRESHOLD, _MMAP_BYTES = -3, 1 << 20
_M_ARENA_MAX, _ARENAS = -8, 2
_CHECK_SECONDS = 5.0
# Free memory is given back only after the process has grown by this much, because looking for it takes time.
_GROWTH_BYTES = 32 << 20
_ATTEMPTS = 60
_STATM = Path("/proc/self/statm")


def shorten_switch_interval() -> None:
    """Make busy threads yield to the event loop quickly."""
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))


def limit_heaps() -> None:
    """Make threads share a few heaps. Call it before threads are started. Without glibc it does nothing."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
    mallopt(_M_ARENA_MAX, _ARENAS)


@contextmanager
def return_memory(*, every: float = _CHECK_SECONDS) -> Generator[None]:
    """Give free memory back to the system while the block runs, in a thread that looks every few seconds. Without glibc
    and /proc it does nothing."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
        read_resident_memory()
    except (AttributeError, OSError):
        yield
        return
    over = threading.Event()

    def check() -> None:
        low, attempts = read_resident_memory(), 0
        while not over.wait(every):
            resident = read_resident_memory()
            if resident > low + _GROWTH_BYTES:
                # The call releases the interpreter.
                trim(0)
                resident = read_resident_memory()
                attempts += 1
            else:
                attempts = 0
            # What is in use now may be free a little later. What stays in use for long becomes the new baseline.
            low, attempts = (resident, 0) if attempts == _ATTEMPTS else (min(low, resident), attempts)

    thread = threading.Thread(target=check, name="keryx-memory", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def read_resident_memory() -> int:
    """Return the resident memory of this process in bytes. Raise `OSError` where there is no /proc."""
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
