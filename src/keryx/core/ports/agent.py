"""The agent interface: the turn context an agent receives, the events it yields, and the editor workspace it may use."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from keryx.core.clock import Clock
from keryx.core.errors import NotFound
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, PrincipalId, ProfileId, SessionId, TurnId
from keryx.core.media import Attachment
from keryx.core.messages import Message, ToolCall, ToolResult
from keryx.core.questions import AskPerson, ask_nobody
from keryx.core.sessions import Binding, SessionSettings
from keryx.core.usage import Usage

WARNING_KIND = "warning"


class EditorToolServer(msgspec.Struct, frozen=True, kw_only=True):
    """A tool server that an editor named: a program with its arguments, or an address. `env` and `headers` hold values,
    so it lives in memory only."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}


class Workspace(Protocol):
    """Paths are absolute. Errors of Keryx say why something could not be done."""

    @property
    def can_read(self) -> bool: ...

    @property
    def can_write(self) -> bool: ...

    @property
    def can_run(self) -> bool: ...

    async def read(self, path: str, *, line: int | None = None, limit: int | None = None) -> str:
        """The text of a file as the editor has it, unsaved changes included. Lines count from 1."""
        ...

    async def write(self, path: str, content: str) -> None: ...

    async def run(self, command: str, *, cwd: str) -> str:
        """Run a shell command in the editor's terminal to its end; gives its output and how it ended."""
        ...


class WorkspaceRegistry(Protocol):
    """Where workspaces are left for agents. What is lent to a session is there for every model it may choose."""

    def attach(
        self, session: SessionId, workspace: Workspace, servers: Sequence[EditorToolServer], *, cwd: str
    ) -> None:
        """Lend to a session, in place of what was lent to it before."""
        ...

    def detach(self, session: SessionId) -> None: ...


class TextDelta(msgspec.Struct, frozen=True):
    """More text of the answer."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More reasoning; `opaque` keeps a provider's own form."""

    text: str
    opaque: str = ""


class ToolCallEvent(msgspec.Struct, frozen=True):
    """Tools are about to run. Stored before the agent is resumed, so the agent runs them after this event."""

    calls: tuple[ToolCall, ...]


class ToolResultEvent(msgspec.Struct, frozen=True):
    """A tool has answered. Stored before the agent is resumed."""

    result: ToolResult


class UsageEvent(msgspec.Struct, frozen=True):
    """What a call of a model used, and for which task: `answer`, `title` or `summary`."""

    usage: Usage
    task: str = "answer"


class NoticeEvent(msgspec.Struct, frozen=True):
    """Something a person should know that is no part of the answer: shown as a notice, never given to the model. With
    the kind `WARNING` it is also sent to the place that asked. With one of `turns.ENDINGS` nothing of the answer follows."""

    text: str
    kind: str = ""


class FileEvent(msgspec.Struct, frozen=True):
    """A picture, sound or file of the answer, in its place among the text; sent after it."""

    name: str
    mime: str
    body: bytes


class CompactionEvent(msgspec.Struct, frozen=True):
    """A summary stands for everything before message `first` from now on. Stored before the agent is resumed.
    `tell`: the place that asked sees a marker."""

    summary: str
    first: int
    tell: bool = True


class CompactionFailedEvent(msgspec.Struct, frozen=True):
    """The conversation should have been compacted and could not be: shown, and not tried again for a while. `tell`: the
    place that asked is told as well."""

    reason: str
    tell: bool = True


class BindingEvent(msgspec.Struct, frozen=True):
    """The agent continues this conversation in a session of its own. Stored before the agent is resumed."""

    binding: Binding


AgentEvent: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | ToolCallEvent
    | ToolResultEvent
    | UsageEvent
    | NoticeEvent
    | FileEvent
    | CompactionEvent
    | CompactionFailedEvent
    | BindingEvent
)


FetchMedia: TypeAlias = Callable[[str], Awaitable[Attachment]]
LoadHistory: TypeAlias = Callable[[], Awaitable[Sequence[Message]]]


async def fetch_nothing(media: str) -> Attachment:
    """For turns whose session shows no files."""
    raise NotFound(f"there is no file {media[:80]!r}")


class TurnContext(msgspec.Struct, frozen=True, kw_only=True):
    """All an agent may know of its turn. `asked` holds the messages to answer, and after an interruption what earlier
    attempts recorded. `history` reads the conversation as the model sees it, which ends with `asked`; `summary` stands
    for what was compacted before it. `shared`: several people talk here, so messages carry their author. `steer` gives messages that arrived meanwhile for
    this turn; call it between steps. `ask` puts a question to a person, at the place that asked and on every surface,
    and gives the id of the chosen option (or the free text), `None` when nobody answered in time. `answered` holds
    the keys of questions of which an interrupted attempt has learned what became of them. `owner` is the session's,
    `asker` who asked for this turn, on `surface`. `fetch` reads a picture or file
    of the conversation by the `media` of its part; `NotFound` for one that is no longer there. `may_compact`: not so
    soon after a compaction that failed. `bindings` are those that agents told of with `Bound`, by the agent's name."""

    session: SessionId
    turn: TurnId
    attempt: int
    place: str
    turn_messages: Sequence[Message]
    history: LoadHistory
    summary: str = ""
    shared: bool = False
    settings: SessionSettings
    cwd: str
    clock: Clock
    fetch_new_messages: Callable[[], Awaitable[Sequence[Message]]]
    ask: AskPerson = ask_nobody
    fetch: FetchMedia = fetch_nothing
    may_compact: bool = True
    answered_keys: frozenset[str] = frozenset()
    bindings: Mapping[str, Binding] = {}
    profile: ProfileId = DEFAULT_PROFILE
    owner: PrincipalId = OPERATOR
    asker: PrincipalId = OPERATOR
    surface: str = ""


class Agent(Protocol):
    """Ending the iterator ends the turn; `AgentFailed` fails it with a sentence for the person."""

    def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]: ...


@runtime_checkable
class Compactor(Protocol):
    """An agent whose conversations can be compacted when a person asks for it. Ends with `Compacted`."""

    def compact(self, context: TurnContext, focus: str) -> AsyncGenerator[AgentEvent, None]: ...


@runtime_checkable
class Titler(Protocol):
    """An agent that can name a conversation after its first answer. `None` where a rule does as well."""

    async def title(self, context: TurnContext, answer: str) -> tuple[str, Usage] | None: ...
