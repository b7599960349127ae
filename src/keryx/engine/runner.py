"""Runner: claims turns, has them driven, and knows what runs here."""

import logging
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from keryx.core.changes import Change, Kind
from keryx.core.errors import KeryxError, LeaseLost
from keryx.core.ids import SessionId, TurnId, WorkerId
from keryx.core.ports import (
    Clock,
)
from keryx.core.turns import Limits, Turn, TurnState
from keryx.engine import naming
from keryx.engine.alarm import signal_or_moment
from keryx.engine.driver import Driver
from keryx.engine.mailbox import (
    Cancelled,
    HandedBack,
    Mailbox,
)
from keryx.store import claims
from keryx.store.claims import Claimed
from keryx.store.database import Database, Transaction
from keryx.store.wake import Wake

log = logging.getLogger(__name__)

_HAND_BACK_SECONDS = 5
_PASSED_OVER_SECONDS = 0.005
_UNKNOWN = Claimed([], passed_over=False, waiting=True)
_AWAY = timedelta(seconds=0.5)


class Watcher(Protocol):
    """Is told of the turns that run here. Must not wait and must not raise."""

    def began(self, turn: Turn) -> None: ...

    def ended(self, turn: Turn) -> None: ...


class Runner:
    """Runs up to `limits.at_once` turns. A scoped runner takes only turns of the session it is told to `serve`,
    and those pinned to this worker."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        worker: WorkerId,
        driver: Driver,
        limits: Limits,
        watcher: Watcher,
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
        self._work = Wake()
        self._began = clock.monotonic()

    @property
    def busy(self) -> int:
        return len(self._running)

    @property
    def held(self) -> frozenset[TurnId]:
        """The turns that this runner is at work on."""
        return frozenset(self._running)

    def serve(self, session: SessionId) -> None:
        """From now on, a scoped runner takes the turns of this session."""
        self._session = session
        self._work.signal()

    def look_again(self) -> None:
        """Something that waited for a moment may be due sooner than was thought."""
        self._work.signal()

    async def run(self, changes: AsyncIterator[Change]) -> None:
        """Run turns until cancelled. `changes` is the live feed: it tells of new turns and of cancels."""
        self._began = self._clock.monotonic()
        async with anyio.create_task_group() as group:
            group.start_soon(self._listen, changes)
            await self._claim_forever(group)

    async def drain(self, seconds: float) -> None:
        """Take no more turns; give running ones some time, then hand them back to the queue."""
        self._draining = True
        with anyio.move_on_after(seconds):
            await self._idle()
        for mailbox in self._running.values():
            mailbox.put(HandedBack())
        with anyio.move_on_after(_HAND_BACK_SECONDS):
            await self._idle()

    async def _idle(self) -> None:
        while self._running or self._claiming:
            await self._work.wait(self._work.count)

    async def _listen(self, changes: AsyncIterator[Change]) -> None:
        async for change in changes:
            if change.kind is Kind.TURN:
                self._moved(TurnState(change.note))
            elif change.kind is Kind.CANCEL and change.turn and change.turn in self._running:
                self._running[change.turn].put(Cancelled())
            elif change.kind is Kind.QUESTION and change.turn and change.turn in self._running:
                self._running[change.turn].answers.signal()

    def _moved(self, state: TurnState) -> None:
        """A new turn is looked for at once. The end of one lets others run only if some wait."""
        if state is TurnState.QUEUED or (state.finished and self._waiting):
            self._work.signal()

    async def _claim_forever(self, group: TaskGroup) -> None:
        while True:
            seen = self._work.count
            # An end that comes while we look may come too late for the look.
            self._waiting = True
            free = 0 if self._draining else self._limits.at_once - self.busy
            claimed, at = await self._claim(free) if free > 0 else (_UNKNOWN, None)
            self._waiting = claimed.waiting
            for turn in claimed.turns:
                mailbox = self._running[turn.id] = Mailbox()
                if self._draining:
                    mailbox.put(HandedBack())
                group.start_soon(self._run, turn, mailbox, group)
            if claimed.passed_over:
                # Others end their transactions in their own time, and need not tell anybody.
                await anyio.sleep(_PASSED_OVER_SECONDS)
            else:
                await signal_or_moment(self._work, seen, self._clock, at)

    async def _claim(self, most: int) -> tuple[Claimed, datetime | None]:
        """Lease what may run now, and tell when to look again for what waits for a moment rather than for an event."""
        self._claiming = True
        try:
            return await self._database.write("turn.claim", partial(self._claim_all, most=most))
        except KeryxError as exc:
            log.warning("cannot claim a turn now: %s", exc)
            return _UNKNOWN, self._clock.now() + _AWAY
        finally:
            self._claiming = False
            if self._draining:
                self._work.signal()

    def _claim_all(self, tx: Transaction, *, most: int) -> tuple[Claimed, datetime | None]:
        now = self._clock.now()
        settled = now + self._limits.settle - timedelta(seconds=self._clock.monotonic() - self._began)
        claimed = claims.claim_many(
            tx,
            most=most,
            worker=self._worker,
            now=now,
            lease=self._limits.lease,
            per_principal=self._limits.per_principal,
            scoped=self._scoped,
            session=self._session,
            settled=settled <= now,
        )
        if not claimed.waiting or len(claimed.turns) == most:
            return claimed, None
        moments = [m for m in (claims.next_at(tx, now=now), settled) if m and m > now]
        return claimed, min(moments, default=None)

    async def _run(self, turn: Turn, mailbox: Mailbox, group: TaskGroup) -> None:
        """The door of a turn: whatever happens inside is recorded, and no other turn is harmed."""
        self._watcher.began(turn)
        try:
            unnamed = await self._driver.drive(turn, mailbox, group)
            if unnamed and not self._draining:
                group.start_soon(naming.name, self._database, unnamed, turn)
        except LeaseLost as exc:
            log.warning("%s: what it still says is not stored", exc)
        except Exception:
            log.exception("turn %s could not be recorded; its lease will run out", turn.id)
        finally:
            self._watcher.ended(turn)
            # A turn that was lost to a sweep may run here again by now, under another lease.
            if self._running.get(turn.id) is mailbox:
                del self._running[turn.id]
            if self._waiting or self._draining:
                self._work.signal()
