"""Parses the envelopes of signal-cli to inbound events. Pure: files are named here and fetched elsewhere."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from keryx.core.deliveries import Target
from keryx.core.errors import Invalid
from keryx.core.media import RemoteFile
from keryx.core.messages import text_parts
from keryx.core.ports.adapter import (
    IdFormat,
    InboundDeletion,
    InboundEvent,
    InboundMessage,
    InboundReaction,
    PlatformIds,
)
from keryx.core.source import ChatType, Source
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.signal.payloads import (
    SignalDataMessage,
    SignalEdit,
    SignalEnvelope,
    SignalMention,
    SignalQuote,
)

PLATFORM = "signal"
SURFACE = "gateway"
NUMBER_PATTERN = re.compile(r"\+[1-9]\d{4,14}", re.ASCII)
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# 32 bytes in base64, or 16 for groups that were made before 2021.
GROUP_PATTERN = re.compile(r"[A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{22}==", re.ASCII)
_WORDS = "a telephone number, such as +15550002222, or an id such as 8a2f3c1e-5b7d-4e90-a1c2-d3e4f5061728"
IDS = PlatformIds(
    chat=IdFormat(
        rf"{NUMBER_PATTERN.pattern}|{_UUID}|{GROUP_PATTERN.pattern}",
        f"{_WORDS}, or that of a group in base64",
    ),
    person=IdFormat(rf"{NUMBER_PATTERN.pattern}|{_UUID}", _WORDS),
)
_MESSAGE_ID = re.compile(r"(?:(.+)\.)?(\d{1,15})", re.ASCII)
# Stands for a mention in a text.
_MENTION_MARK = "\ufffc"
_LONG_TEXT = "text/x-signal-plain"
_EXTENSIONS = {
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "audio/aac": ".aac",
    "audio/mpeg": ".mp3",
    "audio/mp4": ".m4a",
    "audio/ogg": ".ogg",
    "video/mp4": ".mp4",
    "application/pdf": ".pdf",
    "text/plain": ".txt",
}


class SignalIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The account that receives. Its uuid is known after the first message of another of its devices."""

    number: str
    uuid: str = ""

    def is_me(self, number: str | None, uuid: str | None) -> bool:
        return number == self.number or bool(self.uuid and uuid and uuid.lower() == self.uuid)

    def name_person(self, number: str | None, uuid: str | None) -> str:
        """Return the id of a person: their uuid, or their number if there is none. That of this account is its number."""
        return self.number if self.is_me(number, uuid) else (uuid or "").lower() or number or ""


class ParsedEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """What one envelope says."""

    inbound: InboundEvent
    # The number of an author who is known by their uuid.
    alias: str = ""
    # The id of the new version of a message that was edited, and of the version before it.
    revision: str = ""
    revises: str = ""


def format_message(author: str, sent_at: int) -> str:
    """Return the id of a message. One of this account has no author."""
    return f"{author}.{sent_at}" if author else str(sent_at)


def parse_message(id_: str) -> tuple[str, int]:
    """Return the author and the time that `format_message` wrote. Raise `Invalid` for anything else."""
    found = _MESSAGE_ID.fullmatch(id_)
    if found is None:
        raise Invalid(f"{id_[:80]!r} is no id of a message on Signal")
    return found[1] or "", int(found[2])


def parse_envelope(
    envelope: SignalEnvelope, me: SignalIdentity, names: Mapping[str, str] | None = None
) -> ParsedEnvelope | None:
    """Return what an envelope says, or `None` for one that says nothing to this account: receipts, typing, calls, changes
    of a group, and what other devices of the account have sent to others. `names` are those of people by their ids."""
    data, edit = envelope.data_message, envelope.edit_message
    person = me.name_person(envelope.source_number, envelope.source_uuid)
    sent = envelope.sync_message.sent_message if envelope.sync_message else None
    if sent is not None:
        # Only a note to self is meant for Keryx. Everything else is what the person has written to others.
        if sent.group_info is not None or not me.is_me(sent.destination_number, sent.destination_uuid):
            return None
        data, edit, person = sent, sent.edit_message, me.number
    elif person == me.number:
        return None
    if edit is not None:
        data = edit.data_message
    if data is None or not person:
        return None
    group = data.group_info
    if group is not None and group.type == "UPDATE":
        return None
    # The time of a message identifies it; that of the envelope is the same, and older versions leave one out.
    sent_at = data.timestamp or envelope.timestamp
    source = Source(
        platform=PLATFORM,
        account=me.number,
        chat=group.group_id if group else person,
        chat_name=(group.group_name or None) if group else None,
        chat_type=ChatType.GROUP if group else ChatType.DM,
        user=person,
        user_name=envelope.source_name or None,
        message=format_message(person, sent_at),
    )
    inbound = _parse_data(data, edit, source, sent_at, me, names or {})
    if inbound is None:
        return None
    number = envelope.source_number or ""
    edited = edit is not None and isinstance(inbound, InboundMessage)
    return ParsedEnvelope(
        inbound=inbound,
        alias=number if number != person else "",
        revision=inbound.event if edited else "",
        revises=format_message(person, edit.target_sent_timestamp) if edit and edited else "",
    )


def _parse_data(
    data: SignalDataMessage,
    edit: SignalEdit | None,
    source: Source,
    sent_at: int,
    me: SignalIdentity,
    names: Mapping[str, str],
) -> InboundEvent | None:
    person, at = source.user or "", datetime.fromtimestamp(sent_at / 1000, UTC)
    event = format_message(person, sent_at)
    if data.remote_delete is not None:
        deleted = format_message(person, data.remote_delete.timestamp)
        return InboundDeletion(event=event, source=source, at=at, message_event=deleted)
    if data.admin_delete is not None:
        target = data.admin_delete
        author = me.name_person(target.target_author_number, target.target_author_uuid)
        deleted = format_message(author, target.target_sent_timestamp)
        return InboundDeletion(event=event, source=source, at=at, message_event=deleted)
    if data.reaction is not None:
        reaction = data.reaction
        author = me.name_person(reaction.target_author_number, reaction.target_author_uuid)
        own = author == me.number
        target = format_message(author, reaction.target_sent_timestamp)
        return InboundReaction(
            event=event,
            source=msgspec.structs.replace(source, message=None),
            at=at,
            message=str(reaction.target_sent_timestamp) if own else target,
            # A note to self and its answer have the same author.
            message_event=target if not own or person == author else "",
            reaction=reaction.emoji,
            removed=reaction.is_remove,
        )
    if data.is_expiration_update:
        return None
    texts, files = _build_texts(data, me, names), _find_files(data)
    if not texts and not files:
        return None
    quoted = data.quote
    return InboundMessage(
        event=event,
        source=source,
        at=at,
        parts=text_parts(*texts),
        surface=SURFACE,
        reply=Target(PLATFORM, me.number, chat=source.chat or "", reply_to=event),
        addressed=source.chat_type is not ChatType.GROUP
        or _is_addressed(data, texts[0] if texts else "", me),
        quote=_describe_quote(quoted, me, names) if quoted else "",
        edits=format_message(person, edit.target_sent_timestamp) if edit else None,
        files=files,
    )


def _is_addressed(data: SignalDataMessage, text: str, me: SignalIdentity) -> bool:
    quoted = data.quote
    return (
        text.startswith("/")
        or any(me.is_me(mention.number, mention.uuid) for mention in data.mentions or ())
        or (quoted is not None and me.is_me(quoted.author_number, quoted.author_uuid))
    )


def _build_texts(data: SignalDataMessage, me: SignalIdentity, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the text with the names of those who are mentioned, without a mention of this account at its beginning.
    Without a text, describe content other than files."""
    text, mentions = data.message or "", data.mentions or ()
    first = next((m for m in mentions if m.start == 0 and me.is_me(m.number, m.uuid)), None)
    shown = insert_names(text, mentions, me, names)
    if first is not None and text.startswith(_MENTION_MARK):
        own = insert_names(_MENTION_MARK, (first,), me, names)
        shown = shown.removeprefix(own).lstrip(" ,:;\n") or shown
    if shown:
        return (shown,)
    if data.sticker is not None:
        return (Phrase("content.sticker"),)
    if data.contacts:
        return tuple(contact.description for contact in data.contacts)
    if data.poll is not None:
        return (Phrase("content.poll", poll=f"{data.poll.question} {' / '.join(data.poll.options)}"),)
    return (Phrase("content.seen_once"),) if data.view_once and not data.attachments else ()


def insert_names(
    text: str, mentions: tuple[SignalMention, ...], me: SignalIdentity, names: Mapping[str, str]
) -> str:
    """Return a text with `@name` in the places of mentions. A number is never shown: the agent needs none."""
    if not mentions:
        return text
    units = text.encode("utf-16-le", "surrogatepass")
    pieces: list[bytes] = []
    at = 0
    for mention in sorted(mentions, key=lambda one: one.start):
        start, end = 2 * mention.start, 2 * (mention.start + mention.length)
        if start < at or mention.length < 1 or end > len(units):
            continue
        known = names.get((mention.uuid or "").lower()) or names.get(mention.number or "") or "someone"
        name = "me" if me.is_me(mention.number, mention.uuid) else known
        pieces += [units[at:start], f"@{name}".encode("utf-16-le", "surrogatepass")]
        at = end
    return b"".join([*pieces, units[at:]]).decode("utf-16-le", "replace")


def _describe_quote(quote: SignalQuote, me: SignalIdentity, names: Mapping[str, str]) -> str:
    text = insert_names(quote.text or "", quote.mentions or (), me, names)
    files = [f"[{file.filename or 'file'}]" for file in quote.attachments or ()]
    return text or " ".join(files)


def _find_files(data: SignalDataMessage) -> tuple[RemoteFile, ...]:
    """Return the files of a message. One without an id was not fetched by signal-cli. A long text is a file too; newer
    versions of signal-cli put it into the message, so it is left out if it says no more than that."""
    shown = len((data.message or "").encode("utf-8", "surrogatepass"))
    files: list[RemoteFile] = []
    for attachment in data.attachments or ():
        size = attachment.size or 0
        if not attachment.id or (attachment.content_type == _LONG_TEXT and size <= shown):
            continue
        mime = (attachment.content_type or "").partition(";")[0].strip().lower()
        kind = mime.partition("/")[0]
        if mime == _LONG_TEXT:
            mime = "text/plain"
        name = (kind if kind in ("image", "audio", "video") else "file") + _EXTENSIONS.get(mime, "")
        files.append(
            RemoteFile(
                reference=attachment.id, name=attachment.filename or name, mime=mime, size=max(0, size)
            )
        )
    return tuple(files)
