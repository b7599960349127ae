"""`keryx gateway setup telegram`, and the way from nothing to a paired bot as the how-to tells it."""

import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.driver import Cli
from tests.fakes.telegram import TOKEN, FakeTelegram

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "telegram.md").read_text(encoding="utf-8")
SETUP = ("gateway", "setup", "telegram")
_CODE = re.compile(r"approve telegram ([A-Z0-9]{8})")


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with FakeTelegram() as fake:
        yield fake


@pytest.fixture
def keryx(tmp_path: Path, telegram: FakeTelegram) -> Cli:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    return Cli(tmp_path / "home", KERYX_TELEGRAM_BASE_URL=telegram.url)


def token_file(keryx: Cli) -> tuple[str, str]:
    return "--token-file", str(keryx.home.parent / "token")


def test_from_nothing_to_a_paired_bot(keryx: Cli, telegram: FakeTelegram) -> None:
    done = keryx.ok(*SETUP, *token_file(keryx))
    assert done.out.replace(str(keryx.home), "/home/you/.keryx") in PAGE
    with keryx.serving():
        telegram.say("hello")
        assert telegram.wait_for(lambda: len(telegram.bubbles) == 1)
        [told] = telegram.texts()
        code = _CODE.search(told)
        assert code and told.replace(code[1], "ABCD2345") in PAGE
        keryx.ok("pairing", "approve", "telegram", code[1], "--operator")
        assert telegram.wait_for(lambda: len(telegram.bubbles) == 2)
        telegram.say("hello")
        assert telegram.wait_for(lambda: len(telegram.bubbles) == 3)
        assert telegram.texts()[2] == "hello"
        assert keryx.until("connected", "gateway", "status")


def test_the_token_is_in_a_file_of_its_own_and_nowhere_else(keryx: Cli) -> None:
    keryx.home.mkdir()
    (keryx.home / "keryx.toml").write_text("# mine\nbusy = 'steer' # why not\n")
    done = keryx.ok(*SETUP, *token_file(keryx))
    kept = keryx.home / "secrets" / "telegram-token"
    assert kept.read_text() == f"{TOKEN}\n" and stat.S_IMODE(kept.stat().st_mode) == 0o600
    written = (keryx.home / "keryx.toml").read_text()
    assert written.startswith("# mine\nbusy = 'steer' # why not\n")
    assert tomllib.loads(written)["telegram"] == {"token": f"file:{kept}"}
    assert TOKEN not in written + done.out + done.err + keryx.ok("config").out


def test_a_person_is_told_what_to_do_and_the_token_is_not_shown(keryx: Cli) -> None:
    with keryx.terminal(*SETUP) as terminal:
        terminal.see("@BotFather")
        terminal.see("Token (not shown):")
        terminal.type(f"{TOKEN}\n")
        terminal.see("Next:")
        assert terminal.exit() == 0
        assert TOKEN not in terminal.raw


def test_json_and_a_variable_are_for_scripts(keryx: Cli) -> None:
    keryx.variables["KERYX_TELEGRAM_TOKEN"] = TOKEN
    found = keryx.json(*SETUP)
    assert (found["id"], found["username"], found["name"]) == (424242, "keryx_bot", "Keryx")


@pytest.mark.parametrize(
    ("token", "code", "words"),
    [
        ("424242:another-token", 1, "Telegram does not know this token"),
        ("hunter2", 2, "does not look like a Telegram token"),
        ("", 2, "/token is empty"),
    ],
)
def test_a_wrong_token_is_one_sentence(keryx: Cli, token: str, code: int, words: str) -> None:
    Path(token_file(keryx)[1]).write_text(token)
    done = keryx(*SETUP, *token_file(keryx))
    assert (done.code, words in done.err, "Traceback" in done.err) == (code, True, False), done
    assert not token or token not in done.err
    assert not (keryx.home / "keryx.toml").exists() and not (keryx.home / "secrets").exists()
    assert code == 2 or done.err in PAGE


def test_where_nobody_can_be_asked_it_says_what_to_give(keryx: Cli) -> None:
    done = keryx(*SETUP)
    assert done.code == 2 and "--token-file" in done.err


def test_a_server_out_of_reach_is_told(keryx: Cli) -> None:
    keryx.variables["KERYX_TELEGRAM_BASE_URL"] = "http://127.0.0.1:9"
    done = keryx(*SETUP, *token_file(keryx))
    assert done.code == 5 and "cannot be reached" in done.err and TOKEN not in done.err


def test_a_webhook_of_another_program_is_removed_only_when_asked(keryx: Cli, telegram: FakeTelegram) -> None:
    telegram.webhook = {"url": "https://other.example/bot"}
    done = keryx(*SETUP, *token_file(keryx))
    assert done.code == 4 and "--take-over" in done.err and telegram.webhook
    keryx.ok(*SETUP, *token_file(keryx), "--take-over")
    assert not telegram.webhook
