"""Projects: named groups of sessions, with instructions; names are unique for each owner."""

import json
from collections.abc import Iterable

from keryx.core import codec, ids
from keryx.core.changes import ChangeKind
from keryx.core.clock import to_micros
from keryx.core.errors import Conflict, NotFound
from keryx.core.ids import ProjectId
from keryx.core.sessions import Project, Viewer
from keryx.core.texts import Phrase
from keryx.store import changes
from keryx.store.db import Transaction
from keryx.store.db.rows import RowMapper

_COUNT_SESSIONS = "(select count(*) from sessions s where s.project = p.id and s.deleted_at is null)"
_ROWS = RowMapper(Project, table="p", json={"instructions"}, columns={"sessions": _COUNT_SESSIONS})
_SELECT = f"select {_ROWS.columns} from projects p"


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
