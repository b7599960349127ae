"""Plans: the steps that an agent means to take, as a checklist that a person can read on every surface.

An agent tells its whole plan each time it changes, as `Noted(plans.text(steps), kind=plans.KIND)`."""

import re
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from keryx.core.titles import line

KIND = "plan"

_STEP = re.compile(r"\s*[-*] \[(.)\] (!{1,2} )?(.*)\Z")


class StepState(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class Priority(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Step(msgspec.Struct, frozen=True):
    content: str
    state: StepState = StepState.PENDING
    priority: Priority = Priority.MEDIUM


_BOXES = {StepState.PENDING: " ", StepState.IN_PROGRESS: "~", StepState.COMPLETED: "x"}
_STATES = {
    " ": StepState.PENDING,
    "~": StepState.IN_PROGRESS,
    "x": StepState.COMPLETED,
    "X": StepState.COMPLETED,
}
_FLAGS = {Priority.HIGH: "! ", Priority.MEDIUM: "", Priority.LOW: "!! "}
_PRIORITIES = {"! ": Priority.HIGH, "!! ": Priority.LOW}


def text(steps: Iterable[Step]) -> str:
    """A checklist, a line per step: `- [x] done`, `- [~] at work`, `- [ ] to do`; `!` before high, `!!` before low priority."""
    return "\n".join(
        f"- [{_BOXES[s.state]}] {_FLAGS[s.priority]}{line(s.content).lstrip('! ')}" for s in steps
    )


def parse(checklist: str) -> list[Step]:
    """The steps of a checklist. A line that is none is a step still to do."""
    return [_step(found) for found in checklist.splitlines() if found.strip()]


def _step(written: str) -> Step:
    match = _STEP.match(written)
    if match is None:
        return Step(written.strip())
    return Step(
        match[3].strip(),
        _STATES.get(match[1], StepState.PENDING),
        _PRIORITIES.get(match[2] or "", Priority.MEDIUM),
    )
