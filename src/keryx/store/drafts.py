"""Drafts: the text of a running turn, in pieces, each stored before anybody sees it."""

from collections.abc import Sequence
from datetime import datetime

from keryx.core import wire
from keryx.core.changes import Kind, Piece
from keryx.core.ids import TurnId
from keryx.core.messages import Part, Parts, Reasoning, Text, join
from keryx.core.turns import Turn
from keryx.store import changes
from keryx.store.database import Transaction


def grow(tx: Transaction, turn: Turn, parts: Sequence[Text | Reasoning], *, now: datetime) -> None:
    """Add pieces to the draft and note each. The caller holds the turn."""
    row = tx.row(
        "update turns set pieces = pieces + :more where id = :id returning pieces",
        {"id": turn.id, "more": len(parts)},
    )
    assert row is not None
    for n, part in enumerate(parts, start=int(row[0]) - len(parts) + 1):
        tx.run(
            "insert into pieces (turn, n, body, thought, opaque) values (:turn, :n, :body, :thought, :opaque)",
            {
                "turn": turn.id,
                "n": n,
                "body": wire.dumps(part.text),
                "thought": int(isinstance(part, Reasoning)),
                "opaque": wire.dumps(part.opaque) if isinstance(part, Reasoning) else "",
            },
        )
        changes.note(
            tx,
            Kind.DRAFT,
            turn.id,
            profile=turn.profile,
            owner=turn.owner,
            at=now,
            session=turn.session,
            turn=turn.id,
            n=n,
        )


def pieces(tx: Transaction, turn: TurnId) -> list[Piece]:
    rows = tx.rows("select n, body, thought from pieces where turn = :turn order by n", {"turn": turn})
    return [Piece(n, wire.loads(body, str), bool(thought)) for n, body, thought in rows]


def take(tx: Transaction, turn: TurnId) -> Parts:
    """Empty the draft and give what it held, to become a message in the same transaction."""
    rows = tx.rows("select body, thought, opaque from pieces where turn = :turn order by n", {"turn": turn})
    tx.run("delete from pieces where turn = :turn", {"turn": turn})
    return join(_part(wire.loads(body, str), thought, opaque) for body, thought, opaque in rows)


def _part(text: str, thought: int, opaque: str) -> Part:
    return Reasoning(text, wire.loads(opaque, str)) if thought else Text(text)
