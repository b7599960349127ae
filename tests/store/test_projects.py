import pytest
from tests.builders import ANNS, BOBS, NOW, Store, a_session

from keryx.core.changes import Kind
from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.store import changes, feed, projects, sessions


async def test_a_project_is_found_by_name_and_id(store: Store) -> None:
    project = await store.write(projects.add, ANNS, name="Trips", colour="red", now=NOW)
    assert (project.name, project.colour, project.sessions) == ("Trips", "red", 0)
    assert await store.read(projects.find, ANNS, "Trips") == project
    assert await store.read(projects.find, ANNS, project.id) == project


async def test_a_name_is_unique_for_its_owner(store: Store) -> None:
    await store.write(projects.add, ANNS, name="Trips", colour="", now=NOW)
    with pytest.raises(Conflict, match="already"):
        await store.write(projects.add, ANNS, name="Trips", colour="", now=NOW)
    await store.write(projects.add, BOBS, name="Trips", colour="", now=NOW)
    other = await store.write(projects.add, ANNS, name="Other", colour="", now=NOW)
    with pytest.raises(Conflict, match="already"):
        await store.write(projects.change, ANNS, other, name="Trips", colour="", now=NOW)


async def test_a_project_of_another_person_does_not_exist(store: Store) -> None:
    await store.write(projects.add, ANNS, name="Trips", colour="", now=NOW)
    with pytest.raises(NotFound):
        await store.read(projects.find, BOBS, "Trips")
    assert await store.read(projects.every, BOBS) == []


async def test_a_project_counts_its_sessions_and_leaves_them_when_removed(store: Store) -> None:
    project = await store.write(projects.add, ANNS, name="Trips", colour="", now=NOW)
    session = await store.write(a_session)
    await store.write(sessions.set_project, session, project.id, now=NOW)
    assert [p.sessions for p in await store.read(projects.every, ANNS)] == [1]
    await store.write(projects.remove, ANNS, project, now=NOW)
    assert (await store.read(sessions.get, session.id)).project is None
    assert await store.read(projects.every, ANNS) == []


async def test_projects_are_listed_by_name_and_their_changes_told(store: Store) -> None:
    cursor = await store.read(changes.head)
    for name in ("b", "a"):
        await store.write(projects.add, ANNS, name=name, colour="", now=NOW)
    b = await store.read(projects.find, ANNS, "b")
    changed = await store.write(projects.change, ANNS, b, name="c", colour="blue", now=NOW)
    assert (changed.id, changed.name, changed.colour) == (b.id, "c", "blue")
    await store.write(projects.remove, ANNS, changed, now=NOW)
    assert [p.name for p in await store.read(projects.every, ANNS)] == ["a"]
    found = await store.read(feed.after, cursor)
    assert [(c.kind, c.note) for c in found] == [
        (Kind.PROJECT, "added"),
        (Kind.PROJECT, "added"),
        (Kind.PROJECT, "changed"),
        (Kind.PROJECT, "removed"),
    ]


async def test_a_name_that_no_database_can_keep_is_refused(store: Store) -> None:
    with pytest.raises(Invalid, match="remove them"):
        await store.write(projects.add, ANNS, name="half \ud800", colour="", now=NOW)
