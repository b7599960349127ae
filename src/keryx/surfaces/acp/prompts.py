"""The session/prompt requests that wait for the end of their turn, each answered once."""

from typing import TypeVar

import anyio

from keryx.core.errors import NotFound
from keryx.core.ids import TurnId
from keryx.core.turns import TurnState
from keryx.jsonrpc import errors
from keryx.jsonrpc.errors import RpcError
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
    """One request. `key` marks its message, so that it is not shown to the editor that wrote it."""

    def __init__(self, call: IncomingRequest, key: str) -> None:
        self.request = call
        self.key = key
        self.turn: TurnId | None = None
        self.cancelled = False
        self._done = anyio.Event()

    @property
    def pending(self) -> bool:
        return not self.request.answered

    async def finish(self, reason: str) -> None:
        """Answer with a stop reason."""
        await self.request.respond({"stopReason": reason})
        self.set_done()

    async def fail(self, fault: RpcError) -> None:
        await self.request.respond_error(fault)
        self.set_done()

    def set_done(self) -> None:
        self._done.set()

    async def wait(self) -> None:
        await self._done.wait()


class PendingPrompts:
    """The prompts of one session, and how its last turns ended."""

    def __init__(self, desk: EditorContext) -> None:
        self._context = desk
        self._prompts: list[PendingPrompt] = []
        self._end_states: RecentDict[TurnId, TurnState] = RecentDict()
        self._stop_reasons: RecentDict[TurnId, str] = RecentDict()
        self._answered_turns: RecentDict[TurnId | None, None] = RecentDict()
        self._keys: RecentDict[str, None] = RecentDict()

    @property
    def list_pending(self) -> list[PendingPrompt]:
        return [p for p in self._prompts if p.pending]

    def add(self, call: IncomingRequest, key: str) -> PendingPrompt:
        prompt = PendingPrompt(call, key)
        self._prompts.append(prompt)
        self._keys.add(key, None)
        return prompt

    def remove(self, prompt: PendingPrompt) -> None:
        """It is answered, or whoever began it answers it."""
        self._prompts.remove(prompt)
        prompt.set_done()

    def has_key(self, key: str) -> bool:
        """Whether a message was written in this editor."""
        return key in self._keys

    def has_turn(self, turn: TurnId | None) -> bool:
        """Whether a prompt waits for this turn."""
        return any(p.turn == turn for p in self._prompts)

    def is_answered(self, turn: TurnId | None) -> bool:
        """Whether a turn was answered already, so that nothing of it may be shown any more."""
        return turn in self._answered_turns

    async def bind_turn(self, prompt: PendingPrompt, turn: TurnId) -> None:
        """A prompt waits for this turn, which may have ended before anybody knew its number."""
        prompt.turn = turn
        if not prompt.pending:
            self._answered_turns.add(turn, None)
        elif turn in self._end_states:
            await self.answer_turn(turn)

    def record_end(self, turn: TurnId, state: TurnState) -> None:
        """Note how a turn ended."""
        self._end_states.add(turn, state)

    def record_stop_reason(self, turn: TurnId, reason: str) -> None:
        """Note why the answer of a turn ends before it is complete."""
        self._stop_reasons.add(turn, reason)

    async def answer_turn(self, turn: TurnId) -> None:
        """Answer the prompts of a turn that has ended, once everything of it has been shown."""
        for prompt in [p for p in self.list_pending if p.turn == turn]:
            await self._answer_prompt(prompt, turn, self._end_states[turn])

    async def abandon(self, prompt: PendingPrompt) -> None:
        """Answer a cancelled prompt though nobody has said that its turn has ended."""
        if prompt.pending:
            if prompt.turn:
                self._answered_turns.add(prompt.turn, None)
            await prompt.finish(CANCELLED)

    async def _answer_prompt(self, prompt: PendingPrompt, turn: TurnId, state: TurnState) -> None:
        try:
            found = (
                None if state is TurnState.DONE else await self._context.hub.turn(self._context.viewer, turn)
            )
        except NotFound as exc:
            await prompt.fail(errors.from_keryx_error(exc))
            return
        if found and found.merged_into:
            await self.bind_turn(prompt, found.merged_into)
            return
        self._answered_turns.add(turn, None)
        match state:
            case TurnState.DONE:
                await prompt.finish(self._stop_reasons.get(turn, END_TURN))
            case TurnState.CANCELLED:
                await prompt.finish(CANCELLED)
            case _:
                reason = (found.error if found else None) or f"the turn is {state.value}"
                await prompt.fail(RpcError(errors.INTERNAL_ERROR, reason))

    async def fail_all(self, session: str) -> None:
        """The session is gone: whoever waits for it is told."""
        gone = NotFound(f"session {session} was deleted")
        for prompt in self.list_pending:
            await prompt.fail(errors.from_keryx_error(gone))
