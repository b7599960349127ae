"""Serve: Keryx at work. Runs turns, sends answers, listens to platforms, and says over HTTP how it is."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated

import anyio
import msgspec
import uvicorn
from cyclopts import Parameter
from starlette.types import ASGIApp

from keryx import config
from keryx.app import App
from keryx.base import configure_logging
from keryx.cli import locks, output
from keryx.cli.access import Json
from keryx.cli.ending import end_after, end_now
from keryx.cli.settings import masked
from keryx.cli.transcript import count
from keryx.cli.web import refuse_the_world, web
from keryx.config import Settings
from keryx.core.errors import Invalid, Unavailable
from keryx.engine.hub import NODE
from keryx.engine.runner import Runner
from keryx.surfaces.web import hooks
from keryx.surfaces.web.health import health

_GRACE_SECONDS = 3.0
_LAST_SECONDS = 15.0


class Started(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    store: str
    agent: str
    pid: int


async def serve(
    *,
    host: Annotated[str | None, Parameter(help="The address to listen on; without it, the setting.")] = None,
    port: Annotated[
        int | None, Parameter(help="The port to listen on, 0 for any; without it, the setting.")
    ] = None,
    agent: Annotated[str | None, Parameter(help="The agent that answers; without it, the setting.")] = None,
    json: Json = False,
) -> int:
    """Run Keryx: answer what waits, send what is due, and show it all on a page.

    SIGTERM or Ctrl-C stops it in good order: running turns get some time, then
    they go back to the queue. A second signal ends it at once; nothing is lost
    either way. /healthz, /readyz and /metrics tell how it is; platforms post to
    /hooks. An address that other machines reach needs a password or a
    token: set KERYX_WEB_PASSWORD, or KERYX_WEB_TOKEN to a long secret.

        keryx serve
        keryx serve --port 8000
        KERYX_LOG_FORMAT=json keryx serve
    """
    settings = _chosen(config.read(), host=host, port=port, agent=agent)
    configure_logging(settings)
    refuse_the_world(settings)
    with locks.alone(settings), _bound(settings.host, settings.port) as listener:
        await _work(App(settings), listener, json)
    return 0


async def _work(app: App, listener: socket.socket, json: bool) -> None:
    stopping = anyio.Event()
    drain = app.settings.drain.total_seconds()
    async with app.service(NODE, everything=True, drain=drain) as service:
        pages = health(
            service.hub,
            meters=lambda: app.database.meters,
            stopping=stopping.is_set,
            connections=lambda: service.connections.known,
        )
        pages += hooks.routes(service.adapters, listening=service.listening)
        made = web(app, service.hub, beside=pages)
        with _signals(stopping, drain):
            async with made.running() as site, _http(site, listener):
                _announce(app.settings, listener, json)
                await stopping.wait()
                made.close()
                await _drain(service.runner, drain)


async def _drain(runner: Runner, seconds: float) -> None:
    if runner.busy:
        running = count(runner.busy, "running turn")
        output.warn(f"keryx: stopping; {running} may go on for {seconds:g} s, then back to the queue")
    await runner.drain(seconds)
    # All is recorded now. An agent or a task that does not end is not waited for.
    end_after(_GRACE_SECONDS, "some part did not end by itself; everything is recorded", code=0)


def _chosen(settings: Settings, *, host: str | None, port: int | None, agent: str | None) -> Settings:
    given = {"host": host, "port": port, "agent": agent}
    return msgspec.structs.replace(settings, **{k: v for k, v in given.items() if v is not None})


@contextmanager
def _bound(host: str, port: int) -> Generator[socket.socket]:
    if not 0 <= port <= 65_535:
        raise Invalid(f"{port} is not a port: give one from 1 to 65535, or 0 for any")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With the protocol named, asyncio sends small answers at once instead of waiting for an acknowledgement.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as exc:
        raise Invalid(f"cannot listen on {host}:{port}: {exc.strerror}") from exc
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen()
        except OSError as exc:
            raise Unavailable(
                f"cannot listen on {host}:{port} ({exc.strerror}): stop what uses it, or choose another with --port or KERYX_PORT"
            ) from exc
        yield listener


@contextmanager
def _signals(stopping: anyio.Event, drain: float) -> Generator[None]:
    """The first signal asks to stop, and sets a limit for it; the second ends the process at once."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if stopping.is_set():
            end_now("ended at once; running turns are taken up again at the next start", code=1)
        stopping.set()
        end_after(drain + _LAST_SECONDS, "some part did not end in time, so the process ends", code=1)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are for the whole process, not for its HTTP server."""
        yield


@asynccontextmanager
async def _http(app: ASGIApp, listener: socket.socket) -> AsyncGenerator[None]:
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
            timeout_keep_alive=30,
            h11_max_incomplete_event_size=32_768,
            server_header=False,
            proxy_headers=False,
            ws="none",
        )
    )
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve, [listener])
        try:
            yield
        finally:
            server.should_exit = True


def _announce(settings: Settings, listener: socket.socket, json: bool) -> None:
    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    started = Started(address=address, store=masked(settings.store), agent=settings.brain, pid=os.getpid())
    if json:
        output.json(started)
    else:
        output.write(output.styled("Keryx is running.", "bold"))
        output.fields([("store", started.store), ("agent", started.agent), ("health", f"{address}/healthz")])
        hint = f"Open {address}, or try `keryx chat` in another terminal; Ctrl-C stops."
        output.write(output.styled(hint, "dim"))
    sys.stdout.flush()
