"""Everything that one process runs in the background, started and stopped together."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from keryx.core.access import CLOSED, build_rule_key, find_rule
from keryx.core.clock import Clock
from keryx.core.deliveries import Idempotency
from keryx.core.ports.adapter import Adapter
from keryx.core.ports.agent import SpeakText, TranscribeSound
from keryx.engine.adapter_listener import AdapterListener
from keryx.engine.hub import Hub
from keryx.engine.hub.push_subscriptions import load_notifications
from keryx.engine.loops.dispatcher import Dispatcher
from keryx.engine.loops.downloads import Downloader
from keryx.engine.loops.driver import AgentChooser, Driver, FolderResolver, PlaceRenderer, get_session_folder
from keryx.engine.loops.feed import Feed
from keryx.engine.loops.leases import Leases
from keryx.engine.loops.platform_status import PlatformStatusReporter
from keryx.engine.loops.previews import Previews
from keryx.engine.loops.runner import Runner
from keryx.engine.loops.scheduler import Scheduler
from keryx.engine.loops.sweeps import NO_HOOKS, ExpirySweep, RetentionSweep, SessionFinalizer, repeat
from keryx.engine.loops.thread_titles import ThreadUpdater
from keryx.engine.plugins import RoleLookup, get_account_key
from keryx.engine.policy import Policy, close_unlisted_platforms, map_reach, map_signs, trust_relayed
from keryx.engine.units import gathering, targets
from keryx.engine.units.workers import ActiveWork, build_worker
from keryx.store import access, turns
from keryx.store.db import Database, Transaction
from keryx.timing import wait_until

EXPIRY_SECONDS = 30
INDEX_SECONDS = 60
HOUSEKEEPING_SECONDS = 3600
_PUSH_KEY_INTERVAL = timedelta(minutes=1)
_DRAIN_SECONDS = 1.0


class Service:
    """With `everything`, a node: it runs all turns, sends, listens and sweeps. Without, a process such as a terminal,
    which follows the feed and runs only the turns of one session: see `Runner.serve`."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        policy: Policy,
        choose: AgentChooser,
        place: PlaceRenderer,
        folder: FolderResolver = get_session_folder,
        transcribe: TranscribeSound | None = None,
        speak: SpeakText | None = None,
        adapters: Sequence[Adapter] = (),
        hooks: Mapping[str, SessionFinalizer] = NO_HOOKS,
        kind: str = "serve",
        everything: bool = True,
    ) -> None:
        self._adapters = adapters if everything else ()
        policy = msgspec.structs.replace(
            policy,
            reach=map_reach(adapters, policy.account_names),
            texts=msgspec.structs.replace(policy.texts, signs=map_signs(adapters)),
        )
        policy = close_unlisted_platforms(policy, self._adapters)
        # Other nodes are told what the settings say: they have no connection to the relay.
        self._public_rules = policy.access
        policy = trust_relayed(policy, self._adapters)
        self._database = database
        self._clock = clock
        self._policy = policy
        self._hooks = hooks
        self._everything = everything
        self.transcribe = transcribe
        self.speak = speak
        self.feed = Feed(database, clock, on_blocked=self._look_again, on_missed=self._look_again)
        self.hub = Hub(database, policy=policy, feed=self.feed)
        self.worker = build_worker(kind, now=clock.now())
        self.platform_status = PlatformStatusReporter(database, clock, worker=self.worker.id)
        self.roles = RoleLookup(self._adapters, policy.access, clock)
        self._previews = self._build_previews()
        self.runner = self._build_runner(
            Driver(
                database,
                clock,
                choose=choose,
                place=place,
                folder=folder,
                limits=policy.limits,
                media=self.hub.media,
                rules=policy.access,
                roles=self.roles,
                budgets=policy.budgets,
                zone=policy.zone,
                shows_ids=policy.shows_ids,
                transcribe=transcribe,
                takeovers=policy.takeovers,
                has_separate_files=lambda platform: any(
                    a.platform == platform and a.capabilities.separate_files for a in adapters
                ),
            )
        )
        self.leases = self._build_leases({a.platform: a.capabilities.idempotency for a in adapters})
        self._listeners = {
            get_account_key(a): AdapterListener(
                self.hub,
                clock,
                a,
                worker=self.worker.id,
                connections=self.platform_status,
                roles=self.roles,
                downloader=self._build_downloader(a),
                threads=ThreadUpdater(database, clock, self.feed, a, timeout=policy.send_timeout),
                on_claim=self._look_again,
            )
            for a in self._adapters
        }
        self._scheduler = Scheduler(database, clock, policy=policy)
        self._dispatchers = [self._build_dispatcher(a) for a in self._adapters]

    @asynccontextmanager
    async def running(self, *, drain: float = 0) -> AsyncGenerator[Hub]:
        """Run in the background of the block. At its end, wait `drain` seconds for running turns, then requeue them."""
        await self.leases.renew()
        await self.leases.sweep()
        if self._adapters:
            await self._database.write("rules.publish", self._publish_rules)
            await self._database.write("turns.gather", self._prolong_gathering)
        if self._everything and self._policy.notices.restart:
            await self._database.write("notices.restart", lambda tx: targets.announce_restart(tx))
        loops = (
            self.runner,
            self._previews,
            *self._dispatchers,
            *([self._scheduler] if self._everything else ()),
        )
        for loop in loops:
            self.feed.announce_to(loop.handle)
        async with anyio.create_task_group() as group:
            await group.start(self.feed.run)
            group.start_soon(self.leases.run)
            for loop in loops:
                group.start_soon(loop.run)
            group.start_soon(self.platform_status.run)
            for listener in self._listeners.values():
                group.start_soon(listener.run)
            if self._everything:
                self._start_sweeps(group)
                self._start_pushes(group)
            try:
                yield self.hub
            finally:
                with anyio.CancelScope(shield=True):
                    await self.runner.drain(drain)
                    await self._drain_sends()
                group.cancel_scope.cancel()
        await self.leases.deregister()
        self.hub.close()

    def _publish_rules(self, tx: Transaction) -> None:
        """Publish the access rules of these platforms for other nodes, which may run turns of their users."""
        rules = self._public_rules
        for platform in sorted({a.platform for a in self._adapters}):
            access.publish_rule(tx, platform, rules[platform])
        for adapter in self._adapters:
            key = build_rule_key(adapter.platform, adapter.account)
            access.publish_rule(tx, key, find_rule(rules, adapter.platform, adapter.account) or CLOSED)

    def _prolong_gathering(self, tx: Transaction) -> None:
        """Delay turns until the messages that came while no process listened are received."""
        if self._policy.limits.gather:
            turns.prolong_gathering(tx, until=tx.now + gathering.START_DELAY)

    async def _drain_sends(self) -> None:
        """Wait a moment for running sends, so that none has an unknown outcome."""
        await self._previews.drain(_DRAIN_SECONDS)
        async with anyio.create_task_group() as group:
            for dispatcher in self._dispatchers:
                group.start_soon(dispatcher.drain, _DRAIN_SECONDS)

    @property
    def adapters(self) -> Sequence[Adapter]:
        """The platforms that this process serves."""
        return self._adapters

    def is_listening(self, adapter: Adapter) -> bool:
        """Whether an adapter can receive events now."""
        listener = self._listeners.get(get_account_key(adapter))
        return listener is not None and listener.active

    def count_rejection(self, adapter: Adapter) -> None:
        """Count a request to the hook of an adapter that was not taken in."""
        self.platform_status.count(adapter, "rejected")

    def _build_previews(self) -> Previews:
        return Previews(
            self._database,
            self._clock,
            adapters=self._adapters,
            worker=self.worker.id,
            connections=self.platform_status,
            look_again=self._look_again,
            can_send=self._can_send,
            replace_for=self._policy.limits.edit,
            texts=self._policy.texts,
        )

    def _build_runner(self, driver: Driver) -> Runner:
        return Runner(
            self._database,
            self._clock,
            worker=self.worker.id,
            driver=driver,
            limits=self._policy.limits,
            watcher=self._previews,
            scoped=not self._everything,
        )

    def _build_leases(self, idempotency: dict[str, Idempotency]) -> Leases:
        return Leases(
            self._database,
            self._clock,
            me=self.worker,
            policy=self._policy,
            idempotency=idempotency,
            list_active=self._list_active_work,
            look_again=self._look_again,
        )

    def _build_dispatcher(self, adapter: Adapter) -> Dispatcher:
        return Dispatcher(
            self._database,
            self._clock,
            adapter,
            worker=self.worker.id,
            policy=self._policy,
            media=self.hub.media,
            connections=self.platform_status,
            can_send=partial(self._can_send, adapter),
        )

    def _can_send(self, adapter: Adapter) -> bool:
        listener = self._listeners.get(get_account_key(adapter))
        return listener is None or listener.can_send

    def _build_downloader(self, adapter: Adapter) -> Downloader:
        return Downloader(
            self._database,
            self._clock,
            adapter,
            worker=self.worker.id,
            storage=self.hub.media,
            limits=self._policy.media,
            lease=self._policy.limits.lease,
        )

    def _list_active_work(self) -> ActiveWork:
        sending = frozenset(delivery for d in self._dispatchers for delivery in d.active_deliveries)
        return ActiveWork(self.runner.active_turns, sending)

    def _look_again(self) -> None:
        self.runner.look_again()
        self._scheduler.look_again()
        for dispatcher in self._dispatchers:
            dispatcher.look_again()

    def _start_pushes(self, group: TaskGroup) -> None:
        """Tell browsers what happens while the page is closed, where that is possible."""
        if self._policy.push_key is not None and self.hub.push_subscriptions.available:
            group.start_soon(self._push_notifications, self._policy.push_key)

    async def _push_notifications(self, key_file: Path) -> None:
        """Wait for the key of the first browser, because what sends notifications takes 13 MB of memory."""
        wanted = self.hub.push_subscriptions.key_wanted
        seen = wanted.count
        while not await anyio.to_thread.run_sync(key_file.exists):
            # A process beside this one may create it, too.
            await wait_until(wanted, seen, self._clock, self._clock.now() + _PUSH_KEY_INTERVAL)
            seen = wanted.count
        notifier = load_notifications().PushNotifier(
            self._database,
            self._clock,
            self.feed,
            settings=self._policy.push,
            key_file=key_file,
            texts=self._policy.texts,
        )
        await notifier.run()

    def _start_sweeps(self, group: TaskGroup) -> None:
        expiry = ExpirySweep(self._database, self._clock, policy=self._policy, hooks=self._hooks)
        housekeeping = RetentionSweep(self._database, self._clock, policy=self._policy)
        group.start_soon(repeat, self._clock, EXPIRY_SECONDS, expiry.sweep)
        group.start_soon(repeat, self._clock, HOUSEKEEPING_SECONDS, housekeeping.sweep)
        group.start_soon(repeat, self._clock, INDEX_SECONDS, self.hub.catch_up_index)
