"""Types: what Keryx reads of the Bot API's objects. Fields that are not named here are ignored."""

from typing import Annotated, TypeAlias

import msgspec

Moment: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799)]
"""Seconds since 1970, up to the year 9999."""


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    type: str
    title: str = ""
    username: str = ""
    first_name: str = ""
    last_name: str = ""

    @property
    def name(self) -> str:
        return self.title or f"{self.first_name} {self.last_name}".strip() or self.username


class User(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""

    @property
    def name(self) -> str:
        return f"{self.first_name} {self.last_name}".strip() or self.username


class Member(msgspec.Struct, frozen=True):
    status: str


class Entity(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a text, counted in UTF-16 units."""

    type: str
    offset: int
    length: int
    user: User | None = None


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A file on Telegram's side."""

    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: int = 0
    emoji: str = ""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    file_id: str
    width: int = 0
    height: int = 0
    file_size: int = 0


class Place(msgspec.Struct, frozen=True, kw_only=True):
    latitude: float
    longitude: float


class Venue(msgspec.Struct, frozen=True, kw_only=True):
    location: Place
    title: str = ""
    address: str = ""


class Contact(msgspec.Struct, frozen=True, kw_only=True):
    phone_number: str
    first_name: str = ""
    last_name: str = ""


class Dice(msgspec.Struct, frozen=True, kw_only=True):
    emoji: str
    value: int


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    text: str


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    question: str
    options: tuple[Choice, ...] = ()


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a forwarded message was first."""

    type: str
    sender_user: User | None = None
    sender_user_name: str = ""
    sender_chat: Chat | None = None
    chat: Chat | None = None

    @property
    def name(self) -> str:
        known = self.sender_user or self.sender_chat or self.chat
        return (known.name if known else "") or self.sender_user_name or "somebody"


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""


class Quoted(msgspec.Struct, frozen=True, kw_only=True):
    text: str


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a chat. `sender` is whom it is from; a chat that speaks for itself is in `sender_chat`."""

    message_id: int
    chat: Chat
    date: Moment = 0
    sender: User | None = msgspec.field(default=None, name="from")
    sender_chat: Chat | None = None
    author_signature: str = ""
    message_thread_id: int | None = None
    is_topic_message: bool = False
    edit_date: Moment | None = None
    media_group_id: str | None = None
    reply_to_message: "Message | None" = None
    quote: Quoted | None = None
    forward_origin: Origin | None = None
    text: str | None = None
    entities: tuple[Entity, ...] = ()
    caption: str | None = None
    caption_entities: tuple[Entity, ...] = ()
    photo: tuple[Size, ...] = ()
    voice: Stored | None = None
    audio: Stored | None = None
    video: Stored | None = None
    video_note: Stored | None = None
    animation: Stored | None = None
    document: Stored | None = None
    sticker: Stored | None = None
    location: Place | None = None
    venue: Venue | None = None
    contact: Contact | None = None
    dice: Dice | None = None
    poll: Poll | None = None
    forum_topic_created: Topic | None = None
    migrate_to_chat_id: int | None = None

    @property
    def words(self) -> str:
        return self.text if self.text is not None else self.caption or ""

    @property
    def marks(self) -> tuple[Entity, ...]:
        return self.entities if self.text is not None else self.caption_entities


class Press(msgspec.Struct, frozen=True, kw_only=True):
    """A person has pressed a button under a message of the bot."""

    id: str
    sender: User = msgspec.field(name="from")
    message: Message | None = None
    data: str = ""


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """One event. Kinds that Keryx does not ask for are not named here, and leave every field empty."""

    update_id: int
    message: Message | None = None
    edited_message: Message | None = None
    channel_post: Message | None = None
    edited_channel_post: Message | None = None
    callback_query: Press | None = None

    @property
    def said(self) -> Message | None:
        return self.message or self.edited_message or self.channel_post or self.edited_channel_post


KINDS = ("message", "edited_message", "channel_post", "edited_channel_post", "callback_query")
"""The updates that Keryx asks for."""
