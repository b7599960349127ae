"""Translates Matrix events to inbound messages and outgoing parts to event contents. Pure: everything that must be fetched is passed in."""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from typing import Any
from urllib.parse import quote

from keryx.core.deliveries import Target
from keryx.core.media import Attachment, RemoteFile
from keryx.core.messages import Text, text_parts
from keryx.core.ports.adapter import IdFormat, InboundDeletion, InboundMessage, InboundReaction, PlatformIds
from keryx.core.source import ChatType, Source
from keryx.core.texts import Phrase
from keryx.markdown.matrix_html import MatrixText
from keryx.surfaces.gateway.matrix.event_types import (
    MEMBER,
    REACTION,
    REDACTION,
    STICKER,
    MatrixContent,
    MatrixEvent,
    PowerLevels,
    parse_content,
    parse_creation,
    parse_state,
    parse_unsigned,
)

PLATFORM = "matrix"
IDS = PlatformIds(
    chat=IdFormat(r"![^\s:]+(:\S+)?", "that of a room, such as !abc:example.org, written !abc%3Aexample.org"),
    thread=IdFormat(
        r"\$\S+", "that of its first event, such as $abc; a colon within the id of a room is written %3A"
    ),
    person=IdFormat(r"@[^\s:]*:\S+", "a whole name, such as @ann:example.org"),
)
ROLES = ("admin", "moderator")
_ROLE_LEVELS = {"admin": 100, "moderator": 50}
# Since this room version, the creators of a room have all rights and are not among the power levels.
_CREATOR_POWER_VERSION = 12
REPLACE = "m.replace"
THREAD = "m.thread"
NOTICE = "m.notice"
MEDIA_TYPES = frozenset({"m.image", "m.file", "m.audio", "m.video"})
_PRESENT_MEMBERSHIPS = frozenset({"invite", "join"})
_IGNORED_TYPES = frozenset({"", "m.key.verification.request", "m.server_notice"})
_MAX_QUOTE_LENGTH = 2000
_COMMAND_PATTERN = re.compile(r"[!/]([A-Za-z][\w-]*)(?=\s|\Z)")
HTML_FORMAT = "org.matrix.custom.html"
_MAX_FALLBACK_LENGTH = 1000
_ENCRYPTED_REFERENCE = "encrypted "
_FILE_TYPES = {"image": "m.image", "audio": "m.audio", "video": "m.video"}


@dataclass(frozen=True, slots=True)
class MatrixAccount:
    """The account that Keryx uses."""

    user: str
    # Its display name.
    name: str = ""


@dataclass(slots=True)
class MatrixRoom:
    """The state of a room, kept up to date by the events of a sync."""

    id: str
    name: str = ""
    topic: str = ""
    direct: bool = False
    # The display names of all members by user id.
    names: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def private(self) -> bool:
        """Whether at most two people are in it."""
        return self.direct or len(self.names) <= 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedEvents:
    """What an event refers to."""

    # The event that it edits.
    edited: MatrixEvent | None = None
    # The event that it replies to.
    replied: MatrixEvent | None = None


NO_RELATED_EVENTS = RelatedEvents()


def is_relevant(event: MatrixEvent, content: MatrixContent, me: MatrixAccount) -> bool:
    """Whether an event has content for Keryx: it is neither its own, nor deleted, nor empty."""
    if event.sender == me.user or not event.id:
        return False
    if event.type == STICKER:
        return True
    return content.msgtype not in _IGNORED_TYPES and (
        content.msgtype in MEDIA_TYPES or bool(content.body.strip())
    )


def find_edited_id(content: MatrixContent) -> str:
    """Return the id of the event that this one replaces, or ""."""
    return content.relation.event_id if content.relation.rel_type == REPLACE and content.new else ""


def find_replied_id(content: MatrixContent) -> str:
    """Return the id of the event that this one replies to, or "". The fallback for clients without threads is not a reply."""
    return "" if content.relation.falls_back else content.relation.reply.event_id


def build_inbound(
    event: MatrixEvent,
    content: MatrixContent,
    *,
    room: MatrixRoom,
    me: MatrixAccount,
    menu: AbstractSet[str] = frozenset(),
    related: RelatedEvents = NO_RELATED_EVENTS,
    cursor: str | None = None,
) -> InboundMessage:
    """Build the message of an event for the engine."""
    edited = find_edited_id(content)
    current = content.new if edited and content.new else content
    text = _extract_text(event, current, room, me, menu)
    first = related.edited or event
    # An edit does not repeat the relation to the thread.
    relation = (content if first is event else parse_content(first) or content).relation
    thread = relation.event_id or None if relation.rel_type == THREAD else None
    parts = text_parts(text) if text else ()
    message = edited or event.id
    files = () if edited else _find_files(current, room.id, event.id)
    return InboundMessage(
        event=event.id,
        source=_build_source(event, room, me, thread=thread, message=message, bot=current.msgtype == NOTICE),
        parts=parts or (() if files else (Text(current.body),)),
        files=files,
        surface="gateway",
        at=_parse_timestamp(event.at),
        reply=Target(
            PLATFORM, me.user, room.id, thread=thread or "", reply_to="" if room.private else message
        ),
        addressed=room.private or _is_addressed(content, current, text, me, menu, related.replied),
        thread_root=thread or "",
        quote=extract_quote(related.replied) if related.replied else _split_reply_fallback(current.body)[0],
        # Clients send several files, and the text with them, as messages of their own.
        more=current.msgtype in MEDIA_TYPES,
        continues=current.msgtype in MEDIA_TYPES,
        edits=edited or None,
        cursor=cursor,
    )


def _find_files(content: MatrixContent, room: str, event: str) -> tuple[RemoteFile, ...]:
    if content.msgtype not in MEDIA_TYPES:
        return ()
    name = content.filename or content.body or "file"
    # The reference is stored in the database, so it holds no key: the event is decrypted again when the file is fetched.
    reference = f"{_ENCRYPTED_REFERENCE}{room} {event}" if content.file else content.url
    return (
        RemoteFile(
            reference=reference, name=name, mime=content.info.mimetype, size=max(0, content.info.size)
        ),
    )


def parse_encrypted_reference(reference: str) -> tuple[str, str] | None:
    """Return the room and the event with the key of an encrypted file, or `None` if the file is not encrypted."""
    if not reference.startswith(_ENCRYPTED_REFERENCE):
        return None
    room, _, event = reference.removeprefix(_ENCRYPTED_REFERENCE).partition(" ")
    return room, event


def _parse_timestamp(millis: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(millis / 1000, UTC) if millis > 0 else None
    except (OverflowError, ValueError, OSError):
        return None


def build_event(
    event: MatrixEvent,
    content: MatrixContent,
    *,
    room: MatrixRoom,
    me: MatrixAccount,
    cursor: str | None = None,
) -> InboundDeletion | InboundReaction | None:
    """Return a redaction or a reaction for the hub, or `None` for one that names no event."""
    message = content.relation.event_id if event.type == REACTION else event.redacts or content.redacts
    if not message:
        return None
    source = _build_source(event, room, me, thread=None, message=message, bot=False)
    at = _parse_timestamp(event.at)
    if event.type == REDACTION:
        return InboundDeletion(event=event.id, source=source, at=at, message_event=message, cursor=cursor)
    return InboundReaction(
        event=event.id,
        source=source,
        at=at,
        message=message,
        message_event=message,
        reaction=content.relation.key,
        cursor=cursor,
    )


def find_roles(user: str, powers: PowerLevels | None, created: MatrixEvent | None) -> tuple[str, ...]:
    """Return the roles of a user by the power levels of a room, as clients name them. An admin is a moderator, too."""
    level = powers.users.get(user, powers.users_default) if powers else 0
    if created is not None:
        # In old room versions, the creator has all rights only while no power levels are set.
        room = parse_creation(created)
        new = room.room_version.isdecimal() and int(room.room_version) >= _CREATOR_POWER_VERSION
        if (user == created.sender and (new or powers is None)) or (new and user in room.additional_creators):
            level = _ROLE_LEVELS["admin"]
    return tuple(role for role in ROLES if level >= _ROLE_LEVELS[role])


def build_invitation_source(room: str, inviter: str, *, me: MatrixAccount, direct: bool) -> Source:
    kind = ChatType.DM if direct else ChatType.GROUP
    return Source(
        platform=PLATFORM,
        account=me.user,
        chat=room,
        chat_type=kind,
        user=inviter,
        scope=_get_server_name(inviter),
    )


def extract_quote(event: MatrixEvent) -> str:
    """Return the text of an event that another one replies to."""
    content = parse_content(event)
    return _split_reply_fallback(content.body)[1][:_MAX_QUOTE_LENGTH] if content else ""


def find_first_visible(events: Sequence[MatrixEvent], me: MatrixAccount) -> int:
    """Return the index after the last event that made Keryx a member or invited it. Earlier messages are ignored."""
    first = 0
    for number, event in enumerate(events, 1):
        if event.type == MEMBER and event.state_key == me.user:
            unsigned, now = parse_unsigned(event), parse_state(event).membership
            was = unsigned.prev_content.membership or ("join" if unsigned.replaces_state else "leave")
            if now in _PRESENT_MEMBERSHIPS and was not in _PRESENT_MEMBERSHIPS:
                first = number
    return first


def _build_source(
    event: MatrixEvent, room: MatrixRoom, me: MatrixAccount, *, thread: str | None, message: str, bot: bool
) -> Source:
    return Source(
        platform=PLATFORM,
        account=me.user,
        chat=room.id,
        chat_name=room.name or None,
        chat_type=ChatType.DM if room.private else ChatType.GROUP,
        user=event.sender,
        user_name=room.names.get(event.sender) or _get_localpart(event.sender),
        thread=thread,
        topic=room.topic or None,
        bot=bot,
        scope=_get_server_name(event.sender),
        message=message,
    )


def _extract_text(
    event: MatrixEvent, content: MatrixContent, room: MatrixRoom, me: MatrixAccount, menu: AbstractSet[str]
) -> str:
    if event.type == STICKER:
        return Phrase("content.sticker_named", name=content.body)
    match content.msgtype:
        case "m.emote":
            return f"* {room.names.get(event.sender) or _get_localpart(event.sender)} {content.body}"
        case "m.location":
            return f"{content.body} ({content.geo_uri})" if content.geo_uri else content.body
        case kind if kind in MEDIA_TYPES:
            return content.body if content.filename and content.body != content.filename else ""
        case _:
            text = _split_reply_fallback(content.body)[1]
    # A mention of Keryx at the beginning, as in `Keryx: what time is it`.
    for name in (me.user, me.name):
        if name and text.startswith(name) and text[len(name) :][:1] in (":", ",", " "):
            text = text[len(name) :].lstrip(":, ") or text
            break
    # People on Matrix write a command as `!name`, because their clients interpret `/name` themselves.
    command = _COMMAND_PATTERN.match(text)
    return f"/{text[1:]}" if command and command[1].lower() in menu else text


def _split_reply_fallback(body: str) -> tuple[str, str]:
    """Split a body into the quoted message, which older clients put first with `> ` before each line, and the text."""
    if not body.startswith("> <"):
        return "", body
    lines = body.split("\n")
    count = next((n for n, line in enumerate(lines) if not line.startswith(">")), len(lines))
    said = "\n".join(line.removeprefix(">").strip() for line in lines[:count])
    return said.partition("> ")[2][:_MAX_QUOTE_LENGTH], "\n".join(lines[count:]).lstrip("\n")


def _is_addressed(
    content: MatrixContent,
    current: MatrixContent,
    text: str,
    me: MatrixAccount,
    menu: AbstractSet[str],
    replied: MatrixEvent | None,
) -> bool:
    command = _COMMAND_PATTERN.match(text)
    return (
        any(c.mentions is not None and me.user in c.mentions.user_ids for c in (content, current))
        or me.user in current.body
        or f"matrix.to/#/{me.user}" in current.formatted_body
        or f"matrix.to/#/{quote(me.user, safe='')}" in current.formatted_body
        or (replied is not None and replied.sender == me.user)
        or (command is not None and text.startswith("/") and command[1].lower() in menu)
    )


def _get_localpart(user: str) -> str:
    return user.removeprefix("@").partition(":")[0]


def _get_server_name(user: str) -> str | None:
    return user.partition(":")[2] or None


def build_text(part: MatrixText, *, mark: str = "") -> dict[str, Any]:
    """Build a message without mentions."""
    html = part.formatted_body
    if mark:
        shown = escape(mark)
        html = f"<p>{shown}{html[3:]}" if html.startswith("<p>") else f"<p>{shown}</p>{html}"
    return {
        "msgtype": "m.text",
        "body": mark + part.body,
        "format": HTML_FORMAT,
        "formatted_body": html,
        "m.mentions": {},
    }


def build_notice(text: str) -> dict[str, Any]:
    """Build a message that is not an answer. Other bots ignore notices."""
    return {"msgtype": NOTICE, "body": text, "m.mentions": {}}


def build_file(
    attachment: Attachment, mxc: str, *, encrypted: Mapping[str, Any] | None = None, mark: str = ""
) -> dict[str, Any]:
    """Build the message of an uploaded file, with its key if it was encrypted."""
    return {
        "msgtype": _FILE_TYPES.get(attachment.mime.partition("/")[0], "m.file"),
        "body": mark + attachment.name,
        "filename": attachment.name,
        **({"url": mxc} if encrypted is None else {"file": {**encrypted, "url": mxc}}),
        "info": {"mimetype": attachment.mime, "size": len(attachment.body)},
        "m.mentions": {},
    }


def add_relation(content: Mapping[str, Any], target: Target, *, first: bool) -> dict[str, Any]:
    """Return the message with its thread; outside of threads, the first part replies to the message that it answers."""
    if target.thread:
        relation = {
            "rel_type": THREAD,
            "event_id": target.thread,
            "is_falling_back": True,
            "m.in_reply_to": {"event_id": target.reply_to or target.thread},
        }
    elif target.reply_to and first:
        relation = {"m.in_reply_to": {"event_id": target.reply_to}}
    else:
        return dict(content)
    return {**content, "m.relates_to": relation}


def build_edit(content: Mapping[str, Any], event: str) -> dict[str, Any]:
    """Build the edit of a message. Clients without edits show the beginning of the new text."""
    return {
        "msgtype": content["msgtype"],
        "body": f"* {content['body'][:_MAX_FALLBACK_LENGTH]}",
        "m.mentions": {},
        "m.new_content": dict(content),
        "m.relates_to": {"rel_type": REPLACE, "event_id": event},
    }
