"""What tests of the store begin with: people, sessions, turns and deliveries, in one line each."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Concatenate, ParamSpec, TypeVar

import msgspec

from keryx.core import ids
from keryx.core.deliveries import Delivery, Target
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, JobId, PrincipalId, SessionId, TurnId, WorkerId
from keryx.core.jobs import Job, JobState
from keryx.core.messages import Message, Role, text_parts
from keryx.core.schedules import IntervalRule, Schedule
from keryx.core.sessions import Session, TitleBy, Viewer
from keryx.core.turns import BusyMode, Turn
from keryx.store import changes, deliveries, jobs, messages, sessions, turns
from keryx.store.db import Database, Transaction
from keryx.testing import ODD_TEXTS as ODD_TEXTS
from keryx.testing import START_TIME

P = ParamSpec("P")
T = TypeVar("T")

ANN = PrincipalId("ann")
BOB = PrincipalId("bob")
ANNS = Viewer(DEFAULT_PROFILE, ANN)
BOBS = Viewer(DEFAULT_PROFILE, BOB)
OPERATORS = Viewer(DEFAULT_PROFILE, OPERATOR)
WORKER = WorkerId("worker-1")
OTHER_WORKER = WorkerId("worker-2")
LEASE = timedelta(seconds=15)
TELEGRAM = Target("telegram", "bot", "42")


def after(seconds: float) -> datetime:
    """A moment this long after the start of the test."""
    return START_TIME + timedelta(seconds=seconds)


def limit(seconds: float) -> float:
    """Return how long something may take that takes at most this long when no other program uses the processors."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


async def until(condition: Callable[[], bool], *, seconds: float = 60, every: float = 0.001) -> None:
    """Let other tasks run until something is so; fails if it takes too long. A condition that asks a server is checked
    less often."""
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(every)


def at_time(tx: Transaction, now: datetime) -> Transaction:
    """The same transaction, at another time."""
    tx.now = now
    return tx


def work_at(now: datetime, work: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
    """A unit of work that runs at this time."""
    return lambda tx: work(at_time(tx, now))


class Store:
    """Calls store functions, each in a transaction of its own, at the time of the database or at a given one."""

    def __init__(self, database: Database, *, key: str = "", now: datetime | None = None) -> None:
        self.database = database
        self._key = key
        self._now = now

    def at(self, now: datetime) -> "Store":
        """The same store, at this time."""
        return Store(self.database, key=self._key, now=now)

    async def write(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self.database.write(
            "test", lambda tx: work(self._timed(tx), *args, **kwargs), key=self._key
        )

    async def read(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self.database.read("test", lambda tx: work(self._timed(tx), *args, **kwargs))

    def _timed(self, tx: Transaction) -> Transaction:
        return tx if self._now is None else at_time(tx, self._now)


def a_session(
    tx: Transaction,
    *,
    title: str = "",
    owner: PrincipalId = ANN,
    at: datetime = START_TIME,
    surface: str = "web",
) -> Session:
    session = sessions.create(at_time(tx, at), profile=DEFAULT_PROFILE, owner=owner, surface=surface)
    if title:
        sessions.rename(at_time(tx, at), sessions.get(tx, session), title, by=TitleBy.PERSON)
    return sessions.get(tx, session)


def a_message(
    tx: Transaction, session: SessionId, text: str = "hello", *, at: datetime = START_TIME
) -> Message:
    return messages.get(tx, session, messages.append(at_time(tx, at), session, Role.USER, text_parts(text)))


def a_turn(
    tx: Transaction,
    session: Session | None = None,
    *,
    text: str = "hello",
    at: datetime = START_TIME,
    mode: BusyMode = BusyMode.QUEUE,
    reply: Target | None = None,
    pin: WorkerId | None = None,
    asker: PrincipalId = ANN,
) -> Turn:
    """A message with its queued turn, in a session of its own if none is given."""
    session = session or a_session(tx, at=at, owner=asker)
    turn = TurnId(ids.new(at))
    seq = messages.append(at_time(tx, at), session.id, Role.USER, text_parts(text), turn=turn)
    turns.enqueue(
        at_time(tx, at),
        session,
        asker=asker,
        surface=session.surface,
        input_seq=seq,
        mode=mode,
        id=turn,
        reply=reply,
        pin=pin,
    )
    return turns.get(tx, turn)


def claim(
    tx: Transaction,
    *,
    worker: WorkerId = WORKER,
    at: datetime = START_TIME,
    per_principal: int = 100,
    session: SessionId | None = None,
    scoped: bool = False,
) -> Turn | None:
    """Claim as a worker of everything, or with `session` or `scoped` as one of that session and its pins."""
    claimed = turns.claim(
        at_time(tx, at),
        most=1,
        worker=worker,
        lease=LEASE,
        per_principal=per_principal,
        scoped=scoped or session is not None,
        session=session,
    )
    return claimed.turns[0] if claimed.turns else None


def a_running_turn(tx: Transaction, session: Session | None = None, *, at: datetime = START_TIME) -> Turn:
    queued = a_turn(tx, session, at=at)
    turn = claim(tx, at=at, session=queued.session)
    assert turn is not None
    return turn


def a_delivery(
    tx: Transaction,
    text: str = "answer",
    *,
    target: Target = TELEGRAM,
    session: Session | None = None,
    at: datetime = START_TIME,
    turn: TurnId | None = None,
) -> Delivery:
    session = session or a_session(tx, at=at)
    made = deliveries.enqueue(
        at_time(tx, at),
        target,
        text,
        of=changes.Scope(session.profile, session.owner, session.id, turn),
    )
    return deliveries.get(tx, made)


def a_job(tx: Transaction, *, name: str = "news", prompt: str = "hello", owner: PrincipalId = ANN) -> Job:
    """An active job that is due an hour after the start of the test."""
    job = Job(
        id=JobId(ids.new(START_TIME)),
        profile=DEFAULT_PROFILE,
        owner=owner,
        name=name,
        prompt=prompt,
        schedule=Schedule(IntervalRule(timedelta(hours=1), START_TIME)),
        targets=(TELEGRAM,),
        source=None,
        project=None,
        state=JobState.ACTIVE,
        why="",
        next_at=after(3600),
        created_at=START_TIME,
    )
    return jobs.add(tx, job)


def chat(n: int) -> Target:
    return msgspec.structs.replace(TELEGRAM, chat=str(n))


async def quiet(database: Database) -> int:
    """Wait until no wake-up is under way; gives the count so far."""
    seen = database.wake.count
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(limit(0.1)):
                seen = await database.wake.wait(seen)
    return seen
