"""Lines: the sessions of one owner whose titles share a base, and which title of a line is free."""

from keryx.core import titles
from keryx.core.ids import SessionId
from keryx.core.sessions import Session, Viewer
from keryx.store.database import Transaction


def keys(title: str) -> dict[str, str | None]:
    """What a title is found by, as parameters: its key, and the base of its line."""
    return {"key": title.casefold() or None, "base": titles.base(title)[0].casefold() or None}


def taken(tx: Transaction, session: Session, title: str) -> bool:
    """Whether another session of the owner has this title."""
    return holder(tx, Viewer(session.profile, session.owner), title) not in (None, session.id)


def holder(tx: Transaction, owner: Viewer, title: str) -> SessionId | None:
    """The session of an owner that has this title."""
    row = tx.row(
        """
        select id from sessions
        where profile = :profile and owner = :owner and title_key = :key and deleted_at is null
        """,
        {"profile": owner.profile, "owner": owner.principal, "key": title.casefold()},
    )
    return SessionId(row[0]) if row else None


def free(tx: Transaction, session: Session, title: str) -> str:
    """The title if it is free, else the next of its line."""
    return following(tx, session, title) if taken(tx, session, title) else title


def following(tx: Transaction, session: Session, title: str) -> str:
    """The next free title of a line: `base #2`, `base #3`, ..."""
    base, _ = titles.base(title)
    rows = tx.rows(
        """
        select title from sessions
        where profile = :profile and owner = :owner and title_base = :base and deleted_at is null
        """,
        {"profile": session.profile, "owner": session.owner, "base": base.casefold()},
    )
    number = max((titles.base(row[0])[1] for row in rows), default=0) + 1
    # A long base is cut to make room for its number, and may then be of another line.
    while taken(tx, session, wanted := titles.numbered(base, number)):
        number += 1
    return wanted
