import pytest
from tests.builders import ANNS, BOBS, Store, a_session

from keryx.core.changes import ChangeKind
from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.store import change_feed, changes, projects, sessions
from keryx.testing import START_TIME


async def test_a_project_is_found_by_name_and_id(store: Store) -> None:
    project = await store.at(START_TIME).write(projects.add, ANNS, name="Trips", colour="red")
    assert (project.name, project.colour, project.sessions) == ("Trips", "red", 0)
    assert await store.read(projects.find, ANNS, "Trips") == project
    assert await store.read(projects.find, ANNS, project.id) == project


async def test_a_name_is_unique_for_its_owner(store: Store) -> None:
    await store.at(START_TIME).write(projects.add, ANNS, name="Trips", colour="")
    with pytest.raises(Conflict, match="already"):
        await store.at(START_TIME).write(projects.add, ANNS, name="Trips", colour="")
    await store.at(START_TIME).write(projects.add, BOBS, name="Trips", colour="")
    other = await store.at(START_TIME).write(projects.add, ANNS, name="Other", colour="")
    with pytest.raises(Conflict, match="already"):
        await store.at(START_TIME).write(projects.update, ANNS, other, name="Trips", colour="")


async def test_a_project_of_another_person_does_not_exist(store: Store) -> None:
    await store.at(START_TIME).write(projects.add, ANNS, name="Trips", colour="")
    with pytest.raises(NotFound):
        await store.read(projects.find, BOBS, "Trips")
    assert await store.read(projects.list_for_viewer, BOBS) == []


async def test_a_project_counts_its_sessions_and_leaves_them_when_removed(store: Store) -> None:
    project = await store.at(START_TIME).write(projects.add, ANNS, name="Trips", colour="")
    session = await store.write(a_session)
    await store.at(START_TIME).write(sessions.set_project, session, project.id)
    assert [p.sessions for p in await store.read(projects.list_for_viewer, ANNS)] == [1]
    await store.at(START_TIME).write(projects.remove, ANNS, project)
    assert (await store.read(sessions.get, session.id)).project is None
    assert await store.read(projects.list_for_viewer, ANNS) == []


async def test_projects_are_listed_by_name_and_their_changes_told(store: Store) -> None:
    cursor = await store.read(changes.get_head)
    for name in ("b", "a"):
        await store.at(START_TIME).write(projects.add, ANNS, name=name, colour="")
    b = await store.read(projects.find, ANNS, "b")
    changed = await store.at(START_TIME).write(projects.update, ANNS, b, name="c", colour="blue")
    assert (changed.id, changed.name, changed.colour) == (b.id, "c", "blue")
    await store.at(START_TIME).write(projects.remove, ANNS, changed)
    assert [p.name for p in await store.read(projects.list_for_viewer, ANNS)] == ["a"]
    found = await store.read(change_feed.list_after, cursor)
    assert [(c.kind, c.note) for c in found] == [
        (ChangeKind.PROJECT, "added"),
        (ChangeKind.PROJECT, "added"),
        (ChangeKind.PROJECT, "changed"),
        (ChangeKind.PROJECT, "removed"),
    ]


async def test_a_name_that_no_database_can_keep_is_refused(store: Store) -> None:
    with pytest.raises(Invalid, match="remove them"):
        await store.at(START_TIME).write(projects.add, ANNS, name="half \ud800", colour="")
