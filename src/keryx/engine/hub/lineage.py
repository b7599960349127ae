"""Where a session comes from and what followed it: its forks, and its neighbours in the lanes that led to it."""

from collections.abc import Iterable

import msgspec

from keryx.core import lanes as addresses
from keryx.core.compaction import Epoch
from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import LaneKey, SessionId
from keryx.core.lanes import LaneMove, LaneSharing
from keryx.core.sessions import Session, SessionListItem, Viewer
from keryx.engine.units import access
from keryx.store import epochs, lanes, sessions
from keryx.store.db import Transaction

_MAX_FAMILY = 500
_MAX_MOVES = 20


class LineageEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A session in its lineage. `after` is the session that its lane had before a reset, `why` the reason of that."""

    listed: SessionListItem
    epochs: list[Epoch]
    after: SessionId | None = None
    why: str = ""


def load(tx: Transaction, id_: SessionId, *, viewer: Viewer, sharing: LaneSharing) -> list[LineageEntry]:
    """The forks of a session and the nearest sessions of its lanes, as far as the viewer may see them; older ones
    before those that came of them."""
    session = sessions.get(tx, id_, viewer=viewer)
    family = _load_family(tx, viewer, _find_root(tx, viewer, session))
    resets = _find_resets(tx, viewer, session, sharing)
    known = {member.id for member in family}
    named = {s for after, (before, _) in resets.items() for s in (after, before)} - known
    others = sorted((e.session for e in sessions.get_many_with_activity(tx, named)), key=lambda s: s.id)
    seen = [s for s in others if viewer.sees(s.profile, s.owner) and s.deleted_at is None]
    older = [s for s in seen if s.id < session.id]
    return [_build_entry(tx, member, resets) for member in (*older, *family, *seen[len(older) :])]


def _build_entry(
    tx: Transaction, session: Session, resets: dict[SessionId, tuple[SessionId, str]]
) -> LineageEntry:
    after, why = resets.get(session.id, (None, ""))
    return LineageEntry(
        listed=SessionListItem(session=session, activity=sessions.get_activity(tx, session.id)),
        epochs=epochs.list_all(tx, session.id)[::-1],
        after=after,
        why=why,
    )


def _load_family(tx: Transaction, viewer: Viewer, root: Session) -> list[Session]:
    family = [root]
    for member in family:
        if len(family) < _MAX_FAMILY:
            mine = [s for s in sessions.list_children(tx, member.id) if viewer.sees(s.profile, s.owner)]
            family += mine[: _MAX_FAMILY - len(family)]
    return family


def _find_root(tx: Transaction, viewer: Viewer, session: Session) -> Session:
    """The oldest ancestor that the viewer may see."""
    while session.parent:
        try:
            session = sessions.get(tx, session.parent, viewer=viewer)
        except NotFound:
            break
    return session


def _find_resets(
    tx: Transaction, viewer: Viewer, session: Session, sharing: LaneSharing
) -> dict[SessionId, tuple[SessionId, str]]:
    """By session: the one that its lane had before, and why the lane left that."""
    found: dict[SessionId, tuple[SessionId, str]] = {}
    keys = {lane.key for lane in lanes.list_for_session(tx, session.id)} | _find_first_lane(
        tx, session, sharing
    )
    for lane in lanes.get_many(tx, keys):
        if viewer.sees(lane.profile, lane.owner):
            found |= _find_breaks(lanes.list_moves_around(tx, lane.key, session.id, limit=_MAX_MOVES))
    return found


def _find_first_lane(tx: Transaction, session: Session, sharing: LaneSharing) -> set[LaneKey]:
    """The lane that a session began in, which may lead elsewhere by now."""
    if session.origin is None:
        return set()
    try:
        aliases = access.find_aliases(tx, session.origin)
        return {addresses.build_address(session.origin, sharing=sharing, aliases=aliases).key}
    except Invalid:
        # It began outside of any lane: on the page, or in a terminal.
        return set()


def _find_breaks(moves: Iterable[LaneMove]) -> dict[SessionId, tuple[SessionId, str]]:
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
