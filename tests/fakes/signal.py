"""The signal-cli daemon on loopback: strict about every request, with knobs for its faults. It behaves as the source of signal-cli 0.13 and 0.14 says, above all while it receives."""

import base64
import itertools
import json
import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus, urlsplit

import msgspec

from keryx.jsonrpc import as_object
from keryx.testing.wire import WireFake, WireRequest, WireResponse, json_response

NUMBER = "+15550783881"
UUID = "0f1e2d3c-4b5a-4697-8879-6a5b4c3d2e1f"
ANN = "8a2f3c1e-5b7d-4e90-a1c2-d3e4f5061728"
BEN = "1b2c3d4e-5f60-4718-92a3-b4c5d6e7f809"
GROUP = "Pmpi+EfPWmsxiomLe9Nx2XF9HOE483p6iKiFj65iMwI="
LINK = (
    "sgnl://linkdevice?uuid=DQoyVdv1UBTtuDX3cmHXgg%3D%3D&pub_key=BVYXwLQ5nb8TTh2cJ7wzZQ9OxW8vBqkEzJjCj0oS1xw6"
)
VERSION = "0.13.19"
MENTION = "\ufffc"
LONGEST_STRING = 20_000_000
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PHONE = re.compile(r"\+[1-9]\d{4,14}")
_STYLE = re.compile(r"(\d+):(\d+):(BOLD|ITALIC|SPOILER|STRIKETHROUGH|MONOSPACE)")
_DATA_URI = re.compile(r"data:([^;,]+/[^;,]+);filename=([^;,]+);base64,(.+)", re.DOTALL)
_ADDRESS = {"recipient", "groupId", "noteToSelf"}
_PARAMS: dict[str, set[str]] = {
    "version": set(),
    "listAccounts": set(),
    "startLink": set(),
    "finishLink": {"deviceLinkUri", "deviceName"},
    "receive": {"timeout", "maxMessages"},
    "send": {
        *_ADDRESS,
        "message",
        "attachment",
        "textStyle",
        "quoteTimestamp",
        "quoteAuthor",
        "editTimestamp",
    },
    "sendTyping": {"recipient", "groupId"},
    "getAttachment": {"id"},
}
# Only a daemon for all accounts has these.
_MULTI = {"listAccounts", "startLink", "finishLink"}
_WITHOUT_ACCOUNT = {"version", *_MULTI}


@dataclass(slots=True)
class SignalBubble:
    """One message of the account, as a person sees it."""

    chat: str
    id: int
    text: str
    # Styled pieces of the text.
    styles: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    quotes: tuple[str, int] | None = None
    files: list[bytes] = field(default_factory=list[bytes])
    names: list[str] = field(default_factory=list[str])
    mimes: list[str] = field(default_factory=list[str])
    # The ids of all versions.
    versions: list[int] = field(default_factory=list[int])


class RpcRefusal(Exception):
    """An error that signal-cli answers with."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, "data": data}


@dataclass
class FakeSignalCli(WireFake):
    # What the output is appended to, as by the shell.
    stdout: Path | None = None
    accounts: list[str] = field(default_factory=lambda: [NUMBER])
    # Started with `-a`.
    single: bool = False
    # Started without --receive-mode=manual.
    receives_itself: bool = False
    # A call of `receive` waits no longer than this, so that tests need not.
    longest_wait: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.bubbles: list[SignalBubble] = []
        self.typing: list[str] = []
        self.files: dict[str, bytes] = {}
        # What waits at Signal for this account.
        self.queue: list[object] = []
        # What signal-cli has taken from Signal.
        self.pulled: list[object] = []
        # Errors that the next calls of a method are answered with.
        self.refusals: dict[str, list[RpcRefusal]] = {}
        self.link_timeout = False
        self.linked = threading.Event()
        # What was refused because it is not as signal-cli wants it.
        self.problems: list[str] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._receiving = False
        self._clock = itertools.count(int(time.time() * 1000))
        self._devices = itertools.count(1)

    # What people do.

    def write(
        self,
        chat: str,
        text: str | None,
        *,
        number: str | None = None,
        name: str | None = "Ann",
        user: str = "",
        **more: Any,
    ) -> int:
        """A person writes to the account, or into a group; gives the time that identifies the message."""
        at = next(self._clock)
        data = self._build_data(at, text, group=chat if user else "", **more)
        self.push(self.build_envelope(at, user or chat, number=number, name=name, dataMessage=data))
        return at

    def edit(self, chat: str, text: str, target: int, **more: Any) -> int:
        at = next(self._clock)
        edited = {"targetSentTimestamp": target, "dataMessage": self._build_data(at, text, **more)}
        self.push(self.build_envelope(at, chat, editMessage=edited))
        return at

    def delete(self, chat: str, target: int) -> None:
        self.write(chat, None, remoteDelete={"timestamp": target})

    def react(
        self, chat: str, emoji: str, target: int, *, author: str = "", remove: bool = False, user: str = ""
    ) -> None:
        """A person reacts to a message of theirs, or of another author."""
        by = author or user or chat
        known = {"targetAuthorNumber": NUMBER, "targetAuthorUuid": UUID} if by == NUMBER else {}
        other = {"targetAuthorNumber": None, "targetAuthorUuid": by}
        reaction = {
            "emoji": emoji,
            "targetAuthor": by,
            **(known or other),
            "targetSentTimestamp": target,
            "isRemove": remove,
        }
        self.write(chat, None, reaction=reaction, user=user)

    def note(self, text: str | None, **more: Any) -> int:
        """The owner of the account writes a note to self on another device."""
        return self.sync(text, NUMBER, UUID, **more)

    def sync(self, text: str | None, number: str | None, uuid: str | None, **more: Any) -> int:
        """Another device of the account has sent a message."""
        at = next(self._clock)
        sent = {
            "destination": number,
            "destinationNumber": number,
            "destinationUuid": uuid,
            **self._build_data(at, text, **more),
        }
        envelope = self.build_envelope(
            at, UUID, number=NUMBER, name="Me", device=1, syncMessage={"sentMessage": sent}
        )
        self.push(envelope)
        return at

    def add_file(self, name: str, mime: str, body: bytes) -> dict[str, Any]:
        """A file of a person; gives the object that a message names it with."""
        id_ = f"{len(self.files)}-{name}"
        self.files[id_] = body
        return {"contentType": mime, "filename": name, "id": id_, "size": len(body), "caption": None}

    def push(self, item: object) -> None:
        with self.lock:
            self.queue.append(item)
            self.lock.notify_all()

    def build_envelope(
        self,
        at: int,
        user: str,
        *,
        number: str | None = None,
        name: str | None = "Ann",
        device: int = 2,
        **more: Any,
    ) -> dict[str, Any]:
        known = user if _PHONE.fullmatch(user) else number
        envelope = {
            "source": known or user,
            "sourceNumber": known,
            "sourceUuid": None if _PHONE.fullmatch(user) else user,
            "sourceName": name,
            "sourceDevice": device,
            "timestamp": at,
            "serverReceivedTimestamp": at + 1,
            "serverDeliveredTimestamp": at + 2,
            **more,
        }
        return {"envelope": envelope, "account": NUMBER}

    def _build_data(self, at: int, text: str | None, *, group: str = "", **more: Any) -> dict[str, Any]:
        info = {"groupId": group, "groupName": "The group", "revision": 3, "type": "DELIVER"}
        return {
            "timestamp": at,
            "message": text,
            "expiresInSeconds": 0,
            "isExpirationUpdate": False,
            "viewOnce": False,
            **({"groupInfo": info} if group else {}),
            **more,
        }

    # What people see.

    def texts(self, chat: str) -> list[str]:
        with self.lock:
            return [b.text for b in self.bubbles if b.chat == chat and not b.files]

    def sent_files(self, chat: str) -> list[bytes]:
        with self.lock:
            return [body for b in self.bubbles if b.chat == chat for body in b.files]

    # The daemon.

    def handle(self, request: WireRequest) -> WireResponse | None:
        if urlsplit(f"//{request.headers.get('host', '')}").hostname not in ("127.0.0.1", "localhost"):
            return WireResponse(421)
        if request.path == "/api/v1/check":
            return WireResponse(200 if request.method == "GET" else 405)
        if request.path != "/api/v1/rpc":
            return WireResponse(404)
        if request.method != "POST":
            return WireResponse(405)
        if not request.headers.get("content-type", "").startswith("application/json"):
            return WireResponse(415)
        if len(request.body) < int(request.headers.get("content-length", "0")):
            # The client has gone while it wrote.
            return None
        number: object = None
        try:
            message = _read_request(request.body)
            number = message["id"]
            found = self._run(message["method"], dict(message.get("params") or {}))
        except RpcRefusal as exc:
            if exc.error["code"] in (-32600, -32602, -32700):
                self.problems.append(str(exc))
            return json_response({"jsonrpc": "2.0", "error": exc.error, "id": number})
        if found is None:
            return None
        response = json_response({"jsonrpc": "2.0", "result": found, "id": number})
        return self.tear(response) if message["method"] == "receive" else response

    def _run(self, method: str, params: dict[str, Any]) -> object:
        if method not in _PARAMS or (self.single and method in _MULTI):
            raise RpcRefusal(-32601, "Method not implemented")
        if method not in _WITHOUT_ACCOUNT:
            self._check_account(params)
        if unknown := params.keys() - _PARAMS[method]:
            raise RpcRefusal(-32600, f'Unrecognized field "{sorted(unknown)[0]}"')
        with self.lock:
            self.calls.append((method, params))
            if self.refusals.get(method):
                raise self.refusals[method].pop(0)
        match method:
            case "version":
                return {"version": VERSION}
            case "listAccounts":
                return [{"number": number} for number in self.accounts]
            case "startLink":
                return {"deviceLinkUri": LINK}
            case "finishLink":
                return self._finish_link(params)
            case "receive":
                return self._receive(float(params["timeout"]), int(params["maxMessages"]))
            case "getAttachment":
                return self._get_attachment(params)
            case "sendTyping":
                chat = _read_address(params)
                with self.lock:
                    self.typing.append(chat)
                    self.lock.notify_all()
                return {"timestamp": next(self._clock), "results": []}
            case _:
                return self._send(params)

    def _check_account(self, params: dict[str, Any]) -> None:
        account = params.pop("account", None)
        if self.single:
            if account is not None:
                raise RpcRefusal(-32600, 'Unrecognized field "account"')
            return
        if account not in self.accounts:
            raise RpcRefusal(-32602, "Specified account does not exist")

    def _finish_link(self, params: Mapping[str, Any]) -> object:
        if params.get("deviceLinkUri") != LINK:
            raise RpcRefusal(-1, "Unknown device link uri.")
        if self.link_timeout:
            raise RpcRefusal(-1, "Link request timed out, please try again.")
        self.accounts.append(NUMBER)
        self.linked.set()
        return {"number": NUMBER}

    def _receive(self, timeout: float, most: int) -> list[object]:
        """Take messages from Signal. Each is gone there when it is taken, and written to the output before it is kept for the
        response, which nobody may wait for any more."""
        with self.lock:
            if self._receiving or self.receives_itself:
                raise RpcRefusal(-1, "Receive command cannot be used if messages are already being received.")
            self._receiving = True
            taken: list[object] = []
            try:
                while len(taken) < most and self.lock.wait_for(
                    lambda: bool(self.queue), min(timeout, self.longest_wait)
                ):
                    taken += self.inject_event_faults([self._take()])
            finally:
                self._receiving = False
        return taken

    def take_all(self) -> None:
        """Receive without being asked, as in the mode `on-start`."""
        with self.lock:
            while self.queue:
                self._take()

    def _take(self) -> object:
        item = self.queue.pop(0)
        self.pulled.append(item)
        if self.stdout is not None:
            line = item if isinstance(item, bytes) else json.dumps(item).encode()
            with self.stdout.open("ab") as output:
                output.write(line + b"\n")
        return item.decode("utf-8", "replace") if isinstance(item, bytes) else item

    def _get_attachment(self, params: Mapping[str, Any]) -> object:
        id_ = params.get("id")
        if id_ not in self.files:
            raise RpcRefusal(-1, f"Could not find attachment with ID: {id_}")
        self.wait_until_released(id_)
        return {"data": base64.b64encode(self.files[id_]).decode()}

    def _send(self, params: dict[str, Any]) -> object:
        chat = _read_address(params)
        bubble = self._read_message(chat, params)

        def accept() -> WireResponse:
            if target := params.get("editTimestamp"):
                for known in self.bubbles:
                    if target in known.versions and known.chat == chat:
                        known.text, known.styles = bubble.text, bubble.styles
                        known.versions.append(bubble.id)
            else:
                self.bubbles.append(bubble)
            self.lock.notify_all()
            result = {"recipientAddress": {"uuid": None, "number": None}, "type": "SUCCESS"}
            return json_response({"timestamp": bubble.id, "results": [result]})

        after = math.ceil(self.faults.retry_after)
        limited: list[dict[str, Any]] = [
            {"recipientAddress": {}, "type": "RATE_LIMIT_FAILURE", "retryAfterSeconds": after}
        ]
        with self.lock:
            response = self.accept_send(accept, throttled=WireResponse(429), broken=WireResponse(500))
        if response is None:
            return None
        if response.status == 429:
            data: dict[str, Any] = {"response": {"timestamp": bubble.id, "results": limited}}
            raise RpcRefusal(-5, "Failed to send message due to rate limiting", data)
        if response.status == 500:
            raise RpcRefusal(
                -32603, "Failed to send message: Connection reset (IOException) (UnexpectedErrorException)"
            )
        return json.loads(response.body)

    def _read_message(self, chat: str, params: Mapping[str, Any]) -> SignalBubble:
        text, files = params.get("message", ""), _read_texts(params.get("attachment", []))
        if not isinstance(text, str) or not (text or files):
            raise RpcRefusal(-1, "Sending empty message is not allowed")
        _check(len(text.encode("utf-8", "surrogatepass")) <= 2000, "the text is too long for one message")
        bubble = SignalBubble(chat, id_ := next(self._clock), text, versions=[id_])
        units = text.encode("utf-16-le", "surrogatepass")
        for given in _read_texts(params.get("textStyle", [])):
            found = _STYLE.fullmatch(given)
            if found is None:
                raise RpcRefusal(-1, f"Invalid textStyle syntax ({given}) expected 'start:length:STYLE'")
            start, length = int(found[1]), int(found[2])
            _check(length > 0 and 2 * (start + length) <= len(units), f"{given} is outside of the text")
            piece = units[2 * start : 2 * (start + length)].decode("utf-16-le", "surrogatepass")
            bubble.styles.append((found[3], piece))
        for given in files:
            _check(len(given) <= LONGEST_STRING, "String value length exceeds the maximum allowed")
            uri = _DATA_URI.fullmatch(given)
            if uri is None:
                raise RpcRefusal(-1, f"{given[:40]}: (AttachmentInvalidException)")
            bubble.mimes.append(uri[1])
            bubble.names.append(unquote_plus(uri[2]))
            bubble.files.append(base64.b64decode(uri[3], validate=True))
        if "quoteTimestamp" in params:
            _check(isinstance(params["quoteTimestamp"], int), "quoteTimestamp")
            _check(_is_person(params.get("quoteAuthor")), "quoteAuthor")
            bubble.quotes = params["quoteAuthor"], params["quoteTimestamp"]
        if "editTimestamp" in params:
            _check(isinstance(params["editTimestamp"], int), "editTimestamp")
        return bubble


def _read_request(body: bytes) -> dict[str, Any]:
    try:
        message = as_object(json.loads(body))
    except ValueError:
        raise RpcRefusal(-32700, "Unexpected character") from None
    if message.get("jsonrpc") != "2.0":
        raise RpcRefusal(-32600, "only jsonrpc version 2.0 is supported")
    if unknown := message.keys() - {"jsonrpc", "id", "method", "params"}:
        raise RpcRefusal(-32600, f'Unrecognized field "{sorted(unknown)[0]}"')
    if not message.get("method") or message.get("id") is None:
        raise RpcRefusal(-32600, "method field must be set")
    return message


def _read_address(params: Mapping[str, Any]) -> str:
    """Return the chat of a call that names exactly one."""
    given = [name for name in _ADDRESS if params.get(name)]
    _check(len(given) == 1, "a message has one kind of recipient")
    if params.get("noteToSelf"):
        return NUMBER
    if "groupId" in params:
        if len(base64.b64decode(params["groupId"], validate=True)) not in (16, 32):
            raise RpcRefusal(-1, "Invalid group id: Failed to decode groupId")
        return str(params["groupId"])
    people = _read_texts(params["recipient"])
    _check(len(people) == 1 and _is_person(people[0]), f"Invalid phone number '{people}'")
    return people[0]


def _read_texts(value: object) -> Sequence[str]:
    try:
        return msgspec.convert(value, list[str])
    except msgspec.ValidationError:
        raise RpcRefusal(-32602, "a list of texts") from None


def _is_person(value: object) -> bool:
    return isinstance(value, str) and bool(_UUID.fullmatch(value) or _PHONE.fullmatch(value))


def _check(condition: bool, what: str) -> None:
    if not condition:
        raise RpcRefusal(-32602, what)
