"""`keryx migrate` through real nodes: every chat goes on, nothing is added twice, and all of it can be taken back."""

import hashlib
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.driver import Cli
from tests.fakes.endpoint import KEY, MODEL, Endpoint, answer
from tests.fakes.telegram import FakeTelegram
from tests.importers.home_samples import GROUP, MODEL_KEY, TOKEN, write_hermes_home, write_openclaw_home

from keryx.cli import settings_migration
from keryx.importers import hermes_setup, openclaw_setup
from keryx.importers.conversation import ImportLog

ROOT = Path(__file__).parent.parent.parent
DIRECT = "agent:main:telegram@900001:dm:4242"
IN_GROUP = f"agent:main:telegram@900001:group:{GROUP}::4242"
TOPIC = f"agent:main:telegram@900001:thread:{GROUP}:5"
# Ids and times of what is made anew.
VOLATILE = ("changes", "lane_moves", "migrations")


@pytest.fixture
def keryx(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home", KERYX_AGENT="auto")


@pytest.fixture
def hermes(tmp_path: Path) -> Path:
    return write_hermes_home(tmp_path / "hermes")


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with FakeTelegram(token=TOKEN) as fake:
        yield fake


def digest(folder: Path) -> dict[str, str]:
    """The bytes of every file of a folder."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def dump(home: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of a store but the feed, and its settings."""
    connection = sqlite3.connect(home / "keryx.db")
    names = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
    rows = {
        name: sorted(connection.execute(f"select * from {name}").fetchall(), key=str)
        for name in names
        if not name.startswith("sqlite_") and name not in VOLATILE
    }
    connection.close()
    settings = home / "keryx.toml"
    return {**rows, "keryx.toml": [(settings.read_text() if settings.exists() else "",)]}


def list_lanes(keryx: Cli) -> dict[str, str]:
    lanes = keryx.json("lanes", "list")["lanes"]
    return {lane["key"]: lane["session"] for lane in lanes if ":telegram@" in lane["key"]}


def show(keryx: Cli, session: str) -> str:
    return keryx.ok("sessions", "show", session).out


def test_every_chat_goes_on_and_nothing_in_between_is_lost(
    keryx: Cli, tmp_path: Path, telegram: FakeTelegram
) -> None:
    with Endpoint(*(answer(f"Answer {n}.") for n in range(4))) as model:
        source = write_hermes_home(
            tmp_path / "hermes", base_url=telegram.url, model=MODEL, model_url=model.base_url, key=KEY
        )
        before = digest(source)
        keryx.ok("migrate", "hermes", str(source), "--yes")
        keryx.ok("migrate", "switch", "hermes", str(source))
        assert digest(source) == before
        # Nobody has the bot now.
        telegram.say("are you there?", chat=4242, name="Ada")
        with keryx.serving():
            assert telegram.wait_for(lambda: "Answer 0." in telegram.texts(4242), 60), telegram.bubbles
            topic: dict[str, Any] = {"message_thread_id": 5, "is_topic_message": True}
            mention = [{"type": "mention", "offset": 0, "length": 10}]
            telegram.say(
                "@keryx_bot in the topic", chat=int(GROUP), user=4242, name="Ada", entities=mention, **topic
            )
            assert telegram.wait_for(lambda: "Answer 1." in telegram.texts(int(GROUP)), 60)
            telegram.say("@keryx_bot in the group", chat=int(GROUP), user=4242, name="Ada", entities=mention)
            assert telegram.wait_for(lambda: "Answer 2." in telegram.texts(int(GROUP)), 60)
            # Eve was let in by pairing, Mallory never.
            telegram.say("it is me", chat=5151, name="Eve")
            assert telegram.wait_for(lambda: "Answer 3." in telegram.texts(5151), 60)
            telegram.say("let me in", chat=6666, name="Mallory")
            assert telegram.wait_for(lambda: bool(telegram.texts(6666)), 60)
        asked = [json.dumps(request["messages"]) for request in model.requests]
    # Each model call has the memory of its own chat, and the personality.
    assert "They greeted." in asked[0] and "and now?" in asked[0] and "are you there?" in asked[0]
    assert "what is new?" in asked[1] and "and now?" not in asked[1]
    assert "where do we eat?" in asked[2] and "what is new?" not in asked[2]
    assert all("You are Miro" in text and "Ada lives in Oslo" in text for text in asked[:4])
    assert "and now?" not in asked[3]
    assert "Answer" not in telegram.texts(6666)[0]
    lanes = list_lanes(keryx)
    assert set(lanes) >= {DIRECT, IN_GROUP, TOPIC}
    assert "are you there?" in show(keryx, lanes[DIRECT]) and "hello there" in show(keryx, lanes[DIRECT])
    assert len(telegram.texts(4242)) == 1


def test_the_plan_shows_everything_and_changes_nothing(keryx: Cli, hermes: Path) -> None:
    shown = keryx.ok("migrate", "hermes", str(hermes), "--dry-run").out
    for words in (
        DIRECT,
        IN_GROUP,
        TOPIC,
        "0 9 * * 1-5 Europe/Berlin",
        "[access.telegram] allow",
        "[[models]]",
    ):
        assert words in shown
    for words in ("chats on irc", "jobs that only run a script", "tool servers (MCP)", "skills: copy"):
        assert words in shown
    assert "[Ada] and when?" in shown and "The train leaves at ten." in shown
    assert TOKEN not in shown and MODEL_KEY not in shown
    assert not (keryx.home / "keryx.toml").exists() and not (keryx.home / "secrets").exists()
    assert list_lanes(keryx) == {} and keryx.json("sessions", "list")["sessions"] == []
    plan = keryx.ok("migrate", "hermes", str(hermes), "--dry-run", "--json")
    assert plan.json["conversations"]["created"] == 6 and TOKEN not in plan.out and MODEL_KEY not in plan.out


def test_a_second_run_changes_nothing_and_brings_only_what_is_new(keryx: Cli, hermes: Path) -> None:
    first = keryx.json("migrate", "hermes", str(hermes), "--yes")
    # The other program has the bot until the switch.
    assert not [finding for finding in first["findings"] if "keryx serve" in finding["remedy"]]
    assert first["added"] == {"chats": 3, "people": 1, "grants": 1, "homes": 1, "jobs": 2, "kept": []}
    before = dump(keryx.home)
    again = keryx.json("migrate", "hermes", str(hermes), "--yes")
    assert again["added"] == {"chats": 0, "people": 0, "grants": 0, "homes": 0, "jobs": 0, "kept": []}
    assert dump(keryx.home) == before
    assert TOKEN not in str(before) and MODEL_KEY not in str(before)
    assert (keryx.home / "secrets/telegram-token").read_text().strip() == TOKEN
    assert (keryx.home / "secrets/telegram-token").stat().st_mode & 0o077 == 0
    # The person began anew in Hermes, and in the group with Keryx.
    connection = sqlite3.connect(hermes / "state.db")
    connection.execute("insert into sessions (id, source, user_id, chat_id, chat_type, started_at) values ('20261117_1', 'telegram', '4242', '4242', 'dm', 1794900000)")  # fmt: skip
    connection.execute("insert into messages (id, session_id, role, content, timestamp, active, compacted) values (90, '20261117_1', 'user', 'a new talk', 1794900001, 1, 0)")  # fmt: skip
    key = "agent:main:telegram:dm:4242"
    [(entry,)] = connection.execute("select entry_json from gateway_routing where session_key = ?", (key,))
    moved = json.dumps({**json.loads(entry), "session_id": "20261117_1"})
    connection.execute("update gateway_routing set entry_json = ? where session_key = ?", (moved, key))
    connection.commit()
    connection.close()
    keryx.ok("lanes", "reset", IN_GROUP)
    reset = list_lanes(keryx)
    third = keryx.json("migrate", "hermes", str(hermes), "--yes")
    assert third["added"]["chats"] == 1 and third["conversations"]["created"] == 1
    lanes = list_lanes(keryx)
    assert "a new talk" in show(keryx, lanes[DIRECT])
    assert lanes[IN_GROUP] == reset[IN_GROUP]


def test_undo_restores_settings_and_keeps_what_was_said_since(keryx: Cli, hermes: Path) -> None:
    keryx.home.mkdir()
    text = '# mine\n[access.telegram]\nallow = ["99"] # me\n\n[limits]\ntotal = "5m"\n'
    (keryx.home / "keryx.toml").write_text(text)
    keryx.session("my own talk")
    before = dump(keryx.home)
    keryx.ok("migrate", "hermes", str(hermes), "--yes")
    written = (keryx.home / "keryx.toml").read_text()
    assert 'allow = ["99","4242","4343"]' in written and "# mine" in written
    result = keryx.json("migrate", "undo", "hermes", "--yes")
    assert result["removed"]["sessions"] == 6 and result["kept"] == [] == result["removed"]["kept"]
    assert dump(keryx.home) == before and (keryx.home / "keryx.toml").read_text() == text
    assert not list((keryx.home / "secrets").iterdir())
    assert keryx("migrate", "undo", "hermes", "--yes").code == 4

    keryx.ok("migrate", "hermes", str(hermes), "--yes")
    session = list_lanes(keryx)[DIRECT]
    keryx.ok("send", "--session", session, "one more question")
    edited = (keryx.home / "keryx.toml").read_text().replace('total = "5m"', 'total = "6m"')
    (keryx.home / "keryx.toml").write_text(edited)
    result = keryx.json("migrate", "undo", "hermes", "--yes")
    assert result["removed"]["sessions"] == 5 and result["removed"]["chats"] == 2
    assert list(list_lanes(keryx).items()) == [(DIRECT, session)]
    assert "one more question" in show(keryx, session)
    left = (keryx.home / "keryx.toml").read_text()
    assert 'allow = ["99"]' in left and 'total = "6m"' in left
    assert "[telegram]" not in left and "[[models]]" not in left and "instructions" not in left
    assert keryx.ok("verify").out


def test_jobs_wait_for_the_switch_and_answers_are_offered(keryx: Cli, hermes: Path) -> None:
    assert keryx("migrate", "switch", "hermes", str(hermes)).code == 4
    keryx.ok("migrate", "hermes", str(hermes), "--yes")
    jobs = {job["name"]: job for job in keryx.json("jobs", "list")["jobs"]}
    assert {job["state"] for job in jobs.values()} == {"paused"}
    assert jobs["News"]["owner"] != "operator" and "keryx migrate switch hermes" in jobs["News"]["why"]
    # A gateway that runs has the bot.
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read() # hermes"], stdin=-1
    ) as gateway:
        (hermes / "gateway.pid").write_text(json.dumps({"pid": gateway.pid, "kind": "hermes-gateway"}))
        refused = keryx("migrate", "switch", "hermes", str(hermes))
        assert refused.code == 4 and "hermes gateway stop" in refused.err
        assert f"process {gateway.pid}" in keryx("migrate", "hermes", str(hermes), "--yes").err
        gateway.kill()
    first = keryx.json("migrate", "switch", "hermes", str(hermes))
    assert first["jobs"] == 1 and first["answers"] == "open" and len(first["unsent"]) == 1
    states = {job["name"]: job["state"] for job in keryx.json("jobs", "list")["jobs"]}
    assert states == {"News": "active", "Water": "paused"}
    assert keryx.json("deliveries", "list")["deliveries"] == []
    assert keryx.json("migrate", "switch", "hermes", str(hermes), "--send-answers")["answers"] == "sent"
    keryx.json("migrate", "switch", "hermes", str(hermes), "--send-answers")
    [delivery] = keryx.json("deliveries", "list")["deliveries"]
    assert delivery["text"] == "(possible repeat) The train leaves at ten."


def test_wrong_and_damaged_sources_are_named(keryx: Cli, hermes: Path, tmp_path: Path) -> None:
    assert keryx("migrate", "hermes", str(tmp_path / "nowhere"), "--yes").code == 2
    assert keryx("migrate", "hermes", str(tmp_path), "--yes").code == 2
    assert keryx("migrate", "openclaw", str(tmp_path), "--yes").code == 2
    assert not (keryx.home / "keryx.toml").exists()
    assert "choose hermes or openclaw" in keryx("migrate", "undo", "claude").err
    (tmp_path / "outside.md").write_text("not to be read")
    (hermes / "SOUL.md").unlink()
    (hermes / "SOUL.md").symlink_to(tmp_path / "outside.md")
    (hermes / "config.yaml").write_text("model: [unclosed")
    (hermes / "cron/jobs.json").write_text('{"jobs": [{"id"')
    partly = keryx("migrate", "hermes", str(hermes), "--yes")
    assert partly.code == 1 and "config.yaml" in partly.err and "jobs.json" in partly.err
    assert "symbolic links, which are not followed" in partly.out
    assert "not to be read" not in (keryx.home / "keryx.toml").read_text()
    assert set(list_lanes(keryx)) == {DIRECT, IN_GROUP, TOPIC}
    shutil.copy(hermes / "config.yaml", hermes / "state.db")
    broken = keryx("migrate", "hermes", str(hermes), "--yes")
    assert broken.code == 2 and "not a readable SQLite database" in broken.err
    assert set(list_lanes(keryx)) == {DIRECT, IN_GROUP, TOPIC}


def test_a_bot_of_keryx_stays_and_the_other_gets_a_name(keryx: Cli, hermes: Path) -> None:
    keryx.home.mkdir()
    (keryx.home / "token").write_text("111:abcdefghijklmnopqrstuvwxyzABCDEFGHI")
    (keryx.home / "keryx.toml").write_text(f'[telegram]\ntoken = "file:{keryx.home}/token"\n')
    keryx.ok("migrate", "hermes", str(hermes), "--yes")
    written = (keryx.home / "keryx.toml").read_text()
    assert "[telegram.hermes]" in written and "[access.telegram.hermes]" in written
    assert DIRECT in list_lanes(keryx)
    assert keryx.ok("doctor").out


def test_openclaw_moves_with_its_chats(keryx: Cli, tmp_path: Path) -> None:
    source = write_openclaw_home(tmp_path / "openclaw")
    before = digest(source)
    result = keryx.json("migrate", "openclaw", str(source), "--yes")
    assert digest(source) == before
    assert result["added"] == {"chats": 2, "people": 1, "grants": 1, "homes": 0, "jobs": 1, "kept": []}
    assert "new talk" in show(keryx, list_lanes(keryx)[DIRECT])
    assert list_lanes(keryx).keys() == {DIRECT, TOPIC}
    [job] = keryx.json("jobs", "list")["jobs"]
    assert job["schedule"]["zone"] == "Asia/Tokyo"
    assert job["targets"] == [{"platform": "telegram", "account": "900001", "chat": "4242"}]
    written = (keryx.home / "keryx.toml").read_text()
    for words in ('allow = ["4242"]', 'groups = ["*"]', "mention = false", "You are a lobster.", "/v1"):
        assert words in written
    assert (keryx.home / "secrets/model-fake").read_text().strip() == MODEL_KEY
    losses = " ".join(loss["what"] for loss in result["plan"]["losses"])
    assert "whatsapp" in losses and "jobs that run a command" in losses
    assert result["plan"]["unsent"] == ["telegram:4242: One more thing."]
    assert keryx.json("migrate", "openclaw", str(source), "--yes")["added"]["chats"] == 0
    assert keryx.json("migrate", "undo", "openclaw", "--yes")["removed"]["jobs"] == 1
    assert list_lanes(keryx) == {} and not (keryx.home / "keryx.toml").exists()


def test_a_migration_on_postgresql(tmp_path: Path, hermes: Path, own_postgres: str) -> None:
    keryx = Cli(tmp_path / "home", KERYX_DATABASE=own_postgres)
    assert keryx.json("migrate", "hermes", str(hermes), "--yes")["added"]["chats"] == 3
    assert keryx.json("migrate", "hermes", str(hermes), "--yes")["added"]["chats"] == 0
    assert keryx.json("migrate", "switch", "hermes", str(hermes), "--send-answers")["jobs"] == 1
    assert set(list_lanes(keryx)) == {DIRECT, IN_GROUP, TOPIC}
    assert keryx.ok("verify").out
    assert keryx.json("migrate", "undo", "hermes", "--yes")["removed"]["sessions"] == 6
    assert list_lanes(keryx) == {} and keryx.json("jobs", "list")["jobs"] == []


def run_until_killed(keryx: Cli, source: Path, label: str, nth: int, when: str) -> int:
    words = ["hermes", str(source), label, str(nth), when]
    command = [sys.executable, "-m", "tests.importers.killed_migration", *words]
    return subprocess.run(command, cwd=ROOT, env=keryx.environment(), timeout=120).returncode


def count_rows(home: Path) -> dict[str, int]:
    return {name: len(rows) for name, rows in dump(home).items()}


def check_kill(tmp_path: Path, hermes: Path, label: str, nth: int, when: str) -> None:
    whole, killed = Cli(tmp_path / "whole"), Cli(tmp_path / f"killed-{label}-{nth}-{when}")
    if not whole.home.exists():
        whole.ok("migrate", "hermes", str(hermes), "--yes")
    assert run_until_killed(killed, hermes, label, nth, when) == -signal.SIGKILL
    killed.ok("migrate", "hermes", str(hermes), "--yes")
    assert count_rows(killed.home) == count_rows(whole.home)
    assert list_lanes(killed) == list_lanes(whole)
    assert killed.ok("verify").code == 0
    killed.ok("migrate", "undo", "hermes", "--yes")
    assert list_lanes(killed) == {} and not (killed.home / "keryx.toml").exists()
    assert killed.json("sessions", "list")["sessions"] == []


def test_a_migration_that_is_killed_in_the_middle_goes_on(tmp_path: Path, hermes: Path) -> None:
    check_kill(tmp_path, hermes, "import.migrate", 4, "after")


@pytest.mark.faults
def test_a_migration_that_is_killed_at_any_commit_goes_on(tmp_path: Path, hermes: Path) -> None:
    for label, nth, when in [
        ("import.migrate", 1, "before"),
        ("import.migrate", 1, "after"),
        ("import", 1, "after"),
        ("import", 3, "before"),
        *(("import.migrate", nth, when) for nth in (2, 3, 5, 7, 9) for when in ("before", "after")),
    ]:
        check_kill(tmp_path, hermes, label, nth, when)


FALLBACKS = """
fallback_providers:
- {provider: deepseek, model: deepseek-chat}
- {provider: somewhere, model: nowhere}
fallback_model: {provider: custom, model: fake-2, base_url: "http://127.0.0.1:8/v1", api_key: sk-2}
"""


def test_models_that_step_in_are_brought_in_their_order(tmp_path: Path) -> None:
    home = write_hermes_home(tmp_path / "hermes")
    with (home / "config.yaml").open("a") as out:
        out.write(FALLBACKS)
    log = ImportLog()
    setup = hermes_setup.read(home, log, {"DEEPSEEK_API_KEY": "sk-deep"})
    assert [model.name for model in setup.models] == ["fake", "deepseek-chat", "fake-2"]
    assert any("somewhere" in what for what in log.losses)
    planned = settings_migration.plan(tmp_path, setup, {}, profile="default", new=[])
    assert tomllib.loads(planned.text)["models"][0]["fallback"] == ["deepseek-chat", "fake-2"]
    assert "sk-deep" not in planned.text and "sk-deep" in planned.secrets.values()

    openclaw = write_openclaw_home(tmp_path / "openclaw")
    file = openclaw / "openclaw.json"
    file.write_text(
        file.read_text().replace('{primary: "rig/fake"}', '{primary: "rig/fake", fallbacks: ["rig/other"]}')
    )
    found = openclaw_setup.read(openclaw, ImportLog(), {})
    assert [(model.name, model.fallback) for model in found.models] == [("fake", ("other",)), ("other", ())]
