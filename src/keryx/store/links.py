"""Links: codes by which one person shows on two platforms to be the same. Only a salted hash is kept."""

from datetime import datetime

from keryx.core.codes import Sealed
from keryx.core.ids import PrincipalId, ProfileId
from keryx.store.database import Transaction, micros


def put(
    tx: Transaction, principal: PrincipalId, code: Sealed, *, profile: ProfileId, until: datetime
) -> None:
    """Remember the code of a person; an earlier one of theirs is worth nothing any more."""
    tx.run(
        """
        insert into links (profile, principal, salt, digest, expires_at)
        values (:profile, :principal, :salt, :digest, :until)
        on conflict (profile, principal)
        do update set salt = excluded.salt, digest = excluded.digest, expires_at = excluded.expires_at
        """,
        {
            "profile": profile,
            "principal": principal,
            "salt": code.salt,
            "digest": code.digest,
            "until": micros(until),
        },
    )


def take(tx: Transaction, code: str, *, profile: ProfileId, now: datetime) -> PrincipalId | None:
    """Use a code up; gives whose it was."""
    rows = tx.rows(
        """
        select principal, salt, digest from links
        where profile = :profile and expires_at > :now order by expires_at desc limit 1000
        """,
        {"profile": profile, "now": micros(now)},
    )
    found = next((PrincipalId(row[0]) for row in rows if Sealed(row[1], row[2]).fits(code)), None)
    if found is not None:
        remove(tx, found, profile=profile)
    return found


def remove(tx: Transaction, principal: PrincipalId, *, profile: ProfileId) -> None:
    tx.run(
        "delete from links where profile = :profile and principal = :principal",
        {"profile": profile, "principal": principal},
    )


def trim(tx: Transaction, *, before: datetime) -> int:
    return tx.count("delete from links where expires_at < :before", {"before": micros(before)})
