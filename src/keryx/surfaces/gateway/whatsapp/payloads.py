"""What WhatsApp posts or hands over, with the fields that Keryx reads. Both platforms of Meta use the same objects; other fields are ignored."""

from typing import Annotated, Any

import msgspec

from keryx.core.texts import Phrase


class WhatsAppProfile(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    username: str = ""


class WhatsAppContact(msgspec.Struct, frozen=True, kw_only=True):
    """A person of a payload."""

    profile: WhatsAppProfile = WhatsAppProfile()
    # The telephone number, or `user:<id>` on the Agent Platform. It may be missing.
    wa_id: str = ""
    # The id of the person within the business (BSUID), since April 2026.
    user_id: str = ""
    parent_user_id: str = ""


class WhatsAppText(msgspec.Struct, frozen=True, kw_only=True):
    body: str


class WhatsAppMedia(msgspec.Struct, frozen=True, kw_only=True):
    """A file on WhatsApp's side."""

    id: str
    mime_type: str = ""
    # Of the bytes, in base64.
    sha256: str = ""
    caption: str = ""
    filename: str = ""
    # It was recorded in the chat.
    voice: bool = False
    animated: bool = False


class WhatsAppLocation(msgspec.Struct, frozen=True, kw_only=True):
    latitude: float
    longitude: float
    name: str = ""
    address: str = ""


class CardName(msgspec.Struct, frozen=True, kw_only=True):
    formatted_name: str = ""
    first_name: str = ""
    last_name: str = ""


class CardPhone(msgspec.Struct, frozen=True, kw_only=True):
    phone: str = ""
    wa_id: str = ""


class CardEmail(msgspec.Struct, frozen=True, kw_only=True):
    email: str = ""


class WhatsAppCard(msgspec.Struct, frozen=True, kw_only=True):
    """A contact that a person passes on."""

    name: CardName = CardName()
    phones: tuple[CardPhone, ...] = ()
    emails: tuple[CardEmail, ...] = ()

    @property
    def description(self) -> Phrase:
        name = self.name.formatted_name or f"{self.name.first_name} {self.name.last_name}".strip()
        phones = [phone.phone or phone.wa_id for phone in self.phones]
        emails = [email.email for email in self.emails]
        contact = ", ".join(filter(None, (name, *phones, *emails)))
        return Phrase("content.contact", contact=contact) if contact else Phrase("content.contact_unnamed")


class WhatsAppReaction(msgspec.Struct, frozen=True, kw_only=True):
    message_id: str
    # Empty if the reaction is taken back.
    emoji: str = ""


class ReplyChoice(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    title: str = ""


class WhatsAppInteractive(msgspec.Struct, frozen=True, kw_only=True):
    """The press of a button, or the choice of a row."""

    button_reply: ReplyChoice | None = None
    list_reply: ReplyChoice | None = None

    @property
    def chosen(self) -> ReplyChoice | None:
        return self.button_reply or self.list_reply


class TemplateButton(msgspec.Struct, frozen=True, kw_only=True):
    """The press of a button of a template."""

    text: str = ""
    payload: str = ""


class WhatsAppQuote(msgspec.Struct, frozen=True, kw_only=True):
    """The message that is replied to, by its id. A forwarded message has only the marks."""

    id: str = ""
    sender: str = msgspec.field(default="", name="from")
    forwarded: bool = False
    frequently_forwarded: bool = False


class WhatsAppSystem(msgspec.Struct, frozen=True, kw_only=True):
    """A person has a new number, and with it a new id."""

    type: str = ""
    wa_id: str = ""
    user_id: str = ""
    previous_user_id: str = ""


class WhatsAppRevoke(msgspec.Struct, frozen=True, kw_only=True):
    original_message_id: str


class WhatsAppEdit(msgspec.Struct, frozen=True, kw_only=True):
    original_message_id: str
    # The new content, as in a message.
    message: dict[str, Any]


class WhatsAppMessage(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: str
    # Seconds since 1970.
    timestamp: Annotated[str, msgspec.Meta(pattern=r"^\d{1,11}$")] = "0"
    sender: str = msgspec.field(default="", name="from")
    from_user_id: str = ""
    # Of a message in a group.
    group_id: str = ""
    context: WhatsAppQuote | None = None
    text: WhatsAppText | None = None
    image: WhatsAppMedia | None = None
    audio: WhatsAppMedia | None = None
    video: WhatsAppMedia | None = None
    document: WhatsAppMedia | None = None
    sticker: WhatsAppMedia | None = None
    location: WhatsAppLocation | None = None
    contacts: tuple[WhatsAppCard, ...] = ()
    reaction: WhatsAppReaction | None = None
    interactive: WhatsAppInteractive | None = None
    button: TemplateButton | None = None
    system: WhatsAppSystem | None = None
    revoke: WhatsAppRevoke | None = None
    edit: WhatsAppEdit | None = None

    def is_from(self, contact: WhatsAppContact) -> bool:
        """Whether a contact is the author, by id or by number."""
        same_id = self.from_user_id and contact.user_id == self.from_user_id
        return bool(same_id or (self.sender and contact.wa_id == self.sender))


class ErrorDetails(msgspec.Struct, frozen=True, kw_only=True):
    details: str = ""


class StatusError(msgspec.Struct, frozen=True, kw_only=True):
    code: int = 0
    title: str = ""
    message: str = ""
    error_data: ErrorDetails = ErrorDetails()


class WhatsAppStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of a message that was sent: `sent`, `delivered`, `read`, `played` or `failed`."""

    id: str
    status: str
    timestamp: Annotated[str, msgspec.Meta(pattern=r"^\d{1,11}$")] = "0"
    # The telephone number or the group.
    recipient_id: str = ""
    recipient_user_id: str = ""
    recipient_type: str = ""
    # What was sent with the message.
    biz_opaque_callback_data: str = ""
    errors: tuple[StatusError, ...] = ()


class WhatsAppMetadata(msgspec.Struct, frozen=True, kw_only=True):
    display_phone_number: str = ""
    phone_number_id: str = ""


class WhatsAppValue(msgspec.Struct, frozen=True, kw_only=True):
    """The messages and statuses of one number. Each of them is parsed by itself, so that one that cannot be read does not
    block the others."""

    metadata: WhatsAppMetadata = WhatsAppMetadata()
    contacts: tuple[Any, ...] = ()
    messages: tuple[Any, ...] = ()
    statuses: tuple[Any, ...] = ()


class WhatsAppChange(msgspec.Struct, frozen=True, kw_only=True):
    field: str
    value: Any


class WhatsAppEntry(msgspec.Struct, frozen=True, kw_only=True):
    changes: tuple[WhatsAppChange, ...] = ()


class WhatsAppPayload(msgspec.Struct, frozen=True, kw_only=True):
    object: str
    entry: tuple[Any, ...] = ()
    # Of the Agent Platform: the position after this payload.
    next_offset: int | None = None
