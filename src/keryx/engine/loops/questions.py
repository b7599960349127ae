"""Questions of one running turn: store a question, wait for its answer, and return it to the agent."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import Protocol, TypeVar

import anyio

from keryx.core.clock import Clock
from keryx.core.questions import Question, QuestionState
from keryx.core.turns import Turn
from keryx.engine.units import questions
from keryx.store.db import Work
from keryx.timing import WakeSignal, wait_until

T = TypeVar("T")


class UnitRunner(Protocol):
    """Runs a unit of work for a turn, and repeats it if its outcome is unknown."""

    async def __call__(self, label: str, work: Work[T]) -> T: ...


class TurnQuestions:
    """The questions of one running turn. One is asked at a time, so that a bare answer in a chat is unambiguous."""

    def __init__(
        self,
        turn: Turn,
        *,
        shared: bool,
        run_unit: UnitRunner,
        clock: Clock,
        limit: timedelta,
        answers: WakeSignal,
        pause: Callable[[], AbstractContextManager[None]],
        end_section: Callable[[], Awaitable[None]],
    ) -> None:
        self._turn = turn
        self._shared = shared
        self._run_unit = run_unit
        self._clock = clock
        self._limit = limit
        self._answers = answers
        self._pause = pause
        # Stores what the agent has said so far as a message of its own.
        self._end_section = end_section
        self._lock = anyio.Lock()

    async def ask(self, question: Question) -> str | None:
        """Ask a question and return the answer, `None` if there was none in time. The watchdog is paused meanwhile."""
        with self._pause():
            async with self._lock:
                if self._turn.reply is not None:
                    # In a chat, what was said before is sent before the question.
                    await self._end_section()
                await self._run_unit(
                    "question.ask",
                    partial(
                        questions.ask,
                        turn=self._turn,
                        question=question,
                        shared=self._shared,
                        limit=self._limit,
                    ),
                )
                return await self._wait(question)

    async def _wait(self, question: Question) -> str | None:
        deadline = self._clock.monotonic() + self._limit.total_seconds()
        while True:
            seen = self._answers.count
            left = deadline - self._clock.monotonic()
            asked = await self._run_unit(
                "question.take",
                partial(questions.take_answer, turn=self._turn, question=question, expired=left <= 0),
            )
            if asked.state is not QuestionState.OPEN:
                return asked.answer
            until = self._clock.now() + timedelta(seconds=left)
            await wait_until(self._answers, seen, self._clock, until)
