"""The session/prompt requests that wait for the end of their turn, each answered once."""

from typing import TypeVar

import anyio

from keryx.core.errors import NotFound
from keryx.core.ids import TurnId
from keryx.core.turns import TurnState
from keryx.jsonrpc import INTERNAL_ERROR, RpcError, from_keryx_error
from keryx.jsonrpc.peer import IncomingRequest
from keryx.surfaces.acp.context import EditorContext

K = TypeVar("K")
V = TypeVar("V")
_MAX_RECENT = 512
END_TURN = "end_turn"
CANCELLED = "cancelled"


class RecentDict(dict[K, V]):
    def add(self, key: K, value: V) -> None:
        self[key] = value
        if len(self) > _MAX_RECENT:
            del self[next(iter(self))]


class PendingPrompt:
    """One `session/prompt` request. `key` identifies its message, which is not sent back to the editor."""

    def __init__(self, request: IncomingRequest, key: str) -> None:
        self.request = request
        self.key = key
        self.turn: TurnId | None = None
        self.cancelled = False
        self._done = anyio.Event()

    @property
    def pending(self) -> bool:
        return not self.request.answered

    async def finish(self, reason: str) -> None:
        await self.request.respond({"stopReason": reason})
        self.set_done()

    async def fail(self, error: RpcError) -> None:
        await self.request.respond_error(error)
        self.set_done()

    def set_done(self) -> None:
        self._done.set()

    async def wait(self) -> None:
        await self._done.wait()


class PendingPrompts:
    """The prompts of one session, and the outcomes of its last turns."""

    def __init__(self, context: EditorContext) -> None:
        self._context = context
        self._prompts: list[PendingPrompt] = []
        self._end_states: RecentDict[TurnId, TurnState] = RecentDict()
        self._stop_reasons: RecentDict[TurnId, str] = RecentDict()
        self._answered_turns: RecentDict[TurnId | None, None] = RecentDict()
        self._keys: RecentDict[str, None] = RecentDict()

    def list_pending(self) -> list[PendingPrompt]:
        return [p for p in self._prompts if p.pending]

    def add(self, request: IncomingRequest, key: str) -> PendingPrompt:
        prompt = PendingPrompt(request, key)
        self._prompts.append(prompt)
        self._keys.add(key, None)
        return prompt

    def remove(self, prompt: PendingPrompt) -> None:
        self._prompts.remove(prompt)
        prompt.set_done()

    def has_key(self, key: str) -> bool:
        """Return whether a message was written in this editor."""
        return key in self._keys

    def has_turn(self, turn: TurnId | None) -> bool:
        """Return whether a prompt waits for this turn."""
        return any(p.turn == turn for p in self._prompts)

    def is_answered(self, turn: TurnId | None) -> bool:
        """Return whether the prompt of a turn was answered, so that no more of the turn may be sent."""
        return turn in self._answered_turns

    async def bind_turn(self, prompt: PendingPrompt, turn: TurnId) -> None:
        """Bind a prompt to its turn. The turn may have ended before."""
        prompt.turn = turn
        if not prompt.pending:
            self._answered_turns.add(turn, None)
        elif turn in self._end_states:
            await self.answer_turn(turn)

    def record_end(self, turn: TurnId, state: TurnState) -> None:
        self._end_states.add(turn, state)

    def record_stop_reason(self, turn: TurnId, reason: str) -> None:
        """Record why the answer of a turn is incomplete."""
        self._stop_reasons.add(turn, reason)

    async def answer_turn(self, turn: TurnId) -> None:
        """Answer the prompts of a turn that has ended. Call it after all updates of the turn."""
        for prompt in [p for p in self.list_pending() if p.turn == turn]:
            await self._answer_prompt(prompt, turn, self._end_states[turn])

    async def abandon(self, prompt: PendingPrompt) -> None:
        """Answer a cancelled prompt without waiting for the end of its turn."""
        if prompt.pending:
            if prompt.turn:
                self._answered_turns.add(prompt.turn, None)
            await prompt.finish(CANCELLED)

    async def _answer_prompt(self, prompt: PendingPrompt, turn: TurnId, state: TurnState) -> None:
        try:
            record = (
                None if state is TurnState.DONE else await self._context.hub.turn(self._context.viewer, turn)
            )
        except NotFound as exc:
            await prompt.fail(from_keryx_error(exc))
            return
        if record and record.merged_into:
            await self.bind_turn(prompt, record.merged_into)
            return
        self._answered_turns.add(turn, None)
        match state:
            case TurnState.DONE:
                await prompt.finish(self._stop_reasons.get(turn, END_TURN))
            case TurnState.CANCELLED:
                await prompt.finish(CANCELLED)
            case _:
                reason = (record.error if record else None) or f"the turn is {state.value}"
                await prompt.fail(RpcError(INTERNAL_ERROR, reason))

    async def fail_all(self, session: str) -> None:
        """Fail all prompts of a deleted session."""
        error = from_keryx_error(NotFound(f"session {session} was deleted"))
        for prompt in self.list_pending():
            await prompt.fail(error)
