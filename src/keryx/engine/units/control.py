"""Stop and cancel turns, clear the queue, and reset, switch or delete sessions."""

from datetime import datetime, timedelta

from msgspec import UNSET

from keryx.core.errors import Conflict, Forbidden, Invalid, NotFound
from keryx.core.ids import OPERATOR, SessionId, TurnId, is_temporary, new_temporary
from keryx.core.lanes import Lane
from keryx.core.messages import Mark, Message, Parts, Role, is_active
from keryx.core.questions import QuestionState
from keryx.core.resets import ResetReason
from keryx.core.sessions import (
    EndReason,
    PruneRule,
    Session,
    SessionChange,
    SessionSettings,
    TitleBy,
    Viewer,
)
from keryx.core.source import Source
from keryx.core.texts import Phrase
from keryx.core.turns import Turn, TurnState
from keryx.engine.policy import Policy
from keryx.engine.units import answers, place
from keryx.store import downloads, lanes, messages, projects, questions, sessions, turns
from keryx.store.db import Engine, Transaction

_RESET_NOTICES = {
    ResetReason.IDLE: "session.reset_idle",
    ResetReason.DAILY: "session.reset_daily",
    ResetReason.SUSPENDED: "session.reset_suspended",
}


def check_folder(viewer: Viewer, cwd: str) -> None:
    """Raise `Forbidden` unless the viewer may choose this working directory. Agents read and write there with the rights of
    Keryx, so only the operator chooses one."""
    if cwd and viewer.principal != OPERATOR:
        raise Forbidden(Phrase("session.folder_operator_only"))


def change(
    tx: Transaction, session: Session, viewer: Viewer, change: SessionChange, *, policy: Policy
) -> None:
    """Set new values of a session. Raise `NotFound` for a project that the viewer does not have or a model that the
    agent does not offer, `Conflict` for a title that is taken, `Forbidden` for a folder that the viewer may not choose."""
    if change.title is not UNSET:
        sessions.rename(tx, session, change.title, by=TitleBy.PERSON)
    if change.project is not UNSET:
        project = projects.find(tx, viewer, change.project).id if change.project else None
        sessions.set_project(tx, session, project)
    if change.settings is not UNSET:
        settings = change.settings.apply(session.settings)
        if settings.model != session.settings.model:
            check_model(tx, policy, session, settings, place.find_source(session, None))
        sessions.set_settings(tx, session, settings)
        # Another model or agent need not wait for the limit of the one before; the same one is asked again.
        if change.settings.model is not UNSET or change.settings.agent is not UNSET:
            turns.release(tx, session.id)
    if change.cwd is not UNSET and change.cwd != session.cwd:
        check_folder(viewer, change.cwd)
        sessions.set_cwd(tx, session, change.cwd)
    if change.pinned is not UNSET:
        sessions.set_pinned(tx, session, change.pinned)
    if change.archived is not UNSET:
        sessions.set_archived(tx, session, change.archived)
    if change.ended is not UNSET:
        set_ended(tx, session, change.ended)
    added, removed = change.add_tags, change.remove_tags
    if change.tags is not UNSET:
        kept = {tag.name for tag in projects.list_session_tags(tx, viewer, session.id)}
        added, removed = (*added, *change.tags), (*removed, *sorted(kept - set(change.tags)))
    put = projects.put_tags(tx, viewer, session.id, added)
    taken = projects.take_tags(tx, viewer, session.id, removed)
    if put or taken:
        sessions.note_change(tx, session)


def list_models(
    tx: Transaction, policy: Policy, session: Session | None, settings: SessionSettings, source: Source
) -> tuple[str, ...]:
    """Return the models that the agent of a session offers, the default first; none if they are not known yet."""
    profile = session.profile if session else source.profile
    agent = policy.choose_agent(settings, source, profile=profile)
    if not agent:
        return policy.models
    bindings = sessions.list_bindings(tx, session.id) if session and agent not in policy.model_agents else {}
    return policy.map_models(bindings.values()).get(agent, ())


def check_model(
    tx: Transaction, policy: Policy, session: Session | None, settings: SessionSettings, source: Source
) -> None:
    """Raise `NotFound` if the agent does not offer the model of these settings. One whose models are not known yet takes any."""
    if not settings.model:
        return
    agent = policy.choose_agent(settings, source, profile=session.profile if session else source.profile)
    if agent in policy.plain_agents:
        raise NotFound(Phrase("setting.no_models", agent=agent))
    known = list_models(tx, policy, session, settings, source)
    if known and settings.model not in known:
        name = repr(settings.model[:80])
        raise NotFound(Phrase("setting.model_unknown", name=name, choices=", ".join(known)))


def stop(tx: Transaction, session: SessionId, *, queue: bool = False) -> Turn | None:
    """Ask the running turn to stop and return it, or cancel the next turn if that waits for its files or for the limit of
    a model; `None` if there is neither. With `queue`, cancel queued turns too."""
    sessions.lock(tx, session)
    stopped = turns.find_running(tx, session)
    if stopped:
        turns.request_cancel(tx, stopped)
    else:
        stopped = next(iter(turns.list_queued(tx, session)), None)
        if stopped and (stopped.hold or downloads.has_any(tx, stopped.id)):
            _cancel_queued(tx, stopped)
        else:
            stopped = None
    if queue:
        clear_queue(tx, session)
    return stopped


def clear_queue(tx: Transaction, session: SessionId) -> int:
    """Cancel every queued turn of a session, and return the number of their messages. They are withdrawn: the model does not
    see them."""
    sessions.lock(tx, session)
    return sum(_cancel_queued(tx, turn) for turn in turns.list_queued(tx, session))


def count_queued(tx: Transaction, session: SessionId) -> int:
    """Return how many messages wait in the queued turns of a session."""
    return sum(len(_list_waiting(tx, turn)) for turn in turns.list_queued(tx, session))


def drop(tx: Transaction, turn: TurnId) -> None:
    """Cancel one queued turn and withdraw its messages. Raise `Conflict` in any other state."""
    queued = turns.get(tx, turn)
    if queued.state is not TurnState.QUEUED:
        raise Conflict(
            f"turn {turn} is {queued.state}: only a waiting one can be dropped, a running one stopped",
            Phrase("turn.not_queued"),
        )
    sessions.lock(tx, queued.session)
    _cancel_queued(tx, queued)


def cancel(tx: Transaction, turn: TurnId) -> Turn:
    """Stop a queued or running turn, and return it as it was. A finished one stays as it is."""
    sessions.lock(tx, turns.get(tx, turn).session)
    current = turns.get(tx, turn)
    if current.state is TurnState.QUEUED:
        _cancel_queued(tx, current)
    elif current.state is TurnState.RUNNING:
        turns.request_cancel(tx, current)
    return current


def _cancel_queued(tx: Transaction, turn: Turn) -> int:
    """Cancel a queued turn, withdraw its messages, and return their number."""
    turns.close(tx, turn, TurnState.CANCELLED)
    withdrawn = _list_waiting(tx, turn)
    for message in withdrawn:
        messages.set_mark(tx, message, Mark.WITHDRAWN)
    answers.mark_stopped(tx, turn)
    return len(withdrawn)


def _list_waiting(tx: Transaction, turn: Turn) -> list[Message]:
    """Return the messages of people that a queued turn is to answer."""
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    return [m for m in entries if m.role is Role.USER and m.mark is not Mark.WITHDRAWN]


def withdraw(tx: Transaction, message: Message) -> None:
    """Take a message from its queued turn: the model does not see it. A turn without another message is cancelled."""
    assert message.turn is not None
    turn = turns.get(tx, message.turn)
    messages.set_mark(tx, message, Mark.WITHDRAWN)
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    rest = [m.seq for m in entries if m.role is Role.USER and is_active(m)]
    if rest:
        turns.set_input(tx, turn, rest[0])
    else:
        _cancel_queued(tx, turn)


def rewrite(tx: Transaction, session: SessionId, seq: int, parts: Parts) -> None:
    """Replace the parts of a message. Raise `Conflict` if its turn is no longer queued."""
    sessions.lock(tx, session)
    message = messages.get(tx, session, seq)
    if not is_queued(tx, message):
        raise Conflict(
            f"message {message.id} cannot be changed: only one that still waits for its turn can",
            Phrase("turn.not_queued"),
        )
    messages.rewrite(tx, message, parts)


def is_queued(tx: Transaction, message: Message) -> bool:
    """Whether the turn of a message is queued. Lock the session first, so that it stays so."""
    turn = turns.find(tx, message.turn) if message.turn else None
    return turn is not None and turn.state is TurnState.QUEUED


def reset(tx: Transaction, lane: Lane, reason: ResetReason) -> tuple[Lane, str | None]:
    """End the lane's session; the next message starts a new one. Return the lane, and a notice for the user if the
    session had messages."""
    assert lane.session is not None
    old = sessions.get(tx, lane.session, deleted=True)
    moved = lanes.move(tx, lane, None, why=Phrase(f"move.{reason}"))
    end_session(tx, old, EndReason(reason.value))
    # What is said about a temporary session is stored elsewhere, in clear.
    if not old.messages or is_temporary(old.id):
        return moved, None
    texts = tx.texts.speak(lane.source.language, lane.source.platform)
    notice = texts.say(_RESET_NOTICES[reason], session=quote_name(old))
    return moved, notice


def quote_name(session: Session) -> str:
    """Return what names a session after a command such as /resume: its title in quotes, or its id."""
    return f'"{session.title}"' if session.title else session.id


def start_new_session(tx: Transaction, lane: Lane) -> Session | None:
    """End the lane's session and stop its turns, at the request of a user. Return that session, if there was one."""
    if lane.session is None:
        return None
    old = sessions.get(tx, lane.session, deleted=True)
    stop(tx, old.id, queue=True)
    lanes.move(tx, lane, None, why=Phrase("move.new"))
    end_session(tx, old, EndReason.RESET)
    return old


def start_temporary(tx: Transaction, lane: Lane, *, surface: str, origin: Source) -> SessionId:
    """Continue a lane with a new temporary session. Raise `Invalid` if this store cannot have any."""
    session = sessions.create(
        tx,
        profile=lane.profile,
        owner=lane.owner,
        surface=surface,
        origin=origin,
        id=new_temporary(tx.now),
    )
    start_new_session(tx, lane)
    lanes.move(tx, lane, session, why=Phrase("move.temporary"))
    return session


def clear_temporary(tx: Transaction, *, before: datetime) -> int:
    """End the temporary sessions without activity since a time, and those whose key is gone, as after a restored backup. On
    PostgreSQL a key may be missing because the nodes do not share their folder, so there only age counts. Return how many."""
    ended = 0
    for session in sessions.list_temporary(tx):
        lost = tx.engine is Engine.SQLITE and not tx.keys.has(session.id)
        if lost or (session.active_at < before and not turns.find_running(tx, session.id)):
            delete(tx, session, grace=timedelta(0), erase=True)
            ended += 1
    tx.keys.discard_orphans([session.id for session in sessions.list_temporary(tx)])
    return ended


def switch(tx: Transaction, lane: Lane, session: Session, *, why: str) -> None:
    """Continue a session of the same owner in a lane; a session that has ended is reopened."""
    if lane.profile != session.profile or lane.owner != session.owner:
        raise Invalid("a lane can only go on with a session of the same owner and profile")
    set_ended(tx, session, None)
    if session.ended_at is not None or lane.suspended or lane.session != session.id:
        lanes.move(tx, lane, session.id, why=why)
    # The user is active, so the idle time starts again; the expiry sweep computes the next expiry.
    lanes.touch(tx, lane, expires_at=tx.now)


def delete(tx: Transaction, session: Session, *, grace: timedelta, erase: bool = False) -> None:
    """Stop a session's turns, free its lanes, and hide it until the grace period is over, or erase it at once."""
    stop(tx, session.id, queue=True)
    for question in questions.list_open(tx, session.id):
        if question.left:
            questions.close(tx, question, QuestionState.CANCELLED)
    for lane in lanes.list_for_session(tx, session.id):
        lanes.move(tx, lane, None, why=Phrase("move.deleted"))
    if erase or is_temporary(session.id):
        sessions.erase(tx, session)
    else:
        sessions.soft_delete(tx, session, grace=grace)


def prune(tx: Transaction, session: SessionId, rule: PruneRule, *, grace: timedelta) -> bool:
    """Archive or delete one session by a rule. Return false if it was used meanwhile, and stays."""
    sessions.lock(tx, session)
    current = sessions.get(tx, session)
    if current.active_at >= rule.before or current.pinned or turns.has_open(tx, session):
        return False
    if rule.delete:
        delete(tx, current, grace=grace)
    else:
        sessions.set_archived(tx, current, True)
    return True


def set_ended(tx: Transaction, session: Session, reason: EndReason | None) -> None:
    """End a session, or reopen it without a reason. One that has ended keeps its first reason."""
    if reason is not None:
        end_session(tx, session, reason)
    elif session.ended_at is not None:
        sessions.end(tx, session, None)
        sessions.remove_end_hook(tx, session.id)


def end_session(tx: Transaction, session: Session, reason: EndReason) -> None:
    """End a session and queue its end hooks, unless it has ended before. Of a temporary session nothing is left."""
    if is_temporary(session.id):
        delete(tx, session, grace=timedelta(0), erase=True)
    elif session.ended_at is None:
        sessions.end(tx, session, reason)
        sessions.add_end_hook(tx, session.id, reason.value)
