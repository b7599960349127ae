"""The agent for OpenAI-compatible models: asks the model, runs the tools it calls, and compacts long conversations."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from typing import Self, TypeAlias

import msgspec

from keryx.agents import tools
from keryx.agents.llm import Endpoint, Model, Models, estimate_tokens, history, parse_usage, summaries
from keryx.agents.llm.chat_client import ChatClient, ChatRequest, RetryPolicy, StreamedAnswer
from keryx.agents.llm.history import PromptContext
from keryx.agents.llm.provider_errors import ContextFull
from keryx.agents.tools import NoTools, Toolbox, ToolSpec
from keryx.core import clock
from keryx.core.cache import LruCache
from keryx.core.clock import to_micros
from keryx.core.compaction import CompactionPolicy
from keryx.core.errors import AgentFailed, ModelUnavailable, NotFound, QuotaReached
from keryx.core.ids import OPERATOR, SessionId
from keryx.core.messages import Audio, File, Image, Mark, Message, Parts, Role, ToolCall, ToolResult
from keryx.core.ports.agent import (
    WARNING_KIND,
    AgentEvent,
    CompactionEvent,
    CompactionFailedEvent,
    FileEvent,
    NoticeEvent,
    ReasoningDelta,
    ToolCallEvent,
    ToolResultEvent,
    TurnContext,
    UsageEvent,
)
from keryx.core.texts import Phrase
from keryx.core.turns import StopReason
from keryx.core.usage import Usage

_UNREAD_PHRASES = {Image: "turn.image_unread", File: "turn.file_unread", Audio: "turn.audio_unread"}
# How long a model that is down is passed over if it has a fallback.
_DOWN = timedelta(minutes=1)
_MAX_SESSIONS = 10_000
Events: TypeAlias = AsyncGenerator[AgentEvent, None]


class ModelAvailability:
    """Which models cannot answer now, and which model each session was told about. After a restart all are asked again."""

    def __init__(self) -> None:
        # When to ask a model again, and whether its provider has told that time.
        self._again: dict[str, tuple[datetime, bool]] = {}
        self._told: LruCache[SessionId, str] = LruCache(_MAX_SESSIONS)

    def choose(self, chain: Sequence[Model], now: datetime) -> Model:
        """Return the first model that may answer, the first of all if there is none."""
        return next(
            (m for m in chain if m.name not in self._again or self._again[m.name][0] <= now), chain[0]
        )

    def note_failure(self, model: Model, error: ModelUnavailable, now: datetime) -> None:
        quota = isinstance(error, QuotaReached)
        self._again[model.name] = (error.until, True) if quota else (now + _DOWN, False)

    def note_answer(self, model: Model, *, session: SessionId, first: bool) -> None:
        self._again.pop(model.name, None)
        if first:
            self._told.remove(session)

    def describe_fallback(self, first: Model, other: Model, context: TurnContext) -> Phrase | None:
        """Return the sentence that another model answers; `None` if the session was told so already."""
        if self._told.get(context.session) == other.name:
            return None
        self._told.put(context.session, other.name)
        names = {"name": repr(first.name), "other": repr(other.name)}
        until, is_known = self._again.get(first.name, (context.clock.now(), False))
        if not is_known:
            return Phrase("model.fallback", **names)
        time = clock.describe_moment(until, context.zone, now=context.clock.now())
        return Phrase("model.fallback_until", **names, time=time)


class LlmAgent:
    """Answers with the model that the session has chosen. Use it as a context manager, or call `aclose`."""

    def __init__(
        self,
        models: Models,
        *,
        toolbox: Toolbox | None = None,
        retry: RetryPolicy = RetryPolicy(),
        rounds: int = 50,
        silence: timedelta = timedelta(minutes=10),
        local: Callable[[], Awaitable[Endpoint]] | None = None,
        compaction: CompactionPolicy = CompactionPolicy(),
    ) -> None:
        self.models = models
        self._compaction = compaction
        self.chat = ChatClient(retry=retry, silence=silence, local=local)
        self._toolbox = toolbox or NoTools()
        self._rounds = rounds
        self._availability = ModelAvailability()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self.chat.aclose()

    async def run(self, context: TurnContext) -> Events:
        """Ask the model and run the tools that it calls, in rounds, until it has answered."""
        run = await self._start_run(context)
        for notice in run.describe_fallback():
            yield notice
        if context.attempt == 1:
            for warning in self._warn_unread(context, run.model):
                yield NoticeEvent(warning, WARNING_KIND)
        for warning in self._toolbox.warnings(context):
            yield NoticeEvent(warning, "tools")
        async with aclosing(run.compact_if_needed()) as events:
            async for event in events:
                yield event
        async with aclosing(run.resume_calls()) as events:
            async for event in events:
                yield event
        if run.done:
            return
        for number in range(1, self._rounds + 1):
            async with aclosing(run.run_round_compacting(number)) as events:
                async for event in events:
                    yield event
            if run.done:
                return
        raise AgentFailed(Phrase("model.rounds", count=str(self._rounds)))

    async def compact(self, context: TurnContext, focus: str) -> Events:
        """Summarise all but the last turn, or less if the turns are long. A compaction that was recorded before a crash
        is not repeated."""
        run = await self._start_run(context)
        first = run.find_cut()
        if first is None and not context.summary:
            raise AgentFailed(Phrase("model.nothing_to_compact"))
        if first is not None:
            async with aclosing(run.compact(first, focus)) as events:
                async for event in events:
                    yield event

    async def title(self, context: TurnContext, answer: str) -> tuple[str, Usage] | None:
        chain = self.models.list_chain(context.settings.model)
        model = self._availability.choose(chain, context.clock.now())
        return await summaries.write_title(self.chat, model, context, answer) if model.titles else None

    def _warn_unread(self, context: TurnContext, model: Model) -> list[Phrase]:
        """Say which media of this turn the model is not shown, and how to change that."""
        warnings: list[Phrase] = []
        for part in history.find_unread(context.turn_messages, model):
            kind = type(part).__name__.lower()
            setting = kind if kind == "audio" else f"{kind}s"
            if context.asker != OPERATOR:
                hint = Phrase("turn.unread_person")
            elif kind == "audio":
                hint = Phrase("turn.unread_operator_audio")
            else:
                variable = f"KERYX_LLM_{setting.upper()}"
                hint = Phrase("turn.unread_operator", setting=setting, variable=variable)
            warnings.append(Phrase(_UNREAD_PHRASES[type(part)], model=model.name, hint=hint))
        return warnings

    async def _start_run(self, context: TurnContext) -> "_TurnRun":
        chain = self.models.list_chain(context.settings.model)
        run = _TurnRun(
            self.chat,
            context,
            await context.history(),
            chain,
            self._availability,
            self._prepare,
            self._toolbox,
            self._compaction,
        )
        await run.use(self._availability.choose(chain, context.clock.now()))
        return run

    async def _prepare(
        self, context: TurnContext, model: Model, past: Sequence[Message], summary: str
    ) -> tuple[PromptContext, Sequence[ToolSpec]]:
        """Return what a model gets besides the messages, according to its abilities: media and tools."""
        specs = await self._toolbox.specs(context) if model.tools else ()
        if model.tools and context.options.tools:
            # A tool of the program that asks hides one of ours with the same name.
            theirs = {tool.name for tool in context.options.tools}
            specs = (
                *(spec for spec in specs if spec.name not in theirs),
                *(
                    ToolSpec(name=tool.name, description=tool.description, parameters=tool.parameters)
                    for tool in context.options.tools
                ),
            )
        data: dict[str, bytes] = {}
        for name in history.list_media(past, model):
            # The prompt says which media no longer exist.
            with suppress(NotFound):
                data[name] = (await context.fetch(name)).body
        prompt_context = PromptContext(
            model=model,
            system=context.place,
            summary=summary,
            zone=context.zone,
            show_ids=context.show_ids,
            shared=context.shared,
            tools=bool(specs),
            turn=context.turn,
            data=data,
        )
        return prompt_context, specs


PrepareModel: TypeAlias = Callable[
    [TurnContext, Model, Sequence[Message], str], Awaitable[tuple[PromptContext, Sequence[ToolSpec]]]
]


class _TurnRun:
    """One attempt at one turn, with the conversation as it grows."""

    def __init__(
        self,
        chat: ChatClient,
        context: TurnContext,
        past: Sequence[Message],
        chain: Sequence[Model],
        availability: ModelAvailability,
        prepare: PrepareModel,
        toolbox: Toolbox,
        policy: CompactionPolicy,
    ) -> None:
        self._policy = policy
        self._compacted = False
        self._chat = chat
        self._context = context
        # The model of the session and its fallbacks, and what went wrong with those that were asked.
        self._chain = chain
        self._failures: dict[str, ModelUnavailable] = {}
        self._availability = availability
        self._prepare = prepare
        self._prompt_context = PromptContext(model=chain[0], summary=context.summary)
        self._specs: Sequence[ToolSpec] = ()
        self._toolbox = toolbox
        # The tools that the program runs that asks.
        self._client_tools = {tool.name for tool in context.options.tools}
        self._messages = list(past)
        self._used_ids = {c.id for m in past for c in m.calls}
        self.done = False

    @property
    def model(self) -> Model:
        return self._prompt_context.model

    async def use(self, model: Model) -> None:
        """Answer with this model from now on."""
        self._prompt_context, self._specs = await self._prepare(
            self._context, model, self._messages, self._prompt_context.summary
        )

    def describe_fallback(self) -> list[NoticeEvent]:
        """Return the notice that a fallback answers, if the session was not told yet."""
        if self.model is self._chain[0]:
            return []
        text = self._availability.describe_fallback(self._chain[0], self.model, self._context)
        return [NoticeEvent(text, WARNING_KIND)] if text else []

    async def _switch(self, error: ModelUnavailable, *, shown: bool) -> list[NoticeEvent]:
        """Let the next fallback answer, and return what to tell. Raise if there is none or a part of the answer was shown:
        the error that says when to go on, if there is one."""
        self._failures[self.model.name] = error
        self._availability.note_failure(self.model, error, self._context.clock.now())
        rest = [m for m in self._chain if m.name not in self._failures]
        if shown or not rest:
            resets = [e for e in self._failures.values() if isinstance(e, QuotaReached)]
            raise min(resets, key=lambda e: e.until, default=error)
        await self.use(rest[0])
        return self.describe_fallback()

    def find_cut(self) -> int | None:
        """Return where a requested compaction cuts: it keeps half of the conversation, or less if the policy says so."""
        half = sum(summaries.estimate_size(m) for m in self._messages) // 2
        return summaries.find_cut(
            self._messages,
            limit=min(half, summaries.compute_room(self._prompt_context.model, self._policy.keep)),
        )

    async def compact_if_needed(self) -> Events:
        """Compact the conversation if it is too long. A failure is reported, and the turn continues."""
        if not self._context.may_compact:
            return
        tokens = estimate_tokens(history.build(self._messages, self._prompt_context))
        if not self._policy.is_due(tokens, self._prompt_context.model.context):
            return
        async with aclosing(self._try_compact()) as events:
            async for event in events:
                yield event

    async def run_round_compacting(self, number: int) -> Events:
        """Run one round. If the provider says that the conversation is too long, compact it once and retry."""
        try:
            async with aclosing(self.run_round(number)) as events:
                async for event in events:
                    yield event
            return
        except ContextFull:
            if self._compacted or not self._context.may_compact:
                raise
            async with aclosing(self._try_compact()) as events:
                async for event in events:
                    yield event
            if not self._compacted:
                raise
        async with aclosing(self.run_round(number)) as events:
            async for event in events:
                yield event

    async def _try_compact(self) -> Events:
        first = summaries.find_cut(
            self._messages, limit=summaries.compute_room(self._prompt_context.model, self._policy.keep)
        )
        if first is None:
            return
        try:
            async with aclosing(self.compact(first)) as events:
                async for event in events:
                    yield event
        except AgentFailed as exc:
            yield CompactionFailedEvent(exc.text, self._policy.tell)

    async def compact(self, first: int, focus: str = "") -> Events:
        """Replace everything before message `first` by a summary."""
        at = next(n for n, m in enumerate(self._messages) if m.seq == first and m.role is Role.USER)
        old, kept = self._messages[:at], self._messages[at:]
        compacted = False
        while not compacted:
            try:
                async with aclosing(self._summarize(old, first, focus)) as events:
                    async for event in events:
                        yield event
                compacted = True
            except ModelUnavailable as exc:
                for notice in await self._switch(exc, shown=False):
                    yield notice
        self._messages = kept
        self._compacted = True

    async def _summarize(self, old: Sequence[Message], first: int, focus: str) -> Events:
        summary = summaries.summarize(
            self._chat, old, self._prompt_context, self._context.clock, first=first, focus=focus
        )
        async with aclosing(summary) as events:
            async for event in events:
                if isinstance(event, CompactionEvent):
                    event = msgspec.structs.replace(event, tell=self._policy.tell)
                yield event
                if isinstance(event, CompactionEvent):
                    self._prompt_context = msgspec.structs.replace(
                        self._prompt_context, summary=event.summary
                    )

    async def resume_calls(self) -> Events:
        """Run the calls at the end of the history that an interrupted attempt at this turn has left without a result:
        those that are repeatable, and those that had not started because they waited for a permission."""
        placeholder = self._messages[-1] if self._messages else None
        if placeholder is None or placeholder.role is not Role.TOOL or placeholder.turn != self._context.turn:
            return
        if placeholder.mark is not Mark.INTERRUPTED:
            return
        results = [p for p in placeholder.parts if isinstance(p, ToolResult)]
        step = next((m for m in reversed(self._messages) if m.role is Role.ASSISTANT), None)
        open_calls = [c for c in step.calls if c.id in {r.id for r in results}] if step else []
        if any(c.name in self._client_tools for c in open_calls):
            # The turn was interrupted when it was as good as done.
            self.done = True
            return
        answered = self._context.answered_keys
        calls = [c for c in open_calls if c.repeatable or (c.asks and c.id not in answered)]
        if not calls:
            return
        self._messages.pop()
        if kept := tuple(r for r in results if r.id not in {c.id for c in calls}):
            self._messages.append(msgspec.structs.replace(placeholder, parts=kept))
        async with aclosing(self._run_calls(calls)) as events:
            async for event in events:
                yield event

    async def run_round(self, number: int) -> Events:
        """Stream one answer of the model and run the tools that it calls."""
        answer = StreamedAnswer(self.model)
        async with aclosing(self._stream_answer(answer)) as events:
            async for event in events:
                yield event
        self._availability.note_answer(
            self.model, session=self._context.session, first=self.model is self._chain[0]
        )
        prefix = f"{self._context.turn}-{self._context.attempt}-{number}"
        specs = {s.name: s for s in self._specs}
        calls = answer.build_calls(specs, prefix=prefix, used_ids=self._used_ids)
        self._append(Role.ASSISTANT, answer.build_parts(calls))
        if not calls:
            if answer.truncated:
                yield NoticeEvent(Phrase("model.length"), StopReason.LENGTH)
            self.done = True
            return
        yield ToolCallEvent(calls)
        own = [call for call in calls if call.name not in self._client_tools]
        async with aclosing(self._run_calls(own)) as events:
            async for event in events:
                yield event
        if len(own) < len(calls):
            # The program that asks runs the others, and sends the results with the next turn.
            self.done = True
            return
        self._messages += await self._context.fetch_new_messages()

    async def _stream_answer(self, answer: StreamedAnswer) -> Events:
        """Stream the answer of the model, or of a fallback if nothing of it was shown."""
        while True:
            try:
                async with aclosing(self._stream_from_model(answer)) as events:
                    async for event in events:
                        yield event
                return
            except ModelUnavailable as exc:
                for notice in await self._switch(exc, shown=answer.has_text):
                    yield notice
                answer.switch_model(self.model)

    async def _stream_from_model(self, answer: StreamedAnswer) -> Events:
        model = self.model
        messages = history.build(self._messages, self._prompt_context)
        request = ChatRequest(
            model=model,
            messages=messages,
            tools=self._specs,
            effort=self._context.settings.effort,
            parameters=self._context.options.parameters,
            allow_empty=self._has_answered,
            replaceable=any(m.name not in self._failures and m is not model for m in self._chain),
        )
        async with aclosing(self._chat.stream(request, answer, self._context.clock)) as events:
            async for event in events:
                yield event
        if answer.opaque:
            yield ReasoningDelta("", answer.opaque)
        yield UsageEvent(parse_usage(answer.usage, model, messages))

    async def _run_calls(self, calls: Sequence[ToolCall]) -> Events:
        """Run the calls of a step. Their files follow after all results, because nothing may come between a call and
        its result."""
        files: list[FileEvent] = []
        async with aclosing(tools.run_calls(self._toolbox, calls, self._specs, self._context)) as completed:
            async for call in completed:
                self._append(Role.TOOL, (call.result,))
                files += call.files
                yield ToolResultEvent(call.result)
        for file in files:
            yield file

    @property
    def _has_answered(self) -> bool:
        own = (m for m in self._messages if m.turn == self._context.turn and m.role is Role.ASSISTANT)
        return any(m.text.strip() and m.mark is None for m in own)

    def _append(self, role: Role, parts: Parts) -> None:
        context, last = self._context, self._messages[-1] if self._messages else None
        self._messages.append(
            Message(
                session=context.session,
                seq=last.seq + 1 if last else 1,
                role=role,
                parts=parts,
                micros=to_micros(context.clock.now()),
                turn=context.turn,
            )
        )
