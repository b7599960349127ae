"""Parses Slack's events, button presses and slash commands to inbound events. Pure: names are looked up and files fetched elsewhere."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime

import msgspec

from keryx.core.deliveries import ReplyContext, Target
from keryx.core.media import UNKNOWN_MIME, RemoteFile
from keryx.core.messages import Text, text_parts
from keryx.core.ports.adapter import IdFormat, InboundDeletion, InboundMessage, InboundReaction, PlatformIds
from keryx.core.source import ChatType, Source
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.slack.payloads import (
    ButtonPress,
    CommandInvocation,
    SlackEvent,
    SlackFile,
    SlackIdentity,
    SlackMessage,
)

PLATFORM = "slack"
SURFACE = "gateway"
IDS = PlatformIds(
    chat=IdFormat(r"[CDG][A-Z0-9]{2,30}", "that of a channel or direct chat, such as C024BE91L, not a #name"),
    thread=IdFormat(r"\d{1,12}\.\d{6}", "the ts of its first message, such as 1721609600.123456"),
    person=IdFormat(r"[UWB][A-Z0-9]{2,30}", "that of a member, such as U023BECGF, not a @name"),
)
# The value of each of our buttons begins with this.
PRESS_PREFIX = "/answer "
MESSAGE_TYPES = frozenset({"message", "app_mention"})
REACTION_TYPES = frozenset({"reaction_added", "reaction_removed"})
_DIRECT_PREFIX = "D"
# Messages of people and bots; all other subtypes report what happened to a channel.
_CONTENT_SUBTYPES = frozenset({None, "file_share", "thread_broadcast", "me_message", "bot_message"})
_COMMAND_PATTERN = re.compile(r"[!/]([A-Za-z][\w-]*)(?=\s|\Z)")
_TOKEN_PATTERN = re.compile(r"<([^<>\n]+)>")
_USER_PATTERN = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_CHANNEL_PATTERN = re.compile(r"<#([CG][A-Z0-9]+)(?:\|([^<>]*))?>")
_SKIN_TONE = re.compile(r"::skin-tone-\d\Z")
# The names of reactions that people use most; others are shown as `:name:`.
_EMOJI: Mapping[str, str] = {
    "+1": "👍",
    "thumbsup": "👍",
    "-1": "👎",
    "thumbsdown": "👎",
    "heart": "❤️",
    "tada": "🎉",
    "eyes": "👀",
    "fire": "🔥",
    "rocket": "🚀",
    "clap": "👏",
    "pray": "🙏",
    "raised_hands": "🙌",
    "ok_hand": "👌",
    "wave": "👋",
    "100": "💯",
    "joy": "😂",
    "smile": "😄",
    "slightly_smiling_face": "🙂",
    "thinking_face": "🤔",
    "cry": "😢",
    "white_check_mark": "✅",
    "heavy_check_mark": "✔️",
    "x": "❌",
    "warning": "⚠️",
    "question": "❓",
}


class SlackContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the parser needs to know about the workspace."""

    account: str
    me: SlackIdentity
    # The commands of Keryx.
    commands: AbstractSet[str] = frozenset()
    # The known names of people and channels by id.
    names: Mapping[str, str] = {}
    # The languages of people by id.
    languages: Mapping[str, str] = {}
    # A message of a channel is answered in a thread of its own.
    reply_in_threads: bool = True
    # An edit changes a message that began a thread with Keryx.
    began_thread: bool = False


def find_named_ids(event: SlackEvent) -> set[str]:
    """Return the ids of people and channels whose names a message needs: its author, its channel, and who is mentioned."""
    message = event.message or event.previous_message or event
    found = {message.user, event.user, event.channel, event.item.channel if event.item else ""}
    text = message.text or ""
    found |= set(_USER_PATTERN.findall(text))
    found |= {id_ for id_, name in _CHANNEL_PATTERN.findall(text) if not name}
    return {id_ for id_ in found if id_}


def find_thread(event: SlackEvent) -> str:
    """Return the thread that a message was written in, or "" for a message that may begin one."""
    message = event.message or event.previous_message or event
    # The first message of a thread gets this field with its first reply.
    return message.thread_ts if message.thread_ts and message.thread_ts != message.ts else ""


def is_own(message: SlackMessage, me: SlackIdentity) -> bool:
    return message.user == me.user_id or (bool(message.bot_id) and message.bot_id == me.bot_id)


def parse_message(event: SlackEvent, context: SlackContext) -> InboundMessage | InboundDeletion | None:
    """Return the message, edit or deletion that an event tells, or `None` for one that says nothing to Keryx."""
    match event.subtype:
        case "message_deleted":
            return _parse_deletion(event, event.deleted_ts, context)
        case "message_changed" if event.message is not None and event.message.subtype == "tombstone":
            # A message with a thread stays as a stub when it is deleted.
            return _parse_deletion(event, event.message.ts, context)
        case "message_changed":
            # The edit of a person. Slack reports links that it shows, and threads that begin, as changes too.
            message, earlier = event.message, event.previous_message
            if message is None or message.edited is None:
                return None
            if earlier is not None and (earlier.text, earlier.edited) == (message.text, message.edited):
                return None
            parsed = _parse_content(event, message, context)
            if parsed is None:
                return None
            return msgspec.structs.replace(
                parsed,
                # `edited.ts` counts whole seconds; the time of the event is unique in its channel, and a repetition has the same.
                event=f"{parsed.event}.edit.{event.event_ts or event.ts}",
                at=_parse_ts(message.edited.ts),
                edits=message.ts,
            )
        case _ if event.subtype in _CONTENT_SUBTYPES:
            return _parse_content(event, event, context)
        case _:
            return None


def parse_reaction(event: SlackEvent, context: SlackContext, thread: str = "") -> InboundReaction | None:
    """Return a reaction to a message, or `None` for one to something else and for our own. `thread` is that of the message."""
    item = event.item
    if item is None or item.type != "message" or not item.ts or event.user == context.me.user_id:
        return None
    name = _SKIN_TONE.sub("", event.reaction)
    by_us = event.item_user == context.me.user_id
    return InboundReaction(
        event=f"{item.channel}.{item.ts}.{event.type}.{name}.{event.user}.{event.event_ts}",
        source=_build_source(
            context, channel=item.channel, user=event.user, thread=thread or None, message=item.ts
        ),
        at=_parse_ts(event.event_ts),
        message=item.ts,
        message_event="" if by_us else _name_event(item.channel, item.ts),
        reaction=_EMOJI.get(name, f":{name}:"),
        removed=event.type == "reaction_removed",
    )


def parse_press(press: ButtonPress, context: SlackContext) -> InboundMessage | None:
    """Parse the press of a button as a message with the button's value; `None` for a button of another program.

    A press can be forged, so it has no more rights than a message."""
    if press.channel is None or press.message is None or not press.actions:
        return None
    action, message = press.actions[0], press.message
    if not action.value.startswith(PRESS_PREFIX):
        return None
    thread = message.thread_ts if message.thread_ts != message.ts else None
    source = _build_source(
        context,
        channel=press.channel.id,
        user=press.user.id,
        thread=thread,
        message=None,
        name=press.user.name or press.user.username,
    )
    return InboundMessage(
        event=f"press.{press.channel.id}.{message.ts}.{press.user.id}.{action.action_ts}",
        source=source,
        parts=(Text(action.value),),
        surface=SURFACE,
    )


def parse_command(command: CommandInvocation, context: SlackContext) -> InboundMessage:
    """Parse `/keryx new` as the command `/new`, and other words after `/keryx` as a question. Slack has no slash commands
    in threads."""
    text = command.text.strip()
    name = text.partition(" ")[0].lstrip("/!").lower()
    if not text:
        text = "/help"
    elif name in context.commands:
        text = f"/{text.lstrip('/!')}"
    source = _build_source(
        context,
        channel=command.channel_id,
        user=command.user_id,
        thread=None,
        message=None,
        name=command.user_name,
        chat_name=command.channel_name if not _is_direct(command.channel_id) else "",
    )
    return InboundMessage(
        event=f"command.{command.trigger_id}",
        source=source,
        parts=(Text(make_readable(text, context)),),
        surface=SURFACE,
        reply=_build_target(context, source, team=command.team_id),
    )


def make_readable(text: str, context: SlackContext) -> str:
    """Return a text of Slack as Markdown, with names instead of ids."""

    def replace(found: re.Match[str]) -> str:
        body, _, label = found[1].partition("|")
        match body[:1]:
            case "@":
                return f"@{context.names.get(body[1:]) or label.lstrip('@') or body[1:]}"
            case "#":
                return f"#{label or context.names.get(body[1:]) or body[1:]}"
            case "!":
                return label or f"@{body[1:].partition('^')[0]}"
            case _ if not label or label in body:
                return label or body
            case _:
                return f"[{label}]({body})"

    readable = _TOKEN_PATTERN.sub(replace, text)
    return readable.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _parse_deletion(event: SlackEvent, ts: str, context: SlackContext) -> InboundDeletion | None:
    earlier = event.previous_message
    if not ts or (earlier is not None and is_own(earlier, context.me)):
        return None
    return InboundDeletion(
        event=f"{_name_event(event.channel, ts)}.deleted",
        source=_build_source(
            context,
            channel=event.channel,
            user=earlier.user if earlier else None,
            thread=find_thread(event) or None,
            message=ts,
        ),
        at=_parse_ts(event.event_ts or event.ts),
        message_event=_name_event(event.channel, ts),
    )


def _parse_content(event: SlackEvent, message: SlackMessage, context: SlackContext) -> InboundMessage | None:
    if is_own(message, context.me) or not message.ts or not event.channel:
        return None
    raw = message.text or ""
    mention = f"<@{context.me.user_id}"
    mentioned = f"{mention}>" in raw or f"{mention}|" in raw
    texts = _extract_texts(raw, message, context)
    forwarded = [attachment for attachment in message.attachments if attachment.forwarded]
    files = tuple(map(_describe_file, (*message.files, *(file for a in forwarded for file in a.files))))
    if not texts and not files:
        return None
    direct, root = _is_direct(event.channel), find_thread(event)
    addressed, thread = direct or mentioned or context.began_thread, root
    if not thread and not direct and context.reply_in_threads and addressed:
        thread = message.ts
    bot = message.subtype == "bot_message" or bool(message.bot_id)
    source = _build_source(
        context,
        channel=event.channel,
        user=message.user or message.bot_id,
        thread=thread or None,
        message=message.ts,
        name=message.username or "",
        bot=bot,
    )
    return InboundMessage(
        event=_name_event(event.channel, message.ts),
        source=source,
        parts=text_parts(*texts),
        surface=SURFACE,
        at=_parse_ts(message.ts),
        reply=_build_target(
            context, source, reply_to=message.ts, team=message.user_team or message.team or ""
        ),
        addressed=addressed,
        thread_root=root,
        files=files,
    )


def _extract_texts(raw: str, message: SlackMessage, context: SlackContext) -> list[str]:
    """Return the readable text without a mention of Keryx at its beginning, and with a command by its name in Keryx. The
    messages that it forwards follow; if it has no text of its own, everything that it shows."""
    stripped = re.sub(rf"\A\s*<@{re.escape(context.me.user_id)}(?:\|[^<>]*)?>[\s,:;]*", "", raw)
    text = make_readable(stripped or raw, context).strip()
    texts = [text] if text else []
    for attachment in message.attachments:
        shown = make_readable(attachment.text or attachment.fallback or "", context).strip()
        if attachment.forwarded:
            author = " ".join((attachment.author_name or "").split())
            named = Phrase("content.forwarded_from", name=author)
            texts += [named if author else Phrase("content.forwarded"), *([shown] if shown else [])]
        elif not text and shown:
            texts.append(shown)
    first = texts[0] if texts and not isinstance(texts[0], Phrase) else ""
    if message.subtype == "me_message":
        name = context.names.get(message.user or "", message.user or "")
        return [f"* {name} {first}".rstrip(), *(texts[1:] if first else texts)]
    # Slack takes a message that begins with a slash for itself, so people write `!new`.
    command = _COMMAND_PATTERN.match(first)
    if command and command[1].lower() in context.commands:
        return [f"/{first[1:]}", *texts[1:]]
    return texts


def _describe_file(file: SlackFile) -> RemoteFile:
    return RemoteFile(
        reference=file.id,
        name=file.name or file.title or "file",
        mime=file.mimetype or UNKNOWN_MIME,
        size=file.size,
    )


def _build_source(
    context: SlackContext,
    *,
    channel: str,
    user: str | None,
    thread: str | None,
    message: str | None,
    name: str = "",
    chat_name: str = "",
    bot: bool = False,
) -> Source:
    # An event does not always say what kind of channel it comes from, so all of them are of one type: a lane must not
    # depend on the event.
    kind = ChatType.DM if _is_direct(channel) else ChatType.THREAD if thread else ChatType.CHANNEL
    return Source(
        platform=PLATFORM,
        account=context.account,
        chat=channel,
        chat_name=context.names.get(channel) or chat_name or None,
        chat_type=kind,
        user=user or None,
        user_name=context.names.get(user or "") or name or None,
        thread=thread,
        bot=bot,
        scope=context.me.team_id,
        message=message,
        language=context.languages.get(user or "") or None,
    )


def _build_target(context: SlackContext, source: Source, *, team: str, reply_to: str = "") -> Target:
    """Return where the answer goes. A stream in a channel needs the person who asked, and their workspace."""
    streams = source.chat_type is ChatType.THREAD and source.user is not None and not source.bot
    return Target(
        PLATFORM,
        context.account,
        source.chat or "",
        source.thread or "",
        reply_to=reply_to,
        reply_context=ReplyContext(f"{source.user} {team or context.me.team_id}") if streams else None,
    )


def _name_event(channel: str, ts: str) -> str:
    """Name a message by its channel and time: Slack reports a mention by two events with ids of their own."""
    return f"{channel}.{ts}"


def _is_direct(channel: str) -> bool:
    return channel.startswith(_DIRECT_PREFIX)


def _parse_ts(ts: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(ts), UTC) if ts else None
    except (ValueError, OverflowError, OSError):
        return None
