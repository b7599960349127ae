"""The platform adapter interface: inbound messages, outgoing parts, capabilities, id formats, webhooks and platform status."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from keryx.core.deliveries import Idempotency, Target
from keryx.core.errors import Invalid
from keryx.core.ids import DeliveryId, PrincipalId, SessionId, TurnId, WorkerId
from keryx.core.media import Attachment
from keryx.core.messages import Audio, File, Image, Parts
from keryx.core.questions import Button
from keryx.core.sessions import SessionSettings
from keryx.core.source import Source
from keryx.core.turns import BusyMode


class IdFormat(msgspec.Struct, frozen=True):
    """A pattern that fits the whole of an id, and the same in words, as they stand after `an id is`."""

    pattern: str
    words: str

    def matches(self, text: str) -> bool:
        return re.fullmatch(self.pattern, text, re.ASCII) is not None


class PlatformIds(msgspec.Struct, frozen=True, kw_only=True):
    """The shapes of a platform's ids; `None` where any text may be one."""

    chat: IdFormat | None = None
    thread: IdFormat | None = None
    person: IdFormat | None = None


class PlatformReach(msgspec.Struct, frozen=True):
    """The account that sends on a platform, what ids look like there, and whether chats have threads."""

    account: str = ""
    ids: PlatformIds = PlatformIds()
    threads: bool = True


def check_id(platform: str, kind: str, text: str, shape: IdFormat | None) -> None:
    """`Invalid` for what cannot be an id of this kind, with a sentence that says what one looks like."""
    if text and shape is not None and not shape.matches(text):
        raise Invalid(f"{text[:80]!r} is no {kind} on {platform}: the id of one is {shape.words}")


def check_target(target: Target, reach: PlatformReach) -> None:
    """`Invalid` for a place that cannot be on its platform."""
    check_id(target.platform, "chat", target.chat, reach.ids.chat)
    check_id(target.platform, "thread", target.thread, reach.ids.thread)
    if target.thread and not reach.threads:
        raise Invalid(
            f"{target.platform} has no threads: name the chat alone, as in {target.platform}:{target.chat}"
        )


class InboundMessage(msgspec.Struct, frozen=True, kw_only=True):
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
    settings: SessionSettings | None = None
    commands: bool = True
    cursor: tuple[str, str] | None = None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an inbound event; the same for every repetition of it, but for `duplicate`."""

    duplicate: bool
    session: SessionId | None = None
    turn: TurnId | None = None
    seq: int | None = None
    reply: str | None = None


class LengthUnit(StrEnum):
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
    unit: LengthUnit = LengthUnit.CHARACTERS
    chat_interval: timedelta = timedelta(0)
    account_interval: timedelta = timedelta(0)
    pii_safe: bool = False
    ids: PlatformIds = PlatformIds()
    roles: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class OutgoingPart(msgspec.Struct, frozen=True, kw_only=True):
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


class LinkState(StrEnum):
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


class AdapterContext(Protocol):
    """What an adapter that listens may ask of Keryx. `cursor` is the position that the last stored event moved to;
    `menu` holds the commands for platforms that list them."""

    @property
    def cursor(self) -> str | None: ...

    @property
    def menu(self) -> Sequence[MenuItem]: ...

    async def receive(self, inbound: InboundMessage) -> Receipt: ...

    async def init_cursor(self, position: str) -> None:
        """Store the position at which an account begins to listen, before any event has come."""
        ...

    async def store_attachment(self, attachment: Attachment) -> Image | File | Audio:
        """Store what came with an event; gives the part that shows it. `Invalid` when it is too large."""
        ...

    async def is_allowed(self, source: Source) -> bool:
        """Whether this person may talk here, for platforms that ask before the first message, as by an invitation."""
        ...

    async def move_chat(self, old: str, new: str) -> None:
        """A chat has another id from now on: who talks there goes on with the same conversation."""
        ...

    async def add_alias(self, source: Source, other: str) -> None:
        """Who speaks in a source also goes by another id: the two are one person from now on, with all that was said
        by either. Doing it twice changes nothing. `Invalid` where one person has one id."""
        ...

    def report(self, link: LinkState, detail: str = "") -> None:
        """Say how the connection stands, in a sentence fit for a person."""
        ...


class WebhookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP request to an adapter's hook. Header names are lower-case."""

    headers: Mapping[str, str]
    body: bytes


class WebhookResponse(msgspec.Struct, frozen=True, kw_only=True):
    status: int = 200
    body: bytes = b""
    mime: str = "text/plain; charset=utf-8"


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """Where a platform posts events: `/hooks/<path>`. A body above `limit` bytes is refused before it is read."""

    path: str
    handle: Callable[[WebhookRequest], Awaitable[WebhookResponse]]
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
    def hook(self) -> Webhook | None: ...

    async def listen(self, door: AdapterContext) -> None: ...

    def parts(self, text: str) -> Sequence[str]: ...

    async def send(self, parcel: OutgoingPart) -> str: ...

    async def typing(self, target: Target) -> None: ...


@runtime_checkable
class SupportsReactions(Protocol):
    """An adapter with `capabilities.reactions`. `react` shows a sign at the message that a target replies to: it is being
    answered. Asked for once per turn, where no typing can be shown."""

    async def react(self, target: Target) -> None: ...


@runtime_checkable
class SupportsRoles(Protocol):
    """An adapter that can be asked for roles, where events do not carry them in their source. `roles` gives those
    that the author of a source has at its place at this moment; `Unavailable` if the platform cannot tell now."""

    async def roles(self, source: Source) -> Sequence[str]: ...


class PlatformStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One account on one platform, as one process sees it. The counters run since that process began: events
    `received`, parts `sent`, attempts that `failed`, and those that the platform `throttled`."""

    platform: str
    account: str
    worker: WorkerId
    link: LinkState
    detail: str
    since: datetime
    received: int = 0
    sent: int = 0
    failed: int = 0
    throttled: int = 0


class ClosedGate(msgspec.Struct, frozen=True, kw_only=True):
    """A chat or an account that nothing is sent to until a moment, and why."""

    key: str
    until: datetime
    reason: str
