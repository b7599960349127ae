"""How deliveries are sent on platforms that differ: reply windows, searches, own keys, limits and kinds of streams."""

from datetime import timedelta
from typing import Any

import msgspec
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, FAKE, OPERATORS, Pause, Scenes, World, inbound

from keryx.core.deliveries import Delivery, DeliveryState, DoubtPolicy, Idempotency, ReplyContext, Target
from keryx.core.errors import Held, NotSent, Uncertain
from keryx.core.ids import DeliveryId, SessionId
from keryx.core.ports.adapter import AttachmentKind, AttachmentLimits, Capabilities, OutgoingPart, Streaming
from keryx.core.ports.agent import FileEvent, TextDelta
from keryx.engine.policy import map_reach
from keryx.store import deliveries
from keryx.store.admin.verify import verify
from keryx.store.changes import Scope
from keryx.testing import START_TIME, FakeClock, RecordingAdapter

HOUR = timedelta(hours=1)
LOST = Uncertain("the connection broke")


def windowed(**able: Any) -> RecordingAdapter:
    return RecordingAdapter(FAKE, capabilities=Capabilities(reply_window=24 * HOUR, **able))


async def begin_with(begin: Begin, adapter: RecordingAdapter, **fields: Any) -> World:
    return await begin(
        adapters=[adapter], policy=msgspec.structs.replace(AT_ONCE, reach=map_reach([adapter]), **fields)
    )


async def became(world: World, delivery: DeliveryId, state: DeliveryState) -> Delivery:
    await world.until(lambda tx: deliveries.get(tx, delivery).state is state)
    return await world.read(deliveries.get, delivery)


async def post(world: World, text: str, session: SessionId | None) -> DeliveryId:
    scope = Scope(OPERATORS.profile, OPERATORS.principal, session)
    return await world.write(lambda tx: deliveries.enqueue(tx, Target(FAKE, chat="1"), text, of=scope))


async def test_what_comes_after_the_reply_window_is_held_until_the_person_writes(begin: Begin) -> None:
    adapter = windowed()
    world = await begin_with(begin, adapter)
    receipt = await world.say("hi")
    await world.settle(receipt)
    await adapter.wait_for(1)
    world.advance(25 * HOUR)
    first = await post(world, "good morning", receipt.session)
    second = await post(world, "and more", receipt.session)
    held = await became(world, first, DeliveryState.HELD)
    await became(world, second, DeliveryState.HELD)
    assert held.error and "when they write" in held.error
    listed = await world.hub.deliveries.page(OPERATORS, states=[DeliveryState.HELD])
    assert {d.id for d in listed} == {first, second}
    await world.say("back again")
    await adapter.wait_for(4)
    assert adapter.texts[1:3] == ["good morning", "and more"]
    assert await verify(world.database) == []


async def test_a_platform_that_holds_a_message_itself_gets_it_later(begin: Begin) -> None:
    adapter = windowed()
    adapter.errors_before = [Held("they must write first")]
    world = await begin_with(begin, adapter)
    receipt = await world.say("hi")
    await world.settle(receipt)
    [delivery] = await world.hub.deliveries.page(OPERATORS)
    held = await became(world, delivery.id, DeliveryState.HELD)
    assert held.error == "they must write first" and adapter.texts == []
    await world.hub.deliveries.decide(OPERATORS, delivery.id, DeliveryState.READY)
    await adapter.wait_for(1)


class Searchable(RecordingAdapter):
    """A platform that shows a repeated message twice, and can be searched for the key of one."""

    def __init__(self) -> None:
        super().__init__(FAKE, capabilities=Capabilities(idempotency=Idempotency.RECONCILE))
        self.searches: list[str] = []
        self.search_errors: list[Exception] = []

    async def find_sent(self, part: OutgoingPart) -> str | None:
        self.searches.append(part.key)
        if self.search_errors:
            raise self.search_errors.pop(0)
        keys = [p.key for p in self.sent_parts]
        return f"{FAKE}-{keys.index(part.key)}" if part.key in keys else None


async def test_what_may_have_arrived_is_searched_for_and_not_repeated(begin: Begin) -> None:
    adapter = Searchable()
    adapter.errors_after = [LOST]
    # The policy for doubt does not matter: the search decides.
    world = await begin_with(begin, adapter, doubt=DoubtPolicy.HOLD)
    await world.say("hi")
    await adapter.wait_for(1)
    [delivery] = await world.flow(world.delivered(1), step=1)
    assert adapter.texts == ["hi"] and delivery.receipts == ("fake-0",)
    assert adapter.searches == [adapter.sent_parts[0].key]


async def test_what_has_not_arrived_is_sent_after_the_search_without_a_mark(begin: Begin) -> None:
    adapter = Searchable()
    adapter.errors_before = [LOST]
    adapter.search_errors = [NotSent("no answer"), ValueError("broken")]
    world = await begin_with(begin, adapter)
    await world.say("hi")
    await world.flow(world.delivered(1), step=1)
    assert adapter.texts == ["hi"] and len(adapter.searches) == 3


class OwnKeys(RecordingAdapter):
    """A platform on which the adapter chooses the id of a message."""

    def __init__(self, **able: Any) -> None:
        super().__init__(FAKE, capabilities=Capabilities(idempotency=Idempotency.NATIVE, **able), limit=2)
        self.made: list[str] = []

    def create_send_key(self, part: OutgoingPart) -> str:
        self.made.append(f"own-{len(self.made)}")
        return self.made[-1]


async def test_a_key_of_the_adapter_is_stored_before_it_is_used_and_kept_over_a_crash(begin: Begin) -> None:
    adapter = OwnKeys()
    adapter.errors_after = [LOST, LOST]
    world = await begin_with(begin, adapter)
    await world.say("abcd")
    await adapter.wait_for(1)
    await world.restart()
    [delivery] = await world.flow(world.delivered(1), step=1)
    assert adapter.texts == ["ab", "cd"]
    assert [p.key for p in adapter.sent_parts] == ["own-0", "own-1"] == adapter.made
    assert (delivery.parts_sent, delivery.send_key) == (2, "own-1")


async def test_a_reply_context_is_passed_on_until_it_expires(begin: Begin, clock: FakeClock) -> None:
    adapter = RecordingAdapter(FAKE)
    world = await begin_with(begin, adapter)
    context = ReplyContext("token-1", START_TIME + timedelta(minutes=15))
    target = Target(FAKE, chat="1", reply_to="m1", reply_context=context)
    await world.settle(await world.hub.receive(inbound("now", reply=target)))
    await adapter.wait_for(1)
    world.advance(timedelta(minutes=15))
    await world.settle(await world.hub.receive(inbound("late", reply=target)))
    await adapter.wait_for(2)
    assert [p.target.reply_context for p in adapter.sent_parts] == [context, None]
    assert [p.target.reply_to for p in adapter.sent_parts] == ["m1", "m1"]
    [lane] = await world.hub.lanes.page(OPERATORS)
    assert lane.target == Target(FAKE, chat="1")


async def test_a_file_that_the_platform_does_not_accept_is_named_instead(begin: Begin) -> None:
    limits = AttachmentLimits(max_bytes=10)
    adapter = RecordingAdapter(FAKE, capabilities=Capabilities(attachments=limits))
    script = [FileEvent(name="a.bin", mime="text/plain", body=b"x" * 11), TextDelta("here it is")]
    world = await begin(agent=Scenes({"file": script}), adapters=[adapter])
    await world.settle(await world.say("file"))
    await adapter.wait_for(2)
    assert adapter.sent_parts[1].attachment is None
    assert adapter.texts[1] == "[file: a.bin is too large to be sent here: 11 bytes, at most 10]"


def test_the_kind_of_a_file_decides_too() -> None:
    pictures = Capabilities(attachments=AttachmentLimits(kinds=frozenset({AttachmentKind.IMAGE}))).attachments
    assert pictures and pictures.find_reason("image/png", 5) == ""
    assert pictures.find_reason("application/pdf", 5) and pictures.find_reason("video/mp4", 5)


class Stream(RecordingAdapter):
    """A platform that appends to a message, and takes whole texts only when it is closed."""

    def __init__(self, streaming: Streaming = Streaming.APPEND, **able: Any) -> None:
        super().__init__(FAKE, capabilities=Capabilities(edit=True, streaming=streaming, **able))
        self.steps: list[tuple[str, str, bool]] = []

    async def send(self, part: OutgoingPart) -> str:
        self.steps.append((part.text, part.shown, part.final))
        return await super().send(part)


def spoken(*lines: str) -> tuple[Scenes, list[Pause]]:
    pauses = [Pause() for _ in lines[1:]]
    script: list[Any] = []
    for number, line in enumerate(lines):
        script += [TextDelta(line), *pauses[number : number + 1]]
    return Scenes({"long": script}), pauses


async def show(world: World, adapter: RecordingAdapter, text: str) -> None:
    await world.flow(world.eventually(lambda: adapter.texts == [text]), step=0.3)


async def test_a_stream_gets_what_it_shows_and_is_closed_by_the_answer(begin: Begin) -> None:
    adapter = Stream()
    agent, pauses = spoken("Once ", "upon ", "a time.")
    world = await begin(agent=agent, adapters=[adapter])
    receipt = await world.say("long")
    await pauses[0].reached()
    await show(world, adapter, "Once ")
    pauses[0].go_on()
    await pauses[1].reached()
    await show(world, adapter, "Once upon ")
    pauses[1].go_on()
    await world.flow(world.settle(receipt), step=0.3)
    await world.flow(world.delivered(1), step=0.5)
    assert adapter.steps == [
        ("Once ", "", False),
        ("Once upon ", "Once ", False),
        ("Once upon a time.", "", True),
    ]


async def test_a_stream_that_another_process_began_is_only_closed(begin: Begin) -> None:
    adapter = Stream()
    agent, pauses = spoken("Once ", "upon a time.")
    world = await begin(agent=agent, adapters=[adapter])
    receipt = await world.say("long")
    await pauses[0].reached()
    await show(world, adapter, "Once ")
    await world.crash()
    pauses[0].go_on()
    world.advance(world.policy.limits.lease + timedelta(seconds=1))
    await world.start()
    await world.flow(world.settle(receipt), step=0.3)
    await world.flow(world.delivered(1), step=0.5)
    assert [final for _, _, final in adapter.steps] == [False, True]
    assert adapter.texts[0].endswith("Once upon a time.")


async def test_the_last_edit_is_kept_for_the_answer(begin: Begin) -> None:
    adapter = Stream(streaming=Streaming.EDIT, max_edits=2)
    lines = [f"{n} " for n in range(6)]
    agent, pauses = spoken(*lines)
    world = await begin(agent=agent, adapters=[adapter])
    receipt = await world.say("long")
    for pause in pauses:
        await pause.reached()
        await world.flow(world.eventually(lambda: bool(adapter.steps)), step=0.5)
        for _ in range(6):
            world.advance(0.5)
            await world.hub.check_ready()
        pause.go_on()
    await world.flow(world.settle(receipt), step=0.3)
    await world.flow(world.delivered(1), step=0.5)
    assert adapter.texts == ["".join(lines)]
    assert len(adapter.steps) <= 3 and adapter.steps[-1][2]


class SearchableWithKeys(Searchable):
    """A platform that is searched by the adapter's own keys, and on which previews get lost."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = Capabilities(
            idempotency=Idempotency.RECONCILE, edit=True, streaming=Streaming.EDIT
        )

    def create_send_key(self, part: OutgoingPart) -> str:
        return f"own-{part.number}"


async def test_an_answer_after_a_lost_preview_has_the_key_of_the_adapter(begin: Begin) -> None:
    adapter = SearchableWithKeys()
    adapter.errors_before = [LOST]
    agent, pauses = spoken("Once ", "upon a time.")
    world = await begin(agent=agent, adapters=[adapter])
    receipt = await world.say("long")
    await pauses[0].reached()
    await world.flow(world.eventually(lambda: not adapter.errors_before), step=0.3)
    pauses[0].go_on()
    await world.flow(world.settle(receipt), step=0.3)
    await world.flow(world.delivered(1), step=0.5)
    assert adapter.texts == ["Once upon a time."]
    assert [p.key for p in adapter.sent_parts] == ["own-0"]
    assert [key for key in adapter.searches if key.startswith("own")] == ["own-0"]
