"""The adapter for one Slack workspace, by Socket Mode or by the Events API, and its settings."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Annotated
from urllib.parse import parse_qsl

import anyio
import msgspec

from keryx.core.deliveries import Idempotency, Target
from keryx.core.durations import Backoff
from keryx.core.errors import Forbidden, Invalid, Retryable, Unavailable
from keryx.core.media import Attachment, RemoteFile
from keryx.core.ports.adapter import (
    AdapterContext,
    AttachmentLimits,
    Capabilities,
    LinkState,
    OutgoingPart,
    RenderedPart,
    Streaming,
    Webhook,
    WebhookRequest,
    WebhookResponse,
)
from keryx.core.source import ChatType, Source
from keryx.core.texts import Phrase
from keryx.secrets import Secret
from keryx.surfaces.gateway import http_clients
from keryx.surfaces.gateway.adapter_settings import AdapterSetup, build_interval
from keryx.surfaces.gateway.slack import message_sender
from keryx.surfaces.gateway.slack.directory import Directory, ThreadIndex
from keryx.surfaces.gateway.slack.event_parser import IDS, PLATFORM
from keryx.surfaces.gateway.slack.event_receiver import RECEIVERS, SlackReceiver, WorkspaceUnknown
from keryx.surfaces.gateway.slack.message_sender import SlackSender
from keryx.surfaces.gateway.slack.payloads import EventCallback, SlackIdentity
from keryx.surfaces.gateway.slack.socket_mode import COMMAND_RESPONSE, SocketMode
from keryx.surfaces.gateway.slack.token_file import RotatedToken
from keryx.surfaces.gateway.slack.web_api import (
    DEFAULT_URL,
    FixedToken,
    MethodBudget,
    SlackApi,
    SlackApiError,
    SlackNoResponse,
    SlackUnreachable,
    TokenSource,
    check_access,
)
from keryx.timing import Sleep

MAX_CLOCK_SKEW_SECONDS = 300
_BOT_TOKEN_PREFIXES = ("xoxb-", "xoxe.xoxb-")
_APP_TOKEN_PREFIX = "xapp-"
_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30))
_CLOSE_SECONDS = 2.0
_MAX_UPLOAD_BYTES = 1_000_000_000
_MAX_BODY_BYTES = 2_000_000
_FORM = "application/x-www-form-urlencoded"
_NOTES = (
    "To mention a person whose id you know, write <@ID>, such as <@U023BECGF>.",
    "A whole channel cannot be notified from here: @here and @channel are plain text.",
)


class SlackMode(StrEnum):
    SOCKET = "socket"
    EVENTS = "events"


class SlackStreaming(StrEnum):
    # A stream in threads, edits elsewhere.
    APPEND = "append"
    EDIT = "edit"
    NONE = "none"


class ReplyPlace(StrEnum):
    """Where a message of a channel is answered."""

    THREAD = "thread"
    CHANNEL = "channel"


class SlackSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # The bot token, xoxb-….
    token: Secret = Secret()
    mode: SlackMode = SlackMode.SOCKET
    # For Socket Mode: the app token, xapp-….
    app_token: Secret = Secret()
    # For the Events API: the secret that Slack signs its posts with.
    signing_secret: Secret = Secret()
    # For tokens that rotate: the first refresh token, and the credentials of the app.
    refresh_token: Secret = Secret()
    client_id: str = ""
    client_secret: Secret = Secret()
    base_url: str = DEFAULT_URL
    replies: ReplyPlace = ReplyPlace.THREAD
    streaming: SlackStreaming = SlackStreaming.APPEND
    # The emoji that shows outside of threads that a message is being answered. Empty for none.
    reaction: str = "eyes"
    # Suggested when a person opens the assistant.
    prompts: Annotated[tuple[str, ...], msgspec.Meta(max_length=4)] = ("What can you do?",)
    # The largest file that is fetched, in bytes.
    download: Annotated[int, msgspec.Meta(ge=0)] = 20_000_000
    # Messages per second to one chat. 0 means no limit but Slack's own.
    per_chat: Annotated[float, msgspec.Meta(ge=0)] = 0


def check_bot_token(token: str) -> str:
    if not token.startswith(_BOT_TOKEN_PREFIXES):
        raise Invalid(
            "this does not look like the bot token of a Slack app: the page OAuth & Permissions of the app shows one like xoxb-…"
        )
    return token


def check_app_token(token: str) -> str:
    if not token.startswith(_APP_TOKEN_PREFIX):
        raise Invalid(
            "this does not look like the app token of a Slack app: make one with the scope connections:write on the page Basic Information of the app, like xapp-…"
        )
    return token


def check_base_url(url: str) -> str:
    return http_clients.check_url(url, "slack.base_url: write a web address such as https://slack.com/api")


def make(setup: AdapterSetup) -> "SlackAdapter | None":
    """Build the adapter, or return None without settings. `Invalid` says what is missing."""
    settings = setup.read(SlackSettings)
    if settings is None:
        return None
    socket = settings.mode is SlackMode.SOCKET
    setup.require(token=settings.token or settings.refresh_token)
    if socket:
        setup.require(app_token=settings.app_token)
    else:
        setup.require(signing_secret=settings.signing_secret)
    environ = setup.environ
    token = check_bot_token(settings.token.reveal(environ)) if settings.token else ""
    if settings.refresh_token and not (settings.client_id and settings.client_secret):
        raise Invalid(
            f"{setup.label}.refresh_token needs client_id and client_secret, from the page Basic Information of the app"
        )
    return SlackAdapter(
        settings,
        token=RotatedToken(
            setup.home / "secrets" / f"{setup.label.replace('.', '-')}-rotated.json",
            token=token,
            refresh_token=settings.refresh_token.reveal(environ),
            client_id=settings.client_id,
            client_secret=settings.client_secret.reveal(environ),
            base_url=check_base_url(settings.base_url),
        )
        if settings.refresh_token
        else FixedToken(token),
        app_token=check_app_token(settings.app_token.reveal(environ)) if socket else "",
        signing_secret="" if socket else settings.signing_secret.reveal(environ),
        account=setup.name,
        hook_path=setup.hook_path,
    )


def sign(secret: str, timestamp: str, body: bytes) -> str:
    signed = b"v0:" + timestamp.encode() + b":" + body
    return f"v0={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


class SlackAdapter:
    platform = PLATFORM

    def __init__(
        self,
        settings: SlackSettings = SlackSettings(),
        *,
        token: TokenSource,
        app_token: str = "",
        signing_secret: str = "",
        account: str = "",
        hook_path: str = PLATFORM,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.account = account
        self._settings = settings
        self._token = token
        self._app_token = app_token
        self._signing_secret = signing_secret
        self._hook_path = hook_path
        self._sleep = sleep
        self._now = now
        self._base_url = check_base_url(settings.base_url)
        self._api = SlackApi(token, self._base_url)
        self._threads = ThreadIndex(self._api)
        self._sender = SlackSender(
            self._api,
            self._threads,
            streams=settings.streaming is SlackStreaming.APPEND,
            reaction=settings.reaction,
            budget=MethodBudget(),
        )
        self._receiver: SlackReceiver | None = None
        # That of the listener for posts.
        self._context: AdapterContext | None = None
        self.capabilities = Capabilities(
            idempotency=Idempotency.RECONCILE,
            edit=True,
            streaming=Streaming(settings.streaming.value),
            steps=settings.streaming is not SlackStreaming.NONE,
            threads=True,
            reactions=True,
            attachments=AttachmentLimits(max_bytes=_MAX_UPLOAD_BYTES),
            buttons=True,
            button_label=message_sender.MAX_LABEL_LENGTH,
            limit=message_sender.LIMIT.size,
            unit=message_sender.LIMIT.unit,
            chat_interval=build_interval(settings.per_chat),
            ids=IDS,
            notes=_NOTES,
            # Slack takes a message that begins with a slash for itself.
            command_sign="!",
        )

    @property
    def hook(self) -> Webhook | None:
        if self._settings.mode is not SlackMode.EVENTS:
            return None
        return Webhook(
            path=self._hook_path,
            handle=self._handle_post,
            limit=_MAX_BODY_BYTES,
            required_headers=("x-slack-request-timestamp", "x-slack-signature"),
        )

    async def listen(self, context: AdapterContext) -> None:
        try:
            self._sender.texts = context.texts
            me = await self._identify(context)
            receiver = SlackReceiver(
                self._api,
                context,
                me,
                account=self.account,
                base_url=self._base_url,
                threads=self._threads,
                directory=Directory(self._api),
                prompts=self._settings.prompts,
                reply_in_threads=self._settings.replies is ReplyPlace.THREAD,
            )
            await self._run(context, receiver, me)
        except asyncio.CancelledError:
            await self.close()
            raise

    def convert_source(self, source: Source) -> Source:
        if source.chat_type is not ChatType.DM:
            kind = ChatType.THREAD if source.thread else ChatType.CHANNEL
            source = msgspec.structs.replace(source, chat_type=kind)
        return msgspec.structs.replace(source, parent_chat=None)

    async def close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._api.close()
            if isinstance(self._token, RotatedToken):
                await self._token.close()

    async def typing(self, target: Target) -> None:
        """Do nothing: `react` shows once that an answer is being written."""

    async def react(self, target: Target) -> None:
        await self._sender.react(target)

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return message_sender.render_parts(text)

    async def send(self, part: OutgoingPart) -> str:
        return await self._sender.send(part)

    async def find_sent(self, part: OutgoingPart) -> str | None:
        return await self._sender.find_sent(part)

    async def remove(self, target: Target, message: str) -> None:
        await self._sender.remove(target, message)

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        most = min(limit, self._settings.download)
        try:
            # A file may have been deleted or moved since its event, and events do not describe those of other workspaces.
            found = await self._api.find_file(file.reference)
            if found.problem:
                raise Invalid(found.problem)
            if found.size > most:
                raise Invalid(Phrase("file.too_large", limit=most))
            body = await self._api.download(found, limit=most)
        except SlackApiError as exc:
            if exc.retry_after is not None:
                raise Retryable(str(exc), after=exc.retry_after) from None
            reason = Phrase("file.platform_says", platform="Slack", reason=exc.code)
            raise (Unavailable if exc.uncertain or exc.unauthorized else Invalid)(str(exc), reason) from None
        except (SlackUnreachable, SlackNoResponse) as exc:
            raise Unavailable(str(exc)) from None
        return Attachment(name=found.name or file.name, mime=found.mimetype or file.mime, body=body)

    async def _run(self, context: AdapterContext, receiver: SlackReceiver, me: SlackIdentity) -> None:
        RECEIVERS.add(self._base_url, me.team_id, receiver)
        self._receiver = receiver
        try:
            if self._settings.mode is SlackMode.SOCKET:
                await SocketMode(self._api, self._app_token, context, receiver, self._sleep).run()
            else:
                context.report(LinkState.CONNECTED)
                self._context = context
                await asyncio.Event().wait()
        finally:
            self._receiver = self._context = None
            RECEIVERS.remove(self._base_url, me.team_id, receiver)

    async def _identify(self, context: AdapterContext) -> SlackIdentity:
        """Look up who the bot is. Retry until Slack answers. Raise `Forbidden` if it refuses the token."""
        failures = 0
        while True:
            wait = 0.0
            try:
                return msgspec.convert(await self._api.call("auth.test"), SlackIdentity)
            except SlackApiError as exc:
                check_access(exc)
                if exc.retry_after is not None:
                    wait = exc.retry_after.total_seconds()
                elif not exc.uncertain:
                    raise Forbidden(str(exc)) from None
                context.report(LinkState.THROTTLED if wait else LinkState.CONNECTING, str(exc))
            except (SlackUnreachable, SlackNoResponse) as exc:
                context.report(LinkState.CONNECTING, str(exc))
            except msgspec.ValidationError:
                raise Unavailable("Slack does not say who the bot is") from None
            failures += 1
            await self._sleep(max(wait, _BACKOFF.seconds(failures)))

    async def _handle_post(self, request: WebhookRequest) -> WebhookResponse:
        """Answer one post: 401 if it is not signed by Slack, 503 if it should come again, and 200 only once it is stored."""
        if not self._verify_signature(request):
            return WebhookResponse(status=401)
        if not self._verify_time(request):
            return WebhookResponse(status=401)
        receiver = self._receiver
        form = request.headers.get("content-type", "").startswith(_FORM)
        if not form and (challenge := _read_challenge(request.body)):
            return WebhookResponse(body=challenge.encode())
        if receiver is None:
            return WebhookResponse(status=503)
        try:
            if not form:
                await receiver.receive_event(request.body)
            else:
                return await self._handle_form(receiver, request.body)
        except (Unavailable, WorkspaceUnknown):
            return WebhookResponse(status=503)
        return WebhookResponse()

    async def _handle_form(self, receiver: SlackReceiver, body: bytes) -> WebhookResponse:
        """Receive a button press or a slash command, which Slack posts as forms."""
        try:
            fields = dict(parse_qsl(body.decode(), max_num_fields=100))
        except ValueError:
            return WebhookResponse(status=400)
        if "payload" in fields:
            await receiver.receive_press(fields["payload"].encode())
        elif "command" in fields:
            await receiver.receive_command(json.dumps(fields).encode())
            answer = json.dumps(COMMAND_RESPONSE).encode()
            return WebhookResponse(body=answer, mime="application/json")
        # Slack also asks now and then whether the address is still served, with `ssl_check`.
        return WebhookResponse()

    def _verify_signature(self, request: WebhookRequest) -> bool:
        at = request.headers.get("x-slack-request-timestamp", "")
        if not (at.isascii() and at.isdigit() and len(at) < 12):
            return False
        given = request.headers.get("x-slack-signature", "").encode()
        return hmac.compare_digest(given, sign(self._signing_secret, at, request.body).encode())

    def _verify_time(self, request: WebhookRequest) -> bool:
        """Whether a signed post is from now. One from another time is a replay, or the clock of this machine is wrong."""
        difference = int(request.headers["x-slack-request-timestamp"]) - self._now()
        timely = abs(difference) <= MAX_CLOCK_SKEW_SECONDS
        if self._context is not None and timely:
            self._context.report(LinkState.CONNECTED)
        elif self._context is not None:
            side = "ahead of" if difference > 0 else "behind"
            self._context.report(
                LinkState.BROKEN,
                f"a post of Slack was {round(abs(difference) / 60)} minutes {side} the clock of this machine and was refused: check the clock",
            )
        return timely


def _read_challenge(body: bytes) -> str:
    """Return what Slack wants to be told back when the address is set; empty for anything else."""
    try:
        posted = msgspec.json.decode(body, type=EventCallback)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return posted.challenge if posted.type == "url_verification" else ""
