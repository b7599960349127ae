"""The writes that a node makes by itself: for each label, work that makes the node do that write."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

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
from tests.engine.support.hub_setup import CLOSED, HubSetup, fresh
from tests.engine.world import AT_ONCE, ECHO, FAKE, World, viewer

from keryx.agents.echo import EchoAgent
from keryx.core.clock import to_micros
from keryx.core.deliveries import DeliveryState, Idempotency, Target
from keryx.core.ids import DeliveryId, QuestionId, SessionId, WorkerId, is_temporary
from keryx.core.media import Attachment, RemoteFile
from keryx.core.messages import Audio, File, Mark, Role, Text
from keryx.core.ports.adapter import (
    Capabilities,
    OutgoingPart,
    Receipt,
    Streaming,
)
from keryx.core.ports.agent import Agent, RequestOptions, TurnContext
from keryx.core.questions import Question, QuestionState
from keryx.core.resets import ResetMode, ResetPolicies, ResetPolicy
from keryx.core.sessions import Session, SessionSettings
from keryx.core.turns import BusyMode, TurnState
from keryx.core.usage import Usage
from keryx.engine.hub.api_turns import DEFAULT_MODEL, ApiTurnRequest, PastMessage
from keryx.engine.policy import Policy, Retention
from keryx.engine.units.jobs import JobRequest
from keryx.store import deliveries, jobs, messages, platforms, questions, sessions, turns, workers
from keryx.store.db import Engine, Transaction
from keryx.store.db.session_keys import SessionKeys
from keryx.store.workers import Worker
from keryx.testing import FakeClock, RecordingAdapter

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
PLAIN = Capabilities(threads=True)
# How often a node looks after its leases, and sweeps.
LEASES, SWEEPS = 5.0, 30.0
# The name of a file that is never fetched.
NEVER = "never"

Done: TypeAlias = Callable[[Transaction], bool]


@dataclass(frozen=True, slots=True)
class Work:
    """Work for a node."""

    # Makes the node start.
    cause: Callable[[], Awaitable[object]]
    # Whether the work is done.
    done: Done


@dataclass(frozen=True, slots=True)
class NodeWrite:
    """How to make a node do a write."""

    # Prepares the work.
    begin: Callable[[World], Awaitable[Work]]
    # The node retries after this many seconds.
    step: float = 0.5
    policy: Policy = AT_ONCE
    agent: Agent = ECHO
    adapter: type[RecordingAdapter] = RecordingAdapter
    able: Capabilities = PLAIN
    limit: int = 0
    retried: bool = True


class OwnKeys(RecordingAdapter):
    """Chooses the idempotency keys of its parts."""

    def create_send_key(self, part: OutgoingPart) -> str:
        return f"own {part.key}"


class WithFiles(RecordingAdapter):
    """Has files, except those that never come."""

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        if file.name == NEVER:
            await asyncio.Event().wait()
        return Attachment(name=file.name, mime=file.mime, body=file.reference.encode())


class Unreliable:
    """A hook that fails at first for a session whose title says so."""

    def __init__(self) -> None:
        self.calls: list[SessionId] = []

    async def __call__(self, session: Session, reason: str) -> None:
        self.calls.append(session.id)
        if session.title.startswith("fail") and self.calls.count(session.id) == 1:
            raise RuntimeError("the hook failed")


def setup(world: World) -> HubSetup:
    assert isinstance(world.clock, FakeClock)
    return HubSetup(world.database, world.hub, world.clock)


def after(world: World, by: timedelta) -> Callable[[], Awaitable[None]]:
    async def cause() -> None:
        world.advance(by)

    return cause


async def say(world: World, text: str, **fields: Any) -> Receipt:
    """Somebody new says something at a new place."""
    name = fresh()
    return await world.say(text, chat=name, user=name, **fields)


def answered(receipt: Receipt) -> Done:
    """Whether everything that is sent for a turn has been."""
    turn = receipt.turn
    assert turn is not None

    def done(tx: Transaction) -> bool:
        sent = [d.state is DeliveryState.SENT for d in deliveries.list_for_turn(tx, turn)]
        return bool(sent) and all(sent)

    return done


KEYED = Capabilities(threads=True, idempotency=Idempotency.NATIVE)
EDITS = Capabilities(threads=True, edit=True, streaming=Streaming.EDIT)


class Titling(EchoAgent):
    """Names every conversation."""

    async def title(self, context: TurnContext, answer: str) -> tuple[str, Usage]:
        return f"about {answer}", Usage(model="echo", input=1, output=1, cost=0)


def ended(receipt: Receipt, *states: TurnState) -> Done:
    turn = receipt.turn
    assert turn is not None
    return lambda tx: turns.get(tx, turn).state in (states or (TurnState.DONE,))


def said(text: str, *states: TurnState) -> Callable[[World], Awaitable[Work]]:
    """Somebody says something that leads to the write at once."""

    async def begin(world: World) -> Work:
        receipts: list[Receipt] = []

        async def cause() -> None:
            receipts.append(await say(world, f"{text} {fresh()}"))

        return Work(cause, lambda tx: ended(receipts[0], *states)(tx) and answered(receipts[0])(tx))

    return begin


async def parts(world: World) -> Work:
    return await said("one two three four")(world)


async def cancelled(world: World) -> Work:
    receipt = await say(world, "!silence")
    await world.running(receipt)
    session = receipt.session
    assert session
    return Work(lambda: world.hub.stop(OPERATORS, session), ended(receipt, TurnState.CANCELLED))


async def handed_back(world: World) -> Work:
    """A node ends in the middle of a turn, beside another node."""
    receipt = await say(world, "slow 2 one two")
    await world.drafted(receipt, "one ")
    ending = world.node
    await world.start()
    stopping: list[asyncio.Task[None]] = []

    async def cause() -> None:
        stopping.append(asyncio.create_task(ending.stop()))

    return Work(cause, lambda tx: stopping[0].done() and answered(receipt)(tx))


async def stolen(world: World) -> Work:
    """A turn whose lease somebody else has by now goes on talking."""
    receipt = await say(world, "slow 4 one two")
    await world.drafted(receipt, "one ")
    await world.write(
        lambda tx: tx.run("update turns set lease = 'stolen' where id = :id", {"id": receipt.turn})
    )
    return Work(after(world, 3 * SECOND), answered(receipt))


async def steered(world: World) -> Work:
    name = fresh()
    receipt = await world.say("!wait 9", chat=name, user=name)
    await world.drafted(receipt, "Waiting. ")
    hint = await world.say("hint", chat=name, user=name, busy=BusyMode.STEER)
    done = ended(hint, TurnState.MERGED)
    return Work(after(world, 10 * SECOND), lambda tx: done(tx) and answered(receipt)(tx))


async def asking(world: World) -> Work:
    receipts: list[Receipt] = []

    async def cause() -> None:
        receipts.append(await say(world, "!ask rm"))

    def done(tx: Transaction) -> bool:
        session = receipts[0].session
        assert session
        return len(questions.list_open(tx, session)) == 1 and answered(receipts[0])(tx)

    return Work(cause, done)


async def taking(world: World) -> Work:
    """An answer was given, and the agent is told."""
    work = await asking(world)
    await work.cause()
    await world.until(work.done)
    (asked,) = await world.hub.questions.list_open(OPERATORS)
    return Work(
        lambda: world.hub.questions.answer(OPERATORS, asked.id, "allow"),
        lambda tx: turns.get(tx, asked.turn).state is TurnState.DONE,
    )


async def shown(world: World) -> Work:
    """A turn takes long enough to be shown while it runs."""
    receipt = await say(world, "slow 6 one two three")
    await world.drafted(receipt, "one ")
    return Work(after(world, 2 * SECOND), answered(receipt))


async def taken_away(world: World) -> Work:
    """What was shown of a turn is no longer there when its answer comes."""
    receipt = await say(world, "slow 9 one")
    await world.drafted(receipt, "one")
    before = len(world.fake.sent_parts)
    world.advance(2)
    await world.fake.wait_for(before + 1)
    await world.until(lambda tx: tx.row("select 1 from previews where state = 'shown'") is not None)
    world.fake.sent_parts.clear()
    return Work(after(world, 8 * SECOND), answered(receipt))


async def named(world: World) -> Work:
    receipts: list[Receipt] = []

    async def cause() -> None:
        receipts.append(await say(world, f"hello {fresh()}"))

    def done(tx: Transaction) -> bool:
        session = receipts[0].session
        assert session
        return bool(sessions.get(tx, session).title) and answered(receipts[0])(tx)

    return Work(cause, done)


async def fetched(world: World) -> Work:
    """Somebody sends a file, which is fetched."""
    receipts: list[Receipt] = []

    async def cause() -> None:
        files = (RemoteFile(reference=fresh(), name="a.txt", mime="text/plain"),)
        receipts.append(await say(world, f"hello {fresh()}", files=files))

    def done(tx: Transaction) -> bool:
        session = receipts[0].session
        assert session
        return isinstance(messages.get(tx, session, 1).parts[1], File) and answered(receipts[0])(tx)

    return Work(cause, done)


async def spoken(world: World) -> Work:
    """Somebody sends a sound, which is written down."""
    name, receipts = fresh(), list[Receipt]()
    sound = Attachment(name="a.ogg", mime="audio/ogg", body=f"OggS{name}".encode())
    part = await world.hub.media.save(viewer(name), sound)

    async def cause() -> None:
        receipts.append(await world.say("", chat=name, user=name, parts=(Text(f"hello {name}"), part)))

    def done(tx: Transaction) -> bool:
        session = receipts[0].session
        assert session
        heard = messages.get(tx, session, 1).parts[1]
        return isinstance(heard, Audio) and bool(heard.transcript) and answered(receipts[0])(tx)

    return Work(cause, done)


async def refused(world: World) -> Work:
    """A program asks whether it may say something, and may not."""
    asked = ApiTurnRequest(
        viewer=viewer(fresh()),
        model=DEFAULT_MODEL,
        inputs=(PastMessage(Role.USER, (Text("hello"),)),),
        options=RequestOptions(ask_first="a program"),
    )
    submitted = await world.hub.api_turns.submit(asked)
    await world.until(lambda tx: bool(questions.list_open(tx, submitted.session)))
    (question,) = await world.hub.questions.list_open(asked.viewer)
    return Work(
        lambda: world.hub.questions.answer(asked.viewer, question.id, "deny"),
        lambda tx: (
            turns.get(tx, submitted.turn).state is TurnState.FAILED
            and messages.get(tx, submitted.session, 1).mark is Mark.WITHDRAWN
        ),
    )


TURN_WRITES: Mapping[str, NodeWrite] = {
    "delivery.part": NodeWrite(parts, step=LEASES, limit=6, retried=False),
    "delivery.key": NodeWrite(said("hello"), step=LEASES, adapter=OwnKeys, able=KEYED, retried=False),
    "downloads.claim": NodeWrite(fetched, step=SWEEPS, adapter=WithFiles),
    "downloads.settle": NodeWrite(fetched, step=SWEEPS, adapter=WithFiles),
    "turn.fail": NodeWrite(said("!fail", TurnState.FAILED)),
    "turn.hold": NodeWrite(said("!limit 4")),
    "turn.transcript": NodeWrite(spoken),
    "turn.withdraw": NodeWrite(refused),
    "turn.cancel": NodeWrite(cancelled),
    "turn.hand_back": NodeWrite(handed_back),
    "turn.late": NodeWrite(stolen, step=1),
    "turn.steer": NodeWrite(steered),
    "question.ask": NodeWrite(asking),
    "question.take": NodeWrite(taking),
    "preview.begin": NodeWrite(shown, able=EDITS),
    "preview.end": NodeWrite(shown, able=EDITS),
    "preview.withdraw": NodeWrite(taken_away, able=EDITS, step=LEASES, retried=False),
    "title.write": NodeWrite(named, agent=Titling(), retried=False),
}


DAY = timedelta(days=1)
IDLE = msgspec.structs.replace(
    AT_ONCE, resets=ResetPolicies(default=ResetPolicy(mode=ResetMode.IDLE, idle=HOUR))
)


OLD_GO = msgspec.structs.replace(AT_ONCE, keep=Retention(sessions={"*": 50 * DAY}))


def old(
    table: str,
    made: Callable[[World], Awaitable[object]],
    *,
    policy: Policy = AT_ONCE,
    adapter: type[RecordingAdapter] = RecordingAdapter,
) -> NodeWrite:
    """Something is made that is forgotten after a season."""

    def keys(tx: Transaction) -> set[str]:
        return {repr(tuple(row)) for row in tx.rows(f"select * from {table}")}

    async def begin(world: World) -> Work:
        before = await world.read(keys)
        await made(world)
        fresh_ones = await world.read(keys) - before
        assert fresh_ones
        return Work(after(world, 100 * DAY), lambda tx: not keys(tx) & fresh_ones)

    return NodeWrite(begin, step=HOUR.total_seconds(), policy=policy, adapter=adapter)


async def exchange(world: World) -> None:
    receipt = await say(world, "hello")
    await world.until(answered(receipt))


async def lost_file(world: World) -> None:
    await say(world, f"hello {fresh()}", files=(RemoteFile(reference=fresh(), name=NEVER),))


async def reserved(world: World) -> None:
    await world.hub.reserve_session(ANNS, SessionId(fresh()), cwd="", settings=SessionSettings())


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
    session = await setup(world).talked()
    await world.hub.delete(OPERATORS, session.id)


async def temporary(world: World) -> None:
    if world.database.engine is Engine.POSTGRES:
        world.database.keys = SessionKeys(Path(tempfile.mkdtemp(prefix="keryx-test-keys-")))
    receipt = await say(world, "/temp")
    assert receipt.session and is_temporary(receipt.session)


async def abandoned_request(world: World) -> None:
    """A program asks for an answer that is not to be kept, and never takes it."""
    said = (PastMessage(Role.USER, (Text(fresh()),)),)
    asked = ApiTurnRequest(viewer=OPERATORS, model=DEFAULT_MODEL, inputs=said, temporary=True)
    submitted = await world.hub.api_turns.submit(asked)
    await world.settle(submitted.turn)


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
    session = await setup(world).talked()
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
    running, waiting = await setup(world).busy()
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
    now, session = world.clock.now(), await setup(world).talked()

    def make(tx: Transaction) -> DeliveryId:
        made = a_delivery(tx, fresh(), target=Target(FAKE, chat=fresh()), session=session, at=now)
        worker, lease = WorkerId("another"), 15 * SECOND
        deliveries.claim(at_time(tx, now), most=9, platform=FAKE, account="", worker=worker, lease=lease)
        return made.id

    id_ = await world.write(make)
    return Work(after(world, 16 * SECOND), lambda tx: deliveries.get(tx, id_).state is DeliveryState.SENT)


SWEEP_WRITES: Mapping[str, NodeWrite] = {
    "inbox.trim": old("inbox", exchange),
    "feed.trim": old("changes", exchange),
    "downloads.give_up": old("downloads", lost_file, adapter=WithFiles),
    "gates.trim": old("gates", gate),
    "previews.trim": old("previews", preview),
    "reserved.trim": old("cursors", reserved),
    "sign_ins.trim": old("sign_ins", lambda world: world.hub.sign_ins.create(ANNS, browser="Firefox")),
    "codes.trim": old("pairings", lambda world: setup(world).person(CLOSED)),
    "runs.trim": old("job_runs", run),
    "lanes.drop": old("lanes", exchange),
    "session.erase": old("sessions", deleted),
    "temporary.clear": old("sessions", temporary),
    "api.erase": old("api_turns", abandoned_request),
    "session.prune": old("sessions", exchange, policy=OLD_GO),
    "media.let_go": old("media_holders", file),
    "media.remove": old("media", file),
    "lane.expire": NodeWrite(expire, step=SWEEPS, policy=IDLE),
    "final.take": NodeWrite(final, step=SWEEPS),
    "final.done": NodeWrite(final, step=timedelta(minutes=5).total_seconds(), retried=False),
    "final.remove": NodeWrite(final, step=SWEEPS),
    "final.fail": NodeWrite(final_that_fails, step=SWEEPS, policy=IDLE, retried=False),
    "connections.put": NodeWrite(connection, step=LEASES),
    "job.begin": NodeWrite(job),
    "leases.renew": NodeWrite(renewal, step=LEASES),
    "workers.forget": NodeWrite(dead_worker, step=LEASES),
    "waits.cap": NodeWrite(clock_set_back, step=LEASES),
    "turn.recover": NodeWrite(abandoned_turn, step=LEASES),
    "turn.orphan": NodeWrite(orphan, step=LEASES),
    "question.expire": NodeWrite(left_question, step=LEASES),
    "delivery.recover": NodeWrite(abandoned_delivery, step=LEASES),
}
