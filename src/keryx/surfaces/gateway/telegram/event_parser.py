"""Parses one Bot API update to an inbound event. Pure: files are named here and fetched elsewhere."""

import re
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from keryx.core.deliveries import Target
from keryx.core.media import RemoteFile
from keryx.core.messages import text_parts
from keryx.core.ports.adapter import IdFormat, InboundMessage, InboundReaction, PlatformIds
from keryx.core.source import ChatType, Source
from keryx.core.texts import Phrase
from keryx.core.turns import BusyMode
from keryx.surfaces.gateway.telegram.payloads import (
    CallbackQuery,
    MessageEntity,
    ReactionUpdate,
    TelegramMember,
    TelegramMessage,
    TelegramUpdate,
)

PLATFORM = "telegram"
SURFACE = "gateway"
_ID_PATTERN = r"-?[1-9]\d{0,18}"
IDS = PlatformIds(
    chat=IdFormat(_ID_PATTERN, "a number, such as 123456789 for a person and -1001234567890 for a group"),
    thread=IdFormat(r"[1-9]\d{0,18}", "the number of a topic, such as 42"),
    person=IdFormat(_ID_PATTERN, "a number, such as 123456789, not a @name"),
)
ROLES = ("creator", "administrator")
# The data of each of our buttons begins with this.
CALLBACK_PREFIX = "/answer "
_CHAT_TYPES = {"private": ChatType.DM, "group": ChatType.GROUP, "supergroup": ChatType.GROUP}
_COMMAND_PATTERN = re.compile(r"/(\w+)(?:@(\w+))?(?=\s|\Z)")
# The clients of Telegram split a text of more than 4096 characters into several messages.
_MIN_SPLIT_LENGTH = 4000


class BotIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The bot, and the names of the commands that it has."""

    id: int
    username: str = ""
    commands: frozenset[str] = frozenset()

    @property
    def account(self) -> str:
        return str(self.id)

    def has_username(self, username: str) -> bool:
        return bool(self.username) and username.lower() == self.username.lower()


class _BotCommand(NamedTuple):
    name: str
    # The username after `@`, or "".
    bot: str
    # The text after the command.
    rest: str


class ChatMigration(msgspec.Struct, frozen=True, kw_only=True):
    """A group became a supergroup, which has another id."""

    old: str
    new: str


def parse_update(update: TelegramUpdate, me: BotIdentity) -> InboundMessage | ChatMigration | None:
    """Return what an update says, without a cursor, or `None` for one that says nothing to this bot."""
    message = update.any_message
    if message is None or (message.sender and message.sender.id == me.id):
        return None
    if message.migrate_to_chat_id is not None:
        return ChatMigration(old=str(message.chat.id), new=str(message.migrate_to_chat_id))
    command = _parse_command(message.text_or_caption.lstrip()) if message.forward_origin is None else None
    if command is not None and command.bot and not me.has_username(command.bot):
        return None
    (heading, text), files = _build_text(message, me), _find_files(message)
    if not heading and not text and not files:
        return None
    source, edited = _build_source(message, me), message.edit_date is not None
    if message.quote is not None:
        quote = message.quote.text
    else:
        replied = _find_replied(message)
        quote = "" if replied is None else replied.text_or_caption or _describe_content(replied)
    return InboundMessage(
        # Two edits may have the same date, which counts seconds.
        event=f"{message.chat.id}.{message.message_id}"
        + (f".{message.edit_date}.{update.update_id}" if edited else ""),
        source=source,
        parts=text_parts(*filter(None, (heading, text))),
        surface=SURFACE,
        at=datetime.fromtimestamp(message.edit_date or message.date, UTC),
        reply=Target(
            PLATFORM,
            me.account,
            chat=source.chat or "",
            thread=source.thread or "",
            reply_to=str(message.message_id),
        ),
        busy=BusyMode.COLLECT if message.media_group_id else None,
        addressed=_is_addressed(message, me, command),
        quote=quote,
        group=f"album.{message.media_group_id}" if message.media_group_id else "",
        more=message.forward_origin is not None or len(text) >= _MIN_SPLIT_LENGTH,
        # A forward comes after its comment, as a message of its own.
        continues=message.forward_origin is not None,
        edits=str(message.message_id) if edited else None,
        files=files,
    )


def parse_callback(press: CallbackQuery, me: BotIdentity) -> InboundMessage | None:
    """Parse the press of a button as a message with the button's text; `None` for a button of another program.

    A press can be forged, so it has no more rights than a message."""
    if press.message is None or not press.data.startswith(CALLBACK_PREFIX):
        return None
    by_person = msgspec.structs.replace(press.message, sender=press.sender, sender_chat=None)
    return InboundMessage(
        event=f"press.{press.id}",
        source=msgspec.structs.replace(_build_source(by_person, me), message=None),
        parts=text_parts(press.data) if press.data else (),
        surface=SURFACE,
    )


def parse_reactions(update: ReactionUpdate, number: int, me: BotIdentity) -> tuple[InboundReaction, ...]:
    """Return an event for each reaction that was added or removed. `number` is the id of the update."""
    actor = update.user or update.actor_chat
    source = Source(
        platform=PLATFORM,
        account=me.account,
        chat=str(update.chat.id),
        chat_name=update.chat.name or None,
        chat_type=_CHAT_TYPES.get(update.chat.type, ChatType.CHANNEL),
        user=str(actor.id) if actor else None,
        user_name=actor.name or None if actor else None,
        bot=update.user.is_bot if update.user else False,
        language=update.user.language_code or None if update.user else None,
    )
    removed = [(r.name, True) for r in update.old_reaction if r not in update.new_reaction]
    added = [(r.name, False) for r in update.new_reaction if r not in update.old_reaction]
    return tuple(
        InboundReaction(
            event=f"reaction.{number}.{index}",
            source=source,
            at=datetime.fromtimestamp(update.date, UTC),
            message=str(update.message_id),
            message_event=f"{update.chat.id}.{update.message_id}",
            reaction=name,
            removed=gone,
        )
        for index, (name, gone) in enumerate([*removed, *added])
    )


def parse_roles(member: object) -> tuple[str, ...]:
    """Return the roles of a `ChatMember`. The creator of a chat is an administrator, too."""
    try:
        status = msgspec.convert(member, TelegramMember).status
    except msgspec.ValidationError:
        return ()
    return ROLES[ROLES.index(status) :] if status in ROLES else ()


def _build_source(message: TelegramMessage, me: BotIdentity) -> Source:
    chat, root = message.chat, message.reply_to_message
    # An anonymous administrator and a channel write as a chat. Telegram then names an account of its own as the sender.
    sender = message.sender if message.sender_chat is None else None
    author = sender or message.sender_chat or chat
    thread = str(message.message_thread_id) if message.is_topic_message else None
    topic = root.forum_topic_created if root and message.is_topic_message else None
    kind = _CHAT_TYPES.get(chat.type, ChatType.CHANNEL)
    return Source(
        platform=PLATFORM,
        account=me.account,
        chat=str(chat.id),
        chat_name=chat.name or None,
        chat_type=ChatType.THREAD if thread and kind is ChatType.GROUP else kind,
        user=str(author.id),
        user_name=author.name or None,
        thread=thread,
        topic=topic.name if topic else None,
        bot=sender is not None and sender.is_bot,
        message=str(message.message_id),
        language=sender.language_code or None if sender else None,
    )


def _find_replied(message: TelegramMessage) -> TelegramMessage | None:
    """Return the message that this one replies to. In a topic, every message replies to the first one of the topic;
    that is not a reply."""
    earlier = message.reply_to_message
    if earlier is None or earlier.forum_topic_created is not None:
        return None
    return earlier


def _is_addressed(message: TelegramMessage, me: BotIdentity, command: _BotCommand | None) -> bool:
    replied = _find_replied(message)
    return (
        message.chat.type == "private"
        or (replied is not None and replied.sender is not None and replied.sender.id == me.id)
        or (command is not None and (bool(command.bot) or command.name in me.commands))
        or any(_is_mention(message.text_or_caption, mark, me) for mark in message.text_entities)
    )


def _is_mention(text: str, mark: MessageEntity, me: BotIdentity) -> bool:
    if mark.type == "text_mention":
        return mark.user is not None and mark.user.id == me.id
    return mark.type == "mention" and me.has_username(_slice_entity(text, mark).removeprefix("@"))


def _slice_entity(text: str, mark: MessageEntity) -> str:
    units = text.encode("utf-16-le", "surrogatepass")
    return units[mark.offset * 2 : (mark.offset + mark.length) * 2].decode("utf-16-le", "replace")


def _build_text(message: TelegramMessage, me: BotIdentity) -> tuple[str, str]:
    """Return the heading of a forward, and the text without a mention of the bot at its beginning, and with a command by the
    name in Keryx."""
    text = message.text_or_caption
    if message.forward_origin is not None:
        heading = Phrase("content.forwarded_from", name=message.forward_origin.name)
        return heading, text or _describe_content(message)
    first = next((m for m in message.text_entities if m.offset == 0 and m.type == "mention"), None)
    if first is not None and _is_mention(text, first, me):
        text = text[len(_slice_entity(text, first)) :].lstrip(" ,:;\n") or text
        command = _parse_command(text)
    else:
        command = _parse_command(text.lstrip())
    if command is None:
        return "", text or _describe_content(message)
    # Telegram sends `/start` when a person opens the bot, perhaps with the parameter of a link.
    return "", "/start" if command.name == "start" else f"/{command.name}{command.rest}"


def _parse_command(text: str) -> _BotCommand | None:
    """Return the command that a text begins with. Telegram has no `-` in names: `undo_reset` is `undo-reset`."""
    found = _COMMAND_PATTERN.match(text)
    if found is None:
        return None
    return _BotCommand(found[1].lower().replace("_", "-"), found[2] or "", text[found.end() :])


def _describe_content(message: TelegramMessage) -> str:
    """Describe content other than text and files."""
    if message.sticker is not None:
        return _describe_sticker(message.sticker.emoji)
    if message.venue is not None:
        at = message.venue.location
        place = f"{message.venue.title}, {message.venue.address} ({at.latitude}, {at.longitude})"
        return Phrase("content.place", place=place)
    if message.location is not None:
        place = f"{message.location.latitude}, {message.location.longitude}"
        return Phrase("content.location", place=place)
    if message.contact is not None:
        who = f"{message.contact.first_name} {message.contact.last_name}".strip()
        return Phrase("content.contact", contact=f"{who}, {message.contact.phone_number}")
    if message.dice is not None:
        return f"[{message.dice.emoji} {message.dice.value}]"
    if message.poll is not None:
        choices = " / ".join(option.text for option in message.poll.options)
        return Phrase("content.poll", poll=f"{message.poll.question} {choices}")
    return ""


def _describe_sticker(emoji: str) -> Phrase:
    return Phrase("content.sticker_named", name=emoji) if emoji else Phrase("content.sticker")


def _find_files(message: TelegramMessage) -> tuple[RemoteFile, ...]:
    if message.photo:
        best = max(message.photo, key=lambda size: (size.width * size.height, size.file_size))
        return (RemoteFile(reference=best.file_id, name="photo.jpg", mime="image/jpeg", size=best.file_size),)
    kinds = (
        (message.voice, "voice.ogg", "audio/ogg"),
        (message.audio, "audio.mp3", "audio/mpeg"),
        (message.video or message.video_note, "video.mp4", "video/mp4"),
        (message.animation, "animation.mp4", "video/mp4"),
        (message.document, "file", "application/octet-stream"),
    )
    return tuple(
        RemoteFile(
            reference=file.file_id,
            name=file.file_name or name,
            mime=file.mime_type or mime,
            size=file.file_size,
        )
        for file, name, mime in kinds
        if file is not None
    )[:1]
