"""A Matrix homeserver on loopback, as strict as a real one where it matters, with knobs for its faults."""

import itertools
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from keryx.testing.wire import WireFake, WireRequest, WireResponse, json_response

TOKEN = "syt_test_token"
USER = "@keryx:fake.test"
PERSON = "@ann:fake.test"
LARGEST_EVENT = 65_536
_CLIENT = "/_matrix/client/v3"
Answer = WireResponse | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of a room at its place in the stream of all rooms."""

    position: int
    room: str
    event: dict[str, Any]


@dataclass
class FakeMatrix(WireFake):
    """`anywhere`: the account is in every room that is named; else only where `open` put it. `powers` holds how much
    each person may do in a room."""

    token: str = TOKEN
    user: str = USER
    password: str = "a-long-password"
    anywhere: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.entries: list[Entry] = []
        self.invitations: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.typing: list[dict[str, Any]] = []
        self.read: dict[str, str] = {}
        self.unjoinable: set[str] = set()
        self.powers: dict[str, dict[str, int]] = {}
        self._members: dict[str, dict[str, str]] = {}
        self._data: dict[str, Any] = {}
        self._transactions: dict[str, str] = {}
        self._ids = itertools.count(1)

    def open(self, room: str, *people: str) -> None:
        """A room with the account and these people in it."""
        with self.lock:
            members = self._members.setdefault(room, {self.user: "Keryx"})
            members.update({p: p[1:].partition(":")[0].title() for p in people})

    def say(self, room: str, text: str, *, user: str = PERSON, **more: Any) -> str:
        """A person writes; gives the event's id. `more` are further fields of the content."""
        return self.push(room, {"msgtype": "m.text", "body": text, **more}, user=user)

    def push(
        self, room: str, content: Any, *, user: str = PERSON, kind: str = "m.room.message", **more: Any
    ) -> str:
        """An event of any kind; `more` are further fields of the event."""
        self.open(room, user)
        event = {"type": kind, "sender": user, "content": content, **more}
        with self.lock:
            return self._append(room, event)

    def invite(self, room: str, *, by: str = PERSON) -> None:
        event = {"type": "m.room.member", "sender": by, "state_key": self.user}
        with self.lock:
            self.invitations[room] = {**event, "content": {"membership": "invite", "is_direct": True}}
            self.lock.notify_all()

    def shown(self, room: str) -> list[dict[str, Any]]:
        """What the account said in a room, as a person sees it now: with the last edit in its place."""
        with self.lock:
            found: dict[str, dict[str, Any]] = {}
            for entry in self.entries:
                content = entry.event["content"]
                if entry.room != room or entry.event["sender"] != self.user:
                    continue
                relation = content.get("m.relates_to", {})
                if relation.get("rel_type") == "m.replace":
                    found[relation["event_id"]] = content["m.new_content"]
                else:
                    found[entry.event["event_id"]] = content
            return [content for content in found.values() if content]

    def texts(self, room: str) -> list[str]:
        return [str(content["body"]) for content in self.shown(room)]

    def delete(self, room: str, event: str) -> None:
        with self.lock:
            found = self._find(room, event)
            if found is not None:
                found.update(content={}, unsigned={"redacted_because": {"type": "m.room.redaction"}})

    def _append(self, room: str, event: dict[str, Any]) -> str:
        number = next(self._ids)
        name = f"$event{number}"
        whole = {"event_id": name, "origin_server_ts": int(time.time() * 1000), **event}
        self.entries.append(Entry(number, room, whole))
        self.lock.notify_all()
        return name

    def _find(self, room: str, event: str) -> dict[str, Any] | None:
        return next((e.event for e in self.entries if e.room == room and e.event["event_id"] == event), None)

    def handle(self, request: WireRequest) -> Answer:
        if request.path == "/.well-known/matrix/client":
            return json_response({"m.homeserver": {"base_url": f"{self.url}/"}})
        if request.path == f"{_CLIENT}/login" and request.method == "POST":
            return self._login(request)
        given = request.headers.get("authorization", "")
        if not given:
            return _error(401, "M_MISSING_TOKEN", "Missing access token")
        if given != f"Bearer {self.token}":
            return _error(401, "M_UNKNOWN_TOKEN", "Invalid access token passed.")
        for method, pattern, handle in self._routes:
            found = pattern.fullmatch(request.path)
            if found and method == request.method:
                return handle(request, *map(unquote, found.groups()))
        return _error(404, "M_UNRECOGNIZED", "Unrecognized request")

    @property
    def _routes(self) -> list[tuple[str, re.Pattern[str], Callable[..., Answer]]]:
        rooms, user = f"{_CLIENT}/rooms/([^/]+)", f"{_CLIENT}/user/[^/]+"
        table: list[tuple[str, str, Callable[..., Answer]]] = [
            ("GET", f"{_CLIENT}/account/whoami", self._whoami),
            ("GET", f"{_CLIENT}/profile/[^/]+/displayname", self._name),
            ("GET", f"{_CLIENT}/sync", self._sync),
            ("GET", f"{rooms}/messages", self._messages),
            ("GET", f"{rooms}/event/([^/]+)", self._event),
            ("GET", f"{rooms}/state/m.room.member/([^/]+)", self._member),
            ("GET", f"{rooms}/state/m.room.power_levels", self._powers),
            ("GET", f"{rooms}/state/([^/]+)", self._state),
            ("GET", f"{rooms}/joined_members", self._joined_members),
            ("POST", f"{rooms}/join", self._join),
            ("POST", f"{rooms}/read_markers", self._read_markers),
            ("PUT", f"{rooms}/typing/([^/]+)", self._type),
            ("PUT", f"{rooms}/send/m.room.message/([^/]+)", self._send),
            ("PUT", f"{rooms}/redact/([^/]+)/([^/]+)", self._redact),
            ("GET", f"({user}/(?:rooms/[^/]+/)?account_data/[^/]+)", self._get_data),
            ("PUT", f"({user}/(?:rooms/[^/]+/)?account_data/[^/]+)", self._put_data),
            ("POST", "/_matrix/media/v3/upload", self._upload),
            ("GET", "/_matrix/client/v1/media/download/([^/]+)/([^/]+)", self._download),
        ]
        return [(method, re.compile(pattern), handle) for method, pattern, handle in table]

    def _login(self, request: WireRequest) -> WireResponse:
        body = json.loads(request.body)
        if body.get("type") != "m.login.password" or body.get("password") != self.password:
            return _error(403, "M_FORBIDDEN", "Invalid username or password")
        return json_response({"user_id": self.user, "access_token": self.token, "device_id": "D"})

    def _whoami(self, request: WireRequest) -> WireResponse:
        return json_response({"user_id": self.user, "device_id": "D", "is_guest": False})

    def _name(self, request: WireRequest) -> WireResponse:
        return json_response({"displayname": "Keryx"})

    def _sync(self, request: WireRequest) -> WireResponse:
        since = request.query.get("since")
        start = _position(since) if since else None
        if since and start is None:
            return _error(400, "M_INVALID_PARAM", "Invalid stream token")
        timeline = json.loads(request.query["filter"])["room"]["timeline"]
        with self.lock:
            if start is not None:
                self.lock.wait_for(
                    lambda: self.invitations or any(e.position > start for e in self.entries),
                    min(int(request.query.get("timeout") or 0) / 1000, 1.0),
                )
            whole = json_response(self._batch(start or 0, timeline))
            return whole if start is None else self.tear(whole)

    def _batch(self, start: int, timeline: dict[str, Any]) -> dict[str, Any]:
        fresh = [e for e in self.entries if e.position > start and e.event["type"] in timeline["types"]]
        rooms: dict[str, Any] = {}
        for room in dict.fromkeys(e.room for e in fresh):
            mine = [e for e in fresh if e.room == room]
            shown = mine[-timeline["limit"] :]
            again = [e for e in shown if self.roll(self.faults.duplicate)]
            rooms[room] = {
                "timeline": {
                    "events": [e.event for e in (*shown, *again)],
                    "limited": len(shown) < len(mine),
                    "prev_batch": f"s{shown[0].position - 1}",
                }
            }
        invited = {r: {"invite_state": {"events": [e]}} for r, e in self.invitations.items()}
        last = max((e.position for e in self.entries), default=0)
        return {"next_batch": f"s{last}", "rooms": {"join": rooms, "invite": invited}}

    def _messages(self, request: WireRequest, room: str) -> WireResponse:
        start, stop = _position(request.query["from"]), _position(request.query["to"])
        if start is None or stop is None or request.query["dir"] != "f":
            return _error(400, "M_INVALID_PARAM", "Invalid token")
        types = json.loads(request.query["filter"])["types"]
        with self.lock:
            found = [
                e
                for e in self.entries
                if e.room == room and start < e.position <= stop and e.event["type"] in types
            ]
            page = found[: int(request.query["limit"])]
            more = {"end": f"s{page[-1].position}"} if page else {}
            return json_response({"chunk": [e.event for e in page], "start": request.query["from"], **more})

    def _event(self, request: WireRequest, room: str, event: str) -> WireResponse:
        with self.lock:
            found = self._find(room, event)
            return json_response(found) if found else _error(404, "M_NOT_FOUND", "Event not found.")

    def _state(self, request: WireRequest, room: str, kind: str) -> WireResponse:
        with self.lock:
            found = [e.event for e in self.entries if e.room == room and e.event["type"] == kind]
        return (
            json_response(found[-1]["content"]) if found else _error(404, "M_NOT_FOUND", "Event not found.")
        )

    def _member(self, request: WireRequest, room: str, user: str) -> WireResponse:
        with self.lock:
            there = user in self._members.get(room, {})
        return (
            json_response({"membership": "join"}) if there else _error(404, "M_NOT_FOUND", "Event not found.")
        )

    def _powers(self, request: WireRequest, room: str) -> WireResponse:
        return json_response({"users": self.powers.get(room, {}), "users_default": 0, "hologram": 3})

    def _joined_members(self, request: WireRequest, room: str) -> WireResponse:
        with self.lock:
            members = self._members.get(room, {})
            return json_response({"joined": {u: {"display_name": name} for u, name in members.items()}})

    def _join(self, request: WireRequest, room: str) -> WireResponse:
        if room in self.unjoinable:
            return _error(502, "M_UNKNOWN", "Can't join remote room")
        with self.lock:
            invited = self.invitations.pop(room, None)
            self.lock.notify_all()
        if invited is None:
            return _error(403, "M_FORBIDDEN", "You are not invited to this room.")
        self.open(room, invited["sender"])
        return json_response({"room_id": room})

    def _read_markers(self, request: WireRequest, room: str) -> WireResponse:
        with self.lock:
            self.read[room] = json.loads(request.body)["m.read"]
            self.lock.notify_all()
        return json_response({})

    def _type(self, request: WireRequest, room: str, user: str) -> WireResponse:
        if user != self.user:
            return _error(403, "M_FORBIDDEN", "You can only say that you are typing yourself")
        with self.lock:
            self.typing.append({"room": room, **json.loads(request.body)})
            self.lock.notify_all()
        return json_response({})

    def _send(self, request: WireRequest, room: str, transaction: str) -> Answer:
        content = json.loads(request.body)
        after = self.faults.retry_after * 1000

        def accept() -> WireResponse:
            refusal = self._refuse(room, content, len(request.body))
            if refusal:
                return refusal
            if transaction not in self._transactions:
                event = {"type": "m.room.message", "sender": self.user, "content": content}
                self._transactions[transaction] = self._append(room, event)
            return json_response({"event_id": self._transactions[transaction]})

        with self.lock:
            return self.accept_send(
                accept,
                throttled=_error(429, "M_LIMIT_EXCEEDED", "Too Many Requests", retry_after_ms=after),
                broken=WireResponse(502, b"<html>Bad Gateway</html>"),
            )

    def _redact(self, request: WireRequest, room: str, event: str, transaction: str) -> WireResponse:
        self.delete(room, event)
        return json_response({"event_id": "$redaction"})

    def _refuse(self, room: str, content: dict[str, Any], size: int) -> WireResponse | None:
        """What keeps the server from taking a message: its place, its size, or what it refers to."""
        if not self.anywhere and room not in self._members:
            return _error(403, "M_FORBIDDEN", f"User {self.user} not in room {room}")
        if size + 500 > LARGEST_EVENT:
            return _error(413, "M_TOO_LARGE", "event too large")
        if not isinstance(content.get("body"), str) or not isinstance(content.get("msgtype"), str):
            return _error(400, "M_BAD_JSON", "'body' and 'msgtype' must be strings")
        relation = content.get("m.relates_to", {})
        if relation.get("rel_type") and self._find(room, relation.get("event_id", "")) is None:
            return _error(400, "M_UNKNOWN", "Can't send relation to unknown event")
        return None

    def _get_data(self, request: WireRequest, path: str) -> WireResponse:
        found = self._data.get(path)
        return json_response(found) if found else _error(404, "M_NOT_FOUND", "Account data not found")

    def _put_data(self, request: WireRequest, path: str) -> WireResponse:
        self._data[path] = json.loads(request.body)
        return json_response({})

    def _upload(self, request: WireRequest) -> WireResponse:
        with self.lock:
            name = f"file{next(self._ids)}"
            self.files[name] = request.body
        return json_response({"content_uri": f"mxc://fake.test/{name}"})

    def _download(self, request: WireRequest, server: str, name: str) -> WireResponse:
        self.wait_until_released(name)
        if name not in self.files:
            return _error(404, "M_NOT_FOUND", "Not found")
        return WireResponse(200, self.files[name], {"content-type": "application/octet-stream"})


def _position(token: str) -> int | None:
    return int(token[1:]) if re.fullmatch(r"s\d+", token) else None


def _error(status: int, code: str, words: str, **more: object) -> WireResponse:
    return json_response({"errcode": code, "error": words, **more}, status)
