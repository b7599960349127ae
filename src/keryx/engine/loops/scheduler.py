"""Begins the runs of jobs when they are due, once over all nodes."""

import logging
from datetime import datetime, timedelta
from functools import partial

from keryx import logs
from keryx.core.changes import Change, ChangeKind
from keryx.core.clock import Clock
from keryx.core.errors import KeryxError
from keryx.engine.policy import Policy
from keryx.engine.units import jobs
from keryx.store import jobs as jobs_store
from keryx.store.db import Database
from keryx.timing import WakeSignal, wait_until

log = logging.getLogger(__name__)

_RETRY_DELAY = timedelta(seconds=0.5)


class Scheduler:
    """Sleeps until a job is due. The feed wakes it when jobs change."""

    def __init__(self, database: Database, clock: Clock, *, policy: Policy) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy
        self._changed = WakeSignal()

    def look_again(self) -> None:
        """Check again what is due, for instance after the clock was set."""
        self._changed.signal()

    async def run(self) -> None:
        """Begin runs until cancelled."""
        while True:
            seen = self._changed.count
            at = await self._begin_due()
            await wait_until(self._changed, seen, self._clock, at)

    def handle(self, change: Change) -> None:
        """Take note of a new or changed job."""
        if change.kind is ChangeKind.JOB:
            self._changed.signal()

    async def _begin_due(self) -> datetime | None:
        """Begin the runs that are due, and return when to look again."""
        try:
            while True:
                at = await self._database.read("job.next", jobs_store.get_next_due_at)
                now = self._clock.now()
                if at is None or at > now:
                    return at
                await self._database.write("job.begin", partial(jobs.begin_due_run, policy=self._policy))
        except KeryxError as exc:
            log.warning("cannot begin a job now: %s", exc, extra=logs.REPEATS)
            return self._clock.now() + _RETRY_DELAY
