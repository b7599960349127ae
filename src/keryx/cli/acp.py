"""Acp: Keryx as the agent of an editor, which starts it and talks to it through a pipe."""

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

import anyio

from keryx import __version__
from keryx.agents.lent import Lent
from keryx.app import App
from keryx.cli import children, output, stdout, transcript
from keryx.cli.access import settings
from keryx.cli.ending import end_now
from keryx.surfaces.acp.options import Choices
from keryx.surfaces.acp.surface import Setup, serve

KIND = "acp"
_LAST_SECONDS = 3.5
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


async def acp() -> int:
    """Serve an editor over stdin and stdout with the Agent Client Protocol.

    An editor starts this by itself; there is nothing to type here. Sessions are
    those of every other surface, and what is said elsewhere appears in the
    editor. It ends when the editor hangs up. docs/how-to/editors.md shows how
    editors are set up.

        keryx acp
    """
    target = stdout.keep()
    app = App(settings())
    if sys.stdin.isatty():
        output.warn("keryx: this speaks a protocol for editors; `keryx chat` is for people. Ctrl-D leaves.")
    try:
        await _until_the_end(app, target)
    except BrokenPipeError:
        logging.getLogger(__name__).info("the editor is gone")
    except BaseExceptionGroup as group:
        _, rest = group.split(BrokenPipeError)
        if rest is not None:
            raise
    finally:
        children.end()
    return 0


async def _until_the_end(app: App, target: int) -> None:
    lent = Lent()
    async with app.service(KIND, lent=lent) as service:
        with anyio.CancelScope() as scope, _signals(scope):
            await serve(
                service.hub,
                app.viewer,
                app.clock,
                pin=service.worker.id,
                lender=lent,
                setup=_setup(app),
                source=sys.stdin.fileno(),
                target=target,
            )
        # What an agent or a tool still does is not waited for: all that was said is stored.
        limit = threading.Timer(_LAST_SECONDS, _end_at_once)
        limit.daemon = True
        limit.start()


def _end_at_once() -> None:
    children.end()
    end_now("some part did not end by itself; everything is recorded", code=0)


def _setup(app: App) -> Setup:
    settings = app.settings
    return Setup(
        version=__version__,
        choices=Choices(models=settings.choices, model=settings.model),
        person=transcript.login(),
        limit=settings.acp.limit,
        login=settings.acp.login,
    )


@contextmanager
def _signals(scope: anyio.CancelScope) -> Generator[None]:
    """A signal ends the process in good order, as the end of the stream does."""
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, scope.cancel)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
