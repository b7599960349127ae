"""Progress on a terminal: a bar on stderr while long work goes on, and nothing in a pipe."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from keryx.core.progress import Progress, silent


@contextmanager
def bar() -> Generator[Progress]:
    """A progress that is shown to a person, and gone when the work is done."""
    if not sys.stderr.isatty():
        yield silent
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def tell(stage: str, done: int, total: int, /) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage)
            bars.update(tasks[stage], completed=done, total=total or None)

        yield tell
