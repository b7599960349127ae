"""Files that are fetched after their message is stored: who waits for them, and what becomes of the message."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, FAKE, OPERATORS, Pause, Scenes, World, inbound

from keryx.core.errors import Invalid, Unavailable
from keryx.core.ids import SessionId
from keryx.core.media import Attachment, RemoteFile
from keryx.core.messages import File, Image, Message, Role, Text
from keryx.core.ports.adapter import AdapterContext, Capabilities, InboundMessage, SupportsDownloads
from keryx.core.ports.agent import TextDelta
from keryx.core.source import ChatType, Source
from keryx.core.turns import BusyMode, TurnState
from keryx.engine import adapter_listener
from keryx.engine.policy import MediaLimits
from keryx.store import messages
from keryx.store.db import Transaction
from keryx.testing import RecordingAdapter

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(32)


class Files(RecordingAdapter):
    """A platform whose files come when the test lets them."""

    def __init__(self, capabilities: Capabilities = Capabilities(threads=True)) -> None:
        super().__init__(FAKE, capabilities=capabilities)
        self.bodies: dict[str, bytes | Exception] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.asked: list[str] = []
        self.at_once = 0
        self._events: asyncio.Queue[InboundMessage] = asyncio.Queue()

    async def listen(self, context: AdapterContext) -> None:
        while True:
            await context.receive(await self._events.get())

    def say(self, event: InboundMessage) -> None:
        self._events.put_nowait(event)

    def hold(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        self.asked.append(file.reference)
        self.at_once = max(self.at_once, len(self.asked))
        if gate := self.gates.get(file.reference):
            await gate.wait()
        body = self.bodies.get(file.reference, PICTURE)
        if isinstance(body, Exception):
            raise body
        return Attachment(name=file.name, mime=file.mime, body=body)


def with_files(text: str, *names: str, **fields: Any) -> InboundMessage:
    files = tuple(RemoteFile(reference=name, name=f"{name}.png", mime="image/png") for name in names)
    return inbound(text, files=files, **fields)


async def stored(world: World) -> list[Message]:
    def load(tx: Transaction) -> list[Message]:
        return messages.list_latest(tx, tx.rows("select id from sessions order by id")[0][0], limit=99)

    return await world.read(load)


def has(count: int, table: str = "downloads") -> Callable[[Transaction], bool]:
    return lambda tx: tx.rows(f"select count(*) from {table}") == [(count,)]


async def test_the_files_of_a_message_stand_in_their_order(begin: Begin) -> None:
    platform = Files()
    world = await begin(adapters=[platform])
    gate = platform.hold("a")
    platform.say(with_files("look", "a", "b"))
    await world.until(has(1))
    gate.set()
    await platform.wait_for(1)
    asked, answer = await stored(world)
    assert [p.name for p in asked.parts if isinstance(p, Image)] == ["a.png", "b.png"]
    assert len(asked.parts) == 3 and answer.role is Role.ASSISTANT


async def test_at_most_so_many_files_are_fetched_at_once(begin: Begin) -> None:
    platform = Files()
    limits = MediaLimits(at_once=4)
    world = await begin(adapters=[platform], policy=msgspec.structs.replace(AT_ONCE, media=limits))
    gates = [platform.hold(name) for name in "abcdefgh"]
    platform.say(with_files("look", "a", "b", "c", session=SessionId("s1"), begin=True))
    await world.eventually(lambda: len(platform.asked) == 2)
    # One conversation leaves half of the places to others.
    platform.say(with_files("look", "d", "e", "f", session=SessionId("s2"), begin=True))
    await world.eventually(lambda: len(platform.asked) == 4)
    assert sorted(platform.asked) == ["a", "b", "d", "e"]
    gates[0].set()
    await world.eventually(lambda: len(platform.asked) == 5)
    assert platform.asked[-1] == "c"
    for gate in gates:
        gate.set()
    await platform.wait_for(1)


async def test_a_file_that_takes_too_long_becomes_a_sentence(begin: Begin) -> None:
    platform = Files()
    platform.hold("a")
    limits = MediaLimits(timeout=timedelta(milliseconds=1))
    await begin(adapters=[platform], policy=msgspec.structs.replace(AT_ONCE, media=limits))
    platform.say(with_files("look", "a"))
    await platform.wait_for(1)
    assert platform.texts == ["look\n\n[a.png could not be fetched: it took too long]"]


async def test_typing_is_shown_while_a_file_takes_long(begin: Begin) -> None:
    platform = Files(Capabilities(threads=True, typing=True))
    gate = platform.hold("a")
    world = await begin(adapters=[platform])
    platform.say(with_files("look", "a"))
    await world.eventually(lambda: bool(platform.asked))
    assert not platform.typing_targets
    await world.flow(world.eventually(lambda: len(platform.typing_targets) == 2))
    gate.set()
    await platform.wait_for(1)
    assert {target.chat for target in platform.typing_targets} == {"1"}


async def test_a_file_beyond_the_limit_becomes_a_sentence(begin: Begin) -> None:
    platform = Files()
    await begin(adapters=[platform], policy=msgspec.structs.replace(AT_ONCE, media=MediaLimits(limit=10)))
    platform.say(with_files("look", "a"))
    await platform.wait_for(1)
    assert platform.texts[0].startswith("look\n\n[a.png could not be fetched: a.png has 40 bytes")


@pytest.mark.parametrize(
    ("error", "attempts"), [(Invalid("it is gone"), 1), (Unavailable("no network"), 3), (OSError("odd"), 3)]
)
async def test_an_attempt_that_may_succeed_later_is_repeated_twice(
    begin: Begin, error: Exception, attempts: int
) -> None:
    platform = Files()
    world = await begin(adapters=[platform])
    platform.bodies["a"] = error
    platform.say(with_files("look", "a"))
    await world.flow(platform.wait_for(1), step=0.5)
    assert len(platform.asked) == attempts
    assert platform.texts[0].startswith("look\n\n[a.png could not be fetched: ")


async def test_a_file_whose_attempts_end_the_process_is_given_up(begin: Begin) -> None:
    platform = Files()
    platform.hold("a")
    world = await begin(adapters=[platform])
    platform.say(with_files("look", "a"))
    for number in range(1, 4):
        await world.eventually(lambda number=number: len(platform.asked) == number)
        await world.restart()
    await world.flow(platform.wait_for(1), step=0.5)
    assert platform.texts == ["look\n\n[a.png could not be fetched: every attempt ended the process]"]


async def test_a_steering_message_waits_for_its_file(begin: Begin) -> None:
    platform, pause = Files(), Pause()
    agent = Scenes({"work": [pause, TextDelta("done")]})
    world = await begin(adapters=[platform], agent=agent)
    platform.say(inbound("work"))
    await pause.reached()
    gate = platform.hold("a")
    platform.say(with_files("with this", "a", busy=BusyMode.STEER))
    await world.until(has(1))
    pause.go_on()
    await platform.wait_for(1)
    assert platform.texts == ["done"]
    gate.set()
    await platform.wait_for(2)
    assert agent.asked == ["work", "with this"]


async def test_a_collected_message_does_not_begin_without_its_file(begin: Begin) -> None:
    platform, pause = Files(), Pause()
    agent = Scenes({"work": [TextDelta("so "), pause, TextDelta("done")]})
    world = await begin(adapters=[platform], agent=agent)
    platform.say(inbound("work"))
    await pause.reached()
    gate = platform.hold("a")
    platform.say(inbound("one", busy=BusyMode.COLLECT))
    platform.say(with_files("two", "a", busy=BusyMode.COLLECT))
    await world.until(has(1))
    pause.go_on()
    await platform.wait_for(2)
    gate.set()
    await platform.wait_for(3)
    assert agent.asked == ["work", "one", "two"]


async def test_a_message_taken_from_the_queue_gets_its_file_and_no_answer(begin: Begin) -> None:
    platform = Files()
    world = await begin(adapters=[platform])
    gate = platform.hold("a")
    platform.say(with_files("look", "a"))
    await world.until(has(1))
    assert await world.command("/queue clear") == "Removed 1 queued message."
    gate.set()
    await world.until(has(0))
    [asked] = await stored(world)
    assert isinstance(asked.parts[1], Image)
    assert await world.read(lambda tx: tx.rows("select state from turns")) == [(TurnState.CANCELLED,)]


async def test_what_the_model_reads_before_a_message_stays_when_its_file_comes(begin: Begin) -> None:
    platform = Files()
    world = await begin(adapters=[platform])
    platform.say(with_files("look", "a", quote="yesterday"))
    await platform.wait_for(1)
    asked = (await stored(world))[0]
    assert asked.exact == '(in reply to "yesterday")\nlook'


async def test_a_file_alone_is_a_message(begin: Begin) -> None:
    platform = Files()
    platform.bodies["a"] = b"words"
    world = await begin(adapters=[platform])
    event = with_files("", "a")
    platform.say(msgspec.structs.replace(event, parts=()))
    await platform.wait_for(1)
    asked = (await stored(world))[0]
    assert [type(p) for p in asked.parts] == [File]


async def test_the_caption_of_a_file_is_no_command_and_no_answer(begin: Begin) -> None:
    platform = Files()
    world = await begin(adapters=[platform])
    platform.say(with_files("/status", "a"))
    await platform.wait_for(1)
    assert (await stored(world))[0].parts[0] == Text("/status")


async def test_a_platform_that_is_gone_does_not_hold_a_turn_for_ever(begin: Begin) -> None:
    platform = Files()
    platform.hold("a")
    world = await begin(adapters=[platform])
    platform.say(with_files("look", "a"))
    await world.until(has(1))
    await world.flow(platform.wait_for(1), step=3600)
    assert platform.texts == ["look\n\n[a.png could not be fetched: it was not fetched within a day]"]


async def test_a_file_of_an_erased_message_is_not_put_into_it(begin: Begin) -> None:
    platform = Files()
    gate = platform.hold("a")
    world = await begin(adapters=[platform])
    for name, event in (("ann", inbound("hello")), ("bob", with_files("look", "a"))):
        source = Source(
            platform=FAKE, chat="g", chat_type=ChatType.GROUP, thread="t", user=name, user_name=name
        )
        platform.say(msgspec.structs.replace(event, source=source, principal=None))
        await world.until(lambda tx, name=name: name in str(tx.rows("select author from messages")))
    [bob] = [p for p in await world.hub.people.list_all(OPERATORS) if p.principal.name == "bob"]
    await world.hub.people.erase(OPERATORS, bob.principal.id)
    gate.set()
    await world.flow(world.until(has(0, "turns where state = 'queued'")), step=0.3)
    assert not [m for m in await stored(world) if any(isinstance(p, Image) for p in m.parts)]


async def test_an_adapter_without_download_may_not_name_files(begin: Begin) -> None:
    world = await begin()
    service = world.node.service
    context = await adapter_listener.open_context(
        world.hub, world.fake, service.platform_status, service.roles
    )
    with pytest.raises(Invalid, match="has no `download`"):
        await context.receive(with_files("look", "a"))
    assert not isinstance(world.fake, SupportsDownloads)
