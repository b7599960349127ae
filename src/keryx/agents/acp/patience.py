"""Patience: how long an agent may take for each thing that is asked of it."""

from datetime import timedelta

import msgspec


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """`start` is for the first answer of a process, `open` for a session, `cancel` for the end of a cancelled turn."""

    start: timedelta = timedelta(seconds=60)
    open: timedelta = timedelta(seconds=120)
    cancel: timedelta = timedelta(seconds=10)


USUAL = Patience()
