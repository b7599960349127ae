"""Projects, named groups of sessions with instructions; and tags, of which a session has any number. Names are unique for each owner."""

import json
from collections.abc import Iterable

from keryx.core import codec, ids
from keryx.core.changes import ChangeKind
from keryx.core.clock import to_micros
from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.core.ids import ProjectId, SessionId, TagId
from keryx.core.sessions import Project, Tag, TagColour, Viewer
from keryx.core.text import to_single_line
from keryx.core.texts import Phrase
from keryx.store import changes
from keryx.store.db import Transaction
from keryx.store.db.rows import RowMapper

_COUNT_SESSIONS = "(select count(*) from sessions s where s.project = p.id and s.deleted_at is null)"
_ROWS = RowMapper(Project, table="p", json={"instructions"}, columns={"sessions": _COUNT_SESSIONS})
_SELECT = f"select {_ROWS.columns} from projects p"
_COUNT_TAGGED = """
(select count(*) from session_tags x join sessions s on s.id = x.session where x.tag = t.id and s.deleted_at is null)
"""
_TAG_ROWS = RowMapper(Tag, table="t", columns={"sessions": _COUNT_TAGGED})
_SELECT_TAG = f"select {_TAG_ROWS.columns} from tags t"
_LONGEST_TAG = 40


def add(tx: Transaction, viewer: Viewer, *, name: str, colour: str) -> Project:
    project = ProjectId(ids.new(tx.now))
    added = tx.count(
        """
        insert into projects (id, profile, owner, name, colour, created_at)
        values (:id, :profile, :owner, :name, :colour, :now)
        on conflict do nothing
        """,
        {
            "id": project,
            "profile": viewer.profile,
            "owner": viewer.principal,
            "name": name,
            "colour": colour,
            "now": to_micros(tx.now),
        },
    )
    if not added:
        raise Conflict(Phrase("project.taken", name=repr(name)))
    _note_change(tx, viewer, project, "added")
    return find(tx, viewer, name)


def ensure(tx: Transaction, viewer: Viewer, name: str) -> ProjectId:
    """The viewer's project of a name, made if there is none."""
    try:
        return add(tx, viewer, name=name, colour="").id
    except Conflict:
        return find(tx, viewer, name).id


def find(tx: Transaction, viewer: Viewer, name: str) -> Project:
    """The viewer's project of this name or id."""
    row = tx.row(
        f"{_SELECT} where p.profile = :profile and p.owner = :owner and (p.name = :name or p.id = :name)",
        {"profile": viewer.profile, "owner": viewer.principal, "name": name},
    )
    if row is None:
        raise NotFound(
            f"there is no project {name!r}: `keryx projects list` shows them",
            Phrase("project.unknown", name=repr(name)),
        )
    return _ROWS.decode(row)


def get_many(tx: Transaction, projects: Iterable[str]) -> list[Project]:
    """Those of these projects that exist, in no order."""
    rows = tx.rows(f"{_SELECT} where p.id {tx.in_names}", {"names": json.dumps(list(projects))})
    return _ROWS.decode_all(rows)


def list_for_viewer(tx: Transaction, viewer: Viewer) -> list[Project]:
    rows = tx.rows(
        f"{_SELECT} where p.profile = :profile and p.owner = :owner order by p.name",
        {"profile": viewer.profile, "owner": viewer.principal},
    )
    return _ROWS.decode_all(rows)


def update(tx: Transaction, viewer: Viewer, project: Project, *, name: str, colour: str) -> Project:
    taken = tx.row(
        "select 1 from projects where profile = :profile and owner = :owner and name = :name and id <> :id",
        {"profile": viewer.profile, "owner": viewer.principal, "name": name, "id": project.id},
    )
    if taken:
        raise Conflict(Phrase("project.taken", name=repr(name)))
    tx.run(
        "update projects set name = :name, colour = :colour where id = :id",
        {"name": name, "colour": colour, "id": project.id},
    )
    _note_change(tx, viewer, project.id, "changed")
    return find(tx, viewer, name)


def set_instructions(tx: Transaction, viewer: Viewer, project: Project, text: str) -> None:
    """Set the standing instructions of a project; an empty text takes them away."""
    tx.run(
        "update projects set instructions = :text where id = :id",
        {"id": project.id, "text": codec.dumps(text) if text else ""},
    )
    _note_change(tx, viewer, project.id, "changed")


def get_instructions(tx: Transaction, project: ProjectId) -> str:
    """The standing instructions of a project, empty if it has none."""
    row = tx.row("select instructions from projects where id = :id", {"id": project})
    return codec.loads(row[0], str) if row and row[0] else ""


def remove(tx: Transaction, viewer: Viewer, project: Project) -> None:
    """Remove a project; its sessions stay, without one."""
    tx.run("delete from projects where id = :id", {"id": project.id})
    _note_change(tx, viewer, project.id, "removed")


def _note_change(tx: Transaction, viewer: Viewer, project: ProjectId, note: str) -> None:
    changes.note(tx, ChangeKind.PROJECT, project, viewer, note=note)


def add_tag(tx: Transaction, viewer: Viewer, name: str, *, colour: TagColour | None = None) -> Tag:
    """Make a tag. Without a colour it gets the one that its name leads to, so that tags differ."""
    name = _clean_tag_name(name)
    colours = list(TagColour)
    tag = TagId(ids.new(tx.now))
    added = tx.count(
        """
        insert into tags (id, profile, owner, name, colour, created_at)
        values (:id, :profile, :owner, :name, :colour, :now)
        on conflict do nothing
        """,
        {
            "id": tag,
            "profile": viewer.profile,
            "owner": viewer.principal,
            "name": name,
            "colour": (colour or colours[sum(name.casefold().encode()) % len(colours)]).value,
            "now": to_micros(tx.now),
        },
    )
    if not added:
        raise Conflict(Phrase("tag.taken", name=repr(name)))
    _note_tag_change(tx, viewer, tag, "added")
    return find_tag(tx, viewer, name)


def find_tag(tx: Transaction, viewer: Viewer, name: str) -> Tag:
    """The viewer's tag of this name or id."""
    row = tx.row(
        f"{_SELECT_TAG} where t.profile = :profile and t.owner = :owner and (t.name = :name or t.id = :name)",
        {"profile": viewer.profile, "owner": viewer.principal, "name": name},
    )
    if row is None:
        raise NotFound(Phrase("tag.unknown", name=repr(name)))
    return _TAG_ROWS.decode(row)


def get_tags(tx: Transaction, tags: Iterable[str]) -> list[Tag]:
    """Those of these tags that exist, in no order."""
    rows = tx.rows(f"{_SELECT_TAG} where t.id {tx.in_names}", {"names": json.dumps(list(tags))})
    return _TAG_ROWS.decode_all(rows)


def list_tags(tx: Transaction, viewer: Viewer) -> list[Tag]:
    """The viewer's tags, by name."""
    rows = tx.rows(
        f"{_SELECT_TAG} where t.profile = :profile and t.owner = :owner order by t.name",
        {"profile": viewer.profile, "owner": viewer.principal},
    )
    return _TAG_ROWS.decode_all(rows)


def update_tag(tx: Transaction, viewer: Viewer, tag: Tag, *, name: str, colour: TagColour) -> Tag:
    name = _clean_tag_name(name)
    taken = tx.row(
        "select 1 from tags where profile = :profile and owner = :owner and name = :name and id <> :id",
        {"profile": viewer.profile, "owner": viewer.principal, "name": name, "id": tag.id},
    )
    if taken:
        raise Conflict(Phrase("tag.taken", name=repr(name)))
    tx.run(
        "update tags set name = :name, colour = :colour where id = :id",
        {"name": name, "colour": colour.value, "id": tag.id},
    )
    _note_tag_change(tx, viewer, tag.id, "changed")
    return find_tag(tx, viewer, name)


def remove_tag(tx: Transaction, viewer: Viewer, tag: Tag) -> None:
    """Remove a tag from all sessions; the sessions stay."""
    tx.run("delete from tags where id = :id", {"id": tag.id})
    _note_tag_change(tx, viewer, tag.id, "removed")


def list_session_tags(tx: Transaction, viewer: Viewer, session: SessionId) -> list[Tag]:
    """The viewer's tags on a session, by name."""
    rows = tx.rows(
        f"""
        {_SELECT_TAG} join session_tags x on x.tag = t.id
        where x.session = :session and t.profile = :profile and t.owner = :owner
        order by t.name
        """,
        {"session": session, "profile": viewer.profile, "owner": viewer.principal},
    )
    return _TAG_ROWS.decode_all(rows)


def put_tags(tx: Transaction, viewer: Viewer, session: SessionId, names: Iterable[str]) -> bool:
    """Put tags of the viewer on a session, making those that do not exist. Return whether one of them is new there.
    The caller notes the change of the session."""
    count = 0
    for name in dict.fromkeys(names):
        try:
            tag = find_tag(tx, viewer, to_single_line(name))
        except NotFound:
            tag = add_tag(tx, viewer, name)
        count += tx.count(
            "insert into session_tags (session, tag) values (:session, :tag) on conflict do nothing",
            {"session": session, "tag": tag.id},
        )
    return count > 0


def take_tags(tx: Transaction, viewer: Viewer, session: SessionId, names: Iterable[str]) -> bool:
    """Take tags of the viewer from a session. Return whether it had one of them. The caller notes the change."""
    count = 0
    for name in names:
        tag = find_tag(tx, viewer, name)
        count += tx.count(
            "delete from session_tags where session = :session and tag = :tag",
            {"session": session, "tag": tag.id},
        )
    return count > 0


def _clean_tag_name(text: str) -> str:
    name = to_single_line(text)
    if not 1 <= len(name) <= _LONGEST_TAG or '"' in name:
        raise Invalid(Phrase("tag.name", name=repr(name[: 2 * _LONGEST_TAG])))
    return name


def _note_tag_change(tx: Transaction, viewer: Viewer, tag: TagId, note: str) -> None:
    changes.note(tx, ChangeKind.TAG, tag, viewer, note=note)
