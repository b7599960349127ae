"""Sends parts as cards, rich texts and files of Feishu, edits and recalls them, and translates Feishu's refusals to send errors."""

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from keryx.core.cache import LruCache
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
from keryx.core.questions import Button
from keryx.core.texts import Phrase
from keryx.markdown import feishu_markdown
from keryx.markdown.split import LengthLimit
from keryx.surfaces.gateway.feishu.chat_directory import FeishuDirectory
from keryx.surfaces.gateway.feishu.event_parser import DIRECT_CONTEXT, build_press
from keryx.surfaces.gateway.feishu.open_api import (
    BAD_SECRET,
    FeishuApi,
    FeishuApiError,
    FeishuNoResponse,
    FeishuUnreachable,
    encode_json,
    read_data,
)
from keryx.surfaces.gateway.feishu.payloads import StoredMessage

log = logging.getLogger(__name__)

# Leaves room for the mark of a repetition, of at most four bytes a character.
LIMIT = LengthLimit(feishu_markdown.LIMIT.size - 4 * LONGEST_REPEAT_MARK, LengthUnit.BYTES)
MAX_LABEL_LENGTH = 60
# How often a rich text may be edited. Cards have no such limit.
MAX_POST_EDITS = 20
MAX_FILE_BYTES = 30_000_000
_MAX_IMAGE_BYTES = 10_000_000
_MAX_BUTTONS = 20
# Feishu recognises a repeated uuid for one hour.
UUID_LIFETIME = timedelta(minutes=55)
# The first attempt to send a part follows the making of its key at once.
_FIRST_ATTEMPT = timedelta(seconds=10)
_MAX_UUID_LENGTH = 50
_OWN_KEY = re.compile(r"k([0-9a-f]{11})-[0-9a-f]{32}\Z")
_SUMMARY_LENGTH = 100
_MAX_THREADS = 2_000
_MESSAGES = "/open-apis/im/v1/messages"
# By the beginning of an id.
_ID_TYPES = {"ou_": "open_id", "on_": "union_id"}
_IMAGE_TYPES = frozenset(
    f"image/{kind}" for kind in ("jpeg", "png", "gif", "webp", "bmp", "tiff", "heic", "x-icon")
)
# The type of an upload, and of the message that shows it.
_FILE_TYPES: Mapping[str, tuple[str, str]] = {
    "video/mp4": ("mp4", "media"),
    "audio/opus": ("opus", "audio"),
    "audio/ogg": ("opus", "audio"),
    "application/pdf": ("pdf", "file"),
    "application/msword": ("doc", "file"),
    "application/vnd.ms-excel": ("xls", "file"),
    "application/vnd.ms-powerpoint": ("ppt", "file"),
}
_ANY_FILE = ("stream", "file")
# The message was recalled or deleted, is not to be seen, or is too old to be changed.
_GONE = frozenset({230011, 230031, 230050, 230072, 230075, 230110, 230111, 231003})
_GONE_TARGETS = {
    230002: "gone.not_added",
    230006: "gone.no_bot",
    230013: "gone.not_available",
    230018: "gone.group_rule",
    230019: "gone.unknown_thread",
    230029: "gone.left_organisation",
    230034: "gone.no_chat_or_person",
    230035: "gone.forbidden",
    230038: "gone.foreign_person",
    230053: "gone.blocked",
    232006: "gone.unknown_chat",
    232009: "gone.dissolved",
    232010: "gone.foreign_chat",
    232011: "gone.not_added",
}
_TOO_LONG = 230025
_INVALID = 230001
_BAD_CARD = 230099
_BAD_CONTENT = frozenset({_INVALID, _BAD_CARD})


class FeishuMessageBody(NamedTuple):
    """The type of a message and its content, which is JSON."""

    kind: str
    content: str


def render_parts(markdown: str) -> Sequence[RenderedPart]:
    return [RenderedPart(part.markdown, part.text) for part in feishu_markdown.render_parts(markdown, LIMIT)]


def translate_error(error: FeishuApiError) -> SendError:
    """Return the send error of a refusal."""
    if error.retry_after is not None:
        seconds = error.retry_after.total_seconds()
        return Throttled(
            Phrase("delivery.wait", platform="Feishu", seconds=f"{seconds:g}"),
            after=error.retry_after,
            account=error.account_limited,
        )
    if error.unauthorized:
        return CredentialsRefused(BAD_SECRET)
    if error.lacks_scope:
        return NotSent(str(error))
    if error.uncertain:
        return Uncertain(Phrase("delivery.maybe_taken", platform="Feishu", status=error.code))
    if error.code in _GONE or (error.code == _INVALID and "message_id" in error.message):
        return MessageGone(Phrase("delivery.message_gone_or_final"))
    if error.code in _GONE_TARGETS:
        return _build_gone(_GONE_TARGETS[error.code], error.code)
    if error.code == _INVALID and "receive_id" in error.message:
        return _build_gone("gone.no_chat_or_person", error.code)
    if error.code == _TOO_LONG:
        return Refused(Phrase("delivery.too_long", platform="Feishu", status=error.code))
    return Refused(str(error))


def _build_gone(key: str, code: int) -> TargetGone:
    reason = Phrase("reason.detailed", reason=Phrase(key), detail=str(code))
    return TargetGone(Phrase("target.refused", platform="Feishu", reason=reason))


def build_uuid(key: str) -> str:
    """Return a key in the length that Feishu accepts."""
    return (
        key if len(key) <= _MAX_UUID_LENGTH else hashlib.sha256(key.encode()).hexdigest()[:_MAX_UUID_LENGTH]
    )


class FeishuMessageSender:
    """With `cards`, texts are cards, which can be edited at will and have buttons. Without, they are rich texts."""

    def __init__(
        self,
        api: FeishuApi,
        directory: FeishuDirectory,
        *,
        cards: bool,
        reaction: str,
        now: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._directory = directory
        self._cards = cards
        self._reaction = reaction
        self._now = now
        # The newest message of ours in each thread: answers without another one reply to it.
        self._threads = LruCache[str, str](_MAX_THREADS)

    def create_send_key(self, part: OutgoingPart) -> str:
        """Return a uuid that tells when it was made."""
        digest = hashlib.sha256(part.key.encode()).hexdigest()[:32]
        return f"k{int(self._now().timestamp() * 1000):011x}-{digest}"

    async def send(self, part: OutgoingPart) -> str:
        """Send one part and return the id of its message. Raise the errors that an adapter may."""
        if not part.target.chat:
            raise Refused(Phrase("delivery.no_chat", example="feishu:<chat id>"))
        try:
            if part.edits:
                await self._edit(part)
                return part.edits
            if part.attachment is not None:
                return await self._send_file(part, part.attachment)
            return await self._send_text(part)
        except FeishuApiError as exc:
            error = translate_error(exc)
            # A message that is sent anew cannot be gone.
            raise (
                Refused(str(exc)) if isinstance(error, MessageGone) and not part.edits else error
            ) from None
        except FeishuUnreachable as exc:
            raise NotSent(str(exc)) from None
        except FeishuNoResponse as exc:
            raise Uncertain(str(exc)) from None

    async def remove(self, target: Target, message: str) -> None:
        await self._call("DELETE", f"{_MESSAGES}/{quote(message, safe='')}")

    async def react(self, target: Target) -> None:
        """Show at a message that it is being answered."""
        if target.reply_to and self._reaction:
            path = f"{_MESSAGES}/{quote(target.reply_to, safe='')}/reactions"
            await self._call("POST", path, {"reaction_type": {"emoji_type": self._reaction}})

    async def _call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> None:
        """Make a call whose repetition changes nothing."""
        try:
            await self._api.call(method, path, body)
        except FeishuApiError as exc:
            raise translate_error(exc) from None
        except (FeishuUnreachable, FeishuNoResponse) as exc:
            raise NotSent(str(exc)) from None

    async def _send_text(self, part: OutgoingPart) -> str:
        bodies = self._build_bodies(part, self._find_mark(part))
        return await _send_first(bodies, lambda body: self._post(part, body))

    async def _edit(self, part: OutgoingPart) -> None:
        path = f"{_MESSAGES}/{quote(part.edits, safe='')}"

        async def replace(body: FeishuMessageBody) -> str:
            if self._cards:
                await self._api.call("PATCH", path, {"content": body.content})
            else:
                await self._api.call("PUT", path, {"msg_type": body.kind, "content": body.content})
            return part.edits

        await _send_first(self._build_bodies(part, ""), replace)

    def _build_bodies(self, part: OutgoingPart, mark: str) -> list[FeishuMessageBody]:
        """Return the forms of a text: as it is, and plainer in case that the platform refuses it."""
        plain = part.markup if isinstance(part.markup, str) else part.text
        prefix = feishu_markdown.escape(mark)
        if self._cards:
            cards = (
                build_card(prefix + part.text, mark + plain, part.buttons),
                build_card(prefix + part.text, mark + plain, part.buttons, formatted=False),
            )
            return [FeishuMessageBody("interactive", encode_json(card)) for card in cards]
        nodes = ({"tag": "md", "text": prefix + part.text}, {"tag": "text", "text": mark + plain})
        return [FeishuMessageBody("post", encode_json({"zh_cn": {"content": [[node]]}})) for node in nodes]

    def _find_mark(self, part: OutgoingPart) -> str:
        """Return the mark of a repetition if Feishu no longer recognises the uuid of an earlier attempt."""
        return part.repeat_mark if self._find_age(part.key) > UUID_LIFETIME else part.mark

    def _find_age(self, key: str) -> timedelta:
        """Return how long ago a key of ours was made; nothing for another key."""
        found = _OWN_KEY.match(key)
        return self._now() - datetime.fromtimestamp(int(found[1], 16) / 1000, UTC) if found else timedelta(0)

    async def _post(self, part: OutgoingPart, body: FeishuMessageBody) -> str:
        """Send a message: in a thread, as a reply that quotes the message, or to the chat."""
        target = part.target
        if target.thread:
            return await self._reply_in_thread(part, body)
        if target.reply_to and part.number == 0 and target.reply_context != DIRECT_CONTEXT:
            try:
                return await self._reply(part, body, target.reply_to, in_thread=False)
            except FeishuApiError as exc:
                if not isinstance(translate_error(exc), MessageGone):
                    raise
                body = self._mark_if_old(part, body)
        request = {
            "receive_id": target.chat,
            "msg_type": body.kind,
            "content": body.content,
            "uuid": build_uuid(part.key),
        }
        query = {"receive_id_type": _ID_TYPES.get(target.chat[:3], "chat_id")}
        return self._note(part, await self._api.call("POST", _MESSAGES, request, query=query))

    async def _reply_in_thread(self, part: OutgoingPart, body: FeishuMessageBody) -> str:
        """Reply to a message of the thread: to the one that is answered, to one that is known, or to any that is found."""
        target = part.target
        for message in filter(None, (target.reply_to, self._threads.get(target.thread))):
            try:
                return await self._reply(part, body, message, in_thread=True)
            except FeishuApiError as exc:
                if not isinstance(translate_error(exc), MessageGone):
                    raise
                body = self._mark_if_old(part, body)
        return await self._reply(part, body, await self._find_thread(target.thread), in_thread=True)

    def _mark_if_old(self, part: OutgoingPart, body: FeishuMessageBody) -> FeishuMessageBody:
        """Return a text with a mark if an earlier attempt may have sent it as a reply to a message that was recalled since:
        it is not said that Feishu recognises its uuid in another place."""
        if part.attachment is not None or self._find_age(part.key) < _FIRST_ATTEMPT:
            return body
        return self._build_bodies(part, part.repeat_mark)[0]

    async def _reply(
        self, part: OutgoingPart, body: FeishuMessageBody, message: str, *, in_thread: bool
    ) -> str:
        request: dict[str, object] = {
            "msg_type": body.kind,
            "content": body.content,
            "uuid": build_uuid(part.key),
        }
        if in_thread:
            request["reply_in_thread"] = True
        path = f"{_MESSAGES}/{quote(message, safe='')}/reply"
        return self._note(part, await self._api.call("POST", path, request))

    async def _find_thread(self, thread: str) -> str:
        """Return the id of a message of a thread. Raise `TargetGone` if there is none."""
        query = {"container_id_type": "thread", "container_id": thread, "page_size": "20"}
        answer = await self._api.call("GET", _MESSAGES, query=query)
        try:
            messages = msgspec.convert(read_data(answer).get("items") or [], list[StoredMessage])
        except msgspec.ValidationError:
            raise FeishuNoResponse(Phrase("delivery.list_unreadable", platform="Feishu")) from None
        found = next((message.message_id for message in messages if not message.deleted), None)
        if found is None:
            raise TargetGone(Phrase("target.refused", platform="Feishu", reason=Phrase("gone.empty_thread")))
        return found

    def _note(self, part: OutgoingPart, answer: dict[str, Any]) -> str:
        """Return the id of a message that was sent, and remember where it is."""
        id_ = read_data(answer).get("message_id")
        if not isinstance(id_, str) or not id_:
            raise FeishuNoResponse(Phrase("delivery.no_id", platform="Feishu"))
        target = part.target
        if target.thread:
            self._threads.put(target.thread, id_)
        self._directory.note_sent(id_, target.chat, target.thread)
        return id_

    async def _send_file(self, part: OutgoingPart, attachment: Attachment) -> str:
        """Upload a file, and send a message that shows it. The upload alone is not visible, so it may be repeated."""
        if not attachment.body:
            raise Refused(Phrase("delivery.file_empty", platform="Feishu", name=attachment.name))
        mark = self._find_mark(part)
        # Only the name of a file can show the mark.
        named = Attachment(name=f"{mark}{attachment.name}", mime=attachment.mime, body=attachment.body)
        try:
            body = await self._upload(named, as_file=bool(mark))
        except FeishuNoResponse as exc:
            raise NotSent(Phrase("delivery.file_not_sent", name=attachment.name, reason=exc)) from None
        return await self._post(part, body)

    async def _upload(self, file: Attachment, *, as_file: bool) -> FeishuMessageBody:
        mime = file.mime.partition(";")[0].strip().lower()
        if mime in _IMAGE_TYPES and len(file.body) <= _MAX_IMAGE_BYTES and not as_file:
            try:
                key = await self._upload_as(
                    "/open-apis/im/v1/images", {"image_type": "message"}, "image", file
                )
                return FeishuMessageBody("image", encode_json({"image_key": key}))
            except FeishuApiError as exc:
                if not isinstance(translate_error(exc), Refused):
                    raise
                log.info("a picture is sent as a file: %s", exc)
        upload, kind = _ANY_FILE if as_file else _FILE_TYPES.get(mime, _ANY_FILE)
        try:
            return await self._upload_file(file, upload, kind)
        except FeishuApiError as exc:
            if not isinstance(translate_error(exc), Refused) or (upload, kind) == _ANY_FILE:
                raise
            log.info("a file is sent without its type: %s", exc)
        return await self._upload_file(file, *_ANY_FILE)

    async def _upload_file(self, file: Attachment, upload: str, kind: str) -> FeishuMessageBody:
        fields = {"file_type": upload, "file_name": file.name or "file"}
        key = await self._upload_as("/open-apis/im/v1/files", fields, "file", file)
        return FeishuMessageBody(kind, encode_json({"file_key": key}))

    async def _upload_as(self, path: str, fields: Mapping[str, str], name: str, file: Attachment) -> str:
        answer = await self._api.upload(path, fields, name, file)
        key = read_data(answer).get(f"{name}_key")
        if not isinstance(key, str) or not key:
            raise FeishuNoResponse(Phrase("delivery.file_no_key", platform="Feishu"))
        return key


async def _send_first(
    bodies: Sequence[FeishuMessageBody], send: Callable[[FeishuMessageBody], Awaitable[str]]
) -> str:
    """Send the first of several forms of a message whose content the platform does not refuse."""
    for body in bodies[:-1]:
        try:
            return await send(body)
        except FeishuApiError as exc:
            about_id = exc.code == _INVALID and ("message_id" in exc.message or "receive_id" in exc.message)
            if exc.code not in _BAD_CONTENT or about_id:
                raise
            log.info("a message is sent in a plainer form: %s", exc)
    return await send(bodies[-1])


def build_card(
    markdown: str, plain: str, buttons: Sequence[Button] = (), *, formatted: bool = True
) -> dict[str, object]:
    """Return a card that can be edited for all who see it."""
    text: dict[str, object] = (
        {"tag": "markdown", "content": markdown}
        if formatted
        else {"tag": "div", "text": {"tag": "plain_text", "content": plain}}
    )
    elements: list[dict[str, object]] = [text]
    if buttons and len(buttons) <= _MAX_BUTTONS:
        shown = [
            {
                "tag": "button",
                "type": "default",
                "text": {"tag": "plain_text", "content": button.label[:MAX_LABEL_LENGTH]},
                "behaviors": [{"type": "callback", "value": build_press(button.says)}],
            }
            for button in buttons
        ]
        columns = [{"tag": "column", "width": "auto", "elements": [button]} for button in shown]
        elements.append({"tag": "column_set", "flex_mode": "flow", "columns": columns})
    summary = " ".join(plain.split())
    return {
        "schema": "2.0",
        # The summary is what lists of chats and notifications show.
        "config": {"update_multi": True, "summary": {"content": summary[:_SUMMARY_LENGTH]}},
        "body": {"elements": elements},
    }
