"""Agents that harm the process they run in, which is that of the node if they run in a thread of it."""

import asyncio
import gc
import os
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio

from keryx.core.ports.agent import AgentEvent, TextDelta, TurnContext

# The file that ends `descriptors`.
ENOUGH = "ENOUGH"


def configure_hostile_agent(home: Path, name: str) -> dict[str, str]:
    """Let a node run one of these agents in a thread. Return the variables that choose it."""
    home.mkdir(exist_ok=True)
    (home / "keryx.toml").write_text(
        f'[agents.hostile]\nkind = "python"\npath = "tests.cli.hostile_agents:{name}"\nisolation = "thread"\n'
    )
    return {"KERYX_AGENT": "hostile"}


async def descriptors(context: TurnContext) -> AsyncGenerator[AgentEvent]:
    """Take every descriptor of the process, and make a folder beside a file, until that file appears."""
    taken: list[int] = []
    file = os.environ[ENOUGH]
    while not os.access(file, os.F_OK):
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            os.makedirs(f"{file}.taken", exist_ok=True)
            await anyio.sleep(0.02)
    for descriptor in taken:
        os.close(descriptor)
    yield TextDelta("all given back")


async def expression(context: TurnContext) -> AsyncGenerator[AgentEvent]:
    """Match a regular expression that takes for ever, which holds the interpreter lock."""
    yield TextDelta("working")
    # The last message may be the draft of an attempt that was interrupted.
    if any("freeze" in m.text for m in context.turn_messages):
        re.match(r"(a|a)*b", "a" * 60)
    yield TextDelta(" is done")


async def busy(context: TurnContext) -> AsyncGenerator[AgentEvent]:
    """Block the event loop of the node with Python code, which lets other threads run."""
    yield TextDelta("working")
    own = asyncio.get_running_loop()
    loops = [o for o in gc.get_objects() if isinstance(o, asyncio.AbstractEventLoop) and o is not own]
    for loop in loops:
        if loop.is_running():
            loop.call_soon_threadsafe(_spin)
    await anyio.sleep_forever()


def _spin() -> None:
    while True:
        pass


async def stuck_end(context: TurnContext) -> AsyncGenerator[AgentEvent]:
    """Work for ever, and hold the interpreter lock when it is asked to stop."""
    yield TextDelta("working")
    try:
        await anyio.sleep_forever()
    finally:
        re.match(r"(a|a)*b", "a" * 60)
