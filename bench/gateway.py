"""Gateway: a message of each platform until it is stored, the whole path through a real node on each, and what an idle lane holds."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.faults.node import Node
from tests.faults.platform_storm import CHATS, PLATFORMS, PlatformChats

from bench import raw
from bench.fill import Filled
from bench.floor import Floor
from bench.intakes import INTAKES, Intake, Receive
from bench.node import node
from bench.spread import Spread, ms, spread
from bench.stage import Place, Stage, hub_of, scattered
from bench.table import Line, line
from keryx.engine.hub import Hub
from keryx.testing import RecordingAdapterContext
from keryx.testing.fault_injection import PlatformFaults
from keryx.testing.wire import WireRequest, WireResponse

_LANES = (10, 100_000)
_CHATS = 50
_SENDERS = 16
_PAGE = os.sysconf("SC_PAGE_SIZE")
_WARM_UP = 100
# E-mail has no requests of HTTP that could be repeated, so it has no floor.
_ANSWERING = (
    "discord",
    "slack",
    "whatsapp-agent",
    "whatsapp-cloud",
    "email",
    "signal",
    "wechat",
    "feishu",
    "imessage-bluebubbles",
    "relay",
)


async def run(stage: Stage) -> AsyncIterator[Line]:
    async for found in _intake(stage):
        yield found
    async for found in _platforms(stage):
        yield found
    async for found in _idle(stage):
        yield found
    if not stage.dsn:
        for found in await asyncio.to_thread(_whole, stage):
            yield found
        for name in _ANSWERING:
            yield await asyncio.to_thread(_answer_on, name, stage)


async def _intake(stage: Stage) -> AsyncIterator[Line]:
    """The text of an update until the commit, beside the rows it makes; both stores are measured in turns."""
    sizes = [_LANES[0], stage.size(_LANES[1])]
    stores = [await stage.lanes(size) for size in sizes]
    floors = [stage.floor(place) for place, _ in stores]
    async with AsyncExitStack() as stack:
        cases: list[_Case] = []
        for (place, filled), floor in zip(stores, floors, strict=True):
            hub, _ = await stack.enter_async_context(hub_of(place))
            case = _open_case(INTAKES["Telegram"], hub, floor, scattered(filled))
            cases.append(await stack.enter_async_context(case))
        measured = await _measure(cases, stage.count(1500))
    for floor in floors:
        floor.close()
    first = measured[0][0]
    for size, (ours, plain) in zip(sizes, measured, strict=True):
        name = f"{size:,} lanes"
        yield line("update to committed p50", name, ms(ours.p50), "ms", floor=ms(plain.p50), most=2)
        if ours is not first:
            yield line(
                "update to committed, flat", name, ms(ours.p50), "ms", against=ms(first.p50), most=1.5,
                what="10 lanes",
            )  # fmt: skip


async def _platforms(stage: Stage) -> AsyncIterator[Line]:
    """What each platform hands over for one message, until the commit; all of them are measured in turns."""
    place, filled = await stage.lanes(_LANES[0])
    floor = stage.floor(place)
    async with hub_of(place) as (hub, _), AsyncExitStack() as stack:
        cases = [
            await stack.enter_async_context(_open_case(intake, hub, floor, scattered(filled)))
            for intake in INTAKES.values()
        ]
        measured = await _measure(cases, stage.count(1000))
    floor.close()
    for name, (ours, plain) in zip(INTAKES, measured, strict=True):
        yield line("event to committed p50", name, ms(ours.p50), "ms", floor=ms(plain.p50), most=2)


async def _measure(cases: list["_Case"], count: int) -> list[tuple[Spread, Spread]]:
    """Return the spread of each case and that of its floor."""
    for n in range(_WARM_UP + count):
        for case in cases:
            await case(n)
    return [(spread(case.ours[_WARM_UP:]), spread(case.plain[_WARM_UP:])) for case in cases]


@asynccontextmanager
async def _open_case(
    intake: Intake, hub: Hub, floor: Floor, pick: Callable[[int], tuple[int, Filled]]
) -> AsyncGenerator["_Case"]:
    """The context of the adapter is the hub's verb, and nothing more."""
    context = RecordingAdapterContext(receive=hub.receive)
    async with intake.open(context) as receive:
        case = _Case(intake, receive, floor, pick)
        yield case
    assert len(context.events) == len(case.ours), "an event was not received"


class _Case:
    """One store and its floor."""

    def __init__(
        self,
        intake: Intake,
        receive: Receive,
        floor: Floor,
        pick: Callable[[int], tuple[int, Filled]],
    ) -> None:
        self._intake = intake
        self._receive = receive
        self._floor = floor
        self._pick = pick
        self.ours: list[float] = []
        self.plain: list[float] = []

    async def __call__(self, n: int) -> None:
        wire = self._intake.encode(n)
        began = time.perf_counter()
        await self._receive(wire)
        self.ours.append(time.perf_counter() - began)
        _, found = self._pick(n)
        began = time.perf_counter()
        for _ in range(self._intake.commits):
            self._floor.write(raw.receive(raw.values(found.lane, found.session, found.owner)))
        self.plain.append(time.perf_counter() - began)


def _whole(stage: Stage) -> list[Line]:
    """`keryx serve` with echo, and the fake in this process. The floor is a bare client that sends as much to the fake,
    as many at once: what the fake itself costs."""
    count = stage.count(2000)
    with FakeTelegram() as telegram:
        command = [str(Path(sys.executable).with_name("keryx")), "serve", "--port", "0", "--json"]
        environ = {
            "KERYX_TELEGRAM_TOKEN": TOKEN,
            "KERYX_TELEGRAM_BASE_URL": telegram.url,
            "KERYX_TELEGRAM_ALLOW": "*",
        }
        with Node(telegram.url, stage.folder / "gateway", command=command, **environ) as served:
            served.start()
            for chat in range(_CHATS):
                _ask(telegram, chat)
            single = spread([_ask(telegram, n % _CHATS) for n in range(stage.count(300))])
            rate = _rate(telegram, count)
        bare = _bare(telegram, count)
    size = f"{_CHATS} chats"
    return [
        line("answer on Telegram p50", size, ms(single.p50), "ms", under=50),
        line("answer on Telegram p95", size, ms(single.p95), "ms", under=200),
        line("answers on Telegram", size, rate, "/s", floor=bare),
    ]


def _ask(telegram: FakeTelegram, chat: int) -> float:
    """Seconds from a message of a person to the answer that they see."""
    before = len(telegram.bubbles)
    began = time.perf_counter()
    telegram.say("hello", chat=1000 + chat)
    assert telegram.wait_for(lambda: len(telegram.bubbles) > before, 60)
    return time.perf_counter() - began


def _rate(telegram: FakeTelegram, count: int) -> float:
    before = len(telegram.bubbles)
    began = time.perf_counter()
    for n in range(count):
        telegram.say("hello", chat=1000 + n % _CHATS)
    assert telegram.wait_for(lambda: len(telegram.bubbles) >= before + count, 300)
    return count / (time.perf_counter() - began)


def _bare(telegram: FakeTelegram, count: int) -> float:
    def send() -> None:
        with httpx.Client(timeout=30) as client:
            for _ in range(count // _SENDERS):
                client.post(f"{telegram.url}/bot{TOKEN}/sendMessage", json={"chat_id": 7, "text": "hello"})

    began = time.perf_counter()
    _run_threads(send)
    return count // _SENDERS * _SENDERS / (time.perf_counter() - began)


def _answer_on(name: str, stage: Stage) -> Line:
    """Answers of `keryx serve` on a platform, without faults. The floor is what the fake takes of the same requests from bare
    clients; a fake has the limits of its platform."""
    folder = stage.folder / f"answers-{name}"
    folder.mkdir()
    chats, count = PLATFORMS[name](folder, 1), stage.count(1000)
    chats.fake.set_faults(PlatformFaults())
    handle: Callable[[WireRequest], WireResponse | None] = chats.fake.handle
    sends: list[WireRequest] = []

    def record(request: WireRequest) -> WireResponse | None:
        before = _count_texts(chats)
        response = handle(request)
        if _count_texts(chats) > before:
            sends.append(request)
        return response

    with chats.serve(), chats.open_node(folder, database="", seed=1) as served:
        served.start()
        chats.fake.handle = record
        _ask_all(chats, CHATS)
        chats.fake.handle = handle
        rate = _ask_all(chats, count)
        served.kill()
        bare = _repeat(chats.fake.url, sends, count) if sends else None
    return line("answers on a platform", name, rate, "/s", floor=bare)


def _ask_all(chats: PlatformChats[Any], count: int) -> float:
    """Answers per second, as people see them."""
    wanted = _count_texts(chats) + count
    began = time.perf_counter()
    for n in range(count):
        chats.say(f"chat-{n % CHATS}", "hello")
    assert chats.fake.wait_for(lambda: _count_texts(chats) >= wanted, 600)
    return count / (time.perf_counter() - began)


def _count_texts(chats: PlatformChats[Any]) -> int:
    return sum(len(chats.texts(f"chat-{n}")) for n in range(CHATS))


def _repeat(url: str, requests: list[WireRequest], count: int) -> float:
    """Requests per second that a fake accepts, from bare clients."""
    left, accepted = iter(range(count)), list[int]()
    origin = url.partition("://")[0] + "://" + url.partition("://")[2].partition("/")[0]

    def send() -> None:
        with httpx.Client(timeout=30) as client:
            for n in left:
                again = requests[n % len(requests)]
                headers = {k: v for k, v in again.headers.items() if k not in ("host", "content-length")}
                answer = client.request(
                    again.method, origin + again.path, params=again.query, content=again.body, headers=headers
                )
                if answer.is_success:
                    accepted.append(n)

    began = time.perf_counter()
    _run_threads(send)
    return len(accepted) / (time.perf_counter() - began)


def _run_threads(send: Callable[[], None]) -> None:
    threads = [threading.Thread(target=send) for _ in range(_SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def _idle(stage: Stage) -> AsyncIterator[Line]:
    """What a node holds in memory for lanes in which nothing happens."""
    sizes = [_LANES[0], stage.size(_LANES[1])]
    places = [(await stage.lanes(size))[0] for size in sizes]
    few, many = [await asyncio.to_thread(_elsewhere, place) for place in places]
    name = f"{sizes[1]:,} lanes"
    yield line("RSS of an idle node", name, many, "MiB", against=few, what="10 lanes", most=1.2)
    per_lane = max(0.0, (many - few) * 1024**2 / (sizes[1] - sizes[0]))
    yield line("memory per idle lane", name, per_lane, "bytes")


def _elsewhere(place: Place) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "bench.gateway", str(place.path), place.dsn],
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=float)


async def _resident(place: Place) -> float:
    async with place.database() as database, node(database):
        await asyncio.sleep(1)
        return _mebibytes()


def _mebibytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 1024**2


if __name__ == "__main__":
    found = asyncio.run(_resident(Place(Path(sys.argv[1]), sys.argv[2])))
    sys.stdout.buffer.write(msgspec.json.encode(found))
