"""The agent interface: the turn context an agent receives, the events it yields, and the editor workspace it may use."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

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
    """A tool server that an editor provides for its session. Kept in memory only, because it may contain secrets."""

    name: str
    # A program with its arguments; empty for a server at `url`.
    command: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}


class Workspace(Protocol):
    """The files and the terminal of an editor. Paths are absolute. Failures raise a `KeryxError`."""

    @property
    def can_read(self) -> bool: ...

    @property
    def can_write(self) -> bool: ...

    @property
    def can_run(self) -> bool: ...

    async def read(self, path: str, *, line: int | None = None, limit: int | None = None) -> str:
        """Return the text of a file, with unsaved changes. Lines count from 1."""
        ...

    async def write(self, path: str, content: str) -> None: ...

    async def run(self, command: str, *, cwd: str) -> str:
        """Run a shell command in the editor's terminal. Return its output and exit status."""
        ...


class WorkspaceRegistry(Protocol):
    """The workspaces of sessions, for agents to use."""

    def attach(
        self,
        session: SessionId,
        workspace: Workspace,
        servers: Sequence[EditorToolServer],
        *,
        cwd: str,
        folders: Sequence[str] = (),
    ) -> None:
        """Set the workspace and the tool servers of a session, replacing earlier ones. `folders` are those beside `cwd`
        whose files may be used."""
        ...

    def detach(self, session: SessionId) -> None: ...


class TextDelta(msgspec.Struct, frozen=True):
    """More text of the answer."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More reasoning."""

    text: str
    # The provider's own form of it, as JSON text.
    opaque: str = ""


class ToolCallEvent(msgspec.Struct, frozen=True):
    """Tools are about to run. Stored before the agent is resumed, so the agent runs them after this event."""

    calls: tuple[ToolCall, ...]


class ToolCallUpdateEvent(msgspec.Struct, frozen=True):
    """A stored call is known better now: its name and input replace those of the call with the same id."""

    call: ToolCall


class ToolResultEvent(msgspec.Struct, frozen=True):
    """A tool has answered. Stored before the agent is resumed."""

    result: ToolResult


class UsageEvent(msgspec.Struct, frozen=True):
    """The usage of one call of a model."""

    usage: Usage
    # `answer`, `title` or `summary`.
    task: str = "answer"


class NoticeEvent(msgspec.Struct, frozen=True):
    """A message for people that is not part of the answer. The model never sees it."""

    text: str
    # `WARNING_KIND` is also sent to the chat that asked. After a kind in `turns.STOP_REASONS` the answer ends.
    kind: str = ""


class FileEvent(msgspec.Struct, frozen=True):
    """An image, sound or file of the answer, in its position in the text. Chats get it after the text."""

    name: str
    mime: str
    body: bytes


class CompactionEvent(msgspec.Struct, frozen=True):
    """The conversation was compacted. Stored before the agent is resumed."""

    # Replaces all messages before `first`.
    summary: str
    first: int
    # Send a marker to the chat that asked.
    tell: bool = True


class CompactionFailedEvent(msgspec.Struct, frozen=True):
    """A compaction failed. It is shown, and retried after a back-off."""

    reason: str
    # Tell the chat that asked.
    tell: bool = True


class BindingEvent(msgspec.Struct, frozen=True):
    """The agent has a session of its own for this conversation. Stored before the agent is resumed."""

    binding: Binding


AgentEvent: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | ToolCallEvent
    | ToolCallUpdateEvent
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


class SpeechHints(msgspec.Struct, frozen=True, kw_only=True):
    """What a program says about a sound that it wants to have transcribed. Empty fields are left to the model."""

    # A code such as `de`.
    language: str | None = None
    # Words that the model may expect, or the text before.
    prompt: str | None = None
    temperature: float | None = None


class TranscribeSound(Protocol):
    def __call__(self, sound: Attachment, hints: SpeechHints = SpeechHints()) -> Awaitable[str]:
        """Return what is said in a sound. Raise `AgentFailed` with a sentence for the user."""
        ...


class SpeakText(Protocol):
    def __call__(self, text: str) -> Awaitable[Attachment]:
        """Return a text as a sound. Raise `AgentFailed` with a sentence for the user."""
        ...


async def fetch_nothing(media: str) -> Attachment:
    """Raise `NotFound`: for sessions without files."""
    raise NotFound(f"there is no file {media[:80]!r}")


class ClientTool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function of the program that asks. The agent calls it by ending its turn with the call; the result comes with the
    next turn."""

    name: str
    description: str = ""
    # The JSON schema of an object.
    parameters: dict[str, Any] = {}


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a program asks of one turn beside its message."""

    # Added to the prompt, for this turn only.
    instructions: str = ""
    tools: tuple[ClientTool, ...] = ()
    # Further parameters for the model, under the names of the chat completions API.
    parameters: dict[str, Any] = {}
    # The program that asks, if the owner of the session is to be asked first whether it may.
    ask_first: str = ""


class TurnContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent knows about its turn."""

    session: SessionId
    turn: TurnId
    # Counts from 1.
    attempt: int
    # The section of the prompt about the chat.
    place: str
    # The messages to answer; after an interruption also what earlier attempts recorded.
    turn_messages: Sequence[Message]
    # Loads the conversation as the model sees it. It ends with `turn_messages`.
    history: LoadHistory
    # Replaces what was compacted before `history`.
    summary: str = ""
    # Several people write here, so messages carry their author.
    shared: bool = False
    settings: SessionSettings
    # The working directory.
    cwd: str
    # The time zone in which the model is told when each message was sent; empty to tell no times.
    zone: str = ""
    # The model sees the platform's id of each message, because a tool needs it.
    show_ids: bool = False
    clock: Clock
    # Returns messages for this turn that arrived since the last call. To be called between steps.
    fetch_new_messages: Callable[[], Awaitable[Sequence[Message]]]
    # Asks a person, in the chat and on every surface. Returns the id of the chosen option or the free text, `None`
    # after a timeout.
    ask: AskPerson = ask_nobody
    # Loads an image or file by the `media` of its part. Raises `NotFound` if it was deleted.
    fetch: FetchMedia = fetch_nothing
    # False for a while after a compaction failed.
    may_compact: bool = True
    # Keys of questions whose outcome an interrupted attempt already received.
    answered_keys: frozenset[str] = frozenset()
    # The sessions that outside agents reported with `BindingEvent`, by the name of the agent.
    bindings: Mapping[str, Binding] = {}
    profile: ProfileId = DEFAULT_PROFILE
    # The owner of the session.
    owner: PrincipalId = OPERATOR
    # The person who asked for this turn.
    asker: PrincipalId = OPERATOR
    # The surface that the message came from.
    surface: str = ""
    # What the program that asks wants beside the answer. Only agents that call a model themselves can do it.
    options: RequestOptions = RequestOptions()


class Agent(Protocol):
    def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        """Yield the events of one turn; the turn ends with the iterator. `AgentFailed` fails it with a text for the user."""
        ...


@runtime_checkable
class Compactor(Protocol):
    """An agent that can compact a conversation on request."""

    def compact(self, context: TurnContext, focus: str) -> AsyncGenerator[AgentEvent, None]:
        """Yield events; the last is a `CompactionEvent`."""
        ...


@runtime_checkable
class Titler(Protocol):
    """An agent that can name a conversation after its first answer."""

    async def title(self, context: TurnContext, answer: str) -> tuple[str, Usage] | None:
        """Return a title and its usage, or `None` if the rule for titles suffices."""
        ...
