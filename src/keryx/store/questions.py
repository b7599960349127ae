"""Questions: what agents ask people, with the answers."""

import json
from collections.abc import Iterable
from datetime import datetime

from keryx.core import ids, wire
from keryx.core.changes import Kind
from keryx.core.errors import Conflict, NotFound
from keryx.core.ids import PrincipalId, QuestionId, SessionId, TurnId
from keryx.core.questions import Asked, Question, QuestionState
from keryx.core.sessions import Viewer
from keryx.core.turns import Turn
from keryx.store import buttons, changes
from keryx.store.database import AMONG_NAMES, Row, Transaction, maybe_moment, micros, moment

# A count, for with `exists` PostgreSQL would rather read all turns than look up a few.
LEFT = """
q.taken = 0 and q.state in ('open', 'answered') and 1 = (
  select count(*) from turns t
  where t.id = q.turn and t.pin is not null and t.cancelling = 0 and t.state in ('failed', 'cancelled')
)
"""
_SELECT = f"""
select q.id, q.profile, q.owner, q.session, q.turn, q.asker, q.shared, q.body, q.state, q.answer, q.answered_by, q.taken,
  {LEFT}, q.created_at, q.expires_at, q.closed_at
from questions q
"""


def put(
    tx: Transaction,
    turn: Turn,
    question: Question,
    *,
    shared: bool,
    expires_at: datetime,
    now: datetime,
    answer: str | None = None,
) -> Asked:
    """Store a question of a running turn, open unless its answer is known. The caller holds the turn and has looked
    for the key."""
    state = QuestionState.OPEN if answer is None else QuestionState.ANSWERED
    made = QuestionId(ids.new(now))
    tx.run(
        """
        insert into questions
          (id, profile, owner, session, turn, asker, shared, key, body, state, answer, created_at, expires_at, closed_at)
        values
          (:id, :profile, :owner, :session, :turn, :asker, :shared, :key, :body, :state, :answer, :now, :expires_at,
           :closed_at)
        """,
        {
            "id": made,
            "profile": turn.profile,
            "owner": turn.owner,
            "session": turn.session,
            "turn": turn.id,
            "asker": turn.asker,
            "shared": int(shared),
            "key": ids.plain(question.key),
            "body": wire.dumps(question),
            "now": micros(now),
            "expires_at": micros(expires_at),
            "state": state.value,
            "answer": None if answer is None else wire.dumps(answer),
            "closed_at": None if answer is None else micros(now),
        },
    )
    asked = get(tx, made)
    _note(tx, asked, state, now)
    return asked


def get(tx: Transaction, question: QuestionId, *, viewer: Viewer | None = None) -> Asked:
    asked = known(tx, question)
    if asked is None or (viewer and not asked.seen_by(viewer)):
        raise NotFound(f"there is no question {question!r}: `keryx questions list` shows those that wait")
    return asked


def known(tx: Transaction, question: QuestionId) -> Asked | None:
    row = tx.row(f"{_SELECT} where q.id = :id", {"id": question})
    return None if row is None else _asked(row)


def find(tx: Transaction, turn: TurnId, key: str) -> Asked | None:
    """The question that a turn put under a key."""
    row = tx.row(f"{_SELECT} where q.turn = :turn and q.key = :key", {"turn": turn, "key": ids.plain(key)})
    return None if row is None else _asked(row)


def waiting(tx: Transaction, session: SessionId) -> list[Asked]:
    """The open questions of a session, in the order they were put."""
    # Asked with every message, and there is mostly none: sorting here spares the database the means to sort.
    rows = tx.rows(f"{_SELECT} where q.session = :session and q.state = 'open'", {"session": session})
    return sorted((_asked(row) for row in rows), key=lambda asked: (asked.created_at, asked.id))


def of_session(tx: Transaction, session: SessionId, *, limit: int = 200) -> list[Asked]:
    """The last questions of a session, whatever became of them, newest first."""
    rows = tx.rows(
        f"{_SELECT} where q.session = :session order by q.created_at desc, q.id desc limit :limit",
        {"session": session, "limit": limit},
    )
    return [_asked(row) for row in rows]


def of_turn(tx: Transaction, turn: TurnId) -> list[Asked]:
    rows = tx.rows(f"{_SELECT} where q.turn = :turn order by q.created_at, q.id", {"turn": turn})
    return [_asked(row) for row in rows]


def kept(tx: Transaction, session: SessionId) -> list[Asked]:
    """The answers of a session that no agent was given, for the one that asked was gone; newest first."""
    rows = tx.rows(
        f"{_SELECT} where q.session = :session and q.state = 'answered' and {LEFT} order by q.created_at desc, q.id desc",
        {"session": session},
    )
    return [_asked(row) for row in rows]


def overdue(tx: Transaction, *, now: datetime) -> list[Asked]:
    """Open questions that nobody waits for and that have run out."""
    rows = tx.rows(
        f"{_SELECT} where q.state = 'open' and q.expires_at <= :now and {LEFT}", {"now": micros(now)}
    )
    return [_asked(row) for row in rows]


def among(tx: Transaction, questions: Iterable[str]) -> list[Asked]:
    """Those of these questions that exist, in no order."""
    rows = tx.rows(f"{_SELECT} where q.id {AMONG_NAMES[tx.engine]}", {"names": json.dumps(list(questions))})
    return [_asked(row) for row in rows]


def page(tx: Transaction, viewer: Viewer, *, limit: int = 200) -> list[Asked]:
    """The open questions that a viewer may see, oldest first."""
    rows = tx.rows(
        f"""
        {_SELECT}
        where q.state = 'open' and q.profile = :profile
          and (cast(:owner as text) is null or q.owner = :owner or q.asker = :owner)
        order by q.created_at, q.id
        limit :limit
        """,
        {"profile": viewer.profile, "owner": viewer.owner, "limit": limit},
    )
    return [_asked(row) for row in rows]


def close(
    tx: Transaction,
    asked: Asked,
    state: QuestionState,
    *,
    now: datetime,
    answer: str | None = None,
    by: PrincipalId | None = None,
) -> None:
    """End an open question. `Conflict` if it was closed meanwhile."""
    changed = tx.count(
        """
        update questions set state = :state, answer = :answer, answered_by = :by, closed_at = :now
        where id = :id and state = 'open'
        """,
        {
            "id": asked.id,
            "state": state.value,
            "answer": None if answer is None else wire.dumps(answer),
            "by": by,
            "now": micros(now),
        },
    )
    if not changed:
        raise Conflict(f"the question “{asked.question.title}” is closed already")
    _note(tx, asked, state, now)
    buttons.end(tx, get(tx, asked.id), now=now)


def prolong(tx: Transaction, asked: Asked, expires_at: datetime) -> None:
    """Set when an open question runs out."""
    tx.run("update questions set expires_at = :at where id = :id", {"id": asked.id, "at": micros(expires_at)})


def take(tx: Transaction, asked: Asked) -> None:
    """The agent is given what became of a question: from here on it may act on it."""
    tx.run("update questions set taken = 1 where id = :id", {"id": asked.id})


def cancel(tx: Transaction, turn: TurnId, *, now: datetime) -> None:
    """Close the open questions of a turn that has ended."""
    for asked in _open(tx, turn):
        close(tx, asked, QuestionState.CANCELLED, now=now)


def leave(tx: Transaction, turn: TurnId, *, now: datetime) -> None:
    """Keep the questions of a turn open though it has ended, and say that nobody waits for them now."""
    for asked in _open(tx, turn):
        _note(tx, asked, QuestionState.OPEN, now)


def _open(tx: Transaction, turn: TurnId) -> list[Asked]:
    rows = tx.rows(f"{_SELECT} where q.turn = :turn and q.state = 'open'", {"turn": turn})
    return [_asked(row) for row in rows]


def _note(tx: Transaction, asked: Asked, state: QuestionState, now: datetime) -> None:
    changes.note(
        tx,
        Kind.QUESTION,
        asked.id,
        profile=asked.profile,
        owner=asked.owner,
        at=now,
        session=asked.session,
        turn=asked.turn,
        note=state.value,
    )


def _asked(row: Row) -> Asked:
    (
        id_, profile, owner, session, turn, asker, shared, body, state, answer, answered_by, taken, left,
        created_at, expires_at, closed_at,
    ) = row  # fmt: skip
    return Asked(
        id=id_,
        profile=profile,
        owner=owner,
        session=session,
        turn=turn,
        asker=asker,
        shared=bool(shared),
        question=wire.loads(body, Question),
        state=QuestionState(state),
        answer=None if answer is None else wire.loads(answer, str),
        answered_by=answered_by,
        taken=bool(taken),
        left=bool(left),
        created_at=moment(created_at),
        expires_at=moment(expires_at),
        closed_at=maybe_moment(closed_at),
    )
