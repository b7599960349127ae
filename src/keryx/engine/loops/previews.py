"""Live previews of running turns: a message that is edited until the answer replaces it. Only stored text is shown, and the chat's gate is closed while a preview is sent."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

import anyio
from anyio.abc import TaskGroup

from keryx.core import deliveries as core_deliveries
from keryx.core.changes import Change, ChangeKind
from keryx.core.clock import Clock
from keryx.core.deliveries import Idempotency, Preview, Target
from keryx.core.durations import Backoff
from keryx.core.errors import Held, KeryxError, MessageGone, Refused, Retryable, SendError, Throttled
from keryx.core.ids import DeliveryId, TurnId, WorkerId
from keryx.core.ports.adapter import (
    Adapter,
    OutgoingPart,
    RenderedPart,
    Streaming,
    SupportsReactions,
    ToolStep,
)
from keryx.core.sessions import JOB_SURFACE
from keryx.core.texts import Catalogue
from keryx.core.turns import Turn
from keryx.engine import plugins
from keryx.engine.loops import delivery_parts
from keryx.engine.loops.platform_status import PlatformStatusReporter
from keryx.engine.plugins import get_account_key
from keryx.engine.units import answers, deliveries
from keryx.engine.units.answers import TurnDraft
from keryx.plugin_thread import guard_plugin
from keryx.store.db import Database, Work
from keryx.timing import WakeSignal, wait_until

log = logging.getLogger(__name__)

FIRST_PREVIEW = timedelta(seconds=1.2)
_EDIT_INTERVAL = Backoff(first=timedelta(seconds=1.5), longest=timedelta(seconds=12))
SILENCE_LIMIT = timedelta(seconds=10)
FIRST_TYPING = timedelta(seconds=0.6)
TYPING_INTERVAL = timedelta(seconds=4)
PREVIEW_TIMEOUT = timedelta(seconds=15)
_TYPING_TIMEOUT_SECONDS = 5
_MAX_TRIES = 5
_PREVIEW_CHANGES = (ChangeKind.DRAFT, ChangeKind.MESSAGE, ChangeKind.QUESTION)


class _TurnPreview:
    """The preview of a running turn: what it shows, and when it may be updated."""

    def __init__(self, turn: Turn, target: Target, adapter: Adapter, now: datetime) -> None:
        self.turn = turn
        self.target = target
        self.adapter = adapter
        self.began = now
        self.wake = WakeSignal()
        # The turn has ended here.
        self.over = False
        # The stored draft may be newer than `draft`.
        self.dirty = True
        self.draft = TurnDraft()
        # What the message shows, if that is known.
        self.shown: RenderedPart | None = None
        self.shown_steps: tuple[ToolStep, ...] = ()
        # The preview is never updated again; typing may still be shown.
        self.refused = adapter.capabilities.streaming is Streaming.NONE
        # The message is not updated any more.
        self.done = False
        self.typing_at = now + FIRST_TYPING if _shows_activity(adapter) else None
        # When the last message of the turn was sent, or its last question was answered.
        self.silent_since = now
        self.due = now + FIRST_PREVIEW
        self.throttles = 0

    def take_draft(self, draft: TurnDraft, now: datetime) -> None:
        """Take what the turn has said. After a message of the turn was sent, the next preview is a new message."""
        earlier, self.draft = self.draft, draft
        if (draft.sent_seq, draft.asked) != (earlier.sent_seq, earlier.asked):
            self.shown, self.shown_steps, self.done = None, (), False
            self.due = max(self.due, now + FIRST_PREVIEW)
        if (draft.sent_seq, draft.asking) != (earlier.sent_seq, earlier.asking):
            self.silent_since = now

    @property
    def steps(self) -> tuple[ToolStep, ...]:
        """The tool calls that the preview should show."""
        return self.draft.steps if self.adapter.capabilities.steps else ()

    @property
    def appends(self) -> bool:
        return self.adapter.capabilities.streaming is Streaming.APPEND

    @property
    def edit_interval(self) -> timedelta:
        """Doubles each time the platform throttles an edit."""
        return _EDIT_INTERVAL.delay(self.throttles + 1)


class Previews:
    """The previews of the turns that this process runs. The runner announces turns; the feed announces new text."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        adapters: Sequence[Adapter],
        worker: WorkerId,
        connections: PlatformStatusReporter,
        look_again: Callable[[], None],
        can_send: Callable[[Adapter], bool],
        replace_for: timedelta,
        texts: Catalogue,
    ) -> None:
        self._database = database
        self._clock = clock
        self._adapters = {get_account_key(a): a for a in adapters}
        self._worker = worker
        self._connections = connections
        self._look_again = look_again
        self._can_send = can_send
        # How long an answer takes the place of its preview.
        self._replace_for = replace_for
        self._texts = texts
        self._watched: dict[TurnId, _TurnPreview] = {}
        self._fresh: list[_TurnPreview] = []
        self._sending = 0
        self._more = WakeSignal()

    def turn_started(self, turn: Turn) -> None:
        """Start the preview of a turn that runs here, if the platform of its reply supports it."""
        adapter = self._adapters.get(get_account_key(turn.reply)) if turn.reply else None
        # A job may decide to send no answer.
        if turn.reply is None or adapter is None or turn.surface == JOB_SURFACE:
            return
        if adapter.capabilities.streaming is not Streaming.NONE or _shows_activity(adapter):
            watch = _TurnPreview(turn, turn.reply, adapter, self._clock.now())
            self._watched[turn.id] = watch
            self._fresh.append(watch)
            self._more.signal()

    def turn_ended(self, turn: Turn) -> None:
        """Stop the preview of a turn that has ended or was lost to another worker."""
        watch = self._watched.get(turn.id)
        if watch is not None and watch.turn.lease == turn.lease:
            del self._watched[turn.id]
            watch.over = True
            watch.wake.signal()

    async def drain(self, seconds: float) -> None:
        """Stop all previews, and wait a while for those being sent, so that none has an unknown outcome."""
        for watch in self._watched.values():
            watch.over = True
        with anyio.move_on_after(seconds):
            while self._sending:
                await self._more.wait(self._more.count)

    async def run(self) -> None:
        """Show previews until cancelled."""
        async with anyio.create_task_group() as group:
            await self._start_forever(group)

    def handle(self, change: Change) -> None:
        """Take note of more text or another state of a turn that is shown."""
        watch = self._watched.get(change.turn) if change.turn else None
        if watch is not None and change.kind in _PREVIEW_CHANGES:
            watch.dirty = True
            watch.wake.signal()

    async def _start_forever(self, group: TaskGroup) -> None:
        while True:
            seen = self._more.count
            for watch in self._fresh:
                group.start_soon(self._follow, watch)
            self._fresh.clear()
            await self._more.wait(seen)

    async def _follow(self, watch: _TurnPreview) -> None:
        """Update a preview until its turn ends. An error affects neither the turn nor its answer."""
        try:
            while not watch.over:
                seen = watch.wake.count
                await self._show_typing(watch)
                await self._update(watch)
                if not watch.over:
                    await wait_until(watch.wake, seen, self._clock, self._find_next_time(watch))
        except Exception:
            log.exception("the preview of turn %s failed; its answer will still be sent", watch.turn.id)

    def _find_next_time(self, watch: _TurnPreview) -> datetime | None:
        """Return when to look again if the turn produces nothing in the meantime."""
        times: list[datetime] = []
        if watch.typing_at is not None:
            times.append(watch.typing_at)
        if not watch.refused:
            if watch.draft.text or watch.steps or watch.dirty:
                times.append(watch.due)
            elif not watch.shown:
                times.append(max(watch.due, watch.silent_since + SILENCE_LIMIT))
            else:
                times.append(max(watch.due, self._clock.now() + timedelta(seconds=30)))
        return min((t for t in times if t > self._clock.now()), default=None)

    async def _show_typing(self, watch: _TurnPreview) -> None:
        """Show that an answer is being written: as typing until the end, or once as a reaction on platforms without typing."""
        adapter, now = watch.adapter, self._clock.now()
        if watch.typing_at is None or now < watch.typing_at:
            return
        watch.typing_at = now + TYPING_INTERVAL if adapter.capabilities.typing else None
        try:
            if not await self._database.read("preview.gate", partial(answers.may_type, turn=watch.turn)):
                return
            with anyio.fail_after(_TYPING_TIMEOUT_SECONDS), guard_plugin():
                if adapter.capabilities.typing:
                    await adapter.typing(watch.target)
                elif isinstance(adapter, SupportsReactions):
                    await adapter.react(watch.target)
        except Exception as exc:  # noqa: BLE001 an optional hint
            log.debug("typing on %s failed: %r", adapter.platform, exc)

    async def _update(self, watch: _TurnPreview) -> None:
        """Update the preview if it is due and there is something new."""
        if watch.refused or not self._can_send(watch.adapter) or self._clock.now() < watch.due:
            return
        try:
            if watch.dirty:
                watch.dirty = False
                draft = await self._database.read(
                    "preview.said", partial(answers.load_draft, turn=watch.turn)
                )
                watch.take_draft(draft, self._clock.now())
            if watch.done or self._clock.now() < watch.due:
                return
            text, whole = await self._render(watch)
            if text and watch.shown and watch.appends and not text.text.startswith(watch.shown.text):
                watch.done = True
            elif text and (text != watch.shown or watch.steps != watch.shown_steps):
                await self._send(watch, text)
                watch.done = watch.done or (watch.shown == text and not whole)
        except Refused as exc:
            watch.refused = True
            log.info("the platform refused the preview of turn %s: %s", watch.turn.id, exc)
        except KeryxError as exc:
            watch.dirty = True
            watch.due = self._clock.now() + watch.edit_interval
            log.info("cannot update the preview of turn %s now: %s", watch.turn.id, exc)

    async def _render(self, watch: _TurnPreview) -> tuple[RenderedPart | None, bool]:
        """Return what the preview should show, the first part of a long text, and whether that is the whole text."""
        text = watch.draft.text
        if not text and watch.steps and not watch.draft.asking:
            return RenderedPart(""), True
        if not text:
            now = self._clock.now()
            # What was appended stays, so only text of the answer is.
            if now - watch.silent_since < SILENCE_LIMIT or watch.appends or watch.draft.asking:
                return None, True
            minutes = int((now - watch.began).total_seconds() // 60)
            text = core_deliveries.format_progress(
                watch.draft.tool, minutes, self._texts.speak(watch.draft.language, watch.target.platform)
            )
        head = delivery_parts.get_head(watch.adapter, text, 1)
        parts = await plugins.render_parts(watch.adapter, head)
        return (parts[0], len(parts) == 1 and head == text) if parts else (None, True)

    async def _send(self, watch: _TurnPreview, text: RenderedPart) -> None:
        """Send the preview, or edit the one that was sent."""
        self._sending += 1
        try:
            await self._attempt(watch, text)
        finally:
            self._sending -= 1
            self._more.signal()

    async def _attempt(self, watch: _TurnPreview, text: RenderedPart) -> None:
        preview = await self._write(
            partial(
                deliveries.begin_preview,
                turn=watch.turn,
                target=watch.target,
                worker=self._worker,
                idempotent=watch.adapter.capabilities.idempotency is Idempotency.NATIVE,
                interval=watch.edit_interval,
                # To append, one must know what the message shows.
                revisable=watch.shown is not None or not watch.appends,
                replace_for=self._replace_for,
            )
        )
        watch.due = self._clock.now() + watch.edit_interval
        if not isinstance(preview, Preview):
            watch.done = preview is None
            watch.due = max(watch.due, preview) if preview else watch.due
            return
        error: SendError | None = None
        receipt, steps = "", watch.steps
        try:
            part = OutgoingPart(
                delivery=DeliveryId(preview.key),
                number=0,
                key=f"{preview.key}.{preview.revision}" if preview.receipt else preview.key,
                target=preview.target,
                text=text.text,
                markup=text.markup,
                edits=preview.receipt,
                shown=watch.shown.text if watch.shown else "",
                steps=steps,
                final=False,
            )
            receipt = await plugins.send_part(watch.adapter, part, PREVIEW_TIMEOUT)
            # A repeated send under the same key does not change what the message shows.
            watch.shown = text if preview.receipt or not preview.revision else None
            watch.shown_steps = steps
        except SendError as exc:
            error = exc
        await self._write(
            partial(
                deliveries.end_preview,
                preview=preview,
                capabilities=watch.adapter.capabilities,
                receipt=receipt,
                error=error,
            ),
            label="preview.end",
        )
        self._plan_next(watch, preview, error)
        self._look_again()

    def _plan_next(self, watch: _TurnPreview, preview: Preview, error: SendError | None) -> None:
        """Schedule the next update after an attempt."""
        watch.due = self._clock.now() + watch.edit_interval
        if error is None:
            self._connections.count(watch.adapter, "sent")
            max_edits = watch.adapter.capabilities.max_edits
            # The last edit is kept for the answer.
            watch.done = watch.done or bool(max_edits and preview.revision + 1 >= max_edits)
            return
        log.info("could not send the preview of turn %s: %s", watch.turn.id, error)
        self._connections.count(watch.adapter, "throttled" if isinstance(error, Throttled) else "failed")
        watch.dirty = True
        if isinstance(error, Throttled):
            watch.throttles += 1
            watch.due = self._clock.now() + max(error.after, watch.edit_interval)
        watch.done = isinstance(error, MessageGone)
        watch.refused = isinstance(error, Held | Refused)

    async def _write(
        self, work: Work[Preview | datetime | None], *, label: str = "preview.begin"
    ) -> Preview | datetime | None:
        """Run a unit of work. Retry the end of a send for a while: the chat is blocked until it is recorded."""
        for left in range(_MAX_TRIES if label == "preview.end" else 1, 0, -1):
            try:
                return await self._database.write(label, work)
            except Retryable:
                if left == 1:
                    raise
                await self._clock.sleep(0.5)
        return None


def _shows_activity(adapter: Adapter) -> bool:
    """Whether the platform can show without a message that an answer is being written."""
    return adapter.capabilities.typing or adapter.capabilities.reactions
