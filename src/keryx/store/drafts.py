"""Drafts: the text of a running turn, in pieces, each stored before anybody sees it."""

from collections.abc import Sequence
from datetime import datetime
from typing import cast

from keryx.core import wire
from keryx.core.changes import Kind, Piece
from keryx.core.ids import TurnId
from keryx.core.media import Media
from keryx.core.messages import Part, Parts, Reasoning, Text, join
from keryx.core.turns import Turn
from keryx.store import changes
from keryx.store.database import Transaction


def grow(tx: Transaction, turn: Turn, parts: Sequence[Text | Reasoning | Media], *, now: datetime) -> None:
    """Add pieces to the draft and note each. The caller holds the turn."""
    row = tx.row(
        "update turns set pieces = pieces + :more where id = :id returning pieces",
        {"id": turn.id, "more": len(parts)},
    )
    assert row is not None
    for n, part in enumerate(parts, start=int(row[0]) - len(parts) + 1):
        tx.run(
            """
            insert into pieces (turn, n, body, thought, opaque, media)
            values (:turn, :n, :body, :thought, :opaque, :media)
            """,
            {
                "turn": turn.id,
                "n": n,
                "body": wire.dumps("" if isinstance(part, Media) else part.text),
                "thought": int(isinstance(part, Reasoning)),
                "opaque": wire.dumps(part.opaque) if isinstance(part, Reasoning) else "",
                "media": wire.dumps(part) if isinstance(part, Media) else None,
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
    rows = tx.rows("select n, body, thought, media from pieces where turn = :turn order by n", {"turn": turn})
    return [piece(*row) for row in rows]


def piece(n: int, body: str, thought: int, media: str | None) -> Piece:
    return Piece(n, wire.loads(body, str), bool(thought), _media(media) if media else None)


def take(tx: Transaction, turn: TurnId) -> Parts:
    """Empty the draft and give what it held, to become a message in the same transaction."""
    rows = tx.rows(
        "delete from pieces where turn = :turn returning n, body, thought, opaque, media", {"turn": turn}
    )
    return join(
        _part(wire.loads(body, str), *rest) for _, body, *rest in sorted(rows, key=lambda row: row[0])
    )


def _part(text: str, thought: int, opaque: str, media: str | None) -> Part:
    if media:
        return _media(media)
    return Reasoning(text, wire.loads(opaque, str)) if thought else Text(text)


def _media(text: str) -> Media:
    # A union is no type in the eyes of the type checker, and a good one for the decoder.
    return wire.loads(text, cast(type[Media], Media))
