"""The adapter for anything that posts and receives JSON signed as Standard Webhooks, and the template for your own: settings, `parse`, `build_body`, `listen` or a hook, `send`, and a setup. Copy it, add entry points in pyproject.toml, and pass `AdapterContract` of keryx.testing.contracts."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import anyio
import httpx
import msgspec

from keryx.core import codec
from keryx.core.deliveries import Idempotency, Target
from keryx.core.durations import parse_retry_after
from keryx.core.errors import Invalid, NotSent, Refused, Throttled, Unavailable, Uncertain
from keryx.core.media import Attachment
from keryx.core.messages import Part, Text, text_parts
from keryx.core.ports.adapter import (
    AdapterContext,
    AttachmentLimits,
    Capabilities,
    InboundDeletion,
    InboundEvent,
    InboundMessage,
    InboundReaction,
    LinkState,
    OutgoingPart,
    RenderedPart,
    Webhook,
    WebhookRequest,
    WebhookResponse,
)
from keryx.core.ports.setup import PlatformSetup, SetupDialog, SetupField, SetupOutcome
from keryx.core.source import ChatType, Source
from keryx.core.texts import Phrase
from keryx.secrets import Secret
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.http_clients import HttpClientPool, check_url

PLATFORM = "webhook"
MAX_CLOCK_SKEW_SECONDS = 300
DEFAULT_BODY_BYTES = 8_000_000
# Of one message, as on the page: each is stored by itself.
MAX_FILES = 20
_TIMEOUT_SECONDS = 20.0
_DEFAULT_RETRY_AFTER = timedelta(seconds=30)
_MAX_RETRY_AFTER = timedelta(seconds=99_999)
_SECRET_PREFIX = "whsec_"
_MIN_SECRET_BYTES = 24
_NEW_SECRET_BYTES = 32
_MAX_ID_LENGTH = 255


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [webhook]. A misspelt name is an error."""

    # One secret, or several separated by white space while they are rotated: the first signs what we post, and each
    # is accepted for what we receive.
    secret: Secret = Secret()
    # Answers are posted here.
    url: str = ""
    # The receiver promises to accept a `webhook-id` only once.
    idempotent: bool = False
    # The receiver takes files: they are posted in `file`.
    files: bool = False
    # The largest body that is accepted, in bytes.
    body_limit: Annotated[int, msgspec.Meta(ge=1_000, le=100_000_000)] = DEFAULT_BODY_BYTES


class WebhookFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in a message."""

    name: str = ""
    mime: str = ""
    # The bytes, in base64.
    data: bytes


class WebhookMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message posted to us. Other fields are ignored, so that senders may add some."""

    chat: str
    user: str
    # Not needed for a deletion, for a reaction, and where there are files.
    text: str = ""
    files: Annotated[tuple[WebhookFile, ...], msgspec.Meta(max_length=MAX_FILES)] = ()
    name: str = ""
    chat_name: str = ""
    type: ChatType = ChatType.DM
    thread: str = ""
    # The name of the thread.
    topic: str = ""
    # The server or workspace of the chat.
    scope: str = ""
    # The chat that a thread belongs to.
    parent_chat: str = ""
    # Ids that outlive the ordinary ones.
    user_alt: str = ""
    chat_alt: str = ""
    # The author is a bot.
    bot: bool = False
    addressed: bool = True
    quote: str = ""
    edits: str = ""
    # The `webhook-id` of a message that was deleted.
    deletes: str = ""
    # An emoji, for a reaction to the message `reacts_to`: a `webhook-id`, or an id that the receiver gave to an answer.
    reaction: str = ""
    reacts_to: str = ""
    # Another id of the user.
    alias: str = ""
    # Those that the user has.
    roles: tuple[str, ...] = ()
    # Of the user, such as `de`.
    language: str = ""


def make(setup: AdapterSetup) -> "WebhookAdapter | None":
    """The entry point. Return `None` if the platform is not configured; raise `Invalid` if a setting is missing."""
    settings = setup.read(WebhookSettings)
    if settings is None:
        return None
    if not settings.secret:
        raise Invalid(
            f"{setup.label}.secret is missing: run `keryx gateway setup {PLATFORM}`, which makes one, or name a variable or a"
            ' file, as in secret = "env:HOOK_SECRET"'
        )
    keys = parse_secrets(settings.secret.reveal(setup.environ))
    return WebhookAdapter(settings, secrets=keys, account=setup.name, hook_path=setup.hook_path)


def parse_secrets(text: str) -> tuple[bytes, ...]:
    """Return the secrets in a text, as bytes."""
    keys: list[bytes] = []
    for one in text.split():
        try:
            key = base64.b64decode(one.removeprefix(_SECRET_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not one.startswith(_SECRET_PREFIX) or len(key) < _MIN_SECRET_BYTES:
            raise Invalid(Phrase("connect.webhook_bad_secret"))
        keys.append(key)
    return tuple(keys)


def check_receiver(url: str) -> None:
    """Raise `Invalid` unless answers can be posted to this address."""
    message = (
        f"webhook.url {'must be' if url else 'is missing: write'} the web address that answers are posted to"
    )
    check_url(url, message, username=True, query=True)


def sign(key: bytes, id: str, timestamp: str, body: bytes) -> str:
    signed = b".".join((id.encode(), timestamp.encode(), body))
    return f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


def parse(event: str, message: WebhookMessage, account: str = "") -> InboundEvent:
    """Convert a posted message for the engine. Pure, so that recorded payloads are enough to test it.

    `event` must be the same when the platform repeats an event: the engine stores each event once. `reply` is the
    address of the answer. A polled platform also sets the `cursor` that may move with this event.
    """
    source = Source(
        platform=PLATFORM,
        account=account,
        chat=message.chat,
        chat_name=message.chat_name or None,
        chat_type=message.type,
        user=message.user,
        user_name=message.name or None,
        user_alt=message.user_alt or None,
        chat_alt=message.chat_alt or None,
        thread=message.thread or None,
        topic=message.topic or None,
        scope=message.scope or None,
        parent_chat=message.parent_chat or None,
        bot=message.bot,
        message=event,
        roles=message.roles,
        language=message.language or None,
    )
    if message.deletes:
        return InboundDeletion(event=event, source=source, message_event=message.deletes)
    if message.reaction:
        return InboundReaction(
            event=event,
            source=source,
            message=message.reacts_to,
            message_event=message.reacts_to,
            reaction=message.reaction,
        )
    if not message.text.strip() and not message.files:
        raise Invalid(
            "it has neither `text` nor `files`, and names neither what it `deletes` nor a `reaction`"
        )
    return InboundMessage(
        event=event,
        source=source,
        parts=text_parts(message.text) if message.text.strip() else (),
        surface="gateway",
        reply=Target(PLATFORM, account, message.chat, message.thread, reply_to=event),
        addressed=message.addressed,
        quote=message.quote,
        edits=message.edits or None,
    )


def build_body(part: OutgoingPart) -> bytes:
    """Build the post of a part. The mark of a possible repetition is for people, `again` is for programs."""
    target = part.target
    body: dict[str, Any] = {
        "chat": target.chat,
        "thread": target.thread,
        "reply_to": target.reply_to,
        "text": part.mark + part.text,
        "again": part.again,
        "delivery": part.delivery,
        "part": part.number,
    }
    if file := part.attachment:
        body["file"] = {"name": file.name, "mime": file.mime, "data": base64.b64encode(file.body).decode()}
    return json.dumps(body).encode()


class WebhookAdapter:
    """`capabilities` tells the engine what the platform can do. Without native idempotency, what may have arrived is
    repeated with a mark; with it, silently and safely under the same key."""

    platform = PLATFORM

    def __init__(
        self,
        settings: WebhookSettings,
        *,
        secrets: Sequence[bytes],
        account: str = "",
        hook_path: str = PLATFORM,
        now: Callable[[], float] = time.time,
    ) -> None:
        if not secrets:
            raise Invalid("webhook.secret is missing: nothing is taken in without a signature")
        check_receiver(settings.url)
        self.account = account
        self._url = settings.url
        self._secrets = tuple(secrets)
        self._now = now
        self._context: AdapterContext | None = None
        self._clients = HttpClientPool(
            lambda trusted: httpx.AsyncClient(
                verify=trusted, timeout=httpx.Timeout(_TIMEOUT_SECONDS, connect=10)
            )
        )
        self.hook = Webhook(
            path=hook_path,
            handle=self._handle_post,
            limit=settings.body_limit,
            required_headers=("webhook-id", "webhook-timestamp", "webhook-signature"),
        )
        self.capabilities = Capabilities(
            idempotency=Idempotency.NATIVE if settings.idempotent else Idempotency.NONE,
            threads=True,
            attachments=AttachmentLimits() if settings.files else None,
            limit=10_000_000,
            roles=("*",),
        )

    async def listen(self, context: AdapterContext) -> None:
        """Run until cancelled. An adapter that polls loops here: it passes each event to `context.receive`, and polls
        again only after that has returned. This one is posted to, so it only keeps the context for its hook."""
        self._context = context
        context.report(LinkState.CONNECTED)
        try:
            await asyncio.Event().wait()
        finally:
            self._context = None
            with anyio.move_on_after(1, shield=True):
                await self.close()

    async def close(self) -> None:
        await self._clients.close()

    async def typing(self, target: Target) -> None:
        """Do nothing: this platform cannot show it."""

    def parts(self, text: str) -> Sequence[RenderedPart]:
        """Return the answer as Markdown in one part. `keryx.markdown` renders and splits for other platforms."""
        return [RenderedPart(text)] if text.strip() else []

    async def send(self, part: OutgoingPart) -> str:
        """Post one part and return the id that the receiver names, or else the key of the part.

        The type of an error decides what happens next: `NotSent` if it certainly did not arrive, `Uncertain` if it may
        have arrived, `Throttled` to retry later, `Refused` if no retry can succeed."""
        raw = build_body(part)
        at = str(int(self._now()))
        headers = {
            "content-type": "application/json",
            "webhook-id": part.key,
            "webhook-timestamp": at,
            "webhook-signature": sign(self._secrets[0], part.key, at, raw),
        }
        try:
            async with self._clients.acquire() as client:
                answer = await client.post(self._url, content=raw, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as exc:
            raise NotSent(Phrase("delivery.receiver_unreachable", kind=type(exc).__name__)) from None
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise Uncertain(Phrase("delivery.receiver_silent", kind=type(exc).__name__)) from None
        _check_status(answer)
        try:
            receipt = json.loads(answer.content)
        except (ValueError, RecursionError):
            return part.key
        named = isinstance(receipt, dict) and "id" in receipt
        return (str(receipt["id"]) if named else "") or part.key  # pyright: ignore[reportUnknownArgumentType]

    async def _handle_post(self, request: WebhookRequest) -> WebhookResponse:
        """Answer one post: 401 if it is not signed by us, 400 if it cannot be read, 503 if it should come again, and
        200 only once it is stored."""
        event = request.headers.get("webhook-id", "")
        if not self._verify_signature(event, request):
            return _build_error(401, "the signature is missing, wrong or too old")
        if self._context is None:
            return _build_error(503, "Keryx is starting: try again")
        try:
            message = codec.loads_foreign(request.body, WebhookMessage)
            inbound = await self._add_files(parse(event, message, self.account), message.files)
            if message.alias:
                await self._context.add_alias(inbound.source, message.alias)
            receipt = await self._context.receive(inbound)
        except (ValueError, Invalid) as exc:
            return _build_error(400, f"this is not a message: {exc}")
        except Unavailable:
            return _build_error(503, "nothing can be stored now: try again")
        return WebhookResponse(
            body=json.dumps({"duplicate": receipt.duplicate}).encode(), mime="application/json"
        )

    async def _add_files(self, inbound: InboundEvent, files: Sequence[WebhookFile]) -> InboundEvent:
        """Return a message with its files. Those of a user without access are named and not stored."""
        if not isinstance(inbound, InboundMessage) or not files or self._context is None:
            return inbound
        allowed = await self._context.is_allowed(inbound.source)
        parts: list[Part] = list(inbound.parts)
        for file in files:
            name = file.name or "file"
            if allowed:
                attachment = Attachment(name=name, mime=file.mime, body=file.data)
                parts.append(await self._context.store_attachment(attachment))
            else:
                parts.append(Text(f"[{name}]"))
        return msgspec.structs.replace(inbound, parts=tuple(parts))

    def _verify_signature(self, event: str, request: WebhookRequest) -> bool:
        at = request.headers.get("webhook-timestamp", "")
        if not event or len(event) > _MAX_ID_LENGTH or not (at.isascii() and at.isdigit() and len(at) < 12):
            return False
        if abs(self._now() - int(at)) > MAX_CLOCK_SKEW_SECONDS:
            return False
        signatures = [one.encode() for one in request.headers.get("webhook-signature", "").split()]
        expected = [sign(key, event, at, request.body).encode() for key in self._secrets]
        return any(hmac.compare_digest(one, other) for one in signatures for other in expected)


def _check_status(answer: httpx.Response) -> None:
    """Raise the send error of a status that is not a success."""
    status = answer.status_code
    if 200 <= status < 300:
        return
    if status == 429:
        wait = parse_retry_after(answer.headers, now=datetime.now(UTC))
        if wait is None or wait > _MAX_RETRY_AFTER:
            wait = _DEFAULT_RETRY_AFTER
        raise Throttled(Phrase("delivery.receiver_pause"), after=wait)
    if status >= 500 or status == 408:
        raise Uncertain(Phrase("delivery.receiver_broke_down", status=status))
    raise Refused(Phrase("delivery.receiver_refuses", status=status))


def _build_error(status: int, detail: str) -> WebhookResponse:
    return WebhookResponse(
        status=status, body=json.dumps({"error": detail}).encode(), mime="application/json"
    )


async def check(answers: Mapping[str, str], dialog: SetupDialog) -> SetupOutcome:
    """Check the answers. The receiver is not asked, because it may act on anything that is posted to it."""
    url, secret = answers["url"], answers["secret"]
    check_receiver(url)
    if secret:
        parse_secrets(secret)
    elif not dialog.configured.get("secret"):
        secret = _SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_NEW_SECRET_BYTES)).decode()
    path = f"/hooks/{dialog.label.replace('.', '/')}"
    return SetupOutcome(
        summary=Phrase("connect.webhook_answers", address=url),
        settings={"url": url},
        secrets={"secret": secret} if secret else {},
        steps=(
            Phrase("connect.webhook_secret_step"),
            Phrase("connect.start"),
            Phrase("connect.webhook_post", path=path),
        ),
        details={"url": url, "path": path},
    )


SETUP = PlatformSetup(
    platform=PLATFORM,
    title="Webhooks",
    summary=Phrase("connect.webhook"),
    intro=Phrase("connect.webhook_intro"),
    fields=(
        SetupField(
            name="url",
            label=Phrase("connect.webhook_url"),
            help=Phrase("connect.webhook_url_help"),
            example="https://tickets.example.org/keryx",
            accept=check_receiver,
        ),
        SetupField(
            name="secret",
            label=Phrase("connect.webhook_secret"),
            help=Phrase("connect.webhook_secret_help"),
            secret=True,
            optional=True,
            ask=False,
        ),
    ),
    allow_example="*",
    check=check,
)
