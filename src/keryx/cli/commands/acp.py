"""`keryx acp`: serve an editor over stdin and stdout."""

import logging
import signal
import sys
import threading

import anyio

from keryx import __version__
from keryx.agents.editor_tools import EditorTools
from keryx.app import App
from keryx.cli import output, redirect_stdout, shutdown, terminal
from keryx.cli.options import load_settings
from keryx.cli.shutdown import exit_now
from keryx.surfaces.acp import EditorServerSettings, serve
from keryx.surfaces.acp.session_options import ModelChoices

KIND = "acp"
_STOP_LIMIT_SECONDS = 3.5
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


async def acp() -> int:
    """Serve an editor over stdin and stdout with the Agent Client Protocol.

    An editor starts this by itself; there is nothing to type here. Sessions are
    those of every other surface, and what is said elsewhere appears in the
    editor. It ends when the editor hangs up. docs/how-to/editors.md shows how
    editors are set up.

        keryx acp
    """
    target = redirect_stdout()
    app = App(load_settings())
    if sys.stdin.isatty():
        output.warn("keryx: this speaks a protocol for editors; `keryx chat` is for people. Ctrl-D leaves.")
    try:
        await _serve_until_closed(app, target)
    except BrokenPipeError:
        logging.getLogger(__name__).info("the editor closed the connection")
    except BaseExceptionGroup as group:
        _, rest = group.split(BrokenPipeError)
        if rest is not None:
            raise
    finally:
        shutdown.kill_children()
    return 0


async def _serve_until_closed(app: App, target: int) -> None:
    editor_tools = EditorTools()
    settings = app.settings
    setup = EditorServerSettings(
        version=__version__,
        choices=ModelChoices(models=settings.model_names, model=settings.model),
        person=terminal.login_name(),
        currency=settings.currency,
        max_line_bytes=settings.acp.limit,
        login_command=settings.acp.login,
    )
    async with app.service(KIND, editor_tools=editor_tools) as service:
        with anyio.CancelScope() as scope, shutdown.handle_signals(_SIGNALS, scope.cancel):
            await serve(
                service.hub,
                app.viewer,
                app.clock,
                pin=service.worker.id,
                workspaces=editor_tools,
                settings=setup,
                source=sys.stdin.fileno(),
                target=target,
            )

        def kill_and_exit() -> None:
            shutdown.kill_children()
            exit_now("some part did not end by itself; everything is recorded", code=0)

        # Do not wait for agents or tools that are still running: all messages are stored.
        limit = threading.Timer(_STOP_LIMIT_SECONDS, kill_and_exit)
        limit.daemon = True
        limit.start()
