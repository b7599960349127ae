"""Service: everything that one process does in the background, started and stopped together."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import msgspec
from anyio.abc import TaskGroup

from keryx.core.deliveries import Idempotency
from keryx.core.errors import KeryxError
from keryx.core.ports import Adapter, Clock
from keryx.engine import homes
from keryx.engine.connections import Connections
from keryx.engine.dispatcher import Dispatcher
from keryx.engine.driver import Chooser, Driver, Folder, Placer, own_folder
from keryx.engine.expiry import Expiry, Hook
from keryx.engine.feed import Feed
from keryx.engine.housekeeping import Housekeeping
from keryx.engine.hub import Hub
from keryx.engine.leases import Held, Leases
from keryx.engine.listening import Listening
from keryx.engine.policy import Policy, reachable, ruled
from keryx.engine.previews import Previews
from keryx.engine.roles import Roles
from keryx.engine.runner import Runner
from keryx.engine.scheduler import Scheduler
from keryx.engine.worker import this
from keryx.store import rules
from keryx.store.database import Database, Transaction

log = logging.getLogger(__name__)

EXPIRY_SECONDS = 30
INDEX_SECONDS = 60
HOUSEKEEPING_SECONDS = 3600
_LAST_SECONDS = 1.0


class Service:
    """A node (`everything`) runs all turns, sends, listens and sweeps. Any other process, such as a terminal,
    follows the feed and runs only the turns of the session it is told to serve."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        policy: Policy,
        choose: Chooser,
        place: Placer,
        folder: Folder = own_folder,
        adapters: Sequence[Adapter] = (),
        hooks: Sequence[Hook] = (),
        kind: str = "serve",
        everything: bool = True,
    ) -> None:
        self._adapters = adapters if everything else ()
        policy = ruled(msgspec.structs.replace(policy, reach=reachable(adapters)), self._adapters)
        self._database = database
        self._clock = clock
        self._policy = policy
        self._hooks = hooks
        self._everything = everything
        self.feed = Feed(database, clock, held_up=self._look_again)
        self.hub = Hub(database, clock, policy=policy, feed=self.feed)
        self.worker = this(kind, now=clock.now())
        self.connections = Connections(database, clock, worker=self.worker.id)
        self.roles = Roles(self._adapters, policy.access, clock)
        self._previews = self._showing()
        self.runner = self._working(
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
            )
        )
        self.leases = self._leasing({a.platform: a.capabilities.idempotency for a in adapters})
        self._listening = {
            adapter_key(a): Listening(self.hub, clock, a, connections=self.connections, roles=self.roles)
            for a in self._adapters
        }
        self._scheduler = Scheduler(database, clock, policy=policy)
        self._dispatchers = [self._sending(a) for a in self._adapters]

    @asynccontextmanager
    async def running(self, *, drain: float = 0) -> AsyncGenerator[Hub]:
        """Work while the block runs; at its end give running turns `drain` seconds, then hand them back."""
        await self.leases.renew()
        await self.leases.sweep()
        if self._adapters:
            await self._database.write("rules.publish", self._publish)
        if self._everything and self._policy.notices.restart:
            now = self._clock.now()
            await self._database.write("notices.restart", lambda tx: homes.tell_back(tx, now=now))
        async with anyio.create_task_group() as group:
            await group.start(self.feed.run)
            group.start_soon(self.leases.run)
            group.start_soon(self.runner.run, self.feed.live(self._look_again))
            group.start_soon(self._previews.run, self.feed.live(self._look_again))
            for dispatcher in self._dispatchers:
                group.start_soon(dispatcher.run, self.feed.live(self._look_again))
            group.start_soon(self.connections.run)
            for listening in self._listening.values():
                group.start_soon(listening.run)
            if self._everything:
                group.start_soon(self._scheduler.run, self.feed.live(self._look_again))
                self._start_sweeps(group)
            try:
                yield self.hub
            finally:
                with anyio.CancelScope(shield=True):
                    await self.runner.drain(drain)
                    await self._let_arrive()
                group.cancel_scope.cancel()
        await self.leases.leave()
        self.hub.close()

    def _publish(self, tx: Transaction) -> None:
        """Tell nodes that do not serve these platforms who may talk there: they may run the turns of these people."""
        for platform in sorted({a.platform for a in self._adapters}):
            rules.publish(tx, platform, self._policy.access[platform], now=self._clock.now())

    async def _let_arrive(self) -> None:
        """Give what is on its way to a platform a moment, so that none of it is left in doubt."""
        await self._previews.drain(_LAST_SECONDS)
        async with anyio.create_task_group() as group:
            for dispatcher in self._dispatchers:
                group.start_soon(dispatcher.drain, _LAST_SECONDS)

    @property
    def adapters(self) -> Sequence[Adapter]:
        """The platforms that this process serves."""
        return self._adapters

    def listening(self, adapter: Adapter) -> bool:
        """Whether an adapter can be given events now."""
        found = self._listening.get(adapter_key(adapter))
        return found is not None and found.now

    def _showing(self) -> Previews:
        return Previews(
            self._database,
            self._clock,
            adapters=self._adapters,
            worker=self.worker.id,
            connections=self.connections,
            look_again=self._look_again,
        )

    def _working(self, driver: Driver) -> Runner:
        return Runner(
            self._database,
            self._clock,
            worker=self.worker.id,
            driver=driver,
            limits=self._policy.limits,
            watcher=self._previews,
            scoped=not self._everything,
        )

    def _leasing(self, idempotency: dict[str, Idempotency]) -> Leases:
        return Leases(
            self._database,
            self._clock,
            me=self.worker,
            policy=self._policy,
            idempotency=idempotency,
            held=self._held,
            look_again=self._look_again,
        )

    def _sending(self, adapter: Adapter) -> Dispatcher:
        return Dispatcher(
            self._database,
            self._clock,
            adapter,
            worker=self.worker.id,
            policy=self._policy,
            media=self.hub.media,
            connections=self.connections,
        )

    def _held(self) -> Held:
        sending = frozenset(delivery for d in self._dispatchers for delivery in d.held)
        return Held(self.runner.held, sending)

    def _look_again(self) -> None:
        self.runner.look_again()
        self._scheduler.look_again()
        for dispatcher in self._dispatchers:
            dispatcher.look_again()

    def _start_sweeps(self, group: TaskGroup) -> None:
        expiry = Expiry(self._database, self._clock, policy=self._policy, hooks=self._hooks)
        housekeeping = Housekeeping(self._database, self._clock, policy=self._policy)
        group.start_soon(self._every, EXPIRY_SECONDS, expiry.sweep)
        group.start_soon(self._every, HOUSEKEEPING_SECONDS, housekeeping.sweep)
        group.start_soon(self._every, INDEX_SECONDS, self.hub.catch_up_index)

    async def _every(self, seconds: float, sweep: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await sweep()
            except KeryxError as exc:
                log.warning("a sweep waits for the store: %s", exc)
            await self._clock.sleep(seconds)


def adapter_key(adapter: Adapter) -> tuple[str, str]:
    return adapter.platform, adapter.account
