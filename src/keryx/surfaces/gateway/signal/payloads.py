"""What signal-cli hands over, with the fields that Keryx reads. Other fields are ignored, and `null` is the same as none."""

from typing import Annotated

import msgspec

from keryx.core.texts import Phrase

# Milliseconds since 1970, up to the year 9999. With its author it identifies a message.
SentAt = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]


class SignalMention(msgspec.Struct, frozen=True, kw_only=True):
    """A person who is named at a place of the text, where it has one U+FFFC. The place counts UTF-16 units."""

    number: str | None = None
    uuid: str | None = None
    start: int = 0
    length: int = 0


class QuotedFile(msgspec.Struct, frozen=True, kw_only=True):
    filename: str | None = None


class SignalQuote(msgspec.Struct, frozen=True, kw_only=True):
    """The message that is replied to."""

    # When it was sent.
    id: SentAt
    author_number: str | None = msgspec.field(default=None, name="authorNumber")
    author_uuid: str | None = msgspec.field(default=None, name="authorUuid")
    text: str | None = None
    mentions: tuple[SignalMention, ...] | None = None
    attachments: tuple[QuotedFile, ...] | None = None


class SignalAttachment(msgspec.Struct, frozen=True, kw_only=True):
    # The name of the file in the folder of signal-cli.
    id: str | None = None
    content_type: str | None = msgspec.field(default=None, name="contentType")
    filename: str | None = None
    size: int | None = None


class MessageReference(msgspec.Struct, frozen=True, kw_only=True):
    """A message of anybody in the chat."""

    target_author_number: str | None = msgspec.field(default=None, name="targetAuthorNumber")
    target_author_uuid: str | None = msgspec.field(default=None, name="targetAuthorUuid")
    target_sent_timestamp: SentAt = msgspec.field(name="targetSentTimestamp")


class SignalReaction(MessageReference, frozen=True, kw_only=True):
    emoji: str
    is_remove: bool = msgspec.field(default=False, name="isRemove")


class RemoteDelete(msgspec.Struct, frozen=True, kw_only=True):
    """The deletion of a message of the same author."""

    timestamp: SentAt


class SignalSticker(msgspec.Struct, frozen=True, kw_only=True):
    pack_id: str = msgspec.field(default="", name="packId")


class ContactName(msgspec.Struct, frozen=True, kw_only=True):
    nickname: str | None = None
    given: str | None = None
    family: str | None = None


class ContactValue(msgspec.Struct, frozen=True, kw_only=True):
    """A telephone number or an e-mail address."""

    value: str | None = None


class SignalContact(msgspec.Struct, frozen=True, kw_only=True):
    """A contact that a person passes on."""

    name: ContactName | None = None
    phone: tuple[ContactValue, ...] | None = None
    email: tuple[ContactValue, ...] | None = None
    organization: str | None = None

    @property
    def description(self) -> Phrase:
        name = self.name
        full = (name.nickname or " ".join(filter(None, (name.given, name.family)))) if name else ""
        values = [entry.value for entry in (*(self.phone or ()), *(self.email or ()))]
        contact = ", ".join(filter(None, (full or self.organization, *values)))
        return Phrase("content.contact", contact=contact) if contact else Phrase("content.contact_unnamed")


class SignalPoll(msgspec.Struct, frozen=True, kw_only=True):
    question: str = ""
    options: tuple[str, ...] = ()


class GroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    # In base64.
    group_id: str = msgspec.field(name="groupId")
    group_name: str | None = msgspec.field(default=None, name="groupName")
    # `UPDATE` if the group itself has changed.
    type: str = "DELIVER"


class SignalDataMessage(msgspec.Struct, frozen=True, kw_only=True):
    timestamp: SentAt = 0
    message: str | None = None
    is_expiration_update: bool | None = msgspec.field(default=None, name="isExpirationUpdate")
    view_once: bool | None = msgspec.field(default=None, name="viewOnce")
    reaction: SignalReaction | None = None
    quote: SignalQuote | None = None
    mentions: tuple[SignalMention, ...] | None = None
    attachments: tuple[SignalAttachment, ...] | None = None
    sticker: SignalSticker | None = None
    remote_delete: RemoteDelete | None = msgspec.field(default=None, name="remoteDelete")
    # An administrator of the group deletes the message of a member.
    admin_delete: MessageReference | None = msgspec.field(default=None, name="adminDelete")
    contacts: tuple[SignalContact, ...] | None = None
    poll: SignalPoll | None = msgspec.field(default=None, name="pollCreate")
    group_info: GroupInfo | None = msgspec.field(default=None, name="groupInfo")


class SignalEdit(msgspec.Struct, frozen=True, kw_only=True):
    # When the version that is replaced was sent.
    target_sent_timestamp: SentAt = msgspec.field(name="targetSentTimestamp")
    data_message: SignalDataMessage = msgspec.field(name="dataMessage")


class SentMessage(SignalDataMessage, frozen=True, kw_only=True):
    """A message that another device of the account has sent."""

    destination_number: str | None = msgspec.field(default=None, name="destinationNumber")
    destination_uuid: str | None = msgspec.field(default=None, name="destinationUuid")
    edit_message: SignalEdit | None = msgspec.field(default=None, name="editMessage")


class SignalSync(msgspec.Struct, frozen=True, kw_only=True):
    sent_message: SentMessage | None = msgspec.field(default=None, name="sentMessage")


class SignalEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that has arrived. Receipts, typing, calls and stories leave every field empty."""

    source_number: str | None = msgspec.field(default=None, name="sourceNumber")
    source_uuid: str | None = msgspec.field(default=None, name="sourceUuid")
    source_name: str | None = msgspec.field(default=None, name="sourceName")
    timestamp: SentAt = 0
    data_message: SignalDataMessage | None = msgspec.field(default=None, name="dataMessage")
    edit_message: SignalEdit | None = msgspec.field(default=None, name="editMessage")
    sync_message: SignalSync | None = msgspec.field(default=None, name="syncMessage")


class EnvelopeError(msgspec.Struct, frozen=True, kw_only=True):
    """Why signal-cli could not read a message."""

    type: str | None = None


class ReceivedEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """What `receive` returns, and what signal-cli writes to its output, one object a line."""

    account: str = ""
    envelope: SignalEnvelope | None = None
    exception: EnvelopeError | None = None
