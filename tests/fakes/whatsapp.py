"""WhatsApp on loopback, on both platforms of Meta: strict about every request, with knobs for their faults."""

import asyncio
import base64
import hashlib
import hmac
import itertools
import json
import math
import re
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from typing import Any

import httpx

from keryx.core.errors import KeryxError
from keryx.core.ports import adapter
from keryx.testing.wire import WireFake, WireRequest, WireResponse, json_response

TOKEN = "EAAtest-token-of-a-system-user"
KEY = "agent-key-of-a-test"
APP_SECRET = "secret-of-the-app"
VERIFY_TOKEN = "verify-me"
NUMBER = "106540352242922"
DISPLAY = "15550783881"
TEMPLATE = "please_write"
CREATOR = "user:509"
LONGEST_TEXT = 4096
LONGEST_CAPTION = 1024
LONGEST_BUTTON_TEXT = 1024
LONGEST_POLL = 1.0
GROUP = "Y2FwaV9ncm91cDoxNzA1NTU1MDEzOToxMjAzNjM0"
_BSUID = re.compile(r"[A-Z]{2}\.(?:ENT\.)?[A-Za-z0-9]{1,128}")
_MEDIA = ("image", "audio", "video", "document", "sticker")
_LARGEST = {"image": 5_000_000, "audio": 16_000_000, "video": 16_000_000, "document": 100_000_000}
_TYPES = {
    "image": ("image/jpeg", "image/png"),
    "audio": ("audio/aac", "audio/amr", "audio/mp4", "audio/mpeg", "audio/ogg"),
    "video": ("video/mp4", "video/3gpp"),
}

Answer = Callable[[adapter.WebhookRequest], Awaitable[adapter.WebhookResponse]]


@dataclass(slots=True)
class WhatsAppBubble:
    """One message of the business or agent, as a person sees it."""

    chat: str
    id: str
    text: str
    type: str = "text"
    buttons: dict[str, str] = field(default_factory=dict[str, str])
    quotes: str = ""
    media: bytes = b""
    template: str = ""
    callback: str = ""
    emoji: str = ""
    voice: bool = False
    filename: str = ""


class BadRequestError(Exception):
    """A request that WhatsApp refuses."""

    def __init__(self, details: str, code: int = 131009, status: int = 400) -> None:
        super().__init__(details)
        self.response = _error(status, code, details)


@dataclass
class _FakeMessages(WireFake):
    """What both platforms share: messages, statuses and files. `gone` are messages that cannot be quoted."""

    token: str = TOKEN

    def __post_init__(self) -> None:
        super().__post_init__()
        self.bubbles: list[WhatsAppBubble] = []
        self.reads: list[dict[str, Any]] = []
        self.files: dict[str, tuple[str, bytes]] = {}
        self.gone: set[str] = set()
        # Where files are, if not here.
        self.file_host = ""
        # The status and code that questions for files are answered with.
        self.file_refusal: tuple[int, int] | None = None
        # So many of the next addresses of files no longer hold when they are used.
        self.expired_addresses = 0
        self.refusals: list[WireResponse] = []
        # What was refused because it is not as the platform wants it.
        self.problems: list[str] = []
        self._ids = itertools.count(1)

    def texts(self, chat: str) -> list[str]:
        with self.lock:
            return [b.text for b in self.bubbles if b.chat == chat and b.type in ("text", "interactive")]

    def sent_files(self, chat: str) -> list[bytes]:
        with self.lock:
            return [b.media for b in self.bubbles if b.chat == chat and b.type in _MEDIA]

    def add_file(self, name: str, mime: str, body: bytes) -> dict[str, Any]:
        """A file of a person; gives the object that a message names it with."""
        self.files[name] = (mime, body)
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        return {"id": name, "mime_type": mime, "sha256": digest}

    def accept_message(
        self, request: WireRequest, store: Callable[[dict[str, Any]], WhatsAppBubble]
    ) -> WireResponse | None:
        def accept() -> WireResponse:
            if self.refusals:
                return self.refusals.pop(0)
            try:
                bubble = store(_read_json(request))
            except BadRequestError as exc:
                self.problems.append(str(exc))
                return exc.response
            self.bubbles.append(bubble)
            self.lock.notify_all()
            contacts = [{"input": bubble.chat, "wa_id": bubble.chat}]
            return json_response(
                {"messaging_product": "whatsapp", "contacts": contacts, "messages": [{"id": bubble.id}]}
            )

        after = math.ceil(self.faults.retry_after)
        throttled = _error(429, 130429, "Rate limit hit", headers={"retry-after": str(after)})
        with self.lock:
            return self.accept_send(
                accept, throttled=throttled, broken=_error(500, 131000, "Something went wrong")
            )

    def next_id(self) -> str:
        return f"wamid.OUT{next(self._ids):06}"

    def read_content(self, body: dict[str, Any], bubble: WhatsAppBubble, kinds: Sequence[str]) -> None:
        """Check the object that is named as the type, and store what it shows."""
        kind = body.get("type")
        check(kind in kinds, f"type {kind!r}")
        assert isinstance(kind, str)
        content = body.pop(kind, None)
        body.pop("type")
        check(isinstance(content, dict), f"{kind} is missing")
        bubble.type = kind
        if kind == "text":
            allow(content, "body", "preview_url")
            bubble.text = need_text(content, "body", LONGEST_TEXT)
        elif kind in _MEDIA:
            self._read_media(kind, content, bubble)

    def _read_media(self, kind: str, content: dict[str, Any], bubble: WhatsAppBubble) -> None:
        captioned = kind in ("image", "video", "document")
        allow(content, "id", *(["caption"] if captioned else []), *self.media_fields(kind))
        mime, bubble.media = self.files.get(str(content.get("id")), ("", b""))
        check(bool(mime), "the media is unknown")
        check(mime in _TYPES.get(kind, (mime,)), f"{mime} is no {kind}")
        check(len(bubble.media) <= _LARGEST.get(kind, 500_000), "too large")
        check(len(content.get("caption", "")) <= LONGEST_CAPTION, "caption")
        bubble.text = content.get("caption", "")
        bubble.voice = bool(content.get("voice", False))
        bubble.filename = content.get("filename", "")

    def media_fields(self, kind: str) -> tuple[str, ...]:
        return ("filename",) if kind == "document" else ()

    def read_quote(self, body: dict[str, Any], bubble: WhatsAppBubble) -> None:
        context = body.pop("context", None)
        if context is None:
            return
        allow(context, "message_id")
        bubble.quotes = need_text(context, "message_id", 300)
        check(bubble.quotes not in self.gone, "the quoted message is unknown")

    def mark_read(self, body: dict[str, Any]) -> WireResponse:
        allow(body, "messaging_product", "status", "message_id", "typing_indicator")
        check(body.get("messaging_product") == "whatsapp", "messaging_product")
        check(body.get("status") == "read" and bool(body.get("message_id")), "status")
        check(body.get("typing_indicator") in (None, {"type": "text"}), "typing_indicator")
        with self.lock:
            self.reads.append(body)
            self.lock.notify_all()
        return json_response({"success": True})

    def store_upload(self, request: WireRequest) -> WireResponse:
        head = b"content-type: " + request.headers["content-type"].encode() + b"\r\n\r\n"
        parts = {
            part.get_param("name", header="content-disposition"): part
            for part in message_from_bytes(head + request.body, policy=policy.HTTP).iter_parts()
        }
        check(parts.keys() == {"messaging_product", "type", "file"}, "fields of the upload")
        mime = parts["type"].get_content().strip()
        check(parts["messaging_product"].get_content().strip() == "whatsapp", "messaging_product")
        check(parts["file"].get_content_type() == mime, "the type of the file")
        body = parts["file"].get_payload(decode=True)
        assert isinstance(body, bytes)
        id_ = f"media{next(self._ids)}"
        with self.lock:
            self.files[id_] = (mime, body)
        return json_response({"id": id_})

    def describe_file(self, id_: str) -> WireResponse:
        if self.file_refusal is not None:
            return _error(*self.file_refusal, "refused")
        if id_ not in self.files:
            return _error(400, 100, "the media does not exist")
        mime, body = self.files[id_]
        return json_response(
            {
                "url": f"{self.file_host or self.url}/content/{id_}",
                "mime_type": mime,
                "sha256": hashlib.sha256(body).hexdigest(),
                "file_size": len(body),
                "id": id_,
                "messaging_product": "whatsapp",
            }
        )

    def serve_file(self, id_: str) -> WireResponse:
        self.wait_until_released(id_)
        if self.expired_addresses:
            self.expired_addresses -= 1
            return WireResponse(404)
        return WireResponse(200, self.files[id_][1]) if id_ in self.files else WireResponse(404)

    def is_signed_in(self, request: WireRequest) -> bool:
        return request.headers.get("authorization") == f"Bearer {self.token}"


@dataclass
class FakeWhatsAppCloud(_FakeMessages):
    """A number of a business on the Cloud API. `closed` are chats whose 24 hours are over: WhatsApp refuses messages to
    them, or with `late` accepts them and says so by a status. `waiting` is what is still to be posted."""

    number: str = NUMBER
    late: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.closed: set[str] = set()
        self.waiting: dict[str, bytes] = {}
        self.override: dict[str, Any] = {}
        self.no_buttons = False
        self._said = itertools.count(1)
        self._clock = itertools.count(int(time.time()))

    def write(self, chat: str, text: str | None, *, name: str = "Ann", **more: Any) -> str:
        """A person writes; gives the id of the message."""
        kind: dict[str, Any] = {"text": {"body": text}, "type": "text"} if text is not None else {}
        return self.push_message(chat, name=name, **{**kind, **more})

    def push_message(
        self,
        chat: str,
        *,
        name: str = "Ann",
        phone: str = "",
        username: str = "",
        group: str = "",
        **content: Any,
    ) -> str:
        """A message from a person, who has the id or the number `chat`, and perhaps both."""
        id_ = f"wamid.IN{next(self._said):06}"
        is_bsuid = _BSUID.fullmatch(chat) is not None
        wa_id = phone or ("" if is_bsuid else chat)
        person: dict[str, Any] = {"profile": {"name": name, **({"username": username} if username else {})}}
        message: dict[str, Any] = {"id": id_, "timestamp": str(next(self._clock)), **content}
        if wa_id:
            person["wa_id"], message["from"] = wa_id, wa_id
        if is_bsuid:
            person["user_id"], message["from_user_id"] = chat, chat
        if group:
            message["group_id"] = group
        self.closed.discard(chat)
        self.push({"contacts": [person], "messages": [message]}, id_)
        return id_

    def push_status(self, bubble: WhatsAppBubble, status: str, *errors: dict[str, Any]) -> None:
        """WhatsApp says what has become of a message."""
        is_bsuid = _BSUID.fullmatch(bubble.chat) is not None
        body: dict[str, Any] = {
            "id": bubble.id,
            "status": status,
            "timestamp": str(next(self._clock)),
            "recipient_user_id" if is_bsuid else "recipient_id": bubble.chat,
            "recipient_type": "individual",
            "biz_opaque_callback_data": bubble.callback,
        }
        if errors:
            body["errors"] = list(errors)
        person = {"profile": {"name": "Ann"}, "user_id" if is_bsuid else "wa_id": bubble.chat}
        self.push({"contacts": [person], "statuses": [body]}, f"{bubble.id}.{status}")

    def push(self, value: Any, id_: str, *, number: str = "") -> None:
        """A value of the field `messages`, as it comes over the wire."""
        metadata = {"display_phone_number": DISPLAY, "phone_number_id": number or self.number}
        known: dict[str, Any] = {"messaging_product": "whatsapp", "metadata": metadata}
        changes: list[dict[str, Any]] = [
            {"field": "messages", "value": {**known, **value} if isinstance(value, dict) else value}
        ]
        payload = {
            "object": "whatsapp_business_account",
            "entry": [{"id": "102290129340398", "changes": changes}],
        }
        self.push_raw(id_, json.dumps(payload).encode())

    def push_raw(self, id_: str, body: bytes) -> None:
        with self.lock:
            self.waiting[id_] = body
            self.lock.notify_all()

    def press(self, chat: str, label: str) -> str:
        """A person presses a button, or chooses a row, of the last message that has one of this label."""
        with self.lock:
            shown = next(b for b in reversed(self.bubbles) if b.chat == chat and label in b.buttons)
        kind = "list_reply" if len(shown.buttons) > 3 else "button_reply"
        reply = {"type": kind, kind: {"id": shown.buttons[label], "title": label}}
        context = {"from": DISPLAY, "id": shown.id}
        return self.push_message(chat, type="interactive", interactive=reply, context=context)

    async def post(self, answer: Answer) -> None:
        """Post what waits, for ever: in order, each again until it gets 200."""
        while True:
            for id_, body in self.inject_event_faults(list(self.waiting.items())):
                request = adapter.WebhookRequest(headers=sign(body), body=body)
                try:
                    status = (await answer(request)).status
                except KeryxError:
                    status = 500
                if status != 200:
                    break
                if not self.roll(max(self.faults.torn, self.faults.duplicate / 2)):
                    self.waiting.pop(id_, None)
            await asyncio.sleep(0.01)

    def post_to(self, find_url: Callable[[], str], over: threading.Event) -> None:
        """Post what waits to a server, until it is over: in order, each again until it gets 200."""
        with httpx.Client(timeout=20, verify=False) as client:
            while not over.is_set():
                with self.lock:
                    self.lock.wait_for(lambda: bool(self.waiting), 0.2)
                    waiting = self.inject_event_faults(list(self.waiting.items())[:20])
                for id_, body in waiting:
                    try:
                        status = client.post(find_url(), content=body, headers=sign(body)).status_code
                    except httpx.HTTPError:
                        status = 0
                    if status != 200:
                        over.wait(0.02)
                        break
                    with self.lock:
                        self.waiting.pop(id_, None)

    def handle(self, request: WireRequest) -> WireResponse | None:
        if not self.is_signed_in(request):
            return _error(401, 190, "Invalid OAuth access token")
        path = request.path.strip("/").split("/")
        try:
            match [request.method, *path]:
                case ["GET", "content", id_]:
                    return self.serve_file(id_)
                case ["GET", id_] if id_ != self.number:
                    return self.describe_file(id_)
                case ["GET", _]:
                    return json_response(
                        {"id": self.number, "display_phone_number": DISPLAY, "verified_name": "Keryx"}
                    )
                case ["POST", self.number]:
                    return self._set_override(_read_json(request))
                case ["POST", self.number, "media"]:
                    return self.store_upload(request)
                case ["POST", self.number, "messages"]:
                    body = _read_json(request)
                    return (
                        self.mark_read(body)
                        if "status" in body
                        else self.accept_message(request, self._store)
                    )
                case _:
                    return _error(400, 100, f"Unsupported {request.method} request: {request.path}")
        except BadRequestError as exc:
            self.problems.append(str(exc))
            return exc.response

    def media_fields(self, kind: str) -> tuple[str, ...]:
        return ("voice",) if kind == "audio" else super().media_fields(kind)

    def _set_override(self, body: dict[str, Any]) -> WireResponse:
        allow(body, "webhook_configuration")
        allow(body["webhook_configuration"], "override_callback_uri", "verify_token")
        check(body["webhook_configuration"]["override_callback_uri"].startswith("https://"), "https")
        self.override = body["webhook_configuration"]
        return json_response({"success": True})

    def _store(self, body: dict[str, Any]) -> WhatsAppBubble:
        check(body.pop("messaging_product", "") == "whatsapp", "messaging_product")
        kind = body.pop("recipient_type", "individual")
        to, recipient = body.pop("to", ""), body.pop("recipient", "")
        chat = to or recipient
        if kind == "group":
            check(to.startswith("Y2FwaV9ncm91cD"), "no group")
        else:
            check(kind == "individual", "recipient_type")
            check(
                to.isdigit() if to else _BSUID.fullmatch(recipient) is not None,
                f"no person: {chat!r}",
                131026,
            )
        bubble = WhatsAppBubble(chat, self.next_id(), "", callback=body.pop("biz_opaque_callback_data", ""))
        check(len(bubble.callback) <= 512, "biz_opaque_callback_data")
        self.read_quote(body, bubble)
        self._read_special(body, bubble)
        if "type" in body:
            self.read_content(body, bubble, ("text", *_MEDIA))
        check(not body, f"unknown fields {sorted(body)}", 100)
        if chat in self.closed and bubble.type != "template":
            if not self.late:
                raise BadRequestError(
                    "More than 24 hours have passed since the customer last replied", 131047
                )
            title = "Re-engagement message"
            self.push_status(bubble, "failed", {"code": 131047, "title": title, "message": title})
            bubble.type = "lost"
        return bubble

    def _read_special(self, body: dict[str, Any], bubble: WhatsAppBubble) -> None:
        """Read what the Cloud API has beyond texts and files."""
        kind = body.get("type")
        if kind not in ("interactive", "reaction", "template"):
            return
        content = body.pop(kind)
        body.pop("type")
        bubble.type = kind
        if kind == "reaction":
            allow(content, "message_id", "emoji")
            bubble.quotes, bubble.emoji = content["message_id"], content["emoji"]
        elif kind == "template":
            allow(content, "name", "language")
            check(content["name"] == TEMPLATE, "the template does not exist", 132001)
            bubble.template = content["name"]
        else:
            check(not self.no_buttons, "interactive messages are not supported here")
            bubble.text, bubble.buttons = read_choices(content)

    def edit(self, chat: str, text: str, original: str) -> None:
        content = {"type": "text", "text": {"body": text}}
        self.push_message(chat, type="edit", edit={"original_message_id": original, "message": content})

    def revoke(self, chat: str, original: str) -> None:
        self.push_message(chat, type="revoke", revoke={"original_message_id": original})

    def react(self, chat: str, emoji: str, message: str) -> None:
        self.push_message(chat, type="reaction", reaction={"message_id": message, "emoji": emoji})


@dataclass
class FakeWhatsAppAgent(_FakeMessages):
    """An agent on the Agent Platform, whose creators are `people`: one in reality, more for tests of order. `limit` is the number
    of messages per minute, and that of statuses, 0 for any."""

    token: str = KEY
    people: tuple[str, ...] = (CREATOR,)
    limit: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.items: list[tuple[int, str, Any]] = []
        self.poll_queries: list[dict[str, str]] = []
        # The next polls get these.
        self.poll_answers: list[WireResponse] = []
        self._clock = itertools.count(int(time.time()))
        self._offsets = itertools.count(9_007_199_254_740_993)
        self._polls = 0
        self._sends: list[float] = []
        self._statuses: list[float] = []

    def write(self, chat: str, text: str | None, **more: Any) -> str:
        """The creator writes; gives the id of the message."""
        kind = {"text": {"body": text}, "type": "text"} if text is not None else {}
        with self.lock:
            id_ = f"wamid.IN{next(self._ids):06}"
            message = {"from": chat, "id": id_, "timestamp": str(next(self._clock)), **kind, **more}
            self.push("messages", message)
        return id_

    def push(self, kind: str, item: Any) -> None:
        with self.lock:
            self.items.append((next(self._offsets), kind, item))
            self.lock.notify_all()

    def handle(self, request: WireRequest) -> WireResponse | None:
        if not self.is_signed_in(request):
            return _error(400, 100, "Invalid parameter")
        path = request.path.removeprefix("/agent/v1").strip("/").split("/")
        try:
            match [request.method, *path]:
                case ["GET", "content", id_]:
                    return self.serve_file(id_)
                case ["GET", "updates"]:
                    return self._get_updates(request.query)
                case ["GET", "media", id_]:
                    return self.describe_file(id_)
                case ["POST", "media"]:
                    return self.store_upload(request)
                case ["POST", "statuses"]:
                    self._statuses = self._check_limit(self._statuses)
                    return self.mark_read(_read_json(request))
                case ["POST", "messages"]:
                    return self.accept_message(request, self._store)
                case _:
                    return _error(404, 100, f"{request.method} {request.path}")
        except BadRequestError as exc:
            self.problems.append(str(exc))
            return exc.response

    def _get_updates(self, query: dict[str, str]) -> WireResponse | None:
        """Wait for updates. A newer poll ends an older one."""
        allow(query, "offset", "limit", "timeout")
        check(all(re.fullmatch(r"-?\d+", value) for value in query.values()), "plain integers", 100)
        check(0 <= int(query["timeout"]) <= 25 and 1 <= int(query["limit"]) <= 100, "range", 100)
        with self.lock:
            if self.poll_answers:
                return self.poll_answers.pop(0)
            self.poll_queries.append(query)
            self._polls += 1
            mine = self._polls
            self.lock.notify_all()
            offset = int(query["offset"])

            def find() -> list[tuple[int, str, Any]]:
                return [item for item in self.items if item[0] >= offset][: int(query["limit"])]

            self.lock.wait_for(
                lambda: bool(find()) or self._polls != mine, min(float(query["timeout"]), LONGEST_POLL)
            )
            if self._polls != mine:
                return _error(409, 1752041, "Replaced by a newer poll")
            batch = find()
            if not batch:
                return WireResponse(204)
            return self.tear(self._build_batch(batch))

    def _build_batch(self, batch: list[tuple[int, str, Any]]) -> WireResponse:
        messages = self.inject_event_faults([item for _, kind, item in batch if kind == "messages"])
        value = {
            "messaging_product": "whatsapp",
            "contacts": [{"wa_id": who, "profile": {"name": "Ann"}} for who in self.people],
            "messages": messages,
            "statuses": [item for _, kind, item in batch if kind == "statuses"],
        }
        entry = [{"id": "123", "changes": [{"field": "messages", "value": value}]}]
        return json_response(
            {"object": "whatsapp_agent_platform", "entry": entry, "next_offset": batch[-1][0] + 1}
        )

    def _store(self, body: dict[str, Any]) -> WhatsAppBubble:
        check(body.pop("messaging_product", "") == "whatsapp", "messaging_product")
        chat = body.pop("to", "")
        check(isinstance(chat, str) and chat.startswith("user:"), "to")
        check(chat in self.people, "the recipient is not the creator", 131005, 403)
        sends = self._check_limit(self._sends)
        bubble = WhatsAppBubble(chat, self.next_id(), "")
        self.read_quote(body, bubble)
        self.read_content(body, bubble, ("text", *_MEDIA))
        check(not body, f"unknown fields {sorted(body)}", 100)
        self._sends = sends
        return bubble

    def _check_limit(self, calls: list[float]) -> list[float]:
        """Return the calls of the last minute and this one."""
        now = time.monotonic()
        recent = [at for at in calls if at > now - 60]
        if self.limit and len(recent) >= self.limit:
            raise BadRequestError("Rate limit hit", 130429, 429)
        return [*recent, now]


def read_choices(content: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Check buttons or a list, and return the text above them and the ids by label."""
    allow(content, "type", "body", "action")
    allow(content["body"], "text")
    if content["type"] == "button":
        allow(content["action"], "buttons")
        replies = content["action"]["buttons"]
        check(1 <= len(replies) <= 3, "1 to 3 buttons")
        check(all(reply["type"] == "reply" for reply in replies), "type of a button")
        choices, longest = [reply["reply"] for reply in replies], 20
        text = need_text(content["body"], "text", LONGEST_BUTTON_TEXT)
    else:
        check(content["type"] == "list", "type")
        allow(content["action"], "button", "sections")
        need_text(content["action"], "button", 20)
        [section] = content["action"]["sections"]
        allow(section, "title", "rows")
        choices, longest = section["rows"], 24
        check(1 <= len(choices) <= 10, "1 to 10 rows")
        text = need_text(content["body"], "text", LONGEST_TEXT)
    labels = {need_text(c, "title", longest): need_text(c, "id", 256) for c in choices}
    check(len(labels) == len(choices), "labels differ")
    return text, labels


def sign(body: bytes, secret: str = APP_SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"x-hub-signature-256": f"sha256={digest}", "content-type": "application/json"}


def check(condition: bool, problem: str, code: int = 131009, status: int = 400) -> None:
    if not condition:
        raise BadRequestError(problem, code, status)


def allow(given: Any, *names: str) -> None:
    check(isinstance(given, dict), f"no object: {given!r}", 100)
    check(not {str(name) for name in given} - set(names), f"unknown fields in {given!r}", 100)


def need_text(given: dict[str, Any], name: str, longest: int) -> str:
    text = given.get(name)
    check(isinstance(text, str) and bool(text.strip()), f"{name} is missing", 131008)
    assert isinstance(text, str)
    check(len(text) <= longest, f"{name} is too long: {len(text)}", 100)
    return text


def _read_json(request: WireRequest) -> dict[str, Any]:
    check(request.headers.get("content-type") == "application/json", "content-type", 100)
    body = json.loads(request.body)
    check(isinstance(body, dict), "no object", 100)
    return body


def _error(status: int, code: int, details: str, headers: dict[str, str] | None = None) -> WireResponse:
    error = {
        "message": f"(#{code}) {details}",
        "type": "OAuthException",
        "code": code,
        "error_data": {"messaging_product": "whatsapp", "details": details},
        "fbtrace_id": "AtestTrace",
    }
    body = json_response({"error": error}, status)
    return WireResponse(status, body.body, {**body.headers, **(headers or {})})
