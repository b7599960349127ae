"""The adapter for one app on Feishu or Lark, by the long connection or by encrypted posts, and its settings."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, TypeAlias

import anyio
import msgspec

from keryx.core.deliveries import Idempotency, Target
from keryx.core.durations import Backoff
from keryx.core.errors import Forbidden, Invalid, Unavailable, format_install_command
from keryx.core.media import UNKNOWN_MIME, Attachment, RemoteFile
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
from keryx.surfaces.gateway import BLOCK_BYTES, decrypt_aes, has_cipher, http_clients
from keryx.surfaces.gateway.adapter_settings import AdapterSetup, build_interval
from keryx.surfaces.gateway.feishu import message_sender
from keryx.surfaces.gateway.feishu.chat_directory import FeishuDirectory
from keryx.surfaces.gateway.feishu.event_parser import IDS, PLATFORM, parse_reference
from keryx.surfaces.gateway.feishu.event_receiver import FeishuReceiver
from keryx.surfaces.gateway.feishu.long_connection import LongConnection
from keryx.surfaces.gateway.feishu.message_sender import FeishuMessageSender
from keryx.surfaces.gateway.feishu.open_api import (
    FEISHU_URL,
    LARK_URL,
    FeishuApi,
    FeishuApiError,
    FeishuNoResponse,
    FeishuUnreachable,
    check_access,
    encode_json,
)
from keryx.surfaces.gateway.feishu.payloads import EncryptedPost, FeishuEnvelope, FeishuIdentity
from keryx.timing import Sleep

PostDecryptor: TypeAlias = Callable[[str], bytes]

# Events are recognised for 14 days, so a post that is repeated within this time does no harm; Feishu repeats for 7 hours.
MAX_POST_AGE_SECONDS = 86_400
_APP_ID_PATTERN = re.compile(r"cli_[A-Za-z0-9]{4,64}\Z")
_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30))
_CLOSE_SECONDS = 2.0
_MAX_BODY_BYTES = 2_000_000
_JSON = "application/json; charset=utf-8"
_NOTES = (
    "To mention a person whose id you know, write <at id=ID></at>, such as <at id=ou_84aad35d084aa403a838cf73ee18467></at>.",
    "A whole chat cannot be notified from here.",
    "What people change in a message after they have sent it is not seen here.",
)


class FeishuMode(StrEnum):
    # A websocket of Keryx to the platform.
    CONNECTION = "connection"
    # Encrypted posts of the platform to Keryx.
    WEBHOOK = "webhook"


class FeishuDomain(StrEnum):
    FEISHU = "feishu"
    LARK = "lark"


class FeishuSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    app_id: str = ""
    app_secret: Secret = Secret()
    # The platform: `feishu` in China, `lark` elsewhere.
    domain: FeishuDomain = FeishuDomain.FEISHU
    # Another address of the platform.
    base_url: str = ""
    mode: FeishuMode = FeishuMode.CONNECTION
    # For posts: the keys on the page Events & Callbacks, Encryption Strategy.
    encrypt_key: Secret = Secret()
    verification_token: Secret = Secret()
    # Answers are cards, which can be edited at will and have buttons. Otherwise they are rich texts.
    cards: bool = True
    # Answers are shown while they are written.
    streaming: bool = True
    # The emoji that shows that a message is being answered. Empty for none.
    reaction: str = "OnIt"
    # The largest file that is fetched, in bytes.
    download: Annotated[int, msgspec.Meta(ge=0)] = 20_000_000
    # Calls per second, to one chat and in all. Feishu allows 5 and about 16. 0 means no limit but Feishu's own.
    per_chat: Annotated[float, msgspec.Meta(ge=0)] = 5
    per_second: Annotated[float, msgspec.Meta(ge=0)] = 16


def check_app_id(text: str) -> str:
    if not _APP_ID_PATTERN.match(text):
        raise Invalid(
            "this does not look like the App ID of an app on Feishu or Lark: the page Credentials & Basic Info of the app shows one like cli_a1b2c3d4e5f60001"
        )
    return text


def find_base_url(domain: FeishuDomain, base_url: str) -> str:
    """Return the address of the platform. Raise `Invalid` for anything but a web address."""
    if not base_url:
        return LARK_URL if domain is FeishuDomain.LARK else FEISHU_URL
    return http_clients.check_url(base_url, f"feishu.base_url: write a web address such as {FEISHU_URL}")


def make(setup: AdapterSetup) -> "FeishuAdapter | None":
    """Build the adapter, or return None without settings. `Invalid` says what is missing."""
    settings = setup.read(FeishuSettings)
    if settings is None:
        return None
    setup.require(app_id=settings.app_id, app_secret=settings.app_secret)
    webhook = settings.mode is FeishuMode.WEBHOOK
    if webhook:
        setup.require(encrypt_key=settings.encrypt_key, verification_token=settings.verification_token)
    return FeishuAdapter(
        settings.app_secret.reveal(setup.environ),
        settings,
        decrypt=build_decryptor(settings.encrypt_key.reveal(setup.environ)) if webhook else None,
        encrypt_key=settings.encrypt_key.reveal(setup.environ) if webhook else "",
        verification_token=settings.verification_token.reveal(setup.environ) if webhook else "",
        hook_path=setup.hook_path,
    )


def build_decryptor(encrypt_key: str) -> PostDecryptor:
    """Return what decrypts posts: AES-256-CBC with the hash of the encrypt key. It raises `Invalid`, without a reason, for
    anything that was not made with the key. Raise `Invalid` if the library is not installed."""
    if not has_cipher():
        raise Invalid(
            f"posts of Feishu are encrypted, which needs an extra: run `{format_install_command('feishu')}`, or use the long connection"
        )
    key = hashlib.sha256(encrypt_key.encode()).digest()

    def decrypt(text: str) -> bytes:
        try:
            wire = base64.b64decode(text, validate=True)
            return decrypt_aes(wire[BLOCK_BYTES:], key, vector=wire[:BLOCK_BYTES])
        except (ValueError, binascii.Error):
            raise Invalid("it is not encrypted with the key of the app") from None

    return decrypt


def sign(encrypt_key: str, timestamp: str, nonce: str, body: bytes) -> str:
    return hashlib.sha256(f"{timestamp}{nonce}{encrypt_key}".encode() + body).hexdigest()


class FeishuAdapter:
    platform = PLATFORM

    def __init__(
        self,
        app_secret: str,
        settings: FeishuSettings,
        *,
        decrypt: PostDecryptor | None = None,
        encrypt_key: str = "",
        verification_token: str = "",
        hook_path: str = PLATFORM,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.account = check_app_id(settings.app_id)
        self._settings = settings
        self._decrypt = decrypt
        self._encrypt_key = encrypt_key
        self._verification_token = verification_token
        self._hook_path = hook_path
        self._sleep = sleep
        self._now = now
        self._api = FeishuApi(self.account, app_secret, find_base_url(settings.domain, settings.base_url))
        self._directory = FeishuDirectory(self._api)
        self._sender = FeishuMessageSender(
            self._api, self._directory, cards=settings.cards, reaction=settings.reaction, now=now
        )
        self._receiver: FeishuReceiver | None = None
        self.capabilities = Capabilities(
            idempotency=Idempotency.NATIVE,
            edit=True,
            streaming=Streaming.EDIT if settings.streaming else Streaming.NONE,
            max_edits=0 if settings.cards else message_sender.MAX_POST_EDITS,
            threads=True,
            reactions=True,
            attachments=AttachmentLimits(max_bytes=message_sender.MAX_FILE_BYTES),
            separate_files=True,
            buttons=settings.cards,
            button_label=message_sender.MAX_LABEL_LENGTH if settings.cards else 0,
            limit=message_sender.LIMIT.size,
            unit=message_sender.LIMIT.unit,
            chat_interval=build_interval(settings.per_chat),
            account_interval=build_interval(settings.per_second),
            ids=IDS,
            notes=_NOTES,
        )

    @property
    def hook(self) -> Webhook | None:
        if self._settings.mode is not FeishuMode.WEBHOOK:
            return None
        # Feishu checks the address with a challenge that is not signed, so no header is required.
        return Webhook(path=self._hook_path, handle=self._handle_post, limit=_MAX_BODY_BYTES)

    async def listen(self, context: AdapterContext) -> None:
        try:
            me = await self._identify(context)
            receiver = FeishuReceiver(context, self._directory, me, account=self.account)
            await self._run(context, receiver)
        except asyncio.CancelledError:
            await self.close()
            raise

    def convert_source(self, source: Source) -> Source:
        if source.chat_type is not ChatType.DM:
            kind = ChatType.THREAD if source.thread else ChatType.GROUP
            source = msgspec.structs.replace(source, chat_type=kind)
        return msgspec.structs.replace(source, parent_chat=None)

    async def close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._api.close()

    async def typing(self, target: Target) -> None:
        """Do nothing: `react` shows once that an answer is being written."""

    async def react(self, target: Target) -> None:
        await self._sender.react(target)

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return message_sender.render_parts(text)

    def create_send_key(self, part: OutgoingPart) -> str:
        return self._sender.create_send_key(part)

    async def send(self, part: OutgoingPart) -> str:
        return await self._sender.send(part)

    async def remove(self, target: Target, message: str) -> None:
        await self._sender.remove(target, message)

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        found = parse_reference(file.reference)
        if found is None:
            raise Invalid(Phrase("file.nowhere"))
        try:
            fetched = await self._api.download(*found, limit=min(limit, self._settings.download))
        except FeishuApiError as exc:
            again = exc.retry_after is not None or exc.uncertain or exc.unauthorized or exc.lacks_scope
            reason = Phrase("file.platform_says", platform="Feishu", reason=f"{exc.message} ({exc.code})")
            raise (Unavailable if again else Invalid)(str(exc), reason) from None
        except (FeishuUnreachable, FeishuNoResponse) as exc:
            raise Unavailable(str(exc)) from None
        return Attachment(name=file.name, mime=fetched.mime or file.mime or UNKNOWN_MIME, body=fetched.body)

    async def _run(self, context: AdapterContext, receiver: FeishuReceiver) -> None:
        self._receiver = receiver
        try:
            if self._settings.mode is FeishuMode.CONNECTION:
                await LongConnection(self._api, context, receiver, sleep=self._sleep).run()
            else:
                context.report(LinkState.CONNECTED)
                await asyncio.Event().wait()
        finally:
            self._receiver = None

    async def _identify(self, context: AdapterContext) -> FeishuIdentity:
        """Look up who the bot is. Retry until Feishu answers. Raise `Forbidden` if it refuses the credentials."""
        failures = 0
        while True:
            wait = 0.0
            try:
                return await self._api.identify()
            except FeishuApiError as exc:
                check_access(exc)
                if exc.retry_after is not None:
                    wait = exc.retry_after.total_seconds()
                elif not exc.uncertain:
                    raise Forbidden(str(exc)) from None
                context.report(LinkState.THROTTLED if wait else LinkState.CONNECTING, str(exc))
            except (FeishuUnreachable, FeishuNoResponse) as exc:
                context.report(LinkState.CONNECTING, str(exc))
            failures += 1
            await self._sleep(max(wait, _BACKOFF.seconds(failures)))

    async def _handle_post(self, request: WebhookRequest) -> WebhookResponse:
        """Answer one post: 401 if it does not come from Feishu, 503 if it should come again, and 200 only once it is
        stored."""
        envelope = self._open_post(request)
        if envelope is None:
            return WebhookResponse(status=401)
        if envelope.type == "url_verification":
            return _respond({"challenge": envelope.challenge})
        receiver = self._receiver
        if receiver is None:
            return WebhookResponse(status=503)
        try:
            shown = await receiver.receive_envelope(envelope)
        except Unavailable:
            return WebhookResponse(status=503)
        return _respond(shown or {})

    def _open_post(self, request: WebhookRequest) -> FeishuEnvelope | None:
        """Return what a post contains, or `None` if it was not made with the keys of the app."""
        if self._decrypt is None:
            return None
        try:
            posted = msgspec.json.decode(request.body, type=EncryptedPost)
            envelope = msgspec.json.decode(self._decrypt(posted.encrypt), type=FeishuEnvelope)
        except (msgspec.DecodeError, RecursionError, Invalid):
            return None
        challenge = envelope.type == "url_verification"
        token = envelope.token if challenge or envelope.header is None else envelope.header.token
        if not hmac.compare_digest(token.encode(), self._verification_token.encode()):
            return None
        return envelope if challenge or self._verify_signature(request) else None

    def _verify_signature(self, request: WebhookRequest) -> bool:
        at = request.headers.get("x-lark-request-timestamp", "")
        if not (at.isascii() and at.isdigit() and len(at) < 12):
            return False
        if abs(self._now().timestamp() - int(at)) > MAX_POST_AGE_SECONDS:
            return False
        nonce = request.headers.get("x-lark-request-nonce", "")
        given = request.headers.get("x-lark-signature", "")
        return hmac.compare_digest(given.encode(), sign(self._encrypt_key, at, nonce, request.body).encode())


def _respond(body: dict[str, object]) -> WebhookResponse:
    return WebhookResponse(body=encode_json(body).encode(), mime=_JSON)
