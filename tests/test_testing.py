import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import httpx
import pytest
from tests.builders import until

from keryx.core.clock import Clock
from keryx.core.ports.adapter import Capabilities
from keryx.testing import START_TIME, FakeClock, PlatformFaults, RecordingAdapter
from keryx.testing.contracts import AdapterHarness, Trait
from keryx.testing.wire import WireFake, WireRequest, WireResponse, json_response


@dataclass
class Echo(WireFake):
    """Hands over three events, and counts what it accepts."""

    accepted: int = 0

    def handle(self, request: WireRequest) -> WireResponse | None:
        if request.method == "GET":
            return self.tear(json_response(self.inject_event_faults([1, 2, 3])))
        return self.accept_send(self.accept, throttled=WireResponse(429), broken=WireResponse(503))

    def accept(self) -> WireResponse:
        self.accepted += 1
        return json_response(self.accepted)


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as fake:
        yield fake


def test_a_fake_without_faults_hands_over_and_accepts(echo: Echo) -> None:
    assert httpx.get(echo.url).json() == [1, 2, 3]
    assert httpx.post(echo.url).json() == echo.accepted == 1


def test_events_are_repeated_and_reordered(echo: Echo) -> None:
    echo.set_faults(PlatformFaults(duplicate=1))
    assert httpx.get(echo.url).json() == [1, 1, 2, 2, 3, 3]
    echo.set_faults(PlatformFaults(reorder=1))
    orders = [httpx.get(echo.url).json() for _ in range(20)]
    assert {tuple(sorted(order)) for order in orders} == {(1, 2, 3)}
    assert any(order != [1, 2, 3] for order in orders)


def test_a_torn_response_breaks_the_connection(echo: Echo) -> None:
    echo.set_faults(PlatformFaults(torn=1))
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(echo.url)


@pytest.mark.parametrize(
    ("faults", "status"), [(PlatformFaults(throttle=1), 429), (PlatformFaults(broken=1), 503)]
)
def test_a_send_that_is_throttled_or_fails_is_not_accepted(
    echo: Echo, faults: PlatformFaults, status: int
) -> None:
    echo.set_faults(faults)
    assert (httpx.post(echo.url).status_code, echo.accepted) == (status, 0)


def test_a_lost_reply_belongs_to_a_send_that_was_accepted(echo: Echo) -> None:
    echo.set_faults(PlatformFaults(lost_reply=1))
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.post(echo.url)
    assert echo.accepted == 1


def _write(chat: str, text: str) -> None:
    """Do nothing."""


def test_the_harness_names_what_it_lacks_and_what_nothing_declares() -> None:
    harness = AdapterHarness(
        adapter=RecordingAdapter(capabilities=Capabilities()),
        texts=lambda chat: [],
        traits=frozenset({Trait.RECEIVES}),
        count_typing=lambda: 0,
    )
    missing, unused, spool = harness.find_problems()
    assert missing.startswith("Trait.RECEIVES is declared, so the harness needs write(chat, text)")
    assert unused == "the harness has `count_typing`, so declare Capabilities.typing, or remove it"
    assert "must keep a spool and the harness needs restart()" in spool
    traits = frozenset({Trait.RECEIVES, Trait.REDELIVERS})
    mended = replace(harness, traits=traits, write=_write, count_typing=None)
    assert mended.find_problems() == []


def test_the_fakes_need_no_pytest() -> None:
    program = "import sys, keryx.testing, keryx.testing.wire; sys.exit('pytest' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


async def test_time_stands_still_until_it_is_advanced(clock: FakeClock) -> None:
    same: Clock = clock
    assert (same.now(), same.monotonic()) == (START_TIME, 0.0)
    clock.advance(1.5)
    clock.advance(timedelta(minutes=1))
    assert (clock.now(), clock.monotonic()) == (START_TIME + timedelta(seconds=61.5), 61.5)


async def test_sleepers_wake_in_the_order_of_their_deadlines(clock: FakeClock) -> None:
    woken: list[int] = []

    async def sleep(seconds: int) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for seconds in (3, 1, 2, 9):
            group.create_task(sleep(seconds))
        await until(lambda: clock.sleepers == 4)
        clock.advance(3)
        await until(lambda: len(woken) == 3)
        assert woken == [1, 2, 3]
        clock.advance(6)


async def test_a_jump_of_the_wall_clock_wakes_nobody(clock: FakeClock) -> None:
    task = asyncio.create_task(clock.sleep(10))
    await until(lambda: clock.sleepers == 1)
    clock.jump(timedelta(days=-1))
    clock.jump(7200)
    assert (clock.now() - START_TIME, clock.monotonic(), clock.sleepers) == (timedelta(hours=-22), 0.0, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleepers == 0


async def test_no_time_at_all_is_slept_at_once(clock: FakeClock) -> None:
    async with asyncio.timeout(10):
        await clock.sleep(0)
        await clock.sleep(-5)


def test_time_never_passes_backward(clock: FakeClock) -> None:
    with pytest.raises(ValueError, match="forward"):
        clock.advance(-1)
