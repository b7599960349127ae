"""Ports: what the engine needs from the outside world, as small as it can be.

An agent yields events and never writes. An adapter parses, sends and declares what its platform can do.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from keryx.core.bindings import Binding
from keryx.core.deliveries import Idempotency, Target
from keryx.core.errors import NotFound
from keryx.core.ids import (
    DEFAULT_PROFILE,
    OPERATOR,
    DeliveryId,
    PrincipalId,
    ProfileId,
    SessionId,
    TurnId,
    WorkerId,
)
from keryx.core.messages import Audio, File, Image, Message, Parts, ToolCall, ToolResult
from keryx.core.questions import Ask, Button, nobody
from keryx.core.sessions import Settings
from keryx.core.shapes import Ids
from keryx.core.source import Source
from keryx.core.turns import BusyMode, Usage

WARNING = "warning"


class Clock(Protocol):
    """`now` is aware UTC and may jump; `monotonic` never goes back and is what deadlines use."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Said(msgspec.Struct, frozen=True):
    """More text of the answer."""

    text: str


class Thought(msgspec.Struct, frozen=True):
    """More reasoning; `opaque` keeps a provider's own form."""

    text: str
    opaque: str = ""


class Called(msgspec.Struct, frozen=True):
    """Tools are about to run. Stored before the agent is resumed, so the agent runs them after this event."""

    calls: tuple[ToolCall, ...]


class Returned(msgspec.Struct, frozen=True):
    """A tool has answered. Stored before the agent is resumed."""

    result: ToolResult


class Used(msgspec.Struct, frozen=True):
    """What a call of a model used, and for which task: `answer`, `title` or `summary`."""

    usage: Usage
    task: str = "answer"


class Noted(msgspec.Struct, frozen=True):
    """Something a person should know that is no part of the answer: shown as a notice, never given to the model. With
    the kind `WARNING` it is also sent to the place that asked. With one of `turns.ENDINGS` nothing of the answer follows."""

    text: str
    kind: str = ""


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """A picture, sound or file with its bytes, on its way in or out."""

    name: str
    mime: str
    body: bytes


class Attached(msgspec.Struct, frozen=True):
    """A picture, sound or file of the answer, in its place among the text; sent after it."""

    name: str
    mime: str
    body: bytes


class Compacted(msgspec.Struct, frozen=True):
    """A summary stands for everything before message `first` from now on. Stored before the agent is resumed.
    `tell`: the place that asked sees a marker."""

    summary: str
    first: int
    tell: bool = True


class NotCompacted(msgspec.Struct, frozen=True):
    """The conversation should have been compacted and could not be: shown, and not tried again for a while. `tell`: the
    place that asked is told as well."""

    reason: str
    tell: bool = True


class Bound(msgspec.Struct, frozen=True):
    """The agent continues this conversation in a session of its own. Stored before the agent is resumed."""

    binding: Binding


Event: TypeAlias = (
    Said | Thought | Called | Returned | Used | Noted | Attached | Compacted | NotCompacted | Bound
)


Fetch: TypeAlias = Callable[[str], Awaitable[Attachment]]
Recall: TypeAlias = Callable[[], Awaitable[Sequence[Message]]]


async def nothing(media: str) -> Attachment:
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
    asked: Sequence[Message]
    history: Recall
    summary: str = ""
    shared: bool = False
    settings: Settings
    cwd: str
    clock: Clock
    steer: Callable[[], Awaitable[Sequence[Message]]]
    ask: Ask = nobody
    fetch: Fetch = nothing
    may_compact: bool = True
    answered: frozenset[str] = frozenset()
    bindings: Mapping[str, Binding] = {}
    profile: ProfileId = DEFAULT_PROFILE
    owner: PrincipalId = OPERATOR
    asker: PrincipalId = OPERATOR
    surface: str = ""


class Agent(Protocol):
    """Ending the iterator ends the turn; `AgentFailed` fails it with a sentence for the person."""

    def run(self, context: TurnContext) -> AsyncGenerator[Event, None]: ...


@runtime_checkable
class Compactor(Protocol):
    """An agent whose conversations can be compacted when a person asks for it. Ends with `Compacted`."""

    def compact(self, context: TurnContext, focus: str) -> AsyncGenerator[Event, None]: ...


@runtime_checkable
class Titler(Protocol):
    """An agent that can name a conversation after its first answer. `None` where a rule does as well."""

    async def title(self, context: TurnContext, answer: str) -> tuple[str, Usage] | None: ...


class Inbound(msgspec.Struct, frozen=True, kw_only=True):
    """One event from outside, parsed. `event` identifies it on its platform for ever; `cursor` is the
    platform position that may move once this event is stored. `session` sends it to that session instead of
    the one of its lane; with `begin` that session is made by this message unless it is there. `cwd` and `settings`
    are for the session that it begins. `principal` is set by local transports, which know who they speak for.
    `addressed`: the agent is meant (a direct message, a mention, a reply to it, a command). `quote` is the text
    it replies to."""

    event: str
    source: Source
    parts: Parts
    surface: str
    at: datetime | None = None
    reply: Target | None = None
    session: SessionId | None = None
    begin: bool = False
    principal: PrincipalId | None = None
    busy: BusyMode | None = None
    addressed: bool = True
    observed: bool = False
    quote: str = ""
    edits: str | None = None
    pin: WorkerId | None = None
    cwd: str = ""
    settings: Settings | None = None
    commands: bool = True
    cursor: tuple[str, str] | None = None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an inbound event; the same for every repetition of it, but for `duplicate`."""

    duplicate: bool
    session: SessionId | None = None
    turn: TurnId | None = None
    seq: int | None = None
    reply: str | None = None


class Unit(StrEnum):
    """What a platform counts when it limits the length of a text."""

    CHARACTERS = "characters"
    UTF16 = "utf16"
    BYTES = "bytes"


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a platform can do. `limit` counts `unit`s of one part; `media` takes attachments; `buttons` can be shown under a
    message; the intervals are the platform's rates; `ids` say what its ids look like; `roles` names the roles that people may have there, `*` for
    any; `notes` are told to the agent."""

    idempotency: Idempotency = Idempotency.NONE
    edit: bool = False
    threads: bool = False
    typing: bool = False
    reactions: bool = False
    media: bool = False
    buttons: bool = False
    limit: int = 4096
    unit: Unit = Unit.CHARACTERS
    chat_interval: timedelta = timedelta(0)
    account_interval: timedelta = timedelta(0)
    pii_safe: bool = False
    ids: Ids = Ids()
    roles: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a delivery: a piece that `parts` gave, or an attachment. `key` is the same for every attempt at
    this part. `again`: it may have arrived already, so the adapter shows `deliveries.AGAIN` before it. `edits` is
    the platform's id of a message that this part replaces, its buttons included; `Gone` if that is no longer there.
    `buttons` stand under the part where the platform has any; a press comes in as an event that says what the button
    says, from whoever pressed it, with no `reply`: what it is answered with is in the receipt."""

    delivery: DeliveryId
    part: int
    key: str
    target: Target
    text: str = ""
    attachment: Attachment | None = None
    again: bool = False
    edits: str = ""
    buttons: tuple[Button, ...] = ()


class Link(StrEnum):
    """How an adapter stands with its platform."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    THROTTLED = "throttled"
    REFUSED = "refused"
    BROKEN = "broken"


class MenuItem(msgspec.Struct, frozen=True):
    """A command as a platform's menu shows it."""

    name: str
    help: str


class Door(Protocol):
    """What an adapter that listens may ask of Keryx. `cursor` is the position that the last stored event moved to;
    `menu` holds the commands for platforms that list them."""

    @property
    def cursor(self) -> str | None: ...

    @property
    def menu(self) -> Sequence[MenuItem]: ...

    async def receive(self, inbound: Inbound) -> Receipt: ...

    async def begin(self, position: str) -> None:
        """Store the position at which an account begins to listen, before any event has come."""
        ...

    async def keep(self, attachment: Attachment) -> Image | File | Audio:
        """Store what came with an event; gives the part that shows it. `Invalid` when it is too large."""
        ...

    async def allowed(self, source: Source) -> bool:
        """Whether this person may talk here, for platforms that ask before the first message, as by an invitation."""
        ...

    async def moved(self, old: str, new: str) -> None:
        """A chat has another id from now on: who talks there goes on with the same conversation."""
        ...

    async def alias(self, source: Source, other: str) -> None:
        """Who speaks in a source also goes by another id: the two are one person from now on, with all that was said
        by either. Doing it twice changes nothing. `Invalid` where one person has one id."""
        ...

    def report(self, link: Link, detail: str = "") -> None:
        """Say how the connection stands, in a sentence fit for a person."""
        ...


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP request to an adapter's hook. Header names are lower-case."""

    headers: Mapping[str, str]
    body: bytes


class Response(msgspec.Struct, frozen=True, kw_only=True):
    status: int = 200
    body: bytes = b""
    mime: str = "text/plain; charset=utf-8"


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """Where a platform posts events: `/hooks/<path>`. A body above `limit` bytes is refused before it is read."""

    path: str
    answer: Callable[[Request], Awaitable[Response]]
    limit: int = 1_000_000


class Adapter(Protocol):
    """One account on one platform.

    `listen` runs until cancelled and acknowledges an event only after `receive` has returned; `Forbidden` from it says
    that the platform refuses the credentials. `parts` cuts an answer into what `send` takes one by one; it depends
    on the text alone. `send` returns the platform's id of what was sent, or raises `NotSent`, `Throttled`,
    `Refused`, `Gone` or `Uncertain`. `typing` shows for some seconds that an answer is being written.
    """

    @property
    def platform(self) -> str: ...

    @property
    def account(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def hook(self) -> Hook | None: ...

    async def listen(self, door: Door) -> None: ...

    def parts(self, text: str) -> Sequence[str]: ...

    async def send(self, parcel: Parcel) -> str: ...

    async def typing(self, target: Target) -> None: ...


@runtime_checkable
class Reacting(Protocol):
    """An adapter with `capabilities.reactions`. `react` shows a sign at the message that a target replies to: it is being
    answered. Asked for once per turn, where no typing can be shown."""

    async def react(self, target: Target) -> None: ...


@runtime_checkable
class Ranked(Protocol):
    """An adapter that can be asked for roles, where events do not carry them in their source. `roles` gives those
    that the author of a source has at its place at this moment; `Unavailable` if the platform cannot tell now."""

    async def roles(self, source: Source) -> Sequence[str]: ...
