"""Maintenance: the store is checked, backed up, brought back, copied and counted."""

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import App as Tree
from cyclopts import Parameter

from keryx import config
from keryx.base import open_database
from keryx.cli import locks, output
from keryx.cli.access import Json, base
from keryx.cli.progress import bar
from keryx.cli.settings import masked
from keryx.config import Settings
from keryx.core.errors import Conflict, Invalid, KeryxError, NotFound
from keryx.core.progress import Progress
from keryx.engine.clock import SystemClock
from keryx.store import backup as backups
from keryx.store import copying, pages
from keryx.store import stats as statistics
from keryx.store.invariants import Problem
from keryx.store.search import Index
from keryx.store.stats import Stats
from keryx.store.verify import INDEX
from keryx.store.verify import verify as check_all

store = Tree(
    name="store", help="Copy a store between SQLite and PostgreSQL, or build its search index again."
)

_FLAG = Parameter(negative="", show_default=False)


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    problems: list[Problem]


class BackedUp(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    manifest: str
    size: int
    sha256: str


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    aside: str | None


class CopiedStore(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    target: str
    tables: list[copying.Copied]


async def verify(*, json: Json = False) -> int:
    """Check that everything in the store is as it must be. May be run at any time, also while Keryx works.

    The exit code is 1 if something is wrong, and each problem is named.

        keryx verify
        keryx verify --json
    """
    app = base()
    _check_there(app.settings)
    with bar() as progress:
        problems = await _problems(app.settings, progress)
    if json:
        output.json(Verified(store=masked(app.settings.store), problems=problems))
    else:
        _print_problems(problems)
    return 1 if problems else 0


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
    app = base()
    _check_there(app.settings)
    path = None if app.settings.on_postgres else Path(app.settings.store)
    with bar() as progress:
        async with app.database as database:
            made = await backups.make(database, path, file, now=app.clock.now(), progress=progress)
    if json:
        output.json(
            BackedUp(
                file=str(file), manifest=str(backups.manifest_of(file)), size=made.size, sha256=made.sha256
            )
        )
    else:
        output.write(
            f"Backed up to {file} ({size(made.size)}). Keep {backups.manifest_of(file).name} beside it."
        )


async def restore(
    file: Annotated[Path, Parameter(help="The backup to restore.")],
    /,
    *,
    force: Annotated[bool, _FLAG, Parameter(help="Put the store that is there aside first.")] = False,
    json: Json = False,
) -> None:
    """Put a backup in the place of the store. The backup is checked first, and the old store is kept aside.

    Stop `keryx serve` first. On PostgreSQL the database must be empty.

        keryx restore /mnt/backups/keryx-monday.db
        keryx restore /mnt/backups/keryx-monday.db --force
    """
    settings = config.read()
    aside: Path | None = None
    with locks.alone(settings), bar() as progress:
        if settings.on_postgres:
            await _restore_to_postgres(file, settings, progress)
        else:
            now = SystemClock().now()
            aside = await asyncio.to_thread(
                backups.restore, file, Path(settings.store), now=now, force=force, progress=progress
            )
    told = f"Restored {masked(settings.store)} from {file}."
    if aside:
        told += f"\nThe old store is {aside}; delete it when you no longer need it."
    output.answer(told, Restored(store=masked(settings.store), aside=aside and str(aside)), json)


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
    here, there = _settings(source), _settings(target)
    if here.store == there.store:
        raise Invalid("source and target are the same store: give two")
    _check_there(here)
    if not here.on_postgres and locks.taken(here):
        output.warn(f"keryx: `keryx serve` works on {source}: what it writes from now on is not copied")
    with bar() as progress:
        async with open_database(here) as reading, open_database(there) as writing:
            tables = await copying.copy(reading, writing, progress=progress)
    if json:
        output.json(CopiedStore(source=masked(source), target=masked(target), tables=tables))
    else:
        rows = [(t.table, str(t.rows), t.checksum) for t in tables if t.rows]
        output.table(("table", "rows", "checksum"), rows, flexible=0, right=(1,))
        output.write("Everything has arrived. Set KERYX_DATABASE to use it.")


@store.command
async def reindex(*, json: Json = False) -> None:
    """Throw the search index away and build it again from the messages. May be run while Keryx works.

    For example:

        keryx store reindex
    """
    app = base()
    _check_there(app.settings)
    with bar() as progress:
        async with app.database as database:
            index = Index(database)
            count = await index.rebuild(lambda done, total: progress("messages", done, total))
            index.close()
    output.answer(
        f"The search index has {count:,} messages.",
        {"store": masked(app.settings.store), "messages": count},
        json,
    )


async def stats(*, json: Json = False) -> None:
    """Count conversations, messages, turns, tokens and cost, and name the longest conversations.

    For example:

        keryx sessions stats
        keryx sessions stats --json
    """
    app = base()
    async with app.database as database:
        found = await database.read("stats", lambda tx: statistics.read(tx, app.viewer))
    if json:
        output.json(found)
    else:
        _print_stats(found)


def size(count: int) -> str:
    """A number of bytes as a person says it."""
    if count < 1000:
        return f"{count} bytes"
    power = min(4, (len(str(count)) - 1) // 3)
    return f"{count / 1000**power:.1f} {('KB', 'MB', 'GB', 'TB')[power - 1]}"


async def _problems(settings: Settings, progress: Progress) -> list[Problem]:
    found: list[Problem] = []
    if not settings.on_postgres:
        progress("file", 0, 0)
        found += await asyncio.to_thread(pages.check, Path(settings.store))
    try:
        async with open_database(settings) as database:
            found += await check_all(database, progress=progress)
    except KeryxError as exc:
        if settings.on_postgres:
            raise
        found = found or [Problem(check="file", subject="store", text=str(exc))]
    return found


async def _restore_to_postgres(file: Path, settings: Settings, progress: Progress) -> None:
    await asyncio.to_thread(backups.check, file, progress=progress)
    async with open_database(_settings(str(file))) as reading, open_database(settings) as writing:
        try:
            await copying.copy(reading, writing, progress=progress)
        except Conflict as exc:
            raise Conflict(f"{exc}: a backup is restored into an empty database") from exc


def _settings(address: str) -> Settings:
    try:
        return Settings(database=address if "://" in address else str(Path(address).expanduser()))
    except ValueError as exc:
        raise Invalid(f"{masked(address)}: {exc}") from exc


def _check_there(settings: Settings) -> None:
    if not settings.on_postgres and not Path(settings.store).is_file():
        raise NotFound(f"there is no store {settings.store}: `keryx chat` makes one, KERYX_HOME says where")


def _print_problems(problems: list[Problem]) -> None:
    for problem in problems:
        about = "" if problem.subject == "store" else f"{problem.subject}: "
        output.write(
            f"{output.styled(problem.check, 'bad')}: {output.plain(about + problem.text, one_line=True)}"
        )
    if any(problem.check != INDEX for problem in problems):
        output.warn(f"keryx: {len(problems)} problems found: restore a backup, or export what can be read")
    elif not problems:
        output.write("Everything is in order.")


def _print_stats(found: Stats) -> None:
    tokens = msgspec.structs.asdict(found.tokens)
    output.fields(
        [
            ("conversations", f"{found.sessions:,} ({found.archived:,} archived, {found.deleted:,} deleted)"),
            ("from", _counts(found.by_surface)),
            ("messages", f"{found.messages:,} ({_counts(found.by_role)})" if found.messages else "0"),
            ("turns", _counts(found.turns)),
            ("deliveries", _counts(found.deliveries)),
            ("lanes", f"{found.lanes:,}"),
            ("tokens", _counts({name: count for name, count in tokens.items() if count})),
            ("cost", "" if found.cost is None else f"{found.cost / 1e6:.2f}"),
            ("on disk", size(found.size)),
        ]
    )
    if found.busiest:
        output.write("")
        rows = [(b.id, b.title or "untitled", f"{b.messages:,}", f"{b.tokens:,}") for b in found.busiest]
        output.table(("id", "title", "messages", "tokens"), rows, flexible=1, right=(2, 3))


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
