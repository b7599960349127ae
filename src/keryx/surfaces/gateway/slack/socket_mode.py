"""Socket Mode: Slack hands over events by websockets, one at a time, and each is acknowledged when it is stored. When Slack announces the end of a connection, the next one is open before that."""

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any

import anyio
import msgspec

from keryx.core.errors import Forbidden, KeryxError, Unavailable
from keryx.core.ports.adapter import AdapterContext, LinkState
from keryx.core.texts import Phrase
from keryx.surfaces.gateway import websocket
from keryx.surfaces.gateway.slack.event_receiver import SlackReceiver, WorkspaceUnknown
from keryx.surfaces.gateway.slack.payloads import EnvelopePayload
from keryx.surfaces.gateway.slack.web_api import (
    SlackApi,
    SlackApiError,
    SlackNoResponse,
    SlackUnreachable,
    check_access,
)
from keryx.surfaces.gateway.websocket import Websocket
from keryx.timing import Sleep

log = logging.getLogger(__name__)

SOCKET_MODE_OFF = (
    "Socket Mode is off for this app: switch it on at the page Socket Mode of the app, or set slack.mode"
)
BAD_APP_TOKEN = Phrase("connect.slack_bad_app_token")
# A slash command is shown to the chat that its reply goes to.
COMMAND_RESPONSE = {"response_type": "in_channel"}
_MAX_CONNECTIONS = 10
# The reasons that announce that Slack closes a connection within some seconds.
_REFRESH_REASONS = frozenset({"warning", "refresh_requested"})


class _ConnectionReplaced(KeryxError):
    """The connection has ended, and another one was opened in its place."""


class SocketMode:
    """The connections of one account: one, and a second one for a moment while the first is replaced."""

    def __init__(
        self, api: SlackApi, app_token: str, context: AdapterContext, receiver: SlackReceiver, sleep: Sleep
    ) -> None:
        self._api = api
        self._app_token = app_token
        self._context = context
        self._receiver = receiver
        self._sleep = sleep
        self._replace = asyncio.Event()
        # How many connections this process keeps.
        self._chains = 0
        self._detail = ""

    async def run(self) -> None:
        """Receive until cancelled. Raise `Forbidden` if Slack refuses the credentials."""
        connections = {self._connect()}
        try:
            while True:
                self._replace.clear()
                waiting = asyncio.ensure_future(self._replace.wait())
                done, _ = await asyncio.wait({*connections, waiting}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                for task in connections & done:
                    connections.discard(task)
                    self._chains -= 1
                    with suppress(_ConnectionReplaced):
                        task.result()
                if self._replace.is_set():
                    connections.add(self._connect())
        finally:
            for task in connections:
                task.cancel()
            # The connections close before the adapter does.
            with anyio.CancelScope(shield=True):
                await asyncio.gather(*connections, return_exceptions=True)

    async def find_url(self) -> str:
        """Return the address of a new connection. It contains a ticket that is valid once."""
        try:
            answer = await self._api.call_as(self._app_token, "apps.connections.open")
        except SlackApiError as exc:
            if exc.code == "invalid_auth":
                raise Forbidden(BAD_APP_TOKEN) from None
            check_access(exc)
            if exc.retry_after is not None:
                self.report(LinkState.THROTTLED, f"Slack asks to wait {exc.retry_after.total_seconds():g} s")
                await self._sleep(exc.retry_after.total_seconds())
            raise Unavailable(str(exc)) from None
        except (SlackUnreachable, SlackNoResponse) as exc:
            raise Unavailable(str(exc)) from None
        return str(answer.get("url") or "")

    async def handle(self, envelope: EnvelopePayload) -> dict[str, Any]:
        """Store what an envelope contains and return its acknowledgement."""
        payload, answer = bytes(envelope.payload), {"envelope_id": envelope.envelope_id}
        match envelope.type:
            case "events_api":
                await self._receiver.receive_event(payload)
            case "interactive":
                await self._receiver.receive_press(payload)
            case "slash_commands":
                await self._receiver.receive_command(payload)
                if envelope.accepts_response_payload:
                    return {**answer, "payload": COMMAND_RESPONSE}
            case other:
                log.info("an envelope of the type %s is not read", other)
        return answer

    def greet(self, connections: int) -> None:
        """Slack says how many connections the app has. Each event goes to one of them."""
        self._detail = (
            f"{connections} connections of this app were open when this one was made: another program that uses the app gets some of its messages"
            if connections > self._chains
            else ""
        )

    def replace_connection(self) -> None:
        self._replace.set()

    def report(self, link: LinkState, detail: str) -> None:
        # While a connection is replaced, the old one is still there.
        if (link, detail) != (LinkState.CONNECTING, "") or self._chains <= 1:
            self._context.report(link, detail or (self._detail if link is LinkState.CONNECTED else ""))

    def _connect(self) -> asyncio.Task[None]:
        connection = _Connection(self)
        self._chains += 1
        return asyncio.create_task(websocket.listen(connection, report=connection.report, sleep=self._sleep))


class _Connection:
    """One chain of connections, which ends when another one has been opened in its place."""

    def __init__(self, mode: SocketMode) -> None:
        self._mode = mode
        self._replaced = False

    def report(self, link: LinkState, detail: str) -> None:
        if not self._replaced:
            self._mode.report(link, detail)

    async def find_url(self) -> str:
        return await self._mode.find_url()

    async def opened(self, socket: Websocket) -> None:
        """Slack speaks first."""

    async def receive(self, socket: Websocket, frame: str | bytes) -> None:
        try:
            envelope = msgspec.json.decode(frame, type=EnvelopePayload)
        except (msgspec.DecodeError, RecursionError) as exc:
            log.warning("a frame of Slack is left out: %s", exc)
            return
        if envelope.type == "hello":
            self._mode.greet(envelope.num_connections)
            socket.confirm()
        elif envelope.type == "disconnect":
            self._end(envelope.reason)
        elif envelope.envelope_id:
            try:
                answer = await self._mode.handle(envelope)
            except WorkspaceUnknown as exc:
                # Slack hands it over again, perhaps when the account listens.
                log.warning("an event of Slack is not acknowledged: %s", exc)
                return
            await socket.send(json.dumps(answer))

    def closed(self, code: int, reason: str) -> None:
        if self._replaced:
            raise _ConnectionReplaced("the connection was replaced")

    def _end(self, reason: str) -> None:
        if reason in _REFRESH_REASONS:
            # Slack hands over events until it closes the connection.
            if not self._replaced:
                self._replaced = True
                self._mode.replace_connection()
            return
        if reason == "link_disabled":
            raise Forbidden(SOCKET_MODE_OFF)
        if reason == "too_many_websockets":
            raise Unavailable(
                f"Slack allows {_MAX_CONNECTIONS} connections of an app, and that many are open: stop other programs that use it"
            )
        raise Unavailable(f"Slack has closed the connection ({reason or 'no reason is given'})")
