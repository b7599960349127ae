"""The trace of a message: everything that happened to it, and how it ended."""

import socket
from typing import Any

import msgspec
import pytest
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, FAKE, OPERATORS, Pause, Scenes, World, inbound, viewer
from tests.untranslated import find_untranslated_words

from keryx.core.access import AccessRule
from keryx.core.errors import NotFound, Refused
from keryx.core.ports.adapter import InboundMessage
from keryx.core.ports.agent import TextDelta
from keryx.core.source import ChatType, Source
from keryx.core.texts import NO_CHANGES, Phrase
from keryx.core.turns import BusyMode


async def test_the_trace_of_an_answered_message(world: World) -> None:
    turn = await world.ask("hello")
    await world.delivered(1)
    story = await world.hub.trace(viewer("ann"), f"{turn.session}.1")
    told = [e.what for e in story.events]
    assert story.outcome == f"answered in turn {turn.id}"
    for words in (
        "received via gateway from ann",
        "led here: first message",
        "queued as turn",
        "attempt 1 began",
    ):
        assert any(words in t for t in told), words
    assert any("sent after 1 attempt, 1 part as fake-0" in t for t in told)
    assert [e.at for e in story.events] == sorted(e.at for e in story.events)


@pytest.mark.parametrize("asked", ["hello", "!fail x"])
async def test_the_trace_can_be_read_in_german(begin: Begin, asked: str) -> None:
    rules = {FAKE: AccessRule(allow=("ann",))}
    world = await begin(policy=msgspec.structs.replace(AT_ONCE, access=rules))
    world.fake.errors_before = [Refused(Phrase("delivery.too_long", platform="Fake", status=400))]
    receipt = await world.hub.receive(from_platform(asked, "1.77"))
    await world.flow(world.settle(receipt))
    await world.until(lambda tx: bool(tx.rows("select 1 from deliveries where state = 'failed'")))
    story = await world.hub.trace(OPERATORS, f"{receipt.session}.1")
    texts = NO_CHANGES.speak("de")
    data = (
        *("gateway", "fake", "ann", "agent", "main", "dm", "queue", "echo", "access", "allow", "Fake", "x"),
        *(str(receipt.session), str(receipt.turn), socket.gethostname(), "serve"),
    )
    told = [texts.render(event.what) for event in story.events]
    assert {text: found for text in told if (found := find_untranslated_words(text, *data))} == {}
    assert "Fake lehnt ab: die Nachricht ist zu lang (400)" in " ".join(told)
    assert find_untranslated_words(texts.render(story.outcome), *data) == []


async def test_every_way_to_end_is_a_visible_outcome(begin: Begin) -> None:
    world = await begin()
    failed = await world.ask("!fail x")
    observed = await world.say("talk", observed=True)
    said = await world.say("!wait 9")
    await world.drafted(said, "Waiting. ")
    merged = await world.say("hint", busy=BusyMode.STEER)
    dropped = await world.say("later")
    assert dropped.turn
    await world.hub.drop(OPERATORS, dropped.turn)
    await world.flow(world.settle(said))

    async def outcome(seq: int | None) -> str:
        return (await world.hub.trace(OPERATORS, f"{failed.session}.{seq}")).outcome

    assert (await outcome(1)).startswith("failed") and "observed" in await outcome(observed.seq)
    assert (await outcome(merged.seq)) == f"answered in turn {said.turn}"
    assert (await outcome(dropped.seq)).startswith("cancelled")
    await world.hub.undo(OPERATORS, failed.session)
    assert "taken back" in {await outcome(n) for n in range(1, 9)}


async def test_the_trace_tells_of_interruptions_and_refusals(begin: Begin) -> None:
    pause = Pause()
    world = await begin(agent=Scenes({"hold": [TextDelta("x"), pause]}))
    said = await world.say("hold")
    await world.drafted(said, "x")
    await world.restart()
    pause.go_on()
    world.fake.errors_before = [Refused("the chat is gone")]
    turn = await world.settle(said)
    await world.until(lambda tx: bool(tx.rows("select 1 from deliveries where state = 'failed'")))
    told = " ".join(e.what for e in (await world.hub.trace(OPERATORS, f"{turn.session}.1")).events)
    assert "interrupted" in told and "the chat is gone" in told and "attempt 2 began" in told


def from_platform(text: str, event: str, **fields: Any) -> InboundMessage:
    source = Source(platform=FAKE, chat="1", user="ann", user_name="ann", message=event)
    return inbound(text, event=event, source=source, principal=None, **fields)


async def test_a_message_is_found_by_the_id_of_its_platform_and_by_that_of_its_answer(begin: Begin) -> None:
    rules = {FAKE: AccessRule(allow=("ann",))}
    world = await begin(policy=msgspec.structs.replace(AT_ONCE, access=rules))
    receipt = await world.hub.receive(from_platform("hello", "1.77"))
    [delivery] = await world.delivered(1)
    for name in (f"{receipt.session}.1", "1.77", delivery.receipts[0]):
        story = await world.hub.trace(OPERATORS, name)
        told = [e.what for e in story.events]
        assert story.message.text == "hello"
        assert "came by lane agent:main:fake:dm:1" in told
        assert "its author is allowed by `allow` of [access.fake]" in told


async def test_an_event_that_led_to_nothing_is_told_to_operators(begin: Begin) -> None:
    rules = {FAKE: AccessRule(allow=("bob",), pairing=False)}
    world = await begin(policy=msgspec.structs.replace(AT_ONCE, access=rules))
    await world.hub.receive(from_platform("hello", "1.78"))
    with pytest.raises(NotFound) as caught:
        await world.hub.trace(OPERATORS, "1.78")
    why = "its author may not talk; its lane is agent:main:fake:dm:1; its author is not allowed"
    assert "led to no message" in str(caught.value) and why in str(caught.value)
    with pytest.raises(NotFound, match="there is no session"):
        await world.hub.trace(viewer("eve"), "1.78")


async def test_a_message_of_others_is_not_found_by_its_id_on_the_platform(begin: Begin) -> None:
    world = await begin()
    await world.hub.receive(from_platform("hello", "1.79"))
    with pytest.raises(NotFound):
        await world.hub.trace(viewer("eve"), "1.79")


async def test_an_event_that_led_to_nothing_says_why_by_a_part_of_its_id(begin: Begin) -> None:
    rules = {FAKE: AccessRule(allow=("ann",), observe=True)}
    world = await begin(policy=msgspec.structs.replace(AT_ONCE, access=rules))
    group = Source(platform=FAKE, chat="c", chat_type=ChatType.GROUP, user="ann", message="7.1")
    overheard = from_platform("lunch?", "c.7.1", addressed=False)
    await world.hub.receive(msgspec.structs.replace(overheard, source=group))
    await world.hub.receive(from_platform("/whoami", "c.7.2"))
    # On Slack, an event is named by the channel and the time of its message.
    for name, why in (("7.1", "kept for the next question there"), ("7.2", "the command /whoami")):
        with pytest.raises(NotFound, match=why):
            await world.hub.trace(OPERATORS, name)
