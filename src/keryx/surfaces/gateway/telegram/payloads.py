"""The objects of the Bot API with the fields that Keryx reads. Other fields are ignored."""

from typing import Annotated, TypeAlias

import msgspec

UnixTime: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799)]
"""Seconds since 1970, up to the year 9999."""


class TelegramChat(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    type: str
    title: str = ""
    username: str = ""
    first_name: str = ""
    last_name: str = ""

    @property
    def name(self) -> str:
        return self.title or f"{self.first_name} {self.last_name}".strip() or self.username


class TelegramUser(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""
    language_code: str = ""

    @property
    def name(self) -> str:
        return f"{self.first_name} {self.last_name}".strip() or self.username


class TelegramMember(msgspec.Struct, frozen=True):
    status: str


class MessageEntity(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a text, counted in UTF-16 units."""

    type: str
    offset: int
    length: int
    user: TelegramUser | None = None


class TelegramFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file on Telegram's side."""

    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: int = 0
    emoji: str = ""


class PhotoSize(msgspec.Struct, frozen=True, kw_only=True):
    file_id: str
    width: int = 0
    height: int = 0
    file_size: int = 0


class TelegramLocation(msgspec.Struct, frozen=True, kw_only=True):
    latitude: float
    longitude: float


class TelegramVenue(msgspec.Struct, frozen=True, kw_only=True):
    location: TelegramLocation
    title: str = ""
    address: str = ""


class TelegramContact(msgspec.Struct, frozen=True, kw_only=True):
    phone_number: str
    first_name: str = ""
    last_name: str = ""


class TelegramDice(msgspec.Struct, frozen=True, kw_only=True):
    emoji: str
    value: int


class PollOption(msgspec.Struct, frozen=True, kw_only=True):
    text: str


class TelegramPoll(msgspec.Struct, frozen=True, kw_only=True):
    question: str
    options: tuple[PollOption, ...] = ()


class MessageOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a forwarded message was first."""

    type: str
    sender_user: TelegramUser | None = None
    sender_user_name: str = ""
    sender_chat: TelegramChat | None = None
    chat: TelegramChat | None = None

    @property
    def name(self) -> str:
        known = self.sender_user or self.sender_chat or self.chat
        return (known.name if known else "") or self.sender_user_name or "somebody"


class ForumTopic(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""


class TextQuote(msgspec.Struct, frozen=True, kw_only=True):
    text: str


class TelegramMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a chat. `sender_chat` is the chat that it was written as; `sender` is then an account of Telegram."""

    message_id: int
    chat: TelegramChat
    date: UnixTime = 0
    sender: TelegramUser | None = msgspec.field(default=None, name="from")
    sender_chat: TelegramChat | None = None
    message_thread_id: int | None = None
    is_topic_message: bool = False
    edit_date: UnixTime | None = None
    media_group_id: str | None = None
    reply_to_message: "TelegramMessage | None" = None
    quote: TextQuote | None = None
    forward_origin: MessageOrigin | None = None
    text: str | None = None
    entities: tuple[MessageEntity, ...] = ()
    caption: str | None = None
    caption_entities: tuple[MessageEntity, ...] = ()
    photo: tuple[PhotoSize, ...] = ()
    voice: TelegramFile | None = None
    audio: TelegramFile | None = None
    video: TelegramFile | None = None
    video_note: TelegramFile | None = None
    animation: TelegramFile | None = None
    document: TelegramFile | None = None
    sticker: TelegramFile | None = None
    location: TelegramLocation | None = None
    venue: TelegramVenue | None = None
    contact: TelegramContact | None = None
    dice: TelegramDice | None = None
    poll: TelegramPoll | None = None
    forum_topic_created: ForumTopic | None = None
    migrate_to_chat_id: int | None = None

    @property
    def text_or_caption(self) -> str:
        return self.text if self.text is not None else self.caption or ""

    @property
    def text_entities(self) -> tuple[MessageEntity, ...]:
        return self.entities if self.text is not None else self.caption_entities


class CallbackQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A person has pressed a button under a message of the bot."""

    id: str
    sender: TelegramUser = msgspec.field(name="from")
    message: TelegramMessage | None = None
    data: str = ""


class TelegramReaction(msgspec.Struct, frozen=True, kw_only=True):
    """`custom_emoji_id` for emoji of Telegram's own, which have no character."""

    type: str
    emoji: str = ""
    custom_emoji_id: str = ""

    @property
    def name(self) -> str:
        return self.emoji or self.custom_emoji_id or self.type


class ReactionUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The reactions of one user to a message, before and after. Anonymous ones have an `actor_chat` instead of a user."""

    chat: TelegramChat
    message_id: int
    date: UnixTime
    user: TelegramUser | None = None
    actor_chat: TelegramChat | None = None
    old_reaction: tuple[TelegramReaction, ...] = ()
    new_reaction: tuple[TelegramReaction, ...] = ()


class TelegramUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """One event. Kinds that Keryx does not ask for are not named here, and leave every field empty."""

    update_id: int
    message: TelegramMessage | None = None
    edited_message: TelegramMessage | None = None
    channel_post: TelegramMessage | None = None
    edited_channel_post: TelegramMessage | None = None
    callback_query: CallbackQuery | None = None
    message_reaction: ReactionUpdate | None = None

    @property
    def any_message(self) -> TelegramMessage | None:
        return self.message or self.edited_message or self.channel_post or self.edited_channel_post


UPDATE_KINDS = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "callback_query",
    "message_reaction",
)
"""The updates that Keryx asks for."""
