import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import (
    ANN,
    BOB,
    LEASE,
    ODD_TEXTS,
    OTHER_WORKER,
    TELEGRAM,
    WORKER,
    Store,
    a_running_turn,
    a_session,
    a_turn,
    after,
    chat,
    claim,
)

from keryx.core.changes import ChangeKind
from keryx.core.deliveries import Target
from keryx.core.errors import Conflict, LeaseLost, NotFound
from keryx.core.ids import DEFAULT_PROFILE, TurnId, WorkerId
from keryx.core.sessions import Session
from keryx.core.turns import MOST_ATTEMPTS, BusyMode, Turn, TurnState
from keryx.store import change_feed, changes, messages, sessions, turns
from keryx.store.db import Transaction
from keryx.testing import START_TIME


async def claimed(store: Store, **how: Any) -> Turn:
    turn = await store.write(claim, **how)
    assert turn is not None
    return turn


async def test_a_queued_turn_keeps_what_it_was_given(store: Store) -> None:
    session = await store.write(a_session, owner=BOB)
    turn = await store.write(a_turn, session, mode=BusyMode.STEER, reply=TELEGRAM, pin=WORKER)
    assert (turn.state, turn.mode, turn.attempts, turn.input_seq) == (TurnState.QUEUED, BusyMode.STEER, 0, 1)
    assert (turn.owner, turn.asker, turn.reply, turn.pin) == (BOB, ANN, TELEGRAM, WORKER)
    assert (turn.session, turn.created_at, turn.lease) == (session.id, START_TIME, None)
    assert await store.read(turns.find, turn.id) == turn
    assert await store.read(turns.find, TurnId("none")) is None
    with pytest.raises(NotFound):
        await store.read(turns.get, TurnId("none"))


async def test_a_claim_counts_the_attempt_and_gives_a_lease(store: Store) -> None:
    queued = await store.write(a_turn)
    turn = await claimed(store, at=after(1))
    assert (turn.id, turn.state, turn.attempts) == (queued.id, TurnState.RUNNING, 1)
    assert (turn.worker, turn.started_at, turn.lease_until) == (WORKER, after(1), after(1) + LEASE)
    assert turn.lease
    assert await store.read(turns.find_running, turn.session) == turn
    assert (await store.read(sessions.get, turn.session)).turns == 1


async def test_nothing_waiting_gives_nothing(store: Store) -> None:
    assert await store.write(claim) is None


async def test_a_session_runs_one_turn_at_a_time_in_the_order_of_asking(store: Store) -> None:
    session = await store.write(a_session)
    asked = [await store.write(a_turn, session, at=after(n)) for n in range(3)]
    assert [t.id for t in await store.read(turns.list_queued, session.id)] == [t.id for t in asked]
    for expected in asked:
        turn = await claimed(store)
        assert turn.id == expected.id
        assert await store.write(claim) is None
        await store.at(START_TIME).write(turns.finish, turn, TurnState.DONE)


async def test_sessions_take_turns(store: Store) -> None:
    def arrange(tx: Transaction) -> list[Session]:
        eager, patient = a_session(tx), a_session(tx)
        for n in range(3):
            a_turn(tx, eager, at=after(n))
        a_turn(tx, patient, at=after(5))
        return [eager, patient]

    eager, patient = await store.write(arrange)
    served: list[str] = []
    for n in range(4):
        turn = await claimed(store, at=after(10 + n))
        served.append(turn.session)
        await store.at(after(10 + n)).write(turns.finish, turn, TurnState.DONE)
    assert served == [eager.id, patient.id, eager.id, eager.id]


async def test_a_person_has_a_limit_of_running_turns_over_all_sessions(store: Store) -> None:
    for n in range(3):
        await store.write(a_turn, at=after(n))
    first = await claimed(store, per_principal=2)
    await claimed(store, per_principal=2)
    assert await store.write(claim, per_principal=2) is None
    bobs = await store.write(a_turn, asker=BOB)
    assert (await claimed(store, per_principal=2)).id == bobs.id
    await store.at(START_TIME).write(turns.finish, first, TurnState.DONE)
    await claimed(store, per_principal=2)


async def test_a_pinned_turn_runs_with_its_worker_alone(store: Store) -> None:
    pinned = await store.write(a_turn, pin=WORKER)
    free = await store.write(a_turn, at=after(1))
    assert [t.id for t in await store.read(turns.list_pinned)] == [pinned.id]
    assert (await claimed(store, worker=OTHER_WORKER, at=after(2))).id == free.id
    assert await store.write(claim, worker=OTHER_WORKER, at=after(2)) is None
    assert (await claimed(store, worker=WORKER, at=after(2))).id == pinned.id


async def test_a_scoped_worker_takes_only_its_session_and_what_is_pinned_to_it(store: Store) -> None:
    await store.write(a_turn)
    mine = await store.write(a_turn, at=after(1))
    pinned = await store.write(a_turn, at=after(2), pin=WORKER)
    assert await store.write(claim, worker=OTHER_WORKER, scoped=True) is None
    assert (await claimed(store, session=mine.session)).id == mine.id
    assert (await claimed(store, session=mine.session)).id == pinned.id
    assert await store.write(claim, session=mine.session) is None


async def test_a_turn_that_is_held_back_waits_for_its_moment(store: Store) -> None:
    turn = await store.write(a_running_turn)
    await store.at(START_TIME).write(turns.requeue, turn, not_before=after(30))
    assert await store.write(claim, at=after(29)) is None
    assert await store.at(after(29)).read(turns.get_next_ready_at) == after(30)
    assert (await claimed(store, at=after(30))).id == turn.id
    assert await store.at(after(30)).read(turns.get_next_ready_at) is None


async def test_a_turn_ends_under_its_lease(store: Store) -> None:
    turn = await store.write(a_running_turn)
    await store.at(after(5)).write(turns.finish, turn, TurnState.FAILED, error="no \x00 \ud800 luck")
    ended = await store.read(turns.get, turn.id)
    assert (ended.state, ended.lease, ended.finished_at) == (TurnState.FAILED, None, after(5))
    assert ended.error == "no \x00 \ud800 luck"
    assert await store.read(turns.find_running, turn.session) is None


async def test_a_late_worker_cannot_write_to_a_reclaimed_turn(store: Store) -> None:
    late = await store.write(a_running_turn)
    await store.at(after(20)).write(turns.requeue, late)
    current = await claimed(store, worker=OTHER_WORKER, at=after(21))
    assert (current.id, current.attempts, current.interrupted_at) == (late.id, 2, after(20))
    with pytest.raises(LeaseLost):
        await store.write(turns.lock, late)
    with pytest.raises(LeaseLost):
        await store.at(after(22)).write(turns.finish, late, TurnState.DONE)
    with pytest.raises(Conflict):
        await store.at(after(22)).write(turns.requeue, late)
    with pytest.raises(Conflict):
        await store.at(after(22)).write(turns.close, late, TurnState.PARKED)
    await store.write(turns.lock, current)
    assert await store.read(turns.get, current.id) == current


async def test_a_finished_turn_cannot_be_written_to(store: Store) -> None:
    turn = await store.write(a_running_turn)
    await store.at(START_TIME).write(turns.finish, turn, TurnState.DONE)
    with pytest.raises(LeaseLost):
        await store.write(turns.lock, turn)
    with pytest.raises(LeaseLost):
        await store.at(START_TIME).write(turns.finish, turn, TurnState.FAILED)
    with pytest.raises(Conflict):
        await store.at(START_TIME).write(turns.requeue, await store.read(turns.get, turn.id))


async def test_a_turn_is_not_tried_for_ever(store: Store) -> None:
    turn = await store.write(a_turn)
    for attempt in range(1, MOST_ATTEMPTS + 1):
        turn = await claimed(store)
        assert turn.attempts == attempt
        await store.at(START_TIME).write(turns.requeue, turn)
    assert await store.write(claim) is None
    queued = await store.read(turns.get, turn.id)
    await store.at(START_TIME).write(turns.close, queued, TurnState.PARKED, error="gave up")
    parked = await store.read(turns.get, turn.id)
    assert (parked.state, parked.error) == (TurnState.PARKED, "gave up")


async def test_a_requeue_may_give_the_attempt_back(store: Store) -> None:
    turn = await store.write(a_running_turn)
    await store.at(START_TIME).write(turns.requeue, turn, attempts=0)
    assert (await claimed(store)).attempts == 1


async def test_a_requeued_turn_keeps_its_place(store: Store) -> None:
    session = await store.write(a_session)
    first = await store.write(a_turn, session)
    await store.write(a_turn, session, at=after(1))
    turn = await claimed(store)
    await store.at(after(2)).write(turns.requeue, turn)
    assert (await claimed(store, at=after(3))).id == first.id


async def test_a_waiting_turn_can_be_closed_once(store: Store) -> None:
    turn = await store.write(a_turn)
    await store.at(START_TIME).write(turns.close, turn, TurnState.CANCELLED)
    with pytest.raises(Conflict):
        await store.at(START_TIME).write(turns.close, turn, TurnState.CANCELLED)
    with pytest.raises(Conflict):
        await store.at(START_TIME).write(turns.close, await store.write(a_turn), TurnState.DONE)


async def test_turns_are_abandoned_when_their_lease_ran_out_or_their_worker_died(store: Store) -> None:
    turn = await store.write(a_running_turn)
    end = START_TIME + LEASE
    assert await store.at(end).read(turns.list_abandoned, workers=[]) == []
    late = end + timedelta(microseconds=1)
    assert [t.id for t in await store.at(late).read(turns.list_abandoned, workers=[])] == [turn.id]
    assert [t.id for t in await store.at(START_TIME).read(turns.list_abandoned, workers=[WORKER])] == [
        turn.id
    ]
    assert len(await store.at(late).read(turns.list_abandoned, workers=[WORKER])) == 1
    assert await store.at(START_TIME).read(turns.list_abandoned, workers=[OTHER_WORKER]) == []


async def test_a_worker_renews_the_leases_it_still_holds(store: Store) -> None:
    turn = await store.write(a_running_turn)
    other = await store.write(a_running_turn)
    both = [turn.id, other.id]
    assert await store.write(turns.renew_leases, WORKER, both, until=after(100)) == 2
    assert await store.at(after(99)).read(turns.list_abandoned, workers=[]) == []
    await store.at(START_TIME).write(turns.finish, turn, TurnState.DONE)
    assert await store.write(turns.renew_leases, WORKER, both, until=after(200)) == 1
    assert await store.write(turns.renew_leases, OTHER_WORKER, both, until=after(200)) == 0


async def test_a_turn_that_its_worker_lost_track_of_runs_out(store: Store) -> None:
    lost = await store.write(a_running_turn)
    held = await store.write(a_running_turn)
    await store.write(turns.renew_leases, WORKER, [held.id], until=after(100))
    assert [t.id for t in await store.at(after(50)).read(turns.list_abandoned, workers=[])] == [lost.id]


async def test_a_cancellation_reaches_the_worker_by_row_and_by_feed(store: Store) -> None:
    turn = await store.write(a_running_turn)
    cursor = await store.read(changes.get_head)
    await store.at(START_TIME).write(turns.request_cancel, turn)
    assert (await store.read(turns.get, turn.id)).cancelling
    assert [(c.kind, c.turn) for c in await store.read(change_feed.list_after, cursor)] == [
        (ChangeKind.CANCEL, turn.id)
    ]
    await store.at(START_TIME).write(turns.requeue, turn)
    assert not (await claimed(store)).cancelling


async def test_waiting_turns_that_ask_to_be_collected_become_one(store: Store) -> None:
    session = await store.write(a_session)
    asked = [
        await store.write(a_turn, session, text=t, mode=BusyMode.COLLECT, reply=TELEGRAM) for t in ("a", "b", "c")
    ]  # fmt: skip
    turn = await claimed(store)
    assert turn.id == asked[0].id
    question = await store.read(messages.list_for_turn, session.id, turn.id, first=turn.input_seq)
    assert [m.text for m in question] == ["a", "b", "c"]
    merged = [await store.read(turns.get, t.id) for t in asked[1:]]
    assert {(t.state, t.merged_into) for t in merged} == {(TurnState.MERGED, turn.id)}


@pytest.mark.parametrize(
    "different",
    [{"mode": BusyMode.QUEUE}, {"asker": BOB}, {"reply": chat(7)}, {"reply": None}, {"pin": WORKER}],
    ids=str,
)
async def test_collecting_ends_at_a_turn_that_is_different(store: Store, different: dict[str, Any]) -> None:
    def arrange(tx: Transaction) -> Session:
        session = a_session(tx)
        for n, change in enumerate([{}, different, {}]):
            how: dict[str, Any] = {"mode": BusyMode.COLLECT, "reply": TELEGRAM, **change}
            a_turn(tx, session, text=f"m{n}", **how)
        return session

    session = await store.write(arrange)
    await claimed(store)
    assert len(await store.read(turns.list_queued, session.id)) == 2


async def test_a_reply_to_another_message_of_the_same_place_is_collected(store: Store) -> None:
    session = await store.write(a_session)
    for n in range(2):
        reply = Target("telegram", "bot", "42", reply_to=str(n))
        await store.write(a_turn, session, mode=BusyMode.COLLECT, reply=reply)
    turn = await claimed(store)
    assert turn.reply and turn.reply.reply_to == "0"
    assert await store.read(turns.list_queued, session.id) == []


async def test_a_waiting_turn_can_be_merged_into_the_running_one(store: Store) -> None:
    session = await store.write(a_session)
    running = await store.write(a_running_turn, session)
    waiting = await store.write(a_turn, session, text="and this")
    await store.at(START_TIME).write(turns.merge, waiting, into=running)
    asked = await store.read(messages.list_for_turn, session.id, running.id, first=running.input_seq)
    assert [m.text for m in asked] == ["hello", "and this"]
    assert await store.read(turns.list_queued, session.id) == []


async def test_any_text_survives_in_a_reply_address(store: Store, subtests: pytest.Subtests) -> None:
    for text in ODD_TEXTS:
        with subtests.test(ascii(text)):
            reply = Target(text, text, text, text, text)
            turn = await store.write(a_turn, reply=reply)
            assert turn.reply == reply


async def test_active_turns_are_those_waiting_or_running_that_one_may_see(store: Store) -> None:
    done = await store.write(a_running_turn)
    await store.at(START_TIME).write(turns.finish, done, TurnState.DONE)
    running = await store.write(a_running_turn)
    bobs = await store.write(a_turn, asker=BOB)
    mine = await store.read(turns.list_active, profile=DEFAULT_PROFILE, owner=ANN)
    assert [t.id for t in mine] == [running.id]
    everyones = await store.read(turns.list_active, profile=DEFAULT_PROFILE, owner=None)
    assert [t.id for t in everyones] == [running.id, bobs.id]
    assert await store.read(turns.list_active, profile="work", owner=None) == []


async def test_every_move_of_a_turn_is_in_the_feed(store: Store) -> None:
    cursor = await store.read(changes.get_head)
    turn = await store.write(a_running_turn)
    await store.at(START_TIME).write(turns.requeue, turn)
    turn = await claimed(store)
    await store.at(START_TIME).write(turns.finish, turn, TurnState.DONE)
    notes = [c.note for c in await store.read(change_feed.list_after, cursor) if c.kind is ChangeKind.TURN]
    assert notes == ["queued", "running", "queued", "running", "done"]


async def test_workers_that_claim_at_once_never_take_the_same_turn_or_session(store: Store) -> None:
    def arrange(tx: Transaction) -> None:
        for n in range(12):
            session = a_session(tx)
            for m in range(3):
                a_turn(tx, session, at=after(n + m))

    await store.write(arrange)
    taken: list[Turn] = []
    busy: set[str] = set()

    async def work(worker: WorkerId) -> None:
        while len(taken) < 36:
            turn = await store.write(claim, worker=worker)
            if turn is None:
                await asyncio.sleep(0)
                continue
            taken.append(turn)
            assert turn.session not in busy
            busy.add(turn.session)
            await asyncio.sleep(0.001)
            busy.remove(turn.session)
            await store.at(START_TIME).write(turns.finish, turn, TurnState.DONE)

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for n in range(24):
            group.create_task(work(WorkerId(f"w{n}")))
    assert len({turn.id for turn in taken}) == len(taken) == 36
    by_session: dict[str, list[int]] = {}
    for turn in sorted(taken, key=lambda t: t.input_seq):
        by_session.setdefault(turn.session, []).append(turn.input_seq)
    assert set(map(tuple, by_session.values())) == {(1, 2, 3)}


async def test_a_burst_of_claims_takes_every_session_once(store: Store) -> None:
    def arrange(tx: Transaction) -> None:
        for _ in range(8):
            session = a_session(tx)
            a_turn(tx, session)
            a_turn(tx, session)

    await store.write(arrange)
    found = await asyncio.gather(*(store.write(claim, worker=WorkerId(f"w{n}")) for n in range(24)))
    taken = [turn for turn in found if turn is not None]
    assert taken
    assert len({t.session for t in taken}) == len({t.id for t in taken}) == len(taken)


async def test_a_claim_takes_as_many_as_may_run_and_one_of_each_session(store: Store) -> None:
    first = await store.write(a_turn)
    second = await store.write(a_turn, await store.read(sessions.get, first.session), at=after(1))
    other = await store.write(a_turn, at=after(2))
    how: dict[str, Any] = {
        "most": 5,
        "worker": WORKER,
        "lease": LEASE,
        "per_principal": 9,
    }
    got = await store.at(after(3)).write(turns.claim, **how)
    assert [t.id for t in got.turns] == [first.id, other.id]
    await store.at(after(4)).write(turns.finish, got.turns[0], TurnState.DONE)
    assert [t.id for t in (await store.at(after(3)).write(turns.claim, **how)).turns] == [second.id]


async def test_the_next_of_a_session_may_run_whatever_became_of_the_one_before(store: Store) -> None:
    for end in (TurnState.CANCELLED, TurnState.EXPIRED):
        first = await store.write(a_turn)
        session = await store.read(sessions.get, first.session)
        second = await store.write(a_turn, session, at=after(1))
        await store.at(after(2)).write(turns.close, first, end)
        assert (await claimed(store, session=session.id, at=after(3))).id == second.id


async def test_a_turn_that_is_put_back_runs_before_those_that_came_after_it(store: Store) -> None:
    turn = await store.write(a_running_turn)
    session = await store.read(sessions.get, turn.session)
    await store.write(a_turn, session, at=after(1))
    await store.at(after(2)).write(turns.requeue, turn)
    assert (await claimed(store, session=session.id, at=after(3))).id == turn.id
    assert await store.write(claim, session=session.id, at=after(3)) is None
