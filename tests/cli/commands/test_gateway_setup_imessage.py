"""`keryx gateway setup imessage`, against a fake of imsg and of BlueBubbles, by the commands of the how-to page."""

import shlex
import stat
import tomllib
from pathlib import Path

import pytest
from tests.cli.driver import Cli
from tests.fakes.imessage import PASSWORD, FakeBlueBubbles, FakeImsg

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "imessage.md").read_text()
ADDRESS = "http://mac.local:1234"


@pytest.fixture
def keryx(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


def read_settings(keryx: Cli) -> dict[str, dict[str, object]]:
    return tomllib.loads((keryx.home / "keryx.toml").read_text())


def find_command(word: str) -> list[str]:
    """Return the arguments of the command on the page that has this word."""
    [line] = [line for line in PAGE.splitlines() if line.startswith("keryx gateway setup") and word in line]
    return shlex.split(line)[1:]


def test_the_page_connects_imsg_by_ssh(keryx: Cli, tmp_path: Path) -> None:
    with FakeImsg(tmp_path / "mac") as mac:
        command = shlex.join(mac.ssh_command)
        given = [command if word == "ssh mac imsg rpc" else word for word in find_command("--transport imsg")]
        done = keryx.ok(*given, "--allow", "+15551234567")
    assert (
        done.out.splitlines()[0] == "imsg reads the messages of the Mac." and done.out.splitlines()[0] in PAGE
    )
    assert read_settings(keryx)["imessage"] == {"transport": "imsg", "command": mac.ssh_command}
    assert read_settings(keryx)["access"]["imessage"] == {"allow": ["+15551234567"]}
    assert "pairing = false" in done.out


def test_the_page_connects_bluebubbles_and_the_password_is_in_a_file_of_its_own(keryx: Cli) -> None:
    path = keryx.home.parent / "password"
    path.write_text(f"{PASSWORD}\n")
    with FakeBlueBubbles() as mac:
        words = {ADDRESS: mac.url, "password": str(path)}
        done = keryx.ok(*(words.get(word, word) for word in find_command("--transport bluebubbles")))
    assert done.out.splitlines()[0] in PAGE
    secrets = {name: keryx.home / "secrets" / f"imessage-{name}" for name in ("password", "secret")}
    assert read_settings(keryx)["imessage"] == {
        "transport": "bluebubbles",
        "base_url": mac.url,
        "url": "http://keryx.local:8420",
        **{name: f"file:{file}" for name, file in secrets.items()},
    }
    assert secrets["password"].read_text() == f"{PASSWORD}\n"
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in secrets.values())
    assert PASSWORD not in done.out + done.err + (keryx.home / "keryx.toml").read_text()


def test_a_wrong_password_is_the_sentence_of_the_page(keryx: Cli) -> None:
    path = keryx.home.parent / "password"
    path.write_text("wrong\n")
    with FakeBlueBubbles() as mac:
        given = ("--transport", "bluebubbles", "--base-url", mac.url, "--password-file", str(path))
        done = keryx("gateway", "setup", "imessage", *given)
    assert done.code != 0 and "BlueBubbles refuses the password" in done.err
    assert "BlueBubbles refuses the password: copy it again" in PAGE
