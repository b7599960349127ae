"""Runs the agent of one turn under a watchdog, and is the only writer of its output. Asks the agent for a title after the first answer."""

import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from datetime import timedelta
from functools import cache, partial
from typing import TypeVar, cast

import anyio
import msgspec
from anyio.abc import TaskGroup

from keryx import logs
from keryx.core import durations
from keryx.core.access import NO_RULES, AccessRules
from keryx.core.clock import Clock
from keryx.core.errors import (
    AgentFailed,
    AgentRefused,
    Conflict,
    Forbidden,
    Invalid,
    KeryxError,
    LeaseLost,
    NotFound,
    QuotaReached,
    Retryable,
    Unavailable,
)
from keryx.core.media import Attachment
from keryx.core.messages import Audio, Message
from keryx.core.ports.agent import (
    WARNING_KIND,
    Agent,
    AgentEvent,
    BindingEvent,
    CompactionEvent,
    CompactionFailedEvent,
    Compactor,
    FileEvent,
    NoticeEvent,
    ReasoningDelta,
    TextDelta,
    Titler,
    ToolCallEvent,
    ToolCallUpdateEvent,
    ToolResultEvent,
    TranscribeSound,
    TurnContext,
    UsageEvent,
)
from keryx.core.questions import build_speak_question, find_consent
from keryx.core.sessions import GATEWAY_SURFACE, Session, SessionSettings, TakeoverRules, Viewer
from keryx.core.texts import Phrase
from keryx.core.turns import StopReason, Turn, TurnLimits
from keryx.core.usage import Budgets
from keryx.engine.loops import reports
from keryx.engine.loops.mailbox import (
    AgentExit,
    CancelRequest,
    HandBack,
    Mailbox,
    RestartCheck,
    TurnEnd,
    TurnTimeout,
)
from keryx.engine.loops.questions import TurnQuestions
from keryx.engine.media import MediaStorage
from keryx.engine.plugins import RoleLookup, spawn_detached
from keryx.engine.units import answers, turn_writes
from keryx.engine.units.turn_writes import (
    NO_AUTHORS,
    NO_TAKEOVERS,
    RecordableEvent,
    SectionEnd,
    StoredFile,
    TurnAuthors,
    TurnInput,
    TurnProgress,
)
from keryx.plugin_thread import PluginExit, guard_plugin, name_error
from keryx.store import epochs, turns
from keryx.store.db import Database, Work

log = logging.getLogger(__name__)
# The longest piece of a text that is stored at once, in characters.
_PIECE = 16_384
# How many characters an event counts for besides its text, so that no stream of small events is endless.
_EVENT_SIZE = 100
_REASONING_CUT = "\n\n(The rest of the reasoning was not kept.)"
_STEP_EVENTS = (ToolCallEvent, ToolResultEvent, CompactionEvent, BindingEvent)
T = TypeVar("T")


class Watchdog:
    """Limits the time until the first event of a turn, the pauses between events, and the whole turn."""

    def __init__(self, clock: Clock, limits: TurnLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._started = self._last = clock.monotonic()
        self._begun = False
        self._pauses = 0

    def reset(self) -> None:
        """Record that the agent has produced something."""
        self._last = self._clock.monotonic()
        self._begun = True

    @contextmanager
    def pause(self) -> Generator[None]:
        """Allow silence while the block runs, because the agent waits for a user."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            self.reset()

    async def watch(self, mailbox: Mailbox, scope: anyio.CancelScope) -> None:
        with scope:
            while True:
                quiet, total = self._find_remaining()
                if min(quiet, total) <= 0:
                    mailbox.put(TurnTimeout(self._describe_end(silent=quiet < total)))
                    return
                await self._clock.sleep(min(quiet, total))

    def _find_remaining(self) -> tuple[float, float]:
        """Return the seconds until the silence is too long, and until the whole turn is."""
        now = self._clock.monotonic()
        if self._pauses:
            self._last = now
        quiet = self._last + self._silence.total_seconds() - now
        return quiet, self._started + self._limits.total.total_seconds() - now

    @property
    def _silence(self) -> timedelta:
        return self._limits.silence if self._begun else self._limits.first_byte

    def _describe_end(self, *, silent: bool) -> Phrase:
        if silent:
            return Phrase("turn.silent", span=durations.describe(self._silence))
        return Phrase("turn.too_long", span=durations.describe(self._limits.total))


class OutputMeter:
    """Counts what a turn says, and ends it at its limits. Long texts are cut into pieces, so that no write is large."""

    def __init__(self, limits: TurnLimits) -> None:
        self._limits = limits
        self._answer = limits.answer
        # What is kept of the reasoning. The turn goes on after it.
        self._reasoning = limits.answer
        self._output = limits.output
        self._steps = limits.steps
        # The sentence that ends the turn, once a limit is passed.
        self.end: NoticeEvent | None = None

    def split(self, event: RecordableEvent) -> Iterator[RecordableEvent]:
        """Yield the part of an event that is within the limits. `end` is set if that is not all."""
        match event:
            case TextDelta(text):
                yield from (TextDelta(piece) for piece in self._cut(text, answer=True))
            case ReasoningDelta(text, ""):
                kept = text[: max(0, self._reasoning)]
                yield from (ReasoningDelta(piece) for piece in self._cut(kept))
                dropped = len(text) - len(kept)
                if dropped and self._take(dropped) and self._reasoning >= 0:
                    yield ReasoningDelta(_REASONING_CUT)
                self._reasoning -= len(text)
            case ReasoningDelta(text, opaque):
                if self._take(len(text) + len(opaque)):
                    yield event
            case ToolCallEvent(calls):
                if self._take(sum(len(c.input) for c in calls)) and self._take_steps(len(calls)):
                    yield event
            case ToolResultEvent(result):
                size = len(result.output)
                if size > self._limits.answer:
                    cut = f"{result.output[: self._limits.answer]}\n[cut: {size:,} characters]"
                    event = ToolResultEvent(msgspec.structs.replace(result, output=cut))
                self._take(size)
                yield event
            case NoticeEvent(text) | CompactionFailedEvent(text) | CompactionEvent(text):
                if self._take(len(text)) and self._take_steps(1):
                    yield event
            case ToolCallUpdateEvent(call):
                if self._take(_EVENT_SIZE + len(call.input)):
                    yield event
            case StoredFile():
                if self._take_steps(1):
                    yield event
            case UsageEvent() | BindingEvent() | SectionEnd():
                if self._take(_EVENT_SIZE):
                    yield event

    def _cut(self, text: str, *, answer: bool = False) -> Iterator[str]:
        limit = min(self._output, self._answer) if answer else self._output
        for start in range(0, min(len(text), limit), _PIECE):
            yield text[start : min(start + _PIECE, limit)]
        self._answer -= len(text) if answer else 0
        self._take(len(text))
        if self._answer < 0:
            self._stop(StopReason.LENGTH, "turn.answer_cut", self._limits.answer)

    def _take(self, size: int) -> bool:
        self._output -= max(1, size)
        if self._output < 0:
            self._stop(StopReason.LENGTH, "turn.output_cut", self._limits.output)
        return self.end is None

    def _take_steps(self, count: int) -> bool:
        self._steps -= count
        if self._steps < 0:
            self._stop(StopReason.STEPS, "turn.steps_cut", self._limits.steps)
        return self.end is None

    def _stop(self, kind: StopReason, phrase: str, limit: int) -> None:
        self.end = self.end or NoticeEvent(Phrase(phrase, limit=f"{limit:,}"), kind)


class UntitledSession(msgspec.Struct, frozen=True):
    """A session that had no title when its first turn began, with the agent that answered."""

    agent: Agent
    context: TurnContext


@cache
def _names_conversations(kind: type[Agent]) -> bool:
    """Whether agents of a class are titlers. The check of a protocol takes longer than a query."""
    return issubclass(kind, Titler)


async def request_title(database: Database, untitled: UntitledSession, turn: Turn) -> None:
    """Ask the agent for a title and store it. If that fails, the default title stays."""
    agent, context = untitled.agent, untitled.context
    if not _names_conversations(type(agent)):
        return
    answer = await database.read("title.read", partial(answers.load_final_text, turn=turn))
    if answer is None:
        return
    try:
        with guard_plugin():
            result = await cast(Titler, agent).title(context, answer)
        if result is not None:
            title, used = result
            write = partial(turn_writes.set_title, turn=turn, title=title, used=used)
            await database.write("title.write", write)
            reports.report_usage(used)
    except KeryxError as exc:
        log.info("session %s keeps its default title: %s", turn.session, exc)


def _open_stream(agent: Agent, context: TurnContext, focus: str | None) -> AsyncGenerator[AgentEvent, None]:
    """Begin a turn, or with a `focus` the compaction of the session."""
    if focus is None:
        return agent.run(context)
    if isinstance(agent, Compactor):
        return agent.compact(context, focus)
    return _say(Phrase("turn.nothing_to_compact"))


async def _say(text: str) -> AsyncGenerator[AgentEvent, None]:
    yield TextDelta(str(text))


AgentChooser = Callable[[TurnInput], Agent]
PlaceRenderer = Callable[[TurnInput, Turn], str]
FolderResolver = Callable[[Session], str]


def get_session_folder(session: Session) -> str:
    """Return the working directory of a session."""
    return session.cwd


class Driver:
    """Runs claimed turns, any number at once."""

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
        zone: str = "",
        shows_ids: Callable[[str, SessionSettings], bool] = lambda profile, settings: False,
        transcribe: TranscribeSound | None = None,
        takeovers: TakeoverRules = NO_TAKEOVERS,
        has_separate_files: Callable[[str], bool] = lambda platform: False,
    ) -> None:
        """`has_separate_files` tells whether a platform has `Capabilities.separate_files`."""
        self._database = database
        self._clock = clock
        self._choose = choose
        self._place = place
        self._folder = folder
        self._limits = limits
        self._media = media
        self._rules = rules
        self._takeovers = takeovers
        self._roles = roles
        self._budgets = budgets
        self._zone = zone
        self._shows_ids = shows_ids
        self._transcribe = transcribe
        self._has_separate_files = has_separate_files

    async def drive(self, turn: Turn, mailbox: Mailbox, group: TaskGroup) -> UntitledSession | None:
        """Run a turn and record its end. Return its session if that has no title yet."""
        try:
            authors = await self._refresh_authors(turn, lambda tx: turn_writes.load_authors(tx, [turn]))
            turn_input = await self._run_unit(
                turn,
                "turn.read",
                partial(
                    turn_writes.load,
                    turn=turn,
                    budgets=self._budgets,
                    rules=self._rules,
                    authors=authors,
                    takeovers=self._takeovers,
                ),
                write=False,
            )
        except (Forbidden, Invalid) as exc:
            error = exc if isinstance(exc, Forbidden) else AgentFailed(str(exc), exc.text)
            await self._write(turn, [], AgentExit(error), TurnProgress())
            return None
        if turn_input.cancelling:
            mailbox.put(CancelRequest())
        watchdog = Watchdog(self._clock, self._limits)
        watch_scope = anyio.CancelScope()
        questions = TurnQuestions(
            turn,
            shared=turn_input.shared,
            run_unit=partial(self._run_unit, turn),
            clock=self._clock,
            limit=self._limits.question,
            answers=mailbox.answers,
            pause=watchdog.pause,
            end_section=partial(mailbox.put_event, SectionEnd(), until_stored=True),
        )
        try:
            agent, context = self._choose(turn_input), self._build_context(turn, turn_input, questions)
            with guard_plugin():
                if turn_input.options.ask_first:
                    stream = self._ask_first(turn, agent, context)
                elif self._transcribe and any(map(turn_writes.list_sounds, turn_input.messages)):
                    stream = self._transcribe_first(turn, agent, context)
                else:
                    stream = _open_stream(agent, context, turn_input.compact)
        except Exception as exc:  # noqa: BLE001 any error of an agent is recorded as the end of its turn
            await self._write(turn, [], AgentExit(exc), turn_input.progress)
            return None
        pump = spawn_detached(self._pull_events(turn, mailbox, stream, watchdog))
        group.start_soon(watchdog.watch, mailbox, watch_scope)
        try:
            await self._follow_agent(turn, mailbox, watchdog, turn_input.progress)
        finally:
            # The end is recorded first; an agent that ignores cancellation is left alone.
            pump.cancel()
            watch_scope.cancel()
        return UntitledSession(agent, context) if turn_input.session.title_by is None else None

    async def _ask_first(
        self, turn: Turn, agent: Agent, context: TurnContext
    ) -> AsyncGenerator[AgentEvent, None]:
        """Run an agent after the owner has permitted the program to speak. Without a permission the agent never sees the
        message."""
        program, text = context.options.ask_first, "\n\n".join(m.text for m in context.turn_messages)
        question = build_speak_question(program, text)
        answer = await context.ask(question)
        if not find_consent(question, answer).allows:
            await self._run_unit(turn, "turn.withdraw", partial(turn_writes.withdraw_input, turn=turn))
            raise Forbidden(Phrase("turn.not_permitted", program=program))
        async with aclosing(agent.run(context)) as events:
            async for event in events:
                yield event

    async def _transcribe_first(
        self, turn: Turn, agent: Agent, context: TurnContext
    ) -> AsyncGenerator[AgentEvent, None]:
        """Run an agent after the sounds of its turn were transcribed. If that fails, the model sees a note, and the turn goes on."""
        messages: list[Message] = []
        async for item in self._transcribe_all(turn, context.turn_messages):
            if isinstance(item, Message):
                messages.append(item)
            else:
                yield item
        changed = msgspec.structs.replace(context, turn_messages=messages)
        async with aclosing(agent.run(changed)) as events:
            async for event in events:
                yield event

    async def _transcribe_all(
        self, turn: Turn, messages: Sequence[Message]
    ) -> AsyncGenerator[Message | NoticeEvent, None]:
        """Yield each message, with transcripts that are stored beside its sounds, and a notice for each sound that failed."""
        for message in messages:
            parts = list(message.parts)
            for n in turn_writes.list_sounds(message) if self._transcribe else ():
                sound = parts[n]
                assert isinstance(sound, Audio) and self._transcribe
                try:
                    body = await self._media.fetch_for_session(turn.session, sound.media)
                    text = await self._transcribe(body)
                except (AgentFailed, NotFound) as exc:
                    yield NoticeEvent(Phrase("turn.not_transcribed", reason=exc.text), WARNING_KIND)
                    continue
                parts[n] = msgspec.structs.replace(sound, transcript=text)
                work = partial(turn_writes.save_transcript, turn=turn, seq=message.seq, parts=tuple(parts))
                await self._run_unit(turn, "turn.transcript", work)
            yield msgspec.structs.replace(message, parts=tuple(parts))

    async def _refresh_authors(self, turn: Turn, work: Work[TurnAuthors]) -> TurnAuthors:
        """Load authors with their current roles, which they may have lost. Raise `Forbidden` if the platform does not
        answer."""
        if self._roles is None or not self._roles.enabled:
            return NO_AUTHORS
        authors = await self._run_unit(turn, "turn.authors", work, write=False)
        try:
            return {id_: await self._roles.refresh_roles(source) for id_, source in authors.items()}
        except Unavailable as exc:
            raise Forbidden(Phrase("turn.roles_unknown", reason=exc.text)) from exc

    async def _follow_agent(
        self, turn: Turn, mailbox: Mailbox, watchdog: Watchdog, progress: TurnProgress
    ) -> None:
        while True:
            taken = await mailbox.take()
            items = [i for i in taken if not isinstance(i, RestartCheck)]
            if len(items) < len(taken):
                await self._check_restart(turn)
            if not items:
                continue
            watchdog.reset()
            end = next((i for i in items if isinstance(i, TurnEnd)), None)
            # What comes after the end, such as a cancel, is not stored.
            stored = items if end is None else items[: items.index(end)]
            events = [i for i in stored if not isinstance(i, TurnEnd)]
            await self._write(turn, events, end, progress)
            progress = progress.advance(events)
            mailbox.mark_stored(len(events))
            if end is not None:
                return

    async def _check_restart(self, turn: Turn) -> None:
        """Raise `LeaseLost` if the turn was put back into the queue to begin again."""
        restarted = partial(turns.was_restarted, turn=turn)
        if await self._run_unit(turn, "turn.restarted", restarted, write=False):
            raise LeaseLost(f"turn {turn.id} begins again")

    async def _write(
        self, turn: Turn, events: list[RecordableEvent], end: TurnEnd | None, before: TurnProgress
    ) -> None:
        """Record new events of a turn, and its end if it has ended, in one unit of work."""
        label, work = self._choose_write(turn, events, end)
        again = partial(turn_writes.write_once, turn=turn, before=before, work=work)
        try:
            await self._run_unit(turn, label, work, again=again)
            reports.report_turn(turn, events, end, before, self._clock.now(), longest_hold=self._limits.hold)
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
                if isinstance(error, QuotaReached):
                    return "turn.hold", partial(
                        turn_writes.hold,
                        turn=turn,
                        events=events,
                        error=error,
                        longest=self._limits.hold,
                        zone=self._zone,
                    )
                if isinstance(error, AgentFailed | Forbidden):
                    text = error.text
                else:
                    log.error("the agent of turn %s raised", turn.id, exc_info=error)
                    text = Phrase("turn.agent_failed", kind=name_error(error))
                return "turn.fail", partial(
                    turn_writes.fail,
                    turn=turn,
                    events=events,
                    error=text,
                    refused=isinstance(error, AgentRefused),
                    may_retry=not isinstance(error, Forbidden),
                )
            case TurnTimeout(reason):
                return "turn.fail", partial(turn_writes.fail, turn=turn, events=events, error=reason)
            case CancelRequest():
                return "turn.cancel", partial(turn_writes.cancel, turn=turn, events=events)
            case HandBack():
                return "turn.hand_back", partial(turn_writes.hand_back, turn=turn, events=events)

    async def _pull_events(
        self,
        turn: Turn,
        mailbox: Mailbox,
        stream: AsyncGenerator[AgentEvent, None],
        watchdog: Watchdog,
    ) -> None:
        """Pull the agent's events. A tool step is stored before the agent is resumed. The end always is put, also if the
        agent has cancelled its own task."""
        meter = OutputMeter(self._limits)
        end = AgentExit(PluginExit("CancelledError"))
        try:
            with guard_plugin():
                async with aclosing(stream) as events:
                    async for event in events:
                        await self._await_files(turn)
                        # Not all events are stored.
                        watchdog.reset()
                        step = await self._store_attachment(turn, event)
                        for piece in meter.split(step):
                            await mailbox.put_event(piece, until_stored=isinstance(piece, _STEP_EVENTS))
                        if meter.end is not None:
                            await mailbox.put_event(meter.end, until_stored=False)
                            break
            await self._await_files(turn)
            end = AgentExit()
        except Exception as exc:  # noqa: BLE001 any error of an agent is recorded as the end of its turn
            await self._await_files(turn)
            end = AgentExit(exc)
        finally:
            mailbox.put(end)

    async def _await_files(self, turn: Turn) -> None:
        """Wait until the message of a turn is so old that no file which belongs to it is expected any more: once
        something of the answer is stored, a file is a turn of its own."""
        limits = self._limits
        if turn.surface != GATEWAY_SURFACE or turn.reply is None or not limits.gather:
            return
        if not self._has_separate_files(turn.reply.platform):
            return
        # The clock of the node that received the message may be ahead.
        rest = min(turn.created_at + limits.await_files - self._clock.now(), limits.await_files)
        if rest > timedelta(0):
            await self._clock.sleep(rest.total_seconds())

    async def _store_attachment(self, turn: Turn, event: AgentEvent) -> RecordableEvent:
        """Store the file of an event before the message that shows it. A file that is refused becomes a notice."""
        if not isinstance(event, FileEvent):
            return event
        attachment = Attachment(name=event.name, mime=event.mime, body=event.body)
        try:
            owner = Viewer(turn.profile, turn.owner)
            return StoredFile(await self._media.save(owner, attachment, session=turn.session))
        except (Invalid, Conflict) as exc:
            return NoticeEvent(Phrase("turn.file_left_out", reason=exc.text))

    def _build_context(self, turn: Turn, turn_input: TurnInput, questions: TurnQuestions) -> TurnContext:
        known = {m.seq for m in turn_input.messages}

        async def steer() -> Sequence[Message]:
            try:
                authors = await self._refresh_authors(
                    turn, partial(turn_writes.load_queued_authors, session=turn.session)
                )
            except Forbidden as exc:
                log.info("cannot steer turn %s now: %s", turn.id, exc)
                return ()
            work = partial(turn_writes.steer, turn=turn, rules=self._rules, authors=authors)
            again = partial(
                turn_writes.steer_idempotent,
                turn=turn,
                known=frozenset(known),
                rules=self._rules,
                authors=authors,
            )
            messages = await self._run_unit(turn, "turn.steer", work, again=again)
            known.update(m.seq for m in messages)
            return [m async for m in self._transcribe_all(turn, messages) if isinstance(m, Message)]

        return TurnContext(
            session=turn.session,
            turn=turn.id,
            attempt=turn.attempts,
            place="\n\n".join(filter(None, (self._place(turn_input, turn), turn_input.options.instructions))),
            turn_messages=turn_input.messages,
            history=partial(
                self._run_unit,
                turn,
                "turn.history",
                partial(epochs.load_model_view, session=turn.session),
                write=False,
            ),
            summary=turn_input.summary,
            shared=turn_input.shared,
            settings=(
                msgspec.structs.replace(turn_input.session.settings, model=turn.model)
                if turn.model
                else turn_input.session.settings
            ),
            cwd=self._folder(turn_input.session),
            zone=turn_input.zone or self._zone,
            show_ids=self._shows_ids(turn.profile, turn_input.session.settings),
            clock=self._clock,
            fetch_new_messages=steer,
            ask=questions.ask,
            fetch=partial(self._media.fetch_for_session, turn.session),
            may_compact=turn_input.may_compact,
            answered_keys=turn_input.answered,
            bindings=turn_input.bindings,
            profile=turn.profile,
            owner=turn.owner,
            asker=turn.asker,
            surface=turn.surface,
            options=turn_input.options,
        )

    async def _run_unit(
        self, turn: Turn, label: str, work: Work[T], *, again: Work[T] | None = None, write: bool = True
    ) -> T:
        """Run a unit of work for a turn. While the store is unavailable, retry for the duration of the lease.

        The commit may have succeeded although we lost the reply; retries run `again` instead."""
        deadline = self._clock.monotonic() + self._limits.lease.total_seconds()
        while True:
            try:
                return await (self._database.write if write else self._database.read)(label, work)
            except Retryable as exc:
                work = again or work
                if self._clock.monotonic() >= deadline:
                    raise LeaseLost(f"turn {turn.id}: the store was away for longer than the lease") from exc
                log.warning("a turn waits for the store: %s", exc, extra=logs.REPEATS)
                await self._clock.sleep(0.2)
