"""The queue of agent work: enqueue, claim, lease, finish; and the draft of a running turn. Every write of a running turn is fenced by its lease."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

from keryx.core import codec, ids
from keryx.core import source as sources
from keryx.core.changes import ChangeKind, DraftChunk
from keryx.core.clock import from_micros, to_micros
from keryx.core.deliveries import Target
from keryx.core.errors import Conflict, LeaseLost, NotFound
from keryx.core.ids import SessionId, TurnId, WorkerId
from keryx.core.media import Media
from keryx.core.messages import Part, Parts, Reasoning, Text, merge_parts
from keryx.core.sessions import Session
from keryx.core.source import Source
from keryx.core.turns import MOST_ATTEMPTS, MOVES, SUSPECT_ATTEMPTS, BusyMode, Turn, TurnHold, TurnState
from keryx.store import changes, downloads, messages, questions, sessions
from keryx.store.db import Engine, Row, Transaction, maybe_moment
from keryx.store.db.rows import RowMapper

_ROWS = RowMapper(Turn, json={"error"}, columns={"also": "coalesce(also, '[]')"})
_SELECT = f"select {_ROWS.columns} from turns t"
_MAX_CANDIDATES = 8
# Only a turn that waits is held.
_END_HOLD = {state: "" if state is TurnState.QUEUED else "hold = null, " for state in TurnState}


class TurnStatus(NamedTuple):
    author: Source | None  # who asked, if the turn came through a platform
    cancelling: bool


def enqueue(
    tx: Transaction,
    session: Session,
    *,
    asker: str,
    surface: str,
    input_seq: int,
    mode: BusyMode,
    id: TurnId,
    reply: Target | None = None,
    also: tuple[Target, ...] = (),
    pin: WorkerId | None = None,
    source: Source | None = None,
    gathers: str | None = None,
    not_before: datetime | None = None,
    model: str | None = None,
) -> None:
    """Queue a turn for the message `input_seq`, behind everything queued in its session. `source` is its author,
    whose rights are looked at again before it runs. `gathers` is the group of the messages that it waits for."""
    tx.run(
        """
        insert into turns
          (id, session, profile, owner, asker, surface, state, mode, input_seq, reply, also, pin, source, gathers, not_before,
           model, created_at, ready_at)
        values
          (:id, :session, :profile, :owner, :asker, :surface, 'queued', :mode, :input_seq, :reply, :also, :pin, :source, :gathers, :not_before,
           :model, :now, case
             when exists (select 1 from turns q where q.session = :session and q.state = 'queued') then null
             when exists (select 1 from turns r where r.session = :session and r.state = 'running') then null
             else cast(:now as bigint) end)
        """,
        {
            "id": id,
            "session": session.id,
            "profile": session.profile,
            "owner": session.owner,
            "asker": asker,
            "surface": surface,
            "mode": mode.value,
            "input_seq": input_seq,
            "reply": reply and codec.dumps(reply),
            "also": codec.dumps(also) if also else None,
            "pin": pin,
            "source": source and sources.encode(source),
            "gathers": None if gathers is None else ids.escape(gathers),
            "not_before": 0 if not_before is None else to_micros(not_before),
            "model": model,
            "now": to_micros(tx.now),
        },
    )
    scope = changes.Scope(session.profile, session.owner, session.id, id)
    changes.note(tx, ChangeKind.TURN, id, scope, note=TurnState.QUEUED.value)


def get(tx: Transaction, turn: TurnId) -> Turn:
    found = find(tx, turn)
    if found is None:
        raise NotFound(f"there is no turn {turn!r}")
    return found


def find(tx: Transaction, turn: TurnId) -> Turn | None:
    """A turn, or `None` for one that another store ran: messages of forks and imports keep their turn's id."""
    row = tx.row(f"{_SELECT} where t.id = :id", {"id": turn})
    return _ROWS.decode_optional(row)


def get_status(tx: Transaction, turn: TurnId) -> TurnStatus:
    row = tx.row("select source, cancelling from turns where id = :id", {"id": turn})
    if row is None:
        raise NotFound(f"there is no turn {turn!r}")
    return TurnStatus(sources.decode(row[0]) if row[0] else None, bool(row[1]))


def get_author(tx: Transaction, turn: TurnId) -> Source | None:
    return get_status(tx, turn).author


def find_running(tx: Transaction, session: SessionId) -> Turn | None:
    row = tx.row(f"{_SELECT} where t.session = :session and t.state = 'running'", {"session": session})
    return _ROWS.decode_optional(row)


def list_queued(tx: Transaction, session: SessionId) -> list[Turn]:
    """The waiting turns of a session, in the order they will run."""
    rows = tx.rows(
        f"{_SELECT} where t.session = :session and t.state = 'queued' order by t.position",
        {"session": session},
    )
    return _ROWS.decode_all(rows)


def list_answered_in(tx: Transaction, session: SessionId, chat: Target, *, until: Turn) -> list[TurnId]:
    """The turns of a session up to a given one whose answers went to this chat or to a thread of it."""
    rows = tx.rows(
        """
        select id, reply from turns
        where session = :session and reply is not null
          and position <= (select position from turns where id = :until)
        order by position
        """,
        {"session": session, "until": until.id},
    )
    there = (chat.platform, chat.account, chat.chat)
    replies = [(TurnId(id_), codec.loads(reply, Target)) for id_, reply in rows]
    return [id_ for id_, reply in replies if (reply.platform, reply.account, reply.chat) == there]


def list_hidden(tx: Transaction, session: SessionId) -> list[TurnId]:
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


class TurnGathering(NamedTuple):
    group: str  # escaped; empty if the messages have none in common
    until: datetime | None  # when it stops to wait for more


class NewestTurn(NamedTuple):
    id: TurnId
    created_at: datetime
    gathering: TurnGathering | None  # what it gathers; `None` for an ordinary turn


def find_newest(tx: Transaction, session: SessionId, asker: str) -> NewestTurn | None:
    """Return the newest running or waiting turn of a person in a session."""
    row = tx.row(
        """
        select id, created_at, gathers, not_before from turns
        where position = coalesce(
          (
            select position from turns
            where session = :session and state = 'queued' and asker = :asker
            order by position desc limit 1
          ),
          (select position from turns where session = :session and state = 'running' and asker = :asker)
        )
        """,
        {"session": session, "asker": asker},
    )
    if row is None:
        return None
    gathering = None if row[2] is None else TurnGathering(row[2], maybe_moment(row[3] or None))
    return NewestTurn(TurnId(row[0]), from_micros(row[1]), gathering)


def gather(tx: Transaction, turn: Turn, *, not_before: datetime | None) -> None:
    """Make a waiting turn wait until a time for more messages, or begin as soon as it can."""
    tx.run(
        """
        update turns set not_before = :not_before, gathers = coalesce(gathers, ''), hold = null
        where id = :id and state = 'queued'
        """,
        {"id": turn.id, "not_before": 0 if not_before is None else to_micros(not_before)},
    )
    _note_change(tx, turn, TurnState.QUEUED.value)


def restart(tx: Transaction, turn: Turn, *, not_before: datetime | None = None) -> None:
    """Take a running turn that has produced nothing from its worker, and put it back to its place in the queue. The
    attempt does not count."""
    _change_state(
        tx,
        turn,
        TurnState.QUEUED,
        "attempts = attempts - 1, worker = null, started_at = null, not_before = :not_before, ended_lease = lease",
        {"not_before": 0 if not_before is None else to_micros(not_before)},
    )


def hold(tx: Transaction, turn: Turn, until: TurnHold) -> None:
    """Put a running turn back to its place in the queue, where it waits until a time. The attempt does not count."""
    _change_state(
        tx,
        turn,
        TurnState.QUEUED,
        """attempts = attempts - 1, worker = null, interrupted_at = :now, not_before = :not_before, hold = :hold,
           gathers = null, ended_lease = lease""",
        {"not_before": to_micros(until.until), "hold": codec.dumps(until)},
    )


def release(tx: Transaction, session: SessionId) -> bool:
    """Let the turn of a session that is held begin now. Return whether there was one."""
    held = [turn for turn in list_queued(tx, session) if turn.hold]
    for turn in held:
        tx.run(
            "update turns set hold = null, not_before = 0 where id = :id and state = 'queued'",
            {"id": turn.id},
        )
        _note_change(tx, turn, TurnState.QUEUED.value)
    return bool(held)


def was_restarted(tx: Transaction, turn: Turn) -> bool:
    """Whether a turn was taken from this lease to begin again."""
    found = tx.row(
        "select 1 from turns where id = :id and ended_lease = :lease", {"id": turn.id, "lease": turn.lease}
    )
    return found is not None


def prolong_gathering(tx: Transaction, *, until: datetime) -> None:
    """Make all waiting turns that gather wait at least until a time."""
    tx.run(
        """
        update turns set not_before = :until
        where state = 'queued' and gathers is not null and not_before < :until
        """,
        {"until": to_micros(until)},
    )


def has_open(tx: Transaction, session: SessionId) -> bool:
    """Whether a turn of a session runs or waits."""
    return bool(
        tx.row("select 1 from turns where session = :session and state = 'running'", {"session": session})
        or tx.row(
            "select 1 from turns where session = :session and state = 'queued' limit 1", {"session": session}
        )
    )


def list_active(tx: Transaction, *, profile: str, owner: str | None) -> list[Turn]:
    """Every running or waiting turn that a viewer may see, oldest first."""
    rows = tx.rows(
        f"""
        {_SELECT}
        where t.state in ('queued', 'running') and t.profile = :profile and t.owner = coalesce(cast(:owner as text), t.owner)
        order by t.position limit 1000
        """,
        {"profile": profile, "owner": owner},
    )
    return _ROWS.decode_all(rows)


def get_many(tx: Transaction, turns: Iterable[TurnId]) -> list[Turn]:
    """Return the turns with these ids that exist, in any order."""
    rows = tx.rows(f"{_SELECT} where t.id {tx.in_names}", {"names": json.dumps(list(turns))})
    return _ROWS.decode_all(rows)


def lock(tx: Transaction, turn: Turn) -> None:
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
            "now": to_micros(tx.now),
            "error": error and tx.keys.seal(turn.session, codec.dumps(error)),
        },
    )
    if not changed:
        raise LeaseLost(f"turn {turn.id} belongs to another worker now")
    _close_questions(tx, turn, left=left)
    _make_next_ready(tx, turn.session)
    _note_change(tx, turn, state.value)


def close(
    tx: Transaction,
    turn: Turn,
    state: TurnState,
    *,
    error: str | None = None,
    left: bool = False,
) -> None:
    """End a turn that no worker holds: waiting, or found abandoned. Raises `Conflict` if it moved meanwhile.
    With `left` its open questions stay, for its worker is gone."""
    params = {"error": error and tx.keys.seal(turn.session, codec.dumps(error))}
    _change_state(tx, turn, state, "finished_at = :now, error = :error", params, left=left)


def requeue(
    tx: Transaction,
    turn: Turn,
    *,
    attempts: int | None = None,
    blame: int | None = None,
    not_before: datetime | None = None,
) -> None:
    """Put a turn whose worker is gone back to its place in the queue."""
    _change_state(
        tx,
        turn,
        TurnState.QUEUED,
        "attempts = :attempts, blame = :blame, not_before = :not_before, interrupted_at = :now, worker = null",
        {
            "attempts": turn.attempts if attempts is None else attempts,
            "blame": turn.blame if blame is None else blame,
            "not_before": 0 if not_before is None else to_micros(not_before),
        },
    )


def wait_for_files(tx: Transaction, turn: TurnId) -> None:
    """Take a waiting turn that got files to fetch out of the line of all sessions. Those behind it wait, too."""
    tx.run("update turns set ready_at = null where id = :id and state = 'queued'", {"id": turn})


def resume(tx: Transaction, turn: Turn) -> None:
    """Put a waiting turn whose files were fetched back into the line."""
    if turn.state is TurnState.QUEUED:
        _make_next_ready(tx, turn.session)
        _note_change(tx, turn, TurnState.QUEUED.value)


def get_sent_seq(tx: Transaction, turn: TurnId) -> int:
    """Return the number of the last message of a turn that was sent on its own; 0 if there is none."""
    row = tx.row("select sent_seq from turns where id = :id", {"id": turn})
    return row[0] if row else 0


def set_sent_seq(tx: Transaction, turn: Turn, seq: int) -> None:
    """Note that the text of a running turn up to this message is on its way to the chat that asked."""
    tx.run("update turns set sent_seq = :seq where id = :id", {"id": turn.id, "seq": seq})


def set_input(tx: Transaction, turn: Turn, seq: int) -> None:
    """Make a waiting turn begin with another of its messages."""
    tx.run("update turns set input_seq = :seq where id = :id", {"id": turn.id, "seq": seq})


def request_cancel(tx: Transaction, turn: Turn) -> None:
    """Ask the worker of a running turn to stop; the feed tells it."""
    tx.run("update turns set cancelling = 1 where id = :id and state = 'running'", {"id": turn.id})
    changes.note(tx, ChangeKind.CANCEL, turn.id, turn)


def merge(tx: Transaction, turn: Turn, *, into: Turn) -> None:
    """Give the input of a waiting turn to another turn of its session."""
    _change_state(tx, turn, TurnState.MERGED, "finished_at = :now, merged_into = :into", {"into": into.id})
    messages.reassign(tx, turn.session, old=turn.id, new=into.id, first=turn.input_seq)


def list_pinned(tx: Transaction, *, limit: int = 50) -> list[Turn]:
    """Waiting turns that only one worker may run."""
    rows = tx.rows(
        f"{_SELECT} where t.state = 'queued' and t.pin is not null order by t.position limit :limit",
        {"limit": limit},
    )
    return _ROWS.decode_all(rows)


def _note_change(tx: Transaction, turn: Turn, note: str) -> None:
    changes.note(tx, ChangeKind.TURN, turn.id, turn, note=note)


def _change_state(
    tx: Transaction,
    turn: Turn,
    state: TurnState,
    extra: str,
    params: dict[str, Any],
    *,
    left: bool = False,
) -> None:
    if state not in MOVES[turn.state]:
        raise Conflict(f"turn {turn.id} is {turn.state}: it cannot become {state}")
    changed = tx.count(
        f"""
        update turns
        set state = :state, lease = null, lease_until = null, ready_at = null, {_END_HOLD[state]}{extra}
        where id = :id and state = :old and coalesce(lease, '') = :lease
        """,
        {
            **params,
            "id": turn.id,
            "state": state.value,
            "old": turn.state.value,
            "lease": turn.lease or "",
            "now": to_micros(tx.now),
        },
    )
    if not changed:
        raise Conflict(f"turn {turn.id} has moved on: look again")
    if state.finished:
        _close_questions(tx, turn, left=left)
    _make_next_ready(tx, turn.session)
    _note_change(tx, turn, state.value)


def _close_questions(tx: Transaction, turn: Turn, *, left: bool) -> None:
    if left:
        questions.note_orphaned(tx, turn.id)
    else:
        questions.cancel_for_turn(tx, turn.id)


def _make_next_ready(tx: Transaction, session: SessionId) -> None:
    """Put the first waiting turn of a session that has none running into the line of all sessions, unless it waits for files.

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
          and not exists (select 1 from downloads d where d.turn = turns.id)
        """,
        {"session": session},
    )


class TurnClaims(NamedTuple):
    turns: list[Turn]
    passed_over: bool  # another turn waits, whose session was locked
    waiting: bool  # the queue is not empty


def claim(
    tx: Transaction,
    *,
    most: int,
    worker: WorkerId,
    lease: timedelta,
    per_principal: int,
    scoped: bool = False,
    session: SessionId | None = None,
    settled: bool = True,
    sparing: bool = False,
) -> TurnClaims:
    """Lease the next turns, up to `most`, of sessions that have none running. Safe to call concurrently.

    Sessions take turns: one that was served waits behind those that asked before. The attempt is counted
    here, before any work. A scoped worker takes only turns of `session`, and those pinned to it. A worker runs
    one suspect at a time, and while it is not `settled` none that has been blamed. With `sparing` a person may run fewer
    turns than places are left, so that a few people do not take them all."""
    found: list[Turn] = []
    passed_over, more = False, True
    while more and len(found) < most:
        own = min(per_principal, most - len(found)) if sparing else per_principal
        candidates = _list_candidates(tx, worker, own, scoped, session, settled)
        turn, looked_at, busy = _claim_first(tx, candidates, worker, lease)
        found += [turn] if turn else []
        passed_over = passed_over or busy
        # A turn that begins lets no other begin, so a short list that was looked through has nothing more to give.
        more = looked_at < len(candidates) or (turn is not None and looked_at == _MAX_CANDIDATES)
    # Ordered by an index, so that no engine scans the table because it expects many rows.
    waiting = tx.row("select 1 from turns where state = 'queued' order by session, position limit 1")
    return TurnClaims(found, passed_over, waiting is not None)


def renew_leases(tx: Transaction, worker: WorkerId, turns: Iterable[TurnId], *, until: datetime) -> int:
    """Prolong the leases of running turns of a worker; return how many it still has."""
    return sum(
        tx.count(
            "update turns set lease_until = :until where id = :id and worker = :worker and state = 'running'",
            {"id": turn, "worker": worker, "until": to_micros(until)},
        )
        for turn in turns
    )


def list_abandoned(tx: Transaction, *, workers: list[WorkerId], limit: int = 50) -> list[Turn]:
    """Running turns whose lease ran out, or whose worker is among those known to be dead."""
    rows = tx.rows(
        f"{_SELECT} where t.state = 'running' and t.lease_until < :now order by t.lease_until limit :limit",
        {"now": to_micros(tx.now), "limit": limit},
    )
    found = _ROWS.decode_all(rows)
    if workers:
        rows = tx.rows(f"{_SELECT} where t.state = 'running' order by t.position")
        found += [
            t for t in map(_ROWS.decode, rows) if t.worker in workers and t.id not in {f.id for f in found}
        ]
    return found


def cap_delays(tx: Transaction, *, until: datetime) -> None:
    """Shorten every delay that lasts beyond `until`. Used after the clock was set back."""
    tx.run(
        "update turns set not_before = :until where state = 'queued' and not_before > :until",
        {"until": to_micros(until)},
    )


def get_next_ready_at(tx: Transaction) -> datetime | None:
    """When the next waiting turn that is held back may run."""
    row = tx.row(
        "select min(not_before) from turns where state = 'queued' and not_before > 0 and not_before > :now",
        {"now": to_micros(tx.now)},
    )
    return maybe_moment(row[0]) if row else None


def _list_candidates(
    tx: Transaction,
    worker: WorkerId,
    per_principal: int,
    scoped: bool,
    session: SessionId | None,
    settled: bool,
) -> list[Row]:
    _allow_sort(tx, False)
    rows = tx.rows(
        """
        select t.id, t.session
        from turns t
        where t.state = 'queued'
          and t.ready_at is not null
          and t.not_before <= :now
          and t.attempts < :most
          and (
            t.attempts < :suspect
            or (
              (:settled = 1 or t.blame = 0)
              and not exists (
                select 1 from turns r where r.state = 'running' and r.worker = :worker and r.attempts > :suspect
              )
            )
          )
          and (t.pin = :worker or (t.pin is null and (:scoped = 0 or t.session = :session)))
          and (
            select count(*) from turns r where r.profile = t.profile and r.asker = t.asker and r.state = 'running'
          ) < :per_principal
        order by t.ready_at, t.position
        limit :candidates
        """,
        {
            "worker": worker,
            "now": to_micros(tx.now),
            "session": session or "",
            "per_principal": per_principal,
            "scoped": int(scoped),
            "most": MOST_ATTEMPTS,
            "suspect": SUSPECT_ATTEMPTS - 1,
            "settled": int(settled),
            "candidates": _MAX_CANDIDATES,
        },
    )
    _allow_sort(tx, True)
    return rows


def _allow_sort(tx: Transaction, allowed: bool) -> None:
    """With counts from before a rush, PostgreSQL would rather read and sort all that waits than follow the index."""
    if tx.engine is Engine.POSTGRES:
        tx.run(f"set local enable_sort = {'on' if allowed else 'off'}")


def _claim_first(
    tx: Transaction, candidates: list[Row], worker: WorkerId, lease: timedelta
) -> tuple[Turn | None, int, bool]:
    """Take the first candidate whose session is free; how many were looked at, and whether one was passed over."""
    passed_over = False
    for number, (candidate, session) in enumerate(candidates, start=1):
        # Lock the session, unless another transaction has locked it.
        if tx.skip_locked and not tx.row(
            f"select 1 from sessions where id = :id{tx.skip_locked}", {"id": session}
        ):
            passed_over = True
            continue
        # The state is an expression, so that an index of all that waits is never taken for shorter than one id.
        row = tx.row(
            f"""
            update turns as t
            set state = 'running', attempts = t.attempts + 1, worker = :worker, lease = :lease, lease_until = :until,
                started_at = :now, cancelling = 0, ready_at = null, hold = null
            where t.id = :id and t.state || '' = 'queued' and t.attempts < :most
            returning {_ROWS.columns}
            """,
            {
                "id": candidate,
                "worker": worker,
                "lease": ids.new_token(),
                "until": to_micros(tx.now + lease),
                "now": to_micros(tx.now),
                "most": MOST_ATTEMPTS,
            },
        )
        if row is not None:
            turn = _ROWS.decode(row)
            sessions.count_turn(tx, turn.session)
            _note_change(tx, turn, TurnState.RUNNING.value)
            return _merge_collected(tx, turn), number, passed_over
    return None, len(candidates), passed_over


def _merge_collected(tx: Transaction, turn: Turn) -> Turn:
    """Join the waiting turns behind this one that ask for it, come from the same person and go to the same place."""
    if turn.mode is not BusyMode.COLLECT:
        return turn
    place = turn.reply and turn.reply.key
    for other in list_queued(tx, turn.session):
        if (
            other.mode is not BusyMode.COLLECT
            or other.asker != turn.asker
            or other.pin != turn.pin
            or (other.reply and other.reply.key) != place
            or downloads.has_any(tx, other.id)
        ):
            break
        merge(tx, other, into=turn)
    return turn


def append_draft(tx: Transaction, turn: Turn, parts: Sequence[Text | Reasoning | Media]) -> None:
    """Add pieces to the draft and note each. The caller holds the turn."""
    row = tx.row(
        "update turns set pieces = pieces + :more where id = :id returning pieces",
        {"id": turn.id, "more": len(parts)},
    )
    assert row is not None
    seal = tx.keys.seal
    for n, part in enumerate(parts, start=int(row[0]) - len(parts) + 1):
        tx.run(
            """
            insert into pieces (turn, n, body, thought, opaque, media)
            values (:turn, :n, :body, :thought, :opaque, :media)
            """,
            {
                "turn": turn.id,
                "n": n,
                "body": seal(turn.session, codec.dumps("" if isinstance(part, Media) else part.text)),
                "thought": int(isinstance(part, Reasoning)),
                "opaque": seal(turn.session, codec.dumps(part.opaque)) if isinstance(part, Reasoning) else "",
                "media": seal(turn.session, codec.dumps(part)) if isinstance(part, Media) else None,
            },
        )
        changes.note(tx, ChangeKind.DRAFT, turn.id, turn, n=n)


def list_draft_pieces(tx: Transaction, turn: TurnId, *, thoughts: bool = True) -> list[DraftChunk]:
    """Return the draft in order. Without `thoughts` the text of reasoning is not read: its pieces are empty."""
    rows = tx.rows(
        """
        select n, case when thought > :thoughts then '""' else body end, thought, media
        from pieces where turn = :turn order by n
        """,
        {"turn": turn, "thoughts": int(thoughts)},
    )
    return [draft_piece_from_row(*row) for row in rows]


def draft_piece_from_row(n: int, body: str, thought: int, media: str | None) -> DraftChunk:
    return DraftChunk(n, codec.loads(body, str), bool(thought), _decode_media(media) if media else None)


def take_draft(tx: Transaction, turn: TurnId) -> Parts:
    """Empty the draft and return its parts, which become a message in the same transaction."""
    rows = tx.rows(
        "delete from pieces where turn = :turn returning n, body, thought, opaque, media", {"turn": turn}
    )
    parts: list[Part] = []
    for _, body, thought, opaque, media in sorted(rows, key=lambda row: row[0]):
        if media:
            parts.append(_decode_media(media))
        elif thought:
            parts.append(Reasoning(codec.loads(body, str), codec.loads(opaque, str)))
        else:
            parts.append(Text(codec.loads(body, str)))
    return merge_parts(parts)


def _decode_media(text: str) -> Media:
    # The type checker does not take a union for a type; the decoder does.
    return codec.loads(text, cast(type[Media], Media))
