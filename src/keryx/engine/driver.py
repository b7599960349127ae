"""Driver: drives the agent of one turn, and is the only writer of what it says."""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from keryx.core.access import NO_RULES, Rules
from keryx.core.budgets import Budgets
from keryx.core.errors import AgentFailed, Conflict, Forbidden, Invalid, LeaseLost, Retryable, Unavailable
from keryx.core.messages import Message
from keryx.core.ports import (
    Agent,
    Attached,
    Attachment,
    Bound,
    Called,
    Clock,
    Compacted,
    Compactor,
    Event,
    Noted,
    Returned,
    TurnContext,
)
from keryx.core.sessions import Session, Viewer
from keryx.core.turns import Limits, Turn
from keryx.engine import record, usage
from keryx.engine.foreign import apart, contained
from keryx.engine.mailbox import (
    Cancelled,
    End,
    Ended,
    HandedBack,
    Item,
    Kept,
    Mailbox,
    Recordable,
    TimedOut,
)
from keryx.engine.media import Media
from keryx.engine.naming import Unnamed
from keryx.engine.pulse import Pulse
from keryx.engine.questions import Interview
from keryx.engine.record import NO_AUTHORS, Authors, Reading, Written
from keryx.engine.roles import Roles
from keryx.store import epochs, turns
from keryx.store.database import Database, Transaction, Work

log = logging.getLogger(__name__)

_STEPS = (Called, Returned, Compacted, Bound)

T = TypeVar("T")
Chooser = Callable[[Reading], Agent]
Placer = Callable[[Reading, Turn], str]
Folder = Callable[[Session], str]


def own_folder(session: Session) -> str:
    """Where the turns of a session work, unless the process knows better."""
    return session.cwd


class Driver:
    """Drives turns that were claimed, as many at once as the caller likes."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        choose: Chooser,
        place: Placer,
        folder: Folder = own_folder,
        limits: Limits,
        media: Media,
        rules: Rules = NO_RULES,
        roles: Roles | None = None,
        budgets: Budgets = Budgets(),
    ) -> None:
        self._database = database
        self._clock = clock
        self._choose = choose
        self._place = place
        self._folder = folder
        self._limits = limits
        self._media = media
        self._rules = rules
        self._roles = roles
        self._budgets = budgets

    async def drive(self, turn: Turn, mailbox: Mailbox, group: TaskGroup) -> Unnamed | None:
        """Run a turn to its end, and record it. Gives what a name for its session can be made of, if it has none."""
        try:
            asked = await self._authors(turn, lambda tx: record.authors(tx, [turn]))
            reading = await self._store(
                turn, "turn.read", partial(self._read, turn=turn, asked=asked), write=False
            )
        except (Forbidden, Invalid) as exc:
            await self._write(turn, [], Ended(AgentFailed(str(exc))), Written())
            return None
        if reading.cancelling:
            mailbox.put(Cancelled())
        pulse = Pulse(self._clock, self._limits)
        watch_scope = anyio.CancelScope()
        interview = Interview(
            turn,
            shared=reading.shared,
            keep=partial(self._store, turn),
            clock=self._clock,
            limit=self._limits.question,
            answers=mailbox.answers,
            patience=pulse.patient,
        )
        try:
            agent, context = self._choose(reading), self._context(turn, reading, interview)
            begun = _begun(agent, context, reading.compact)
        except Exception as exc:  # noqa: BLE001 the door of the agent: recorded as the end of its turn
            await self._write(turn, [], Ended(exc), reading.written)
            return None
        pump = apart(self._pump(turn, mailbox, begun))
        group.start_soon(pulse.watch, mailbox, watch_scope)
        try:
            await self._follow_agent(turn, mailbox, pulse, reading.written)
        finally:
            # The end is recorded first; an agent that does not react is left to end by itself.
            pump.cancel()
            watch_scope.cancel()
        return Unnamed(agent, context) if reading.session.title_by is None else None

    async def _authors(self, turn: Turn, work: Work[Authors]) -> Authors:
        """Whoever was let in by a role may have lost it since: the platform is asked again. `Forbidden` if it cannot tell."""
        if self._roles is None or not self._roles.matter:
            return NO_AUTHORS
        found = await self._store(turn, "turn.authors", work, write=False)
        try:
            return {id_: await self._roles.now(source) for id_, source in found.items()}
        except Unavailable as exc:
            raise Forbidden(f"It cannot be told now who may talk here: {exc}. /retry asks again.") from exc

    def _read(self, tx: Transaction, *, turn: Turn, asked: Authors) -> Reading:
        now = self._clock.now()
        usage.check(tx, turn, self._budgets, now=now)
        return record.read(tx, turn, now=now, rules=self._rules, asked=asked)

    async def _follow_agent(self, turn: Turn, mailbox: Mailbox, pulse: Pulse, written: Written) -> None:
        while True:
            items = await mailbox.take()
            pulse.beat()
            end = next((i for i in items if isinstance(i, End)), None)
            events = _events_before(items, end)
            await self._write(turn, events, end, written)
            written = written.grown(events)
            mailbox.mark_stored(len(events))
            if end is not None:
                return

    async def _write(self, turn: Turn, events: list[Recordable], end: End | None, before: Written) -> None:
        """Record what has happened to a turn since the last time, its end included, in one unit of work."""
        now = self._clock.now()
        label, work = self._recording(turn, events, end, now)
        again = partial(record.unless_recorded, turn=turn, before=before, work=work)
        try:
            await self._store(turn, label, work, again=again)
        except LeaseLost:
            if events:
                await self._store(
                    turn, "turn.late", partial(record.keep_late, turn=turn, events=events, now=now)
                )
            raise

    def _recording(
        self, turn: Turn, events: list[Recordable], end: End | None, now: datetime
    ) -> tuple[str, Work[None]]:
        match end:
            case None:
                return "turn.progress", partial(record.progress, turn=turn, events=events, now=now)
            case Ended(error):
                if error is None:
                    return "turn.finish", partial(record.finish, turn=turn, events=events, now=now)
                text = _reason(turn, error)
                return "turn.fail", partial(record.fail, turn=turn, events=events, error=text, now=now)
            case TimedOut(reason):
                return "turn.fail", partial(record.fail, turn=turn, events=events, error=reason, now=now)
            case Cancelled():
                return "turn.cancel", partial(record.cancel, turn=turn, events=events, now=now)
            case HandedBack():
                return "turn.hand_back", partial(record.hand_back, turn=turn, events=events, now=now)

    async def _pump(self, turn: Turn, mailbox: Mailbox, begun: AsyncGenerator[Event, None]) -> None:
        """Pull the agent's events. A tool step is stored before the agent is resumed."""
        ended = Ended()
        try:
            with contained():
                async with aclosing(begun) as events:
                    async for event in events:
                        step = await self._kept(turn, event)
                        await mailbox.put_event(step, until_stored=isinstance(step, _STEPS))
        except Exception as exc:  # noqa: BLE001 the door of the agent: recorded as the end of its turn
            ended = Ended(exc)
        mailbox.put(ended)

    async def _kept(self, turn: Turn, event: Event) -> Recordable:
        """A file is stored before the message that shows it; one that cannot be is told of in its place."""
        if not isinstance(event, Attached):
            return event
        given = Attachment(name=event.name, mime=event.mime, body=event.body)
        try:
            return Kept(await self._media.keep(Viewer(turn.profile, turn.owner), given))
        except (Invalid, Conflict) as exc:
            return Noted(f"A file of the answer is left out: {exc}.")

    def _context(self, turn: Turn, reading: Reading, interview: Interview) -> TurnContext:
        known = {m.seq for m in reading.asked}

        async def steer() -> Sequence[Message]:
            try:
                asked = await self._authors(
                    turn, lambda tx: record.authors(tx, turns.queued(tx, turn.session))
                )
            except Forbidden as exc:
                log.info("nothing is given to turn %s now: %s", turn.id, exc)
                return ()
            now = self._clock.now()
            work = partial(record.steer, turn=turn, now=now, rules=self._rules, asked=asked)
            again = partial(
                record.steer_again, turn=turn, known=frozenset(known), now=now, rules=self._rules, asked=asked
            )
            given = await self._store(turn, "turn.steer", work, again=again)
            known.update(m.seq for m in given)
            return given

        return TurnContext(
            session=turn.session,
            turn=turn.id,
            attempt=turn.attempts,
            place=self._place(reading, turn),
            asked=reading.asked,
            history=partial(
                self._store, turn, "turn.history", partial(epochs.view, session=turn.session), write=False
            ),
            summary=reading.summary,
            shared=reading.shared,
            settings=reading.session.settings,
            cwd=self._folder(reading.session),
            clock=self._clock,
            steer=steer,
            ask=interview.ask,
            fetch=partial(self._media.of_session, turn.session),
            may_compact=reading.may_compact,
            answered=reading.answered,
            bindings=reading.bindings,
            profile=turn.profile,
            owner=turn.owner,
            asker=turn.asker,
            surface=turn.surface,
        )

    async def _store(
        self, turn: Turn, label: str, work: Work[T], *, again: Work[T] | None = None, write: bool = True
    ) -> T:
        """Run a unit of work for a turn. While the store is away, try again for as long as the lease may hold.

        A commit may have been made of which nobody heard: `again` is the unit for every try but the first."""
        deadline = self._clock.monotonic() + self._limits.lease.total_seconds()
        while True:
            try:
                return await (self._database.write if write else self._database.read)(label, work)
            except Retryable as exc:
                work = again or work
                if self._clock.monotonic() >= deadline:
                    raise LeaseLost(f"turn {turn.id}: the store was away for longer than the lease") from exc
                await self._clock.sleep(0.2)


def _begun(agent: Agent, context: TurnContext, focus: str | None) -> AsyncGenerator[Event, None]:
    """The agent at work on its turn: an answer, or a compaction that somebody asked for."""
    if focus is None:
        return agent.run(context)
    return agent.compact(context, focus) if isinstance(agent, Compactor) else _not_compacted()


async def _not_compacted() -> AsyncGenerator[Event, None]:
    raise AgentFailed("This agent keeps no context of its own, so there is nothing to compact.")
    yield


def _reason(turn: Turn, error: Exception) -> str:
    """What the person is told of an agent that raised."""
    if isinstance(error, AgentFailed):
        return str(error)
    log.error("the agent of turn %s raised", turn.id, exc_info=error)
    return f"The agent failed ({type(error).__name__}). The log has the details; /retry asks again."


def _events_before(items: list[Item], end: Item | None) -> list[Recordable]:
    """The events up to the end, or up to a cancel: what comes after it is not stored."""
    upto = items[: items.index(end)] if end is not None else items
    return [i for i in upto if not isinstance(i, End)]
