"""Parse: what an event of a Matrix room means to Keryx. Pure; what had to be fetched is handed in."""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote

from keryx.core.deliveries import Target
from keryx.core.messages import Part, Parts, Text
from keryx.core.ports import Inbound
from keryx.core.shapes import Ids, Shape
from keryx.core.source import ChatType, Source
from keryx.surfaces.gateway.matrix.events import (
    MEMBER,
    STICKER,
    Content,
    Event,
    Powers,
    content_of,
    created_of,
    state_of,
    unsigned_of,
)

PLATFORM = "matrix"
IDS = Ids(
    chat=Shape(r"![^\s:]+(:\S+)?", "that of a room, such as !abc:example.org, written !abc%3Aexample.org"),
    thread=Shape(
        r"\$\S+", "that of its first event, such as $abc; a colon within the id of a room is written %3A"
    ),
    person=Shape(r"@[^\s:]*:\S+", "a whole name, such as @ann:example.org"),
)
ROLES = ("admin", "moderator")
_LEVELS = {"admin": 100, "moderator": 50}
_CREATORS_RULE = 12
"""The version of rooms since which who made a room may do everything, and is not named among the powers."""
REPLACE = "m.replace"
THREAD = "m.thread"
NOTICE = "m.notice"
MEDIA = frozenset({"m.image", "m.file", "m.audio", "m.video"})
_INSIDE = frozenset({"invite", "join"})
_IGNORED = frozenset({"", "m.key.verification.request", "m.server_notice"})
_LONGEST_QUOTE = 2000
_COMMAND = re.compile(r"[!/]([A-Za-z][\w-]*)(?=\s|\Z)")


@dataclass(frozen=True, slots=True)
class Me:
    """The account that Keryx speaks as, and the name people see."""

    user: str
    name: str = ""


@dataclass(slots=True)
class Room:
    """What is known of a room. `names` holds everybody in it; it follows what happens there."""

    id: str
    name: str = ""
    topic: str = ""
    direct: bool = False
    names: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def private(self) -> bool:
        """Whether it is a conversation of two."""
        return self.direct or len(self.names) <= 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What an event refers to: the one it edits, the one it replies to, and the files that came with it."""

    edited: Event | None = None
    replied: Event | None = None
    files: Parts = ()


NOTHING = Around()


def heeded(event: Event, content: Content, me: Me) -> bool:
    """Whether an event says anything to Keryx. What it says itself, and what was deleted, does not."""
    return event.sender != me.user and bool(event.id) and not _silent(event, content)


def _silent(event: Event, content: Content) -> bool:
    if event.type == STICKER:
        return False
    return content.msgtype in _IGNORED or (content.msgtype not in MEDIA and not content.body.strip())


def edits(content: Content) -> str:
    """The id of the event that this one replaces, if it does."""
    return content.relation.event_id if content.relation.rel_type == REPLACE and content.new else ""


def replies(content: Content) -> str:
    """The id of the event that this one replies to. In threads, a reply for old clients only is none."""
    return "" if content.relation.falls_back else content.relation.reply.event_id


def inbound(
    event: Event,
    content: Content,
    *,
    room: Room,
    me: Me,
    menu: AbstractSet[str] = frozenset(),
    around: Around = NOTHING,
    cursor: tuple[str, str] | None = None,
) -> Inbound:
    """The event as the hub takes it in."""
    edited = edits(content)
    said = content.new if edited and content.new else content
    text = _text(event, said, room, me, menu)
    first = around.edited or event
    thread = _thread(content if first is event else content_of(first) or content)
    parts: list[Part] = [Text(text)] if text else []
    message = edited or event.id
    return Inbound(
        event=event.id,
        source=_source(event, room, me, thread=thread, message=message, bot=said.msgtype == NOTICE),
        parts=(*parts, *around.files) or (Text(said.body),),
        surface="gateway",
        at=_moment(event.at),
        reply=Target(
            PLATFORM, me.user, room.id, thread=thread or "", reply_to="" if room.private else message
        ),
        addressed=room.private or _addressed(content, said, text, me, menu, around.replied),
        quote=quoted(around.replied) if around.replied else _fallback(said.body)[0],
        edits=edited or None,
        cursor=cursor,
    )


def roles(user: str, powers: Powers | None, created: Event | None) -> tuple[str, ...]:
    """The roles of a person by what they may do in a room, as clients name them. An admin is a moderator, too."""
    level = powers.users.get(user, powers.users_default) if powers else 0
    if created is not None and _made(user, created, powers is None):
        level = _LEVELS["admin"]
    return tuple(role for role in ROLES if level >= _LEVELS[role])


def _made(user: str, created: Event, alone: bool) -> bool:
    """Whether a person has all rights because they made the room; in old rooms only while nobody was given any."""
    how = created_of(created)
    new = how.room_version.isdecimal() and int(how.room_version) >= _CREATORS_RULE
    return (user == created.sender and (new or alone)) or (new and user in how.additional_creators)


def invitation(room: str, inviter: str, *, me: Me, direct: bool) -> Source:
    """Where an invitation comes from."""
    kind = ChatType.DM if direct else ChatType.GROUP
    return Source(
        platform=PLATFORM, account=me.user, chat=room, chat_type=kind, user=inviter, scope=_server(inviter)
    )


def quoted(event: Event) -> str:
    """The words of an event that another one replies to."""
    content = content_of(event)
    return _fallback(content.body)[1][:_LONGEST_QUOTE] if content else ""


def opened(events: Sequence[Event], me: Me) -> int:
    """The place in a room's timeline from which on Keryx was there or had been invited: what was said before
    that was not said to it."""
    return max((n + 1 for n, event in enumerate(events) if _lets_in(event, me)), default=0)


def _lets_in(event: Event, me: Me) -> bool:
    """Whether before this event Keryx was neither in the room nor invited, and after it is."""
    if event.type != MEMBER or event.state_key != me.user:
        return False
    unsigned, now = unsigned_of(event), state_of(event).membership
    was = unsigned.prev_content.membership or ("join" if unsigned.replaces_state else "leave")
    return now in _INSIDE and was not in _INSIDE


def _source(event: Event, room: Room, me: Me, *, thread: str | None, message: str, bot: bool) -> Source:
    return Source(
        platform=PLATFORM,
        account=me.user,
        chat=room.id,
        chat_name=room.name or None,
        chat_type=ChatType.DM if room.private else ChatType.GROUP,
        user=event.sender,
        user_name=room.names.get(event.sender) or _local(event.sender),
        thread=thread,
        topic=room.topic or None,
        bot=bot,
        scope=_server(event.sender),
        message=message,
    )


def _thread(content: Content) -> str | None:
    return content.relation.event_id or None if content.relation.rel_type == THREAD else None


def _text(event: Event, content: Content, room: Room, me: Me, menu: AbstractSet[str]) -> str:
    if event.type == STICKER:
        return f"(a sticker: {content.body})"
    match content.msgtype:
        case "m.emote":
            return f"* {room.names.get(event.sender) or _local(event.sender)} {content.body}"
        case "m.location":
            return f"{content.body} ({content.geo_uri})" if content.geo_uri else content.body
        case kind if kind in MEDIA:
            return content.body if content.filename and content.body != content.filename else ""
        case _:
            return _as_command(_unaddressed(_fallback(content.body)[1], me), menu)


def _fallback(body: str) -> tuple[str, str]:
    """Older clients put what they reply to before the words, each line after `> `. Gives that, and the words."""
    if not body.startswith("> <"):
        return "", body
    lines = body.split("\n")
    count = next((n for n, line in enumerate(lines) if not line.startswith(">")), len(lines))
    said = "\n".join(line.removeprefix(">").strip() for line in lines[:count])
    return said.partition("> ")[2][:_LONGEST_QUOTE], "\n".join(lines[count:]).lstrip("\n")


def _unaddressed(text: str, me: Me) -> str:
    """The words without the name of Keryx at their front, as in `Keryx: what time is it`."""
    for name in (me.user, me.name):
        if name and text.startswith(name) and text[len(name) :][:1] in (":", ",", " "):
            return text[len(name) :].lstrip(":, ") or text
    return text


def _as_command(text: str, menu: AbstractSet[str]) -> str:
    """`!name` is how people of Matrix write a command: their clients keep `/name` for themselves."""
    found = _COMMAND.match(text)
    return f"/{text[1:]}" if found and found[1].lower() in menu else text


def _addressed(
    content: Content, said: Content, text: str, me: Me, menu: AbstractSet[str], replied: Event | None
) -> bool:
    command = _COMMAND.match(text)
    return (
        any(c.mentions is not None and me.user in c.mentions.user_ids for c in (content, said))
        or me.user in said.body
        or f"matrix.to/#/{me.user}" in said.formatted_body
        or f"matrix.to/#/{quote(me.user, safe='')}" in said.formatted_body
        or (replied is not None and replied.sender == me.user)
        or (command is not None and text.startswith("/") and command[1].lower() in menu)
    )


def _moment(milliseconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds > 0 else None
    except (OverflowError, ValueError, OSError):
        return None


def _local(user: str) -> str:
    return user.removeprefix("@").partition(":")[0]


def _server(user: str) -> str | None:
    return user.partition(":")[2] or None
