"""A chat platform on loopback that injects faults, and the adapters that speak to it: one as most platforms need it, and one for each feature of the port that no adapter of the product has.

The server answers like a long-polling bot API: an update is acknowledged by asking for a higher offset. It lives in the
test's process, so it shows what a person sees, whatever happens to the hub.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import msgspec

from keryx.core.deliveries import REPEAT_MARK, Idempotency, ReplyContext, Target
from keryx.core.errors import Held, KeryxError, MessageGone, NotSent, Refused, Throttled, Uncertain
from keryx.core.messages import text_parts
from keryx.core.ports.adapter import (
    AdapterContext,
    Capabilities,
    InboundDeletion,
    InboundEvent,
    InboundMessage,
    InboundReaction,
    LinkState,
    OutgoingPart,
    RenderedPart,
    Streaming,
    Webhook,
    WebhookRequest,
    WebhookResponse,
)
from keryx.core.source import Source
from keryx.testing.wire import WireFake, WireRequest, WireResponse, json_response

PLATFORM = "fake"
BETWEEN_PARTS = " // "
CHALLENGE_TOKEN = "verify-me"
_POLL_SECONDS = 1.0
_LIMIT = 1_000_000
HandleHook = Callable[[WebhookRequest], Awaitable[WebhookResponse]]


@dataclass(slots=True)
class Shown:
    """A message that a person sees in a chat."""

    chat: str
    text: str
    key: str
    # Text can be appended.
    open: bool = False


@dataclass
class Platform(WireFake):
    # A repeated key is recognised.
    idempotent: bool = False
    # Each update is handed over once, acknowledged or not.
    forgets: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shown: list[Shown] = []
        self.updates: list[dict[str, Any]] = []
        # Chats whose reply window is closed.
        self.closed: set[str] = set()
        # The messages that the account has reacted to.
        self.reactions: list[str] = []
        self._handed = 0

    def say(self, chat: str, text: str, *, user: str = "ann", **more: Any) -> None:
        """A person writes into a chat. `more` are further fields of the update."""
        with self.lock:
            self.closed.discard(chat)
            update = {"id": len(self.updates) + 1, "chat": chat, "user": user, "text": text, **more}
            self.updates.append(update)
            self.lock.notify_all()

    def edit(self, chat: str, text: str) -> None:
        """A person changes their last message."""
        self.say(chat, text, edits=self._last_message(chat))

    def delete(self, chat: str) -> None:
        """A person deletes their last message."""
        self.say(chat, "", deletes=self._last_message(chat))

    def react(self, chat: str, emoji: str) -> None:
        """A person reacts to their last message."""
        self.say(chat, "", reaction=emoji, reacts_to=self._last_message(chat))

    def texts(self, chat: str) -> list[str]:
        with self.lock:
            return [s.text for s in self.shown if s.chat == chat]

    def count_open(self, chat: str) -> int:
        with self.lock:
            return sum(s.open for s in self.shown if s.chat == chat)

    async def post_updates(self, handle: HandleHook) -> None:
        """Post the updates to a hook until cancelled, each again until the response says that it was received."""
        acknowledged: set[int] = set()
        while True:
            with self.lock:
                waiting = [u for u in self.updates if u["id"] not in acknowledged]
            for update in self.inject_event_faults(waiting):
                try:
                    response = await handle(WebhookRequest(headers={}, body=json.dumps(update).encode()))
                except KeryxError:
                    break
                if response.status == 200 and not self.roll(self.faults.torn):
                    acknowledged.add(update["id"])
            await asyncio.sleep(0.01)

    def handle(self, request: WireRequest) -> WireResponse | None:
        if request.path == "/sent":
            return self._find(request.query["key"])
        if request.method == "GET":
            return self.tear(json_response(self._poll(int(request.query["offset"]))))
        body = json.loads(request.body)
        if request.path == "/reactions":
            self.reactions.append(str(body["message"]))
            return json_response({})
        with self.lock:
            return self.accept_send(
                lambda: self._change(body) if body.get("edits") else self._accept(body),
                throttled=json_response({"retry_after": self.faults.retry_after}, 429),
                broken=json_response({}, 503),
            )

    def _last_message(self, chat: str) -> int:
        told = {"edits", "deletes", "reaction"}
        return next(u["id"] for u in reversed(self.updates) if u["chat"] == chat and not told & set(u))

    def _poll(self, offset: int) -> list[dict[str, Any]]:
        with self.lock:
            first = max(offset, self._handed + 1) if self.forgets else offset
            self.lock.wait_for(lambda: len(self.updates) >= first, _POLL_SECONDS)
            fresh = self.updates[first - 1 : first + 99]
            self._handed = max([self._handed, *(u["id"] for u in fresh)])
            return self.inject_event_faults(fresh)

    def _find(self, key: str) -> WireResponse:
        with self.lock:
            found = [number for number, shown in enumerate(self.shown, 1) if shown.key == key]
        return json_response({"ids": found})

    def _accept(self, body: dict[str, Any]) -> WireResponse:
        if body["chat"] in self.closed:
            return json_response({"error": "the person has to write first"}, 403)
        known = next((n for n, s in enumerate(self.shown) if self.idempotent and s.key == body["key"]), None)
        if known is None:
            self.shown.append(Shown(body["chat"], body["text"], body["key"], body.get("open", False)))
            self.lock.notify_all()
        return json_response({"id": len(self.shown) if known is None else known + 1})

    def _change(self, body: dict[str, Any]) -> WireResponse:
        """Append to an open message, close it, or replace the text of a closed one."""
        number = int(body["edits"])
        if number > len(self.shown):
            return json_response({}, 404)
        shown = self.shown[number - 1]
        if shown.open == ("text" in body):
            return json_response({"error": "append to an open message, replace a closed one"}, 409)
        shown.text = body["text"] if "text" in body else shown.text + body.get("append", "")
        shown.open = shown.open and not body.get("close", False)
        self.lock.notify_all()
        return json_response({"id": number})


class PlatformAdapter:
    """Polls a `Platform`. The offset moves only with the commit of an event."""

    platform = PLATFORM
    account = ""
    hook: Webhook | None = None

    def __init__(self, url: str, *, native: bool = False) -> None:
        idempotency = Idempotency.NATIVE if native else Idempotency.NONE
        self.capabilities = Capabilities(idempotency=idempotency, limit=_LIMIT)
        self._client = httpx.AsyncClient(base_url=url, timeout=httpx.Timeout(10, connect=5), verify=False)

    async def close(self) -> None:
        await self._client.aclose()

    async def typing(self, target: Target) -> None:
        """Do nothing: the platform cannot show it."""

    async def listen(self, context: AdapterContext) -> None:
        offset = int(context.cursor or "1")
        while True:
            for update in await self._poll(context, offset):
                offset = max(offset, update["id"] + 1)
                await context.receive(self._parse(update, str(offset)))

    def _parse(self, update: dict[str, Any], cursor: str) -> InboundEvent:
        return parse(update, cursor=cursor)

    async def _poll(self, context: AdapterContext, offset: int) -> list[dict[str, Any]]:
        try:
            answer = await self._client.get("/", params={"offset": offset})
        except httpx.HTTPError:
            context.report(LinkState.CONNECTING)
            await asyncio.sleep(0.1)
            return []
        context.report(LinkState.CONNECTED)
        return sorted(answer.json(), key=lambda update: update["id"])

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return [RenderedPart(part) for part in text.split(BETWEEN_PARTS)]

    async def send(self, part: OutgoingPart) -> str:
        text = (REPEAT_MARK if part.again else "") + part.text
        return await self._post({"chat": part.target.chat, "text": text, "key": part.key})

    async def _post(self, body: Mapping[str, object]) -> str:
        """Send a message or a change of one, and return its id."""
        answer = await self._request("POST", "/", content=json.dumps(body))
        match answer.status_code:
            case 200:
                try:
                    return str(answer.json()["id"])
                except ValueError as exc:
                    raise Uncertain("something else than the platform has answered") from exc
            case 403:
                raise Held(answer.json()["error"])
            case 404:
                raise MessageGone("the platform does not know the message")
            case 429:
                raise Throttled("slow down", after=timedelta(seconds=answer.json()["retry_after"]))
            case status if status >= 500:
                raise NotSent(f"the platform answered {status} and took nothing")
            case status:
                raise Refused(f"the platform refused: {status}")

    async def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return await self._client.request(method, path, **options)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as exc:
            raise NotSent(f"the platform cannot be reached: {exc}") from exc
        except httpx.HTTPError as exc:
            raise Uncertain(f"the platform broke the connection: {exc}") from exc


def parse(
    update: dict[str, Any], *, cursor: str | None = None, state: Mapping[str, str] = {}
) -> InboundEvent:
    chat, number = str(update["chat"]), str(update["id"])
    source = Source(platform=PLATFORM, chat=chat, user=str(update["user"]), message=number)
    if "deletes" in update:
        return InboundDeletion(
            event=number, source=source, message_event=str(update["deletes"]), cursor=cursor, state=state
        )
    if "reaction" in update:
        return InboundReaction(
            event=number,
            source=source,
            message=str(update["reacts_to"]),
            message_event=str(update["reacts_to"]),
            reaction=str(update["reaction"]),
            cursor=cursor,
            state=state,
        )
    return InboundMessage(
        event=number,
        source=source,
        parts=text_parts(str(update["text"])),
        surface="gateway",
        reply=Target(PLATFORM, chat=chat, reply_to=number),
        edits=str(update["edits"]) if "edits" in update else None,
        cursor=cursor,
        state=state,
    )


class AppendingAdapter(PlatformAdapter):
    """Shows an answer while it is written as a stream: the message is opened, grows, and is closed."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.capabilities = Capabilities(edit=True, streaming=Streaming.APPEND, max_edits=20, limit=_LIMIT)

    async def send(self, part: OutgoingPart) -> str:
        if not part.edits:
            text = (REPEAT_MARK if part.again else "") + part.text
            return await self._post(
                {"chat": part.target.chat, "text": text, "key": part.key, "open": not part.final}
            )
        if not part.final:
            return await self._post({"edits": part.edits, "append": part.text[len(part.shown) :]})
        try:
            await self._post({"edits": part.edits, "close": True})
        except Refused:
            # It is closed already: this is a repetition, or the message was never open.
            pass
        return await self._post({"edits": part.edits, "text": part.text})


class ReconcilingAdapter(PlatformAdapter):
    """Chooses its own keys, and finds a message by its key."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.capabilities = Capabilities(idempotency=Idempotency.RECONCILE, limit=_LIMIT)

    def create_send_key(self, part: OutgoingPart) -> str:
        return uuid4().hex

    async def find_sent(self, part: OutgoingPart) -> str | None:
        found = (await self._request("GET", "/sent", params={"key": part.key})).json()["ids"]
        return str(found[0]) if found else None


class WindowAdapter(PlatformAdapter):
    """A person has to write first, and each message brings a token for its answer."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.capabilities = Capabilities(reply_window=timedelta(hours=24), limit=_LIMIT)

    def _parse(self, update: dict[str, Any], cursor: str) -> InboundEvent:
        event = super()._parse(update, cursor)
        if not isinstance(event, InboundMessage) or event.reply is None:
            return event
        token = ReplyContext(f"token-{event.event}", datetime.now(UTC) + timedelta(minutes=15))
        return msgspec.structs.replace(event, reply=msgspec.structs.replace(event.reply, reply_context=token))


class SpoolingAdapter(PlatformAdapter):
    """For a platform that forgets what it has handed over: updates are spooled before they are passed on."""

    async def listen(self, context: AdapterContext) -> None:
        spooled: list[dict[str, Any]] = json.loads(await context.load_state("spool") or "[]")
        while True:
            while spooled:
                rest = json.dumps(spooled[1:])
                await context.receive(parse(spooled[0], state={"spool": rest}))
                spooled = spooled[1:]
            spooled = await self._poll(context, 1)
            if spooled:
                await context.save_state("spool", json.dumps(spooled))


class HookAdapter(PlatformAdapter):
    """Is posted to. The platform verifies the hook with a challenge. The answer is announced with a reaction."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.capabilities = Capabilities(reactions=True, limit=_LIMIT)
        self.hook = Webhook(path=PLATFORM, handle=self._handle, methods=("GET", "POST"))
        self._context: AdapterContext | None = None

    async def listen(self, context: AdapterContext) -> None:
        self._context = context
        context.report(LinkState.CONNECTED)
        try:
            await asyncio.Event().wait()
        finally:
            self._context = None

    async def react(self, target: Target) -> None:
        await self._request("POST", "/reactions", content=json.dumps({"message": target.reply_to}))

    async def _handle(self, request: WebhookRequest) -> WebhookResponse:
        if request.method == "GET":
            if request.query.get("token") != CHALLENGE_TOKEN:
                return WebhookResponse(status=403)
            return WebhookResponse(body=request.query["challenge"].encode())
        if self._context is None:
            return WebhookResponse(status=503)
        receipt = await self._context.receive(parse(json.loads(request.body)))
        return WebhookResponse(body=(receipt.reply or "").encode())
