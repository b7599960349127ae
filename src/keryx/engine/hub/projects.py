"""Projects: groups of sessions with a name, a colour and instructions."""

from keryx.core.clock import Clock
from keryx.core.ids import SessionId
from keryx.core.sessions import Project, Viewer
from keryx.store import projects, sessions
from keryx.store.db.database import Database, Transaction


class HubProjects:
    """`hub.projects`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def list_all(self, viewer: Viewer) -> list[Project]:
        return await self._database.read("projects", lambda tx: projects.list_for_viewer(tx, viewer))

    async def find(self, viewer: Viewer, name: str) -> Project:
        """The viewer's project of this name or id."""
        return await self._database.read("project", lambda tx: projects.find(tx, viewer, name))

    async def add(self, viewer: Viewer, name: str, *, colour: str = "") -> Project:
        return await self._database.write(
            "project.add", lambda tx: projects.add(tx, viewer, name=name, colour=colour)
        )

    async def change(self, viewer: Viewer, name: str, *, new_name: str | None, colour: str | None) -> Project:

        def work(tx: Transaction) -> Project:
            found = projects.find(tx, viewer, name)
            return projects.update(
                tx,
                viewer,
                found,
                name=new_name or found.name,
                colour=found.colour if colour is None else colour,
            )

        return await self._database.write("project.change", work)

    async def set_instructions(self, viewer: Viewer, name: str, text: str) -> Project:
        """Set what every session of a project is told at its start; an empty text takes it away."""

        def work(tx: Transaction) -> Project:
            projects.set_instructions(tx, viewer, projects.find(tx, viewer, name), text)
            return projects.find(tx, viewer, name)

        return await self._database.write("project.instruct", work)

    async def remove(self, viewer: Viewer, name: str) -> None:
        await self._database.write(
            "project.remove", lambda tx: projects.remove(tx, viewer, projects.find(tx, viewer, name))
        )

    async def assign(self, viewer: Viewer, session: SessionId, name: str | None) -> None:
        """Put a session into a project, or into none."""

        def work(tx: Transaction) -> None:
            project = projects.find(tx, viewer, name) if name else None
            found = sessions.get(tx, session, viewer=viewer)
            sessions.set_project(tx, found, project.id if project else None)

        await self._database.write("project.assign", work)
