"""Stdout: for a command whose output is a protocol, kept from whatever else writes to it."""

import os
import sys

_kept: list[int] = []


def keep() -> int:
    """A descriptor for what stdout was. From the first call on, everything else that is printed goes to stderr."""
    if not _kept:
        sys.stdout.flush()
        _kept.append(os.dup(1))
        os.dup2(2, 1)
    return _kept[0]
