"""Projects: groups of sessions with a name, a colour and instructions."""

from keryx.core.ids import SessionId
from keryx.core.sessions import Project, Viewer
from keryx.engine.hub.verbs import HubPart, bind_read, write_unit
from keryx.store import projects, sessions
from keryx.store.db import Transaction


class HubProjects(HubPart):
    list_all = bind_read("projects", projects.list_for_viewer)
    find = bind_read("project", projects.find)

    @write_unit("project.add")
    def add(self, tx: Transaction, viewer: Viewer, name: str, *, colour: str = "") -> Project:
        return projects.add(tx, viewer, name=name, colour=colour)

    @write_unit("project.change")
    def change(
        self, tx: Transaction, viewer: Viewer, name: str, *, new_name: str | None, colour: str | None
    ) -> Project:
        project = projects.find(tx, viewer, name)
        colour = project.colour if colour is None else colour
        return projects.update(tx, viewer, project, name=new_name or project.name, colour=colour)

    @write_unit("project.instruct")
    def set_instructions(self, tx: Transaction, viewer: Viewer, name: str, text: str) -> Project:
        """Set the instructions that every session of a project starts with; an empty text removes them."""
        projects.set_instructions(tx, viewer, projects.find(tx, viewer, name), text)
        return projects.find(tx, viewer, name)

    @write_unit("project.remove")
    def remove(self, tx: Transaction, viewer: Viewer, name: str) -> None:
        projects.remove(tx, viewer, projects.find(tx, viewer, name))

    @write_unit("project.assign")
    def assign(self, tx: Transaction, viewer: Viewer, session: SessionId, name: str | None) -> None:
        """Put a session into a project, or into none."""
        project = projects.find(tx, viewer, name).id if name else None
        sessions.set_project(tx, sessions.get(tx, session, viewer=viewer), project)
