"""Settings from keryx.toml and the environment, read once and validated."""

import os
import re
import socket
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, cast, get_args, get_type_hints

import msgspec

from keryx import config_errors, setup_registry
from keryx.agents import agent_config
from keryx.agents.agent_config import AgentConfig, AgentKind, ToolServerConfig
from keryx.agents.llm import Model, OptionalHttpAddress, local_model
from keryx.agents.tools import Permission
from keryx.config_errors import WrongSetting
from keryx.core import clock, ids, texts
from keryx.core.access import AccessRule, CommandAudience
from keryx.core.compaction import CompactionPolicy
from keryx.core.deliveries import LONGEST_REPEAT_MARK, REPEAT_MARK, DoubtPolicy
from keryx.core.durations import format_duration
from keryx.core.errors import Invalid, Unavailable
from keryx.core.jobs import JobSettings
from keryx.core.lanes import LaneSharing
from keryx.core.resets import ResetPolicies
from keryx.core.sessions import PROGRAM_TITLES, TakeoverRules
from keryx.core.source import Profile
from keryx.core.texts import Catalogue, WrongText
from keryx.core.turns import BusyMode, Count, EditPolicy, TurnLimits
from keryx.core.usage import Budgets
from keryx.engine.commands import COMMANDS
from keryx.engine.policy import BUILTIN_TOOLS, MediaLimits, Notices, Policy, PushSettings, Retention
from keryx.surfaces.gateway.adapter_settings import (
    ENTRY_POINT_GROUP,
    RELAY_KEY_VARIABLE,
    AdapterSetup,
    RelaySettings,
)
from keryx.surfaces.web.settings import WebSettings

PREFIX = "KERYX_"
INLINE_AGENT = "agent"  # the name of an agent that is written as `agent = { kind = ... }`
LLM_KEY = f"{PREFIX}LLM_API_KEY"
ALLOW_VARIABLE = re.compile(rf"{PREFIX}([A-Z][A-Z0-9_]*)_ALLOW\Z")
_SECRET_NAME = re.compile(r"token|secret|password|key\Z")
_OTHER_VARIABLES = {
    f"{PREFIX}HOME",
    LLM_KEY,
    f"{PREFIX}TEST_DATABASE",
    f"{PREFIX}WEB_TOKEN",
    f"{PREFIX}WEB_PASSWORD",
    RELAY_KEY_VARIABLE,
}
# An address of PostgreSQL that lacks a sign, and would be the name of a file.
_NEAR_POSTGRES = re.compile(r"postgres(ql)?(:|//)", re.IGNORECASE)
_SECOND = timedelta(seconds=1)
_ObjectPath = Annotated[
    str, msgspec.Meta(pattern=r"^[\w.]+:[\w.]+$", description="write package.module:object")
]
_Person = Annotated[str, msgspec.Meta(pattern=r"^([^:]+:.+)?$", description="write PLATFORM:ID")]
_Host = Annotated[
    str, msgspec.Meta(min_length=1, description="write an address, such as 127.0.0.1 or 0.0.0.0")
]
_Currency = Annotated[str, msgspec.Meta(min_length=1, description="write a currency, such as EUR")]
_TABLES_WITH_IDS = ("access", "profiles", "rules")


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @classmethod
    def _missing_(cls, value: object) -> "LogLevel | None":
        """Accept capital letters, as other programs write levels."""
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class Language(StrEnum):
    AUTO = "auto"
    ENGLISH = "en"
    GERMAN = "de"


class Ability(StrEnum):
    """Whether a model can do something; auto is what is known of a model of its name."""

    AUTO = "auto"
    YES = "true"
    NO = "false"


_ABILITIES = {Ability.AUTO: None, Ability.YES: True, Ability.NO: False}


class EditorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How `keryx acp` serves an editor."""

    limit: Count = 32_000_000  # bytes of the longest message
    login: tuple[str, ...] = ()  # the command that logs a user in


class TemporarySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Temporary conversations. How long they last without a message is `temporary` in [keep]."""

    keys: str = (
        ""  # the folder of their keys; beside a SQLite store if empty. On PostgreSQL all nodes must share it
    )


class TranscriptionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that writes down what is said in sounds. None is asked without a name."""

    model: str = ""
    base_url: OptionalHttpAddress = ""  # by default that of the model from the environment, with its key
    key: str = ""  # a reference, `env:NAME` or `file:PATH`


class SpeechSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that speaks texts for the page. None is asked without a name."""

    model: str = ""
    voice: str = "alloy"
    base_url: OptionalHttpAddress = ""  # by default that of the model from the environment, with its key
    key: str = ""  # a reference, `env:NAME` or `file:PATH`


class SessionEndSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens when a conversation has ended: by a reset, by its age, or by a person."""

    hooks: tuple[_ObjectPath, ...] = ()  # package.module:object, called one after the other
    prompt: str = ""  # then the agent of the conversation is asked this; its answer is not sent


class WatchdogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens to `keryx serve` when its event loop does not turn, or when it does not end. 0s means never."""

    report: timedelta = timedelta(seconds=10)  # then the log shows the stack of every thread
    # Then the process is killed. Its leases have expired long before, so other nodes have its work already.
    exit: timedelta = timedelta(minutes=2)
    stop: timedelta = timedelta(seconds=15)  # how long the end may take, beyond `drain`

    def __post_init__(self) -> None:
        for name, span in (("exit", self.exit or _SECOND), ("stop", self.stop)):
            if span < _SECOND:
                raise ValueError(f"{name}: give at least 1s")


class WatchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conversations that other programs keep on this machine, shown here while they run."""

    enabled: bool = False  # whether `keryx serve` watches; `keryx watch` always does
    programs: tuple[str, ...] = ()  # such as claude-code; by default all that can be watched
    since: timedelta = timedelta(days=30)  # older ones appear when they change
    person: _Person = ""  # whose conversations they are, as PLATFORM:ID; without it, the operator's
    machine: str = ""  # the name of this machine; by default its host name

    def __post_init__(self) -> None:
        if wrong := next((name for name in self.programs if name not in PROGRAM_TITLES), None):
            raise ValueError(f"programs: {config_errors.describe_word(wrong, list(PROGRAM_TITLES))}")

    @property
    def machine_name(self) -> str:
        return self.machine or socket.gethostname()


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    home: str = ""
    database: str = ""  # a file or a postgresql:// address; empty means a file in `home`
    host: _Host = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 7337
    agent: str = "auto"  # or echo, llm, local, a package.module:object, or a name in `agents`
    agents: dict[str, AgentConfig] = {}
    model: str = ""
    models: tuple[Model, ...] = ()
    tools: tuple[ToolServerConfig, ...] = ()
    permissions: dict[str, Permission | dict[str, Permission]] = {}
    llm_base_url: OptionalHttpAddress = ""
    llm_model: str = ""
    llm_images: Ability = Ability.AUTO  # what that model reads
    llm_files: Ability = Ability.AUTO
    llm_audio: Ability = Ability.AUTO
    profile: str = "default"
    busy: BusyMode = BusyMode.QUEUE
    edits: EditPolicy = EditPolicy.NOTE  # of messages that were answered
    doubt: DoubtPolicy = DoubtPolicy.REPEAT
    repeat_mark: str = REPEAT_MARK  # before a part of an answer that may have arrived already
    drain: timedelta = timedelta(seconds=20)
    log_level: LogLevel = LogLevel.WARNING
    log_format: LogFormat = LogFormat.TEXT
    language: Language = Language.AUTO  # of texts for people; auto is the language of each person
    zone: str = "UTC"  # of people who have not set one with /zone
    texts: dict[str, Any] = {}  # texts for people in your own words, by key
    commands: dict[str, CommandAudience] = {}  # who may give a command, by its name
    currency: _Currency = "USD"  # of the prices of the models
    access: dict[str, AccessRule] = {}
    profiles: dict[str, Profile] = {}
    limits: TurnLimits = TurnLimits()
    sharing: LaneSharing = LaneSharing()
    resets: ResetPolicies = ResetPolicies()
    keep: Retention = Retention()
    notices: Notices = Notices()
    acp: EditorSettings = EditorSettings()
    platforms: dict[str, dict[str, Any]] = {}  # the tables of the adapters, which each adapter reads itself
    media: MediaLimits = MediaLimits()
    watchdog: WatchdogSettings = WatchdogSettings()
    transcription: TranscriptionSettings = TranscriptionSettings()
    speech: SpeechSettings = SpeechSettings()
    session_end: SessionEndSettings = SessionEndSettings()
    temporary: TemporarySettings = TemporarySettings()
    web: WebSettings = WebSettings()
    push: PushSettings = PushSettings()
    compaction: CompactionPolicy = CompactionPolicy()
    budgets: Budgets = Budgets()
    jobs: JobSettings = JobSettings()
    relay: RelaySettings = RelaySettings()
    watch: WatchSettings = WatchSettings()

    def __post_init__(self) -> None:
        if ("://" in self.database or _NEAR_POSTGRES.match(self.database)) and not self.on_postgres:
            raise WrongSetting(
                "database", "database: write a file, or an address like postgresql://user@host/name"
            )
        if not 0 < len(self.repeat_mark.strip()) <= len(self.repeat_mark) <= LONGEST_REPEAT_MARK:
            raise ValueError(f"repeat_mark: write a mark of 1 to {LONGEST_REPEAT_MARK} characters")
        try:
            clock.find_zone(self.zone)
        except Invalid as exc:
            raise ValueError(f"zone: {exc}") from exc
        try:
            texts.parse_changes(self.texts)
        except WrongText as exc:
            raise WrongSetting(f"texts.{exc.name}", str(exc)) from exc
        self._check_models()
        for name, key in (("transcription", self.transcription.key), ("speech", self.speech.key)):
            if key and not key.startswith(("env:", "file:")):
                raise ValueError(f"{name}.key: write env:NAME or file:PATH, not the key itself")
        known = {c.name for c in COMMANDS}
        if wrong := next((n for n in self.commands if n not in known), None):
            near = get_close_matches(wrong, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"commands.{wrong}: there is no command /{wrong}{hint}")
        if twice := _find_second(BUILTIN_TOOLS, *(s.name for s in self.tools)):
            name = f"tools[{twice - 1}].name"
            raise WrongSetting(
                name, f"{name} = {self.tools[twice - 1].name!r} is taken; give each server a name of its own"
            )
        for name, agent in self.agents.items():
            try:
                agent_config.check_agent_name(name)
            except ValueError as exc:
                raise WrongSetting(f"agents.{name}", f"agents: {exc}") from exc
            if agent.continues and agent.continues not in PROGRAM_TITLES:
                raise _refuse_word(f"agents.{name}.continues", agent.continues, PROGRAM_TITLES)
        for name, profile in self.profiles.items():
            try:
                ids.parse_profile(name)
            except Invalid as exc:
                raise WrongSetting(f"profiles.{name}", f"profiles: {exc}") from exc
            if profile.agent and profile.agent not in self.agent_names:
                raise _refuse_word(f"profiles.{name}.agent", profile.agent, self.agent_names)
        # Without tables of profiles any name is accepted.
        known_profiles = (ids.DEFAULT_PROFILE, *sorted(self.profiles))
        if self.profiles and self.profile not in known_profiles:
            text = f"there is no profile {self.profile!r}: there are {', '.join(known_profiles)}"
            near = get_close_matches(self.profile, known_profiles, n=1)
            hint = f"did you mean {near[0]}?" if near else f"write [profiles.{self.profile}] to have it"
            raise WrongSetting("profile", f"profile: {text}; {hint}")

    def _check_models(self) -> None:
        names = [m.name for m in self.models]
        if twice := _find_second(*names):
            name = f"models[{twice}].name"
            raise WrongSetting(name, f"{name} = {names[twice]!r} is taken; give each model a name of its own")
        known = {*(m.name for m in self.named_models), local_model.MODEL.name}
        for number, model in enumerate(self.models):
            if unknown := [name for name in model.fallback if name not in known]:
                raise _refuse_word(f"models[{number}].fallback", unknown[0], sorted(known))

    @property
    def folder(self) -> Path:
        return Path(self.home).expanduser()

    @property
    def store(self) -> str:
        """Return the database to open: a PostgreSQL address, or the path of a file. SQLite keeps the log of a store beside the
        file to which a symbolic link leads, so everything else belongs there, too."""
        if self.on_postgres:
            return self.database
        path = self.database or str(self.folder / "keryx.db")
        return os.path.realpath(path) if os.path.islink(path) else path

    @property
    def on_postgres(self) -> bool:
        return self.database.startswith(("postgresql://", "postgres://"))

    @property
    def named_models(self) -> tuple[Model, ...]:
        """Return the configured models, the one from the environment first."""
        if not (self.llm_base_url or self.llm_model):
            return self.models
        key = f"env:{LLM_KEY}" if os.environ.get(LLM_KEY) else ""
        base_url = self.llm_base_url or "https://api.openai.com/v1"
        first = Model(
            name=self.llm_model,
            base_url=base_url,
            id=self.llm_model,
            key=key,
            images=_ABILITIES[self.llm_images],
            files=_ABILITIES[self.llm_files],
            audio=_ABILITIES[self.llm_audio],
        )
        return (first, *self.models)

    @property
    def transcription_model(self) -> Model | None:
        """Return the model that transcribes sounds, `None` if none is named."""
        return self._find_sound_model(self.transcription)

    @property
    def speech_model(self) -> Model | None:
        """Return the model that speaks texts, `None` if none is named."""
        return self._find_sound_model(self.speech)

    def _find_sound_model(self, chosen: TranscriptionSettings | SpeechSettings) -> Model | None:
        if not chosen.model:
            return None
        key = chosen.key
        if not key and not chosen.base_url and os.environ.get(LLM_KEY):
            key = f"env:{LLM_KEY}"
        base_url = chosen.base_url or self.llm_base_url or "https://api.openai.com/v1"
        return Model(name=chosen.model, base_url=base_url, id=chosen.model, key=key)

    @property
    def has_named_accounts(self) -> bool:
        """Whether a platform has a table for an account, such as `[telegram.work]`."""
        return any(_list_tables(table) for table in self.platforms.values())

    @property
    def active_agent(self) -> str:
        """Return the agent in force. `auto` means the configured models, else the local model if installed, else echo."""
        if self.agent != "auto":
            return self.agent
        if self.named_models:
            return "llm"
        return "local" if local_model.is_installed() else "echo"

    @property
    def agent_names(self) -> tuple[str, ...]:
        """Return the agents that a session may choose from, the one in force first."""
        return tuple(dict.fromkeys((self.active_agent, *self.agents)))

    @property
    def model_names(self) -> tuple[str, ...]:
        """Return the models that a session may choose from."""
        found = tuple(m.name for m in self.named_models)
        return (
            (*found, local_model.MODEL.name)
            if self.active_agent in ("llm", "local") and local_model.is_installed()
            else found
        )

    @property
    def policy(self) -> Policy:
        return Policy(
            sharing=self.sharing,
            resets=self.resets,
            busy=self.busy,
            edits=self.edits,
            doubt=self.doubt,
            repeat_mark=self.repeat_mark,
            limits=self.limits,
            keep=self.keep,
            notices=self.notices,
            media=self.media,
            budgets=self.budgets,
            texts=Catalogue(
                language="" if self.language is Language.AUTO else self.language.value,
                changes=texts.parse_changes(self.texts),
            ),
            zone=self.zone,
            currency=self.currency,
            jobs=self.jobs,
            push=msgspec.structs.replace(self.push, contact=self.push.contact or self.web.secure_address),
            push_key=self.folder / "secrets" / "push.key",
            relay=self.relay.limits,
            end_prompt=self.session_end.prompt.strip(),
            access=self.access,
            profiles=self.profiles,
            tools=(BUILTIN_TOOLS, *(s.name for s in self.tools)),
            id_tools={s.name: s.profiles for s in self.tools if s.ids},
            models=tuple(sorted(self.model_names, key=lambda name: name != self.model)),
            model_agents=self._map_model_agents(),
            plain_agents=frozenset(n for n in self.agent_names if self._find_kind(n) == AgentKind.ECHO),
            commands=self.commands,
            agents=self.agent_names,
            agent_rules={name: a.rules for name, a in self.agents.items()},
            takeovers=TakeoverRules(
                machine=self.watch.machine_name,
                # Of several agents for a program, the first.
                agents={a.program: name for name, a in reversed(self.agents.items()) if a.program},
            ),
        )

    def _find_kind(self, agent: str) -> str:
        """Return the kind of an agent. Those without a table are called by it."""
        table = self.agents.get(agent)
        return table.kind if table else agent

    def _map_model_agents(self) -> dict[str, str]:
        """Return the agents that use the configured models, each with the model that it uses unless a session chose one."""
        found = dict[str, str]()
        for name in self.agent_names:
            table, kind = self.agents.get(name), self._find_kind(name)
            if kind == AgentKind.LLM:
                found[name] = (table.model if table else "") or self.model
            elif kind == AgentKind.LOCAL:
                found[name] = local_model.MODEL.name
        return found


def _find_second(*names: str) -> int | None:
    """Return the index of the first name that repeats an earlier one."""
    return next((number for number, name in enumerate(names) if name in names[:number]), None)


def _refuse_word(name: str, word: str, known: Iterable[str]) -> WrongSetting:
    return WrongSetting(name, f"{name} = {config_errors.describe_word(word, list(known))}")


class SettingOrigin(msgspec.Struct, frozen=True):
    value: Any
    source: str  # `default`, `keryx.toml` or the name of a variable


def read(environ: Mapping[str, str] | None = None, *, text: str | None = None) -> Settings:
    """Read the settings, or those that there would be with another text in keryx.toml. Raise `Invalid` with the name of a
    wrong one and its possible values."""
    environ = os.environ if environ is None else environ
    try:
        values = _convert_ids(_merge_sources(environ, text))
        return config_errors.convert(values, Settings, more=list_platforms(), hidden=["platforms", "home"])
    except WrongSetting as exc:
        raise Invalid(_describe_error(exc, environ)) from exc


def find_unknown_variables(environ: Mapping[str, str], setups: Iterable[AdapterSetup] = ()) -> list[str]:
    """Return a sentence for each variable that looks like a setting but is not one. Those of a platform are checked if its
    adapter has read its settings from one of the setups."""
    read = [setup for setup in setups if setup.names]
    known = {f"{PREFIX}{name.replace('.', '_').upper()}" for name in _list_names(Settings)} | _OTHER_VARIABLES
    known.update(*(setup.variables for setup in read))
    unread = set(list_platforms()).difference(setup.platform for setup in read)
    foreign = tuple(_variable_prefix(platform) for platform in unread)
    unknown = [
        name
        for name in sorted(environ)
        if name.startswith(PREFIX)
        and name not in known
        and not name.startswith(foreign)
        and not ALLOW_VARIABLE.match(name)
    ]
    if unknown:
        known.update(*map(_list_answer_variables, read))
    return [
        f"Unknown setting {name}{config_errors.suggest(name, known)}{_suggest_account(name, read)}"
        for name in unknown
        if name not in known
    ]


def _list_answer_variables(setup: AdapterSetup) -> set[str]:
    """Return the variables that `keryx gateway setup` reads for an account."""
    if setup.platform not in setup_registry.list_platforms():
        return set()
    try:
        fields = setup_registry.load(setup.platform).fields
    except Unavailable:
        return set()
    return {setup.variable_name(field.name) for field in fields}


def _suggest_account(variable: str, setups: Iterable[AdapterSetup]) -> str:
    """Return a sentence if a variable may be meant for an account that has no table."""
    for setup in setups:
        names = "|".join(name.upper() for name in setup.names)
        found = re.fullmatch(rf"{_variable_prefix(setup.platform)}(\w+)_({names})", variable)
        if found:
            return f" An account needs a table of its own, [{setup.platform}.{found[1].lower()}]."
    return ""


def list_setups(settings: Settings, environ: Mapping[str, str] | None = None) -> list[AdapterSetup]:
    """Return the settings of each account of the installed platforms, sorted by name. A table below the table of a platform
    belongs to an account of that name."""
    environ = os.environ if environ is None else environ
    found: list[AdapterSetup] = []
    for platform in sorted(set(settings.platforms) | set(_find_platform_variables(environ))):
        table = settings.platforms.get(platform, {})
        accounts = _list_tables(table)
        plain = {key: value for key, value in table.items() if key not in accounts}
        setup = AdapterSetup(platform=platform, home=settings.folder, table=plain, environ=environ)
        found += [setup, *(replace(setup, name=name, table=own) for name, own in accounts.items())]
    return found


def list_platforms() -> list[str]:
    """Return the platforms that have an installed adapter."""
    return sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})


def explain(environ: Mapping[str, str] | None = None) -> dict[str, SettingOrigin]:
    """Return every setting by its dotted name, with its value and where it comes from."""
    environ = os.environ if environ is None else environ
    return _explain_values(read(environ), _read_file(find_home(environ)), environ)


def explain_wrong(environ: Mapping[str, str] | None = None) -> dict[str, SettingOrigin]:
    """Return what `explain` does where the settings are wrong: what is written, unchecked, and the other defaults."""
    environ = os.environ if environ is None else environ
    home = find_home(environ)
    try:
        file = _read_file(home)
    except Invalid:
        file = {}
    origins = _explain_values(Settings(home=str(home)), {}, environ)
    written = {
        name: SettingOrigin(value, "keryx.toml") for name, value in _flatten(_hide_secrets(file)).items()
    }
    given = {name: SettingOrigin(text, key) for name, (key, text) in _read_variables(environ).items()}
    return {**origins, **written, **given}


def _explain_values(
    settings: Settings, written: Mapping[str, Any], environ: Mapping[str, str]
) -> dict[str, SettingOrigin]:
    file = _flatten(written)
    variables = _read_variables(environ)
    origins: dict[str, SettingOrigin] = {}
    values = msgspec.to_builtins(settings, builtin_types=(timedelta,))
    tables = values.pop("platforms")
    for name, value in _flatten(values | tables).items():
        source = "default"
        if name in file or any(key.startswith(f"{name}.") for key in file):
            source = "keryx.toml"
        if name in variables:
            source = variables[name][0]
        origins[name] = SettingOrigin(
            format_duration(value) if isinstance(value, timedelta) else value, source
        )
    for platform, names in _find_platform_variables(environ).items():
        for key in names:
            name = key.removeprefix(_variable_prefix(platform)).lower()
            origins[f"{platform}.{name}"] = SettingOrigin(f"env:{key}", key)
    return origins


def _hide_secrets(value: Any, *, secret: bool = False) -> Any:
    """Mask what may be a secret in place of a reference, as wrong settings can hold one."""
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {
            key: _hide_secrets(
                v, secret=secret or key in ("env", "headers") or bool(_SECRET_NAME.search(key.lower()))
            )
            for key, v in items
        }
    if isinstance(value, list):
        return [_hide_secrets(item, secret=secret) for item in cast(list[Any], value)]
    return "***" if secret and not str(value).startswith(("env:", "file:")) else cast(object, value)


def _describe_error(wrong: WrongSetting, environ: Mapping[str, str]) -> str:
    """Return what is wrong with a setting, and where it was written."""
    variables = _read_variables(environ).items()
    if variable := next((key for known, (key, _) in variables if known == wrong.name != "home"), None):
        return f"{variable}: {wrong}"
    home = find_home(environ)
    place = f"agents.{INLINE_AGENT}"
    if wrong.name.startswith(place) and isinstance(_read_file(home).get("agent"), dict):
        # It was moved to `agents`.
        wrong = WrongSetting(
            wrong.name.replace(place, INLINE_AGENT, 1), str(wrong).replace(place, INLINE_AGENT)
        )
    return config_errors.describe(home / "keryx.toml", wrong)


def find_home(environ: Mapping[str, str]) -> Path:
    chosen = environ.get(f"{PREFIX}HOME")
    return Path(chosen).expanduser() if chosen else Path("~/.keryx").expanduser()


def _merge_sources(environ: Mapping[str, str], text: str | None = None) -> dict[str, Any]:
    home = find_home(environ)
    values = _read_file(home) if text is None else tomllib.loads(text)
    if "home" in values:
        raise WrongSetting("home", "home: set the variable KERYX_HOME; this file is found by it")
    # An agent may be written as `agent = { kind = ... }`.
    if isinstance(inline := values.get("agent"), dict):
        agents: dict[str, Any] = values.get("agents", {})
        values |= {"agent": INLINE_AGENT, "agents": {**agents, INLINE_AGENT: inline}}
    values = _move_platform_tables(values)
    values["home"] = str(home)
    for name, (_, text) in _read_variables(environ).items():
        target = values
        *path, last = name.split(".")
        for part in path:
            target = target.setdefault(part, {})
        is_list = path[:1] == ["access"]
        target[last] = [item.strip() for item in text.split(",") if item.strip()] if is_list else text
    # Move `[access.telegram.work]` to the key `telegram.work`, as well as KERYX_TELEGRAM_WORK_ALLOW.
    names = {
        f"{platform}_{name}".lower().replace("-", "_"): f"{platform}.{name}"
        for platform, table in values.get("platforms", {}).items()
        for name in _list_tables(table)
    }
    rules: dict[str, Any] = {}
    for key, table in values.get("access", {}).items():
        own = table
        if isinstance(table, dict):
            fields = cast(dict[str, Any], table)
            accounts = {f"{key}.{name}": value for name, value in _list_tables(fields).items()}
            rules |= accounts
            own = {name: value for name, value in fields.items() if f"{key}.{name}" not in accounts}
            if accounts and not own:
                continue
        name = names.get(key) or key
        rules[name] = {**rules[name], **own} if name in rules else own
    return {**values, "access": rules} if rules else values


def _move_platform_tables(values: dict[str, Any]) -> dict[str, Any]:
    """Move the tables of adapters to `platforms`. Unknown tables stay and are refused later.

    Raise `Invalid` for a secret in the file: `keryx config` would show it, and copies of the file contain it."""
    known = get_type_hints(Settings)
    foreign = [name for name in values if name not in known or name == "platforms"]
    if not foreign:
        return values
    tables = {name: values[name] for name in foreign if name in list_platforms()}
    for platform, table in tables.items():
        if not isinstance(table, dict):
            raise WrongSetting(platform, f"{platform}: write [{platform}] and its settings below it")
        for key, value in _flatten({platform: table}).items():
            if _SECRET_NAME.search(key.rpartition(".")[2]) and not str(value).startswith(("env:", "file:")):
                raise WrongSetting(key, f"{key}: write env:NAME or file:PATH, not the secret itself")
    rest = {name: value for name, value in values.items() if name not in tables}
    if "platforms" in rest:
        raise WrongSetting("platforms", "platforms: write [telegram], not [platforms.telegram]")
    return {**rest, "platforms": tables}


def _list_tables(table: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the tables within a table, sorted by name."""
    return {
        name: cast(dict[str, Any], value) for name, value in sorted(table.items()) if isinstance(value, dict)
    }


def _find_platform_variables(environ: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the environment variables of installed platforms, by platform."""
    known = {f"{PREFIX}{name.replace('.', '_').upper()}" for name in _list_names(Settings)}
    foreign = sorted(
        k
        for k, v in environ.items()
        if v and k.startswith(PREFIX) and k not in known and not ALLOW_VARIABLE.match(k)
    )
    found: dict[str, list[str]] = {}
    for platform in list_platforms() if foreign else ():
        if keys := [key for key in foreign if key.startswith(_variable_prefix(platform))]:
            found[platform] = keys
    return found


def _variable_prefix(platform: str) -> str:
    return f"{PREFIX}{platform}_".upper().replace("-", "_")


def _read_file(home: Path) -> dict[str, Any]:
    path = home / "keryx.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as exc:
        raise Invalid(f"{path} cannot be read: {exc}. Mend it, or move it away to use the defaults") from exc


def _read_variables(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the variable and value of each setting from the environment: KERYX_LIMITS_AT_ONCE is limits.at_once."""
    names = {f"{PREFIX}{name.replace('.', '_').upper()}": name for name in _list_names(Settings)}
    for key in environ:
        if (match := ALLOW_VARIABLE.match(key)) and key not in names:
            names[key] = f"access.{match[1].lower()}.allow"
    return {names[key]: (key, value) for key, value in environ.items() if key in names and value}


def _list_names(kind: type[msgspec.Struct], prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, hint in get_type_hints(kind).items():
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            found += _list_names(hint, f"{prefix}{name}.")
        elif not get_args(hint):
            found.append(f"{prefix}{name}")
    return found


def _convert_ids(value: Any, *, here: bool = False) -> Any:
    """Convert ids of people and chats that are written as numbers, as most platforms show them."""
    if isinstance(value, list):
        return [_convert_ids(item, here=here) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {key: _convert_ids(item, here=here or key in _TABLES_WITH_IDS) for key, item in items}
    return str(value) if here and isinstance(value, int) and not isinstance(value, bool) else value


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            out.update(_flatten(value, f"{prefix}{key}."))  # pyright: ignore[reportUnknownArgumentType]
        else:
            out[f"{prefix}{key}"] = value
    return out
