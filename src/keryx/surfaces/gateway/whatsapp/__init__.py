"""The adapters for WhatsApp and their settings: the Cloud API for a number of a business, by webhook, and the Agent Platform for an agent of one person, by long polling."""

import asyncio
import hashlib
import hmac
import json
import logging
import re
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

import anyio
import msgspec

from keryx.core.deliveries import Target
from keryx.core.durations import Backoff
from keryx.core.errors import Forbidden, Held, Invalid, SendError, Throttled, Unavailable
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
from keryx.secrets import Secret
from keryx.surfaces.gateway import http_clients
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.whatsapp import message_sender
from keryx.surfaces.gateway.whatsapp.event_parser import (
    AGENT_IDS,
    CLOUD_IDS,
    PLATFORM,
    ParsedPayload,
    WhatsAppIdentity,
    parse_payload,
    parse_reference,
)
from keryx.surfaces.gateway.whatsapp.event_receiver import WhatsAppReceiver
from keryx.surfaces.gateway.whatsapp.graph_api import (
    AGENT_URL,
    CLOUD_URL,
    RateWindow,
    Sleep,
    WhatsAppApi,
    WhatsAppApiError,
    WhatsAppNoResponse,
    WhatsAppUnreachable,
)
from keryx.surfaces.gateway.whatsapp.message_sender import MessageRoute
from keryx.surfaces.gateway.whatsapp.payloads import WhatsAppPayload

log = logging.getLogger(__name__)
BAD_TOKEN = "WhatsApp refuses the access token: make a permanent one for a system user and run `keryx gateway setup whatsapp`"
BAD_KEY = "WhatsApp refuses the key of the agent: copy it again from Chat info, API key, and run `keryx gateway setup whatsapp`"
AGENT_IN_USE = "another program polls as this agent: stop it, or give each program an agent of its own"
REPLY_WINDOW = timedelta(hours=24)
_NUMBER_PATTERN = re.compile(r"\d{5,25}\Z", re.ASCII)
_LANGUAGE_PATTERN = re.compile(r"[a-z]{2,3}(_[A-Z]{2,3})?\Z", re.ASCII)
_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30))
_CLOSE_SECONDS = 2.0
_POLL_SECONDS = 25
_POLL_LIMIT = 100
_MAX_CONFLICTS = 5
# An agent that is connected for the first time does not answer what is older.
_MAX_FIRST_AGE_SECONDS = 24 * 3600
# Typing lasts for 25 seconds.
_TYPING_SECONDS = 20.0
_RECEIVED_REACTION = "👀"
_MAX_POST_BYTES = 4_000_000
_MAX_CLOUD_UPLOAD_BYTES = 100_000_000
_MAX_AGENT_UPLOAD_BYTES = 16_000_000
_PRESS_DELIVERY = DeliveryId("press")
# With a template, WhatsApp itself says when the window is closed, because only then the template is sent.
_ANY_WINDOW = timedelta(days=36_500)


class WhatsAppMode(StrEnum):
    AGENT = "agent"
    CLOUD = "cloud"


DEFAULT_MODE = WhatsAppMode.AGENT


class WhatsAppSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [whatsapp]. A misspelt name is an error."""

    # Which platform of Meta.
    mode: WhatsAppMode = DEFAULT_MODE
    # The access token, or the key of the agent.
    token: Secret = Secret()
    # The API; empty for Meta's.
    base_url: str = ""
    # Cloud: the id of the number, which is not the number itself.
    phone_number_id: str = ""
    # Cloud: the secret of the app, which signs what is posted.
    app_secret: Secret = Secret()
    # Cloud: what Meta shows when it verifies the address of the webhook.
    verify_token: Secret = Secret()
    # Cloud: the public address of Keryx. If it is set, Keryx tells Meta to post there.
    url: str = ""
    # Cloud: the template that is sent when an answer comes too late, and its language.
    template: str = ""
    template_language: str = "en"
    # Usernames are ids of people, too. Another person may take a username that was given up.
    usernames: bool = False
    # Answers in direct chats quote the message.
    quote: bool = False
    # Cloud: messages per second, to one chat and in all. 0 means no limit but WhatsApp's own.
    per_chat: float = 0
    per_second: float = 0
    # Agent: messages and polls per minute. 0 means no limit but WhatsApp's own.
    per_minute: Annotated[int, msgspec.Meta(ge=0)] = 12
    polls_per_minute: Annotated[int, msgspec.Meta(ge=0)] = 15

    @property
    def cloud_setting(self) -> str:
        """The name of a setting that only the Cloud API has, empty if none is set."""
        own = {
            "phone_number_id": self.phone_number_id,
            "app_secret": self.app_secret,
            "verify_token": self.verify_token,
            "url": self.url,
            "template": self.template,
        }
        return next((name for name, value in own.items() if value), "")


def check_url(name: str, url: str) -> str:
    """Return the address in a setting without its trailing slash."""
    return http_clients.check_url(
        url, f"whatsapp.{name}: write a web address such as https://example.org", username=True
    )


def check_number(text: str) -> str:
    """Return the id of a number. Raise `Invalid` for anything else."""
    if not _NUMBER_PATTERN.match(text):
        raise Invalid(
            "whatsapp.phone_number_id: write the id of the number, such as 106540352242922, from API Setup in the app"
        )
    return text


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


class _TypingIndicator:
    """Shows typing at the newest message of a chat, once while it still shows: each call counts against a limit."""

    def __init__(
        self, api: WhatsAppApi, route: MessageRoute, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._route = route
        self._now = now
        self._shown_until: dict[str, float] = {}
        # By chat.
        self.newest_messages: dict[str, str] = {}

    async def show(self, target: Target) -> None:
        message, now = target.reply_to or self.newest_messages.get(target.chat, ""), self._now()
        self._shown_until = {id_: until for id_, until in self._shown_until.items() if until > now}
        if message and message not in self._shown_until:
            self._shown_until[message] = now + _TYPING_SECONDS
            await message_sender.send_typing(self._api, self._route, message)


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
        self._typing = _TypingIndicator(self._api, self._route)
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
            attachments=AttachmentLimits(max_bytes=_MAX_CLOUD_UPLOAD_BYTES),
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
        return await _download(self._api, "", file, limit)

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


class WhatsAppAgentAdapter:
    """One agent of the Agent Platform. WhatsApp lets it talk with its creator only."""

    platform = PLATFORM
    hook = None

    def __init__(
        self,
        token: str,
        settings: WhatsAppSettings = WhatsAppSettings(),
        *,
        account: str = "",
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.account = account
        self._sleep = sleep
        self._now = now
        self._api = WhatsAppApi(token, check_url("base_url", settings.base_url or AGENT_URL))
        self._route = MessageRoute(
            messages="agent/v1/messages",
            statuses="agent/v1/statuses",
            media="agent/v1/media",
            cloud=False,
            quote=settings.quote,
        )
        self._me = WhatsAppIdentity(account=account)
        self._sends = RateWindow(settings.per_minute)
        self._polls = RateWindow(settings.polls_per_minute)
        self._typing = _TypingIndicator(self._api, self._route)
        self._link = LinkState.CONNECTING
        self.capabilities = Capabilities(
            typing=True,
            attachments=AttachmentLimits(max_bytes=_MAX_AGENT_UPLOAD_BYTES),
            limit=message_sender.LIMIT.size,
            unit=LengthUnit.UTF16,
            pii_safe=True,
            ids=AGENT_IDS,
            notes=(
                "Messages that were sent cannot be edited or deleted.",
                "At most 12 messages a minute can be sent, so prefer one message to several.",
            ),
        )

    async def listen(self, context: AdapterContext) -> None:
        receiver = WhatsAppReceiver(context, newest_messages=self._typing.newest_messages)
        self._link = LinkState.CONNECTING
        try:
            await self._poll(context, receiver)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._api.close()

    async def typing(self, target: Target) -> None:
        await self._typing.show(target)

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return message_sender.render_parts(text)

    async def send(self, part: OutgoingPart) -> str:
        wait = self._sends.take()
        if wait:
            raise Throttled(
                "WhatsApp takes 12 messages a minute from an agent",
                after=timedelta(seconds=wait),
                account=True,
            )
        return await message_sender.send(self._api, self._route, part)

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        return await _download(self._api, "agent/v1/media/", file, limit)

    async def _poll(self, context: AdapterContext, receiver: WhatsAppReceiver) -> None:
        """Read from the stored position on. The first time, read all that is kept and leave out what is old."""
        offset, last = parse_position(context.cursor or "0")
        first = context.cursor is None
        while True:
            payload = await self._fetch_updates(context, offset, wait=not first)
            if payload is None:
                if first:
                    await context.init_cursor(format_position(offset))
                first = False
                continue
            parsed = parse_payload(payload, self._me)
            if first:
                parsed = self._drop_old(parsed)
            next_offset = payload.next_offset if payload.next_offset is not None else offset
            parsed = parsed.skip_through(last)
            cursors = [format_position(offset, event.source.message or "") for event in parsed.events]
            if cursors:
                cursors[-1] = format_position(next_offset)
            await receiver.receive_payload(parsed, cursors)
            stuck = next_offset == offset
            offset, last = next_offset, ""
            if stuck:
                await self._sleep(_BACKOFF.seconds(1))

    def _drop_old(self, parsed: ParsedPayload) -> ParsedPayload:
        oldest = self._now() - _MAX_FIRST_AGE_SECONDS
        events = tuple(
            event
            for event in parsed.events
            if event.inbound is None or event.inbound.at is None or event.inbound.at.timestamp() >= oldest
        )
        return msgspec.structs.replace(parsed, events=events)

    async def _fetch_updates(
        self, context: AdapterContext, offset: int, *, wait: bool
    ) -> WhatsAppPayload | None:
        """Return the next updates, `None` for none. Retry until WhatsApp answers. Raise `Forbidden` for a refused key, and
        for an agent that another program polls."""
        failures = conflicts = 0
        while True:
            while pause := self._polls.take():
                await self._sleep(pause)
            least = 0.0
            seconds = _POLL_SECONDS if wait else 0
            try:
                found: Any = await self._api.get(
                    "agent/v1/updates",
                    seconds=seconds + 10.0,
                    offset=offset,
                    limit=_POLL_LIMIT,
                    timeout=seconds,
                )
                payload = None if found is None else msgspec.convert(found, WhatsAppPayload)
            except (WhatsAppUnreachable, WhatsAppNoResponse) as exc:
                self._report(context, LinkState.CONNECTING, str(exc))
            except msgspec.ValidationError as exc:
                self._report(context, LinkState.CONNECTING, f"WhatsApp answers in another form: {exc}")
            except WhatsAppApiError as exc:
                conflicts += exc.status == 409
                least = self._handle_error(context, exc, conflicts)
            else:
                self._report(context, LinkState.CONNECTED)
                return payload
            failures += 1
            await self._sleep(max(least, _BACKOFF.seconds(failures)))

    def _handle_error(self, context: AdapterContext, error: WhatsAppApiError, conflicts: int) -> float:
        """Return the seconds to wait at least. Raise an error that a retry cannot solve."""
        if error.status == 409 and conflicts >= _MAX_CONFLICTS:
            raise Forbidden(AGENT_IN_USE) from None
        if error.status == 409:
            # The poll of a process that was just killed may still hang at WhatsApp.
            return 0
        if error.status == 429:
            self._report(context, LinkState.THROTTLED, "WhatsApp takes 15 polls a minute from an agent")
            return error.retry_after
        if error.status < 500:
            raise Forbidden(BAD_KEY if error.code in (100, 190) else str(error)) from None
        self._report(context, LinkState.CONNECTING, str(error))
        return error.retry_after

    def _report(self, context: AdapterContext, link: LinkState, detail: str = "") -> None:
        if link is not self._link:
            self._link = link
            context.report(link, detail)


def format_position(offset: int, message: str = "") -> str:
    """Return the cursor of an agent: the offset of a batch, and the last message of it that is stored."""
    return f"{offset} {message}".rstrip()


def parse_position(cursor: str) -> tuple[int, str]:
    """Return what `format_position` wrote."""
    offset, _, message = cursor.partition(" ")
    return int(offset), message


async def _download(api: WhatsAppApi, folder: str, file: RemoteFile, limit: int) -> Attachment:
    media, sha256 = parse_reference(file.reference)
    body = await api.download(f"{folder}{media}", sha256=sha256, limit=limit)
    return Attachment(name=file.name, mime=file.mime, body=body)


def _to_interval(per_second: float) -> timedelta:
    return timedelta(seconds=1 / per_second) if per_second > 0 else timedelta(0)
