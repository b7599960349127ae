"""The adapter for a number of a business on the Cloud API of WhatsApp, by webhook. `make` also builds the one for the Agent Platform."""

import asyncio
import hashlib
import hmac
import json
import logging
import re
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import anyio
import msgspec

from keryx.core.deliveries import Target
from keryx.core.durations import Backoff
from keryx.core.errors import Forbidden, Held, Invalid, SendError, Unavailable
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment, RemoteFile
from keryx.core.ports.adapter import (
    AdapterContext,
    AttachmentLimits,
    Capabilities,
    LengthUnit,
    LinkState,
    OutgoingPart,
    RenderedPart,
    Webhook,
    WebhookRequest,
    WebhookResponse,
)
from keryx.core.source import Source
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.whatsapp import message_sender
from keryx.surfaces.gateway.whatsapp.agent_adapter import WhatsAppAgentAdapter
from keryx.surfaces.gateway.whatsapp.event_parser import CLOUD_IDS, PLATFORM, WhatsAppIdentity, parse_payload
from keryx.surfaces.gateway.whatsapp.event_receiver import WhatsAppReceiver, download_file
from keryx.surfaces.gateway.whatsapp.graph_api import (
    CLOUD_URL,
    Sleep,
    WhatsAppApi,
    WhatsAppApiError,
    WhatsAppNoResponse,
    WhatsAppUnreachable,
)
from keryx.surfaces.gateway.whatsapp.message_sender import MessageRoute, TypingIndicator
from keryx.surfaces.gateway.whatsapp.payloads import WhatsAppPayload
from keryx.surfaces.gateway.whatsapp.whatsapp_settings import (
    BAD_TOKEN,
    WhatsAppMode,
    WhatsAppSettings,
    check_number,
    check_url,
)

log = logging.getLogger(__name__)
REPLY_WINDOW = timedelta(hours=24)
_LANGUAGE_PATTERN = re.compile(r"[a-z]{2,3}(_[A-Z]{2,3})?\Z", re.ASCII)
_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30))
_CLOSE_SECONDS = 2.0
_RECEIVED_REACTION = "👀"
_MAX_POST_BYTES = 4_000_000
_MAX_UPLOAD_BYTES = 100_000_000
_PRESS_DELIVERY = DeliveryId("press")
# With a template, WhatsApp itself says when the window is closed, because only then the template is sent.
_ANY_WINDOW = timedelta(days=36_500)


def make(setup: AdapterSetup) -> "WhatsAppCloudAdapter | WhatsAppAgentAdapter | None":
    """Build the adapter, or return None without settings. `Invalid` says what is missing."""
    settings = setup.read(WhatsAppSettings)
    if settings is None:
        return None
    if not settings.token:
        raise Invalid(
            f"{setup.label}.token is missing: run `keryx gateway setup whatsapp`, or set {setup.variable_name('token')}"
        )
    token = settings.token.reveal(setup.environ)
    if settings.mode is WhatsAppMode.AGENT:
        if name := settings.cloud_setting:
            raise Invalid(f'{setup.label}.{name} is for a number of a business: write mode = "cloud" as well')
        return WhatsAppAgentAdapter(token, settings, account=setup.name)
    if not settings.app_secret or not settings.verify_token:
        raise Invalid(
            f"{setup.label}.mode = cloud needs `app_secret`, which signs what Meta posts, and a `verify_token`"
        )
    return WhatsAppCloudAdapter(
        token,
        settings,
        app_secret=settings.app_secret.reveal(setup.environ),
        verify_token=settings.verify_token.reveal(setup.environ),
        hook_path=setup.hook_path,
    )


class WhatsAppCloudAdapter:
    """One number of a business, on the Cloud API."""

    platform = PLATFORM

    def __init__(
        self,
        token: str,
        settings: WhatsAppSettings,
        *,
        app_secret: str,
        verify_token: str,
        hook_path: str = PLATFORM,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        if not app_secret or not verify_token:
            raise Invalid("whatsapp: nothing is taken in without `app_secret` and `verify_token`")
        if settings.template and not _LANGUAGE_PATTERN.match(settings.template_language):
            raise Invalid("whatsapp.template_language: write a language of Meta, such as en, en_US or pt_BR")
        self.account = check_number(settings.phone_number_id)
        self._settings = settings
        self._app_secret = app_secret.encode()
        self._verify_token = verify_token.encode()
        self._hook_path = hook_path
        self._sleep = sleep
        self._now = now
        self._api = WhatsAppApi(token, check_url("base_url", settings.base_url or CLOUD_URL))
        self._route = MessageRoute(
            messages=f"{self.account}/messages",
            statuses=f"{self.account}/messages",
            media=f"{self.account}/media",
            cloud=True,
            quote=settings.quote,
        )
        self._me = WhatsAppIdentity(account=self.account, number=self.account)
        self._context: AdapterContext | None = None
        self._receiver: WhatsAppReceiver | None = None
        self._typing = TypingIndicator(self._api, self._route)
        self.hook = Webhook(
            path=hook_path,
            handle=self._handle_request,
            methods=("GET", "POST"),
            limit=_MAX_POST_BYTES,
            required_headers=("x-hub-signature-256",),
        )
        self.capabilities = Capabilities(
            typing=True,
            reactions=True,
            reply_window=_ANY_WINDOW if settings.template else REPLY_WINDOW,
            attachments=AttachmentLimits(max_bytes=_MAX_UPLOAD_BYTES),
            buttons=True,
            button_label=message_sender.BUTTON_LABEL_LENGTH,
            limit=message_sender.LIMIT.size,
            unit=LengthUnit.UTF16,
            chat_interval=_to_interval(settings.per_chat),
            account_interval=_to_interval(settings.per_second),
            pii_safe=True,
            ids=CLOUD_IDS,
            notes=("Messages that were sent cannot be edited or deleted.",),
        )

    async def listen(self, context: AdapterContext) -> None:
        """Take in posts until cancelled. Meanwhile the number and its webhook are checked."""
        self._context = context
        self._receiver = WhatsAppReceiver(
            context,
            newest_messages=self._typing.newest_messages,
            usernames=self._settings.usernames,
            answer_press=self._answer_press,
            invite=self._invite,
        )
        try:
            await self._check_number(context)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            self._context = self._receiver = None

    async def close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._api.close()

    async def typing(self, target: Target) -> None:
        await self._typing.show(target)

    async def react(self, target: Target) -> None:
        await message_sender.react(self._api, self._route, target, _RECEIVED_REACTION)

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return message_sender.render_parts(text)

    async def send(self, part: OutgoingPart) -> str:
        try:
            return await message_sender.send(self._api, self._route, part)
        except Held:
            if self._context is not None:
                await self._invite_now(self._context, part.target.chat)
            raise

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        return await download_file(self._api, "", file, limit)

    async def _check_number(self, context: AdapterContext) -> None:
        """Ask for the number, and set its webhook, until WhatsApp answers. Raise `Forbidden` for a refused token."""
        failures = 0
        while True:
            try:
                await self._api.get(self.account, fields="display_phone_number")
                if self._settings.url:
                    await self._api.post(self.account, {"webhook_configuration": self._build_override()})
            except (WhatsAppUnreachable, WhatsAppNoResponse) as exc:
                context.report(LinkState.CONNECTING, str(exc))
            except WhatsAppApiError as exc:
                if exc.status < 500 and exc.status != 429:
                    raise Forbidden(BAD_TOKEN if exc.code == 190 else str(exc)) from None
                context.report(LinkState.CONNECTING, str(exc))
            else:
                context.report(LinkState.CONNECTED)
                return
            failures += 1
            await self._sleep(_BACKOFF.seconds(failures))

    def _build_override(self) -> dict[str, str]:
        """The address of this number alone: without one, Meta posts what it has for all numbers to that of the app."""
        return {
            "override_callback_uri": f"{check_url('url', self._settings.url)}/hooks/{self._hook_path}",
            "verify_token": self._verify_token.decode(),
        }

    async def _handle_request(self, request: WebhookRequest) -> WebhookResponse:
        """Answer one request: 401 if it is not signed by Meta, 503 if it should come again, and 200 only once everything
        in it is stored. What is signed and cannot be read gets 200, too: Meta would repeat it for days."""
        if request.method == "GET":
            return self._answer_challenge(request)
        if not self._verify_signature(request):
            return WebhookResponse(status=401)
        receiver = self._receiver
        if receiver is None:
            return WebhookResponse(status=503)
        try:
            payload = msgspec.convert(json.loads(request.body), WhatsAppPayload)
        except (ValueError, RecursionError) as exc:
            receiver.skip(f"a post cannot be read: {exc}")
            return WebhookResponse()
        try:
            await receiver.receive_payload(parse_payload(payload, self._me))
        except Unavailable:
            return WebhookResponse(status=503)
        return WebhookResponse()

    def _answer_challenge(self, request: WebhookRequest) -> WebhookResponse:
        token = request.query.get("hub.verify_token", "").encode(errors="replace")
        challenge = request.query.get("hub.challenge", "")
        known = hmac.compare_digest(token, self._verify_token)
        if not known or request.query.get("hub.mode") != "subscribe" or not challenge:
            return WebhookResponse(status=403)
        return WebhookResponse(body=challenge.encode(errors="replace"))

    def _verify_signature(self, request: WebhookRequest) -> bool:
        given = request.headers.get("x-hub-signature-256", "").removeprefix("sha256=")
        expected = hmac.new(self._app_secret, request.body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(given.lower().encode(errors="replace"), expected.encode())

    async def _answer_press(self, source: Source, text: str) -> None:
        """Send what a press has led to. There is no other place to show it."""
        target = Target(PLATFORM, self.account, chat=source.chat or "", reply_to=source.message or "")
        for number, rendered in enumerate(self.parts(text)):
            part = OutgoingPart(
                delivery=_PRESS_DELIVERY,
                number=number,
                key=f"{source.message}.{number}",
                target=target,
                text=rendered.text,
            )
            await message_sender.send(self._api, self._route, part)

    async def _invite_now(self, context: AdapterContext, chat: str) -> None:
        try:
            source = Source(platform=PLATFORM, account=self.account, chat=chat)
            for scope, value in (await self._invite(context, source)).items():
                await context.save_state(scope, value)
        except Unavailable as exc:
            log.warning("it is not known whether the template was sent today: %s", exc)

    async def _invite(self, context: AdapterContext, source: Source) -> dict[str, str]:
        """Send the template that asks a person to write, at most once a day. Return the state to store."""
        chat, now = source.chat or "", int(self._now())
        scope = f"template {chat}"
        if not self._settings.template or not chat:
            return {}
        last = await context.load_state(scope)
        if last is not None and now - int(last) < REPLY_WINDOW.total_seconds():
            return {}
        try:
            await message_sender.send_template(
                self._api,
                self._route,
                Target(PLATFORM, self.account, chat=chat),
                name=self._settings.template,
                language=self._settings.template_language,
            )
        except SendError as exc:
            context.report(LinkState.CONNECTED, f"the template {self._settings.template} is not sent: {exc}")
            return {}
        return {scope: str(now)}


def _to_interval(per_second: float) -> timedelta:
    return timedelta(seconds=1 / per_second) if per_second > 0 else timedelta(0)
