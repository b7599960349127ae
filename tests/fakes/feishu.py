"""Feishu on loopback: a server API that checks each request, the long connection over real websockets, encrypted posts, and knobs for Feishu's faults."""

import asyncio
import base64
import hashlib
import itertools
import json
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7
from tests.fakes.websocket import WebsocketFake
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection

from keryx.core.ports.adapter import WebhookRequest, WebhookResponse
from keryx.surfaces.gateway.feishu import sign
from keryx.surfaces.gateway.feishu.connection_frame import ConnectionFrame, decode_frame, encode_frame
from keryx.testing.wire import WireRequest, WireResponse, json_response

APP_ID = "cli_a1b2c3d4e5f60001"
APP_SECRET = "app-secret-of-the-tests"
ENCRYPT_KEY = "encrypt-key-of-the-tests"
VERIFICATION_TOKEN = "verification-token-of-the-tests"
BOT = "ou_b0b0b0b0"
PERSON, UNION_ID, USER_ID = "ou_84aad35d", "on_cad4860e", "e33ggbyz"
TENANT = "2ed263bf32cf1651"
DIRECT, SECOND, GROUP = "oc_direct1", "oc_direct2", "oc_group1"
SERVICE_ID = 33554678
MAX_CARD_BYTES = 30 * 1024
MAX_TEXT_BYTES = 150 * 1024
MAX_IMAGE_BYTES = 10 * 1024 * 1024
MAX_FILE_BYTES = 30 * 1024 * 1024
MAX_UUID = 50
MAX_EDITS = 20
MAX_TABLES = 5
_MESSAGE_PATH = re.compile(r"/open-apis/im/v1/messages/([^/]+)(/reply|/reactions|/resources/[^/]+)?\Z")
_TABLE_RULE = re.compile(r"^\|(?:---\|)+$", re.MULTILINE)
_UPLOAD_TYPES = frozenset({"opus", "mp4", "pdf", "doc", "xls", "ppt", "stream"})
_CONTENT_KEYS = {"image": {"image_key"}, "file": {"file_key"}, "audio": {"file_key"}, "media": {"file_key"}}


@dataclass(slots=True)
class FeishuPost:
    """One message of the bot, as people see it now."""

    id: str
    chat: str
    kind: str
    text: str = ""
    thread: str = ""
    # The message that it quotes or replies to.
    parent: str = ""
    # Labels, each with what it carries.
    buttons: dict[str, Any] = field(default_factory=dict[str, Any])
    file: bytes | None = None
    file_name: str = ""
    edits: int = 0
    summary: str = ""


class FeishuRefusal(Exception):
    def __init__(self, code: int, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.response = json_response({"code": code, "msg": message, "error": {"log_id": "1"}}, status)


@dataclass
class FakeFeishu(WebsocketFake[tuple[str, bytes]]):
    """`refusals` answers a path that contains its key with a code, `gone` is the code with which a chat refuses messages."""

    secret: str = APP_SECRET

    def __post_init__(self) -> None:
        super().__post_init__()
        self.posts: list[FeishuPost] = []
        self.calls: list[tuple[str, str]] = []
        self.refusals: dict[str, int] = {}
        self.gone: dict[str, int] = {}
        self.recalled: set[str] = set()
        self.names = {PERSON: "Ann", GROUP: "Team"}
        self.groups = {GROUP}
        self.direct = {DIRECT, SECOND}
        # What people wrote, by id.
        self.messages: dict[str, dict[str, Any]] = {}
        # The messages that one forwards, as the server API tells them.
        self.forwarded: dict[str, list[dict[str, Any]]] = {}
        self.reactions: list[tuple[str, str]] = []
        self.uploads: dict[str, tuple[str, bytes]] = {}
        self.upload_types: list[str] = []
        # The bytes and the type of the files of people, by key.
        self.files: dict[str, tuple[bytes, str]] = {}
        self.uuids: dict[str, str] = {}
        self.uuids_work = True
        self.tokens: set[str] = set()
        self.tokens_fetched = 0
        self.token_seconds = 7200
        self.acks: list[dict[str, Any]] = []
        # What the person who pressed a button is shown.
        self.toasts: list[dict[str, Any]] = []
        self.pings = 0
        self.answer_pings = True
        self.config: dict[str, int] = {
            "PingInterval": 120,
            "ReconnectCount": -1,
            "ReconnectInterval": 0,
            "ReconnectNonce": 0,
        }
        self.pong_config: dict[str, int] | None = None
        # What Feishu answers instead of an address.
        self.endpoint_code = 0
        # Events above this size come in several frames.
        self.fragment_bytes = 100_000
        # What no client of Feishu may do.
        self.problems: list[str] = []
        self._counts = itertools.count(1)
        self._ticket = ""

    # What people do.

    def say(
        self,
        text: str = "",
        *,
        chat: str = DIRECT,
        user: str = PERSON,
        ids: dict[str, str | None] | None = None,
        kind: str = "text",
        content: object = None,
        group: bool = False,
        mention: bool = False,
        **more: Any,
    ) -> str:
        """A person writes; returns the id of the message."""
        id_ = f"om_{next(self._counts):06}"
        mentions: list[dict[str, Any]] = more.pop("mentions", [])
        if mention:
            text = f"@_user_1 {text}"
            mentions = [{"key": "@_user_1", "id": {"open_id": BOT}, "name": "Keryx", "tenant_key": TENANT}]
        message = {
            "message_id": id_,
            "chat_id": chat,
            "chat_type": "group" if group else "p2p",
            "message_type": kind,
            "content": json.dumps({"text": text} if content is None else content, ensure_ascii=False),
            "create_time": str(1_700_000_000_000 + next(self._counts)),
            **({"mentions": mentions} if mentions else {}),
            **more,
        }
        with self.lock:
            (self.groups if group else self.direct).add(chat)
            self.messages[id_] = message
        sender = {
            "sender_id": ids if ids is not None else {"open_id": user, "union_id": None, "user_id": None},
            "sender_type": "user",
            "tenant_key": TENANT,
        }
        self.push("im.message.receive_v1", {"sender": sender, "message": message})
        return id_

    def say_in_thread(self, text: str, message: str, *, chat: str = DIRECT, **more: Any) -> str:
        """A person writes in the thread on a message."""
        with self.lock:
            thread = self._find_thread(message) or f"omt_{next(self._counts):06}"
            self._set_thread(message, thread)
        return self.say(text, chat=chat, root_id=message, parent_id=message, thread_id=thread, **more)

    def forward(self, *texts: str, chat: str = DIRECT) -> str:
        """A person forwards messages together."""
        id_ = self.say(chat=chat, kind="merge_forward", content="Merged and Forwarded Message")
        sender = {"id": PERSON, "id_type": "open_id", "sender_type": "user", "tenant_key": TENANT}
        self.forwarded[id_] = [
            {
                "message_id": f"om_{next(self._counts):06}",
                "upper_message_id": id_,
                "chat_id": GROUP,
                "msg_type": "text",
                "body": {"content": json.dumps({"text": text})},
                "sender": sender,
                "mentions": [{"key": "@_user_1", "id": "ou_ben", "id_type": "open_id", "name": "Ben"}],
            }
            for text in texts
        ]
        return id_

    def recall(self, message: str, *, chat: str = DIRECT) -> None:
        with self.lock:
            self.recalled.add(message)
        event = {
            "message_id": message,
            "chat_id": chat,
            "recall_time": "1700000009000",
            "recall_type": "message_owner",
        }
        self.push("im.message.recalled_v1", event)

    def react(self, emoji: str, message: str, *, user: str = PERSON, removed: bool = False) -> None:
        kind = "deleted" if removed else "created"
        event = {
            "message_id": message,
            "reaction_type": {"emoji_type": emoji},
            "operator_type": "user",
            "user_id": {"open_id": user, "union_id": UNION_ID, "user_id": None},
            "action_time": "1700000009000",
        }
        self.push(f"im.message.reaction.{kind}_v1", event)

    def attach(self, text: str, name: str, body: bytes, *, mime: str, chat: str = DIRECT) -> str:
        """A person sends a rich text with a video, which may be any file here."""
        key = f"file_v3_{next(self._counts)}"
        self.files[key] = body, mime
        nodes: list[list[dict[str, str]]] = [
            [{"tag": "text", "text": text}],
            [{"tag": "media", "file_key": key, "image_key": "img_cover", "file_name": name}],
        ]
        return self.say(chat=chat, kind="post", content={"title": "", "content": nodes})

    def press(self, label: str, *, chat: str = DIRECT, user: str = PERSON) -> None:
        with self.lock:
            post = next(p for p in reversed(self.posts) if p.chat == chat and label in p.buttons)
        event = {
            "operator": {"open_id": user, "union_id": UNION_ID, "tenant_key": TENANT},
            "token": "c-token",
            "action": {"value": post.buttons[label], "tag": "button"},
            "host": "im_message",
            "context": {"open_message_id": post.id, "open_chat_id": chat},
        }
        self.push("card.action.trigger", event)

    def push(self, kind: str, event: object, **header: str) -> str:
        """Hand over an event; returns its id."""
        id_ = f"ev-{next(self._counts)}"
        envelope = {
            "schema": "2.0",
            "header": {
                "event_id": id_,
                "event_type": kind,
                "create_time": "1700000000000",
                "token": VERIFICATION_TOKEN,
                "app_id": APP_ID,
                "tenant_key": TENANT,
                **header,
            },
            "event": event,
        }
        self.push_payload(json.dumps(envelope, ensure_ascii=False).encode(), id_)
        return id_

    def push_payload(self, payload: bytes, id_: str = "") -> None:
        with self.lock:
            self.waiting.append((id_ or f"raw-{next(self._counts)}", payload))
            self.lock.notify_all()

    def texts(self, chat: str = DIRECT) -> list[str]:
        with self.lock:
            return [p.text for p in self.posts if p.chat == chat and p.file is None]

    def count_calls(self, path: str, method: str = "") -> int:
        with self.lock:
            return sum(path in called and method in ("", name) for name, called in self.calls)

    def revoke_tokens(self) -> None:
        with self.lock:
            self.tokens.clear()

    # The long connection.

    def disconnect(self, code: int = 1011) -> None:
        with self.lock:
            old = list(self.connections)
        for connection in old:
            connection.close(code)

    def send_frame(self, frame: bytes) -> None:
        """Send any bytes on the newest connection."""
        with self.lock:
            connection = self.connections[-1]
        connection.send(frame)

    def accepts(self, path: str) -> bool:
        query = parse_qs(urlsplit(path).query)
        return query.get("access_key") == [self._ticket] and query.get("service_id") == [str(SERVICE_ID)]

    def name_event(self, event: tuple[str, bytes]) -> str:
        return event[0]

    def encode_event(self, event: tuple[str, bytes]) -> list[bytes]:
        return self.build_frames(*event)

    def build_frames(self, id_: str, payload: bytes) -> list[bytes]:
        size = self.fragment_bytes
        pieces = [payload[at : at + size] for at in range(0, len(payload), size)] or [b""]
        return [
            encode_frame(
                ConnectionFrame(
                    seq_id=next(self._counts),
                    log_id=7,
                    service=SERVICE_ID,
                    method=1,
                    headers=(
                        ("type", "event"),
                        ("message_id", f"frame-{id_}"),
                        ("trace_id", "trace"),
                        ("sum", str(len(pieces))),
                        ("seq", str(number)),
                    ),
                    payload_type="json",
                    payload=piece,
                )
            )
            for number, piece in enumerate(pieces)
        ]

    def read_frame(self, connection: ServerConnection, frame: str | bytes) -> None:
        try:
            self._read_frame(connection, decode_frame(frame if isinstance(frame, bytes) else b"\0"))
        except ConnectionClosed:
            raise
        except Exception as exc:
            self.problems.append(f"a frame cannot be read: {exc!r}")
            raise

    def _read_frame(self, connection: ServerConnection, frame: ConnectionFrame) -> None:
        if frame.service != SERVICE_ID:
            self.problems.append(f"a frame is for the service {frame.service}")
        if frame.method == 0:
            if frame.find_header("type") != "ping":
                self.problems.append(f"a control frame is a {frame.find_header('type')!r}")
            with self.lock:
                self.pings += 1
                self.lock.notify_all()
            if self.answer_pings:
                payload = json.dumps(self.pong_config).encode() if self.pong_config else b""
                pong = ConnectionFrame(service=SERVICE_ID, headers=(("type", "pong"),), payload=payload)
                connection.send(encode_frame(pong))
            return
        answer = json.loads(frame.payload)
        if not {"code"} <= set(answer) <= {"code", "headers", "data"}:
            self.problems.append(f"an acknowledgement has the fields {sorted(answer)}")
        if not frame.find_header("message_id") or not frame.find_header("biz_rt").isdigit():
            self.problems.append("an acknowledgement lacks headers")
        with self.lock:
            self.acks.append(answer)
            if answer["code"] == 200:
                id_ = frame.find_header("message_id").removeprefix("frame-")
                self.waiting = [event for event in self.waiting if event[0] != id_]
                if answer.get("data"):
                    self.toasts.append(json.loads(base64.b64decode(answer["data"])))
            self.lock.notify_all()

    # Encrypted posts.

    async def post_events(self, handle: Callable[[WebhookRequest], Awaitable[WebhookResponse]]) -> None:
        """Post what waits until it is answered with 200, until cancelled."""
        while True:
            with self.lock:
                batch = self.inject_event_faults(list(self.waiting))
            for id_, payload in batch:
                if self.roll(self.faults.torn):
                    continue
                response = await handle(build_post(payload))
                if response.status == 200:
                    with self.lock:
                        self.waiting = [event for event in self.waiting if event[0] != id_]
                        if json.loads(response.body):
                            self.toasts.append(json.loads(response.body))
                        self.lock.notify_all()
            await asyncio.sleep(0.005)

    # The server API.

    def handle(self, request: WireRequest) -> WireResponse | None:
        with self.lock:
            self.calls.append((request.method, request.path))
        try:
            return self._route(request)
        except FeishuRefusal as exc:
            return exc.response

    def _route(self, request: WireRequest) -> WireResponse | None:
        for part, code in self.refusals.items():
            if part in f"{request.method} {request.path}":
                raise FeishuRefusal(code, "refused by the test")
        match request.method, request.path:
            case "POST", "/open-apis/auth/v3/tenant_access_token/internal":
                return self._grant_token(request)
            case "POST", "/callback/ws/endpoint":
                return self._open_connection(request)
            case _:
                pass
        self._check_token(request)
        match request.method, request.path:
            case "GET", "/open-apis/bot/v3/info":
                bot: dict[str, object] = {"open_id": BOT, "app_name": "Keryx", "activate_status": 2}
                return json_response({"code": 0, "msg": "ok", "bot": bot})
            case "POST", "/open-apis/im/v1/messages":
                return self._create(request)
            case "GET", "/open-apis/im/v1/messages":
                return self._list(request)
            case "POST", "/open-apis/im/v1/images":
                return self._upload(request, "image")
            case "POST", "/open-apis/im/v1/files":
                return self._upload(request, "file")
            case _:
                pass
        if found := _MESSAGE_PATH.match(request.path):
            return self._route_message(request, unquote(found[1]), found[2] or "")
        if request.method == "GET" and request.path.startswith("/open-apis/contact/v3/users/"):
            return self._get_user(request)
        if request.method == "GET" and request.path.startswith("/open-apis/im/v1/chats/"):
            return self._get_chat(request.path.rpartition("/")[2])
        raise FeishuRefusal(404, f"no such path: {request.method} {request.path}", 404)

    def _route_message(self, request: WireRequest, id_: str, rest: str) -> WireResponse | None:
        match request.method, rest.split("/")[1] if rest else "":
            case "POST", "reply":
                return self._reply(request, id_)
            case "POST", "reactions":
                return self._add_reaction(request, id_)
            case "GET", "resources":
                return self._get_resource(request, id_, unquote(rest.rpartition("/")[2]))
            case "GET", "":
                return self._get_message(id_)
            case "PATCH", "":
                return self._patch(request, id_)
            case "PUT", "":
                return self._update(request, id_)
            case "DELETE", "":
                return self._delete(id_)
            case _:
                raise FeishuRefusal(404, "no such path", 404)

    def _grant_token(self, request: WireRequest) -> WireResponse:
        # The official library names no type here.
        body = _read_body(request, {"app_id": True, "app_secret": True}, typed=False)
        if body["app_id"] != APP_ID:
            raise FeishuRefusal(10003, "invalid param", 200)
        if body["app_secret"] != self.secret:
            raise FeishuRefusal(10014, "app secret invalid", 200)
        token = f"t-{next(self._counts)}"
        with self.lock:
            self.tokens_fetched += 1
            self.tokens.add(token)
        answer = {"tenant_access_token": token, "expire": self.token_seconds}
        return json_response({"code": 0, "msg": "ok", **answer})

    def _open_connection(self, request: WireRequest) -> WireResponse:
        body = _read_body(request, {"AppID": True, "AppSecret": True})
        if body != {"AppID": APP_ID, "AppSecret": self.secret}:
            return json_response({"code": 514, "msg": "app_id or app_secret is wrong", "data": None})
        if self.endpoint_code:
            return json_response({"code": self.endpoint_code, "msg": "refused by the test", "data": None})
        self._ticket = f"ticket-{next(self._counts)}"
        url = (
            f"{self.socket_url}/ws/v2?fpid=493&aid=552564&device_id=7&access_key={self._ticket}"
            f"&service_id={SERVICE_ID}&ticket=x"
        )
        return json_response({"code": 0, "msg": "", "data": {"URL": url, "ClientConfig": self.config}})

    def _check_token(self, request: WireRequest) -> None:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind != "Bearer" or not token:
            raise FeishuRefusal(99991661, "Missing access token for authorization", 400)
        if token not in self.tokens:
            raise FeishuRefusal(99991663, "Invalid access token for authorization", 400)

    def _create(self, request: WireRequest) -> WireResponse | None:
        if set(request.query) != {"receive_id_type"}:
            raise FeishuRefusal(230001, "ext=invalid receive_id_type")
        fields = {"receive_id": True, "msg_type": True, "content": True, "uuid": False}
        body = _read_body(request, fields)
        prefixes = {"chat_id": "oc_", "open_id": "ou_", "union_id": "on_"}
        kind, chat = request.query["receive_id_type"], body["receive_id"]
        if kind not in prefixes or not chat.startswith(prefixes[kind]):
            raise FeishuRefusal(
                230001, "Your request contains an invalid request parameter, ext=invalid receive_id."
            )
        return self._accept(request, body, chat)

    def _reply(self, request: WireRequest, parent: str) -> WireResponse | None:
        fields = {"msg_type": True, "content": True, "uuid": False, "reply_in_thread": False}
        body = _read_body(request, fields)
        with self.lock:
            chat = self._find_chat(parent)
            thread = self._find_thread(parent)
            if body.get("reply_in_thread") and not thread:
                thread = f"omt_{next(self._counts):06}"
                self._set_thread(parent, thread)
        return self._accept(request, body, chat, parent=parent, thread=thread)

    def _accept(
        self, request: WireRequest, body: dict[str, Any], chat: str, *, parent: str = "", thread: str = ""
    ) -> WireResponse | None:
        if len(str(body.get("uuid", ""))) > MAX_UUID:
            raise FeishuRefusal(
                230001, "Your request contains an invalid request parameter, ext=invalid uuid."
            )
        if chat in self.gone:
            raise FeishuRefusal(self.gone[chat], "refused by the chat")
        post = FeishuPost("", chat, body["msg_type"], thread=thread, parent=parent)
        self._fill(post, body["msg_type"], body["content"], len(request.body))

        def accept() -> WireResponse:
            uuid = body.get("uuid")
            known = self.uuids.get(uuid, "") if uuid and self.uuids_work else ""
            found = next((p for p in self.posts if p.id == known), None)
            if found is None:
                post.id = f"om_{next(self._counts):06}"
                self.posts.append(post)
                found = post
                if uuid:
                    self.uuids[uuid] = post.id
            self.lock.notify_all()
            return _ok(self._show_post(found))

        with self.lock:
            return self._send(accept)

    def _send(self, accept: Callable[[], WireResponse]) -> WireResponse | None:
        limit = json.dumps({"code": 99991400, "msg": "request trigger frequency limit"}).encode()
        return self.accept_send(
            accept,
            throttled=WireResponse(
                429,
                limit,
                {
                    "content-type": "application/json",
                    "x-ogw-ratelimit-limit": "100",
                    "x-ogw-ratelimit-reset": str(round(self.faults.retry_after)),
                },
            ),
            broken=WireResponse(503, b"upstream error"),
        )

    def _fill(self, post: FeishuPost, kind: str, content: Any, size: int) -> None:
        """Check the content of a message and show it."""
        try:
            found: Any = json.loads(content)
        except (TypeError, ValueError):
            raise FeishuRefusal(230001, "ext=content is not a string in json format") from None
        if size > (MAX_TEXT_BYTES if kind == "text" else MAX_CARD_BYTES):
            raise FeishuRefusal(230025, "The length of the message content reaches its limit.")
        if kind == "interactive":
            post.text, post.buttons, post.summary = _read_card(found)
        elif kind == "post":
            [[node]] = found["zh_cn"]["content"]
            if set(node) != {"tag", "text"} or node["tag"] not in ("md", "text"):
                raise FeishuRefusal(230001, "ext=invalid post")
            post.text, post.buttons = node["text"], {}
        elif kind in _CONTENT_KEYS:
            if set(found) != _CONTENT_KEYS[kind]:
                raise FeishuRefusal(230001, f"ext=invalid {kind}")
            [key] = found.values()
            if key not in self.uploads:
                raise FeishuRefusal(230017, "Bot is NOT the owner of the resource.")
            upload, post.file = self.uploads[key]
            post.file_name = upload.partition(" ")[2]
            if (kind == "image") != upload.startswith("image"):
                raise FeishuRefusal(230055, "The type of file upload does not match the type of message.")
            return
        else:
            raise FeishuRefusal(230001, f"ext=invalid msg_type {kind}")
        if not post.text.strip():
            raise FeishuRefusal(230001, "ext=empty text")

    def _patch(self, request: WireRequest, id_: str) -> WireResponse | None:
        body = _read_body(request, {"content": True})
        post = self._find_post(id_)
        if post.kind != "interactive":
            raise FeishuRefusal(230054, "This operation is not supported for this message type.")
        draft = FeishuPost(id_, post.chat, post.kind)
        self._fill(draft, "interactive", body["content"], len(request.body))
        return self._replace(post, draft)

    def _update(self, request: WireRequest, id_: str) -> WireResponse | None:
        body = _read_body(request, {"msg_type": True, "content": True})
        post = self._find_post(id_)
        if post.kind not in ("text", "post") or body["msg_type"] not in ("text", "post"):
            raise FeishuRefusal(230054, "This operation is not supported for this message type.")
        if post.edits >= MAX_EDITS:
            raise FeishuRefusal(230072, "The message has reached the number of times it can be edited.")
        draft = FeishuPost(id_, post.chat, body["msg_type"])
        self._fill(draft, body["msg_type"], body["content"], len(request.body))
        return self._replace(post, draft)

    def _replace(self, post: FeishuPost, draft: FeishuPost) -> WireResponse | None:
        def accept() -> WireResponse:
            post.text, post.buttons, post.summary = draft.text, draft.buttons, draft.summary
            post.edits += 1
            self.lock.notify_all()
            return _ok({})

        with self.lock:
            return self._send(accept)

    def _delete(self, id_: str) -> WireResponse:
        post = self._find_post(id_)
        with self.lock:
            self.posts.remove(post)
            self.recalled.add(id_)
        return _ok({})

    def _find_post(self, id_: str) -> FeishuPost:
        if id_ in self.recalled:
            raise FeishuRefusal(230011, "The message was withdrawn.")
        with self.lock:
            post = next((p for p in self.posts if p.id == id_), None)
        if post is None:
            raise FeishuRefusal(
                230001, "Your request contains an invalid request parameter, ext=invalid message_id."
            )
        if post.chat in self.gone:
            raise FeishuRefusal(self.gone[post.chat], "refused by the chat")
        return post

    def _find_chat(self, message: str) -> str:
        if message in self.recalled:
            raise FeishuRefusal(230011, "The message was withdrawn.")
        if message in self.messages:
            return self.messages[message]["chat_id"]
        return self._find_post(message).chat

    def _find_thread(self, message: str) -> str:
        if message in self.messages:
            return self.messages[message].get("thread_id") or ""
        return next((p.thread for p in self.posts if p.id == message), "")

    def _set_thread(self, message: str, thread: str) -> None:
        if message in self.messages:
            self.messages[message]["thread_id"] = thread
        for post in self.posts:
            if post.id == message:
                post.thread = thread

    def _list(self, request: WireRequest) -> WireResponse:
        if set(request.query) != {"container_id_type", "container_id", "page_size"}:
            raise FeishuRefusal(230001, "ext=invalid container")
        if request.query["container_id_type"] != "thread" or int(request.query["page_size"]) > 50:
            raise FeishuRefusal(230001, "ext=invalid container")
        thread = request.query["container_id"]
        with self.lock:
            items = [
                {"message_id": id_, "thread_id": thread, "deleted": id_ in self.recalled}
                for id_, message in self.messages.items()
                if message.get("thread_id") == thread
            ]
            items += [self._show_post(p) for p in self.posts if p.thread == thread]
        return _ok({"items": items, "has_more": False, "page_token": ""})

    def _get_message(self, id_: str) -> WireResponse:
        with self.lock:
            post = next((p for p in self.posts if p.id == id_), None)
            message = self.messages.get(id_)
        if post is not None:
            return _ok({"items": [self._show_post(post)]})
        if message is None or id_ in self.recalled:
            raise FeishuRefusal(230011 if id_ in self.recalled else 230001, "ext=invalid message_id")
        item = {
            "message_id": id_,
            "chat_id": message["chat_id"],
            "thread_id": message.get("thread_id"),
            "sender": {"id": PERSON, "id_type": "open_id", "sender_type": "user", "tenant_key": TENANT},
        }
        return _ok({"items": [item, *self.forwarded.get(id_, [])]})

    def _show_post(self, post: FeishuPost) -> dict[str, Any]:
        shown = {
            "message_id": post.id,
            "chat_id": post.chat,
            "msg_type": post.kind,
            "deleted": False,
            "updated": bool(post.edits),
            "sender": {"id": APP_ID, "id_type": "app_id", "sender_type": "app", "tenant_key": TENANT},
        }
        return {**shown, **({"thread_id": post.thread} if post.thread else {})}

    def _get_user(self, request: WireRequest) -> WireResponse:
        if request.query != {"user_id_type": "open_id"}:
            raise FeishuRefusal(40001, "invalid user_id_type")
        id_ = request.path.rpartition("/")[2]
        if id_ not in self.names:
            raise FeishuRefusal(41050, "no user authority error")
        return _ok({"user": {"open_id": id_, "name": self.names[id_], "en_name": ""}})

    def _get_chat(self, chat: str) -> WireResponse:
        if chat not in self.groups | self.direct:
            raise FeishuRefusal(232006, "Your request specifies a chat_id which is invalid.")
        mode = "p2p" if chat in self.direct else "group"
        return _ok({"name": self.names.get(chat, ""), "chat_mode": mode, "chat_type": "private"})

    def _add_reaction(self, request: WireRequest, id_: str) -> WireResponse:
        body = _read_body(request, {"reaction_type": True})
        if set(body["reaction_type"]) != {"emoji_type"} or not body["reaction_type"]["emoji_type"]:
            raise FeishuRefusal(231001, "reaction type is invalid.")
        if id_ in self.recalled or id_ not in self.messages:
            raise FeishuRefusal(231003, "The message is not found")
        with self.lock:
            self.reactions.append((id_, body["reaction_type"]["emoji_type"]))
        return _ok({"reaction_id": f"r-{next(self._counts)}"})

    def _upload(self, request: WireRequest, name: str) -> WireResponse:
        fields, (file_name, body) = _read_form(request, name)
        wanted = {"image_type"} if name == "image" else {"file_type", "file_name"}
        if set(fields) - {"duration"} != wanted:
            raise FeishuRefusal(234001, f"Invalid request param: {sorted(fields)}")
        if not body:
            raise FeishuRefusal(234010, "File's size can't be 0.")
        if len(body) > (MAX_IMAGE_BYTES if name == "image" else MAX_FILE_BYTES):
            raise FeishuRefusal(234006, "The file size exceed the max value.")
        kind = fields.get("file_type") or fields["image_type"]
        if (name == "file" and kind not in _UPLOAD_TYPES) or (name == "image" and kind != "message"):
            raise FeishuRefusal(234001, "Invalid request param.")
        key = f"{'img' if name == 'image' else 'file'}_v3_{next(self._counts)}"
        with self.lock:
            self.upload_types.append(kind)
            self.uploads[key] = f"{name} {fields.get('file_name') or file_name}", body
        return _ok({f"{name}_key": key})

    def _get_resource(self, request: WireRequest, id_: str, key: str) -> WireResponse:
        if set(request.query) != {"type"} or request.query["type"] not in ("image", "file"):
            raise FeishuRefusal(234001, "Invalid request param.")
        if id_ not in self.messages or key not in json.dumps(self.messages[id_]["content"]):
            raise FeishuRefusal(234003, "File not in msg.")
        self.wait_until_released(key)
        if key not in self.files:
            raise FeishuRefusal(234003, "File not in msg.")
        body, mime = self.files[key]
        return WireResponse(200, body, {"content-type": mime or "application/octet-stream"})


def build_post(
    payload: bytes,
    *,
    at: int | None = None,
    key: str = ENCRYPT_KEY,
    signed: bool = True,
    nonce: str = "nonce",
) -> WebhookRequest:
    """Build an encrypted post, as Feishu sends it."""
    body = json.dumps({"encrypt": encrypt(payload, key)}).encode()
    stamp = str(at if at is not None else int(time.time()))
    headers = {"content-type": "application/json; charset=utf-8"}
    if signed:
        headers |= {
            "x-lark-request-timestamp": stamp,
            "x-lark-request-nonce": nonce,
            "x-lark-signature": sign(key, stamp, nonce, body),
        }
    return WebhookRequest(headers=headers, body=body)


def encrypt(payload: bytes, key: str = ENCRYPT_KEY, iv: bytes = b"0123456789abcdef") -> str:
    padder = PKCS7(128).padder()
    padded = padder.update(payload) + padder.finalize()
    encryptor = Cipher(algorithms.AES(hashlib.sha256(key.encode()).digest()), modes.CBC(iv)).encryptor()
    return base64.b64encode(iv + encryptor.update(padded) + encryptor.finalize()).decode()


def _read_body(request: WireRequest, fields: dict[str, bool], *, typed: bool = True) -> dict[str, Any]:
    """Return a JSON body. Unknown fields and fields that are missing are refused."""
    if typed and not request.headers.get("content-type", "").startswith("application/json"):
        raise FeishuRefusal(9499, "Bad Request: content-type")
    body: dict[str, Any] = json.loads(request.body)
    absent = {name for name, needed in fields.items() if needed and not body.get(name)}
    if unknown := set(body) - set(fields):
        raise FeishuRefusal(9499, f"Bad Request: unknown {sorted(unknown)}")
    if absent:
        raise FeishuRefusal(99992402, f"field validation failed: {sorted(absent)}")
    return body


def _read_form(request: WireRequest, name: str) -> tuple[dict[str, str], tuple[str, bytes]]:
    head = f"content-type: {request.headers.get('content-type', '')}\r\n\r\n".encode()
    form = BytesParser(policy=HTTP).parsebytes(head + request.body)
    fields: dict[str, str] = {}
    file: tuple[str, bytes] | None = None
    for part in form.iter_parts():
        field_name = str(part.get_param("name", header="content-disposition"))
        body: Any = part.get_payload(decode=True)
        if field_name == name:
            file = part.get_filename() or "", bytes(body)
        else:
            fields[field_name] = bytes(body).decode()
    if file is None:
        raise FeishuRefusal(234001, "Invalid request param: no file")
    return fields, file


def _read_card(card: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
    """Return the text, the buttons and the summary of a card. Anything that Feishu would refuse is refused."""
    if set(card) != {"schema", "config", "body"} or card["schema"] != "2.0":
        raise FeishuRefusal(230099, "Failed to create card content, ext=ErrCode: 200621; parse card json err")
    if card["config"].get("update_multi") is not True or set(card["config"]) != {"update_multi", "summary"}:
        raise FeishuRefusal(230099, "Failed to create card content, ext=config")
    text, buttons = "", dict[str, Any]()
    for element in card["body"]["elements"]:
        match element["tag"]:
            case "markdown" if set(element) == {"tag", "content"}:
                text += element["content"]
            case "div" if set(element) == {"tag", "text"} and element["text"]["tag"] == "plain_text":
                text += element["text"]["content"]
            case "column_set" if element["columns"]:
                for column in element["columns"]:
                    [button] = column["elements"]
                    label, value = _read_button(button)
                    buttons[label] = value
            case tag:
                raise FeishuRefusal(230099, f"Failed to create card content, ext=unsupported tag {tag}")
    if len(_TABLE_RULE.findall(text)) > MAX_TABLES:
        raise FeishuRefusal(
            230099, "Failed to create card content, ext=ErrCode: 11310; card table number over limit"
        )
    if "<at id=all>" in text or re.search(r"!\[[^\]]*\]\(http", text):
        raise FeishuRefusal(
            230099, "Failed to create card content, ext=ErrCode: 200570; image key is invalid"
        )
    return text, buttons, card["config"]["summary"]["content"]


def _read_button(button: dict[str, Any]) -> tuple[str, Any]:
    if set(button) != {"tag", "type", "text", "behaviors"} or button["tag"] != "button":
        raise FeishuRefusal(230099, "Failed to create card content, ext=button")
    [behavior] = button["behaviors"]
    if behavior["type"] != "callback" or not isinstance(behavior["value"], dict):
        raise FeishuRefusal(230099, "Failed to create card content, ext=behaviors")
    return str(button["text"]["content"]), behavior["value"]


def _ok(data: dict[str, Any]) -> WireResponse:
    return json_response({"code": 0, "msg": "success", "data": data})
