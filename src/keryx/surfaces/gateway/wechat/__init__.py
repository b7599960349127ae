"""The adapter for one bot of a person on WeChat, over Tencent's iLink bot API by long polling, and its settings."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta

import anyio
import msgspec

from keryx.core.deliveries import Target
from keryx.core.durations import Backoff
from keryx.core.errors import Forbidden, Invalid, NotSent, Unavailable
from keryx.core.media import Attachment, RemoteFile
from keryx.core.ports.adapter import (
    AdapterContext,
    AttachmentLimits,
    Capabilities,
    LengthUnit,
    LinkState,
    OutgoingPart,
    RenderedPart,
)
from keryx.core.texts import Phrase
from keryx.secrets import Secret
from keryx.surfaces.gateway import decrypt_aes, has_cipher, http_clients
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.wechat import message_sender
from keryx.surfaces.gateway.wechat.event_parser import (
    IDS,
    PLATFORM,
    REPLY_WINDOW,
    WeChatIdentity,
    parse_reference,
)
from keryx.surfaces.gateway.wechat.event_receiver import ContextTokens, UpdatePosition, WeChatReceiver
from keryx.surfaces.gateway.wechat.ilink_api import (
    CIPHER_MISSING,
    DEFAULT_CDN_URL,
    DEFAULT_URL,
    ILinkApi,
    WeChatApiError,
    WeChatNoResponse,
    WeChatUnreachable,
)
from keryx.surfaces.gateway.wechat.message_sender import WeChatRateLimits, WeChatTyping
from keryx.surfaces.gateway.wechat.payloads import UpdateBatch
from keryx.timing import Sleep

log = logging.getLogger(__name__)
_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30))
_POLL_SECONDS = 35.0
_MAX_POLL_SECONDS = 120.0
# WeChat ends a poll itself; a little later nothing comes any more.
_POLL_MARGIN_SECONDS = 10.0
_CLOSE_SECONDS = 2.0
_NOTIFY_SECONDS = 5.0
# What Tencent's plug-in accepts.
_MAX_FILE_BYTES = 100 * 1024 * 1024


class WeChatSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [wechat]. A misspelt name is an error."""

    # The token and the id of the bot, from the login.
    token: Secret = Secret()
    bot_id: str = ""
    base_url: str = DEFAULT_URL
    # Where files are.
    cdn_url: str = DEFAULT_CDN_URL
    # The shortest time between two messages to one person.
    interval: timedelta = timedelta(seconds=0.3)

    def __post_init__(self) -> None:
        if self.interval > timedelta(minutes=1):
            raise ValueError("interval: give at most 1m")


class _Notified(msgspec.Struct, frozen=True):
    pass


def check_url(name: str, url: str) -> str:
    """Return the address in a setting without its trailing slash."""
    return http_clients.check_url(url, f"wechat.{name}: write a web address such as https://example.org")


def make(setup: AdapterSetup) -> "WeChatAdapter | None":
    """Build the adapter, or return None without settings. `Invalid` says what is missing."""
    settings = setup.read(WeChatSettings)
    if settings is None:
        return None
    if not settings.token or not settings.bot_id:
        raise Invalid(f"{setup.label}: nobody has logged in: run `{setup.command}`")
    return WeChatAdapter(settings.token.reveal(setup.environ), settings, account=setup.name)


class WeChatAdapter:
    platform = PLATFORM
    hook = None

    def __init__(
        self, token: str, settings: WeChatSettings, *, account: str = "", sleep: Sleep = asyncio.sleep
    ) -> None:
        self.account = account
        self._sleep = sleep
        self._me = WeChatIdentity(account=account, bot=settings.bot_id)
        self._api = ILinkApi(
            token, check_url("base_url", settings.base_url), check_url("cdn_url", settings.cdn_url)
        )
        self._tokens = ContextTokens(self._me)
        self._limits = WeChatRateLimits()
        self._typing = WeChatTyping(self._api)
        self.capabilities = Capabilities(
            typing=True,
            reply_window=REPLY_WINDOW,
            attachments=AttachmentLimits(max_bytes=_MAX_FILE_BYTES) if has_cipher() else None,
            separate_files=True,
            markup="plain text",
            limit=message_sender.LIMIT.size,
            unit=LengthUnit.UTF16,
            chat_interval=settings.interval,
            pii_safe=True,
            ids=IDS,
            notes=(
                "Messages that were sent cannot be edited or deleted.",
                "At most 10 messages can be sent until the person writes again, so prefer one message to several.",
            ),
        )

    async def listen(self, context: AdapterContext) -> None:
        self._tokens.attach(context)
        if not has_cipher():
            log.warning("%s", CIPHER_MISSING)
        receiver = WeChatReceiver(context, self._me, self._tokens)
        try:
            await self._notify("notifystart")
            await self._poll(context, receiver, await receiver.load_position())
        except asyncio.CancelledError:
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                await self._notify("notifystop")
            await self.close()
            raise
        finally:
            self._tokens.attach(None)

    async def close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._api.close()

    async def typing(self, target: Target) -> None:
        await self._typing.show(target.chat, token=await self._find_token(target))

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return message_sender.render_parts(text)

    async def send(self, part: OutgoingPart) -> str:
        # Before the message, so that usually nothing comes between the message and the record of it.
        await self._typing.end(part.target.chat)
        token = await self._find_token(part.target)
        receipt = await message_sender.send(self._api, part, token=token, limits=self._limits)
        # It may have been shown once more meanwhile.
        await self._typing.end(part.target.chat)
        return receipt

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        reference = parse_reference(file.reference)
        if reference.key and not has_cipher():
            raise Invalid(CIPHER_MISSING)
        try:
            body = await self._api.download(url=reference.url, param=reference.param, limit=limit)
        except WeChatApiError as exc:
            words = f"{exc.description} ({exc.code or exc.status})".strip()
            reason = Phrase("file.platform_says", platform="WeChat", reason=words)
            raise (Unavailable if exc.status == 429 or exc.status >= 500 else Invalid)(reason) from None
        except WeChatUnreachable as exc:
            raise Unavailable(str(exc)) from None
        if reference.key:
            try:
                body = await asyncio.to_thread(decrypt_aes, body, bytes.fromhex(reference.key))
            except ValueError:
                raise Invalid(Phrase("file.undecryptable")) from None
        if len(body) > limit:
            raise Invalid(Phrase("file.too_large", limit=limit))
        return Attachment(name=file.name, mime=file.mime, body=body)

    async def _find_token(self, target: Target) -> str:
        """Return the newest context token of a person, or that of the message which is answered if another process
        listens. Raise `NotSent` if the store does not answer."""
        asked = target.reply_context.token if target.reply_context else ""
        try:
            return await self._tokens.find(target.chat) or asked
        except Unavailable as exc:
            raise NotSent(str(exc)) from exc

    async def _notify(self, method: str) -> None:
        """Tell WeChat that the bot is there, or no longer. It works without, so a failure is only noted."""
        try:
            await self._api.post(f"msg/{method}", {}, _Notified, seconds=_NOTIFY_SECONDS)
        except (WeChatApiError, WeChatUnreachable, WeChatNoResponse) as exc:
            log.info("WeChat was not told that the bot starts or ends: %s", exc)

    async def _poll(
        self, context: AdapterContext, receiver: WeChatReceiver, position: UpdatePosition
    ) -> None:
        seconds = _POLL_SECONDS
        while True:
            batch = await self._fetch_updates(context, position.buf, seconds)
            if batch.longpolling_timeout_ms > 0:
                seconds = min(batch.longpolling_timeout_ms / 1000, _MAX_POLL_SECONDS)
            after = await receiver.receive_batch(batch, position)
            if batch.msgs and after == position:
                # WeChat hands over the same again and again.
                await self._sleep(_BACKOFF.seconds(1))
            position = after

    async def _fetch_updates(self, context: AdapterContext, buf: str, seconds: float) -> UpdateBatch:
        """Return the next messages. Retry until WeChat answers. Raise `Forbidden` if the session has ended."""
        failures = 0
        while True:
            least = 0.0
            try:
                batch = await self._api.post(
                    "getupdates",
                    {"get_updates_buf": buf},
                    UpdateBatch,
                    seconds=seconds + _POLL_MARGIN_SECONDS,
                )
            except WeChatNoResponse as exc:
                if exc.timed_out:
                    # Nothing has happened.
                    return UpdateBatch(get_updates_buf=buf)
                context.report(LinkState.CONNECTING, str(exc))
            except WeChatUnreachable as exc:
                context.report(LinkState.CONNECTING, str(exc))
            except WeChatApiError as exc:
                if exc.expired:
                    raise Forbidden(self._describe_end()) from None
                least = exc.retry_after
                link = LinkState.THROTTLED if exc.status == 429 else LinkState.CONNECTING
                context.report(link, str(exc))
            else:
                context.report(LinkState.CONNECTED)
                return batch
            failures += 1
            await self._sleep(max(least, _BACKOFF.seconds(failures)))

    def _describe_end(self) -> str:
        name = f" --name {self.account}" if self.account else ""
        return f"{message_sender.SESSION_ENDED.removesuffix('`')}{name}`, and start Keryx again"
