"""Stop and cancel turns, clear the queue, and reset, switch or delete sessions."""

from datetime import datetime, timedelta

from keryx.core.errors import Conflict, Invalid
from keryx.core.ids import SessionId, TurnId
from keryx.core.lanes import Lane
from keryx.core.messages import Parts
from keryx.core.questions import QuestionState
from keryx.core.resets import ResetReason
from keryx.core.sessions import EndReason, Session
from keryx.core.turns import Turn, TurnState
from keryx.engine.units import answers
from keryx.store import lanes, messages, questions, sessions, turns
from keryx.store.db.database import Transaction

_RESET_WORDS = {
    ResetReason.IDLE: "after a long silence",
    ResetReason.DAILY: "for a new day",
    ResetReason.SUSPENDED: "because the last conversation was stopped",
}


def stop(tx: Transaction, session: SessionId, *, now: datetime, queue: bool = False) -> Turn | None:
    """Ask the running turn to stop; with `queue`, drop what waits too. Gives the turn, `None` if nothing runs."""
    sessions.lock(tx, session)
    running = turns.find_running(tx, session)
    if running:
        turns.request_cancel(tx, running, now=now)
    if queue:
        clear_queue(tx, session, now=now)
    return running


def clear_queue(tx: Transaction, session: SessionId, *, now: datetime) -> int:
    """Cancel every waiting turn of a session; gives how many."""
    sessions.lock(tx, session)
    waiting = turns.list_queued(tx, session)
    for turn in waiting:
        turns.close(tx, turn, TurnState.CANCELLED, now=now)
        answers.mark_stopped(tx, turn, now=now)
    return len(waiting)


def drop(tx: Transaction, turn: TurnId, *, now: datetime) -> None:
    """Cancel one waiting turn."""
    found = turns.get(tx, turn)
    if found.state is not TurnState.QUEUED:
        raise Conflict(
            f"turn {turn} is {found.state}: only a waiting one can be dropped, a running one stopped"
        )
    sessions.lock(tx, found.session)
    turns.close(tx, found, TurnState.CANCELLED, now=now)
    answers.mark_stopped(tx, found, now=now)


def cancel(tx: Transaction, turn: TurnId, *, now: datetime) -> Turn:
    """Stop one turn, whether it waits or runs; gives it as it was. One that has ended stays as it is."""
    sessions.lock(tx, turns.get(tx, turn).session)
    found = turns.get(tx, turn)
    if found.state is TurnState.QUEUED:
        turns.close(tx, found, TurnState.CANCELLED, now=now)
    elif found.state is TurnState.RUNNING:
        turns.request_cancel(tx, found, now=now)
    return found


def rewrite(tx: Transaction, session: SessionId, seq: int, parts: Parts, *, now: datetime) -> None:
    """Change what was said while its turn still waits."""
    sessions.lock(tx, session)
    message = messages.get(tx, session, seq)
    turn = turns.find(tx, message.turn) if message.turn else None
    if turn is None or turn.state is not TurnState.QUEUED:
        raise Conflict(f"message {message.id} cannot be changed: only one that still waits for its turn can")
    messages.rewrite(tx, message, parts, now=now)


def reset(tx: Transaction, lane: Lane, reason: ResetReason, *, now: datetime) -> tuple[Lane, str | None]:
    """End the lane's session; the next message starts a new one. Gives the lane, and the notice for the person
    if there was content."""
    assert lane.session is not None
    old = sessions.get(tx, lane.session, deleted=True)
    _end_session(tx, old, EndReason(reason.value), now=now)
    moved = lanes.move(tx, lane, None, why=reason.value, now=now)
    if not old.messages:
        return moved, None
    name = f"“{old.title}”" if old.title else "the last one"
    return moved, f"Started a new conversation {_RESET_WORDS[reason]}. /resume brings {name} back."


def start_new_session(tx: Transaction, lane: Lane, *, now: datetime) -> Session | None:
    """A person asks for a new conversation: the lane's session ends, its work stops. Gives the old session."""
    if lane.session is None:
        return None
    old = sessions.get(tx, lane.session, deleted=True)
    stop(tx, old.id, now=now, queue=True)
    _end_session(tx, old, EndReason.RESET, now=now)
    lanes.move(tx, lane, None, why="new", now=now)
    return old


def switch(tx: Transaction, lane: Lane, session: Session, *, why: str, now: datetime) -> None:
    """Let a lane go on with a session of its owner, reopened if it had ended. One that it is in already is no move."""
    if lane.profile != session.profile or lane.owner != session.owner:
        raise Invalid("a lane can only go on with a session of the same owner and profile")
    if session.ended_at is not None:
        sessions.end(tx, session, None, now=now)
        sessions.remove_end_hook(tx, session.id)
    if session.ended_at is not None or lane.suspended or lane.session != session.id:
        lanes.move(tx, lane, session.id, why=why, now=now)
    # A person asked for it, so the silence is over; the expiry sweep sets the right moment to look again.
    lanes.touch(tx, lane, now=now, expires_at=now)


def delete(
    tx: Transaction, session: Session, *, grace: timedelta, now: datetime, erase: bool = False
) -> None:
    """Stop a session's work, free its lanes, and hide it until the grace period is over, or erase it at once."""
    stop(tx, session.id, now=now, queue=True)
    for asked in questions.list_open(tx, session.id):
        if asked.left:
            questions.close(tx, asked, QuestionState.CANCELLED, now=now)
    for lane in lanes.list_for_session(tx, session.id):
        lanes.move(tx, lane, None, why="deleted", now=now)
    if erase:
        sessions.erase(tx, session, now=now)
    else:
        sessions.soft_delete(tx, session, grace=grace, now=now)


def _end_session(tx: Transaction, session: Session, reason: EndReason, *, now: datetime) -> None:
    """End a session and have it finalised, once."""
    if session.ended_at is None:
        sessions.end(tx, session, reason, now=now)
        sessions.add_end_hook(tx, session.id, reason.value, now=now)
