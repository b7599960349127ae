"""What `imsg` and BlueBubbles say about messages, with the fields that Keryx reads. Both read the database of Messages on a Mac; other fields are ignored."""

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

RowId = Annotated[int, msgspec.Meta(ge=0)]


class ImsgAttachment(msgspec.Struct, frozen=True, kw_only=True):
    # As people named it.
    transfer_name: str = ""
    filename: str = ""
    mime_type: str = ""
    total_bytes: int = 0
    # On the Mac.
    original_path: str = ""
    # The file is still in iCloud.
    missing: bool = False
    is_sticker: bool = False


class ImsgMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table of messages. Tapbacks are rows, too."""

    # The number of the row.
    id: RowId
    guid: str
    chat_id: int = 0
    chat_guid: str = ""
    chat_identifier: str = ""
    chat_name: str = ""
    is_group: bool = False
    # A telephone number or an e-mail address; empty for some messages of one's own.
    sender: str = ""
    # From the contacts.
    sender_name: str | None = None
    is_from_me: bool = False
    text: str = ""
    # ISO 8601.
    created_at: str = ""
    attachments: tuple[ImsgAttachment, ...] = ()
    reply_to_guid: str | None = None
    # The first message of the inline replies that this one belongs to.
    thread_originator_guid: str | None = None
    reply_to_text: str | None = None
    is_reaction: bool | None = None
    reaction_type: str | None = None
    reaction_emoji: str | None = None
    is_reaction_add: bool | None = None
    reacted_to_guid: str | None = None

    @property
    def at(self) -> datetime | None:
        try:
            at = datetime.fromisoformat(self.created_at)
        except ValueError:
            return None
        return at if at.tzinfo else at.replace(tzinfo=UTC)


class ImsgChat(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    identifier: str = ""
    guid: str = ""


class BlueBubblesHandle(msgspec.Struct, frozen=True, kw_only=True):
    address: str = ""
    # `iMessage` or `SMS`.
    service: str = ""


class BlueBubblesChat(msgspec.Struct, frozen=True, kw_only=True):
    guid: str
    # 43 for a group, 45 for a direct chat.
    style: int = 0
    chat_identifier: str | None = msgspec.field(default=None, name="chatIdentifier")
    display_name: str | None = msgspec.field(default=None, name="displayName")


class BlueBubblesAttachment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    guid: str
    transfer_name: str | None = None
    mime_type: str | None = None
    total_bytes: int | None = None
    # Previews of links are hidden.
    hide_attachment: bool | None = None


class BlueBubblesMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A row of the table of messages. Times are in milliseconds since 1970."""

    row: RowId = msgspec.field(name="originalROWID")
    guid: str
    text: str | None = None
    subject: str | None = None
    handle: BlueBubblesHandle | None = None
    chats: tuple[BlueBubblesChat, ...] = ()
    attachments: tuple[BlueBubblesAttachment, ...] = ()
    is_from_me: bool = False
    # Not 0 if Messages could not send it.
    error: int = 0
    date_created: int | None = None
    date_edited: int | None = None
    date_retracted: int | None = None
    # Not 0 for news of a group, such as a new name.
    item_type: int = 0
    # The message that a tapback is at, with a prefix for its part.
    associated_message_guid: str | None = None
    # The name of a tapback, with a dash before it if it is taken back.
    associated_message_type: str | None = None
    thread_originator_guid: str | None = None
    # A list of texts with their attributes, such as mentions.
    attributed_body: Any = None


class BlueBubblesInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the server says about itself."""

    server_version: str = ""
    os_version: str = ""
    private_api: bool = False
    # The private API works only while its helper is connected.
    helper_connected: bool = False
    # The address that Messages is signed in with.
    detected_imessage: str | None = None


class BlueBubblesAddress(msgspec.Struct, frozen=True, kw_only=True):
    address: str = ""


class BlueBubblesContact(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    display_name: str | None = None
    first_name: str | None = None
    last_name: str | None = None
    phone_numbers: tuple[BlueBubblesAddress, ...] = ()
    emails: tuple[BlueBubblesAddress, ...] = ()


class BlueBubblesWebhook(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    url: str
    events: tuple[Any, ...] = ()
