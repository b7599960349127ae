"""Every broken invariant is named, and a whole store has none."""

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import apsw
import pytest
from tests.builders import (
    ANN,
    Store,
    a_delivery,
    a_message,
    a_running_turn,
    a_session,
    a_turn,
    after,
    at_time,
)

from keryx.core.errors import StoreBroken
from keryx.core.messages import Role, ToolCall, ToolResult
from keryx.core.turns import TurnState
from keryx.store import changes, epochs, inbox, messages, sessions, turns
from keryx.store.admin import backup
from keryx.store.admin.verify import MAX_PROBLEMS, StoreProblem, verify
from keryx.store.db import Database, Engine, Transaction
from keryx.store.db.sqlite import SqliteDatabase
from keryx.store.search import SearchIndex
from keryx.testing import START_TIME


async def broken(store: Store, *statements: str) -> list[StoreProblem]:
    """Break a store behind its back, references and all, and see what is found."""

    def work(tx: Transaction) -> None:
        for statement in statements:
            tx.run(statement)

    await store.write(work)
    return await verify(store.database)


def filled(tx: Transaction) -> None:
    session = a_session(tx, title="Trip")
    turn = a_running_turn(tx, session)
    turns.append_draft(at_time(tx, START_TIME), turn, [])
    messages.append(
        at_time(tx, START_TIME), session.id, Role.ASSISTANT, (ToolCall("c", "t", "{}"),), turn=turn.id
    )
    messages.append(
        at_time(tx, START_TIME), session.id, Role.TOOL, (ToolResult("c", "t", "x"),), turn=turn.id
    )
    turns.finish(at_time(tx, after(1)), turn, TurnState.DONE)
    epochs.begin(at_time(tx, after(2)), session.id, first_seq=3, summary="before")
    a_message(tx, session.id, "more")
    a_turn(tx, session, at=after(3))
    a_delivery(tx, session=session)
    inbox.set_cursor(at_time(tx, START_TIME), changes.TRIM_CURSOR, "0")


async def test_a_whole_store_has_no_problems(store: Store) -> None:
    await store.write(filled)
    assert await verify(store.database) == []


async def test_an_empty_store_has_no_problems(database: Database) -> None:
    assert await verify(database) == []


A_JOB = """
insert into jobs (id, profile, owner, name, name_key, prompt, targets, created_at, state, schedule)
values ('j', 'default', 'ann', 'n', 'n', '"x"', '[]', 1,"""


@pytest.mark.parametrize(
    ("statement", "check", "text"),
    [
        ("delete from messages where seq = 2", "message numbers", "no gaps"),
        ("update sessions set messages = 99", "message counters", "counts 99 messages"),
        ("update sessions set last_seq = 99", "message counters", "up to 99"),
        ("delete from messages", "no empty sessions", "has no message"),
        ("update turns set finished_at = null where state = 'done'", "turn states", "is done and does not look it"),
        ("update turns set finished_at = 1 where state = 'queued'", "turn states", "is queued and does not look it"),
        ("update turns set input_seq = 99", "turn inputs", "answers message 99"),
        ("update turns set ready_at = null where state = 'queued'", "line of turns", "no worker will find it"),
        (
            "insert into downloads (session, seq, part, turn, platform, account, file, created_at)"
            """ select id, 99, 0, 't', 'p', '', '{"reference":"r","name":"n"}', 0 from sessions limit 1""",
            "files to fetch",
            "belongs to message 99",
        ),
        ("update turns set state = 'merged', finished_at = 1 where state = 'queued'", "merged turns", "merged into nothing"),
        ("update turns set merged_into = 'gone' where state = 'done'", "merged turns", "merged into gone"),
        ("insert into pieces (turn, n, body) values ('t', 1, 'x')", "drafts", "no running turn"),
        ("update deliveries set state = 'sending'", "deliveries", "is sending and does not look it"),
        ("update deliveries set state = 'sent'", "deliveries", "sent never"),
        ("update sessions set epoch = 5", "compactions", "is in epoch 5"),
        ("update epochs set number = 7", "compactions", "numbered up to 7"),
        ("update epochs set first_seq = 99", "compactions", "begins at message 99"),
        ("update messages set epoch = 9 where seq = 1", "compactions", "message 1 is in epoch 9"),
        ("update messages set undone = 9, plain = 0 where seq = 1", "undo", "belongs to undo 9"),
        (
            "insert into versions (session, turn, first, seq) select session, 'v' || seq, 'v', seq from messages where seq < 3",
            "versions",
            "2 versions of the question of turn v",
        ),
        ("update sessions set title = 'Other'", "titles", "cannot be found by its title"),
        ("update messages set mark = 'odd', plain = 0 where seq = 1", "known words", "mark odd"),
        ("update sessions set end_reason = 'bored'", "known words", "end bored"),
        ("update messages set parts = 'x' where seq = 1", "text of messages", "parts"),
        ("update messages set parts = '[{\"type\":\"odd\"}]' where seq = 4", "text of messages", "parts"),
        ("update messages set exact = 'x', plain = 0 where seq = 1", "text of messages", "exact"),
        ("update sessions set settings = '[]'", "text of sessions", "settings"),
        ("update deliveries set target = '{}'", "text of deliveries", "target"),
        ("update deliveries set body = 'x'", "text of deliveries", "body"),
        ("update sessions set origin = '{}'", "text of sources", "platform"),
        ("update turns set also = '{}'", "text of turns", "also"),
        (f"{A_JOB} 'paused', '{{}}')", "text of jobs", "schedule"),
        (f"{A_JOB} 'paused', '{{\"rule\":{{\"kind\":\"often\"}}}}')", "text of jobs", "schedule"),
        ("insert into inbox (platform, account, event, receipt, received_at) values ('p', '', 'e', '[]', 1)",
         "text of inbox", "Receipt"),
    ],
)  # fmt: skip
async def test_what_is_broken_is_named(store: Store, statement: str, check: str, text: str) -> None:
    await store.write(filled)
    found = await broken(store, statement)
    assert [p for p in found if p.check == check and text in p.text], found


@pytest.mark.parametrize(
    ("point", "text"), [("900000000000", "before the trim point"), ("x", "is no trim point")]
)
async def test_a_wrong_trim_point_is_named(store: Store, point: str, text: str) -> None:
    await store.write(filled)
    await store.at(START_TIME).write(inbox.set_cursor, changes.TRIM_CURSOR, point)
    found = await verify(store.database)
    assert [p.check for p in found] == ["feed"]
    assert text in found[0].text


async def test_a_lane_to_a_deleted_session_is_named(store: Store) -> None:
    session = await store.write(a_session)
    await store.write(a_message, session.id)
    await store.at(START_TIME).write(sessions.end, session, None)
    found = await broken(
        store,
        f"insert into lanes (key, profile, owner, session, source, created_at, active_at)"
        f" values ('k', 'default', '{ANN}', '{session.id}', '{{\"platform\":\"x\"}}', 1, 1)",
        "update sessions set deleted_at = 1",
    )
    assert [(p.check, p.subject) for p in found] == [("lanes", "k")]


async def test_two_on_their_way_to_one_place_are_named(store: Store) -> None:
    session = await store.write(a_session)
    await store.write(a_message, session.id)
    await store.write(a_delivery, "one", session=session)
    await store.write(a_delivery, "two", session=session)
    found = await broken(store, "update deliveries set state = 'sending', lease = 'x', lease_until = 1")
    assert [p.check for p in found] == ["order of deliveries"]


async def test_numbers_that_would_be_given_out_twice_are_named(store: Store) -> None:
    await store.write(filled)
    if store.database.engine is Engine.SQLITE:
        found = await broken(store, "update sqlite_sequence set seq = 1 where name = 'changes'")
    else:
        found = await broken(store, "alter table changes alter column position restart with 1")
    assert [(p.check, p.subject) for p in found] == [("numbers given out", "changes")]


async def test_many_problems_of_a_kind_are_cut_short(store: Store) -> None:
    session = await store.write(a_session)
    for _ in range(MAX_PROBLEMS + 5):
        await store.write(a_message, session.id)
    found = await broken(store, "update messages set undone = 9, plain = 0")
    assert len(found) == MAX_PROBLEMS + 1
    assert "more of these" in found[-1].text


async def test_what_the_constraints_forbid_is_named_too(tmp_path: Path) -> None:
    path = tmp_path / "keryx.db"
    async with SqliteDatabase(path) as database:
        await Store(database).write(filled)
    _without_rules(
        path,
        "drop index turns_running",
        "drop index sessions_title",
        "pragma ignore_check_constraints = on",
        "update turns set state = 'running', lease = 'x', lease_until = 1, worker = 'w', started_at = 1, finished_at = null",
        "insert into sessions (id, profile, owner, surface, title, title_key, title_base, created_at, active_at)"
        " values ('other', 'default', 'ann', 'web', 'Trip', 'trip', 'trip', 1, 1)",
        "update messages set session = 'gone' where seq = 1",
        "update deliveries set session = 'gone'",
        "insert into identities (profile, platform, person, principal, created_at) values ('default', 'x', 'y', 'nobody', 1)",
        "update sessions set project = 'gone' where id <> 'other'",
    )
    async with SqliteDatabase(path) as database:
        named = {p.check for p in await verify(database)}
    assert named >= {
        "one running turn",
        "titles",
        "rows have their session",
        "message numbers",
        "people",
        "projects",
        "no empty sessions",
    }
    assert {p.check for p in backup.check_file(path)} == {"references"}


async def test_a_damaged_page_is_named(tmp_path: Path) -> None:
    path = await _on_disk(tmp_path)
    whole = path.read_bytes()
    named = 0
    for page in range(2, len(whole) // 4096, 3):
        path.write_bytes(whole[: page * 4096] + b"\xff" * 4096 + whole[(page + 1) * 4096 :])
        found = backup.check_file(path)
        named += any("page" in p.text or "malformed" in p.text for p in found)
        assert found == [] or {p.check for p in found} <= {"file", "references"}
    # A page that only holds free space may be damaged without harm.
    assert named > 10


async def test_a_store_that_cannot_be_read_is_a_problem_and_no_error(tmp_path: Path) -> None:
    path = await _on_disk(tmp_path)
    whole = path.read_bytes()
    for page in (3, 12, 30, 48, 66):
        path.write_bytes(whole[: page * 4096] + b"\xff" * 4096 + whole[(page + 1) * 4096 :])
        with suppress(StoreBroken):
            async with SqliteDatabase(path) as database:
                await verify(database)


def torn(data: bytes) -> bytes:
    return data[: len(data) // 2]


def foreign(data: bytes) -> bytes:
    return b"not a store" * len(data)


@pytest.mark.parametrize("spoil", [torn, foreign])
async def test_a_torn_or_foreign_file_is_named(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    path = await _on_disk(tmp_path)
    path.write_bytes(spoil(path.read_bytes()))
    assert backup.check_file(path)[0].check == "file"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreBroken, match="is not there"):
        backup.check_file(tmp_path / "none.db")


def test_a_file_of_another_program_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    _without_rules(path, "create table t (x)")
    assert "belongs to another program" in backup.check_file(path)[0].text


async def _on_disk(folder: Path) -> Path:
    path = folder / "keryx.db"
    async with SqliteDatabase(path) as database:
        store = Store(database)
        await store.write(filled)
        session = await store.write(a_session, title="Long")
        for n in range(60):
            await store.write(a_message, session.id, f"{n} " * 400)
    backup.fold_wal(path)
    return path


def _without_rules(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)  # pyright: ignore[reportUnknownMemberType]
    connection.close()


@pytest.fixture
async def index(store: Store) -> AsyncIterator[SearchIndex]:
    await store.write(filled)
    made = SearchIndex(store.database)
    await made.catch_up()
    yield made
    made.close()


async def test_a_search_index_that_is_behind_is_brought_up_to_date(store: Store, index: SearchIndex) -> None:
    session = await store.write(a_session)
    await store.write(a_message, session.id, "after the index")
    assert await verify(store.database) == []


async def test_a_search_index_that_differs_from_the_messages_is_named_and_mended(
    store: Store, index: SearchIndex, subtests: pytest.Subtests
) -> None:
    behind_its_back = {
        "messages that it lacks: 3;": "insert into messages (session, seq, role, parts, at) select session, seq + 100, "
        "role, parts, at from messages where seq < 4",
        "messages that are gone: 1;": "delete from messages where id = 1",
        "messages not found by their words: 1;": """update messages set parts = '[{"type":"text","text":"straw"}]'
            where id = 2""",
    }
    for text, statement in behind_its_back.items():
        with subtests.test(text):
            found = await broken(store, statement)
            (problem,) = [p for p in found if p.check == "search index"]
            assert text in problem.text and "keryx store reindex" in problem.text
            await index.rebuild()
            assert not [p for p in await verify(store.database) if p.check == "search index"]


async def test_a_damaged_search_index_is_named(
    store: Store, index: SearchIndex, tmp_path: Path, engine: Engine
) -> None:
    if engine is not Engine.SQLITE:
        pytest.skip("only SQLite has an index file")
    index.close()
    connection = apsw.Connection(str(tmp_path / "keryx-search.db"))
    connection.execute(  # pyright: ignore[reportUnknownMemberType]
        "update search_data set block = zeroblob(20) where id > 10"
    )
    connection.close()
    (problem,) = await verify(store.database)
    assert "is damaged" in problem.text
    await index.rebuild()
    assert await verify(store.database) == []
