"""A Telegram Bot API on loopback, as strict as the real one where it matters, with knobs for its faults."""

import itertools
import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from typing import Any
from urllib.parse import parse_qsl

from keryx.testing.wire import WireFake, WireRequest, WireResponse, json_response

TOKEN = "424242:test-token"
BOT = {
    "id": 424242,
    "is_bot": True,
    "first_name": "Keryx",
    "username": "keryx_bot",
    "can_read_all_group_messages": False,
}
LONGEST_TEXT = 4096
_MEDIA = ("photo", "document", "voice", "audio")
_METHOD = re.compile(r"/bot([^/]+)/(\w+)\Z")
_LONGEST_PRESS = 64
LARGEST_FILE = 20_000_000
_FILE = re.compile(r"/file/bot([^/]+)/(.+)\Z")


@dataclass(slots=True)
class Bubble:
    """One message of the bot, as a person sees it now."""

    chat: int
    thread: int | None
    id: int
    text: str
    entities: list[dict[str, Any]]
    reply_to: int | None = None
    edits: int = 0
    media: str = ""
    filename: str = ""
    buttons: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class FakeTelegram(WireFake):
    """`blocked` chats refuse the bot, `moved` ones have become the supergroup of that id, and `plain_only` refuses
    every formatted text, `no_buttons` every keyboard. `toasts` are what whoever pressed a button was told. `uploads` holds what the bot sent as files, by the id of the message; `members` who is what
    in a chat, by chat and person."""

    token: str = TOKEN
    # A poll waits no longer than this, so that tests need not.
    longest_poll: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.bubbles: list[Bubble] = []
        self.actions: list[dict[str, Any]] = []
        # The menus by scope, and those in other languages.
        self.commands: list[dict[str, Any]] = []
        self.direct_commands: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        # How long the next requests for a file are told to wait, in seconds, and which files were asked for.
        self.file_waits: dict[str, list[int]] = {}
        self.file_requests: list[str] = []
        self.updates: list[dict[str, Any]] = []
        self.uploads: dict[int, bytes] = {}
        self.webhook: dict[str, Any] = {}
        self.blocked: set[int] = set()
        self.moved: dict[int, int] = {}
        self.members: dict[tuple[int, int], str] = {}
        self.plain_only = False
        self.no_buttons = False
        self.toasts: list[str] = []
        self._presses: dict[str, bool] = {}
        self._ids = itertools.count(1)
        self._edits = itertools.count(1)
        self._update_ids = itertools.count(1000)
        self._polls = 0
        # How often a poll was ended by another one.
        self.conflicts = 0

    def say(
        self, text: str | None, *, chat: int = 7, user: int | None = None, name: str = "Ann", **more: Any
    ) -> int:
        """A person writes; gives the message's id. A negative chat is a supergroup. `more` are further fields of
        the message."""
        number = next(self._ids)
        message: dict[str, Any] = {
            "message_id": number,
            "date": int(time.time()),
            "chat": place(chat, name),
            "from": {"id": user or abs(chat), "is_bot": False, "first_name": name},
            "text": text,
            **more,
        }
        self.push("message", {k: v for k, v in message.items() if v is not None})
        return number

    def rewrite(self, text: str | None, *, message: int, chat: int = 7, **more: Any) -> None:
        """A person edits a message."""
        edited = {
            "message_id": message,
            "date": int(time.time()),
            "edit_date": int(time.time()) + next(self._edits),
            "chat": place(chat),
            "from": {"id": abs(chat), "is_bot": False, "first_name": "Ann"},
            "text": text,
            **more,
        }
        self.push("edited_message", {k: v for k, v in edited.items() if v is not None})

    def react(self, emoji: str, *, message: int, chat: int = 7) -> None:
        """A person reacts to a message."""
        person = {"id": abs(chat), "is_bot": False, "first_name": "Ann"}
        reaction = [{"type": "emoji", "emoji": emoji}]
        body = {"chat": place(chat), "message_id": message, "user": person, "date": int(time.time())}
        self.push("message_reaction", {**body, "old_reaction": [], "new_reaction": reaction})

    def press(self, label: str, *, user: int | None = None, chat: int = 7, times: int = 1) -> None:
        """A person presses a button of the last message that has one of this label."""
        with self.lock:
            shown = next(b for b in reversed(self.bubbles) if b.chat == chat and label in b.buttons)
        self.claim(shown.buttons[label], message=shown.id, chat=chat, user=user, times=times)

    def claim(
        self, data: str, *, message: int, chat: int = 7, user: int | None = None, times: int = 1
    ) -> None:
        """A client says that a button was pressed: it may say anything."""
        with self.lock:
            id_ = f"p{next(self._ids)}"
            self._presses[id_] = False
        said = {"message_id": message, "date": 0, "chat": place(chat)}
        person = {"id": user or abs(chat), "is_bot": False, "first_name": "Ann"}
        for _ in range(times):
            press = {"id": id_, "from": person, "message": said, "chat_instance": str(chat), "data": data}
            self.push("callback_query", press)

    def push(self, kind: str, body: object) -> None:
        """An update of any kind, as it comes over the wire."""
        with self.lock:
            self.updates.append({"update_id": next(self._update_ids), kind: body})
            self.lock.notify_all()

    def texts(self, chat: int = 7) -> list[str]:
        with self.lock:
            return [b.text for b in self.bubbles if b.chat == chat]

    @property
    def polls(self) -> int:
        """How often a bot has asked for updates."""
        return self._polls

    def handle(self, request: WireRequest) -> WireResponse | None:
        found = _METHOD.match(request.path)
        if found is None:
            return self._file(request)
        if found[1] != self.token:
            return _error(401, "Unauthorized")
        method = found[2].lower()
        params = {**request.query, **_params(request)}
        if method == "getupdates":
            return self._get_updates(params)
        if method == "getme":
            return _ok({**BOT, "id": int(self.token.partition(":")[0])})
        known = self._methods.get(method)
        return known(params) if known else _error(404, f"Not Found: method {method} not found")

    @property
    def _methods(self) -> dict[str, Callable[[dict[str, Any]], WireResponse | None]]:
        return {
            "sendmessage": self._send,
            "editmessagetext": self._edit,
            "deletemessage": self._remove,
            "answercallbackquery": self._acknowledge,
            "sendphoto": self._send,
            "senddocument": self._send,
            "sendvoice": self._send,
            "sendaudio": self._send,
            "sendchataction": self._action,
            "setmycommands": self._set_commands,
            "getchatmember": self._get_member,
            "getfile": self._get_file,
            "setwebhook": self._set_webhook,
            "deletewebhook": self._delete_webhook,
            "getwebhookinfo": lambda params: _ok({"url": self.webhook.get("url", "")}),
        }

    def _get_updates(self, params: dict[str, Any]) -> WireResponse | None:
        """Wait for updates as the real one does: a newer poll ends an older one, and a webhook all of them."""
        offset = int(params.get("offset") or 0)
        with self.lock:
            if self.webhook:
                return _error(409, "Conflict: can't use getUpdates method while webhook is active")
            self._polls += 1
            mine = self._polls
            self.lock.notify_all()
            self.updates = [u for u in self.updates if u["update_id"] >= offset]
            wait = min(float(params.get("timeout") or 0), self.longest_poll)
            self.lock.wait_for(lambda: self.updates or self._polls != mine, wait)
            if self._polls != mine:
                self.conflicts += 1
                return _error(409, "Conflict: terminated by other getUpdates request")
            batch = self.updates[: int(params.get("limit") or 100)]
            response = _ok(self.inject_event_faults(batch))
            return self.tear(response) if batch else response

    def _set_webhook(self, params: dict[str, Any]) -> WireResponse:
        if not str(params.get("url") or "").startswith("https://"):
            return _error(400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook")
        with self.lock:
            self.webhook = params
            if params.get("drop_pending_updates"):
                self.updates = []
            self.lock.notify_all()
        return _ok(True)

    def _delete_webhook(self, params: dict[str, Any]) -> WireResponse:
        with self.lock:
            self.webhook = {}
            if params.get("drop_pending_updates"):
                self.updates = []
        return _ok(True)

    def _send(self, params: dict[str, Any]) -> WireResponse | None:
        return self._accept(lambda: self._refuse(params) or self._store(params))

    def _accept(self, accept: Callable[[], WireResponse]) -> WireResponse | None:
        after = math.ceil(self.faults.retry_after)
        throttled = _error(429, f"Too Many Requests: retry after {after}", parameters={"retry_after": after})
        with self.lock:
            return self.accept_send(accept, throttled=throttled, broken=_error(502, "Bad Gateway"))

    def _store(self, params: dict[str, Any]) -> WireResponse:
        with self.lock:
            reply: dict[str, Any] = params.get("reply_parameters") or {}
            entities: list[dict[str, Any]] = params.get("entities") or params.get("caption_entities") or []
            bubble = Bubble(
                chat=int(params["chat_id"]),
                thread=int(params["message_thread_id"]) if params.get("message_thread_id") else None,
                id=next(self._ids),
                text=str(params.get("text") or params.get("caption") or ""),
                entities=entities,
                reply_to=reply.get("message_id"),
                media=next((k for k in _MEDIA if k in params), ""),
                filename=str(params.get("filename") or ""),
                buttons=_buttons(params),
            )
            self.bubbles.append(bubble)
            if bubble.media:
                self.uploads[bubble.id] = params[bubble.media]
            self.lock.notify_all()
            return _ok(_message(bubble))

    def _edit(self, params: dict[str, Any]) -> WireResponse | None:
        return self._accept(lambda: self._refuse(params) or self._change(params))

    def _change(self, params: dict[str, Any]) -> WireResponse:
        with self.lock:
            found = [
                b
                for b in self.bubbles
                if b.id == int(params["message_id"]) and b.chat == int(params["chat_id"])
            ]
            if not found:
                return _error(400, "Bad Request: message to edit not found")
            bubble = found[0]
            entities: list[dict[str, Any]] = params.get("entities") or []
            if (bubble.text, bubble.entities, bubble.buttons) == (params["text"], entities, _buttons(params)):
                return _error(
                    400,
                    "Bad Request: message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message",
                )
            bubble.text, bubble.entities, bubble.edits = params["text"], entities, bubble.edits + 1
            bubble.buttons = _buttons(params)
            self.lock.notify_all()
            return _ok(_message(bubble))

    def _remove(self, params: dict[str, Any]) -> WireResponse:
        with self.lock:
            kept = [
                b
                for b in self.bubbles
                if (b.id, b.chat) != (int(params["message_id"]), int(params["chat_id"]))
            ]
            if len(kept) == len(self.bubbles):
                return _error(400, "Bad Request: message to delete not found")
            self.bubbles = kept
            self.lock.notify_all()
        return _ok(True)

    def _refuse(self, params: dict[str, Any]) -> WireResponse | None:
        """Return why the server does not accept a message, if so."""
        if refusal := self._refuse_chat(int(params["chat_id"])):
            return refusal
        text = str(params.get("text") or params.get("caption") or "")
        size = len(text.encode("utf-16-le", "surrogatepass")) // 2
        if size > LONGEST_TEXT:
            return _error(400, "Bad Request: message is too long")
        if not text.strip() and "text" in params:
            return _error(400, "Bad Request: message text is empty")
        if refusal := self._refuse_buttons(_buttons(params)):
            return refusal
        entities: list[dict[str, Any]] = params.get("entities") or []
        if entities and self.plain_only:
            return _error(400, "Bad Request: can't parse entities: Unsupported entity")
        for entity in entities:
            if entity["offset"] < 0 or entity["length"] < 1 or entity["offset"] + entity["length"] > size:
                return _error(400, "Bad Request: entity beyond the end of the text")
        return None

    def _refuse_buttons(self, buttons: dict[str, str]) -> WireResponse | None:
        if buttons and self.no_buttons:
            return _error(400, "Bad Request: inline keyboard expected")
        if any(not 1 <= len(data.encode()) <= _LONGEST_PRESS for data in buttons.values()):
            return _error(400, "Bad Request: BUTTON_DATA_INVALID")
        return None

    def _acknowledge(self, params: dict[str, Any]) -> WireResponse | None:
        with self.lock:
            if self.roll(self.faults.broken):
                return _error(502, "Bad Gateway")
            if self._presses.get(str(params["callback_query_id"])) is not False:
                return _error(
                    400,
                    "Bad Request: query is too old and response timeout expired or query ID is invalid",
                )
            self._presses[str(params["callback_query_id"])] = True
            self.toasts.append(str(params.get("text") or ""))
            self.lock.notify_all()
        return _ok(True)

    def _refuse_chat(self, chat: int) -> WireResponse | None:
        if chat in self.moved:
            return _error(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                parameters={"migrate_to_chat_id": self.moved[chat]},
            )
        return _error(403, "Forbidden: bot was blocked by the user") if chat in self.blocked else None

    def _action(self, params: dict[str, Any]) -> WireResponse:
        with self.lock:
            self.actions.append(params)
            self.lock.notify_all()
        return _ok(True)

    def _get_member(self, params: dict[str, Any]) -> WireResponse:
        chat, user = int(params["chat_id"]), int(params["user_id"])
        if user < 0:
            return _error(400, "Bad Request: PARTICIPANT_ID_INVALID")
        status = self.members.get((chat, user), "member")
        return _ok({"status": status, "user": {"id": user, "is_bot": False, "first_name": "Ann"}})

    def _set_commands(self, params: dict[str, Any]) -> WireResponse:
        scope = (params.get("scope") or {"type": "default"})["type"]
        if scope == "all_private_chats":
            self.direct_commands = params["commands"]
        else:
            self.commands = params["commands"]
        return _ok(True)

    def _get_file(self, params: dict[str, Any]) -> WireResponse:
        name = str(params["file_id"])
        with self.lock:
            self.file_requests.append(name)
            if waits := self.file_waits.get(name):
                after = waits.pop(0)
                text = f"Too Many Requests: retry after {after}"
                return _error(429, text, parameters={"retry_after": after})
        if name not in self.files:
            return _error(400, "Bad Request: invalid file_id")
        if len(self.files[name]) > LARGEST_FILE:
            return _error(400, "Bad Request: file is too big")
        found = {"file_id": name, "file_unique_id": f"unique-{name}", "file_size": len(self.files[name])}
        return _ok({**found, "file_path": f"files/{name}"})

    def _file(self, request: WireRequest) -> WireResponse:
        found = _FILE.match(request.path)
        name = found[2].removeprefix("files/") if found else ""
        self.wait_until_released(name)
        return WireResponse(200, self.files[name]) if name in self.files else _error(404, "Not Found")


def place(chat: int, name: str = "Ann") -> dict[str, Any]:
    """A chat as messages name it: a person's when it is positive, else a supergroup."""
    if chat > 0:
        return {"id": chat, "type": "private", "first_name": name}
    return {"id": chat, "type": "supergroup", "title": f"Group {-chat}"}


def _params(request: WireRequest) -> dict[str, Any]:
    kind = request.headers.get("content-type", "")
    if kind.startswith("application/json"):
        return json.loads(request.body)
    if kind.startswith("application/x-www-form-urlencoded"):
        given = dict(parse_qsl(request.body.decode()))
        return {name: json.loads(text) if text[:1] in "[{" else text for name, text in given.items()}
    if not kind.startswith("multipart/form-data"):
        return {}
    whole = message_from_bytes(
        b"content-type: " + kind.encode() + b"\r\n\r\n" + request.body, policy=policy.HTTP
    )
    found: dict[str, Any] = {}
    for part in whole.iter_parts():
        name = str(part.get_param("name", header="content-disposition"))
        data = part.get_payload(decode=True)
        assert isinstance(data, bytes)
        text = data if part.get_filename() else data.decode()
        if part.get_filename():
            found["filename"] = part.get_filename()
        found[name] = json.loads(text) if isinstance(text, str) and text[:1] in "[{" else text
    return found


def _buttons(params: dict[str, Any]) -> dict[str, str]:
    """The labels of a keyboard, each with what it gives back."""
    markup: dict[str, list[list[dict[str, str]]]] = params.get("reply_markup") or {}
    rows = markup.get("inline_keyboard", [])
    return {button["text"]: button["callback_data"] for row in rows for button in row}


def _message(bubble: Bubble) -> dict[str, Any]:
    texts = ("caption", "caption_entities") if bubble.media else ("text", "entities")
    shown: dict[str, Any] = {
        texts[0]: bubble.text,
        texts[1]: bubble.entities,
        "message_thread_id": bubble.thread,
    }
    if bubble.media == "document":
        shown["document"] = {**_name_file(bubble), "file_name": bubble.filename}
    elif bubble.media == "photo":
        shown["photo"] = [{**_name_file(bubble), "width": 90, "height": 90}]
    elif bubble.media:
        shown[bubble.media] = {**_name_file(bubble), "duration": 1}
    return {
        "message_id": bubble.id,
        "date": int(time.time()),
        "from": BOT,
        "chat": place(bubble.chat),
        **{name: value for name, value in shown.items() if value},
    }


def _name_file(bubble: Bubble) -> dict[str, Any]:
    return {"file_id": f"sent-{bubble.id}", "file_unique_id": f"unique-{bubble.id}"}


def _ok(result: object) -> WireResponse:
    return json_response({"ok": True, "result": result})


def _error(code: int, description: str, **more: object) -> WireResponse:
    return json_response({"ok": False, "error_code": code, "description": description, **more}, code)
