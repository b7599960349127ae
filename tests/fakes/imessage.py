"""Messages on a Mac: the table of messages, `imsg` as a program over it, and a BlueBubbles server over it. Both check every request."""

import json
import os
import queue
import re
import socket
import sys
import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email import message_from_bytes
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import unquote

import httpx

from keryx.testing.wire import WireFake, WireRequest, WireResponse, json_response

PASSWORD = "bubble-pass-7Q"
SECRET = "hook-secret-19"
OWN = "agent@keryx.test"
ANN = "+15550000001"
BEN = "ben@people.test"
GROUP = "iMessage;+;chat400"
_PROGRAM = Path(__file__).with_name("imsg_program.py")
_TAPBACKS = {"❤️": "love", "👍": "like", "👎": "dislike", "😂": "laugh", "‼️": "emphasize", "❓": "question"}
_SEND_FIELDS = {
    "text": str,
    "file": str,
    "to": str,
    "service": str,
    "chat_guid": str,
    "chat_id": int,
}
_CONDITION = re.compile(r"message\.(ROWID|is_from_me) (>|<=|=) :(\w+)")

Json = dict[str, Any]


@dataclass
class SentFile:
    guid: str
    name: str
    mime: str
    body: bytes
    # On the Mac.
    path: str = ""


@dataclass
class Row:
    row: int
    guid: str
    chat: str
    sender: str
    text: str
    date: int
    from_me: bool = False
    files: list[SentFile] = field(default_factory=list[SentFile])
    # Of a tapback: its name, whether it is taken back, and the message.
    tapback: str = ""
    removed: bool = False
    tapback_at: str = ""
    thread: str = ""
    edited: int = 0
    retracted: int = 0
    item_type: int = 0
    error: int = 0
    # Fields that no version knows, or broken ones, in place of those of the row.
    raw: Json | None = None

    @property
    def handle(self) -> str:
        return self.chat.rpartition(";")[2]

    @property
    def in_group(self) -> bool:
        return ";+;" in self.chat


class MessagesFake(WireFake):
    """The table of messages of one Mac. Chats are named by their handle, or by their GUID if they are groups."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rows: list[Row] = []
        # What a request did wrong.
        self.problems: list[str] = []
        self.typed: list[str] = []
        self.read: list[str] = []
        # Messages says this about the next sends.
        self.send_error = 0
        self.private_api = True
        # How often new rows were asked for.
        self.reads = 0
        self._last_row = 0

    def write(self, chat: str, text: str, *, sender: str = "", service: str = "iMessage", **more: Any) -> Row:
        """Let a person write."""
        guid = chat if ";" in chat else f"{service};-;{chat}"
        person = sender or (chat if ";+;" not in chat else ANN)
        return self._add(chat=guid, sender=person, text=text, **more)

    def attach(self, chat: str, text: str, name: str, mime: str, body: bytes, *, path: str = "") -> Row:
        file = SentFile(_create_guid(), name, mime, body, path)
        return self.write(chat, f"\ufffc{text}", files=[file])

    def tap(self, chat: str, emoji: str, at: Row, *, removed: bool = False, sender: str = "") -> Row:
        return self.write(
            chat, "Liked it", tapback=_TAPBACKS[emoji], tapback_at=at.guid, removed=removed, sender=sender
        )

    def edit(self, row: Row, text: str) -> None:
        with self.lock:
            row.text, row.edited = text, row.date + 5000
            self.lock.notify_all()
        self.announce("updated-message")

    def retract(self, row: Row) -> None:
        with self.lock:
            row.text, row.retracted = "", row.date + 5000
            self.lock.notify_all()
        self.announce("updated-message")

    def fail(self, row: Row, code: int = 22) -> None:
        """Find out late that a message was not delivered."""
        with self.lock:
            row.error = code
            self.lock.notify_all()
        self.announce("message-send-error")

    def write_as_agent(self, chat: str, text: str) -> Row:
        """Let the owner of the Mac write by hand."""
        return self.write(chat, text, from_me=True)

    def texts(self, chat: str) -> list[str]:
        """Return what a person in a chat has got, without files."""
        with self.lock:
            return [row.text for row in self._find_sent(chat) if not row.files]

    def sent_files(self, chat: str) -> list[bytes]:
        with self.lock:
            return [file.body for row in self._find_sent(chat) for file in row.files]

    def sent_rows(self, chat: str) -> list[Row]:
        with self.lock:
            return self._find_sent(chat)

    def announce(self, event: str) -> None:
        """Tell whoever wants to know that the table has changed."""

    def _find_sent(self, chat: str) -> list[Row]:
        return [row for row in self.rows if row.from_me and chat in (row.chat, row.handle) and not row.error]

    def _add(self, **fields: Any) -> Row:
        with self.lock:
            self._last_row += 1
            row = Row(
                row=self._last_row,
                guid=fields.pop("guid", "") or _create_guid(),
                date=self._read_clock(),
                **fields,
            )
            self.rows.append(row)
            self.lock.notify_all()
        self.announce("new-message")
        return row

    def _accept(self, chat: str, text: str, files: list[SentFile]) -> Row:
        """Store what Keryx sends."""
        return self._add(chat=chat, sender="", text=text, from_me=True, files=files, error=self.send_error)

    def _read_clock(self) -> int:
        """Return the time in milliseconds, later than that of all rows."""
        return max(int(datetime.now(UTC).timestamp() * 1000), self.rows[-1].date + 1 if self.rows else 0)

    def _list_chats(self) -> list[str]:
        """Return the chats, the one used last first."""
        return list(dict.fromkeys(row.chat for row in reversed(self.rows)))


class FakeImsg(MessagesFake):
    """`imsg rpc`: a program that passes its streams on to this process. `command` starts it as on the Mac, `ssh_command` as
    through ssh."""

    def __init__(self, folder: Path, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.folder = folder
        # What every request is answered with, as if the program could not start.
        self.startup_error = ""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: set[socket.socket] = set()
        program = folder / "bin" / "imsg"
        ssh = folder / "ssh"
        program.parent.mkdir(parents=True, exist_ok=True)
        port = self._listener.getsockname()[1]
        program.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S {_PROGRAM} {port}\n")
        ssh.write_text(f'#!/bin/sh\nshift\nPATH="{program.parent}:$PATH" exec sh -c "$*"\n')
        for path in (program, ssh):
            path.chmod(0o700)
        self.command = [str(program), "rpc"]
        self.ssh_command = [str(ssh), "mac", "imsg", "rpc"]

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()
        super().__exit__()

    def cut(self) -> None:
        """Break all connections, as a Mac that falls asleep."""
        with self.lock:
            connections = list(self._connections)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def attach(self, chat: str, text: str, name: str, mime: str, body: bytes, *, path: str = "") -> Row:
        kept = self.folder / f"{_create_guid()}-{name}"
        kept.write_bytes(body)
        return super().attach(chat, text, name, mime, body, path=path or str(kept))

    def handle(self, request: WireRequest) -> WireResponse | None:
        self.problems.append(f"imsg has no HTTP: {request.path}")
        return None

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=_ImsgSession(self, connection).run, daemon=True).start()

    def add_connection(self, connection: socket.socket) -> None:
        with self.lock:
            self._connections.add(connection)

    def remove_connection(self, connection: socket.socket) -> None:
        with self.lock:
            self._connections.discard(connection)

    def call(self, method: str, params: Json) -> Json | None:
        """Return the result of a call. `None` breaks the connection."""
        if self.startup_error:
            raise _Refusal(-32603, "Internal error", self.startup_error)
        match method:
            case "chats.list":
                return {"chats": [self._build_chat(chat) for chat in self._list_chats()[: params["limit"]]]}
            case "messages.history":
                named = self._list_chats_by_id()[int(params["chat_id"])]
                rows = [row for row in self.rows if row.chat == named and not row.tapback]
                newest = sorted(rows, key=lambda row: -row.date)[: params["limit"]]
                return {"messages": [self.build_message(row) for row in newest]}
            case "send":
                return self._send(params)
            case "typing" | "read":
                if not self.private_api:
                    raise _Refusal(-32603, "Internal error", "Typing indicator failed: no bridge")
                target = str(params.get("chat_guid") or params.get("to"))
                (self.typed if method == "typing" else self.read).append(target)
                return {"ok": True}
            case _:
                self.problems.append(f"there is no method {method}")
                raise _Refusal(-32601, "Method not found", method)

    def build_message(self, row: Row) -> Json:
        """Return a row as the program writes it."""
        if row.raw is not None:
            return row.raw
        message: Json = {
            "id": row.row,
            "chat_id": self._list_chats_by_id().index(row.chat),
            "guid": row.guid,
            "sender": row.sender,
            "is_from_me": row.from_me,
            "text": row.text,
            "created_at": datetime.fromtimestamp(row.date / 1000, UTC).isoformat().replace("+00:00", "Z"),
            "attachments": [
                {
                    "filename": file.path,
                    "transfer_name": file.name,
                    "uti": "public.data",
                    "mime_type": file.mime,
                    "total_bytes": len(file.body),
                    "is_sticker": False,
                    "original_path": file.path,
                    "missing": False,
                }
                for file in row.files
            ],
            "reactions": [],
            "chat_identifier": row.handle,
            "chat_guid": row.chat,
            "chat_name": "Climbing" if row.in_group else "",
            "participants": [row.sender],
            "is_group": row.in_group,
            "hologram": {"depth": 3},
        }
        if row.thread:
            message |= {"thread_originator_guid": row.thread, "reply_to_guid": row.thread}
        if row.tapback:
            kind = "emphasis" if row.tapback == "emphasize" else row.tapback
            emoji = {name: emoji for emoji, name in _TAPBACKS.items()}[row.tapback]
            message |= {"is_reaction": True, "reaction_type": kind, "reaction_emoji": emoji}
            message |= {"is_reaction_add": not row.removed, "reacted_to_guid": row.tapback_at}
        return message

    def _send(self, params: Json) -> Json | None:
        for name, value in params.items():
            if not isinstance(value, _SEND_FIELDS.get(name, ())):
                self.problems.append(f"send: {name}={value!r}")
        if ("to" in params) == ("chat_guid" in params or "chat_id" in params):
            raise _Refusal(-32602, "Invalid params", "use to or chat_*; not both")
        if not params.get("text") and not params.get("file"):
            raise _Refusal(-32602, "Invalid params", "text or file is required")
        chat = params.get("chat_guid") or f"iMessage;-;{params.get('to')}"
        if "gone" in chat:
            raise _Refusal(-32603, "Internal error", f"AppleScript failed: Can't get chat id {chat!r}")
        files: list[SentFile] = []
        if path := params.get("file"):
            files = [SentFile(_create_guid(), os.path.basename(path), "", Path(path).read_bytes(), path)]
        sent: list[Row] = []

        def accept() -> WireResponse:
            sent.append(self._accept(chat, params.get("text", ""), files))
            return WireResponse()

        broken = json_response({}, 500)
        response = self.accept_send(accept, throttled=broken, broken=broken)
        if response is not None and response.status != 200:
            raise _Refusal(-32603, "Internal error", "AppleScript failed: timed out")
        if response is None:
            return None
        return {"ok": True, "transport": "applescript", "id": sent[0].row, "guid": sent[0].guid}

    def _list_chats_by_id(self) -> list[str]:
        return list(dict.fromkeys(row.chat for row in self.rows))

    def _build_chat(self, chat: str) -> Json:
        return {
            "id": self._list_chats_by_id().index(chat),
            "identifier": chat.rpartition(";")[2],
            "guid": chat,
            "name": "",
            "service": chat.partition(";")[0],
            "last_message_at": "2026-11-17T08:00:00Z",
            "participants": [],
            "is_group": ";+;" in chat,
        }


class _Refusal(Exception):
    def __init__(self, code: int, message: str, data: str) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, "data": data}


class _ImsgSession:
    """One running program."""

    def __init__(self, fake: FakeImsg, connection: socket.socket) -> None:
        self._fake = fake
        self._connection = connection
        self._sending = threading.Lock()

    def run(self) -> None:
        self._fake.add_connection(self._connection)
        with suppress(OSError), self._connection:
            for line in self._connection.makefile("rb"):
                if not self._answer(json.loads(line)):
                    break
        self._fake.remove_connection(self._connection)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, request: Json) -> bool:
        """Answer a request. Return false to break the connection."""
        method, params = request["method"], request.get("params", {})
        try:
            if method == "watch.subscribe" and not self._fake.startup_error:
                self._subscribe(params)
                result: Json | None = {"subscription": 1}
            else:
                with self._fake.lock:
                    result = self._fake.call(method, params)
        except _Refusal as refusal:
            self._write({"jsonrpc": "2.0", "id": request["id"], "error": refusal.error})
            return True
        if result is None:
            return False
        self._write({"jsonrpc": "2.0", "id": request["id"], "result": result})
        return True

    def _subscribe(self, params: Json) -> None:
        if unknown := set(params) - {"since_rowid", "attachments", "include_reactions", "debounce_ms"}:
            self._fake.problems.append(f"watch.subscribe: {sorted(unknown)}")
        since = params.get("since_rowid", 0)
        with self._fake.lock:
            self._fake.reads += 1
            self._fake.lock.notify_all()
            rows = self._fake.rows
            # 0 means: from now on.
            start = since if since else (rows[-1].row if rows else 0)
        threading.Thread(target=self._watch, args=(start,), daemon=True).start()

    def _watch(self, cursor: int) -> None:
        fake = self._fake
        with suppress(OSError):
            while True:
                with fake.lock:
                    fresh = [row for row in fake.rows if row.row > cursor]
                    if not fresh:
                        fake.lock.wait(1)
                        # A connection that was broken raises here.
                        self._connection.getpeername()
                        continue
                    lines = [self._build_line(row) for row in fresh]
                    repeats = [2 if fake.roll(fake.faults.duplicate) else 1 for _ in lines]
                    torn = [fake.roll(fake.faults.torn) for _ in lines]
                for line, repeat, cut in zip(lines, repeats, torn, strict=True):
                    if cut:
                        self._send(line[: len(line) // 2])
                        self._connection.shutdown(socket.SHUT_RDWR)
                        return
                    self._send(line * repeat)
                cursor = fresh[-1].row

    def _build_line(self, row: Row) -> bytes:
        params = {"subscription": 1, "message": self._fake.build_message(row)}
        return json.dumps({"jsonrpc": "2.0", "method": "message", "params": params}).encode() + b"\n"

    def _write(self, message: Json) -> None:
        self._send(json.dumps(message).encode() + b"\n")

    def _send(self, data: bytes) -> None:
        with self._sending:
            self._connection.sendall(data)


class FakeBlueBubbles(MessagesFake):
    """A BlueBubbles server. It posts each event once to every hook, and does not try again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.password = PASSWORD
        self.hooks: list[Json] = []
        self.contacts: list[Any] = []
        self.may_read_contacts = True
        # The share of posts that are lost.
        self.lost_posts = 0.0
        # The tempGuids that are being sent.
        self.in_flight: set[str] = set()
        self.temp_guids: list[str] = []
        self.sends: list[Json] = []
        self.requests: list[str] = []
        # What the hooks have answered.
        self.posted: list[int] = []
        self._next_hook = 1
        self._posts: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()

    def announce(self, event: str) -> None:
        with self.lock:
            urls = [hook["url"] for hook in self.hooks if event in hook["events"]]
            lost = [self.roll(self.lost_posts) for _ in urls]
        for url, is_lost in zip(urls, lost, strict=True):
            if not is_lost:
                self._posts.put((url, event))

    def __enter__(self) -> Self:
        threading.Thread(target=self._post, daemon=True).start()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        self._posts.put(None)
        super().__exit__()

    def handle(self, request: WireRequest) -> WireResponse | None:
        if request.query.get("password") != self.password:
            return _fail(401, "You are not authorized to access this resource")
        if not request.path.startswith("/api/v1/"):
            return _fail(404, "no such path")
        path = [unquote(part) for part in request.path.removeprefix("/api/v1/").split("/")]
        with self.lock:
            self.requests.append(f"{request.method} {'/'.join(path)}")
            return self._route(request, path)

    def _route(self, request: WireRequest, path: list[str]) -> WireResponse | None:
        match request.method, *path:
            case "GET", "server", "info":
                return _answer(
                    {
                        "computer_id": "mac",
                        "os_version": "26.0.1",
                        "server_version": "1.9.9",
                        "private_api": self.private_api,
                        "helper_connected": self.private_api,
                        "detected_imessage": OWN,
                    }
                )
            case "GET", "contact":
                return _answer(self.contacts) if self.may_read_contacts else _fail(500, "no permission")
            case "GET", "webhook":
                return _answer(self.hooks)
            case "POST", "webhook":
                return self._add_hook(json.loads(request.body))
            case "DELETE", "webhook", number:
                self.hooks = [hook for hook in self.hooks if hook["id"] != int(number)]
                return _answer(None)
            case "POST", "message", "query":
                return self.tear(self._query(json.loads(request.body)))
            case "POST", "message", "text":
                return self._send_text(json.loads(request.body))
            case "POST", "message", "attachment":
                return self._send_attachment(request)
            case "POST", "chat", chat, ("typing" | "read") as what:
                if not self.private_api:
                    return _fail(500, "iMessage Private API is not enabled!")
                (self.typed if what == "typing" else self.read).append(chat)
                return _answer(None)
            case "GET", "attachment", guid, "download":
                files = [file for row in self.rows for file in row.files if file.guid == guid]
                if not files:
                    return _fail(404, "Attachment does not exist!")
                self.wait_until_released(guid)
                return WireResponse(200, files[0].body, {"content-type": files[0].mime or "text/plain"})
            case _:
                self.problems.append(f"there is no {request.method} {request.path}")
                return _fail(404, "no such path")

    def build_message(self, row: Row) -> Json:
        """Return a row as the server writes it."""
        if row.raw is not None:
            return row.raw
        tapback = f"{'-' if row.removed else ''}{row.tapback}" if row.tapback else None
        return {
            "originalROWID": row.row,
            "guid": row.guid,
            "text": row.text or None,
            "attributedBody": None,
            "handle": None
            if row.from_me
            else {"originalROWID": 1, "address": row.sender, "service": "iMessage"},
            "attachments": [
                {
                    "originalROWID": 1,
                    "guid": file.guid,
                    "uti": "public.data",
                    "mimeType": file.mime or None,
                    "transferName": file.name,
                    "totalBytes": len(file.body),
                    "hideAttachment": False,
                }
                for file in row.files
            ],
            "chats": [
                {
                    "originalROWID": 1,
                    "guid": row.chat,
                    "style": 43 if row.in_group else 45,
                    "chatIdentifier": row.handle,
                    "displayName": "Climbing" if row.in_group else "",
                }
            ],
            "subject": None,
            "error": row.error,
            "dateCreated": row.date,
            "dateEdited": row.edited or None,
            "dateRetracted": row.retracted or None,
            "isFromMe": row.from_me,
            "itemType": row.item_type,
            "associatedMessageGuid": f"p:0/{row.tapback_at}" if row.tapback else None,
            "associatedMessageType": tapback,
            "threadOriginatorGuid": row.thread or None,
            "hologram": {"depth": 3},
        }

    def _query(self, body: Json) -> WireResponse:
        if unknown := set(body) - {"limit", "offset", "sort", "with", "where", "after", "before", "chatGuid"}:
            self.problems.append(f"message/query: {sorted(unknown)}")
        if not 1 <= body["limit"] <= 1000 or body.get("sort") not in ("ASC", "DESC"):
            return _fail(400, "Invalid input")
        if any("> :" in where["statement"] for where in body.get("where", [])):
            self.reads += 1
            self.lock.notify_all()
        rows = [row for row in self.rows if all(_matches(row, where) for where in body.get("where", []))]
        if chat := body.get("chatGuid"):
            rows = [row for row in rows if row.chat == chat]
        rows = [row for row in rows if row.date >= body.get("after", 0)]
        rows.sort(key=lambda row: row.date, reverse=body["sort"] == "DESC")
        found = [self.build_message(row) for row in rows[: body["limit"]]]
        return _answer(self.inject_event_faults(found))

    def _send_text(self, body: Json) -> WireResponse | None:
        known = {"chatGuid", "tempGuid", "message", "method", "selectedMessageGuid"}
        if unknown := set(body) - known:
            self.problems.append(f"message/text: {sorted(unknown)}")
        if not body.get("message"):
            return _fail(400, "A 'message' is required when sending via AppleScript")
        return self._send(body, body["message"], [])

    def _send_attachment(self, request: WireRequest) -> WireResponse | None:
        kind = request.headers["content-type"].encode()
        parsed = message_from_bytes(b"Content-Type: " + kind + b"\r\n\r\n" + request.body)
        fields: Json = {}
        files: list[SentFile] = []
        for part in cast(list[Any], parsed.get_payload()):
            name = part.get_param("name", header="content-disposition")
            payload = part.get_payload(decode=True)
            if name == "attachment":
                files.append(SentFile(_create_guid(), "", part.get_content_type(), payload))
            else:
                fields[name] = payload.decode()
        if unknown := set(fields) - {"chatGuid", "tempGuid", "name", "method", "selectedMessageGuid"}:
            self.problems.append(f"message/attachment: {sorted(unknown)}")
        if not fields.get("name") or len(files) != 1 or not files[0].body:
            return _fail(400, "Attachment not provided or was empty!")
        files[0].name = fields["name"]
        return self._send(fields, "", files)

    def _send(self, fields: Json, text: str, files: list[SentFile]) -> WireResponse | None:
        self.sends.append(fields)
        if not fields.get("tempGuid") or fields.get("method") not in ("apple-script", "private-api"):
            return _fail(400, "A 'tempGuid' is required when sending via AppleScript")
        if fields["method"] == "private-api" and not self.private_api:
            return _fail(500, "iMessage Private API is not enabled!")
        if fields["tempGuid"] in self.in_flight:
            return _fail(400, f"Message is already queued to be sent! (Temp GUID: {fields['tempGuid']})")
        if "gone" in fields["chatGuid"]:
            return _fail(500, "Can't get chat id")
        self.temp_guids.append(fields["tempGuid"])

        def accept() -> WireResponse:
            row = self._accept(fields["chatGuid"], text, files)
            data = {**self.build_message(row), "tempGuid": fields["tempGuid"]}
            if row.error:
                return _fail(500, "Message failed to send!", data)
            return _answer(data)

        return self.accept_send(
            accept, throttled=_fail(429, "slow down"), broken=_fail(500, "Message send timeout")
        )

    def _add_hook(self, body: Json) -> WireResponse:
        if set(body) != {"url", "events"} or not body["url"].startswith("http"):
            return _fail(400, "Webhook URL must include an HTTP scheme!")
        self.hooks.append({"id": self._next_hook, **body})
        self._next_hook += 1
        return _answer(self.hooks[-1])

    def _post(self) -> None:
        with httpx.Client(timeout=10, trust_env=False, verify=False) as client:
            while post := self._posts.get():
                url, event = post
                with suppress(httpx.HTTPError):
                    self.posted.append(client.post(url, json={"type": event, "data": {}}).status_code)


def _matches(row: Row, where: Json) -> bool:
    found = _CONDITION.fullmatch(where["statement"])
    if found is None:
        raise AssertionError(f"the fake does not know the condition {where['statement']!r}")
    value = row.row if found[1] == "ROWID" else int(row.from_me)
    limit = where["args"][found[3]]
    return {">": value > limit, "<=": value <= limit, "=": value == limit}[found[2]]


def _answer(data: object) -> WireResponse:
    return json_response({"status": 200, "message": "Success", "data": data})


def _fail(status: int, reason: str, data: object = None) -> WireResponse:
    error = {"type": "Error", "message": reason}
    return json_response({"status": status, "message": "Error", "error": error, "data": data}, status)


def _create_guid() -> str:
    return str(uuid.uuid4()).upper()
