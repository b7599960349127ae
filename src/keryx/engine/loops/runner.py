"""Claims queued turns, starts a driver for each, and passes on cancels and answers."""

import logging
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from keryx import logs
from keryx.core.changes import Change, ChangeKind
from keryx.core.clock import Clock
from keryx.core.errors import KeryxError, LeaseLost
from keryx.core.ids import SessionId, TurnId, WorkerId
from keryx.core.turns import Turn, TurnLimits, TurnState
from keryx.engine.loops import driver, reports
from keryx.engine.loops.driver import Driver
from keryx.engine.loops.mailbox import CancelRequest, HandBack, Mailbox, RestartCheck
from keryx.engine.units import turn_writes
from keryx.store.db import Database
from keryx.store.turns import TurnClaims
from keryx.timing import WakeSignal, wait_until

log = logging.getLogger(__name__)

_HAND_BACK_SECONDS = 5
_PASSED_OVER_SECONDS = 0.005
_NOT_CLAIMED = TurnClaims([], passed_over=False, waiting=True)
_RETRY_DELAY = timedelta(seconds=0.5)


class TurnObserver(Protocol):
    """Notified of the turns that run here. Its methods must not block and must not raise."""

    def turn_started(self, turn: Turn) -> None: ...

    def turn_ended(self, turn: Turn) -> None: ...


class Runner:
    """Runs up to `limits.at_once` turns. A scoped runner claims only turns of the session that it serves, and those
    pinned to this worker."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        worker: WorkerId,
        driver: Driver,
        limits: TurnLimits,
        watcher: TurnObserver,
        scoped: bool = False,
    ) -> None:
        self._database = database
        self._clock = clock
        self._worker = worker
        self._driver = driver
        self._limits = limits
        self._watcher = watcher
        self._scoped = scoped
        self._session: SessionId | None = None
        self._running: dict[TurnId, Mailbox] = {}
        self._claiming = False
        self._draining = False
        self._waiting = True
        self._work = WakeSignal()
        self._began = clock.monotonic()

    @property
    def busy(self) -> int:
        return len(self._running)

    @property
    def active_turns(self) -> frozenset[TurnId]:
        return frozenset(self._running)

    def serve(self, session: SessionId) -> None:
        """Make a scoped runner claim the turns of this session from now on."""
        self._session = session
        self._work.signal()

    def look_again(self) -> None:
        """Check again for turns: one that waits for a time may be due earlier than expected."""
        self._work.signal()

    async def run(self) -> None:
        """Run turns until cancelled."""
        self._began = self._clock.monotonic()
        async with anyio.create_task_group() as group:
            await self._claim_forever(group)

    def handle(self, change: Change) -> None:
        """Take note of a new turn, of a cancel, or of an answer to a question."""
        if change.kind is ChangeKind.TURN:
            state = TurnState(change.note)
            # A turn that ended makes room for others only if some are waiting.
            if state is TurnState.QUEUED or (state.finished and self._waiting):
                self._work.signal()
            if state is TurnState.QUEUED and change.turn and change.turn in self._running:
                self._running[change.turn].put(RestartCheck())
        elif change.kind is ChangeKind.CANCEL and change.turn and change.turn in self._running:
            self._running[change.turn].put(CancelRequest())
        elif change.kind is ChangeKind.QUESTION and change.turn and change.turn in self._running:
            self._running[change.turn].answers.signal()

    async def drain(self, seconds: float) -> None:
        """Claim no more turns, wait a while for running ones, then put them back into the queue."""
        self._draining = True
        with anyio.move_on_after(seconds):
            await self._wait_idle()
        for mailbox in self._running.values():
            mailbox.put(HandBack())
        with anyio.move_on_after(_HAND_BACK_SECONDS):
            await self._wait_idle()

    async def _wait_idle(self) -> None:
        while self._running or self._claiming:
            await self._work.wait(self._work.count)

    async def _claim_forever(self, group: TaskGroup) -> None:
        while True:
            seen = self._work.count
            # A turn may end while we claim, too late for this claim to see it: assume that others wait.
            self._waiting = True
            free = 0 if self._draining else self._limits.at_once - self.busy
            claimed, at = await self._claim(free) if free > 0 else (_NOT_CLAIMED, None)
            self._waiting = claimed.waiting
            for turn in claimed.turns:
                mailbox = self._running[turn.id] = Mailbox()
                if self._draining:
                    mailbox.put(HandBack())
                group.start_soon(self._run, turn, mailbox, group)
            if claimed.passed_over:
                # In real time: the transactions of others do not follow the injected clock and send no wake-up.
                await anyio.sleep(_PASSED_OVER_SECONDS)
            else:
                await wait_until(self._work, seen, self._clock, at)

    async def _claim(self, most: int) -> tuple[TurnClaims, datetime | None]:
        """Lease what may run now. Also return when to try again for what waits for a time, not for an event."""
        self._claiming = True
        running_for = timedelta(seconds=self._clock.monotonic() - self._began)
        try:
            return await self._database.write(
                "turn.claim",
                partial(
                    turn_writes.claim,
                    most=most,
                    worker=self._worker,
                    limits=self._limits,
                    scoped=self._scoped,
                    session=self._session,
                    settled_at=self._clock.now() + self._limits.settle - running_for,
                ),
            )
        except KeryxError as exc:
            log.warning("cannot claim a turn now: %s", exc, extra=logs.REPEATS)
            return _NOT_CLAIMED, self._clock.now() + _RETRY_DELAY
        finally:
            self._claiming = False
            if self._draining:
                self._work.signal()

    async def _run(self, turn: Turn, mailbox: Mailbox, group: TaskGroup) -> None:
        """Run a turn. No error affects another turn; if recording fails, the lease expires."""
        self._watcher.turn_started(turn)
        reports.begin_turn(turn, self._clock.now())
        try:
            untitled = await self._driver.drive(turn, mailbox, group)
            if untitled and not self._draining:
                group.start_soon(driver.request_title, self._database, untitled, turn)
            await reports.trace_turn(self._database, turn.id)
        except LeaseLost as exc:
            log.warning("%s: its further output is not stored", exc)
        except Exception:
            log.exception("could not record turn %s; its lease will expire", turn.id)
        finally:
            self._watcher.turn_ended(turn)
            # A turn that a sweep requeued may run here again by now, under another lease.
            if self._running.get(turn.id) is mailbox:
                del self._running[turn.id]
            if self._waiting or self._draining:
                self._work.signal()
