"""Listings: pages of sessions by activity, filtered, with a cursor that survives what is added meanwhile."""

import base64
import binascii
import json
from collections.abc import Iterable
from typing import Any

from keryx.core import ids
from keryx.core.errors import Invalid
from keryx.core.ids import SessionId
from keryx.core.sessions import JOB_SURFACE, Activity, Listed, Listing, Session, Viewer
from keryx.store.database import AMONG_NAMES, Transaction, micros
from keryx.store.sessions import COLUMNS, from_row

_TURN = "select 1 from turns t where t.session = s.id and t.state = '{}'"
_RUNNING, _WAITING = (f"exists ({_TURN.format(state)})" for state in ("running", "queued"))
_FAILED = """
(select t.state from turns t where t.session = s.id order by t.position desc limit 1) in ('failed', 'parked', 'expired')
"""
# Asked in this way PostgreSQL looks for each session of a page; else it might collect all that wait for this one page.
_HAS = f"({_TURN} limit 1) is not null"
_ACTIVITY = f"""
case when {_HAS.format("running")} then 'running' when {_HAS.format("queued")} then 'waiting'
  when {_FAILED} then 'failed' else 'idle' end
"""


def page(tx: Transaction, viewer: Viewer, listing: Listing) -> tuple[list[Listed], str | None]:
    """One page of sessions, pinned first, then by last message; and the cursor of the next page."""
    pinned, active_at, last = _position(listing.after)
    limit = max(1, min(listing.limit, 500))
    params: dict[str, Any] = {
        "profile": viewer.profile,
        "pinned_at": pinned,
        "active_at": active_at,
        "last": last,
        "limit": limit + 1,
        "job": JOB_SURFACE,
    }
    where = [
        "s.profile = :profile",
        "s.deleted_at is null",
        "(s.pinned, s.active_at, s.id) < (:pinned_at, :active_at, :last)",
    ]
    where += _filters(viewer, listing, params)
    rows = tx.rows(
        f"""
        select {COLUMNS}, {_ACTIVITY} from sessions s
        where {" and ".join(where)}
        order by s.pinned desc, s.active_at desc, s.id desc
        limit :limit
        """,
        params,
    )
    found = [Listed(session=from_row(row[:-1]), activity=Activity(row[-1])) for row in rows[:limit]]
    return found, _cursor(found[-1].session) if len(rows) > limit else None


def among(tx: Transaction, sessions: Iterable[SessionId]) -> list[Listed]:
    """Those of these sessions that exist, deleted ones too, in no order."""
    rows = tx.rows(
        f"select {COLUMNS}, {_ACTIVITY} from sessions s where s.id {AMONG_NAMES[tx.engine]}",
        {"names": json.dumps(list(sessions))},
    )
    return [Listed(session=from_row(row[:-1]), activity=Activity(row[-1])) for row in rows]


def activity(tx: Transaction, session: SessionId) -> Activity:
    row = tx.row(f"select {_ACTIVITY} from sessions s where s.id = :id", {"id": session})
    return Activity(row[0]) if row else Activity.IDLE


def _filters(viewer: Viewer, listing: Listing, params: dict[str, Any]) -> list[str]:
    """The optional conditions of a list, each a fixed text; values go into `params`."""
    where: list[str] = []
    for value, name, clause in (
        (viewer.owner, "owner", "s.owner = :owner"),
        (listing.surface, "surface", "s.surface = :surface"),
        (listing.project, "project", "s.project = :project"),
        (listing.cwd, "cwd", "s.cwd = :cwd"),
    ):
        if value is not None:
            params[name] = value
            where.append(clause)
    if listing.archived is not None:
        where.append("s.archived = 1" if listing.archived else "s.archived = 0")
    if listing.pinned is not None:
        where.append("s.pinned = 1" if listing.pinned else "s.pinned = 0")
    if listing.since is not None:
        params["since"] = micros(listing.since)
        where.append("s.active_at >= :since")
    # Scheduled runs are shown where they are asked for, or the project that they lie in.
    if not listing.jobs and listing.surface != JOB_SURFACE and listing.project is None:
        where.append("s.surface <> :job")
    match listing.activity:
        case Activity.RUNNING:
            where.append(_RUNNING)
        case Activity.WAITING:
            where.append(_WAITING)
        case Activity.FAILED:
            where.append(_FAILED)
        case Activity.IDLE:
            where.append(f"not {_RUNNING} and not {_WAITING}")
        case None:
            pass
    return where


def _position(after: str | None) -> tuple[int, int, str]:
    if after is None:
        return 2, 0, ""
    try:
        pinned, active_at, last = base64.urlsafe_b64decode(after.encode()).decode("ascii").split(":")
        if max(len(pinned), len(active_at)) > 18:
            raise ValueError("a number out of range")
        return int(pinned), int(active_at), ids.reference(last)
    except (ValueError, binascii.Error, Invalid) as exc:
        raise Invalid(f"{after[:80]!r} is not a page cursor: use one that Keryx gave you") from exc


def _cursor(session: Session) -> str:
    text = f"{int(session.pinned)}:{micros(session.active_at)}:{session.id}"
    return base64.urlsafe_b64encode(text.encode()).decode()
