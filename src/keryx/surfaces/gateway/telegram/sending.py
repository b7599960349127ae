"""Sending: parcels as calls of the Bot API, and what became of them in the engine's words."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from keryx.core.deliveries import AGAIN, Target
from keryx.core.errors import Gone, NotSent, Refused, SendError, Throttled, Uncertain
from keryx.core.ports import Attachment, Parcel
from keryx.core.questions import Button
from keryx.surfaces.gateway.render import part, telegram
from keryx.surfaces.gateway.render.measure import Limit, Unit
from keryx.surfaces.gateway.render.telegram import Entity, Rendered
from keryx.surfaces.gateway.telegram.api import Api, ApiError, Unanswered, Unreached

LIMIT = Limit(telegram.LIMIT.size - len(AGAIN), Unit.UTF16)
"""The mark of a repetition always has room."""

_FLOOD_SECONDS = 5.0
_PHOTOS = ("image/jpeg", "image/png", "image/webp")
_LARGEST_PHOTO = 10_000_000
_LARGEST_UPLOAD = 50_000_000
_LONGEST_LABEL = 60
_LONGEST_PRESS = 64
"""In bytes: what Telegram keeps for a button and gives back when it is pressed."""
_SENTENCES = (
    ("bot was blocked by the user", "the person has blocked the bot"),
    ("user is deactivated", "the person's account no longer exists"),
    ("bot can't initiate conversation", "the person has not written to the bot yet"),
    ("bot was kicked", "the bot is no longer in this chat"),
    ("bot is not a member", "the bot is no longer in this chat"),
    ("chat not found", "there is no such chat, or the bot has never been in it"),
    ("message thread not found", "the topic was deleted"),
    ("topic_closed", "the topic is closed"),
    ("not enough rights", "the bot may not write in this chat: an administrator must allow it"),
    ("have no rights", "the bot may not write in this chat: an administrator must allow it"),
)


def parts(markdown: str) -> Sequence[str]:
    return [part.dumps(one) for one in telegram.parts(markdown, LIMIT)]


async def send(api: Api, parcel: Parcel) -> str:
    """Send one parcel; gives the id of the message. Raises the errors that an adapter may."""
    try:
        return await _send_there(api, parcel)
    except ApiError as exc:
        raise translated(exc) from None


async def typing(api: Api, target: Target) -> None:
    try:
        await api.call("sendChatAction", **_place(target), action="typing")
    except ApiError as exc:
        raise translated(exc) from None
    except (Unreached, Unanswered) as exc:
        raise NotSent(str(exc)) from None


def translated(error: ApiError) -> SendError:
    """What a refusal means. A 5xx says nothing about whether the message was taken."""
    text = error.description.lower()
    if error.code == 429:
        wait = timedelta(seconds=error.retry_after or _FLOOD_SECONDS)
        return Throttled(f"Telegram asks to wait {wait.total_seconds():g} s", after=wait)
    if error.code in (401, 404):
        return NotSent("Telegram does not know the bot's token: run `keryx gateway setup telegram`")
    if error.code >= 500:
        return Uncertain(f"Telegram broke down ({error.code}) and may have taken the message")
    if "message to edit not found" in text or "message can't be edited" in text:
        return Gone("the message to edit is no longer there")
    why = next((sentence for words, sentence in _SENTENCES if words in text), error.description)
    return Refused(f"Telegram refuses: {why}")


async def _send_there(api: Api, parcel: Parcel) -> str:
    """Send to the chat, or to the one that it has become; a group that moved takes nothing under its old id."""
    try:
        return await _send(api, parcel)
    except ApiError as exc:
        if not exc.moved_to:
            raise
        moved = msgspec.structs.replace(parcel.target, chat=exc.moved_to, reply_to="")
    return await _send(api, msgspec.structs.replace(parcel, target=moved))


async def _send(api: Api, parcel: Parcel) -> str:
    try:
        if parcel.attachment is not None:
            return await _send_file(api, parcel, parcel.attachment)
        return await _send_text(api, parcel, part.loads(parcel.text, Rendered))
    except Unreached as exc:
        raise NotSent(str(exc)) from None
    except Unanswered as exc:
        raise Uncertain(str(exc)) from None


async def _send_text(api: Api, parcel: Parcel, shown: Rendered) -> str:
    """Send a text, and where Telegram does not take its buttons without them: it says itself how to answer."""
    try:
        return await _send_formatted(api, parcel, shown)
    except ApiError as exc:
        if not parcel.buttons or exc.code != 400 or not _names(exc, "button", "keyboard", "markup"):
            raise
        return await _send_formatted(api, msgspec.structs.replace(parcel, buttons=()), shown)


async def _send_formatted(api: Api, parcel: Parcel, shown: Rendered) -> str:
    mark = AGAIN if parcel.again else ""
    try:
        return await _write(api, parcel, mark + shown.text, _shifted(shown.entities, len(mark)))
    except ApiError as exc:
        if not shown.entities or not _formatting(exc):
            raise
        return await _write(api, parcel, mark + shown.plain, [])


async def _write(api: Api, parcel: Parcel, text: str, entities: list[dict[str, Any]]) -> str:
    # Without entities of ours Telegram would find its own, which changes no text.
    body: dict[str, Any] = {"text": text, "entities": entities, "reply_markup": _keyboard(parcel.buttons)}
    if not parcel.edits:
        found = await api.call("sendMessage", **_place(parcel.target), **_reply(parcel), **body)
        return _id(found)
    try:
        await api.call(
            "editMessageText", chat_id=parcel.target.chat, message_id=_number(parcel.edits), **body
        )
    except ApiError as exc:
        if "message is not modified" not in exc.description.lower():
            raise
    return parcel.edits


async def _send_file(api: Api, parcel: Parcel, attachment: Attachment) -> str:
    if len(attachment.body) > _LARGEST_UPLOAD:
        raise Refused(f"{attachment.name} is larger than the 50 MB that Telegram takes from a bot")
    method, field = _way(attachment)
    place = {**_place(parcel.target), **_reply(parcel), "caption": AGAIN.strip() if parcel.again else None}
    try:
        found = await api.upload(method, field, attachment, **place)
    except ApiError as exc:
        if field == "document" or exc.code != 400 or exc.moved_to:
            raise
        found = await api.upload("sendDocument", "document", attachment, **place)
    return _id(found)


def _way(attachment: Attachment) -> tuple[str, str]:
    mime = attachment.mime.partition(";")[0].strip().lower()
    if mime in _PHOTOS and len(attachment.body) <= _LARGEST_PHOTO:
        return "sendPhoto", "photo"
    if mime == "audio/ogg":
        return "sendVoice", "voice"
    if mime in ("audio/mpeg", "audio/mp4"):
        return "sendAudio", "audio"
    return "sendDocument", "document"


def _place(target: Target) -> dict[str, Any]:
    if not target.chat:
        raise Refused("the target names no chat: write telegram:<chat id>")
    return {
        "chat_id": target.chat,
        "message_thread_id": _number(target.thread) if target.thread else None,
    }


def _reply(parcel: Parcel) -> dict[str, Any]:
    """In a group the first part shows what it answers; a direct chat needs no such help."""
    target = parcel.target
    if parcel.part or not target.reply_to or not target.chat.startswith("-"):
        return {}
    return {
        "reply_parameters": {
            "message_id": _number(target.reply_to),
            "allow_sending_without_reply": True,
        }
    }


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refused(f"{text[:40]!r} is no number, as Telegram needs it here") from None


def _id(found: Any) -> str:
    try:
        return str(found["message_id"])
    except (TypeError, KeyError):
        raise Unanswered("Telegram took the message and gave no id") from None


def _keyboard(buttons: Sequence[Button]) -> dict[str, Any] | None:
    """A row for each button; none at all if one of them says more than Telegram keeps."""
    if not buttons or any(len(b.says.encode()) > _LONGEST_PRESS for b in buttons):
        return None
    rows = [[{"text": b.label[:_LONGEST_LABEL], "callback_data": b.says}] for b in buttons]
    return {"inline_keyboard": rows}


def _formatting(error: ApiError) -> bool:
    return error.code == 400 and _names(error, "entit", "parse")


def _names(error: ApiError, *words: str) -> bool:
    return any(word in error.description.lower() for word in words)


def _shifted(entities: Sequence[Entity], by: int) -> list[dict[str, Any]]:
    return [
        msgspec.to_builtins(msgspec.structs.replace(entity, offset=entity.offset + by)) for entity in entities
    ]
