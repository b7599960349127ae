"""Parses one message of the iLink bot API to an inbound event. Pure: files are named here and fetched elsewhere."""

import hashlib
import mimetypes
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from keryx.core import codec
from keryx.core.deliveries import ReplyContext, Target
from keryx.core.errors import Invalid
from keryx.core.media import UNKNOWN_MIME, RemoteFile, may_have_siblings
from keryx.core.messages import text_parts
from keryx.core.ports.adapter import IdFormat, InboundDeletion, InboundEvent, InboundMessage, PlatformIds
from keryx.core.source import ChatType, Source
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.wechat.payloads import (
    HEX_KEY,
    MessageItem,
    MessageItemType,
    WeChatMedia,
    WeChatMessage,
    WeChatMessageType,
    drop_nulls,
)

PLATFORM = "wechat"
SURFACE = "gateway"
# How long after a person has written answers to them are accepted.
REPLY_WINDOW = timedelta(hours=24)
_PERSON = IdFormat(
    r"[\w.+-]{1,200}@[\w.-]{1,100}",
    "as `keryx people list` shows it, such as o9cq80abc@im.wechat, not a WeChat name",
)
IDS = PlatformIds(chat=_PERSON, person=_PERSON)
_PICTURE, _VIDEO = ("picture.jpg", "image/jpeg"), ("video.mp4", "video/mp4")
# By `encode_type`.
_SOUNDS = {
    5: ("voice.amr", "audio/amr"),
    6: ("voice.silk", "audio/silk"),
    7: ("voice.mp3", "audio/mpeg"),
    8: ("voice.ogg", "audio/ogg"),
}


class WeChatIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The bot that a person has connected by scanning a code."""

    # The name of the account in the settings. It stays after a new login, which makes another bot.
    account: str = ""
    bot: str = ""


class CdnReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is needed to fetch a file of a person."""

    param: str = ""
    url: str = ""
    # In hexadecimal form; empty if the file is not encrypted.
    key: str = ""

    @classmethod
    def from_media(cls, media: WeChatMedia, key: str, *, plain: bool) -> "CdnReference | None":
        """Return where a file is, and its key. `None` if one of them is missing; pictures may be `plain`."""
        if not media.encrypt_query_param and not media.full_url:
            return None
        found = key if HEX_KEY.match(key) else media.hex_key
        if not found and (media.aes_key or key or not plain):
            return None
        return cls(param=media.encrypt_query_param, url=media.full_url, key=found.lower())


def read_message(raw: Any) -> WeChatMessage:
    """Return a message of a batch. Raise `Invalid` for anything else."""
    try:
        return msgspec.convert(drop_nulls(raw), WeChatMessage, strict=False)
    except (msgspec.ValidationError, RecursionError) as exc:
        raise Invalid(f"a message has another form: {exc}") from None


def parse_message(message: WeChatMessage, me: WeChatIdentity) -> InboundEvent | None:
    """Return what a message says, without a cursor; `None` for one of the bot itself. Raise `Invalid` for one that cannot
    be answered."""
    if message.message_type == WeChatMessageType.BOT:
        return None
    if message.group_id:
        raise Invalid("a message is from a group: bots of WeChat talk in direct chats only")
    if not message.from_user_id:
        raise Invalid("a message does not say who has written it")
    items, broken = message.read_items()
    event = find_event(message, items)
    source = Source(
        platform=PLATFORM,
        account=me.account,
        chat=message.from_user_id,
        chat_type=ChatType.DM,
        user=message.from_user_id,
        message=event,
    )
    at = datetime.fromtimestamp(message.create_time_ms / 1000, UTC) if message.create_time_ms else None
    if message.delete_time_ms:
        return InboundDeletion(event=f"{event}.deleted", source=source, at=at, message_event=event)
    quoted = next((item.ref_msg for item in items if item.ref_msg is not None), None)
    answered = quoted.message_item if quoted else None
    notes, files = _find_files(items)
    if answered is not None and not files:
        # A person who asks about a picture quotes it.
        _, files = _find_files([answered])
    described = answered.description if answered else ""
    quote = " ".join(filter(None, (quoted.title.strip(), described))) if quoted else ""
    said = "\n".join(filter(None, (item.text for item in items)))
    texts = [*filter(None, (said,)), *notes]
    if not texts and (broken or not files):
        texts = [Phrase("content.not_passed_to_bots")]
    token = message.context_token
    return InboundMessage(
        event=event,
        source=source,
        parts=text_parts(*texts),
        surface=SURFACE,
        at=at,
        reply=Target(
            PLATFORM,
            me.account,
            chat=message.from_user_id,
            reply_to=event,
            reply_context=ReplyContext(token, at + REPLY_WINDOW if at else None) if token else None,
        ),
        quote=quote,
        replies_to=str(quoted.svr_id) if quoted and not quote else "",
        files=files,
        # Each of several pictures is a message of its own.
        more=answered is None and may_have_siblings(files),
        continues=answered is None and may_have_siblings(files),
        state={name_token(me, message.from_user_id): token} if token else {},
    )


def find_event(message: WeChatMessage, items: Sequence[MessageItem] = ()) -> str:
    """Return the id of a message. One without an id gets the same whenever it is handed over again."""
    known = next((str(i) for i in (message.message_id, *(item.msg_id for item in items)) if i), "")
    if known:
        return known
    return f"digest.{hashlib.sha256(codec.dumps(message).encode()).hexdigest()[:32]}"


def name_token(me: WeChatIdentity, person: str) -> str:
    """Return the scope of the newest context token of a person, which belongs to one bot."""
    return f"context {me.bot} {person}"


def parse_reference(text: str) -> CdnReference:
    return codec.loads(text, CdnReference)


def _find_files(items: Iterable[MessageItem]) -> tuple[list[str], tuple[RemoteFile, ...]]:
    """Return sentences about files that cannot be fetched, and the files. A voice message with a text is not a file."""
    notes: list[str] = []
    files: list[RemoteFile] = []
    for item in items:
        match item.type:
            case MessageItemType.IMAGE if item.image_item is not None:
                media, key, (name, mime), size = item.image_item.media, item.image_item.aeskey, _PICTURE, 0
            case MessageItemType.VOICE if item.voice_item is not None and not item.voice_item.text:
                media, key, size = item.voice_item.media, "", 0
                name, mime = _SOUNDS.get(item.voice_item.encode_type, _SOUNDS[6])
            case MessageItemType.VIDEO if item.video_item is not None:
                media, key, (name, mime), size = item.video_item.media, "", _VIDEO, 0
            case MessageItemType.FILE if item.file_item is not None:
                file = item.file_item
                media, key, name, size = file.media, "", file.file_name or "file", max(file.len, 0)
                mime = mimetypes.guess_type(name)[0] or UNKNOWN_MIME
            case _:
                continue
        reference = CdnReference.from_media(media, key, plain=item.type == MessageItemType.IMAGE)
        if reference is None:
            notes.append(Phrase("content.file_unavailable", name=name))
        else:
            files.append(RemoteFile(reference=codec.dumps(reference), name=name, mime=mime, size=size))
    return notes, tuple(files)
