"""The platform adapter interface: inbound messages, outgoing parts, capabilities, id formats, webhooks and platform status."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from keryx.core import ids
from keryx.core.deliveries import REPEAT_MARK, Idempotency, Target
from keryx.core.errors import Invalid
from keryx.core.ids import DeliveryId, PrincipalId, SessionId, TurnId, WorkerId
from keryx.core.media import Attachment, RemoteFile
from keryx.core.messages import Audio, File, Image, Parts, Text
from keryx.core.questions import Button
from keryx.core.sessions import SessionSettings
from keryx.core.source import Source
from keryx.core.texts import COMMAND_SIGN, ENGLISH, Catalogue, Phrase, Texts
from keryx.core.turns import BusyMode

_NO_ID = {"chat": "target.no_chat", "thread": "target.no_thread", "person": "target.no_person"}


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
    # Deliveries may be held until the person writes.
    holds: bool = False
    # Threads are standing topics.
    topics: bool = False


def check_id(platform: str, kind: str, text: str, expected: IdFormat | None) -> None:
    """Raise `Invalid`, with a description of the format, for a text that cannot be an id of this kind."""
    if text and expected is not None and not expected.matches(text):
        message = f"{text[:80]!r} is no {kind} on {platform}: the id of one is {expected.words}"
        raise Invalid(message, Phrase(_NO_ID[kind], name=repr(text[:80]), platform=platform))


def find_account(target: Target, reach: Mapping[str, PlatformReach]) -> Target:
    """Return a target with the account instead of its name, such as `work` of `telegram.work`. Raise `Invalid` for a name that
    no account has."""
    if not target.account:
        return target
    found = reach.get(f"{target.platform}.{target.account}")
    if found is None:
        known = sorted(name for name in reach if name.startswith(f"{target.platform}."))
        fields = {"name": repr(target.account[:80]), "platform": target.platform}
        if known:
            raise Invalid(Phrase("target.no_account", **fields, choices=", ".join(known)))
        raise Invalid(Phrase("target.no_accounts", **fields))
    return msgspec.structs.replace(target, account=found.account)


def check_target(target: Target, reach: PlatformReach) -> None:
    """Raise `Invalid` for a target that cannot exist on its platform."""
    check_id(target.platform, "chat", target.chat, reach.ids.chat)
    check_id(target.platform, "thread", target.thread, reach.ids.thread)
    if target.thread and not reach.threads:
        raise Invalid(Phrase("target.no_threads", platform=target.platform, chat=target.chat))


class InboundEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event from a platform, parsed. Its subclasses say what happened."""

    # Identifies the event on its platform; repeated deliveries of an event have the same id.
    event: str
    # Where it happened, and who did it.
    source: Source
    # When it happened, if the platform says so.
    at: datetime | None = None
    # The position of the account after this event. It is stored with the event and is `AdapterContext.cursor` after a
    # restart.
    cursor: str | None = None
    # State of the adapter that is stored with the event, by scope, such as a chat. `AdapterContext.load_state` reads it. An
    # empty value removes it.
    state: Mapping[str, str] = {}


def name_cursor(platform: str, account: str, scope: str = "") -> str:
    """Return the name under which the cursor of an account is stored, or the state of one of its scopes."""
    return f"{platform}:{account}" + (f"#{ids.escape(scope)}" if scope else "")


class InboundDeletion(InboundEvent, frozen=True, kw_only=True):
    """The deletion of a person's message. Before the first word of its answer it is not answered; later it is marked."""

    # The `event` that brought the message.
    message_event: str


class InboundReaction(InboundEvent, frozen=True, kw_only=True):
    """A reaction to a message, added or removed. 👍 or 👎 on the question of an agent answers it. Any other one is noted in the
    session for the next turn."""

    # The platform's id of the message.
    message: str
    # The `event` that brought the message, if it is a person's.
    message_event: str = ""
    # An emoji, or the platform's name of one. Empty for the removal of what the platform does not name: of the person's
    # reaction, and without a person of the reactions of everybody.
    reaction: str
    removed: bool = False


class InboundFailure(InboundEvent, frozen=True, kw_only=True):
    """The platform has not delivered a part that it had accepted. The delivery is sent again from this part: when the
    person writes, or when an operator says so."""

    # `None` if the platform names the message alone: it is looked up.
    delivery: DeliveryId | None = None
    # Of the part, counted from 0. Without meaning if the delivery is looked up.
    number: int = 0
    # The platform's id of the message.
    message: str
    # A sentence for the user.
    reason: str
    # The platform accepts no message to the person until they write.
    held: bool = False
    # The person or chat does not exist any more: a job that sends there is paused.
    gone: bool = False


class InboundMessage(InboundEvent, frozen=True, kw_only=True):
    """A message from a platform or a local surface."""

    parts: Parts
    surface: str
    # Files that are fetched after the event is stored, by an adapter that implements `SupportsDownloads`. The turn waits
    # for them, and nothing else does.
    files: tuple[RemoteFile, ...] = ()
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
    # The platform's id of that message, if the platform does not send its text. The engine looks it up.
    replies_to: str = ""
    # The platform's id of the message on which the thread of this one hangs, if the platform has such threads. If it is an
    # answer of the agent, the thread begins with the conversation that led to it.
    thread_root: str = ""
    # The platform's id of an earlier message that this one replaces.
    edits: str | None = None
    # Messages of one person with the same group, such as the pictures of an album, are answered together.
    group: str = ""
    # What belongs to this message may follow at once, such as the next part of a long text.
    more: bool = False
    # It belongs to the message that the person sent just before, such as a forward to its comment.
    continues: bool = False
    # Only this worker may run the turn.
    pin: WorkerId | None = None
    # The working directory and settings of a session that this message creates.
    cwd: str = ""
    settings: SessionSettings | None = None
    # Slash commands are executed.
    commands: bool = True
    # A hash of what is asked for, on a surface where the sender chooses `event`: a repetition with another one is refused.
    digest: str = ""
    # The text for the model if it differs from that of the parts, such as a mail without the history that it quotes. Slash
    # commands and answers to questions are read from it.
    model_text: str | None = None

    @property
    def said(self) -> Parts:
        """The parts, with `model_text` in place of their text."""
        if self.model_text is None:
            return self.parts
        return (Text(self.model_text), *(part for part in self.parts if not isinstance(part, Text)))


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an inbound event. A repeated event gets the same receipt, except for `duplicate`."""

    # The event was received before.
    duplicate: bool
    session: SessionId | None = None
    turn: TurnId | None = None
    seq: int | None = None
    # The reply of a slash command.
    reply: str | None = None
    # Why the event led to no message, for operators; empty if it led to one.
    reason: str = ""


class LengthUnit(StrEnum):
    """How a platform counts the length of a text."""

    CHARACTERS = "characters"
    UTF16 = "utf16"
    BYTES = "bytes"


class Streaming(StrEnum):
    """How a platform shows an answer while it is written."""

    # Not at all.
    NONE = "none"
    # A message is sent and edited.
    EDIT = "edit"
    # A message is opened, text is appended to it, and it is closed.
    APPEND = "append"
    # A card is updated and then closed.
    CARD = "card"


class AttachmentKind(StrEnum):
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    # Any other type.
    FILE = "file"


class AttachmentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Which attachments a platform accepts."""

    kinds: frozenset[AttachmentKind] = frozenset(AttachmentKind)
    # The largest attachment; 0 for no limit.
    max_bytes: int = 0

    def find_reason(self, mime: str, size: int) -> str:
        """Return why an attachment is not accepted, as the end of a sentence about it; empty if it is."""
        kind = mime.partition("/")[0]
        if (AttachmentKind(kind) if kind in set(AttachmentKind) else AttachmentKind.FILE) not in self.kinds:
            return Phrase("attachment.kind")
        if self.max_bytes and size > self.max_bytes:
            return Phrase("attachment.too_large", size=size, limit=self.max_bytes)
        return ""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a platform can do."""

    idempotency: Idempotency = Idempotency.NONE
    # Several processes may listen to the account at once. Otherwise one does, unless the adapter has a hook.
    shared_listening: bool = False
    # Only the process that listens can send: it has the connection or the keys.
    sends_where_it_listens: bool = False
    # Messages can be edited after they were sent.
    edit: bool = False
    # Anything but `NONE` needs `edit`.
    streaming: Streaming = Streaming.NONE
    # The tool calls of a running turn are shown with its preview: `OutgoingPart.steps`.
    steps: bool = False
    # How often one message may be edited; the last time is kept for the answer. 0 for no limit.
    max_edits: int = 0
    # How long after the last message of a person messages to them are accepted. Later ones are held until the person
    # writes. `None` for no limit.
    reply_window: timedelta | None = None
    threads: bool = False
    # Threads are standing topics, which hang on no message: a mention is needed there as in the chat itself.
    topics: bool = False
    # The adapter opens threads for conversations and implements `SupportsThreads`: a thread is named after the title of its
    # session, and archived at its end.
    thread_titles: bool = False
    # A typing indicator can be shown.
    typing: bool = False
    # The adapter implements `SupportsReactions`.
    reactions: bool = False
    # Attachments can be sent, within limits.
    attachments: AttachmentLimits | None = None
    # Text and files are sent as one message: `OutgoingPart.attachments`. The limit of `attachments` holds for all of them.
    files_with_text: bool = False
    # A file that a person sends with a text arrives as a message of its own, without a mark that they belong together.
    separate_files: bool = False
    # Messages have a subject: `OutgoingPart.title` is set.
    titles: bool = False
    # Buttons can be shown under a message.
    buttons: bool = False
    # The longest label of a button in characters; longer ones are cut. 0 for no limit.
    button_label: int = 0
    # What people write before the name of a command, where a message cannot begin with a slash.
    command_sign: str = COMMAND_SIGN
    # The markup that people see, as the prompt names it: "plain text", "HTML".
    markup: str = "Markdown"
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


class StepState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class ToolStep(msgspec.Struct, frozen=True):
    """A tool call of a running turn, as people see it."""

    # The same for each state of the step.
    id: str
    # One line.
    title: str
    state: StepState


class OutgoingPart(msgspec.Struct, frozen=True, kw_only=True):
    """One message to send: a part of the text of a delivery, or an attachment."""

    delivery: DeliveryId
    # Counted from 0.
    number: int
    # The idempotency key, the same for every attempt: that of `SupportsSendKeys`, or else one that Keryx makes.
    key: str
    # Without its reply context if that has expired.
    target: Target
    # Text and markup of a rendered part, unchanged.
    text: str = ""
    markup: object = None
    attachment: Attachment | None = None
    # The files that belong to the text, in one message with it, on a platform with `Capabilities.files_with_text`.
    attachments: tuple[Attachment, ...] = ()
    # The title of the session, on a platform with `Capabilities.titles`; empty if it has none.
    title: str = ""
    # The part may have arrived already, so the adapter puts `mark` before it.
    again: bool = False
    repeat_mark: str = REPEAT_MARK
    # The platform's id of a message that this part replaces, with its buttons. `MessageGone` if it was deleted.
    edits: str = ""
    # What the message shows, if it is a preview that this process has sent before. With `Streaming.APPEND`, `text` begins
    # with it unless the part is `final`.
    shown: str = ""
    # The tool calls of the turn that belong to a preview, in order, on a platform with `Capabilities.steps`. A preview with
    # steps may have no text yet. A final part has none.
    steps: tuple[ToolStep, ...] = ()
    # In the language of the person who asked, for what the adapter itself says in the message.
    texts: Texts = ENGLISH
    # The message is complete: a stream or card is closed. A final part shows exactly `text`, independent of `shown`.
    final: bool = True
    # A press arrives as an event with the text of the button, from the person who pressed it, and without `reply`:
    # its reply is in the receipt.
    buttons: tuple[Button, ...] = ()

    @property
    def mark(self) -> str:
        """What to put before the part: the mark of a possible repetition, or nothing."""
        return self.repeat_mark if self.again else ""


class LinkState(StrEnum):
    """The state of the connection between an adapter and its platform."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    # Another process listens.
    STANDBY = "standby"
    THROTTLED = "throttled"
    REFUSED = "refused"
    BROKEN = "broken"


class MenuItem(msgspec.Struct, frozen=True):
    """A slash command in the menu of a platform."""

    name: str
    help: str
    # Its arguments, such as `[number]`; empty if it has none. Those in brackets are optional.
    usage: str = ""
    # It works in direct chats only.
    direct: bool = False


class AdapterContext(Protocol):
    """What an adapter may call while it listens."""

    @property
    def cursor(self) -> str | None:
        """The position of the account that was stored before it began to listen."""
        ...

    @property
    def menu(self) -> Sequence[MenuItem]:
        """The slash commands, for platforms that list them."""
        ...

    @property
    def menus(self) -> Mapping[str, Sequence[MenuItem]]:
        """The slash commands by language, for platforms that list them in the language of each person."""
        ...

    @property
    def texts(self) -> Catalogue:
        """The texts for people, for what an adapter itself says to them."""
        ...

    async def receive(self, inbound: InboundEvent) -> Receipt:
        """Store an event. It is durable when this returns, and may be acknowledged."""
        ...

    async def init_cursor(self, position: str) -> None:
        """Store the position at which an account begins to listen, before the first event."""
        ...

    async def load_state(self, scope: str) -> str | None:
        """Return the state of a scope, such as a chat, that was stored last, with an event or without."""
        ...

    async def save_state(self, scope: str, value: str) -> None:
        """Store the state of a scope without an event. An empty value removes it."""
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
        """Record the state of the connection; `detail` is a sentence for the user. What has not changed is left out, so this
        may be called after every request."""
        ...


class WebhookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP request to an adapter's hook."""

    method: str = "POST"
    # What follows the path of the hook, without the slash between them.
    path: str = ""
    # Decoded; of a name that is repeated, the last value.
    query: Mapping[str, str] = {}
    # Names are in lower case.
    headers: Mapping[str, str]
    body: bytes


class WebhookResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What the platform gets at once, such as the echo of a challenge or the reply of a command (`Receipt.reply`)."""

    status: int = 200
    body: bytes = b""
    mime: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A platform sends events to `/hooks/<path>` and to paths below it."""

    path: str
    handle: Callable[[WebhookRequest], Awaitable[WebhookResponse]]
    methods: tuple[str, ...] = ("POST",)
    # The longest body in bytes; a longer one is refused before it is read.
    limit: int = 1_000_000
    # The headers, in lower case, that prove who posts. A POST without one of them is refused before its body is read.
    required_headers: tuple[str, ...] = ()


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
        """Send one message and return the platform's id of it. Raise `NotSent`, `CredentialsRefused`, `Throttled`,
        `Held`, `Refused`, `MessageGone` or `Uncertain`."""
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
class SupportsDownloads(Protocol):
    """An adapter whose events name files (`InboundMessage.files`) that are fetched after the event is stored."""

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        """Fetch a file of an event, perhaps after a restart. Raise `Invalid` if it has more than `limit` bytes or cannot be
        fetched at all, with a reason that people read; `Unavailable` if another attempt may succeed, `Retryable` if the
        platform says after which time.

        Called while the adapter listens, for several files at once, and cancelled if it takes too long."""
        ...


@runtime_checkable
class SupportsRemoval(Protocol):
    """An adapter that can delete messages that it has sent."""

    async def remove(self, target: Target, message: str) -> None:
        """Delete the message with this id of the platform. Raise `MessageGone` if it is no longer there, `Refused` if it
        cannot be deleted, or another `SendError`."""
        ...


@runtime_checkable
class SupportsThreads(Protocol):
    """An adapter with `capabilities.thread_titles`. Both calls may be repeated, and do nothing in a thread that the adapter
    has not opened."""

    async def rename_thread(self, target: Target, title: str) -> None:
        """Name the thread `target.thread` after the title of its conversation, cut to the length that the platform allows.
        Raise `Refused` if that is not possible at all, or another `SendError`."""
        ...

    async def archive_thread(self, target: Target) -> None:
        """Archive the thread `target.thread`, whose conversation has ended. The next message there opens it again. Raise
        `Refused` if that is not possible at all, or another `SendError`."""
        ...


@runtime_checkable
class SupportsSendKeys(Protocol):
    """An adapter that chooses the idempotency key of a part itself, because the platform prescribes its form or because
    it is the id of the message."""

    def create_send_key(self, part: OutgoingPart) -> str:
        """Return a key for a part that is sent for the first time. It is stored before the part is sent, and is
        `part.key` in every attempt."""
        ...


@runtime_checkable
class SupportsReconciliation(Protocol):
    """An adapter with `Idempotency.RECONCILE`: the platform takes a repeated message twice, but can be searched."""

    async def find_sent(self, part: OutgoingPart) -> str | None:
        """Return the platform's id of the message that was sent with `part.key`, or `None` if there is none. Called before
        a part is repeated that may have arrived. Raise a `SendError` if the platform does not answer."""
        ...


@runtime_checkable
class SupportsRoles(Protocol):
    """An adapter that can look up roles, because events do not carry them in their source."""

    async def roles(self, source: Source) -> Sequence[str]:
        """Return the current roles of the author in the chat. Raise `Unavailable` if the platform does not answer."""
        ...


@runtime_checkable
class SupportsMigration(Protocol):
    """An adapter whose sources differ in form from those of programs that were connected to the same bot before."""

    def convert_source(self, source: Source) -> Source | None:
        """Return the source that the next message from this chat will have, as far as its lane depends on it; `None` if
        that cannot be told. `source` has the ids of the platform, and a type of chat as people would name it."""
        ...


@runtime_checkable
class SupportsRemoteRendering(Protocol):
    """An adapter whose texts are rendered elsewhere."""

    async def render(self, text: str) -> Sequence[RenderedPart]:
        """Do what `Adapter.parts` does. Raise `NotSent` if that is not possible now."""
        ...


@runtime_checkable
class RelayTransport(Protocol):
    """An adapter that is connected to its platform through the relay, by a connection that has proved who it is."""

    @property
    def relay(self) -> str:
        """The address of the connector."""
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
    # Requests to the hook that were not taken in: not signed with the secret, malformed or too large.
    rejected: int = 0


class ClosedGate(msgspec.Struct, frozen=True, kw_only=True):
    """A chat or an account that nothing is sent to until a given time."""

    key: str
    until: datetime
    reason: str
