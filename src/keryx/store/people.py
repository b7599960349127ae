"""People and their identities on platforms: aliases, codes that link two identities, and the transfer or removal of everything a person owns."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from keryx.core import codec, ids
from keryx.core import source as sources
from keryx.core.access import CodeHash
from keryx.core.clock import to_micros
from keryx.core.errors import NotFound
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId, SessionId, TurnId
from keryx.core.source import NO_ALIASES, Aliases
from keryx.core.texts import Phrase
from keryx.store import imports, jobs, lanes, sessions
from keryx.store.db import Row, Transaction
from keryx.store.db.rows import RowMapper


def resolve(tx: Transaction, *, profile: ProfileId, platform: str, person: str, name: str) -> PrincipalId:
    """The principal of an identity, made at first contact."""
    known = find(tx, profile=profile, platform=platform, person=person)
    if known is not None:
        return known
    principal = add(tx, profile=profile, name=name)
    label = codec.dumps(name)
    tx.run(
        """
        insert into identities (profile, platform, person, principal, name, created_at)
        values (:profile, :platform, :person, :principal, :name, :now)
        """,
        {
            "profile": profile,
            "platform": ids.escape(platform),
            "person": ids.escape(person),
            "principal": principal,
            "name": label,
            "now": to_micros(tx.now),
        },
    )
    return principal


def find(tx: Transaction, *, profile: ProfileId, platform: str, person: str) -> PrincipalId | None:
    """Return the principal of an identity, `None` before its first contact."""
    return find_by_handle(tx, profile=profile, platform=ids.escape(platform), handle=ids.escape(person))


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """An id of a person on a platform, as `identity.handle` writes it."""

    platform: str
    person: str
    name: str
    at: datetime


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """A person with all identities."""

    id: PrincipalId
    profile: ProfileId
    name: str
    at: datetime
    identities: tuple[Identity, ...] = ()


_IDENTITY_ROWS = RowMapper(Identity, json={"name"}, columns={"at": "created_at"})
_PRINCIPAL_ROWS = RowMapper(Principal, json={"name"}, columns={"at": "created_at"}, without={"identities"})


def list_all(tx: Transaction, profile: ProfileId) -> list[Principal]:
    """Return the people of a profile, oldest first."""
    rows = tx.rows(
        f"select {_PRINCIPAL_ROWS.columns} from principals where profile = :profile order by created_at, id",
        {"profile": profile},
    )
    return [_principal_from_row(tx, row) for row in rows]


def build_unknown_error(name: str) -> NotFound:
    return NotFound(
        f"No such person: {name}. `keryx people list` shows them", Phrase("person.unknown", name=name)
    )


def get(tx: Transaction, principal: PrincipalId, *, profile: ProfileId) -> Principal:
    row = tx.row(
        f"select {_PRINCIPAL_ROWS.columns} from principals where id = :id and profile = :profile",
        {"id": principal, "profile": profile},
    )
    if row is None:
        raise build_unknown_error(principal)
    return _principal_from_row(tx, row)


def exists(tx: Transaction, principal: PrincipalId, *, profile: ProfileId) -> bool:
    row = tx.row(
        "select 1 from principals where id = :id and profile = :profile",
        {"id": principal, "profile": profile},
    )
    return row is not None


def list_identities(tx: Transaction, principal: PrincipalId, *, profile: ProfileId) -> list[Identity]:
    """Return the identities of a person, oldest first."""
    rows = tx.rows(
        f"""
        select {_IDENTITY_ROWS.columns} from identities
        where principal = :id and profile = :profile order by created_at, platform, person
        """,
        {"id": principal, "profile": profile},
    )
    return _IDENTITY_ROWS.decode_all(rows)


def find_by_handle(tx: Transaction, *, profile: ProfileId, platform: str, handle: str) -> PrincipalId | None:
    """Return whose identity a handle is, `None` if it is unknown."""
    row = tx.row(
        "select principal from identities where profile = :profile and platform = :platform and person = :person",
        {"profile": profile, "platform": platform, "person": handle},
    )
    return None if row is None else PrincipalId(row[0])


def add(tx: Transaction, *, profile: ProfileId, name: str) -> PrincipalId:
    """A new person, not yet known on any platform."""
    principal = PrincipalId(ids.new(tx.now))
    _insert(tx, principal, profile, name)
    return principal


def ensure_operator(tx: Transaction, *, profile: ProfileId) -> None:
    """Add a row for the operator, who needs one only to own identities."""
    if tx.row("select 1 from principals where id = :id", {"id": OPERATOR}) is None:
        _insert(tx, OPERATOR, profile, "operator")


def reassign_identity(
    tx: Transaction, *, profile: ProfileId, platform: str, handle: str, principal: PrincipalId
) -> None:
    """Assign an identity to another person."""
    tx.run(
        """
        update identities set principal = :principal
        where profile = :profile and platform = :platform and person = :person
        """,
        {"profile": profile, "platform": platform, "person": handle, "principal": principal},
    )


def remove_identity(tx: Transaction, *, profile: ProfileId, platform: str, handle: str) -> None:
    tx.run(
        "delete from identities where profile = :profile and platform = :platform and person = :person",
        {"profile": profile, "platform": platform, "person": handle},
    )


def rename_identity(tx: Transaction, *, profile: ProfileId, platform: str, old: str, new: str) -> None:
    """Change the id of an identity to another id of the same person, which must be free."""
    tx.run(
        """
        update identities set person = :new
        where profile = :profile and platform = :platform and person = :old
        """,
        {"profile": profile, "platform": platform, "old": old, "new": new},
    )


def remove(tx: Transaction, principal: PrincipalId) -> None:
    """Remove a person and their identities. What they own must have been removed or transferred."""
    tx.run("delete from identities where principal = :id", {"id": principal})
    tx.run("delete from principals where id = :id", {"id": principal})


def get_name(tx: Transaction, principal: PrincipalId) -> str:
    if principal == OPERATOR:
        return "operator"
    row = tx.row("select name from principals where id = :id", {"id": principal})
    return codec.loads(row[0], str) if row and row[0] else ""


def _insert(tx: Transaction, principal: PrincipalId, profile: ProfileId, name: str) -> None:
    tx.run(
        "insert into principals (id, profile, name, created_at) values (:id, :profile, :name, :now)",
        {"id": principal, "profile": profile, "name": codec.dumps(name), "now": to_micros(tx.now)},
    )


def _principal_from_row(tx: Transaction, row: Row) -> Principal:
    known = list_identities(tx, row[0], profile=row[1])
    return _PRINCIPAL_ROWS.decode(row, identities=tuple(known))


def find_aliases(tx: Transaction, *, profile: ProfileId, platform: str, people: Iterable[str]) -> Aliases:
    """What is known of these ids, each as `identity.canonical` writes it."""
    found: dict[str, str] = {}
    for person in people:
        row = tx.row(
            "select person from person_aliases where profile = :profile and platform = :platform and alias = :alias",
            {"profile": profile, "platform": ids.escape(platform), "alias": codec.dumps(person)},
        )
        if row is not None:
            found[person] = codec.loads(row[0], str)
    return Aliases(found) if found else NO_ALIASES


def list_aliases(tx: Transaction, *, profile: ProfileId, platform: str, person: str) -> list[str]:
    """The other ids of a person, in order."""
    rows = tx.rows(
        """
        select alias from person_aliases
        where profile = :profile and platform = :platform and person = :person order by alias
        """,
        {"profile": profile, "platform": ids.escape(platform), "person": codec.dumps(person)},
    )
    return [codec.loads(row[0], str) for row in rows]


def link_aliases(
    tx: Transaction, *, profile: ProfileId, platform: str, one: str, other: str
) -> tuple[Aliases, str, str]:
    """Record that two ids are the same person. Return the known aliases, the canonical id, and the previous canonical
    id, which is the same one if nothing changed."""
    before = find_aliases(tx, profile=profile, platform=platform, people=(one, other))
    ends = {before.resolve(one), before.resolve(other)}
    after = before.learn(one, other)
    person = after.resolve(one)
    old = next((end for end in ends if end != person), person)
    if old == person:
        return after, person, person
    params = {"profile": profile, "platform": ids.escape(platform), "person": codec.dumps(person)}
    tx.run(
        """
        update person_aliases set person = :person
        where profile = :profile and platform = :platform and person = :old
        """,
        {**params, "old": codec.dumps(old)},
    )
    tx.run(
        """
        insert into person_aliases (profile, platform, alias, person, learned_at)
        values (:profile, :platform, :alias, :person, :now)
        """,
        {**params, "alias": codec.dumps(old), "now": to_micros(tx.now)},
    )
    return after, person, old


def save_link_code(
    tx: Transaction, principal: PrincipalId, code: CodeHash, *, profile: ProfileId, until: datetime
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
            "until": to_micros(until),
        },
    )


def redeem_link_code(tx: Transaction, code: str, *, profile: ProfileId) -> PrincipalId | None:
    """Use up a code; return whose it was."""
    rows = tx.rows(
        """
        select principal, salt, digest from links
        where profile = :profile and expires_at > :now order by expires_at desc limit 1000
        """,
        {"profile": profile, "now": to_micros(tx.now)},
    )
    found = next((PrincipalId(row[0]) for row in rows if CodeHash(row[1], row[2]).matches(code)), None)
    if found is not None:
        remove_link_code(tx, found, profile=profile)
    return found


def remove_link_code(tx: Transaction, principal: PrincipalId, *, profile: ProfileId) -> None:
    tx.run(
        "delete from links where profile = :profile and principal = :principal",
        {"profile": profile, "principal": principal},
    )


def trim_link_codes(tx: Transaction, *, before: datetime) -> int:
    return tx.count("delete from links where expires_at < :before", {"before": to_micros(before)})


def transfer_ownership(tx: Transaction, *, profile: ProfileId, old: PrincipalId, new: PrincipalId) -> None:
    """Transfer everything of one person to another. Titles that both use get a number, projects and tags of the
    same name are merged."""
    params = {"profile": profile, "old": old, "new": new}
    for id_ in sessions.list_ids_for_owner(tx, profile=profile, owner=old):
        sessions.change_owner(tx, sessions.get(tx, id_, deleted=True), new)
        imports.change_owner(tx, id_, old=old, new=new)
    for lane in lanes.list_for_owner(tx, profile=profile, owner=old):
        lanes.change_owner(tx, lane, new)
    same_name = tx.rows(
        """
        select o.id, n.id from projects o
        join projects n on n.profile = o.profile and n.name = o.name and n.owner = :new
        where o.profile = :profile and o.owner = :old
        """,
        params,
    )
    for theirs, ours in same_name:
        tx.run(
            "update sessions set project = :ours where project = :theirs", {"ours": ours, "theirs": theirs}
        )
        tx.run("delete from projects where id = :theirs", {"theirs": theirs})
    tx.run("update projects set owner = :new where profile = :profile and owner = :old", params)
    _merge_tags(tx, params)
    for job in jobs.list_for_owner(tx, profile=profile, owner=old):
        jobs.change_owner(tx, job, new)
    tx.run("update turns set asker = :new where profile = :profile and asker = :old", params)
    tx.run("update messages set said_by = :new where said_by = :old", params)
    tx.run("update overheard set said_by = :new where profile = :profile and said_by = :old", params)
    tx.run("update deliveries set owner = :new where profile = :profile and owner = :old", params)
    tx.run("update homes set set_by = :new where profile = :profile and set_by = :old", params)
    tx.run("update grants set granted_by = :new where profile = :profile and granted_by = :old", params)
    tx.run("update identities set principal = :new where profile = :profile and principal = :old", params)
    tx.run("update migration_items set owner = :new where profile = :profile and owner = :old", params)
    tx.run("update api_keys set principal = :new where profile = :profile and principal = :old", params)
    tx.run("update api_conversations set owner = :new where profile = :profile and owner = :old", params)
    if new == OPERATOR:
        # The password of a user must not open what is the operator's.
        tx.run("delete from users where profile = :profile and principal = :old", params)
        tx.run("delete from passkeys where profile = :profile and principal = :old", params)
        tx.run("delete from sign_ins where profile = :profile and principal = :old", params)
        tx.run("delete from push_subscriptions where profile = :profile and principal = :old", params)
        return
    tx.run("update users set principal = :new where profile = :profile and principal = :old", params)
    tx.run("update passkeys set principal = :new where profile = :profile and principal = :old", params)
    tx.run("update sign_ins set principal = :new where profile = :profile and principal = :old", params)
    tx.run(
        "update push_subscriptions set principal = :new where profile = :profile and principal = :old", params
    )


def _merge_tags(tx: Transaction, params: Mapping[str, str]) -> None:
    """Transfer the tags of one person to another; those of the same name become one."""
    tx.run(
        """
        insert into session_tags (session, tag)
        select x.session, n.id from session_tags x
        join tags o on o.id = x.tag and o.profile = :profile and o.owner = :old
        join tags n on n.profile = o.profile and n.name = o.name and n.owner = :new
        where 1 = 1
        on conflict do nothing
        """,
        params,
    )
    tx.run(
        """
        delete from tags
        where profile = :profile and owner = :old
          and name in (select n.name from tags n where n.profile = :profile and n.owner = :new)
        """,
        params,
    )
    tx.run("update tags set owner = :new where profile = :profile and owner = :old", params)


def remove_owned(tx: Transaction, *, profile: ProfileId, owner: PrincipalId) -> None:
    """Remove what belongs to a person beside their sessions: lanes, jobs, projects, tags, deliveries and homes they
    chose, what was overheard of them, where they asked from, what was sent on of their words, and what the page keeps for them."""
    params = {"profile": profile, "owner": owner}
    tx.run("delete from lanes where profile = :profile and owner = :owner", params)
    tx.run("delete from jobs where profile = :profile and owner = :owner", params)
    tx.run("delete from projects where profile = :profile and owner = :owner", params)
    tx.run("delete from tags where profile = :profile and owner = :owner", params)
    tx.run("delete from deliveries where profile = :profile and owner = :owner", params)
    tx.run("delete from homes where profile = :profile and set_by = :owner", params)
    tx.run("delete from overheard where profile = :profile and said_by = :owner", params)
    tx.run(
        """
        update deliveries set body = '""'
        where turn in (select t.id from turns t where t.profile = :profile and t.asker = :owner)
          and state not in ('ready', 'sending')
        """,
        params,
    )
    tx.run("update turns set source = null where profile = :profile and asker = :owner", params)
    tx.run("delete from links where profile = :profile and principal = :owner", params)
    tx.run("delete from reads where profile = :profile and principal = :owner", params)
    tx.run("delete from composers where profile = :profile and principal = :owner", params)
    tx.run("delete from preferences where profile = :profile and principal = :owner", params)
    tx.run("delete from sign_ins where profile = :profile and principal = :owner", params)
    tx.run("delete from push_subscriptions where profile = :profile and principal = :owner", params)
    tx.run("delete from api_keys where profile = :profile and principal = :owner", params)
    tx.run("delete from users where profile = :profile and principal = :owner", params)
    tx.run("delete from passkeys where profile = :profile and principal = :owner", params)
    tx.run("delete from api_conversations where profile = :profile and owner = :owner", params)
    tx.run("delete from graph_threads where profile = :profile and owner = :owner", params)
    tx.run("delete from graph_memories where profile = :profile and owner = :owner", params)
    tx.run("delete from adk_sessions where profile = :profile and owner = :owner", params)
    tx.run("delete from adk_states where profile = :profile and owner = :owner", params)
    tx.run("delete from migration_items where profile = :profile and owner = :owner", params)


def list_messages_elsewhere(
    tx: Transaction, *, profile: ProfileId, person: PrincipalId
) -> list[tuple[SessionId, int]]:
    """The session and number of what a person said, or was heard saying, in conversations of others."""
    rows = tx.rows(
        """
        select m.session, m.seq from messages m
        join sessions s on s.id = m.session
        where m.said_by = :person and s.profile = :profile and s.owner <> :person order by m.id
        """,
        {"profile": profile, "person": person},
    )
    return [(session, seq) for session, seq in rows]


def get_language(tx: Transaction, turn: TurnId) -> str | None:
    """The language of the person who asked for a turn, or else the one that the session began in, if it is known."""
    row = tx.row(
        "select coalesce(t.source, s.origin) from turns t join sessions s on s.id = t.session where t.id = :id",
        {"id": turn},
    )
    return sources.decode(row[0]).language if row and row[0] else None
