import asyncio

import pytest
from tests.builders import ANN, ANNS, BOB, BOBS, ODD_TEXTS, OPERATORS, Store, a_session, after, at_time

from keryx.core.changes import ChangeKind
from keryx.core.errors import NotFound
from keryx.core.ids import LaneKey, PrincipalId
from keryx.core.lanes import Lane, LaneAddress, build_address
from keryx.core.source import Source
from keryx.store import change_feed, changes, lanes, sessions
from keryx.store.db import Transaction
from keryx.testing import START_TIME


def a_lane(tx: Transaction, chat: str = "42", *, seconds: float = 0, owner: PrincipalId = ANN) -> Lane:
    source = Source(platform="telegram", chat=chat)
    return lanes.ensure(at_time(tx, after(seconds)), build_address(source), source, owner=owner)


async def test_a_lane_is_made_at_first_contact_and_found_ever_after(store: Store) -> None:
    first = await store.write(a_lane)
    assert (first.session, first.owner, first.shared, first.active_at) == (None, ANN, False, START_TIME)
    assert await store.write(a_lane, seconds=60) == first


async def test_contacts_at_the_same_moment_make_one_lane(store: Store) -> None:
    made = await asyncio.gather(*(store.write(a_lane, seconds=n) for n in range(12)))
    assert len({lane.created_at for lane in made}) == 1
    assert len(await store.read(lanes.list_recent, ANNS)) == 1


async def test_a_source_of_any_text_has_its_own_lane(store: Store, subtests: pytest.Subtests) -> None:
    for text in ODD_TEXTS:
        with subtests.test(ascii(text)):
            source = Source(platform="telegram", chat=text, chat_name=text, user=text, topic=text)
            lane = await store.at(START_TIME).write(lanes.ensure, build_address(source), source, owner=ANN)
            assert (lane.source, lane.key) == (source, build_address(source).key)
            assert await store.read(lanes.get, lane.key, viewer=ANNS) == lane


async def test_a_lane_remembers_where_it_has_been_and_why(store: Store) -> None:
    lane = await store.write(a_lane)
    one, two = await store.write(a_session), await store.write(a_session)
    lane = await store.at(after(1)).write(lanes.move, lane, one.id, why="first")
    lane = await store.at(after(2)).write(lanes.move, lane, two.id, why="reset")
    assert await store.read(lanes.get, lane.key, viewer=ANNS) == lane
    moves = await store.read(lanes.list_moves, lane.key)
    assert [(m.session, m.why, m.at) for m in moves] == [
        (two.id, "reset", after(2)),
        (one.id, "first", after(1)),
    ]
    assert await store.read(lanes.list_for_session, two.id) == [lane]
    assert await store.read(lanes.list_for_session, one.id) == []


async def test_a_move_frees_a_suspended_lane_and_is_told(store: Store) -> None:
    lane = await store.write(a_lane)
    cursor = await store.read(changes.get_head)
    await store.at(START_TIME).write(lanes.set_suspended, lane, True)
    assert (await store.read(lanes.get, lane.key, viewer=ANNS)).suspended
    await store.at(START_TIME).write(lanes.move, lane, None, why="reset")
    assert not (await store.read(lanes.get, lane.key, viewer=ANNS)).suspended
    found = await store.read(change_feed.list_after, cursor)
    assert [(c.kind, c.note) for c in found] == [(ChangeKind.LANE, "suspended"), (ChangeKind.LANE, "reset")]


async def test_an_erased_session_leaves_its_lane_free(store: Store) -> None:
    session = await store.write(a_session)
    lane = await store.at(START_TIME).write(lanes.move, await store.write(a_lane), session.id, why="first")
    await store.at(START_TIME).write(sessions.erase, session)
    assert (await store.read(lanes.get, lane.key, viewer=ANNS)).session is None


async def test_lanes_are_listed_by_activity_for_those_who_may_see_them(store: Store) -> None:
    one = await store.write(a_lane, "1")
    await store.write(a_lane, "2", seconds=1)
    await store.write(a_lane, "3", seconds=2, owner=BOB)
    await store.at(after(9)).write(lanes.touch, one, expires_at=None)
    assert [lane.source.chat for lane in await store.read(lanes.list_recent, ANNS)] == ["1", "2"]
    assert [lane.source.chat for lane in await store.read(lanes.list_recent, OPERATORS, limit=2)] == [
        "1",
        "3",
    ]
    assert [lane.source.chat for lane in await store.read(lanes.list_recent, OPERATORS, since=after(9))] == [
        "1"
    ]
    with pytest.raises(NotFound):
        await store.read(lanes.get, one.key, viewer=BOBS)
    with pytest.raises(NotFound):
        await store.read(lanes.get, "none", viewer=ANNS)


async def test_lanes_expire_in_order_when_their_time_has_come(store: Store) -> None:
    one, two = await store.write(a_lane, "1"), await store.write(a_lane, "2")
    await store.write(a_lane, "3")
    await store.at(START_TIME).write(lanes.touch, one, expires_at=after(20))
    await store.at(START_TIME).write(lanes.touch, two, expires_at=after(10))
    assert await store.at(after(9)).read(lanes.list_expired) == []
    assert [lane.source.chat for lane in await store.at(after(20)).read(lanes.list_expired)] == ["2", "1"]
    await store.write(lanes.set_expiry, two, after(30))
    await store.write(lanes.set_expiry, one, None)
    assert await store.at(after(20)).read(lanes.list_expired) == []


async def test_idle_lanes_are_forgotten_and_their_sessions_stay(store: Store) -> None:
    session = await store.write(a_session)
    await store.at(START_TIME).write(lanes.move, await store.write(a_lane, "1"), session.id, why="first")
    await store.write(a_lane, "2", seconds=5)
    told = await store.write(a_lane, "3")
    await store.write(lanes.set_instructions, told, "Be brief.")
    assert await store.write(lanes.delete_idle, before=after(5)) == 1
    assert [lane.source.chat for lane in await store.read(lanes.list_recent, ANNS)] == ["2", "3"]
    assert (await store.read(sessions.get, session.id)).id == session.id


async def test_a_shared_lane_is_marked(store: Store) -> None:
    def ensure(tx: Transaction) -> Lane:
        shared = LaneAddress(key=LaneKey("k"), shared=True)
        return lanes.ensure(at_time(tx, START_TIME), shared, Source(platform="p", chat="1"), owner=ANN)

    assert (await store.write(ensure)).shared
