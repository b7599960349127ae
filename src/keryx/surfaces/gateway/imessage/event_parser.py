"""Parses the rows of Messages, as `imsg` or BlueBubbles hands them over, to inbound events. Pure: files are named here and fetched elsewhere."""

import re
from collections.abc import Container, Mapping
from datetime import UTC, datetime

import msgspec

from keryx.core.deliveries import ReplyContext, Target
from keryx.core.media import RemoteFile, may_have_siblings
from keryx.core.messages import text_parts
from keryx.core.ports.adapter import (
    IdFormat,
    InboundDeletion,
    InboundEvent,
    InboundFailure,
    InboundMessage,
    InboundReaction,
    PlatformIds,
)
from keryx.core.source import ChatType, Source
from keryx.jsonrpc import as_object, as_objects, as_text
from keryx.surfaces.gateway.imessage.payloads import BlueBubblesMessage, ImsgMessage

PLATFORM = "imessage"
SURFACE = "gateway"
GROUP_MARK = ";+;"
DIRECT_MARK = ";-;"
# Stands in a text where a file is.
_FILE_CHARACTER = "\ufffc"
_PERSON = r"\+[1-9]\d{4,14}|\d{3,15}|[^\s@;]{1,200}@[^\s@;]{1,200}|urn:biz:[\w-]{1,100}"
IDS = PlatformIds(
    chat=IdFormat(
        rf"{_PERSON}|\w{{1,20}};\+;[^\s;]{{1,200}}",
        "a telephone number such as +15551234567, an e-mail address, or the GUID of a group such as iMessage;+;chat123",
    ),
    person=IdFormat(_PERSON, "a telephone number such as +15551234567, or an e-mail address"),
)
_TAPBACKS = {
    "love": "❤️",
    "like": "👍",
    "dislike": "👎",
    "laugh": "😂",
    "emphasis": "‼️",
    "emphasize": "‼️",
    "question": "❓",
}
# How BlueBubbles names a tapback with any emoji, and the text of its row.
_EMOJI_TAPBACKS = {"2006": False, "3006": True}
_EMOJI_TEXT = re.compile(r"(?:Reacted|Removed an?) (\S+)")
# The part of a message that a tapback is at: `p:0/` for a text or file, `bp:` for a balloon of an app.
_PART_PREFIX = re.compile(r"(?:p:\d+/|bp:)")
_PHONE = re.compile(r"\+?[\d\s().\-\u00a0]+", re.ASCII)
_MENTION = "__kIMMentionConfirmedMention"
_GROUP_STYLE = 43
# What Messages says about a person who has no iMessage.
_NOT_REGISTERED = 22


class MessageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table of messages."""

    row: int
    guid: str
    chat_guid: str
    chat_name: str = ""
    in_group: bool = False
    # Canonical.
    sender: str = ""
    sender_name: str = ""
    from_me: bool = False
    text: str = ""
    at: datetime | None = None
    files: tuple[RemoteFile, ...] = ()
    # The message that this one replies to, and its text if it is told.
    replies_to: str = ""
    quote: str = ""
    # Of a tapback: an emoji, whether it is taken back, and the message that it is at.
    reaction: str = ""
    reaction_removed: bool = False
    reacts_to: str = ""
    # When it was changed, in milliseconds since 1970; 0 if it was not.
    edited_at: int = 0
    # The person has taken it back.
    retracted: bool = False
    # The people who are mentioned, canonical.
    mentions: tuple[str, ...] = ()
    # The code of the error if Messages could not deliver it; 0 otherwise.
    error: int = 0


class IMessageIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who receives."""

    account: str = ""
    # The addresses that Messages is signed in with, as far as they are known.
    handles: frozenset[str] = frozenset()
    # In groups, a message with one of these names is meant for the agent.
    names: tuple[str, ...] = ()


def normalize_handle(text: str) -> str:
    """Return a telephone number as `+` and digits, a short number as digits, an e-mail address in lower case, and anything
    else as it is. Idempotent."""
    address = text.strip().rpartition(DIRECT_MARK)[2]
    for scheme in ("tel:", "mailto:", "sms:"):
        address = address.removeprefix(scheme)
    if _PHONE.fullmatch(address):
        digits = re.sub(r"\D", "", address, flags=re.ASCII)
        return f"+{digits}" if address.startswith("+") and digits else digits or address
    return address.lower() if "@" in address else address


def read_imsg(message: ImsgMessage) -> MessageRow:
    """Return the row that `imsg` hands over."""
    in_group = message.is_group or GROUP_MARK in message.chat_guid
    sender = message.sender or ("" if in_group else message.chat_identifier)
    return MessageRow(
        row=message.id,
        guid=message.guid,
        chat_guid=message.chat_guid or message.chat_identifier,
        chat_name=message.chat_name if in_group else "",
        in_group=in_group,
        sender=normalize_handle(sender),
        sender_name=message.sender_name or "",
        from_me=message.is_from_me,
        text=_clean_text(message.text),
        at=message.at,
        files=tuple(
            RemoteFile(
                reference=file.original_path,
                name=file.transfer_name or file.filename.rpartition("/")[2] or "file",
                mime=file.mime_type,
                size=max(0, file.total_bytes),
            )
            for file in message.attachments
            if file.original_path
        ),
        replies_to=message.thread_originator_guid or message.reply_to_guid or "",
        quote=_clean_text(message.reply_to_text or ""),
        reaction=_TAPBACKS.get(message.reaction_type or "", message.reaction_emoji or "")
        if message.is_reaction
        else "",
        reaction_removed=message.is_reaction_add is False,
        reacts_to=_strip_part(message.reacted_to_guid or ""),
    )


def read_bluebubbles(message: BlueBubblesMessage, names: Mapping[str, str]) -> MessageRow:
    """Return the row that BlueBubbles hands over. `names` has those of the contacts by handle."""
    chat = message.chats[0] if message.chats else None
    guid = chat.guid if chat else ""
    in_group = GROUP_MARK in guid or (chat is not None and chat.style == _GROUP_STYLE)
    address = message.handle.address if message.handle else ""
    sender = normalize_handle(address or ("" if in_group else guid))
    text = "\n".join(filter(None, (message.subject, _clean_text(message.text or ""))))
    reaction, removed = _read_tapback(message)
    files = tuple(
        RemoteFile(
            reference=file.guid,
            name=file.transfer_name or "file",
            mime=file.mime_type or "",
            size=max(0, file.total_bytes or 0),
        )
        for file in message.attachments
        if not file.hide_attachment
    )
    edited = message.date_edited or 0
    runs = [run for body in as_objects(message.attributed_body) for run in as_objects(body.get("runs"))]
    handles = (as_text(as_object(run.get("attributes")).get(_MENTION)) for run in runs)
    return MessageRow(
        row=message.row,
        guid=message.guid,
        chat_guid=guid,
        chat_name=(chat.display_name or "") if chat and in_group else "",
        in_group=in_group,
        sender=sender,
        sender_name=names.get(sender, ""),
        from_me=message.is_from_me,
        text="" if message.item_type else text,
        at=datetime.fromtimestamp(message.date_created / 1000, UTC) if message.date_created else None,
        files=() if message.item_type else files,
        replies_to=_strip_part(message.thread_originator_guid or ""),
        reaction=reaction,
        reaction_removed=removed,
        reacts_to=_strip_part(message.associated_message_guid or "") if reaction else "",
        edited_at=edited,
        # Messages empties a text that is taken back, and does not always note when.
        retracted=bool(message.date_retracted) or bool(edited and not text and not files),
        mentions=tuple(normalize_handle(handle) for handle in handles if handle),
        error=message.error,
    )


def parse_row(row: MessageRow, me: IMessageIdentity, own_guids: Container[str] = ()) -> InboundEvent | None:
    """Return what a row says for the first time: a message or a tapback. `None` for what Keryx sent itself, for news of a
    group, and for what was taken back before it was read. `own_guids` has messages of the agent."""
    if row.from_me or not row.sender or not row.chat_guid:
        return None
    if row.reaction:
        return InboundReaction(
            event=row.guid,
            source=_build_source(row, me, message=None),
            at=row.at,
            message=row.reacts_to,
            message_event=row.reacts_to,
            reaction=row.reaction,
            removed=row.reaction_removed,
        )
    if row.retracted or not (row.text or row.files):
        return None
    return _build_message(row, me, own_guids)


def parse_update(
    row: MessageRow, me: IMessageIdentity, own_guids: Container[str] = ()
) -> InboundEvent | None:
    """Return the change of a message that was read before: an edit or a deletion. `None` if it was not changed."""
    if row.from_me or not row.sender or not row.chat_guid or row.reaction:
        return None
    if row.retracted:
        return InboundDeletion(
            event=f"{row.guid}.retracted", source=_build_source(row, me), message_event=row.guid
        )
    if not row.edited_at or not (row.text or row.files):
        return None
    message = _build_message(row, me, own_guids)
    return msgspec.structs.replace(
        message,
        event=f"{row.guid}.edited.{row.edited_at}",
        at=datetime.fromtimestamp(row.edited_at / 1000, UTC),
        edits=row.guid,
        files=(),
    )


def parse_failure(row: MessageRow, me: IMessageIdentity) -> InboundFailure | None:
    """Return that Messages has not delivered a message of the agent; `None` for any other row."""
    if not row.from_me or not row.error or not row.chat_guid:
        return None
    return InboundFailure(
        event=f"{row.guid}.failed",
        source=_build_source(row, me),
        message=row.guid,
        reason=describe_error(row.error),
        gone=row.error == _NOT_REGISTERED,
    )


def describe_error(code: int, text: str = "it is not delivered") -> str:
    """Return a sentence about an error of Messages, which has told a text about it, or not."""
    why = "the person has no iMessage" if code == _NOT_REGISTERED else text
    return f"Messages could not send it: {why} (error {code})"


def get_chat(row: MessageRow) -> str:
    """Return the id of the chat: the handle of the person, so that iMessage and SMS are one chat, or the GUID of a group."""
    return row.chat_guid if row.in_group else row.sender


def _build_message(row: MessageRow, me: IMessageIdentity, own_guids: Container[str]) -> InboundMessage:
    addressed = (
        not row.in_group
        or row.text.startswith("/")
        or row.replies_to in own_guids
        or any(mention in me.handles for mention in row.mentions)
        or any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", row.text, re.IGNORECASE) for name in me.names)
    )
    return InboundMessage(
        event=row.guid,
        source=_build_source(row, me),
        at=row.at,
        parts=text_parts(row.text) if row.text else (),
        surface=SURFACE,
        # The GUID of the chat says whether the person used iMessage or SMS.
        reply=Target(
            PLATFORM,
            me.account,
            chat=get_chat(row),
            reply_to=row.guid,
            reply_context=ReplyContext(token=row.chat_guid),
        ),
        addressed=addressed,
        quote=row.quote,
        replies_to=row.replies_to,
        files=row.files,
        # Messages may split pictures, and the text with them, into messages of their own.
        more=may_have_siblings(row.files),
        continues=may_have_siblings(row.files),
    )


def _build_source(row: MessageRow, me: IMessageIdentity, message: str | None = "") -> Source:
    return Source(
        platform=PLATFORM,
        account=me.account,
        chat=get_chat(row),
        chat_name=row.chat_name or None,
        chat_type=ChatType.GROUP if row.in_group else ChatType.DM,
        user=row.sender,
        user_name=row.sender_name or None,
        message=row.guid if message is not None else None,
    )


def _read_tapback(message: BlueBubblesMessage) -> tuple[str, bool]:
    """Return the emoji of a tapback and whether it is taken back; an empty text for any other row."""
    kind = message.associated_message_type or ""
    if kind in _EMOJI_TAPBACKS:
        found = _EMOJI_TEXT.match(message.text or "")
        return (found[1] if found else "", _EMOJI_TAPBACKS[kind])
    return _TAPBACKS.get(kind.removeprefix("-"), ""), kind.startswith("-")


def _clean_text(text: str) -> str:
    return text.replace(_FILE_CHARACTER, "").strip()


def _strip_part(guid: str) -> str:
    return _PART_PREFIX.sub("", guid, count=1)
