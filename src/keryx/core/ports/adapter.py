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
    # Must match the whole id.
    pattern: str
    # Completes the sentence "an id is ...".
    words: str

    def matches(self, text: str) -> bool:
        return re.fullmatch(self.pattern, text, re.ASCII) is not None


class PlatformIds(msgspec.Struct, frozen=True, kw_only=True):
    """The formats of a platform's ids; `None` accepts any text."""

    chat: IdFormat | None = None
    thread: IdFormat | None = None
    person: IdFormat | None = None


class PlatformReach(msgspec.Struct, frozen=True):
    """What is needed to check and address a target on a connected platform."""

    # The account that sends.
    account: str = ""
    ids: PlatformIds = PlatformIds()
    # Chats have threads.
    threads: bool = True


def check_id(platform: str, kind: str, text: str, expected: IdFormat | None) -> None:
    """Raise `Invalid`, with a description of the format, for a text that cannot be an id of this kind."""
    if text and expected is not None and not expected.matches(text):
        raise Invalid(f"{text[:80]!r} is no {kind} on {platform}: the id of one is {expected.words}")


def check_target(target: Target, reach: PlatformReach) -> None:
    """Raise `Invalid` for a target that cannot exist on its platform."""
    check_id(target.platform, "chat", target.chat, reach.ids.chat)
    check_id(target.platform, "thread", target.thread, reach.ids.thread)
    if target.thread and not reach.threads:
        raise Invalid(
            f"{target.platform} has no threads: name the chat alone, as in {target.platform}:{target.chat}"
        )


class InboundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One event from a platform or a local surface, parsed."""

    # Identifies the event on its platform; repeated deliveries of an event have the same id.
    event: str
    source: Source
    parts: Parts
    surface: str
    # When the message was written, if the platform says so.
    at: datetime | None = None
    # Where the answer is sent.
    reply: Target | None = None
    # Overrides the session of the lane.
    session: SessionId | None = None
    # Create `session` if it does not exist.
    begin: bool = False
    # Set by local surfaces, which know who the user is.
    principal: PrincipalId | None = None
    # What to do while a turn of the session is running; `None` for the setting of the session.
    busy: BusyMode | None = None
    # The message is meant for the agent: a direct message, a mention, a reply to it, or a command.
    addressed: bool = True
    # Store the message as context only.
    observed: bool = False
    # The text of the message that this one replies to.
    quote: str = ""
    # The platform's id of an earlier message that this one replaces.
    edits: str | None = None
    # Only this worker may run the turn.
    pin: WorkerId | None = None
    # The working directory and settings of a session that this message creates.
    cwd: str = ""
    settings: SessionSettings | None = None
    # Slash commands are executed.
    commands: bool = True
    # A name and the position that is stored together with this event.
    cursor: tuple[str, str] | None = None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an inbound event. A repeated event gets the same receipt, except for `duplicate`."""

    # The event was received before.
    duplicate: bool
    session: SessionId | None = None
    turn: TurnId | None = None
    seq: int | None = None
    # The reply of a slash command.
    reply: str | None = None


class LengthUnit(StrEnum):
    """How a platform counts the length of a text."""

    CHARACTERS = "characters"
    UTF16 = "utf16"
    BYTES = "bytes"


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a platform can do."""

    idempotency: Idempotency = Idempotency.NONE
    # Messages can be edited after they were sent.
    edit: bool = False
    threads: bool = False
    # A typing indicator can be shown.
    typing: bool = False
    # The adapter implements `SupportsReactions`.
    reactions: bool = False
    # Attachments can be sent.
    media: bool = False
    # Buttons can be shown under a message.
    buttons: bool = False
    # The longest part, in `unit`s.
    limit: int = 4096
    unit: LengthUnit = LengthUnit.CHARACTERS
    # The shortest time between two sends to one chat, and of one account.
    chat_interval: timedelta = timedelta(0)
    account_interval: timedelta = timedelta(0)
    # People can be mentioned and answered without their raw id, so prompts contain hashes instead.
    pii_safe: bool = False
    ids: PlatformIds = PlatformIds()
    # The roles that people may have, `*` for any name.
    roles: tuple[str, ...] = ()
    # Facts about the platform for the prompt.
    notes: tuple[str, ...] = ()


class RenderedPart(msgspec.Struct, frozen=True):
    """A part of an answer as an adapter renders it."""

    # What the part shows, or Markdown if the platform takes it as it is.
    text: str
    # The platform's own form of the part, if it has one. Only the adapter that rendered it reads it.
    markup: object = None


class OutgoingPart(msgspec.Struct, frozen=True, kw_only=True):
    """One message to send: a part of the text of a delivery, or an attachment."""

    delivery: DeliveryId
    # Counted from 0.
    number: int
    # The idempotency key, the same for every attempt.
    key: str
    target: Target
    # Text and markup of a rendered part, unchanged.
    text: str = ""
    markup: object = None
    attachment: Attachment | None = None
    # The part may have arrived already, so the adapter puts `deliveries.REPEAT_MARK` before it.
    again: bool = False
    # The platform's id of a message that this part replaces, with its buttons. `MessageGone` if it was deleted.
    edits: str = ""
    # A press arrives as an event with the text of the button, from the person who pressed it, and without `reply`:
    # its reply is in the receipt.
    buttons: tuple[Button, ...] = ()


class LinkState(StrEnum):
    """The state of the connection between an adapter and its platform."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    THROTTLED = "throttled"
    REFUSED = "refused"
    BROKEN = "broken"


class MenuItem(msgspec.Struct, frozen=True):
    """A slash command in the menu of a platform."""

    name: str
    help: str


class AdapterContext(Protocol):
    """What an adapter may call while it listens."""

    @property
    def cursor(self) -> str | None:
        """The position that was stored with the last event."""
        ...

    @property
    def menu(self) -> Sequence[MenuItem]:
        """The slash commands, for platforms that list them."""
        ...

    async def receive(self, inbound: InboundMessage) -> Receipt:
        """Store an event. It is durable when this returns, and may be acknowledged."""
        ...

    async def init_cursor(self, position: str) -> None:
        """Store the position at which an account begins to listen, before the first event."""
        ...

    async def store_attachment(self, attachment: Attachment) -> Image | File | Audio:
        """Store a file of an event and return its part. Raise `Invalid` if it is too large."""
        ...

    async def is_allowed(self, source: Source) -> bool:
        """Whether the author may talk, for platforms that ask before the first message, for instance with an invitation."""
        ...

    async def move_chat(self, old: str, new: str) -> None:
        """Continue the conversations of a chat under its new id."""
        ...

    async def add_alias(self, source: Source, other: str) -> None:
        """Merge the author of a source with another id of the same person. Idempotent. Raise `Invalid` on platforms
        without aliases."""
        ...

    def report(self, link: LinkState, detail: str = "") -> None:
        """Record the state of the connection; `detail` is a sentence for the user."""
        ...


class WebhookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP request to an adapter's hook."""

    # Names are in lower case.
    headers: Mapping[str, str]
    body: bytes


class WebhookResponse(msgspec.Struct, frozen=True, kw_only=True):
    status: int = 200
    body: bytes = b""
    mime: str = "text/plain; charset=utf-8"


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A platform posts events to `/hooks/<path>`."""

    path: str
    handle: Callable[[WebhookRequest], Awaitable[WebhookResponse]]
    # The longest body in bytes; a longer one is refused before it is read.
    limit: int = 1_000_000


class Adapter(Protocol):
    """One account on one platform."""

    @property
    def platform(self) -> str: ...

    @property
    def account(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def hook(self) -> Webhook | None: ...

    async def listen(self, context: AdapterContext, /) -> None:
        """Receive events until cancelled. Acknowledge an event only after `context.receive` has returned. Raise
        `Forbidden` if the platform refuses the credentials."""
        ...

    def parts(self, text: str) -> Sequence[RenderedPart]:
        """Render a text as messages for `send`, which gets them back unchanged. The result depends on the text alone."""
        ...

    async def send(self, part: OutgoingPart, /) -> str:
        """Send one message and return the platform's id of it. Raise `NotSent`, `Throttled`, `Refused`, `MessageGone` or
        `Uncertain`."""
        ...

    async def typing(self, target: Target) -> None:
        """Show for some seconds that an answer is being written."""
        ...


@runtime_checkable
class SupportsReactions(Protocol):
    """An adapter with `capabilities.reactions`."""

    async def react(self, target: Target) -> None:
        """Show at the message `target.reply_to` that it is being answered. Called once per turn on platforms without a
        typing indicator."""
        ...


@runtime_checkable
class SupportsRoles(Protocol):
    """An adapter that can look up roles, because events do not carry them in their source."""

    async def roles(self, source: Source) -> Sequence[str]:
        """Return the current roles of the author in the chat. Raise `Unavailable` if the platform does not answer."""
        ...


class PlatformStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The connection of one process to one account on a platform. The counters start with the process."""

    platform: str
    account: str
    worker: WorkerId
    link: LinkState
    detail: str
    since: datetime
    # Events.
    received: int = 0
    # Parts.
    sent: int = 0
    # Attempts to send.
    failed: int = 0
    throttled: int = 0


class ClosedGate(msgspec.Struct, frozen=True, kw_only=True):
    """A chat or an account that nothing is sent to until a given time."""

    key: str
    until: datetime
    reason: str
