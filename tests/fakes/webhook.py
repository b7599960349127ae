"""The other side of webhooks: a receiver on loopback that checks signatures, and a sender that repeats until it is heard."""

import asyncio
import base64
import hashlib
import hmac
import json
import math
import random
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from tests.fakes.loopback import Loopback, Request, Response, as_json

from keryx.core.errors import KeryxError
from keryx.core.ports import adapter
from keryx.testing.fault_injection import PlatformFaults

KEY = b"a secret of thirty-two bytes ..."
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"

Answer = Callable[[adapter.WebhookRequest], Awaitable[adapter.WebhookResponse]]


@dataclass(frozen=True, slots=True)
class Posted:
    """What was posted to us, under its id."""

    id: str
    body: dict[str, Any]


@dataclass
class FakeWebhooks:
    """`posts` is what the receiver took; with `idempotent`, each id once. `waiting` is what the sender has to say."""

    faults: PlatformFaults = field(default_factory=PlatformFaults)
    seed: int = 0
    idempotent: bool = False

    def __post_init__(self) -> None:
        self.posts: list[Posted] = []
        self.waiting: dict[str, bytes] = {}
        self._random = random.Random(self.seed)
        self._lock = threading.Condition()
        self._said = 0
        self._server = Loopback(self._receive)

    @property
    def url(self) -> str:
        return f"{self._server.url}/answers"

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def texts(self, chat: str) -> list[str]:
        with self._lock:
            return [p.body["text"] for p in self.posts if p.body["chat"] == chat]

    def wait_for(self, condition: Callable[[], bool], seconds: float = 60) -> bool:
        with self._lock:
            return bool(self._lock.wait_for(condition, seconds))

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
            due = list(self.waiting.items())
            if self._random.random() < self.faults.reorder:
                self._random.shuffle(due)
            for number, body in due:
                status = await _status(answer, number, body)
                if status not in (200, 400):
                    break
                if self._random.random() >= max(self.faults.torn, self.faults.duplicate / 2):
                    self.waiting.pop(number, None)
            await asyncio.sleep(0.01)

    def _receive(self, request: Request) -> Response | None:
        given, at = request.headers.get("webhook-id", ""), request.headers.get("webhook-timestamp", "")
        if headers(given, request.body, at=at)["webhook-signature"] != request.headers.get(
            "webhook-signature"
        ):
            return Response(401)
        with self._lock:
            roll = self._random.random()
            if roll < self.faults.throttle:
                return Response(429, headers={"retry-after": str(math.ceil(self.faults.retry_after))})
            if roll < self.faults.throttle + self.faults.broken:
                return Response(503)
            known = [n for n, p in enumerate(self.posts) if self.idempotent and p.id == given]
            if not known:
                self.posts.append(Posted(given, json.loads(request.body)))
                self._lock.notify_all()
            if self._random.random() < self.faults.lost_reply:
                return None
            return as_json({"id": f"post-{known[0] if known else len(self.posts) - 1}"})


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
