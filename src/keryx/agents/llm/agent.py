"""The agent for OpenAI-compatible models: asks the model, runs the tools it calls, and compacts long conversations."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import Self, TypeAlias

import msgspec

from keryx.agents import tools
from keryx.agents.llm import Endpoint, Models, estimate_tokens, history, parse_usage, summaries
from keryx.agents.llm.chat_client import ChatClient, ChatRequest, RetryPolicy, StreamedAnswer
from keryx.agents.llm.history import PromptContext
from keryx.agents.llm.provider_errors import ContextFull
from keryx.agents.tools import NoTools, Toolbox, ToolSpec
from keryx.core.clock import to_micros
from keryx.core.compaction import CompactionPolicy
from keryx.core.errors import AgentFailed, NotFound
from keryx.core.ids import OPERATOR
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
Events: TypeAlias = AsyncGenerator[AgentEvent, None]


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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self.chat.aclose()

    async def run(self, context: TurnContext) -> Events:
        """Ask the model and run the tools that it calls, in rounds, until it has answered."""
        run = await self._start_run(context)
        if context.attempt == 1:
            for warning in self._warn_unread(context):
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
        model = self.models.pick(context.settings.model)
        return await summaries.write_title(self.chat, model, context, answer) if model.titles else None

    def _warn_unread(self, context: TurnContext) -> list[Phrase]:
        """Say which media of this turn the model is not shown, and how to change that."""
        model = self.models.pick(context.settings.model)
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
        model = self.models.pick(context.settings.model)
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
        past = await context.history()
        data: dict[str, bytes] = {}
        for name in history.list_media(past, model):
            # The prompt says which media no longer exist.
            with suppress(NotFound):
                data[name] = (await context.fetch(name)).body
        prompt_context = PromptContext(
            model=model,
            system=context.place,
            summary=context.summary,
            zone=context.zone,
            show_ids=context.show_ids,
            shared=context.shared,
            tools=bool(specs),
            turn=context.turn,
            data=data,
        )
        return _TurnRun(self.chat, context, past, prompt_context, self._toolbox, specs, self._compaction)


class _TurnRun:
    """One attempt at one turn, with the conversation as it grows."""

    def __init__(
        self,
        chat: ChatClient,
        context: TurnContext,
        past: Sequence[Message],
        prompt_context: PromptContext,
        toolbox: Toolbox,
        specs: Sequence[ToolSpec],
        policy: CompactionPolicy,
    ) -> None:
        self._policy = policy
        self._compacted = False
        self._chat = chat
        self._context = context
        self._prompt_context = prompt_context
        self._toolbox = toolbox
        self._specs = specs
        self._specs_by_name = {s.name: s for s in specs}
        # The tools that the program runs that asks.
        self._client_tools = {tool.name for tool in context.options.tools}
        self._messages = list(past)
        self._used_ids = {c.id for m in past for c in m.calls}
        self.done = False

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
        self._messages = kept
        self._compacted = True

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
        answer = StreamedAnswer(self._prompt_context.model)
        async with aclosing(self._stream_answer(answer)) as events:
            async for event in events:
                yield event
        prefix = f"{self._context.turn}-{self._context.attempt}-{number}"
        calls = answer.build_calls(self._specs_by_name, prefix=prefix, used_ids=self._used_ids)
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
        model = self._prompt_context.model
        messages = history.build(self._messages, self._prompt_context)
        request = ChatRequest(
            model=model,
            messages=messages,
            tools=self._specs,
            effort=self._context.settings.effort,
            parameters=self._context.options.parameters,
            allow_empty=self._has_answered,
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
