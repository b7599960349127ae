"""Prompts: the requests that wait for the end of their turn, each answered once."""

import anyio

from keryx.core.errors import NotFound
from keryx.core.ids import TurnId
from keryx.core.turns import TurnState
from keryx.surfaces.acp import faults
from keryx.surfaces.acp.desk import Desk
from keryx.surfaces.acp.faults import Fault
from keryx.surfaces.acp.peer import Call
from keryx.surfaces.acp.recent import Recent

END = "end_turn"
CANCELLED = "cancelled"


class Prompt:
    """One request. `key` marks its message, so that it is not shown to the editor that wrote it."""

    def __init__(self, call: Call, key: str) -> None:
        self.call = call
        self.key = key
        self.turn: TurnId | None = None
        self.cancelled = False
        self._done = anyio.Event()

    @property
    def waits(self) -> bool:
        return not self.call.answered

    async def stop(self, reason: str) -> None:
        """Answer with a stop reason."""
        await self.call.answer({"stopReason": reason})
        self.over()

    async def fail(self, fault: Fault) -> None:
        await self.call.refuse(fault)
        self.over()

    def over(self) -> None:
        self._done.set()

    async def done(self) -> None:
        await self._done.wait()


class Prompts:
    """The prompts of one session, and how its last turns ended."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._waiting: list[Prompt] = []
        self._ended: Recent[TurnId, TurnState] = Recent()
        self._endings: Recent[TurnId, str] = Recent()
        self._closed: Recent[TurnId | None, None] = Recent()
        self._keys: Recent[str, None] = Recent()

    @property
    def waiting(self) -> list[Prompt]:
        return [p for p in self._waiting if p.waits]

    def begin(self, call: Call, key: str) -> Prompt:
        prompt = Prompt(call, key)
        self._waiting.append(prompt)
        self._keys.note(key, None)
        return prompt

    def forget(self, prompt: Prompt) -> None:
        """It is answered, or whoever began it answers it."""
        self._waiting.remove(prompt)
        prompt.over()

    def own(self, key: str) -> bool:
        """Whether a message was written in this editor."""
        return key in self._keys

    def asked(self, turn: TurnId | None) -> bool:
        """Whether a prompt waits for this turn."""
        return any(p.turn == turn for p in self._waiting)

    def closed(self, turn: TurnId | None) -> bool:
        """Whether a turn was answered already, so that nothing of it may be shown any more."""
        return turn in self._closed

    async def bind(self, prompt: Prompt, turn: TurnId) -> None:
        """A prompt waits for this turn, which may have ended before anybody knew its number."""
        prompt.turn = turn
        if not prompt.waits:
            self._closed.note(turn, None)
        elif turn in self._ended:
            await self.answer(turn)

    def ended(self, turn: TurnId, state: TurnState) -> None:
        """Note how a turn ended."""
        self._ended.note(turn, state)

    def cut(self, turn: TurnId, reason: str) -> None:
        """Note why the answer of a turn ends before it is complete."""
        self._endings.note(turn, reason)

    async def answer(self, turn: TurnId) -> None:
        """Answer the prompts of a turn that has ended, once everything of it has been shown."""
        for prompt in [p for p in self.waiting if p.turn == turn]:
            await self._answer(prompt, turn, self._ended[turn])

    async def give_up(self, prompt: Prompt) -> None:
        """Answer a cancelled prompt though nobody has said that its turn has ended."""
        if prompt.waits:
            if prompt.turn:
                self._closed.note(prompt.turn, None)
            await prompt.stop(CANCELLED)

    async def _answer(self, prompt: Prompt, turn: TurnId, state: TurnState) -> None:
        try:
            found = None if state is TurnState.DONE else await self._desk.hub.turn(self._desk.viewer, turn)
        except NotFound as exc:
            await prompt.fail(faults.of(exc))
            return
        if found and found.merged_into:
            await self.bind(prompt, found.merged_into)
            return
        self._closed.note(turn, None)
        match state:
            case TurnState.DONE:
                await prompt.stop(self._endings.get(turn, END))
            case TurnState.CANCELLED:
                await prompt.stop(CANCELLED)
            case _:
                reason = (found.error if found else None) or f"the turn is {state.value}"
                await prompt.fail(Fault(faults.INTERNAL, reason))

    async def lose(self, session: str) -> None:
        """The session is gone: whoever waits for it is told."""
        gone = NotFound(f"session {session} was deleted")
        for prompt in self.waiting:
            await prompt.fail(faults.of(gone))
