"""Parses Feishu's events and callbacks to inbound events. Pure: names and places are looked up, and files fetched, elsewhere."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from keryx.core.deliveries import ReplyContext, Target
from keryx.core.media import UNKNOWN_MIME, RemoteFile
from keryx.core.messages import Text, text_parts
from keryx.core.ports.adapter import IdFormat, InboundDeletion, InboundMessage, InboundReaction, PlatformIds
from keryx.core.source import ChatType, Source
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.feishu.payloads import (
    CardActionEvent,
    FeishuEventHeader,
    FeishuMention,
    FeishuMessage,
    FeishuMessageEvent,
    FeishuPersonIds,
    FeishuPostContent,
    FeishuPostNode,
    FeishuReactionEvent,
    FeishuRecallEvent,
    StoredMessage,
)

PLATFORM = "feishu"
SURFACE = "gateway"
IDS = PlatformIds(
    chat=IdFormat(
        r"(oc|ou|on)_[A-Za-z0-9]{1,64}",
        "that of a chat, such as oc_a0553eda9014c201e6969b478895c230, or of a person, such as ou_84aad35d084aa403a838cf73ee18467",
    ),
    thread=IdFormat(r"omt_[A-Za-z0-9]{1,64}", "that of a thread, such as omt_d4be107c616a"),
    person=IdFormat(
        r"[A-Za-z0-9_.-]{1,64}(@[A-Za-z0-9]{1,64})?",
        "an open id such as ou_84aad35d084aa403a838cf73ee18467, a union id, on_…, or a user id with the key of its organisation",
    ),
)
PRESS_PREFIX = "/answer "
# The reply context of a direct chat: an answer there does not quote the message.
DIRECT_CONTEXT = ReplyContext("p2p")
MESSAGE_RECEIVED = "im.message.receive_v1"
MESSAGE_RECALLED = "im.message.recalled_v1"
REACTION_ADDED = "im.message.reaction.created_v1"
REACTION_REMOVED = "im.message.reaction.deleted_v1"
CARD_ACTION = "card.action.trigger"
_MENTION_PATTERN = re.compile(r"@_(?:user_\d+|all)")
_REFERENCE_PARTS = 3
_MAX_FORWARDED = 100
# The names of reactions that people use most; others are shown as `:name:`.
_EMOJI: Mapping[str, str] = {
    "THUMBSUP": "👍",
    "JIAYI": "👍",
    "ThumbsDown": "👎",
    "MinusOne": "👎",
    "OK": "👌",
    "DONE": "✅",
    "CheckMark": "✅",
    "CrossMark": "❌",
    "No": "❌",
    "HEART": "❤️",
    "FINGERHEART": "🫰",
    "APPLAUSE": "👏",
    "THANKS": "🙏",
    "MUSCLE": "💪",
    "SMILE": "🙂",
    "LAUGH": "😄",
    "LOL": "😂",
    "CRY": "😭",
    "THINKING": "🤔",
    "PARTY": "🎉",
    "Fire": "🔥",
    "Hundred": "💯",
    "ROSE": "🌹",
    "QUESTION": "❓",
}
# What cannot be shown as text or fetched as a file.
_DESCRIPTIONS: Mapping[str, Phrase] = {
    "sticker": Phrase("content.sticker"),
    "share_chat": Phrase("content.share_chat"),
    "share_user": Phrase("content.share_user"),
    "share_calendar_event": Phrase("content.calendar"),
    "calendar": Phrase("content.calendar"),
    "general_calendar": Phrase("content.calendar"),
    "interactive": Phrase("content.interactive"),
    "hongbao": Phrase("content.hongbao"),
    "todo": Phrase("content.todo"),
    "vote": Phrase("content.vote"),
    "video_chat": Phrase("content.video_chat"),
    "folder": Phrase("content.folder"),
}
_ALBUM_TYPES = frozenset({"image", "media", "file"})
_STYLE_MARKS: Mapping[str, str] = {"bold": "**", "italic": "*", "lineThrough": "~~"}


class FeishuContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the parser needs to know besides an event."""

    # The id of the app.
    account: str
    # The open id of the bot.
    me: str
    # The known names of people by open id, and of chats by id.
    names: Mapping[str, str] = {}
    # The message replies to one of ours.
    replies_to_me: bool = False


class FeishuPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message is that an event names by its id alone."""

    chat: str
    direct: bool
    thread: str = ""
    # The app has written it.
    own: bool = False


class FeishuContent(NamedTuple):
    # With the keys of mentions in it.
    text: str
    files: tuple[RemoteFile, ...] = ()
    # What stands before the text.
    heading: str = ""


def list_named_ids(event: FeishuMessageEvent) -> set[str]:
    """Return the ids of the author and of the chat, whose names the event does not tell."""
    sender = event.sender.sender_id
    found = {sender.open_id or "" if sender else ""}
    if not event.message.is_direct:
        found.add(event.message.chat_id)
    return found - {""}


def parse_message(
    event: FeishuMessageEvent, header: FeishuEventHeader, context: FeishuContext
) -> InboundMessage | None:
    """Return a message, or `None` for one of ours and for a notice of the platform."""
    message, person = event.message, find_person(event.sender.sender_id)
    if person == context.me or message.message_type == "system":
        return None
    content = parse_content(message)
    mentions = message.mentions or ()
    mentioned = any(mention.id is not None and mention.id.open_id == context.me for mention in mentions)
    text = make_readable(content.text, mentions, context)
    if not text and not content.files:
        # Nothing but a mention of Keryx.
        text = make_readable(content.text, mentions, context, keep=True)
    if not text and not content.files:
        return None
    place = FeishuPlace(chat=message.chat_id, direct=message.is_direct, thread=message.thread_id or "")
    quoted = message.parent_id or ""
    if place.thread and quoted == message.root_id:
        # Every message of a thread is a reply to its first one.
        quoted = ""
    return InboundMessage(
        event=message.message_id,
        source=_build_source(
            context,
            place,
            person=person,
            tenant=header.tenant_key,
            message=message.message_id,
            bot=event.sender.sender_type != "user",
        ),
        parts=text_parts(*filter(None, (content.heading, text))),
        surface=SURFACE,
        at=_parse_time(message.create_time),
        reply=Target(
            PLATFORM,
            context.account,
            place.chat,
            place.thread,
            reply_to=message.message_id,
            reply_context=DIRECT_CONTEXT if place.direct and not place.thread else None,
        ),
        addressed=place.direct or mentioned or context.replies_to_me,
        files=content.files,
        replies_to=quoted,
        thread_root=(message.root_id or "") if place.thread else "",
        # Each of several pictures is a message of its own.
        more=message.message_type in _ALBUM_TYPES,
        continues=message.message_type in _ALBUM_TYPES,
    )


def parse_recall(
    event: FeishuRecallEvent, header: FeishuEventHeader, place: FeishuPlace, context: FeishuContext
) -> InboundDeletion:
    return InboundDeletion(
        event=f"{event.message_id}.recalled",
        source=_build_source(context, place, person="", tenant=header.tenant_key, message=event.message_id),
        at=_parse_time(event.recall_time),
        message_event=event.message_id,
    )


def parse_reaction(
    event: FeishuReactionEvent, header: FeishuEventHeader, place: FeishuPlace, context: FeishuContext
) -> InboundReaction | None:
    """Return a reaction of a person, or `None` for that of a program."""
    person = find_person(event.user_id)
    if event.operator_type != "user" or not person or person == context.me:
        return None
    name = event.reaction_type.emoji_type
    return InboundReaction(
        event=f"reaction.{header.event_id}",
        source=_build_source(
            context, place, person=person, tenant=header.tenant_key, message=event.message_id
        ),
        at=_parse_time(event.action_time),
        message=event.message_id,
        message_event="" if place.own else event.message_id,
        reaction=_EMOJI.get(name, f":{name}:"),
        removed=header.event_type == REACTION_REMOVED,
    )


def parse_press(
    event: CardActionEvent, header: FeishuEventHeader, place: FeishuPlace, context: FeishuContext
) -> InboundMessage | None:
    """Return the press of a button as a message with the button's text; `None` for a button of another program.

    A press can be forged, so it has no more rights than a message."""
    text, person = read_press(event), find_person(event.operator)
    if not text or not person:
        return None
    return InboundMessage(
        event=f"press.{header.event_id}",
        source=_build_source(context, place, person=person, tenant=header.tenant_key, message=None),
        parts=(Text(text),),
        surface=SURFACE,
    )


def build_press(text: str) -> dict[str, str]:
    """Return what one of our buttons carries."""
    return {"keryx": text}


def read_press(event: CardActionEvent) -> str:
    """Return the text of one of our buttons; empty for any other."""
    match event.action.value:
        case {"keryx": str(text)} if text.startswith(PRESS_PREFIX):
            return text
        case _:
            return ""


def find_person(ids: FeishuPersonIds | None) -> str:
    """Return the id of a person; empty if there is none."""
    return (ids.open_id or ids.union_id or ids.user_id or "") if ids else ""


def list_aliases(ids: FeishuPersonIds | None, tenant: str) -> list[str]:
    """Return the other ids of a person. A user id is unique within its organisation only, so it gets the organisation's key."""
    if ids is None:
        return []
    user_id = f"{ids.user_id}@{tenant}" if ids.user_id and tenant else ""
    return [id_ for id_ in (ids.union_id, user_id) if id_ and id_ != find_person(ids)]


def parse_content(message: FeishuMessage) -> FeishuContent:
    """Return the text and the files of a message. What cannot be read is described."""
    kind = message.message_type
    if kind in _DESCRIPTIONS:
        return FeishuContent(_DESCRIPTIONS[kind])
    try:
        content = msgspec.json.decode(message.content, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        content = {}
    match kind:
        case "text":
            return FeishuContent(_read_text(content, "text"))
        case "post":
            return _parse_post(message.message_id, content)
        case "image":
            return _parse_file(message.message_id, _read_text(content, "image_key"), "image", "image")
        case "file" | "audio" | "media":
            default = {"file": "file", "audio": "voice message", "media": "video"}[kind]
            name = _read_text(content, "file_name") or default
            return _parse_file(message.message_id, _read_text(content, "file_key"), "file", name)
        case "location":
            place = ", ".join(
                filter(None, (_read_text(content, name) for name in ("name", "latitude", "longitude")))
            )
            known = Phrase("content.place", place=place)
            return FeishuContent(known if place else Phrase("content.place_unknown"))
        case "merge_forward":
            # The receiver has fetched what was forwarded, or it is not known.
            text = _read_text(content, "text")
            if not text:
                return FeishuContent(Phrase("content.merge_forward"))
            return FeishuContent(text, heading=Phrase("content.forwarded_messages"))
        case _:
            return FeishuContent(Phrase("content.kind", kind=kind[:40]))


def describe_forwarded(messages: Sequence[StoredMessage], names: Mapping[str, str]) -> str:
    """Return forwarded messages as one text, each with its author. Their files cannot be fetched, so they are named."""
    lines: list[str] = []
    for message in messages[:_MAX_FORWARDED]:
        found = parse_content(
            FeishuMessage(
                message_id=message.message_id,
                chat_id=message.chat_id,
                message_type=message.msg_type,
                content=message.body.content,
            )
        )
        known = {mention.key: mention.name for mention in message.mentions or ()}
        text = _MENTION_PATTERN.sub(
            lambda key, known=known: f"@{known.get(key[0]) or key[0][1:]}", found.text
        )
        files = " ".join(file.placeholder for file in found.files)
        author = names.get(message.sender.id) or message.sender.id or "somebody"
        lines.append(f"{author}: {' '.join(filter(None, (text, files)))}")
    if len(messages) > _MAX_FORWARDED:
        lines.append(f"[{len(messages) - _MAX_FORWARDED} more]")
    return "\n".join(lines)


def make_readable(
    text: str, mentions: Sequence[FeishuMention], context: FeishuContext, *, keep: bool = False
) -> str:
    """Return a text with names instead of the keys of mentions, and without a mention of Keryx at its beginning, unless that
    is to be kept."""
    if isinstance(text, Phrase):
        return text
    own = {m.key for m in mentions if m.id is not None and m.id.open_id == context.me and m.key}
    stripped = text.lstrip()
    while not keep and (found := _MENTION_PATTERN.match(stripped)) and found[0] in own:
        stripped = stripped[found.end() :].lstrip(" \t\n,:;，：；、")
    names = {mention.key: mention.name for mention in mentions if mention.name}
    names["@_all"] = "all"
    return _MENTION_PATTERN.sub(lambda found: f"@{names.get(found[0], found[0][1:])}", stripped).strip()


def format_reference(message: str, key: str, kind: str) -> str:
    return f"{message} {kind} {key}"


def parse_reference(reference: str) -> tuple[str, str, str] | None:
    """Return the message, the key and the kind of a file; `None` for a text that names none."""
    found = reference.split(" ", _REFERENCE_PARTS - 1)
    return (found[0], found[2], found[1]) if len(found) == _REFERENCE_PARTS else None


def _read_text(content: Mapping[str, object], name: str) -> str:
    found = content.get(name)
    return found if isinstance(found, str) else ""


def _parse_file(message: str, key: str, kind: str, name: str) -> FeishuContent:
    if not key:
        return FeishuContent(Phrase("content.file_unavailable", name=name))
    file = RemoteFile(reference=format_reference(message, key, kind), name=name, mime=UNKNOWN_MIME)
    return FeishuContent("", (file,))


def _parse_post(message: str, content: Mapping[str, object]) -> FeishuContent:
    post = _find_post(content)
    if post is None:
        return FeishuContent(Phrase("content.rich_text"))
    files: list[RemoteFile] = []
    paragraphs: list[str] = [f"**{post.title}**"] if post.title else []
    for paragraph in post.content:
        texts: list[str] = []
        for node in paragraph:
            if node.tag in ("img", "media"):
                kind, key = ("image", node.image_key) if node.tag == "img" else ("file", node.file_key)
                name = node.file_name or ("image" if kind == "image" else "video")
                files += _parse_file(message, key, kind, name).files
            else:
                texts.append(_describe_node(node))
        paragraphs.append("".join(texts))
    return FeishuContent("\n".join(paragraphs).strip(), tuple(files))


def _find_post(content: Mapping[str, object]) -> FeishuPostContent | None:
    """Return the rich text, which may be wrapped in the name of a language."""
    for candidate in (content,) if "content" in content else content.values():
        try:
            return msgspec.convert(candidate, FeishuPostContent)
        except msgspec.ValidationError:
            continue
    return None


def _describe_node(node: FeishuPostNode) -> str:
    match node.tag:
        case "a":
            return f"[{node.text or node.href}]({node.href})" if node.href else node.text
        case "at":
            return "@_all" if node.user_id in ("all", "@_all") else node.user_id or f"@{node.user_name}"
        case "emotion":
            return _EMOJI.get(node.emoji_type, f":{node.emoji_type}:")
        case "code_block":
            return f"\n```{node.language.lower()}\n{node.text.rstrip()}\n```\n"
        case "hr":
            return "\n---\n"
        case _:
            inner = node.text.strip()
            marks = [mark for style, mark in _STYLE_MARKS.items() if style in (node.style or ())]
            if not inner or not marks:
                return node.text
            # White space at the ends stays outside, or it would not be markup.
            start = node.text.index(inner)
            head, tail = node.text[:start], node.text[start + len(inner) :]
            return f"{head}{''.join(marks)}{inner}{''.join(reversed(marks))}{tail}"


def _build_source(
    context: FeishuContext,
    place: FeishuPlace,
    *,
    person: str,
    tenant: str,
    message: str | None,
    bot: bool = False,
) -> Source:
    kind = ChatType.DM if place.direct else ChatType.THREAD if place.thread else ChatType.GROUP
    return Source(
        platform=PLATFORM,
        account=context.account,
        chat=place.chat,
        chat_name=None if place.direct else context.names.get(place.chat) or None,
        chat_type=kind,
        user=person or None,
        user_name=context.names.get(person) or None,
        thread=place.thread or None,
        bot=bot,
        scope=tenant or None,
        message=message,
    )


def _parse_time(at: str | int) -> datetime | None:
    """Return a time in milliseconds, if it is one."""
    try:
        return datetime.fromtimestamp(int(at) / 1000, UTC) if at else None
    except (ValueError, OverflowError, OSError):
        return None
