"""A hostile neighbour: it takes a processor and the rest of the disk.

python -m tests.faults.siege.neighbour SECONDS
"""

import os
import subprocess
import sys
import time
from pathlib import Path


def burn(seconds: float) -> None:
    """Use one processor."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


class SmallDisk:
    """A file system of its own in memory, which can be filled. Needs the right to mount."""

    def __init__(self, folder: Path, megabytes: int = 2_000) -> None:
        self.folder = folder
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)],
            check=False,
            capture_output=True,
        )
        self.mounted = done.returncode == 0
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave not one block."""
        room = os.statvfs(self.folder)
        with self._filler.open("wb") as filler:
            try:
                os.posix_fallocate(filler.fileno(), 0, max(room.f_bavail * room.f_bsize, 1))
            except OSError:
                # The node wrote meanwhile. What is left goes page by page.
                self._fill_slowly(filler.fileno())

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def remove(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)

    def _fill_slowly(self, descriptor: int) -> None:
        while True:
            try:
                os.write(descriptor, bytes(4_096))
            except OSError:
                return


if __name__ == "__main__":
    burn(float(sys.argv[1]))
