"""The setup of a platform: what a person is asked, how the answers are checked, and what is written; and changes of the settings from the page. `keryx gateway setup`, the page and plug-ins use it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, runtime_checkable

import msgspec

from keryx.core.errors import Invalid
from keryx.core.ports.adapter import IdFormat


class SetupField(msgspec.Struct, frozen=True, kw_only=True):
    """One answer that a setup needs."""

    # The setting that the answer becomes. In the terminal it is an option: `base_url` is `--base-url`, a secret `token` is
    # `--token-file`. The variable KERYX_<PLATFORM>_<NAME> is read too.
    name: str
    # What the person is asked, without a colon.
    label: str
    # One sentence: where the person finds it.
    help: str = ""
    # Not shown while it is typed, and written to a file that only its owner can read.
    secret: bool = False
    # An empty answer is accepted. The terminal does not ask for it unless `ask` is set.
    optional: bool = False
    ask: bool = True
    # Fields that make this one unnecessary if one of them is answered: a password is not asked for if there is a token.
    unless: tuple[str, ...] = ()
    # Answers of other fields, or their defaults, that make this one needed or asked for: {"mode": "cloud"}.
    when: Mapping[str, str] = {}
    # Raise `Invalid` with a sentence for an answer that cannot be right, without asking the platform. The terminal asks
    # again at once.
    accept: Callable[[str], object] | None = None
    default: str = ""
    # An answer as it may look, for help texts: `example.org`.
    example: str = ""
    # The only answers that are accepted.
    choices: tuple[str, ...] = ()
    # "yes" or empty; an option without a value.
    flag: bool = False


class SetupOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a check has found, and what is written."""

    # Who Keryx is on the platform, as one sentence.
    summary: str
    # The table of the platform in keryx.toml.
    settings: Mapping[str, str | list[str]] = {}
    # Secrets by the name of their setting. The table gets references to them.
    secrets: Mapping[str, str] = {}
    # Who may talk, as ids of the platform.
    allow: tuple[str, ...] = ()
    # What the person does next, one sentence each.
    steps: tuple[str, ...] = ()
    # What else they should know, as one paragraph.
    note: str = ""
    # For programs: `--json` prints it.
    details: Mapping[str, object] = {}


class SetupDialog(Protocol):
    """What a check may use while it runs."""

    @property
    def label(self) -> str:
        """The name of the table: `discord`, or `discord.work` for one of several accounts."""
        ...

    @property
    def configured(self) -> Mapping[str, object]:
        """The table of the account as it is now."""
        ...

    def show(self, text: str) -> None:
        """Show the person a text at once, such as a code to scan."""
        ...


@runtime_checkable
class SupportsQuestions(Protocol):
    """A dialog with a person who sees at once what is shown and can be asked, as in a terminal. In a form, what is shown
    is read after the check."""

    async def ask(self, question: str) -> str:
        """Return what the person answers. Raise `Invalid` if nobody can be asked."""
        ...


class PlatformSetup(msgspec.Struct, frozen=True, kw_only=True):
    """How a platform is connected. A package declares it as an entry point of the group `keryx.setups`, named as the
    platform."""

    platform: str
    # As people write it: "Discord".
    title: str
    # How to get the answers, step by step. Shown before the first question, and by `--help`.
    intro: str
    fields: tuple[SetupField, ...]
    # One sentence for lists: "Connect a bot on Telegram." By default "Connect <title>."
    summary: str = ""
    # How the platform writes the id of a person, such as `@you:example.org`. With it the setup asks who may talk; without
    # it people let themselves in by pairing.
    allow_example: str = ""
    # The format of the id of a person. The people who may talk must have such an id; `None` accepts any.
    person: IdFormat | None = None
    # Ask the platform whether the answers are right. Raise `Invalid`, `Forbidden` or `Unavailable` with a sentence that
    # says what to do.
    check: Callable[[Mapping[str, str], SetupDialog], Awaitable[SetupOutcome]]


ENTRY_POINT_GROUP = "keryx.setups"


class WrongField(Invalid):
    """An answer in a form is wrong. `field` is its name."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A model as it is configured. `key` is where its key is, as `env:NAME` or `file:PATH`, never the key itself. Only one
    that stands in keryx.toml can be changed; `revision` changes with it."""

    name: str
    base_url: str
    id: str
    key: str = ""
    context: int | None = None
    images: bool | None = None
    tools: bool = True
    input_price: float | None = None
    output_price: float | None = None
    revision: str = ""
    default: bool = False
    # In keryx.toml, and not from variables or a part of Keryx.
    editable: bool = True


class ToolServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A server of tools as it is configured. The values of `env` and `headers` are references to secrets."""

    name: str
    command: str = ""
    url: str = ""
    env: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    cwd: str = ""
    policy: str = ""
    profiles: tuple[str, ...] = ()
    revision: str = ""


class AgentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that can answer. `checkable`: its program can be started once to see whether it works. Only a program with a
    table in keryx.toml can be changed. The values of `env` are references to secrets."""

    name: str
    kind: str
    command: str = ""
    env: Mapping[str, str] = {}
    cwd: str = ""
    login: str = ""
    model: str = ""
    mode: str = ""
    default: bool = False
    profiles: tuple[str, ...] = ()
    checkable: bool = False
    revision: str = ""
    editable: bool = False


class ProfileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A profile as it is configured."""

    name: str
    agent: str = ""
    instructions: str = ""
    hide_ids: bool | None = None
    # How many rules choose it by the place of a message.
    rules: int = 0
    revision: str = ""
    editable: bool = True


class ConfiguredParts(msgspec.Struct, frozen=True, kw_only=True):
    """What keryx.toml and the variables say now. `restart`: it is not all in force yet."""

    path: str
    models: tuple[ModelEntry, ...]
    tools: tuple[ToolServerEntry, ...]
    agents: tuple[AgentEntry, ...]
    profiles: tuple[ProfileEntry, ...]
    restart: bool = False
    # Why the file cannot be used as it is.
    problem: str = ""


class ModelTest(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a model to one short question."""

    answer: str
    seconds: float
    input_tokens: int = 0
    output_tokens: int = 0


class CheckedTool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    permission: str
    description: str = ""


class ToolServerCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a server of tools offers, or why it does not work, with the end of what it wrote."""

    tools: tuple[CheckedTool, ...] = ()
    error: str = ""
    log: str = ""


class AgentCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent can do, or why it does not work, with the end of what it wrote."""

    agent: str = ""
    models: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    # The ids of its login methods.
    logins: tuple[str, ...] = ()
    error: str = ""
    log: str = ""


class SetupService(Protocol):
    """Changes keryx.toml and the files of its secrets. A change raises `WrongField` or `Invalid` for a value that the settings
    refuse, and `Conflict` if the revision is not that of what is written now; nothing is written then."""

    async def read(self) -> ConfiguredParts: ...

    async def save_model(self, entry: ModelEntry, *, secret: str = "") -> None:
        """Add or change a model. A secret is written to a file, and the key refers to it."""
        ...

    async def remove_model(self, name: str, revision: str) -> None: ...

    async def choose_model(self, name: str) -> None:
        """Set the model of conversations that have chosen none."""
        ...

    async def choose_agent(self, name: str) -> None:
        """Set the agent of conversations and profiles that have chosen none."""
        ...

    async def test_model(self, entry: ModelEntry, *, secret: str = "") -> ModelTest:
        """Ask a model, which need not be saved, one short question. Raise `AgentFailed` with what is wrong."""
        ...

    async def save_tools(self, entry: ToolServerEntry) -> None:
        """Add or change a server of tools. Values of `env` and `headers` that are no references are secrets."""
        ...

    async def remove_tools(self, name: str, revision: str) -> None: ...

    async def check_tools(self, entry: ToolServerEntry) -> ToolServerCheck:
        """Start a server, which need not be saved, and list its tools."""
        ...

    async def save_agent(self, entry: AgentEntry) -> None:
        """Add or change an agent that is a program. Values of `env` that are no references are secrets."""
        ...

    async def remove_agent(self, name: str, revision: str) -> None:
        """Remove an agent. If it is the default one, `agent` is removed too."""
        ...

    async def check_agent(self, entry: AgentEntry) -> AgentCheck:
        """Start the program of an agent, which need not be saved. Without a command it is the configured one."""
        ...

    async def save_profile(self, entry: ProfileEntry) -> None: ...

    async def remove_profile(self, name: str, revision: str) -> None: ...

    async def set_password(self, password_hash: str) -> None:
        """Keep the hash of the operator's password in a file that `[web]` refers to."""
        ...

    def note_change(self) -> None:
        """Remember that something was written that is in force after a restart."""
        ...

    async def check_restart(self) -> None:
        """Raise `Invalid` if the process could not start with what is written."""
        ...

    def restart(self) -> None:
        """Restart the process with the written settings."""
        ...
