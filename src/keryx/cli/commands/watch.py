"""`keryx watch`: show the conversations of other programs while they run, here or in a Keryx elsewhere."""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import anyio
from cyclopts import Parameter

from keryx import secrets
from keryx.bootstrap import BaseApp
from keryx.cli import output
from keryx.cli.commands.people import parse_person
from keryx.cli.options import FLAG, Json, load_settings
from keryx.cli.output import format_count
from keryx.cli.push_client import PushTarget
from keryx.cli.shutdown import handle_signals, list_stop_signals
from keryx.config import Settings, WatchSettings
from keryx.core.errors import Invalid
from keryx.core.sessions import PROGRAM_TITLES, Viewer
from keryx.engine.hub import Hub
from keryx.engine.loops.session_watcher import PollReport, SessionWatcher, StoreTarget, WatchTarget
from keryx.importers.watched_programs import WATCHED_PROGRAMS, WatchedProgram
from keryx.store.db import Database
from keryx.timing import SystemClock


async def watch(
    *programs: Annotated[str, Parameter(help="The programs to watch, such as claude-code; all without it.")],
    to: Annotated[
        str, Parameter(help="The address of a Keryx elsewhere that gets the conversations, https://HOST.")
    ] = "",
    key: Annotated[
        str, Parameter(help="Where its device key is, env:NAME or file:PATH; `keryx keys add` makes one.")
    ] = "",
    once: Annotated[bool, FLAG, Parameter(help="Pass on what is there now, and end.")] = False,
    json: Json = False,
) -> int:
    """Show the conversations of Claude Code, Codex, opencode, goose, Gemini CLI and Qwen Code while they run.

    They appear in the list, in the search and on the page as they grow, and can be continued from there. Their files are only read.
    With --to they go to a Keryx on another machine; what it does not take now stays in the files and is sent later.
    `keryx serve` does the same if [watch] enabled = true is set.

        keryx watch
        keryx watch claude-code opencode
        keryx watch --to https://keryx.example.org --key file:~/.keryx-device
    """
    if wrong := next((name for name in programs if name not in PROGRAM_TITLES), None):
        raise Invalid(f"{wrong[:80]!r} cannot be watched: choose from {', '.join(PROGRAM_TITLES)}")
    if bool(to) is not bool(key):
        raise Invalid("give --to together with --key")
    if key and not key.startswith(("env:", "file:")):
        raise Invalid("--key: write env:NAME or file:PATH, not the key itself")
    settings = load_settings()
    async with open_target(settings, to, key) as target:
        watcher = build_watcher(settings.watch, target, programs)
        if once:
            done = await watcher.poll()
            _report(done, json)
            if not (json or done.messages or done.problems):
                output.write(output.wrap(_describe_nothing(settings.watch, programs)))
        else:
            if not json:
                place = to or settings.store
                output.warn(f"keryx: watching on {settings.watch.machine_name} for {place}; Ctrl-C stops")
            async with anyio.create_task_group() as group:
                with handle_signals([*list_stop_signals(), signal.SIGINT], group.cancel_scope.cancel):
                    await watcher.run(lambda done: _report(done, json))
    return 0


def _report(done: PollReport, json: bool) -> None:
    if json:
        output.write_json(done)
    elif done.messages:
        longer = format_count(done.sessions, "conversation is", "conversations are")
        output.write(f"{longer} new or longer, by {format_count(done.messages, 'message')}.")
    for problem in done.problems:
        output.warn(f"keryx: {problem}")
    output.flush()


def _describe_nothing(settings: WatchSettings, names: tuple[str, ...]) -> str:
    """Return the sentence for a look that found nothing new, with the places of the programs if none of them is there."""
    programs = _choose_programs(settings, names)
    places = [place for program in programs for place in program.find_places(Path.home(), dict(os.environ))]
    if any(place.exists() for place in places):
        return "Nothing new."
    titles = ", ".join(program.title for program in programs)
    return f"Nothing of {titles} is here. Looked for {', '.join(map(str, places))}."


@asynccontextmanager
async def open_target(settings: Settings, to: str, key: str) -> AsyncGenerator[WatchTarget]:
    """Open the store, or the connection to a Keryx elsewhere."""
    if to:
        secret = secrets.read(key, "the key of this device")
        async with PushTarget(to, secret, machine=settings.watch.machine_name) as target:
            yield target
        return
    app = BaseApp(settings)
    async with app.hub() as hub:
        yield await build_store_target(app.database, hub, app.viewer, settings.watch)


async def build_store_target(
    database: Database, hub: Hub, viewer: Viewer, settings: WatchSettings
) -> StoreTarget:
    """Return the store as the person writes to it whose conversations they are."""
    if settings.person:
        platform, person = parse_person(settings.person)
        viewer = Viewer(viewer.profile, await hub.watched.ensure_person(viewer, platform, person))
    return StoreTarget(database, viewer, machine=settings.machine_name)


def build_watcher(
    settings: WatchSettings, target: WatchTarget, programs: tuple[str, ...] = ()
) -> SessionWatcher:
    return SessionWatcher(
        _choose_programs(settings, programs),
        target,
        SystemClock(),
        home=Path.home(),
        env=os.environ,
        since=settings.since,
    )


def _choose_programs(settings: WatchSettings, names: tuple[str, ...]) -> list[WatchedProgram]:
    return [WATCHED_PROGRAMS[name] for name in names or settings.programs or tuple(WATCHED_PROGRAMS)]
