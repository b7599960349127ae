"""`keryx gateway setup matrix`, against a fake homeserver."""

import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.driver import Cli
from tests.fakes.matrix import PERSON, FakeMatrix

ROOT = Path(__file__).parents[3]
ROOM = "!direct:fake.test"
PAGE = ROOT / "docs" / "how-to" / "matrix.md"


@pytest.fixture
def matrix() -> Iterator[FakeMatrix]:
    with FakeMatrix() as fake:
        yield fake


@pytest.fixture
def keryx(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


def settings(keryx: Cli) -> dict[str, dict[str, object]]:
    return tomllib.loads((keryx.home / "keryx.toml").read_text())


def password(keryx: Cli, matrix: FakeMatrix) -> str:
    path = keryx.home.parent / "password"
    path.write_text(f"{matrix.password}\n")
    return str(path)


def test_a_password_becomes_a_token_and_is_kept_nowhere(keryx: Cli, matrix: FakeMatrix) -> None:
    given = ("--homeserver", matrix.url, "--user", matrix.user, "--allow", "@ann:fake.test")
    done = keryx.ok("gateway", "setup", "matrix", *given, "--password-file", password(keryx, matrix))
    token = keryx.home / "secrets" / "matrix-token"
    assert settings(keryx)["matrix"] == {
        "homeserver": matrix.url,
        "user": matrix.user,
        "token": f"file:{token}",
    }
    assert settings(keryx)["access"]["matrix"] == {"allow": ["@ann:fake.test"]}
    assert token.read_text() == f"{matrix.token}\n" and stat.S_IMODE(token.stat().st_mode) == 0o600
    written = "".join(p.read_text() for p in keryx.home.rglob("*") if p.is_file()) + done.out + done.err
    assert matrix.password not in written and matrix.token not in done.out
    assert matrix.user in keryx.ok("config").out


def test_the_page_shows_what_the_command_says(keryx: Cli, matrix: FakeMatrix) -> None:
    given = ("--homeserver", matrix.url, "--user", matrix.user, "--allow", "@you:example.org")
    done = keryx.ok("gateway", "setup", "matrix", *given, "--password-file", password(keryx, matrix))
    shown = done.out.replace(str(keryx.home), "/home/you/.keryx").replace(matrix.user, "@keryx:example.org")
    assert shown in PAGE.read_text()


def test_the_page_leads_from_nothing_to_an_answer_and_to_the_commands_of_operators(
    keryx: Cli, matrix: FakeMatrix
) -> None:
    given = ("--homeserver", matrix.url, "--user", matrix.user, "--allow", PERSON)
    keryx.ok("gateway", "setup", "matrix", *given, "--password-file", password(keryx, matrix))
    with keryx.serving():
        matrix.invite(ROOM, by=PERSON)
        assert matrix.wait_for(lambda: ROOM not in matrix.invitations)
        matrix.say(ROOM, "hello")
        assert matrix.wait_for(lambda: matrix.texts(ROOM)[-1:] == ["hello"]), matrix.texts(ROOM)
        matrix.say(ROOM, "!home")
        assert matrix.wait_for(lambda: len(matrix.texts(ROOM)) == 2)
        assert "operator" in matrix.texts(ROOM)[-1]
        links = {c["platform"]: c["link"] for c in keryx.json("gateway", "status")["connections"]}
        assert links["matrix"] == "connected"
    [block] = [b for b in re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL) if "operators" in b]
    written, path = settings(keryx), keryx.home / "keryx.toml"
    assert tomllib.loads(block)["access"]["matrix"]["allow"] == ["@you:example.org"]
    path.write_text(
        path.read_text().partition("[access.matrix]")[0] + block.replace("@you:example.org", PERSON)
    )
    assert settings(keryx)["matrix"] == written["matrix"]
    with keryx.serving():
        matrix.say(ROOM, "!home")
        assert matrix.wait_for(lambda: len(matrix.texts(ROOM)) == 3)
        assert "operator" not in matrix.texts(ROOM)[-1]


def test_a_token_is_taken_from_a_file_or_a_variable(keryx: Cli, matrix: FakeMatrix, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(matrix.token)
    given = ("--homeserver", matrix.url, "--token-file", str(tmp_path / "token"))
    assert keryx.json("gateway", "setup", "matrix", *given)["user"] == matrix.user
    assert settings(keryx)["matrix"]["user"] == matrix.user
    other = Cli(tmp_path / "other", KERYX_MATRIX_TOKEN=matrix.token)
    done = other.ok("gateway", "setup", "matrix", "--homeserver", matrix.url)
    assert "[access.matrix] allow" in done.out and "access" not in settings(other)


def test_a_person_is_asked_and_the_password_is_not_shown(keryx: Cli, matrix: FakeMatrix) -> None:
    with keryx.terminal("gateway", "setup", "matrix") as terminal:
        terminal.see("Homeserver")
        terminal.type(f"{matrix.url}\n")
        terminal.see("Account")
        terminal.type("keryx\n")
        terminal.see("Password")
        terminal.type(f"{matrix.password}\n")
        terminal.see("Who may talk")
        terminal.type("@ann:fake.test, @bob:fake.test\n")
        terminal.see("Next:")
        assert terminal.exit() == 0
        assert matrix.password not in terminal.raw and matrix.token not in terminal.raw
    assert settings(keryx)["access"]["matrix"] == {"allow": ["@ann:fake.test", "@bob:fake.test"]}


def test_what_is_wrong_is_said_in_a_sentence_and_nothing_is_written(
    keryx: Cli, matrix: FakeMatrix, tmp_path: Path
) -> None:
    (tmp_path / "wrong").write_text("wrong")
    there = ("--homeserver", matrix.url)
    cases = [
        ((*there, "--user", "keryx", "--password-file", str(tmp_path / "wrong")), 1, "name and password"),
        ((*there, "--password-file", str(tmp_path / "wrong")), 2, "--user"),
        ((*there, "--token-file", str(tmp_path / "wrong")), 1, "refuses the access token"),
        ((*there, "--token-file", str(tmp_path / "none")), 2, "cannot be read"),
        ((*there,), 2, "nobody can be asked"),
        (("--homeserver", "ftp://x", "--token-file", str(tmp_path / "wrong")), 2, "not the address"),
        (("--homeserver", "http://127.0.0.1:9", "--user", "k"), 5, "cannot be reached"),
    ]
    for arguments, code, words in cases:
        done = keryx("gateway", "setup", "matrix", *arguments)
        assert (done.code, words in done.err, "Traceback" in done.err) == (code, True, False), done
    assert not (keryx.home / "keryx.toml").exists() and not (keryx.home / "secrets").exists()


def test_a_token_of_another_account_is_refused(keryx: Cli, matrix: FakeMatrix, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(matrix.token)
    given = ("--homeserver", matrix.url, "--token-file", str(tmp_path / "token"), "--user", "@eve:fake.test")
    done = keryx("gateway", "setup", "matrix", *given)
    assert done.code == 1 and matrix.user in done.err


def test_a_person_who_cannot_exist_is_refused_before_anything_is_asked_or_written(
    keryx: Cli, matrix: FakeMatrix, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(matrix.token)
    given = ("--homeserver", matrix.url, "--token-file", str(tmp_path / "token"))
    done = keryx("gateway", "setup", "matrix", *given, "--allow", "ann")
    assert done.code == 2, done
    assert "'ann' is no person on Matrix: the id of one is a whole name, such as @ann:example.org" in done.err
    assert not (keryx.home / "keryx.toml").exists()
    keryx.ok("gateway", "setup", "matrix", *given, "--allow", "@ann:fake.test, *")
    assert settings(keryx)["access"]["matrix"] == {"allow": ["@ann:fake.test", "*"]}


def test_a_person_who_cannot_exist_is_asked_for_again(keryx: Cli, matrix: FakeMatrix, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(matrix.token)
    given = ("--homeserver", matrix.url, "--token-file", str(tmp_path / "token"))
    with keryx.terminal("gateway", "setup", "matrix", *given) as terminal:
        terminal.see("Who may talk")
        terminal.type("ann\n")
        terminal.see("'ann' is no person on Matrix")
        terminal.type("@ann:fake.test\n")
        terminal.see("Next:")
        assert terminal.exit() == 0
    assert settings(keryx)["access"]["matrix"] == {"allow": ["@ann:fake.test"]}
