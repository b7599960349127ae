"""Fakes for the ports: an adapter and an adapter context that record calls, an agent that plays a script, and a clock that a test
advances. With the fault injection they are what tests of Keryx, its adapters and its agents use.

`keryx.testing.contracts` has the contract suites (with pytest), and `keryx.testing.wire` what fakes of platforms are built on.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import msgspec

from keryx.core.deliveries import Idempotency, Target
from keryx.core.errors import Invalid, MessageGone, SendError
from keryx.core.media import Attachment
from keryx.core.messages import Audio, File, Image, Message
from keryx.core.ports.adapter import (
    AdapterContext,
    Capabilities,
    InboundDeletion,
    InboundEvent,
    InboundFailure,
    InboundMessage,
    InboundReaction,
    LinkState,
    MenuItem,
    OutgoingPart,
    Receipt,
    RenderedPart,
)
from keryx.core.ports.agent import AgentEvent, LoadHistory, TurnContext
from keryx.core.source import Source
from keryx.core.texts import NO_CHANGES
from keryx.testing.fault_injection import CrashingDatabase, DatabaseFault, FaultTiming, PlatformFaults

__all__ = [
    "ODD_TEXTS",
    "START_TIME",
    "CrashingDatabase",
    "DatabaseFault",
    "FakeClock",
    "FaultTiming",
    "PlatformFaults",
    "RecordingAdapter",
    "RecordingAdapterContext",
    "ScriptedAgent",
]

START_TIME = datetime(2026, 3, 1, 12, tzinfo=UTC)

# Text that platforms really send: NUL, lone surrogates, right-to-left, emoji sequences, JSON and SQL.
ODD_TEXTS = (
    "nul \x00 and \x01 and \x7f",
    "lone \ud83d surrogates \udc00",
    "\u202eשלום عليكم\u202c",
    "👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 ﷽",
    '"quoted" \\u0000 \\ud800 {"a": [1]} :name %s %(x)s \'; drop table sessions; --',
    " \r\n\t\u2028\u2029\ufeff ",
)


class RecordingAdapter:
    """An adapter that records what it sends."""

    account = ""
    hook = None

    def __init__(
        self,
        platform: str = "fake",
        *,
        capabilities: Capabilities = Capabilities(threads=True),
        limit: int = 0,
    ) -> None:
        self.platform = platform
        self.capabilities = capabilities
        # The parts that the platform shows, in order; once per key if it has native idempotency.
        self.sent_parts: list[OutgoingPart] = []
        # Raised by the next sends, before or after the part was accepted.
        self.errors_before: list[SendError] = []
        self.errors_after: list[SendError] = []
        self._limit = limit
        self._sent = asyncio.Condition()
        self.typing_targets: list[Target] = []

    @property
    def texts(self) -> list[str]:
        """What a person reads, with the mark of a repetition."""
        return [p.mark + p.text for p in self.sent_parts]

    async def listen(self, context: AdapterContext, /) -> None:
        context.report(LinkState.CONNECTED)
        await asyncio.Event().wait()

    async def typing(self, target: Target) -> None:
        self.typing_targets.append(target)

    def parts(self, text: str) -> Sequence[RenderedPart]:
        size = self._limit or len(text) or 1
        return [RenderedPart(text[i : i + size]) for i in range(0, len(text) or 1, size)]

    async def send(self, part: OutgoingPart, /) -> str:
        if self.errors_before:
            raise self.errors_before.pop(0)
        if part.edits:
            return await self._edit(part)
        known = [n for n, p in enumerate(self.sent_parts) if p.key == part.key]
        if not known or self.capabilities.idempotency is not Idempotency.NATIVE:
            self.sent_parts.append(part)
            async with self._sent:
                self._sent.notify_all()
        if self.errors_after:
            raise self.errors_after.pop(0)
        return f"{self.platform}-{known[0] if known else len(self.sent_parts) - 1}"

    async def _edit(self, part: OutgoingPart) -> str:
        number = int(part.edits.rpartition("-")[2])
        if number >= len(self.sent_parts):
            raise MessageGone("there is no such message")
        self.sent_parts[number] = msgspec.structs.replace(part, key=self.sent_parts[number].key)
        async with self._sent:
            self._sent.notify_all()
        if self.errors_after:
            raise self.errors_after.pop(0)
        return part.edits

    async def wait_for(self, count: int, *, seconds: float = 10) -> None:
        """Return when this many parts have arrived."""
        async with asyncio.timeout(seconds), self._sent:
            await self._sent.wait_for(lambda: len(self.sent_parts) >= count)


class RecordingAdapterContext:
    """An adapter context that records calls. `receive` may be passed to refuse or delay events."""

    def __init__(
        self,
        cursor: str | None = None,
        *,
        receive: Callable[[InboundEvent], Awaitable[Receipt]] | None = None,
        menu: Sequence[MenuItem] = (),
        limit: int = 1_000_000,
        stranger: Callable[[Source], bool] = lambda source: False,
    ) -> None:
        self.cursor = cursor
        self.menu = menu
        self.menus: Mapping[str, Sequence[MenuItem]] = {}
        self.texts = NO_CHANGES
        # The messages, in order; then everything else that happened.
        self.events: list[InboundMessage] = []
        self.deletions: list[InboundDeletion] = []
        self.reactions: list[InboundReaction] = []
        self.failures: list[InboundFailure] = []
        # By scope, as stored with events and without.
        self.state: dict[str, str] = {}
        self.attachments: list[Attachment] = []
        self.chat_moves: list[tuple[str, str]] = []
        self.aliases: list[tuple[str, str]] = []
        self.link_states: list[tuple[LinkState, str]] = []
        self._receive = receive
        self._limit = limit
        self._stranger = stranger
        self._changed = asyncio.Condition()

    async def receive(self, inbound: InboundEvent) -> Receipt:
        receipt = await self._receive(inbound) if self._receive else Receipt(duplicate=False)
        async with self._changed:
            match inbound:
                case InboundDeletion():
                    self.deletions.append(inbound)
                case InboundReaction():
                    self.reactions.append(inbound)
                case InboundFailure():
                    self.failures.append(inbound)
                case InboundMessage():
                    self.events.append(inbound)
                case _:
                    raise Invalid(f"an event of the type {type(inbound).__name__} cannot be received")
            for scope, value in inbound.state.items():
                await self.save_state(scope, value)
            self._changed.notify_all()
        return receipt

    def set_receive(self, receive: Callable[[InboundEvent], Awaitable[Receipt]]) -> None:
        """Pass events to this function from now on. Those that it refuses are not recorded."""
        self._receive = receive

    async def init_cursor(self, position: str) -> None:
        self.cursor = position

    async def load_state(self, scope: str) -> str | None:
        return self.state.get(scope)

    async def save_state(self, scope: str, value: str) -> None:
        self.state[scope] = value
        if not value:
            del self.state[scope]

    async def store_attachment(self, attachment: Attachment) -> Image | File | Audio:
        if len(attachment.body) > self._limit:
            raise Invalid(f"{attachment.name} is too large")
        self.attachments.append(attachment)
        kind = {"image": Image, "audio": Audio}.get(attachment.mime.partition("/")[0], File)
        return kind(media=f"kept-{len(self.attachments)}", mime=attachment.mime, name=attachment.name)

    async def is_allowed(self, source: Source) -> bool:
        return not self._stranger(source)

    async def move_chat(self, old: str, new: str) -> None:
        self.chat_moves.append((old, new))

    async def add_alias(self, source: Source, other: str) -> None:
        self.aliases.append((source.user or "", other))

    def report(self, link: LinkState, detail: str = "") -> None:
        """Record a change, as the engine does."""
        if self.link_states[-1:] != [(link, detail)]:
            self.link_states.append((link, detail))

    async def wait_for(self, count: int, *, seconds: float = 10) -> list[InboundMessage]:
        """Return the events as soon as there are this many."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: len(self.events) >= count)
        return self.events


ScriptStep: TypeAlias = AgentEvent | Exception | Callable[[TurnContext], Awaitable[None]]


class ScriptedAgent:
    """Plays one script per run, and repeats the last one. A step is an event to yield, an exception to raise, or a
    coroutine function to await."""

    def __init__(self, *scripts: Sequence[ScriptStep]) -> None:
        self._scripts = list(scripts)
        # One of each per run: the context, and the history that it loaded.
        self.contexts: list[TurnContext] = []
        self.histories: list[Sequence[Message]] = []

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        self.contexts.append(context)
        self.histories.append(await context.history())
        script = self._scripts[min(len(self.contexts), len(self._scripts)) - 1]
        for step in script:
            if isinstance(step, Exception):
                raise step
            if callable(step):
                await step(context)
            else:
                yield step


def fixed_history(messages: Sequence[Message]) -> LoadHistory:
    """Return a loader that returns these messages."""

    async def load() -> Sequence[Message]:
        return messages

    return load


class FakeClock:
    """A `Clock` that stops until a test moves it. Used from one event loop."""

    def __init__(self, start: datetime = START_TIME) -> None:
        self._now = start
        self._monotonic = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    @property
    def sleepers(self) -> int:
        """How many tasks are sleeping."""
        return len(self._sleepers)

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was advanced this far. Zero only yields to other tasks."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        sleeper = self._monotonic + seconds, asyncio.get_running_loop().create_future()
        self._sleepers.append(sleeper)
        try:
            await sleeper[1]
        finally:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)

    def advance(self, by: timedelta | float) -> None:
        """Move both clocks forward, and wake the sleepers that are due in the order of their deadlines."""
        passed = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if passed < timedelta(0):
            raise ValueError("time only passes forward: use jump to set the wall clock back")
        self._now += passed
        self._monotonic += passed.total_seconds()
        due = sorted((s for s in self._sleepers if s[0] <= self._monotonic), key=lambda s: s[0])
        for sleeper in due:
            self._sleepers.remove(sleeper)
            if not sleeper[1].done():
                sleeper[1].set_result(None)

    def jump(self, by: timedelta | float) -> None:
        """Set the wall clock forward or back, as an administrator or a time server does. No sleeper wakes."""
        self._now += by if isinstance(by, timedelta) else timedelta(seconds=by)
