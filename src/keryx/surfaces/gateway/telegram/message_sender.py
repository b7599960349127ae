"""Sends parts as Bot API calls and translates Telegram's refusals to send errors."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from keryx.core.deliveries import LONGEST_REPEAT_MARK, Target
from keryx.core.errors import (
    CredentialsRefused,
    MessageGone,
    NotSent,
    Refused,
    SendError,
    TargetGone,
    Throttled,
    Uncertain,
)
from keryx.core.media import Attachment
from keryx.core.ports.adapter import LengthUnit, OutgoingPart, RenderedPart
from keryx.core.texts import Phrase
from keryx.markdown import telegram_entities
from keryx.markdown.split import LengthLimit
from keryx.markdown.telegram_entities import TelegramText
from keryx.surfaces.gateway.telegram.bot_api import (
    TelegramApi,
    TelegramApiError,
    TelegramNoResponse,
    TelegramUnreachable,
)

# Leaves room for the mark of a repetition.
LIMIT = LengthLimit(telegram_entities.LIMIT.size - LONGEST_REPEAT_MARK, LengthUnit.UTF16)

_DEFAULT_PAUSE_SECONDS = 5.0
_UPLOAD_DOCUMENT = ("sendDocument", "document")
_UPLOAD_METHODS = {
    "image/jpeg": ("sendPhoto", "photo"),
    "image/png": ("sendPhoto", "photo"),
    "image/webp": ("sendPhoto", "photo"),
    "audio/ogg": ("sendVoice", "voice"),
    "audio/mpeg": ("sendAudio", "audio"),
    "audio/mp4": ("sendAudio", "audio"),
}
_MAX_PHOTO_BYTES = 10_000_000
_MAX_UPLOAD_BYTES = 50_000_000
_MAX_LABEL_LENGTH = 60
_MAX_CALLBACK_BYTES = 64
_GONE = ("message to edit not found", "message can't be edited", "message to delete not found")
_GONE_TARGETS = (
    ("bot was blocked by the user", "gone.blocked"),
    ("user is deactivated", "gone.no_account"),
    ("bot can't initiate conversation", "gone.not_written"),
    ("bot was kicked", "gone.left"),
    ("bot is not a member", "gone.left"),
    ("chat not found", "gone.no_chat"),
    ("message thread not found", "gone.no_topic"),
    ("topic_closed", "gone.topic_closed"),
    ("not enough rights", "gone.forbidden_chat"),
    ("have no rights", "gone.forbidden_chat"),
)


def render_parts(markdown: str) -> Sequence[RenderedPart]:
    return [RenderedPart(part.text, part) for part in telegram_entities.render_parts(markdown, LIMIT)]


async def send(api: TelegramApi, part: OutgoingPart) -> str:
    """Send one part and return the id of the message. Raise the errors that an adapter may.

    A group that became a supergroup accepts nothing under its old id, so the part is sent to the new one."""
    try:
        try:
            return await _send_part(api, part)
        except TelegramApiError as exc:
            if not exc.moved_to:
                raise
            moved = msgspec.structs.replace(part.target, chat=exc.moved_to, reply_to="")
        return await _send_part(api, msgspec.structs.replace(part, target=moved))
    except TelegramApiError as exc:
        raise translate_error(exc) from None


async def send_typing(api: TelegramApi, target: Target) -> None:
    try:
        await api.call("sendChatAction", **_build_chat_params(target), action="typing")
    except TelegramApiError as exc:
        raise translate_error(exc) from None
    except (TelegramUnreachable, TelegramNoResponse) as exc:
        raise NotSent(str(exc)) from None


async def remove(api: TelegramApi, target: Target, message: str) -> None:
    """Delete a message of the bot. Raise the errors that an adapter may."""
    try:
        await api.call("deleteMessage", chat_id=target.chat, message_id=_parse_number(message))
    except TelegramApiError as exc:
        raise translate_error(exc) from None
    except (TelegramUnreachable, TelegramNoResponse) as exc:
        raise NotSent(str(exc)) from None


def translate_error(error: TelegramApiError) -> SendError:
    """Return the send error of a refusal. After a 5xx, the message may have been accepted."""
    text = error.description.lower()
    if error.code == 429:
        wait = timedelta(seconds=error.retry_after or _DEFAULT_PAUSE_SECONDS)
        return Throttled(
            Phrase("delivery.wait", platform="Telegram", seconds=f"{wait.total_seconds():g}"), after=wait
        )
    if error.code in (401, 404):
        return CredentialsRefused(Phrase("delivery.wrong_token"))
    if error.code >= 500:
        return Uncertain(Phrase("delivery.broke_down", platform="Telegram", status=error.code))
    if any(words in text for words in _GONE):
        return MessageGone(Phrase("delivery.message_gone"))
    gone = next((sentence for words, sentence in _GONE_TARGETS if words in text), None)
    if gone is not None:
        return TargetGone(Phrase("target.refused", platform="Telegram", reason=Phrase(gone)))
    return Refused(Phrase("delivery.refused_because", platform="Telegram", reason=error.description))


async def _send_part(api: TelegramApi, part: OutgoingPart) -> str:
    try:
        if part.attachment is not None:
            return await _send_file(api, part, part.attachment)
        markup = part.markup
        shown = markup if isinstance(markup, TelegramText) else TelegramText(part.text, (), part.text)
        # Send a text. If Telegram refuses its buttons, send it without them: the text itself says how to
        # answer.
        try:
            return await _send_formatted(api, part, shown)
        except TelegramApiError as exc:
            if (
                not part.buttons
                or exc.code != 400
                or not _description_contains(exc, "button", "keyboard", "markup")
            ):
                raise
            return await _send_formatted(api, msgspec.structs.replace(part, buttons=()), shown)
    except TelegramUnreachable as exc:
        raise NotSent(str(exc)) from None
    except TelegramNoResponse as exc:
        raise Uncertain(str(exc)) from None


async def _send_formatted(api: TelegramApi, part: OutgoingPart, markup: TelegramText) -> str:
    """Send a text with its entities. If Telegram refuses them, send the plain text."""
    mark = part.mark
    entities = [
        msgspec.to_builtins(msgspec.structs.replace(entity, offset=entity.offset + len(mark)))
        for entity in markup.entities
    ]
    try:
        return await _send_or_edit(api, part, mark + markup.text, entities)
    except TelegramApiError as exc:
        if not entities or exc.code != 400 or not _description_contains(exc, "entit", "parse"):
            raise
        return await _send_or_edit(api, part, mark + markup.plain, [])


async def _send_or_edit(
    api: TelegramApi, part: OutgoingPart, text: str, entities: list[dict[str, Any]]
) -> str:
    rows = [[{"text": b.label[:_MAX_LABEL_LENGTH], "callback_data": b.says}] for b in part.buttons]
    # Telegram refuses the whole message if it cannot store the data of one button.
    usable = rows and all(len(b.says.encode()) <= _MAX_CALLBACK_BYTES for b in part.buttons)
    # For an empty list, Telegram detects links and the like itself; the text stays the same.
    body: dict[str, Any] = {
        "text": text,
        "entities": entities,
        "reply_markup": {"inline_keyboard": rows} if usable else None,
    }
    if not part.edits:
        found = await api.call(
            "sendMessage", **_build_chat_params(part.target), **_build_reply_params(part), **body
        )
        return _read_message_id(found)
    try:
        await api.call(
            "editMessageText", chat_id=part.target.chat, message_id=_parse_number(part.edits), **body
        )
    except TelegramApiError as exc:
        if "message is not modified" not in exc.description.lower():
            raise
    return part.edits


async def _send_file(api: TelegramApi, part: OutgoingPart, attachment: Attachment) -> str:
    if len(attachment.body) > _MAX_UPLOAD_BYTES:
        raise Refused(Phrase("delivery.file_over_bot_limit", name=attachment.name))
    mime = attachment.mime.partition(";")[0].strip().lower()
    method, field = _UPLOAD_METHODS.get(mime, _UPLOAD_DOCUMENT)
    if field == "photo" and len(attachment.body) > _MAX_PHOTO_BYTES:
        method, field = _UPLOAD_DOCUMENT
    params = {
        **_build_chat_params(part.target),
        **_build_reply_params(part),
        "caption": part.mark.strip() or None,
    }
    try:
        found = await api.upload(method, field, attachment, **params)
    except TelegramApiError as exc:
        if field == "document" or exc.code != 400 or exc.moved_to:
            raise
        found = await api.upload(*_UPLOAD_DOCUMENT, attachment, **params)
    return _read_message_id(found)


def _build_chat_params(target: Target) -> dict[str, Any]:
    if not target.chat:
        raise Refused(Phrase("delivery.no_chat", example="telegram:<chat id>"))
    return {
        "chat_id": target.chat,
        "message_thread_id": _parse_number(target.thread) if target.thread else None,
    }


def _build_reply_params(part: OutgoingPart) -> dict[str, Any]:
    """Return the parameters of a reply for the first part in a group; none in a direct chat."""
    target = part.target
    if part.number or not target.reply_to or not target.chat.startswith("-"):
        return {}
    return {
        "reply_parameters": {
            "message_id": _parse_number(target.reply_to),
            "allow_sending_without_reply": True,
        }
    }


def _parse_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refused(Phrase("delivery.no_number", text=repr(text[:40]), platform="Telegram")) from None


def _read_message_id(found: Any) -> str:
    try:
        return str(found["message_id"])
    except (TypeError, KeyError):
        raise TelegramNoResponse(Phrase("delivery.no_id", platform="Telegram")) from None


def _description_contains(error: TelegramApiError, *words: str) -> bool:
    return any(word in error.description.lower() for word in words)
