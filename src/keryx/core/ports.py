"""Ports: what the engine needs from the outside world, as small as it can be.

An agent yields events and never writes. An adapter parses, sends and declares what its platform can do.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

import msgspec

from keryx.core.deliveries import Idempotency, Target
from keryx.core.ids import DeliveryId, PrincipalId, SessionId, TurnId, WorkerId
from keryx.core.messages import Message, Parts, ToolCall, ToolResult
from keryx.core.sessions import Settings
from keryx.core.source import Source
from keryx.core.turns import BusyMode, Usage


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
    usage: Usage


Event: TypeAlias = Said | Thought | Called | Returned | Used


class TurnContext(msgspec.Struct, frozen=True, kw_only=True):
    """All an agent may know of its turn. `history` ends with the messages to answer, and after an
    interruption with what earlier attempts recorded; `summary` stands for what was compacted before it. `shared`:
    several people talk here, so messages carry their author. `steer` gives messages that arrived meanwhile for
    this turn; call it between steps."""

    session: SessionId
    turn: TurnId
    attempt: int
    place: str
    history: Sequence[Message]
    summary: str = ""
    shared: bool = False
    settings: Settings
    cwd: str
    clock: Clock
    steer: Callable[[], Awaitable[Sequence[Message]]]


class Agent(Protocol):
    """Ending the iterator ends the turn; `AgentFailed` fails it with a sentence for the person."""

    def run(self, context: TurnContext) -> AsyncGenerator[Event, None]: ...


class Inbound(msgspec.Struct, frozen=True, kw_only=True):
    """One event from outside, parsed. `event` identifies it on its platform for ever; `cursor` is the
    platform position that may move once this event is stored. `session` sends it to that session instead of
    the one of its lane; `principal` is set by local transports, which know who they speak for."""

    event: str
    source: Source
    parts: Parts
    surface: str
    at: datetime | None = None
    reply: Target | None = None
    session: SessionId | None = None
    principal: PrincipalId | None = None
    busy: BusyMode | None = None
    observed: bool = False
    edits: str | None = None
    pin: WorkerId | None = None
    cwd: str = ""
    commands: bool = True
    cursor: tuple[str, str] | None = None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an inbound event; the same for every repetition of it, but for `duplicate`."""

    duplicate: bool
    session: SessionId | None = None
    turn: TurnId | None = None
    seq: int | None = None
    reply: str | None = None


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    idempotency: Idempotency = Idempotency.NONE
    edit: bool = False
    threads: bool = False
    typing: bool = False
    limit: int = 4096
    chat_interval: timedelta = timedelta(0)
    account_interval: timedelta = timedelta(0)
    pii_safe: bool = False
    notes: tuple[str, ...] = ()


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a delivery. `key` is the same for every attempt at this part."""

    delivery: DeliveryId
    part: int
    key: str
    target: Target
    text: str


class Adapter(Protocol):
    """One account on one platform.

    `listen` runs until cancelled and acknowledges an event only after `receive` has returned.
    `send` returns the platform's id of what was sent, or raises `NotSent`, `Throttled`, `Refused` or
    `Uncertain`.
    """

    @property
    def platform(self) -> str: ...

    @property
    def account(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def listen(self, receive: Callable[[Inbound], Awaitable[Receipt]], cursor: str | None) -> None: ...

    def parts(self, text: str) -> Sequence[str]: ...

    async def send(self, parcel: Parcel) -> str: ...
