"""Turns: states and allowed transitions, busy modes, limits, and which turn is blamed when a worker process dies."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from keryx.core.deliveries import Target
from keryx.core.ids import LeaseToken, PrincipalId, ProfileId, SessionId, TurnId, WorkerId

SUSPECT_ATTEMPTS = 3
MOST_ATTEMPTS = 12
_CERTAIN_BLAME = 2


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


class StopReason(StrEnum):
    """Why an answer ends before it is complete, as editors call it: the kind of the notice that tells it."""

    LENGTH = "max_tokens"
    STEPS = "max_turn_requests"


STOP_REASONS = frozenset(StopReason)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """`reply` is the place that asked; the answer goes to the places in `also` too."""

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
    reply: Target | None = None
    also: tuple[Target, ...] = ()
    pin: WorkerId | None = None
    worker: WorkerId | None = None
    lease: LeaseToken | None = None
    lease_until: datetime | None = None
    cancelling: bool = False
    error: str | None = None
    merged_into: TurnId | None = None
    interrupted_at: datetime | None = None
    blame: int = 0


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many turns at once, and how long one may take. `question`: how long a question of an agent waits for a
    person. `fresh`: an interrupted turn is taken up again
    for this long after the interruption. `settle`: a node must have been up for this long before it begins a try
    that could be the last, so that a turn is not set aside because somebody restarts nodes again and again."""

    at_once: int = 32
    per_principal: int = 8
    first_byte: timedelta = timedelta(minutes=5)
    silence: timedelta = timedelta(minutes=10)
    question: timedelta = timedelta(minutes=10)
    total: timedelta = timedelta(hours=2)
    fresh: timedelta = timedelta(hours=1)
    lease: timedelta = timedelta(seconds=15)
    settle: timedelta = timedelta(seconds=5)


def find_blamed(ran: Iterable[Turn]) -> frozenset[TurnId]:
    """Whom to blame for the death of the one process that ran these turns. Empty when several are as likely."""
    turns = list(ran)
    suspects = [t for t in turns if t.attempts >= SUSPECT_ATTEMPTS]
    guilty = suspects or (turns if len(turns) == 1 else [])
    return frozenset(t.id for t in guilty)


def is_poisonous(attempts: int, blame: int) -> bool:
    """Whether a turn is to be set aside: tried three times and blamed at least twice, or tried far too often."""
    return (attempts >= SUSPECT_ATTEMPTS and blame >= _CERTAIN_BLAME) or attempts >= MOST_ATTEMPTS
