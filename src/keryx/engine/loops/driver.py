"""Runs the agent of one turn under a watchdog, and is the only writer of its output. Asks the agent for a title after the first answer."""

import logging
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup

from keryx.core import durations
from keryx.core.access import NO_RULES, AccessRules
from keryx.core.clock import Clock
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
from keryx.core.media import Attachment
from keryx.core.messages import Message
from keryx.core.ports.agent import (
    Agent,
    AgentEvent,
    BindingEvent,
    CompactionEvent,
    Compactor,
    FileEvent,
    NoticeEvent,
    Titler,
    ToolCallEvent,
    ToolResultEvent,
    TurnContext,
)
from keryx.core.sessions import Session, Viewer
from keryx.core.turns import Turn, TurnLimits
from keryx.core.usage import Budgets
from keryx.engine.loops.mailbox import (
    AgentExit,
    CancelRequest,
    HandBack,
    Mailbox,
    MailboxItem,
    TurnEnd,
    TurnTimeout,
)
from keryx.engine.loops.questions import TurnQuestions
from keryx.engine.media import MediaStorage
from keryx.engine.plugins import RoleLookup, guard_cancellation, spawn_detached
from keryx.engine.units import answers, turn_writes
from keryx.engine.units.turn_writes import (
    NO_AUTHORS,
    RecordableEvent,
    StoredFile,
    TurnAuthors,
    TurnInput,
    TurnProgress,
)
from keryx.store import epochs, turns
from keryx.store.db.database import Database, Work

log = logging.getLogger(__name__)
_STEP_EVENTS = (ToolCallEvent, ToolResultEvent, CompactionEvent, BindingEvent)
T = TypeVar("T")


class Watchdog:
    """Watches that a turn speaks: its first word, its silences and its whole length have limits."""

    def __init__(self, clock: Clock, limits: TurnLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._started = self._last = clock.monotonic()
        self._spoken = False
        self._patience = 0

    def reset(self) -> None:
        self._last = self._clock.monotonic()
        self._spoken = True

    @contextmanager
    def pause(self) -> Generator[None]:
        """While the block runs a person is asked something, and the turn may be silent."""
        self._patience += 1
        try:
            yield
        finally:
            self._patience -= 1
            self.reset()

    async def watch(self, mailbox: Mailbox, scope: anyio.CancelScope) -> None:
        with scope:
            while True:
                left, reason = self._remaining()
                if left <= 0:
                    mailbox.put(TurnTimeout(reason))
                    return
                await self._clock.sleep(left)

    def _remaining(self) -> tuple[float, str]:
        now = self._clock.monotonic()
        if self._patience:
            self._last = now
        silence = self._limits.silence if self._spoken else self._limits.first_byte
        quiet = self._last + silence.total_seconds() - now
        total = self._started + self._limits.total.total_seconds() - now
        if quiet < total:
            return (
                quiet,
                f"The agent said nothing for {durations.describe(silence)}. /retry asks again.",
            )
        return (
            total,
            f"The turn took longer than {durations.describe(self._limits.total)}. /retry asks again.",
        )


class UntitledSession(msgspec.Struct, frozen=True):
    """A conversation that had no title when its first turn began, and who answered there."""

    agent: Agent
    context: TurnContext


async def request_title(database: Database, unnamed: UntitledSession, turn: Turn) -> None:
    """Ask for a title and store it. Never in the way of an answer: whatever fails, the title by rule stays."""
    agent, context = unnamed.agent, unnamed.context
    if not isinstance(agent, Titler):
        return
    answer = await database.read("title.read", partial(answers.load_final_text, turn=turn))
    if answer is None:
        return
    try:
        with guard_cancellation():
            made = await agent.title(context, answer)
        if made is not None:
            entitle = partial(turn_writes.set_title, turn=turn, title=made[0], used=made[1])
            await database.write("title.write", entitle)
    except KeryxError as exc:
        log.info("session %s keeps its title by rule: %s", turn.session, exc)


AgentChooser = Callable[[TurnInput], Agent]
PlaceRenderer = Callable[[TurnInput, Turn], str]
FolderResolver = Callable[[Session], str]


def get_session_folder(session: Session) -> str:
    """Where the turns of a session work, unless the process knows better."""
    return session.cwd


class Driver:
    """Drives turns that were claimed, as many at once as the caller likes."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        choose: AgentChooser,
        place: PlaceRenderer,
        folder: FolderResolver = get_session_folder,
        limits: TurnLimits,
        media: MediaStorage,
        rules: AccessRules = NO_RULES,
        roles: RoleLookup | None = None,
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

    async def drive(self, turn: Turn, mailbox: Mailbox, group: TaskGroup) -> UntitledSession | None:
        """Run a turn to its end, and record it. Gives what a name for its session can be made of, if it has none."""
        try:
            asked = await self._refresh_authors(turn, lambda tx: turn_writes.load_authors(tx, [turn]))
            reading = await self._run_unit(
                turn,
                "turn.read",
                partial(turn_writes.load, turn=turn, budgets=self._budgets, rules=self._rules, asked=asked),
                write=False,
            )
        except (Forbidden, Invalid) as exc:
            await self._write(turn, [], AgentExit(AgentFailed(str(exc))), TurnProgress())
            return None
        if reading.cancelling:
            mailbox.put(CancelRequest())
        pulse = Watchdog(self._clock, self._limits)
        watch_scope = anyio.CancelScope()
        interview = TurnQuestions(
            turn,
            shared=reading.shared,
            keep=partial(self._run_unit, turn),
            clock=self._clock,
            limit=self._limits.question,
            answers=mailbox.answers,
            patience=pulse.pause,
        )
        try:
            agent, context = self._choose(reading), self._build_context(turn, reading, interview)
            begun = _start_agent(agent, context, reading.compact)
        except Exception as exc:  # noqa: BLE001 the door of the agent: recorded as the end of its turn
            await self._write(turn, [], AgentExit(exc), reading.progress)
            return None
        pump = spawn_detached(self._pull_events(turn, mailbox, begun))
        group.start_soon(pulse.watch, mailbox, watch_scope)
        try:
            await self._follow_agent(turn, mailbox, pulse, reading.progress)
        finally:
            # The end is recorded first; an agent that does not react is left to end by itself.
            pump.cancel()
            watch_scope.cancel()
        return UntitledSession(agent, context) if reading.session.title_by is None else None

    async def _refresh_authors(self, turn: Turn, work: Work[TurnAuthors]) -> TurnAuthors:
        """Whoever was let in by a role may have lost it since: the platform is asked again. `Forbidden` if it cannot tell."""
        if self._roles is None or not self._roles.enabled:
            return NO_AUTHORS
        found = await self._run_unit(turn, "turn.authors", work, write=False)
        try:
            return {id_: await self._roles.refresh_roles(source) for id_, source in found.items()}
        except Unavailable as exc:
            raise Forbidden(f"It cannot be told now who may talk here: {exc}. /retry asks again.") from exc

    async def _follow_agent(
        self, turn: Turn, mailbox: Mailbox, pulse: Watchdog, written: TurnProgress
    ) -> None:
        while True:
            items = await mailbox.take()
            pulse.reset()
            end = next((i for i in items if isinstance(i, TurnEnd)), None)
            events = _select_events(items, end)
            await self._write(turn, events, end, written)
            written = written.advance(events)
            mailbox.mark_stored(len(events))
            if end is not None:
                return

    async def _write(
        self, turn: Turn, events: list[RecordableEvent], end: TurnEnd | None, before: TurnProgress
    ) -> None:
        """Record what has happened to a turn since the last time, its end included, in one unit of work."""
        label, work = self._choose_write(turn, events, end)
        again = partial(turn_writes.write_once, turn=turn, before=before, work=work)
        try:
            await self._run_unit(turn, label, work, again=again)
        except LeaseLost:
            if events:
                await self._run_unit(
                    turn, "turn.late", partial(turn_writes.append_late, turn=turn, events=events)
                )
            raise

    def _choose_write(
        self, turn: Turn, events: list[RecordableEvent], end: TurnEnd | None
    ) -> tuple[str, Work[None]]:
        match end:
            case None:
                return "turn.progress", partial(turn_writes.append_events, turn=turn, events=events)
            case AgentExit(error):
                if error is None:
                    return "turn.finish", partial(turn_writes.finish, turn=turn, events=events)
                text = _describe_error(turn, error)
                return "turn.fail", partial(turn_writes.fail, turn=turn, events=events, error=text)
            case TurnTimeout(reason):
                return "turn.fail", partial(turn_writes.fail, turn=turn, events=events, error=reason)
            case CancelRequest():
                return "turn.cancel", partial(turn_writes.cancel, turn=turn, events=events)
            case HandBack():
                return "turn.hand_back", partial(turn_writes.hand_back, turn=turn, events=events)

    async def _pull_events(
        self, turn: Turn, mailbox: Mailbox, begun: AsyncGenerator[AgentEvent, None]
    ) -> None:
        """Pull the agent's events. A tool step is stored before the agent is resumed."""
        ended = AgentExit()
        try:
            with guard_cancellation():
                async with aclosing(begun) as events:
                    async for event in events:
                        step = await self._store_attachment(turn, event)
                        await mailbox.put_event(step, until_stored=isinstance(step, _STEP_EVENTS))
        except Exception as exc:  # noqa: BLE001 the door of the agent: recorded as the end of its turn
            ended = AgentExit(exc)
        mailbox.put(ended)

    async def _store_attachment(self, turn: Turn, event: AgentEvent) -> RecordableEvent:
        """A file is stored before the message that shows it; one that cannot be is told of in its place."""
        if not isinstance(event, FileEvent):
            return event
        given = Attachment(name=event.name, mime=event.mime, body=event.body)
        try:
            return StoredFile(await self._media.save(Viewer(turn.profile, turn.owner), given))
        except (Invalid, Conflict) as exc:
            return NoticeEvent(f"A file of the answer is left out: {exc}.")

    def _build_context(self, turn: Turn, reading: TurnInput, interview: TurnQuestions) -> TurnContext:
        known = {m.seq for m in reading.asked}

        async def steer() -> Sequence[Message]:
            try:
                asked = await self._refresh_authors(
                    turn, lambda tx: turn_writes.load_authors(tx, turns.list_queued(tx, turn.session))
                )
            except Forbidden as exc:
                log.info("nothing is given to turn %s now: %s", turn.id, exc)
                return ()
            work = partial(turn_writes.steer, turn=turn, rules=self._rules, asked=asked)
            again = partial(
                turn_writes.steer_idempotent,
                turn=turn,
                known=frozenset(known),
                rules=self._rules,
                asked=asked,
            )
            given = await self._run_unit(turn, "turn.steer", work, again=again)
            known.update(m.seq for m in given)
            return given

        return TurnContext(
            session=turn.session,
            turn=turn.id,
            attempt=turn.attempts,
            place=self._place(reading, turn),
            turn_messages=reading.asked,
            history=partial(
                self._run_unit,
                turn,
                "turn.history",
                partial(epochs.load_model_view, session=turn.session),
                write=False,
            ),
            summary=reading.summary,
            shared=reading.shared,
            settings=reading.session.settings,
            cwd=self._folder(reading.session),
            clock=self._clock,
            fetch_new_messages=steer,
            ask=interview.ask,
            fetch=partial(self._media.fetch_for_session, turn.session),
            may_compact=reading.may_compact,
            answered_keys=reading.answered,
            bindings=reading.bindings,
            profile=turn.profile,
            owner=turn.owner,
            asker=turn.asker,
            surface=turn.surface,
        )

    async def _run_unit(
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


def _start_agent(agent: Agent, context: TurnContext, focus: str | None) -> AsyncGenerator[AgentEvent, None]:
    """The agent at work on its turn: an answer, or a compaction that somebody asked for."""
    if focus is None:
        return agent.run(context)
    return agent.compact(context, focus) if isinstance(agent, Compactor) else _refuse_compaction()


async def _refuse_compaction() -> AsyncGenerator[AgentEvent, None]:
    raise AgentFailed("This agent keeps no context of its own, so there is nothing to compact.")
    yield


def _describe_error(turn: Turn, error: Exception) -> str:
    """What the person is told of an agent that raised."""
    if isinstance(error, AgentFailed):
        return str(error)
    log.error("the agent of turn %s raised", turn.id, exc_info=error)
    return f"The agent failed ({type(error).__name__}). The log has the details; /retry asks again."


def _select_events(items: list[MailboxItem], end: MailboxItem | None) -> list[RecordableEvent]:
    """The events up to the end, or up to a cancel: what comes after it is not stored."""
    upto = items[: items.index(end)] if end is not None else items
    return [i for i in upto if not isinstance(i, TurnEnd)]
