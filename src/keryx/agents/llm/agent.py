"""The agent for OpenAI-compatible models: asks the model, runs the tools it calls, and compacts long conversations."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Self, TypeAlias

import msgspec

from keryx.agents import tools
from keryx.agents.llm import history, models, summaries
from keryx.agents.llm.chat_client import ChatClient, ChatRequest, RetryPolicy, StreamedAnswer
from keryx.agents.llm.history import PromptContext
from keryx.agents.llm.models import Endpoint, Model, Models
from keryx.agents.llm.provider_errors import ContextFull
from keryx.agents.tools import NoTools, Toolbox, ToolSpec
from keryx.core.clock import to_micros
from keryx.core.compaction import CompactionPolicy
from keryx.core.errors import AgentFailed, NotFound
from keryx.core.messages import Mark, Message, Parts, Role, ToolCall, ToolResult
from keryx.core.ports.agent import (
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
from keryx.core.turns import StopReason
from keryx.core.usage import Usage

_LENGTH_NOTICE = (
    "The answer ends here: it has reached the length that the model may write. Say “go on” for the rest."
)
Events: TypeAlias = AsyncGenerator[AgentEvent, None]


class LlmAgent:
    """Answers with the model that the session has chosen. Use it as a context manager, or `aclose` it, so that
    its connections are closed."""

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
        """Ask, run the tools that the model calls, and ask again, until it has answered."""
        work = await self._start_run(context)
        for trouble in self._toolbox.warnings(context):
            yield NoticeEvent(trouble, "tools")
        async with aclosing(work.compact_if_needed()) as events:
            async for event in events:
                yield event
        async with aclosing(work.resume_calls()) as events:
            async for event in events:
                yield event
        for number in range(1, self._rounds + 1):
            async with aclosing(work.run_round_compacting(number)) as events:
                async for event in events:
                    yield event
            if work.done:
                return
        raise AgentFailed(
            f"The agent used tools {self._rounds} times without an answer; say “go on” to let it continue."
        )

    async def compact(self, context: TurnContext, focus: str) -> Events:
        """Summarise all but the last turn, or fewer where these are long. A compaction that was recorded before a
        crash is not made again."""
        work = await self._start_run(context)
        first = work.find_cut()
        if first is None and not context.summary:
            raise AgentFailed(summaries.NOTHING_TO_COMPACT)
        if first is not None:
            async with aclosing(work.compact(first, focus)) as events:
                async for event in events:
                    yield event

    async def title(self, context: TurnContext, answer: str) -> tuple[str, Usage] | None:
        model = self.models.pick(context.settings.model)
        return await summaries.write_title(self.chat, model, context, answer) if model.titles else None

    async def _start_run(self, context: TurnContext) -> "_TurnRun":
        model = self.models.pick(context.settings.model)
        specs = await self._toolbox.specs(context) if model.tools else ()
        past = await context.history()
        scene = PromptContext(
            model=model,
            system=context.place,
            summary=context.summary,
            shared=context.shared,
            tools=bool(specs),
            turn=context.turn,
            data=await _load_media(context, past, model),
        )
        return _TurnRun(self.chat, context, past, scene, self._toolbox, specs, self._compaction)


async def _load_media(context: TurnContext, past: Sequence[Message], model: Model) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in history.list_media(past, model):
        try:
            found[name] = (await context.fetch(name)).body
        except NotFound:
            continue  # The prompt says so in its place.
    return found


class _TurnRun:
    """One run of one turn: the conversation as it grows, round by round."""

    def __init__(
        self,
        chat: ChatClient,
        context: TurnContext,
        past: Sequence[Message],
        scene: PromptContext,
        toolbox: Toolbox,
        specs: Sequence[ToolSpec],
        rule: CompactionPolicy,
    ) -> None:
        self._policy = rule
        self._compacted = False
        self._chat = chat
        self._context = context
        self._scene = scene
        self._toolbox = toolbox
        self._specs = specs
        self._known = {s.name: s for s in specs}
        self._messages = list(past)
        self._taken = {c.id for m in past for c in m.calls}
        self.done = False

    def find_cut(self) -> int | None:
        """Where a compaction that somebody asked for would cut: half of the conversation stays, or what may be kept if
        that is less."""
        half = sum(summaries.estimate_size(m) for m in self._messages) // 2
        return summaries.find_cut(
            self._messages, most=min(half, summaries.compute_room(self._scene.model, self._policy.keep))
        )

    async def compact_if_needed(self) -> Events:
        """Compact the conversation if it has grown too long. A failure is told and changes nothing else."""
        if not self._context.may_compact:
            return
        tokens = models.estimate_tokens(history.build(self._messages, self._scene))
        if not self._policy.is_due(tokens, self._scene.model.context):
            return
        async with aclosing(self._try_compact()) as events:
            async for event in events:
                yield event

    async def run_round_compacting(self, number: int) -> Events:
        """One round. When the provider says that the conversation is too long, it is compacted once, and asked again."""
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
            self._messages, most=summaries.compute_room(self._scene.model, self._policy.keep)
        )
        if first is None:
            return
        try:
            async with aclosing(self.compact(first)) as events:
                async for event in events:
                    yield event
        except AgentFailed as exc:
            yield CompactionFailedEvent(str(exc), self._policy.tell)

    async def compact(self, first: int, focus: str = "") -> Events:
        """Let a summary stand for everything before a message, here and in the record."""
        at = next(n for n, m in enumerate(self._messages) if m.seq == first and m.role is Role.USER)
        old, kept = self._messages[:at], self._messages[at:]
        work = summaries.summarize(
            self._chat, old, self._scene, self._context.clock, first=first, focus=focus
        )
        async with aclosing(work) as events:
            async for event in events:
                if isinstance(event, CompactionEvent):
                    event = msgspec.structs.replace(event, tell=self._policy.tell)
                yield event
                if isinstance(event, CompactionEvent):
                    self._scene = msgspec.structs.replace(self._scene, summary=event.summary)
        self._messages = kept
        self._compacted = True

    async def resume_calls(self) -> Events:
        """Run what an interrupted attempt had begun and may be repeated, or had not begun."""
        calls = _find_open_calls(self._messages, self._context)
        if calls:
            placeholder = self._messages.pop()
            kept = tuple(
                p
                for p in placeholder.parts
                if isinstance(p, ToolResult) and p.id not in {c.id for c in calls}
            )
            if kept:
                self._messages.append(msgspec.structs.replace(placeholder, parts=kept))
            async with aclosing(self._run_calls(calls)) as events:
                async for event in events:
                    yield event

    async def run_round(self, number: int) -> Events:
        """One answer of the model, and the tools it calls."""
        answer = StreamedAnswer(self._scene.model)
        async with aclosing(self._stream_answer(answer)) as events:
            async for event in events:
                yield event
        prefix = f"{self._context.turn}-{self._context.attempt}-{number}"
        calls = answer.build_calls(self._known, prefix=prefix, taken=self._taken)
        self._append(Role.ASSISTANT, answer.build_parts(calls))
        if not calls:
            if answer.truncated:
                yield NoticeEvent(_LENGTH_NOTICE, StopReason.LENGTH)
            self.done = True
            return
        yield ToolCallEvent(calls)
        async with aclosing(self._run_calls(calls)) as events:
            async for event in events:
                yield event
        self._messages += await self._context.fetch_new_messages()

    async def _stream_answer(self, answer: StreamedAnswer) -> Events:
        model = self._scene.model
        messages = history.build(self._messages, self._scene)
        request = ChatRequest(
            model=model,
            messages=messages,
            tools=self._specs,
            effort=self._context.settings.effort,
            allow_empty=self._has_answered,
        )
        async with aclosing(self._chat.stream(request, answer, self._context.clock)) as events:
            async for event in events:
                yield event
        if answer.opaque:
            yield ReasoningDelta("", answer.opaque)
        yield UsageEvent(models.parse_usage(answer.usage, model, messages))

    async def _run_calls(self, calls: Sequence[ToolCall]) -> Events:
        """Run the calls of a step. What they have for the person follows when all have answered, so that nothing
        stands between a call and its result."""
        attached: list[FileEvent] = []
        async with aclosing(tools.run_calls(self._toolbox, calls, self._specs, self._context)) as done:
            async for finished in done:
                self._append(Role.TOOL, (finished.result,))
                attached += finished.files
                yield ToolResultEvent(finished.result)
        for file in attached:
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


def _find_open_calls(messages: Sequence[Message], context: TurnContext) -> list[ToolCall]:
    """The calls of this turn that never answered, at the end of its history, and may be run: those that can be
    repeated, and those that had not begun because they still waited for a permission."""
    if not messages or messages[-1].role is not Role.TOOL or messages[-1].turn != context.turn:
        return []
    if messages[-1].mark is not Mark.INTERRUPTED:
        return []
    unanswered = {p.id for p in messages[-1].parts if isinstance(p, ToolResult)}
    step = next((m for m in reversed(messages) if m.role is Role.ASSISTANT), None)
    may = [c for c in step.calls if c.repeatable or _is_unstarted(c, context)] if step else []
    return [c for c in may if c.id in unanswered]


def _is_unstarted(call: ToolCall, context: TurnContext) -> bool:
    """Whether a call is known not to have begun: it had to ask, and never learned what it may."""
    return call.asks and call.id not in context.answered_keys
