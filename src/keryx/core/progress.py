"""Progress: how long work tells how far it has come."""

from typing import Protocol


class Progress(Protocol):
    """Called now and then with what is being done, how much of it is done, and how much there is (0: unknown).

    May be called from any thread."""

    def __call__(self, stage: str, done: int, total: int, /) -> None: ...


def silent(stage: str, done: int, total: int, /) -> None:
    """Tells nobody."""
