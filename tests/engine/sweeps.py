"""Sweeps: the chores that come with time, whoever was there before."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

import msgspec
from tests.builders import (
    ANNS,
    OPERATORS,
    WORKER,
    a_delivery,
    a_running_turn,
    a_session,
    a_turn,
    at_time,
    claim,
)
from tests.engine.chores import HOUR, LEASES, SECOND, SWEEPS, Chore, Work, after, answered, say, setting
from tests.engine.setting import CLOSED, fresh
from tests.engine.world import AT_ONCE, FAKE, World

from keryx.core.clock import to_micros
from keryx.core.deliveries import DeliveryState, Target
from keryx.core.ids import DeliveryId, QuestionId, WorkerId
from keryx.core.media import Attachment
from keryx.core.questions import Question, QuestionState
from keryx.core.resets import ResetMode, ResetPolicies, ResetPolicy
from keryx.core.turns import TurnState
from keryx.engine.units.jobs import JobRequest
from keryx.store import deliveries, jobs, platforms, questions, sessions, turns, workers
from keryx.store.db import Transaction
from keryx.store.workers import Worker
from keryx.testing import FakeClock

DAY = timedelta(days=1)
IDLE = msgspec.structs.replace(
    AT_ONCE, resets=ResetPolicies(default=ResetPolicy(mode=ResetMode.IDLE, idle=HOUR))
)


def old(table: str, made: Callable[[World], Awaitable[object]]) -> Chore:
    """Something is made that is forgotten after a season."""

    def keys(tx: Transaction) -> set[str]:
        return {repr(tuple(row)) for row in tx.rows(f"select * from {table}")}

    async def begin(world: World) -> Work:
        before = await world.read(keys)
        await made(world)
        fresh_ones = await world.read(keys) - before
        assert fresh_ones
        return Work(after(world, 100 * DAY), lambda tx: not keys(tx) & fresh_ones)

    return Chore(begin, step=HOUR.total_seconds())


async def exchange(world: World) -> None:
    receipt = await say(world, "hello")
    await world.until(answered(receipt))


async def gate(world: World) -> None:
    await world.write(platforms.close_gate, fresh(), until=world.clock.now() + HOUR, reason="rate")


async def preview(world: World) -> None:
    def make(tx: Transaction) -> None:
        now = world.clock.now()
        turn = a_running_turn(tx, a_session(tx, title=fresh(), at=now), at=now)
        deliveries.begin_preview(
            at_time(tx, now), turn, Target(FAKE, chat=fresh()), worker=WorkerId("another")
        )
        turns.finish(at_time(tx, now), turn, TurnState.CANCELLED)

    await world.write(make)


async def run(world: World) -> None:
    job = await world.hub.jobs.add(ANNS, JobRequest(schedule="every 1h", prompt="news", name=fresh()))
    await world.hub.jobs.pause(ANNS, job.id)
    begun = await world.hub.jobs.run(ANNS, job.id)
    assert begun.turn
    await world.settle(begun.turn)


async def deleted(world: World) -> None:
    session = await setting(world).talked()
    await world.hub.delete(OPERATORS, session.id)


async def file(world: World) -> None:
    await world.hub.media.save(ANNS, Attachment(name="a.txt", mime="text/plain", body=fresh().encode()))


async def expire(world: World, text: str = "hello") -> Work:
    receipt = await say(world, text)
    await world.until(answered(receipt))
    session = receipt.session
    assert session

    def done(tx: Transaction) -> bool:
        left = tx.row("select 1 from finals where session = :session", {"session": session})
        return sessions.get(tx, session).ended_at is not None and left is None

    return Work(after(world, 2 * HOUR), done)


async def final(world: World) -> Work:
    """A session that has ended and whose hooks have not run yet."""
    session = await setting(world).talked()
    await world.write(sessions.add_end_hook, session.id, "idle")
    gone = "select 1 from finals where session = :session"
    return Work(after(world, 31 * SECOND), lambda tx: tx.row(gone, {"session": session.id}) is None)


async def final_that_fails(world: World) -> Work:
    return await expire(world, f"fail {fresh()}")


async def connection(world: World) -> Work:
    sql = "select coalesce(max(sent), 0) from connections"
    sent = (await world.read(lambda tx: tx.rows(sql)))[0][0]
    await exchange(world)
    return Work(after(world, 6 * SECOND), lambda tx: tx.rows(sql)[0][0] > sent)


async def job(world: World) -> Work:
    made = await world.hub.jobs.add(ANNS, JobRequest(schedule="30m", prompt="news", name=fresh()))

    def done(tx: Transaction) -> bool:
        found = jobs.list_runs(tx, made)
        return len(found) == 1 and found[0].turn_state is TurnState.DONE

    return Work(after(world, timedelta(minutes=30)), done)


async def renewal(world: World) -> Work:
    now = world.clock.now()
    me = world.node.service.worker.id

    def done(tx: Transaction) -> bool:
        return any(w.id == me and w.seen_at > now for w in workers.list_all(tx))

    return Work(after(world, 6 * SECOND), done)


async def dead_worker(world: World) -> Work:
    long_ago = world.clock.now() - 2 * DAY
    dead = Worker(
        id=WorkerId(fresh()), host="elsewhere", pid=1, kind="serve", started_at=long_ago, seen_at=long_ago
    )
    await world.write(workers.heartbeat, dead)
    return Work(after(world, 6 * SECOND), lambda tx: all(w.id != dead.id for w in workers.list_all(tx)))


async def clock_set_back(world: World) -> Work:
    assert isinstance(world.clock, FakeClock)
    key, clock = fresh(), world.clock
    await world.write(platforms.close_gate, key, until=clock.now() + HOUR, reason="rate")

    async def cause() -> None:
        clock.jump(-HOUR)
        clock.advance(6)

    def done(tx: Transaction) -> bool:
        row = tx.row("select not_before from gates where key = :key", {"key": key})
        return row is None or row[0] <= to_micros(clock.now() + timedelta(minutes=1))

    return Work(cause, done)


async def abandoned_turn(world: World) -> Work:
    running, waiting = await setting(world).busy()
    both = (running.id, waiting.id)
    return Work(
        after(world, 16 * SECOND),
        lambda tx: all(turns.get(tx, turn).state in (TurnState.DONE, TurnState.MERGED) for turn in both),
    )


async def orphan(world: World) -> Work:
    turn = await world.write(a_turn, pin=WorkerId("gone"), at=world.clock.now())
    return Work(after(world, 6 * SECOND), lambda tx: turns.get(tx, turn.id).state is TurnState.CANCELLED)


async def left_question(world: World) -> Work:
    now = world.clock.now()

    def make(tx: Transaction) -> QuestionId:
        queued = a_turn(tx, a_session(tx, title=fresh(), at=now), at=now, pin=WORKER)
        running = claim(tx, session=queued.session, at=now)
        assert running
        asked = questions.add(
            at_time(tx, now),
            running,
            Question(key="q", title="May it?"),
            shared=False,
            expires_at=now + SECOND,
        )
        turns.finish(at_time(tx, now), running, TurnState.CANCELLED, left=True)
        return asked.id

    id_ = await world.write(make)
    return Work(after(world, 6 * SECOND), lambda tx: questions.get(tx, id_).state is QuestionState.EXPIRED)


async def abandoned_delivery(world: World) -> Work:
    now, session = world.clock.now(), await setting(world).talked()

    def make(tx: Transaction) -> DeliveryId:
        made = a_delivery(tx, fresh(), target=Target(FAKE, chat=fresh()), session=session, at=now)
        worker, lease = WorkerId("another"), 15 * SECOND
        deliveries.claim(at_time(tx, now), most=9, platform=FAKE, account="", worker=worker, lease=lease)
        return made.id

    id_ = await world.write(make)
    return Work(after(world, 16 * SECOND), lambda tx: deliveries.get(tx, id_).state is DeliveryState.SENT)


SWEEPERS: Mapping[str, Chore] = {
    "inbox.trim": old("inbox", exchange),
    "feed.trim": old("changes", exchange),
    "gates.trim": old("gates", gate),
    "previews.trim": old("previews", preview),
    "sign_ins.trim": old("sign_ins", lambda world: world.hub.sign_ins.create(ANNS, browser="Firefox")),
    "codes.trim": old("pairings", lambda world: setting(world).person(CLOSED)),
    "runs.trim": old("job_runs", run),
    "lanes.drop": old("lanes", exchange),
    "session.erase": old("sessions", deleted),
    "media.let_go": old("media_holders", file),
    "media.remove": old("media", file),
    "lane.expire": Chore(expire, step=SWEEPS, policy=IDLE),
    "final.take": Chore(final, step=SWEEPS),
    "final.remove": Chore(final, step=SWEEPS),
    "final.fail": Chore(final_that_fails, step=SWEEPS, policy=IDLE, retried=False),
    "connections.put": Chore(connection, step=LEASES),
    "job.begin": Chore(job),
    "leases.renew": Chore(renewal, step=LEASES),
    "workers.forget": Chore(dead_worker, step=LEASES),
    "waits.cap": Chore(clock_set_back, step=LEASES),
    "turn.recover": Chore(abandoned_turn, step=LEASES),
    "turn.orphan": Chore(orphan, step=LEASES),
    "question.expire": Chore(left_question, step=LEASES),
    "delivery.recover": Chore(abandoned_delivery, step=LEASES),
}
