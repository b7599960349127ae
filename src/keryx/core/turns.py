"""Turns: states and allowed transitions, busy modes, limits, and which turn is blamed when a worker process dies."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec

from keryx.core.deliveries import Target
from keryx.core.ids import LeaseToken, PrincipalId, ProfileId, SessionId, TurnId, WorkerId

SUSPECT_ATTEMPTS = 3
MOST_ATTEMPTS = 12
_CERTAIN_BLAME = 2
_LONGEST_GATHERING = timedelta(minutes=1)


class TurnState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PARKED = "parked"
    MERGED = "merged"
    EXPIRED = "expired"

    @property
    def finished(self) -> bool:
        return not MOVES[self]


MOVES: dict[TurnState, frozenset[TurnState]] = {
    TurnState.QUEUED: frozenset(
        {TurnState.RUNNING, TurnState.CANCELLED, TurnState.PARKED, TurnState.MERGED, TurnState.EXPIRED}
    ),
    TurnState.RUNNING: frozenset(
        {
            TurnState.DONE,
            TurnState.FAILED,
            TurnState.CANCELLED,
            TurnState.QUEUED,
            TurnState.PARKED,
            TurnState.EXPIRED,
        }
    ),
    TurnState.DONE: frozenset(),
    TurnState.FAILED: frozenset(),
    TurnState.CANCELLED: frozenset(),
    TurnState.PARKED: frozenset(),
    TurnState.MERGED: frozenset(),
    TurnState.EXPIRED: frozenset(),
}


class BusyMode(StrEnum):
    """What happens to a message that arrives while its session's turn runs."""

    QUEUE = "queue"
    STEER = "steer"
    COLLECT = "collect"
    INTERRUPT = "interrupt"


class EditPolicy(StrEnum):
    """What happens when a person edits a message that was answered."""

    # The edit is noted in the session.
    NOTE = "note"
    # The last message is answered anew; an edit of an earlier one is noted.
    ANSWER = "answer"


class StopReason(StrEnum):
    """Why an answer ended early, in the words of the ACP. Also the kind of the notice about it."""

    LENGTH = "max_tokens"
    STEPS = "max_turn_requests"


STOP_REASONS = frozenset(StopReason)
# The kind of the notice that a turn is held.
HOLD_KIND = "limit"


class TurnHold(msgspec.Struct, frozen=True, kw_only=True):
    """Why a queued turn does not run before a time: a model has reached a limit that resets then."""

    # The name of the model or agent.
    model: str
    until: datetime


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    id: TurnId
    session: SessionId
    profile: ProfileId
    owner: PrincipalId
    asker: PrincipalId
    state: TurnState
    mode: BusyMode
    attempts: int
    created_at: datetime
    input_seq: int
    surface: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    # Where the answer is sent.
    reply: Target | None = None
    # Further targets of the answer.
    also: tuple[Target, ...] = ()
    # Only this worker may run the turn.
    pin: WorkerId | None = None
    worker: WorkerId | None = None
    lease: LeaseToken | None = None
    lease_until: datetime | None = None
    cancelling: bool = False
    error: str | None = None
    merged_into: TurnId | None = None
    interrupted_at: datetime | None = None
    # How many crashes of a worker this turn is blamed for.
    blame: int = 0
    # Set while the turn is queued and waits for the limit of a model to reset.
    hold: TurnHold | None = None
    # The model that answers it, if not that of the session.
    model: str | None = None


Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # How many turns run at once in one process, and for one person.
    # Without any, the process only receives.
    at_once: Annotated[int, msgspec.Meta(ge=0)] = 32
    per_principal: Count = 8
    # The timeouts of a turn: until the first event, between two events, and in all.
    first_byte: timedelta = timedelta(minutes=5)
    silence: timedelta = timedelta(minutes=10)
    # How long a question of an agent waits for a person.
    question: timedelta = timedelta(minutes=10)
    total: timedelta = timedelta(hours=2)
    # An answer takes the place of its preview for this long; later it is a new message, because edits notify no one.
    edit: timedelta = timedelta(minutes=1)
    # A turn waits this long for further messages that belong to its first one; 0 for never.
    gather: timedelta = timedelta(seconds=1)
    # On platforms with `Capabilities.separate_files`, nothing of an answer is stored before its message is this old, so
    # that a file which follows at once joins the turn. The agent works meanwhile. 0 for never.
    await_files: timedelta = timedelta(milliseconds=300)
    # The longest time between a message and the reset of the limit of a model that its turn waits for; 0 to fail at once.
    hold: timedelta = timedelta(hours=24)
    # An interrupted turn is retried for this long after the interruption.
    fresh: timedelta = timedelta(hours=1)
    lease: timedelta = timedelta(seconds=15)
    # The longest text of an answer, and everything that a turn says, with reasoning, calls and results of tools; in
    # characters. Then the turn ends, and what came is kept. Of longer reasoning than an answer may be, the rest is not kept.
    answer: Count = 1_000_000
    output: Count = 10_000_000
    # How many tool calls, files and notices a turn may have.
    steps: Count = 1_000
    # How many messages of a chat an answer may fill. A longer one is sent as a file, or cut where files cannot be sent.
    parts: Count = 10
    # A process must have run for this long before it begins an attempt that could be the last, so that frequent
    # restarts do not park a turn.
    settle: timedelta = timedelta(seconds=5)

    def __post_init__(self) -> None:
        for name, span in {"gather": self.gather, "await_files": self.await_files}.items():
            if span > _LONGEST_GATHERING:
                raise ValueError(f"{name}: give at most 1m")
        spans = {
            "first_byte": self.first_byte,
            "silence": self.silence,
            "question": self.question,
            "total": self.total,
            "lease": self.lease,
        }
        if none := next((name for name, span in spans.items() if span <= timedelta(0)), None):
            raise ValueError(f"{none} must be above zero")


def find_blamed(ran: Iterable[Turn]) -> frozenset[TurnId]:
    """Return which of the turns of a dead process probably killed it; empty if several are equally likely."""
    turns = list(ran)
    suspects = [t for t in turns if t.attempts >= SUSPECT_ATTEMPTS]
    guilty = suspects or (turns if len(turns) == 1 else [])
    return frozenset(t.id for t in guilty)


def is_poisonous(attempts: int, blame: int) -> bool:
    """Whether to park a turn: attempted three times and blamed at least twice, or attempted far too often."""
    return (attempts >= SUSPECT_ATTEMPTS and blame >= _CERTAIN_BLAME) or attempts >= MOST_ATTEMPTS
