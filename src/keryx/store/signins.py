"""Sign-ins: browsers that showed the token. Of their secret only a digest is kept."""

from datetime import datetime

import msgspec

from keryx.core import wire
from keryx.core.errors import NotFound
from keryx.core.ids import PrincipalId, ProfileId
from keryx.core.sessions import Viewer
from keryx.store.database import Row, Transaction, micros, moment


class SignIn(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    viewer: Viewer
    digest: str
    browser: str
    created_at: datetime
    seen_at: datetime
    expires_at: datetime


_SELECT = "select id, profile, principal, digest, browser, created_at, seen_at, expires_at from sign_ins"


def add(tx: Transaction, sign_in: SignIn) -> None:
    tx.run(
        """
        insert into sign_ins (id, profile, principal, digest, browser, created_at, seen_at, expires_at)
        values (:id, :profile, :principal, :digest, :browser, :created_at, :seen_at, :expires_at)
        """,
        {
            "id": sign_in.id,
            "profile": sign_in.viewer.profile,
            "principal": sign_in.viewer.principal,
            "digest": sign_in.digest,
            "browser": wire.dumps(sign_in.browser),
            "created_at": micros(sign_in.created_at),
            "seen_at": micros(sign_in.seen_at),
            "expires_at": micros(sign_in.expires_at),
        },
    )


def find(tx: Transaction, id_: str, *, now: datetime) -> SignIn | None:
    """A sign-in that has not run out."""
    row = tx.row(f"{_SELECT} where id = :id and expires_at > :now", {"id": id_, "now": micros(now)})
    return None if row is None else _sign_in(row)


def every(tx: Transaction, viewer: Viewer, *, now: datetime) -> list[SignIn]:
    """The sign-ins of a viewer that have not run out, newest first."""
    rows = tx.rows(
        f"""
        {_SELECT}
        where profile = :profile and principal = :principal and expires_at > :now
        order by created_at desc
        limit 200
        """,
        {"profile": viewer.profile, "principal": viewer.principal, "now": micros(now)},
    )
    return [_sign_in(row) for row in rows]


def see(tx: Transaction, id_: str, *, now: datetime) -> None:
    tx.run("update sign_ins set seen_at = :now where id = :id", {"id": id_, "now": micros(now)})


def remove(tx: Transaction, viewer: Viewer, id_: str) -> None:
    gone = tx.count(
        "delete from sign_ins where id = :id and profile = :profile and principal = :principal",
        {"id": id_, "profile": viewer.profile, "principal": viewer.principal},
    )
    if not gone:
        raise NotFound("there is no such sign-in: it may have ended already")


def trim(tx: Transaction, *, now: datetime) -> int:
    """Forget sign-ins that have run out; gives how many."""
    return tx.count("delete from sign_ins where expires_at <= :now", {"now": micros(now)})


def _sign_in(row: Row) -> SignIn:
    id_, profile, principal, digest, browser, created_at, seen_at, expires_at = row
    return SignIn(
        id=id_,
        viewer=Viewer(ProfileId(profile), PrincipalId(principal)),
        digest=digest,
        browser=wire.loads(browser, str),
        created_at=moment(created_at),
        seen_at=moment(seen_at),
        expires_at=moment(expires_at),
    )
