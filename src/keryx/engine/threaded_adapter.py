"""An adapter of another package in a thread of its own, so that it can neither block nor end the hub."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import CoroutineType
from typing import Any, ParamSpec, TypeVar

import msgspec

from keryx.core.errors import NotSent, Unavailable
from keryx.core.ports.adapter import (
    Adapter,
    AdapterContext,
    Capabilities,
    LinkState,
    OutgoingPart,
    SupportsDownloads,
    SupportsReactions,
    SupportsReconciliation,
    SupportsRemoval,
    SupportsRoles,
    SupportsSendKeys,
    SupportsThreads,
    Webhook,
    WebhookRequest,
    WebhookResponse,
)
from keryx.core.texts import Phrase
from keryx.plugin_thread import PluginBlocked, PluginThread, bind_to_loop

P = ParamSpec("P")
T = TypeVar("T")

LOAD_SECONDS = 10.0
_BEGIN_SECONDS = 30.0
_HOOK_SECONDS = 30.0
_CALL_SECONDS = 10.0


def load(platform: str, make: Callable[[], Adapter | None]) -> "ThreadedAdapter | None":
    """Make an adapter in a new thread. Raise what `make` raises, and `PluginBlocked` if it takes too long."""
    thread = PluginThread(f"the {platform} adapter")

    def build() -> ThreadedAdapter | None:
        adapter = make()
        return ThreadedAdapter(adapter, thread) if adapter is not None else None

    adapter = None
    try:
        adapter = thread.call(build, seconds=LOAD_SECONDS)
        return adapter
    finally:
        if adapter is None:
            thread.request_stop()


async def close_all(adapters: Sequence[Adapter]) -> None:
    """End the threads of those adapters that have one."""
    await asyncio.gather(*(a.close() for a in adapters if isinstance(a, ThreadedAdapter)))


class ThreadedAdapter:
    """Runs every call of an adapter in its thread. Errors keep their types; the constructor is called in the thread."""

    def __init__(self, adapter: Adapter, thread: PluginThread) -> None:
        self._adapter = adapter
        self._thread = thread
        self.platform = msgspec.convert(adapter.platform, str)
        self.account = msgspec.convert(adapter.account, str)
        self.capabilities = msgspec.convert(adapter.capabilities, Capabilities)
        self.hook = self._wrap_hook(adapter.hook) if adapter.hook is not None else None
        self.typing = thread.bind(adapter.typing)
        # What an adapter does not support must not be an attribute: the protocols are checked by that.
        if isinstance(adapter, SupportsDownloads):
            self.download = thread.bind(adapter.download)
        if isinstance(adapter, SupportsReactions):
            self.react = thread.bind(adapter.react)
        if isinstance(adapter, SupportsReconciliation):
            self.find_sent = thread.bind(adapter.find_sent)
        if isinstance(adapter, SupportsRemoval):
            self.remove = thread.bind(adapter.remove)
        if isinstance(adapter, SupportsRoles):
            self.roles = thread.bind(adapter.roles)
        if isinstance(adapter, SupportsThreads):
            self.rename_thread = thread.bind(adapter.rename_thread)
            self.archive_thread = thread.bind(adapter.archive_thread)
        # The functions that are not awaited are those of the adapter itself: `call` runs them in the thread.
        self.parts = adapter.parts
        if isinstance(adapter, SupportsSendKeys):
            self.create_send_key = adapter.create_send_key

    async def listen(self, context: AdapterContext, /) -> None:
        """Listen in the thread. The context of an adapter that does not stop when it is cancelled is closed."""
        proxy = ThreadedAdapterContext(context)
        self._thread.on_stall = proxy.report_stall
        try:
            await self._thread.run(lambda: self._adapter.listen(proxy))
        finally:
            proxy.closed = True
            self._thread.on_stall = None

    async def call(self, work: Callable[[], T]) -> T:
        """Call a function in the thread. Raise `NotSent` if the thread is blocked."""
        try:
            return await self._thread.run_sync(work, seconds=_CALL_SECONDS)
        except PluginBlocked as exc:
            raise self._describe_block() from exc

    async def send(self, part: OutgoingPart, /) -> str:
        """Send a part. Raise `NotSent` if the thread is blocked before the send began."""
        try:
            return await self._thread.run(lambda: self._adapter.send(part), begin_within=_BEGIN_SECONDS)
        except PluginBlocked as exc:
            raise self._describe_block() from exc

    async def close(self) -> None:
        """Cancel what the adapter still runs, and end its thread."""
        await self._thread.stop()

    def _describe_block(self) -> NotSent:
        return NotSent(Phrase("delivery.adapter_blocked", platform=self.platform))

    def _wrap_hook(self, hook: Webhook) -> Webhook:
        async def handle(request: WebhookRequest) -> WebhookResponse:
            try:
                async with asyncio.timeout(_HOOK_SECONDS):
                    return await self._thread.run(lambda: hook.handle(request))
            except TimeoutError as exc:
                raise Unavailable(f"the {self.platform} adapter did not answer in time") from exc

        return msgspec.structs.replace(hook, handle=handle)


class ThreadedAdapterContext:
    """The context of an adapter in another thread: its calls run in the loop of the hub. `closed` refuses them."""

    def __init__(self, context: AdapterContext) -> None:
        self._hub = asyncio.get_running_loop()
        self._context = context
        self._reported = (LinkState.CONNECTING, "")
        self.closed = False
        self.cursor = context.cursor
        self.menu = context.menu
        self.menus = context.menus
        self.texts = context.texts
        self.receive = self._bind(context.receive)
        self.init_cursor = self._bind(context.init_cursor)
        self.load_state = self._bind(context.load_state)
        self.save_state = self._bind(context.save_state)
        self.store_attachment = self._bind(context.store_attachment)
        self.is_allowed = self._bind(context.is_allowed)
        self.move_chat = self._bind(context.move_chat)
        self.add_alias = self._bind(context.add_alias)

    def report(self, link: LinkState, detail: str = "") -> None:
        self._reported = (link, detail)
        self._hub.call_soon_threadsafe(self._report, link, detail)

    def report_stall(self, seconds: float) -> None:
        """Report that the adapter is blocked, or with 0 what it reported last. Called in the loop of the hub."""
        if seconds:
            detail = f"the adapter has been blocked for {seconds:.0f} seconds: the log says where"
            self._report(LinkState.BROKEN, detail)
        else:
            self._report(*self._reported)

    def _report(self, link: LinkState, detail: str) -> None:
        if not self.closed:
            self._context.report(link, detail)

    def _bind(self, function: Callable[P, Awaitable[T]]) -> "Callable[P, CoroutineType[Any, Any, T]]":
        in_hub = bind_to_loop(self._hub, function)

        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if self.closed:
                raise Unavailable("the adapter does not listen any more")
            return await in_hub(*args, **kwargs)

        return call
