"""Lineage: where a session comes from and what came of it: its forks, and its neighbours in the lanes that had it."""

from collections.abc import Iterable

import msgspec

from keryx.core import lanes as addresses
from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import LaneKey, SessionId
from keryx.core.lanes import Sharing
from keryx.core.sessions import Listed, Session, Viewer
from keryx.engine import access
from keryx.store import epochs, lanes, listings, sessions
from keryx.store.database import Transaction
from keryx.store.epochs import Epoch
from keryx.store.lanes import Move

_FAMILY = 500
_MOVES = 20


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A session in its lineage. `after` is the session that its lane had before a reset, `why` the reason of that."""

    listed: Listed
    epochs: list[Epoch]
    after: SessionId | None = None
    why: str = ""


def read(tx: Transaction, id_: SessionId, *, viewer: Viewer, sharing: Sharing) -> list[Branch]:
    """The forks of a session and the nearest sessions of its lanes, as far as the viewer may see them; older ones
    before those that came of them."""
    session = sessions.get(tx, id_, viewer=viewer)
    family = _family(tx, viewer, _root(tx, viewer, session))
    resets = _resets(tx, viewer, session, sharing)
    known = {member.id for member in family}
    named = {s for after, (before, _) in resets.items() for s in (after, before)} - known
    others = sorted((e.session for e in listings.among(tx, named)), key=lambda s: s.id)
    seen = [s for s in others if viewer.sees(s.profile, s.owner) and s.deleted_at is None]
    older = [s for s in seen if s.id < session.id]
    return [_branch(tx, member, resets) for member in (*older, *family, *seen[len(older) :])]


def _branch(tx: Transaction, session: Session, resets: dict[SessionId, tuple[SessionId, str]]) -> Branch:
    after, why = resets.get(session.id, (None, ""))
    return Branch(
        listed=Listed(session=session, activity=listings.activity(tx, session.id)),
        epochs=epochs.every(tx, session.id)[::-1],
        after=after,
        why=why,
    )


def _family(tx: Transaction, viewer: Viewer, root: Session) -> list[Session]:
    family = [root]
    for member in family:
        if len(family) < _FAMILY:
            mine = [s for s in sessions.children(tx, member.id) if viewer.sees(s.profile, s.owner)]
            family += mine[: _FAMILY - len(family)]
    return family


def _root(tx: Transaction, viewer: Viewer, session: Session) -> Session:
    """The oldest ancestor that the viewer may see."""
    while session.parent:
        try:
            session = sessions.get(tx, session.parent, viewer=viewer)
        except NotFound:
            break
    return session


def _resets(
    tx: Transaction, viewer: Viewer, session: Session, sharing: Sharing
) -> dict[SessionId, tuple[SessionId, str]]:
    """By session: the one that its lane had before, and why the lane left that."""
    found: dict[SessionId, tuple[SessionId, str]] = {}
    keys = {lane.key for lane in lanes.of_session(tx, session.id)} | _began(tx, session, sharing)
    for lane in lanes.among(tx, keys):
        if viewer.sees(lane.profile, lane.owner):
            found |= _breaks(lanes.around(tx, lane.key, session.id, limit=_MOVES))
    return found


def _began(tx: Transaction, session: Session, sharing: Sharing) -> set[LaneKey]:
    """The lane that a session began in, which may lead elsewhere by now."""
    if session.origin is None:
        return set()
    try:
        aliases = access.aliases(tx, session.origin)
        return {addresses.address(session.origin, sharing=sharing, aliases=aliases).key}
    except Invalid:
        # It began outside of any lane: on the page, or in a terminal.
        return set()


def _breaks(moves: Iterable[Move]) -> dict[SessionId, tuple[SessionId, str]]:
    """A newer session that follows upon nothing, in a lane that had another one before, begins after a reset; an older
    one was only taken up again."""
    found: dict[SessionId, tuple[SessionId, str]] = {}
    last: SessionId | None = None
    why = ""
    for move in moves:
        if move.session is None:
            why = move.why
            continue
        if why and last and last < move.session and move.session not in found:
            found[move.session] = (last, why)
        last, why = move.session, ""
    return found
