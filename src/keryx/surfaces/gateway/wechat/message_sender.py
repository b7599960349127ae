"""Sends parts as messages of the iLink bot API, shows typing, and translates refusals to send errors."""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from keryx import markdown
from keryx.core.cache import LruCache
from keryx.core.deliveries import LONGEST_REPEAT_MARK
from keryx.core.durations import Backoff
from keryx.core.errors import (
    CredentialsRefused,
    Held,
    NotSent,
    Refused,
    SendError,
    Throttled,
    Uncertain,
)
from keryx.core.ports.adapter import LengthUnit, OutgoingPart, RenderedPart
from keryx.core.texts import Phrase
from keryx.markdown import plain
from keryx.markdown.split import LengthLimit, has_visible_text, split_document
from keryx.surfaces.gateway import has_cipher
from keryx.surfaces.gateway.http_clients import NO_REASON
from keryx.surfaces.gateway.wechat.ilink_api import (
    CIPHER_MISSING,
    NOT_NOW,
    SYSTEM_ERROR,
    ILinkApi,
    WeChatApiError,
    WeChatNoResponse,
    WeChatUnreachable,
)
from keryx.surfaces.gateway.wechat.payloads import (
    BotConfig,
    CdnUploadType,
    MessageItemType,
    WeChatId,
    WeChatMessageState,
    WeChatMessageType,
)

log = logging.getLogger(__name__)

# What Tencent's plug-in sends at once, and room for the mark of a repetition. 4,000 of these units are less than the 16 KiB
# that WeChat accepts.
LIMIT = LengthLimit(4000 - LONGEST_REPEAT_MARK, LengthUnit.UTF16)
SESSION_ENDED = Phrase("connect.wechat_ended")
_MAX_PEOPLE = 10_000
# A ticket of WeChat is valid for a day.
_TICKET_SECONDS = 3600.0
_TYPING, _NOT_TYPING = 1, 2
_TYPING_TIMEOUT_SECONDS = 5.0
# How long to wait if WeChat says that messages come too fast, and does not say how long to wait.
_PAUSES = Backoff(first=timedelta(seconds=30), longest=timedelta(hours=1))
_TOO_FAST = ("rate", "frequen", "too many", "频")
_PICTURES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_VIDEOS = frozenset({"video/mp4"})


class _AcceptedMessage(msgspec.Struct, frozen=True):
    # Older versions of the API do not tell it.
    message_id: WeChatId = ""


class _Accepted(msgspec.Struct, frozen=True):
    pass


def render_parts(text: str) -> Sequence[RenderedPart]:
    parts = split_document(markdown.parse(text), plain.render, LIMIT.fill_ratio)
    return [RenderedPart(part) for part in parts if has_visible_text(part)]


class WeChatRateLimits:
    """Counts for each person how often in a row WeChat has said that messages come too fast, because it names no time."""

    def __init__(self) -> None:
        self._refusals = LruCache[str, int](_MAX_PEOPLE)

    def extend(self, chat: str) -> timedelta:
        """Return how long to wait after one more refusal."""
        refusals = (self._refusals.get(chat) or 0) + 1
        self._refusals.put(chat, refusals)
        return _PAUSES.delay(refusals)

    def clear(self, chat: str) -> None:
        self._refusals.remove(chat)


async def send(api: ILinkApi, part: OutgoingPart, *, token: str, limits: WeChatRateLimits) -> str:
    """Send one part with a context token, if there is one, and return the id of the message. Raise the errors that an
    adapter may."""
    chat = part.target.chat
    if not chat:
        raise Refused(Phrase("delivery.no_person", example="wechat:<id of the person>"))
    item = await _build_item(api, part, limits)
    # WeChat does not promise to recognise a repetition by this id. If it does, all the better.
    client_id = f"keryx-{part.key}"
    message: dict[str, Any] = {
        "from_user_id": "",
        "to_user_id": chat,
        "client_id": client_id,
        "message_type": WeChatMessageType.BOT.value,
        "message_state": WeChatMessageState.FINISH.value,
        "item_list": [item],
        **({"context_token": token} if token else {}),
    }
    try:
        accepted = await api.post("sendmessage", {"msg": message}, _AcceptedMessage)
    except WeChatApiError as exc:
        raise translate_error(exc, chat, limits) from None
    except WeChatUnreachable as exc:
        raise NotSent(str(exc)) from None
    except WeChatNoResponse as exc:
        raise Uncertain(str(exc)) from None
    limits.clear(chat)
    return str(accepted.message_id or client_id)


def translate_error(error: WeChatApiError, chat: str, limits: WeChatRateLimits) -> SendError:
    """Return the send error of a refusal. After a 5xx, the message may have been accepted."""
    if error.expired:
        return CredentialsRefused(SESSION_ENDED)
    asked = timedelta(seconds=error.retry_after)
    too_fast = error.code == NOT_NOW and any(word in error.description.lower() for word in _TOO_FAST)
    if error.status == 429 or too_fast:
        wait = asked or limits.extend(chat)
        return Throttled(
            Phrase("delivery.too_fast", platform="WeChat", seconds=f"{wait.total_seconds():g}"), after=wait
        )
    if error.code == NOT_NOW:
        return Held(Phrase("delivery.held_until"))
    if error.code == SYSTEM_ERROR:
        return NotSent(Phrase("delivery.not_now", platform="WeChat", reason=error.description or NO_REASON))
    if error.status >= 500:
        return Uncertain(Phrase("delivery.broke_down", platform="WeChat", status=error.status))
    return Refused(
        Phrase(
            "delivery.refused_status",
            platform="WeChat",
            reason=error.description or NO_REASON,
            status=error.code or error.status,
        )
    )


async def _build_item(api: ILinkApi, part: OutgoingPart, limits: WeChatRateLimits) -> dict[str, Any]:
    """Return the content of a message. Files are uploaded first; nothing is sent if that fails."""
    file = part.attachment
    if file is None:
        return {"type": MessageItemType.TEXT.value, "text_item": {"text": part.mark + part.text}}
    if not has_cipher():
        raise Refused(CIPHER_MISSING)
    try:
        # Upload a file. A picture or video has no room for the mark of a repetition, so it is then sent as a
        # file.
        mime = file.mime.partition(";")[0].strip().lower()
        kind = CdnUploadType.FILE
        if not part.again and mime in _PICTURES | _VIDEOS:
            kind = CdnUploadType.IMAGE if mime in _PICTURES else CdnUploadType.VIDEO
        uploaded = await api.upload(file.body, kind, to=part.target.chat)
        media = {
            "encrypt_query_param": uploaded.download_param,
            "aes_key": uploaded.aes_key,
            "encrypt_type": 1,
        }
        match kind:
            case CdnUploadType.IMAGE:
                image = {"media": media, "mid_size": uploaded.encrypted_size}
                return {"type": MessageItemType.IMAGE.value, "image_item": image}
            case CdnUploadType.VIDEO:
                video = {"media": media, "video_size": uploaded.encrypted_size}
                return {"type": MessageItemType.VIDEO.value, "video_item": video}
            case CdnUploadType.FILE:
                name = part.mark + (file.name or "file")
                document = {"media": media, "file_name": name, "len": str(len(file.body))}
                return {"type": MessageItemType.FILE.value, "file_item": document}
    except WeChatApiError as exc:
        error = translate_error(exc, part.target.chat, limits)
        raise (NotSent(str(error)) if isinstance(error, Uncertain) else error) from None
    except (WeChatUnreachable, WeChatNoResponse) as exc:
        raise NotSent(str(exc)) from None


class WeChatTyping:
    """Shows that an answer is being written, until it is sent: WeChat shows it until it is ended. Each person
    needs a ticket for it, which is kept for an hour."""

    def __init__(self, api: ILinkApi, now: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._now = now
        # With the time until which it is used.
        self._tickets = LruCache[str, tuple[str, float]](_MAX_PEOPLE)
        self._shown: set[str] = set()

    async def show(self, person: str, *, token: str) -> None:
        """Raise the errors that an adapter may."""
        try:
            ticket = await self._find_ticket(person, token)
            if ticket:
                await self._send(person, ticket, _TYPING)
                self._shown.add(person)
        except WeChatApiError as exc:
            # A ticket that has expired is replaced the next time.
            self._tickets.remove(person)
            raise NotSent(SESSION_ENDED if exc.expired else str(exc)) from None
        except (WeChatUnreachable, WeChatNoResponse) as exc:
            raise NotSent(str(exc)) from None

    async def end(self, person: str) -> None:
        """Show no longer that an answer is being written. Never raises: the answer matters more."""
        if person not in self._shown:
            return
        self._shown.discard(person)
        ticket, _ = self._tickets.get(person) or ("", 0.0)
        try:
            if ticket:
                await self._send(person, ticket, _NOT_TYPING)
        except (WeChatApiError, WeChatUnreachable, WeChatNoResponse) as exc:
            log.info("typing could not be ended: %s", exc)

    async def _find_ticket(self, person: str, token: str) -> str:
        ticket, until = self._tickets.get(person) or ("", 0.0)
        if ticket and self._now() < until:
            return ticket
        body = {"ilink_user_id": person, **({"context_token": token} if token else {})}
        found = await self._api.post("getconfig", body, BotConfig, seconds=_TYPING_TIMEOUT_SECONDS)
        self._tickets.remove(person)
        if found.typing_ticket:
            self._tickets.put(person, (found.typing_ticket, self._now() + _TICKET_SECONDS))
        return found.typing_ticket

    async def _send(self, person: str, ticket: str, status: int) -> None:
        body = {"ilink_user_id": person, "typing_ticket": ticket, "status": status}
        await self._api.post("sendtyping", body, _Accepted, seconds=_TYPING_TIMEOUT_SECONDS)
