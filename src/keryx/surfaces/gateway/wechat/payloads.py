"""The objects of the iLink bot API with the fields that Keryx reads. Other fields are ignored."""

import base64
import binascii
import re
from enum import IntEnum
from typing import Annotated, Any, TypeAlias, cast

import msgspec

# 64 bits without a sign, as a number or, in newer fields, as text.
WeChatId: TypeAlias = int | str
Milliseconds: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]
"""Since 1970, up to the year 9999."""
HEX_KEY = re.compile(r"[0-9a-fA-F]{32}\Z")


class WeChatMessageType(IntEnum):
    USER = 1
    BOT = 2


class WeChatMessageState(IntEnum):
    NEW = 0
    GENERATING = 1
    FINISH = 2


class MessageItemType(IntEnum):
    TEXT = 1
    IMAGE = 2
    VOICE = 3
    FILE = 4
    VIDEO = 5


class CdnUploadType(IntEnum):
    IMAGE = 1
    VIDEO = 2
    FILE = 3


_FILE_NAMES: dict[int, str] = {
    MessageItemType.IMAGE: "picture",
    MessageItemType.VOICE: "voice message",
    MessageItemType.FILE: "file",
    MessageItemType.VIDEO: "video",
}


class WeChatMedia(msgspec.Struct, frozen=True, kw_only=True):
    """A file on the CDN. It is encrypted with AES-128-ECB."""

    encrypt_query_param: str = ""
    # Base64 of the 16 bytes of the key, or of their hexadecimal form.
    aes_key: str = ""
    full_url: str = ""

    @property
    def hex_key(self) -> str:
        """The key in hexadecimal form; empty if it cannot be read."""
        try:
            found = base64.b64decode(self.aes_key, validate=True)
        except (binascii.Error, ValueError):
            return ""
        if len(found) == 16:
            return found.hex()
        digits = found.decode("ascii", "replace")
        return digits if HEX_KEY.match(digits) else ""


class TextItem(msgspec.Struct, frozen=True, kw_only=True):
    text: str = ""


class ImageItem(msgspec.Struct, frozen=True, kw_only=True):
    media: WeChatMedia = WeChatMedia()
    # The key in hexadecimal form. It takes precedence over that of `media`.
    aeskey: str = ""


class VoiceItem(msgspec.Struct, frozen=True, kw_only=True):
    media: WeChatMedia = WeChatMedia()
    encode_type: int = 0
    # What was said, as WeChat has understood it.
    text: str = ""


class FileItem(msgspec.Struct, frozen=True, kw_only=True):
    media: WeChatMedia = WeChatMedia()
    file_name: str = ""
    # Of the file itself, in bytes.
    len: int = 0


class VideoItem(msgspec.Struct, frozen=True, kw_only=True):
    media: WeChatMedia = WeChatMedia()


class QuotedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The message that an item replies to: its content, or with newer versions of WeChat its id alone."""

    message_item: "MessageItem | None" = None
    title: str = ""
    svr_id: WeChatId = ""


class MessageItem(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of content. The field of its type is set."""

    type: int = 0
    msg_id: WeChatId = ""
    ref_msg: QuotedMessage | None = None
    text_item: TextItem | None = None
    image_item: ImageItem | None = None
    voice_item: VoiceItem | None = None
    file_item: FileItem | None = None
    video_item: VideoItem | None = None

    @property
    def text(self) -> str:
        """What was written, or what WeChat has understood of a voice message."""
        if self.type == MessageItemType.TEXT and self.text_item is not None:
            return self.text_item.text
        if self.type == MessageItemType.VOICE and self.voice_item is not None:
            return self.voice_item.text
        return ""

    @property
    def description(self) -> str:
        """Its text, or what it is."""
        if self.type == MessageItemType.FILE and self.file_item is not None and self.file_item.file_name:
            return f"[file {self.file_item.file_name}]"
        known = _FILE_NAMES.get(self.type)
        return self.text or (f"[{known}]" if known else "")


class WeChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    seq: int = 0
    message_id: WeChatId = ""
    from_user_id: str = ""
    client_id: str = ""
    create_time_ms: Milliseconds = 0
    delete_time_ms: Milliseconds = 0
    group_id: str = ""
    message_type: int = 0
    # Read one by one, so that an item of a new form does not cost the others.
    item_list: tuple[Any, ...] = ()
    # Has to be sent back with every answer to the person.
    context_token: str = ""

    def read_items(self) -> tuple[list[MessageItem], bool]:
        """Return the items that can be read, and whether there are others."""
        items: list[MessageItem] = []
        broken = False
        for item in self.item_list:
            try:
                items.append(msgspec.convert(item, MessageItem, strict=False))
            except msgspec.ValidationError:
                broken = True
        return items, broken


class UpdateBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What a poll returns."""

    # Read one by one, so that a malformed message does not cost the others.
    msgs: tuple[Any, ...] = ()
    # The position after these messages; opaque.
    get_updates_buf: str = ""
    # How long the next poll may last.
    longpolling_timeout_ms: int = 0


class UploadLocation(msgspec.Struct, frozen=True, kw_only=True):
    upload_param: str = ""
    upload_full_url: str = ""


class BotConfig(msgspec.Struct, frozen=True, kw_only=True):
    typing_ticket: str = ""


class LoginCode(msgspec.Struct, frozen=True, kw_only=True):
    """A login that waits for a person."""

    # Names the login in further calls.
    qrcode: str = ""
    # The address that the QR code contains.
    qrcode_img_content: str = ""


class LoginStatus(msgspec.Struct, frozen=True, kw_only=True):
    status: str = ""
    bot_token: str = ""
    ilink_bot_id: str = ""
    # The person who has scanned the code.
    ilink_user_id: str = ""
    # The API of this bot.
    baseurl: str = ""
    # Where to ask for the status from now on.
    redirect_host: str = ""


def drop_nulls(value: Any) -> Any:
    """Return JSON without fields that are null: the API leaves out what is empty, or sends null."""
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        return {name: drop_nulls(field) for name, field in fields.items() if field is not None}
    if isinstance(value, list):
        return [drop_nulls(item) for item in cast(list[Any], value)]
    return value
