import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders import (
    ANN,
    ANNS,
    BOB,
    BOBS,
    ODD_TEXTS,
    OPERATORS,
    Store,
    a_message,
    a_session,
    after,
    at_time,
)
from tests.conftest import Open
from tests.core.search import model

from keryx.core import search as queries
from keryx.core.ids import OPERATOR, ProfileId, TurnId
from keryx.core.messages import (
    File,
    Image,
    Notice,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    text_parts,
)
from keryx.core.search import tokens
from keryx.core.sessions import Session, TitleBy, Viewer
from keryx.store import changes, epochs, inbox, messages, projects, sessions
from keryx.store.db import Database, Engine, Transaction
from keryx.store.search import RANK_WINDOW, SearchIndex, documents, indexing
from keryx.testing import START_TIME, FakeClock

LATER = after(1000)
DAY = 86_400


@pytest.fixture
async def index(database: Database, clock: FakeClock) -> AsyncIterator[SearchIndex]:
    clock.advance(LATER - clock.now())
    opened = SearchIndex(database)
    yield opened
    opened.close()


@pytest.fixture
def file(tmp_path: Path, engine: Engine) -> Path:
    if engine is not Engine.SQLITE:
        pytest.skip("only SQLite has an index file")
    return tmp_path / "keryx-search.db"


def a_talk(tx: Transaction, *texts: str) -> Session:
    session = a_session(tx)
    for n, text in enumerate(texts, start=1):
        a_message(tx, session.id, text, at=after(n))
    return session


def a_part(tx: Transaction, *parts: Part, role: Role = Role.ASSISTANT, author: str = "", at: int = 0) -> None:
    session = a_session(tx).id
    messages.append(at_time(tx, after(at)), session, role, parts, author=author)


async def found(index: SearchIndex, text: str, *, viewer: Viewer = ANNS, limit: int = 100) -> set[str]:
    """The texts of the messages that are found."""
    hits = await index.search(viewer, text, limit=limit)
    return {documents.extract_text(hit.message) for hit in hits if hit.message}


async def titles(index: SearchIndex, text: str, *, viewer: Viewer = ANNS) -> list[str]:
    hits = await index.search(viewer, text)
    return [hit.session.title for hit in hits if hit.message is None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("red", {"red fox", "red hen and fox"}),
        ("RED", {"red fox", "red hen and fox"}),
        ("red fox", {"red fox", "red hen and fox"}),
        ("red AND hen", {"red hen and fox"}),
        ('"red fox"', {"red fox"}),
        ('"and fox"', {"red hen and fox"}),
        ("re*", {"red fox", "red hen and fox"}),
        ("blue OR hen", {"red hen and fox", "blue whale"}),
        ("fox NOT hen", {"red fox"}),
        ("fox -hen", {"red fox"}),
        ("-fox", {"blue whale", "Überraschung im Café"}),
        ("NOT (fox OR whale)", {"Überraschung im Café"}),
        ("whale OR NOT fox", {"blue whale", "Überraschung im Café"}),
        ("(blue OR red) -hen", {"red fox", "blue whale"}),
        ("cafe", {"Überraschung im Café"}),
        ("uberraschung", {"Überraschung im Café"}),
        ("green", set[str]()),
        ("", set[str]()),
        ("!?", set[str]()),
    ],
)
async def test_words_phrases_prefixes_and_operators(
    store: Store, index: SearchIndex, text: str, expected: set[str]
) -> None:
    await store.write(a_talk, "red fox", "red hen and fox", "blue whale", "Überraschung im Café")
    assert await found(index, text) == expected


@pytest.mark.parametrize(
    ("said", "queries"),
    [
        ("東京都の天気予報", ["東京", "京都", "天気予報", "の天", '"天気予報"', "天"]),
        ("내일 회의가 있습니다", ["회의", "회의가", "있습니다"]),
        ("see core/ids.py, please", ["core/ids.py", "ids", "ids.py", '"core ids"', "core"]),
        ("write to ann@example.org", ["ann@example.org", "example.org", "ann"]),
        ("I like C++ and #tags", ["C++", "#tags", "tags"]),
        ("get https://example.org/a/b?c=d", ["https://example.org/a/b?c=d", "example.org/a"]),
        ("done 🎉 and 🫠", ["🎉", "🫠", "done 🎉"]),
        (r"C:\Users\ann it's", [r"C:\Users\ann", "it's"]),
    ],
)
async def test_other_scripts_identifiers_and_emoji(
    store: Store, index: SearchIndex, said: str, queries: list[str]
) -> None:
    await store.write(a_talk, said, "something else, C and D, 大阪")
    for text in queries:
        assert await found(index, text) == {said}, text


async def test_tool_input_and_output_names_and_notices_are_found(store: Store, index: SearchIndex) -> None:
    await store.write(a_part, ToolCall("1", "run_shell", '{"command": "grep \\u00fcber\\nsecond line"}'))
    await store.write(a_part, ToolResult("1", "run_shell", "plain output"), role=Role.TOOL)
    await store.write(a_part, Image("media:1", name="holiday.png"), File("media:2", name="report.pdf"))
    await store.write(a_part, Notice("session was reset"), Reasoning("secret thought"), role=Role.NOTICE)
    for text in ("uber", "second", "grep", "output", "holiday", "report.pdf", "reset", "run_shell"):
        assert len(await found(index, text)) == 1, text
    assert await found(index, "thought") == set()


async def test_filters_on_messages(store: Store, index: SearchIndex) -> None:
    await store.write(a_part, Text("hay one"), role=Role.USER, author="Ann Smith")
    await store.write(a_part, Text("hay two"), ToolCall("1", "grep", "{}"))
    await store.write(a_part, ToolResult("1", "grep", "hay three"), role=Role.TOOL)
    await store.write(a_part, Text("hay four https://x.org ```code```"), Image("m"), at=40 * DAY)
    for text, expected in {
        "hay from:ann": {"hay one"},
        'hay from:"ANN smith"': {"hay one"},
        "hay from:bob": set[str](),
        "hay tool:GREP is:tool": {"hay three"},
        "hay tool:grep tool:other": {"hay two\ngrep\n", "hay three"},
        "hay is:assistant": {"hay two\ngrep\n", "hay four https://x.org ```code```"},
        "hay is:user is:tool": set[str](),
        "has:tool": {"hay two\ngrep\n", "hay three"},
        "has:image has:link has:code": {"hay four https://x.org ```code```"},
        "has:audio": set[str](),
        "hay after:2026-04-01": {"hay four https://x.org ```code```"},
        "hay before:2026-04-01 has:tool": {"hay two\ngrep\n", "hay three"},
        "hay after:2026-04-01 before:2026-03-01": set[str](),
        "hay surface:web is:user": {"hay one"},
        "hay surface:acp": set[str](),
        "is:user": {"hay one"},
    }.items():
        assert await found(index, text) == expected, text


async def test_an_age_counts_back_from_now(store: Store, index: SearchIndex) -> None:
    await store.write(a_talk, "hay")
    for text, count in (
        ("hay after:1h", 1),
        ("hay before:1h", 0),
        ("hay before:9999y", 0),
        ("hay after:9999y", 1),
    ):
        assert len(await found(index, text)) == count, text


async def test_the_first_moment_of_a_time_is_within_it(store: Store, index: SearchIndex) -> None:
    await store.write(a_part, Text("hay"))
    assert await found(index, "hay after:2026-03-01T12:00") == {"hay"}
    assert await found(index, "hay before:2026-03-01T12:00") == set()
    assert await found(index, "hay before:2026-03-01T12:00:01") == {"hay"}


async def test_filters_on_sessions_follow_the_store(store: Store, index: SearchIndex) -> None:
    def work(tx: Transaction) -> Session:
        session = a_talk(tx, "hay")
        project = projects.add(at_time(tx, START_TIME), ANNS, name="Garten Ä", colour="")
        sessions.set_project(at_time(tx, START_TIME), session, project.id)
        return session

    session = await store.write(work)
    await store.write(a_talk, "hay elsewhere")
    assert await found(index, 'hay project:"garten ä"') == {"hay"}
    assert await found(index, "hay project:other") == set()
    assert await found(index, "hay is:pinned") == set()
    await store.at(START_TIME).write(sessions.set_pinned, session, True)
    await store.at(START_TIME).write(sessions.set_archived, session, True)
    assert await found(index, "hay is:pinned is:archived") == {"hay"}
    assert await found(index, "hay") == {"hay", "hay elsewhere"}


async def test_only_what_the_asker_may_see_is_found(store: Store, index: SearchIndex) -> None:
    await store.write(a_talk, "anns secret")
    other = Viewer(ProfileId("work"), OPERATOR)

    def elsewhere(tx: Transaction) -> None:
        session = sessions.create(at_time(tx, START_TIME), profile=other.profile, owner=ANN, surface="web")
        a_message(tx, session, "secret at work")
        a_message(tx, a_session(tx, owner=BOB, title="secret of bob").id, "bobs secret")

    await store.write(elsewhere)
    assert await found(index, "secret") == {"anns secret"}
    assert await found(index, "secret", viewer=BOBS) == {"bobs secret"}
    assert await found(index, "secret", viewer=OPERATORS) == {"anns secret", "bobs secret"}
    assert await found(index, "secret", viewer=other) == {"secret at work"}
    assert await found(index, "-nothing", viewer=BOBS) == {"bobs secret"}
    assert await titles(index, "secret") == []


async def test_the_store_is_the_truth_about_the_owner(store: Store, index: SearchIndex) -> None:
    session = await store.write(a_session, title="meadow")
    await store.write(a_message, session.id, "hay")
    assert await found(index, "hay") == {"hay"}
    await store.write(lambda tx: tx.run("update sessions set owner = 'bob'"))
    assert (await found(index, "hay"), await titles(index, "meadow")) == (set(), [])


async def test_undone_messages_are_not_found_and_compacted_ones_are(store: Store, index: SearchIndex) -> None:
    session = await store.write(a_session)
    first = await store.write(a_message, session.id, "hay compacted")

    def undo(tx: Transaction) -> None:
        turn = TurnId("t")
        seq = messages.append(
            at_time(tx, START_TIME), session.id, Role.USER, text_parts("hay undone"), turn=turn
        )
        messages.set_undone(tx, session.id, turn, first=seq, group=1)

    await store.write(undo)
    await store.at(START_TIME).write(epochs.begin, session.id, first_seq=first.seq + 1, summary="")
    await store.write(a_message, session.id, "hay now")
    assert await found(index, "hay") == {"hay compacted", "hay now"}
    assert await found(index, "hay is:undone") == {"hay undone"}
    assert await found(index, "hay is:compacted") == {"hay compacted"}
    await store.write(messages.restore, session.id, 1)
    assert await found(index, "hay") == {"hay compacted", "hay now", "hay undone"}


async def test_a_deleted_session_is_not_found_and_comes_back_with_it(
    store: Store, index: SearchIndex
) -> None:
    session = await store.write(a_session, title="meadow")
    await store.write(a_message, session.id, "hay")
    assert await found(index, "hay") == {"hay"}
    await store.at(START_TIME).write(sessions.soft_delete, session, grace=timedelta(days=1))
    assert (await found(index, "hay"), await titles(index, "meadow")) == (set(), [])
    await store.at(START_TIME).write(sessions.undelete, session)
    assert (await found(index, "hay"), await titles(index, "meadow")) == ({"hay"}, ["meadow"])
    await store.at(START_TIME).write(sessions.erase, session)
    assert (await found(index, "hay"), await titles(index, "meadow")) == (set(), [])


async def test_an_erased_session_leaves_nothing_in_the_index_file(
    store: Store, index: SearchIndex, file: Path
) -> None:
    session = await store.write(a_talk, "hay")
    await index.catch_up()
    assert _documents(file) == 1
    await store.at(START_TIME).write(sessions.erase, session)
    await index.catch_up()
    assert _documents(file) == 0


async def test_an_edit_replaces_what_is_found(store: Store, index: SearchIndex) -> None:
    session = await store.write(a_talk, "grass", "hay")
    message = await store.read(messages.get, session.id, 1)
    assert await found(index, "grass") == {"grass"}
    await store.at(START_TIME).write(messages.rewrite, message, text_parts("straw"))
    assert await found(index, "grass") == set()
    assert await found(index, "straw") == {"straw"}


async def test_titles_are_found_and_follow_a_rename(store: Store, index: SearchIndex) -> None:
    session = await store.write(a_session, title="Trip to Oslo")
    await store.write(a_message, session.id, "the hotel in oslo")
    hits = await index.search(ANNS, "oslo")
    assert [hit.message is None for hit in hits] == [True, False]
    assert hits[0].snippet.text == "Trip to Oslo" and hits[0].snippet.spans == ((8, 12),)
    await store.at(START_TIME).write(sessions.rename, session, "Bergen", by=TitleBy.PERSON)
    assert (await titles(index, "oslo"), await titles(index, "bergen")) == ([], ["Bergen"])
    assert await titles(index, "bergen is:user") == []


async def test_the_messages_of_a_fork_are_found(store: Store, index: SearchIndex) -> None:
    session = await store.write(a_talk, "hay", "grass")

    def fork(tx: Transaction) -> None:
        child = sessions.create(
            at_time(tx, START_TIME),
            profile=session.profile,
            owner=ANN,
            surface="web",
            parent=session.id,
            parent_seq=1,
        )
        messages.copy(tx, source=session.id, target=child, through=1)

    await index.catch_up()
    await store.write(fork)
    assert len(await index.search(ANNS, "hay")) == 2
    assert len(await index.search(ANNS, "grass")) == 1


async def test_a_session_that_is_given_away_is_taken_in_part_by_part(
    store: Store, index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "BATCH_SIZE", 4)
    steps: list[int] = []
    ordinary = indexing.next_batch

    def step(tx: Transaction, seen: str | None) -> indexing.IndexBatch | None:
        batch = ordinary(tx, seen)
        steps.append(len(batch.documents) if batch else 0)
        return batch

    talks = [await store.write(a_talk, *(f"hay {n}" for n in range(size))) for size in (11, 1, 0, 2, 4)]
    await index.catch_up()
    monkeypatch.setattr(indexing, "next_batch", step)
    for session in talks:
        await store.at(START_TIME).write(sessions.change_owner, session, BOB)
    assert len(await index.search(BOBS, "hay", limit=100)) == 18
    assert await found(index, "hay") == set()
    assert sum(steps) == 18
    assert max(steps) < 8
    assert await index.describe_differences() == ""


async def test_a_session_that_is_erased_while_it_is_taken_in_is_left_out(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "BATCH_SIZE", 2)
    index = SearchIndex(database)
    first, second = [await store.write(a_talk, *(f"hay {n}" for n in range(5))) for _ in range(2)]
    await index.catch_up()
    for session in (first, second):
        await store.at(START_TIME).write(sessions.change_owner, session, BOB)
    ordinary, steps = indexing.next_batch, iter(range(100))

    def step(tx: Transaction, seen: str | None) -> indexing.IndexBatch | None:
        if next(steps) == 3:
            raise RuntimeError("the process ends here")
        return ordinary(tx, seen)

    monkeypatch.setattr(indexing, "next_batch", step)
    with pytest.raises(RuntimeError, match="ends here"):
        await index.search(BOBS, "hay")
    index.close()
    monkeypatch.setattr(indexing, "next_batch", ordinary)
    await store.at(START_TIME).write(sessions.erase, first)
    again = SearchIndex(database)
    assert len(await again.search(BOBS, "hay", limit=100)) == 5
    assert await again.describe_differences() == ""
    again.close()


async def test_a_hit_has_a_snippet_and_its_neighbours(store: Store, index: SearchIndex) -> None:
    await store.write(a_talk, "before", "a needle here", "after")
    [hit] = await index.search(ANNS, "needle")
    assert hit.before and hit.message and hit.after
    assert [m.text for m in (hit.before, hit.message, hit.after)] == ["before", "a needle here", "after"]
    assert hit.snippet.text[slice(*hit.snippet.spans[0])] == "needle"
    [edge] = await index.search(ANNS, "before")
    assert edge.before is None and edge.after is not None


async def test_more_relevant_and_newer_messages_come_first(store: Store, index: SearchIndex) -> None:
    await store.write(a_talk, "hay " + "grass " * 200, "hay", "hay " + "grass " * 200)
    hits = await index.search(ANNS, "hay")
    assert [hit.message.seq for hit in hits if hit.message] == [2, 3, 1]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


async def test_pages_hold_every_hit_once(store: Store, index: SearchIndex) -> None:
    count = RANK_WINDOW * 2 + 30
    await store.write(a_talk, *(f"hay {n}" for n in range(count)))
    pages = [await index.search(ANNS, "hay", limit=100, offset=n) for n in range(0, count + 100, 100)]
    found = [hit.message.seq for page in pages for hit in page if hit.message]
    assert sorted(found) == list(range(1, count + 1))


async def test_what_is_hidden_does_not_use_up_the_window(store: Store, index: SearchIndex) -> None:
    await store.write(a_talk, "hay in the open")
    hidden = await store.write(a_talk, *(f"hay {n}" for n in range(RANK_WINDOW * 2)))
    await store.at(START_TIME).write(sessions.soft_delete, hidden, grace=timedelta(days=1))
    assert await found(index, "hay") == {"hay in the open"}


@pytest.mark.parametrize(
    "text",
    [
        *ODD_TEXTS,
        "(" * 300 + "a",
        " ".join(f"w{n}" for n in range(400)),
        " OR ".join(f'"a{n} b"' for n in range(150)),
        "a AND (" * 100 + "b",
        "NOT (a OR NOT (" * 40 + "b",
        "- -- * \"\" '' \\ : ; :* 'a':b & | ! <-> %s :name {} ^ + near(a b) words:a tags:profile",
        'from:"\x00\udc00" tool:☃ project:\'"; surface:%',
        "x" * 5000,
    ],
)
async def test_any_text_is_a_query(store: Store, index: SearchIndex, text: str) -> None:
    await store.write(a_talk, "hay", *ODD_TEXTS)
    await index.search(ANNS, text)


TEXTS = (
    "red fox", "the red red hen", "fox red", "C++ and c", "core/ids.py", "ann@example.org wrote", "東京都", "京都の東京",
    "a b a b c", "b", "redder foxes", "🎉 party", "", "don't", "x_y x-y x.y", "hay\nfox", "#5 and 5",
)  # fmt: skip
ATOMS = ("red", "fox", "a", "b", "c", "C++", "core/ids.py", "ids", "東京", "京都", "東", "re*", "fo*", '"red fox"', '"a b"', "🎉",
         "ann@example.org", "x_y", "#5", "don't", '"a b c"', "京*")  # fmt: skip
EXPRESSIONS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.builds("({} {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT {}".format, inner),
    ),
    max_leaves=6,
)


async def test_every_index_agrees_with_the_model(store: Store, index: SearchIndex) -> None:
    await store.write(a_talk, *TEXTS)
    await index.catch_up()
    loop = asyncio.get_running_loop()

    @settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.one_of(EXPRESSIONS, st.text(max_size=30)))
    def check(text: str) -> None:
        query = queries.parse(text)
        if query == queries.Query() or query.filters != queries.Filters():
            return
        expected = {said for said in TEXTS if model.matches(query, documents.tokenize(said))}
        search = asyncio.run_coroutine_threadsafe(found(index, text), loop)
        assert search.result(timeout=20) == expected

    await asyncio.to_thread(check)


async def test_parts_of_a_query_far_apart_in_a_huge_message_are_found(
    store: Store, index: SearchIndex
) -> None:
    filler = "lorem ipsum dolor sit amet "
    huge = (
        "first words " + filler * 30_000 + "middle ground " + "the " * 2_000 + filler * 150_000 + "last words"
    )
    assert len(huge) > 4_500_000
    session = await store.write(a_talk, huge, "first ground")
    for text, seqs in {
        "middle": [1],
        '"first words" "last words"': [1],
        "first last": [1],
        "first -last": [2],
        'first -"last words"': [2],
        '"middle ground the"': [1],
        '"the lorem"': [1],
        '"amet last"': [1],
        "-first": [],
        "nothing OR last": [1],
        '"amet middle" AND NOT "first ground"': [1],
    }.items():
        hits = await index.search(ANNS, text)
        assert [hit.message.seq for hit in hits if hit.message and hit.session.id == session.id] == seqs, text
    [hit] = await index.search(ANNS, "middle")
    assert "middle" in hit.snippet.text


async def test_words_side_by_side_are_found_wherever_a_long_message_is_split(
    store: Store, index: SearchIndex
) -> None:
    await store.write(a_talk, " ".join(f"w{n}" for n in range(20_000)))
    await index.catch_up()
    for n in (*range(7_930, 8_070), *range(15_870, 16_010)):
        assert len(await index.search(ANNS, f'"w{n} w{n + 1} w{n + 2}"')) == 1, n


@pytest.mark.parametrize("text", ["hay ", "é 東京 x/y.z ", "東京\u3099 \u3099a "])
def test_a_huge_text_is_cut_as_a_whole(text: str) -> None:
    huge = text * 30_000
    assert documents.tokenize(huge) == tokens.tokenize(huge)


async def test_a_message_of_many_identifiers_is_found(store: Store, index: SearchIndex) -> None:
    await store.write(a_talk, " ".join(f"pkg/mod_{n}.py" for n in range(30_000)))
    assert len(await found(index, "pkg/mod_29999.py")) == 1
    assert len(await found(index, "pkg/mod_29999.py -pkg/mod_3.py")) == 0


async def test_catching_up_tells_how_many_messages_were_new(store: Store, index: SearchIndex) -> None:
    session = await store.write(a_talk, "one", "two")
    assert await index.catch_up() == 2
    assert await index.catch_up() == 0
    await store.write(a_message, session.id, "three")
    assert await index.catch_up() == 1


async def test_a_rebuild_finds_the_same_and_tells_its_progress(store: Store, index: SearchIndex) -> None:
    session = await store.write(a_session, title="meadow")
    for text in ("hay", "grass"):
        await store.write(a_message, session.id, text)
    told: list[tuple[int, int]] = []
    assert await index.rebuild(lambda done, total: told.append((done, total))) == 2
    assert told[-1] == (told[-1][1], told[-1][1])
    assert (await found(index, "hay"), await titles(index, "meadow")) == ({"hay"}, ["meadow"])


async def test_an_index_behind_the_trimmed_feed_is_built_again(store: Store, index: SearchIndex) -> None:
    session = await store.write(a_talk, "hay")
    await index.catch_up()
    await store.write(a_message, session.id, "grass", at=after(5))
    await store.write(changes.trim, before=after(10))
    assert await found(index, "hay OR grass") == {"hay", "grass"}


async def test_a_wholly_trimmed_feed_costs_an_index_nothing_that_has_it_all(
    store: Store, index: SearchIndex
) -> None:
    await store.write(a_talk, "hay")
    await index.catch_up()
    await store.write(changes.trim, before=after(10))
    assert await index.catch_up() == 0
    assert await found(index, "hay") == {"hay"}


@pytest.mark.parametrize("state", ['{"format": 999, "cursor": "0"}', '{"format": 1, "cursor": "x"}', "?"])
async def test_an_index_of_another_format_is_built_again(
    store: Store, index: SearchIndex, engine: Engine, tmp_path: Path, state: str
) -> None:
    await store.write(a_talk, "hay")
    await index.catch_up()
    if engine is Engine.POSTGRES:
        await store.at(START_TIME).write(inbox.set_cursor, "search", state)
    else:
        _execute(tmp_path / "keryx-search.db", "update state set value = ?", state)
    assert await index.catch_up() == 1
    assert await found(index, "hay") == {"hay"}


async def test_two_indexers_at_once_agree(store: Store, opener: Open, index: SearchIndex) -> None:
    other = SearchIndex(await opener())
    session = await store.write(a_talk, *(f"hay {n}" for n in range(700)))
    counts = await asyncio.gather(index.catch_up(), other.catch_up())
    assert sum(counts) == 700
    await store.write(a_message, session.id, "grass")
    both = await asyncio.gather(found(index, "grass"), found(other, "grass"))
    assert both == [{"grass"}, {"grass"}]
    other.close()


async def test_many_searches_at_once_are_answered(store: Store, index: SearchIndex) -> None:
    await store.write(a_talk, *(f"hay {n}" for n in range(50)))
    answers = await asyncio.gather(*(found(index, f"hay {n}") for n in range(30)))
    assert answers == [{f"hay {n}"} for n in range(30)]


async def test_a_deleted_index_file_is_built_again(store: Store, index: SearchIndex, file: Path) -> None:
    await store.write(a_talk, "hay")
    assert await found(index, "hay") == {"hay"}
    _delete(file)
    assert await found(index, "hay") == {"hay"}
    assert await asyncio.to_thread(file.exists)


def _documents(file: Path) -> int:
    return int(_execute(file, "select count(*) from search_docsize"))


def _execute(file: Path, sql: str, *values: str) -> Any:
    return apsw.Connection(str(file)).execute(sql, values).get  # pyright: ignore[reportUnknownMemberType]


def _delete(file: Path) -> None:
    for name in ("", "-wal", "-shm"):
        Path(f"{file}{name}").unlink(missing_ok=True)


def _damage(file: Path, damage: Callable[[bytes], bytes]) -> None:
    file.write_bytes(damage(file.read_bytes()))


def _garbage(data: bytes) -> bytes:
    return b"no database at all " * 1000


def _truncated(data: bytes) -> bytes:
    return data[: len(data) // 2 + 100]


def _overwritten(data: bytes) -> bytes:
    return data[:100] + b"\xff" * (len(data) - 100)


def _holed(data: bytes) -> bytes:
    return data[:8192] + b"\xa5" * (len(data) - 8192)


@pytest.mark.parametrize("damage", [_garbage, _truncated, _overwritten, _holed])
async def test_a_damaged_index_file_is_built_again(
    store: Store, database: Database, file: Path, damage: Callable[[bytes], bytes]
) -> None:
    session = await store.write(a_talk, *(f"hay {n} " + "grass " * n for n in range(200)))
    before = SearchIndex(database)
    await before.catch_up()
    before.close()
    _damage(file, damage)
    after_damage = SearchIndex(database)
    assert len(await found(after_damage, "hay", limit=300)) == 200
    await store.write(a_message, session.id, "straw")
    assert await found(after_damage, "straw") == {"straw"}
    after_damage.close()


async def test_an_index_from_another_time_of_the_store_is_built_again(
    store: Store, index: SearchIndex, file: Path
) -> None:
    """As after a backup of the store was brought back: the feed went on differently."""
    session = await store.write(a_talk, "hay")
    await index.catch_up()

    def other_history(tx: Transaction) -> None:
        tx.run("delete from changes")
        tx.run("delete from messages")
        tx.run("update sqlite_sequence set seq = 0 where name in ('changes', 'messages')")
        for n in range(20):
            a_message(tx, session.id, f"grass {n}", at=after(50))

    await store.write(other_history)
    assert await found(index, "hay") == set()
    assert len(await found(index, "grass")) == 20


async def test_a_crash_while_an_index_is_filled_loses_nothing(store: Store, database: Database) -> None:
    await store.write(a_talk, *(f"hay {n}" for n in range(1200)))
    first = SearchIndex(database)

    def crash(done: int, total: int) -> None:
        if done:
            raise RuntimeError("the process ends here")

    with pytest.raises(RuntimeError):
        await first.catch_up(crash)
    first.close()
    second = SearchIndex(database)
    assert 0 < await second.catch_up() < 1200
    assert len(await found(second, "hay", limit=2000)) == 1200
    second.close()


async def test_a_message_that_comes_while_an_index_is_filled_is_found(
    store: Store, database: Database
) -> None:
    session = await store.write(a_talk, *(f"hay {n}" for n in range(1200)))
    first = SearchIndex(database)

    class Ended(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done:
            raise Ended

    with pytest.raises(Ended):
        await first.catch_up(stop)
    await store.write(a_message, session.id, "straw")
    message = await store.read(messages.get, session.id, 1)
    await store.at(START_TIME).write(messages.rewrite, message, text_parts("mown"))
    assert await found(first, "straw OR mown") == {"straw", "mown"}
    assert "hay 0" not in await found(first, '"hay 0"')
    first.close()


async def test_text_that_no_database_keeps_as_it_is_can_be_searched(store: Store, index: SearchIndex) -> None:
    await store.write(
        a_part, *(Text(f"{text} hay") for text in ODD_TEXTS), author="\ud83d \x00", role=Role.USER
    )
    assert len(await found(index, "hay")) == 1
    assert len(await found(index, "drop table sessions")) == 1


async def test_searches_leave_readers_of_the_store_to_everything_else(
    store: Store, database: Database, index: SearchIndex
) -> None:
    """A query of many letters can take seconds, and anybody may send it again and again."""
    await store.write(a_talk, "a word")
    assert len(await index.search(ANNS, "word")) == 1
    running, most = 0, 0
    read = database.read

    async def count(label: str, work: Callable[[Transaction], Any]) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        try:
            return await read(label, work)
        finally:
            running -= 1

    with mock.patch.object(database, "read", count):
        found = await asyncio.gather(*(index.search(ANNS, "word") for _ in range(10)))
    assert [len(hits) for hits in found] == [1] * 10
    assert most == 2


async def test_a_query_of_very_many_terms_finds_what_it_should(store: Store, index: SearchIndex) -> None:
    await store.write(a_talk, "zebra " + "x " * 3_000)
    terms = [f"no{n}" for n in range(200)]
    assert len(await index.search(ANNS, " OR ".join([*terms, "zebra"]))) == 1
    assert (
        len(await index.search(ANNS, " OR ".join(f"{letter}*" for letter in "abcdefghijklmnopqrstuvwxyz")))
        == 1
    )
