"""What a person sees of export, import, verify, backup, restore, copy, stats and doctor."""

import ctypes
import fcntl
import io
import json
import os
import resource
import socket
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, LiteralString, cast

import apsw
import psycopg
import pytest
from tests.cli.driver import Cli
from tests.fork_server import build_command

from keryx.cli.commands import run
from keryx.store.admin import backup
from keryx.store.db import sqlite

_FUTURE = "insert into migrations (number, name, checksum, applied_at) values (9999, 'future', 'x', 0)"
_OLD = "delete from migrations where number = (select max(number) from migrations)"
_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE = 1
_CAP_DAC_READ_SEARCH = 2


class Shell:
    """Runs command lines against a home of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str], home: Path) -> None:
        self._capsys = capsys
        self.home = home
        self.store = home / "keryx.db"

    def __call__(self, *arguments: str, code: int = 0) -> str:
        got = run(arguments)
        out, err = self._capsys.readouterr()
        assert got == code, f"{arguments}: {got}\n{out}\n{err}"
        return out + err

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("KERYX_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KERYX_DATABASE", raising=False)
    monkeypatch.delenv("KERYX_TEST_DATABASE", raising=False)
    monkeypatch.setenv("KERYX_AGENT", "echo")
    monkeypatch.setenv("COLUMNS", "200")
    return Shell(capsys, tmp_path / "home")


@pytest.fixture
def used_shell(shell: Shell) -> Shell:
    shell("send", "hello from Ann", "--wait")
    return shell


def test_an_export_comes_back_into_another_home(
    used_shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "all.jsonl"
    written = used_shell.json("sessions", "export", "--all", "--output", str(file))
    assert (written["sessions"], written["messages"], written["format"]) == (1, 2, "jsonl")
    assert file.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("KERYX_HOME", str(tmp_path / "other"))
    assert used_shell.json("sessions", "import", str(file))["created"] == 1
    assert "unchanged" in used_shell("sessions", "import", str(file))
    assert "hello from Ann" in used_shell("sessions", "show", "hello from Ann")
    assert "in order" in used_shell("verify")


@pytest.mark.parametrize(
    ("name", "begins"), [("x.html", "<!doctype html>"), ("x.md", "# hello"), ("x.jsonl", '{"record"')]
)
def test_the_name_of_the_file_chooses_the_format(
    used_shell: Shell, tmp_path: Path, name: str, begins: str
) -> None:
    used_shell("sessions", "export", "hello from Ann", "--output", str(tmp_path / name))
    assert (tmp_path / name).read_text().startswith(begins)


def test_an_export_comes_through_a_pipe(
    used_shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = used_shell("sessions", "export", "--all", "--output", "-")
    monkeypatch.setenv("KERYX_HOME", str(tmp_path / "other"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert used_shell.json("sessions", "import", "-")["created"] == 1


def test_an_export_goes_to_stdout(used_shell: Shell) -> None:
    assert used_shell("sessions", "export", "--all", "--format", "md").startswith("# hello from Ann")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("export",), 2),
        (("export", "--all", "x"), 2),
        (("export", "nothing-like-it"), 3),
        (("export", "--all", "--json"), 2),
        (("export", "--all", "--output", "/nowhere/at/all.md"), 2),
        (("import", "/nowhere.jsonl"), 2),
    ],
)
def test_wrong_use_is_refused(used_shell: Shell, arguments: tuple[str, ...], code: int) -> None:
    assert used_shell("sessions", *arguments, code=code).startswith("keryx: ")


def test_what_an_import_leaves_out_is_said(used_shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    used_shell("sessions", "export", "--all", "--output", str(file))
    file.write_text(file.read_text() + "garbage\n")
    assert "line 7: not JSON" in used_shell("sessions", "import", str(file), code=1)


def test_verify_names_what_is_wrong(used_shell: Shell) -> None:
    assert used_shell.json("verify")["problems"] == []
    data = bytearray(_settled(used_shell))
    data[4096 * 3 : 4096 * 4] = b"\xff" * 4096
    used_shell.store.write_bytes(bytes(data))
    assert used_shell.json("verify", code=1)["problems"]
    assert "Traceback" not in used_shell("verify", code=1)


def test_verify_names_a_file_that_is_cut_short_once(used_shell: Shell) -> None:
    used_shell.store.write_bytes(_settled(used_shell)[:60_000])
    (problem,) = used_shell.json("verify", code=1)["problems"]
    assert "malformed" in problem["text"]


def test_a_damaged_search_index_is_no_loss_and_is_built_again(used_shell: Shell) -> None:
    used_shell("sessions", "search", "x")
    for file in used_shell.home.glob("keryx-search.db*"):
        file.write_text("no index")
    told = used_shell("verify", code=1)
    assert "keryx store reindex" in told and "restore a backup" not in told
    assert "The search index has" in used_shell("store", "reindex")
    assert "in order" in used_shell("verify")


def test_a_store_of_a_newer_keryx_could_not_be_checked(used_shell: Shell) -> None:
    connection = apsw.Connection(str(used_shell.store))
    connection.execute(_FUTURE)  # pyright: ignore[reportUnknownMemberType]
    connection.close()
    told = used_shell("verify", code=5)
    assert "could not be checked" in told and "upgrade Keryx" in told and "backup" not in told


def test_a_read_only_postgresql_is_checked_and_a_newer_one_could_not_be(
    shell: Shell, postgres: str, new_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = _own_schema(postgres, new_schema)
    monkeypatch.setenv("KERYX_DATABASE", address)
    shell("send", "hello", "--wait")
    monkeypatch.setenv("KERYX_DATABASE", f"{address}%20-c%20default_transaction_read_only%3Don")
    assert "in order" in shell("verify")
    monkeypatch.setenv("KERYX_DATABASE", address)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(_FUTURE)
    told = shell("verify", code=5)
    assert "could not be checked" in told and "upgrade Keryx" in told and "backup" not in told


def forbid_growth() -> None:
    """No file can be written any more, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def drop_rights() -> None:
    """Rights of files count for root too."""
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.mark.parametrize("damage", [False, True])
@pytest.mark.parametrize("limit", [forbid_growth, drop_rights])
def test_a_full_disk_and_a_read_only_home_hide_no_damage_and_are_none(
    used_shell: Shell, limit: Callable[[], None], damage: bool
) -> None:
    if damage:
        used_shell.store.write_bytes(_settled(used_shell)[:60_000])
    used_shell.store.chmod(0o400)
    used_shell.home.chmod(0o500)
    try:
        ran = subprocess.run(
            build_command("verify"),
            preexec_fn=limit,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    finally:
        used_shell.home.chmod(0o700)
    told = ran.stdout + ran.stderr
    assert ran.returncode == (1 if damage else 5), told
    assert ("could not be checked" in told) is not damage
    assert ("restore a backup" in told) is damage


def test_verify_of_nothing_says_so_and_makes_nothing(shell: Shell) -> None:
    assert "there is no store" in shell("verify", code=3)
    assert not shell.store.exists()


def _leave_only_the_log(shell: Shell, *, empty_file: bool) -> dict[str, bytes]:
    """Take the store away after a crash, but not what belongs to it. Return what is left."""
    log = shell.store.with_name("keryx.db-wal")
    log.write_bytes(b"what was committed last" * 1000)
    shell.store.unlink()
    if empty_file:
        shell.store.touch()
    return {path.name: path.read_bytes() for path in (log, shell.store) if path.exists()}


@pytest.mark.parametrize("empty_file", [False, True])
@pytest.mark.parametrize("arguments", [("doctor",), ("verify",), ("sessions", "list"), ("serve",)])
def test_a_log_without_its_store_is_left_alone_and_told(
    used_shell: Shell, arguments: tuple[str, ...], empty_file: bool
) -> None:
    left = _leave_only_the_log(used_shell, empty_file=empty_file)
    told = used_shell(*arguments, code=1 if arguments == ("doctor",) else 5)
    assert "a store was here" in told and "keryx restore" in told and "--new-store" in told
    assert {name: (used_shell.home / name).read_bytes() for name in left} == left
    assert used_shell.store.exists() is empty_file


def test_a_search_index_without_its_store_is_told(used_shell: Shell) -> None:
    used_shell("sessions", "search", "hello")
    for file in used_shell.home.glob("keryx.db*"):
        file.unlink()
    assert "a store was here" in used_shell("send", "hello", code=5)
    assert not used_shell.store.exists()


def test_an_index_of_nothing_is_no_sign_of_a_lost_store(shell: Shell) -> None:
    shell("sessions", "search", "hello", code=0)
    for file in shell.home.glob("keryx.db*"):
        file.unlink()
    shell("send", "hello", "--wait")


def test_a_backup_takes_the_place_of_a_lost_store_without_its_log(used_shell: Shell, tmp_path: Path) -> None:
    used_shell("backup", str(tmp_path / "b.db"))
    left = _leave_only_the_log(used_shell, empty_file=False)
    used_shell("restore", str(tmp_path / "b.db"))
    assert "in order" in used_shell("verify")
    (aside,) = used_shell.home.glob("keryx.db.before-*-wal")
    assert aside.read_bytes() == left["keryx.db-wal"]


def test_a_new_store_begins_beside_what_is_left_of_a_lost_one(used_shell: Shell) -> None:
    used_shell("sessions", "search", "hello")
    left = _leave_only_the_log(used_shell, empty_file=True)
    node = Cli(used_shell.home)
    with node.serving("--new-store"):
        assert node.json("sessions", "list")["sessions"] == []
    (aside,) = used_shell.home.glob("keryx.db.before-*-wal")
    assert aside.read_bytes() == left["keryx.db-wal"]
    assert list(used_shell.home.glob("keryx-search.db.before-*"))
    assert "is there" in used_shell("serve", "--new-store", code=4)


def test_doctor_and_verify_neither_migrate_nor_checkpoint(used_shell: Shell) -> None:
    with closing(apsw.Connection(str(used_shell.store))) as connection:
        connection.wal_autocheckpoint(0)
        connection.execute("update migrations set applied_at = 0")  # pyright: ignore[reportUnknownMemberType]
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    files = [used_shell.store, used_shell.store.with_name("keryx.db-wal")]
    before = [file.read_bytes() for file in files]
    used_shell("verify")
    used_shell("doctor")
    assert before[1] and [file.read_bytes() for file in files] == before
    with closing(apsw.Connection(str(used_shell.store))) as connection:
        connection.execute(_OLD)  # pyright: ignore[reportUnknownMemberType]
    assert "from an older Keryx" in used_shell("doctor", code=1)
    assert "could not be checked" in used_shell("verify", code=5)


def test_doctor_makes_no_tables_in_an_empty_postgresql(
    shell: Shell, postgres: str, new_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = _own_schema(postgres, new_schema)
    monkeypatch.setenv("KERYX_DATABASE", address)
    assert "there is no store yet" in shell("doctor")
    assert "there is no store yet" in shell("verify", code=3)
    with psycopg.connect(address) as connection:
        assert connection.execute("select to_regclass('migrations')").fetchone() == (None,)


def test_a_backup_is_restored(used_shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "b.db"
    assert used_shell.json("backup", str(file))["size"] == file.stat().st_size
    assert "is there already" in used_shell("backup", str(file), code=2)
    used_shell("send", "later", "--wait")
    assert "--force" in used_shell("restore", str(file), code=4)
    aside = used_shell.json("restore", str(file), "--force")["aside"]
    assert Path(aside).exists()
    assert used_shell.json("sessions", "stats")["messages"] == 2


def test_a_restore_is_refused_while_keryx_serves(used_shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "b.db"
    used_shell("backup", str(file))
    with Path(f"{used_shell.store}.serve-lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "keryx serve" in used_shell("restore", str(file), "--force", code=4)


def test_a_damaged_backup_is_not_restored(used_shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "b.db"
    used_shell("backup", str(file))
    file.write_bytes(file.read_bytes()[:-1])
    before = used_shell.store.read_bytes()
    used_shell("restore", str(file), "--force", code=5)
    assert used_shell.store.read_bytes() == before


def test_a_store_is_copied_to_postgresql_and_back(
    used_shell: Shell, tmp_path: Path, postgres: str, new_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = _own_schema(postgres, new_schema)
    tables = used_shell.json("store", "copy", str(used_shell.store), address)["tables"]
    assert {t["table"]: t["rows"] for t in tables}["messages"] == 2
    assert "not empty" in used_shell("store", "copy", str(used_shell.store), address, code=4)
    back = tmp_path / "back.db"
    assert "Everything has arrived" in used_shell("store", "copy", address, str(back))
    monkeypatch.setenv("KERYX_DATABASE", address)
    assert "in order" in used_shell("verify")
    backup = tmp_path / "b.db"
    used_shell("backup", str(backup))
    assert "not empty" in used_shell("restore", str(backup), code=4)
    assert "PostgreSQL" not in used_shell("doctor")


def test_stats_count_what_is_there(used_shell: Shell) -> None:
    found = used_shell.json("sessions", "stats")
    assert (found["sessions"], found["messages"], found["turns"]) == (1, 2, {"done": 1})
    assert found["busiest"][0]["title"] == "hello from Ann"
    assert "hello from Ann" in used_shell("sessions", "stats")


def test_the_doctor_finds_a_healthy_installation_healthy(used_shell: Shell) -> None:
    found = used_shell.json("doctor")
    assert found["healthy"]
    assert {f["name"] for f in found["findings"]} >= {
        "python",
        "sqlite",
        "home",
        "disk",
        "store",
        "node",
        "clock",
    }


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("prot = 1", "line 1: Unknown setting prot; did you mean port?"),
        ("port = 'x'", "port"),
        ("[limits]\nat_onc = 3", "line 2: Unknown setting limits.at_onc; did you mean limits.at_once?"),
        ("port = ", "cannot be read"),
    ],
)
def test_the_doctor_names_wrong_settings(used_shell: Shell, config: str, text: str) -> None:
    (used_shell.home / "keryx.toml").write_text(config)
    assert text in used_shell("doctor", code=1)


def test_the_doctor_names_a_variable_that_means_nothing(
    used_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERYX_PROT", "1")
    for name in ("doctor", "config"):
        assert "Unknown setting KERYX_PROT; did you mean KERYX_PORT?" in used_shell(name)


def test_the_doctor_names_a_misspelt_variable_of_a_platform(
    used_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERYX_TELEGRAM_TOKN", "1:x")
    told = "Unknown setting KERYX_TELEGRAM_TOKN; did you mean KERYX_TELEGRAM_TOKEN?"
    for name in ("doctor", "config"):
        assert told in used_shell(name)
    assert "all settings are known" not in used_shell("doctor")
    # An account that lacks its token is where it matters most.
    (used_shell.home / "keryx.toml").write_text("[telegram]\nper_second = 3\n")
    shown = used_shell("doctor", code=1)
    assert told in shown and "[telegram] lacks token" in shown


def test_the_doctor_names_the_setting_of_a_secret_that_cannot_be_read(used_shell: Shell) -> None:
    (used_shell.home / "keryx.toml").write_text('[telegram.work]\ntoken = "file:/no/such"\n')
    assert "telegram.work.token cannot be read from /no/such: no such file" in used_shell("doctor", code=1)


def test_the_doctor_names_agents_models_keys_and_platforms_that_are_not_there(
    used_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERYX_AGENT")
    (used_shell.home / "keryx.toml").write_text(
        """
agent = "lm"
model = "fats"
models = [{ name = "fast", base_url = "http://127.0.0.1:1/v1", id = "x", key = "env:NOT_SET_HERE" }]
[access.telegrm]
allow = ["1"]
[resets.platforms.matrx]
mode = "idle"
[agents.echoing]
kind = "echo"
[[agents.echoing.rules]]
platform = "slak"
[[profiles.work.rules]]
platform = "discrod"
[jobs]
fallback = "telegrom:42"
[watch]
person = "signl:1"
[keep.sessions]
clii = "30d"
"*" = "1y"
[permissions.gatway]
"*" = "ask"
"""
    )
    found = {f["text"]: f["remedy"] for f in used_shell.json("doctor", code=1)["findings"]}
    assert "llm" in found["There is no agent 'lm'."]
    assert found["There is no model 'fats'."] == "choose fast"
    assert any("set the variable NOT_SET_HERE" in text for text in found)
    assert found["access.telegrm: there is no platform 'telegrm'."] == "did you mean telegram?"
    assert found["resets.platforms.matrx: there is no platform 'matrx'."] == "did you mean matrix?"
    assert found["agents.echoing.rules[0].platform: there is no platform 'slak'."] == "did you mean slack?"
    assert (
        found["profiles.work.rules[0].platform: there is no platform 'discrod'."] == "did you mean discord?"
    )
    assert found["jobs.fallback: there is no platform 'telegrom'."] == "did you mean telegram?"
    assert found["watch.person: there is no platform 'signl'."] == "did you mean signal?"
    assert found["keep.sessions.clii: there is no surface 'clii'."] == "did you mean cli?"
    assert found["permissions.gatway: there is no surface 'gatway'."] == "did you mean gateway?"
    assert not any("'*'" in text for text in found)


def test_the_doctor_names_programs_and_folders_that_are_not_there(used_shell: Shell, tmp_path: Path) -> None:
    program = tmp_path / "own-agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (used_shell.home / "keryx.toml").write_text(
        f"""
[agents.gone]
kind = "acp"
command = ["no-such-agent", "acp"]
[agents.lost]
kind = "acp"
command = ["sh"]
cwd = "{tmp_path}/none"
[agents.own]
kind = "acp"
command = ["own-agent"]
env = {{ PATH = "text:{tmp_path}" }}
[[tools]]
name = "files"
command = ["no-such-server"]
"""
    )
    found = doctor_findings(used_shell.json("doctor", code=1), "programs")
    assert [(level, text) for level, text, _ in found] == [
        ("problem", "[agents.gone]: there is no program 'no-such-agent'."),
        ("problem", f"[agents.lost]: there is no folder '{tmp_path}/none'."),
        ("warning", "tools 'files': there is no program 'no-such-server'."),
    ]


def test_the_doctor_sees_that_the_port_is_taken(used_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        monkeypatch.setenv("KERYX_PORT", port)
        assert f"127.0.0.1:{port} cannot be used" in used_shell("doctor")
    assert "cannot be used" not in used_shell("doctor")


def test_the_doctor_sees_rights_and_damage(used_shell: Shell) -> None:
    used_shell.home.chmod(0o755)
    assert "chmod 700" in used_shell("doctor")
    used_shell.store.write_bytes(b"damage" * 5000)
    assert "problem  store" in used_shell("doctor", code=1)


def test_the_doctor_sees_work_that_nobody_does(used_shell: Shell) -> None:
    used_shell("send", "and nobody answers")
    _age(used_shell.store)
    out = used_shell("doctor", code=1)
    assert "nobody answers, and something waits" in out
    assert "1 turn waits" in out


def doctor_findings(found: Any, name: str) -> list[tuple[str, str, str]]:
    return [(f["level"], f["text"], f["remedy"]) for f in found["findings"] if f["name"] == name]


def test_the_doctor_tries_a_write_the_index_and_the_secrets(used_shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("geheim")
    (used_shell.home / "keryx.toml").write_text(
        f'models = [{{ name = "m", base_url = "http://127.0.0.1:1/v1", id = "x", key = "file:{tmp_path}/key" }}]'
    )
    found = used_shell.json("doctor")
    assert ("ok", "it takes writes", "") in doctor_findings(found, "store")
    assert "there is no index yet" in doctor_findings(found, "search")[0][1]
    assert doctor_findings(found, "keys") == [("ok", "1 secret can be read", "")]
    used_shell("sessions", "search", "hello")
    assert "up to date" in doctor_findings(used_shell.json("doctor"), "search")[0][1]
    used_shell("send", "and more", "--wait")
    assert "lacks" in doctor_findings(used_shell.json("doctor"), "search")[0][1]


def test_the_doctor_sees_a_store_that_is_kept_locked(
    used_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_MILLISECONDS", 50)
    with closing(apsw.Connection(str(used_shell.store))) as connection:
        connection.execute("begin immediate")  # pyright: ignore[reportUnknownMemberType]
        ((level, text, remedy),) = [
            f for f in doctor_findings(used_shell.json("doctor", code=1), "store") if "written" in f[1]
        ]
    assert level == "problem" and "another process holds it" in text and remedy


@pytest.mark.parametrize("store", ["/dev/full", "/dev/null", "folder", "pipe"])
def test_a_store_that_is_not_a_file_is_refused(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("KERYX_DATABASE", str(tmp_path / store))
    assert "is not a file" in shell("send", "hello", code=5)
    assert "is not a file" in shell("doctor", code=1)


def test_the_doctor_sees_that_no_store_can_be_made(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.home.mkdir()
    monkeypatch.setenv("KERYX_DATABASE", "/proc/keryx/keryx.db")
    assert "/proc/keryx cannot be written" in shell("doctor", code=1)


def test_the_doctor_and_a_start_see_that_a_table_is_missing(used_shell: Shell) -> None:
    with closing(apsw.Connection(str(used_shell.store))) as connection:
        connection.execute("alter table messages rename to away")  # pyright: ignore[reportUnknownMemberType]
    found = doctor_findings(used_shell.json("doctor", code=1), "store")
    assert any(level == "problem" and "no such table: messages" in text for level, text, _ in found)
    ran = subprocess.run(build_command("serve"), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr.count("\n")) == (5, 1), ran.stderr


def test_the_doctor_sees_a_damaged_index(used_shell: Shell) -> None:
    used_shell("sessions", "search", "hello")
    for file in used_shell.home.glob("keryx-search.db*"):
        file.write_text("no index")
    ((level, text, remedy),) = doctor_findings(used_shell.json("doctor"), "search")
    assert level == "warning" and "damaged" in text and "keryx store reindex" in remedy


def test_the_doctor_sees_files_that_it_may_not_read_or_write(used_shell: Shell) -> None:
    used_shell("sessions", "search", "hello")
    secrets = used_shell.home / "secrets"
    secrets.mkdir(exist_ok=True)
    (secrets / "web.key").write_bytes(bytes(32))
    paths = [used_shell.home / "keryx-search.db", secrets / "web.key", used_shell.store]
    modes = [path.stat().st_mode for path in paths]
    paths[0].chmod(0)
    paths[1].chmod(0)
    paths[2].chmod(0o400)
    try:
        ran = subprocess.run(
            build_command("doctor", "--json"),
            preexec_fn=drop_rights,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    finally:
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)
    assert ran.returncode == 1, ran.stderr
    found = json.loads(ran.stdout)
    assert "not written" in doctor_findings(found, "store")[1][1]
    assert doctor_findings(found, "search")[0][0] == "problem"
    assert "web.key cannot be read" in doctor_findings(found, "keys")[0][1]


def test_the_doctor_sees_a_full_disk(used_shell: Shell) -> None:
    ran = subprocess.run(
        build_command("doctor"),
        preexec_fn=forbid_growth,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1, ran.stderr
    assert "cannot be written" in ran.stdout and "free some space" in ran.stdout


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ('[web]\nsecret = "env:NOT_SET_HERE"', "web.secret is missing"),
        ('[web]\npassword_from = "file:/nowhere/at/all"', "web.password_from cannot be read"),
        (
            '[email]\naddress = "a@b.example"\npassword = "file:/nowhere/at/all"',
            "password of [email] cannot be read",
        ),
    ],
)
def test_the_doctor_names_a_secret_that_cannot_be_read(used_shell: Shell, settings: str, text: str) -> None:
    (used_shell.home / "keryx.toml").write_text(settings)
    assert text in used_shell("doctor", code=1)


@pytest.mark.parametrize(
    ("obstacle", "words"),
    [
        ("lock table {schema}.messages in access exclusive mode", "pg_terminate_backend"),
        ("lock table {schema}.turns in share mode", "pg_terminate_backend"),
        ("alter database {database} set default_transaction_read_only = on; commit", "name the primary"),
    ],
)
def test_the_doctor_sees_a_postgresql_that_takes_no_writes(
    shell: Shell, own_postgres: str, monkeypatch: pytest.MonkeyPatch, obstacle: str, words: str
) -> None:
    # Otherwise each look at a locked table takes ten seconds.
    monkeypatch.setenv("KERYX_DATABASE", f"{own_postgres}?options=-c%20lock_timeout%3D500ms")
    shell("send", "hello", "--wait")
    assert "it takes writes" in shell("doctor")
    with psycopg.connect(own_postgres) as other:
        database = own_postgres.rpartition("/")[2]
        other.execute(cast(LiteralString, obstacle.format(schema="public", database=database)))
        assert words in shell("doctor", code=1)


def test_the_doctor_sees_that_postgresql_is_away(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERYX_DATABASE", "postgresql://user:secret@127.0.0.1:1/none")
    out = shell("doctor", code=1)
    assert "check that it runs" in out
    assert "secret" not in out


def _settled(shell: Shell) -> bytes:
    assert backup.fold_wal(shell.store)
    return shell.store.read_bytes()


def _age(store: Path) -> None:
    """Let what waits have waited for an hour."""
    connection = apsw.Connection(str(store))
    connection.execute("update turns set created_at = created_at - 3600000000 where state = 'queued'")  # pyright: ignore[reportUnknownMemberType]
    connection.close()


def _own_schema(postgres: str, schema: str) -> str:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(cast(LiteralString, f'create schema "{schema}"'))
    return f"{postgres}?options=-csearch_path%3D{schema}"
