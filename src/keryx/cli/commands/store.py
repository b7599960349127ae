"""Maintenance of the store: verify, backup, restore, copy, reindex, stats, and the lock that keeps one node on a SQLite file."""

import asyncio
import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import App as Tree
from cyclopts import Parameter

from keryx import config
from keryx.bootstrap import check_not_lost, open_database
from keryx.cli import output
from keryx.cli.commands.config import mask_secrets
from keryx.cli.options import FLAG, Json, load_base
from keryx.cli.output import show_progress
from keryx.config import Settings
from keryx.core.errors import Conflict, Invalid, NotFound, StoreBroken, StoreDamaged, Unavailable
from keryx.store.admin import backup as backups
from keryx.store.admin import copy as store_copy
from keryx.store.admin import stats as statistics
from keryx.store.admin.verify import SEARCH_INDEX_CHECK, StoreProblem
from keryx.store.admin.verify import verify as check_all
from keryx.store.db.sqlite import has_content
from keryx.store.search import SearchIndex
from keryx.store.search.fts5 import get_index_path
from keryx.timing import SystemClock


@contextmanager
def hold_store_lock(settings: Settings) -> Generator[None]:
    """Lock the store as a node does. The operating system releases the lock however this process ends.

    Raise `Conflict` if a node holds it. A PostgreSQL store supports several nodes and has no lock."""
    if settings.on_postgres:
        yield
        return
    path = Path(f"{settings.store}.serve-lock")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as exc:
        raise StoreBroken(
            f"{path} cannot be written ({exc.strerror}): check its rights, or set KERYX_HOME"
        ) from exc
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            file.seek(0)
            raise Conflict(
                f"`keryx serve` works on {settings.store} (process {file.read().strip() or 'unknown'}): "
                "stop it first, or set KERYX_HOME to another folder"
            ) from exc
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def put_remains_aside(settings: Settings) -> None:
    """Rename what a SQLite store that is gone has left, so that a new one can begin. The caller holds its lock.

    Raise `Conflict` if the store is there."""
    path = Path(settings.store)
    if settings.on_postgres:
        raise Invalid("--new-store is for SQLite: on PostgreSQL, set KERYX_DATABASE to another database")
    if has_content(path):
        raise Conflict(f"{path} is there: start without --new-store, or set KERYX_HOME to another folder")
    now = SystemClock().now()
    for file in (path, get_index_path(path)):
        if aside := backups.move_aside(file, now):
            output.warn(f"keryx: what was left of {file} is {aside} now")


def store_locked(settings: Settings) -> bool:
    """Return whether a node on this machine uses the store now."""
    try:
        with hold_store_lock(settings):
            return False
    except Conflict:
        return True


store = Tree(
    name="store", help="Copy a store between SQLite and PostgreSQL, or build its search index again."
)


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    problems: list[StoreProblem]


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    manifest: str
    size: int
    sha256: str


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    aside: str | None


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    target: str
    tables: list[store_copy.CopiedTable]


async def verify(*, json: Json = False) -> int:
    """Check that everything in the store is as it must be. May be run at any time, also while Keryx works.

    The exit code is 1 if something is wrong, and each problem is named. It is 5 if the store could not be checked: a full
    disk, a home that cannot be written, or a store of a newer Keryx say nothing about what is in the store.

        keryx verify
        keryx verify --json
    """
    app = load_base()
    _check_store_exists(app.settings)
    with show_progress() as progress:
        problems: list[StoreProblem] = []
        try:
            if not app.settings.on_postgres:
                progress("file", 0, 0)
                problems += await asyncio.to_thread(backups.check_file, Path(app.settings.store))
            async with open_database(app.settings, inspect=True) as database:
                problems += await check_all(database, progress=progress)
        except StoreDamaged as exc:
            problems = problems or [StoreProblem(check="file", subject="store", text=str(exc))]
        except Unavailable as exc:
            if not problems:
                raise Unavailable(f"the store could not be checked: {exc}") from exc
    if json:
        output.write_json(VerifyReport(store=mask_secrets(app.settings.store), problems=problems))
        return int(bool(problems))
    for problem in problems:
        about = "" if problem.subject == "store" else f"{problem.subject}: "
        text = output.sanitize(about + problem.text, one_line=True)
        output.write(f"{output.style_text(problem.check, 'bad')}: {text}")
    if any(problem.check != SEARCH_INDEX_CHECK for problem in problems):
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        output.warn(f"keryx: {count} found: restore a backup, or export what can be read")
    elif not problems:
        output.write("Everything is in order.")
    return int(bool(problems))


async def backup(
    file: Annotated[Path, Parameter(help="The file to write. It must not be there yet.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Write the whole store to one file, while Keryx works. A small manifest beside it holds its checksum.

    A backup is a SQLite store, also of a store on PostgreSQL.

        keryx backup /mnt/backups/keryx-monday.db
    """
    app = load_base()
    _check_store_exists(app.settings)
    path = None if app.settings.on_postgres else Path(app.settings.store)
    with show_progress() as progress:
        async with app.database as database:
            made = await backups.create(database, path, file, now=app.clock.now(), progress=progress)
    if json:
        output.write_json(
            BackupReport(
                file=str(file),
                manifest=str(backups.get_manifest_path(file)),
                size=made.size,
                sha256=made.sha256,
            )
        )
    else:
        output.write(
            f"Backed up to {file} ({output.format_size(made.size)}). Keep {backups.get_manifest_path(file).name} beside it."
        )


async def restore(
    file: Annotated[Path, Parameter(help="The backup to restore.")],
    /,
    *,
    force: Annotated[bool, FLAG, Parameter(help="Put the store that is there aside first.")] = False,
    json: Json = False,
) -> None:
    """Put a backup in the place of the store. The backup is checked first, and the old store is kept aside.

    Stop `keryx serve` first. On PostgreSQL the database must be empty.

        keryx restore /mnt/backups/keryx-monday.db
        keryx restore /mnt/backups/keryx-monday.db --force
    """
    settings = config.read()
    aside: Path | None = None
    with hold_store_lock(settings), show_progress() as progress:
        if settings.on_postgres:
            await asyncio.to_thread(backups.check, file, progress=progress)
            async with open_database(_settings_for(str(file))) as reading, open_database(settings) as writing:
                try:
                    await store_copy.copy_store(reading, writing, progress=progress)
                except Conflict as exc:
                    raise Conflict(f"{exc}: a backup is restored into an empty database") from exc
        else:
            now = SystemClock().now()
            aside = await asyncio.to_thread(
                backups.restore, file, Path(settings.store), now=now, force=force, progress=progress
            )
    text = f"Restored {mask_secrets(settings.store)} from {file}."
    if aside:
        text += f"\nThe old store is {aside}; delete it when you no longer need it."
    output.write_result(
        text, RestoreReport(store=mask_secrets(settings.store), aside=aside and str(aside)), json
    )


@store.command
async def copy(
    source: Annotated[str, Parameter(help="A SQLite file or a postgresql:// address.")],
    target: Annotated[str, Parameter(help="Where to: a new file or an empty database.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Copy a store from SQLite to PostgreSQL or back, and check that all of it has arrived.

    What is said while the copy goes on stays behind: stop `keryx serve` first.

        keryx store copy ~/.keryx/keryx.db postgresql://keryx@localhost/keryx
        keryx store copy postgresql://keryx@localhost/keryx ./keryx.db
    """
    here, there = _settings_for(source), _settings_for(target)
    if here.store == there.store:
        raise Invalid("source and target are the same store: give two")
    _check_store_exists(here)
    if not here.on_postgres and store_locked(here):
        output.warn(f"keryx: `keryx serve` works on {source}: what it writes from now on is not copied")
    with show_progress() as progress:
        async with open_database(here) as reading, open_database(there) as writing:
            tables = await store_copy.copy_store(reading, writing, progress=progress)
    if json:
        output.write_json(CopyReport(source=mask_secrets(source), target=mask_secrets(target), tables=tables))
    else:
        rows = [(t.table, str(t.rows), t.checksum) for t in tables if t.rows]
        output.write_table(("table", "rows", "checksum"), rows, flexible=0, right=(1,))
        output.write("Everything has arrived. Set KERYX_DATABASE to use it.")


@store.command
async def reindex(*, json: Json = False) -> None:
    """Throw the search index away and build it again from the messages. May be run while Keryx works.

    For example:

        keryx store reindex
    """
    app = load_base()
    _check_store_exists(app.settings)
    with show_progress() as progress:
        async with app.database as database:
            index = SearchIndex(database)
            count = await index.rebuild(lambda done, total: progress("messages", done, total))
            index.close()
    output.write_result(
        f"The search index has {output.format_count(count, 'message')}.",
        {"store": mask_secrets(app.settings.store), "messages": count},
        json,
    )


async def stats(*, json: Json = False) -> None:
    """Count conversations, messages, turns, tokens and cost, and name the longest conversations.

    For example:

        keryx sessions stats
        keryx sessions stats --json
    """
    app = load_base()
    async with app.database as database:
        found = await database.read("stats", lambda tx: statistics.read_stats(tx, app.viewer))
    if json:
        output.write_json(found)
        return
    tokens = msgspec.structs.asdict(found.tokens)
    output.write_fields(
        [
            ("conversations", f"{found.sessions:,} ({found.archived:,} archived, {found.deleted:,} deleted)"),
            ("from", _format_counts(found.by_surface)),
            ("messages", f"{found.messages:,} ({_format_counts(found.by_role)})" if found.messages else "0"),
            ("turns", _format_counts(found.turns)),
            ("deliveries", _format_counts(found.deliveries)),
            ("lanes", f"{found.lanes:,}"),
            ("tokens", _format_counts({name: count for name, count in tokens.items() if count})),
            ("cost", "" if found.cost is None else f"{found.cost / 1e6:.2f}"),
            ("on disk", output.format_size(found.size)),
        ]
    )
    if found.busiest:
        output.write("")
        rows = [(b.id, b.title or "untitled", f"{b.messages:,}", f"{b.tokens:,}") for b in found.busiest]
        output.write_table(("id", "title", "messages", "tokens"), rows, flexible=1, right=(2, 3))


def _settings_for(address: str) -> Settings:
    try:
        return Settings(database=address if "://" in address else str(Path(address).expanduser()))
    except ValueError as exc:
        raise Invalid(f"{mask_secrets(address)}: {exc}") from exc


def _check_store_exists(settings: Settings) -> None:
    if settings.on_postgres:
        return
    check_not_lost(Path(settings.store))
    if not Path(settings.store).is_file():
        raise NotFound(f"there is no store {settings.store}: `keryx chat` makes one, KERYX_HOME says where")


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
