"""`keryx version` and `keryx doctor`: what is installed, what is wrong with it, and how to mend it."""

import difflib
import errno
import os
import platform
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from importlib.metadata import version as installed
from pathlib import Path

import apsw
import msgspec

from keryx import child_process, secrets, setup_registry
from keryx import config as keryx_config
from keryx.bootstrap import BaseApp, check_not_lost, open_database
from keryx.cli import output
from keryx.cli.commands import config
from keryx.cli.commands.store import store_locked
from keryx.cli.options import Json
from keryx.cli.output import format_count, format_size
from keryx.config import Settings
from keryx.core.access import CLOSED, EVERYBODY
from keryx.core.durations import format_duration
from keryx.core.errors import Invalid, KeryxError, NotFound, StoreBroken, StoreDamaged
from keryx.core.sessions import SURFACES
from keryx.engine.hub.people import PairingOverview
from keryx.store.admin import stats
from keryx.store.admin.stats import StuckWork
from keryx.store.db import migrate
from keryx.store.search import SearchIndex
from keryx.store.search.fts5 import get_index_path
from keryx.store.search.indexing import IndexDamaged
from keryx.surfaces.web.settings import read_password_hash, read_token

_MIN_SQLITE = (3, 51, 3)
_LOW_DISK_BYTES = 1 << 30
_MIN_DISK_BYTES = 100 << 20
_WAIT_LIMIT = timedelta(minutes=5)
_CLOCK_TOLERANCE = timedelta(minutes=5)
# An index that lacks fewer changes is brought up to date by the next search within a moment.
_FAR_BEHIND = 1000
_PROBE_BYTES = 1 << 16
# The name of the finding about the nodes of the store.
NODE = "node"
_REFERENCES = ("env:", "file:")


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


_STYLES = {Level.OK: "good", Level.WARNING: "mark", Level.PROBLEM: "bad"}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    level: Level
    name: str
    text: str
    remedy: str = ""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    healthy: bool
    findings: list[Finding]


def version(*, json: Json = False) -> None:
    """Print the version, for a bug report.

    For example:

        keryx version
        keryx version --json
    """
    versions = {
        "keryx": installed("keryx"),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "system": platform.platform(),
    }
    if json:
        output.write_json(versions)
    else:
        output.write_fields(versions.items())


async def doctor(*, json: Json = False) -> int:
    """Look for what is wrong with this installation, and say how to mend it.

    The exit code is 1 if there is a problem; a warning alone is none.

        keryx doctor
        keryx doctor --json
    """
    findings = await examine()
    sick = any(f.level is Level.PROBLEM for f in findings)
    if json:
        output.write_json(Diagnosis(healthy=not sick, findings=findings))
        return int(sick)
    width = max(len(f.name) for f in findings)
    for finding in findings:
        level = output.style_text(finding.level.value.ljust(7), _STYLES[finding.level])
        output.write(f"{level}  {finding.name.ljust(width)}  {output.sanitize(finding.text, one_line=True)}")
        if finding.remedy:
            output.write(f"{' ' * (width + 11)}{output.style_text('→ ' + finding.remedy, 'dim')}")
    return int(sick)


async def examine() -> list[Finding]:
    """Run all checks, each after those that it depends on."""
    sqlite = apsw.sqlite_lib_version()
    if tuple(int(n) for n in sqlite.split(".")[:3]) < _MIN_SQLITE:
        text = f"SQLite {sqlite} can damage a store that is written from two sides"
        engine = _problem("sqlite", text, "upgrade apsw")
    else:
        engine = _ok("sqlite", f"SQLite {sqlite}")
    found = [_ok("python", f"Python {platform.python_version()}"), engine]
    try:
        chosen = keryx_config.read()
    except Invalid as exc:
        return [*found, _problem("settings", str(exc), "`keryx config` shows what is written")]
    app = BaseApp(chosen)
    unknown = app.find_unknown_variables()
    found += [_warning("settings", text, "it changes nothing: correct or remove it") for text in unknown]
    if not unknown:
        found.append(_ok("settings", "all settings are known"))
    incomplete = list(_check_setups(chosen))
    found += incomplete
    try:
        _ = [] if incomplete else app.all_adapters
    except KeryxError as exc:
        remedy = "mend keryx.toml or the variables; `keryx serve` does not start until then"
        found.append(_problem("platforms", str(exc), remedy))
    found += [_warning("platforms", text, remedy) for text, remedy in app.find_unknown_places()]
    found += _check_names(chosen)
    found += _check_programs(chosen)
    found += _check_secrets(chosen, {f.text for f in found})
    home = list(_check_home(chosen.folder))
    if not any(f.level is Level.PROBLEM for f in home) and not _store_missing(chosen):
        home += _check_port(chosen)
    return [*found, *home, *await _check_store(chosen)]


def _check_setups(chosen: Settings) -> Iterator[Finding]:
    """Report accounts of platforms that lack what their setup asks for."""
    known = setup_registry.list_platforms()
    for account in keryx_config.list_setups(chosen):
        if account.platform not in known:
            continue
        command = f"keryx gateway setup {account.platform}" + (
            f" --name {account.name}" if account.name else ""
        )
        try:
            setup = setup_registry.load(account.platform)
        except KeryxError as exc:
            yield _problem("platforms", str(exc), "install its package again, or remove it")
            continue
        values = setup_registry.read_configured(chosen.folder, account.label, os.environ)
        if account.table or any(field.name in values for field in setup.fields):
            for field in setup_registry.find_missing(setup, values):
                yield _problem("platforms", f"[{account.label}] lacks {field.name}", f"run `{command}`")


def _check_names(chosen: Settings) -> Iterator[Finding]:
    """Report agents, models and surfaces that the settings name and that are not there."""
    known = {"auto", "echo", "llm", "local", *chosen.agents}
    if chosen.agent not in known and ":" not in chosen.agent:
        yield _problem("agent", f"There is no agent {chosen.agent!r}.", f"choose {', '.join(sorted(known))}")
    if chosen.model and chosen.named_models and chosen.model not in chosen.model_names:
        available = ", ".join(chosen.model_names)
        yield _problem("model", f"There is no model {chosen.model!r}.", f"choose {available}")
    surfaces = {
        **{f"keep.archive.{name}": name for name in chosen.keep.archive},
        **{f"keep.sessions.{name}": name for name in chosen.keep.sessions},
        **{f"permissions.{name}": name for name, own in chosen.permissions.items() if isinstance(own, dict)},
    }
    for where, name in surfaces.items():
        if name not in (*SURFACES, EVERYBODY):
            near = difflib.get_close_matches(name, SURFACES, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"choose {', '.join(sorted(SURFACES))}"
            yield _warning("surfaces", f"{where}: there is no surface {name!r}.", remedy)


def _check_programs(chosen: Settings) -> Iterator[Finding]:
    """Report agents and tool servers whose program or folder is not there. Without a tool server the agent still answers."""
    started = [
        *((_problem, f"[agents.{name}]", a.command, a.env, a.cwd) for name, a in chosen.agents.items()),
        *((_warning, f"tools {s.name!r}", s.command, s.env, s.cwd) for s in chosen.tools),
    ]
    for report, where, command, env, cwd in started:
        if cwd and not Path(cwd).expanduser().is_dir():
            yield report("programs", f"{where}: there is no folder {cwd!r}.", "make it, or correct `cwd`")
        try:
            own = {"PATH": secrets.read(env["PATH"], "PATH")} if "PATH" in env else {}
        except Invalid:
            continue  # Told with the secrets.
        path = child_process.build_environment(own).get("PATH")
        if command and shutil.which(command[0], path=path) is None:
            remedy = "install it, or write its whole path in `command`; it is searched for on PATH"
            yield report("programs", f"{where}: there is no program {command[0]!r}.", remedy)


def _check_secrets(chosen: Settings, known: set[str]) -> Iterator[Finding]:
    """Report secrets that the settings name, or that Keryx has made, and that cannot be read. `known` was told already."""
    references = list(_list_references(chosen))
    reads = [partial(secrets.read, reference, what) for what, reference in references]
    troubles: dict[str, str] = {}
    for read in (*reads, partial(read_token, chosen.web), partial(read_password_hash, chosen.web)):
        try:
            read()
        except Invalid as exc:
            troubles[str(exc)] = "without it requests are refused"
    folder = chosen.folder / "secrets"
    try:
        for file in sorted(folder.iterdir()) if folder.exists() else ():
            file.open("rb").close()
    except OSError as exc:
        text = f"{exc.filename} cannot be read ({exc.strerror})"
        troubles[text] = "give it to the user of Keryx with chown, and chmod 700 the folder, 600 its files"
    yield from (_problem("keys", text, remedy) for text, remedy in troubles.items() if text not in known)
    if references and not troubles:
        yield _ok("keys", format_count(len(references), "secret can be read", "secrets can be read"))


def _list_references(chosen: Settings) -> Iterator[tuple[str, str]]:
    models = [*chosen.named_models, *filter(None, (chosen.transcription_model, chosen.speech_model))]
    yield from ((f"the key of the model {model.name}", model.key) for model in models if model.key)
    for server in chosen.tools:
        for key, reference in (*server.env.items(), *server.headers.items()):
            yield f"{key} of the tools {server.name}", reference
    for name, agent in chosen.agents.items():
        yield from ((f"{key} of the agent {name}", reference) for key, reference in agent.env.items())
    for account in keryx_config.list_setups(chosen):
        for key, value in account.table.items():
            if isinstance(value, str) and value.startswith(_REFERENCES):
                yield f"{key} of [{account.label}]", value


def _check_port(chosen: Settings) -> Iterator[Finding]:
    """Report a port that another program has. A node of this store has it rightly."""
    if not chosen.port or (not chosen.on_postgres and store_locked(chosen)):
        return
    try:
        family, kind, _, _, address = socket.getaddrinfo(chosen.host, chosen.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as exc:
        text = f"{chosen.host}:{chosen.port} cannot be used ({exc.strerror})"
        yield _warning(
            "port", text, "end what listens there, or set KERYX_PORT; a node of this store may be it"
        )


def _check_home(home: Path) -> Iterator[Finding]:
    if problem := _try_folder("home", home):
        yield problem
        return
    folder = _find_existing(home)
    yield _ok("home", f"{home} can be written")
    if home.exists():
        open_to = stat.S_IMODE(home.stat().st_mode) & 0o077
        if open_to:
            yield _warning("rights", f"others may look into {home}", f"chmod 700 {home}")
        else:
            yield _ok("rights", "nobody else may look into it")
    free = shutil.disk_usage(folder).free
    if free < _MIN_DISK_BYTES:
        yield _problem(
            "disk", f"only {format_size(free)} are free", "free some space: nothing can be taken in soon"
        )
    elif free < _LOW_DISK_BYTES:
        yield _warning("disk", f"only {format_size(free)} are free", "free some space soon")
    else:
        yield _ok("disk", f"{format_size(free)} are free")


def _try_folder(name: str, wanted: Path) -> Finding | None:
    """Report a folder, or the one that it will be made in, that a file cannot be written and synced in."""
    folder = _find_existing(wanted)
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as exc:
        full = exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "free some space" if full else f"check the rights of {folder}, or set KERYX_HOME"
        return _problem(name, f"{wanted} cannot be written ({exc.strerror})", remedy)
    return None


def _find_existing(folder: Path) -> Path:
    return next(p for p in (folder, *folder.parents) if p.exists())


async def _check_store(chosen: Settings) -> list[Finding]:
    if _store_missing(chosen):
        if problem := _try_folder("store", Path(chosen.store).parent):
            return [problem]
        return [_ok("store", f"there is none yet: {chosen.store} is made at the first use")]
    now = datetime.now(UTC)
    try:
        app = BaseApp(chosen, database=open_database(chosen, inspect=True))
        async with app.hub() as hub:
            found = await app.database.read(
                "doctor",
                lambda tx: stats.read_stuck_work(tx, patience=_WAIT_LIMIT, slack=_CLOCK_TOLERANCE),
            )
            nodes = await hub.list_nodes()
            pairings = await hub.people.list_pairings(app.viewer)
            tried = [await _try_write(app), await _try_index(app)]
    except NotFound as exc:
        return [_ok("store", str(exc))]
    except StoreDamaged as exc:
        return [_problem("store", str(exc), "`keryx verify` tells more")]
    except KeryxError as exc:
        return [_problem("store", str(exc), "until then nothing can be taken in or answered")]
    opens = _ok("store", f"{config.mask_secrets(chosen.store)} opens, schema {migrate.list_all()[-1].number}")
    if nodes:
        node = _ok(NODE, ", ".join(f"{n.host} (process {n.pid})" for n in nodes))
    elif found.waiting or found.unsent:
        node = _problem(NODE, "nobody answers, and something waits", "start `keryx serve`")
    else:
        text = "no `keryx serve` runs: chat platforms get no answer"
        node = _warning(NODE, text, "start `keryx serve`")
    return [opens, *tried, node, *_check_access(chosen, pairings), *_check_work(found, now)]


async def _try_write(app: BaseApp) -> Finding:
    """Report whether the store takes writes. What is written is rolled back."""
    try:
        await app.database.rehearse_write()
    except KeryxError as exc:
        text = f"it can be read, but not written: {exc}"
        return _problem("store", text, "until then nothing can be taken in or answered")
    return _ok("store", "it takes writes")


async def _try_index(app: BaseApp) -> Finding:
    """Report whether the search index answers, and how far behind it is."""
    store = app.settings
    if not store.on_postgres and not get_index_path(Path(store.store)).exists():
        return _ok("search", "there is no index yet: the first search makes it")
    index = SearchIndex(app.database)
    try:
        pending = await index.count_pending(most=_FAR_BEHIND)
    except IndexDamaged as exc:
        text = f"the search index is damaged ({exc})"
        return _warning("search", text, "`keryx store reindex` builds it again, as the next search does")
    except StoreDamaged as exc:
        return _problem("store", str(exc), "`keryx verify` tells more")
    except KeryxError as exc:
        remedy = "nothing can be found until then; it may be deleted, `keryx store reindex` builds it again"
        return _problem("search", str(exc), remedy)
    finally:
        index.close()
    if pending is None:
        return _ok("search", "the index is not filled yet: the next search does it")
    if pending >= _FAR_BEHIND:
        text = f"the index lacks {pending} changes or more"
        return _warning("search", text, "the next search takes long; `keryx store reindex` does it now")
    lacks = (
        f"lacks {format_count(pending, 'change')}, which the next search adds" if pending else "is up to date"
    )
    return _ok("search", f"the index answers and {lacks}")


def _store_missing(chosen: Settings) -> bool:
    """Whether no store was ever made here. What a lost one has left is a reason to look closer."""
    try:
        if not chosen.on_postgres:
            check_not_lost(Path(chosen.store))
    except StoreBroken:
        return False
    return not chosen.on_postgres and not Path(chosen.store).exists()


def _check_access(chosen: Settings, pairings: PairingOverview) -> Iterator[Finding]:
    """Report who may talk on each platform."""
    platforms = {*chosen.access, *(g.platform for g in pairings.granted)}
    for name in sorted(platforms):
        rule = chosen.access.get(name, CLOSED)
        paired = sum(g.platform == name for g in pairings.granted)
        parts = [
            "everybody" if EVERYBODY in rule.allow else f"{len({*rule.allow, *rule.operators})} listed",
            f"{paired} by pairing",
            *([f"roles: {', '.join(rule.roles)}"] if rule.roles else []),
            f"groups: {', '.join(rule.groups)}" if rule.groups else "no groups for everybody",
        ]
        yield _ok("access", f"{name}: {', '.join(parts)}")
    if not platforms:
        yield _ok("access", "closed: whoever writes to a bot is told a pairing code")
    if pairings.waiting:
        yield _warning(
            "access",
            format_count(len(pairings.waiting), "person waits to be let in", "people wait to be let in"),
            "`keryx pairing list` shows them",
        )


def _check_work(found: StuckWork, now: datetime) -> Iterator[Finding]:
    if found.waiting:
        age = format_duration(timedelta(minutes=(now - (found.oldest or now)) // timedelta(minutes=1)))
        yield _warning(
            "turns",
            f"{format_count(found.waiting, 'turn waits', 'turns wait')}, the oldest for {age}",
            "`keryx turns` shows what they wait for",
        )
    if found.overdue:
        yield _warning(
            "turns",
            format_count(
                found.overdue, "turn runs without a sign of life", "turns run without a sign of life"
            ),
            "start `keryx serve`: it takes them up",
        )
    if found.parked:
        yield _warning(
            "turns",
            format_count(
                found.parked,
                "turn was set aside after three crashes",
                "turns were set aside after three crashes",
            ),
            "`keryx sessions list --state failed` shows where; `keryx sessions retry ID` asks again",
        )
    if found.unsent:
        yield _warning(
            "deliveries",
            format_count(found.unsent, "answer waits to be sent", "answers wait to be sent"),
            "`keryx deliveries list` shows why",
        )
    if found.doubtful:
        yield _warning(
            "deliveries",
            format_count(
                found.doubtful,
                "answer did not arrive, or may not have",
                "answers did not arrive, or may not have",
            ),
            "`keryx deliveries list` shows them; retry or discard each",
        )
    if not any((found.waiting, found.overdue, found.parked, found.unsent, found.doubtful)):
        yield _ok("work", "nothing is stuck")
    if found.ahead:
        yield _problem(
            "clock",
            f"the store was used at {found.ahead:%Y-%m-%d %H:%M} UTC, and this clock says {now:%Y-%m-%d %H:%M}",
            "set the clock of this machine; if it is right, it was wrong then, and this passes with the time",
        )
    else:
        yield _ok("clock", f"{now:%Y-%m-%d %H:%M} UTC fits what is in the store")


def _ok(name: str, text: str) -> Finding:
    return Finding(level=Level.OK, name=name, text=text)


def _warning(name: str, text: str, remedy: str) -> Finding:
    return Finding(level=Level.WARNING, name=name, text=text, remedy=remedy)


def _problem(name: str, text: str, remedy: str) -> Finding:
    return Finding(level=Level.PROBLEM, name=name, text=text, remedy=remedy)
