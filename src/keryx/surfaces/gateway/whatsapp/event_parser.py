"""Parses the payloads of WhatsApp to inbound events. Pure: files are named here and fetched elsewhere."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from keryx.core import source as sources
from keryx.core.deliveries import Target
from keryx.core.errors import Invalid
from keryx.core.ids import DeliveryId
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
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.http_clients import NO_REASON
from keryx.surfaces.gateway.whatsapp.payloads import (
    StatusError,
    WhatsAppChange,
    WhatsAppContact,
    WhatsAppEntry,
    WhatsAppMedia,
    WhatsAppMessage,
    WhatsAppPayload,
    WhatsAppStatus,
    WhatsAppValue,
)

PLATFORM = "whatsapp"
SURFACE = "gateway"
# The id of each of our buttons begins with this.
BUTTON_PREFIX = "/answer "
# Messages are not accepted until the person writes.
HOLD_CODES = frozenset({131047, 470})
# There is no such person, with what is said about it.
GONE_CODES = {
    131026: "gone.no_whatsapp",
    131062: "gone.no_whatsapp_id",
}
BSUID_PATTERN = re.compile(r"[A-Z]{2}\.(?:ENT\.)?[A-Za-z0-9]{1,128}", re.ASCII)
_PHONE = r"[1-9]\d{4,14}"
_PERSON = IdFormat(
    rf"{_PHONE}|{BSUID_PATTERN.pattern}|@[a-z0-9._]{{3,35}}",
    "a telephone number in digits, such as 15550783881, or an id such as US.13491208655302741918",
)
CLOUD_IDS = PlatformIds(
    chat=IdFormat(
        rf"{_PHONE}|{BSUID_PATTERN.pattern}|[A-Za-z0-9_+/=-]{{8,200}}",
        "a telephone number in digits, such as 15550783881, an id such as US.13491208655302741918, or that of a group",
    ),
    person=_PERSON,
)
_CREATOR = IdFormat(r"user:\w{1,64}", "the id that WhatsApp has for its creator, such as user:509")
AGENT_IDS = PlatformIds(chat=_CREATOR, person=_CREATOR)
# Of either platform, for a setup that has not chosen yet.
PERSON = IdFormat(
    f"{_PERSON.pattern}|{_CREATOR.pattern}", f"{_PERSON.words}, or for an agent one such as user:509"
)
_CALLBACK = re.compile(r"([\w-]{1,64})\.(\d{1,9})", re.ASCII)
_FILE_NAMES = {"image": "image", "audio": "audio", "video": "video", "document": "file", "sticker": "sticker"}
_EXTENSIONS = {
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/webp": ".webp",
    "audio/ogg": ".ogg",
    "audio/mpeg": ".mp3",
    "audio/mp4": ".m4a",
    "audio/aac": ".aac",
    "audio/amr": ".amr",
    "video/mp4": ".mp4",
    "video/3gpp": ".3gp",
    "application/pdf": ".pdf",
}
_IGNORED_TYPES = frozenset({"request_welcome"})

T = TypeVar("T")


class ParsedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What one message or status says."""

    # The author, or the person that a message was for.
    source: Source
    # `None` for one that only names ids.
    inbound: InboundEvent | None = None
    # Other ids of the author that hold as long as their number.
    aliases: tuple[str, ...] = ()
    # The new ids of a person who has changed their number.
    successors: tuple[str, ...] = ()
    # As `@name`. People may give it up, and others may take it.
    username: str = ""
    # The press of a button: nothing but the receipt answers it.
    pressed: bool = False


class ParsedPayload(msgspec.Struct, frozen=True, kw_only=True):
    # In the order of their time.
    events: tuple[ParsedEvent, ...] = ()
    # Why items were left out, one sentence each.
    problems: tuple[str, ...] = ()
    # Numbers that the payload is about, and that this account is not.
    other_numbers: tuple[str, ...] = ()

    def skip_through(self, last: str) -> "ParsedPayload":
        """Leave out the events up to the message that was stored last. If it is no longer there, leave out none: the engine
        recognises those that it has."""
        ids = [
            event.source.message or (event.inbound.event if event.inbound else "") for event in self.events
        ]
        if not last or last not in ids:
            return self
        return msgspec.structs.replace(self, events=self.events[ids.index(last) + 1 :])


class WhatsAppIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The number or agent that receives."""

    account: str
    # The id of the number on the Cloud API; empty on the Agent Platform.
    number: str = ""


class _ItemReader:
    """Converts items one by one, and notes those that cannot be read."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def convert(self, items: Sequence[Any], kind: type[T]) -> Iterator[T]:
        for item in items:
            try:
                yield msgspec.convert(item, kind)
            except (msgspec.ValidationError, UnicodeEncodeError) as exc:
                # The second: half a character in the name of a field.
                self.problems.append(f"{kind.__name__}: {exc}")


def parse_payload(payload: WhatsAppPayload, me: WhatsAppIdentity) -> ParsedPayload:
    """Return what a payload says to this account, without a cursor."""
    reader = _ItemReader()
    events: list[tuple[int, ParsedEvent]] = []
    others: list[str] = []
    for entry in reader.convert(payload.entry, WhatsAppEntry):
        changes = [
            change.value
            for change in reader.convert(entry.changes, WhatsAppChange)
            if change.field == "messages"
        ]
        for value in reader.convert(changes, WhatsAppValue):
            number = value.metadata.phone_number_id
            if me.number and number != me.number:
                others.append(number)
                continue
            events += _parse_value(value, me, reader)
    seen: set[str] = set()
    unique: list[ParsedEvent] = []
    # Items of the same second stay in their order. Failures come last: they may have to wait, and messages should not.
    for _, event in sorted(events, key=lambda item: (isinstance(item[1].inbound, InboundFailure), item[0])):
        id_ = event.inbound.event if event.inbound else ""
        if id_ not in seen:
            unique.append(event)
        seen |= {id_} - {""}
    return ParsedPayload(
        events=tuple(unique), problems=tuple(reader.problems), other_numbers=tuple(dict.fromkeys(others))
    )


def is_person(chat: str) -> bool:
    """Whether an id is that of a person, not of a group."""
    return chat.isdigit() or chat.startswith("user:") or BSUID_PATTERN.fullmatch(chat) is not None


def describe_error(error: StatusError) -> str:
    text = error.error_data.details or error.message or error.title or NO_REASON
    return f"{text.rstrip('.')} ({error.code})"


def _parse_value(
    value: WhatsAppValue, me: WhatsAppIdentity, reader: _ItemReader
) -> Iterator[tuple[int, ParsedEvent]]:
    contacts = list(reader.convert(value.contacts, WhatsAppContact))
    own_number = sources.normalize_user(PLATFORM, value.metadata.display_phone_number)
    fallback = contacts[0] if len(contacts) == 1 else WhatsAppContact()
    for message in reader.convert(value.messages, WhatsAppMessage):
        author = next((contact for contact in contacts if message.is_from(contact)), fallback)
        try:
            parsed = _parse_message(message, author, me, own_number)
        except (msgspec.ValidationError, Invalid) as exc:
            reader.problems.append(f"{message.id[:80]}: {exc}")
        else:
            if parsed is not None:
                yield int(message.timestamp), parsed
    for status in reader.convert(value.statuses, WhatsAppStatus):
        failure = _parse_status(status, me)
        if failure is not None:
            yield int(status.timestamp), ParsedEvent(source=failure.source, inbound=failure)


def _parse_message(
    message: WhatsAppMessage, contact: WhatsAppContact, me: WhatsAppIdentity, own_number: str
) -> ParsedEvent | None:
    phone = sources.normalize_user(PLATFORM, message.sender or contact.wa_id)
    user_id = message.from_user_id or contact.user_id
    person = user_id or phone
    if not person:
        raise Invalid("it names no sender")
    group = message.group_id
    source = Source(
        platform=PLATFORM,
        account=me.account,
        chat=group or person,
        chat_type=ChatType.GROUP if group else ChatType.DM,
        user=person,
        user_name=contact.profile.name or None,
        message=message.id,
    )
    if message.system is not None:
        return _parse_system(message, source)
    about = ParsedEvent(
        source=source,
        aliases=tuple(id_ for id_ in (phone, contact.parent_user_id) if id_ and id_ != person),
        username=f"@{contact.profile.username.lstrip('@')}" if contact.profile.username.lstrip("@") else "",
    )
    at = _to_time(message.timestamp)
    if message.revoke is not None:
        deletion = InboundDeletion(
            event=message.id, source=source, at=at, message_event=message.revoke.original_message_id
        )
        return msgspec.structs.replace(about, inbound=deletion)
    if message.reaction is not None:
        reaction = InboundReaction(
            event=message.id,
            source=msgspec.structs.replace(source, message=None),
            at=at,
            message=message.reaction.message_id,
            message_event=message.reaction.message_id,
            reaction=message.reaction.emoji,
            removed=not message.reaction.emoji,
        )
        return msgspec.structs.replace(about, inbound=reaction)
    if message.edit is not None:
        content = msgspec.convert({"type": "text", **message.edit.message, "id": message.id}, WhatsAppMessage)
        inbound = _build_message(content, source, own_number, at)
        edit = msgspec.structs.replace(inbound, edits=message.edit.original_message_id)
        return msgspec.structs.replace(about, inbound=edit)
    chosen = message.interactive.chosen if message.interactive else None
    if chosen and chosen.id.startswith(BUTTON_PREFIX):
        inbound = InboundMessage(
            event=message.id,
            source=msgspec.structs.replace(source, message=None),
            at=at,
            parts=text_parts(chosen.id),
            surface=SURFACE,
        )
        return msgspec.structs.replace(about, inbound=inbound, pressed=True)
    if message.type in _IGNORED_TYPES:
        return about if about.aliases or about.username else None
    return msgspec.structs.replace(about, inbound=_build_message(message, source, own_number, at))


def _parse_system(message: WhatsAppMessage, source: Source) -> ParsedEvent | None:
    """Return the new ids of a person who has changed their number; `None` for other news."""
    system = message.system
    if system is None or not system.type.startswith("user_changed"):
        return None
    old = system.previous_user_id or message.from_user_id or source.user
    known = msgspec.structs.replace(source, user=old, chat=old, message=None)
    ids = (sources.normalize_user(PLATFORM, message.sender), sources.normalize_user(PLATFORM, system.wa_id))
    successors = tuple(dict.fromkeys(id_ for id_ in (*ids, system.user_id) if id_ and id_ != old))
    return ParsedEvent(source=known, successors=successors) if successors else None


def _parse_status(status: WhatsAppStatus, me: WhatsAppIdentity) -> InboundFailure | None:
    """Return the failure of a message that was sent by Keryx; `None` for any other status."""
    found = _CALLBACK.fullmatch(status.biz_opaque_callback_data)
    if status.status != "failed" or found is None:
        return None
    error = status.errors[0] if status.errors else StatusError()
    group = status.recipient_type == "group"
    chat = status.recipient_user_id or sources.normalize_user(PLATFORM, status.recipient_id)
    return InboundFailure(
        event=f"status.{status.id}.failed",
        source=Source(
            platform=PLATFORM,
            account=me.account,
            chat=status.recipient_id if group else chat,
            chat_type=ChatType.GROUP if group else ChatType.DM,
            user=None if group else chat,
        ),
        at=_to_time(status.timestamp),
        delivery=DeliveryId(found[1]),
        number=int(found[2]),
        message=status.id,
        reason=f"WhatsApp did not deliver it: {describe_error(error)}",
        held=error.code in HOLD_CODES,
        gone=error.code in GONE_CODES,
    )


def format_callback(delivery: DeliveryId, number: int) -> str:
    """Return what statuses bring back, so that they can be told to belong to a part of a delivery."""
    return f"{delivery}.{number}"


def _to_time(timestamp: str) -> datetime | None:
    return datetime.fromtimestamp(int(timestamp), UTC) if int(timestamp) else None


def _build_message(
    message: WhatsAppMessage, source: Source, own_number: str, at: datetime | None
) -> InboundMessage:
    texts = _build_texts(message)
    text = texts[0] if texts else ""
    chat, quoted = source.chat or "", message.context
    in_group = source.chat_type is ChatType.GROUP
    addressed = (
        not in_group
        or text.startswith("/")
        or (bool(own_number) and f"@{own_number}" in text)
        or (
            quoted is not None
            and bool(own_number)
            and sources.normalize_user(PLATFORM, quoted.sender) == own_number
        )
    )
    forwarded = quoted is not None and (quoted.forwarded or quoted.frequently_forwarded)
    if own_number and in_group:
        texts = (text.removeprefix(f"@{own_number}").lstrip(" ,:;\n") or text, *texts[1:])
    # An album is a message for each picture, and a forward comes apart from its comment.
    album = message.sticker is None and may_have_siblings(_find_files(message))
    return InboundMessage(
        event=message.id,
        source=source,
        at=at,
        parts=text_parts(*((Phrase("content.forwarded"),) if forwarded and texts else ()), *texts),
        surface=SURFACE,
        reply=Target(PLATFORM, source.account, chat=chat, reply_to=message.id),
        addressed=addressed,
        replies_to=quoted.id if quoted else "",
        files=_find_files(message),
        more=forwarded or album,
        continues=forwarded or album,
    )


def _build_texts(message: WhatsAppMessage) -> tuple[str, ...]:
    if message.contacts:
        return tuple(card.description for card in message.contacts)
    text = _build_text(message)
    return (text,) if text else ()


def _build_text(message: WhatsAppMessage) -> str:
    if message.text is not None:
        return message.text.body
    if message.button is not None:
        return message.button.text or message.button.payload
    if message.interactive is not None:
        chosen = message.interactive.chosen
        return (chosen.title or chosen.id) if chosen else Phrase("content.form_answer")
    if message.location is not None:
        at = f"{message.location.latitude}, {message.location.longitude}"
        named = ", ".join(filter(None, (message.location.name, message.location.address)))
        if named:
            return Phrase("content.place", place=f"{named} ({at})")
        return Phrase("content.location", place=at)
    if message.sticker is not None:
        return Phrase("content.sticker")
    media = _get_media(message)
    if media is not None:
        return media.caption
    return Phrase("content.not_passed_on", platform="WhatsApp", kind=message.type[:40])


def _get_media(message: WhatsAppMessage) -> WhatsAppMedia | None:
    return message.image or message.audio or message.video or message.document


def _find_files(message: WhatsAppMessage) -> tuple[RemoteFile, ...]:
    """Return the file of a message. An animated sticker is none: models do not read it."""
    sticker = message.sticker if message.sticker and not message.sticker.animated else None
    media = _get_media(message) or sticker
    if media is None:
        return ()
    mime = media.mime_type.partition(";")[0].strip().lower()
    kind = "voice" if media.voice else _FILE_NAMES.get(message.type, "file")
    name = media.filename or kind + _EXTENSIONS.get(mime, "")
    return (RemoteFile(reference=format_reference(media.id, media.sha256), name=name, mime=mime),)


def format_reference(media: str, sha256: str) -> str:
    """Return what a file is fetched by: its id, and the checksum of its bytes if the message names it."""
    return f"{media} {sha256}".rstrip()


def parse_reference(reference: str) -> tuple[str, str]:
    """Return what `format_reference` wrote."""
    media, _, sha256 = reference.partition(" ")
    return media, sha256
