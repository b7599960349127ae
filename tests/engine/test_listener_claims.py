"""Of several processes that serve one account, one listens, and another takes over."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.engine.conftest import Begin
from tests.engine.world import FAKE, Node, World

from keryx.core.errors import NotSent
from keryx.core.ports.adapter import AdapterContext, Capabilities, LinkState, OutgoingPart, Streaming
from keryx.store import workers
from keryx.testing import RecordingAdapter


class Listening(RecordingAdapter):
    """Counts how many processes listen at once."""

    def __init__(self, *, shared: bool = False, **capabilities: Any) -> None:
        super().__init__(FAKE, capabilities=Capabilities(shared_listening=shared, **capabilities))
        self.now = 0
        self.most = 0
        self.began = 0

    async def listen(self, context: AdapterContext, /) -> None:
        self.now += 1
        self.began += 1
        self.most = max(self.most, self.now)
        try:
            await super().listen(context)
        finally:
            self.now -= 1


def link(node: Node) -> LinkState | None:
    return next((status.link for status in node.service.platform_status.statuses), None)


async def reach(world: World, node: Node, state: LinkState) -> None:
    await world.flow(world.eventually(lambda: link(node) is state), step=1)


async def test_the_second_process_waits_and_takes_over_when_the_first_one_ends(begin: Begin) -> None:
    adapter = Listening()
    world = await begin(adapters=[adapter])
    first = world.node
    await reach(world, first, LinkState.CONNECTED)
    second = await world.start()
    await reach(world, second, LinkState.STANDBY)
    [status] = second.service.platform_status.statuses
    assert "takes over" in status.detail and (adapter.now, adapter.most) == (1, 1)
    await first.stop()
    await reach(world, second, LinkState.CONNECTED)
    assert (adapter.now, adapter.most, adapter.began) == (1, 1, 2)


async def test_a_process_that_crashed_is_replaced_when_its_lease_is_over(begin: Begin) -> None:
    adapter = Listening()
    world = await begin(adapters=[adapter])
    first = world.node
    await reach(world, first, LinkState.CONNECTED)
    second = await world.start()
    await reach(world, second, LinkState.STANDBY)
    await first.crash()
    assert link(second) is LinkState.STANDBY
    world.advance(world.policy.limits.lease + timedelta(seconds=1))
    await reach(world, second, LinkState.CONNECTED)
    assert adapter.most == 1


async def test_a_process_that_lost_its_claim_while_suspended_stops_listening(begin: Begin) -> None:
    adapter = Listening()
    world = await begin(adapters=[adapter])
    first = world.node
    await reach(world, first, LinkState.CONNECTED)
    second = await world.start()
    await reach(world, second, LinkState.STANDBY)
    taken = await world.write(
        workers.set_listener,
        second.service.worker.id,
        platform=FAKE,
        account="",
        previous=first.service.worker.id,
    )
    assert taken
    await reach(world, second, LinkState.CONNECTED)
    await reach(world, first, LinkState.STANDBY)
    assert adapter.now == 1


async def test_only_one_of_two_claims_at_once_succeeds(begin: Begin) -> None:
    world = await begin(adapters=[])
    nodes = [world.node, await world.start()]
    taken = await asyncio.gather(
        *(
            world.write(
                workers.set_listener, node.service.worker.id, platform=FAKE, account="", previous=None
            )
            for node in nodes
        )
    )
    assert sorted(taken) == [False, True]


async def test_an_account_that_may_be_shared_is_listened_to_by_all(begin: Begin) -> None:
    adapter = Listening(shared=True)
    world = await begin(adapters=[adapter])
    await reach(world, await world.start(), LinkState.CONNECTED)
    await reach(world, world.nodes[0], LinkState.CONNECTED)
    assert adapter.now == 2


class Keyed(Listening):
    """An adapter of which each process has its own, and only the one that listens has the keys."""

    def __init__(self, **capabilities: Any) -> None:
        super().__init__(sends_where_it_listens=True, **capabilities)

    async def send(self, part: OutgoingPart, /) -> str:
        if not self.now:
            raise NotSent("the keys are elsewhere")
        return await super().send(part)


@pytest.mark.parametrize("streaming", [Streaming.NONE, Streaming.EDIT])
async def test_where_only_the_listener_has_the_keys_it_sends_whichever_process_runs_the_turn(
    begin: Begin, streaming: Streaming
) -> None:
    capabilities = {"edit": True, "streaming": streaming}
    adapters = [Keyed(**capabilities), Keyed(**capabilities)]
    world = await begin(adapters=[adapters[0]])
    first = world.node
    await reach(world, first, LinkState.CONNECTED)
    world.serves = [adapters[1]]
    second = await world.start()
    await reach(world, second, LinkState.STANDBY)
    for number in range(6):
        await world.ask(f"hello {number}")
    await world.delivered(6)
    [kept], [idle] = (node.service.platform_status.statuses for node in (first, second))
    assert (kept.sent >= 6, idle.sent, idle.failed) == (True, 0, 0)
    await first.crash()
    await world.ask("hello again")
    world.advance(world.policy.limits.lease + timedelta(seconds=1))
    await reach(world, second, LinkState.CONNECTED)
    await world.delivered(7)
    assert second.service.platform_status.statuses[0].failed == 0
