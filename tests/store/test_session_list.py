"""The list of sessions: each filter as it is typed, by few and by many sessions, over pages; tags and the trash."""

from datetime import timedelta
from typing import Any

import pytest
from tests.builders import (
    ANN,
    ANNS,
    BOBS,
    OPERATORS,
    Store,
    a_session,
    a_turn,
    after,
    at_time,
    claim,
)

from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.core.ids import DEFAULT_PROFILE
from keryx.core.sessions import PruneRule, Session, SessionFilter, TagColour, Viewer
from keryx.core.source import Source
from keryx.core.turns import TurnState
from keryx.store import people, projects, sessions, turns
from keryx.store.db import Transaction
from keryx.testing import START_TIME

# More than the store looks up one by one.
MANY = 1100


async def titles_of(store: Store, query: str, viewer: Viewer = ANNS, **fields: Any) -> list[str]:
    """The titles of all pages of a list."""
    titles: list[str] = []
    after_: str | None = None
    while True:
        listing = SessionFilter(query=query, after=after_, **fields)
        found, after_ = await store.at(after(100)).read(sessions.list_page, viewer, listing)
        titles += [entry.session.title for entry in found]
        if after_ is None:
            return titles


def arrange(tx: Transaction) -> dict[str, Session]:
    made = {
        name: a_session(tx, title=name, at=after(n), surface=surface)
        for n, (name, surface) in enumerate(
            [("a", "web"), ("b", "cli"), ("c", "web"), ("d", "job"), ("e", "web"), ("f", "web"), ("g", "web")]
        )
    }
    project = projects.add(at_time(tx, START_TIME), ANNS, name="Garden Work", colour="")
    sessions.set_project(at_time(tx, START_TIME), made["a"], project.id)
    sessions.set_project(at_time(tx, START_TIME), made["d"], project.id)
    sessions.set_pinned(at_time(tx, START_TIME), made["b"], True)
    sessions.set_archived(at_time(tx, START_TIME), made["c"], True)
    for name, tags in (("a", ["to do"]), ("b", ["to do", "Later"]), ("c", ["to do"])):
        projects.put_tags(at_time(tx, START_TIME), ANNS, made[name].id, tags)
    for name in ("e", "f"):
        a_turn(tx, made[name], at=after(10))
        turn = claim(tx, session=made[name].id)
        assert turn
        if name == "f":
            turns.finish(at_time(tx, after(11)), turn, TurnState.FAILED)
    a_turn(tx, made["g"], at=after(12))
    for n, name in enumerate(("a", "b")):
        gone = a_session(tx, title=f"gone {name}")
        sessions.soft_delete(at_time(tx, after(20 + n)), gone, grace=timedelta(days=1))
    return made


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "b g f e a"),
        ("is:pinned", "b"),
        ("is:archived", "c"),
        ("is:running", "e"),
        ("is:waiting", "g"),
        ("is:failed", "f"),
        ("surface:cli", "b"),
        ("surface:cli surface:job", "b d"),
        ("surface:CLI", "b"),
        ("surface:nothing", ""),
        ('project:"garden work"', "d a"),
        ("project:none", ""),
        ('tag:"To Do"', "b a"),
        ('tag:"to do" is:archived', "c"),
        ('tag:"to do" tag:later', "b"),
        ("tag:unknown", ""),
        ("person:operator", ""),
        ("after:2026-01-01T00:00:00", "b g f e a"),
        ("before:90s", "b a"),
        ("before:89s", "b f e a"),
        ("after:90s", "g f e"),
        ("after:88s before:1s", "g"),
    ],
)
async def test_a_filter_is_a_query(store: Store, query: str, expected: str) -> None:
    await store.write(arrange)
    assert await titles_of(store, query, limit=1) == expected.split()
    assert await titles_of(store, query) == expected.split()


async def test_what_only_messages_have_is_not_a_filter_of_a_list(store: Store) -> None:
    for query in ("hello", "from:ann", "is:user", "has:code", 'is:running "to do"'):
        with pytest.raises(Invalid, match="search for words"):
            await titles_of(store, query)


async def test_filters_that_match_very_many_are_in_the_order_of_the_list(store: Store) -> None:
    def fill(tx: Transaction) -> None:
        tag = projects.add_tag(at_time(tx, START_TIME), ANNS, "many")
        numbers = f"with recursive n (i) as (select 1 union all select i + 1 from n where i < {MANY})"
        tx.run(
            f"""
            {numbers}
            insert into sessions (id, profile, owner, surface, title, created_at, active_at)
            select 's' || (100000 + i), 'default', 'ann', 'web', 't' || i, i, i from n
            """
        )
        tx.run(
            f"{numbers} insert into session_tags (session, tag) select 's' || (100000 + i), :tag from n",
            {"tag": tag.id},
        )
        tx.run(
            f"""
            {numbers}
            insert into turns (id, session, profile, owner, asker, surface, state, mode, input_seq, created_at)
            select 't' || i, 's' || (100000 + i), 'default', 'ann', 'ann', 'web', 'queued', 'queue', 1, i from n
            """
        )

    await store.write(fill)
    expected = [f"t{n}" for n in range(MANY, 0, -1)]
    assert await titles_of(store, "tag:many", limit=500) == expected
    assert await titles_of(store, "is:waiting", limit=500) == expected


async def test_sessions_of_a_person_are_found_by_name(store: Store) -> None:
    def arrange_people(tx: Transaction) -> None:
        for n, name in enumerate(["Ann Öst", "Bob", "anna"]):
            made = people.resolve(
                at_time(tx, START_TIME),
                profile=DEFAULT_PROFILE,
                platform="telegram",
                person=str(n),
                name=name,
            )
            a_session(tx, title=f"of {name}", owner=made)

    await store.write(arrange_people)
    assert await titles_of(store, 'person:"ann Öst"', OPERATORS) == ["of Ann Öst"]
    assert await titles_of(store, "person:BOB", OPERATORS) == ["of Bob"]
    assert await titles_of(store, "person:bob") == []
    found = await store.read(sessions.find_people, OPERATORS, "AN", limit=9)
    assert [name for _, name in found] == ["Ann Öst", "anna"]
    assert len(await store.read(sessions.find_people, OPERATORS, "", limit=2)) == 2


async def test_a_chat_platform_is_a_surface_too(store: Store) -> None:
    def arrange_chats(tx: Transaction) -> None:
        for platform in ("telegram", "slack"):
            made = sessions.create(
                at_time(tx, START_TIME),
                profile=DEFAULT_PROFILE,
                owner=ANN,
                surface="gateway",
                origin=Source(platform=platform, chat="1", chat_name='"platform":"matrix"'),
            )
            sessions.import_title(at_time(tx, START_TIME), sessions.get(tx, made), platform, by=None)

    await store.write(arrange_chats)
    assert await titles_of(store, "surface:telegram") == ["telegram"]
    assert await titles_of(store, "surface:matrix") == []
    assert len(await titles_of(store, "surface:gateway")) == 2


async def test_the_trash_has_what_was_deleted_last_first(store: Store) -> None:
    made = await store.write(arrange)
    for n, name in enumerate(("c", "a", "d")):
        session = await store.read(sessions.get, made[name].id)
        await store.at(after(30 + n)).write(sessions.soft_delete, session, grace=timedelta(days=1))
    assert await titles_of(store, "is:deleted", limit=2) == ["d", "a", "c", "gone b", "gone a"]
    assert await titles_of(store, "is:deleted", BOBS) == []
    found, _ = await store.read(sessions.list_page, ANNS, SessionFilter(query="is:deleted", limit=1))
    assert found[0].session.erase_at == after(32) + timedelta(days=1)
    await store.at(after(40)).write(sessions.undelete, found[0].session)
    assert await titles_of(store, 'project:"garden work"') == ["d"]


async def test_a_query_says_what_would_be_pruned(store: Store) -> None:
    made = await store.write(arrange)

    async def prunable(query: str, *, delete: bool = False) -> list[str]:
        rule = PruneRule(before=after(50), delete=delete, query=query)
        return [s.title for s in await store.read(sessions.list_prunable, rule, viewer=ANNS)]

    assert await prunable('tag:"to do"') == ["a"]
    assert await prunable('tag:"to do"', delete=True) == ["a", "c"]
    assert await prunable("surface:job") == ["d"]
    assert await prunable("is:running") == []
    assert made["a"].title == "a"


async def test_tags_are_made_changed_and_removed(store: Store) -> None:
    session = await store.write(a_session)
    at = store.at(START_TIME)
    tag = await at.write(projects.add_tag, ANNS, "  to\n do ", colour=TagColour.TEAL)
    assert (tag.name, tag.colour) == ("to do", TagColour.TEAL)
    with pytest.raises(Conflict, match="already"):
        await at.write(projects.add_tag, ANNS, "to do")
    for wrong in ("", "x" * 41, 'a"b'):
        with pytest.raises(Invalid, match="1 to 40"):
            await at.write(projects.add_tag, ANNS, wrong)
    assert await at.write(projects.put_tags, ANNS, session.id, ["to do", "new", "new"])
    assert not await at.write(projects.put_tags, ANNS, session.id, ["new"])
    assert [t.name for t in await store.read(projects.list_session_tags, ANNS, session.id)] == [
        "new",
        "to do",
    ]
    assert await store.read(projects.list_session_tags, BOBS, session.id) == []
    listed = await store.read(sessions.get_listed, session)
    assert len(listed.tags) == 2
    renamed = await at.write(projects.update_tag, ANNS, tag, name="done", colour=TagColour.RED)
    assert (renamed.id, renamed.name, renamed.colour, renamed.sessions) == (tag.id, "done", TagColour.RED, 1)
    assert await at.write(projects.take_tags, ANNS, session.id, ["new"])
    with pytest.raises(NotFound, match="keryx tags list"):
        await at.write(projects.take_tags, ANNS, session.id, ["to do"])
    await at.write(projects.remove_tag, ANNS, renamed)
    assert (await store.read(sessions.get_listed, session)).tags == ()
    await at.write(sessions.erase, session)
    assert [t.sessions for t in await store.read(projects.list_tags, ANNS)] == [0]


async def test_the_tags_of_two_people_who_are_one_become_one(store: Store) -> None:
    session = await store.write(a_session)
    at = store.at(START_TIME)
    await at.write(projects.put_tags, ANNS, session.id, ["same", "own"])
    await at.write(projects.put_tags, BOBS, session.id, ["same"])
    await at.write(people.transfer_ownership, profile=DEFAULT_PROFILE, old=ANN, new=BOBS.principal)
    assert [t.name for t in await store.read(projects.list_session_tags, BOBS, session.id)] == ["own", "same"]
    await at.write(people.remove_owned, profile=DEFAULT_PROFILE, owner=BOBS.principal)
    assert await store.read(projects.list_tags, BOBS) == []
