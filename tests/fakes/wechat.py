"""Tencent's iLink bot API and its CDN on loopback, written after its protocol document: strict about every request, with knobs for its faults."""

import base64
import hashlib
import itertools
import json
import math
import re
import time
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from keryx.testing.wire import WireFake, WireRequest, WireResponse, json_response

TOKEN = "a1b2c3@im.bot:060000secret-of-the-bot"
BOT = "a1b2c3@im.bot"
ANN = "o9cq80ann@im.wechat"
BEN = "o9cq80ben@im.wechat"
LONGEST_TEXT = 16_384
LONGEST_POLL = 1.0
LINK = "https://liteapp.weixin.qq.com/q/7GiQu1?qrcode=begun&bot_type=3"
# Larger than what a double holds, as ids of WeChat are.
_FIRST_ID = 7_446_744_073_709_551_000
_HEX = re.compile(r"[0-9a-f]{32}")
_BOT_AGENT = re.compile(r"[\w.-]{1,32}(?:/[\w.+-]{1,32})?")
_ITEMS = {1: "text_item", 2: "image_item", 4: "file_item", 5: "video_item"}
_MEDIA_TYPES = {2: 1, 5: 2, 4: 3}


@dataclass(slots=True)
class WeChatBubble:
    """One message of the bot, as a person sees it."""

    chat: str
    id: str
    text: str
    type: int
    client_id: str
    # What it was sent with, and the newest token of the person then.
    token: str
    newest: str
    media: bytes = b""
    filename: str = ""


class BadRequestError(Exception):
    """A request that is not as the protocol says."""


@dataclass
class FakeWeChat(WireFake):
    """A bot, its people and the CDN. `closed` are people to whom nothing is accepted until they write, and `quota` is how many
    messages are accepted after each of theirs, 0 for any number. `refusals` are what the next messages are answered with.
    Uploads wait while "up" is held, and downloads while the name of the file is."""

    token: str = TOKEN
    bot: str = BOT
    quota: int = 0
    expired: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.bubbles: list[WeChatBubble] = []
        self.messages: list[Any] = []
        self.tokens: dict[str, list[str]] = {}
        self.closed: set[str] = set()
        self.refusals: list[WireResponse] = []
        # What the next polls, and questions for files, are answered with.
        self.poll_answers: list[WireResponse] = []
        self.file_answers: list[WireResponse] = []
        self.typing: list[tuple[str, int]] = []
        self.configs = 0
        self.notices: list[str] = []
        self.positions: list[str] = []
        # Ids of accepted messages are told, as newer versions of the API do.
        self.tells_ids = True
        # Requests that are not as the protocol says.
        self.problems: list[str] = []
        # The login: what the questions for its status are answered with, in order; the last one again and again.
        self.statuses: list[dict[str, Any]] = [{"status": "wait"}]
        self.codes = 0
        self.status_queries: list[dict[str, str]] = []
        self._uploads: dict[str, dict[str, Any]] = {}
        self._files: dict[str, tuple[bytes, str]] = {}
        self._left: dict[str, int] = {}
        self._ids = itertools.count(_FIRST_ID)
        self._clock = itertools.count(int(time.time() * 1000))

    @property
    def cdn_url(self) -> str:
        return f"{self.url}/c2c"

    def write(self, person: str, text: str | None, **more: Any) -> str:
        """A person writes; gives the id of the message. `more` are further fields of the message."""
        items = [] if text is None else [{"type": 1, "text_item": {"text": text}, "is_completed": True}]
        return self.push_items(person, items, **more)

    def push_items(self, person: str, items: list[dict[str, Any]], **more: Any) -> str:
        with self.lock:
            number = next(self._ids)
            token = f"ctx-{number}-{person}"
            self.tokens.setdefault(person, []).append(token)
            self.closed.discard(person)
            self._left[person] = self.quota
            message = {
                "seq": len(self.messages) + 1,
                "message_id": number,
                "from_user_id": person,
                "to_user_id": self.bot,
                "client_id": f"phone-{number}",
                "create_time_ms": next(self._clock),
                "update_time_ms": 0,
                "session_id": f"{person}#{self.bot}",
                "message_type": 1,
                "message_state": 2,
                "item_list": items,
                "context_token": token,
                "hologram": {"depth": 3},
                **more,
            }
            self.push(message)
        return str(number)

    def push(self, message: Any) -> None:
        """A message as it comes over the wire."""
        with self.lock:
            self.messages.append(message)
            self.lock.notify_all()

    def add_file(self, name: str, body: bytes, *, hex_key: bool = True) -> dict[str, Any]:
        """A file of a person on the CDN; gives the object that an item names it with."""
        key = hashlib.md5(name.encode()).digest()
        self._files[name] = (seal(body, key), name)
        known = key.hex().encode() if hex_key else key
        return {"encrypt_query_param": name, "aes_key": base64.b64encode(known).decode(), "encrypt_type": 1}

    def texts(self, person: str) -> list[str]:
        with self.lock:
            return [b.text for b in self.bubbles if b.chat == person and b.type == 1]

    def sent_files(self, person: str) -> list[bytes]:
        with self.lock:
            return [b.media for b in self.bubbles if b.chat == person and b.type != 1]

    def count_typing(self) -> int:
        return sum(status == 1 for _, status in self.typing)

    def handle(self, request: WireRequest) -> WireResponse | None:
        try:
            match [request.method, *request.path.strip("/").split("/")]:
                case ["POST", "ilink", "bot", "get_bot_qrcode"]:
                    return self._begin_login(request)
                case ["GET", "ilink", "bot", "get_qrcode_status"]:
                    return self._tell_status(request)
                case ["POST", "c2c", "upload"]:
                    return self._store_file(request)
                case ["GET", "c2c", "download"]:
                    return self._serve_file(request)
                case ["POST", "ilink", "bot", *method]:
                    return self._call("/".join(method), request)
                case _:
                    raise BadRequestError(f"{request.method} {request.path}")
        except BadRequestError as exc:
            self.problems.append(str(exc))
            return json_response({"ret": -2, "errmsg": "param error"})

    def _call(self, method: str, request: WireRequest) -> WireResponse | None:
        self._check_headers(request)
        body = _read_json(request)
        if request.headers.get("authorization") != f"Bearer {self.token}" or self.expired:
            return json_response({"ret": -14, "errcode": -14, "errmsg": "session timeout"})
        info: dict[str, Any] = body.pop("base_info", {})
        check(info.keys() == {"channel_version", "bot_agent"}, "base_info")
        check(_BOT_AGENT.fullmatch(str(info["bot_agent"])) is not None, f"bot_agent {info['bot_agent']!r}")
        match method:
            case "getupdates":
                return self._poll(body)
            case "sendmessage":
                return self._accept_message(body)
            case "getuploadurl":
                return self._grant_upload(body)
            case "getconfig":
                return self._tell_config(body)
            case "sendtyping":
                return self._show_typing(body)
            case "msg/notifystart" | "msg/notifystop":
                allow(body)
                with self.lock:
                    self.notices.append(method.removeprefix("msg/notify"))
                    self.lock.notify_all()
                return json_response({"ret": 0, "errmsg": ""})
            case _:
                raise BadRequestError(f"the method {method}")

    def _check_headers(self, request: WireRequest) -> None:
        self._check_app_headers(request)
        headers = request.headers
        check(headers.get("authorizationtype") == "ilink_bot_token", "AuthorizationType")
        number = base64.b64decode(headers.get("x-wechat-uin", ""), validate=True).decode()
        check(number.isdigit() and int(number) < 1 << 32, f"X-WECHAT-UIN {number!r}")

    def _check_app_headers(self, request: WireRequest) -> None:
        check(request.headers.get("ilink-app-id") == "bot", "iLink-App-Id")
        version = request.headers.get("ilink-app-clientversion", "")
        check(version.isdigit() and 1 << 16 <= int(version) < 1 << 24, "iLink-App-ClientVersion")

    def _poll(self, body: dict[str, Any]) -> WireResponse:
        allow(body, "get_updates_buf")
        buf = body["get_updates_buf"]
        check(isinstance(buf, str), "get_updates_buf")
        start = 0
        if buf:
            opened = json.loads(base64.b64decode(buf))
            check(opened[0] == self.bot, "a position of another bot")
            start = int(opened[1])
        with self.lock:
            self.positions.append(buf)
            self.lock.notify_all()
            if self.poll_answers:
                return self.poll_answers.pop(0)
            self.lock.wait_for(lambda: len(self.messages) > start or self.expired, LONGEST_POLL)
            if self.expired:
                return json_response({"ret": -14, "errcode": -14, "errmsg": "session timeout"})
            fresh = self.inject_event_faults(self.messages[start : start + 50])
            reached = min(len(self.messages), start + 50)
            answer: dict[str, Any] = {
                "ret": 0,
                "msgs": fresh,
                "sync_buf": "",
                "get_updates_buf": base64.b64encode(json.dumps([self.bot, reached]).encode()).decode(),
                "longpolling_timeout_ms": 35000,
            }
            return self.tear(json_response(answer))

    def _accept_message(self, body: dict[str, Any]) -> WireResponse | None:
        def accept() -> WireResponse:
            if self.refusals:
                return self.refusals.pop(0)
            try:
                bubble = self._read_message(body)
            except BadRequestError as exc:
                self.problems.append(str(exc))
                return json_response({"ret": -2, "errmsg": "param error"})
            if bubble.chat in self.closed or (self.quota and self._left.get(bubble.chat, 0) < 1):
                return json_response({"ret": -2, "errmsg": "prepare failed"})
            self._left[bubble.chat] = self._left.get(bubble.chat, 0) - 1
            self.bubbles.append(bubble)
            self.lock.notify_all()
            return json_response({"ret": 0, "message_id": int(bubble.id)} if self.tells_ids else {})

        throttled = WireResponse(429, b"", {"retry-after": str(math.ceil(self.faults.retry_after))})
        with self.lock:
            return self.accept_send(accept, throttled=throttled, broken=WireResponse(503))

    def _read_message(self, body: dict[str, Any]) -> WeChatBubble:
        allow(body, "msg")
        message = body["msg"]
        fields = ("from_user_id", "to_user_id", "client_id", "message_type", "message_state", "item_list")
        allow(message, *fields, "context_token")
        check(all(name in message for name in fields), f"fields are missing in {sorted(message)}")
        check(message["from_user_id"] == "" and message["to_user_id"].endswith("@im.wechat"), "who")
        check(bool(re.fullmatch(r"[\w.:-]{1,128}", message["client_id"])), "client_id")
        check((message["message_type"], message["message_state"]) == (2, 2), "type and state")
        check(len(message["item_list"]) == 1, "one item")
        chat, token = message["to_user_id"], message.get("context_token", "")
        issued = self.tokens.get(chat, [])
        check(not token or token in issued, "a context token that this person never had")
        [item] = message["item_list"]
        kind = item.get("type")
        check(kind in _ITEMS, f"an item of the type {kind!r}")
        allow(item, "type", _ITEMS[kind])
        bubble = WeChatBubble(
            chat,
            str(next(self._ids)),
            "",
            kind,
            message["client_id"],
            token,
            issued[-1] if issued else "",
        )
        content = item[_ITEMS[kind]]
        if kind == 1:
            allow(content, "text")
            bubble.text = content["text"]
            check(bool(bubble.text.strip()), "an empty text")
            check(
                len(bubble.text.encode("utf-8", "surrogatepass")) <= LONGEST_TEXT, "a text that is too long"
            )
        else:
            self._read_file(kind, content, bubble)
        return bubble

    def _read_file(self, kind: int, content: dict[str, Any], bubble: WeChatBubble) -> None:
        sizes = {2: ("mid_size",), 5: ("video_size",), 4: ("file_name", "len")}[kind]
        allow(content, "media", *sizes)
        media = content["media"]
        allow(media, "encrypt_query_param", "aes_key", "encrypt_type")
        check(media["encrypt_type"] == 1, "encrypt_type")
        stored, owner = self._files.get(media["encrypt_query_param"], (b"", ""))
        check(bool(stored), "a file that was not uploaded")
        check(owner == f"{bubble.chat} {_MEDIA_TYPES[kind]}", "a file for somebody else, or of another kind")
        key = base64.b64decode(media["aes_key"], validate=True).decode()
        check(_HEX.fullmatch(key) is not None, "aes_key")
        bubble.media = unseal(stored, bytes.fromhex(key))
        bubble.filename = content.get("file_name", "")
        size = content[sizes[-1]]
        check(size == (str(len(bubble.media)) if kind == 4 else len(stored)), f"the size {size!r}")

    def _grant_upload(self, body: dict[str, Any]) -> WireResponse:
        names = ("filekey", "media_type", "to_user_id", "rawsize", "rawfilemd5", "filesize", "aeskey")
        allow(body, *names, "no_need_thumb")
        check(body.get("no_need_thumb") is True and body.get("media_type") in (1, 2, 3), "media_type")
        for name in ("filekey", "rawfilemd5", "aeskey"):
            check(_HEX.fullmatch(body[name]) is not None, name)
        check(body["filesize"] == (body["rawsize"] // 16 + 1) * 16, "filesize")
        param = f"up/{len(self._uploads)}+{body['filekey'][:6]}="
        with self.lock:
            self._uploads[param] = body
        return json_response({"ret": 0, "upload_param": param})

    def _store_file(self, request: WireRequest) -> WireResponse:
        check(request.headers.get("content-type") == "application/octet-stream", "content-type of a file")
        check("authorization" not in request.headers, "the CDN gets no token")
        self.wait_until_released("up")
        if self.file_answers:
            return self.file_answers.pop(0)
        grant = self._uploads.pop(request.query["encrypted_query_param"], None)
        check(grant is not None, "an upload that was not granted")
        assert grant is not None
        check(request.query["filekey"] == grant["filekey"], "filekey")
        check(len(request.body) == grant["filesize"], "filesize of the upload")
        body = unseal(request.body, bytes.fromhex(grant["aeskey"]))
        check(len(body) == grant["rawsize"], "rawsize")
        check(hashlib.md5(body).hexdigest() == grant["rawfilemd5"], "rawfilemd5")
        with self.lock:
            name = f"down/{len(self._files)}&x=1"
            self._files[name] = (request.body, f"{grant['to_user_id']} {grant['media_type']}")
        return WireResponse(200, b"", {"x-encrypted-param": name})

    def _serve_file(self, request: WireRequest) -> WireResponse:
        check("authorization" not in request.headers, "the CDN gets no token")
        name = request.query["encrypted_query_param"]
        self.wait_until_released(name)
        if self.file_answers:
            return self.file_answers.pop(0)
        if name not in self._files:
            return WireResponse(404, b"", {"x-error-message": "the file has expired"})
        return WireResponse(200, self._files[name][0])

    def _tell_config(self, body: dict[str, Any]) -> WireResponse:
        allow(body, "ilink_user_id", "context_token")
        person = body["ilink_user_id"]
        check("context_token" not in body or body["context_token"] in self.tokens[person], "context_token")
        self.configs += 1
        return json_response({"ret": 0, "typing_ticket": base64.b64encode(person.encode()).decode()})

    def _show_typing(self, body: dict[str, Any]) -> WireResponse:
        allow(body, "ilink_user_id", "typing_ticket", "status")
        person = body["ilink_user_id"]
        check(base64.b64decode(body["typing_ticket"]).decode() == person, "typing_ticket")
        check(body["status"] in (1, 2), "status")
        with self.lock:
            self.typing.append((person, body["status"]))
            self.lock.notify_all()
        return json_response({"ret": 0})

    def _begin_login(self, request: WireRequest) -> WireResponse:
        self._check_headers(request)
        check(request.query == {"bot_type": "3"}, "bot_type")
        check("authorization" not in request.headers, "a login has no token")
        body = _read_json(request)
        allow(body, "local_token_list")
        check(isinstance(body["local_token_list"], list), "local_token_list")
        self.codes += 1
        return json_response({"ret": 0, "qrcode": f"code-{self.codes}", "qrcode_img_content": LINK})

    def _tell_status(self, request: WireRequest) -> WireResponse:
        self._check_app_headers(request)
        allow(dict(request.query), "qrcode", "verify_code")
        check(request.query.get("qrcode") == f"code-{max(self.codes, 1)}", "a code that is not the last one")
        with self.lock:
            self.status_queries.append(dict(request.query))
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return json_response(status)

    def confirm(self, **more: Any) -> dict[str, Any]:
        """The status of a login that a person has confirmed."""
        return {
            "status": "confirmed",
            "bot_token": self.token,
            "ilink_bot_id": self.bot,
            "baseurl": self.url,
            "ilink_user_id": ANN,
            **more,
        }


def seal(body: bytes, key: bytes) -> bytes:
    padder = PKCS7(128).padder()
    encryptor = Cipher(algorithms.AES128(key), modes.ECB()).encryptor()
    return encryptor.update(padder.update(body) + padder.finalize()) + encryptor.finalize()


def unseal(body: bytes, key: bytes) -> bytes:
    decryptor = Cipher(algorithms.AES128(key), modes.ECB()).decryptor()
    unpadder = PKCS7(128).unpadder()
    return unpadder.update(decryptor.update(body) + decryptor.finalize()) + unpadder.finalize()


def check(condition: bool, problem: str) -> None:
    if not condition:
        raise BadRequestError(problem)


def allow(given: Any, *names: str) -> None:
    check(isinstance(given, dict), f"no object: {given!r}")
    check(not {str(name) for name in given} - set(names), f"unknown fields in {given!r}")


def _read_json(request: WireRequest) -> dict[str, Any]:
    check(request.headers.get("content-type") == "application/json", "content-type")
    body = json.loads(request.body)
    check(isinstance(body, dict), "no object")
    return body
