"""Previews: a long turn shows itself where it was asked, as a message that is edited until the answer replaces it.

Nothing but stored text is shown. The gate of the chat is closed while a preview is on its way, so that the answer
never meets it there: the answer waits, then takes its place."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

import anyio
from anyio.abc import TaskGroup

from keryx.core import previews as core
from keryx.core.changes import Change, Kind
from keryx.core.deliveries import Idempotency, Target
from keryx.core.errors import Gone, KeryxError, NotSent, Refused, Retryable, SendError, Throttled
from keryx.core.ids import DeliveryId, TurnId, WorkerId
from keryx.core.ports import Adapter, Clock, Parcel, Reacting
from keryx.core.previews import Preview, PreviewState
from keryx.core.sessions import JOB_SURFACE
from keryx.core.turns import Turn
from keryx.engine import answers, foreign, parcels
from keryx.engine.alarm import signal_or_moment
from keryx.engine.answers import Draft
from keryx.engine.connections import Connections
from keryx.store import gates, previews, turns
from keryx.store.database import Database, Transaction
from keryx.store.wake import Wake

log = logging.getLogger(__name__)

FIRST = timedelta(seconds=1.2)
EVERY = timedelta(seconds=1.5)
SLOWEST = timedelta(seconds=12)
SILENT = timedelta(seconds=10)
TYPING_FIRST = timedelta(seconds=0.6)
TYPING_EVERY = timedelta(seconds=4)
HOLD = timedelta(seconds=20)
SEND = timedelta(seconds=15)
_TYPING_SECONDS = 5
_TRIES = 5
_GATE = "preview"


class _Watch:
    """A running turn that is shown: what of it is there, and when it may be shown again."""

    def __init__(self, turn: Turn, target: Target, adapter: Adapter, now: datetime) -> None:
        self.turn = turn
        self.target = target
        self.adapter = adapter
        self.began = now
        self.wake = Wake()
        self.over = False
        self.dirty = True
        self.said = Draft()
        self.visible = False
        self.shown = ""
        self.done = not adapter.capabilities.edit
        self.typing_at = now + TYPING_FIRST if _hints(adapter) else None
        self.due = now + FIRST
        self.pause = EVERY


class Previews:
    """The previews of the turns that this process runs. The runner tells which; the feed tells when they said more."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        adapters: Sequence[Adapter],
        worker: WorkerId,
        connections: Connections,
        look_again: Callable[[], None],
    ) -> None:
        self._database = database
        self._clock = clock
        self._adapters = {(a.platform, a.account): a for a in adapters}
        self._worker = worker
        self._connections = connections
        self._look_again = look_again
        self._watched: dict[TurnId, _Watch] = {}
        self._fresh: list[_Watch] = []
        self._sending = 0
        self._more = Wake()

    def began(self, turn: Turn) -> None:
        """A turn begins here. It is shown if the place that asked can show it."""
        adapter = self._adapters.get((turn.reply.platform, turn.reply.account)) if turn.reply else None
        # The answer of a job may turn out to be one that is not sent.
        if turn.reply is None or adapter is None or turn.surface == JOB_SURFACE:
            return
        if adapter.capabilities.edit or _hints(adapter):
            watch = _Watch(turn, turn.reply, adapter, self._clock.now())
            self._watched[turn.id] = watch
            self._fresh.append(watch)
            self._more.signal()

    def ended(self, turn: Turn) -> None:
        """A turn is over here, or lost to another worker: nothing more is shown of it."""
        watch = self._watched.get(turn.id)
        if watch is not None and watch.turn.lease == turn.lease:
            del self._watched[turn.id]
            watch.over = True
            watch.wake.signal()

    async def drain(self, seconds: float) -> None:
        """Give the previews on their way some time, so that none is left in doubt."""
        for watch in self._watched.values():
            watch.over = True
        with anyio.move_on_after(seconds):
            while self._sending:
                await self._more.wait(self._more.count)

    async def run(self, changes: AsyncIterator[Change]) -> None:
        """Show until cancelled. `changes` is the live feed."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._listen, changes)
            await self._start_forever(group)

    async def _listen(self, changes: AsyncIterator[Change]) -> None:
        async for change in changes:
            watch = self._watched.get(change.turn) if change.turn else None
            if watch is not None and change.kind in (Kind.DRAFT, Kind.MESSAGE):
                watch.dirty = True
                watch.wake.signal()

    async def _start_forever(self, group: TaskGroup) -> None:
        while True:
            seen = self._more.count
            for watch in self._fresh:
                group.start_soon(self._follow, watch)
            self._fresh.clear()
            await self._more.wait(seen)

    async def _follow(self, watch: _Watch) -> None:
        """The door of a preview: whatever happens to it, the turn goes on and its answer arrives."""
        try:
            while not watch.over:
                seen = watch.wake.count
                await self._type(watch)
                await self._show(watch)
                if not watch.over:
                    await signal_or_moment(watch.wake, seen, self._clock, self._next(watch))
        except Exception:
            log.exception("the preview of turn %s failed; its answer is sent as ever", watch.turn.id)

    def _next(self, watch: _Watch) -> datetime | None:
        """When to look again if the turn says nothing meanwhile."""
        moments: list[datetime] = []
        if watch.typing_at is not None and not watch.visible:
            moments.append(watch.typing_at)
        if not watch.done:
            silent = max(watch.due, watch.began + SILENT)
            if watch.said.text or watch.dirty:
                moments.append(watch.due)
            elif not watch.shown:
                moments.append(silent)
            else:
                moments.append(max(watch.due, self._clock.now() + timedelta(seconds=30)))
        return min((m for m in moments if m > self._clock.now()), default=None)

    async def _type(self, watch: _Watch) -> None:
        """Show that an answer is being written: again and again, or once by a reaction where there is no typing."""
        adapter, now = watch.adapter, self._clock.now()
        if watch.typing_at is None or watch.visible or now < watch.typing_at:
            return
        watch.typing_at = now + TYPING_EVERY if adapter.capabilities.typing else None
        try:
            if await self._database.read(
                "preview.gate", partial(gates.open_at, target=watch.target, now=now)
            ):
                return
            with anyio.fail_after(_TYPING_SECONDS), foreign.contained():
                if adapter.capabilities.typing:
                    await adapter.typing(watch.target)
                elif isinstance(adapter, Reacting):
                    await adapter.react(watch.target)
        except Exception as exc:  # noqa: BLE001 a hint that nobody misses
            log.debug("typing on %s failed: %r", adapter.platform, exc)

    async def _show(self, watch: _Watch) -> None:
        """Bring the preview up to date, if it is time and there is something new."""
        if watch.done or self._clock.now() < watch.due:
            return
        try:
            if watch.dirty:
                watch.dirty = False
                watch.said = await self._database.read(
                    "preview.said", partial(answers.draft, turn=watch.turn)
                )
            text, whole = self._text(watch)
            if text and text != watch.shown:
                await self._put(watch, text)
                watch.done = watch.done or (watch.shown == text and not whole)
        except Refused as exc:
            watch.done = True
            log.info("turn %s is not shown: %s", watch.turn.id, exc)
        except KeryxError as exc:
            watch.dirty = True
            watch.due = self._clock.now() + watch.pause
            log.info("the preview of turn %s waits: %s", watch.turn.id, exc)

    def _text(self, watch: _Watch) -> tuple[str, bool]:
        """What the preview is to show, and whether that is all there is: of a long text it shows the first part."""
        text = watch.said.text
        if not text:
            passed = self._clock.now() - watch.began
            if passed < SILENT:
                return "", True
            text = core.progress(watch.said.tool, int(passed.total_seconds() // 60))
        found = parcels.cut(watch.adapter, text)
        return (found[0], len(found) == 1) if found else ("", True)

    async def _put(self, watch: _Watch, text: str) -> None:
        """Send the preview, or edit the one that is there."""
        self._sending += 1
        try:
            await self._attempt(watch, text)
        finally:
            self._sending -= 1
            self._more.signal()

    async def _attempt(self, watch: _Watch, text: str) -> None:
        begun = await self._write(partial(self._begin, watch=watch))
        watch.due = self._clock.now() + watch.pause
        if not isinstance(begun, Preview):
            watch.done = begun is None
            watch.due = max(watch.due, begun) if begun else watch.due
            return
        watch.visible = True
        error: SendError | None = None
        receipt = ""
        try:
            receipt = await foreign.send(watch.adapter, _parcel(begun, text), SEND)
            # Sent once more under its key, it still shows what it showed the first time.
            watch.shown = text if begun.receipt or not begun.revision else ""
        except SendError as exc:
            error = exc
        await self._write(
            partial(self._end, watch=watch, preview=begun, receipt=receipt, error=error), label="preview.end"
        )
        self._settle(watch, begun, error)
        self._look_again()

    def _settle(self, watch: _Watch, preview: Preview, error: SendError | None) -> None:
        """What an attempt means for the next one."""
        watch.due = self._clock.now() + watch.pause
        if error is None:
            self._connections.count(watch.adapter, "sent")
            return
        log.info("the preview of turn %s: %s", watch.turn.id, error)
        self._connections.count(watch.adapter, "throttled" if isinstance(error, Throttled) else "failed")
        watch.dirty = True
        watch.visible = bool(preview.receipt)
        if isinstance(error, Throttled):
            watch.pause = min(watch.pause * 2, SLOWEST)
            watch.due = self._clock.now() + max(error.after, watch.pause)
        watch.done = isinstance(error, Refused | Gone)

    def _begin(self, tx: Transaction, *, watch: _Watch) -> Preview | datetime | None:
        """Reserve the chat for one send: a preview to send or to edit, a moment to try again, or `None` for never."""
        turns.hold(tx, watch.turn)
        now = self._clock.now()
        held = gates.open_at(tx, watch.target, now=now)
        if held is not None or previews.waiting(tx, watch.target):
            return held or now + watch.pause
        found = previews.find(tx, watch.turn.id)
        if found is not None and found.state is PreviewState.SHOWN:
            begun = previews.revise(tx, watch.turn)
        elif found is None or self._native(watch):
            begun = previews.begin(tx, watch.turn, watch.target, worker=self._worker, now=now)
        else:
            previews.record(tx, found, PreviewState.LOST)
            return None
        gates.close(tx, watch.target.key, until=now + HOLD, reason=_GATE)
        return begun

    def _end(
        self, tx: Transaction, *, watch: _Watch, preview: Preview, receipt: str, error: SendError | None
    ) -> None:
        """Record what became of a send, and open the chat again."""
        now = self._clock.now()
        first = preview.state is PreviewState.SENDING
        match error:
            case None:
                previews.record(tx, preview, PreviewState.SHOWN, receipt=receipt)
            case Gone():
                previews.withdraw(tx, preview)
            case NotSent() | Refused() | Throttled():
                if first:
                    previews.withdraw(tx, preview)
            case _:
                if first:
                    previews.record(tx, preview, PreviewState.LOST)
        able = watch.adapter.capabilities
        gates.reopen(tx, watch.target.key, reason=_GATE, at=now + able.chat_interval)
        if able.account_interval > timedelta(0):
            gates.close(tx, watch.target.account_key, until=now + able.account_interval, reason="rate")
        if isinstance(error, Throttled):
            key = watch.target.account_key if error.account else watch.target.key
            gates.close(tx, key, until=now + error.after, reason=str(error))

    async def _write(
        self, work: Callable[[Transaction], Preview | datetime | None], *, label: str = "preview.begin"
    ) -> Preview | datetime | None:
        """Run a unit of work. The end of a send is tried for a while: the chat waits for it."""
        for left in range(_TRIES if label == "preview.end" else 1, 0, -1):
            try:
                return await self._database.write(label, work)
            except Retryable:
                if left == 1:
                    raise
                await self._clock.sleep(0.5)
        return None

    @staticmethod
    def _native(watch: _Watch) -> bool:
        return watch.adapter.capabilities.idempotency is Idempotency.NATIVE


def _hints(adapter: Adapter) -> bool:
    """Whether the platform can show, other than by words, that an answer is being written."""
    able = adapter.capabilities
    return able.typing or able.reactions


def _parcel(preview: Preview, text: str) -> Parcel:
    key = f"{preview.key}.{preview.revision}" if preview.receipt else preview.key
    return Parcel(
        delivery=DeliveryId(preview.key),
        part=0,
        key=key,
        target=preview.target,
        text=text,
        edits=preview.receipt,
    )
