"""Fixtures of the editor's side."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.acp.driver import Editor, editor

Start = Callable[..., Editor]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    """Starts editors on one store, each a process of its own, ready to open sessions."""
    with ExitStack() as stack:

        def started(*, capabilities: dict[str, object] | None = None, **more: str) -> Editor:
            made = stack.enter_context(editor(home, **more))
            made.initialize(**(capabilities or {}))
            return made

        yield started
