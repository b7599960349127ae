"""Sends parts as messages of WhatsApp, on both platforms of Meta, and translates Meta's refusals to send errors."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from keryx.core import source as sources
from keryx.core.cache import LruCache
from keryx.core.deliveries import LONGEST_REPEAT_MARK, Target
from keryx.core.errors import (
    CredentialsRefused,
    Held,
    NotSent,
    Refused,
    SendError,
    TargetGone,
    Throttled,
    Uncertain,
)
from keryx.core.media import UNKNOWN_MIME, Attachment
from keryx.core.ports.adapter import LengthUnit, OutgoingPart, RenderedPart
from keryx.core.questions import Button
from keryx.core.texts import Phrase
from keryx.markdown import whatsapp_markup
from keryx.markdown.split import LengthLimit
from keryx.surfaces.gateway.whatsapp.event_parser import (
    BSUID_PATTERN,
    GONE_CODES,
    HOLD_CODES,
    PLATFORM,
    format_callback,
    is_person,
)
from keryx.surfaces.gateway.whatsapp.graph_api import (
    RateWindow,
    WhatsAppApi,
    WhatsAppApiError,
    WhatsAppNoResponse,
    WhatsAppUnreachable,
    read_id,
)

# Leaves room for the mark of a repetition.
LIMIT = LengthLimit(whatsapp_markup.LIMIT.size - LONGEST_REPEAT_MARK, LengthUnit.UTF16)
MAX_BUTTONS = 3
BUTTON_LABEL_LENGTH = 20
MAX_ROWS = 10
_MAX_CHATS = 10_000
# The longest text above buttons; above a list it is as long as any.
_MAX_BUTTON_TEXT = 1024
_MAX_BUTTON_ID = 256
_LIST_LABEL = "Options"
_MEDIA_TYPES = {
    "image/jpeg": "image",
    "image/png": "image",
    "audio/aac": "audio",
    "audio/amr": "audio",
    "audio/mp4": "audio",
    "audio/mpeg": "audio",
    "audio/ogg": "audio",
    "video/mp4": "video",
    "video/3gpp": "video",
}
# A larger file is sent as a document.
_MAX_MEDIA_BYTES = {"image": 5_000_000, "audio": 16_000_000, "video": 16_000_000}
# What the Agent Platform takes besides these types; anything else is sent without its type.
_AGENT_DOCUMENTS = frozenset(
    {
        "application/pdf",
        "text/plain",
        "application/msword",
        "application/vnd.ms-excel",
        "application/vnd.ms-powerpoint",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    }
)
# Typing lasts for 25 seconds.
_TYPING_SECONDS = 20.0
_INVALID = frozenset({100, 131008, 131009})
_BAD_TOKEN = 190
# How long to wait if WhatsApp does not say: for one person, for the whole account, and after a block by its policies.
_PAIR_PAUSE = timedelta(seconds=6)
_ACCOUNT_PAUSE = timedelta(seconds=15)
_BLOCK_PAUSE = timedelta(hours=1)
_ACCOUNT_LIMITS = {
    4: "the app has made too many calls",
    80007: "the business has made too many calls",
    130429: "too many messages",
    131048: "too many messages were blocked or reported as spam",
}


class MessageRoute(msgspec.Struct, frozen=True, kw_only=True):
    """Where the calls of an account go, and what its platform can do."""

    messages: str
    statuses: str
    media: str
    # Groups, buttons, ids of people within the business, and data that statuses bring back.
    cloud: bool
    # Answers in direct chats quote the message, as those in groups do.
    quote: bool = False


def render_parts(markdown: str) -> Sequence[RenderedPart]:
    return [RenderedPart(part) for part in whatsapp_markup.render_parts(markdown, LIMIT)]


async def send(api: WhatsAppApi, route: MessageRoute, part: OutgoingPart) -> str:
    """Send one part and return the id of the message. Raise the errors that an adapter may."""
    target = part.target
    body = _build_address(route, target)
    if route.cloud:
        body["biz_opaque_callback_data"] = format_callback(part.delivery, part.number)
    if part.number == 0 and target.reply_to and (route.quote or not is_person(target.chat)):
        body["context"] = {"message_id": target.reply_to}
    try:
        if part.attachment is not None:
            return await _send_file(api, route, body, part, part.attachment)
        # Send a text. If WhatsApp refuses its buttons, send it without them: the text itself says how to
        # answer.
        text = part.mark + part.text
        plain = {**body, "type": "text", "text": {"body": text, "preview_url": False}}
        choices = _build_choices(text, part.buttons) if route.cloud else None
        if choices is None:
            return await _post_message(api, route, plain)
        try:
            return await _post_message(api, route, {**body, "type": "interactive", "interactive": choices})
        except WhatsAppApiError as exc:
            if exc.code not in _INVALID:
                raise
            return await _post_message(api, route, plain)
    except WhatsAppApiError as exc:
        raise translate_error(exc) from None
    except WhatsAppUnreachable as exc:
        raise NotSent(str(exc)) from None
    except WhatsAppNoResponse as exc:
        raise Uncertain(str(exc)) from None


async def send_typing(api: WhatsAppApi, route: MessageRoute, message: str) -> None:
    """Mark a message as read, and show for 25 seconds that it is being answered."""
    body = {
        "messaging_product": "whatsapp",
        "status": "read",
        "message_id": message,
        "typing_indicator": {"type": "text"},
    }
    await _call(api, route.statuses, body)


async def react(api: WhatsAppApi, route: MessageRoute, target: Target, emoji: str) -> None:
    if not target.reply_to:
        raise Refused(Phrase("delivery.no_message"))
    body = {"type": "reaction", "reaction": {"message_id": target.reply_to, "emoji": emoji}}
    await _call(api, route.messages, {**_build_address(route, target), **body})


async def send_template(
    api: WhatsAppApi, route: MessageRoute, target: Target, *, name: str, language: str
) -> None:
    """Send an approved template, which WhatsApp accepts at any time."""
    template = {"name": name, "language": {"code": language}}
    await _call(
        api, route.messages, {**_build_address(route, target), "type": "template", "template": template}
    )


def translate_error(error: WhatsAppApiError) -> SendError:
    """Return the send error of a refusal. After an unknown 5xx, the message may have been accepted."""
    code, text = error.code, error.description
    asked = timedelta(seconds=error.retry_after)
    if code in HOLD_CODES:
        return Held(Phrase("delivery.held_day", hours="24", platform="WhatsApp"))
    if code == 131056:
        wait = asked or _PAIR_PAUSE
        return Throttled(Phrase("delivery.wait_person", seconds=f"{wait.total_seconds():g}"), after=wait)
    if code in _ACCOUNT_LIMITS or error.status == 429:
        wait = asked or _ACCOUNT_PAUSE
        why = _ACCOUNT_LIMITS.get(code, "too many calls")
        return Throttled(
            Phrase(
                "delivery.wait_because", platform="WhatsApp", seconds=f"{wait.total_seconds():g}", reason=why
            ),
            after=wait,
            account=True,
        )
    if code == 368:
        return Throttled(
            Phrase("delivery.blocked", platform="WhatsApp", reason=text), after=_BLOCK_PAUSE, account=True
        )
    if error.status == 401 or code == _BAD_TOKEN:
        return CredentialsRefused(Phrase("delivery.wrong_access_token", platform="WhatsApp"))
    if code in (131016, 131057):
        return NotSent(Phrase("delivery.not_now_status", platform="WhatsApp", reason=text, status=code))
    if error.status >= 500:
        return Uncertain(Phrase("delivery.broke_down", platform="WhatsApp", status=code or error.status))
    if code in GONE_CODES:
        reason = Phrase("reason.detailed", reason=Phrase(GONE_CODES[code]), detail=str(code))
        return TargetGone(Phrase("target.refused", platform="WhatsApp", reason=reason))
    return Refused(
        Phrase("delivery.refused_status", platform="WhatsApp", reason=text, status=code or error.status)
    )


async def _call(api: WhatsAppApi, path: str, body: dict[str, Any]) -> None:
    """Make a call that may be lost. Raise only errors that an adapter may raise."""
    try:
        await api.post(path, body)
    except WhatsAppApiError as exc:
        raise translate_error(exc) from None
    except (WhatsAppUnreachable, WhatsAppNoResponse) as exc:
        raise NotSent(str(exc)) from None


def _build_address(route: MessageRoute, target: Target) -> dict[str, Any]:
    """Return the fields that name the recipient: a number, the id of a person, or a group."""
    chat = sources.normalize_user(PLATFORM, target.chat)
    if not chat:
        raise Refused(Phrase("delivery.no_chat", example="whatsapp:<number>"))
    if not route.cloud:
        return {"messaging_product": "whatsapp", "to": chat}
    kind = "individual" if is_person(chat) else "group"
    field = "recipient" if BSUID_PATTERN.fullmatch(chat) else "to"
    return {"messaging_product": "whatsapp", "recipient_type": kind, field: chat}


def _build_choices(text: str, buttons: Sequence[Button]) -> dict[str, Any] | None:
    """Return buttons, or a list if there are more than three or the text is long; `None` if WhatsApp takes neither."""
    labels = [button.label[:BUTTON_LABEL_LENGTH] for button in buttons]
    usable = (
        0 < len(buttons) <= MAX_ROWS
        and all(label.strip() for label in labels)
        and len(set(labels)) == len(labels)
        and all(len(button.says) <= _MAX_BUTTON_ID for button in buttons)
    )
    if not usable:
        return None
    pairs = list(zip(buttons, labels, strict=True))
    if len(buttons) <= MAX_BUTTONS and len(text) <= _MAX_BUTTON_TEXT:
        replies = [{"type": "reply", "reply": {"id": b.says, "title": label}} for b, label in pairs]
        return {"type": "button", "body": {"text": text}, "action": {"buttons": replies}}
    rows = [{"id": b.says, "title": label} for b, label in pairs]
    return {
        "type": "list",
        "body": {"text": text},
        "action": {"button": _LIST_LABEL, "sections": [{"rows": rows}]},
    }


async def _send_file(
    api: WhatsAppApi, route: MessageRoute, body: dict[str, Any], part: OutgoingPart, attachment: Attachment
) -> str:
    """Upload a file and send it. Nothing is shown before the second call, so a failure of the first is certain."""
    mime = attachment.mime.partition(";")[0].strip().lower() or UNKNOWN_MIME
    kind = _MEDIA_TYPES.get(mime, "document")
    # A sound has no caption, and what may be a repetition is never sent without its mark.
    if len(attachment.body) > _MAX_MEDIA_BYTES.get(kind, len(attachment.body)) or (
        kind == "audio" and part.mark
    ):
        kind = "document"
    if not route.cloud and kind == "document" and mime not in _AGENT_DOCUMENTS:
        mime = UNKNOWN_MIME
    try:
        media: dict[str, Any] = {"id": await api.upload(route.media, attachment, mime)}
    except WhatsAppNoResponse as exc:
        raise NotSent(str(exc)) from None
    except WhatsAppApiError as exc:
        error = translate_error(exc)
        raise (NotSent(str(exc)) if isinstance(error, Uncertain) else error) from None
    if part.mark and kind != "audio":
        media["caption"] = part.mark.strip()
    if kind == "document":
        media["filename"] = attachment.name or "file"
    if kind == "audio" and mime == "audio/ogg" and route.cloud:
        media["voice"] = True
    return await _post_message(api, route, {**body, "type": kind, kind: media})


async def _post_message(api: WhatsAppApi, route: MessageRoute, body: dict[str, Any]) -> str:
    """Post a message and return its id. If WhatsApp refuses it with its quote, post it without: the message that is
    quoted may be gone."""
    try:
        found = await api.post(route.messages, body)
    except WhatsAppApiError as exc:
        if exc.code not in _INVALID or "context" not in body:
            raise
        found = await api.post(
            route.messages, {name: value for name, value in body.items() if name != "context"}
        )
    try:
        return read_id(found["messages"][0])
    except (TypeError, KeyError, IndexError):
        raise WhatsAppNoResponse(Phrase("delivery.no_id", platform="WhatsApp")) from None


class TypingIndicator:
    """Shows typing at the newest message of a chat, once while it still shows, and so often a minute as WhatsApp accepts it
    (`per_minute`, 0 for any): beyond that it is left out."""

    def __init__(
        self,
        api: WhatsAppApi,
        route: MessageRoute,
        *,
        per_minute: int = 0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._route = route
        self._now = now
        self._calls = RateWindow(per_minute, now)
        self._shown_until: dict[str, float] = {}
        # By chat, for as many chats as are likely to be typed in.
        self.newest_messages = LruCache[str, str](_MAX_CHATS)

    async def show(self, target: Target) -> None:
        message, now = target.reply_to or self.newest_messages.get(target.chat, ""), self._now()
        self._shown_until = {id_: until for id_, until in self._shown_until.items() if until > now}
        if message and message not in self._shown_until and not self._calls.take():
            self._shown_until[message] = now + _TYPING_SECONDS
            await send_typing(self._api, self._route, message)
