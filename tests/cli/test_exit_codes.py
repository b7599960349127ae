"""Whatever is wrong: one sentence on stderr, the right exit code, and never a traceback."""

import errno
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.driver import WAIT, Cli, end
from tests.fork_server import build_command

from keryx.cli import exit_codes
from keryx.core.errors import AgentFailed, Ambiguous, DiskFull, KeryxError, LeaseLost, StoreBroken


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["sesions"], 2, 'Did you mean "sessions"?'),
        (["sessions", "lst"], 2, "unknown command"),
        (["sessions", "list", "--nope"], 2, "unknown option: --nope"),
        (["sessions", "list", "--limit", "many"], 2, "--limit"),
        (["sessions", "list", "--limit", "0"], 2, "above zero"),
        (["sessions", "list", "--limit"], 2, "requires an argument"),
        (["sessions", "list", "--state", "asleep"], 2, "--state"),
        (["sessions", "list", "--since", "yesterday"], 2, "7d"),
        (["sessions", "list", "--page", "%%%"], 2, "page cursor"),
        (["sessions", "list", "--project", "none such"], 3, "keryx projects list"),
        (["sessions", "list", "too", "much"], 2, "too many arguments: too much"),
        (["sessions", "show"], 2, "REF requires an argument"),
        (["sessions", "show", "nobody"], 3, "keryx sessions list"),
        (["sessions", "show", "../../etc/passwd"], 2, "cannot name a session"),
        (["sessions", "show", "\x00"], 2, "cannot name a session"),
        (["sessions", "show", ""], 2, "cannot name a session"),
        (["sessions", "show", "x" * 5000], 2, "cannot name a session"),
        (["sessions", "undelete", "nobody"], 3, "keryx sessions list"),
        (["lanes", "show", "nowhere"], 3, "keryx lanes list"),
        (["deliveries", "retry", "nothing"], 3, "keryx deliveries list"),
        (["deliveries", "list", "--state", "lost"], 2, "--state"),
        (["store", "copy", "mysql://host/name", "copy.db"], 2, "postgresql://"),
        (["why", "nonsense"], 2, "is not a message id"),
        (["why", "01jd0abcdefghjkmnp.3"], 3, "keryx sessions list"),
        (["projects", "remove", "nothing", "--yes"], 3, "keryx projects list"),
        (["send"], 2, "nothing to send"),
        (["send", "  "], 2, "nothing to send"),
        (["send", "--wiat", "hi"], 2, "unknown option --wiat"),
        (["send", "--target", "!!", "hi"], 2, "is not a target"),
        (["send", "--target", "local,local:notes", "hi"], 2, "several targets"),
        (["send", "--session", "nobody", "hi"], 3, "keryx sessions list"),
        (["chat", "--continue"], 3, "keryx chat"),
        (["chat", "--resume"], 2, "name of a session"),
        (["chat", "--new", "--continue"], 2, "choose one"),
        (["serve", "--host", "0.0.0.0"], 2, "KERYX_WEB_PASSWORD"),
        (["serve", "--port", "99999"], 2, "is not a port"),
        (["serve", "--agent", "oracle"], 2, "use auto, echo"),
    ],
)  # fmt: skip
def test_wrong_input_gives_one_sentence_and_its_code(
    keryx: Cli, arguments: list[str], code: int, words: str
) -> None:
    result = keryx(*arguments)
    assert (result.code, result.out) == (code, "")
    assert words in result.err
    assert result.err.startswith("keryx: ")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("KERYX_PORT", "many", "port"),
        ("KERYX_DATABASE", "mysql://user@host/name", "postgresql://"),
        ("KERYX_DATABASE", "postgres//user@host/name", "postgresql://"),
        ("KERYX_DATABASE", "postgresql:/user@host/name", "postgresql://"),
        ("KERYX_DRAIN", "soon", "30s"),
        ("KERYX_BUSY", "shout", "busy"),
        ("KERYX_LOG_LEVEL", "loud", "log_level"),
        ("KERYX_PROFILE", "No Such!", "profile"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, variable: str, value: str, words: str) -> None:
    result = Cli(tmp_path, **{variable: value})("sessions", "list")
    assert result.code == 2
    assert words in result.err


def test_a_broken_settings_file_is_named(keryx: Cli) -> None:
    keryx.home.mkdir()
    (keryx.home / "keryx.toml").write_text("port = = 3")
    result = keryx("sessions", "list")
    assert result.code == 2
    assert "keryx.toml" in result.err


def test_a_home_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a letter")
    result = Cli(tmp_path, KERYX_HOME=str(tmp_path / "home"))("sessions", "list")
    assert result.code == 5
    assert "it is a file" in result.err and "KERYX_HOME" in result.err


def test_a_foreign_file_is_not_touched(keryx: Cli) -> None:
    keryx.home.mkdir()
    store = keryx.home / "keryx.db"
    store.write_bytes(b"this is a letter, not a database. " * 100)
    result = keryx("sessions", "list")
    assert result.code == 5
    assert "is not a Keryx store" in result.err
    assert store.read_bytes().startswith(b"this is a letter")


def test_the_database_of_another_program_is_not_touched(keryx: Cli) -> None:
    keryx.home.mkdir()
    with sqlite3.connect(keryx.home / "keryx.db") as other:
        other.execute("create table theirs (x)")
    other.close()
    result = keryx("serve")
    assert result.code == 5
    assert "belongs to another program" in result.err


@pytest.mark.parametrize("arguments", [["sessions", "list"], ["chat", "hi"], ["serve"], ["send", "hi"]])
def test_a_home_that_cannot_be_used_is_named(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "home").write_text("a file where a folder should be")
    result = Cli(tmp_path / "home" / "inner")(*arguments)
    assert result.code == 5
    assert "KERYX_HOME" in result.err
    assert result.err.count("\n") == 1


def test_an_ambiguous_name_asks_for_more(keryx: Cli) -> None:
    first, second = keryx.session("one"), keryx.session("two")
    common = first[: next(n for n in range(18) if first[n] != second[n])]
    result = keryx("sessions", "show", common)
    assert result.code == 4
    assert "longer prefix" in result.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Ambiguous("x"), 4),
        (LeaseLost("x"), 4),
        (StoreBroken("x"), 5),
        (DiskFull("x"), 5),
        (AgentFailed("x"), 1),
        (ExceptionGroup("of tasks", [ValueError(), ExceptionGroup("inner", [DiskFull("x")])]), 5),
        (ValueError("odd"), 70),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_kind_of_error_has_its_code(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> int:
        raise error

    assert exit_codes.run_guarded(work) == code
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    assert ("KERYX_LOG_LEVEL=debug" in shown) == (code == 70)


def test_every_error_of_the_tree_has_a_code() -> None:
    assert exit_codes.CODES[-1][0] is KeryxError


def test_details_are_shown_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KERYX_LOG_LEVEL", "debug")
    assert exit_codes.run_guarded(lambda: 1 // 0) == 70
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_reader_that_went_away_is_no_error(keryx: Cli) -> None:
    keryx.session("!words 20000")
    shell = f"{subprocess.list2cmdline(build_command('sessions', 'show', '--all', '!words 20000'))} | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell],
        env=keryx.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == exit_codes.BROKEN_PIPE


def test_a_listing_loads_nothing_heavy(keryx: Cli) -> None:
    program = (
        "import sys; from keryx.cli.commands import run; run(['sessions', 'list'])\n"
        "heavy = {'rich.console', 'prompt_toolkit', 'uvicorn', 'starlette', 'httpx', 'psycopg', 'pygments'}\n"
        "sys.stderr.write(' '.join(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=keryx.environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def run_in_shell(keryx: Cli, rest: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    shell = f"{subprocess.list2cmdline(build_command(*arguments))} {rest}"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell],
        env=keryx.environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def find_kept(keryx: Cli, told: str) -> str:
    """Follow what a command says about the message that it has sent."""
    assert told.startswith("keryx: ") and told.count("\n") == 1
    _, _, rest = told.partition("; the message is kept: `keryx ")
    return keryx.ok(*rest.partition("`")[0].split()).out


def test_an_answer_that_nobody_reads_to_its_end_is_kept(keryx: Cli) -> None:
    done = run_in_shell(keryx, "| head -c 10", "send", "--wait", "!words 200000")
    assert (done.returncode, done.stdout) == (exit_codes.BROKEN_PIPE, "word1 word")
    assert "word1 word2 word3" in find_kept(keryx, done.stderr)


@pytest.mark.parametrize("options", [[], ["--wait"], ["--json"], ["--wait", "--json"]])
@pytest.mark.parametrize(("stdout", "code"), [("/dev/full", 5), ("&-", 0)])
def test_a_sender_whose_output_is_full_or_closed_says_that_the_message_is_kept(
    keryx: Cli, options: list[str], stdout: str, code: int
) -> None:
    with keryx.serving():
        done = run_in_shell(keryx, f">{stdout}", "send", *options, "hello")
        assert done.returncode == code
        assert "hello" in find_kept(keryx, done.stderr)


def test_a_chat_whose_reader_went_away_ends(keryx: Cli) -> None:
    done = run_in_shell(keryx, "| true", "chat", "!words 200000")
    assert (done.returncode, done.stderr) == (exit_codes.BROKEN_PIPE, "")


@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["chat", "hello"]])
def test_output_to_a_full_disk_is_told(keryx: Cli, arguments: list[str]) -> None:
    done = run_in_shell(keryx, "> /dev/full", *arguments)
    words = "keryx: the output cannot be written (No space left on device): free some space, or send it elsewhere\n"
    assert (done.returncode, done.stderr) == (5, words)


def test_a_closed_output_is_never_mistaken_for_the_store(keryx: Cli) -> None:
    for arguments in (["send", "--wait", "hello"], ["sessions", "list"], ["chat", "again"]):
        done = run_in_shell(keryx, ">&- 2>&- <&-", *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert keryx("verify").code == 0


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "no memory left"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "ulimit -u"),
        (OSError(errno.EMFILE, "Too many open files", "/proc"), "ulimit -n"),
        (OSError(errno.ENFILE, "Too many open files in system"), "fs.file-max"),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), "/x/y: the disk is full"),
        (
            PermissionError(errno.EACCES, "Permission denied", "/x/y"),
            "/x/y: Permission denied: check its rights",
        ),
    ],
)
def test_what_the_system_refuses_is_explained(
    capsys: pytest.CaptureFixture[str], error: Exception, words: str
) -> None:
    def fail() -> None:
        raise error

    assert exit_codes.run_guarded(fail) == 5
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1 and "unexpected" not in told


def forbid_threads() -> None:
    """The stack of a thread is as large as this limit, so that no memory has room for one."""
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 46, hard))


def allow_few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))


@pytest.mark.parametrize(
    "arguments", [["send", "hello"], ["send", "--wait", "hello"], ["serve"], ["sessions", "list"]]
)
@pytest.mark.parametrize(("limit", "words"), [(forbid_threads, "ulimit -u"), (allow_few_files, "ulimit -n")])
def test_a_process_with_too_few_threads_or_files_says_which_limit_to_raise(
    keryx: Cli, arguments: list[str], limit: Callable[[], None], words: str
) -> None:
    done = subprocess.run(
        build_command(*arguments),
        env=keryx.environment(),
        preexec_fn=limit,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5, done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_a_node_that_cannot_print_its_address_works_all_the_same(keryx: Cli) -> None:
    keryx.variables["KERYX_LOG_LEVEL"] = "info"
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen(
            build_command("serve"),
            env=keryx.environment(),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    try:
        assert process.stderr
        assert any("the address cannot be printed" in line for line in iter(process.stderr.readline, ""))
        assert len(keryx.json("sessions", "list")["sessions"]) == 0
        process.terminate()
        assert process.wait(WAIT) == 0
    finally:
        end(process)
