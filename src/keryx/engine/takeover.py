"""Takeover of sessions that another program keeps: which agent continues one here, and whether it may do so now."""

from collections.abc import Sequence

import msgspec

from keryx.core.changes import ChangeKind
from keryx.core.errors import Conflict, Forbidden, NotFound
from keryx.core.sessions import Binding, ProgramState, Session, TakeoverRules, Viewer, WatchedSession
from keryx.core.texts import Phrase
from keryx.store import changes, imports, sessions
from keryx.store.db import Transaction
from keryx.store.imports import ImportKey

_STATE_PHRASES = {
    ProgramState.IDLE: "watch.state_idle",
    ProgramState.OPEN: "watch.state_open",
    ProgramState.WRITING: "watch.state_writing",
}


# These delete a session some time after their own agent has opened it: seen with Gemini CLI 0.61.
_LOSING_PROGRAMS = frozenset({"gemini"})


class ProgramStateChange(msgspec.Struct, frozen=True):
    """What a program does with one of its sessions now."""

    program: str
    # The id in the program.
    source: str
    state: ProgramState


class Takeover(msgspec.Struct, frozen=True):
    """How a turn continues a session of another program."""

    agent: str
    binding: Binding


def prepare(tx: Transaction, session: Session, rules: TakeoverRules) -> Takeover | None:
    """Return how the next turn continues the session in its program; `None` for a session that is not watched, or for which
    a person has chosen another agent. Raise `Forbidden` if it cannot be continued now."""
    watched = imports.find_watched(tx, session.id)
    if watched is None:
        return None
    agent = rules.agents.get(watched.program, "")
    if session.settings.agent and session.settings.agent != agent:
        return None
    if refusal := find_refusal(tx, watched, rules):
        raise Forbidden(refusal)
    known = sessions.list_bindings(tx, session.id).get(agent)
    if known is not None and known.id == watched.source:
        return Takeover(agent, msgspec.structs.replace(known, kept=True))
    seq = imports.get_last_seq(tx, session.id, surface=session.surface)
    return Takeover(agent, Binding(agent=agent, id=watched.source, cwd=session.cwd, seq=seq, kept=True))


def find_refusal(tx: Transaction, watched: WatchedSession, rules: TakeoverRules) -> Phrase | None:
    """Return why a session cannot be continued here now, `None` if it can."""
    names = {"program": watched.title, "machine": watched.machine}
    if watched.pushed or watched.machine != rules.machine:
        return Phrase("watch.elsewhere", **names)
    if watched.program not in rules.agents:
        if watched.program in _LOSING_PROGRAMS:
            return Phrase("watch.loses", **names)
        return Phrase("watch.no_agent", name=watched.program, **names)
    state = watched.get_state(tx.now)
    if state is ProgramState.WRITING:
        return Phrase("watch.writing", **names)
    if state is ProgramState.OPEN and not watched.is_taken():
        return Phrase("watch.open", **names)
    return None


def take_over(tx: Transaction, session: Session, rules: TakeoverRules) -> WatchedSession:
    """Let the next message continue a session here although its program is open. Raise `NotFound` for a session that is
    not watched, `Conflict` if it cannot be continued here."""
    watched = imports.find_watched(tx, session.id)
    if watched is None:
        raise NotFound(Phrase("watch.not_watched"))
    sessions.lock(tx, session.id)
    imports.set_taken(tx, session.id)
    taken = msgspec.structs.replace(watched, taken_at=tx.now)
    if refusal := find_refusal(tx, taken, rules):
        raise Conflict(refusal)
    changes.note(tx, ChangeKind.SESSION, session.id, session)
    return taken


def set_states(tx: Transaction, owner: Viewer, states: Sequence[ProgramStateChange]) -> None:
    """Note what programs do with the sessions of a person."""
    for change in states:
        key = ImportKey(owner.profile, owner.principal, change.program, change.source)
        found = imports.find(tx, key)
        watched = imports.find_watched(tx, found.session) if found and not found.deleted else None
        if watched is None:
            continue
        imports.set_program_state(tx, watched.session, change.state)
        if watched.state is not change.state:
            session = sessions.get(tx, watched.session)
            changes.note(tx, ChangeKind.SESSION, session.id, session)


def describe(tx: Transaction, watched: WatchedSession) -> Phrase:
    """Return a sentence about where a session is kept, and what its program does."""
    names = {"program": watched.title, "machine": watched.machine}
    return Phrase(_STATE_PHRASES[watched.get_state(tx.now)], **names)
