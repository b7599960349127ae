"""Hostile plug-ins: agents that raise, block, spin and leave work behind, and an adapter that does all of it."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from keryx.core.deliveries import Idempotency, Target
from keryx.core.messages import text_parts
from keryx.core.ports.adapter import (
    AdapterContext,
    Capabilities,
    InboundMessage,
    LinkState,
    OutgoingPart,
    RenderedPart,
)
from keryx.core.ports.agent import AgentEvent, TextDelta, TurnContext
from keryx.core.source import ChatType, Source

PLATFORM = "rogue"
_BLOCKED = 5.0
# Tasks that nobody waits for.
_left: list[asyncio.Task[None]] = []


async def exits(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
    yield TextDelta("Good-bye.")
    sys.exit(3)


async def interrupts(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
    yield TextDelta("Stop.")
    raise KeyboardInterrupt


async def cancels(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
    yield TextDelta("Never mind.")
    raise asyncio.CancelledError


async def sleeps(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
    time.sleep(_BLOCKED)  # noqa: ASYNC251 it blocks on purpose
    yield TextDelta("Good morning.")


async def spins(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
    until = time.monotonic() + _BLOCKED
    while time.monotonic() < until:
        pass
    yield TextDelta("Dizzy.")


async def leaks(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
    _left.extend(asyncio.create_task(asyncio.sleep(3600)) for _ in range(100))
    yield TextDelta("Left something behind.")


async def floods(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
    for _ in range(100):
        yield TextDelta("x" * 1_000_000)


async def deaf(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
    yield TextDelta("I do not hear you.")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


AGENTS = (exits, interrupts, cancels, sleeps, spins, leaks, floods, deaf)


class RogueAdapter:
    """Receives now and then, and does one of all these at each send."""

    platform = PLATFORM
    account = "one"
    hook = None
    capabilities = Capabilities(idempotency=Idempotency.NATIVE)

    def __init__(self) -> None:
        self._sends = 0

    async def listen(self, context: AdapterContext) -> None:
        context.report(LinkState.CONNECTED)
        source = Source(platform=PLATFORM, account="one", chat="1", chat_type=ChatType.DM, user="ann")
        for number in range(1_000_000):
            await context.receive(
                InboundMessage(
                    event=f"{time.time_ns()}",
                    source=source,
                    parts=text_parts(f"rogue {number}"),
                    surface=PLATFORM,
                    reply=Target(PLATFORM, "one", "1"),
                )
            )
            await asyncio.sleep(3)
            if number % 7 == 6:
                raise SystemExit(4)
            if number % 20 == 19:
                _take_descriptors(1)
            if number % 3 == 2:
                time.sleep(2)  # noqa: ASYNC251 it blocks on purpose

    async def typing(self, target: Target) -> None:
        raise KeyboardInterrupt

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return [RenderedPart(text)]

    async def send(self, part: OutgoingPart) -> str:
        self._sends += 1
        match self._sends % 6:
            case 0:
                sys.exit(5)
            case 1:
                time.sleep(2)  # noqa: ASYNC251 it blocks on purpose
            case 2:
                raise asyncio.CancelledError
            case 3:
                raise MemoryError
            case 4:
                _spin(0.5)
            case _:
                _left.append(asyncio.create_task(asyncio.sleep(3600)))
        return part.key


def _spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def _take_descriptors(seconds: float) -> None:
    """Leave the process not one descriptor for a while."""
    taken: list[int] = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        time.sleep(seconds)
    finally:
        for descriptor in taken:
            os.close(descriptor)


def make(setup: Any) -> RogueAdapter:
    return RogueAdapter()
