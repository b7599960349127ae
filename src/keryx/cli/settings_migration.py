"""The settings that a migration brings: what is written to keryx.toml and to files of secrets, and how it is taken back. What
is set already stays."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from keryx import settings_file
from keryx.core.durations import format_duration
from keryx.core.lanes import LaneSharing
from keryx.importers.program_setup import ForeignAccount, ForeignModel, ProgramSetup
from keryx.settings_file import Value

_MODELS = "models"
_CONTROL = re.compile(r"[^\S\n]|[\x00-\x09\x0b-\x1f\x7f]")
_UNSAFE_NAME = re.compile(r"[^a-z0-9]+")


class SettingChange(msgspec.Struct, frozen=True, kw_only=True):
    """One value of keryx.toml, before and after. An entry of a list of tables has no key."""

    table: str
    key: str = ""
    before: Value | None = None
    after: Value


class SettingsChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What is written. Nothing of it is a secret but the values of `secrets`."""

    changes: list[SettingChange]
    # By the name of the file.
    secrets: dict[str, str]
    # What is set already and stays, as sentences.
    kept: list[str]
    text: str

    def __repr__(self) -> str:
        return f"SettingsChanges({len(self.changes)} changes, {len(self.secrets)} secrets)"


class _Builder:
    """Collects changes to the text of keryx.toml."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.text = settings_file.read_text(home)
        self.changes: list[SettingChange] = []
        self.secrets: dict[str, str] = {}
        self.kept: list[str] = []

    def set(self, table: str, key: str, value: Value, *, merge: bool = False) -> None:
        """Set a value, unless another one is set. With `merge`, the entries of both lists are kept."""
        current: Any = settings_file.read_table_of(self.text, table).get(key)
        if merge and isinstance(current, list) and isinstance(value, list):
            known = list(map(str, cast("list[object]", current)))
            value = [*known, *(entry for entry in value if entry not in known)]
        if current == value:
            return
        if current is not None and not merge:
            self.kept.append(f"[{table}] {key} is set already, and stays as it is")
            return
        self.text = settings_file.update_text(self.text, table, {key: value})
        self.changes.append(
            SettingChange(table=table, key=key, before=cast(Value | None, current), after=value)
        )

    def set_secret(self, table: str, key: str, value: str) -> None:
        name = f"{table}-{key}".replace(".", "-").replace("_", "-")
        reference = f"file:{settings_file.find_secret(self._home, name)}"
        current: Any = settings_file.read_table_of(self.text, table).get(key)
        if current is None or current == reference:
            self.secrets[name] = value
        self.set(table, key, reference)

    def add_model(self, model: ForeignModel) -> None:
        found: Any = settings_file.read_table_of(self.text, "").get(_MODELS, [])
        if any(entry.get("name") == model.name for entry in found):
            return
        values: dict[str, Value] = {"name": model.name, "base_url": model.base_url, "id": model.name}
        if model.key:
            name = f"model-{_UNSAFE_NAME.sub('-', model.name.lower()).strip('-')[:60]}"
            values["key"] = f"file:{settings_file.find_secret(self._home, name)}"
            self.secrets[name] = model.key
        if model.fallback:
            values["fallback"] = list(model.fallback)
        entry = settings_file.format_entry(_MODELS, values)
        gap = "\n" if self.text.strip() else ""
        self.text = f"{self.text.rstrip()}{gap}\n{entry}" if gap else entry
        self.changes.append(SettingChange(table=_MODELS, after=entry))


def plan(
    home: Path, setup: ProgramSetup, tables: Mapping[str, str], *, profile: str, new: Sequence[ForeignAccount]
) -> SettingsChanges:
    """Return what the settings of a program change here. `tables` has the table of each account of the program, and `new` the
    accounts that are not set up yet. Raise `Invalid` if keryx.toml cannot be changed."""
    builder = _Builder(home)
    for account in new:
        table = tables[account.label]
        for key, value in account.settings.items():
            builder.set(table, key, value)
        for key, value in account.secrets.items():
            builder.set_secret(table, key, value)
    for rule in setup.access:
        if rule.label not in tables:
            continue
        table = f"access.{tables[rule.label]}"
        if rule.allow:
            builder.set(table, "allow", list(rule.allow), merge=True)
        if rule.groups:
            builder.set(table, "groups", list(rule.groups), merge=True)
        if rule.mention is not None:
            builder.set(table, "mention", rule.mention)
    default = LaneSharing()
    if setup.sharing.groups_per_person != default.groups_per_person:
        builder.set("sharing", "groups_per_person", setup.sharing.groups_per_person)
    if setup.sharing.threads_shared != default.threads_shared:
        builder.set("sharing", "threads_shared", setup.sharing.threads_shared)
    if setup.resets is not None:
        rule = setup.resets
        values: dict[str, Value] = {"mode": rule.mode.value, "idle": format_duration(rule.idle)}
        values |= {"hour": rule.hour, "zone": rule.zone}
        for key, value in values.items():
            builder.set("resets.default", key, value)
    if setup.zone not in ("", "UTC"):
        builder.set("jobs", "zone", setup.zone)
    if setup.instructions:
        told = _CONTROL.sub(" ", setup.instructions)
        builder.set(f"profiles.{profile}", "instructions", told)
    for model in setup.models:
        builder.add_model(model)
    return SettingsChanges(
        changes=builder.changes, secrets=builder.secrets, kept=builder.kept, text=builder.text
    )


def find_backup(program: str) -> str:
    """Return the name of the copy of keryx.toml from before a migration."""
    return f"keryx.toml.before-{program}"


def write(home: Path, program: str, found: SettingsChanges) -> None:
    """Write the changes, after a copy of the first keryx.toml."""
    for name, value in found.secrets.items():
        settings_file.write_secret(home, name, value)
    if found.changes:
        if not (home / find_backup(program)).exists():
            settings_file.write_text(home, settings_file.read_text(home), name=find_backup(program))
        settings_file.write_text(home, found.text)


def undo(
    home: Path, program: str, changes: Sequence[SettingChange], secrets: Sequence[str], *, digest: str
) -> list[str]:
    """Take the changes back, and return what stays, as sentences. A file that nobody has changed since becomes what it was."""
    text = settings_file.read_text(home)
    backup = home / find_backup(program)
    kept: list[str] = []
    if backup.exists() and digest_text(text) == digest:
        before = backup.read_text(encoding="utf-8")
        if before:
            settings_file.write_text(home, before)
        else:
            (home / "keryx.toml").unlink(missing_ok=True)
    else:
        new = text
        for change in reversed(changes):
            new = _undo_change(new, change, kept)
        if new != text:
            settings_file.write_text(home, new)
    remaining = settings_file.read_text(home)
    for name in secrets:
        path = settings_file.find_secret(home, name)
        if str(path) in remaining:
            kept.append(f"{path}: keryx.toml refers to it")
        else:
            path.unlink(missing_ok=True)
    backup.unlink(missing_ok=True)
    return kept


def _undo_change(text: str, change: SettingChange, kept: list[str]) -> str:
    if not change.key:
        entry = str(change.after)
        if entry not in text:
            kept.append(f"[[{change.table}]]: it was changed since, or removed")
        return text.replace(entry, "", 1)
    if settings_file.read_table_of(text, change.table).get(change.key) != change.after:
        kept.append(f"[{change.table}] {change.key}: it was changed since, or removed")
        return text
    if change.before is None:
        return settings_file.remove_value(text, change.table, change.key)
    return settings_file.update_text(text, change.table, {change.key: change.before})


def digest_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
