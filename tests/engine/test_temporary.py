"""Temporary conversations: readable while they last, also after a crash; afterwards nothing of them is, on both engines."""

import io
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from tests.engine.conftest import Begin
from tests.engine.world import OPERATORS, Pause, Scenes, World
from tests.web.site import Site, open_site

from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import SessionId, TurnId, is_temporary
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.ports.agent import (
    FileEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallEvent,
    ToolResultEvent,
)
from keryx.core.sessions import SessionChange
from keryx.core.turns import TurnState
from keryx.engine.export import ExportFormat, export
from keryx.engine.loops.sweeps import RetentionSweep
from keryx.store import sessions
from keryx.store.admin import backup, copy, verify
from keryx.store.db import Database, Engine, Transaction
from keryx.store.db.session_keys import SessionKeys
from keryx.store.db.sqlite import SqliteDatabase

WORD = "Xylophonquartz"


@pytest.fixture
def keys(database: Database, tmp_path: Path) -> Path:
    """The folder of the keys, which PostgreSQL has to be given."""
    folder = tmp_path / "session-keys"
    database.keys = SessionKeys(folder)
    return folder


def list_keys(folder: Path) -> list[Path]:
    return list(folder.glob("*"))


def read_tables(tx: Transaction) -> str:
    """Every row of every table as it is stored."""
    tx.keys = SessionKeys(None, raw=True)
    return "\n".join(
        str(tuple(row)) for table in copy.TABLES for row in tx.rows(f"select * from {table.name}")
    )


async def find_clear(database: Database) -> list[str]:
    """Where the word can be read: in a table, or in a file of the store, its log and its search index."""
    found = ["a table"] if WORD in await database.read("test", read_tables) else []
    if isinstance(database, SqliteDatabase):
        files = database.path.parent.glob(f"{database.path.stem}*")
        found += [f.name for f in files if f.is_file() and WORD.encode() in f.read_bytes()]
    return found


async def begin_temporary(world: World) -> SessionId:
    receipt = await world.say("/temp")
    assert receipt.session and is_temporary(receipt.session)
    return receipt.session


async def test_a_temporary_conversation_is_readable_until_its_end_and_never_after(
    begin: Begin, database: Database, keys: Path, tmp_path: Path
) -> None:
    steps = [
        ReasoningDelta(f"thinking of {WORD}"),
        TextDelta(f"Looking for {WORD}."),
        ToolCallEvent((ToolCall("c1", "look", f'{{"q": "{WORD}"}}'),)),
        ToolResultEvent(ToolResult("c1", "look", f"found {WORD}")),
        FileEvent(f"{WORD}.txt", "text/plain", WORD.encode()),
        TextDelta(f"Here is {WORD}."),
    ]
    pause = Pause()
    world = await begin(agent=Scenes({"steps": steps, "half": [TextDelta(f"Half of {WORD}"), pause]}))
    await world.ask("an ordinary question about Oslo")
    session = await begin_temporary(world)
    await world.ask(f"steps {WORD}?")
    # A crash in the middle of an answer, whose draft is stored.
    said = await world.say(f"half {WORD}")
    await world.drafted(said, f"Half of {WORD}")
    assert await find_clear(database) == []
    await world.restart()
    pause.go_on()
    assert (await world.settle(said)).state is TurnState.DONE
    lines = await world.transcript(session)
    assert f"assistant: Half of {WORD} [interrupted]" in lines
    assert f"user: steps {WORD}?" in lines
    assert WORD in (await world.open(session)).session.title
    assert any(WORD in text for text in await world.sent(5))
    await world.command(f"/title all about {WORD}")

    # Nothing shows it, and nothing has stored it.
    assert [hit.session.id for hit in await world.hub.search(OPERATORS, WORD)] == []
    assert len(await world.hub.search(OPERATORS, "Oslo")) > 0
    out = io.StringIO()
    await export(database, OPERATORS, None, ExportFormat.JSONL, out.write)
    assert WORD not in out.getvalue() and "Oslo" in out.getvalue()
    with pytest.raises(Invalid, match="temporary"):
        await world.hub.shares.add(OPERATORS, session)
    with pytest.raises(Invalid, match="temporary"):
        await export(database, OPERATORS, [session], ExportFormat.JSONL, out.write)
    with pytest.raises(Invalid, match="temporary"):
        await world.hub.fork(OPERATORS, session, surface="web")
    assert await find_clear(database) == []
    assert [p for p in await verify.verify(database) if "search" not in p.check] == []
    saved = tmp_path / "saved.db"
    file = database.path if isinstance(database, SqliteDatabase) else None
    await backup.create(database, file, saved, now=world.clock.now())
    assert WORD.encode() not in saved.read_bytes()
    before = await database.read("test", read_tables)
    sealed = next(part for part in before.split("\\x1f") if len(part) > 200)

    # The end.
    assert (
        await world.command("/temp end")
        == "The temporary conversation has ended. Nothing of it is left here."
    )
    assert list_keys(keys) == []
    with pytest.raises(NotFound):
        await world.hub.session(OPERATORS, session)
    after = await database.read("test", read_tables)
    assert sealed not in after
    assert await find_clear(database) == []
    assert database.keys.unseal_rows([(f"\x1f[{session}\x1f{sealed}",)]) == [("[]",)]
    assert (await world.ask("back to Oslo")).session != session


@pytest.mark.parametrize("ending", ["new", "age", "lost key", "delete"])
async def test_every_way_to_end_it_leaves_nothing(
    begin: Begin, database: Database, keys: Path, ending: str
) -> None:
    world = await begin()
    session = await begin_temporary(world)
    await world.ask(WORD)
    if ending == "new":
        assert "temporary conversation has ended" in await world.command("/new")
    elif ending == "delete":
        await world.hub.delete(OPERATORS, session)
    elif ending == "lost key" and database.engine is Engine.POSTGRES:
        pytest.skip("another node may have the key")
    else:
        for key in list_keys(keys) if ending == "lost key" else ():
            key.unlink()
        world.advance(timedelta(days=2) if ending == "age" else timedelta(0))
        await RetentionSweep(database, world.clock, policy=world.policy).sweep()
    assert not await world.read(sessions.exists, session)
    assert list_keys(keys) == []
    rows = await database.read("test", read_tables)
    assert f"{session}\\x1f" not in rows and WORD not in rows
    # The chat goes on with an ordinary conversation.
    after = await world.say("next")
    assert after.session and not is_temporary(after.session)


async def test_nobody_has_a_sealed_text_opened_by_writing_it(
    begin: Begin, database: Database, keys: Path
) -> None:
    world = await begin()
    await begin_temporary(world)
    await world.ask(WORD)
    rows = await world.read(lambda tx: _read_sealed(tx))
    other = await world.say("hello", chat="2", user="bob")
    for text in (rows, f"{rows} and more"):
        assert (await world.ask(text, chat="2", user="bob")).state is TurnState.DONE
        await world.command(f"/title {text}", chat="2", user="bob")
    shown = await world.open(other.session)
    assert WORD not in str(shown.messages) and WORD not in shown.session.title
    with pytest.raises(Invalid):
        await world.hub.change(OPERATORS, shown.session.id, SessionChange(cwd=rows))


def _read_sealed(tx: Transaction) -> str:
    tx.keys = SessionKeys(None, raw=True)
    row = tx.row("select parts from messages where substr(session, 1, 4) = 'tmp-' and role = 'user'")
    assert row
    return row[0]


async def test_a_store_without_a_folder_for_keys_says_what_to_set(begin: Begin, database: Database) -> None:
    database.keys = SessionKeys(None)
    world = await begin()
    before = await world.say("hello")
    reply = await world.command("/temp")
    assert "[temporary]" in reply
    assert (await world.say("still here")).session == before.session


async def test_a_page_begins_one_with_files_of_its_own(begin: Begin, database: Database, keys: Path) -> None:
    world = await begin()
    async with open_site(world.hub, world.clock) as site:
        key = {"Idempotency-Key": "k1"}
        sent = await site.post("/api/sessions", {"text": f"about {WORD}", "temporary": True}, headers=key)
        again = await site.post("/api/sessions", {"text": f"about {WORD}", "temporary": True}, headers=key)
        assert again["duplicate"] and again["session"] == sent["session"]
        await world.settle(TurnId(sent["turn"]))
        session = sent["session"]
        listed = (await site.get("/api/sessions"))["sessions"]
        assert [(s["id"], s["temporary"]) for s in listed] == [(session, True)]
        file = await upload(site, f"{WORD}.txt", f"{WORD} in a file", session=session)
        await site.request("PUT", f"/api/composers/{session}", json={"text": f"unsent {WORD}", "media": []})
        await world.settle(
            TurnId(
                (await site.post(f"/api/sessions/{session}/messages", {"text": "file", "media": [file]}))[
                    "turn"
                ]
            )
        )
        assert (await site.request("GET", f"/media/{file}")).text == f"{WORD} in a file"
        assert await find_clear(database) == []
        assert (await site.request("GET", f"/api/sessions/{session}/export")).status_code == 400
        # A file that was uploaded without its session is in clear, so it is not taken.
        clear = await upload(site, "clear.txt", "nothing secret")
        other = await site.post(f"/api/sessions/{session}/messages", {"text": "this", "media": [clear]})
        await world.settle(TurnId(other["turn"]))
        assert any("clear.txt was left out" in line for line in await world.transcript(SessionId(session)))
        assert (await site.request("DELETE", f"/api/sessions/{session}")).is_success
        assert (await site.request("GET", f"/media/{file}")).status_code == 404
    assert list_keys(keys) == []


async def test_a_copy_of_the_store_has_it_sealed_and_removes_it(
    begin: Begin, database: Database, keys: Path, tmp_path: Path
) -> None:
    world = await begin()
    ordinary = (await world.ask("an ordinary question")).session
    session = await begin_temporary(world)
    await world.ask(WORD)
    async with SqliteDatabase(tmp_path / "copied" / "copy.db") as copied:
        await copy.copy_store(database, copied)
        assert await find_clear(copied) == []
        assert WORD not in await copied.read("test", lambda tx: str(tx.rows("select parts from messages")))
        # Its key was not copied, so nobody can read it there, and it goes.
        await RetentionSweep(copied, world.clock, policy=world.policy).sweep()
        assert not await copied.read("test", lambda tx: sessions.exists(tx, session))
        assert await copied.read("test", lambda tx: sessions.exists(tx, ordinary))
    assert WORD in str((await world.open(session)).messages)


async def upload(site: Site, name: str, body: str, *, session: str = "") -> str:
    query = {"name": name, **({"session": session} if session else {})}
    response: httpx.Response = await site.request(
        "POST", "/api/media", params=query, content=body.encode(), headers={"Content-Type": "text/plain"}
    )
    return response.json()["media"]
