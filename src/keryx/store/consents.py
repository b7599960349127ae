"""Consents: what a person has decided about a tool for as long as a session lasts."""

from datetime import datetime

from keryx.core import ids
from keryx.core.ids import PrincipalId, SessionId
from keryx.core.questions import Consent, Lasting
from keryx.core.sessions import Viewer
from keryx.store.database import Transaction, micros, moment


def find(tx: Transaction, session: SessionId, tool: str) -> Consent | None:
    row = tx.row(
        "select consent from consents where session = :session and tool = :tool",
        {"session": session, "tool": ids.plain(tool)},
    )
    return None if row is None else Consent(row[0])


def put(
    tx: Transaction, session: SessionId, tool: str, given: Consent, *, by: PrincipalId, now: datetime
) -> None:
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
            "tool": ids.plain(tool),
            "consent": given.value,
            "by": by,
            "now": micros(now),
        },
    )


def page(
    tx: Transaction, viewer: Viewer, *, session: SessionId | None = None, limit: int = 200
) -> list[Lasting]:
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
        Lasting(
            session=SessionId(id_),
            title=title or "",
            tool=tool,
            consent=Consent(given),
            given_by=PrincipalId(by),
            given_at=moment(at),
        )
        for id_, title, tool, given, by, at in rows
    ]


def forget(tx: Transaction, session: SessionId, tool: str) -> bool:
    """Take a consent back; gives whether there was one."""
    row = tx.row(
        "delete from consents where session = :session and tool = :tool returning tool",
        {"session": session, "tool": ids.plain(tool)},
    )
    return row is not None
