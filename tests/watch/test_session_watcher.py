"""What programs write appears here while they run: once, in order, whatever their files do."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.builders import ANN, ANNS, OPERATORS, until
from tests.importers import samples
from tests.importers.samples import SAMPLES, Json, iso, write_lines
from tests.importers.test_programs import BOTH_ENGINES, ON_SQLITE, list_sessions, read_messages, read_tables

from keryx.core.changes import ChangeKind
from keryx.core.messages import Message
from keryx.core.sessions import PROGRAM_TITLES, ProgramState, Session, TitleBy
from keryx.engine.loops.session_watcher import PollReport, SessionWatcher, StoreTarget
from keryx.importers import PROGRAMS
from keryx.importers.watched_programs import WATCHED_PROGRAMS, ProgramProcess, list_processes
from keryx.store import change_feed, changes, imports, people, sessions
from keryx.store.admin.verify import verify
from keryx.store.db import Database
from keryx.testing import FakeClock

pytestmark = ON_SQLITE

PLACES = {
    "claude-code": ".claude/projects",
    "codex": ".codex",
    "opencode": ".local/share/opencode",
    "goose": ".local/share/goose/sessions",
    "gemini": ".gemini/tmp",
    "qwen": ".qwen/projects",
}
AT = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
QUESTION, REPLY = "is it live?", "It is."


class Desk:
    """A home folder with files of programs, and a watcher over it."""

    def __init__(self, database: Database, home: Path, *names: str, **options: Any) -> None:
        self.database = database
        self.home = home
        self.clock = FakeClock(start=AT)
        self.processes: list[ProgramProcess] | None = []
        self.options = {"since": timedelta(days=30), **options}
        self.names = names or tuple(WATCHED_PROGRAMS)
        self.viewer = OPERATORS
        self.watcher = self.build()

    def build(self) -> SessionWatcher:
        return SessionWatcher(
            [WATCHED_PROGRAMS[name] for name in self.names],
            StoreTarget(self.database, self.viewer, machine="desk"),
            self.clock,
            home=self.home,
            env={},
            list_processes=lambda programs: self.processes,
            **self.options,
        )

    def place(self, name: str) -> Path:
        return self.home / PLACES[name]

    def write_sample(self, name: str) -> Path:
        source = SAMPLES[name].write(self.home.parent / f"sample-{name}")
        shutil.copytree(source, self.place(name))
        for file in self.place(name).rglob("*"):
            self.touch(file)
        return self.place(name)

    def touch(self, file: Path) -> None:
        """Give a file the time of the clock, as a program does that writes it now."""
        self.clock.advance(timedelta(seconds=5))
        now = self.clock.now().timestamp()
        os.utime(file, (now, now))

    async def poll(self) -> PollReport:
        self.clock.advance(timedelta(minutes=1))
        return await self.watcher.poll()

    async def sessions(self) -> list[Session]:
        return await self.database.read("test", list_sessions)

    async def messages(self, session: Session) -> list[Message]:
        return await read_messages(self.database, session.id)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def append(file: Path, *records: Json | str) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.writelines(r if isinstance(r, str) else json.dumps(r) + "\n" for r in records)


def claude_talk(number: int, parent: str, question: str, answer: str) -> list[Json]:
    return [
        {
            "uuid": f"w{number}",
            "parentUuid": parent,
            "type": "user",
            "timestamp": iso(number),
            "cwd": "/home/ada/project",
            "message": {"role": "user", "content": question},
        },
        {
            "uuid": f"w{number + 1}",
            "parentUuid": f"w{number}",
            "type": "assistant",
            "timestamp": iso(number + 1),
            "message": {
                "id": f"m{number}",
                "role": "assistant",
                "content": [{"type": "text", "text": answer}],
            },
        },
    ]


def grow_claude_code(place: Path) -> Path:
    file = next(place.rglob("s-one.jsonl"))
    append(file, *claude_talk(1900, "u14", QUESTION, REPLY))
    return file


def grow_codex(place: Path) -> Path:
    file = next(place.rglob("rollout-*000001.jsonl"))
    items = [
        {"type": "UserMessage", "id": "w1", "content": [{"type": "text", "text": QUESTION}]},
        {"type": "AgentMessage", "id": "w2", "content": [{"type": "Text", "text": REPLY}]},
    ]
    lines = [
        {
            "timestamp": iso(1900 + n),
            "ordinal": 900 + n,
            "type": "event_msg",
            "payload": {"type": "item_completed", "turn_id": "w", "item": item},
        }
        for n, item in enumerate(items)
    ]
    append(file, *lines)
    return file


def grow_opencode(place: Path) -> Path:
    file = place / "opencode.db"
    connection = sqlite3.connect(file)
    [session] = connection.execute("select id from session order by time_created limit 1").fetchone()
    at = 1_794_819_900_000
    for n, (role, text) in enumerate(((("user"), QUESTION), ("assistant", REPLY))):
        data = {"role": role, "time": {"created": at + n, "completed": at + n}}
        connection.execute(
            "insert into message (id, session_id, time_created, data) values (?, ?, ?, ?)",
            (f"msg_w{n}", session, at + n, json.dumps(data)),
        )
        connection.execute(
            "insert into part (id, message_id, session_id, data) values (?, ?, ?, ?)",
            (f"prt_w{n}", f"msg_w{n}", session, json.dumps({"type": "text", "text": text})),
        )
    connection.commit()
    connection.close()
    return file


def grow_goose(place: Path) -> Path:
    file = place / "sessions.db"
    connection = sqlite3.connect(file)
    [session] = connection.execute("select id from sessions order by created_at limit 1").fetchone()
    [last] = connection.execute("select max(id) from messages").fetchone()
    for n, (role, text) in enumerate((("user", QUESTION), ("assistant", REPLY)), 1):
        connection.execute(
            "insert into messages (id, session_id, role, content_json, created_timestamp, metadata_json) values (?, ?, ?, ?, ?, ?)",
            (last + n, session, role, json.dumps([{"type": "text", "text": text}]), 1_794_819_900 + n, "{}"),
        )
    connection.commit()
    connection.close()
    return file


def grow_gemini(place: Path) -> Path:
    file = next(place.rglob("session-*.jsonl"))
    append(
        file,
        {"id": "w1", "timestamp": iso(1900), "type": "user", "content": [{"text": QUESTION}]},
        {"id": "w2", "timestamp": iso(1901), "type": "gemini", "content": REPLY},
    )
    return file


def grow_qwen(place: Path) -> Path:
    file = next(place.rglob("s1.jsonl"))
    question = {
        **samples.qwen_lines()[0],
        "uuid": "w1",
        "parentUuid": "q10",
        "timestamp": iso(1900),
        "message": {"role": "user", "parts": [{"text": QUESTION}]},
    }
    answer = {
        **question,
        "uuid": "w2",
        "parentUuid": "w1",
        "type": "assistant",
        "provenance": "assistant_output",
        "message": {"role": "model", "parts": [{"text": REPLY}]},
    }
    append(file, question, answer)
    return file


GROW: Mapping[str, Callable[[Path], Path]] = {
    "claude-code": grow_claude_code,
    "codex": grow_codex,
    "opencode": grow_opencode,
    "goose": grow_goose,
    "gemini": grow_gemini,
    "qwen": grow_qwen,
}


def test_the_programs_that_settings_name_are_those_that_can_be_watched() -> None:
    titles = {name: PROGRAMS[name].title for name in WATCHED_PROGRAMS}
    assert titles == PROGRAM_TITLES


@BOTH_ENGINES
@pytest.mark.parametrize("name", list(WATCHED_PROGRAMS))
async def test_what_a_program_adds_appears_at_once_and_once(
    database: Database, home: Path, name: str
) -> None:
    desk = Desk(database, home, name)
    place = desk.write_sample(name)
    begun = await desk.poll()
    sample = SAMPLES[name].counts
    assert (begun.sessions, begun.messages) == (sample["created"], sample["messages"])
    head = await database.read("test", changes.get_head)

    desk.touch(GROW[name](place))
    grown = await desk.poll()
    assert (grown.sessions, grown.messages) == (1, 2)
    found = [
        session
        for session in await desk.sessions()
        if [m.text for m in (await desk.messages(session))[-2:]] == [QUESTION, REPLY]
    ]
    assert len(found) == 1 and not found[0].archived
    told = await database.read("test", lambda tx: change_feed.list_after(tx, head, limit=100))
    added = [c.subject for c in told if c.kind is ChangeKind.MESSAGE]
    assert added == [f"{found[0].id}.{found[0].last_seq - 1}", f"{found[0].id}.{found[0].last_seq}"]

    before = await read_tables(database)
    assert (await desk.poll()).files == 0
    desk.watcher = desk.build()
    assert (await desk.poll()).messages == 0
    assert await read_tables(database) == before
    assert await verify(database) == []


async def watch_one(database: Database, home: Path, name: str = "claude-code") -> tuple[Desk, Path]:
    """A desk with one conversation of Claude Code: one question and its answer."""
    desk = Desk(database, home, name)
    file = write_lines(desk.place(name) / "-work/s1.jsonl", claude_talk(0, "", "hello there", "Hello."))
    desk.touch(file)
    assert (await desk.poll()).messages == 2
    return desk, file


async def read_texts(desk: Desk) -> list[str]:
    [session] = await desk.sessions()
    return [message.text for message in await desk.messages(session) if not message.undone]


async def test_a_line_that_is_half_written_is_read_when_it_is_complete(
    database: Database, home: Path
) -> None:
    desk, file = await watch_one(database, home)
    line = json.dumps(claude_talk(10, "w1", QUESTION, REPLY)[0]) + "\n"
    append(file, line[:40])
    desk.touch(file)
    done = await desk.poll()
    assert (done.messages, done.problems) == (0, [])
    append(file, line[40:])
    desk.touch(file)
    assert (await desk.poll()).messages == 1
    assert await read_texts(desk) == ["hello there", "Hello.", QUESTION]


async def test_a_file_that_is_cut_or_replaced_loses_nothing_here(database: Database, home: Path) -> None:
    desk, file = await watch_one(database, home)
    write_lines(file, claude_talk(0, "", "hello there", "Hello.")[:1])
    desk.touch(file)
    assert (await desk.poll()).messages == 0
    fresh = write_lines(file.with_suffix(".new"), claude_talk(10, "", QUESTION, REPLY))
    fresh.replace(file)
    desk.touch(file)
    assert (await desk.poll()).messages == 2
    file.unlink()
    assert (await desk.poll()).files == 0
    [session] = await desk.sessions()
    texts = [message.text for message in await desk.messages(session)]
    assert texts == ["hello there", "Hello.", QUESTION, REPLY]


@BOTH_ENGINES
async def test_a_fork_that_begins_while_it_is_watched_knows_its_parent(
    database: Database, home: Path
) -> None:
    desk, file = await watch_one(database, home)
    shared = claude_talk(0, "", "hello there", "Hello.")
    fork = write_lines(file.with_name("s2.jsonl"), [*shared, *claude_talk(20, "w1", "other way", "Yes.")])
    desk.touch(fork)
    await desk.poll()
    first, second = await desk.sessions()
    assert (second.parent, second.parent_seq) == (first.id, 2)
    assert first.messages == 2


async def test_links_and_strange_names_are_left_alone_and_nothing_outside_is_read(
    database: Database, home: Path, tmp_path: Path
) -> None:
    desk = Desk(database, home, "claude-code")
    outside = write_lines(tmp_path / "outside/secret.jsonl", claude_talk(0, "", "a secret", "Kept."))
    folder = desk.place("claude-code") / "-work"
    folder.mkdir(parents=True)
    (folder / "link.jsonl").symlink_to(outside)
    (folder.parent / "linked").symlink_to(outside.parent)
    (folder / "folder.jsonl").mkdir()
    os.mkfifo(folder / "pipe.jsonl")
    names = ["\x1b[31mred.jsonl", "..jsonl", os.fsdecode(b"\xff\xfe.jsonl"), "a" * 240 + ".jsonl"]
    for n, name in enumerate(names):
        desk.touch(write_lines(folder / name, claude_talk(n * 10, "", f"question {n}", "Yes.")))
    done = await desk.poll()
    assert (done.sessions, done.problems) == (4, [])
    said = {m.text for s in await desk.sessions() for m in await desk.messages(s)}
    assert "a secret" not in said and {f"question {n}" for n in range(4)} <= said
    desk.watcher = desk.build()
    assert (await desk.poll()).messages == 0


async def test_a_place_that_cannot_be_read_is_told_once_and_the_others_go_on(
    database: Database, home: Path
) -> None:
    desk = Desk(database, home, "claude-code", "goose", "qwen")
    desk.place("claude-code").parent.mkdir(parents=True)
    desk.place("claude-code").symlink_to(desk.place("claude-code"))
    desk.place("goose").mkdir(parents=True)
    (desk.place("goose") / "sessions.db").write_bytes(b"not a database" * 100)
    desk.touch(desk.place("goose") / "sessions.db")
    desk.write_sample("qwen")
    done = await desk.poll()
    assert done.messages == SAMPLES["qwen"].counts["messages"]
    assert len(done.problems) == 2 and "sessions.db" in done.problems[1]
    assert (await desk.poll()).problems == []


async def test_a_huge_file_is_read_seldom_and_an_old_one_not_at_all(database: Database, home: Path) -> None:
    desk, file = await watch_one(database, home)
    old = write_lines(file.with_name("old.jsonl"), claude_talk(50, "", "long ago", "Yes."))
    past = (desk.clock.now() - timedelta(days=31)).timestamp()
    os.utime(old, (past, past))
    assert (await desk.poll()).files == 0

    class SlowClock(FakeClock):
        """A clock on which reading takes ten seconds."""

        def monotonic(self) -> float:
            self.advance(timedelta(seconds=10))
            return super().monotonic()

    desk.clock = SlowClock(start=desk.clock.now())
    desk.watcher = desk.build()
    append(file, *claude_talk(60, "w1", QUESTION, REPLY))
    desk.touch(file)
    assert (await desk.watcher.poll()).messages == 2
    append(file, *claude_talk(70, "w61", "too soon", "Wait."))
    desk.touch(file)
    assert (await desk.watcher.poll()).files == 0
    desk.clock.advance(timedelta(minutes=10))
    assert (await desk.watcher.poll()).messages == 2
    append(old, *claude_talk(80, "w51", "again", "Yes."))
    desk.touch(old)
    desk.clock.advance(timedelta(minutes=10))
    assert (await desk.watcher.poll()).messages == 4


async def test_two_watchers_of_one_store_add_nothing_twice(database: Database, home: Path) -> None:
    desk, file = await watch_one(database, home)
    other = desk.build()
    await other.poll()
    append(file, *claude_talk(10, "w1", QUESTION, REPLY))
    desk.touch(file)
    await desk.poll()
    await other.poll()
    assert await read_texts(desk) == ["hello there", "Hello.", QUESTION, REPLY]


async def test_a_title_that_comes_later_is_taken_over_unless_a_person_gave_one(
    database: Database, home: Path
) -> None:
    desk, file = await watch_one(database, home)
    append(file, {"type": "ai-title", "aiTitle": "A greeting"})
    desk.touch(file)
    await desk.poll()
    [session] = await desk.sessions()
    assert session.title == "A greeting"
    await database.write("test", lambda tx: sessions.rename(tx, session, "Mine", by=TitleBy.PERSON))
    append(file, {"type": "ai-title", "aiTitle": "Another"})
    desk.touch(file)
    await desk.poll()
    [session] = await desk.sessions()
    assert session.title == "Mine"


async def test_a_conversation_stays_known_when_it_is_given_to_another_person(
    database: Database, home: Path
) -> None:
    desk, file = await watch_one(database, home)
    [session] = await desk.sessions()
    await database.write(
        "test",
        lambda tx: people.transfer_ownership(tx, profile=session.profile, old=session.owner, new=ANN),
    )
    append(file, *claude_talk(10, "w1", QUESTION, REPLY))
    desk.touch(file)
    desk.viewer = ANNS
    desk.watcher = desk.build()
    assert (await desk.poll()).messages == 2
    assert await read_texts(desk) == ["hello there", "Hello.", QUESTION, REPLY]


async def get_state(desk: Desk) -> ProgramState:
    [session] = await desk.sessions()
    watched = await desk.database.read("test", lambda tx: imports.find_watched(tx, session.id))
    assert watched is not None
    return watched.state


@BOTH_ENGINES
async def test_what_a_program_does_with_a_conversation_is_known(database: Database, home: Path) -> None:
    desk, file = await watch_one(database, home)
    assert await get_state(desk) is ProgramState.IDLE
    started = file.stat().st_mtime - 10
    elsewhere = ProgramProcess("claude-code", 1, "/elsewhere", started)
    later = ProgramProcess("claude-code", 2, "/home/ada/project", desk.clock.now().timestamp() + 3600)
    desk.processes = [elsewhere, later]
    await desk.poll()
    assert await get_state(desk) is ProgramState.IDLE
    desk.processes = [ProgramProcess("claude-code", 3, "/home/ada/project", started)]
    await desk.poll()
    assert await get_state(desk) is ProgramState.OPEN
    append(file, claude_talk(10, "w1", QUESTION, REPLY)[0])
    desk.touch(file)
    await desk.poll()
    assert await get_state(desk) is ProgramState.WRITING
    desk.watcher = desk.build()
    await desk.poll()
    assert await get_state(desk) is ProgramState.WRITING
    append(file, claude_talk(10, "w1", QUESTION, "[Request interrupted by user]")[1])
    stopped = {**claude_talk(20, "w11", "[Request interrupted by user]", "")[0]}
    append(file, stopped)
    desk.touch(file)
    await desk.poll()
    assert await get_state(desk) is ProgramState.OPEN
    desk.processes = None
    desk.clock.advance(timedelta(minutes=5))
    await desk.poll()
    assert await get_state(desk) is ProgramState.IDLE


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A process with the name of a program that no process of Keryx or of this test is an ancestor of."""
    program = tmp_path / "bin/claude"
    program.parent.mkdir()
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    started = subprocess.run(
        ["/bin/sh", "-c", f"{program} 600 >/dev/null 2>&1 & echo $!"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    pid = int(started.stdout)
    try:
        yield tmp_path, pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are read from /proc")
async def test_a_process_of_a_program_is_found_with_its_folder(orphan: tuple[Path, int]) -> None:
    folder, pid = orphan
    programs = [WATCHED_PROGRAMS["claude-code"]]

    def find() -> list[ProgramProcess]:
        return [process for process in list_processes(programs) or [] if process.pid == pid]

    await until(lambda: bool(find()))
    [found] = find()
    assert (found.program, Path(found.cwd)) == ("claude-code", folder.resolve())
    assert abs(found.started_at - datetime.now(UTC).timestamp()) < 60
