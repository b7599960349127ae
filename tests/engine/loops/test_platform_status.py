"""How platforms stand: reported, counted, written down, and tried again for ever, each apart from the others."""

import asyncio
import logging
from datetime import timedelta

import pytest
from tests.engine.conftest import Begin
from tests.engine.loops.test_dispatcher import became, post
from tests.engine.world import FAKE, World, inbound

from keryx.core.deliveries import DeliveryState, Target
from keryx.core.errors import CredentialsRefused, Forbidden, NotSent, Throttled, Unavailable
from keryx.core.ids import WorkerId
from keryx.core.ports.adapter import AdapterContext, LinkState, PlatformStatus, RenderedPart
from keryx.engine.loops.platform_status import PlatformStatusReporter
from keryx.store import platforms, workers
from keryx.store.db import Database
from keryx.testing import CrashingDatabase, DatabaseFault, FakeClock, FaultTiming, RecordingAdapter


class Failing(RecordingAdapter):
    """Fails to listen as often as it is told to, then listens."""

    def __init__(self, platform: str, *errors: Exception | None) -> None:
        super().__init__(platform)
        self.errors = list(errors)
        self.tried = 0

    async def listen(self, context: AdapterContext) -> None:
        self.tried += 1
        if self.errors:
            error = self.errors.pop(0)
            if error:
                raise error
            return
        await super().listen(context)


async def of(world: World, platform: str) -> PlatformStatus | None:
    return next((c for c in await world.hub.platform_statuses() if c.platform == platform), None)


async def stands(world: World, platform: str, link: LinkState, *, step: float = 0.5) -> PlatformStatus:
    async def wait() -> PlatformStatus:
        while True:
            found = await of(world, platform)
            if found is not None and found.link is link:
                return found
            await asyncio.sleep(0.005)

    return await world.flow(wait(), step=step)


async def test_what_is_taken_in_and_sent_is_counted(begin: Begin, clock: FakeClock) -> None:
    class Listening(RecordingAdapter):
        async def listen(self, context: AdapterContext) -> None:
            context.report(LinkState.CONNECTED, "as @bot")
            await context.receive(inbound("hello"))
            await asyncio.Event().wait()

    adapter = Listening(FAKE)
    adapter.errors_before += [NotSent("no line"), Throttled("slow down", after=timedelta(seconds=2))]
    world = await begin(adapters=[adapter])

    async def counted() -> PlatformStatus:
        while True:
            found = await of(world, FAKE)
            if found and found.sent:
                return found
            await asyncio.sleep(0.005)

    found = await world.flow(counted(), step=1)
    assert (found.received, found.sent, found.failed, found.throttled) == (1, 1, 1, 1)
    assert (found.link, found.detail) == (LinkState.CONNECTED, "as @bot")


async def test_the_same_state_is_logged_once_however_often_it_is_reported(
    database: Database, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = PlatformStatusReporter(database, clock, worker=WorkerId("w"))
    adapter = RecordingAdapter(FAKE)
    with caplog.at_level(logging.INFO, "keryx.engine.loops.platform_status"):
        for link in (LinkState.CONNECTING, LinkState.CONNECTING, LinkState.CONNECTED, LinkState.CONNECTED):
            reporter.report(adapter, link)
    assert [record.args[2] for record in caplog.records if isinstance(record.args, tuple)] == [
        "connecting",
        "connected",
    ]


async def test_refused_credentials_are_told_and_tried_again(begin: Begin, clock: FakeClock) -> None:
    adapter = Failing(FAKE, *[Forbidden("the token is wrong")] * 12)
    world = await begin(adapters=[adapter])
    found = await stands(world, FAKE, LinkState.REFUSED)
    assert found.detail == "the token is wrong"
    began = clock.monotonic()
    await world.flow(world.eventually(lambda: adapter.tried == 13), step=20)
    assert clock.monotonic() - began > 1800
    assert (await stands(world, FAKE, LinkState.CONNECTED)).detail == ""


async def test_credentials_that_are_refused_for_a_send_are_told_until_something_is_sent(
    begin: Begin,
) -> None:
    adapter = RecordingAdapter(FAKE)
    adapter.errors_before += [CredentialsRefused("the token was revoked")] * 2
    world = await begin(adapters=[adapter])
    await stands(world, FAKE, LinkState.CONNECTED)
    await world.ask("hello")
    found = await stands(world, FAKE, LinkState.REFUSED)
    assert found.detail == "the token was revoked"
    found = await stands(world, FAKE, LinkState.CONNECTED)
    assert (found.detail, adapter.texts) == ("", ["hello"])


async def test_what_a_connection_reports_does_not_hide_that_sends_are_refused(
    database: Database, clock: FakeClock
) -> None:
    reporter = PlatformStatusReporter(database, clock, worker=WorkerId("w"))
    adapter = RecordingAdapter(FAKE)
    reporter.report(adapter, LinkState.CONNECTED)
    reporter.report_refusal(adapter, "the token was revoked")
    reporter.report(adapter, LinkState.CONNECTED, "as @bot")
    [shown] = reporter.statuses
    assert (shown.link, shown.detail) == (LinkState.REFUSED, "the token was revoked")
    reporter.count(adapter, "sent")
    [shown] = reporter.statuses
    assert (shown.link, shown.detail) == (LinkState.CONNECTED, "as @bot")


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (Unavailable("the platform is away"), "the platform is away"),
        (RuntimeError("with a secret"), "the adapter failed (RuntimeError): the log has the details"),
        (None, "the adapter stopped listening by itself"),
    ],
)
async def test_a_broken_adapter_comes_back_and_harms_no_other(
    begin: Begin, error: Exception | None, detail: str
) -> None:
    broken, well = Failing("broken", *[error] * 3), RecordingAdapter(FAKE)
    world = await begin(adapters=[broken, well])
    await world.until(lambda tx: tx.row("select 1 from connections where link = 'broken'") is not None)
    assert (await stands(world, "broken", LinkState.BROKEN, step=0)).detail == detail
    await world.ask("hello")
    await well.wait_for(1)
    assert (await stands(world, FAKE, LinkState.CONNECTED)).link is LinkState.CONNECTED
    await stands(world, "broken", LinkState.CONNECTED)


async def test_what_a_process_reported_goes_with_it(begin: Begin) -> None:
    world = await begin()
    await stands(world, FAKE, LinkState.CONNECTED)
    await world.node.stop()
    world.advance(world.policy.limits.lease + timedelta(seconds=1))
    assert await world.hub.platform_statuses() == []
    await world.write(workers.remove, world.node.service.worker.id)
    assert await world.read(workers.list_connections) == []


async def test_a_store_that_is_away_loses_no_report(begin: Begin, database: Database) -> None:
    fault = DatabaseFault("connections.put", FaultTiming.BEFORE, nth=1)
    world = await begin(database=CrashingDatabase(database, fault))
    await stands(world, FAKE, LinkState.CONNECTED)
    assert fault.hits


async def test_a_throttled_account_closes_its_own_gate(begin: Begin, clock: FakeClock) -> None:
    adapter = RecordingAdapter(FAKE)
    adapter.errors_before.append(Throttled("too much", after=timedelta(seconds=30), account=True))
    world = await begin(adapters=[adapter])
    (first,) = await world.write(post, "one", chat="1")
    await world.until(lambda tx: platforms.get_gates_open_at(tx, Target(FAKE, chat="9")) is not None)
    (second,) = await world.write(post, "two", chat="2")
    (gate,) = await world.hub.closed_gates()
    assert (gate.key, gate.reason) == (Target(FAKE).account_key, "too much")
    assert adapter.texts == []
    await world.flow(became(world, second, DeliveryState.SENT), step=5)
    await became(world, first, DeliveryState.SENT)
    assert sorted(adapter.texts) == ["one", "two"]


async def test_an_answer_that_cannot_be_split_fails_with_its_reason(begin: Begin) -> None:
    class Odd(RecordingAdapter):
        def parts(self, text: str) -> list[RenderedPart]:
            raise ValueError("odd text")

    world = await begin(adapters=[Odd(FAKE)])
    (delivery,) = await world.write(post, "one")
    failed = await became(world, delivery, DeliveryState.FAILED)
    assert failed.error == "the fake adapter cannot split this answer (ValueError: odd text)"
    assert failed.attempts == 1
