"""Sessions leave the store and come back the same."""

import asyncio
import io
import re
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import (
    ANN,
    ANNS,
    ODD_TEXTS,
    OPERATORS,
    Store,
    a_running_turn,
    a_session,
    a_turn,
    after,
    at_time,
)
from tests.conftest import Open

from keryx.core import codec, ids, records
from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.core.ids import DEFAULT_PROFILE, PrincipalId, ProfileId, SessionId, TurnId
from keryx.core.messages import Mark, Notice, Reasoning, Role, Text, ToolCall, ToolResult, text_parts
from keryx.core.sessions import Session, TagColour, TitleBy, Viewer
from keryx.core.texts import Phrase
from keryx.core.turns import TurnState
from keryx.core.usage import Usage
from keryx.engine.export import ExportFormat, export, html_document
from keryx.engine.export.redact import Redactor
from keryx.engine.importer import ImportReport, import_sessions
from keryx.engine.units import revisions
from keryx.store import epochs, messages, projects, sessions, turns, usage, viewer_state
from keryx.store.admin import session_import
from keryx.store.admin.verify import verify
from keryx.store.db import Database, Transaction
from keryx.store.db.sqlite import SqliteDatabase
from keryx.store.search import SearchIndex
from keryx.testing import START_TIME, FakeClock


async def exported(
    database: Database,
    *chosen: SessionId,
    format: ExportFormat = ExportFormat.JSONL,
    viewer: Viewer = OPERATORS,
    redact: bool = False,
) -> str:
    pieces: list[str] = []
    await export(database, viewer, chosen or None, format, pieces.append, redact=redact)
    return "".join(pieces)


async def loaded(database: Database, text: str | bytes, *, viewer: Viewer = OPERATORS) -> ImportReport:
    data = text.encode() if isinstance(text, str) else text
    return await import_sessions(database, FakeClock(), viewer, io.BytesIO(data))


def an_answer(tx: Transaction, session: Session, text: str = "answer", *, at: float = 0) -> TurnId:
    turn = a_running_turn(tx, session, at=after(at))
    messages.append(at_time(tx, after(at + 1)), session.id, Role.ASSISTANT, text_parts(text), turn=turn.id)
    usage.add(at_time(tx, after(at + 1)), turn, Usage(model="m", input=3, output=5, cost=7))
    turns.finish(at_time(tx, after(at + 2)), turn, TurnState.DONE)
    return turn.id


def a_rich_session(tx: Transaction) -> SessionId:
    """A conversation with all that one can have."""
    session = a_session(tx, title="Trip to Oslo")
    an_answer(tx, session, "**bold** and `code`")
    epochs.begin(at_time(tx, after(5)), session.id, first_seq=2, summary="they spoke of Oslo")
    turn = a_running_turn(tx, session, at=after(6))
    call = ToolCall("c1", "weather", '{"city": "Oslo"}')
    messages.append(
        at_time(tx, after(7)), session.id, Role.ASSISTANT, (Reasoning("hm", "{}"), call), turn=turn.id
    )
    messages.append(
        at_time(tx, after(8)), session.id, Role.TOOL, (ToolResult("c1", "weather", "rain"),), turn=turn.id
    )
    messages.append(
        at_time(tx, after(9)),
        session.id,
        Role.ASSISTANT,
        text_parts("It ra"),
        turn=turn.id,
        mark=Mark.INTERRUPTED,
    )
    messages.append(at_time(tx, after(9)), session.id, Role.NOTICE, (Notice("stopped"),), turn=turn.id)
    turns.finish(at_time(tx, after(10)), turn, TurnState.FAILED, error="it \0 broke")
    for n, text in enumerate(ODD_TEXTS):
        messages.append(
            at_time(tx, after(20 + n)), session.id, Role.USER, text_parts(text), author=text, platform_id=text, observed=True,
            exact=text, surface="gateway",
        )  # fmt: skip
    an_answer(tx, session, at=40)
    revisions.undo(at_time(tx, after(50)), sessions.get(tx, session.id), 1)
    project = projects.add(at_time(tx, START_TIME), ANNS, name="travel", colour="red")
    sessions.set_project(at_time(tx, START_TIME), session, project.id)
    projects.add_tag(at_time(tx, START_TIME), ANNS, "soon", colour=TagColour.PINK)
    projects.put_tags(at_time(tx, START_TIME), ANNS, session.id, ["soon", "later"])
    sessions.set_pinned(at_time(tx, START_TIME), session, True)
    sessions.add_alias(tx, session, "old-id")
    return session.id


async def test_an_export_comes_back_the_same(store: Store, tmp_path: Path) -> None:
    session = await store.write(a_rich_session)
    first = await exported(store.database)
    async with SqliteDatabase(tmp_path / "other.db") as other:
        report = await loaded(other, first)
        assert (report.created, report.damage, report.skipped) == (1, 0, 0)
        assert await exported(other) == first
        assert await verify(other) == []
        found = await other.read("test", lambda tx: sessions.resolve(tx, OPERATORS, "old-id"))
        assert found.id == session


async def test_importing_into_the_store_it_came_from_changes_nothing(store: Store) -> None:
    await store.write(a_rich_session)
    first = await exported(store.database)
    for _ in range(2):
        report = await loaded(store.database, first)
        assert (report.unchanged, report.messages, report.turns, report.usage) == (1, 0, 0, 0)
        assert report.troubles == []
    assert await exported(store.database) == first


async def test_what_is_imported_counts_as_read(store: Store, tmp_path: Path) -> None:
    session = await store.write(a_session, title="Trip")
    await store.write(an_answer, session)
    async with SqliteDatabase(tmp_path / "other.db") as other:
        await other.write(
            "visit", lambda tx: viewer_state.save_preferences(at_time(tx, after(-1000)), OPERATORS, {})
        )
        for at in (0, 10):
            await loaded(other, await exported(store.database))
            here = await other.read("test", lambda tx: sessions.get(tx, session.id))
            marks = await other.read(
                "test", lambda tx, here=here: viewer_state.get_read_marks(tx, OPERATORS, [here])
            )
            assert marks[session.id] == here.last_seq > at // 10
            await store.write(an_answer, session, "more", at=at + 10)


@pytest.mark.parametrize("between", [False, True], ids=["at once", "after a look"])
async def test_what_is_imported_is_found(store: Store, between: bool) -> None:
    """Also where the index knew the same session before it was erased."""
    session = await store.write(a_rich_session)
    text, index = await exported(store.database, session), SearchIndex(store.database)
    await index.catch_up()
    await store.write(lambda tx: sessions.erase(at_time(tx, START_TIME), sessions.get(tx, session)))
    if between:
        await index.catch_up()
    await loaded(store.database, text)
    hits = await index.search(OPERATORS, "bold")
    assert [hit.session.id for hit in hits] == [session]
    assert await verify(store.database) == []
    index.close()


async def test_a_longer_export_adds_what_is_new(store: Store, tmp_path: Path) -> None:
    session = await store.write(a_session, title="Trip")
    await store.write(an_answer, session)
    short = await exported(store.database)
    await store.write(an_answer, session, "more", at=10)
    await store.at(after(15)).write(epochs.begin, session.id, first_seq=3, summary="s")
    await store.write(an_answer, session, "and more", at=20)
    long = await exported(store.database)
    async with SqliteDatabase(tmp_path / "other.db") as other:
        await loaded(other, short)
        report = await loaded(other, long)
        assert (report.extended, report.messages, report.turns, report.usage) == (1, 4, 2, 2)
        assert await exported(other) == long
        assert (await loaded(other, short)).unchanged == 1
        assert await exported(other) == long


async def test_a_session_that_differs_is_reported_and_left_as_it_is(store: Store) -> None:
    session = await store.write(a_session, title="Trip")
    await store.write(an_answer, session, "the truth")
    before = await exported(store.database)
    report = await loaded(store.database, before.replace("the truth", "a lie"))
    assert (report.skipped, report.damage, report.messages) == (1, 1, 0)
    assert "message 2 is another one here" in report.troubles[0].text
    assert await exported(store.database) == before


async def test_an_undone_message_stays_as_it_is_here(store: Store) -> None:
    session = await store.write(a_session, title="Trip")
    await store.write(an_answer, session)
    before = await exported(store.database)
    await store.write(lambda tx: revisions.undo(at_time(tx, after(5)), sessions.get(tx, session.id), 1))
    undone = await exported(store.database)
    report = await loaded(store.database, before)
    assert (report.unchanged, report.damage) == (1, 0)
    assert "2 messages differ here in the marks" in report.troubles[0].text
    assert await exported(store.database) == undone


async def test_turns_that_had_not_ended_never_run(store: Store, tmp_path: Path) -> None:
    session = await store.write(a_session, title="Trip")
    running = await store.write(a_running_turn, session)
    waiting = await store.write(a_turn, session, at=after(1))
    text = await exported(store.database)
    async with SqliteDatabase(tmp_path / "other.db") as other:
        await loaded(other, text)
        there = Store(other)
        assert (await there.read(turns.get, running.id)).state is TurnState.EXPIRED
        assert (await there.read(turns.get, waiting.id)).state is TurnState.CANCELLED
        assert (await there.read(turns.get, waiting.id)).error == session_import.UNFINISHED_ERROR
        await store.write(lambda tx: turns.finish(at_time(tx, after(9)), running, TurnState.DONE))
        await loaded(other, await exported(store.database))
        assert (await there.read(turns.get, running.id)).state is TurnState.DONE
        assert await verify(other) == []


async def test_an_id_of_somebody_else_makes_way_and_leads_to_the_new_one(store: Store) -> None:
    session = await store.write(a_session, title="Trip")
    await store.write(an_answer, session)
    text = (await exported(store.database)).replace('"owner":"ann"', '"owner":"bob"')
    for created in (1, 0):
        report = await loaded(store.database, text)
        assert (report.created, report.skipped) == (created, 0)
    bobs = Viewer(DEFAULT_PROFILE, PrincipalId("bob"))
    found = await store.read(sessions.resolve, bobs, session.id)
    assert found.id != session.id
    assert found.messages == 2
    assert await verify(store.database) == []


async def test_sessions_come_into_the_profile_of_whoever_imports(store: Store, tmp_path: Path) -> None:
    session = await store.write(a_session, title="Trip")
    await store.write(an_answer, session)
    work = Viewer(ProfileId("work"), OPERATORS.principal)
    await loaded(store.database, await exported(store.database), viewer=work)
    found = await store.read(sessions.resolve, work, "Trip")
    assert (found.profile, found.id == session.id) == ("work", False)


async def test_a_title_that_is_taken_gets_a_number(store: Store, tmp_path: Path) -> None:
    session = await store.write(a_session, title="Trip")
    await store.write(an_answer, session)
    text = await exported(store.database)
    async with SqliteDatabase(tmp_path / "other.db") as other:
        await Store(other).write(lambda tx: an_answer(tx, a_session(tx, title="Trip")))
        report = await loaded(other, text)
        assert "it is called 'Trip #2'" in report.troubles[0].text
        assert report.damage == 0


async def test_bad_lines_are_named_and_the_rest_goes_on(store: Store, tmp_path: Path) -> None:
    first = await store.write(a_session, title="One")
    second = await store.write(a_session, title="Two", at=after(1))
    for session in (first, second):
        await store.write(an_answer, session)
        await store.write(an_answer, session, at=10)
    whole = await exported(store.database)
    lines = whole.split("\n")
    at = next(n for n, line in enumerate(lines) if '"seq":2' in line)
    broken = "\n".join([*lines[:at], '{"record":"message",', *lines[at + 1 :], "nonsense", ""])
    async with SqliteDatabase(tmp_path / "other.db") as other:
        report = await loaded(other, broken)
        assert [t.line for t in report.troubles if not t.session] == [at + 1, len(lines) + 1]
        assert report.created == 2
        assert await verify(other) == []
        lost = await Store(other).read(messages.get, SessionId(msgspec.json.decode(lines[at])["session"]), 2)
        assert lost.text == records.LOST_TEXT
        again = await loaded(other, broken)
        assert (again.unchanged, again.messages) == (2, 0)
        mended = await loaded(other, whole)
        assert (mended.extended, mended.messages) == (1, 1)
        assert await exported(other) == whole


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "not an export"),
        ("hello\n", "not an export"),
        ('{"record":"header","format":"other","version":1}\n', "not an export"),
        ('{"record":"header","format":"keryx-sessions","version":9}\n', "newer Keryx"),
    ],
)
async def test_a_file_of_another_kind_is_refused(database: Database, text: str, wrong: str) -> None:
    with pytest.raises(Invalid, match=wrong):
        await loaded(database, text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "../../../etc/passwd"),
        ("created_at", "2026-03-01T12:00:00"),
        ("last_seq", 1 << 70),
        ("title", 7),
    ],
)
async def test_hostile_values_are_refused_by_line(store: Store, field: str, value: object) -> None:
    session = await store.write(a_session, title="Trip")
    await store.write(an_answer, session)
    lines = (await exported(store.database)).split("\n")
    changed = {**msgspec.json.decode(lines[1]), field: value}
    report = await loaded(
        store.database, "\n".join([lines[0], msgspec.json.encode(changed).decode(), *lines[2:]])
    )
    assert report.troubles[0].line == 2
    assert (report.created, report.extended) == (0, 0)


async def test_a_long_session_comes_in_batches(opener: Open, tmp_path: Path) -> None:
    database = await opener()
    header = records.Header(format=records.FORMAT, version=records.VERSION)
    session = records.SessionRecord(
        id=SessionId(ids.new(START_TIME)), profile=DEFAULT_PROFILE, owner=ANN, surface="web", created_at=START_TIME, active_at=START_TIME,
        last_seq=1200, messages=1200,
    )  # fmt: skip
    entries = [
        records.MessageRecord(
            session=session.id, seq=n, role=Role.USER, parts=text_parts(f"text {n}"), at=after(n)
        )
        for n in range(1, 1201)
    ]
    text = "".join(f"{records.encode(r)}\n" for r in (header, session, *entries))
    cut_off = text.encode()[: len(text) // 2]
    report = await loaded(database, cut_off)
    assert report.damage == 2
    assert 500 < report.messages < 700
    report = await loaded(database, text)
    assert (report.extended, report.damage) == (1, 0)
    given, found = text.encode().splitlines(), (await exported(database)).encode().splitlines()
    assert [records.decode(line) for line in found] == [records.decode(line) for line in given]


async def test_only_what_the_viewer_may_see_leaves(store: Store) -> None:
    session = await store.write(a_session, title="Trip")
    await store.write(an_answer, session)
    stranger = Viewer(DEFAULT_PROFILE, PrincipalId("eve"))
    assert (await exported(store.database, viewer=stranger)).count("\n") == 1


async def test_markdown_shows_everything(store: Store) -> None:
    await store.write(a_rich_session)
    text = await exported(store.database, format=ExportFormat.MD)
    assert text.startswith("# Trip to Oslo\n")
    for piece in (
        "**bold**",
        "they spoke of Oslo",
        "Calls weather",
        "interrupted",
        "undone",
        "overheard",
        "rain",
    ):
        assert piece in text
    text.encode()


HOSTILE = """<script>alert(1)</script> <img src=x onerror=alert(1)> ![pixel](http://evil.example/p.png)
[click](javascript:alert(1)) [data](data:text/html,hi) <style>*{display:none}</style> <iframe src="//evil"></iframe>

```html"><script>alert(2)</script>
</code></pre><script>alert(3)</script>
```

<a href="x" onclick="y">z</a> &lt;script&gt; <svg/onload=alert(4)> <base href="//evil"> <meta http-equiv=refresh>
"""


@pytest.mark.parametrize("format", [ExportFormat.MD, ExportFormat.HTML])
async def test_a_withdrawn_message_is_marked_in_a_document(store: Store, format: ExportFormat) -> None:
    session = await store.write(a_session)
    await store.write(messages.append, session.id, Role.USER, text_parts("never mind"), mark=Mark.WITHDRAWN)
    assert "withdrawn before it was answered" in await exported(store.database, session.id, format=format)


@pytest.mark.parametrize("text", [HOSTILE, *ODD_TEXTS, "</section></article></main><script>x</script>"])
def test_hostile_text_is_inert_in_html(text: str) -> None:
    page = html_document.render_markdown(text)
    used = _used(page)
    assert {tag for tag, _, _ in used} <= {
        "p",
        "br",
        "a",
        "pre",
        "code",
        "span",
        "em",
        "strong",
        "ul",
        "ol",
        "li",
    }
    assert {name for _, name, _ in used} <= {
        "", "href", "title", "rel", "target", "class", "data-language", "dir", "tabindex",
    }  # fmt: skip
    assert all(re.match("https?:|mailto:", value) for _, name, value in used if name == "href")
    page.encode()


def _used(page: str) -> set[tuple[str, str, str]]:
    """Every tag, and every attribute of it with its value, as a browser reads them."""
    found: set[tuple[str, str, str]] = set()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.update((tag, name, value or "") for name, value in [("", ""), *attrs])

    Reader().feed(page)
    return found


async def test_the_page_is_one_file_that_loads_nothing(store: Store) -> None:
    await store.write(a_rich_session)
    session = await store.write(a_session, title="<script>alert('t')</script>", at=after(100))
    await store.write(
        lambda tx: messages.append(
            at_time(tx, START_TIME), session.id, Role.USER, (Text(HOSTILE),), author="<b>x</b>"
        )
    )
    page = await exported(store.database, format=ExportFormat.HTML)
    used = _used(page)
    assert not {tag for tag, _, _ in used} & {
        "script",
        "img",
        "link",
        "iframe",
        "object",
        "embed",
        "form",
        "svg",
        "base",
    }
    assert not {name for _, name, _ in used if name.startswith("on") or name in {"src", "srcset", "style"}}
    sheet = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in sheet and "@import" not in sheet
    assert "Content-Security-Policy" in page and "prefers-color-scheme: dark" in page
    for piece in ("they spoke of Oslo", "weather", "interrupted", "undone", "2 conversations"):
        assert piece in page


PRIVATE = """Write to Ann.Lee@example.com or +47 22 34 56 78 (or 555-123-4567). Bot 123456789:AAH-abcdefghijklmnopqrstuvwxyz0123456
key sk-proj-abcdefghij0123456789 and ghp_abcdefghijklmnopqrstuvwxyz0123456789 password=hunter2hunter2
postgres://user:s3cret@db.example/x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc_def user 4242424242 /home/annlee/notes"""


@pytest.mark.parametrize("format", list(ExportFormat))
async def test_redaction_leaves_no_trace(store: Store, format: ExportFormat) -> None:
    session = await store.write(
        a_session, title="Mail ann.lee@example.com", owner=PrincipalId("01annprincipal")
    )
    call = ToolCall("c", "send", '{"to": "ann.lee@example.com", "token": "abcdef123456"}')
    await store.write(
        lambda tx: messages.append(
            at_time(tx, START_TIME),
            session.id,
            Role.USER,
            (Text(PRIVATE), call),
            author="Ann Lee",
            platform_id="4242424242",
            exact=PRIVATE,
        )
    )
    text = await exported(store.database, format=format, redact=True)
    for secret in (
        "example.com or", "nn.lee", "22 34 56", "123-4567", "AAH-abc", "sk-proj", "ghp_abc", "hunter2", "s3cret",
        "eyJhb", "4242424242", "annlee", "Ann Lee", "abcdef123456", "01annprincipal",
    ):  # fmt: skip
        assert secret not in text, secret
    assert text.count("[email 1") >= 2
    assert "email 2" not in text


async def test_a_redacted_export_can_be_imported(store: Store, tmp_path: Path) -> None:
    await store.write(a_rich_session)
    text = await exported(store.database, redact=True)
    async with SqliteDatabase(tmp_path / "other.db") as other:
        assert (await loaded(other, text)).created == 1


def test_redaction_hides_what_stands_for_a_message_too() -> None:
    [contact] = text_parts(Phrase("content.contact", contact="Ann, +43 660 1234567"))
    [hidden] = Redactor().parts([contact])
    assert "1234567" not in codec.dumps(hidden)


def test_redaction_leaves_ordinary_text_alone() -> None:

    text = "On 2026-03-01 at 12:30 version 3.11.2 used 100000 tokens of /usr/lib/python3.11/site-packages: 12.5 %, max_tokens=4096"
    assert Redactor().text(text) == text


TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), TEXT, TEXT),
        st.tuples(st.just("overhear"), TEXT, TEXT),
        st.tuples(st.just("tool"), TEXT, TEXT),
        st.tuples(st.just("compact"), TEXT, TEXT),
        st.tuples(st.just("undo"), TEXT, TEXT),
        st.tuples(st.just("redo"), TEXT, TEXT),
        st.tuples(st.just("fork"), TEXT, TEXT),
    ),
    max_size=12,
)


@given(steps=STEPS)
@settings(max_examples=40)
def test_any_conversation_comes_back_byte_for_byte(steps: list[tuple[str, str, str]]) -> None:
    asyncio.run(_round_trip(steps))


async def _round_trip(steps: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            SqliteDatabase(Path(folder) / "a.db") as one,
            SqliteDatabase(Path(folder) / "b.db") as other,
        ):
            await one.write("test", lambda tx: _live(tx, steps))
            first = await exported(one)
            report = await loaded(other, first)
            assert report.damage == 0
            assert await exported(other) == first
            assert await verify(other) == []
            assert await verify(one) == []


def _live(tx: Transaction, steps: list[tuple[str, str, str]]) -> None:
    session = a_session(tx)
    messages.append(at_time(tx, START_TIME), session.id, Role.USER, text_parts("first"))
    for n, (step, one, two) in enumerate(steps):
        _step(tx, sessions.get(tx, session.id), step, one, two, at=n * 10)


def _step(tx: Transaction, session: Session, step: str, one: str, two: str, *, at: float) -> None:
    now = after(at)
    match step:
        case "say":
            an_answer(tx, session, one, at=at)
        case "overhear":
            messages.append(
                at_time(tx, now),
                session.id,
                Role.USER,
                text_parts(one),
                author=two,
                observed=True,
                exact=two,
                platform_id=one,
            )
        case "tool":
            turn = a_running_turn(tx, session, at=now)
            parts = (Reasoning(one, two), ToolCall(one, two, one))
            messages.append(
                at_time(tx, now), session.id, Role.ASSISTANT, parts, turn=turn.id, mark=Mark.FAILED
            )
            turns.finish(at_time(tx, now), turn, TurnState.FAILED, error=two)
        case "compact":
            epochs.begin(at_time(tx, now), session.id, first_seq=session.last_seq + 1, summary=one)
        case "undo" | "redo":
            try:
                if step == "undo":
                    revisions.undo(at_time(tx, now), session, 1)
                else:
                    revisions.redo(at_time(tx, now), session)
            except (Conflict, NotFound):
                pass
        case _:
            revisions.fork(at_time(tx, now), session, surface="cli")
            sessions.rename(at_time(tx, now), session, "Base", by=TitleBy.RULE)
