"""Adapters of others run in threads of their own: what they do to themselves, they do to no other platform."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.engine.conftest import Begin
from tests.engine.world import FAKE, World, inbound

from keryx.core.deliveries import Target
from keryx.core.errors import Held, NotSent, Refused, SendError, Throttled, Unavailable
from keryx.core.ids import DeliveryId
from keryx.core.ports.adapter import (
    Adapter,
    AdapterContext,
    Capabilities,
    LinkState,
    OutgoingPart,
    RenderedPart,
    SupportsReactions,
    SupportsReconciliation,
    SupportsRoles,
    SupportsSendKeys,
    Webhook,
    WebhookRequest,
    WebhookResponse,
)
from keryx.core.source import Source
from keryx.core.turns import TurnState
from keryx.engine import plugins, threaded_adapter
from keryx.engine.policy import Policy
from keryx.engine.threaded_adapter import ThreadedAdapter
from keryx.plugin_thread import PluginExit
from keryx.store.db import Engine
from keryx.testing import RecordingAdapter, RecordingAdapterContext

pytestmark = pytest.mark.engines(Engine.SQLITE)

SECONDS = 30
FOREIGN = "whatsapp"
TARGET = Target(FOREIGN, chat="1")


class Parrot:
    """Does what `trick` says in each call; `held` stands for what blocks until the test is over."""

    platform, account = FOREIGN, "grey"
    capabilities = Capabilities(typing=True)

    def __init__(self) -> None:
        self.trick = ""
        self.held = threading.Event()
        self.reached = threading.Event()
        self.sent: list[OutgoingPart] = []
        self.context: AdapterContext | None = None
        self.hook = Webhook(path="parrot", handle=self._handle)

    async def listen(self, context: AdapterContext, /) -> None:
        self.context = context
        context.report(LinkState.CONNECTED)
        self._play()
        await asyncio.Event().wait()

    def parts(self, text: str) -> Sequence[RenderedPart]:
        self._play()
        return [RenderedPart(text)]

    async def send(self, part: OutgoingPart, /) -> str:
        self._play()
        self.sent.append(part)
        return part.key

    async def typing(self, target: Target) -> None:
        self._play()

    async def react(self, target: Target) -> None:
        self._play()

    async def roles(self, source: Source) -> Sequence[str]:
        self._play()
        return ()

    async def find_sent(self, part: OutgoingPart) -> str | None:
        self._play()
        return None

    def create_send_key(self, part: OutgoingPart) -> str:
        self._play()
        return f"own {part.key}"

    async def _handle(self, request: WebhookRequest) -> WebhookResponse:
        self._play()
        return WebhookResponse(body=request.body)

    def _play(self) -> None:
        match self.trick:
            case "exit":
                raise SystemExit(3)
            case "held":
                raise Held("not now")
            case "block":
                self.reached.set()
                self.held.wait(SECONDS)
            case "spin":
                self.reached.set()
                while not self.held.is_set():
                    pass
            case _:
                assert threading.current_thread() is not threading.main_thread()


@pytest.fixture
async def parrot() -> AsyncIterator[tuple[Parrot, ThreadedAdapter]]:
    inner = Parrot()
    adapter = threaded_adapter.load(FOREIGN, lambda: inner)
    assert adapter
    yield inner, adapter
    inner.held.set()
    await adapter.close()


def a_part() -> OutgoingPart:
    return OutgoingPart(delivery=DeliveryId("d"), number=0, key="k", target=TARGET, text="hello")


async def call_all(adapter: ThreadedAdapter) -> list[Exception]:
    """Call everything that the port has; gives the errors."""
    assert isinstance(adapter, SupportsReactions) and isinstance(adapter, SupportsRoles)
    assert isinstance(adapter, SupportsReconciliation) and isinstance(adapter, SupportsSendKeys)
    assert adapter.hook
    calls = [
        adapter.listen(RecordingAdapterContext()),
        adapter.send(a_part()),
        adapter.typing(TARGET),
        adapter.react(TARGET),
        adapter.roles(Source(platform=FOREIGN)),
        adapter.find_sent(a_part()),
        plugins.create_send_key(adapter, a_part()),
        adapter.call(lambda: adapter.parts("x")),
        adapter.hook.handle(WebhookRequest(headers={}, body=b"")),
    ]
    results = await asyncio.gather(*calls, return_exceptions=True)
    return [r for r in results if isinstance(r, Exception)]


async def test_every_call_runs_in_the_thread_and_its_errors_keep_their_types(
    parrot: tuple[Parrot, ThreadedAdapter],
) -> None:
    inner, adapter = parrot
    inner.trick = "held"
    assert [type(e) for e in await call_all(adapter)] == [Held] * 9
    inner.trick = "exit"
    errors = await call_all(adapter)
    assert [type(e) for e in errors] == [PluginExit] * 9 and str(errors[0]) == "it raised SystemExit"
    inner.trick = ""
    assert await adapter.send(a_part()) == "k"
    assert await plugins.create_send_key(adapter, a_part()) == "own k"
    assert await plugins.render_parts(adapter, "text") == [RenderedPart("text")]


async def test_the_context_runs_in_the_hub_and_is_closed_with_the_listening(
    parrot: tuple[Parrot, ThreadedAdapter],
) -> None:
    inner, adapter = parrot
    context = RecordingAdapterContext(cursor="7")
    listening = asyncio.create_task(adapter.listen(context))
    async with asyncio.timeout(SECONDS):
        while not context.link_states:  # noqa: ASYNC110 the fake has no signal for it
            await asyncio.sleep(0.001)
    seen = inner.context
    assert seen and seen.cursor == "7" and context.link_states == [(LinkState.CONNECTED, "")]

    async def use(context: AdapterContext) -> str | None:
        await context.save_state("a", "b")
        await context.receive(inbound("hello"))
        return await context.load_state("a")

    assert await adapter.call(lambda: asyncio.ensure_future(use(seen)))
    async with asyncio.timeout(SECONDS):
        while not context.events:  # noqa: ASYNC110 the fake has no signal for it
            await asyncio.sleep(0.001)
    assert context.state == {"a": "b"}
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    with pytest.raises(Unavailable, match="does not listen any more"):
        await use(seen)


async def test_what_an_adapter_does_not_support_its_wrapper_does_not_either() -> None:
    adapter = threaded_adapter.load(FAKE, RecordingAdapter)
    assert adapter and adapter.hook is None
    optional = (SupportsReactions, SupportsReconciliation, SupportsRoles, SupportsSendKeys)
    assert not any(isinstance(adapter, protocol) for protocol in optional)
    await adapter.close()


@pytest.mark.parametrize("error", [Throttled("x", after=Policy().send_timeout), Refused("x"), NotSent("x")])
async def test_errors_of_a_send_decide_as_they_do_without_a_thread(error: SendError) -> None:
    inner = RecordingAdapter(FOREIGN)
    adapter = threaded_adapter.load(FOREIGN, lambda: inner)
    assert adapter
    inner.errors_before.append(error)
    with pytest.raises(type(error)):
        await plugins.send_part(adapter, a_part(), Policy().send_timeout)
    await adapter.close()


def exit_in_make() -> Adapter | None:
    raise SystemExit(3)


def test_making_that_exits_raises_what_can_be_told() -> None:
    with pytest.raises(PluginExit, match="SystemExit"):
        threaded_adapter.load(FOREIGN, exit_in_make)
    assert threaded_adapter.load(FOREIGN, lambda: None) is None


async def enter(begin: Begin, adapter: ThreadedAdapter) -> tuple[World, RecordingAdapter]:
    calm = RecordingAdapter(FAKE)
    return await begin(adapters=[calm, adapter]), calm


@pytest.mark.parametrize("trick", ["block", "spin"])
async def test_an_adapter_that_blocks_keeps_no_other_chat_waiting(
    begin: Begin, parrot: tuple[Parrot, ThreadedAdapter], trick: str
) -> None:
    inner, adapter = parrot
    inner.trick = trick
    world, calm = await enter(begin, adapter)
    assert await asyncio.to_thread(inner.reached.wait, SECONDS)
    stuck = await world.say("hello", chat="9", reply=Target(FOREIGN, "grey", "9"))
    assert (await world.ask("hello")).state is TurnState.DONE
    await calm.wait_for(1, seconds=SECONDS)
    assert (await world.settle(stuck)).state is TurnState.DONE
    inner.trick = ""
    inner.held.set()
    await world.flow(world.delivered(2))
    assert [p.text for p in inner.sent] == ["hello"]


async def test_an_adapter_that_exits_is_reported_and_listens_again(
    begin: Begin, parrot: tuple[Parrot, ThreadedAdapter]
) -> None:
    inner, adapter = parrot
    inner.trick = "exit"
    world, _ = await enter(begin, adapter)
    status = world.node.service.platform_status

    def details() -> list[str]:
        return [s.detail for s in status.statuses if s.platform == FOREIGN]

    await world.eventually(lambda: details() == ["the adapter failed (SystemExit): the log has the details"])
    inner.trick = ""
    for _ in range(5):
        world.advance(5)
        await asyncio.sleep(0.01)
    await world.eventually(lambda: details() == [""])
    assert (await world.ask("hello")).state is TurnState.DONE
