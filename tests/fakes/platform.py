"""A chat platform on loopback, with knobs for its faults, and the adapter that speaks to it.

The server answers like a long-polling bot API: an update is confirmed by asking for a higher offset. It lives in the
test's process, so it sees what a person would see, whatever happens to the hub.
"""

import asyncio
import json
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Self

import httpx
from tests.fakes.loopback import Loopback, Request, Response, as_json

from keryx.core.deliveries import REPEAT_MARK, Idempotency, Target
from keryx.core.errors import NotSent, Refused, Throttled, Uncertain
from keryx.core.messages import text_parts
from keryx.core.ports.adapter import (
    AdapterContext,
    Capabilities,
    InboundMessage,
    LinkState,
    OutgoingPart,
    RenderedPart,
)
from keryx.core.source import Source
from keryx.testing.fault_injection import PlatformFaults

PLATFORM = "fake"
BETWEEN_PARTS = " // "
_POLL_SECONDS = 1.0


@dataclass(slots=True)
class Shown:
    """A message that a person sees in a chat."""

    chat: str
    text: str
    key: str


@dataclass
class Platform:
    faults: PlatformFaults = field(default_factory=PlatformFaults)
    seed: int = 0
    idempotent: bool = False

    def __post_init__(self) -> None:
        self.shown: list[Shown] = []
        self.updates: list[dict[str, Any]] = []
        self._random = random.Random(self.seed)
        self._lock = threading.Condition()
        self._server = Loopback(self._handle)

    @property
    def url(self) -> str:
        return self._server.url

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def say(self, chat: str, text: str, *, user: str = "ann") -> None:
        """A person writes into a chat."""
        with self._lock:
            self.updates.append({"id": len(self.updates) + 1, "chat": chat, "user": user, "text": text})
            self._lock.notify_all()

    def texts(self, chat: str) -> list[str]:
        with self._lock:
            return [s.text for s in self.shown if s.chat == chat]

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition over what is shown holds."""
        with self._lock:
            return self._lock.wait_for(condition, seconds)

    def _poll(self, offset: int) -> list[dict[str, Any]]:
        with self._lock:
            self._lock.wait_for(lambda: len(self.updates) >= offset, _POLL_SECONDS)
            fresh = self.updates[offset - 1 : offset + 99]
            given = [
                u for u in fresh for _ in range(2 if self._random.random() < self.faults.duplicate else 1)
            ]
            if self._random.random() < self.faults.reorder:
                self._random.shuffle(given)
            return given

    def _accept(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """The answer to a send, or `None` for a connection that breaks after the message was accepted."""
        with self._lock:
            roll = self._random.random()
            if roll < self.faults.throttle:
                return 429, {"retry_after": self.faults.retry_after}
            if roll < self.faults.throttle + self.faults.broken:
                return 503, {}
            known = next(
                (n for n, s in enumerate(self.shown) if self.idempotent and s.key == body["key"]), None
            )
            if known is None:
                self.shown.append(Shown(body["chat"], body["text"], body["key"]))
                self._lock.notify_all()
            if self._random.random() < self.faults.lost_reply:
                return None
            return 200, {"id": len(self.shown) if known is None else known + 1}

    def _handle(self, request: Request) -> Response | None:
        if request.method == "GET":
            found = as_json(self._poll(int(request.query["offset"])))
            return replace(found, torn=self._random.random() < self.faults.torn)
        answer = self._accept(json.loads(request.body))
        return as_json(answer[1], answer[0]) if answer else None


class PlatformAdapter:
    """Speaks to a `Platform`. `offset` moves only with the commit."""

    platform = PLATFORM
    account = ""
    hook = None

    def __init__(self, url: str, *, native: bool = False) -> None:
        self._url = url
        self.capabilities = Capabilities(idempotency=Idempotency.NATIVE if native else Idempotency.NONE)
        self._client = httpx.AsyncClient(base_url=url, timeout=httpx.Timeout(10, connect=5))

    async def close(self) -> None:
        await self._client.aclose()

    async def typing(self, target: Target) -> None:
        """The platform shows nothing of the kind."""

    async def listen(self, context: AdapterContext) -> None:
        offset = int(context.cursor or "1")
        while True:
            try:
                answer = await self._client.get("/", params={"offset": offset})
            except httpx.HTTPError:
                context.report(LinkState.CONNECTING)
                await asyncio.sleep(0.1)
                continue
            context.report(LinkState.CONNECTED)
            for update in sorted(answer.json(), key=lambda update: update["id"]):
                offset = max(offset, update["id"] + 1)
                await context.receive(self._inbound(update, offset))

    def _inbound(self, update: dict[str, Any], offset: int) -> InboundMessage:
        chat = str(update["chat"])
        return InboundMessage(
            event=str(update["id"]),
            source=Source(platform=PLATFORM, chat=chat, user=str(update["user"]), message=str(update["id"])),
            parts=text_parts(str(update["text"])),
            surface="gateway",
            reply=Target(PLATFORM, chat=chat, reply_to=str(update["id"])),
            cursor=str(offset),
        )

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return [RenderedPart(part) for part in text.split(BETWEEN_PARTS)]

    async def send(self, part: OutgoingPart) -> str:
        text = (REPEAT_MARK if part.again else "") + part.text
        body = {"chat": part.target.chat, "text": text, "key": part.key}
        try:
            answer = await self._client.post("/", content=json.dumps(body))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as exc:
            raise NotSent(f"the platform cannot be reached: {exc}") from exc
        except httpx.HTTPError as exc:
            raise Uncertain(f"the platform broke the connection: {exc}") from exc
        match answer.status_code:
            case 200:
                return str(answer.json()["id"])
            case 429:
                raise Throttled("slow down", after=timedelta(seconds=answer.json()["retry_after"]))
            case status if status >= 500:
                raise NotSent(f"the platform answered {status} and took nothing")
            case status:
                raise Refused(f"the platform refused: {status}")
