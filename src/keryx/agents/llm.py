"""LLM: an agent on any OpenAI-compatible chat-completions endpoint, with tools."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Self, TypeAlias

import msgspec

from keryx.agents import compaction, history, media, titling, tools, usage
from keryx.agents.answer import Answer
from keryx.agents.chat import Chat, Request
from keryx.agents.failures import ContextFull
from keryx.agents.history import Scene
from keryx.agents.models import Endpoint, Model, Models
from keryx.agents.retry import Retry
from keryx.agents.tools import NoTools, Spec, Toolbox
from keryx.core.compaction import Compaction
from keryx.core.errors import AgentFailed, NotFound
from keryx.core.messages import Mark, Message, Parts, Role, ToolCall, ToolResult
from keryx.core.moments import micros
from keryx.core.ports import (
    Attached,
    Called,
    Compacted,
    Event,
    NotCompacted,
    Noted,
    Returned,
    Thought,
    TurnContext,
    Used,
)
from keryx.core.turns import Ending, Usage

_TOO_LONG = (
    "The answer ends here: it has reached the length that the model may write. Say “go on” for the rest."
)
Events: TypeAlias = AsyncGenerator[Event, None]


class LlmAgent:
    """Answers with the model that the session has chosen. Use it as a context manager, or `aclose` it, so that
    its connections are closed."""

    def __init__(
        self,
        models: Models,
        *,
        toolbox: Toolbox | None = None,
        retry: Retry = Retry(),
        rounds: int = 50,
        silence: timedelta = timedelta(minutes=10),
        local: Callable[[], Awaitable[Endpoint]] | None = None,
        compaction: Compaction = Compaction(),
    ) -> None:
        self.models = models
        self._compaction = compaction
        self.chat = Chat(retry=retry, silence=silence, local=local)
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
        work = await self._work(context)
        for trouble in self._toolbox.troubles(context):
            yield Noted(trouble, "tools")
        async with aclosing(work.make_room()) as events:
            async for event in events:
                yield event
        async with aclosing(work.take_up()) as events:
            async for event in events:
                yield event
        for number in range(1, self._rounds + 1):
            async with aclosing(work.fitting_round(number)) as events:
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
        work = await self._work(context)
        first = work.cut()
        if first is None and not context.summary:
            raise AgentFailed(compaction.NOTHING)
        if first is not None:
            async with aclosing(work.compact(first, focus)) as events:
                async for event in events:
                    yield event

    async def title(self, context: TurnContext, answer: str) -> tuple[str, Usage] | None:
        model = self.models.pick(context.settings.model)
        return await titling.title(self.chat, model, context, answer) if model.titles else None

    async def _work(self, context: TurnContext) -> "_Work":
        model = self.models.pick(context.settings.model)
        specs = await self._toolbox.specs(context) if model.tools else ()
        past = await context.history()
        scene = Scene(
            model=model,
            system=context.place,
            summary=context.summary,
            shared=context.shared,
            tools=bool(specs),
            turn=context.turn,
            data=await _data(context, past, model),
        )
        return _Work(self.chat, context, past, scene, self._toolbox, specs, self._compaction)


async def _data(context: TurnContext, past: Sequence[Message], model: Model) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in media.wanted(past, model):
        try:
            found[name] = (await context.fetch(name)).body
        except NotFound:
            continue  # The prompt says so in its place.
    return found


class _Work:
    """One run of one turn: the conversation as it grows, round by round."""

    def __init__(
        self,
        chat: Chat,
        context: TurnContext,
        past: Sequence[Message],
        scene: Scene,
        toolbox: Toolbox,
        specs: Sequence[Spec],
        rule: Compaction,
    ) -> None:
        self._rule = rule
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

    def cut(self) -> int | None:
        """Where a compaction that somebody asked for would cut: half of the conversation stays, or what may be kept if
        that is less."""
        half = sum(compaction.size(m) for m in self._messages) // 2
        return compaction.cut(
            self._messages, most=min(half, compaction.room(self._scene.model, self._rule.keep))
        )

    async def make_room(self) -> Events:
        """Compact the conversation if it has grown too long. A failure is told and changes nothing else."""
        if not self._context.may_compact:
            return
        tokens = usage.estimate(history.build(self._messages, self._scene))
        if not self._rule.due(tokens, self._scene.model.context):
            return
        async with aclosing(self._shorten()) as events:
            async for event in events:
                yield event

    async def fitting_round(self, number: int) -> Events:
        """One round. When the provider says that the conversation is too long, it is compacted once, and asked again."""
        try:
            async with aclosing(self.round(number)) as events:
                async for event in events:
                    yield event
            return
        except ContextFull:
            if self._compacted or not self._context.may_compact:
                raise
            async with aclosing(self._shorten()) as events:
                async for event in events:
                    yield event
            if not self._compacted:
                raise
        async with aclosing(self.round(number)) as events:
            async for event in events:
                yield event

    async def _shorten(self) -> Events:
        first = compaction.cut(self._messages, most=compaction.room(self._scene.model, self._rule.keep))
        if first is None:
            return
        try:
            async with aclosing(self.compact(first)) as events:
                async for event in events:
                    yield event
        except AgentFailed as exc:
            yield NotCompacted(str(exc), self._rule.tell)

    async def compact(self, first: int, focus: str = "") -> Events:
        """Let a summary stand for everything before a message, here and in the record."""
        at = next(n for n, m in enumerate(self._messages) if m.seq == first and m.role is Role.USER)
        old, kept = self._messages[:at], self._messages[at:]
        work = compaction.run(self._chat, old, self._scene, self._context.clock, first=first, focus=focus)
        async with aclosing(work) as events:
            async for event in events:
                if isinstance(event, Compacted):
                    event = msgspec.structs.replace(event, tell=self._rule.tell)
                yield event
                if isinstance(event, Compacted):
                    self._scene = msgspec.structs.replace(self._scene, summary=event.summary)
        self._messages = kept
        self._compacted = True

    async def take_up(self) -> Events:
        """Run what an interrupted attempt had begun and may be repeated, or had not begun."""
        calls = _open(self._messages, self._context)
        if calls:
            placeholder = self._messages.pop()
            kept = tuple(
                p
                for p in placeholder.parts
                if isinstance(p, ToolResult) and p.id not in {c.id for c in calls}
            )
            if kept:
                self._messages.append(msgspec.structs.replace(placeholder, parts=kept))
            async with aclosing(self._run(calls)) as events:
                async for event in events:
                    yield event

    async def round(self, number: int) -> Events:
        """One answer of the model, and the tools it calls."""
        answer = Answer(self._scene.model)
        async with aclosing(self._ask(answer)) as events:
            async for event in events:
                yield event
        prefix = f"{self._context.turn}-{self._context.attempt}-{number}"
        calls = answer.calls(self._known, prefix=prefix, taken=self._taken)
        self._append(Role.ASSISTANT, answer.parts(calls))
        if not calls:
            if answer.cut:
                yield Noted(_TOO_LONG, Ending.LENGTH)
            self.done = True
            return
        yield Called(calls)
        async with aclosing(self._run(calls)) as events:
            async for event in events:
                yield event
        self._messages += await self._context.steer()

    async def _ask(self, answer: Answer) -> Events:
        model = self._scene.model
        messages = history.build(self._messages, self._scene)
        request = Request(
            model=model,
            messages=messages,
            tools=self._specs,
            effort=self._context.settings.effort,
            quiet=self._spoke,
        )
        async with aclosing(self._chat.stream(request, answer, self._context.clock)) as events:
            async for event in events:
                yield event
        if answer.opaque:
            yield Thought("", answer.opaque)
        yield Used(usage.of(answer.usage, model, messages))

    async def _run(self, calls: Sequence[ToolCall]) -> Events:
        """Run the calls of a step. What they have for the person follows when all have answered, so that nothing
        stands between a call and its result."""
        attached: list[Attached] = []
        async with aclosing(tools.run(self._toolbox, calls, self._specs, self._context)) as done:
            async for finished in done:
                self._append(Role.TOOL, (finished.result,))
                attached += finished.attached
                yield Returned(finished.result)
        for file in attached:
            yield file

    @property
    def _spoke(self) -> bool:
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
                micros=micros(context.clock.now()),
                turn=context.turn,
            )
        )


def _open(messages: Sequence[Message], context: TurnContext) -> list[ToolCall]:
    """The calls of this turn that never answered, at the end of its history, and may be run: those that can be
    repeated, and those that had not begun because they still waited for a permission."""
    if not messages or messages[-1].role is not Role.TOOL or messages[-1].turn != context.turn:
        return []
    if messages[-1].mark is not Mark.INTERRUPTED:
        return []
    unanswered = {p.id for p in messages[-1].parts if isinstance(p, ToolResult)}
    step = next((m for m in reversed(messages) if m.role is Role.ASSISTANT), None)
    may = [c for c in step.calls if c.repeatable or _unbegun(c, context)] if step else []
    return [c for c in may if c.id in unanswered]


def _unbegun(call: ToolCall, context: TurnContext) -> bool:
    """Whether a call is known not to have begun: it had to ask, and never learned what it may."""
    return call.asks and call.id not in context.answered
