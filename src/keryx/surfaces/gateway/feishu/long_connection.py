"""Feishu's long connection: events come by a websocket in protobuf frames, one at a time, and each is acknowledged when it is stored."""

import asyncio
import base64
import logging
import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from keryx.core.errors import Invalid, Unavailable
from keryx.core.ports.adapter import AdapterContext, LinkState
from keryx.surfaces.gateway import websocket
from keryx.surfaces.gateway.feishu.connection_frame import (
    ConnectionFrame,
    FragmentJoiner,
    FrameMethod,
    decode_frame,
    encode_frame,
)
from keryx.surfaces.gateway.feishu.event_receiver import FeishuReceiver
from keryx.surfaces.gateway.feishu.open_api import (
    CONNECTION_LIMIT,
    FeishuApi,
    FeishuApiError,
    FeishuNoResponse,
    FeishuUnreachable,
    check_access,
    encode_json,
)
from keryx.surfaces.gateway.feishu.payloads import ConnectionConfig
from keryx.surfaces.gateway.websocket import Websocket
from keryx.timing import Sleep

log = logging.getLogger(__name__)

TOO_MANY_CONNECTIONS = (
    "Feishu allows 50 long connections of an app, and that many are open: stop other programs that use it"
)
_OK, _FAILED = 200, 500
_MAX_PING_SECONDS = 600
_MAX_PAUSE_SECONDS = 600


class LongConnection:
    """Keeps one connection of an app open."""

    def __init__(
        self,
        api: FeishuApi,
        context: AdapterContext,
        receiver: FeishuReceiver,
        *,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._context = context
        self._receiver = receiver
        self._sleep = sleep
        self._now = now
        self._chance = chance
        # What the platform wants is not known before the first connection.
        self._config = ConnectionConfig(reconnect_nonce=0, reconnect_interval=0)
        self._joiner = FragmentJoiner(now)
        self._service = 0
        # How long to wait before the next attempt to connect, besides the back-off.
        self._pause_seconds = 0.0

    async def run(self) -> None:
        """Receive until cancelled. Raise `Forbidden` if Feishu refuses the credentials."""
        await websocket.listen(self, report=self._context.report, sleep=self._sleep)

    async def find_url(self) -> str:
        if self._pause_seconds > 0:
            await self._sleep(min(self._pause_seconds, _MAX_PAUSE_SECONDS))
        # If this attempt fails.
        self._pause_seconds = self._config.reconnect_interval
        try:
            endpoint = await self._api.open_connection()
        except FeishuApiError as exc:
            if exc.code == CONNECTION_LIMIT:
                raise Unavailable(TOO_MANY_CONNECTIONS) from None
            check_access(exc)
            if exc.retry_after is not None:
                self._context.report(LinkState.THROTTLED, str(exc))
                await self._sleep(exc.retry_after.total_seconds())
            raise Unavailable(str(exc)) from None
        except FeishuUnreachable as exc:
            self._pause_seconds = 0.0
            raise Unavailable(str(exc)) from None
        except FeishuNoResponse as exc:
            raise Unavailable(str(exc)) from None
        self._config = endpoint.config or self._config
        # Pings carry the number of the service, which is in the address.
        try:
            parts = urlsplit(endpoint.url)
            service = parse_qs(parts.query).get("service_id", ["0"])[0]
        except ValueError:
            raise Unavailable("Feishu names an address that cannot be read") from None
        if parts.scheme not in ("ws", "wss"):
            raise Unavailable("Feishu names an address that is not that of a websocket")
        self._service = int(service) if service.isascii() and service.isdigit() and len(service) < 10 else 0
        return endpoint.url

    async def opened(self, socket: Websocket) -> None:
        """Ask for a sign of life at once: Feishu does not speak first."""
        socket.confirm()
        await socket.send(self._build_ping())
        self._start_heartbeat(socket)

    async def receive(self, socket: Websocket, frame: str | bytes) -> None:
        try:
            found = decode_frame(frame.encode() if isinstance(frame, str) else frame)
            if found.method == FrameMethod.CONTROL:
                self._receive_control(socket, found)
                return
            payload = self._joiner.join(found)
        except Invalid as exc:
            log.warning("a frame of Feishu is left out: %s", exc)
            return
        if payload is None or found.method != FrameMethod.DATA:
            return
        await socket.send(encode_frame(await self._answer(found, payload)))

    def closed(self, code: int, reason: str) -> None:
        """Wait a random time before the next connection, on which Feishu hands over again what was not acknowledged."""
        self._pause_seconds = self._config.reconnect_nonce * self._chance()

    async def _answer(self, frame: ConnectionFrame, payload: bytes) -> ConnectionFrame:
        """Store an event and return its acknowledgement."""
        started = self._now()
        answer: dict[str, Any] = {"code": _OK}
        if frame.find_header("type") == "event":
            try:
                shown = await self._receiver.receive(payload)
            except Unavailable as exc:
                # Feishu hands it over again.
                log.warning("an event of Feishu is not acknowledged: %s", exc)
                answer, shown = {"code": _FAILED}, None
            if shown is not None:
                answer["data"] = base64.b64encode(encode_json(shown).encode()).decode()
        spent = ("biz_rt", str(round((self._now() - started) * 1000)))
        return msgspec.structs.replace(
            frame, headers=(*frame.headers, spent), payload=encode_json(answer).encode()
        )

    def _receive_control(self, socket: Websocket, frame: ConnectionFrame) -> None:
        if frame.find_header("type") != "pong":
            return
        socket.answer_heartbeat()
        if not frame.payload:
            return
        try:
            config = msgspec.json.decode(frame.payload, type=ConnectionConfig)
        except (msgspec.DecodeError, RecursionError) as exc:
            log.warning("the settings of a connection to Feishu cannot be read: %s", exc)
            return
        changed = config.ping_interval != self._config.ping_interval
        self._config = config
        if changed:
            self._start_heartbeat(socket)

    def _start_heartbeat(self, socket: Websocket) -> None:
        seconds = min(max(self._config.ping_interval, 1), _MAX_PING_SECONDS)
        socket.start_heartbeat(timedelta(seconds=seconds), self._build_ping)

    def _build_ping(self) -> bytes:
        frame = ConnectionFrame(
            service=self._service, method=FrameMethod.CONTROL, headers=(("type", "ping"),)
        )
        return encode_frame(frame)
