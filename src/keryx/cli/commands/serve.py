"""`keryx serve`: run turns, send deliveries, listen to platforms and serve the web app."""

import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import anyio
import msgspec
from cyclopts import Parameter
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from keryx import config as keryx_config
from keryx.app import App
from keryx.bootstrap import configure_logging
from keryx.cli import output
from keryx.cli.commands import config, store
from keryx.cli.commands.config import mask_secrets
from keryx.cli.options import FLAG, Json
from keryx.cli.output import format_count
from keryx.cli.shutdown import exit_after, exit_now, handle_signals, list_stop_signals
from keryx.cli.watchdog import LoopWatchdog, watch_loop
from keryx.client_address import TrustedProxies, is_loopback
from keryx.config import Settings
from keryx.core.errors import DESCRIPTORS_EXHAUSTED, Invalid, Unavailable
from keryx.core.ids import DEFAULT_PROFILE
from keryx.core.ports.agent import SpeakText, TranscribeSound
from keryx.engine.hub import NODE_KIND, Hub
from keryx.engine.service import Service
from keryx.markdown.render_process import render_long_texts_apart
from keryx.process_tuning import limit_heaps, return_memory, shorten_switch_interval
from keryx.settings_editor import SettingsEditor
from keryx.surfaces.web import schema
from keryx.surfaces.web.auth import read_cookie_key
from keryx.surfaces.web.health import build_health_routes
from keryx.surfaces.web.http_server import HttpServer, build_limits, raise_descriptor_limit
from keryx.surfaces.web.request import Installation
from keryx.surfaces.web.routes import hooks
from keryx.surfaces.web.server import WebApp
from keryx.surfaces.web.settings import (
    PASSWORD_VARIABLE,
    TOKEN_VARIABLE,
    WebSettings,
    read_password_hash,
    read_token,
)

_GRACE_SECONDS = 3.0
# The exit code if a restart did not work within the process: a service manager starts it again.
_RESTART_CODE = 75
# What the store, the watchdog and a few connections need.
_MIN_DESCRIPTORS = 64


def build_web_app(
    app: App,
    hub: Hub,
    *,
    extra_routes: Sequence[BaseRoute] = (),
    streams: int = WebSettings.streams,
    max_hook_body: int = 0,
    transcribe: TranscribeSound | None = None,
    speak: SpeakText | None = None,
    request_restart: Callable[[], None] | None = None,
) -> WebApp:
    """Build the web surface over a hub. Creates the key of its cookies if there is none yet."""
    settings = app.settings
    models = settings.named_models
    default = settings.model or (models[0].name if models else "")
    installation = Installation(
        version=version("keryx"),
        agent=settings.active_agent,
        agents=settings.agent_names,
        home=settings.folder,
        profiles=tuple(dict.fromkeys((settings.profile, DEFAULT_PROFILE, *sorted(settings.profiles)))),
        accounts=app.reachable_platforms,
        public_address=settings.web.public_address,
        currency=settings.currency,
        models=tuple(
            schema.ModelSchema(
                name=m.name, host=m.host, context=m.context, images=bool(m.images), default=m.name == default
            )
            for m in models
        ),
        settings=tuple(
            schema.Setting(name=name, value=config.format_json(origin.value), source=origin.source)
            for name, origin in config.explain_settings().items()
        ),
    )
    return WebApp(
        hub,
        app.clock,
        operator=app.viewer,
        key=read_cookie_key(settings.folder),
        token=read_token(settings.web),
        password=read_password_hash(settings.web),
        hosts=(*settings.web.hosts, *filter(None, [urlsplit(settings.web.public_address).hostname])),
        secure=settings.web.https,
        streams=streams,
        proxies=TrustedProxies(settings.web.trusted_proxies),
        installation=installation,
        extra_routes=extra_routes,
        max_hook_body=max_hook_body,
        transcribe=transcribe,
        speak=speak,
        setup=SettingsEditor(settings.folder, app.clock, request_restart),
    )


def check_exposure(settings: Settings) -> None:
    """Raise `Invalid` if other machines can reach the server without a password or a token."""
    if (
        not is_loopback(settings.host)
        and not read_token(settings.web)
        and not read_password_hash(settings.web)
    ):
        raise Invalid(
            f"{settings.host!r} can be reached by other machines, and neither a password nor a token is set: set "
            f"{PASSWORD_VARIABLE}, or {TOKEN_VARIABLE} to a long secret, or use 127.0.0.1"
        )


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
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
    new_store: Annotated[
        bool,
        FLAG,
        Parameter(help="Begin an empty store where one was lost. What is left of it is kept aside."),
    ] = False,
    json: Json = False,
) -> int:
    """Run Keryx: answer what waits, send what is due, and show it all on a page.

    SIGTERM, Ctrl-C or a closed terminal stops it in good order: running turns
    get some time, then they go back to the queue. A second signal ends it at once; nothing is lost
    either way. /healthz, /readyz and /metrics tell how it is; platforms post to
    /hooks. An address that other machines reach needs a password or a
    token: set KERYX_WEB_PASSWORD, or KERYX_WEB_TOKEN to a long secret.

        keryx serve
        keryx serve --port 8000
        KERYX_LOG_FORMAT=json keryx serve
    """
    options = {
        name: value for name, value in (("host", host), ("port", port), ("agent", agent)) if value is not None
    }
    while await _serve_once(options, new_store=new_store, json=json):
        new_store = False
    return 0


async def _serve_once(options: dict[str, Any], *, new_store: bool, json: bool) -> bool:
    """Serve with the settings as they are now. Return whether to do it again, as the page can ask for."""
    settings = msgspec.structs.replace(keryx_config.read(), **options)
    configure_logging(settings)
    app = App(settings)
    for text in app.find_unknown_variables():
        output.warn(f"keryx: {text}")
    for text, remedy in app.find_unknown_places():
        output.warn(f"keryx: {text} {remedy[:1].upper()}{remedy[1:]}")
    check_exposure(settings)
    descriptors = raise_descriptor_limit()
    if descriptors < _MIN_DESCRIPTORS:
        raise Unavailable(
            f"{descriptors} open files are too few for `keryx serve`, which needs {_MIN_DESCRIPTORS}: {DESCRIPTORS_EXHAUSTED}"
        )
    limit_heaps()
    shorten_switch_interval()
    with (
        store.hold_store_lock(settings),
        _bind(settings.host, settings.port) as listener,
        return_memory(),
        render_long_texts_apart(),
    ):
        if new_store:
            store.put_remains_aside(settings)
        # A port that the system has chosen is kept.
        if not settings.port:
            options["port"] = listener.getsockname()[1]
        return await _run(app, listener, json, descriptors=descriptors)


async def _run(app: App, listener: socket.socket, json: bool, *, descriptors: int) -> bool:
    """Serve until a signal, or until a restart is asked for. Return whether it was."""
    stopping = anyio.Event()
    restarting = False
    deadlines: list[threading.Timer] = []
    drain = app.settings.drain.total_seconds()
    limit = drain + app.settings.watchdog.stop.total_seconds()
    watchdog = LoopWatchdog(app.settings.watchdog, stop=limit, log_format=app.settings.log_format)

    def stop() -> None:
        """Stop at the first signal, within a time limit; end the process at once at the second."""
        nonlocal restarting
        if restarting:
            # A signal during a restart stops for good.
            restarting = False
            return
        if stopping.is_set():
            exit_now("ended at once; running turns are taken up again at the next start", code=1)
        stopping.set()
        deadlines.append(exit_after(limit, "some part did not end in time, so the process ends", code=1))

    def restart() -> None:
        nonlocal restarting
        if not stopping.is_set():
            stop()
            restarting = True

    async with watch_loop(watchdog), app.service(NODE_KIND, everything=True, drain=drain) as service:
        web, build_server = _build_site(
            app, service, descriptors=descriptors, stopping=stopping.is_set, restart=restart
        )
        # Tools that rotate logs send it, and its default ends a process.
        with handle_signals([signal.SIGUSR1], lambda: None), handle_signals(list_stop_signals(), stop):
            async with (
                web.lifespan() as site,
                _serve_http(build_server(site), listener),
                _serve_relay(app, service),
                _watch_programs(app, service),
            ):
                try:
                    _announce(app.settings, listener, json)
                except (Unavailable, BrokenPipeError) as exc:
                    # The node works all the same, as after any later line that cannot be written.
                    output.discard_rest()
                    output.warn(f"keryx: the address cannot be printed: {exc}")
                await stopping.wait()
                web.close()
                if busy := service.runner.busy:
                    turns = format_count(busy, "running turn")
                    output.warn(f"keryx: stopping; {turns} may go on for {drain:g} s, then back to the queue")
                await service.runner.drain(drain)
                # Everything is recorded now: do not wait for an agent or a task that does not stop.
                code = _RESTART_CODE if restarting else 0
                reason = "some part did not end by itself; everything is recorded"
                deadlines.append(exit_after(_GRACE_SECONDS, reason, code=code))
    if restarting:
        for deadline in deadlines:
            deadline.cancel()
    return restarting


def _build_site(
    app: App,
    service: Service,
    *,
    descriptors: int,
    stopping: Callable[[], bool],
    restart: Callable[[], None],
) -> tuple[WebApp, Callable[[ASGIApp], HttpServer]]:
    """Return the page with the API, and what builds the server for it."""
    pages = build_health_routes(
        service.hub,
        meters=lambda: app.database.meters,
        check_writable=app.database.check_writable,
        stopping=stopping,
        connections=lambda: service.platform_status.statuses,
    )
    pages += hooks.build_hook_routes(
        service.adapters, listening=service.is_listening, on_rejection=service.count_rejection
    )
    limits = build_limits(app.settings.web, descriptors)
    proxies = TrustedProxies(app.settings.web.trusted_proxies)

    def shared(address: str) -> bool:
        return is_loopback(address) or proxies.trusts(address)

    web = build_web_app(
        app,
        service.hub,
        extra_routes=pages,
        streams=limits.streams,
        max_hook_body=max((adapter.hook.limit for adapter in service.adapters if adapter.hook), default=0),
        transcribe=service.transcribe,
        speak=service.speak,
        request_restart=restart,
    )
    return web, lambda site: HttpServer(site, limits, shared=shared)


@contextmanager
def _bind(host: str, port: int) -> Generator[socket.socket]:
    if not 0 <= port <= 65_535:
        raise Invalid(f"{port} is not a port: give one from 1 to 65535, or 0 for any")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio sets TCP_NODELAY only if the socket names its protocol.
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


@asynccontextmanager
async def _serve_http(server: HttpServer, listener: socket.socket) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(server.run_on, listener)
        try:
            yield
        finally:
            server.should_exit = True


@asynccontextmanager
async def _serve_relay(app: App, service: Service) -> AsyncGenerator[None]:
    """Let the instances of the relay in, if this Keryx holds bots for others."""
    if not app.settings.relay.listen:
        yield
        return
    from keryx.surfaces.gateway.relay.connector import RelayServer  # noqa: PLC0415 costs nothing unless it is used

    server = RelayServer(service.hub, app.clock, service.adapters)
    async with server.serving(*app.settings.relay.address):
        yield


@asynccontextmanager
async def _watch_programs(app: App, service: Service) -> AsyncGenerator[None]:
    """Watch the conversations of other programs on this machine, if the settings say so."""
    if not app.settings.watch.enabled:
        yield
        return
    from keryx.cli.commands.watch import build_store_target, build_watcher  # noqa: PLC0415 loads the readers of all programs

    target = await build_store_target(app.database, service.hub, app.viewer, app.settings.watch)
    async with anyio.create_task_group() as group:
        group.start_soon(build_watcher(app.settings.watch, target).run)
        try:
            yield
        finally:
            group.cancel_scope.cancel()


def _announce(settings: Settings, listener: socket.socket, json: bool) -> None:
    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    started = ServerInfo(
        address=address, store=mask_secrets(settings.store), agent=settings.active_agent, pid=os.getpid()
    )
    if json:
        output.write_json(started)
    else:
        output.write(output.style_text("Keryx is running.", "bold"))
        output.write_fields(
            [("store", started.store), ("agent", started.agent), ("health", f"{address}/healthz")]
        )
        # In a clone the program is beside its Python, and not on the path of the next terminal.
        program = "keryx" if shutil.which("keryx") else Path(sys.executable).with_name("keryx")
        hint = f"Open {address}, or try `{program} chat` in another terminal; Ctrl-C stops."
        output.write(output.style_text(hint, "dim"))
    output.flush()
