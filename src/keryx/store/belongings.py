"""Belongings: everything that belongs to one person, given to another or removed for good."""

from datetime import datetime

from keryx.core.ids import PrincipalId, ProfileId, SessionId
from keryx.store import jobs, lanes, sessions
from keryx.store.database import Transaction


def give(tx: Transaction, *, profile: ProfileId, old: PrincipalId, new: PrincipalId, now: datetime) -> None:
    """Let everything of one person belong to another. Nothing is lost: titles that both use get a number, projects
    that both have become one."""
    for id_ in sessions.of_owner(tx, profile=profile, owner=old):
        sessions.give(tx, sessions.get(tx, id_, deleted=True), new, now=now)
    for lane in lanes.of_owner(tx, profile=profile, owner=old):
        lanes.give(tx, lane, new)
    _give_projects(tx, profile, old, new)
    for job in jobs.of_owner(tx, profile=profile, owner=old):
        jobs.give(tx, job, new, now=now)
    params = {"profile": profile, "old": old, "new": new}
    tx.run("update turns set asker = :new where profile = :profile and asker = :old", params)
    tx.run("update messages set said_by = :new where said_by = :old", params)
    tx.run("update deliveries set owner = :new where profile = :profile and owner = :old", params)
    tx.run("update homes set set_by = :new where profile = :profile and set_by = :old", params)
    tx.run("update grants set granted_by = :new where profile = :profile and granted_by = :old", params)
    tx.run("update identities set principal = :new where profile = :profile and principal = :old", params)


def _give_projects(tx: Transaction, profile: ProfileId, old: PrincipalId, new: PrincipalId) -> None:
    params = {"profile": profile, "old": old, "new": new}
    both = tx.rows(
        """
        select o.id, n.id from projects o
        join projects n on n.profile = o.profile and n.name = o.name and n.owner = :new
        where o.profile = :profile and o.owner = :old
        """,
        params,
    )
    for theirs, ours in both:
        tx.run(
            "update sessions set project = :ours where project = :theirs", {"ours": ours, "theirs": theirs}
        )
        tx.run("delete from projects where id = :theirs", {"theirs": theirs})
    tx.run("update projects set owner = :new where profile = :profile and owner = :old", params)


def remove(tx: Transaction, *, profile: ProfileId, owner: PrincipalId) -> None:
    """Remove what belongs to a person beside their sessions: lanes, jobs, projects, deliveries and homes they
    chose, where they asked from, what was sent on of their words, and what the page keeps for them."""
    params = {"profile": profile, "owner": owner}
    tx.run("delete from lanes where profile = :profile and owner = :owner", params)
    tx.run("delete from jobs where profile = :profile and owner = :owner", params)
    tx.run("delete from projects where profile = :profile and owner = :owner", params)
    tx.run("delete from deliveries where profile = :profile and owner = :owner", params)
    tx.run("delete from homes where profile = :profile and set_by = :owner", params)
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


def said_elsewhere(
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
