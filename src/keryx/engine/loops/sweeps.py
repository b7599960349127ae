"""Periodic sweeps: end sessions whose lane is due for a reset, run their end hooks, and delete what the retention policy allows."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType

import anyio

from keryx import logs
from keryx.core.clock import Clock
from keryx.core.errors import KeryxError
from keryx.core.sessions import Session
from keryx.engine.policy import Policy
from keryx.engine.units import access as access_units
from keryx.engine.units import api_turns, control, downloads, receive, relay, thread_states, user_messages
from keryx.store import (
    access,
    changes,
    deliveries,
    jobs,
    lanes,
    media,
    platforms,
    sessions,
    viewer_state,
)
from keryx.store.db import Database
from keryx.store.sessions import SessionEndHook

log = logging.getLogger(__name__)
_HOOK_RETRY_DELAY = timedelta(minutes=5)
# All hooks of a session together, so that no other node begins with them before.
_HOOK_SECONDS = 240
_KEEP_RESERVED = timedelta(days=7)

SessionFinalizer = Callable[[Session, str], Awaitable[None]]
NO_HOOKS: Mapping[str, SessionFinalizer] = MappingProxyType({})


async def repeat(clock: Clock, seconds: float, sweep: Callable[[], Awaitable[None]]) -> None:
    """Run a sweep every few seconds, until cancelled. An error of the store or of the system is logged."""
    while True:
        try:
            await sweep()
        except (KeryxError, OSError) as exc:
            log.warning("a sweep failed and will be repeated: %s", exc, extra=logs.REPEATS)
        await clock.sleep(seconds)


class ExpirySweep:
    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        policy: Policy,
        hooks: Mapping[str, SessionFinalizer] = NO_HOOKS,
    ) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy
        self._hooks = hooks

    async def sweep(self) -> None:
        """End the sessions that are due, then run the end hooks of ended ones. Safe on any number of nodes."""
        for lane in await self._database.read("lanes.expired", lanes.list_expired):
            await self._database.write(
                "lane.expire", partial(receive.expire_lane, lane=lane, policy=self._policy)
            )
        while hook := await self._claim_hook():
            await self._run_hooks(hook)

    async def _claim_hook(self) -> SessionEndHook | None:
        now = self._clock.now()
        return await self._database.write(
            "final.take",
            lambda tx: sessions.claim_end_hook(
                tx, retry_at=now + _HOOK_RETRY_DELAY, most=self._policy.final_tries
            ),
        )

    async def _run_hooks(self, ended: SessionEndHook) -> None:
        """Run the hooks of a session, then ask its agent what the settings say. After an error those that have not succeeded
        are retried later, a limited number of times."""
        session = await self._database.read(
            "final.session", lambda tx: sessions.get(tx, ended.session, deleted=True)
        )
        try:
            done = ended.done
            with anyio.fail_after(_HOOK_SECONDS):
                for name, hook in self._hooks.items():
                    if name not in done:
                        await hook(session, ended.reason)
                        done = (*done, name)
                        await self._database.write(
                            "final.done",
                            lambda tx, done=done: sessions.record_end_hook_done(tx, ended.session, done),
                        )
        except Exception as exc:
            log.exception("the end hooks of %s failed, attempt %s", ended.session, ended.tries)
            error = f"{type(exc).__name__}: {exc}"
            await self._database.write(
                "final.fail", lambda tx: sessions.record_end_hook_error(tx, ended.session, error)
            )
        else:
            await self._database.write(
                "final.remove",
                partial(
                    user_messages.finish_end_hooks, session_id=ended.session, prompt=self._policy.end_prompt
                ),
            )


class RetentionSweep:
    def __init__(self, database: Database, clock: Clock, *, policy: Policy) -> None:
        self._database = database
        self._clock = clock
        self._keep = policy.keep
        self._push = policy.push

    async def sweep(self) -> None:
        now = self._clock.now()
        keep = self._keep
        await self._database.write("inbox.trim", partial(receive.trim_inbox, before=now - keep.inbox))
        while await self._database.write("feed.trim", lambda tx: changes.trim(tx, before=now - keep.feed)):
            pass
        while await self._database.write("downloads.give_up", downloads.give_up_old):
            pass
        await self._database.write("gates.trim", platforms.trim_gates)
        await self._database.write("relay.trim", partial(relay.trim, keep=keep.inbox))
        await self._database.write(
            "previews.trim", lambda tx: deliveries.trim_previews(tx, before=now - keep.feed)
        )
        await self._database.write("sign_ins.trim", access.trim_sign_ins)
        # An event is queued at most for the time that pushes are kept, so a trimmed one does not come again.
        await self._database.write(
            "pushes.trim", lambda tx: viewer_state.trim_pushes(tx, before=now - 2 * self._push.keep)
        )
        while await self._database.write("api.erase", partial(api_turns.erase_abandoned, now=now)):
            pass
        await self._database.write(
            "temporary.clear", partial(control.clear_temporary, before=now - keep.temporary)
        )
        await self._database.write("codes.trim", access_units.trim_codes)
        await self._database.write(
            "reserved.trim", lambda tx: sessions.trim_reserved(tx, before=now - _KEEP_RESERVED)
        )
        await self._database.write("runs.trim", lambda tx: jobs.trim_runs(tx, before=now - keep.runs))
        await self._database.write("threads.trim", partial(thread_states.trim, before=now - keep.lanes))
        await self._database.write("lanes.drop", lambda tx: lanes.delete_idle(tx, before=now - keep.lanes))
        await self._prune_sessions(now)
        due = await self._database.read("sessions.due", sessions.list_due_for_erasure)
        for session in due:
            await self._database.write("session.erase", lambda tx, gone=session: sessions.erase(tx, gone))
        await self._remove_files()

    async def _prune_sessions(self, now: datetime) -> None:
        """Archive and delete old sessions as the settings say, each in its own transaction."""
        grace = self._keep.erase
        for rule in self._keep.list_prune_rules(now):
            while old := await self._database.read(
                "sessions.old", lambda tx, rule=rule: sessions.list_prunable(tx, rule)
            ):
                for session in old:
                    await self._database.write(
                        "session.prune",
                        lambda tx, id_=session.id, rule=rule: control.prune(tx, id_, rule, grace=grace),
                    )

    async def _remove_files(self) -> None:
        """Remove the files that no session shows, each in its own transaction."""
        before = self._clock.now() - self._keep.files
        await self._database.write("media.let_go", lambda tx: media.trim_holders(tx, before=before))
        while unused := await self._database.read(
            "media.unused", lambda tx: media.list_unused(tx, before=before)
        ):
            for id_ in unused:
                await self._database.write("media.remove", lambda tx, id_=id_: media.remove_unused(tx, id_))
