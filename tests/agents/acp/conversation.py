"""An ACP agent on the player, and turns put to it one after the other as the runner would."""

import os
import sys
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from keryx.agents.acp import AcpAgent
from keryx.agents.acp.agent_process import DEFAULT_TIMEOUTS, AgentTimeouts
from keryx.agents.agent_config import AgentConfig, AgentKind
from keryx.core import ids
from keryx.core.clock import Clock, to_micros
from keryx.core.ids import SessionId, TurnId
from keryx.core.messages import Message, Role, text_parts
from keryx.core.ports.agent import AgentEvent, BindingEvent, NoticeEvent, TextDelta, TurnContext
from keryx.core.questions import AskPerson, ask_nobody
from keryx.core.sessions import Binding, SessionSettings
from keryx.testing import START_TIME, fixed_history
from keryx.timing import SystemClock

PLAYER = Path(__file__).with_name("scripted_agent.py")


def command(folder: Path, *options: str) -> tuple[str, ...]:
    return (sys.executable, str(PLAYER), str(folder / "store"), *options)


def player(
    folder: Path,
    *options: str,
    clock: Clock | None = None,
    timeouts: AgentTimeouts = DEFAULT_TIMEOUTS,
    **fields: Any,
) -> AcpAgent:
    """The player as an agent; `fields` are those of its configuration."""
    (folder / "store").mkdir(exist_ok=True)
    configured = AgentConfig(kind=AgentKind.ACP, command=command(folder, *options), **fields)
    return AcpAgent(
        "player", configured, work_folder=folder / "work", clock=clock or SystemClock(), timeouts=timeouts
    )


async def _nothing() -> Sequence[Message]:
    return []


class Talk:
    """One session, as the store would keep it: its messages and the binding that the agent told of."""

    def __init__(self, **settings: Any) -> None:
        self.session = SessionId(ids.new(START_TIME))
        self.history: list[Message] = []
        self.bindings: dict[str, Binding] = {}
        self.settings = SessionSettings(**settings)
        self.ask: AskPerson = ask_nobody
        self.cwd = ""

    def context(self, question: str) -> TurnContext:
        turn = TurnId(ids.new(START_TIME))
        self.add(Role.USER, question, turn)
        return TurnContext(
            session=self.session,
            turn=turn,
            attempt=1,
            place="",
            turn_messages=self.history[-1:],
            history=fixed_history(list(self.history)),
            settings=self.settings,
            cwd=self.cwd,
            clock=SystemClock(),
            fetch_new_messages=_nothing,
            ask=self.ask,
            bindings=dict(self.bindings),
        )

    def add(self, role: Role, text: str, turn: TurnId | None = None) -> None:
        seq = len(self.history) + 1
        self.history.append(
            Message(
                session=self.session,
                seq=seq,
                role=role,
                parts=text_parts(text),
                micros=to_micros(START_TIME),
                turn=turn,
            )
        )

    async def events(self, agent: AcpAgent, question: str, **fields: Any) -> list[AgentEvent]:
        """Put a turn and keep what the runner would keep."""
        context = msgspec.structs.replace(self.context(question), **fields)
        found: list[AgentEvent] = []
        async with aclosing(agent.run(context)) as events:
            async for event in events:
                found.append(event)
                if isinstance(event, BindingEvent):
                    self.bindings[event.binding.agent] = event.binding
        if answer := said(found):
            self.add(Role.ASSISTANT, answer, context.turn)
        return found

    async def say(self, agent: AcpAgent, question: str, **fields: Any) -> str:
        return said(await self.events(agent, question, **fields))


def said(events: Sequence[AgentEvent]) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta))


def noted(events: Sequence[AgentEvent]) -> list[str]:
    return [e.text for e in events if isinstance(e, NoticeEvent)]


def alive(pid: str) -> bool:
    """Whether a process runs; one that is dead and not yet buried does not."""
    try:
        os.kill(int(pid), 0)
        state = Path(f"/proc/{int(pid)}/stat")
        return not state.exists() or " Z " not in state.read_text()
    except (ProcessLookupError, FileNotFoundError, ValueError):
        return False
