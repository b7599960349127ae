"""Scheduled jobs, their runs, and the rule for answers that are not sent."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

import msgspec

from keryx.core import clock, schedules
from keryx.core.deliveries import Delivery, Target, parse_targets
from keryx.core.ids import JobId, PrincipalId, ProfileId, ProjectId, SessionId, TurnId
from keryx.core.schedules import Schedule
from keryx.core.source import Source
from keryx.core.turns import TurnState

PROJECT_NAME = "Scheduled"
"""The project that the runs of a person's jobs are put into."""
SILENT_ANSWER = "[SILENT]"
"""An answer that is stored but not sent."""

_RUN_PROMPT = """\
{prompt}

(This is a run of the scheduled job {name}. Nobody waits at a keyboard, so ask nothing. If there is nothing to tell, \
answer {silent} alone: then nothing is sent.)"""


class JobState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"


class RunOutcome(StrEnum):
    # A turn was queued.
    STARTED = "started"
    # The run was missed for too long.
    SKIPPED = "skipped"
    # The owner of the job no longer has access.
    REFUSED = "refused"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    id: JobId
    profile: ProfileId
    owner: PrincipalId
    name: str
    prompt: str
    schedule: Schedule
    targets: tuple[Target, ...]
    # The message that created the job: its author needs access at each run. `None` for the local operator.
    source: Source | None
    project: ProjectId | None
    state: JobState
    # Why the job is paused, if no person paused it.
    why: str
    # Set while the job is active.
    next_at: datetime | None
    created_at: datetime


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job, or one that was skipped."""

    job: JobId
    due_at: datetime
    at: datetime
    outcome: RunOutcome
    # `None` if no turn was queued, or the session was erased.
    session: SessionId | None
    turn: TurnId | None
    turn_state: TurnState | None
    error: str | None
    # The job has targets.
    sends: bool
    deliveries: tuple[Delivery, ...] = ()

    @property
    def status(self) -> str:
        """The state of the run in a word."""
        if self.outcome is not RunOutcome.STARTED:
            return self.outcome.value
        return self.turn_state.value if self.turn_state else "erased"

    @property
    def delivery_states(self) -> tuple[str, ...]:
        """The states of its deliveries, `silent` if there is an answer that was not sent."""
        if not self.deliveries:
            return ("silent",) if self.sends and self.turn_state is TurnState.DONE else ()
        return tuple(dict.fromkeys(d.state.value for d in self.deliveries))

    @property
    def delivery(self) -> str:
        return ", ".join(self.delivery_states)


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # The zone of schedules of people who have not set one; empty for that of all times.
    zone: str = ""
    # A missed run is caught up within this time, and skipped after it.
    catch_up: timedelta = timedelta(hours=1)
    # How many jobs one person may have.
    most: Annotated[int, msgspec.Meta(ge=0)] = 100
    # A target for the answers of jobs whose own is gone; empty for none.
    fallback: str = ""

    def __post_init__(self) -> None:
        if self.zone:
            clock.find_zone(self.zone)
        if self.fallback:
            parse_targets(self.fallback)

    @property
    def window(self) -> timedelta:
        return max(self.catch_up, schedules.ON_TIME_TOLERANCE)


def build_prompt(job: Job) -> str:
    return _RUN_PROMPT.format(
        prompt=job.prompt, name=msgspec.json.encode(job.name).decode(), silent=SILENT_ANSWER
    )


def is_silent(text: str) -> bool:
    """Whether the answer of a run says that there is nothing to send."""
    return text.strip() in ("", SILENT_ANSWER)
