"""Who may talk to Keryx: grants, pairing codes, published access rules, failed attempts at codes, browser sign-ins, users of the page and passkeys."""

from datetime import datetime

import msgspec

from keryx.core import codec
from keryx.core.access import AccessRule, CodeHash, Grant, Pairing
from keryx.core.changes import ChangeKind
from keryx.core.clock import to_micros
from keryx.core.errors import Conflict, NotFound
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId
from keryx.core.sessions import Viewer
from keryx.core.texts import Phrase
from keryx.store import changes
from keryx.store.db import Row, Transaction
from keryx.store.db.rows import RowMapper

_GRANT_ROWS = RowMapper(Grant, json={"name"}, columns={"by": "granted_by", "at": "granted_at"})
_SELECT_GRANT = f"select {_GRANT_ROWS.columns} from grants"
_PAIRING_ROWS = RowMapper(Pairing, json={"name"})


def add_grant(
    tx: Transaction,
    *,
    profile: ProfileId,
    platform: str,
    person: str,
    name: str,
    operator: bool,
    by: PrincipalId,
) -> Grant:
    """Grant access, or change the terms of an existing grant."""
    tx.run(
        """
        insert into grants (profile, platform, person, name, operator, granted_by, granted_at)
        values (:profile, :platform, :person, :name, :operator, :by, :now)
        on conflict (profile, platform, person)
        do update set name = excluded.name, operator = excluded.operator, granted_by = excluded.granted_by,
          granted_at = excluded.granted_at
        """,
        {
            **_identity_params(profile, platform, person),
            "name": codec.dumps(name),
            "operator": int(operator),
            "by": by,
            "now": to_micros(tx.now),
        },
    )
    note_change(tx, profile, platform, person, "granted")
    found = find_grant(tx, profile=profile, platform=platform, person=person)
    assert found is not None
    return found


def find_grant(tx: Transaction, *, profile: ProfileId, platform: str, person: str) -> Grant | None:
    row = tx.row(
        f"{_SELECT_GRANT} where profile = :profile and platform = :platform and person = :person",
        _identity_params(profile, platform, person),
    )
    return _GRANT_ROWS.decode_optional(row)


def list_grants(tx: Transaction, profile: ProfileId) -> list[Grant]:
    rows = tx.rows(
        f"{_SELECT_GRANT} where profile = :profile order by platform, granted_at, person",
        {"profile": profile},
    )
    return _GRANT_ROWS.decode_all(rows)


def remove_grant(tx: Transaction, *, profile: ProfileId, platform: str, person: str) -> bool:
    """Remove a grant; return whether there was one."""
    removed = tx.count(
        "delete from grants where profile = :profile and platform = :platform and person = :person",
        _identity_params(profile, platform, person),
    )
    if removed:
        note_change(tx, profile, platform, person, "revoked")
    return bool(removed)


def rename_grant(tx: Transaction, *, profile: ProfileId, platform: str, old: str, new: str) -> None:
    """Move a grant to another id of the same person. If both ids have one, the operator's right is kept."""
    params = {**_identity_params(profile, platform, new), "old": old}
    tx.run(
        """
        update grants set operator = 1
        where profile = :profile and platform = :platform and person = :person and exists (
          select 1 from grants o
          where o.profile = :profile and o.platform = :platform and o.person = :old and o.operator = 1)
        """,
        params,
    )
    tx.run(
        """
        update grants set person = :person
        where profile = :profile and platform = :platform and person = :old and not exists (
          select 1 from grants o
          where o.profile = :profile and o.platform = :platform and o.person = :person)
        """,
        params,
    )
    tx.run(
        "delete from grants where profile = :profile and platform = :platform and person = :old",
        {"profile": profile, "platform": platform, "old": old},
    )


def note_change(tx: Transaction, profile: ProfileId, platform: str, person: str, what: str) -> None:
    """Tell followers that who may talk has changed."""
    changes.note(tx, ChangeKind.ACCESS, f"{platform}:{person}", changes.Scope(profile, OPERATOR), note=what)


def _identity_params(profile: ProfileId, platform: str, person: str) -> dict[str, str]:
    return {"profile": profile, "platform": platform, "person": person}


def save_pairing(tx: Transaction, pairing: Pairing, code: CodeHash) -> None:
    """Store the code that was sent to a person. It replaces an earlier one."""
    tx.run(
        """
        insert into pairings (profile, platform, person, name, target, told_at, expires_at, language, salt, digest)
        values
          (:profile, :platform, :person, :name, :target, :told_at, :expires_at, :language, :salt, :digest)
        on conflict (profile, platform, person)
        do update set name = excluded.name, target = excluded.target, told_at = excluded.told_at,
          expires_at = excluded.expires_at, language = excluded.language, salt = excluded.salt, digest = excluded.digest
        """,
        {
            **_PAIRING_ROWS.encode(pairing),
            "salt": code.salt,
            "digest": code.digest,
        },
    )


def list_open_pairings(
    tx: Transaction, *, profile: ProfileId | None, platform: str | None = None
) -> list[Pairing]:
    """The pairings that can still be approved, who asked first before the others; of one profile, or of all."""
    rows = tx.rows(
        f"""
        select {_PAIRING_ROWS.columns} from pairings
        where profile = coalesce(cast(:profile as text), profile) and expires_at > :now
          and platform = coalesce(cast(:platform as text), platform)
        order by expires_at, person
        """,
        {"profile": profile, "platform": platform, "now": to_micros(tx.now)},
    )
    return _PAIRING_ROWS.decode_all(rows)


def find_pairing(tx: Transaction, *, profile: ProfileId, platform: str, person: str) -> Pairing | None:
    """Return a person's last code, expired or not."""
    row = tx.row(
        f"select {_PAIRING_ROWS.columns} from pairings where profile = :profile and platform = :platform and person = :person",
        _identity_params(profile, platform, person),
    )
    return _PAIRING_ROWS.decode_optional(row)


def find_pairing_by_code(tx: Transaction, code: str, *, platform: str) -> Pairing | None:
    """The open pairing that a code belongs to, of any profile."""
    for pairing in list_open_pairings(tx, profile=None, platform=platform):
        row = tx.row(
            "select salt, digest from pairings where profile = :profile and platform = :platform and person = :person",
            {"profile": pairing.profile, "platform": pairing.platform, "person": pairing.person},
        )
        if row is not None and CodeHash(*row).matches(code):
            return pairing
    return None


def remove_pairing(tx: Transaction, *, profile: ProfileId, platform: str, person: str) -> bool:
    return bool(
        tx.count(
            "delete from pairings where profile = :profile and platform = :platform and person = :person",
            _identity_params(profile, platform, person),
        )
    )


def trim_pairings(tx: Transaction, *, before: datetime) -> int:
    """Forget strangers whose codes ended before a moment."""
    return tx.count("delete from pairings where expires_at < :before", {"before": to_micros(before)})


def publish_rule(tx: Transaction, platform: str, rule: AccessRule) -> None:
    tx.run(
        """
        insert into rules (platform, rule, published_at) values (:platform, :rule, :now)
        on conflict (platform) do update set rule = excluded.rule, published_at = excluded.published_at
        where rules.rule <> excluded.rule
        """,
        {"platform": codec.dumps(platform), "rule": codec.dumps(rule), "now": to_micros(tx.now)},
    )


def find_rule(tx: Transaction, platform: str) -> AccessRule | None:
    row = tx.row("select rule from rules where platform = :platform", {"platform": codec.dumps(platform)})
    return None if row is None else codec.loads(row[0], AccessRule)


def count_failed_attempts(tx: Transaction, key: str, *, since: datetime) -> int:
    """How many wrong codes were tried, the last of them after `since`."""
    row = tx.row(
        "select wrong from guesses where key = :key and last_at > :since",
        {"key": key, "since": to_micros(since)},
    )
    return 0 if row is None else int(row[0])


def add_failed_attempt(tx: Transaction, key: str, *, since: datetime) -> int:
    """Count a failed attempt, starting over if the last was before `since`; return the count."""
    row = tx.row(
        """
        insert into guesses (key, wrong, last_at) values (:key, 1, :now)
        on conflict (key) do update set last_at = excluded.last_at,
          wrong = case when guesses.last_at > :since then guesses.wrong + 1 else 1 end
        returning wrong
        """,
        {"key": key, "now": to_micros(tx.now), "since": to_micros(since)},
    )
    assert row is not None
    return int(row[0])


def lock_attempts(tx: Transaction, key: str) -> None:
    """Serialise the transactions that share a key."""
    tx.run(
        """
        insert into guesses (key, wrong, last_at) values (:key, 0, :now)
        on conflict (key) do update set last_at = excluded.last_at
        """,
        {"key": key, "now": to_micros(tx.now)},
    )


def trim_attempts(tx: Transaction, *, before: datetime) -> int:
    return tx.count("delete from guesses where last_at < :before", {"before": to_micros(before)})


class SignIn(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    viewer: Viewer
    digest: str
    browser: str
    created_at: datetime
    seen_at: datetime
    expires_at: datetime


_SIGN_IN_ROWS = RowMapper(SignIn, json={"browser"}, without={"viewer"})
_SELECT_SIGN_IN = f"select {_SIGN_IN_ROWS.columns}, profile, principal from sign_ins"


def add_sign_in(tx: Transaction, sign_in: SignIn) -> None:
    tx.run(
        """
        insert into sign_ins (id, profile, principal, digest, browser, created_at, seen_at, expires_at)
        values (:id, :profile, :principal, :digest, :browser, :created_at, :seen_at, :expires_at)
        """,
        {
            **_SIGN_IN_ROWS.encode(sign_in),
            "profile": sign_in.viewer.profile,
            "principal": sign_in.viewer.principal,
        },
    )


def find_sign_in(tx: Transaction, id_: str) -> SignIn | None:
    """A sign-in that has not run out."""
    row = tx.row(
        f"{_SELECT_SIGN_IN} where id = :id and expires_at > :now", {"id": id_, "now": to_micros(tx.now)}
    )
    return None if row is None else _sign_in_from_row(row)


def list_sign_ins(tx: Transaction, viewer: Viewer) -> list[SignIn]:
    """The sign-ins of a viewer that have not run out, newest first."""
    rows = tx.rows(
        f"""
        {_SELECT_SIGN_IN}
        where profile = :profile and principal = :principal and expires_at > :now
        order by created_at desc
        limit 200
        """,
        {"profile": viewer.profile, "principal": viewer.principal, "now": to_micros(tx.now)},
    )
    return [_sign_in_from_row(row) for row in rows]


def touch_sign_in(tx: Transaction, id_: str) -> None:
    tx.run("update sign_ins set seen_at = :now where id = :id", {"id": id_, "now": to_micros(tx.now)})


def remove_sign_in(tx: Transaction, viewer: Viewer, id_: str) -> None:
    gone = tx.count(
        "delete from sign_ins where id = :id and profile = :profile and principal = :principal",
        {"id": id_, "profile": viewer.profile, "principal": viewer.principal},
    )
    if not gone:
        raise NotFound("there is no such sign-in: it may have ended already")


def trim_sign_ins(tx: Transaction) -> int:
    """Remove expired sign-ins; return how many."""
    return tx.count("delete from sign_ins where expires_at <= :now", {"now": to_micros(tx.now)})


def _sign_in_from_row(row: Row) -> SignIn:
    return _SIGN_IN_ROWS.decode(row, viewer=Viewer(ProfileId(row[-2]), PrincipalId(row[-1])))


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A person who can sign in on the page. `password` is a hash."""

    name: str
    viewer: Viewer
    password: str
    created_at: datetime


_USER_ROWS = RowMapper(User, without={"viewer"})
_SELECT_USER = f"select {_USER_ROWS.columns}, profile, principal from users"


def add_user(tx: Transaction, user: User) -> None:
    """Add a user. Raise `Conflict` if the name is taken."""
    added = tx.count(
        """
        insert into users (name, profile, principal, password, created_at)
        values (:name, :profile, :principal, :password, :created_at)
        on conflict (name) do nothing
        """,
        {
            **_USER_ROWS.encode(user),
            "profile": user.viewer.profile,
            "principal": user.viewer.principal,
        },
    )
    if not added:
        raise Conflict(Phrase("user.taken", name=repr(user.name)))


def find_user(tx: Transaction, name: str) -> User | None:
    row = tx.row(f"{_SELECT_USER} where name = :name", {"name": name})
    return None if row is None else _user_from_row(row)


def list_users(tx: Transaction, profile: ProfileId) -> list[User]:
    """The users of a profile, by name."""
    rows = tx.rows(f"{_SELECT_USER} where profile = :profile order by name", {"profile": profile})
    return [_user_from_row(row) for row in rows]


def find_user_of(tx: Transaction, viewer: Viewer) -> User | None:
    """The user that a viewer signs in as, `None` for one who cannot."""
    rows = tx.rows(
        f"{_SELECT_USER} where profile = :profile and principal = :principal order by name limit 1",
        {"profile": viewer.profile, "principal": viewer.principal},
    )
    return next(map(_user_from_row, rows), None)


def set_password(tx: Transaction, name: str, password: str) -> None:
    tx.run("update users set password = :password where name = :name", {"name": name, "password": password})


def remove_user(tx: Transaction, name: str) -> None:
    tx.run("delete from users where name = :name", {"name": name})


def remove_sign_ins(tx: Transaction, viewer: Viewer, *, keep: str | None = None) -> None:
    """End all sign-ins of a viewer, but for one."""
    tx.run(
        "delete from sign_ins where profile = :profile and principal = :principal and id <> :keep",
        {"profile": viewer.profile, "principal": viewer.principal, "keep": keep or ""},
    )


def _user_from_row(row: Row) -> User:
    return _USER_ROWS.decode(row, viewer=Viewer(ProfileId(row[-2]), PrincipalId(row[-1])))


class Passkey(msgspec.Struct, frozen=True, kw_only=True):
    """`id` and `public_key` are in base64url; `uses` is the counter of the authenticator."""

    id: str
    viewer: Viewer
    name: str
    public_key: str
    uses: int
    created_at: datetime
    seen_at: datetime | None = None


_PASSKEY_ROWS = RowMapper(Passkey, json={"name"}, without={"viewer"})
_SELECT_PASSKEY = f"select {_PASSKEY_ROWS.columns}, profile, principal from passkeys"


def add_passkey(tx: Transaction, passkey: Passkey) -> None:
    """Add a passkey. Raise `Conflict` if it is known already."""
    added = tx.count(
        """
        insert into passkeys (id, profile, principal, name, public_key, uses, created_at, seen_at)
        values (:id, :profile, :principal, :name, :public_key, :uses, :created_at, :seen_at)
        on conflict (id) do nothing
        """,
        {
            **_PASSKEY_ROWS.encode(passkey),
            "profile": passkey.viewer.profile,
            "principal": passkey.viewer.principal,
        },
    )
    if not added:
        raise Conflict(Phrase("passkey.known"))


def find_passkey(tx: Transaction, id_: str) -> Passkey | None:
    row = tx.row(f"{_SELECT_PASSKEY} where id = :id", {"id": id_})
    return None if row is None else _passkey_from_row(row)


def list_passkeys(tx: Transaction, viewer: Viewer) -> list[Passkey]:
    """The passkeys of a viewer, oldest first."""
    rows = tx.rows(
        f"""
        {_SELECT_PASSKEY}
        where profile = :profile and principal = :principal
        order by created_at
        limit 200
        """,
        {"profile": viewer.profile, "principal": viewer.principal},
    )
    return [_passkey_from_row(row) for row in rows]


def use_passkey(tx: Transaction, id_: str, *, uses: int) -> bool:
    """Record a use. Return whether the counter has grown, or is not kept by the authenticator."""
    return bool(
        tx.count(
            """
            update passkeys set uses = :uses, seen_at = :now
            where id = :id and (uses < :uses or (uses = 0 and :uses = 0))
            """,
            {"id": id_, "uses": uses, "now": to_micros(tx.now)},
        )
    )


def remove_passkey(tx: Transaction, viewer: Viewer, id_: str) -> None:
    gone = tx.count(
        "delete from passkeys where id = :id and profile = :profile and principal = :principal",
        {"id": id_, "profile": viewer.profile, "principal": viewer.principal},
    )
    if not gone:
        raise NotFound(Phrase("passkey.unknown"))


def remove_passkeys(tx: Transaction, viewer: Viewer) -> None:
    tx.run(
        "delete from passkeys where profile = :profile and principal = :principal",
        {"profile": viewer.profile, "principal": viewer.principal},
    )


def _passkey_from_row(row: Row) -> Passkey:
    return _PASSKEY_ROWS.decode(row, viewer=Viewer(ProfileId(row[-2]), PrincipalId(row[-1])))
