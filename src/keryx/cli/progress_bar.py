"""A progress bar on stderr for long commands. It shows nothing in a pipe."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from keryx.core.records import Progress, ignore_progress


@contextmanager
def show_progress() -> Generator[Progress]:
    """Show a progress bar that disappears when the work is done."""
    if not sys.stderr.isatty():
        yield ignore_progress
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def update(stage: str, done: int, total: int, /) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage)
            bars.update(tasks[stage], completed=done, total=total or None)

        yield update
