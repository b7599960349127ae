"""Discord on loopback: its REST API, its gateway and its file server, as strict as the real ones where it matters, with knobs for their faults.

The fields, types and limits of requests are those of the official OpenAPI description (version 10) and of the documentation of the gateway."""

import base64
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.utils import format_datetime
from typing import Any, Self, cast
from urllib.parse import parse_qs, urlsplit

from tests.fakes import discord_schema as schema
from tests.fakes.websocket import serve_until_closed
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from keryx.testing.wire import WireFake, WireRequest, WireResponse, json_response

BOT_ID = "424242424242424242"
APPLICATION_ID = "434343434343434343"
TOKEN = f"{base64.urlsafe_b64encode(BOT_ID.encode()).decode().rstrip('=')}.Gtest0.test-token-of-a-bot-that-is-not-real"
GUILD = "500000000000000001"
ROLE = "510000000000000001"
BOT = {
    "id": BOT_ID,
    "username": "keryx",
    "discriminator": "0",
    "avatar": None,
    "global_name": None,
    "bot": True,
}
CONTENT_FLAG = 1 << 19
INTENT_MASK = (1 << 26) - 1
_CONTENT_INTENT = 1 << 15
_EPOCH_MS = 1_420_070_400_000
_LOADING = 1 << 7
_EPHEMERAL = 1 << 6
_THREADS = (10, 11, 12)
_IDENTIFY = {"token", "properties", "compress", "large_threshold", "shard", "presence", "intents"}


@dataclass(slots=True)
class Post:
    """One message, as a person sees it now."""

    id: str
    channel: str
    author: dict[str, Any]
    content: str
    reference: str = ""
    buttons: dict[str, str] = field(default_factory=dict[str, str])
    allowed_mentions: dict[str, Any] = field(default_factory=dict[str, Any])
    files: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    edits: int = 0
    flags: int = 0
    nonce: str = ""
    more: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class GatewaySession:
    id: str
    intents: int
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    connection: ServerConnection | None = None
    # What the connection is told next.
    orders: list[dict[str, Any] | int] = field(default_factory=list[dict[str, Any] | int])


@dataclass(slots=True)
class Interaction:
    id: str
    token: str
    channel: str
    acknowledged: int = 0
    expired: bool = False
    original: str = ""
    notices: list[str] = field(default_factory=list[str])


@dataclass
class FakeDiscord(WireFake):
    """`channels` are the channels by id, `members` the members of the server by user. `refused` maps a channel to the error
    (status, code) that it answers. `bucket` limits messages per channel: so many within so many seconds. Frames of one
    connection are always in order, as the protocol has it: `reorder` has no effect."""

    token: str = TOKEN
    heartbeat: float = 40.0
    privileged: bool = True
    bucket: tuple[int, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.channels: dict[str, dict[str, Any]] = {}
        self.members: dict[str, dict[str, Any]] = {}
        self.posts: list[Post] = []
        self.commands: list[dict[str, Any]] = []
        self.command_writes = 0
        self.typing: list[str] = []
        self.requests: list[tuple[str, str]] = []
        # How far its clock is ahead.
        self.later = timedelta(0)
        # What in the answers is not as Discord has it.
        self.problems: list[str] = []
        self.refused: dict[str, tuple[int, int]] = {}
        self.files: dict[str, bytes] = {}
        self.sessions: dict[str, GatewaySession] = {}
        self.interactions: dict[str, Interaction] = {}
        self.identifies = 0
        self.resumes = 0
        self.heartbeats = 0
        self.silent_heartbeats = False
        self.starts_left = 1000
        self.no_buttons = False
        # How often threads may still be renamed; below 0 without a limit.
        self.renames_left = -1
        # Files of people can no longer be fetched.
        # The status that files are answered with instead; 0 to serve them.
        self.broken_files = 0
        # Addresses of files that were signed before the last of these no longer hold.
        self.signatures = 1
        self.global_limit = 0.0
        self._window: dict[str, tuple[float, int]] = {}
        # By nonce: those of one author are unique, in whichever channel.
        self._nonces: dict[str, str] = {}
        self._last_id = 0
        self._numbers = itertools.count(1)
        self._gateway: Server | None = None
        self._closing = False
        self._closing = False
        self.add_channel("600000000000000001", name="general")

    def __enter__(self) -> Self:
        super().__enter__()
        self._gateway = serve(self._connect, "127.0.0.1", 0, ping_interval=None)
        threading.Thread(target=serve_until_closed, args=[self._gateway], daemon=True).start()
        return self

    def __exit__(self, *args: object) -> None:
        with self.lock:
            self._closing = True
            self.lock.notify_all()
        if self._gateway is not None:
            self._gateway.shutdown()
        super().__exit__(*args)
        if args[:1] == (None,):
            assert not self.problems, sorted(set(self.problems))

    @property
    def gateway_url(self) -> str:
        assert self._gateway is not None
        return f"ws://127.0.0.1:{self._gateway.socket.getsockname()[1]}"

    @property
    def api_url(self) -> str:
        return f"{self.url}/api/v10"

    # What people do.

    def next_id(self) -> str:
        now = (int(time.time() * 1000) - _EPOCH_MS) << 22
        self._last_id = max(self._last_id + 1, now)
        return str(self._last_id)

    def add_channel(self, id_: str, *, type: int = 0, guild: str | None = GUILD, **more: Any) -> str:
        """Create a channel. Without a server it is a direct chat."""
        body = {"id": id_, "type": type if guild else 1, "last_message_id": None, **more}
        self.channels[id_] = {**body, "guild_id": guild} if guild else body
        return id_

    def say(
        self,
        text: str,
        *,
        channel: str = "7001",
        user: str = "7",
        name: str = "Ann",
        bot: bool = False,
        roles: Sequence[str] = (),
        **more: Any,
    ) -> str:
        """A person writes; return the id of the message. An unknown channel is a direct chat. `more` are further fields."""
        with self.lock:
            if channel not in self.channels:
                self.add_channel(channel, guild=None)
            author: dict[str, Any] = {
                "id": user,
                "username": name.lower(),
                "global_name": name,
                "discriminator": "0",
                "avatar": None,
            }
            if bot:
                author["bot"] = True
            post = Post(id=self.next_id(), channel=channel, author=author, content=text, more=more)
            if self.channels[channel].get("guild_id"):
                self.members[user] = _member(author, roles)
            self._add(post)
            self.dispatch("MESSAGE_CREATE", self._event(post))
            return post.id

    def open_thread(self, message: str, *, user: str = "7") -> str:
        """A person opens a thread on a message; return its id, which is that of the message."""
        with self.lock:
            channel = self.channels[self.find(message).channel]
            return self.add_channel(
                message,
                type=11,
                guild=channel["guild_id"],
                name="talk",
                parent_id=channel["id"],
                owner_id=user,
            )

    def edit(self, message: str, text: str) -> None:
        """A person edits a message."""
        with self.lock:
            post = self.find(message)
            post.content, post.edits = text, post.edits + 1
            stamp = datetime.fromtimestamp(1_800_000_000 + post.edits, UTC).isoformat()
            post.more["edited_timestamp"] = stamp
            post.more["mentions"] = [m for m in post.more.get("mentions", []) if f"<@{m['id']}>" in text]
            self.dispatch("MESSAGE_UPDATE", self._event(post))

    def delete(self, *messages: str) -> None:
        with self.lock:
            post = self.find(messages[0])
            where = {"channel_id": post.channel}
            if guild := self.channels[post.channel].get("guild_id"):
                where["guild_id"] = guild
            self.posts = [p for p in self.posts if p.id not in messages]
            if len(messages) == 1:
                self.dispatch("MESSAGE_DELETE", {"id": messages[0], **where})
            else:
                self.dispatch("MESSAGE_DELETE_BULK", {"ids": list(messages), **where})

    def react(self, message: str, emoji: str, *, user: str = "7", removed: bool = False) -> None:
        with self.lock:
            post = self.find(message)
            body: dict[str, Any] = {
                "user_id": user,
                "channel_id": post.channel,
                "message_id": message,
                "emoji": {"id": None, "name": emoji},
                "burst": False,
                "type": 0,
            }
            if guild := self.channels[post.channel].get("guild_id"):
                body["guild_id"] = guild
            self.dispatch("MESSAGE_REACTION_REMOVE" if removed else "MESSAGE_REACTION_ADD", body)

    def remove_reactions(self, message: str, emoji: str = "") -> None:
        """A moderator removes the reactions of everybody from a message of a server, or those of one emoji."""
        with self.lock:
            channel = self.find(message).channel
            where = {
                "channel_id": channel,
                "message_id": message,
                "guild_id": self.channels[channel]["guild_id"],
            }
            if emoji:
                self.dispatch(
                    "MESSAGE_REACTION_REMOVE_EMOJI", {**where, "emoji": {"id": None, "name": emoji}}
                )
            else:
                self.dispatch("MESSAGE_REACTION_REMOVE_ALL", where)

    def attach(self, text: str, name: str, body: bytes, mime: str = "", *, channel: str = "7001") -> str:
        """A person sends a file with a text."""
        number = self.next_id()
        self.files[f"{number}/{name}"] = body
        file: dict[str, Any] = {
            "id": number,
            "filename": name,
            "size": len(body),
            "url": self._sign_address(number, name),
            "proxy_url": f"{self.url}/attachments/{number}/{name}",
        }
        if mime:
            file["content_type"] = mime
        return self.say(text, channel=channel, attachments=[file])

    def _sign_address(self, number: str, name: str) -> str:
        return f"{self.url}/attachments/{number}/{name}?ex={self.signatures}&is=1&hm=1"

    def command(
        self, name: str, arguments: str = "", *, channel: str = "7001", user: str = "7"
    ) -> Interaction:
        """A person gives a slash command."""
        data: dict[str, Any] = {"id": "1", "type": 1, "name": name}
        if arguments:
            data["options"] = [{"type": 3, "name": "arguments", "value": arguments}]
        return self._interact(2, data, channel, user)

    def press(self, label: str, *, channel: str = "7001", user: str = "7") -> Interaction:
        """A person presses a button of the last message that has one of this label."""
        with self.lock:
            post = next(p for p in reversed(self.posts) if p.channel == channel and label in p.buttons)
            data = {"custom_id": post.buttons[label], "component_type": 2}
            return self._interact(3, data, channel, user, message=self._message(post))

    def _interact(self, type: int, data: dict[str, Any], channel: str, user: str, **more: Any) -> Interaction:
        with self.lock:
            if channel not in self.channels:
                self.add_channel(channel, guild=None)
            made = Interaction(self.next_id(), f"aW50ZXJhY3Rpb246{next(self._numbers)}", channel)
            self.interactions[made.token] = made
            person = {
                "id": user,
                "username": "ann",
                "global_name": "Ann",
                "discriminator": "0",
                "avatar": None,
            }
            guild = self.channels[channel].get("guild_id")
            who: dict[str, Any] = {"user": person}
            if guild:
                member = {**_member(person, ()), "user": person, "permissions": "0"}
                who = {"member": member, "guild_id": guild}
            self.dispatch(
                "INTERACTION_CREATE",
                {
                    "id": made.id,
                    "application_id": APPLICATION_ID,
                    "type": type,
                    "data": data,
                    "channel_id": channel,
                    "channel": self.channels[channel],
                    "token": made.token,
                    "version": 1,
                    "locale": "de",
                    "app_permissions": "0",
                    "attachment_size_limit": schema.LARGEST_FILE,
                    "authorizing_integration_owners": {},
                    "entitlements": [],
                    "context": 0 if guild else 1,
                    **who,
                    **more,
                },
            )
            return made

    # What people see.

    def texts(self, channel: str = "7001") -> list[str]:
        """The messages of the bot in a channel, without files."""
        with self.lock:
            return [p.content for p in self.bot_posts(channel) if not p.files]

    def bot_posts(self, channel: str = "7001") -> list[Post]:
        return [
            p
            for p in self.posts
            if p.channel == channel and p.author["id"] == BOT_ID and not p.flags & _LOADING
        ]

    def find(self, message: str) -> Post:
        return next(p for p in self.posts if p.id == message)

    # What Discord does.

    def open_session(self) -> dict[str, Any]:
        """Begin a session as a bot that was connected before; return its position."""
        with self.lock:
            session = self._new_session(INTENT_MASK)
            return {
                "session": session.id,
                "url": self.gateway_url,
                "seq": 0,
                "started": int(time.time() * 1000),
                "last": self.next_id(),
            }

    def invalidate(self) -> None:
        """Forget all sessions, and end their connections."""
        with self.lock:
            for session in self.sessions.values():
                session.orders.append(4000)
            self.sessions = {}
            self.lock.notify_all()

    def order(self, what: dict[str, Any] | int) -> None:
        """Send a frame on all connections, or close them with a code."""
        with self.lock:
            for session in self.sessions.values():
                session.orders.append(what)
            self.lock.notify_all()

    def forget_nonces(self) -> None:
        """The few minutes in which nonces are recognised are over."""
        self._nonces = {}

    def dispatch(self, kind: str, data: Any) -> None:
        """Hand an event to every session."""
        with self.lock:
            for session in self.sessions.values():
                self._append(session, kind, self._hide_content(session, kind, data))
            self.lock.notify_all()

    def _hide_content(self, session: GatewaySession, kind: str, data: Any) -> object:
        """Without the intent, text is given only in direct chats and where the bot is mentioned."""
        if session.intents & _CONTENT_INTENT or kind not in ("MESSAGE_CREATE", "MESSAGE_UPDATE"):
            return data
        mentioned = any(user["id"] == BOT_ID for user in data.get("mentions", ()))
        if "guild_id" not in data or mentioned:
            return data
        return {**data, "content": "", "attachments": []}

    def _append(self, session: GatewaySession, kind: str, data: object) -> None:
        frame = {"op": 0, "t": kind, "s": len(session.events) + 1, "d": data}
        session.events.append(frame)

    def _new_session(self, intents: int) -> GatewaySession:
        session = GatewaySession(f"session-{next(self._numbers)}", intents)
        self.sessions[session.id] = session
        return session

    def _connect(self, socket: ServerConnection) -> None:
        with suppress(ConnectionClosed, TimeoutError):
            assert socket.request is not None
            query = parse_qs(urlsplit(socket.request.path).query)
            if query.get("v") != ["10"] or query.get("encoding") != ["json"]:
                socket.close(4012)
                return
            self._send(
                socket,
                {"op": 10, "d": {"heartbeat_interval": int(self.heartbeat * 1000)}, "s": None, "t": None},
            )
            frame = json.loads(socket.recv(timeout=20))
            while frame.get("op") == 1:
                self._send(socket, {"op": 11, "d": None, "s": None, "t": None})
                frame = json.loads(socket.recv(timeout=20))
            found = self._sign_in(socket, frame)
            if isinstance(found, int):
                socket.close(found)
            elif found is not None:
                session, sent = found
                reader = threading.Thread(target=self._read, args=(socket, session), daemon=True)
                reader.start()
                self._write(socket, session, sent)

    def _sign_in(
        self, socket: ServerConnection, frame: dict[str, Any]
    ) -> tuple[GatewaySession, int] | int | None:
        """Return the session and the number of the last event that the client has, or a code to close with."""
        body = frame.get("d")
        if frame.get("op") not in (2, 6) or not isinstance(body, dict):
            return 4003
        data = cast(dict[str, Any], body)
        if data.get("token") != self.token:
            return 4004
        with self.lock:
            if frame["op"] == 6:
                return self._resume(socket, data)
            if set(data) - _IDENTIFY or not {"token", "properties", "intents"} <= set(data):
                return 4002
            self.identifies += 1
            if not isinstance(data["intents"], int) or data["intents"] & ~INTENT_MASK:
                return 4013
            if data["intents"] & _CONTENT_INTENT and not self.privileged:
                return 4014
            session = self._new_session(data["intents"])
            self._append(
                session,
                "READY",
                {
                    "v": 10,
                    "user": BOT,
                    "guilds": [{"id": GUILD, "unavailable": True}],
                    "session_id": session.id,
                    "resume_gateway_url": self.gateway_url,
                    "application": {"id": APPLICATION_ID, "flags": CONTENT_FLAG},
                    "private_channels": [],
                },
            )
            self._append(session, "GUILD_CREATE", self._guild())
            session.connection = socket
            self.lock.notify_all()
            return session, 0

    def _resume(
        self, socket: ServerConnection, data: dict[str, Any]
    ) -> tuple[GatewaySession, int] | int | None:
        self.resumes += 1
        if set(data) != {"token", "session_id", "seq"}:
            return 4002
        session = self.sessions.get(data["session_id"])
        if session is None:
            self._send(socket, {"op": 9, "d": False, "s": None, "t": None})
            return None
        if data["seq"] > len(session.events):
            return 4007
        # A connection that has the session already is evicted.
        session.connection = socket
        session.orders.clear()
        self._append(session, "RESUMED", {})
        self.lock.notify_all()
        return session, data["seq"]

    def _guild(self) -> dict[str, Any]:
        inside = [c for c in self.channels.values() if c.get("guild_id") == GUILD]
        return {
            "id": GUILD,
            "name": "Guild",
            "unavailable": False,
            "owner_id": "7",
            "roles": [
                {"id": GUILD, "name": "@everyone", **_ROLE_FIELDS},
                {"id": ROLE, "name": "staff", **_ROLE_FIELDS},
                {"id": "510000000000000002", "name": "keryx", **_ROLE_FIELDS, "tags": {"bot_id": BOT_ID}},
            ],
            "channels": [_without_guild(c) for c in inside if c["type"] not in _THREADS],
            "threads": [_without_guild(c) for c in inside if c["type"] in _THREADS],
            "members": [],
            "emojis": [],
            "stickers": [],
            "features": [],
            "member_count": 2,
            "large": False,
            "voice_states": [],
            "presences": [],
            "stage_instances": [],
            "guild_scheduled_events": [],
            "joined_at": "2026-01-01T00:00:00+00:00",
            "preferred_locale": "en-US",
            **_GUILD_FIELDS,
        }

    def _read(self, socket: ServerConnection, session: GatewaySession) -> None:
        with suppress(ConnectionClosed):
            for text in socket:
                frame = json.loads(text)
                if frame.get("op") == 1 and set(frame) == {"op", "d"}:
                    self.heartbeats += 1
                    if not self.silent_heartbeats:
                        self._send(socket, {"op": 11, "d": None, "s": None, "t": None})
                elif frame.get("op") not in (3, 4, 8):
                    socket.close(4001)
        with self.lock:
            if socket.close_code in (1000, 1001) and session.connection is socket:
                # The client has ended its session.
                self.sessions.pop(session.id, None)
            session.connection = None if session.connection is socket else session.connection
            self.lock.notify_all()

    def _write(self, socket: ServerConnection, session: GatewaySession, sent: int) -> None:
        while True:
            with self.lock:
                self.lock.wait_for(
                    lambda sent=sent: (
                        self._closing
                        or session.connection is not socket
                        or session.orders
                        or len(session.events) > sent
                    ),
                    5,
                )
                if self._closing:
                    return
                evicted = session.connection is not socket
                orders, session.orders = session.orders, []
                frames = session.events[sent:]
                torn = bool(frames) and self.roll(self.faults.torn)
                handed = [f for f in frames for _ in range(2 if self.roll(self.faults.duplicate) else 1)]
                sent = len(session.events)
            if evicted:
                socket.close(4000)
                return
            for frame in handed[: len(handed) // 2] if torn else handed:
                self._send(socket, frame)
            if torn:
                socket.socket.close()
                return
            for order in orders:
                if isinstance(order, int):
                    socket.close(order)
                    return
                self._send(socket, order)

    def _send(self, socket: ServerConnection, frame: dict[str, Any]) -> None:
        socket.send(json.dumps(frame))

    # The REST API.

    def handle(self, request: WireRequest) -> WireResponse | None:
        response = self._answer(request)
        if response is not None:
            date = format_datetime(datetime.now(UTC) + self.later, usegmt=True)
            response.headers.setdefault("date", date)
        return response

    def _answer(self, request: WireRequest) -> WireResponse | None:
        if request.path.startswith("/attachments/"):
            name = request.path.removeprefix("/attachments/")
            self.wait_until_released(name.partition("/")[2])
            if "authorization" in request.headers:
                return WireResponse(400)
            if self.broken_files or request.query.get("ex") != str(self.signatures):
                return WireResponse(self.broken_files or 404)
            body = self.files.get(name)
            return WireResponse(404) if body is None else WireResponse(200, body)
        path = request.path.removeprefix("/api/v10")
        for method, pattern, kind, name, operation in ROUTES:
            found = pattern.fullmatch(path)
            if found is None or method != request.method:
                continue
            with self.lock:
                self.requests.append((method, path))
                if refusal := self._refuse(request, kind):
                    return refusal
                handle: Callable[..., WireResponse | None] = getattr(self, name)
                try:
                    schema.check_query(operation, request.query)
                    if request.body:
                        schema.check_described_body(operation, _read_body(request)[0])
                    response = handle(request, *found.groups())
                except schema.Wrong as exc:
                    return _error(400, 50035, "Invalid Form Body", errors=_explain(exc.field, str(exc)))
                return self._complete_answer(operation, response)
        return _error(404, 0, f"404: Not Found ({request.method} {path})")

    def _complete_answer(self, operation: str, response: WireResponse | None) -> WireResponse | None:
        """Add the fields that this fake does not know, and record what else is not as Discord answers."""
        described = schema.OPERATIONS[operation]
        if response is None or response.status >= 400:
            return response
        if response.status not in described["statuses"]:
            self.problems.append(f"{operation} answers with the status {response.status}")
        if not response.body:
            return response
        answer = described.get("answer")
        found = schema.complete_answer(json.loads(response.body), answer)
        problems = schema.find_problems(found, answer, answer=True)
        self.problems += [f"{operation}: {problem}" for problem in problems]
        return replace(response, body=json.dumps(found).encode())

    def _refuse(self, request: WireRequest, kind: str) -> WireResponse | None:
        authorized = request.headers.get("authorization") == f"Bot {self.token}"
        named = request.headers.get("user-agent", "").startswith("DiscordBot (")
        if kind == "bot" and not named:
            return _error(403, 40333, "internal network error")
        if kind == "bot" and not authorized:
            return _error(401, 0, "401: Unauthorized")
        if self.global_limit and kind == "bot":
            headers = {"x-ratelimit-global": "true", "x-ratelimit-scope": "global"}
            return _throttled(self.global_limit, headers, is_global=True)
        return None

    def get_me(self, request: WireRequest) -> WireResponse:
        return json_response(BOT)

    def get_application(self, request: WireRequest) -> WireResponse:
        flags = CONTENT_FLAG if self.privileged else 0
        return json_response(
            {
                "id": APPLICATION_ID,
                "name": "Keryx",
                "icon": None,
                "description": "",
                "bot_public": True,
                "bot_require_code_grant": False,
                "verify_key": "x",
                "flags": flags,
                "bot": BOT,
                "owner": {"id": "7", "username": "ann", "discriminator": "0", "avatar": None},
            }
        )

    def get_gateway(self, request: WireRequest) -> WireResponse:
        limit = {
            "total": 1000,
            "remaining": self.starts_left,
            "reset_after": 14_400_000,
            "max_concurrency": 1,
        }
        return json_response({"url": self.gateway_url, "shards": 1, "session_start_limit": limit})

    def get_commands(self, request: WireRequest, application: str) -> WireResponse:
        return json_response(self.commands)

    def put_commands(self, request: WireRequest, application: str) -> WireResponse:
        if application != APPLICATION_ID:
            return _error(403, 20012, "You are not authorized to perform this action on this application")
        body = json.loads(request.body)
        schema.check_commands(body)
        self.command_writes += 1
        own = {
            "application_id": application,
            "version": "1",
            "default_member_permissions": None,
            "nsfw": False,
        }
        self.commands = [{**command, **own, "id": str(n)} for n, command in enumerate(body, start=1)]
        for command in self.commands:
            if not command.get("options"):
                command.pop("options", None)
            command["description_localizations"] = command.get("description_localizations") or None
        return json_response(self.commands)

    def get_channel(self, request: WireRequest, channel: str) -> WireResponse:
        if refusal := self._refuse_channel(channel):
            return refusal
        return json_response(self.channels[channel])

    def patch_channel(self, request: WireRequest, channel: str) -> WireResponse:
        if refusal := self._refuse_channel(channel):
            return refusal
        body = json.loads(request.body)
        schema.check(body, schema.THREAD_UPDATE)
        thread = self.channels[channel]
        if thread["type"] not in (10, 11, 12) or thread.get("owner_id") != BOT_ID:
            return _error(403, 50013, "Missing Permissions")
        state = thread.setdefault("thread_metadata", {"archived": False, "locked": False})
        if state["archived"] and body.get("archived") is not False:
            return _error(400, 50083, "Thread is archived")
        if body.get("name", thread["name"]) != thread["name"]:
            if self.renames_left == 0:
                return _throttled(600, {"x-ratelimit-scope": "shared"})
            self.renames_left -= 1
        state.update({key: body.pop(key) for key in ("archived", "locked") if key in body})
        thread.update(body)
        self.dispatch("THREAD_UPDATE", thread)
        self.lock.notify_all()
        return json_response(thread)

    def get_messages(self, request: WireRequest, channel: str) -> WireResponse:
        if refusal := self._refuse_channel(channel):
            return refusal
        if self.channels[channel]["type"] in (4, 15, 16):
            return _error(400, 50024, "Cannot execute action on this channel type")
        query = request.query
        if set(query) - {"after", "limit"} or not 1 <= int(query.get("limit", "50")) <= 100:
            return _error(400, 50035, "Invalid Form Body", errors={"limit": {}})
        later = [p for p in self.posts if p.channel == channel and int(p.id) > int(query.get("after", "0"))]
        page = sorted(later, key=lambda p: int(p.id))[: int(query.get("limit", "50"))]
        return json_response([self._message(p) for p in reversed(page)])

    def get_message(self, request: WireRequest, channel: str, message: str) -> WireResponse:
        if refusal := self._refuse_channel(channel):
            return refusal
        post = next((p for p in self.posts if (p.channel, p.id) == (channel, message)), None)
        if post is None:
            return _error(404, 10008, "Unknown Message")
        shown = self._message(post)
        files = [{**f, "url": self._sign_address(f["id"], f["filename"])} for f in shown["attachments"]]
        return json_response({**shown, "attachments": files})

    def post_message(self, request: WireRequest, channel: str) -> WireResponse | None:
        body, files = _read_body(request)
        schema.check(body, schema.MESSAGE_CREATE)
        schema.check_attachments(body, files)
        return self._accept(
            lambda: self._refuse_message(channel, body, files) or self._store(channel, body, files), channel
        )

    def patch_message(self, request: WireRequest, channel: str, message: str) -> WireResponse | None:
        body, _ = _read_body(request)
        schema.check(body, schema.MESSAGE_EDIT)
        return self._accept(lambda: self._refuse_channel(channel) or self._change(channel, message, body), "")

    def delete_message(self, request: WireRequest, channel: str, message: str) -> WireResponse:
        kept = [p for p in self.posts if (p.channel, p.id) != (channel, message)]
        if len(kept) == len(self.posts):
            return _error(404, 10008, "Unknown Message")
        self.posts = kept
        self.lock.notify_all()
        return WireResponse(204)

    def post_typing(self, request: WireRequest, channel: str) -> WireResponse:
        if refusal := self._refuse_channel(channel):
            return refusal
        self.typing.append(channel)
        self.lock.notify_all()
        return WireResponse(204)

    def post_thread(self, request: WireRequest, channel: str, message: str) -> WireResponse:
        if refusal := self._refuse_channel(channel):
            return refusal
        body = json.loads(request.body)
        schema.check(body, schema.THREAD_CREATE, needed={"name"})
        if not any(p.id == message and p.channel == channel for p in self.posts):
            return _error(404, 10008, "Unknown Message")
        if message in self.channels:
            return _error(400, 160004, "A thread has already been created for this message")
        self.add_channel(message, type=11, name=body["name"], parent_id=channel, owner_id=BOT_ID)
        self.dispatch("THREAD_CREATE", self.channels[message])
        return json_response(self.channels[message], 201)

    def get_member(self, request: WireRequest, guild: str, user: str) -> WireResponse:
        member = self.members.get(user)
        return json_response(member) if member else _error(404, 10007, "Unknown Member")

    def post_callback(self, request: WireRequest, interaction: str, token: str) -> WireResponse | None:
        made = self.interactions.get(token)
        body = json.loads(request.body)
        schema.check(body, schema.CALLBACK, needed={"type"})
        if made is None or made.id != interaction or made.expired:
            return _error(404, 10062, "Unknown interaction")
        if made.acknowledged:
            return _error(400, 40060, "Interaction has already been acknowledged.")
        made.acknowledged = body["type"]
        if body["type"] == 5:
            post = Post(self.next_id(), made.channel, BOT, "", flags=_LOADING)
            self._add(post)
            made.original = post.id
        self.lock.notify_all()
        if request.query.get("with_response") not in ("1", "true"):
            return WireResponse(204)
        told = {"id": made.id, "type": 2, "response_message_id": made.original or None}
        return json_response({"interaction": told, "resource": {"type": body["type"]}})

    def get_original(self, request: WireRequest, application: str, token: str) -> WireResponse:
        made = self._find_interaction(application, token)
        if made is None or not made.original:
            return _error(404, 10015, "Unknown Webhook")
        return json_response(self._message(self.find(made.original)))

    def patch_original(self, request: WireRequest, application: str, token: str) -> WireResponse | None:
        made = self._find_interaction(application, token)
        if made is None or not made.original:
            return _error(404, 10015, "Unknown Webhook")
        body, files = _read_body(request)
        schema.check(body, schema.WEBHOOK_EDIT)
        schema.check_attachments(body, files)
        post = self.find(made.original)
        return self._accept(lambda: self._change(post.channel, post.id, body, files), "")

    def post_follow_up(self, request: WireRequest, application: str, token: str) -> WireResponse | None:
        made = self._find_interaction(application, token)
        if made is None:
            return _error(404, 10015, "Unknown Webhook")
        body, files = _read_body(request)
        schema.check(body, schema.WEBHOOK_CREATE)
        schema.check_attachments(body, files)
        if body.get("flags", 0) & _EPHEMERAL:
            made.notices.append(body["content"])
            self.lock.notify_all()
            return json_response({"id": self.next_id()})
        return self._accept(lambda: self._store(made.channel, body, files), "")

    def _find_interaction(self, application: str, token: str) -> Interaction | None:
        made = self.interactions.get(token)
        usable = made is not None and made.acknowledged and not made.expired and application == APPLICATION_ID
        return made if usable else None

    def _accept(self, accept: Callable[[], WireResponse], channel: str) -> WireResponse | None:
        headers, limited = self._count(channel) if self.bucket and channel else ({}, 0.0)
        if limited:
            return _throttled(limited, headers)
        after = self.faults.retry_after
        throttled = _throttled(after, {"x-ratelimit-scope": "user", "x-ratelimit-bucket": "messages"})
        response = self.accept_send(accept, throttled=throttled, broken=_error(502, 0, "Bad Gateway"))
        if response is not None:
            response.headers.update(headers)
        self.lock.notify_all()
        return response

    def _count(self, channel: str) -> tuple[dict[str, str], float]:
        assert self.bucket is not None
        most, seconds = self.bucket
        now = time.monotonic()
        until, used = self._window.get(channel, (0.0, 0))
        if until <= now:
            until, used = now + seconds, 0
        limited = until - now if used >= most else 0.0
        self._window[channel] = until, used + (not limited)
        headers = {
            "x-ratelimit-limit": str(most),
            "x-ratelimit-remaining": str(max(most - used - 1, 0)),
            "x-ratelimit-reset-after": f"{until - now:.3f}",
            "x-ratelimit-bucket": "messages",
        }
        return headers, limited

    def _refuse_channel(self, channel: str) -> WireResponse | None:
        if channel in self.refused:
            return _error(*self.refused[channel], "refused")
        return None if channel in self.channels else _error(404, 10003, "Unknown Channel")

    def _refuse_message(
        self, channel: str, body: dict[str, Any], files: dict[str, Any]
    ) -> WireResponse | None:
        if refusal := self._refuse_channel(channel):
            return refusal
        if self.channels[channel]["type"] in (4, 15, 16):
            return _error(400, 50008, "Cannot send messages in a non-text channel")
        if not str(body.get("content") or "").strip() and not files:
            return _error(400, 50006, "Cannot send an empty message")
        if body.get("components") and self.no_buttons:
            return _error(400, 50035, "Invalid Form Body", errors=_explain("components", "refused"))
        return None

    def _store(self, channel: str, body: dict[str, Any], files: dict[str, Any]) -> WireResponse:
        nonce = str(body.get("nonce") or "")
        if nonce and body.get("enforce_nonce") and nonce in self._nonces:
            return json_response(self._message(self.find(self._nonces[nonce])))
        reference: dict[str, str] = body.get("message_reference") or {}
        post = Post(
            id=self.next_id(),
            channel=channel,
            author=BOT,
            content=str(body.get("content") or ""),
            reference=reference.get("message_id", ""),
            buttons=_buttons(body),
            allowed_mentions=body.get("allowed_mentions") or {},
            nonce=nonce,
            files=[self._keep(name, data) for name, data in files.values()],
        )
        self._add(post)
        if nonce:
            self._nonces[nonce] = post.id
        self.dispatch("MESSAGE_CREATE", {**self._event(post), "nonce": nonce})
        return json_response(self._message(post))

    def _keep(self, name: str, data: bytes) -> dict[str, Any]:
        number = self.next_id()
        self.files[f"{number}/{name}"] = data
        url = f"{self.url}/attachments/{number}/{name}"
        return {"id": number, "filename": name, "size": len(data), "url": url, "proxy_url": url}

    def _change(
        self, channel: str, message: str, body: dict[str, Any], files: dict[str, Any] | None = None
    ) -> WireResponse:
        found = [p for p in self.posts if (p.channel, p.id) == (channel, message)]
        if not found:
            return _error(404, 10008, "Unknown Message")
        post = found[0]
        if post.author["id"] != BOT_ID:
            return _error(403, 50005, "Cannot edit a message authored by another user")
        if body.get("components") and self.no_buttons:
            return _error(400, 50035, "Invalid Form Body", errors=_explain("components", "refused"))
        post.content = str(body.get("content", post.content) or "")
        post.buttons = _buttons(body) if "components" in body else post.buttons
        post.files += [self._keep(name, data) for name, data in (files or {}).values()]
        post.flags &= ~_LOADING
        post.edits += 1
        return json_response(self._message(post))

    def _add(self, post: Post) -> None:
        # A message opens an archived thread again.
        self.channels[post.channel].get("thread_metadata", {}).update(archived=False)
        self.posts.append(post)
        self.channels[post.channel]["last_message_id"] = post.id
        self.lock.notify_all()

    def _event(self, post: Post) -> dict[str, Any]:
        body = self._message(post)
        if guild := self.channels[post.channel].get("guild_id"):
            body["guild_id"] = guild
            if member := self.members.get(post.author["id"]):
                body["member"] = {k: v for k, v in member.items() if k != "user"}
        return body

    def _message(self, post: Post) -> dict[str, Any]:
        rows = [
            {
                "type": 1,
                "components": [
                    {"type": 2, "style": 2, "label": label, "custom_id": says}
                    for label, says in post.buttons.items()
                ],
            }
        ]
        at = datetime.fromtimestamp(((int(post.id) >> 22) + _EPOCH_MS) / 1000, UTC)
        return {
            "id": post.id,
            "channel_id": post.channel,
            "author": post.author,
            "content": post.content,
            "timestamp": at.isoformat(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": post.files,
            "embeds": [],
            "components": rows if post.buttons else [],
            "pinned": False,
            "type": 19 if post.reference else 0,
            "flags": post.flags,
            **post.more,
        }


_ROLE_FIELDS: dict[str, Any] = {
    "color": 0,
    "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
    "hoist": False,
    "position": 0,
    "permissions": "0",
    "managed": False,
    "mentionable": False,
    "flags": 0,
}
_GUILD_FIELDS: dict[str, Any] = {
    "verification_level": 0,
    "default_message_notifications": 0,
    "explicit_content_filter": 0,
    "mfa_level": 0,
    "premium_tier": 0,
    "nsfw_level": 0,
    "system_channel_flags": 0,
    "afk_timeout": 300,
    "afk_channel_id": None,
    "icon": None,
    "banner": None,
    "splash": None,
    "discovery_splash": None,
    "description": None,
    "application_id": None,
    "system_channel_id": None,
    "rules_channel_id": None,
    "public_updates_channel_id": None,
    "vanity_url_code": None,
    "premium_progress_bar_enabled": False,
    "soundboard_sounds": [],
}


def _route(method: str, template: str, kind: str, name: str) -> tuple[str, re.Pattern[str], str, str, str]:
    return method, re.compile(template.replace("{}", r"([^/]+)")), kind, name, f"{method} {template}"


ROUTES = (
    _route("GET", "/users/@me", "bot", "get_me"),
    _route("GET", "/applications/@me", "bot", "get_application"),
    _route("GET", "/oauth2/applications/@me", "bot", "get_application"),
    _route("GET", "/gateway/bot", "bot", "get_gateway"),
    _route("GET", "/applications/{}/commands", "bot", "get_commands"),
    _route("PUT", "/applications/{}/commands", "bot", "put_commands"),
    _route("GET", "/channels/{}", "bot", "get_channel"),
    _route("PATCH", "/channels/{}", "bot", "patch_channel"),
    _route("GET", "/channels/{}/messages", "bot", "get_messages"),
    _route("POST", "/channels/{}/messages", "bot", "post_message"),
    _route("GET", "/channels/{}/messages/{}", "bot", "get_message"),
    _route("PATCH", "/channels/{}/messages/{}", "bot", "patch_message"),
    _route("DELETE", "/channels/{}/messages/{}", "bot", "delete_message"),
    _route("POST", "/channels/{}/typing", "bot", "post_typing"),
    _route("POST", "/channels/{}/messages/{}/threads", "bot", "post_thread"),
    _route("GET", "/guilds/{}/members/{}", "bot", "get_member"),
    _route("POST", "/interactions/{}/{}/callback", "interaction", "post_callback"),
    _route("GET", "/webhooks/{}/{}/messages/@original", "interaction", "get_original"),
    _route("PATCH", "/webhooks/{}/{}/messages/@original", "interaction", "patch_original"),
    _route("POST", "/webhooks/{}/{}", "interaction", "post_follow_up"),
)


def _member(user: dict[str, Any], roles: Sequence[str]) -> dict[str, Any]:
    fields = {"joined_at": "2026-01-01T00:00:00+00:00", "deaf": False, "mute": False, "flags": 0}
    return {"user": user, "nick": None, "avatar": None, "roles": list(roles), **fields}


def _without_guild(channel: dict[str, Any]) -> dict[str, Any]:
    return {
        "position": 0,
        "permission_overwrites": [],
        **{k: v for k, v in channel.items() if k != "guild_id"},
    }


def _read_body(request: WireRequest) -> tuple[dict[str, Any], dict[str, tuple[str, bytes]]]:
    """Return the payload, and the files of a form by the name of their field."""
    kind = request.headers.get("content-type", "")
    if kind == "application/json":
        return json.loads(request.body), {}
    if not kind.startswith("multipart/form-data"):
        raise schema.Wrong("content-type", "invalid content type")
    whole = message_from_bytes(
        b"content-type: " + kind.encode() + b"\r\n\r\n" + request.body, policy=policy.HTTP
    )
    body: dict[str, Any] = {}
    files: dict[str, tuple[str, bytes]] = {}
    for part in whole.iter_parts():
        name = str(part.get_param("name", header="content-disposition"))
        data = part.get_payload(decode=True)
        assert isinstance(data, bytes)
        if name == "payload_json":
            body = json.loads(data)
        else:
            files[name] = str(part.get_filename()), data
    return body, files


def _buttons(body: dict[str, Any]) -> dict[str, str]:
    rows: list[dict[str, Any]] = body.get("components") or []
    return {button["label"]: button["custom_id"] for row in rows for button in row["components"]}


def _error(status: int, code: int, message: str, **more: object) -> WireResponse:
    return json_response({"code": code, "message": message, **more}, status)


def _explain(field: str, message: str) -> dict[str, Any]:
    return {field: {"_errors": [{"code": "BASE_TYPE_BAD", "message": message}]}}


def _throttled(after: float, headers: dict[str, str], *, is_global: bool = False) -> WireResponse:
    body = {"message": "You are being rate limited.", "retry_after": after, "global": is_global}
    response = json_response(body, 429)
    response.headers.update({"retry-after": str(int(after) + 1), **headers})
    return response
