"""The adapter for an agent of one person on the Agent Platform, by long polling."""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import anyio
import msgspec

from keryx.core.deliveries import Target
from keryx.core.durations import Backoff
from keryx.core.errors import Forbidden, Throttled
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
from keryx.surfaces.gateway.whatsapp import message_sender
from keryx.surfaces.gateway.whatsapp.event_parser import (
    AGENT_IDS,
    PLATFORM,
    ParsedPayload,
    WhatsAppIdentity,
    parse_payload,
)
from keryx.surfaces.gateway.whatsapp.event_receiver import WhatsAppReceiver, download_file
from keryx.surfaces.gateway.whatsapp.graph_api import (
    AGENT_URL,
    RateWindow,
    Sleep,
    WhatsAppApi,
    WhatsAppApiError,
    WhatsAppNoResponse,
    WhatsAppUnreachable,
)
from keryx.surfaces.gateway.whatsapp.message_sender import MessageRoute, TypingIndicator
from keryx.surfaces.gateway.whatsapp.payloads import WhatsAppPayload
from keryx.surfaces.gateway.whatsapp.whatsapp_settings import BAD_KEY, WhatsAppSettings, check_url

AGENT_IN_USE = "another program polls as this agent: stop it, or give each program an agent of its own"
_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30))
_CLOSE_SECONDS = 2.0
_POLL_SECONDS = 25
_POLL_LIMIT = 100
_MAX_CONFLICTS = 5
# An agent that is connected for the first time does not answer what is older.
_MAX_FIRST_AGE_SECONDS = 24 * 3600
_MAX_UPLOAD_BYTES = 16_000_000


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
        self._typing = TypingIndicator(self._api, self._route, per_minute=settings.per_minute)
        self.capabilities = Capabilities(
            typing=True,
            attachments=AttachmentLimits(max_bytes=_MAX_UPLOAD_BYTES),
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
                Phrase("delivery.agent_rate", count="12"),
                after=timedelta(seconds=wait),
                account=True,
            )
        return await message_sender.send(self._api, self._route, part)

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        return await download_file(self._api, "agent/v1/media/", file, limit)

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
                context.report(LinkState.CONNECTING, str(exc))
            except msgspec.ValidationError as exc:
                context.report(LinkState.CONNECTING, f"WhatsApp answers in another form: {exc}")
            except WhatsAppApiError as exc:
                conflicts += exc.status == 409
                least = self._handle_error(context, exc, conflicts)
            else:
                context.report(LinkState.CONNECTED)
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
            context.report(LinkState.THROTTLED, "WhatsApp takes 15 polls a minute from an agent")
            return error.retry_after
        if error.status < 500:
            raise Forbidden(BAD_KEY if error.code in (100, 190) else str(error)) from None
        context.report(LinkState.CONNECTING, str(error))
        return error.retry_after


def format_position(offset: int, message: str = "") -> str:
    """Return the cursor of an agent: the offset of a batch, and the last message of it that is stored."""
    return f"{offset} {message}".rstrip()


def parse_position(cursor: str) -> tuple[int, str]:
    """Return what `format_position` wrote."""
    offset, _, message = cursor.partition(" ")
    return int(offset), message
