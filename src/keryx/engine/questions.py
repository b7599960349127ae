"""Questions: what agents ask people, from any surface and any process. Answers travel through the store alone."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol, TypeVar

import anyio

from keryx.core import modes
from keryx.core import questions as core
from keryx.core.errors import Conflict, Forbidden, Invalid, NotFound
from keryx.core.ids import DeliveryId, QuestionId, SessionId, TurnId
from keryx.core.messages import Parts, Text
from keryx.core.modes import Mode
from keryx.core.ports import Clock
from keryx.core.questions import Asked, Consent, Lasting, Question, QuestionState
from keryx.core.sessions import JOB_SURFACE, Session, Viewer
from keryx.core.turns import Turn
from keryx.engine.alarm import signal_or_moment
from keryx.store import consents, deliveries, sessions, turns
from keryx.store import questions as store
from keryx.store.database import Database, Transaction, Work
from keryx.store.wake import Wake

T = TypeVar("T")
EVERY = "all"
_FROM_A_JOB = "A scheduled run asks this: write /jobs continue first, then the answer."


class Questions:
    """`hub.questions`: what waits for an answer, and the answering of it."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def open(self, viewer: Viewer) -> list[Asked]:
        """Everything that waits for an answer and that the viewer may see, oldest first."""
        return await self._database.read("questions", lambda tx: store.page(tx, viewer))

    async def of_session(self, viewer: Viewer, session: SessionId) -> list[Asked]:
        """The last questions of a session, whatever became of them, newest first."""

        def work(tx: Transaction) -> list[Asked]:
            return store.of_session(tx, sessions.get(tx, session, viewer=viewer).id)

        return await self._database.read("questions.session", work)

    async def get(self, viewer: Viewer, question: QuestionId) -> Asked:
        return await self._database.read("question", lambda tx: store.get(tx, question, viewer=viewer))

    async def answer(self, viewer: Viewer, question: QuestionId, answer: str) -> Asked:
        """Answer with an option (its id, number, label or meaning) or, where there are none, in words.

        `Forbidden` for who may only look on, `Conflict` if it does not wait any more, `Invalid` if it is no answer."""
        now = self._clock.now()

        def work(tx: Transaction) -> Asked:
            return answered(tx, store.get(tx, question, viewer=viewer), viewer, answer, now=now)

        return await self._database.write("question.answer", work)

    async def lasting(self, viewer: Viewer, session: SessionId | None = None) -> list[Lasting]:
        """What was allowed or denied for good, in one session or in all that the viewer may see, the newest first."""
        return await self._database.read("consents", lambda tx: consents.page(tx, viewer, session=session))

    async def forget(self, viewer: Viewer, session: SessionId, tool: str) -> list[str]:
        """Take back what was allowed or denied for good, `EVERY` for all of it; gives the tools. `NotFound` if there is none."""

        def work(tx: Transaction) -> list[str]:
            return forgotten(tx, sessions.get(tx, session, viewer=viewer), tool)

        return await self._database.write("consents.forget", work)


def forgotten(tx: Transaction, session: Session, tool: str) -> list[str]:
    """Take lasting consents of a session back; gives their tools."""
    kept = [c.tool for c in consents.page(tx, Viewer(session.profile, session.owner), session=session.id)]
    gone = [name for name in kept if tool in (name, EVERY)]
    for name in gone:
        consents.forget(tx, session.id, name)
    if not gone:
        there = f"there are {', '.join(kept)}" if kept else "nothing is allowed or denied for good here"
        raise NotFound(f"no permission {tool[:80]!r} is kept: {there}")
    return gone


def answered(tx: Transaction, asked: Asked, viewer: Viewer, answer: str, *, now: datetime) -> Asked:
    """Answer a question in somebody's name; what is to last is remembered. Gives the question as it is now."""
    if not asked.answerable_by(viewer):
        raise Forbidden("only the one who asked may answer this question, or the operator")
    # The order in which every unit of work locks: the session first.
    sessions.lock(tx, asked.session)
    current = store.get(tx, asked.id)
    if current.state is not QuestionState.OPEN:
        raise Conflict(f"the question “{asked.question.title}” does not wait any more: it is {current.state}")
    if current.left and current.expires_at <= now:
        raise Conflict(f"the question “{asked.question.title}” has run out: ask the agent again")
    chosen = core.choose(asked.question, answer)
    store.close(tx, asked, QuestionState.ANSWERED, now=now, answer=chosen, by=viewer.principal)
    given = core.consent(asked.question, chosen)
    if given.lasts and asked.question.tool:
        consents.put(tx, asked.session, asked.question.tool, given, by=viewer.principal, now=now)
    return store.get(tx, asked.id)


def bare(tx: Transaction, session: SessionId, viewer: Viewer, parts: Parts) -> tuple[Asked, str] | None:
    """The question that an ordinary message answers: the only one that an agent waits for there, put to who speaks; or
    else the only one that was left.

    `None` for ordinary speech, which everything else is."""
    if len(parts) != 1 or not isinstance(parts[0], Text):
        return None
    found = core.foremost(store.waiting(tx, session))
    if len(found) != 1 or not found[0].answerable_by(viewer):
        return None
    try:
        core.choose(found[0].question, parts[0].text)
    except Invalid:
        return None
    return found[0], parts[0].text


class Keeper(Protocol):
    """Runs a unit of work for a turn, again if nobody knows whether it was done."""

    async def __call__(self, label: str, work: Work[T]) -> T: ...


class Interview:
    """The questions of one running turn. One is put at a time, so that a bare answer in a chat is clear."""

    def __init__(
        self,
        turn: Turn,
        *,
        shared: bool,
        keep: Keeper,
        clock: Clock,
        limit: timedelta,
        answers: Wake,
        patience: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._turn = turn
        self._shared = shared
        self._keep = keep
        self._clock = clock
        self._limit = limit
        self._answers = answers
        self._patience = patience
        self._one = anyio.Lock()

    async def ask(self, question: Question) -> str | None:
        """Put a question and wait. `None` when nobody answered in time. While it waits the turn may be silent."""
        with self._patience():
            async with self._one:
                await self._keep("question.ask", partial(self._put, question=question))
                return await self._wait(question)

    async def _wait(self, question: Question) -> str | None:
        deadline = self._clock.monotonic() + self._limit.total_seconds()
        while True:
            seen = self._answers.count
            left = deadline - self._clock.monotonic()
            asked = await self._keep(
                "question.take", partial(self._take, question=question, expired=left <= 0)
            )
            if asked.state is not QuestionState.OPEN:
                return asked.answer
            until = self._clock.now() + timedelta(seconds=left)
            await signal_or_moment(self._answers, seen, self._clock, until)

    def _put(self, tx: Transaction, *, question: Question) -> None:
        """Store the question and tell the place that asked. A lasting consent answers it at once, and nobody is told."""
        now = self._clock.now()
        turns.hold(tx, self._turn)
        known = store.find(tx, self._turn.id, question.key)
        if known is not None:
            if known.state is QuestionState.OPEN:
                store.prolong(tx, known, now + self._limit)
            return
        self._supersede(tx, question, now)
        given = self._consent(tx, question)
        answer = core.remembered(question, given) if given else self._kept(tx, question)
        asked = store.put(
            tx,
            self._turn,
            question,
            shared=self._shared,
            expires_at=now + self._limit,
            answer=answer,
            now=now,
        )
        if self._turn.reply and answer is None:
            deliveries.enqueue(
                tx,
                self._turn.reply,
                self._told(question),
                id=DeliveryId(asked.id),
                profile=self._turn.profile,
                owner=self._turn.owner,
                session=self._turn.session,
                turn=self._turn.id,
                now=now,
            )

    def _told(self, question: Question) -> str:
        """How the question is put. The chat that a scheduled run sends to is in another conversation."""
        text = core.told(question)
        return f"{text}\n\n{_FROM_A_JOB}" if self._turn.surface == JOB_SURFACE else text

    def _consent(self, tx: Transaction, question: Question) -> Consent | None:
        """What was decided beforehand: by the mode of the session, or for this tool in this session."""
        session = sessions.get(tx, self._turn.session, deleted=True)
        lasting = consents.find(tx, session.id, question.tool) if question.tool else None
        match modes.of(session.settings.mode):
            case Mode.READ:
                return Consent.DENY_ONCE
            case Mode.AUTO:
                return lasting or Consent.ALLOW_ONCE
            case Mode.ASK:
                return lasting

    def _kept(self, tx: Transaction, question: Question) -> str | None:
        """The permission or refusal that the same question got when nobody was there to take it. It counts once."""
        for asked in store.kept(tx, self._turn.session):
            given = core.consent(asked.question, asked.answer)
            if core.same(asked.question, question) and given is not Consent.OTHER:
                store.take(tx, asked)
                return asked.answer
        return None

    def _supersede(self, tx: Transaction, question: Question, now: datetime) -> None:
        """What was left open, and is asked again now, is to be answered here."""
        for asked in store.waiting(tx, self._turn.session):
            if asked.left and core.same(asked.question, question):
                store.close(tx, asked, QuestionState.CANCELLED, now=now)

    def _take(self, tx: Transaction, *, question: Question, expired: bool) -> Asked:
        """What became of the question. From the moment it is known here, the agent may act on it."""
        turns.hold(tx, self._turn)
        asked = store.find(tx, self._turn.id, question.key)
        assert asked is not None
        if asked.state is QuestionState.OPEN and expired:
            store.close(tx, asked, QuestionState.EXPIRED, now=self._clock.now())
            asked = store.get(tx, asked.id)
        if asked.state is not QuestionState.OPEN:
            store.take(tx, asked)
        return asked


def taken(tx: Transaction, turn: TurnId) -> frozenset[str]:
    """The keys of a turn's questions of which its agent learned what became of them."""
    return frozenset(a.question.key for a in store.of_turn(tx, turn) if a.taken)
