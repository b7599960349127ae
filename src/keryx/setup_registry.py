"""The setups of platforms: finds them by their entry points, checks the answers of a person, and writes what comes out of it."""

import asyncio
import logging
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import cast

from keryx import settings_file
from keryx.core.access import EVERYBODY
from keryx.core.errors import Invalid, KeryxError, NotFound, Unavailable
from keryx.core.ports.setup import (
    ENTRY_POINT_GROUP,
    PlatformSetup,
    SetupDialog,
    SetupField,
    SetupOutcome,
)
from keryx.core.texts import Phrase
from keryx.plugin_thread import PluginThread, guard_plugin, name_error

log = logging.getLogger(__name__)

# The answer to a field that is a flag.
YES = "yes"
# Every setup can be told who may talk. One that wants to check the ids has a field of this name.
ALLOW = "allow"
_RESERVED_NAMES = frozenset({"name", "json"})
_ACCOUNT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")
_SECRET_NAME = re.compile(r"token|secret|password|key\Z")
_OWN_PACKAGE = "keryx"
_MAX_ANSWER_CHARS = 10_000
_MAX_ERROR_CHARS = 300


class SetupSession:
    """The account that is set up, as its check sees it. A check of another package calls `write` in a thread of its own."""

    def __init__(self, label: str, configured: Mapping[str, object], write: Callable[[str], None]) -> None:
        self.label = label
        self.configured = configured
        self._write = write

    def show(self, text: str) -> None:
        self._write(text)


@dataclass(frozen=True, slots=True)
class WrittenSetup:
    """Where the outcome of a setup was written."""

    settings: Path
    # The file of each secret, by its setting.
    secrets: Mapping[str, Path]
    # The people that were added to the access rule.
    allow: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemovedAccount:
    """What is left of an account: the file of the settings, and the variables that connect it still."""

    settings: Path
    variables: tuple[str, ...]


def list_platforms() -> list[str]:
    """Return the platforms that have a setup, without importing one."""
    return sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})


def load(platform: str) -> PlatformSetup:
    """Import the setup of a platform. Raise `NotFound` if there is none, `Unavailable` if it cannot be used. Blocks."""
    entry = _find_entry(platform)
    try:
        with guard_plugin():
            setup: object = entry.load()
    except Exception as exc:
        why = f"{name_error(exc)}: {exc}"[:_MAX_ERROR_CHARS]
        raise Unavailable(
            Phrase("connect.unusable", platform=platform, entry=entry.value, reason=why)
        ) from exc
    if not isinstance(setup, PlatformSetup) or setup.platform != platform:
        raise Unavailable(f"{entry.value} is no setup of {platform}: its package is wrong")
    if wrong := next((field.name for field in setup.fields if field.name in _RESERVED_NAMES), None):
        raise Unavailable(f"{entry.value} has a field {wrong!r}, which every setup has: its package is wrong")
    return setup


def build_label(platform: str, name: str) -> str:
    """Return the name of the table of an account. Raise `Invalid` for a name that cannot be written there."""
    if name and not _ACCOUNT_NAME.match(name):
        raise Invalid(Phrase("connect.account_name", name=repr(name[:80])))
    return f"{platform}.{name}" if name else platform


def find_variable(field: SetupField, label: str, environ: Mapping[str, str]) -> str:
    """Return the answer that a variable of the account, or of its platform, has to a field."""
    names = (label, label.partition(".")[0])
    values = (environ.get(settings_file.format_variable(name, field.name), "").strip() for name in names)
    return next((value for value in values if value), "")


def read_configured(home: Path, label: str, environ: Mapping[str, str]) -> dict[str, object]:
    """Return the settings of an account as they are, with the variables, which take precedence. A secret from a variable is
    the reference to it."""
    table = settings_file.read_table(home, label)
    found: dict[str, object] = {key: value for key, value in table.items() if not isinstance(value, dict)}
    prefix = settings_file.format_variable(label, "")
    for variable, value in environ.items():
        if variable.startswith(prefix) and value.strip():
            name = variable.removeprefix(prefix).lower()
            found[name] = f"env:{variable}" if _SECRET_NAME.search(name) else value.strip()
    return found


def list_accounts(home: Path, platform: str) -> list[str]:
    """Return the tables that keryx.toml has for a platform: `telegram`, `telegram.work`."""
    table = settings_file.read_table(home, platform)
    accounts = sorted(name for name, value in table.items() if isinstance(value, dict))
    plain = [platform] if len(accounts) < len(table) else []
    return [*plain, *(f"{platform}.{name}" for name in accounts)]


def find_missing(setup: PlatformSetup, answers: Mapping[str, object]) -> list[SetupField]:
    """Return the fields that need an answer and have none."""
    return [
        field
        for field in setup.fields
        if not (field.optional or field.flag or field.default or answers.get(field.name))
        and is_needed(setup, field, answers)
    ]


def is_needed(setup: PlatformSetup, field: SetupField, answers: Mapping[str, object]) -> bool:
    """Return whether a field matters beside the answers to the others."""
    defaults = {other.name: other.default for other in setup.fields}
    return not any(answers.get(name) for name in field.unless) and all(
        (answers.get(name) or defaults.get(name)) == value for name, value in field.when.items()
    )


async def check(
    setup: PlatformSetup, answers: Mapping[str, str], session: SetupDialog, *, seconds: float | None = None
) -> SetupOutcome:
    """Ask the platform whether the answers are right. Raise `Invalid` for an answer that is unknown or missing, what the
    setup raises, and `Unavailable` if it fails otherwise or takes longer. Nothing of the answers is logged."""
    complete = complete_answers(setup, answers)
    try:
        async with asyncio.timeout(seconds):
            # Run the check, that of another package in a thread of its own.
            if _find_entry(setup.platform).module.partition(".")[0] == _OWN_PACKAGE:
                return await setup.check(complete, session)
            thread = PluginThread(f"the setup of {setup.platform}")
            try:
                return await thread.run(lambda: setup.check(complete, session))
            finally:
                thread.request_stop()
    except KeryxError:
        raise
    except TimeoutError:
        raise Unavailable(Phrase("connect.not_in_time", platform=setup.title)) from None
    except Exception as exc:  # noqa: BLE001 the code can be of another package
        # Without its text, which can contain an answer.
        stack = "".join(traceback.format_tb(exc.__traceback__))
        log.info("the setup of %s failed: %s\n%s", setup.platform, name_error(exc), stack)
        raise Unavailable(Phrase("connect.failed", platform=setup.title, kind=name_error(exc))) from None


def add_allowed(setup: PlatformSetup, answers: Mapping[str, str], allow: Sequence[str]) -> dict[str, str]:
    """Return the answers with the people who may talk, if the setup asks for them itself. Raise `Invalid` for one who cannot
    exist on the platform."""
    check_people(setup, allow)
    asked = any(field.name == ALLOW for field in setup.fields)
    return {**answers, ALLOW: ",".join(allow)} if asked and allow else dict(answers)


def check_people(setup: PlatformSetup, people: Sequence[str]) -> None:
    """Raise `Invalid` for the first id that no person of the platform can have: Keryx would not start with it."""
    form = setup.person
    if form and (wrong := next((p for p in people if p != EVERYBODY and not form.matches(p)), None)):
        raise Invalid(
            Phrase("connect.no_person", name=repr(wrong[:80]), platform=setup.title, words=form.words)
        )


def complete_answers(setup: PlatformSetup, answers: Mapping[str, str]) -> dict[str, str]:
    """Return the answer to each field, stripped, with defaults. Raise `Invalid` for an answer that is unknown, missing or
    not among the choices."""
    fields = {field.name: field for field in setup.fields}
    if unknown := next((name for name in answers if name not in fields), None):
        known = ", ".join(fields)
        raise Invalid(
            Phrase("connect.unknown_field", platform=setup.title, name=repr(unknown[:80]), choices=known)
        )
    given = {name: answers.get(name, "").strip() for name in fields}
    if missing := find_missing(setup, given):
        raise Invalid(
            Phrase("connect.missing", platform=setup.title, names=", ".join(field.name for field in missing))
        )
    for name, field in fields.items():
        allowed = (YES,) if field.flag else field.choices
        if allowed and given[name] and given[name] not in allowed:
            raise Invalid(Phrase("connect.choose", name=name, choices=" or ".join(allowed)))
        # A secret can have several lines, as private keys do.
        if len(given[name]) > _MAX_ANSWER_CHARS or not given[name].replace("\n", "").isprintable():
            raise Invalid(Phrase("connect.unprintable", name=name))
    return {name: given[name] or field.default for name, field in fields.items()}


def write(home: Path, label: str, outcome: SetupOutcome, allow: Sequence[str] = ()) -> WrittenSetup:
    """Write the settings and secrets of a setup. People are added to those who may talk already. Raise `Invalid`, without
    a change, if keryx.toml cannot be changed. Blocks."""
    files = {name: f"{label}-{name}".replace(".", "-").replace("_", "-") for name in outcome.secrets}
    paths = {name: settings_file.find_secret(home, file) for name, file in files.items()}
    tables: dict[str, Mapping[str, settings_file.Value]] = {
        label: {**outcome.settings, **{name: f"file:{path}" for name, path in paths.items()}}
    }
    access = f"access.{label}"
    allowed: object = settings_file.read_table(home, access).get(ALLOW, [])
    known = [str(person) for person in cast(list[object], allowed)] if isinstance(allowed, list) else []
    people = tuple(dict.fromkeys((*outcome.allow, *allow)))
    if added := [person for person in people if person not in known]:
        tables[access] = {ALLOW: [*known, *added]}
    secrets = {file: outcome.secrets[name] for name, file in files.items()}
    return WrittenSetup(settings_file.write(home, tables, secrets), paths, people)


def remove(home: Path, label: str, environ: Mapping[str, str]) -> RemovedAccount:
    """Remove the settings of an account, the files of its secrets, and with the last account of a platform who may talk there.
    Raise `NotFound` if keryx.toml has no such account, and `Invalid`, without a change, if it cannot be changed. Blocks."""
    platform, _, name = label.partition(".")
    _find_entry(platform)
    accounts = list_accounts(home, platform)
    others = [other for other in accounts if other != label]
    variables = _list_variables(label, others, environ)
    if label not in accounts:
        if variables:
            raise NotFound(Phrase("connect.by_variables", name=label, names=", ".join(variables)))
        raise NotFound(Phrase("connect.no_account", name=repr(label[:80])))
    table = settings_file.read_table(home, label)
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    secrets = {path.name for path in _list_secret_files(home, plain)}

    def update(text: str) -> str:
        if others and not name:
            # The table of a platform stands above those of its other accounts, and its rule holds for them too.
            return settings_file.update_text(text, label, dict.fromkeys(plain))
        for gone in (label, f"access.{label}") if others else (platform, f"access.{platform}"):
            if settings_file.read_table_of(text, gone):
                text = settings_file.remove_table(text, gone)
        return text

    path = settings_file.change(home, update)
    left = settings_file.read_text(home)
    settings_file.remove_secrets(home, [file for file in secrets if f"secrets/{file}" not in left])
    return RemovedAccount(path, variables)


def _list_secret_files(home: Path, values: Mapping[str, object]) -> list[Path]:
    paths = [
        Path(value.removeprefix("file:"))
        for value in values.values()
        if isinstance(value, str) and value.startswith("file:")
    ]
    return [path for path in paths if path == settings_file.find_secret(home, path.name)]


def _list_variables(label: str, others: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables of an account that are set, without those of other accounts."""
    prefix = settings_file.format_variable(label, "")
    foreign = tuple(
        settings_file.format_variable(other, "") for other in others if other.startswith(f"{label}.")
    )
    return tuple(sorted(v for v in environ if v.startswith(prefix) and not v.startswith(foreign)))


def _find_entry(platform: str) -> EntryPoint:
    entries = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if platform not in entries:
        known = ", ".join(sorted(entries))
        raise NotFound(Phrase("connect.unknown_platform", name=repr(platform[:80]), choices=known))
    return entries[platform]
