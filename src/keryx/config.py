"""Configuration: frozen settings from keryx.toml and the environment, read once and checked as they are read."""

import os
import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import msgspec

from keryx.agents import configured, local
from keryx.agents.configured import Configured
from keryx.agents.models import Model
from keryx.agents.tools import Permission
from keryx.agents.toolserver import ToolServer
from keryx.core import profiles
from keryx.core.access import Rule
from keryx.core.budgets import Budgets
from keryx.core.compaction import Compaction
from keryx.core.deliveries import Doubt
from keryx.core.errors import Invalid
from keryx.core.jobs import Scheduling
from keryx.core.lanes import Sharing
from keryx.core.profiles import Profile
from keryx.core.resets import Resets
from keryx.core.turns import BusyMode, Limits
from keryx.engine.policy import BUILTIN_TOOLS, Files, Keep, Notices, Policy
from keryx.surfaces.gateway.settings import GROUP, Setup
from keryx.surfaces.web.settings import Web

PREFIX = "KERYX_"
INLINE = "agent"
"""The name of an agent that is written in place."""
LLM_KEY = f"{PREFIX}LLM_API_KEY"
ALLOW = re.compile(rf"{PREFIX}([A-Z][A-Z0-9_]*)_ALLOW\Z")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SECRET = re.compile(r"token|secret|password|key\Z")
_WITH_IDS = ("access", "profiles", "rules")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])\Z")


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class Editor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How `keryx acp` serves an editor. `limit` is the longest message in bytes; `login` a command to log in with."""

    limit: int = 32_000_000
    login: tuple[str, ...] = ()


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set. `platforms` holds the tables of adapters by platform, as they are written;
    each adapter reads its own. `agent` is `auto`, `echo`, `llm`, `local`, a `package.module:object`, or a name from `agents`. `database` is a file or a postgresql:// address; empty means a file in `home`."""

    home: str = ""
    database: str = ""
    host: str = "127.0.0.1"
    port: int = 7337
    agent: str = "auto"
    agents: dict[str, Configured] = {}
    model: str = ""
    models: tuple[Model, ...] = ()
    tools: tuple[ToolServer, ...] = ()
    permissions: dict[str, Permission | dict[str, Permission]] = {}
    llm_base_url: str = ""
    llm_model: str = ""
    profile: str = "default"
    busy: BusyMode = BusyMode.QUEUE
    doubt: Doubt = Doubt.REPEAT
    drain: timedelta = timedelta(seconds=20)
    log_level: str = "warning"
    log_format: LogFormat = LogFormat.TEXT
    access: dict[str, Rule] = {}
    profiles: dict[str, Profile] = {}
    limits: Limits = Limits()
    sharing: Sharing = Sharing()
    resets: Resets = Resets()
    keep: Keep = Keep()
    notices: Notices = Notices()
    acp: Editor = Editor()
    platforms: dict[str, dict[str, Any]] = {}
    media: Files = Files()
    web: Web = Web()
    compaction: Compaction = Compaction()
    budgets: Budgets = Budgets()
    jobs: Scheduling = Scheduling()

    def __post_init__(self) -> None:
        if "://" in self.database and not self.on_postgres:
            raise ValueError("database is a file, or an address like postgresql://user@host/name")
        names = [BUILTIN_TOOLS, *(s.name for s in self.tools)]
        if twice := next((n for n in names if names.count(n) > 1), None):
            raise ValueError(f"tools {twice!r}: the name is taken; give each server a name of its own")
        for name in self.agents:
            configured.check_name(name)
        for name, profile in self.profiles.items():
            if profile.agent and profile.agent not in self.agent_names:
                raise ValueError(
                    f"profiles.{name}.agent = {profile.agent!r}: there is no such agent in [agents]"
                )

    @property
    def folder(self) -> Path:
        return Path(self.home).expanduser()

    @property
    def store(self) -> str:
        """The database to open: a PostgreSQL address, or the path of a file."""
        return self.database or str(self.folder / "keryx.db")

    @property
    def on_postgres(self) -> bool:
        return self.store.startswith(("postgresql://", "postgres://"))

    @property
    def named_models(self) -> tuple[Model, ...]:
        """The configured models; the one that variables name comes first."""
        if not (self.llm_base_url or self.llm_model):
            return self.models
        key = f"env:{LLM_KEY}" if os.environ.get(LLM_KEY) else ""
        base_url = self.llm_base_url or "https://api.openai.com/v1"
        return (Model(name=self.llm_model, base_url=base_url, id=self.llm_model, key=key), *self.models)

    @property
    def brain(self) -> str:
        """The agent in force. `auto` takes the configured models, else the local one if it is installed, else echo."""
        if self.agent != "auto":
            return self.agent
        if self.named_models:
            return "llm"
        return "local" if local.installed() else "echo"

    @property
    def agent_names(self) -> tuple[str, ...]:
        """The agents that a conversation may have; the one in force comes first."""
        return tuple(dict.fromkeys((self.brain, *self.agents)))

    @property
    def choices(self) -> tuple[str, ...]:
        """The names of the models that a session may choose from."""
        found = tuple(m.name for m in self.named_models)
        return (*found, local.MODEL.name) if self.brain in ("llm", "local") and local.installed() else found

    @property
    def policy(self) -> Policy:
        return Policy(
            sharing=self.sharing,
            resets=self.resets,
            busy=self.busy,
            doubt=self.doubt,
            limits=self.limits,
            keep=self.keep,
            notices=self.notices,
            media=self.media,
            budgets=self.budgets,
            jobs=self.jobs,
            access=self.access,
            profiles=self.profiles,
            tools=(BUILTIN_TOOLS, *(s.name for s in self.tools)),
            models=self.choices,
            agents=self.agent_names,
            agent_rules={name: a.rules for name, a in self.agents.items()},
        )


class Origin(msgspec.Struct, frozen=True):
    """A value as it is in force, and where it comes from: `default`, `keryx.toml` or a variable's name."""

    value: Any
    source: str


def read(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings in force. Raises `Invalid` with the name of the wrong one and what it may be."""
    environ = os.environ if environ is None else environ
    return _convert(_merged(environ))


def setups(settings: Settings, environ: Mapping[str, str] | None = None) -> list[Setup]:
    """What is said about each installed platform that anything is said about, in the order of their names."""
    environ = os.environ if environ is None else environ
    found: list[Setup] = []
    for name in sorted(set(settings.platforms) | set(_platforms_of(environ))):
        table = settings.platforms.get(name, {})
        found.append(Setup(platform=name, home=settings.folder, table=table, environ=environ))
    return found


def installed() -> list[str]:
    """The platforms that an adapter is installed for."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def explain(environ: Mapping[str, str] | None = None) -> dict[str, Origin]:
    """Every setting by its dotted name, with its value and where that comes from."""
    environ = os.environ if environ is None else environ
    settings = read(environ)
    file = _flat(_file(_home(environ)))
    variables = _variables(environ)
    shown: dict[str, Origin] = {}
    values = msgspec.to_builtins(settings, builtin_types=(timedelta,))
    tables = values.pop("platforms")
    for name, value in _flat(values | tables).items():
        source = "default"
        if name in file or any(key.startswith(f"{name}.") for key in file):
            source = "keryx.toml"
        if name in variables:
            source = variables[name][0]
        shown[name] = Origin(span(value) if isinstance(value, timedelta) else value, source)
    for platform, names in _platforms_of(environ).items():
        for key in names:
            name = key.removeprefix(_prefix(platform)).lower()
            shown[f"{platform}.{name}"] = Origin(f"env:{key}", key)
    return shown


def span(value: timedelta) -> str:
    """A duration as it is written in the file: `15s`, `10m`, `2h`, `7d`."""
    seconds = value.total_seconds()
    unit = next((u for u in "wdhms" if seconds >= _UNITS[u] and seconds % _UNITS[u] == 0), "s")
    return f"{seconds / _UNITS[unit]:g}{unit}"


def _home(environ: Mapping[str, str]) -> Path:
    chosen = environ.get(f"{PREFIX}HOME")
    return Path(chosen).expanduser() if chosen else Path("~/.keryx").expanduser()


def _merged(environ: Mapping[str, str]) -> dict[str, Any]:
    home = _home(environ)
    values = _with_platforms(_with_agents(_file(home)))
    values["home"] = str(home)
    for name, (_, text) in _variables(environ).items():
        target = values
        *path, last = name.split(".")
        for part in path:
            target = target.setdefault(part, {})
        target[last] = _listed(text) if path[:1] == ["access"] else text
    return values


def _with_agents(values: dict[str, Any]) -> dict[str, Any]:
    """The file with an agent that is written in place, as `agent = { kind = ... }`, moved under `agents`."""
    inline = values.get("agent")
    if not isinstance(inline, dict):
        return values
    agents: dict[str, Any] = values.get("agents", {})
    return {**values, "agent": INLINE, "agents": {**agents, INLINE: inline}}


def _with_platforms(values: dict[str, Any]) -> dict[str, Any]:
    """The file with the tables of adapters moved under `platforms`; a table of nobody stays, and is refused later."""
    known = get_type_hints(Settings)
    foreign = [name for name in values if name not in known or name == "platforms"]
    if not foreign:
        return values
    tables = {name: values[name] for name in foreign if name in installed()}
    for platform, table in tables.items():
        _refuse_secrets(platform, table)
    rest = {name: value for name, value in values.items() if name not in tables}
    if "platforms" in rest:
        raise Invalid("the configuration is wrong: write [telegram], not [platforms.telegram]")
    return {**rest, "platforms": tables}


def _refuse_secrets(platform: str, table: object) -> None:
    """A secret in the settings file would be shown by `keryx config` and copied with the file."""
    if not isinstance(table, dict):
        raise Invalid(f"the configuration is wrong: write [{platform}] and its settings below it")
    for key, value in table.items():  # pyright: ignore[reportUnknownVariableType]
        if _SECRET.search(str(key)) and not str(value).startswith(("env:", "file:")):  # pyright: ignore[reportUnknownArgumentType]
            raise Invalid(
                f"the configuration is wrong: {platform}.{key}: write env:NAME or file:PATH, not the secret itself"
            )


def _platforms_of(environ: Mapping[str, str]) -> dict[str, list[str]]:
    """The variables of installed platforms, by platform."""
    known = {f"{PREFIX}{name.replace('.', '_').upper()}" for name in _names(Settings)}
    foreign = sorted(
        k for k, v in environ.items() if v and k.startswith(PREFIX) and k not in known and not ALLOW.match(k)
    )
    found: dict[str, list[str]] = {}
    for platform in installed() if foreign else ():
        if mine := [key for key in foreign if key.startswith(_prefix(platform))]:
            found[platform] = mine
    return found


def _prefix(platform: str) -> str:
    return f"{PREFIX}{platform}_".upper().replace("-", "_")


def _file(home: Path) -> dict[str, Any]:
    path = home / "keryx.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as exc:
        raise Invalid(f"{path} cannot be read: {exc}. Mend it, or move it away to use the defaults") from exc


def _variables(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The settings that variables give, by dotted name: KERYX_LIMITS_AT_ONCE is limits.at_once."""
    names = {f"{PREFIX}{name.replace('.', '_').upper()}": name for name in _names(Settings)}
    for key in environ:
        if (match := ALLOW.match(key)) and key not in names:
            names[key] = f"access.{match[1].lower()}.allow"
    return {names[key]: (key, value) for key, value in environ.items() if key in names and value}


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _names(kind: type[msgspec.Struct], prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, hint in get_type_hints(kind).items():
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            found += _names(hint, f"{prefix}{name}.")
        elif not get_args(hint):
            found.append(f"{prefix}{name}")
    return found


def _convert(values: dict[str, Any]) -> Settings:
    try:
        settings = msgspec.convert(_spans(_ids_as_text(values), Settings), Settings, strict=False)
        for name in settings.profiles:
            profiles.parse(name)
        return settings
    except msgspec.ValidationError as exc:
        raise Invalid(
            f"the configuration is wrong: {_readable(str(exc))}. `keryx config` shows every setting"
        ) from exc


def _ids_as_text(value: Any, *, here: bool = False) -> Any:
    """Ids of people and chats may be written as numbers, as most platforms show them."""
    if isinstance(value, list):
        return [_ids_as_text(item, here=here) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {key: _ids_as_text(item, here=here or key in _WITH_IDS) for key, item in items}
    return str(value) if here and isinstance(value, int) and not isinstance(value, bool) else value


def _spans(values: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Durations written as `10m`, or as a number of seconds, become time spans."""
    hints = get_type_hints(kind)
    out: dict[str, Any] = {}
    for key, value in values.items():
        hint = hints.get(key)
        if hint is timedelta:
            out[key] = _timedelta(key, value)
        elif isinstance(hint, type) and issubclass(hint, msgspec.Struct) and isinstance(value, dict):
            out[key] = _spans(value, hint)  # pyright: ignore[reportUnknownArgumentType]
        elif hint == tuple[ToolServer, ...] and isinstance(value, list):
            out[key] = [_spans(v, ToolServer) if isinstance(v, dict) else v for v in value]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        elif hint == dict[str, Configured] and isinstance(value, dict):
            out[key] = {k: _spans(v, Configured) if isinstance(v, dict) else v for k, v in value.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        else:
            out[key] = value
    return out


def _timedelta(key: str, value: object) -> timedelta:
    match = _SPAN.match(str(value).strip())
    if match:
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return timedelta(seconds=value)
    raise Invalid(f"{key} = {value!r} is not a duration: write 30s, 10m, 2h or 7d")


def _readable(text: str) -> str:
    """`Expected ... - at $.limits.at_once` with the place first."""
    what, _, where = text.partition(" - at `$.")
    return f"{where.rstrip('`')}: {what}" if where else text


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            out.update(_flat(value, f"{prefix}{key}."))  # pyright: ignore[reportUnknownArgumentType]
        else:
            out[f"{prefix}{key}"] = value
    return out
