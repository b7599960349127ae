"""Details: the rows that a batch of changes names, read together."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from keryx.core.changes import Change, Kind, Piece
from keryx.core.deliveries import Delivery
from keryx.core.ids import SessionId, TurnId
from keryx.core.questions import Asked
from keryx.core.sessions import Listed
from keryx.core.turns import Turn
from keryx.store import deliveries, lanes, listings, projects, questions, turns
from keryx.store import drafts as pieces
from keryx.store.database import Transaction
from keryx.store.lanes import Lane
from keryx.store.projects import Project

N = TypeVar("N", bound=str)
T = TypeVar("T")

_OF_SESSIONS = frozenset({Kind.SESSION, Kind.MESSAGE, Kind.TURN, Kind.LANE})
_OF_TURNS = frozenset({Kind.TURN, Kind.CANCEL})


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """Rows by id; what is gone is left out."""

    sessions: dict[SessionId, Listed]
    turns: dict[TurnId, Turn]
    deliveries: dict[str, Delivery]
    lanes: dict[str, Lane]
    projects: dict[str, Project]
    questions: dict[str, Asked]


def of(tx: Transaction, batch: Sequence[Change]) -> Details:
    named = {c.session for c in batch if c.session and c.kind in _OF_SESSIONS}
    return Details(
        sessions={e.session.id: e for e in _some(tx, listings.among, named)},
        turns={t.id: t for t in _some(tx, turns.among, _turns(batch))},
        deliveries={d.id: d for d in _some(tx, deliveries.among, _subjects(batch, Kind.DELIVERY))},
        lanes={e.key: e for e in _some(tx, lanes.among, _subjects(batch, Kind.LANE))},
        projects={p.id: p for p in _some(tx, projects.among, _subjects(batch, Kind.PROJECT))},
        questions={a.id: a for a in _some(tx, questions.among, _subjects(batch, Kind.QUESTION))},
    )


def drafts(tx: Transaction, turns: Iterable[str]) -> dict[str, list[Piece]]:
    """The whole drafts of some turns, as they are now."""
    return {turn: pieces.pieces(tx, TurnId(turn)) for turn in turns}


def _turns(batch: Iterable[Change]) -> set[TurnId]:
    return {c.turn for c in batch if c.turn and c.kind in _OF_TURNS}


def _subjects(batch: Iterable[Change], kind: Kind) -> set[str]:
    return {c.subject for c in batch if c.kind is kind}


def _some(tx: Transaction, read: Callable[[Transaction, set[N]], list[T]], names: set[N]) -> list[T]:
    return read(tx, names) if names else []
