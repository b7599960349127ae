"""The gateway session of one bot: sign-in, resumption, heartbeats and close codes. Hands over dispatched events with the position after each."""

import json
import logging
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import IntEnum
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from keryx.core.errors import Forbidden, Unavailable
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.discord.gateway_position import GatewayPosition
from keryx.surfaces.gateway.discord.payloads import GatewayFrame, HelloEvent, ReadyEvent
from keryx.surfaces.gateway.discord.rest_api import BAD_TOKEN, DiscordApi
from keryx.surfaces.gateway.websocket import Websocket

log = logging.getLogger(__name__)

_MAX_RESUME_ATTEMPTS = 3
_QUERY = "?v=10&encoding=json"


class _Opcode(IntEnum):
    DISPATCH = 0
    HEARTBEAT = 1
    IDENTIFY = 2
    RESUME = 6
    RECONNECT = 7
    INVALID_SESSION = 9
    HELLO = 10
    HEARTBEAT_ACK = 11


GUILDS = 1 << 0
GUILD_MESSAGES = 1 << 9
GUILD_MESSAGE_REACTIONS = 1 << 10
DIRECT_MESSAGES = 1 << 12
DIRECT_MESSAGE_REACTIONS = 1 << 13
MESSAGE_CONTENT = 1 << 15
INTENTS = GUILDS | GUILD_MESSAGES | GUILD_MESSAGE_REACTIONS | DIRECT_MESSAGES | DIRECT_MESSAGE_REACTIONS

MISSING_INTENT = Phrase("connect.discord_no_intent")
_FINAL_CODES = {
    4004: BAD_TOKEN,
    4010: "Discord refuses the shard of this bot: Keryx connects without shards, so this is an error of Keryx",
    4011: "this bot is in too many servers for one connection, and Keryx does not shard: use a bot of its own for Keryx",
    4012: "Discord no longer offers version 10 of its gateway: update Keryx",
    4013: "Discord does not know an intent that Keryx asks for: update Keryx",
    4014: MISSING_INTENT,
}
# The session cannot be resumed after these. Discord ends a session with 1000 and 1001, too.
_NEW_SESSION_CODES = frozenset({1000, 1001, 4003, 4005, 4007, 4009})


class Dispatch(NamedTuple):
    """An event, and the session that it belongs to."""

    kind: str
    data: Any
    session: str
    url: str
    seq: int


class GatewaySession:
    """Implements `WebsocketListener`. `dispatch` gets every event in order; a resume continues behind the last one that it
    got."""

    def __init__(
        self,
        api: DiscordApi,
        token: str,
        *,
        intents: int,
        position: GatewayPosition,
        dispatch: Callable[[Dispatch], Awaitable[None]],
        gateway_url: str = "",
    ) -> None:
        self._api = api
        self._token = token
        self._intents = intents
        self._dispatch = dispatch
        self._gateway_url = gateway_url
        self._session = position.session
        self._resume_url = position.url
        self._seq: int | None = position.seq if position.session else None
        # Connections since Discord has accepted one.
        self._attempts = 0

    async def find_url(self) -> str:
        """Return the address that belongs to the session, and after some failures the one that Discord names now."""
        self._attempts += 1
        if self._session and self._resume_url and self._attempts <= _MAX_RESUME_ATTEMPTS:
            return _build_url(self._resume_url)
        info = await self._api.find_gateway()
        starts = info.session_start_limit
        if not self._session and starts.remaining <= 0:
            # Discord resets the token of a bot that goes on.
            raise Unavailable(
                f"Discord allows no more sign-ins of this bot for {timedelta(milliseconds=starts.reset_after)}"
            )
        return _build_url(self._gateway_url or info.url)

    async def opened(self, socket: Websocket) -> None:
        """Wait: Discord speaks first."""

    async def receive(self, socket: Websocket, frame: str | bytes) -> None:
        try:
            found = msgspec.json.decode(frame, type=GatewayFrame)
        except (msgspec.DecodeError, RecursionError):
            log.warning("Discord sent a frame that cannot be read: it is left out")
            return
        match found.op:
            case _Opcode.DISPATCH:
                await self._receive_event(socket, found)
            case _Opcode.HEARTBEAT:
                await socket.send(self._build_heartbeat())
            case _Opcode.RECONNECT:
                raise Unavailable("Discord asks to connect again")
            case _Opcode.INVALID_SESSION:
                if found.d is not True:
                    self._drop_session()
                raise Unavailable("Discord does not know the session any more")
            case _Opcode.HELLO:
                await self._begin(socket, found)
            case _Opcode.HEARTBEAT_ACK:
                socket.answer_heartbeat()
            case _:
                # Other operations are for voice and for presence.
                return

    def closed(self, code: int, reason: str) -> None:
        if code in _FINAL_CODES:
            self._drop_session()
            raise Forbidden(_FINAL_CODES[code])
        if code in _NEW_SESSION_CODES:
            self._drop_session()

    def _drop_session(self) -> None:
        self._session, self._resume_url, self._seq = "", "", None

    async def _begin(self, socket: Websocket, frame: GatewayFrame) -> None:
        """Start the heartbeat, and resume the session or sign in."""
        try:
            hello = msgspec.convert(frame.d, HelloEvent)
        except msgspec.ValidationError:
            raise Unavailable("Discord sent a greeting that cannot be read") from None
        socket.start_heartbeat(timedelta(milliseconds=hello.heartbeat_interval), self._build_heartbeat)
        if self._session:
            resume = {"token": self._token, "session_id": self._session, "seq": self._seq or 0}
            await socket.send(json.dumps({"op": _Opcode.RESUME, "d": resume}))
            return
        properties = {"os": sys.platform, "browser": "keryx", "device": "keryx"}
        identify = {"token": self._token, "intents": self._intents, "properties": properties}
        await socket.send(json.dumps({"op": _Opcode.IDENTIFY, "d": identify}))

    async def _receive_event(self, socket: Websocket, frame: GatewayFrame) -> None:
        if frame.s is None or frame.t is None:
            return
        if frame.t == "READY":
            try:
                ready = msgspec.convert(frame.d, ReadyEvent)
            except msgspec.ValidationError:
                raise Unavailable("Discord's reply to the sign-in cannot be read") from None
            self._session, self._resume_url, self._seq = ready.session_id, ready.resume_gateway_url, frame.s
        elif self._seq is not None and frame.s <= self._seq:
            # A frame that was handed over twice.
            return
        await self._dispatch(Dispatch(frame.t, frame.d, self._session, self._resume_url, frame.s))
        self._seq = frame.s
        if frame.t in ("READY", "RESUMED"):
            self._attempts = 0
            socket.confirm()

    def _build_heartbeat(self) -> str:
        return json.dumps({"op": _Opcode.HEARTBEAT, "d": self._seq})


def _build_url(url: str) -> str:
    parts = urlsplit(url)
    path = parts.path or "/"
    return f"{parts.scheme}://{parts.netloc}{path}{_QUERY}"
