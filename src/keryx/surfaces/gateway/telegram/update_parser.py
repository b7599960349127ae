"""Parses one Bot API update to an inbound event. Pure: files are named here and fetched elsewhere."""

import re
from datetime import UTC, datetime

import msgspec

from keryx.core.deliveries import Target
from keryx.core.messages import Parts, Text
from keryx.core.ports.adapter import IdFormat, InboundMessage, PlatformIds
from keryx.core.source import ChatType, Source
from keryx.core.turns import BusyMode
from keryx.surfaces.gateway.telegram.types import (
    CallbackQuery,
    MessageEntity,
    TelegramFile,
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
CALLBACK_PREFIX = "/answer "
"""What every button of ours says first."""
_CHAT_TYPES = {"private": ChatType.DM, "group": ChatType.GROUP, "supergroup": ChatType.GROUP}
_COMMAND_PATTERN = re.compile(r"/(\w+)(?:@(\w+))?(?=\s|\Z)")
_TELEGRAM_USER_ID = 777_000
_ANONYMOUS_USER_ID = 1_087_968_824


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


class RemoteFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that came with a message and is still on Telegram's side."""

    file_id: str
    name: str
    mime: str
    size: int = 0


class ParsedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """`inbound` holds the words; the files come after them."""

    inbound: InboundMessage
    files: tuple[RemoteFile, ...] = ()


class ChatMigration(msgspec.Struct, frozen=True, kw_only=True):
    """A group became a supergroup, so its chat has another id from now on."""

    old: str
    new: str


def parse_update(update: TelegramUpdate, me: BotIdentity) -> ParsedMessage | ChatMigration | None:
    """What an update says, or `None` for one that says nothing to this bot. The cursor is the caller's matter."""
    message = update.any_message
    if message is None or (message.sender and message.sender.id == me.id):
        return None
    if message.migrate_to_chat_id is not None:
        return ChatMigration(old=str(message.chat.id), new=str(message.migrate_to_chat_id))
    command = _parse_command(message)
    if command is not None and command[1] and not me.has_username(command[1]):
        return None
    text, files = _build_text(message, me), _find_files(message)
    if not text and not files:
        return None
    return ParsedMessage(
        inbound=_build_inbound(message, me, text, addressed=_is_addressed(message, me)), files=files
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
        parts=_build_parts(press.data),
        surface=SURFACE,
    )


def parse_roles(member: object) -> tuple[str, ...]:
    """Return the roles of a `ChatMember`. The creator of a chat is an administrator, too."""
    try:
        status = msgspec.convert(member, TelegramMember).status
    except msgspec.ValidationError:
        return ()
    return ROLES[ROLES.index(status) :] if status in ROLES else ()


def _build_inbound(
    message: TelegramMessage, me: BotIdentity, text: str, *, addressed: bool
) -> InboundMessage:
    source = _build_source(message, me)
    edited = message.edit_date is not None
    return InboundMessage(
        event=f"{message.chat.id}.{message.message_id}" + (f".{message.edit_date}" if edited else ""),
        source=source,
        parts=_build_parts(text),
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
        addressed=addressed,
        quote=_find_quote(message),
        edits=str(message.message_id) if edited else None,
    )


def _build_parts(text: str) -> Parts:
    return (Text(text),) if text else ()


def _build_source(message: TelegramMessage, me: BotIdentity) -> Source:
    chat, (user, name, bot) = message.chat, _find_author(message)
    thread = str(message.message_thread_id) if message.is_topic_message else None
    kind = _CHAT_TYPES.get(chat.type, ChatType.CHANNEL)
    return Source(
        platform=PLATFORM,
        account=me.account,
        chat=str(chat.id),
        chat_name=chat.name or None,
        chat_type=ChatType.THREAD if thread and kind is ChatType.GROUP else kind,
        user=user,
        user_name=name or None,
        thread=thread,
        topic=_find_topic(message),
        bot=bot,
        message=str(message.message_id),
    )


def _find_author(message: TelegramMessage) -> tuple[str, str, bool]:
    """Id, name and whether it is a bot. An anonymous administrator and a channel speak as their chat."""
    sender = message.sender
    if sender is None or (message.sender_chat and sender.id in (_TELEGRAM_USER_ID, _ANONYMOUS_USER_ID)):
        chat = message.sender_chat or message.chat
        return str(chat.id), message.author_signature or chat.name, False
    return str(sender.id), sender.name, sender.is_bot


def _find_topic(message: TelegramMessage) -> str | None:
    root = message.reply_to_message
    created = root.forum_topic_created if root and message.is_topic_message else None
    return created.name if created else None


def _find_replied(message: TelegramMessage) -> TelegramMessage | None:
    """The message it replies to. In a topic everything replies to the topic's first message, which means nothing."""
    earlier = message.reply_to_message
    if earlier is None or earlier.forum_topic_created is not None:
        return None
    return earlier


def _find_quote(message: TelegramMessage) -> str:
    if message.quote is not None:
        return message.quote.text
    earlier = _find_replied(message)
    return "" if earlier is None else earlier.text_or_caption or _describe_content(earlier) or ""


def _is_addressed(message: TelegramMessage, me: BotIdentity) -> bool:
    if message.chat.type == "private":
        return True
    earlier, command = _find_replied(message), _parse_command(message)
    replied = earlier is not None and earlier.sender is not None and earlier.sender.id == me.id
    known = command is not None and (bool(command[1]) or command[0] in me.commands)
    return (
        replied
        or known
        or any(_is_mention(message.text_or_caption, mark, me) for mark in message.text_entities)
    )


def _is_mention(text: str, mark: MessageEntity, me: BotIdentity) -> bool:
    if mark.type == "text_mention":
        return mark.user is not None and mark.user.id == me.id
    return mark.type == "mention" and me.has_username(_slice_entity(text, mark).removeprefix("@"))


def _slice_entity(text: str, mark: MessageEntity) -> str:
    units = text.encode("utf-16-le", "surrogatepass")
    return units[mark.offset * 2 : (mark.offset + mark.length) * 2].decode("utf-16-le", "replace")


def _parse_command(message: TelegramMessage) -> tuple[str, str] | None:
    """Name and bot of the command that a message begins with, as Telegram writes it: `undo_reset` is `undo-reset`."""
    if message.forward_origin is not None:
        return None
    found = _COMMAND_PATTERN.match(message.text_or_caption.lstrip())
    return (found[1].lower().replace("_", "-"), found[2] or "") if found else None


def _build_text(message: TelegramMessage, me: BotIdentity) -> str:
    words = message.text_or_caption
    if message.forward_origin is not None:
        shown = words or _describe_content(message) or ""
        return f"Forwarded from {message.forward_origin.name}:\n{shown}"
    words = _strip_mention(words, message, me)
    command = _COMMAND_PATTERN.match(words)
    if command is not None:
        return _normalize_command(command, words)
    return words or _describe_content(message) or ""


def _strip_mention(words: str, message: TelegramMessage, me: BotIdentity) -> str:
    """The words without a mention of the bot at their beginning, which only calls it."""
    first = next((m for m in message.text_entities if m.offset == 0 and m.type == "mention"), None)
    if first is None or not _is_mention(words, first, me):
        return words.lstrip() if _COMMAND_PATTERN.match(words.lstrip()) else words
    return words[len(_slice_entity(words, first)) :].lstrip(" ,:;\n") or words


def _normalize_command(command: re.Match[str], words: str) -> str:
    """A command by the name that Keryx knows. `/start` is what Telegram sends when a person opens the bot."""
    name = command[1].lower().replace("_", "-")
    if name == "start":
        return "/help"
    return f"/{name}{words[command.end() :]}"


def _describe_content(message: TelegramMessage) -> str | None:
    """What has no words, in words."""
    if message.sticker is not None:
        return f"[sticker {message.sticker.emoji}]".replace(" ]", "]")
    if message.venue is not None:
        place = message.venue.location
        return (
            f"[place: {message.venue.title}, {message.venue.address} ({place.latitude}, {place.longitude})]"
        )
    if message.location is not None:
        return f"[location: {message.location.latitude}, {message.location.longitude}]"
    if message.contact is not None:
        who = f"{message.contact.first_name} {message.contact.last_name}".strip()
        return f"[contact: {who}, {message.contact.phone_number}]"
    if message.dice is not None:
        return f"[{message.dice.emoji} {message.dice.value}]"
    if message.poll is not None:
        return f"[poll: {message.poll.question} {' / '.join(o.text for o in message.poll.options)}]"
    return None


def _find_files(message: TelegramMessage) -> tuple[RemoteFile, ...]:
    if message.photo:
        best = max(message.photo, key=lambda size: (size.width * size.height, size.file_size))
        return (RemoteFile(file_id=best.file_id, name="photo.jpg", mime="image/jpeg", size=best.file_size),)
    kinds = (
        (message.voice, "voice.ogg", "audio/ogg"),
        (message.audio, "audio.mp3", "audio/mpeg"),
        (message.video or message.video_note, "video.mp4", "video/mp4"),
        (message.animation, "animation.mp4", "video/mp4"),
        (message.document, "file", "application/octet-stream"),
    )
    found = next(((stored, name, mime) for stored, name, mime in kinds if stored is not None), None)
    return (_build_file(*found),) if found else ()


def _build_file(stored: TelegramFile, name: str, mime: str) -> RemoteFile:
    return RemoteFile(
        file_id=stored.file_id,
        name=stored.file_name or name,
        mime=stored.mime_type or mime,
        size=stored.file_size,
    )
