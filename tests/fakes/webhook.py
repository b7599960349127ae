"""The other side of webhooks: a receiver on loopback that checks signatures, and a sender that repeats until it is heard."""

import asyncio
import base64
import hashlib
import hmac
import json
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from keryx.core.errors import KeryxError
from keryx.core.ports import adapter
from keryx.testing.fault_injection import PlatformFaults
from keryx.testing.wire import WireFake, WireRequest, WireResponse, json_response

KEY = b"a secret of thirty-two bytes ..."
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"

Answer = Callable[[adapter.WebhookRequest], Awaitable[adapter.WebhookResponse]]


@dataclass(frozen=True, slots=True)
class Posted:
    """What was posted to us, under its id."""

    id: str
    body: dict[str, Any]


@dataclass
class FakeWebhooks(WireFake):
    """`posts` is what the receiver took; with `idempotent`, each id once. `waiting` is what the sender has to say."""

    idempotent: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.posts: list[Posted] = []
        self.waiting: dict[str, bytes] = {}
        self._said = 0

    @property
    def url(self) -> str:
        return f"{super().url}/answers"

    def set_faults(self, faults: PlatformFaults) -> None:
        # A receiver may answer with any body, so no answer can be told from another one.
        super().set_faults(replace(faults, garbled=0))

    def texts(self, chat: str) -> list[str]:
        with self.lock:
            return [p.body["text"] for p in self.posts if p.body["chat"] == chat]

    def say(self, chat: str, text: str, **more: Any) -> str:
        """A person writes; gives the id of the message."""
        self._said += 1
        message = {"chat": chat, "user": "ann", "text": text, "hologram": {"depth": 3}, **more}
        return self.push(f"msg_{self._said}", json.dumps(message).encode())

    def push(self, id: str, body: bytes) -> str:
        self.waiting[id] = body
        return id

    async def post(self, answer: Answer) -> None:
        """Post what waits, for ever: in order, each again until its answer says that it is taken or wrong."""
        while True:
            for number, body in self.inject_event_faults(list(self.waiting.items())):
                status = await _status(answer, number, body)
                if status not in (200, 400):
                    break
                if not self.roll(max(self.faults.torn, self.faults.duplicate / 2)):
                    self.waiting.pop(number, None)
            await asyncio.sleep(0.01)

    def handle(self, request: WireRequest) -> WireResponse | None:
        given, at = request.headers.get("webhook-id", ""), request.headers.get("webhook-timestamp", "")
        if headers(given, request.body, at=at)["webhook-signature"] != request.headers.get(
            "webhook-signature"
        ):
            return WireResponse(401)

        def accept() -> WireResponse:
            known = [n for n, p in enumerate(self.posts) if self.idempotent and p.id == given]
            if not known:
                self.posts.append(Posted(given, json.loads(request.body)))
                self.lock.notify_all()
            return json_response({"id": f"post-{known[0] if known else len(self.posts) - 1}"})

        after = {"retry-after": str(math.ceil(self.faults.retry_after))}
        with self.lock:
            return self.accept_send(
                accept, throttled=WireResponse(429, headers=after), broken=WireResponse(503)
            )


def headers(id: str, body: bytes, *, at: str = "", key: bytes = KEY) -> dict[str, str]:
    """The three headers of a signed message."""
    at = at or str(int(time.time()))
    mac = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    signed = f"v1,{base64.b64encode(mac).decode()}"
    return {"webhook-id": id, "webhook-timestamp": at, "webhook-signature": signed}


async def _status(answer: Answer, id: str, body: bytes) -> int:
    try:
        return (await answer(adapter.WebhookRequest(headers=headers(id, body), body=body))).status
    except KeryxError:
        return 500
