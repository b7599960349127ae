"""Who may talk: strangers, pairing, groups, and rights that are lost while a message waits."""

import asyncio
import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.engine.conftest import Begin
from tests.engine.world import FAKE, OPERATORS, Pause, Scenes, World, inbound, viewer

from keryx.core.access import AccessRule
from keryx.core.errors import Forbidden, NotFound
from keryx.core.ports.adapter import InboundMessage
from keryx.core.sessions import SessionFilter
from keryx.core.source import ChatType, Profile, Source, SourceRule
from keryx.core.turns import BusyMode, TurnLimits, TurnState
from keryx.engine.policy import Policy
from keryx.engine.units import access
from keryx.store import deliveries, lanes
from keryx.store.db import Engine, Transaction

pytestmark = pytest.mark.engines(Engine.SQLITE)

SHUT = Policy(limits=TurnLimits(settle=timedelta(0)))
CODE = re.compile(r"keryx pairing approve fake ([A-Z2-9]{8})\n")


def rules(**fields: Any) -> Policy:
    return Policy(limits=TurnLimits(settle=timedelta(0)), access={FAKE: AccessRule(**fields)})


def knock(text: str = "hello", user: str = "ann", **fields: Any) -> InboundMessage:
    return inbound(text, chat=user, user=user, **{"principal": None, **fields})


def in_group(text: str, user: str = "ann", **fields: Any) -> InboundMessage:
    source = Source(platform=FAKE, chat="g", chat_type=ChatType.GROUP, user=user, user_name=user)
    return knock(text, user, source=source, **fields)


async def told(world: World, count: int = 1) -> list[str]:
    await world.delivered(count)
    return world.fake.texts


async def code_of(world: World, count: int = 1) -> str:
    found = CODE.search((await told(world, count))[-1])
    assert found
    return found[1]


def everything(tx: Transaction) -> tuple[int, ...]:
    rows = [tx.row(f"select count(*) from {t}") for t in ("principals", "lanes", "sessions", "messages")]
    return tuple(int(row[0]) for row in rows if row)


async def test_a_stranger_is_told_a_code_and_nothing_of_theirs_is_kept(begin: Begin) -> None:
    world = await begin(policy=SHUT)
    receipt = await world.hub.receive(knock("my secret is 42"))
    assert (receipt.session, receipt.seq, receipt.duplicate) == (None, None, False)
    assert "its author may not talk" in receipt.reason
    await code_of(world)
    assert await world.read(everything) == (0, 0, 0, 0)
    rows = await world.read(lambda tx: tx.rows("select receipt from inbox"))
    assert "42" not in str(rows)
    assert (await world.hub.receive(knock("again"))).duplicate is False


async def test_a_repeated_event_of_a_stranger_is_known(begin: Begin) -> None:
    world = await begin(policy=SHUT)
    event = knock()
    await world.hub.receive(event)
    assert (await world.hub.receive(event)).duplicate
    assert len(await told(world)) == 1


async def test_no_code_is_left_in_the_store_once_it_was_told(begin: Begin) -> None:
    world = await begin(policy=SHUT)
    await world.hub.receive(knock())
    code = await code_of(world)

    def texts(tx: Transaction) -> str:
        tables = ("deliveries", "pairings", "inbox", "changes")
        return str([tx.rows(f"select * from {table}") for table in tables])

    assert code not in await world.read(texts)


async def test_whoever_is_approved_is_told_and_may_talk(begin: Begin) -> None:
    world = await begin(policy=SHUT)
    await world.hub.receive(knock())
    code = await code_of(world)
    assert [p.person for p in (await world.hub.people.list_pairings(OPERATORS)).waiting] == ["ann"]
    grant = await world.hub.people.approve(OPERATORS, FAKE, code.lower())
    assert (grant.person, grant.name, grant.operator) == ("ann", "ann", False)
    assert (await told(world, 2))[-1].startswith("You have access now.")
    turn = await world.settle(await world.hub.receive(knock("hello")))
    assert turn.state is TurnState.DONE
    doorway = await world.hub.people.list_pairings(OPERATORS)
    assert (doorway.waiting, [g.person for g in doorway.granted]) == ([], ["ann"])


@pytest.mark.engines(*Engine)
async def test_a_code_lets_in_where_it_was_told_whatever_profile_the_operator_looks_at(begin: Begin) -> None:
    work = Profile(rules=(SourceRule(platform=FAKE, chat="ann"),))
    world = await begin(policy=msgspec.structs.replace(SHUT, profiles={"work": work}))
    await world.hub.receive(knock())
    await world.eventually(lambda: bool(world.fake.texts))
    code = CODE.search(world.fake.texts[0])
    assert code
    grant = await world.hub.people.approve(OPERATORS, FAKE, code[1])
    assert (grant.profile, grant.person) == ("work", "ann")
    assert not (await world.hub.people.list_pairings(OPERATORS)).granted
    said = await world.hub.receive(knock("may I?", event="again"))
    assert (await world.settle(said)).profile == "work"


async def test_a_code_is_good_for_one_platform_one_hour_and_one_use(begin: Begin) -> None:
    world = await begin(policy=SHUT)
    await world.hub.receive(knock())
    code = await code_of(world)
    with pytest.raises(NotFound):
        await world.hub.people.approve(OPERATORS, "other", code)
    world.advance(access.PAIRING_LIFETIME)
    with pytest.raises(NotFound):
        await world.hub.people.approve(OPERATORS, FAKE, code)
    await world.hub.receive(knock())
    fresh = await code_of(world, 2)
    await world.hub.people.approve(OPERATORS, FAKE, fresh)
    with pytest.raises(NotFound):
        await world.hub.people.approve(OPERATORS, FAKE, fresh)


async def test_who_asks_again_gets_a_new_code_at_most_once_a_minute(begin: Begin) -> None:
    world = await begin(policy=SHUT)
    for _ in range(5):
        await world.hub.receive(knock())
    first = await code_of(world)
    assert len(world.fake.texts) == 1
    world.advance(timedelta(minutes=1))
    await world.hub.receive(knock())
    second = await code_of(world, 2)
    with pytest.raises(NotFound):
        await world.hub.people.approve(OPERATORS, FAKE, first)
    await world.hub.people.approve(OPERATORS, FAKE, second)


async def test_at_most_three_wait_at_once_on_a_platform(begin: Begin) -> None:
    world = await begin(policy=SHUT)
    for user in ("a", "b", "c", "d"):
        await world.hub.receive(knock(user=user))
    await told(world, 3)
    assert [p.person for p in (await world.hub.people.list_pairings(OPERATORS)).waiting] == ["a", "b", "c"]
    await world.hub.people.deny(OPERATORS, FAKE, "b")
    await world.hub.receive(knock(user="d"))
    await told(world, 4)
    assert [p.person for p in (await world.hub.people.list_pairings(OPERATORS)).waiting] == ["a", "c", "d"]


async def test_the_oldest_request_makes_room_for_a_new_one_however_often_its_author_asks(
    begin: Begin,
) -> None:
    world = await begin(policy=SHUT)
    for user in ("a", "b", "c"):
        await world.hub.receive(knock(user=user))
        world.advance(10)
    old = await code_of(world, 3)
    for _ in range(4):
        world.advance(61)
        for user in ("a", "b", "c", "me"):
            await world.hub.receive(knock(user=user))
    assert len(await told(world, 15)) == 15
    world.advance(61)
    await world.hub.receive(knock(user="me"))
    mine = await code_of(world, 16)
    assert [p.person for p in (await world.hub.people.list_pairings(OPERATORS)).waiting] == ["b", "c", "me"]
    await world.hub.receive(knock(user="a"))
    with pytest.raises(NotFound):
        await world.hub.people.approve(OPERATORS, FAKE, old)
    assert (await world.hub.people.approve(OPERATORS, FAKE, mine)).person == "me"


async def test_who_asks_again_gets_another_code_and_no_more_time(begin: Begin) -> None:
    world = await begin(policy=SHUT)
    await world.hub.receive(knock())
    assert "valid for 60 minutes" in (await told(world))[0]
    world.advance(timedelta(minutes=20))
    await world.hub.receive(knock())
    assert "valid for 40 minutes" in (await told(world, 2))[1]
    code = await code_of(world, 2)
    world.advance(timedelta(minutes=41))
    with pytest.raises(NotFound):
        await world.hub.people.approve(OPERATORS, FAKE, code)


async def test_the_operator_clears_the_door_of_one_platform_or_of_all(begin: Begin) -> None:
    world = await begin(policy=SHUT)
    for user in ("a", "b"):
        await world.hub.receive(knock(user=user))
    assert await world.hub.people.clear_pairings(OPERATORS, "other") == 0
    assert await world.hub.people.clear_pairings(OPERATORS, FAKE) == 2
    assert await world.hub.people.clear_pairings(OPERATORS, None) == 0
    assert (await world.hub.people.list_pairings(OPERATORS)).waiting == []
    with pytest.raises(Forbidden):
        await world.hub.people.clear_pairings(viewer("ann"), None)


async def test_wrong_codes_do_not_lock_the_operator_out(begin: Begin) -> None:
    world = await begin(policy=SHUT)
    await world.hub.receive(knock())
    code = await code_of(world)
    for _ in range(20):
        with pytest.raises(NotFound, match="pairing list"):
            await world.hub.people.approve(OPERATORS, FAKE, "AAAAAAAA")
    assert (await world.hub.people.approve(OPERATORS, FAKE, code)).platform == FAKE


async def test_only_the_operator_lets_people_in(begin: Begin) -> None:
    world = await begin(policy=SHUT)
    with pytest.raises(Forbidden):
        await world.hub.people.approve(viewer("ann"), FAKE, "AAAAAAAA")
    with pytest.raises(Forbidden):
        await world.hub.people.list_pairings(viewer("ann"))


async def test_groups_are_silent_for_strangers(begin: Begin) -> None:
    world = await begin(policy=SHUT)
    receipt = await world.hub.receive(in_group("hello"))
    assert (receipt.session, receipt.seq, receipt.duplicate) == (None, None, False)
    assert "its author may not talk" in receipt.reason
    assert await world.read(everything) == (0, 0, 0, 0)
    assert await world.read(deliveries.list_recent, OPERATORS) == []
    assert (await world.hub.people.list_pairings(OPERATORS)).waiting == []


async def test_with_pairing_off_direct_chats_are_silent_too(begin: Begin) -> None:
    world = await begin(policy=rules(pairing=False))
    await world.hub.receive(knock())
    assert await world.read(deliveries.list_recent, OPERATORS) == []


async def test_in_a_group_what_is_not_addressed_is_left_alone(begin: Begin) -> None:
    world = await begin(policy=rules(allow=("ann",)))
    receipt = await world.hub.receive(in_group("chatter", addressed=False))
    assert (receipt.session, receipt.seq, receipt.duplicate) == (None, None, False)
    assert "it is not addressed to the agent" in receipt.reason
    assert await world.read(everything) == (0, 0, 0, 0)
    assert (await world.settle(await world.hub.receive(in_group("bot, hello")))).state is TurnState.DONE


async def test_what_is_not_addressed_is_kept_where_that_is_set(begin: Begin) -> None:
    world = await begin(policy=rules(allow=("ann",), observe=True))
    receipt = await world.hub.receive(in_group("chatter", addressed=False))
    assert (receipt.session, receipt.seq, receipt.duplicate) == (None, None, False)
    assert "it is not addressed to the agent" in receipt.reason
    assert (await world.hub.list_sessions(OPERATORS, SessionFilter()))[0] == []
    turn = await world.settle(await world.hub.receive(in_group("bot, hello")))
    chatter, question, _ = (await world.open(turn.session)).messages
    assert (chatter.text, chatter.observed, question.observed) == ("chatter", True, False)


async def test_everything_is_answered_where_no_mention_is_needed(begin: Begin) -> None:
    world = await begin(policy=rules(groups=("g",), mention=False))
    assert (
        await world.settle(await world.hub.receive(in_group("hi", addressed=False)))
    ).state is TurnState.DONE


async def test_who_is_revoked_while_waiting_is_not_answered_and_sees_why(begin: Begin) -> None:
    pause = Pause()
    world = await begin(policy=SHUT, agent=Scenes({"slow": [pause]}))
    await world.hub.receive(knock())
    await world.hub.people.approve(OPERATORS, FAKE, await code_of(world))
    await world.hub.receive(knock("slow"))
    await pause.reached()
    waiting = await world.hub.receive(knock("the secret question"))
    await world.hub.people.revoke(OPERATORS, FAKE, "ann")
    pause.go_on()
    turn = await world.settle(waiting)
    assert (turn.state, turn.error) == (TurnState.FAILED, access.REVOKED_NOTICE)
    assert (await world.transcript(turn.session))[-1] == f"notice: {access.REVOKED_NOTICE}"
    await world.until(lambda tx: len(deliveries.list_recent(tx, OPERATORS)) >= 4)
    assert "the secret question" not in world.fake.texts


async def test_who_is_revoked_steers_nobody(begin: Begin) -> None:
    pause = Pause()

    async def steer(context: Any) -> None:
        await pause(context)
        seen.extend(m.text for m in await context.fetch_new_messages())

    seen: list[str] = []
    world = await begin(policy=SHUT, agent=Scenes({"slow": [steer]}))
    await world.hub.receive(knock())
    await world.hub.people.approve(OPERATORS, FAKE, await code_of(world))
    running = await world.hub.receive(knock("slow"))
    await pause.reached()
    steered = await world.hub.receive(knock("turn left", busy=BusyMode.STEER))
    await world.hub.people.revoke(OPERATORS, FAKE, "ann")
    pause.go_on()
    await world.settle(running)
    turn = await world.settle(steered)
    assert (seen, turn.state, turn.error) == ([], TurnState.CANCELLED, access.REVOKED_NOTICE)


async def test_a_node_without_the_platform_goes_by_the_rule_of_the_one_that_has_it(begin: Begin) -> None:
    pause = Pause()
    world = await begin(policy=rules(allow=("ann",)), agent=Scenes({"slow": [pause]}))
    receipt = await world.hub.receive(knock("slow"))
    await pause.reached()
    waiting = await world.hub.receive(knock("hello"))
    world.policy, world.serves = SHUT, []
    await world.restart()
    pause.go_on()
    assert [(await world.settle(r)).state for r in (receipt, waiting)] == [TurnState.DONE] * 2


async def test_the_last_rule_of_a_platform_counts_for_nodes_without_it(begin: Begin) -> None:
    pause = Pause()
    world = await begin(policy=rules(allow=("ann",)), agent=Scenes({"slow": [pause]}))
    receipt = await world.hub.receive(knock("slow"))
    await pause.reached()
    waiting = await world.hub.receive(knock("hello"))
    await world.crash()
    world.policy = rules(allow=("bob",))
    await (await world.start()).stop()
    world.policy, world.serves = SHUT, []
    await world.restart()
    assert [(await world.settle(r)).error for r in (receipt, waiting)] == [access.REVOKED_NOTICE] * 2


async def test_a_local_transport_is_not_asked(begin: Begin) -> None:
    world = await begin(policy=SHUT)
    assert (await world.ask("hello")).state is TurnState.DONE


async def test_an_adapter_can_ask_whether_somebody_may_talk(begin: Begin) -> None:
    world = await begin(policy=rules(allow=("ann",)))
    assert await world.hub.people.is_allowed(Source(platform=FAKE, chat="1", user="ann"))
    assert not await world.hub.people.is_allowed(Source(platform=FAKE, chat="1", user="bob"))


async def test_many_knocks_at_once_give_one_code(begin: Begin) -> None:
    world = await begin(policy=SHUT)
    await asyncio.gather(*(world.hub.receive(knock()) for _ in range(12)))
    await told(world, 1)
    assert len(await world.read(deliveries.list_recent, OPERATORS)) == 1
    assert await world.read(lanes.list_recent, OPERATORS) == []
