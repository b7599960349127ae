import base64
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import (
    ANN,
    ANNS,
    BOB,
    BOBS,
    ODD_TEXTS,
    OPERATORS,
    Store,
    a_delivery,
    a_message,
    a_running_turn,
    a_session,
    a_turn,
    after,
    at_time,
    claim,
)

from keryx.core import ids
from keryx.core.changes import ChangeKind
from keryx.core.deliveries import Target
from keryx.core.errors import Ambiguous, Invalid, NotFound
from keryx.core.ids import DEFAULT_PROFILE, Cursor, LaneKey, PrincipalId, ProfileId, SessionId
from keryx.core.lanes import LaneAddress
from keryx.core.messages import Role, Text, text_parts
from keryx.core.questions import Question
from keryx.core.sessions import (
    Activity,
    EndReason,
    ReservedSession,
    Session,
    SessionFilter,
    SessionSettings,
    TitleBy,
    Viewer,
)
from keryx.core.source import Source
from keryx.core.turns import TurnState
from keryx.store import (
    change_feed,
    changes,
    deliveries,
    lanes,
    messages,
    projects,
    questions,
    sessions,
    turns,
)
from keryx.store.db import Transaction
from keryx.testing import START_TIME


async def titles_of(store: Store, viewer: Viewer = ANNS, **filters: Any) -> list[str]:
    listing = SessionFilter(**filters)
    found, _ = await store.read(sessions.list_page, viewer, listing)
    return [entry.session.title for entry in found]


def several(tx: Transaction, count: int) -> list[Session]:
    return [a_session(tx, title=f"s{n}", at=after(n)) for n in range(count)]


async def test_a_session_keeps_what_it_was_made_with(store: Store) -> None:
    origin = Source(platform="telegram", chat="42", chat_name="\x00\ud800")
    parent = await store.write(a_session)
    made = await store.at(START_TIME).write(
        sessions.create,
        profile=DEFAULT_PROFILE,
        owner=ANN,
        surface="gateway",
        origin=origin,
        parent=parent.id,
        parent_seq=7,
        cwd="/home/ann",
        settings=SessionSettings(model="m", tools=("a", "b")),
    )
    session = await store.read(sessions.get, made)
    assert (session.origin, session.parent, session.parent_seq) == (origin, parent.id, 7)
    assert (session.cwd, session.settings) == ("/home/ann", SessionSettings(model="m", tools=("a", "b")))
    assert (session.created_at, session.active_at, session.last_seq) == (START_TIME, START_TIME, 0)
    assert [s.id for s in await store.read(sessions.list_children, parent.id)] == [made]


async def test_a_session_may_be_made_with_an_id_of_its_own(store: Store) -> None:
    wanted = SessionId(ids.new(START_TIME))
    made = await store.at(START_TIME).write(
        sessions.create, profile=DEFAULT_PROFILE, owner=ANN, surface="cli", id=wanted
    )
    assert made == wanted


async def test_what_a_message_may_concern_is_found(store: Store) -> None:
    session = await store.write(a_session)
    found = [await store.read(sessions.find_pending, session.id)]
    turn = await store.write(a_turn, session)
    found.append(await store.read(sessions.find_pending, session.id))
    running = await store.write(claim)
    assert running is not None and running.id == turn.id
    question = Question(key="call-1", title="May it?")
    await store.at(START_TIME).write(questions.add, running, question, shared=False, expires_at=after(600))
    found.append(await store.read(sessions.find_pending, session.id))
    await store.at(START_TIME).write(messages.append, session.id, Role.NOTICE, text_parts("a reminder"))
    lane = await store.at(START_TIME).write(
        lanes.ensure, LaneAddress(key=LaneKey("k"), shared=False), Source(platform="telegram"), owner=ANN
    )
    await store.write(lanes.move, lane, session.id, why="test")
    await store.write(lanes.set_mirror, lane, True)
    found.append(await store.read(sessions.find_pending, session.id))
    await store.write(a_message, session.id)
    found.append(await store.read(sessions.find_pending, session.id))
    assert [[name for name, there in pending._asdict().items() if there] for pending in found] == [
        [],
        ["turn"],
        ["question", "turn"],
        ["question", "turn", "mirror", "note"],
        ["question", "turn", "mirror"],
    ]


async def test_settings_hold_any_text(store: Store, subtests: pytest.Subtests) -> None:
    for text in ODD_TEXTS:
        with subtests.test(ascii(text)):
            session = await store.write(a_session)
            await store.at(START_TIME).write(
                sessions.set_settings, session, SessionSettings(personality=text)
            )
            assert (await store.read(sessions.get, session.id)).settings.personality == text


async def test_a_session_of_another_owner_or_profile_does_not_exist(store: Store) -> None:
    session = await store.write(a_session, title="Trip")
    stranger = Viewer(ProfileId("work"), ANN)
    for viewer in (BOBS, stranger):
        with pytest.raises(NotFound):
            await store.read(sessions.get, session.id, viewer=viewer)
        for name in (session.id, session.id[:14], "Trip"):
            with pytest.raises(NotFound):
                await store.read(sessions.resolve, viewer, name)
        assert await titles_of(store, viewer) == []


async def test_the_operator_sees_every_session_of_the_profile(store: Store) -> None:
    await store.write(a_session, title="Ann's")
    await store.write(a_session, title="Bob's", owner=BOB, at=after(1))
    assert await titles_of(store, OPERATORS) == ["Bob's", "Ann's"]


async def test_an_unknown_id_is_an_error_for_people(store: Store, subtests: pytest.Subtests) -> None:
    for unknown in ["", "nonsense", "x" * 5000, "nul \x00", "half \ud800"]:
        with subtests.test(ascii(unknown)):
            with pytest.raises((NotFound, Invalid)):
                await store.read(sessions.get, SessionId(unknown))


async def test_sessions_come_pinned_first_then_by_last_message(store: Store) -> None:
    made = await store.write(several, 4)
    await store.write(a_message, made[0].id, at=after(10))
    await store.at(START_TIME).write(sessions.set_pinned, made[1], True)
    assert await titles_of(store) == ["s1", "s0", "s3", "s2"]


async def test_an_older_message_does_not_turn_back_the_activity(store: Store) -> None:
    session = await store.write(a_session, at=after(10))
    await store.write(a_message, session.id, at=START_TIME)
    assert (await store.read(sessions.get, session.id)).active_at == after(10)


async def test_pages_neither_repeat_nor_skip_while_sessions_are_added(store: Store) -> None:
    made = await store.write(several, 7)
    await store.at(START_TIME).write(sessions.set_pinned, made[2], True)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        found, cursor = await store.read(sessions.list_page, ANNS, SessionFilter(after=cursor, limit=2))
        seen += [entry.session.title for entry in found]
        await store.write(a_session, title=f"new {len(seen)}", at=after(100 + len(seen)))
        if cursor is None:
            break
    assert seen == ["s2", "s6", "s5", "s4", "s3", "s1", "s0"]


async def test_pages_tell_sessions_of_the_same_moment_apart(store: Store) -> None:
    for n in range(5):
        await store.write(a_session, title=f"s{n}")
    seen: list[str] = []
    cursor: str | None = None
    while cursor or not seen:
        found, cursor = await store.read(sessions.list_page, ANNS, SessionFilter(after=cursor, limit=1))
        seen += [entry.session.title for entry in found]
    assert sorted(seen) == [f"s{n}" for n in range(5)]


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


async def test_a_page_cursor_that_keryx_did_not_give_is_refused(
    store: Store, subtests: pytest.Subtests
) -> None:
    for cursor in [
        "",
        "?",
        "é",
        "\ud800",
        encoded("1:2"),
        encoded("a:b:c"),
        encoded("1:2:../x"),
        encoded("1:" + "9" * 40 + ":x"),
    ]:
        with subtests.test(ascii(cursor)):
            with pytest.raises(Invalid, match="page cursor"):
                await store.read(sessions.list_page, ANNS, SessionFilter(after=cursor))


async def test_a_list_can_be_filtered(store: Store) -> None:
    made = await store.write(several, 4)
    project = await store.at(START_TIME).write(projects.add, ANNS, name="P", colour="")
    await store.at(START_TIME).write(sessions.set_archived, made[0], True)
    await store.at(START_TIME).write(sessions.set_pinned, made[1], True)
    await store.at(START_TIME).write(sessions.set_project, made[2], project.id)
    await store.write(a_session, title="job", surface="job", at=after(9))
    assert await titles_of(store) == ["s1", "s3", "s2"]
    assert await titles_of(store, archived=True) == ["s0"]
    assert await titles_of(store, archived=None) == ["s1", "s3", "s2", "s0"]
    assert await titles_of(store, pinned=True) == ["s1"]
    assert await titles_of(store, pinned=False) == ["s3", "s2"]
    assert await titles_of(store, project=project.id) == ["s2"]
    assert await titles_of(store, since=after(3)) == ["s3"]
    assert await titles_of(store, surface="job") == ["job"]
    assert await titles_of(store, surface="gateway") == []
    assert await titles_of(store, jobs=True) == ["s1", "job", "s3", "s2"]
    assert await titles_of(store, cwd="/elsewhere") == []


async def test_a_session_tells_what_it_does_now(store: Store) -> None:
    def arrange(tx: Transaction) -> list[Session]:
        idle, waiting, running, failed = several(tx, 4)
        a_message(tx, idle.id, at=after(10))
        for session in (running, failed):
            a_turn(tx, session)
            turn = claim(tx, session=session.id)
            assert turn
            if session is failed:
                turns.finish(at_time(tx, START_TIME), turn, TurnState.FAILED)
        a_turn(tx, waiting)
        return [idle, waiting, running, failed]

    made = await store.write(arrange)
    found = [await store.read(sessions.get_activity, session.id) for session in made]
    assert found == [Activity.IDLE, Activity.WAITING, Activity.RUNNING, Activity.FAILED]
    for session, activity in zip(made[1:], found[1:], strict=True):
        assert await titles_of(store, activity=activity) == [session.title]
    assert made[0].title in await titles_of(store, activity=Activity.IDLE)
    assert made[2].title not in await titles_of(store, activity=Activity.IDLE)


async def test_a_session_is_found_by_id_prefix_title_and_alias(store: Store) -> None:
    session = await store.write(a_session, title="Trip to Rome")
    await store.write(sessions.add_alias, session, "20250101_old-id")
    for name in (
        session.id,
        f" {session.id} ",
        session.id[:16],
        session.id[:16].upper(),
        "Trip to Rome",
        "trip TO rome",
        "20250101_old-id",
    ):
        assert (await store.read(sessions.resolve, ANNS, name)).id == session.id


async def test_the_exact_title_comes_before_the_newest_of_its_line(store: Store) -> None:
    first = await store.write(a_session, title="Trip", at=after(0))
    second = await store.write(a_session, title="Trip #2", at=after(1))
    assert (await store.read(sessions.resolve, ANNS, "trip")).id == first.id
    await store.at(START_TIME).write(sessions.soft_delete, first, grace=timedelta(days=1))
    assert (await store.read(sessions.resolve, ANNS, "trip")).id == second.id


@pytest.mark.parametrize(
    "title",
    [
        "https://example.org//a",
        ".bashrc",
        "~/notes",
        "C:\\temp",
        "..",
        "100%_sure!",
        "She said “yes”",
        "Ünïcode Straße",
    ],
)
async def test_every_title_is_found(store: Store, title: str) -> None:
    session = await store.write(a_session, title=title)
    await store.write(a_session, title="another one")
    for name in (title, title.upper(), f'"{title}"', f"“{title}”", f"„{title}“", f"'{title}'"):
        assert (await store.read(sessions.resolve, ANNS, name)).id == session.id, name


async def test_a_part_of_a_title_is_enough_if_only_one_has_it(store: Store) -> None:
    rome = await store.write(a_session, title="Trip to Rome 100%")
    await store.write(a_session, title="Trip to Oslo", at=after(1))
    await store.write(a_session, title="Trip to Berne", owner=BOB)
    for name in ("rome", "Rome 100", "100%", "to ROME"):
        assert (await store.read(sessions.resolve, ANNS, name, by_part=True)).id == rome.id
    with pytest.raises(Ambiguous) as refused:
        await store.read(sessions.resolve, ANNS, "trip to", by_part=True)
    assert "“Trip to Oslo”, “Trip to Rome 100%”" in str(refused.value.text)
    with pytest.raises(NotFound):
        await store.read(sessions.resolve, ANNS, "rome")
    for name in ("berne", "r_me", "ro%e", "ri"):
        with pytest.raises(NotFound):
            await store.read(sessions.resolve, ANNS, name, by_part=True)


async def test_a_bare_title_finds_the_newest_of_its_line_and_a_numbered_one_itself(store: Store) -> None:
    first = await store.write(a_session, title="Trip #1", at=after(0))
    second = await store.write(a_session, title="Trip #2", at=after(1))
    third = await store.write(a_session, title="Trip #3", at=after(2))
    await store.write(a_message, second.id, at=after(9))
    assert (await store.read(sessions.resolve, ANNS, "trip")).id == second.id
    assert (await store.read(sessions.resolve, ANNS, "Trip #3")).id == third.id
    with pytest.raises(NotFound):
        await store.read(sessions.resolve, ANNS, "Trip #4")
    assert (await store.read(sessions.resolve, ANNS, first.id)).id == first.id


async def test_a_prefix_that_fits_several_sessions_is_ambiguous(store: Store) -> None:
    made = await store.write(several, 2)
    with pytest.raises(Ambiguous):
        await store.read(sessions.resolve, ANNS, made[0].id[:6])
    with pytest.raises(NotFound):
        await store.read(sessions.resolve, ANNS, made[0].id[:3])


async def test_sessions_of_others_do_not_make_a_name_ambiguous(store: Store) -> None:
    def arrange(tx: Transaction) -> Session:
        for n in range(25):
            a_session(tx, title="Trip", owner=PrincipalId(f"p{n}"), at=after(n / 1000))
        return a_session(tx, title="Trip", at=after(1))

    session = await store.write(arrange)
    assert (await store.read(sessions.resolve, ANNS, session.id[:4])).id == session.id


async def test_many_sessions_of_others_do_not_hide_a_title(store: Store) -> None:
    def arrange(tx: Transaction) -> Session:
        mine = a_session(tx, title="hello")
        for n in range(201):
            a_session(tx, title="hello", owner=PrincipalId(f"p{n}"), at=after(1))
        return mine

    session = await store.write(arrange)
    assert (await store.read(sessions.resolve, ANNS, "hello")).id == session.id


async def test_a_name_that_could_be_a_path_is_refused(store: Store, subtests: pytest.Subtests) -> None:
    for name in ["", "..", ".", "~root", "../etc", "a\\b", "a\x00b", "x" * 201, "\n"]:
        with subtests.test(ascii(name)):
            with pytest.raises(Invalid):
                await store.read(sessions.resolve, ANNS, name)


async def test_no_name_breaks_the_search_for_a_session(store: Store, subtests: pytest.Subtests) -> None:
    await store.write(a_session, title="Trip")
    for name in ["half \ud83d", "%", "' or 1=1 --", "*", ":name", "📎", "0000"]:
        with subtests.test(ascii(name)):
            with pytest.raises((NotFound, Invalid)):
                await store.read(sessions.resolve, ANNS, name)


async def test_an_alias_leads_to_the_session_that_had_it_first(store: Store) -> None:
    first, second = await store.write(several, 2)
    await store.write(sessions.add_alias, first, "old")
    await store.write(sessions.add_alias, second, "old")
    assert (await store.read(sessions.resolve, ANNS, "old")).id == first.id


async def test_a_title_is_unique_for_its_owner_whatever_its_case(store: Store) -> None:
    await store.write(a_session, title="Trip")
    other = await store.write(a_session)
    with pytest.raises(Invalid, match="already"):
        await store.at(START_TIME).write(sessions.rename, other, "TRIP", by=TitleBy.PERSON)
    bobs = await store.write(a_session, title="Trip", owner=BOB)
    assert bobs.title == "Trip"


async def test_a_session_may_keep_or_respell_its_own_title(store: Store) -> None:
    session = await store.write(a_session, title="trip")
    assert await store.at(START_TIME).write(sessions.rename, session, "Trip", by=TitleBy.PERSON) == "Trip"


@pytest.mark.parametrize("second", ["Trip", "trip", "TRIP"])
async def test_a_title_by_rule_takes_the_next_free_number(store: Store, second: str) -> None:
    await store.write(a_session, title="Trip")
    for n in (2, 3):
        session = await store.write(a_session)
        given = await store.at(START_TIME).write(sessions.rename, session, second, by=TitleBy.RULE)
        assert given == f"{second} #{n}"


async def test_a_title_by_rule_never_replaces_a_title_by_a_person(store: Store) -> None:
    session = await store.write(a_session, title="Mine")
    assert await store.at(START_TIME).write(sessions.rename, session, "Other", by=TitleBy.RULE) == "Mine"
    assert (await store.read(sessions.get, session.id)).title_by is TitleBy.PERSON


async def test_a_fork_gets_the_next_title_of_the_line(store: Store) -> None:
    session = await store.write(a_session, title="Trip #2")
    assert await store.read(sessions.next_title, session, "Trip #2") == "Trip #3"
    lone = await store.write(a_session, title="Alone")
    assert await store.read(sessions.next_title, lone, "Alone") == "Alone #2"


async def test_a_long_title_can_be_numbered_again_and_again(store: Store) -> None:
    session = await store.write(a_session, title="x" * 100)
    for n in (2, 3, 4):
        title = await store.read(sessions.next_title, session, session.title)
        assert title.endswith(f"x #{n}") and len(title) == 100
        await store.write(a_session, title=title)


async def test_any_visible_text_can_be_a_title(store: Store, subtests: pytest.Subtests) -> None:
    for text in [t for t in ODD_TEXTS if t.strip("\ufeff\u2028\u2029 \r\n\t")]:
        with subtests.test(ascii(text)):
            session = await store.write(a_session, title=text)
            assert session.title
            assert "\x00" not in session.title


async def test_a_title_without_anything_to_see_is_refused(store: Store) -> None:
    session = await store.write(a_session)
    with pytest.raises(Invalid):
        await store.at(START_TIME).write(sessions.rename, session, "\x00 \u200b", by=TitleBy.PERSON)


async def test_a_session_ends_with_a_reason_and_can_be_reopened(store: Store) -> None:
    session = await store.write(a_session)
    await store.at(after(5)).write(sessions.end, session, EndReason.IDLE)
    ended = await store.read(sessions.get, session.id)
    assert (ended.ended_at, ended.end_reason) == (after(5), EndReason.IDLE)
    await store.at(after(6)).write(sessions.end, session, None)
    reopened = await store.read(sessions.get, session.id)
    assert (reopened.ended_at, reopened.end_reason) == (None, None)


async def test_a_deleted_session_is_gone_from_every_list_and_can_come_back(store: Store) -> None:
    session = await store.write(a_session, title="Trip")
    await store.at(START_TIME).write(sessions.soft_delete, session, grace=timedelta(days=1))
    assert await titles_of(store, archived=None) == []
    for name in (session.id, session.id[:14], "Trip"):
        with pytest.raises(NotFound):
            await store.read(sessions.resolve, ANNS, name)
    with pytest.raises(NotFound):
        await store.read(sessions.get, session.id)
    hidden = await store.read(sessions.get, session.id, deleted=True)
    await store.at(START_TIME).write(sessions.undelete, hidden)
    assert await titles_of(store) == ["Trip"]


async def test_a_session_that_comes_back_to_a_taken_title_gets_a_number(store: Store) -> None:
    session = await store.write(a_session, title="Trip")
    await store.at(START_TIME).write(sessions.soft_delete, session, grace=timedelta(days=1))
    await store.write(a_session, title="trip", at=after(1))
    await store.at(after(2)).write(sessions.undelete, session)
    assert (await store.read(sessions.get, session.id)).title == "Trip #2"


async def test_a_deleted_session_is_due_for_erasure_after_its_grace(store: Store) -> None:
    session = await store.write(a_session)
    await store.at(START_TIME).write(sessions.soft_delete, session, grace=timedelta(hours=1))
    assert await store.at(after(3599)).read(sessions.list_due_for_erasure) == []
    assert [s.id for s in await store.at(after(3600)).read(sessions.list_due_for_erasure)] == [session.id]


async def test_erasing_leaves_nothing_of_a_session(store: Store) -> None:
    def arrange(tx: Transaction) -> Session:
        session = a_session(tx)
        turn = a_running_turn(tx, session)
        turns.append_draft(at_time(tx, START_TIME), turn, [Text("half an answer")])
        a_delivery(tx, session=session)
        sessions.add_alias(tx, session, "old")
        return session

    def left(tx: Transaction) -> list[int]:
        tables = ("sessions", "messages", "turns", "pieces", "deliveries", "aliases")
        return [int(row[0]) for t in tables if (row := tx.row(f"select count(*) from {t}"))]

    session = await store.write(arrange)
    cursor = await store.read(changes.get_head)
    await store.at(START_TIME).write(sessions.erase, session)
    assert await store.read(left) == [0] * 6
    assert [c.kind for c in await store.read(change_feed.list_after, cursor)] == [ChangeKind.SESSION_GONE]


async def test_every_change_of_a_session_is_in_the_feed(store: Store) -> None:
    session = await store.write(a_session)
    cursor: Cursor = await store.read(changes.get_head)
    await store.at(START_TIME).write(sessions.set_pinned, session, True)
    await store.at(START_TIME).write(sessions.rename, session, "T", by=TitleBy.PERSON)
    await store.at(START_TIME).write(sessions.note_revision, session)
    await store.at(START_TIME).write(sessions.soft_delete, session, grace=timedelta(0))
    found = await store.read(change_feed.list_after, cursor)
    assert [c.kind for c in found] == [ChangeKind.SESSION] * 3 + [ChangeKind.SESSION_GONE]
    assert {c.session for c in found} == {session.id}


async def test_a_fork_goes_on_counting_where_its_parent_was(store: Store) -> None:
    def fork(tx: Transaction) -> Session:
        parent = a_session(tx)
        for text in ("one", "two", "three"):
            a_message(tx, parent.id, text)
        sessions.next_undo_group(tx, parent.id)
        child = a_session(tx)
        messages.copy(tx, source=parent.id, target=child.id, through=2)
        sessions.copy_counters(tx, source=parent.id, target=child.id)
        messages.append(at_time(tx, START_TIME), child.id, Role.USER, text_parts("other"))
        return sessions.get(tx, child.id)

    child = await store.write(fork)
    assert (child.last_seq, child.messages) == (3, 3)
    assert [m.text for m in await store.read(messages.list_after, child.id, after=0)] == [
        "one",
        "two",
        "other",
    ]
    assert await store.write(sessions.next_undo_group, child.id) == 2


async def test_deliveries_of_others_stay_when_a_session_is_erased(store: Store) -> None:
    kept = await store.write(a_delivery, target=Target("telegram", "bot", "1"))
    gone = await store.write(a_session)
    await store.write(a_delivery, session=gone)
    await store.at(START_TIME).write(sessions.erase, gone)
    assert [d.id for d in await store.read(deliveries.list_recent, ANNS)] == [kept.id]


async def test_a_reserved_session_is_its_owners_until_it_is_stored_or_forgotten(store: Store) -> None:
    reserved = ReservedSession(profile=DEFAULT_PROFILE, owner=PrincipalId("ann"), cwd="/tmp")
    mine, theirs = (Viewer(DEFAULT_PROFILE, PrincipalId(name)) for name in ("ann", "bob"))
    one, two = SessionId("01jd0abcdefghjkmnp"), SessionId("01jd0abcdefghjkmnq")
    await store.at(START_TIME).write(sessions.reserve, one, reserved)
    await store.at(START_TIME + timedelta(days=3)).write(sessions.reserve, two, reserved)
    assert await store.read(sessions.find_reserved, one, mine) == reserved
    assert await store.read(sessions.find_reserved, one, theirs) is None
    await store.write(sessions.trim_reserved, before=START_TIME + timedelta(days=1))
    assert await store.read(sessions.find_reserved, one, mine) is None
    await store.write(sessions.unreserve, two)
    assert await store.read(sessions.find_reserved, two, mine) is None
