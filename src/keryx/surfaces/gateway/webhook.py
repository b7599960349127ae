"""Webhook: anything that can post and receive signed JSON. Also the template for an adapter of your own.

An adapter is four things, and this file has them in this order: settings read from its own table, pure functions
from the platform's words to ours (`parse`) and back (`body`), the way in (`listen`, or a hook), and the way out
(`send`). It never decides: lanes, resets, retries, order and rates are the engine's. Copy the file, rename the
entry point in pyproject.toml, and add a `Case` to tests/contracts/adapters.py: that suite says when you are done.

Messages are signed both ways as Standard Webhooks have it: `webhook-id`, `webhook-timestamp` and `webhook-signature`,
an HMAC over all of them and the body.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx
import msgspec

from keryx.core.deliveries import AGAIN, Idempotency, Target
from keryx.core.errors import Invalid, NotSent, Refused, Throttled, Unavailable, Uncertain
from keryx.core.messages import words
from keryx.core.ports import Capabilities, Door, Hook, Inbound, Link, Parcel, Request, Response
from keryx.core.source import ChatType, Source
from keryx.surfaces.gateway.clients import Clients
from keryx.surfaces.gateway.settings import Setup
from keryx.surfaces.secrets import Secret

PLATFORM = "webhook"
WINDOW_SECONDS = 300
LARGEST_BODY = 1_000_000
_SECONDS = 20.0
_PAUSE = timedelta(seconds=30)
_PREFIX = "whsec_"
_SHORTEST_SECRET = 24
_LONGEST_ID = 255


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [webhook]. An adapter names what it needs and nothing else; a misspelt name is refused.

    `secret` holds one secret, or several with blanks or lines between them while they are changed: the first signs
    what we post, each is good for what we receive. `idempotent`: the receiver promises to take a `webhook-id` once.
    """

    secret: Secret = Secret()
    url: str = ""
    idempotent: bool = False


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What may be posted to us. Fields that are not named here are ignored, so that senders may grow. `alias` is
    another id of the user, `roles` those that the user has."""

    chat: str
    user: str
    text: str
    name: str = ""
    chat_name: str = ""
    type: ChatType = ChatType.DM
    thread: str = ""
    addressed: bool = True
    quote: str = ""
    edits: str = ""
    alias: str = ""
    roles: tuple[str, ...] = ()


def make(setup: Setup) -> "WebhookAdapter | None":
    """The entry point: `None` when nothing of this platform is set, `Invalid` when what is set is not enough."""
    settings = setup.read(WebhookSettings)
    if settings is None:
        return None
    if not settings.secret:
        raise Invalid(
            'webhook.secret is missing: name a variable or a file, as in secret = "env:HOOK_SECRET"'
        )
    return WebhookAdapter(settings, secrets=keys(settings.secret.reveal(setup.environ)))


def keys(text: str) -> tuple[bytes, ...]:
    """The secrets in a text, as bytes."""
    found: list[bytes] = []
    for one in text.split():
        try:
            key = base64.b64decode(one.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not one.startswith(_PREFIX) or len(key) < _SHORTEST_SECRET:
            raise Invalid("webhook.secret: write whsec_ and the base64 of at least 24 random bytes")
        found.append(key)
    return tuple(found)


def signature(key: bytes, id: str, timestamp: str, body: bytes) -> str:
    signed = b".".join((id.encode(), timestamp.encode(), body))
    return f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


def parse(event: str, said: Said) -> Inbound:
    """What was posted, as the engine knows it. Pure, so that it is tested with recorded payloads and nothing else.

    `event` must be the same whenever the platform repeats itself: the engine takes each event in once. `reply` says
    where the answer goes. A platform that is polled also gives the `cursor` that may move with this event.
    """
    return Inbound(
        event=event,
        source=Source(
            platform=PLATFORM,
            chat=said.chat,
            chat_name=said.chat_name or None,
            chat_type=said.type,
            user=said.user,
            user_name=said.name or None,
            thread=said.thread or None,
            message=event,
            roles=said.roles,
        ),
        parts=words(said.text),
        surface="gateway",
        reply=Target(PLATFORM, chat=said.chat, thread=said.thread, reply_to=event),
        addressed=said.addressed,
        quote=said.quote,
        edits=said.edits or None,
    )


def body(parcel: Parcel) -> bytes:
    """A part of an answer as it is posted. The mark of a possible repetition is for people, `again` for programs."""
    target = parcel.target
    told: dict[str, Any] = {
        "chat": target.chat,
        "thread": target.thread,
        "reply_to": target.reply_to,
        "text": (AGAIN if parcel.again else "") + parcel.text,
        "again": parcel.again,
        "delivery": parcel.delivery,
        "part": parcel.part,
    }
    return json.dumps(told).encode()


class WebhookAdapter:
    """`capabilities` tells the engine what the platform can do. Without native idempotency, what may have arrived is
    repeated with a mark; with it, silently and safely under the same key."""

    platform = PLATFORM
    account = ""

    def __init__(
        self,
        settings: WebhookSettings,
        *,
        secrets: Sequence[bytes],
        now: Callable[[], float] = time.time,
    ) -> None:
        if not secrets:
            raise Invalid("webhook.secret is missing: nothing is taken in without a signature")
        if urlsplit(settings.url).scheme not in ("http", "https") or not urlsplit(settings.url).hostname:
            raise Invalid("webhook.url is missing: write the web address that answers are posted to")
        self._url = settings.url
        self._secrets = tuple(secrets)
        self._now = now
        self._door: Door | None = None
        self._clients = Clients(
            lambda trusted: httpx.AsyncClient(verify=trusted, timeout=httpx.Timeout(_SECONDS, connect=10))
        )
        self.hook = Hook(path=PLATFORM, answer=self._posted, limit=LARGEST_BODY)
        self.capabilities = Capabilities(
            idempotency=Idempotency.NATIVE if settings.idempotent else Idempotency.NONE,
            threads=True,
            limit=10_000_000,
            roles=("*",),
        )

    async def listen(self, door: Door) -> None:
        """Runs until it is cancelled. A polled platform loops here: ask, hand each event to `door.receive`, and ask
        for the next only when that has returned. This one is posted to, so it only opens the door for its hook."""
        self._door = door
        door.report(Link.CONNECTED)
        try:
            await asyncio.Event().wait()
        finally:
            self._door = None
            with anyio.move_on_after(1, shield=True):
                await self.close()

    async def close(self) -> None:
        await self._clients.close()

    async def typing(self, target: Target) -> None:
        """Nothing is shown on this platform."""

    def parts(self, text: str) -> Sequence[str]:
        """The answer as pieces that `send` takes; here it is Markdown in one piece. See `render` for cutting it."""
        return [text] if text.strip() else []

    async def send(self, parcel: Parcel) -> str:
        """Post one part; gives the id that the receiver names, else ours.

        The kind of an error decides what happens next, so be exact: `NotSent` if it surely never arrived,
        `Uncertain` if nobody knows, `Throttled` to wait, `Refused` if it will never be taken."""
        raw = body(parcel)
        at = str(int(self._now()))
        headers = {
            "content-type": "application/json",
            "webhook-id": parcel.key,
            "webhook-timestamp": at,
            "webhook-signature": signature(self._secrets[0], parcel.key, at, raw),
        }
        try:
            async with self._clients.one() as client:
                answer = await client.post(self._url, content=raw, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as exc:
            raise NotSent(f"the receiver of webhooks cannot be reached ({type(exc).__name__})") from None
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise Uncertain(f"the receiver of webhooks did not answer ({type(exc).__name__})") from None
        return _receipt(answer) or parcel.key

    async def _posted(self, request: Request) -> Response:
        """Answer one post: 401 if it is not signed by us, 400 if it cannot be read, 503 if it should come again, and
        200 only once it is stored."""
        event = request.headers.get("webhook-id", "")
        if not self._signed(event, request):
            return _told(401, "the signature is missing, wrong or too old")
        if self._door is None:
            return _told(503, "Keryx is starting: try again")
        try:
            said = msgspec.convert(json.loads(request.body), Said)
            inbound = parse(event, said)
            if said.alias:
                await self._door.alias(inbound.source, said.alias)
            receipt = await self._door.receive(inbound)
        except (ValueError, RecursionError, Invalid) as exc:
            return _told(400, f"this is not a message: {exc}")
        except Unavailable:
            return _told(503, "nothing can be stored now: try again")
        return Response(body=json.dumps({"duplicate": receipt.duplicate}).encode(), mime="application/json")

    def _signed(self, event: str, request: Request) -> bool:
        at = request.headers.get("webhook-timestamp", "")
        if not event or len(event) > _LONGEST_ID or not (at.isascii() and at.isdigit() and len(at) < 12):
            return False
        if abs(self._now() - int(at)) > WINDOW_SECONDS:
            return False
        given = [one.encode() for one in request.headers.get("webhook-signature", "").split()]
        wanted = [signature(key, event, at, request.body).encode() for key in self._secrets]
        return any(hmac.compare_digest(one, other) for one in given for other in wanted)


def _receipt(answer: httpx.Response) -> str:
    """The id in a good answer; else the error that the status means."""
    status = answer.status_code
    if 200 <= status < 300:
        return _id(answer)
    if status == 429:
        raise Throttled("the receiver of webhooks asks to wait", after=_wait(answer))
    if status >= 500 or status == 408:
        raise Uncertain(f"the receiver of webhooks broke down ({status}) and may have taken the message")
    raise Refused(f"the receiver of webhooks refuses it ({status}): check webhook.url and the secret there")


def _id(answer: httpx.Response) -> str:
    try:
        found = json.loads(answer.content)
    except (ValueError, RecursionError):
        return ""
    return str(found["id"]) if isinstance(found, dict) and "id" in found else ""  # pyright: ignore[reportUnknownArgumentType]


def _wait(answer: httpx.Response) -> timedelta:
    given = answer.headers.get("retry-after", "")
    return timedelta(seconds=int(given)) if given.isascii() and given.isdigit() and len(given) < 6 else _PAUSE


def _told(status: int, detail: str) -> Response:
    return Response(status=status, body=json.dumps({"error": detail}).encode(), mime="application/json")
