"""Slack on loopback: a Web API that checks each request, Socket Mode over real websockets, posts of the Events API, and knobs for Slack's faults."""

import asyncio
import base64
import itertools
import json
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from tests.fakes.websocket import WebsocketFake
from websockets.sync.server import ServerConnection

from keryx.core.ports.adapter import WebhookRequest, WebhookResponse
from keryx.surfaces.gateway.slack import sign
from keryx.testing.wire import WireRequest, WireResponse, json_response

BOT_TOKEN = "xoxb-1-2-test-token"
APP_TOKEN = "xapp-1-A1-test-token"
SIGNING_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
TEAM, BOT_USER, BOT_ID = "T0000001", "U000BOT1", "B0000001"
PERSON = "U0000007"
LONGEST_TEXT = 40_000
LONGEST_MARKDOWN = 12_000
LONGEST_LABEL = 75
_METHOD = re.compile(r"/api/([\w.]+)\Z")
_TS = re.compile(r"\d{10}\.\d{6}\Z")
_PERMALINK = re.compile(r"<(http[^|>]+)\|[^>]*>")

# The arguments of each method: name to whether it must be given.
_TEXT = {"text": False, "blocks": False, "markdown_text": False, "metadata": False, "parse": False}
METHODS: dict[str, dict[str, bool]] = {
    "auth.test": {},
    "apps.connections.open": {},
    "oauth.v2.access": {
        "client_id": True,
        "client_secret": True,
        "grant_type": True,
        "refresh_token": True,
    },
    "users.info": {"user": True, "include_locale": False},
    "conversations.info": {"channel": True},
    "conversations.history": {
        "channel": True,
        "oldest": False,
        "limit": False,
        "include_all_metadata": False,
        "cursor": False,
    },
    "conversations.replies": {
        "channel": True,
        "ts": True,
        "oldest": False,
        "limit": False,
        "include_all_metadata": False,
        "cursor": False,
    },
    "chat.postMessage": {
        "channel": True,
        "thread_ts": False,
        "unfurl_links": False,
        "unfurl_media": False,
        **_TEXT,
    },
    "chat.update": {"channel": True, "ts": True, **_TEXT},
    "chat.delete": {"channel": True, "ts": True},
    "chat.postEphemeral": {"channel": True, "user": True, "text": True, "thread_ts": False},
    "chat.startStream": {
        "channel": True,
        "thread_ts": True,
        "markdown_text": False,
        "recipient_user_id": False,
        "recipient_team_id": False,
        "chunks": False,
        "task_display_mode": False,
    },
    "chat.appendStream": {"channel": True, "ts": True, "markdown_text": False, "chunks": False},
    "chat.stopStream": {
        "channel": True,
        "ts": True,
        "markdown_text": False,
        "blocks": False,
        "metadata": False,
        "chunks": False,
    },
    "reactions.add": {"channel": True, "timestamp": True, "name": True},
    "assistant.threads.setStatus": {"channel_id": True, "thread_ts": True, "status": True},
    "assistant.threads.setTitle": {"channel_id": True, "thread_ts": True, "title": True},
    "assistant.threads.setSuggestedPrompts": {
        "channel_id": True,
        "thread_ts": False,
        "prompts": True,
        "title": False,
    },
    "files.getUploadURLExternal": {"filename": True, "length": True},
    "files.completeUploadExternal": {"files": True},
    "files.info": {"file": True},
}
_SENDS = frozenset(
    {"chat.postMessage", "chat.update", "chat.startStream", "chat.appendStream", "chat.stopStream"}
)
_FORM_ONLY = ("conversations.", "users.", "files.", "oauth.")


@dataclass(slots=True)
class SlackPost:
    """One message of the bot, as people see it now."""

    channel: str
    ts: str
    text: str
    thread: str = ""
    metadata: dict[str, Any] | None = None
    # Labels, each with its value.
    buttons: dict[str, str] = field(default_factory=dict[str, str])
    streaming: bool = False
    # The mode of a stream, which its first content decides: text or chunks.
    in_chunks: bool | None = None
    # The states of tool calls by their titles, and the id of each.
    tasks: dict[str, str] = field(default_factory=dict[str, str])
    task_ids: dict[str, str] = field(default_factory=dict[str, str])
    edits: int = 0
    files: list[bytes] = field(default_factory=list[bytes])
    # The calls that made it what it is.
    methods: list[str] = field(default_factory=list[str])


class SlackRefusal(Exception):
    def __init__(self, code: str, **more: object) -> None:
        super().__init__(code)
        self.body = {"ok": False, "error": code, **more}


@dataclass
class FakeSlack(WebsocketFake[dict[str, Any]]):
    """`refusals` answers a method with an error code, `gone` is what each channel refuses every message with, `limited` a
    method with 429. `mode` says how events are handed over: by Socket Mode, or by `post` as the Events API."""

    token: str = BOT_TOKEN
    team: str = TEAM

    def __post_init__(self) -> None:
        super().__post_init__()
        self.posts: list[SlackPost] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.refusals: dict[str, str] = {}
        self.gone: dict[str, str] = {}
        self.limited: dict[str, int] = {}
        self.lost: set[str] = set()
        self.scopes = "chat:write,users:read"
        self.missing: dict[str, str] = {}
        self.names = {PERSON: "Ann", "C0000001": "general"}
        self.locales: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        # The status that files are answered with instead; 0 to serve them.
        self.broken_files = 0
        # What `files.info` says of them.
        self.file_objects: dict[str, dict[str, Any]] = {}
        self.uploads: dict[str, bytes] = {}
        self.reactions: list[dict[str, Any]] = []
        self.statuses: list[dict[str, Any]] = []
        self.prompts: list[dict[str, Any]] = []
        self.titles: list[dict[str, Any]] = []
        self.whispers: list[dict[str, Any]] = []
        self.valid_tokens = {self.token}
        self.refresh_tokens: dict[str, bool] = {}
        self.acks: list[dict[str, Any]] = []
        self.refuse_blocks = False
        # What people wrote, by channel: the history as `conversations.*` tells it.
        self.history: list[dict[str, Any]] = []
        self.hello_connections: int | None = None
        # How many minutes the clock of Slack is ahead in what it posts.
        self.minutes_ahead = 0
        self._counts = itertools.count(1)
        self._start = 1_700_000_000
        self._socket_ticket = ""

    @property
    def api_url(self) -> str:
        return f"{self.url}/api"

    # What people do.

    def make_ts(self) -> str:
        return f"{self._start}.{next(self._counts):06}"

    def say(
        self, text: str, *, channel: str = "D0000001", user: str | None = PERSON, kind: str = "", **more: Any
    ) -> str:
        """A person writes; returns the ts of the message."""
        ts = self.make_ts()
        kinds = {"D": "im", "G": "group"}
        event = {
            "type": kind or "message",
            "channel": channel,
            "channel_type": kinds.get(channel[0], "channel"),
            "user": user,
            "text": text,
            "ts": ts,
            "event_ts": ts,
            "team": self.team,
            **more,
        }
        with self.lock:
            self.history.append(event)
        self.push_event({key: value for key, value in event.items() if value is not None})
        return ts

    def mention(self, text: str, *, channel: str = "C0000001", both: bool = True, **more: Any) -> str:
        """A person mentions the bot in a channel: Slack tells it by two events."""
        ts = self.say(f"<@{BOT_USER}> {text}", channel=channel, **more)
        if both:
            self.push_event({**self.history[-1], "type": "app_mention"})
        return ts

    def rewrite(self, text: str, *, ts: str, channel: str = "D0000001", **more: Any) -> None:
        now = self.make_ts()
        second = f"{now.partition('.')[0]}.000000"
        earlier = {"type": "message", "user": PERSON, "text": "before", "ts": ts, **more}
        changed = {**earlier, "text": text, "edited": {"user": PERSON, "ts": second}}
        self.push_event(
            {
                "type": "message",
                "subtype": "message_changed",
                "hidden": True,
                "channel": channel,
                "ts": now,
                "event_ts": now,
                "message": changed,
                "previous_message": earlier,
            }
        )

    def unsay(self, *, ts: str, channel: str = "D0000001", **more: Any) -> None:
        now = self.make_ts()
        earlier = {"type": "message", "user": PERSON, "text": "before", "ts": ts, **more}
        self.push_event(
            {
                "type": "message",
                "subtype": "message_deleted",
                "hidden": True,
                "channel": channel,
                "ts": now,
                "event_ts": now,
                "deleted_ts": ts,
                "previous_message": earlier,
            }
        )

    def react(
        self, name: str, *, ts: str, channel: str = "D0000001", item_user: str = PERSON, removed: bool = False
    ) -> None:
        item = {"type": "message", "channel": channel, "ts": ts}
        self.push_event(
            {
                "type": "reaction_removed" if removed else "reaction_added",
                "user": PERSON,
                "reaction": name,
                "item": item,
                "item_user": item_user,
                "event_ts": self.make_ts(),
            }
        )

    def attach(
        self, text: str, name: str, body: bytes, *, mime: str, channel: str = "D0000001", **more: Any
    ) -> str:
        id_ = f"F{next(self._counts):07}"
        self.files[id_] = body
        file = {
            "id": id_,
            "name": name,
            "mimetype": mime,
            "size": len(body),
            "mode": "hosted",
            "url_private": f"{self.url}/files/{id_}",
            "url_private_download": f"{self.url}/files/{id_}/download",
            **more,
        }
        self.file_objects[id_] = {**file, "file_access": "visible"}
        if more.get("file_access") == "check_file_info":
            file = {"id": id_, "created": 0, "timestamp": 0, "user": "", "file_access": "check_file_info"}
        return self.say(text, channel=channel, subtype="file_share", files=[file])

    def press(self, label: str, *, channel: str = "D0000001", user: str = PERSON) -> None:
        with self.lock:
            post = next(p for p in reversed(self.posts) if p.channel == channel and label in p.buttons)
        self.push(
            "interactive",
            {
                "type": "block_actions",
                "team": {"id": self.team, "domain": "fake"},
                "user": {"id": user, "username": "ann", "name": "ann", "team_id": self.team},
                "channel": {"id": channel, "name": "directmessage"},
                "message": {
                    "type": "message",
                    "ts": post.ts,
                    **({"thread_ts": post.thread} if post.thread else {}),
                },
                "actions": [
                    {
                        "type": "button",
                        "action_id": "keryx_0",
                        "value": post.buttons[label],
                        "action_ts": self.make_ts(),
                    }
                ],
                "trigger_id": f"trigger.{next(self._counts)}",
                "response_url": "https://hooks.slack.com/actions/T/1/x",
            },
        )

    def command(self, text: str, *, channel: str = "D0000001", user: str = PERSON) -> None:
        self.push(
            "slash_commands",
            {
                "token": "legacy",
                "command": "/keryx",
                "text": text,
                "user_id": user,
                "user_name": "ann",
                "channel_id": channel,
                "channel_name": "general",
                "team_id": self.team,
                "team_domain": "fake",
                "api_app_id": "A1",
                "response_url": "https://hooks.slack.com/commands/T/1/x",
                "trigger_id": f"trigger.{next(self._counts)}",
            },
        )

    def open_assistant(self, *, channel: str = "D0000001", user: str = PERSON) -> str:
        """A person opens the assistant; returns the thread."""
        ts = self.make_ts()
        thread = {"user_id": user, "context": {"team_id": self.team}, "channel_id": channel, "thread_ts": ts}
        self.push_event({"type": "assistant_thread_started", "assistant_thread": thread, "event_ts": ts})
        return ts

    def push_event(self, event: dict[str, Any], **more: Any) -> None:
        payload = {
            "token": "legacy",
            "team_id": self.team,
            "api_app_id": "A1",
            "type": "event_callback",
            "event_id": f"Ev{next(self._counts):06}",
            "event_time": int(time.time()),
            "authorizations": [
                {"enterprise_id": None, "team_id": self.team, "user_id": BOT_USER, "is_bot": True}
            ],
            "event": event,
            **more,
        }
        self.push("events_api", payload)

    def push(self, kind: str, payload: object) -> None:
        """An envelope of any kind."""
        with self.lock:
            envelope = {
                "envelope_id": f"env-{next(self._counts)}",
                "type": kind,
                "payload": payload,
                "accepts_response_payload": kind != "events_api",
            }
            self.waiting.append(envelope)
            self.lock.notify_all()

    def texts(self, channel: str = "D0000001") -> list[str]:
        with self.lock:
            return [p.text for p in self.posts if p.channel == channel and not p.files]

    def count_open(self, channel: str) -> int:
        with self.lock:
            return sum(p.streaming for p in self.posts if p.channel == channel)

    def count_calls(self, method: str) -> int:
        with self.lock:
            return sum(name == method for name, _ in self.calls)

    # Socket Mode.

    def disconnect(self, reason: str, *, close: bool = True) -> None:
        """Slack announces that it closes the connections, and does so."""
        with self.lock:
            old = list(self.connections)
        for connection in old:
            connection.send(json.dumps({"type": "disconnect", "reason": reason, "debug_info": {"host": "x"}}))
            if close:
                connection.close()

    def accepts(self, path: str) -> bool:
        return f"ticket={self._socket_ticket}" in path

    def greet(self, connection: ServerConnection) -> None:
        count = self.hello_connections or len(self.connections)
        hello = {"type": "hello", "num_connections": count, "connection_info": {"app_id": "A1"}}
        connection.send(json.dumps({**hello, "debug_info": {"host": "fake", "build_number": 1}}))

    def name_event(self, event: dict[str, Any]) -> str:
        return event["envelope_id"]

    def encode_event(self, event: dict[str, Any]) -> list[str]:
        return [json.dumps(event)]

    def read_frame(self, connection: ServerConnection, frame: str | bytes) -> None:
        ack = json.loads(frame)
        with self.lock:
            self.acks.append(ack)
            self.waiting = [e for e in self.waiting if e["envelope_id"] != ack.get("envelope_id")]
            self.lock.notify_all()

    # The Events API.

    async def post_events(self, handle: Callable[[WebhookRequest], Awaitable[WebhookResponse]]) -> None:
        """Post what waits until it is answered with 200, as Slack does, until cancelled."""
        attempts: dict[str, int] = {}
        while True:
            with self.lock:
                batch = self.inject_event_faults(list(self.waiting))
            for envelope in batch:
                id_ = envelope["envelope_id"]
                attempts[id_] = attempts.get(id_, 0) + 1
                torn = self.roll(self.faults.torn)
                if torn:
                    continue
                at = int(time.time()) + 60 * self.minutes_ahead
                response = await handle(build_post(envelope, retry=attempts[id_] - 1, at=at))
                if response.status == 200:
                    with self.lock:
                        self.waiting = [e for e in self.waiting if e["envelope_id"] != id_]
                        self.lock.notify_all()
            await asyncio.sleep(0.005)

    # The Web API.

    def handle(self, request: WireRequest) -> WireResponse | None:
        if request.path.startswith("/files/"):
            return self._serve_file(request)
        if request.path.startswith("/upload/"):
            with self.lock:
                self.uploads[request.path.rpartition("/")[2]] = request.body
            return WireResponse(200, b"OK - 1")
        found = _METHOD.match(request.path)
        if found is None or found[1] not in METHODS:
            return json_response({"ok": False, "error": "unknown_method"})
        method = found[1]
        try:
            params = self._read_params(method, request)
            return self._call(method, params, request)
        except SlackRefusal as exc:
            return json_response(exc.body)

    def _read_params(self, method: str, request: WireRequest) -> dict[str, Any]:
        kind = request.headers.get("content-type", "")
        if kind.startswith("application/json"):
            if method.startswith(_FORM_ONLY):
                raise SlackRefusal("invalid_arguments", detail="this method takes forms")
            params: dict[str, Any] = json.loads(request.body or b"{}")
        else:
            params = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
            params |= request.query
        if request.headers.get("authorization", "").startswith("Basic "):
            # The credentials of an app may come by either way.
            pair = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
            params |= dict(zip(("client_id", "client_secret"), pair.split(":", 1), strict=True))
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        self._check_token(method, token)
        allowed = METHODS[method]
        unknown = set(params) - set(allowed)
        absent = {name for name, needed in allowed.items() if needed and not params.get(name)}
        if unknown or absent:
            raise SlackRefusal("invalid_arguments", detail=f"unknown {unknown}, absent {absent}")
        return params

    def _check_token(self, method: str, token: str) -> None:
        if method == "oauth.v2.access":
            return
        if method == "apps.connections.open":
            if token != APP_TOKEN:
                raise SlackRefusal("invalid_auth")
        elif not token:
            raise SlackRefusal("not_authed")
        elif token not in self.valid_tokens:
            raise SlackRefusal("token_expired" if token.startswith("xoxe.") else "invalid_auth")

    def _call(self, method: str, params: dict[str, Any], request: WireRequest) -> WireResponse | None:
        with self.lock:
            self.calls.append((method, params))
            if method in self.missing:
                raise SlackRefusal("missing_scope", needed=self.missing[method], provided="chat:write")
            if method in self.refusals:
                raise SlackRefusal(self.refusals[method])
            if method in self.limited:
                return _limit(self.limited[method])
            answer = self._methods[method]
            if method in _SENDS:
                response = self.accept_send(
                    lambda: _ok(answer(params)),
                    throttled=_limit(round(self.faults.retry_after)),
                    broken=WireResponse(503, b"upstream error"),
                )
            else:
                response = _ok(answer(params))
            self.lock.notify_all()
        if method == "auth.test" and response is not None:
            response.headers["x-oauth-scopes"] = self.scopes
        if method in self.lost:
            self.lost.discard(method)
            return None
        return response

    @property
    def _methods(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        return {
            "auth.test": self._test_auth,
            "apps.connections.open": self._open_connection,
            "oauth.v2.access": self._refresh,
            "users.info": self._get_user,
            "conversations.info": self._get_channel,
            "conversations.history": self._get_history,
            "conversations.replies": self._get_replies,
            "chat.postMessage": self._post_message,
            "chat.update": self._update_message,
            "chat.delete": self._delete_message,
            "chat.postEphemeral": self._post_ephemeral,
            "chat.startStream": self._start_stream,
            "chat.appendStream": self._append_stream,
            "chat.stopStream": self._stop_stream,
            "reactions.add": self._add_reaction,
            "assistant.threads.setStatus": self._set_status,
            "assistant.threads.setTitle": self._set_title,
            "assistant.threads.setSuggestedPrompts": self._set_prompts,
            "files.getUploadURLExternal": self._get_upload_url,
            "files.completeUploadExternal": self._complete_upload,
            "files.info": self._get_file_info,
        }

    def _test_auth(self, params: dict[str, Any]) -> dict[str, Any]:
        return {
            "url": "https://fake.slack.com/",
            "team": "Fake",
            "user": "keryx",
            "team_id": self.team,
            "user_id": BOT_USER,
            "bot_id": BOT_ID,
        }

    def _open_connection(self, params: dict[str, Any]) -> dict[str, Any]:
        self._socket_ticket = f"t{next(self._counts)}"
        return {"url": f"{self.socket_url}/link/?ticket={self._socket_ticket}&app_id=A1"}

    def _refresh(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["client_secret"] != "client-secret":
            raise SlackRefusal("bad_client_secret")
        if not self.refresh_tokens.get(params["refresh_token"]):
            raise SlackRefusal("invalid_refresh_token")
        self.refresh_tokens[params["refresh_token"]] = False
        number = next(self._counts)
        token, refresh = f"xoxe.xoxb-1-fresh-{number}", f"xoxe-1-fresh-{number}"
        self.valid_tokens = {token}
        self.refresh_tokens[refresh] = True
        return {
            "access_token": token,
            "refresh_token": refresh,
            "expires_in": 43200,
            "token_type": "bot",
            "team": {"id": self.team},
        }

    def _get_user(self, params: dict[str, Any]) -> dict[str, Any]:
        id_ = params["user"]
        if id_ not in self.names:
            raise SlackRefusal("user_not_found")
        user = {"id": id_, "name": self.names[id_].lower(), "is_bot": False}
        profile = {"display_name": self.names[id_], "real_name": f"{self.names[id_]} X"}
        locale = {"locale": self.locales[id_]} if id_ in self.locales else {}
        return {"user": {**user, **locale, "profile": profile}}

    def _get_channel(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["channel"] not in self.names:
            raise SlackRefusal("channel_not_found")
        return {"channel": {"id": params["channel"], "name": self.names[params["channel"]]}}

    def _get_history(self, params: dict[str, Any]) -> dict[str, Any]:
        found = [m for m in self._list_messages(params) if m.get("thread_ts") in (None, m["ts"])]
        return self._page(list(reversed(found)), params)

    def _get_replies(self, params: dict[str, Any]) -> dict[str, Any]:
        # With the ts of a reply, Slack returns that reply alone.
        named = [m for m in self._list_messages({"channel": params["channel"]}) if m["ts"] == params["ts"]]
        if named and named[0].get("thread_ts") not in (None, params["ts"]):
            return self._page(named, params)
        found = [m for m in self._list_messages(params) if params["ts"] in (m["ts"], m.get("thread_ts"))]
        return self._page(found, params)

    def _list_messages(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        channel = params["channel"]
        self._check_channel(channel)
        metadata = params.get("include_all_metadata") == "true"
        people = [m for m in self.history if m["channel"] == channel]
        ours = [_show(p, metadata=metadata) for p in self.posts if p.channel == channel]
        after = params.get("oldest") or "0"
        return sorted((m for m in [*people, *ours] if m["ts"] > after), key=lambda m: m["ts"])

    def _page(self, messages: list[dict[str, Any]], params: dict[str, Any]) -> dict[str, Any]:
        start, size = int(params.get("cursor") or 0), int(params.get("limit") or 100)
        more = start + size < len(messages)
        return {
            "messages": messages[start : start + size],
            "has_more": more,
            "response_metadata": {"next_cursor": str(start + size) if more else ""},
        }

    def _post_message(self, params: dict[str, Any]) -> dict[str, Any]:
        self._check_channel(params["channel"])
        post = SlackPost(params["channel"], self.make_ts(), "", params.get("thread_ts") or "")
        self._fill(post, params)
        link = _PERMALINK.search(params.get("text") or "") if not params.get("blocks") else None
        if link is not None:
            id_ = link[1].rpartition("/")[2]
            if id_ not in self.uploads:
                raise SlackRefusal("file_not_found")
            post.files = [self.uploads[id_]]
        self.posts.append(post)
        return {"channel": post.channel, "ts": post.ts, "message": _show(post, metadata=False)}

    def _update_message(self, params: dict[str, Any]) -> dict[str, Any]:
        post = self._find(params)
        if post.streaming:
            raise SlackRefusal("streaming_state_conflict")
        self._fill(post, params)
        post.edits += 1
        post.methods.append("chat.update")
        return {"channel": post.channel, "ts": post.ts, "text": post.text}

    def _delete_message(self, params: dict[str, Any]) -> dict[str, Any]:
        post = self._find(params)
        self.posts.remove(post)
        return {"channel": post.channel, "ts": post.ts}

    def _post_ephemeral(self, params: dict[str, Any]) -> dict[str, Any]:
        self.whispers.append(params)
        return {"message_ts": self.make_ts()}

    def _start_stream(self, params: dict[str, Any]) -> dict[str, Any]:
        channel = params["channel"]
        self._check_channel(channel)
        if not channel.startswith("D") and not params.get("recipient_user_id"):
            raise SlackRefusal("missing_recipient_user_id")
        if not channel.startswith("D") and not params.get("recipient_team_id"):
            raise SlackRefusal("missing_recipient_team_id")
        _check_ts(params["thread_ts"])
        post = SlackPost(channel, self.make_ts(), "", params["thread_ts"], streaming=True)
        _extend_stream(post, params)
        post.methods.append("chat.startStream")
        self.posts.append(post)
        return {"channel": channel, "ts": post.ts}

    def _append_stream(self, params: dict[str, Any]) -> dict[str, Any]:
        post = self._find_stream(params)
        if not params.get("markdown_text") and not params.get("chunks"):
            raise SlackRefusal("no_text")
        _extend_stream(post, params)
        post.methods.append("chat.appendStream")
        return {"channel": post.channel, "ts": post.ts}

    def _stop_stream(self, params: dict[str, Any]) -> dict[str, Any]:
        post = self._find_stream(params)
        if params.get("blocks") and post.in_chunks:
            raise SlackRefusal("streaming_mode_mismatch")
        _extend_stream(post, params)
        post.streaming = False
        post.metadata = _check_metadata(params.get("metadata"))
        post.buttons |= _read_blocks(params.get("blocks") or [])[1]
        post.methods.append("chat.stopStream")
        return {"channel": post.channel, "ts": post.ts}

    def _add_reaction(self, params: dict[str, Any]) -> dict[str, Any]:
        if params in self.reactions:
            raise SlackRefusal("already_reacted")
        if not any(m["ts"] == params["timestamp"] for m in self.history):
            raise SlackRefusal("message_not_found")
        self.reactions.append(params)
        return {}

    def _set_status(self, params: dict[str, Any]) -> dict[str, Any]:
        _check_ts(params["thread_ts"])
        self.statuses.append(params)
        return {}

    def _set_title(self, params: dict[str, Any]) -> dict[str, Any]:
        self.titles.append(params)
        return {}

    def _set_prompts(self, params: dict[str, Any]) -> dict[str, Any]:
        if not 1 <= len(params["prompts"]) <= 4 or any(
            set(p) != {"title", "message"} for p in params["prompts"]
        ):
            raise SlackRefusal("invalid_arguments")
        self.prompts.append(params)
        return {}

    def _get_upload_url(self, params: dict[str, Any]) -> dict[str, Any]:
        if not str(params["length"]).isdigit():
            raise SlackRefusal("invalid_arguments")
        id_ = f"F{next(self._counts):07}"
        return {"upload_url": f"{self.url}/upload/{id_}", "file_id": id_}

    def _complete_upload(self, params: dict[str, Any]) -> dict[str, Any]:
        files = params["files"]
        listed: list[dict[str, Any]] = json.loads(files) if isinstance(files, str) else files
        for file in listed:
            if file["id"] not in self.uploads or not set(file) <= {"id", "title"}:
                raise SlackRefusal("file_not_found")
        link = "https://fake.slack.com/files/U000BOT1/"
        return {
            "files": [{"id": f["id"], "title": f.get("title"), "permalink": link + f["id"]} for f in listed]
        }

    def _get_file_info(self, params: dict[str, Any]) -> dict[str, Any]:
        id_ = params["file"]
        if id_ not in self.file_objects:
            raise SlackRefusal("file_not_found")
        return {"file": self.file_objects[id_]}

    def _serve_file(self, request: WireRequest) -> WireResponse:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        id_ = request.path.split("/")[2]
        if token not in self.valid_tokens or id_ == "page":
            return WireResponse(200, b"<html>sign in</html>", {"content-type": "text/html; charset=utf-8"})
        self.wait_until_released(id_)
        if self.broken_files:
            return WireResponse(self.broken_files)
        mime = str(self.file_objects.get(id_, {}).get("mimetype") or "application/octet-stream")
        if id_ not in self.files:
            return WireResponse(404)
        return WireResponse(200, self.files[id_], {"content-type": mime})

    def _check_channel(self, channel: str) -> None:
        if not re.fullmatch(r"[CDG][A-Z0-9]+", channel):
            raise SlackRefusal("channel_not_found")
        if channel in self.gone:
            raise SlackRefusal(self.gone[channel])

    def _find(self, params: dict[str, Any]) -> SlackPost:
        self._check_channel(params["channel"])
        place = params["channel"], params["ts"]
        found = next((p for p in self.posts if (p.channel, p.ts) == place), None)
        if found is None:
            raise SlackRefusal("message_not_found")
        return found

    def _find_stream(self, params: dict[str, Any]) -> SlackPost:
        post = self._find(params)
        if not post.streaming:
            raise SlackRefusal("message_not_in_streaming_state")
        return post

    def _fill(self, post: SlackPost, params: dict[str, Any]) -> None:
        if params.get("thread_ts"):
            _check_ts(params["thread_ts"])
        blocks: list[dict[str, Any]] = params.get("blocks") or []
        if blocks and self.refuse_blocks:
            raise SlackRefusal("invalid_blocks")
        if params.get("markdown_text") and (blocks or params.get("text")):
            raise SlackRefusal("markdown_text_conflict")
        fallback = str(params.get("text") or "")
        if len(fallback) > LONGEST_TEXT:
            raise SlackRefusal("msg_too_long")
        text, buttons = _read_blocks(blocks)
        post.text = text or _read_markdown(params) or fallback
        if not post.text.strip():
            raise SlackRefusal("no_text")
        post.buttons = buttons
        post.metadata = _check_metadata(params.get("metadata"))


def build_post(envelope: dict[str, Any], *, retry: int = 0, at: int | None = None) -> WebhookRequest:
    """Build the signed post of an envelope, as the Events API sends it."""
    if envelope["type"] == "events_api":
        body, mime = json.dumps(envelope["payload"]).encode(), "application/json"
    elif envelope["type"] == "interactive":
        body = urlencode({"payload": json.dumps(envelope["payload"])}).encode()
        mime = "application/x-www-form-urlencoded"
    else:
        body = urlencode(envelope["payload"]).encode()
        mime = "application/x-www-form-urlencoded"
    stamp = str(at if at is not None else int(time.time()))
    headers = {
        "content-type": mime,
        "x-slack-request-timestamp": stamp,
        "x-slack-signature": sign(SIGNING_SECRET, stamp, body),
    }
    if retry:
        headers |= {"x-slack-retry-num": str(retry), "x-slack-retry-reason": "http_timeout"}
    return WebhookRequest(headers=headers, body=body)


def _show(post: SlackPost, *, metadata: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": "message",
        "channel": post.channel,
        "user": BOT_USER,
        "bot_id": BOT_ID,
        "app_id": "A1",
        "text": re.sub(r"[*_`]", "", post.text),
        "ts": post.ts,
    }
    if post.thread:
        shown["thread_ts"] = post.thread
    if metadata and post.metadata:
        shown["metadata"] = post.metadata
    if post.tasks and not post.text:
        shown["blocks"] = [{"type": "task_card"} for _ in post.tasks]
    if post.files:
        shown["files"] = [{"id": "F1", "name": "file"}]
    return shown


def _extend_stream(post: SlackPost, params: dict[str, Any]) -> None:
    """Append text or chunks, in the mode of the stream."""
    chunks: list[dict[str, Any]] = params.get("chunks") or []
    text = _read_markdown(params)
    if chunks and text:
        raise SlackRefusal("cannot_provide_both_markdown_text_and_chunks")
    if chunks or text:
        if post.in_chunks not in (None, bool(chunks)):
            raise SlackRefusal("streaming_mode_mismatch")
        post.in_chunks = bool(chunks)
    for chunk in chunks:
        match chunk:
            case {"type": "markdown_text", "text": str(said), **rest} if said and not rest:
                text += said
            case {"type": "task_update", "id": str(id_), "title": str(title), "status": status, **rest}:
                known = status in ("pending", "in_progress", "complete", "error")
                if not known or not id_ or not 0 < len(title) <= 256 or set(rest) - {"details", "output"}:
                    raise SlackRefusal("invalid_arguments")
                # A task of the same id is replaced.
                post.tasks.pop(post.task_ids.get(id_, ""), None)
                post.task_ids[id_] = title
                post.tasks[title] = status
            case {"type": "blocks", **rest} if set(rest) == {"blocks"} and rest["blocks"]:
                post.buttons |= _read_blocks(rest["blocks"])[1]
            case _:
                raise SlackRefusal("invalid_arguments")
    if len(post.text) + len(text) > LONGEST_MARKDOWN:
        raise SlackRefusal("msg_too_long")
    post.text += text


def _read_markdown(params: dict[str, Any]) -> str:
    text = params.get("markdown_text") or ""
    if not isinstance(text, str):
        raise SlackRefusal("invalid_arguments")
    if len(text) > LONGEST_MARKDOWN:
        raise SlackRefusal("msg_too_long")
    return text


def _read_blocks(blocks: list[dict[str, Any]]) -> tuple[str, dict[str, str]]:
    text, buttons, ids = "", dict[str, str](), set[str]()
    for block in blocks:
        if block["type"] == "markdown" and set(block) == {"type", "text"} and block["text"]:
            text += block["text"]
        elif block["type"] == "actions" and 1 <= len(block["elements"]) <= 25:
            for element in block["elements"]:
                label = element["text"]
                if (
                    element["type"] != "button"
                    or label["type"] != "plain_text"
                    or element["action_id"] in ids
                ):
                    raise SlackRefusal("invalid_blocks")
                if len(label["text"]) > LONGEST_LABEL or len(element["value"]) > 2000:
                    raise SlackRefusal("invalid_blocks")
                ids.add(element["action_id"])
                buttons[label["text"]] = element["value"]
        else:
            raise SlackRefusal("invalid_blocks")
    if len(text) > LONGEST_MARKDOWN:
        raise SlackRefusal("msg_blocks_too_long")
    return text, buttons


def _check_metadata(metadata: Any) -> dict[str, Any] | None:
    if metadata is None:
        return None
    if set(metadata) != {"event_type", "event_payload"} or not isinstance(metadata["event_payload"], dict):
        raise SlackRefusal("invalid_metadata_schema")
    return metadata


def _check_ts(ts: Any) -> None:
    if not isinstance(ts, str) or not _TS.match(ts):
        raise SlackRefusal("invalid_thread_ts")


def _ok(answer: dict[str, Any]) -> WireResponse:
    return json_response({"ok": True, **answer})


def _limit(seconds: int) -> WireResponse:
    body = json.dumps({"ok": False, "error": "ratelimited"}).encode()
    return WireResponse(429, body, {"retry-after": str(seconds), "content-type": "application/json"})
