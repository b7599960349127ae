"""The objects of Discord's API, with the fields that Keryx reads. All other fields are ignored."""

from datetime import UTC, datetime
from enum import IntEnum
from typing import Annotated, Any, TypeAlias

import msgspec

# The epoch of ids, the first second of 2015, in milliseconds since the Unix epoch.
_EPOCH_MS = 1_420_070_400_000
_TIME_SHIFT = 22

# An id. Anything else is an error of the payload.
Snowflake: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}$")]


def read_time(snowflake: str) -> datetime:
    """Return when the object with this id was created."""
    return datetime.fromtimestamp(((int(snowflake) >> _TIME_SHIFT) + _EPOCH_MS) / 1000, UTC)


def build_snowflake(at: datetime) -> str:
    """Return the lowest id of an object that was created at this time."""
    return str(max(int(at.timestamp() * 1000) - _EPOCH_MS, 0) << _TIME_SHIFT)


class ChannelKind(IntEnum):
    TEXT = 0
    DIRECT = 1
    GROUP_DIRECT = 3
    ANNOUNCEMENT_THREAD = 10
    PUBLIC_THREAD = 11
    PRIVATE_THREAD = 12
    FORUM = 15
    MEDIA = 16


THREAD_KINDS = frozenset(
    {ChannelKind.ANNOUNCEMENT_THREAD, ChannelKind.PUBLIC_THREAD, ChannelKind.PRIVATE_THREAD}
)
DIRECT_KINDS = frozenset({ChannelKind.DIRECT, ChannelKind.GROUP_DIRECT})
FORUM_KINDS = frozenset({ChannelKind.FORUM, ChannelKind.MEDIA})


class MessageKind(IntEnum):
    DEFAULT = 0
    REPLY = 19


class InteractionKind(IntEnum):
    COMMAND = 2
    COMPONENT = 3


# A response to an interaction that is still shown as "thinking".
LOADING_FLAG = 1 << 7


class DiscordUser(msgspec.Struct, frozen=True, kw_only=True):
    id: Snowflake
    username: str = ""
    global_name: str | None = None
    bot: bool = False

    @property
    def name(self) -> str:
        return self.global_name or self.username


class DiscordMember(msgspec.Struct, frozen=True, kw_only=True):
    """A person in a server."""

    user: DiscordUser | None = None
    nick: str | None = None
    roles: tuple[str, ...] = ()


class MentionedUser(DiscordUser, frozen=True, kw_only=True):
    member: DiscordMember | None = None

    @property
    def display_name(self) -> str:
        return (self.member.nick if self.member else None) or self.name


class DiscordAttachment(msgspec.Struct, frozen=True, kw_only=True):
    id: Snowflake
    filename: str
    url: str
    size: int = 0
    content_type: str | None = None


class StickerItem(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""


class PollMedia(msgspec.Struct, frozen=True, kw_only=True):
    text: str | None = None


class PollAnswer(msgspec.Struct, frozen=True, kw_only=True):
    poll_media: PollMedia = PollMedia()


class DiscordPoll(msgspec.Struct, frozen=True, kw_only=True):
    question: PollMedia = PollMedia()
    answers: tuple[PollAnswer, ...] = ()


class ForwardedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What a forwarded message contained; it does not say who wrote it."""

    content: str = ""
    attachments: tuple[DiscordAttachment, ...] = ()


class MessageSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    message: ForwardedMessage = ForwardedMessage()


class DiscordMessage(msgspec.Struct, frozen=True, kw_only=True):
    id: Snowflake
    channel_id: Snowflake
    author: DiscordUser
    content: str = ""
    type: int = MessageKind.DEFAULT
    edited_timestamp: str | None = None
    # Only in events, and only in a server.
    guild_id: Snowflake | None = None
    member: DiscordMember | None = None
    mentions: tuple[MentionedUser, ...] = ()
    mention_roles: tuple[str, ...] = ()
    attachments: tuple[DiscordAttachment, ...] = ()
    sticker_items: tuple[StickerItem, ...] = ()
    poll: DiscordPoll | None = None
    message_snapshots: tuple[MessageSnapshot, ...] = ()
    referenced_message: "DiscordMessage | None" = None
    webhook_id: Snowflake | None = None
    flags: int = 0

    @property
    def replied(self) -> "DiscordMessage | None":
        """The message that this one replies to. One that begins a thread refers to a message, too."""
        return self.referenced_message if self.type == MessageKind.REPLY else None

    @property
    def all_attachments(self) -> tuple[DiscordAttachment, ...]:
        return (
            *self.attachments,
            *(file for snapshot in self.message_snapshots for file in snapshot.message.attachments),
        )


class ThreadMetadata(msgspec.Struct, frozen=True, kw_only=True):
    archived: bool = False


class DiscordChannel(msgspec.Struct, frozen=True, kw_only=True):
    """A channel, a thread, or a direct chat."""

    id: Snowflake
    type: int = ChannelKind.TEXT
    name: str | None = None
    topic: str | None = None
    guild_id: Snowflake | None = None
    # Of a thread: the channel it belongs to. Of a channel: its category.
    parent_id: Snowflake | None = None
    # Of a thread: who created it.
    owner_id: Snowflake | None = None
    last_message_id: Snowflake | None = None
    thread_metadata: ThreadMetadata | None = None

    @property
    def is_thread(self) -> bool:
        return self.type in THREAD_KINDS

    @property
    def is_direct(self) -> bool:
        return self.type in DIRECT_KINDS

    @property
    def is_forum(self) -> bool:
        return self.type in FORUM_KINDS


class RoleTags(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Snowflake | None = None


class DiscordRole(msgspec.Struct, frozen=True, kw_only=True):
    id: Snowflake
    name: str = ""
    tags: RoleTags = RoleTags()


class DiscordGuild(msgspec.Struct, frozen=True, kw_only=True):
    """A server. Without channels if it is not available."""

    id: Snowflake
    unavailable: bool = False
    channels: tuple[DiscordChannel, ...] = ()
    # The threads that are not archived.
    threads: tuple[DiscordChannel, ...] = ()
    roles: tuple[DiscordRole, ...] = ()


class DeletedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """`MESSAGE_DELETE` and `MESSAGE_DELETE_BULK`."""

    channel_id: Snowflake
    guild_id: Snowflake | None = None
    id: Snowflake | None = None
    ids: tuple[Snowflake, ...] = ()


class DiscordEmoji(msgspec.Struct, frozen=True, kw_only=True):
    name: str | None = None


class DiscordReaction(msgspec.Struct, frozen=True, kw_only=True):
    # Absent where a moderator has removed the reactions of everybody.
    user_id: Snowflake | None = None
    channel_id: Snowflake
    message_id: Snowflake
    guild_id: Snowflake | None = None
    member: DiscordMember | None = None
    emoji: DiscordEmoji = DiscordEmoji()


class CommandOption(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str | int | float | bool = ""


class InteractionData(msgspec.Struct, frozen=True, kw_only=True):
    # Of a command.
    name: str = ""
    options: tuple[CommandOption, ...] = ()
    # Of a component.
    custom_id: str = ""


class DiscordInteraction(msgspec.Struct, frozen=True, kw_only=True):
    id: Snowflake
    application_id: Snowflake
    type: int
    token: str
    data: InteractionData = InteractionData()
    channel_id: Snowflake | None = None
    channel: DiscordChannel | None = None
    guild_id: Snowflake | None = None
    # In a server.
    member: DiscordMember | None = None
    # In a direct chat.
    user: DiscordUser | None = None
    locale: str | None = None

    @property
    def author(self) -> DiscordUser | None:
        return self.member.user if self.member else self.user


class ReadyGuild(msgspec.Struct, frozen=True, kw_only=True):
    id: Snowflake


class ReadyEvent(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    resume_gateway_url: str
    guilds: tuple[ReadyGuild, ...] = ()


class HelloEvent(msgspec.Struct, frozen=True, kw_only=True):
    # In milliseconds.
    heartbeat_interval: int


class GatewayFrame(msgspec.Struct, frozen=True, kw_only=True):
    op: int
    d: Any = None
    s: int | None = None
    t: str | None = None


class SessionStartLimit(msgspec.Struct, frozen=True, kw_only=True):
    remaining: int = 1
    # In milliseconds.
    reset_after: int = 0


class GatewayInfo(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    session_start_limit: SessionStartLimit = SessionStartLimit()


class DiscordApplication(msgspec.Struct, frozen=True, kw_only=True):
    id: Snowflake
    name: str = ""
    flags: int = 0
    bot: DiscordUser | None = None
