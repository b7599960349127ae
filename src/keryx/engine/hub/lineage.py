"""Where a session comes from and what followed it: its forks, and its neighbours in the lanes that led to it."""

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from keryx.core import lanes as addresses
from keryx.core.compaction import Epoch
from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import SessionId
from keryx.core.lanes import LaneMove, LaneSharing
from keryx.core.sessions import SessionListItem, Viewer
from keryx.engine.units import access
from keryx.store import epochs, lanes, sessions
from keryx.store.db import Transaction

_MAX_FAMILY = 500
_MAX_MOVES = 20


class LineageEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A session in its lineage."""

    listed: SessionListItem
    epochs: list[Epoch]
    # The session that the lane had before a reset, and the reason of the reset.
    after: SessionId | None = None
    why: str = ""


def load(tx: Transaction, id_: SessionId, *, viewer: Viewer, sharing: LaneSharing) -> list[LineageEntry]:
    """Return the forks of a session and its neighbours in its lanes, as the viewer may see them, parents before their
    children."""
    session = sessions.get(tx, id_, viewer=viewer)
    # The oldest ancestor that the viewer may see, and its visible descendants.
    root = session
    while root.parent:
        try:
            root = sessions.get(tx, root.parent, viewer=viewer)
        except NotFound:
            break
    family = [root]
    for member in family:
        if len(family) < _MAX_FAMILY:
            children = [s for s in sessions.list_children(tx, member.id) if viewer.sees(s.profile, s.owner)]
            family += children[: _MAX_FAMILY - len(family)]
    # The one that its lane had before, and why the lane left that.
    keys = {lane.key for lane in lanes.list_for_session(tx, session.id)}
    if session.origin is not None:
        # The lane that the session began in may have another session by now. A session that began on the page or in a
        # terminal has none.
        with suppress(Invalid):
            aliases = access.find_aliases(tx, session.origin)
            keys.add(addresses.build_address(session.origin, sharing=sharing, aliases=aliases).key)
    resets: dict[SessionId, tuple[SessionId, str]] = {}
    for lane in lanes.get_many(tx, keys):
        if viewer.sees(lane.profile, lane.owner):
            resets |= _find_breaks(lanes.list_moves_around(tx, lane.key, session.id, limit=_MAX_MOVES))
    neighbours = {s for after, (before, _) in resets.items() for s in (after, before)}
    neighbours -= {member.id for member in family}
    others = sorted((e.session for e in sessions.get_many_with_activity(tx, neighbours)), key=lambda s: s.id)
    visible = [s for s in others if viewer.sees(s.profile, s.owner) and s.deleted_at is None]
    older = [s for s in visible if s.id < session.id]
    entries: list[LineageEntry] = []
    for member in (*older, *family, *visible[len(older) :]):
        after, why = resets.get(member.id, (None, ""))
        entries.append(
            LineageEntry(
                listed=SessionListItem(session=member, activity=sessions.get_activity(tx, member.id)),
                epochs=epochs.list_all(tx, member.id)[::-1],
                after=after,
                why=why,
            )
        )
    return entries


def _find_breaks(moves: Iterable[LaneMove]) -> dict[SessionId, tuple[SessionId, str]]:
    """Return the sessions of one lane that began after a reset. An older session after a reset was only resumed."""
    breaks: dict[SessionId, tuple[SessionId, str]] = {}
    last: SessionId | None = None
    why = ""
    for move in moves:
        if move.session is None:
            why = move.why
            continue
        if why and last and last < move.session and move.session not in breaks:
            breaks[move.session] = (last, why)
        last, why = move.session, ""
    return breaks
