"""Parse: one update of the Bot API as one inbound event. Pure; files are named here and fetched elsewhere."""

import re
from datetime import UTC, datetime

import msgspec

from keryx.core.deliveries import Target
from keryx.core.messages import Parts, Text
from keryx.core.ports import Inbound
from keryx.core.shapes import Ids, Shape
from keryx.core.source import ChatType, Source
from keryx.core.turns import BusyMode
from keryx.surfaces.gateway.telegram.types import Entity, Member, Message, Press, Stored, Update

PLATFORM = "telegram"
SURFACE = "gateway"
_NUMBER = r"-?[1-9]\d{0,18}"
IDS = Ids(
    chat=Shape(_NUMBER, "a number, such as 123456789 for a person and -1001234567890 for a group"),
    thread=Shape(r"[1-9]\d{0,18}", "the number of a topic, such as 42"),
    person=Shape(_NUMBER, "a number, such as 123456789, not a @name"),
)
ROLES = ("creator", "administrator")
PRESSED = "/answer "
"""What every button of ours says first."""
_TYPES = {"private": ChatType.DM, "group": ChatType.GROUP, "supergroup": ChatType.GROUP}
_COMMAND = re.compile(r"/(\w+)(?:@(\w+))?(?=\s|\Z)")
_TELEGRAM = 777_000
_ANONYMOUS = 1_087_968_824


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The bot, and the names of the commands that it has."""

    id: int
    username: str = ""
    commands: frozenset[str] = frozenset()

    @property
    def account(self) -> str:
        return str(self.id)

    def named(self, username: str) -> bool:
        return bool(self.username) and username.lower() == self.username.lower()


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """A file that came with a message and is still on Telegram's side."""

    file_id: str
    name: str
    mime: str
    size: int = 0


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """`inbound` holds the words; the files come after them."""

    inbound: Inbound
    files: tuple[Remote, ...] = ()


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A group became a supergroup, so its chat has another id from now on."""

    old: str
    new: str


def parse(update: Update, me: Me) -> Parsed | Moved | None:
    """What an update says, or `None` for one that says nothing to this bot. The cursor is the caller's matter."""
    message = update.said
    if message is None or (message.sender and message.sender.id == me.id):
        return None
    if message.migrate_to_chat_id is not None:
        return Moved(old=str(message.chat.id), new=str(message.migrate_to_chat_id))
    command = _command(message)
    if command is not None and command[1] and not me.named(command[1]):
        return None
    text, files = _text(message, me), _files(message)
    if not text and not files:
        return None
    return Parsed(inbound=_inbound(message, me, text, addressed=_addressed(message, me)), files=files)


def pressed(press: Press, me: Me) -> Inbound | None:
    """A press, as if the person had written what the button says; `None` for a button that is not ours.

    Anybody can claim to have pressed anything: it gives no more rights than writing."""
    if press.message is None or not press.data.startswith(PRESSED):
        return None
    by_person = msgspec.structs.replace(press.message, sender=press.sender, sender_chat=None)
    return Inbound(
        event=f"press.{press.id}",
        source=msgspec.structs.replace(_source(by_person, me), message=None),
        parts=_words(press.data),
        surface=SURFACE,
    )


def roles(member: object) -> tuple[str, ...]:
    """The roles of a `ChatMember`. Whoever made a chat is an administrator, too."""
    try:
        status = msgspec.convert(member, Member).status
    except msgspec.ValidationError:
        return ()
    return ROLES[ROLES.index(status) :] if status in ROLES else ()


def _inbound(message: Message, me: Me, text: str, *, addressed: bool) -> Inbound:
    source = _source(message, me)
    edited = message.edit_date is not None
    return Inbound(
        event=f"{message.chat.id}.{message.message_id}" + (f".{message.edit_date}" if edited else ""),
        source=source,
        parts=_words(text),
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
        quote=_quote(message),
        edits=str(message.message_id) if edited else None,
    )


def _words(text: str) -> Parts:
    return (Text(text),) if text else ()


def _source(message: Message, me: Me) -> Source:
    chat, (user, name, bot) = message.chat, _author(message)
    thread = str(message.message_thread_id) if message.is_topic_message else None
    kind = _TYPES.get(chat.type, ChatType.CHANNEL)
    return Source(
        platform=PLATFORM,
        account=me.account,
        chat=str(chat.id),
        chat_name=chat.name or None,
        chat_type=ChatType.THREAD if thread and kind is ChatType.GROUP else kind,
        user=user,
        user_name=name or None,
        thread=thread,
        topic=_topic(message),
        bot=bot,
        message=str(message.message_id),
    )


def _author(message: Message) -> tuple[str, str, bool]:
    """Id, name and whether it is a bot. An anonymous administrator and a channel speak as their chat."""
    sender = message.sender
    if sender is None or (message.sender_chat and sender.id in (_TELEGRAM, _ANONYMOUS)):
        chat = message.sender_chat or message.chat
        return str(chat.id), message.author_signature or chat.name, False
    return str(sender.id), sender.name, sender.is_bot


def _topic(message: Message) -> str | None:
    root = message.reply_to_message
    created = root.forum_topic_created if root and message.is_topic_message else None
    return created.name if created else None


def _reply(message: Message) -> Message | None:
    """The message it replies to. In a topic everything replies to the topic's first message, which means nothing."""
    earlier = message.reply_to_message
    if earlier is None or earlier.forum_topic_created is not None:
        return None
    return earlier


def _quote(message: Message) -> str:
    if message.quote is not None:
        return message.quote.text
    earlier = _reply(message)
    return "" if earlier is None else earlier.words or _described(earlier) or ""


def _addressed(message: Message, me: Me) -> bool:
    if message.chat.type == "private":
        return True
    earlier, command = _reply(message), _command(message)
    replied = earlier is not None and earlier.sender is not None and earlier.sender.id == me.id
    known = command is not None and (bool(command[1]) or command[0] in me.commands)
    return replied or known or any(_mentions(message.words, mark, me) for mark in message.marks)


def _mentions(text: str, mark: Entity, me: Me) -> bool:
    if mark.type == "text_mention":
        return mark.user is not None and mark.user.id == me.id
    return mark.type == "mention" and me.named(_cut(text, mark).removeprefix("@"))


def _cut(text: str, mark: Entity) -> str:
    units = text.encode("utf-16-le", "surrogatepass")
    return units[mark.offset * 2 : (mark.offset + mark.length) * 2].decode("utf-16-le", "replace")


def _command(message: Message) -> tuple[str, str] | None:
    """Name and bot of the command that a message begins with, as Telegram writes it: `undo_reset` is `undo-reset`."""
    if message.forward_origin is not None:
        return None
    found = _COMMAND.match(message.words.lstrip())
    return (found[1].lower().replace("_", "-"), found[2] or "") if found else None


def _text(message: Message, me: Me) -> str:
    words = message.words
    if message.forward_origin is not None:
        shown = words or _described(message) or ""
        return f"Forwarded from {message.forward_origin.name}:\n{shown}"
    words = _without_call(words, message, me)
    command = _COMMAND.match(words)
    if command is not None:
        return _canonical(command, words)
    return words or _described(message) or ""


def _without_call(words: str, message: Message, me: Me) -> str:
    """The words without a mention of the bot at their beginning, which only calls it."""
    first = next((m for m in message.marks if m.offset == 0 and m.type == "mention"), None)
    if first is None or not _mentions(words, first, me):
        return words.lstrip() if _COMMAND.match(words.lstrip()) else words
    return words[len(_cut(words, first)) :].lstrip(" ,:;\n") or words


def _canonical(command: re.Match[str], words: str) -> str:
    """A command by the name that Keryx knows. `/start` is what Telegram sends when a person opens the bot."""
    name = command[1].lower().replace("_", "-")
    if name == "start":
        return "/help"
    return f"/{name}{words[command.end() :]}"


def _described(message: Message) -> str | None:
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


def _files(message: Message) -> tuple[Remote, ...]:
    if message.photo:
        best = max(message.photo, key=lambda size: (size.width * size.height, size.file_size))
        return (Remote(file_id=best.file_id, name="photo.jpg", mime="image/jpeg", size=best.file_size),)
    kinds = (
        (message.voice, "voice.ogg", "audio/ogg"),
        (message.audio, "audio.mp3", "audio/mpeg"),
        (message.video or message.video_note, "video.mp4", "video/mp4"),
        (message.animation, "animation.mp4", "video/mp4"),
        (message.document, "file", "application/octet-stream"),
    )
    found = next(((stored, name, mime) for stored, name, mime in kinds if stored is not None), None)
    return (_remote(*found),) if found else ()


def _remote(stored: Stored, name: str, mime: str) -> Remote:
    return Remote(
        file_id=stored.file_id,
        name=stored.file_name or name,
        mime=stored.mime_type or mime,
        size=stored.file_size,
    )
