"""Parses messages, reactions, deletions and interactions of Discord to inbound events. Pure: files are named here and fetched elsewhere."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

import msgspec

from keryx.core.deliveries import ReplyContext, Target
from keryx.core.errors import Invalid
from keryx.core.media import RemoteFile
from keryx.core.messages import text_parts
from keryx.core.ports.adapter import (
    IdFormat,
    InboundDeletion,
    InboundMessage,
    InboundReaction,
    PlatformIds,
)
from keryx.core.source import ChatType, Source
from keryx.core.text import to_short_line
from keryx.core.texts import ENGLISH, Phrase
from keryx.surfaces.gateway.discord.payloads import (
    DeletedMessages,
    DiscordChannel,
    DiscordInteraction,
    DiscordMember,
    DiscordMessage,
    DiscordReaction,
    DiscordUser,
    MentionedUser,
    MessageKind,
    read_time,
)

PLATFORM = "discord"
SURFACE = "gateway"
_ID_PATTERN = r"[1-9]\d{0,19}"
IDS = PlatformIds(
    chat=IdFormat(_ID_PATTERN, "a number, such as 1029384756102938475: in Discord, Copy Channel ID"),
    thread=IdFormat(_ID_PATTERN, "the number of a thread or post, such as 1029384756102938475"),
    person=IdFormat(
        _ID_PATTERN, "a number, such as 80351110224678912, not a @name: in Discord, Copy User ID"
    ),
)
# The text of each of our buttons begins with this.
BUTTON_PREFIX = "/answer "
# Discord lets an interaction be answered for 15 minutes.
REPLY_TIME = timedelta(minutes=14, seconds=30)
_MAX_THREAD_NAME = 100
_MAX_OPTION_LENGTH = 6_000
_COMMAND_PATTERN = re.compile(r"/([\w-]+)(?=\s|\Z)")
_MARKUP_PATTERN = re.compile(
    r"<(?:@!?(?P<user>\d+)|@&(?P<role>\d+)|#(?P<channel>\d+)|a?:(?P<emoji>\w+):\d+"
    r"|/(?P<command>[\w -]+):\d+|t:(?P<time>-?\d{1,12})(?::[a-zA-Z])?)>"
)
_TEXT_KINDS = frozenset({MessageKind.DEFAULT, MessageKind.REPLY})


class ReadableNames(Protocol):
    """The names that are known of roles and channels; empty if one is not."""

    def find_channel_name(self, channel: str) -> str: ...

    def find_role_name(self, role: str) -> str: ...


class DiscordIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The bot, the roles that people may mention instead of it, and the names of the commands that it has."""

    id: str
    commands: frozenset[str] = frozenset()
    own_roles: frozenset[str] = frozenset()
    # The name of a thread that begins without a word.
    thread_name: str = ENGLISH.say("thread.unnamed")


class ChannelPlace(NamedTuple):
    """Where something happened."""

    channel: DiscordChannel
    # The channel that a thread belongs to.
    parent: DiscordChannel | None = None


class ParsedDiscordMessage(msgspec.Struct, frozen=True, kw_only=True):
    inbound: InboundMessage
    # Open a thread of this name at the message before it is received.
    opens_thread: str = ""


def parse_message(
    message: DiscordMessage,
    place: ChannelPlace,
    me: DiscordIdentity,
    names: ReadableNames,
    *,
    threads: bool = False,
) -> ParsedDiscordMessage | None:
    """Return what a message says, or `None` for one that says nothing to this bot. With `threads`, a message in a channel that
    is meant for the bot begins a thread: its id is that of the message."""
    if message.author.id == me.id or message.type not in _TEXT_KINDS:
        return None
    texts = _build_texts(message, me, names)
    if not texts and not message.all_attachments:
        return None
    text = "\n\n".join(texts)
    addressed = _is_addressed(message, place, me, text)
    source = _build_source(
        place, me, message.author, message.member, guild=message.guild_id, message=message.id
    )
    source = msgspec.structs.replace(source, bot=message.author.bot or message.webhook_id is not None)
    opens = threads and addressed and not source.bot and source.chat_type is ChatType.GROUP
    name = ""
    if opens:
        source = msgspec.structs.replace(source, chat_type=ChatType.THREAD, thread=message.id)
        name = build_thread_name(text) or me.thread_name
    replied, quote = message.replied, ""
    if replied is not None:
        quote = make_readable(replied.content, replied.mentions, names) or " ".join(
            _describe_content(replied)
        )
    # A file without its address, which is valid for a day.
    inbound = InboundMessage(
        event=message.id,
        source=source,
        parts=text_parts(*texts),
        surface=SURFACE,
        at=read_time(message.id),
        reply=_build_target(source, reply_to="" if opens or source.chat_type is ChatType.DM else message.id),
        addressed=addressed,
        quote=quote,
        # A thread that was opened on a message has the id of the message.
        # The comment on what is forwarded is the next message.
        more=bool(message.message_snapshots),
        thread_root=place.channel.id if place.channel.is_thread else "",
        files=tuple(
            RemoteFile(
                reference=f"{message.channel_id} {message.id} {file.id}",
                name=file.filename,
                mime=file.content_type or "",
                size=file.size,
            )
            for file in message.all_attachments
        ),
    )
    return ParsedDiscordMessage(inbound=inbound, opens_thread=name)


def build_thread_name(text: str) -> str:
    """Return a title or the first words of a conversation in the form of a thread's name; empty if there are none."""
    return to_short_line(text, _MAX_THREAD_NAME).strip()


def parse_edit(
    message: DiscordMessage,
    place: ChannelPlace,
    me: DiscordIdentity,
    names: ReadableNames,
    *,
    threads: bool = False,
) -> ParsedDiscordMessage | None:
    """Return the new text of a message that a person has edited. Discord also sends an update when it has looked up the links
    of a message; that is not an edit."""
    if message.edited_timestamp is None:
        return None
    parsed = parse_message(message, place, me, names, threads=threads)
    if parsed is None:
        return None
    try:
        at = datetime.fromisoformat(message.edited_timestamp)
    except ValueError:
        at = None
    inbound = msgspec.structs.replace(
        parsed.inbound,
        event=f"{message.id}.{message.edited_timestamp}",
        edits=message.id,
        at=at if at and at.tzinfo else parsed.inbound.at,
    )
    return msgspec.structs.replace(parsed, inbound=inbound)


def parse_file_reference(reference: str) -> tuple[str, str, str]:
    """Return the ids of the channel, the message and the attachment of a file."""
    channel, message, attachment = reference.split(" ")
    return channel, message, attachment


def parse_deletions(
    deleted: DeletedMessages, place: ChannelPlace, me: DiscordIdentity
) -> tuple[InboundDeletion, ...]:
    """Return an event for each message. Discord does not say who deleted it."""
    source = _build_source(place, me, None, None, guild=deleted.guild_id)
    return tuple(
        InboundDeletion(event=f"delete.{id_}", source=source, message_event=id_)
        for id_ in (*((deleted.id,) if deleted.id else ()), *deleted.ids)
    )


def parse_reaction(
    reaction: DiscordReaction, place: ChannelPlace, me: DiscordIdentity, *, event: str, removed: bool
) -> InboundReaction | None:
    """Parse the reaction of a person, or the removal of the reactions of everybody: of one emoji or of all."""
    if reaction.user_id == me.id or not (reaction.emoji.name or reaction.user_id is None):
        return None
    user = reaction.member.user if reaction.member else None
    if user is None and reaction.user_id is not None:
        user = DiscordUser(id=reaction.user_id)
    return InboundReaction(
        event=event,
        source=_build_source(place, me, user, reaction.member, guild=reaction.guild_id),
        message=reaction.message_id,
        message_event=reaction.message_id,
        reaction=reaction.emoji.name or "",
        removed=removed,
    )


def parse_command(
    interaction: DiscordInteraction, place: ChannelPlace, me: DiscordIdentity, *, answerable: bool
) -> InboundMessage:
    """Parse a slash command as a message with its text. `answerable` says that Discord waits for the answer. Raise `Invalid`
    for one without an author."""
    options = " ".join(str(option.value) for option in interaction.data.options)
    source = _build_interaction_source(interaction, place, me)
    created = read_time(interaction.id)
    context = ReplyContext(build_reply_token(interaction), created + REPLY_TIME) if answerable else None
    return InboundMessage(
        event=f"interaction.{interaction.id}",
        source=source,
        parts=text_parts(f"/{interaction.data.name} {options[:_MAX_OPTION_LENGTH]}".rstrip()),
        surface=SURFACE,
        at=created,
        reply=msgspec.structs.replace(_build_target(source), reply_context=context),
    )


def parse_press(
    interaction: DiscordInteraction, place: ChannelPlace, me: DiscordIdentity
) -> InboundMessage | None:
    """Parse the press of a button as a message with the button's text; `None` for a button of another program."""
    if not interaction.data.custom_id.startswith(BUTTON_PREFIX):
        return None
    return InboundMessage(
        event=f"interaction.{interaction.id}",
        source=_build_interaction_source(interaction, place, me),
        parts=text_parts(interaction.data.custom_id),
        surface=SURFACE,
        at=read_time(interaction.id),
    )


def build_reply_token(interaction: DiscordInteraction) -> str:
    return f"{interaction.application_id}:{interaction.token}"


def parse_reply_token(token: str) -> tuple[str, str]:
    """Return the id of the application and the token of an interaction."""
    application, _, rest = token.partition(":")
    return application, rest


def list_names(message: DiscordMessage) -> Iterable[tuple[str, str]]:
    """Return the names and ids of the author and of all mentioned people."""
    nick = message.member.nick if message.member else None
    if not message.author.bot:
        yield nick or message.author.name, message.author.id
    for user in message.mentions:
        yield user.display_name, user.id


def make_readable(text: str, mentions: Iterable[MentionedUser], names: ReadableNames) -> str:
    """Return a text with names instead of the ids of people, roles, channels, emoji and commands, and with dates instead of
    numbers. What has no known name stays as it is."""
    people = {user.id: user.display_name for user in mentions}

    def replace(found: re.Match[str]) -> str:
        kind = found.lastgroup or ""
        value = found[kind]
        match kind:
            case "user":
                name = people.get(value, "")
                return f"@{name}" if name else found[0]
            case "role":
                name = names.find_role_name(value)
                return f"@{name}" if name else found[0]
            case "channel":
                name = names.find_channel_name(value)
                return f"#{name}" if name else found[0]
            case "emoji":
                return f":{value}:"
            case "command":
                return f"/{value}"
            case _:
                try:
                    return datetime.fromtimestamp(int(value), UTC).strftime("%Y-%m-%d %H:%M UTC")
                except (ValueError, OverflowError, OSError):
                    return found[0]

    return _MARKUP_PATTERN.sub(replace, text)


def _build_texts(message: DiscordMessage, me: DiscordIdentity, names: ReadableNames) -> tuple[str, ...]:
    """Return the readable text without a mention of the bot at its beginning, and the messages that are forwarded with it."""
    content = message.content
    first = _MARKUP_PATTERN.match(content)
    if first is not None and (first["user"] == me.id or first["role"] in me.own_roles):
        content = content[first.end() :].lstrip(" ,:;\n") or content
    text = make_readable(content, message.mentions, names).strip()
    texts = [text] if text else []
    for snapshot in message.message_snapshots:
        forwarded = make_readable(snapshot.message.content, message.mentions, names).strip()
        texts += [Phrase("content.forwarded_message"), *([forwarded] if forwarded else [])]
    return tuple(texts) or _describe_content(message)


def _describe_content(message: DiscordMessage) -> tuple[Phrase, ...]:
    """Describe content other than text and files."""
    if message.sticker_items:
        return tuple(
            Phrase("content.sticker_named", name=sticker.name) if sticker.name else Phrase("content.sticker")
            for sticker in message.sticker_items
        )
    if message.poll is not None:
        answers = " / ".join(answer.poll_media.text or "" for answer in message.poll.answers)
        return (Phrase("content.poll", poll=f"{message.poll.question.text or ''} {answers}"),)
    return ()


def _is_addressed(message: DiscordMessage, place: ChannelPlace, me: DiscordIdentity, text: str) -> bool:
    replied = message.replied
    command = _COMMAND_PATTERN.match(text)
    return (
        place.channel.is_direct
        or any(user.id == me.id for user in message.mentions)
        or not me.own_roles.isdisjoint(message.mention_roles)
        or (replied is not None and replied.author.id == me.id)
        or (command is not None and command[1].lower() in me.commands)
    )


def _build_source(
    place: ChannelPlace,
    me: DiscordIdentity,
    author: DiscordUser | None,
    member: DiscordMember | None,
    *,
    guild: str | None,
    message: str | None = None,
) -> Source:
    channel, parent = place
    name = ((member.nick if member else None) or author.name) if author else ""
    if channel.is_direct:
        kind, chat, chat_name, topic = ChatType.DM, channel.id, name, ""
    elif channel.is_thread:
        kind, chat, topic = ChatType.THREAD, channel.parent_id or channel.id, channel.name
        chat_name = parent.name if parent else ""
    else:
        kind, chat, chat_name, topic = ChatType.GROUP, channel.id, channel.name, channel.topic
    return Source(
        platform=PLATFORM,
        account=me.id,
        chat=chat,
        chat_name=chat_name or None,
        chat_type=kind,
        user=author.id if author else None,
        user_name=name or None,
        thread=channel.id if channel.is_thread else None,
        topic=topic or None,
        bot=author.bot if author else False,
        scope=guild or channel.guild_id,
        message=message,
        roles=member.roles if member else (),
    )


def _build_interaction_source(
    interaction: DiscordInteraction, place: ChannelPlace, me: DiscordIdentity
) -> Source:
    author = interaction.author
    if author is None:
        raise Invalid("an interaction names no person")
    source = _build_source(place, me, author, interaction.member, guild=interaction.guild_id)
    return msgspec.structs.replace(source, language=interaction.locale)


def _build_target(source: Source, *, reply_to: str = "") -> Target:
    return Target(
        PLATFORM, source.account, chat=source.chat or "", thread=source.thread or "", reply_to=reply_to
    )
