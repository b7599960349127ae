"""Keeps each adapter listening, with back-off after failures, and implements the AdapterContext that an adapter calls."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import anyio

from keryx import logs
from keryx.core.clock import Clock
from keryx.core.durations import Backoff
from keryx.core.errors import Conflict, Forbidden, Invalid, KeryxError, Unavailable
from keryx.core.ids import WorkerId
from keryx.core.media import Attachment
from keryx.core.messages import Audio, File, Image
from keryx.core.ports.adapter import (
    Adapter,
    InboundEvent,
    InboundMessage,
    LinkState,
    MenuItem,
    Receipt,
    RelayTransport,
    SupportsDownloads,
    name_cursor,
)
from keryx.core.source import Source
from keryx.core.texts import LANGUAGES, Texts
from keryx.engine import commands, media
from keryx.engine.hub import Hub
from keryx.engine.loops.downloads import Downloader
from keryx.engine.loops.platform_status import PlatformStatusReporter
from keryx.engine.loops.thread_titles import ThreadUpdater
from keryx.engine.plugins import RoleLookup
from keryx.plugin_thread import guard_plugin, name_error

log = logging.getLogger(__name__)
_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(minutes=1))
_CLAIM_SECONDS = 3.0
_WATCH_SECONDS = 10.0
# How long what runs beside an adapter may take to end.
_CLOSE_SECONDS = 5.0
_REFUSED_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(minutes=10))


class HubAdapterContext:
    """What one adapter may call. `cursor` is the last stored position of its platform."""

    def __init__(
        self,
        hub: Hub,
        adapter: Adapter,
        connections: PlatformStatusReporter,
        roles: RoleLookup,
        cursor: str | None,
        on_files: Callable[[], None] | None = None,
    ) -> None:
        self._hub = hub
        self._roles = roles
        # Called when an event with files is stored.
        self._on_files = on_files
        self._adapter = adapter
        self._connections = connections
        self.cursor = cursor
        self.texts = hub.texts
        self.menu: Sequence[MenuItem] = _build_menu(hub, hub.texts.speak())
        self.menus: Mapping[str, Sequence[MenuItem]] = {
            name: _build_menu(hub, hub.texts.speak(name)) for name in LANGUAGES
        }

    async def receive(self, inbound: InboundEvent) -> Receipt:
        has_files = isinstance(inbound, InboundMessage) and bool(inbound.files)
        if has_files and not isinstance(self._adapter, SupportsDownloads):
            raise Invalid(f"the {self._adapter.platform} adapter names files and has no `download`")
        if self._roles.enabled:
            inbound = await self._roles.add_roles(inbound)
        receipt = await self._hub.receive(inbound, relayed=isinstance(self._adapter, RelayTransport))
        self._connections.count(self._adapter, "received")
        if has_files and self._on_files is not None:
            self._on_files()
        return receipt

    async def init_cursor(self, position: str) -> None:
        await self._hub.init_cursor(self._name_cursor(), position)

    async def load_state(self, scope: str) -> str | None:
        return await self._hub.platform_cursor(self._name_cursor(scope))

    async def save_state(self, scope: str, value: str) -> None:
        await self._hub.set_platform_cursor(self._name_cursor(scope), value)

    async def store_attachment(self, attachment: Attachment) -> Image | File | Audio:
        owner = media.build_adapter_viewer(self._adapter.platform, self._adapter.account)
        return await self._hub.media.save(owner, attachment)

    async def is_allowed(self, source: Source) -> bool:
        if self._roles.enabled:
            source = await self._roles.refresh_roles(source)
        return await self._hub.people.is_allowed(source)

    async def move_chat(self, old: str, new: str) -> None:
        await self._hub.lanes.move_chat(self._adapter.platform, self._adapter.account, old, new)

    async def add_alias(self, source: Source, other: str) -> None:
        await self._hub.people.add_alias(source, other)

    def report(self, link: LinkState, detail: str = "") -> None:
        self._connections.report(self._adapter, link, detail)

    def _name_cursor(self, scope: str = "") -> str:
        return name_cursor(self._adapter.platform, self._adapter.account, scope)


def _build_menu(hub: Hub, texts: Texts) -> list[MenuItem]:
    return [
        MenuItem(c.name, c.describe(texts), c.format_usage(texts), c.direct is commands.CommandScope.ALONE)
        for c in commands.list_commands(lane=True, chat=True, watched=hub.can_take_over)
    ]


async def open_context(
    hub: Hub,
    adapter: Adapter,
    connections: PlatformStatusReporter,
    roles: RoleLookup,
    on_files: Callable[[], None] | None = None,
) -> HubAdapterContext:
    cursor = await hub.platform_cursor(name_cursor(adapter.platform, adapter.account))
    return HubAdapterContext(hub, adapter, connections, roles, cursor, on_files)


class AdapterListener:
    """Runs one adapter. `active` is true while it listens."""

    def __init__(
        self,
        hub: Hub,
        clock: Clock,
        adapter: Adapter,
        *,
        worker: WorkerId,
        connections: PlatformStatusReporter,
        roles: RoleLookup,
        downloader: Downloader,
        threads: ThreadUpdater,
        on_claim: Callable[[], None],
    ) -> None:
        """`on_claim` is called when this process becomes the one that listens."""
        self._hub = hub
        self._clock = clock
        self._downloader = downloader
        self._threads = threads
        self._adapter = adapter
        self._worker = worker
        self._connections = connections
        self._roles = roles
        self._on_claim = on_claim
        self._has_claim = False
        self.active = False

    async def run(self) -> None:
        """Listen; retry with back-off after a failure, more rarely while the credentials are refused."""
        failures = 0
        self._connections.report(self._adapter, LinkState.CONNECTING)
        while True:
            await self._wait_for_claim()
            began = self._clock.monotonic()
            refused = await self._listen()
            backoff = _REFUSED_BACKOFF if refused else _BACKOFF
            steady = self._clock.monotonic() - began > backoff.longest.total_seconds()
            failures = 1 if steady else failures + 1
            await self._clock.sleep(backoff.seconds(failures))

    @property
    def can_send(self) -> bool:
        """Whether this process may send by the adapter."""
        return self._has_claim or not self._adapter.capabilities.sends_where_it_listens

    @property
    def _is_shared(self) -> bool:
        return self._adapter.capabilities.shared_listening or self._adapter.hook is not None

    async def _wait_for_claim(self) -> None:
        """Return when no other process listens to the account."""
        while (other := await self._claim()) is not None:
            self._has_claim = False
            detail = f"{other} listens to this account; this process takes over when that one ends"
            self._connections.report(self._adapter, LinkState.STANDBY, detail)
            await self._clock.sleep(_CLAIM_SECONDS)
        if not self._has_claim:
            self._has_claim = True
            self._on_claim()

    async def _watch_claim(self, listening: anyio.CancelScope) -> None:
        """Stop listening when another process has taken over, because this one was suspended for too long."""
        adapter, holder = self._adapter, self._worker
        while holder == self._worker:
            await self._clock.sleep(_WATCH_SECONDS)
            try:
                holder = await self._hub.find_listener(platform=adapter.platform, account=adapter.account)
            except Unavailable as exc:
                log.warning("cannot see now who listens to %s: %s", adapter.platform, exc)
        self._has_claim = False
        listening.cancel()

    async def _claim(self) -> str | None:
        """Claim the account for this process. Return the name of the process that has it, if it is another one."""
        adapter = self._adapter
        if self._is_shared:
            return None
        try:
            other = await self._hub.claim_listener(self._worker, adapter.platform, adapter.account)
        except Conflict:
            return "another process"
        except Unavailable as exc:
            log.warning("cannot claim %s now: %s", adapter.platform, exc, extra=logs.REPEATS)
            return "perhaps another process"
        return None if other is None else f"process {other.pid} on {other.host}"

    async def _listen(self) -> bool:
        """Listen until the adapter stops or fails. Return whether the platform refused the credentials."""
        adapter, report = self._adapter, self._connections.report
        report(adapter, LinkState.CONNECTING)
        try:
            context = await open_context(
                self._hub, adapter, self._connections, self._roles, self._downloader.look_again
            )
            self.active = True
            with anyio.CancelScope() as listening:
                beside = [asyncio.create_task(each.run()) for each in (self._downloader, self._threads)]
                if not self._is_shared:
                    beside.append(asyncio.create_task(self._watch_claim(listening)))
                try:
                    with guard_plugin():
                        await adapter.listen(context)
                finally:
                    for task in beside:
                        task.cancel()
                    with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                        await asyncio.wait(beside)
                report(adapter, LinkState.BROKEN, "the adapter stopped listening by itself")
        except Forbidden as exc:
            report(adapter, LinkState.REFUSED, str(exc))
            return True
        except KeryxError as exc:
            report(adapter, LinkState.BROKEN, str(exc))
        except Exception as exc:
            log.exception("the %s adapter failed and will be restarted", adapter.platform)
            report(
                adapter,
                LinkState.BROKEN,
                f"the adapter failed ({name_error(exc)}): the log has the details",
            )
        finally:
            self.active = False
        return False
