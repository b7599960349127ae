"""An agent that plays a script."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeAlias

from keryx.core.messages import Message
from keryx.core.ports import Event, Recall, TurnContext

Step: TypeAlias = Event | Exception | Callable[[TurnContext], Awaitable[None]]


class ScriptedAgent:
    """Plays one script per run, the last one again and again. A step is an event to yield, an exception to raise,
    or a coroutine function to await. `contexts` are those it was given, `histories` the conversations it read."""

    def __init__(self, *scripts: Sequence[Step]) -> None:
        self._scripts = list(scripts)
        self.contexts: list[TurnContext] = []
        self.histories: list[Sequence[Message]] = []

    async def run(self, context: TurnContext) -> AsyncGenerator[Event, None]:
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


def recall(messages: Sequence[Message]) -> Recall:
    """A conversation that is known already."""

    async def known() -> Sequence[Message]:
        return messages

    return known
