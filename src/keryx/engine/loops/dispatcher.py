"""Claims deliveries in order, sends them through an adapter and records the outcome."""

import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial

import anyio
import msgspec
from anyio.abc import TaskGroup

from keryx import logs
from keryx.core.changes import Change, ChangeKind
from keryx.core.clock import Clock
from keryx.core.deliveries import (
    Delivery,
    DeliveryState,
    Idempotency,
    Preview,
    PreviewState,
    Target,
    parse_note,
)
from keryx.core.errors import (
    CredentialsRefused,
    KeryxError,
    LeaseLost,
    MessageGone,
    Refused,
    SendError,
    Throttled,
)
from keryx.core.ids import DeliveryId, LeaseToken, WorkerId
from keryx.core.media import Attachment
from keryx.core.ports.adapter import (
    Adapter,
    OutgoingPart,
    RenderedPart,
    SupportsReconciliation,
    SupportsRemoval,
    SupportsSendKeys,
)
from keryx.core.questions import Button
from keryx.engine import plugins
from keryx.engine.loops import delivery_parts, reports
from keryx.engine.loops.delivery_parts import Content, TextWithFiles
from keryx.engine.loops.platform_status import PlatformStatusReporter
from keryx.engine.media import MediaStorage
from keryx.engine.policy import Policy
from keryx.engine.units import deliveries
from keryx.engine.units.deliveries import ClaimedDelivery
from keryx.store import deliveries as deliveries_store
from keryx.store.db import Database
from keryx.timing import WakeSignal, wait_until

log = logging.getLogger(__name__)

MAX_CONCURRENT = 16


class Dispatcher:
    """One account's sender. Different targets are served side by side, each target strictly in order."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        adapter: Adapter,
        *,
        worker: WorkerId,
        policy: Policy,
        media: MediaStorage,
        connections: PlatformStatusReporter,
        can_send: Callable[[], bool],
    ) -> None:
        """While `can_send` returns false, deliveries are left to other processes. Call `look_again` when it has changed."""
        self._database = database
        self._clock = clock
        self._adapter = adapter
        # Whether an object implements a protocol takes long to find out.
        self._with_send_keys = adapter if isinstance(adapter, SupportsSendKeys) else None
        self._worker = worker
        self._policy = policy
        self._media = media
        self._connections = connections
        self._can_send = can_send
        self._account = Target(adapter.platform, adapter.account).account_key
        self._sending: set[DeliveryId] = set()
        self._draining = False
        self._waiting = True
        self._last = ""
        self._work = WakeSignal()

    @property
    def active_deliveries(self) -> frozenset[DeliveryId]:
        """The deliveries that are being sent."""
        return frozenset(self._sending)

    def look_again(self) -> None:
        """Check again for deliveries: one that waits for a time may be due earlier than expected."""
        self._work.signal()

    async def drain(self, seconds: float) -> None:
        """Claim no more deliveries, and wait a while for those being sent, so that none has an unknown outcome."""
        self._draining = True
        with anyio.move_on_after(seconds):
            while self._sending:
                await self._work.wait(self._work.count)

    async def run(self) -> None:
        """Send until cancelled."""
        async with anyio.create_task_group() as group:
            await self._send_forever(group)

    def handle(self, change: Change) -> None:
        """Take note of a new delivery, or of one that ended."""
        if change.kind is ChangeKind.DELIVERY:
            state, account = parse_note(change.note)
            # A delivery that ended makes room for others only if some are waiting.
            if account == self._account and (state is DeliveryState.READY or self._waiting):
                self._work.signal()

    async def _send_forever(self, group: TaskGroup) -> None:
        while True:
            seen = self._work.count
            # A delivery may end while we claim, too late for this claim to see it: assume that others wait.
            self._waiting = True
            closed = self._draining or not self._can_send()
            free = 0 if closed else MAX_CONCURRENT - len(self._sending)
            claimed, at = await self._claim(free) if free > 0 else ([], None)
            for each in claimed:
                self._sending.add(each.delivery.id)
                group.start_soon(self._attempt, each)
            await wait_until(self._work, seen, self._clock, at)

    async def _claim(self, most: int) -> tuple[list[ClaimedDelivery], datetime | None]:
        """Lease what may be sent now. Also return when to try again for what waits for a time, not for an event."""
        try:
            claimed, self._waiting, at = await self._database.write(
                "delivery.claim",
                partial(
                    deliveries.claim,
                    most=most,
                    platform=self._adapter.platform,
                    account=self._adapter.account,
                    worker=self._worker,
                    lease=self._policy.limits.lease,
                    after=self._last,
                    capabilities=self._adapter.capabilities,
                ),
            )
        except KeryxError as exc:
            log.warning("cannot claim a delivery now: %s", exc, extra=logs.REPEATS)
            await self._clock.sleep(0.5)
            self._work.signal()
            return [], None
        self._last = claimed[-1].delivery.target.key if claimed else self._last
        return claimed, at

    async def _attempt(self, claimed: ClaimedDelivery) -> None:
        """Send a delivery and record the outcome. If recording fails, its lease expires."""
        delivery = claimed.delivery
        reports.begin_delivery(delivery)
        try:
            await self._send_parts(claimed)
            await reports.trace_delivery(self._database, delivery, worker=self._worker)
        except LeaseLost as exc:
            log.warning("%s", exc)
        except Exception:
            log.exception("could not record delivery %s; its lease will expire", delivery.id)
        finally:
            self._sending.discard(delivery.id)
            if self._waiting or self._draining:
                self._work.signal()

    async def _send_parts(self, claimed: ClaimedDelivery) -> None:
        """Send the remaining parts. Each is recorded when it was sent, the last one together with the end."""
        current, lease, preview = claimed.delivery, claimed.lease, claimed.preview
        try:
            if claimed.closing and preview is not None:
                await self._remove_preview(preview, claimed.closing)
                preview = None
            parts = await delivery_parts.split_delivery(
                self._adapter,
                current,
                max_parts=self._policy.limits.parts,
                media=self._media,
                texts=claimed.texts,
            )
            if claimed.edits:
                await self._send_edit(claimed, parts[0])
                return
            for number in range(current.parts_sent, len(parts)):
                last = number + 1 == len(parts)
                buttons = claimed.buttons if last else ()
                try:
                    receipt = await self._send_content(claimed, number, parts[number], preview, buttons)
                except MessageGone:
                    # The preview was deleted: from here on the answer is an ordinary message.
                    if preview is not None:
                        gone = partial(deliveries_store.remove_preview, preview=preview)
                        await self._database.write("preview.withdraw", gone)
                    preview = None
                    receipt = await self._send_content(claimed, number, parts[number], None, buttons)
                self._connections.count(self._adapter, "sent")
                if last:
                    end = partial(
                        deliveries.record_sent,
                        policy=self._policy,
                        claimed=claimed,
                        capabilities=self._adapter.capabilities,
                        receipt=receipt,
                        offered=buttons,
                    )
                    await self._database.write("delivery.settle", end)
                    reports.report_delivery(current, deliveries.SENT, self._clock.now())
                    return
                await self._database.write(
                    "delivery.part",
                    partial(
                        deliveries.record_part,
                        claimed=claimed,
                        capabilities=self._adapter.capabilities,
                        receipt=receipt,
                    ),
                )
                current = msgspec.structs.replace(
                    current,
                    parts_sent=number + 1,
                    receipts=(*current.receipts, receipt),
                    again=False,
                    send_key="",
                )
                claimed = msgspec.structs.replace(claimed, delivery=current)
        except SendError as exc:
            self._connections.count(self._adapter, "throttled" if isinstance(exc, Throttled) else "failed")
            if isinstance(exc, CredentialsRefused):
                self._connections.report_refusal(self._adapter, str(exc))
            await self._settle(
                current, lease, self._judge_failure(current, exc, preview, edits=bool(claimed.edits))
            )
            return
        await self._settle(current, lease, deliveries.SENT)

    async def _remove_preview(self, preview: Preview, closing: str) -> None:
        """Delete what a turn showed, or say there that the answer is below. May be repeated."""
        try:
            if isinstance(self._adapter, SupportsRemoval):
                try:
                    await plugins.remove_message(
                        self._adapter, preview.target, preview.receipt, self._policy.send_timeout
                    )
                except Refused as exc:
                    log.info("cannot delete the preview of turn %s: %s", preview.turn, exc)
                    await self._close_preview(preview, closing)
            else:
                await self._close_preview(preview, closing)
        except (MessageGone, Refused) as exc:
            log.info("the preview of turn %s cannot be closed: %s", preview.turn, exc)
        await self._database.write(
            "preview.withdraw", partial(deliveries_store.remove_preview, preview=preview)
        )

    async def _close_preview(self, preview: Preview, closing: str) -> None:
        rendered = (await plugins.render_parts(self._adapter, closing))[0]
        part = OutgoingPart(
            delivery=DeliveryId(preview.key),
            number=0,
            key=f"{preview.key}.closed",
            target=preview.target,
            edits=preview.receipt,
        )
        await self._send(_set_text(part, rendered))

    async def _send_edit(self, claimed: ClaimedDelivery, content: Content) -> None:
        """Replace a message that has buttons. If it was deleted, there is nothing to replace."""
        part = self._build_part(claimed.delivery, 0, content)
        try:
            await self._send(msgspec.structs.replace(part, edits=claimed.edits, again=False))
        except MessageGone as exc:
            log.info("delivery %s has nothing to replace: %s", claimed.delivery.id, exc)
        await self._database.write(
            "delivery.settle",
            partial(
                deliveries.record_edit,
                claimed=claimed,
                capabilities=self._adapter.capabilities,
                policy=self._policy,
            ),
        )
        reports.report_delivery(claimed.delivery, deliveries.SENT, self._clock.now())

    async def _send_content(
        self,
        claimed: ClaimedDelivery,
        number: int,
        content: Content,
        preview: Preview | None,
        buttons: tuple[Button, ...],
    ) -> str:
        """Send a part, unless the platform knows that an earlier attempt has arrived."""
        delivery = claimed.delivery
        part = msgspec.structs.replace(
            self._build_part(delivery, number, content),
            buttons=buttons,
            title=claimed.title,
            texts=claimed.texts,
        )
        if isinstance(content, Attachment):
            part = msgspec.structs.replace(part, attachment=content)
        elif isinstance(content, TextWithFiles):
            part = _set_text(msgspec.structs.replace(part, attachments=content.files), content.rendered)
        elif not isinstance(content, RenderedPart):
            file = await delivery_parts.load_attachment(self._media, delivery.session, content)
            reason = delivery_parts.find_reason_unsent(self._adapter, file)
            if reason:
                unsent = await delivery_parts.render_unsent_file(
                    self._adapter, content, reason, claimed.texts
                )
                part = _set_text(part, unsent)
            else:
                part = msgspec.structs.replace(part, attachment=file)
        replaced = None if number or not isinstance(content, RenderedPart) else preview
        if replaced is not None and replaced.state is PreviewState.SHOWN:
            # An edit may be repeated, so it needs neither a mark nor a key.
            return await self._send(msgspec.structs.replace(part, edits=replaced.receipt, again=False))
        if self._with_send_keys is not None:
            part = await self._add_send_key(claimed, part, self._with_send_keys)
        if replaced is not None:
            return await self._replace_lost(part, replaced)
        if not part.again or not isinstance(self._adapter, SupportsReconciliation):
            return await self._send(part)
        return await self._find_sent(part, self._adapter) or await self._send(
            msgspec.structs.replace(part, again=False)
        )

    async def _add_send_key(
        self, claimed: ClaimedDelivery, part: OutgoingPart, adapter: SupportsSendKeys
    ) -> OutgoingPart:
        """Return a part with the adapter's own key, which is stored before the first attempt."""
        key = claimed.delivery.send_key
        if not key:
            key = await plugins.create_send_key(adapter, part)
            await self._database.write(
                "delivery.key",
                partial(
                    deliveries_store.save_send_key, delivery=claimed.delivery, lease=claimed.lease, key=key
                ),
            )
        return msgspec.structs.replace(part, key=key)

    async def _replace_lost(self, part: OutgoingPart, preview: Preview) -> str:
        """Send the first part in place of a preview that may have arrived. On an idempotent platform its key identifies
        the preview, or a search finds it; elsewhere the part is sent as a new message, with the mark."""
        unmarked = msgspec.structs.replace(part, again=False)
        if self._adapter.capabilities.idempotency is Idempotency.NATIVE:
            receipt = await self._send(msgspec.structs.replace(unmarked, key=preview.key))
        elif isinstance(self._adapter, SupportsReconciliation):
            by_key = msgspec.structs.replace(unmarked, key=preview.key)
            found = await self._find_sent(by_key, self._adapter) or await self._find_sent(part, self._adapter)
            if found is None:
                return await self._send(unmarked)
            receipt = found
        else:
            return await self._send(msgspec.structs.replace(part, again=True))
        return await self._send(msgspec.structs.replace(unmarked, edits=receipt))

    async def _settle(self, delivery: Delivery, lease: LeaseToken, step: deliveries.SendOutcome) -> None:
        await self._database.write(
            "delivery.settle",
            partial(deliveries.settle, delivery=delivery, lease=lease, step=step, policy=self._policy),
        )
        reports.report_delivery(delivery, step, self._clock.now())

    def _judge_failure(
        self, delivery: Delivery, error: SendError, preview: Preview | None, *, edits: bool
    ) -> deliveries.SendOutcome:
        shown = preview is not None and preview.state is PreviewState.SHOWN
        edited = edits or (shown and not delivery.parts_sent)
        return deliveries.judge_failure(
            delivery,
            error,
            Idempotency.NATIVE if edited else self._adapter.capabilities.idempotency,
            self._policy.doubt,
            now=self._clock.now(),
            give_up=self._policy.give_up,
        )

    async def _send(self, part: OutgoingPart) -> str:
        return await plugins.send_part(self._adapter, part, self._policy.send_timeout)

    async def _find_sent(self, part: OutgoingPart, adapter: SupportsReconciliation) -> str | None:
        return await plugins.find_sent(adapter, part, self._policy.send_timeout)

    def _build_part(self, delivery: Delivery, number: int, content: Content) -> OutgoingPart:
        part = OutgoingPart(
            delivery=delivery.id,
            number=number,
            key=f"{delivery.id}.{number}",
            target=delivery.target.without_expired(self._clock.now()),
            again=delivery.again,
            repeat_mark=self._policy.repeat_mark,
        )
        return _set_text(part, content) if isinstance(content, RenderedPart) else part


def _set_text(part: OutgoingPart, rendered: RenderedPart) -> OutgoingPart:
    return msgspec.structs.replace(part, text=rendered.text, markup=rendered.markup)
