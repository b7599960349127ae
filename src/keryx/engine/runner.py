"""Runner: claims turns, drives their agents, and is the only writer of what they say."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from contextlib import aclosing, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol, TypeVar

import anyio
from anyio.abc import TaskGroup

from keryx.core.access import NO_RULES, Rules
from keryx.core.budgets import Budgets
from keryx.core.changes import Change, Kind
from keryx.core.errors import (
    AgentFailed,
    Conflict,
    Forbidden,
    Invalid,
    KeryxError,
    LeaseLost,
    Retryable,
    Unavailable,
)
from keryx.core.ids import SessionId, TurnId, WorkerId
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
from keryx.core.turns import Limits, Turn, TurnState
from keryx.engine import naming, record, usage
from keryx.engine.alarm import signal_or_moment
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
from keryx.engine.questions import Interview
from keryx.engine.record import NO_AUTHORS, Authors, Reading, Written
from keryx.engine.roles import Roles
from keryx.store import claims, turns
from keryx.store.claims import Claimed
from keryx.store.database import Database, Transaction, Work
from keryx.store.wake import Wake

log = logging.getLogger(__name__)

_HAND_BACK_SECONDS = 5
_PASSED_OVER_SECONDS = 0.005
_NOTHING = Claimed([], False)
_AWAY = timedelta(seconds=0.5)
_STEPS = (Called, Returned, Compacted, Bound)

T = TypeVar("T")
Chooser = Callable[[Reading], Agent]
Placer = Callable[[Reading, Turn], str]
Folder = Callable[[Session], str]


def own_folder(session: Session) -> str:
    """Where the turns of a session work, unless the process knows better."""
    return session.cwd


class Watcher(Protocol):
    """Is told of the turns that run here. Must not wait and must not raise."""

    def began(self, turn: Turn) -> None: ...

    def ended(self, turn: Turn) -> None: ...


class Runner:
    """Runs up to `limits.at_once` turns. A scoped runner takes only turns of the session it is told to `serve`,
    and those pinned to this worker."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        worker: WorkerId,
        choose: Chooser,
        place: Placer,
        folder: Folder = own_folder,
        limits: Limits,
        media: Media,
        watcher: Watcher,
        rules: Rules = NO_RULES,
        roles: Roles | None = None,
        budgets: Budgets = Budgets(),
        scoped: bool = False,
    ) -> None:
        self._database = database
        self._clock = clock
        self._worker = worker
        self._choose = choose
        self._place = place
        self._folder = folder
        self._limits = limits
        self._media = media
        self._watcher = watcher
        self._rules = rules
        self._roles = roles
        self._budgets = budgets
        self._scoped = scoped
        self._session: SessionId | None = None
        self._running: dict[TurnId, Mailbox] = {}
        self._claiming = False
        self._draining = False
        self._work = Wake()
        self._began = clock.monotonic()

    @property
    def busy(self) -> int:
        return len(self._running)

    @property
    def held(self) -> frozenset[TurnId]:
        """The turns that this runner is at work on."""
        return frozenset(self._running)

    def serve(self, session: SessionId) -> None:
        """From now on, a scoped runner takes the turns of this session."""
        self._session = session
        self._work.signal()

    def look_again(self) -> None:
        """Something that waited for a moment may be due sooner than was thought."""
        self._work.signal()

    async def run(self, changes: AsyncIterator[Change]) -> None:
        """Run turns until cancelled. `changes` is the live feed: it tells of new turns and of cancels."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._listen, changes)
            await self._claim_forever(group)

    async def drain(self, seconds: float) -> None:
        """Take no more turns; give running ones some time, then hand them back to the queue."""
        self._draining = True
        with anyio.move_on_after(seconds):
            await self._idle()
        for mailbox in self._running.values():
            mailbox.put(HandedBack())
        with anyio.move_on_after(_HAND_BACK_SECONDS):
            await self._idle()

    async def _idle(self) -> None:
        while self._running or self._claiming:
            await self._work.wait(self._work.count)

    async def _listen(self, changes: AsyncIterator[Change]) -> None:
        async for change in changes:
            if change.kind is Kind.TURN and change.note != TurnState.RUNNING.value:
                self._work.signal()
            elif change.kind is Kind.CANCEL and change.turn and change.turn in self._running:
                self._running[change.turn].put(Cancelled())
            elif change.kind is Kind.QUESTION and change.turn and change.turn in self._running:
                self._running[change.turn].answers.signal()

    async def _claim_forever(self, group: TaskGroup) -> None:
        while True:
            seen = self._work.count
            free = 0 if self._draining else self._limits.at_once - self.busy
            claimed, at = await self._claim(free) if free > 0 else (_NOTHING, None)
            for turn in claimed.turns:
                mailbox = self._running[turn.id] = Mailbox()
                if self._draining:
                    mailbox.put(HandedBack())
                group.start_soon(self._run, turn, mailbox, group)
            if claimed.passed_over:
                # Others end their transactions in their own time, and need not tell anybody.
                await anyio.sleep(_PASSED_OVER_SECONDS)
            else:
                await signal_or_moment(self._work, seen, self._clock, at)

    async def _claim(self, most: int) -> tuple[Claimed, datetime | None]:
        """Lease what may run now, and tell when to look again for what waits for a moment rather than for an event."""
        self._claiming = True
        try:
            return await self._database.write("turn.claim", partial(self._claim_all, most=most))
        except KeryxError as exc:
            log.warning("cannot claim a turn now: %s", exc)
            return _NOTHING, self._clock.now() + _AWAY
        finally:
            self._claiming = False
            if self._draining:
                self._work.signal()

    def _claim_all(self, tx: Transaction, *, most: int) -> tuple[Claimed, datetime | None]:
        now = self._clock.now()
        settled = now + self._limits.settle - timedelta(seconds=self._clock.monotonic() - self._began)
        claimed = claims.claim_many(
            tx,
            most=most,
            worker=self._worker,
            now=now,
            lease=self._limits.lease,
            per_principal=self._limits.per_principal,
            scoped=self._scoped,
            session=self._session,
            settled=settled <= now,
        )
        moments = [m for m in (claims.next_at(tx, now=now), settled) if m and m > now]
        return claimed, min(moments, default=None) if len(claimed.turns) < most else None

    async def _run(self, turn: Turn, mailbox: Mailbox, group: TaskGroup) -> None:
        """The door of a turn: whatever happens inside is recorded, and no other turn is harmed."""
        self._watcher.began(turn)
        try:
            await self._drive(turn, mailbox, group)
        except LeaseLost as exc:
            log.warning("%s: what it still says is not stored", exc)
        except Exception:
            log.exception("turn %s could not be recorded; its lease will run out", turn.id)
        finally:
            self._watcher.ended(turn)
            # A turn that was lost to a sweep may run here again by now, under another lease.
            if self._running.get(turn.id) is mailbox:
                del self._running[turn.id]
            self._work.signal()

    async def _drive(self, turn: Turn, mailbox: Mailbox, group: TaskGroup) -> None:
        try:
            asked = await self._authors(turn, lambda tx: record.authors(tx, [turn]))
            reading = await self._store(
                turn, "turn.read", partial(self._read, turn=turn, asked=asked), write=False
            )
        except (Forbidden, Invalid) as exc:
            await self._write(turn, [], Ended(AgentFailed(str(exc))), Written())
            return
        if reading.cancelling:
            mailbox.put(Cancelled())
        pulse = _Pulse(self._clock, self._limits)
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
            return
        pump = apart(self._pump(turn, mailbox, begun))
        group.start_soon(pulse.watch, mailbox, watch_scope)
        try:
            await self._follow_agent(turn, mailbox, pulse, reading.written)
        finally:
            # The end is recorded first; an agent that does not react is left to end by itself.
            pump.cancel()
            watch_scope.cancel()
        if reading.session.title_by is None and not self._draining:
            group.start_soon(naming.name, self._database, agent, context, turn)

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

    async def _follow_agent(self, turn: Turn, mailbox: Mailbox, pulse: "_Pulse", written: Written) -> None:
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
        known = {m.seq for m in reading.history if m.turn == turn.id}

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
            history=reading.history,
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


class _Pulse:
    """Watches that a turn speaks: its first word, its silences and its whole length have limits."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits
        self._started = self._last = clock.monotonic()
        self._spoken = False
        self._patience = 0

    def beat(self) -> None:
        self._last = self._clock.monotonic()
        self._spoken = True

    @contextmanager
    def patient(self) -> Generator[None]:
        """While the block runs a person is asked something, and the turn may be silent."""
        self._patience += 1
        try:
            yield
        finally:
            self._patience -= 1
            self.beat()

    async def watch(self, mailbox: Mailbox, scope: anyio.CancelScope) -> None:
        with scope:
            while True:
                left, reason = self._left()
                if left <= 0:
                    mailbox.put(TimedOut(reason))
                    return
                await self._clock.sleep(left)

    def _left(self) -> tuple[float, str]:
        now = self._clock.monotonic()
        if self._patience:
            self._last = now
        silence = self._limits.silence if self._spoken else self._limits.first_byte
        quiet = self._last + silence.total_seconds() - now
        total = self._started + self._limits.total.total_seconds() - now
        if quiet < total:
            return quiet, f"The agent said nothing for {_span(silence.total_seconds())}. /retry asks again."
        return (
            total,
            f"The turn took longer than {_span(self._limits.total.total_seconds())}. /retry asks again.",
        )


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


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


def _events_before(items: list[Item], end: Item | None) -> list[Recordable]:
    """The events up to the end, or up to a cancel: what comes after it is not stored."""
    upto = items[: items.index(end)] if end is not None else items
    return [i for i in upto if not isinstance(i, End)]
