"""Questions that agents ask people, with the answers, the buttons that show them in a chat, and the consents that last for a session."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime

from keryx.core import codec, ids
from keryx.core import questions as core
from keryx.core.changes import ChangeKind
from keryx.core.clock import from_micros, to_micros
from keryx.core.errors import Conflict, NotFound
from keryx.core.ids import DeliveryId, PrincipalId, QuestionId, SessionId, TurnId
from keryx.core.questions import AskedQuestion, Consent, Question, QuestionState, ToolConsent
from keryx.core.sessions import Viewer
from keryx.core.texts import Phrase
from keryx.core.turns import Turn
from keryx.store import changes, deliveries, people
from keryx.store.db import Transaction
from keryx.store.db.rows import RowMapper

# A count, for with `exists` PostgreSQL would rather read all turns than look up a few.
ORPHANED = """
q.taken = 0 and q.state in ('open', 'answered') and 1 = (
  select count(*) from turns t
  where t.id = q.turn and t.pin is not null and t.cancelling = 0 and t.state in ('failed', 'cancelled')
)
"""
_ROWS = RowMapper(
    AskedQuestion, table="q", json={"answer"}, columns={"question": "q.body", "left": f"({ORPHANED})"}
)
_SELECT = f"select {_ROWS.columns} from questions q"


def add(
    tx: Transaction,
    turn: Turn,
    question: Question,
    *,
    shared: bool,
    expires_at: datetime,
    answer: str | None = None,
) -> AskedQuestion:
    """Store a question of a running turn, open unless its answer is known. The caller holds the turn and has looked
    for the key."""
    state = QuestionState.OPEN if answer is None else QuestionState.ANSWERED
    made = QuestionId(ids.new(tx.now))
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
            "key": ids.escape(question.key),
            "body": tx.keys.seal(turn.session, codec.dumps(question)),
            "now": to_micros(tx.now),
            "expires_at": to_micros(expires_at),
            "state": state.value,
            "answer": None if answer is None else tx.keys.seal(turn.session, codec.dumps(answer)),
            "closed_at": None if answer is None else to_micros(tx.now),
        },
    )
    asked = get(tx, made)
    _note_change(tx, asked, state)
    return asked


def get(tx: Transaction, question: QuestionId, *, viewer: Viewer | None = None) -> AskedQuestion:
    asked = find_by_id(tx, question)
    if asked is None or (viewer and not asked.visible_to(viewer)):
        raise NotFound(
            f"there is no question {question!r}: `keryx questions list` shows those that wait",
            Phrase("question.gone"),
        )
    return asked


def find_by_id(tx: Transaction, question: QuestionId) -> AskedQuestion | None:
    row = tx.row(f"{_SELECT} where q.id = :id", {"id": question})
    return _ROWS.decode_optional(row)


def find_by_key(tx: Transaction, turn: TurnId, key: str) -> AskedQuestion | None:
    """The question that a turn put under a key."""
    row = tx.row(f"{_SELECT} where q.turn = :turn and q.key = :key", {"turn": turn, "key": ids.escape(key)})
    return _ROWS.decode_optional(row)


def list_open(tx: Transaction, session: SessionId) -> list[AskedQuestion]:
    """The open questions of a session, in the order they were put."""
    # Asked with every message, and there is mostly none: sorting here spares the database the means to sort.
    rows = tx.rows(f"{_SELECT} where q.session = :session and q.state = 'open'", {"session": session})
    return sorted((_ROWS.decode(row) for row in rows), key=lambda asked: (asked.created_at, asked.id))


def list_for_session(tx: Transaction, session: SessionId, *, limit: int = 200) -> list[AskedQuestion]:
    """Return the last questions of a session in any state, newest first."""
    rows = tx.rows(
        f"{_SELECT} where q.session = :session order by q.created_at desc, q.id desc limit :limit",
        {"session": session, "limit": limit},
    )
    return _ROWS.decode_all(rows)


def list_for_turn(tx: Transaction, turn: TurnId) -> list[AskedQuestion]:
    rows = tx.rows(f"{_SELECT} where q.turn = :turn order by q.created_at, q.id", {"turn": turn})
    return _ROWS.decode_all(rows)


def list_orphaned_answers(tx: Transaction, session: SessionId) -> list[AskedQuestion]:
    """The answers of a session that no agent was given, for the one that asked was gone; newest first."""
    rows = tx.rows(
        f"{_SELECT} where q.session = :session and q.state = 'answered' and {ORPHANED} order by q.created_at desc, q.id desc",
        {"session": session},
    )
    return _ROWS.decode_all(rows)


def list_orphaned_overdue(tx: Transaction) -> list[AskedQuestion]:
    """Return the expired open questions whose turn has ended."""
    rows = tx.rows(
        f"{_SELECT} where q.state = 'open' and q.expires_at <= :now and {ORPHANED}",
        {"now": to_micros(tx.now)},
    )
    return _ROWS.decode_all(rows)


def get_many(tx: Transaction, questions: Iterable[str]) -> list[AskedQuestion]:
    """Those of these questions that exist, in no order."""
    rows = tx.rows(f"{_SELECT} where q.id {tx.in_names}", {"names": json.dumps(list(questions))})
    return _ROWS.decode_all(rows)


def list_open_for_viewer(tx: Transaction, viewer: Viewer, *, limit: int = 200) -> list[AskedQuestion]:
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
    return _ROWS.decode_all(rows)


def close(
    tx: Transaction,
    asked: AskedQuestion,
    state: QuestionState,
    *,
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
            "answer": None if answer is None else tx.keys.seal(asked.session, codec.dumps(answer)),
            "by": by,
            "now": to_micros(tx.now),
        },
    )
    if not changed:
        raise Conflict(Phrase("question.not_open", title=asked.question.display_title))
    _note_change(tx, asked, state)
    close_buttons(tx, get(tx, asked.id))


def set_expiry(tx: Transaction, asked: AskedQuestion, expires_at: datetime) -> None:
    """Set when an open question runs out."""
    tx.run(
        "update questions set expires_at = :at where id = :id", {"id": asked.id, "at": to_micros(expires_at)}
    )


def mark_taken(tx: Transaction, asked: AskedQuestion) -> None:
    """Record that the agent received the outcome of a question and may act on it."""
    tx.run("update questions set taken = 1 where id = :id", {"id": asked.id})


def cancel_for_turn(tx: Transaction, turn: TurnId) -> None:
    """Close the open questions of a turn that has ended."""
    for asked in _list_open_for_turn(tx, turn):
        close(tx, asked, QuestionState.CANCELLED)


def note_orphaned(tx: Transaction, turn: TurnId) -> None:
    """Note that the turn of the open questions has ended while they stay open."""
    for asked in _list_open_for_turn(tx, turn):
        _note_change(tx, asked, QuestionState.OPEN)


def _list_open_for_turn(tx: Transaction, turn: TurnId) -> list[AskedQuestion]:
    rows = tx.rows(f"{_SELECT} where q.turn = :turn and q.state = 'open'", {"turn": turn})
    return _ROWS.decode_all(rows)


def _note_change(tx: Transaction, asked: AskedQuestion, state: QuestionState) -> None:
    changes.note(tx, ChangeKind.QUESTION, asked.id, asked, note=state.value)


def find_consent(tx: Transaction, session: SessionId, rules: Sequence[str]) -> Consent | None:
    """The lasting consent under one of these rules; the first of them counts."""
    if not rules:
        return None
    names = [ids.escape(rule) for rule in rules]
    rows = tx.rows(
        f"select tool, consent from consents where session = :session and tool {tx.in_names}",
        {"session": session, "names": json.dumps(names)},
    )
    found: dict[str, str] = {str(tool): str(consent) for tool, consent in rows}
    return next((Consent(found[name]) for name in names if name in found), None)


def set_consent(tx: Transaction, session: SessionId, tool: str, given: Consent, *, by: PrincipalId) -> None:
    """Keep a lasting consent; a later one takes its place."""
    tx.run(
        """
        insert into consents (session, tool, consent, given_by, given_at)
        values (:session, :tool, :consent, :by, :now)
        on conflict (session, tool) do update
        set consent = excluded.consent, given_by = excluded.given_by, given_at = excluded.given_at
        """,
        {
            "session": session,
            "tool": ids.escape(tool),
            "consent": given.value,
            "by": by,
            "now": to_micros(tx.now),
        },
    )


def list_consents(
    tx: Transaction, viewer: Viewer, *, session: SessionId | None = None, limit: int = 200
) -> list[ToolConsent]:
    """The consents that a viewer may see, of one session or of all, the newest first."""
    rows = tx.rows(
        """
        select c.session, s.title, c.tool, c.consent, c.given_by, c.given_at
        from consents c
        join sessions s on s.id = c.session
        where s.profile = :profile and s.deleted_at is null
          and (cast(:owner as text) is null or s.owner = :owner)
          and (cast(:session as text) is null or c.session = :session)
        order by c.given_at desc, c.session, c.tool
        limit :limit
        """,
        {"profile": viewer.profile, "owner": viewer.owner, "session": session, "limit": limit},
    )
    return [
        ToolConsent(
            session=SessionId(id_),
            title=title or "",
            tool=ids.unescape(tool),
            consent=Consent(given),
            given_by=PrincipalId(by),
            given_at=from_micros(at),
        )
        for id_, title, tool, given, by, at in rows
    ]


def remove_consent(tx: Transaction, session: SessionId, tool: str) -> bool:
    """Remove a consent; return whether there was one."""
    rows = tx.rows("select tool from consents where session = :session", {"session": session})
    # Compared as `list_consents` shows it: a long one is cut there.
    kept = [key for (key,) in rows if ids.unescape(key) == tool]
    for key in kept:
        tx.run(
            "delete from consents where session = :session and tool = :tool",
            {"session": session, "tool": key},
        )
    return bool(kept)


def save_buttons(tx: Transaction, question: QuestionId, receipt: str) -> None:
    """A question is shown with buttons by this message; one that was repeated by the last."""
    tx.run(
        """
        insert into buttons (question, receipt) values (:question, :receipt)
        on conflict (question) do update set receipt = excluded.receipt
        """,
        {"question": question, "receipt": codec.dumps(receipt)},
    )


def has_buttons(tx: Transaction, question: QuestionId) -> bool:
    """Whether a question is shown with buttons."""
    return tx.row("select 1 from buttons where question = :question", {"question": question}) is not None


def close_buttons(tx: Transaction, asked: AskedQuestion) -> None:
    """A question is closed: a delivery that says how takes the place of its buttons, if it is shown with any."""
    if not tx.row(
        "select 1 from buttons where question = :question and delivery is null", {"question": asked.id}
    ):
        return
    first = deliveries.get(tx, DeliveryId(asked.id))
    made = deliveries.enqueue(
        tx,
        first.target.without_reply,
        core.format_closed(
            asked, tx.texts.speak(people.get_language(tx, asked.turn)), whole=len(first.receipts) == 1
        ),
        of=asked,
    )
    tx.run(
        "update buttons set delivery = :delivery where question = :question",
        {"question": asked.id, "delivery": made},
    )


def find_replaced_receipt(tx: Transaction, delivery: DeliveryId) -> str:
    """The message whose place a delivery takes; empty if it takes none."""
    row = tx.row("select receipt from buttons where delivery = :delivery", {"delivery": delivery})
    return "" if row is None else codec.loads(row[0], str)


def remove_buttons(tx: Transaction, delivery: DeliveryId) -> None:
    """A delivery has taken its place, or there is none to take any more."""
    tx.run("delete from buttons where delivery = :delivery", {"delivery": delivery})
