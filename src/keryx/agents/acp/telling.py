"""Telling: the updates of an agent during one turn, as events of Keryx."""

import base64
import mimetypes
from collections.abc import Callable

import msgspec

from keryx.agents.acp.held import MODEL, Held
from keryx.agents.acp.replay import Replay
from keryx.agents.acp.rpc import Json, count, table, tables, text
from keryx.agents.acp.steps import Steps
from keryx.core import plans
from keryx.core.bindings import Meter
from keryx.core.plans import Priority, Step, StepState
from keryx.core.ports import Attached, Event, Noted, Said, Thought, Used
from keryx.core.titles import line
from keryx.core.turns import Usage

_STATES = {s.value: s for s in StepState}
_PRIORITIES = {p.value: p for p in Priority}


class Telling:
    """Unknown kinds of updates and unknown values are counted and left out, never an error."""

    def __init__(self, agent: str, held: Held, *, replay: Replay, terminal: Callable[[str], str]) -> None:
        self._agent = agent
        self._held = held
        self._replay = replay
        self.steps = Steps(terminal)
        self._message = ""
        self._said = False
        self._plan = ""
        self._files = 0
        self.unknown = 0

    def take(self, update: Json) -> list[Event]:
        """The events that an update brings, in order."""
        if self._replay.repeats(update):
            return []
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                return self._chunk(update)
            case "agent_thought_chunk":
                thought = text(table(update.get("content")).get("text"))
                return [Thought(thought)] if thought else []
            case "tool_call" | "tool_call_update":
                self._said = False
                return self.steps.take(update)
            case "plan":
                return self._planned(update)
            case "usage_update":
                return self._used(update)
            case "notice":
                told = text(update.get("message")) or text(table(update.get("content")).get("text"))
                return [Noted(told)] if told.strip() else []
            case "current_mode_update" | "config_option_update" | "session_info_update":
                self._held.learn(update)
                return []
            case "user_message_chunk" | "available_commands_update":
                return []
            case _:
                self.unknown += 1
                return []

    def spent(self, told: Json) -> list[Event]:
        """What the answer to a prompt tells of its use: totals of the session, of which this turn has a part."""
        if not told:
            return []
        before = self._held.meter
        after = Meter(
            input=count(told.get("inputTokens")),
            output=count(told.get("outputTokens")),
            reasoning=count(told.get("thoughtTokens")),
            cache_read=count(told.get("cachedReadTokens")),
            cache_write=count(told.get("cachedWriteTokens")),
            cost=before.cost,
        )
        self._held.meter = after
        return [
            Used(
                Usage(
                    model=self._model,
                    input=max(0, after.input - before.input),
                    output=max(0, after.output - before.output),
                    reasoning=max(0, after.reasoning - before.reasoning),
                    cache_read=max(0, after.cache_read - before.cache_read),
                    cache_write=max(0, after.cache_write - before.cache_write),
                )
            )
        ]

    @property
    def _model(self) -> str:
        return self._held.current(MODEL) or self._agent

    def _chunk(self, update: Json) -> list[Event]:
        message = text(update.get("messageId"))
        apart = self._said and message != self._message and bool(message and self._message)
        self._message = message
        event = self._content(table(update.get("content")))
        if event is None:
            return []
        self._said = True
        return [Said("\n\n"), event] if apart else [event]

    def _content(self, block: Json) -> Event | None:
        match block.get("type"):
            case "text":
                said = text(block.get("text"))
                return Said(said) if said else None
            case "image" | "audio":
                return self._attached(block)
            case "resource_link":
                uri = text(block.get("uri"))
                return Said(f"[{line(text(block.get('name'))) or uri}]({uri})") if uri else None
            case "resource":
                found = text(table(block.get("resource")).get("text"))
                return Said(found) if found else None
            case _:
                self.unknown += 1
                return None

    def _attached(self, block: Json) -> Event:
        mime = text(block.get("mimeType")) or "application/octet-stream"
        self._files += 1
        try:
            body = base64.b64decode(text(block.get("data")), validate=True)
        except ValueError:
            return Noted("A file of the answer is left out: the agent sent it damaged.")
        return Attached(f"{self._agent}-{self._files}{mimetypes.guess_extension(mime) or ''}", mime, body)

    def _planned(self, update: Json) -> list[Event]:
        entries = tables(update.get("entries"))
        steps = [
            Step(
                text(e.get("content")),
                _STATES.get(text(e.get("status")), StepState.PENDING),
                _PRIORITIES.get(text(e.get("priority")), Priority.MEDIUM),
            )
            for e in entries
        ]
        told = plans.text(steps)
        if told == self._plan or not told:
            return []
        self._plan = told
        return [Noted(told, plans.KIND)]

    def _used(self, update: Json) -> list[Event]:
        cost = table(update.get("cost")).get("amount")
        before = self._held.meter.cost
        spent: int | None = None
        if isinstance(cost, int | float) and 0 <= cost < 1e9:
            total = round(cost * 1_000_000)
            spent = max(0, total - (before or 0))
            self._held.meter = msgspec.structs.replace(self._held.meter, cost=total)
        used, size = count(update.get("used")), count(update.get("size"))
        return [
            Used(Usage(model=self._model, cost=spent, context_used=used or None, context_limit=size or None))
        ]
