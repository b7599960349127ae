"""A connector and the link of an instance in one process, over a real websocket."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from tests.builders import until

from keryx.agents.echo import EchoAgent
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR
from keryx.core.ports import relay
from keryx.core.ports.adapter import Adapter, RenderedPart, name_cursor
from keryx.core.ports.relay import RelayLimits, RelayRule
from keryx.core.sessions import Viewer
from keryx.engine.policy import Policy
from keryx.engine.service import Service
from keryx.store import inbox
from keryx.store.db.sqlite import SqliteDatabase
from keryx.surfaces.gateway.relay.connector import RelayServer
from keryx.surfaces.gateway.relay.instance import RelayedAdapter, RelayedMarkup, RelayLink
from keryx.testing import RecordingAdapterContext
from keryx.testing.fault_injection import CrashingDatabase, DatabaseFault
from keryx.timing import SystemClock

OPERATORS = Viewer(DEFAULT_PROFILE, OPERATOR)
LIMITS = RelayLimits(events=100, size=1_000_000, age=timedelta(days=1), notice_after=timedelta(minutes=1))


async def sleep_briefly(seconds: float) -> None:
    await asyncio.sleep(0.001)


@dataclass(frozen=True, kw_only=True)
class Pair:
    service: Service
    server: RelayServer
    url: str
    key: str
    link: RelayLink
    home: Path

    @property
    def adapter(self) -> RelayedAdapter:
        return self.link.build_adapters()[0]

    def build_link(self, *, key: str = "", url: str = "", home: Path | None = None) -> RelayLink:
        """Another connection of the same instance, or one that cannot work."""
        return RelayLink(
            url or self.url, relay.parse_key(key or self.key), home or self.home, sleep=sleep_briefly
        )


@asynccontextmanager
async def open_pair(
    folder: Path,
    adapters: Sequence[Adapter],
    *,
    store: Path,
    policy: Policy = Policy(relay=LIMITS),
    cursor: str | None = None,
    faults: Sequence[DatabaseFault] = (),
) -> AsyncGenerator[Pair]:
    """Run a connector whose accounts all belong to one instance, and the link of that instance. `store` is an empty one,
    which is copied; `cursor` is where the accounts go on, and `faults` strike the store of the connector."""
    async with AsyncExitStack() as stack:
        clock = SystemClock()
        shutil.copy(store, folder / "connector.db")
        database = await stack.enter_async_context(SqliteDatabase(str(folder / "connector.db"), clock=clock))
        if cursor is not None:
            for name in (name_cursor(a.platform, a.account) for a in adapters):
                await database.write("test", partial(inbox.set_cursor, name=name, value=cursor))
        service = Service(
            CrashingDatabase(database, *faults),
            clock,
            policy=policy,
            choose=lambda reading: EchoAgent(),
            place=lambda reading, turn: "a test",
            adapters=adapters,
        )
        hub = await stack.enter_async_context(service.running())
        rules = [RelayRule(platform=platform) for platform in sorted({a.platform for a in adapters})]
        key = await hub.relay.add(OPERATORS, "ann", rules)
        server = RelayServer(hub, clock, adapters)
        port = await stack.enter_async_context(server.serving("127.0.0.1", 0))
        url, home = f"ws://127.0.0.1:{port}", folder / "instance"
        link = RelayLink(url, relay.parse_key(key), home, sleep=sleep_briefly)
        await link.fetch_accounts()
        await stack.enter_async_context(link.running())
        # Keeps the connection while the adapters do not listen.
        link.register(("nothing", ""), RecordingAdapterContext())
        pair = Pair(service=service, server=server, url=url, key=key, link=link, home=home)
        await wait_connected(link)
        yield pair


async def wait_connected(link: RelayLink) -> None:
    await until(lambda: link.connected)


class LocallyRenderedAdapter(RelayedAdapter):
    """Renders by the adapter of the connector at once, as the contract asks for."""

    def __init__(self, link: RelayLink, origin: Adapter) -> None:
        super().__init__(link, link.accounts[origin.platform, origin.account])
        self._origin = origin

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return [
            RenderedPart(part.text, RelayedMarkup(text, number))
            for number, part in enumerate(self._origin.parts(text))
        ]
