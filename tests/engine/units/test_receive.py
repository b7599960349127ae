"""What one inbound event does: once, in its lane, under its policy."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.builders import ODD_TEXTS, claim
from tests.conftest import Open
from tests.engine.conftest import Begin
from tests.engine.world import FAKE, OPERATORS, SECONDS, Pause, World, inbound, line, viewer

from keryx.core.deliveries import DeliveryState, Target
from keryx.core.errors import Invalid, KeryxError, NotFound
from keryx.core.ids import PrincipalId, ProfileId, SessionId, TurnId
from keryx.core.messages import Image, Role, Text
from keryx.core.ports.agent import TextDelta
from keryx.core.resets import ResetMode, ResetPolicies, ResetPolicy
from keryx.core.sessions import EndReason, SessionFilter, SessionSettings, Viewer
from keryx.core.source import ChatType, Source
from keryx.core.turns import BusyMode, Turn, TurnLimits, TurnState
from keryx.engine.hub import Hub
from keryx.engine.hub.views import MessageRange
from keryx.engine.loops.feed import Feed
from keryx.engine.policy import Notices, Policy
from keryx.store import inbox
from keryx.store.db import Transaction
from keryx.testing import FakeClock, ScriptedAgent

HOUR = timedelta(hours=1)
IDLE = Policy(resets=ResetPolicies(default=ResetPolicy(mode=ResetMode.IDLE, idle=HOUR)))
DAILY = Policy(
    resets=ResetPolicies(default=ResetPolicy(mode=ResetMode.DAILY, hour=4, zone="Europe/Berlin")),
)
BIG = 5_000_000


def in_group(user: str, text: str = "hi", **place: Any) -> Any:
    source = Source(platform=FAKE, chat="g", chat_type=ChatType.GROUP, user=user, user_name=user, **place)
    return inbound(text, user=user, source=source)


async def test_a_repeated_event_makes_one_turn_and_gives_the_first_receipt(world: World) -> None:
    message = inbound("hello")
    first = await world.hub.receive(message)
    again = await world.hub.receive(message)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert msgspec.structs.replace(again, duplicate=False) == first
    await world.settle(first)
    assert await world.transcript(first.session) == ["user: hello", "assistant: hello"]
    await world.delivered(1)
    assert world.fake.texts == ["hello"]


async def test_an_event_that_comes_many_times_at_once_makes_one_turn(world: World) -> None:
    message = inbound("hello")
    receipts = await asyncio.gather(*(world.hub.receive(message) for _ in range(16)))
    assert sorted(r.duplicate for r in receipts) == [False] + [True] * 15
    assert len({(r.session, r.turn, r.seq) for r in receipts}) == 1
    await world.settle(receipts[0])
    assert len((await world.open(receipts[0].session)).messages) == 2


async def test_a_repeated_command_is_run_once(world: World) -> None:
    await world.ask("hello")
    first = await world.hub.receive(message := inbound("/pin"))
    again = await world.hub.receive(message)
    assert (first.reply, again.reply, again.duplicate) == ("Pinned.", "Pinned.", True)
    assert (await world.open(first.session)).session.pinned


async def test_events_of_different_accounts_and_platforms_are_different(world: World) -> None:
    sources = [Source(platform=p, account=a, chat="1", user="ann") for p in ("x", "y") for a in ("", "bot")]
    receipts = [await world.hub.receive(inbound("hi", source=s, event="same")) for s in sources]
    assert len({r.session for r in receipts}) == 4 and not any(r.duplicate for r in receipts)


async def test_an_event_is_remembered_for_as_long_as_the_policy_says(world: World, clock: FakeClock) -> None:
    message = inbound("hello")
    await world.hub.receive(message)
    clock.advance(timedelta(days=13))
    await world.write(inbox.trim, before=clock.now() - world.policy.keep.inbox)
    assert (await world.hub.receive(message)).duplicate


async def test_one_place_has_one_session(world: World) -> None:
    turns = [await world.ask(f"q{n}") for n in range(3)]
    assert len({t.session for t in turns}) == 1


async def test_first_messages_at_once_make_one_session(world: World) -> None:
    receipts = await asyncio.gather(*(world.say(f"q{n}") for n in range(8)))
    assert len({r.session for r in receipts}) == 1
    assert sorted(r.seq for r in receipts if r.seq) == [
        r.seq for r in sorted(receipts, key=lambda r: r.seq or 0)
    ]
    assert (await world.open(receipts[0].session)).session.owner == "ann"


async def test_people_in_a_group_are_apart_and_together_in_a_thread(world: World) -> None:
    apart = [await world.hub.receive(in_group(u)) for u in ("ann", "bob")]
    together = [await world.hub.receive(in_group(u, thread="t")) for u in ("ann", "bob")]
    assert apart[0].session != apart[1].session
    assert together[0].session == together[1].session
    assert [lane.shared for lane in await world.hub.lanes.page(OPERATORS)].count(True) == 1


async def test_the_writings_of_one_whatsapp_id_are_one_person(world: World) -> None:
    """Device, domain and plus are no part of who somebody is."""
    writings = ("+4915", "4915@s.whatsapp.net", "4915:7@s.whatsapp.net")
    for writing in writings:
        source = Source(platform="whatsapp", chat=writing, user=writing)
        await world.hub.receive(inbound("hi", source=source, principal=None))
    (lane,) = await world.hub.lanes.page(OPERATORS)
    assert lane.session
    asked = await world.read(lambda tx: tx.rows("select distinct asker from turns"))
    assert len(asked) == 1


async def test_a_source_that_names_nobody_is_refused_and_leaves_nothing(world: World) -> None:
    nobody = Source(platform=FAKE)
    for principal in (None, PrincipalId("ann")):
        with pytest.raises(Invalid, match="names no"):
            await world.hub.receive(inbound("hi", source=nobody, principal=principal, cursor="9"))
    assert await world.hub.lanes.page(OPERATORS) == []
    assert await world.hub.platform_cursor("fake:") is None


async def test_the_cursor_of_a_platform_moves_with_the_message(world: World) -> None:
    message = inbound("hi", cursor="41")
    await world.hub.receive(message)
    assert await world.hub.platform_cursor("fake:") == "41"
    await world.hub.receive(msgspec.structs.replace(message, cursor="42"))
    assert await world.hub.platform_cursor("fake:") == "42"


async def test_a_message_that_is_refused_does_not_move_the_cursor(world: World) -> None:
    with pytest.raises(NotFound):
        await world.say("hi", session=SessionId("nowhere"), cursor="7")
    assert await world.read(inbox.get_cursor, "fake:") is None


async def test_observed_messages_are_kept_and_never_start_a_turn(world: World) -> None:
    seen = await world.say("talk among people", observed=True)
    command = await world.say("/new", observed=True)
    assert (seen.turn, command.turn, command.session) == (None, None, seen.session)
    turn = await world.ask("and now you")
    assert await world.transcript(turn.session) == [
        "user: talk among people",
        "user: /new",
        "user: and now you",
        "assistant: and now you",
    ]
    assert (await world.open(turn.session)).messages[0].observed


async def test_observed_messages_are_no_activity(begin: Begin) -> None:
    world = await begin(policy=IDLE)
    first = await world.ask("a")
    for _ in range(4):
        world.advance(timedelta(minutes=20))
        await world.say("talk", observed=True)
    assert (await world.ask("b")).session != first.session


async def test_a_silence_longer_than_the_policy_starts_a_new_session(begin: Begin) -> None:
    world = await begin(policy=IDLE)
    first = await world.ask("a")
    world.advance(HOUR)
    assert (await world.ask("b")).session == first.session
    world.advance(HOUR + timedelta(microseconds=1))
    third = await world.ask("c")
    assert third.session != first.session
    old = (await world.open(first.session)).session
    assert (old.end_reason, old.ended_at) == (EndReason.IDLE, world.clock.now())


async def test_a_new_local_day_starts_a_new_session(begin: Begin) -> None:
    clock = FakeClock(datetime.fromisoformat("2026-03-28T20:00:00+00:00"))
    world = await begin(policy=DAILY, clock=clock)
    first = await world.ask("a")
    clock.advance(timedelta(hours=5, minutes=59))
    assert (await world.ask("b")).session == first.session
    # The clocks go forward this night: 4 o'clock in Berlin is 2 o'clock UTC.
    clock.advance(timedelta(minutes=2))
    assert (await world.ask("c")).session != first.session


async def test_the_person_is_told_of_a_reset_once(begin: Begin) -> None:
    world = await begin(policy=IDLE)
    await world.ask("Oslo hotels")
    world.advance(2 * HOUR)
    for text in ("b", "c"):
        await world.ask(text)
    texts = await world.sent(4)
    assert [t for t in texts if "Started a new conversation" in t] == [
        'Started a new conversation after a long silence. /resume "Oslo hotels" goes back.'
    ]
    assert texts.index("b") > 1


@pytest.mark.parametrize("notices", [Notices(resets=False), Notices(no_resets=(FAKE,))])
async def test_the_notice_of_a_reset_can_be_turned_off(begin: Begin, notices: Notices) -> None:
    world = await begin(policy=msgspec.structs.replace(IDLE, notices=notices))
    first = await world.ask("Oslo hotels")
    world.advance(2 * HOUR)
    assert (await world.ask("b")).session != first.session
    assert await world.sent(2) == ["Oslo hotels", "b"]


async def test_nobody_is_told_of_a_reset_of_an_empty_lane(begin: Begin) -> None:
    world = await begin(policy=IDLE)
    await world.ask("a")
    await world.command("/new")
    world.advance(2 * HOUR)
    await world.ask("b")
    await world.delivered(3)
    assert not any("Started" in t for t in world.fake.texts)


@pytest.mark.parametrize("command", ["/resume Oslo hotels", "/undo-reset"])
async def test_what_a_reset_took_away_can_be_brought_back(begin: Begin, command: str) -> None:
    world = await begin(policy=IDLE)
    first = await world.ask("Oslo hotels")
    world.advance(2 * HOUR)
    await world.ask("b")
    assert "Back in “Oslo hotels”" in await world.command(command)
    again = await world.ask("c")
    session = (await world.open(again.session)).session
    assert (session.id, session.ended_at) == (first.session, None)


async def test_a_session_that_is_brought_back_after_a_long_silence_stays(begin: Begin) -> None:
    """The lane was due for a reset when it was told to go on: the next message must not reset it again."""
    world = await begin(policy=IDLE)
    first = await world.ask("Oslo hotels")
    world.advance(2 * HOUR)
    await world.command("/resume Oslo hotels")
    assert (await world.ask("b")).session == first.session
    world.advance(2 * HOUR)
    assert (await world.ask("c")).session != first.session


async def test_a_suspended_lane_starts_afresh_and_says_why(world: World) -> None:
    first = await world.ask("a")
    (lane,) = await world.hub.lanes.page(OPERATORS)
    await world.hub.lanes.suspend(OPERATORS, lane.key, True)
    second = await world.ask("b")
    assert second.session != first.session
    assert "stopped" in (await world.sent(3))[1]
    assert (await world.ask("c")).session == second.session


async def test_a_lane_at_work_is_not_reset(begin: Begin) -> None:
    pause = Pause()
    patient = msgspec.structs.replace(IDLE, limits=TurnLimits(silence=9 * HOUR, total=9 * HOUR))
    world = await begin(policy=patient, agent=ScriptedAgent([TextDelta("x"), pause], [TextDelta("y")]))
    first = await world.say("a")
    await pause.reached()
    world.advance(2 * HOUR - timedelta(minutes=1))
    assert (await world.say("b")).session == first.session


async def test_how_long_work_keeps_a_conversation_is_a_setting(begin: Begin) -> None:
    pause = Pause()
    resets = msgspec.structs.replace(IDLE.resets, busy_limit=HOUR)
    limits = TurnLimits(silence=9 * HOUR, total=9 * HOUR)
    patient = msgspec.structs.replace(IDLE, resets=resets, limits=limits)
    world = await begin(policy=patient, agent=ScriptedAgent([TextDelta("x"), pause], [TextDelta("y")]))
    first = await world.say("a")
    await pause.reached()
    world.advance(2 * HOUR - timedelta(minutes=1))
    assert (await world.say("b")).session != first.session


async def test_an_edit_before_the_turn_changes_the_question(world: World) -> None:
    first = await world.say("!wait 5")
    await world.drafted(first, "Waiting. ")
    second = await world.say("teh question")
    edited = await world.say("the question", edits=(await world.open(first.session)).messages[1].platform_id)
    assert (edited.turn, edited.seq) == (second.turn, second.seq)
    await world.flow(world.settle(second))
    assert (await world.transcript(first.session))[1] == "user: the question [edited]"
    assert (await world.sent(2))[1] == "the question"


async def test_an_edit_after_the_turn_began_is_noted_and_changes_nothing(world: World) -> None:
    turn = await world.ask("teh question")
    platform_id = (await world.open(turn.session)).messages[0].platform_id
    noted = await world.say("the question", edits=platform_id)
    assert noted.turn is None
    assert await world.transcript(turn.session) == [
        "user: teh question",
        "assistant: teh question",
        "notice: the question [edited]",
    ]


async def test_an_edit_during_a_claim_takes_the_turn_back(
    begin: Begin, opener: Open, clock: FakeClock
) -> None:
    world = await begin()
    await world.node.stop()
    hub, other = Hub(world.database, policy=world.policy, feed=Feed(world.database, clock)), await opener()
    claimed, go_on = threading.Event(), threading.Event()

    def claim_slowly(tx: Transaction) -> Turn | None:
        turn = claim(tx)
        claimed.set()
        go_on.wait(SECONDS)
        return turn

    question = inbound("teh question")
    first = await hub.receive(question)
    claiming = asyncio.create_task(other.write("turn.claim", claim_slowly))
    assert await asyncio.to_thread(claimed.wait, SECONDS)
    editing = asyncio.create_task(hub.receive(inbound("the question", edits=question.source.message)))
    await asyncio.wait([editing], timeout=0.2)
    go_on.set()
    assert await claiming
    edited = await editing
    assert (edited.session, edited.turn) == (first.session, first.turn)
    hub.close()
    turn = await world.turn(first)
    assert (turn.state, turn.attempts) == (TurnState.QUEUED, 0)
    assert await world.transcript(first.session) == ["user: the question [edited]"]


async def test_an_edit_of_an_unknown_message_is_taken_in_and_does_nothing(world: World) -> None:
    assert (await world.say("x", edits="999", chat="new")).seq is None
    turn = await world.ask("a")
    assert (await world.say("x", edits="999")).seq is None
    assert len(await world.transcript(turn.session)) == 2


async def test_nobody_edits_what_another_person_said(world: World) -> None:
    first = await world.say("!wait 50")
    await world.drafted(first, "Waiting. ")
    await world.say("mine")
    mine = (await world.open(first.session)).messages[1]
    with pytest.raises(NotFound):
        await world.say("not mine", user="bob", chat="2", session=first.session, edits=mine.platform_id)
    assert (await world.transcript(first.session))[1] == "user: mine"


@pytest.mark.parametrize("text", ["hi", "/status", "/delete", "/title x"])
async def test_nobody_speaks_into_the_session_of_another(world: World, text: str) -> None:
    turn = await world.ask("mine")
    with pytest.raises(NotFound):
        await world.say(text, user="bob", chat="2", session=turn.session)
    assert len(await world.transcript(turn.session)) == 2


Verb = Callable[[Hub, Viewer, SessionId], Awaitable[object]]
VERBS: dict[str, Verb] = {
    "open": lambda hub, v, s: hub.open(v, s),
    "resolve": lambda hub, v, s: hub.resolve(v, s),
    "messages": lambda hub, v, s: hub.page(v, s),
    "rename": lambda hub, v, s: hub.rename(v, s, "x"),
    "pin": lambda hub, v, s: hub.pin(v, s, True),
    "archive": lambda hub, v, s: hub.archive(v, s, True),
    "end": lambda hub, v, s: hub.end(v, s, EndReason.PERSON),
    "configure": lambda hub, v, s: hub.configure(v, s, SessionSettings(model="x")),
    "delete": lambda hub, v, s: hub.delete(v, s),
    "undelete": lambda hub, v, s: hub.undelete(v, s),
    "fork": lambda hub, v, s: hub.fork(v, s, surface="web"),
    "undo": lambda hub, v, s: hub.undo(v, s),
    "redo": lambda hub, v, s: hub.redo(v, s),
    "retry": lambda hub, v, s: hub.retry(v, s, surface="web"),
    "stop": lambda hub, v, s: hub.stop(v, s),
    "switch_lane": lambda hub, v, s: hub.lanes.switch(v, inbound("", chat="2", user="bob"), s),
    "assign_project": lambda hub, v, s: hub.projects.assign(v, s, None),
    "why": lambda hub, v, s: hub.trace(v, f"{s}.1"),
}


async def test_every_verb_hides_the_sessions_of_others(world: World) -> None:
    turn = await world.ask("mine")
    before = (await world.open(turn.session)).session
    for stranger in (viewer("bob"), Viewer(ProfileId("work"), PrincipalId("ann"))):
        for verb in VERBS.values():
            with pytest.raises(NotFound):
                await verb(world.hub, stranger, turn.session)
    assert (await world.open(turn.session)).session == before


async def test_lists_lanes_turns_and_deliveries_of_others_are_hidden(world: World) -> None:
    turn = await world.ask("mine")
    (delivery,) = await world.delivered(1)
    (lane,) = await world.hub.lanes.page(OPERATORS)
    bob = viewer("bob")
    assert await world.hub.list_sessions(bob, SessionFilter()) == ([], None)
    assert (
        await world.hub.lanes.page(bob)
        == await world.hub.deliveries.page(bob)
        == await world.hub.list_active_turns(bob)
        == []
    )
    for refused in (
        world.hub.lanes.get(bob, lane.key),
        world.hub.lanes.reset(bob, lane.key),
        world.hub.lanes.suspend(bob, lane.key, True),
        world.hub.turn(bob, turn.id),
        world.hub.drop(bob, turn.id),
        world.hub.deliveries.decide(bob, delivery.id, DeliveryState.READY),
    ):
        with pytest.raises(NotFound):
            await refused
    assert await world.hub.turn(viewer("ann"), turn.id) == turn


async def test_a_stranger_follows_nothing_of_others(world: World) -> None:
    cursor = await world.hub.head_cursor()
    await world.ask("mine")
    await world.ask("yours", user="bob", chat="2")
    async with asyncio.timeout(10):
        async for change in world.hub.follow(viewer("bob"), cursor):
            assert change.owner == "bob"
            if change.message and change.message.role is Role.ASSISTANT:
                break


async def test_a_lane_cannot_be_switched_to_the_session_of_another(world: World) -> None:
    mine = await world.ask("mine")
    await world.ask("yours", user="bob", chat="2")
    for asker in (viewer("bob"), OPERATORS):
        with pytest.raises(KeryxError):
            await world.hub.lanes.switch(asker, inbound("", chat="2", user="bob"), mine.session)
    (lane,) = [lane for lane in await world.hub.lanes.page(OPERATORS) if lane.owner == "bob"]
    assert lane.session != mine.session


async def test_a_lane_goes_on_with_a_session_of_the_same_owner(world: World) -> None:
    first = await world.ask("here")
    await world.hub.lanes.switch(viewer("ann"), inbound("", chat="2"), first.session)
    second = await world.ask("there", chat="2")
    assert second.session == first.session
    await world.sent(2)
    assert [p.target.chat for p in world.fake.sent_parts] == ["1", "2"]


async def test_the_history_of_a_lane_says_why_it_moved(world: World) -> None:
    await world.ask("a")
    await world.command("/new")
    await world.ask("b")
    (lane,) = await world.hub.lanes.page(OPERATORS)
    _, history = await world.hub.lanes.get(OPERATORS, lane.key)
    assert [m.why for m in history] == ["first message", "new", "first message"]
    await world.hub.lanes.reset(OPERATORS, lane.key)
    assert (await world.hub.lanes.get(OPERATORS, lane.key))[0].session is None


@pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
async def test_any_text_survives_the_way_through(world: World, text: str) -> None:
    source = Source(
        platform=FAKE, chat=text, chat_name=text, user=text, user_name=text, topic=text, message=text
    )
    turn = await world.ask(
        text, event=text, source=source, principal=None, reply=Target(FAKE, chat=text, reply_to=text)
    )
    snapshot = await world.open(turn.session)
    assert turn.state is TurnState.DONE
    assert [m.text for m in snapshot.messages] == [text, text]
    assert snapshot.messages[0].author == text and snapshot.session.origin == source
    await world.sent()
    assert [(p.text, p.target.chat) for p in world.fake.sent_parts] == [(text, text)]
    assert (await world.hub.trace(OPERATORS, snapshot.messages[0].id)).message.text == text


async def test_five_megabytes_survive_the_way_to_the_store(begin: Begin) -> None:
    world = await begin(policy=Policy(limits=TurnLimits(answer=2 * BIG, output=4 * BIG)))
    text = ("ä\x00\ud800" + "x" * 97) * (BIG // 100)
    turn = await world.ask(text)
    assert [m.text for m in (await world.open(turn.session)).messages] == [text, text]


async def test_an_answer_in_odd_characters_survives(begin: Begin) -> None:
    odd = "".join(ODD_TEXTS)
    world = await begin(agent=ScriptedAgent([TextDelta(c) for c in odd]))
    turn = await world.ask("a")
    assert (await world.open(turn.session)).messages[1].text == odd
    assert await world.sent() == [odd]


async def test_parts_that_are_no_text_are_kept(world: World) -> None:
    parts = (Text("look"), Image("sha256:1", "image/png", "cat.png"))
    said = await world.say("", parts=parts)
    await world.settle(said)
    assert (await world.open(said.session)).messages[0].parts == parts


async def test_the_mode_of_a_message_goes_before_session_and_policy(begin: Begin) -> None:
    world = await begin(policy=Policy(busy=BusyMode.COLLECT))
    await world.say("!silence")

    async def mode(**fields: Any) -> BusyMode:
        return (await world.turn(await world.say("x", **fields))).mode

    assert await mode() is BusyMode.COLLECT
    await world.command("/busy steer")
    assert await mode() is BusyMode.STEER
    assert await mode(busy=BusyMode.COLLECT) is BusyMode.COLLECT


async def test_a_message_for_a_session_by_id_leaves_the_lanes_alone(world: World) -> None:
    first = await world.ask("a")
    before = await world.hub.lanes.page(OPERATORS)
    await world.ask("b", session=first.session, source=Source(platform="web", user="ann"))
    assert await world.hub.lanes.page(OPERATORS) == before


async def test_a_message_to_a_deleted_session_is_refused(world: World) -> None:
    turn = await world.ask("a")
    await world.hub.delete(OPERATORS, turn.session)
    with pytest.raises(NotFound):
        await world.say("b", session=turn.session)
    assert (await world.ask("c")).session != turn.session


async def test_a_deleted_session_takes_its_work_and_its_lanes_along(world: World) -> None:
    said = await world.say("!silence")
    behind = await world.say("b")
    await world.running(said)
    assert said.session
    await world.hub.delete(OPERATORS, said.session)
    assert (await world.settle(behind)).state is TurnState.CANCELLED
    assert (await world.settle(said)).state is TurnState.CANCELLED
    await world.hub.undelete(OPERATORS, said.session)
    assert line((await world.open(said.session)).messages[0]) == "user: !silence [cancelled]"


async def test_a_session_that_is_erased_while_it_works_leaves_nothing(world: World) -> None:
    said = await world.say("!wait 5")
    await world.drafted(said, "Waiting. ")
    assert said.session
    await world.hub.delete(OPERATORS, said.session, erase=True)
    await world.eventually(lambda: world.node.service.runner.busy == 0)
    with pytest.raises(NotFound):
        await world.open(said.session)
    left = await world.read(
        lambda tx: [tx.rows(f"select 1 from {t}") for t in ("messages", "turns", "pieces")]
    )
    assert left == [[], [], []]
    assert (await world.ask("next")).state is TurnState.DONE


async def test_a_window_of_messages_says_whether_there_are_earlier_ones(world: World) -> None:
    for n in range(4):
        turn = await world.ask(f"q{n}")
    window = await world.hub.open(OPERATORS, turn.session, MessageRange(limit=3))  # pyright: ignore[reportPossiblyUnboundVariable]
    assert ([m.seq for m in window.messages], window.earlier) == ([6, 7, 8], True)
    first = await world.hub.open(OPERATORS, window.session.id, MessageRange(before=6))
    assert ([m.seq for m in first.messages], first.earlier) == ([1, 2, 3, 4, 5], False)
    page = await world.hub.page(OPERATORS, window.session.id, MessageRange(after=6))
    assert ([m.seq for m in page.messages], page.earlier, page.later) == ([7, 8], True, False)


async def test_the_fallback_person_of_a_channel_is_the_channel(world: World) -> None:
    source = Source(platform=FAKE, chat="news", chat_type=ChatType.CHANNEL)
    receipt = await world.hub.receive(inbound("post", source=source, principal=None))
    assert receipt.turn and isinstance(receipt.turn, str)
    assert (await world.turn(TurnId(receipt.turn))).asker
