"""Dispatcher: takes deliveries out of the store in order, sends them through adapters, and records what happened."""

import logging
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from functools import partial

import anyio
import msgspec
from anyio.abc import TaskGroup

from keryx.core.changes import Change, Kind
from keryx.core.deliveries import Delivery
from keryx.core.errors import KeryxError, LeaseLost, SendError, Uncertain
from keryx.core.ids import DeliveryId, LeaseToken, WorkerId
from keryx.core.ports import Adapter, Clock, Parcel
from keryx.engine import outcome
from keryx.engine.alarm import signal_or_moment
from keryx.engine.foreign import contained
from keryx.engine.policy import Policy
from keryx.store import deliveries, gates
from keryx.store.database import Database, Transaction
from keryx.store.wake import Wake

log = logging.getLogger(__name__)

AT_ONCE = 16
Claimed = tuple[Delivery, LeaseToken]


class Dispatcher:
    """One account's sender. Different targets are served side by side, each target strictly in order."""

    def __init__(
        self, database: Database, clock: Clock, adapter: Adapter, *, worker: WorkerId, policy: Policy
    ) -> None:
        self._database = database
        self._clock = clock
        self._adapter = adapter
        self._worker = worker
        self._policy = policy
        self._sending: set[DeliveryId] = set()
        self._work = Wake()

    @property
    def held(self) -> frozenset[DeliveryId]:
        """The deliveries that are being sent."""
        return frozenset(self._sending)

    def look_again(self) -> None:
        """Something that waited for a moment may be due sooner than was thought."""
        self._work.signal()

    async def run(self, changes: AsyncIterator[Change]) -> None:
        """Send until cancelled. `changes` is the live feed: it tells of new deliveries."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._listen, changes)
            await self._send_forever(group)

    async def _listen(self, changes: AsyncIterator[Change]) -> None:
        async for change in changes:
            if change.kind is Kind.DELIVERY:
                self._work.signal()

    async def _send_forever(self, group: TaskGroup) -> None:
        while True:
            seen = self._work.count
            free = AT_ONCE - len(self._sending)
            claimed, at = await self._claim(free) if free > 0 else ([], None)
            for delivery, lease in claimed:
                self._sending.add(delivery.id)
                group.start_soon(self._attempt, delivery, lease)
            await signal_or_moment(self._work, seen, self._clock, at)

    async def _claim(self, most: int) -> tuple[list[Claimed], datetime | None]:
        """Lease what may go now, and tell when to look again for what waits for a moment rather than for an event."""
        try:
            return await self._database.write("delivery.claim", partial(self._claim_all, most=most))
        except KeryxError as exc:
            log.warning("cannot claim a delivery now: %s", exc)
            await self._clock.sleep(0.5)
            self._work.signal()
            return [], None

    def _claim_all(self, tx: Transaction, *, most: int) -> tuple[list[Claimed], datetime | None]:
        now = self._clock.now()
        found: list[Claimed] = []
        while len(found) < most:
            claimed = deliveries.claim(
                tx,
                platform=self._adapter.platform,
                account=self._adapter.account,
                worker=self._worker,
                now=now,
                lease=self._policy.limits.lease,
            )
            if claimed is None:
                return found, _next_at(tx, now)
            found.append(claimed)
        return found, None

    async def _attempt(self, delivery: Delivery, lease: LeaseToken) -> None:
        """The door of a delivery: whatever happens is recorded, or its lease runs out."""
        try:
            await self._send_parts(delivery, lease)
        except LeaseLost as exc:
            log.warning("%s", exc)
        except Exception:
            log.exception("delivery %s could not be recorded; its lease will run out", delivery.id)
        finally:
            self._sending.discard(delivery.id)
            self._work.signal()

    async def _send_parts(self, delivery: Delivery, lease: LeaseToken) -> None:
        """Send the parts that are left. Each is recorded as it arrives; the last one together with the end."""
        texts = self._adapter.parts(delivery.text)
        current = delivery
        for number in range(delivery.parts_sent, len(texts)):
            try:
                receipt = await self._send(current, number, texts[number])
            except SendError as exc:
                await self._settle(current, lease, self._failed(current, exc))
                return
            if number + 1 == len(texts):
                await self._database.write(
                    "delivery.settle", partial(self._all_sent, delivery=current, lease=lease, receipt=receipt)
                )
                return
            await self._database.write(
                "delivery.part", partial(self._part_sent, delivery=current, lease=lease, receipt=receipt)
            )
            current = msgspec.structs.replace(
                current, parts_sent=number + 1, receipts=(*current.receipts, receipt), again=False
            )
        await self._settle(current, lease, outcome.SENT)

    async def _settle(self, delivery: Delivery, lease: LeaseToken, step: outcome.Step) -> None:
        await self._database.write(
            "delivery.settle",
            partial(outcome.settle, delivery=delivery, lease=lease, step=step, now=self._clock.now()),
        )

    def _failed(self, delivery: Delivery, error: SendError) -> outcome.Step:
        return outcome.failed(
            delivery,
            error,
            self._adapter.capabilities.idempotency,
            self._policy.doubt,
            now=self._clock.now(),
            give_up=self._policy.give_up,
        )

    async def _send(self, delivery: Delivery, number: int, text: str) -> str:
        parcel = Parcel(
            delivery=delivery.id,
            part=number,
            key=f"{delivery.id}.{number}",
            target=delivery.target,
            text=text,
            again=delivery.again,
        )
        try:
            with anyio.fail_after(self._policy.send_timeout.total_seconds()), contained():
                return await self._adapter.send(parcel)
        except SendError:
            raise
        except TimeoutError as exc:
            raise Uncertain(f"{delivery.target.platform} did not answer in time") from exc
        except Exception as exc:
            log.exception("the %s adapter failed with delivery %s", delivery.target.platform, delivery.id)
            raise Uncertain(f"the {delivery.target.platform} adapter failed: {type(exc).__name__}") from exc

    def _part_sent(self, tx: Transaction, *, delivery: Delivery, lease: LeaseToken, receipt: str) -> None:
        """Record the part and, where the platform has a rate, close its gates for a moment."""
        deliveries.part_sent(tx, delivery, lease, receipt=receipt)
        able = self._adapter.capabilities
        for key, interval in (
            (delivery.target.key, able.chat_interval),
            (delivery.target.account_key, able.account_interval),
        ):
            if interval > timedelta(0):
                gates.close(tx, key, until=self._clock.now() + interval, reason="rate")

    def _all_sent(self, tx: Transaction, *, delivery: Delivery, lease: LeaseToken, receipt: str) -> None:
        self._part_sent(tx, delivery=delivery, lease=lease, receipt=receipt)
        outcome.settle(tx, delivery=delivery, lease=lease, step=outcome.SENT, now=self._clock.now())


def _next_at(tx: Transaction, now: datetime) -> datetime | None:
    moments = [m for m in (deliveries.next_at(tx, now=now), gates.next_opening(tx, now=now)) if m]
    return min(moments, default=None)
