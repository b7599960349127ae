"""Questions of one running turn: store a question, wait for its answer, and return it to the agent."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import Protocol, TypeVar

import anyio

from keryx.core import questions as core
from keryx.core import sessions
from keryx.core.clock import Clock
from keryx.core.ids import DeliveryId
from keryx.core.questions import AskedQuestion, Consent, Question, QuestionState
from keryx.core.sessions import JOB_SURFACE, PermissionMode
from keryx.core.turns import Turn
from keryx.store import deliveries, turns
from keryx.store import questions as store
from keryx.store import sessions as sessions_store
from keryx.store.db.database import Transaction, Work
from keryx.timing import WakeSignal, wait_until

T = TypeVar("T")
_JOB_NOTICE = "A scheduled run asks this: write /jobs continue first, then the answer."


class UnitRunner(Protocol):
    """Runs a unit of work for a turn, again if nobody knows whether it was done."""

    async def __call__(self, label: str, work: Work[T]) -> T: ...


class TurnQuestions:
    """The questions of one running turn. One is put at a time, so that a bare answer in a chat is clear."""

    def __init__(
        self,
        turn: Turn,
        *,
        shared: bool,
        keep: UnitRunner,
        clock: Clock,
        limit: timedelta,
        answers: WakeSignal,
        patience: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._turn = turn
        self._shared = shared
        self._keep = keep
        self._clock = clock
        self._limit = limit
        self._answers = answers
        self._patience = patience
        self._lock = anyio.Lock()

    async def ask(self, question: Question) -> str | None:
        """Put a question and wait. `None` when nobody answered in time. While it waits the turn may be silent."""
        with self._patience():
            async with self._lock:
                await self._keep("question.ask", partial(self._store_question, question=question))
                return await self._wait(question)

    async def _wait(self, question: Question) -> str | None:
        deadline = self._clock.monotonic() + self._limit.total_seconds()
        while True:
            seen = self._answers.count
            left = deadline - self._clock.monotonic()
            asked = await self._keep(
                "question.take", partial(self._take_answer, question=question, expired=left <= 0)
            )
            if asked.state is not QuestionState.OPEN:
                return asked.answer
            until = self._clock.now() + timedelta(seconds=left)
            await wait_until(self._answers, seen, self._clock, until)

    def _store_question(self, tx: Transaction, *, question: Question) -> None:
        """Store the question and tell the place that asked. A lasting consent answers it at once, and nobody is told."""
        now = self._clock.now()
        turns.lock(tx, self._turn)
        known = store.find_by_key(tx, self._turn.id, question.key)
        if known is not None:
            if known.state is QuestionState.OPEN:
                store.set_expiry(tx, known, now + self._limit)
            return
        self._cancel_earlier(tx, question)
        given = self._find_consent(tx, question)
        answer = (
            core.find_remembered_answer(question, given) if given else self._take_earlier_answer(tx, question)
        )
        asked = store.add(
            tx,
            self._turn,
            question,
            shared=self._shared,
            expires_at=now + self._limit,
            answer=answer,
        )
        if self._turn.reply and answer is None:
            deliveries.enqueue(
                tx,
                self._turn.reply,
                self._render_question(question),
                id=DeliveryId(asked.id),
                of=self._turn,
            )

    def _render_question(self, question: Question) -> str:
        """How the question is put. The chat that a scheduled run sends to is in another conversation."""
        text = core.format_question(question)
        return f"{text}\n\n{_JOB_NOTICE}" if self._turn.surface == JOB_SURFACE else text

    def _find_consent(self, tx: Transaction, question: Question) -> Consent | None:
        """What was decided beforehand: by the mode of the session, or for this tool in this session."""
        session = sessions_store.get(tx, self._turn.session, deleted=True)
        lasting = store.find_consent(tx, session.id, question.tool) if question.tool else None
        match sessions.parse_mode(session.settings.mode):
            case PermissionMode.READ:
                return Consent.DENY_ONCE
            case PermissionMode.AUTO:
                return lasting or Consent.ALLOW_ONCE
            case PermissionMode.ASK:
                return lasting

    def _take_earlier_answer(self, tx: Transaction, question: Question) -> str | None:
        """The permission or refusal that the same question got when nobody was there to take it. It counts once."""
        for asked in store.list_orphaned_answers(tx, self._turn.session):
            given = core.find_consent(asked.question, asked.answer)
            if core.is_same(asked.question, question) and given is not Consent.OTHER:
                store.mark_taken(tx, asked)
                return asked.answer
        return None

    def _cancel_earlier(self, tx: Transaction, question: Question) -> None:
        """What was left open, and is asked again now, is to be answered here."""
        for asked in store.list_open(tx, self._turn.session):
            if asked.left and core.is_same(asked.question, question):
                store.close(tx, asked, QuestionState.CANCELLED)

    def _take_answer(self, tx: Transaction, *, question: Question, expired: bool) -> AskedQuestion:
        """What became of the question. From the moment it is known here, the agent may act on it."""
        turns.lock(tx, self._turn)
        asked = store.find_by_key(tx, self._turn.id, question.key)
        assert asked is not None
        if asked.state is QuestionState.OPEN and expired:
            store.close(tx, asked, QuestionState.EXPIRED)
            asked = store.get(tx, asked.id)
        if asked.state is not QuestionState.OPEN:
            store.mark_taken(tx, asked)
        return asked
