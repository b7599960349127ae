"""One person in two places: links, cuts, and aliases that are learned late."""

import asyncio
import re
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, FAKE, OPERATORS, Scenes, World, inbound

from keryx.core.deliveries import Target
from keryx.core.errors import Conflict, Forbidden, Invalid, NotFound
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, PrincipalId
from keryx.core.messages import Role
from keryx.core.ports.adapter import InboundMessage
from keryx.core.ports.agent import TextDelta
from keryx.core.sessions import SessionFilter, Viewer
from keryx.core.source import ChatType, Source
from keryx.engine.hub import Hub
from keryx.engine.hub.people import PersonSummary
from keryx.engine.loops.feed import Feed
from keryx.store import lanes, messages, sessions
from keryx.store.db import Transaction
from keryx.store.db.sqlite import SqliteDatabase
from keryx.testing import FakeClock

PHONE, LID = "4917", "998877665544@lid"


def on(platform: str, user: str, text: str, **fields: Any) -> InboundMessage:
    source = Source(platform=platform, chat=user, user=user, user_name=user)
    plain = inbound(text, source=source, reply=Target(platform, chat=user), principal=None)
    return msgspec.structs.replace(plain, **fields)


async def say(world: World, platform: str, user: str, text: str) -> Any:
    return await world.hub.receive(on(platform, user, text))


async def reply(world: World, platform: str, user: str, text: str) -> str:
    return (await say(world, platform, user, text)).reply or ""


async def link(world: World) -> None:
    code = re.search(r"/link ([A-Z0-9]{8})", await reply(world, FAKE, "ann", "/link"))
    assert code
    assert (await reply(world, "telegram", "77", f"/link {code[1].lower()}")).startswith("Linked")


async def persons(world: World) -> list[PersonSummary]:
    return await world.hub.people.list_all(OPERATORS)


async def test_a_code_proved_on_both_sides_makes_two_people_one(world: World) -> None:
    await world.settle(await say(world, FAKE, "ann", "the plan"))
    await world.settle(await say(world, "telegram", "77", "the plan"))
    await link(world)
    (person,) = await persons(world)
    assert [(i.platform, i.person) for i in person.principal.identities] == [
        (FAKE, "ann"),
        ("telegram", "77"),
    ]
    listed, _ = await world.hub.list_sessions(Viewer(DEFAULT_PROFILE, person.principal.id), SessionFilter())
    assert sorted(entry.session.title for entry in listed) == ["the plan", "the plan #2"]
    assert "telegram 77" in await reply(world, FAKE, "ann", "/whoami")
    assert "fake ann" in await reply(world, "telegram", "77", "/link list")
    assert "Back in" in await reply(world, "telegram", "77", "/resume the plan #2")
    hits = await world.hub.search(Viewer(DEFAULT_PROFILE, person.principal.id), "plan")
    assert len({hit.session.id for hit in hits}) == 2


async def test_a_link_code_is_not_kept_and_used_once(world: World) -> None:
    await say(world, "telegram", "77", "hi")
    code = re.search(r"/link (\w{8})", await reply(world, FAKE, "ann", "/link"))
    assert code
    texts = await world.read(lambda tx: str([tx.rows(f"select * from {t}") for t in ("inbox", "links")]))
    assert code[1] not in texts
    assert (await reply(world, "telegram", "77", f"/link {code[1]}")).startswith("Linked")
    assert "wrong or too old" in await reply(world, "telegram", "78", f"/link {code[1]}")


async def test_a_link_code_dies_after_ten_minutes_and_guessing_is_stopped(world: World) -> None:
    code = re.search(r"/link (\w{8})", await reply(world, FAKE, "ann", "/link"))
    assert code
    assert "already" in await reply(world, FAKE, "ann", f"/link {code[1]}")
    code = re.search(r"/link (\w{8})", await reply(world, FAKE, "ann", "/link"))
    assert code
    for _ in range(5):
        assert "wrong" in await reply(world, "telegram", "77", "/link AAAAAAAA")
    assert "for an hour" in await reply(world, "telegram", "77", f"/link {code[1]}")
    world.advance(timedelta(minutes=10))
    assert "too old" in await reply(world, "telegram", "78", f"/link {code[1]}")


async def test_a_cut_gives_each_side_what_began_there(world: World) -> None:
    ours = await say(world, FAKE, "ann", "begun here")
    theirs = await say(world, "telegram", "77", "begun there")
    await world.settle(ours)
    await world.settle(theirs)
    await link(world)
    await reply(world, "telegram", "77", "/resume begun here")
    assert (await reply(world, "telegram", "77", "/link cut")).startswith("Separated")
    first, second = await persons(world)
    assert (first.sessions, second.sessions) == (1, 1)
    assert (await say(world, "telegram", "77", "who am I?")).session not in (ours.session, None)
    assert (await say(world, FAKE, "ann", "still here")).session == ours.session
    assert "no conversation" in (await reply(world, "telegram", "77", "/resume begun here")).lower()
    assert "nothing to cut" in await reply(world, "telegram", "77", "/link cut")


async def test_the_operator_can_be_linked_with_a_chat(world: World) -> None:
    mine = await world.ask("from the terminal", user="operator", principal=OPERATOR)
    await world.settle(await say(world, "telegram", "77", "hi"))
    await world.hub.people.link(OPERATORS, ("telegram", "77"), None)
    assert "Back in" in await reply(world, "telegram", "77", f"/resume {mine.session}")
    assert (await say(world, "telegram", "77", "go on")).session == mine.session
    await world.hub.people.unlink(OPERATORS, "telegram", "77")
    assert (await say(world, "telegram", "77", "and now?")).session != mine.session


async def test_only_the_operator_links_others(world: World) -> None:
    with pytest.raises(Forbidden):
        await world.hub.people.link(Viewer(DEFAULT_PROFILE, PrincipalId("ann")), ("telegram", "7"), None)
    with pytest.raises(NotFound):
        await world.hub.people.link(OPERATORS, ("telegram", "7"), None)
    await say(world, "telegram", "7", "hi")
    with pytest.raises(Conflict):
        await world.hub.people.unlink(OPERATORS, "telegram", "7")


async def test_an_alias_learned_late_joins_lanes_and_keeps_both_histories(world: World) -> None:
    first = await say(world, "whatsapp", PHONE, "by phone")
    await world.settle(first)
    world.advance(60)
    second = await say(world, "whatsapp", LID, "by lid")
    await world.settle(second)
    assert first.session != second.session
    await world.hub.people.learn_alias(OPERATORS, "whatsapp", f"+{PHONE}@s.whatsapp.net", LID)
    (lane,) = await world.hub.lanes.page(OPERATORS)
    assert (lane.key, lane.session) == (f"agent:main:whatsapp:dm:{PHONE}", second.session)
    _, moves = await world.hub.lanes.get(OPERATORS, lane.key)
    assert {m.session for m in moves} == {first.session, second.session}
    assert moves[0].why.startswith("joined with agent:main:whatsapp:dm:")
    for user in (PHONE, LID):
        assert (await say(world, "whatsapp", user, "again")).session == second.session
    assert "Back in" in await reply(world, "whatsapp", PHONE, f"/resume {first.session}")
    (person,) = await persons(world)
    assert (person.sessions, [i.person for i in person.principal.identities]) == (2, [PHONE])


async def test_an_alias_goes_with_its_grant_and_means_nothing_elsewhere(begin: Begin) -> None:
    world = await begin()
    with pytest.raises(Invalid):
        await world.hub.people.learn_alias(OPERATORS, FAKE, "a", "b")
    with pytest.raises(Invalid):
        await world.hub.people.learn_alias(OPERATORS, "whatsapp", "4" * 300, "1")


async def test_a_member_of_a_group_has_one_lane_under_all_ids(world: World) -> None:
    def member(user: str) -> InboundMessage:
        source = Source(platform="whatsapp", chat="g@g.us", chat_type=ChatType.GROUP, user=user)
        return on("whatsapp", user, "hi", source=source, reply=Target("whatsapp", chat="g"))

    await world.hub.receive(member(PHONE))
    await world.hub.receive(member(LID))
    await world.hub.people.learn_alias(OPERATORS, "whatsapp", LID, PHONE)
    (lane,) = await world.hub.lanes.page(OPERATORS)
    assert lane.key.endswith(f":{PHONE}") and not lane.shared


async def test_everything_of_a_person_is_exported_and_erased(begin: Begin) -> None:
    world = await begin(agent=Scenes({"ann": [TextDelta("noted")]}))
    kept = await world.ask("mine", user="bob", chat="2")
    await world.settle(await say(world, FAKE, "ann", "secret of ann"))
    await world.settle(await say(world, "telegram", "77", "more of ann"))
    thread = Source(
        platform=FAKE, chat="g", chat_type=ChatType.GROUP, thread="t", user="bob", user_name="bob"
    )
    shared = await world.hub.receive(on(FAKE, "bob", "our thread", source=thread))
    await world.settle(shared)
    ann = Source(platform=FAKE, chat="g", chat_type=ChatType.GROUP, thread="t", user="ann", user_name="ann")
    await world.settle(await world.hub.receive(on(FAKE, "ann", "ann in the thread", source=ann)))
    await link(world)
    person = await world.hub.people.find(OPERATORS, FAKE, "ann")
    written: list[str] = []
    await world.hub.people.export(OPERATORS, person.principal.id, written.append)
    text = "".join(written)
    assert "secret of ann" in text and "more of ann" in text and "ann in the thread" in text
    assert "mine" not in text
    await world.hub.people.erase(OPERATORS, person.principal.id)

    def everything(tx: Transaction) -> str:
        tables = ("messages", "sessions", "lanes", "deliveries", "identities", "principals", "turns")
        return str([tx.rows(f"select * from {table}") for table in tables])

    left = await world.read(everything)
    assert "of ann" not in left and "ann in the thread" not in left and "telegram" not in left
    assert (await world.open(kept.session)).messages[0].text == "mine"
    assert [m.text for m in (await world.open(shared.session)).messages if m.role is Role.USER] == [
        "our thread",
        "(erased)",
    ]


async def test_what_was_overheard_of_a_person_is_erased_everywhere(begin: Begin) -> None:
    world = await begin()

    def in_thread(user: str, text: str, **fields: Any) -> InboundMessage:
        source = Source(
            platform=FAKE,
            chat="g",
            chat_type=ChatType.GROUP,
            thread="t",
            user=user,
            user_name=user,
            message=text,
        )
        return on(FAKE, user, text, source=source, **fields)

    begun = await world.hub.receive(in_thread("bob", "our thread"))
    await world.settle(begun)
    await world.hub.receive(in_thread("ann", "overheard secret", observed=True))
    await world.settle(await world.hub.receive(in_thread("bob", "what did she say?")))
    await world.hub.receive(in_thread("ann", "edited secret", edits="overheard secret"))
    assert begun.session
    fork = await world.hub.fork(OPERATORS, begun.session, surface="cli")
    assert await world.hub.search(OPERATORS, "secret")
    person = await world.hub.people.find(OPERATORS, FAKE, "ann")
    written: list[str] = []
    await world.hub.people.export(OPERATORS, person.principal.id, written.append)
    assert "overheard secret" in "".join(written) and "edited secret" in "".join(written)
    await world.hub.people.erase(OPERATORS, person.principal.id)

    left = await world.read(
        lambda tx: str([tx.rows(f"select * from {t}") for t in ("messages", "deliveries")])
    )
    assert "overheard" not in left and "edited secret" not in left and "ann" not in left
    assert await world.hub.search(OPERATORS, "secret") == []
    for session in (begun.session, fork.id):
        said = [m.text for m in (await world.open(session)).messages]
        assert "what did she say?" in said and said.count("(erased)") == 2


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.sampled_from([PHONE, LID, "123456789@lid"])),
        st.tuples(
            st.just("learn"),
            st.sampled_from([(PHONE, LID), (LID, "123456789@lid"), ("123456789@lid", PHONE)]),
        ),
        st.tuples(st.just("new"), st.sampled_from([PHONE, LID])),
    ),
    max_size=14,
)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_no_order_of_messages_and_lessons_loses_anything(steps: list[tuple[str, Any]]) -> None:

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_learned(Path(folder), steps))


async def _learned(folder: Path, steps: list[tuple[str, Any]]) -> None:

    clock = FakeClock()
    async with SqliteDatabase(folder / "keryx.db") as database:
        hub = Hub(database, policy=AT_ONCE, feed=Feed(database, clock))
        said: list[str] = []
        for number, (verb, value) in enumerate(steps):
            clock.advance(1)
            if verb == "learn":
                await hub.people.learn_alias(OPERATORS, "whatsapp", *value)
            elif verb == "new":
                await hub.receive(on("whatsapp", value, "/new"))
            else:
                said.append(f"message {number}")
                await hub.receive(on("whatsapp", value, said[-1]))
        await hub.people.learn_alias(OPERATORS, "whatsapp", PHONE, LID)
        await hub.people.learn_alias(OPERATORS, "whatsapp", LID, "123456789@lid")
        found, owners, missing = await database.read("test", _all_said)
        assert sorted(found) == sorted(said)
        assert len(owners) <= 1 and not missing
        hub.close()


def _all_said(tx: Transaction) -> tuple[list[str], set[PrincipalId], set[str]]:
    """What is in the store, whose it is, and which sessions no lane has a record of."""
    ids = [row[0] for row in tx.rows("select id from sessions")]
    texts = [m.text for id_ in ids for m in messages.list_after(tx, id_, after=0)]
    owners = {sessions.get(tx, id_).owner for id_ in ids}
    every = lanes.list_recent(tx, OPERATORS)
    assert len(every) <= 1
    recorded = {move.session for lane in every for move in lanes.list_moves(tx, lane.key)}
    return texts, owners, set(ids) - recorded
