"""What another program has besides its conversations, as its reader returns it: chats, people, jobs, settings and answers that
were not sent. Also reads its settings, which may be YAML, JSON with comments, or lines of variables."""

import importlib
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from keryx.core import clock, codec
from keryx.core.errors import Invalid, format_install_command
from keryx.core.lanes import LaneSharing
from keryx.core.resets import ResetPolicy
from keryx.core.schedules import Schedule
from keryx.core.source import Source
from keryx.importers import conversation
from keryx.importers.conversation import ImportLog, Json, as_count, as_dict, as_list, as_text
from keryx.importers.source_files import is_link, open_file

MAX_SETTINGS_BYTES = 4 << 20
MAX_INSTRUCTIONS = 20_000
_VARIABLE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)\Z")
_JSON_COMMENT = re.compile(r'("(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\')|//[^\n]*|/\*.*?\*/|(\t)', re.DOTALL)

SettingValue: TypeAlias = str | bool | list[str]


class ForeignAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A bot of the program, with the settings that the adapter of its platform has here."""

    platform: str
    # Empty for the only one of its platform.
    name: str = ""
    settings: dict[str, SettingValue] = {}
    # By setting. They are written to files, never to the store.
    secrets: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"ForeignAccount({self.label!r})"

    @property
    def label(self) -> str:
        """The name of its table in keryx.toml."""
        return f"{self.platform}.{self.name}" if self.name else self.platform


class ForeignChat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat, and the conversation that goes on in it."""

    # The program's id of the conversation.
    session: str
    # Without the account, which `label` names.
    source: Source
    label: str
    # The next message begins a new conversation.
    suspended: bool = False
    # What a person asked last, if it was not answered.
    question: str = ""
    asked_at: datetime | None = None


class ForeignGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A person who was let in by pairing."""

    platform: str
    person: str
    name: str = ""


class ForeignAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Who may talk to an account."""

    label: str
    allow: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    # Messages in groups need a mention; `None` if the program does not say.
    mention: bool | None = None


class ForeignPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A chat that is written to: the home channel of an account, or the target of a job or an answer."""

    label: str
    # Empty for the home channel.
    chat: str = ""
    thread: str = ""
    name: str = ""


class ForeignJob(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    prompt: str
    schedule: Schedule
    targets: tuple[ForeignPlace, ...] = ()
    # The direct chat that it was made in.
    source: Source | None = None
    label: str = ""
    # It is not paused in the program.
    active: bool = True


class ForeignModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model behind an OpenAI-compatible endpoint."""

    name: str
    base_url: str
    key: str = ""
    # The names of models that answer in its place.
    fallback: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ForeignModel({self.name!r})"


class UnsentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that the program did not record as sent."""

    id: str
    place: ForeignPlace
    text: str
    # It may have arrived.
    uncertain: bool
    at: datetime | None = None


class ProgramSetup(msgspec.Struct, kw_only=True):
    """Everything besides the conversations."""

    place: Path
    # The process that has the bots now, 0 for none.
    gateway: int = 0
    accounts: list[ForeignAccount] = []
    chats: list[ForeignChat] = []
    grants: list[ForeignGrant] = []
    access: list[ForeignAccess] = []
    homes: list[ForeignPlace] = []
    jobs: list[ForeignJob] = []
    models: list[ForeignModel] = []
    answers: list[UnsentAnswer] = []
    # Personality, standing instructions and notes.
    instructions: str = ""
    sharing: LaneSharing = LaneSharing()
    resets: ResetPolicy | None = None
    # Of schedules, if it is set in the program.
    zone: str = ""

    def add_models(self, first: ForeignModel, others: Iterable[ForeignModel | None], log: ImportLog) -> None:
        """Add the model that agents use, and those that answer in its place."""
        names = [first.name]
        for other in others:
            if other is None or other.name in names:
                log.lose("fallback models that have no endpoint here, or the name of another", first.name)
            else:
                names.append(other.name)
                self.models.append(other)
        self.models.insert(0, msgspec.structs.replace(first, fallback=tuple(names[1:])))

    def has_account(self, label: str) -> bool:
        return any(account.label == label for account in self.accounts)


class SourceFolder:
    """The files of a program with settings. Symbolic links are not followed, and nothing in a file is expanded or run."""

    def __init__(self, root: Path, log: ImportLog) -> None:
        self._root = root
        self._log = log

    def read_text(self, name: str) -> str:
        """Return the text of a small file, an empty one if there is none; one that cannot be read is reported."""
        path = self._root / name
        if not os.path.lexists(path):
            return ""
        if is_link(path):
            self._log.skip_link(path)
            return ""
        try:
            with open_file(path) as file:
                body = file.read(MAX_SETTINGS_BYTES + 1)
        except (Invalid, OSError) as exc:
            self._log.damage(str(path), str(exc))
            return ""
        if len(body) > MAX_SETTINGS_BYTES:
            self._log.damage(str(path), "it is too large")
            return ""
        return body.decode("utf-8", "replace").removeprefix("\ufeff")

    def read_json(self, name: str) -> object:
        """Return the value of a JSON file, `None` if there is none; a damaged one is reported."""
        text = self.read_text(name)
        try:
            return codec.loads(text, object) if text.strip() else None
        except Invalid as exc:
            self._log.damage(str(self._root / name), str(exc))
            return None

    def read_yaml(self, name: str) -> Json:
        """Return the settings in a YAML file. Raise `Invalid` if the package for it is missing."""
        return as_dict(self._parse_yaml(self.read_text(name), name))

    def read_relaxed_json(self, name: str) -> Json:
        """Return the settings in a JSON file, which may have comments, trailing commas and keys without quotation marks."""
        text = self.read_text(name)
        try:
            return as_dict(codec.loads(text, object)) if text.strip() else {}
        except Invalid:
            # Without comments and tabs it is YAML.
            plain = _JSON_COMMENT.sub(lambda found: found[1] or " ", text)
            return as_dict(self._parse_yaml(plain, name))

    def _parse_yaml(self, text: str, name: str) -> Any:
        if not text.strip():
            return None
        path = self._root / name
        try:
            yaml = importlib.import_module("yaml")
        except ImportError as exc:
            raise Invalid(f"{path} needs an extra: run `{format_install_command('migrate')}`") from exc
        try:
            return yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError) as exc:
            where = " ".join(str(exc).split())[:200]
            self._log.damage(str(path), f"its settings cannot be read: {where}")
            return None

    def read_variables(self, name: str) -> dict[str, str]:
        """Return the variables of an environment file."""
        found: dict[str, str] = {}
        for line in self.read_text(name).splitlines():
            matched = _VARIABLE.match(line.strip())
            if matched is None:
                continue
            key, value = matched[1], matched[2].strip()
            if value[:1] in ("'", '"') and value[0] in value[1:]:
                value = value[1 : value.index(value[0], 1)]
            else:
                value = re.split(r"\s+#", value, maxsplit=1)[0].strip()
            if value:
                found[key] = value
        return found

    def find_process(self, names: Iterable[str], word: str) -> int:
        """Return the process that a file of the program names, if it runs and has a word in its command line; else 0."""
        for name in names:
            record = conversation.parse_json(self.read_text(name).strip())
            pid = as_count(as_dict(record).get("pid") or record)
            if pid and is_running(pid, word):
                return pid
        return 0


class SetupReader:
    """What the readers of all programs have: the folder, its variables, and the setup that they fill."""

    def __init__(self, home: Path, log: ImportLog) -> None:
        self._home = home
        self._log = log
        self._files = SourceFolder(home, log)
        self._written_env = self._files.read_variables(".env")
        self._setup = ProgramSetup(place=home)

    def _choose_zone(self, named: str) -> str:
        """Return the zone of its schedules: the one that is set, or that of the machine."""
        if not named:
            return find_local_zone()
        with suppress(Invalid):
            self._setup.zone = clock.find_zone(named).key
            return self._setup.zone
        self._log.lose("time zones that do not exist: schedules are in UTC", named)
        return "UTC"


def is_running(pid: int, word: str) -> bool:
    """Whether a process of this machine has a word in its command line."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        if os.path.isdir("/proc/self"):
            return False
        try:
            os.kill(pid, 0)
        except (OSError, OverflowError):
            return False
        return True
    return word.encode() in command


def split_list(value: object) -> tuple[str, ...]:
    """Return the entries of a list, or of a text with commas between them."""
    entries = as_list(value) or as_text(value).split(",")
    return tuple(dict.fromkeys(text for entry in entries if (text := str(entry).strip())))


def is_true(value: object) -> bool:
    return str(value).strip().lower() in ("true", "1", "yes", "on")


def find_local_zone() -> str:
    """Return the name of the time zone of this machine, UTC if it has none that is known."""
    names = [os.environ.get("TZ", "").removeprefix(":")]
    with suppress(OSError):
        names.append(str(Path("/etc/localtime").resolve()).partition("/zoneinfo/")[2])
        names.append(Path("/etc/timezone").read_text(encoding="ascii", errors="replace").strip())
    for name in filter(None, names):
        with suppress(Invalid):
            return clock.find_zone(name).key
    return "UTC"
