"""Turns: the queue of agent work. Every write of a running turn is fenced by its lease."""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from keryx.core import source as sources
from keryx.core import wire
from keryx.core.changes import Kind
from keryx.core.deliveries import Target
from keryx.core.errors import Conflict, LeaseLost, NotFound
from keryx.core.ids import LeaseToken, SessionId, TurnId, WorkerId
from keryx.core.source import Source
from keryx.core.turns import MOVES, BusyMode, Turn, TurnState
from keryx.store import changes, messages, questions, sessions
from keryx.store.database import AMONG_NAMES, Row, Transaction, maybe_moment, micros, moment

COLUMNS = """
  t.id, t.session, t.profile, t.owner, t.state, t.mode, t.attempts, t.created_at, t.surface, t.started_at, t.finished_at,
  t.reply, t.pin, t.worker, t.lease, t.cancelling, t.error, t.merged_into, t.interrupted_at, t.input_seq,
  t.asker, t.lease_until, t.blame, t.also
"""
SELECT = f"select {COLUMNS} from turns t"


class Standing(NamedTuple):
    """Who asked for a turn, if it came in through a platform, and whether somebody wants it stopped by now."""

    author: Source | None
    cancelling: bool


def enqueue(
    tx: Transaction,
    session: SessionId,
    *,
    profile: str,
    owner: str,
    asker: str,
    surface: str,
    input_seq: int,
    mode: BusyMode,
    now: datetime,
    id: TurnId,
    reply: Target | None = None,
    also: tuple[Target, ...] = (),
    pin: WorkerId | None = None,
    source: Source | None = None,
) -> None:
    """Queue a turn for the message `input_seq`, behind everything queued in its session. `source` is its author,
    whose rights are looked at again before it runs."""
    tx.run(
        """
        insert into turns
          (id, session, profile, owner, asker, surface, state, mode, input_seq, reply, also, pin, source, created_at, ready_at)
        values
          (:id, :session, :profile, :owner, :asker, :surface, 'queued', :mode, :input_seq, :reply, :also, :pin, :source, :now, case
             when exists (select 1 from turns q where q.session = :session and q.state = 'queued') then null
             when exists (select 1 from turns r where r.session = :session and r.state = 'running') then null
             else cast(:now as bigint) end)
        """,
        {
            "id": id,
            "session": session,
            "profile": profile,
            "owner": owner,
            "asker": asker,
            "surface": surface,
            "mode": mode.value,
            "input_seq": input_seq,
            "reply": reply and wire.dumps(reply),
            "also": wire.dumps(also) if also else None,
            "pin": pin,
            "source": source and sources.encode(source),
            "now": micros(now),
        },
    )
    changes.note(
        tx,
        Kind.TURN,
        id,
        profile=profile,
        owner=owner,
        at=now,
        session=session,
        turn=id,
        note=TurnState.QUEUED.value,
    )


def get(tx: Transaction, turn: TurnId) -> Turn:
    found = find(tx, turn)
    if found is None:
        raise NotFound(f"there is no turn {turn!r}")
    return found


def find(tx: Transaction, turn: TurnId) -> Turn | None:
    """A turn, or `None` for one that another store ran: messages of forks and imports keep their turn's id."""
    row = tx.row(f"{SELECT} where t.id = :id", {"id": turn})
    return None if row is None else from_row(row)


def standing(tx: Transaction, turn: TurnId) -> Standing:
    row = tx.row("select source, cancelling from turns where id = :id", {"id": turn})
    if row is None:
        raise NotFound(f"there is no turn {turn!r}")
    return Standing(sources.decode(row[0]) if row[0] else None, bool(row[1]))


def author(tx: Transaction, turn: TurnId) -> Source | None:
    return standing(tx, turn).author


def running(tx: Transaction, session: SessionId) -> Turn | None:
    row = tx.row(f"{SELECT} where t.session = :session and t.state = 'running'", {"session": session})
    return None if row is None else from_row(row)


def queued(tx: Transaction, session: SessionId) -> list[Turn]:
    """The waiting turns of a session, in the order they will run."""
    rows = tx.rows(
        f"{SELECT} where t.session = :session and t.state = 'queued' order by t.position",
        {"session": session},
    )
    return [from_row(row) for row in rows]


def set_aside(tx: Transaction, session: SessionId) -> list[TurnId]:
    """Turns of a session that the model is not to see: those that wait, and those that were parked."""
    rows = tx.rows(
        """
        select id from turns where session = :session and state = 'queued'
        union all
        select id from turns where session = :session and state = 'parked'
        """,
        {"session": session},
    )
    return [TurnId(row[0]) for row in rows]


def open_in(tx: Transaction, session: SessionId) -> bool:
    """Whether a turn of a session runs or waits."""
    return bool(
        tx.row("select 1 from turns where session = :session and state = 'running'", {"session": session})
        or tx.row(
            "select 1 from turns where session = :session and state = 'queued' limit 1", {"session": session}
        )
    )


def active(tx: Transaction, *, profile: str, owner: str | None) -> list[Turn]:
    """Every running or waiting turn that a viewer may see, oldest first."""
    rows = tx.rows(
        f"""
        {SELECT}
        where t.state in ('queued', 'running') and t.profile = :profile and t.owner = coalesce(cast(:owner as text), t.owner)
        order by t.position limit 1000
        """,
        {"profile": profile, "owner": owner},
    )
    return [from_row(row) for row in rows]


def among(tx: Transaction, turns: Iterable[TurnId]) -> list[Turn]:
    """Those of these turns that exist, in no order."""
    rows = tx.rows(f"{SELECT} where t.id {AMONG_NAMES[tx.engine]}", {"names": json.dumps(list(turns))})
    return [from_row(row) for row in rows]


def hold(tx: Transaction, turn: Turn) -> None:
    """Lock a running turn, or raise `LeaseLost` if it is no longer ours. Begins every write of a worker."""
    sessions.lock(tx, turn.session)
    held = tx.row(
        f"select 1 from turns where id = :id and lease = :lease and state = 'running'{tx.for_update}",
        {"id": turn.id, "lease": turn.lease},
    )
    if held is None:
        raise LeaseLost(f"turn {turn.id} belongs to another worker now")


def finish(
    tx: Transaction,
    turn: Turn,
    state: TurnState,
    *,
    now: datetime,
    error: str | None = None,
    left: bool = False,
) -> None:
    """End a running turn under its lease. With `left` its open questions stay, for its worker is going away."""
    changed = tx.count(
        """
        update turns
        set state = :state, lease = null, lease_until = null, finished_at = :now, error = :error
        where id = :id and lease = :lease and state = 'running'
        """,
        {
            "id": turn.id,
            "lease": turn.lease,
            "state": state.value,
            "now": micros(now),
            "error": error and wire.dumps(error),
        },
    )
    if not changed:
        raise LeaseLost(f"turn {turn.id} belongs to another worker now")
    _end_questions(tx, turn, left=left, now=now)
    _let_next(tx, turn.session)
    note(tx, turn, state.value, now)


def close(
    tx: Transaction,
    turn: Turn,
    state: TurnState,
    *,
    now: datetime,
    error: str | None = None,
    left: bool = False,
) -> None:
    """End a turn that no worker holds: waiting, or found abandoned. Raises `Conflict` if it moved meanwhile.
    With `left` its open questions stay, for its worker is gone."""
    params = {"error": error and wire.dumps(error)}
    _move(tx, turn, state, "finished_at = :now, error = :error", params, now, left=left)


def requeue(
    tx: Transaction,
    turn: Turn,
    *,
    now: datetime,
    attempts: int | None = None,
    blame: int | None = None,
    not_before: datetime | None = None,
) -> None:
    """Put a turn whose worker is gone back to its place in the queue."""
    _move(
        tx,
        turn,
        TurnState.QUEUED,
        "attempts = :attempts, blame = :blame, not_before = :not_before, interrupted_at = :now, worker = null",
        {
            "attempts": turn.attempts if attempts is None else attempts,
            "blame": turn.blame if blame is None else blame,
            "not_before": 0 if not_before is None else micros(not_before),
        },
        now,
    )


def request_cancel(tx: Transaction, turn: Turn, *, now: datetime) -> None:
    """Ask the worker of a running turn to stop; the feed tells it."""
    tx.run("update turns set cancelling = 1 where id = :id and state = 'running'", {"id": turn.id})
    changes.note(
        tx,
        Kind.CANCEL,
        turn.id,
        profile=turn.profile,
        owner=turn.owner,
        at=now,
        session=turn.session,
        turn=turn.id,
    )


def cancelling(tx: Transaction, worker: WorkerId) -> list[TurnId]:
    rows = tx.rows(
        "select id from turns where state = 'running' and worker = :worker and cancelling = 1",
        {"worker": worker},
    )
    return [TurnId(row[0]) for row in rows]


def merge(tx: Transaction, turn: Turn, *, into: Turn, now: datetime) -> None:
    """Give the input of a waiting turn to another turn of its session."""
    _move(tx, turn, TurnState.MERGED, "finished_at = :now, merged_into = :into", {"into": into.id}, now)
    messages.reassign(tx, turn.session, old=turn.id, new=into.id, first=turn.input_seq)


def pinned(tx: Transaction, *, limit: int = 50) -> list[Turn]:
    """Waiting turns that only one worker may run."""
    rows = tx.rows(
        f"{SELECT} where t.state = 'queued' and t.pin is not null order by t.position limit :limit",
        {"limit": limit},
    )
    return [from_row(row) for row in rows]


def note(tx: Transaction, turn: Turn, note: str, now: datetime) -> None:
    changes.note(
        tx,
        Kind.TURN,
        turn.id,
        profile=turn.profile,
        owner=turn.owner,
        at=now,
        session=turn.session,
        turn=turn.id,
        note=note,
    )


def from_row(row: Row) -> Turn:
    (
        id_, session, profile, owner, state, mode, attempts, created_at, surface, started_at, finished_at,
        reply, pin, worker, lease, cancelling_, error, merged_into, interrupted_at, input_seq_, asker, lease_until, blame,
        also,
    ) = row  # fmt: skip
    return Turn(
        id=id_,
        session=session,
        profile=profile,
        owner=owner,
        state=TurnState(state),
        mode=BusyMode(mode),
        attempts=attempts,
        created_at=moment(created_at),
        surface=surface,
        started_at=maybe_moment(started_at),
        finished_at=maybe_moment(finished_at),
        reply=wire.loads(reply, Target) if reply else None,
        also=wire.loads(also, tuple[Target, ...]) if also else (),
        pin=pin,
        worker=worker,
        lease=lease and LeaseToken(lease),
        cancelling=bool(cancelling_),
        error=wire.loads(error, str) if error else None,
        merged_into=merged_into,
        interrupted_at=maybe_moment(interrupted_at),
        input_seq=input_seq_,
        asker=asker,
        lease_until=maybe_moment(lease_until),
        blame=blame,
    )


def _move(
    tx: Transaction,
    turn: Turn,
    state: TurnState,
    extra: str,
    params: dict[str, Any],
    now: datetime,
    *,
    left: bool = False,
) -> None:
    if state not in MOVES[turn.state]:
        raise Conflict(f"turn {turn.id} is {turn.state}: it cannot become {state}")
    changed = tx.count(
        f"""
        update turns
        set state = :state, lease = null, lease_until = null, ready_at = null, {extra}
        where id = :id and state = :old and coalesce(lease, '') = :lease
        """,
        {
            **params,
            "id": turn.id,
            "state": state.value,
            "old": turn.state.value,
            "lease": turn.lease or "",
            "now": micros(now),
        },
    )
    if not changed:
        raise Conflict(f"turn {turn.id} has moved on: look again")
    if state.finished:
        _end_questions(tx, turn, left=left, now=now)
    _let_next(tx, turn.session)
    note(tx, turn, state.value, now)


def _end_questions(tx: Transaction, turn: Turn, *, left: bool, now: datetime) -> None:
    if left:
        questions.leave(tx, turn.id, now=now)
    else:
        questions.cancel(tx, turn.id, now=now)


def _let_next(tx: Transaction, session: SessionId) -> None:
    """Put the first waiting turn of a session that has none running into the line of all sessions.

    Only that turn has `ready_at`, so a claim looks at one turn per session however many wait behind it. Its place
    is the moment when it was asked or when its session was last served, whichever is later."""
    tx.run(
        """
        update turns
        set ready_at = (
          select case when s.served_at > turns.created_at then s.served_at else turns.created_at end
          from sessions s where s.id = turns.session
        )
        where position = (select min(q.position) from turns q where q.session = :session and q.state = 'queued')
          and ready_at is null
          and not exists (select 1 from turns r where r.session = :session and r.state = 'running')
        """,
        {"session": session},
    )
