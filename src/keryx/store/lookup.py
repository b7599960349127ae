"""Lookup: the one session that a person means by an id, a prefix, a title or an alias."""

from keryx.core import ids, titles
from keryx.core.errors import Ambiguous, NotFound
from keryx.core.sessions import Session, Viewer
from keryx.store.database import Transaction
from keryx.store.sessions import SELECT, from_row


def resolve(tx: Transaction, viewer: Viewer, text: str) -> Session:
    """Find a session by id, unique prefix, title (the newest of its line), or alias."""
    name = ids.reference(text)
    for candidates in (_by_id, _by_title, _by_alias, _by_prefix):
        found = [s for s in candidates(tx, viewer, name) if viewer.sees(s.profile, s.owner)]
        if len(found) == 1 or (found and candidates is _by_title):
            return found[0]
        if found:
            raise Ambiguous(
                f"{name!r} fits {len(found)} sessions or more: give a longer prefix, or the title"
            )
    raise NotFound(f"there is no session {name!r}: /sessions or `keryx sessions list` shows them")


def _by_id(tx: Transaction, viewer: Viewer, name: str) -> list[Session]:
    return [
        from_row(r) for r in tx.rows(f"{SELECT} where s.id = :name and s.deleted_at is null", {"name": name})
    ]


def _by_title(tx: Transaction, viewer: Viewer, name: str) -> list[Session]:
    key = name.casefold()
    rows = tx.rows(
        f"""
        {SELECT}
        where s.profile = :profile and s.title_base = :base and s.deleted_at is null
          and s.owner = coalesce(cast(:owner as text), s.owner)
        order by s.active_at desc limit 200
        """,
        {"profile": viewer.profile, "base": titles.base(key)[0], "owner": viewer.owner},
    )
    line = [from_row(row) for row in rows]
    # A numbered title asks for that one; a bare title for the newest of its line.
    exact = [s for s in line if s.title.casefold() == key]
    return exact if titles.base(key)[1] > 1 else line


def _by_alias(tx: Transaction, viewer: Viewer, name: str) -> list[Session]:
    rows = tx.rows(
        f"{SELECT} join aliases a on a.session = s.id where a.profile = :profile and a.alias = :name and s.deleted_at is null",
        {"profile": viewer.profile, "name": name},
    )
    return [from_row(row) for row in rows]


def _by_prefix(tx: Transaction, viewer: Viewer, name: str) -> list[Session]:
    prefix = name.lower()
    if len(prefix) < 4 or not prefix.isascii() or not prefix.isalnum():
        return []
    rows = tx.rows(
        f"""
        {SELECT}
        where s.id >= :low and s.id < :high and s.deleted_at is null and s.profile = :profile
          and s.owner = coalesce(cast(:owner as text), s.owner)
        order by s.id limit 20
        """,
        {"low": prefix, "high": prefix + "~", "profile": viewer.profile, "owner": viewer.owner},
    )
    return [from_row(row) for row in rows]
