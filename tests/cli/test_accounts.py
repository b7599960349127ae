"""Several accounts of one platform, each with rules of its own."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.driver import Cli
from tests.fakes.telegram import TOKEN, FakeTelegram

OTHER = "515151:other-token"
SETTINGS = """
[telegram.work]
token = "env:WORK_TOKEN"
base_url = "{work}"
[telegram.home]
token = "env:HOME_TOKEN"
base_url = "{home}"
[access.telegram.work]
allow = [7]
[access.telegram.home]
allow = [8]
pairing = false
[profiles.office]
rules = [{{ platform = "telegram", account = "work" }}]
"""


@pytest.fixture
def work() -> Iterator[FakeTelegram]:
    with FakeTelegram() as fake:
        yield fake


@pytest.fixture
def home() -> Iterator[FakeTelegram]:
    with FakeTelegram(token=OTHER) as fake:
        yield fake


@pytest.fixture
def keryx(tmp_path: Path, work: FakeTelegram, home: FakeTelegram) -> Cli:
    (tmp_path / "keryx.toml").write_text(SETTINGS.format(work=work.url, home=home.url))
    return Cli(tmp_path, WORK_TOKEN=TOKEN, HOME_TOKEN=OTHER)


def test_each_account_has_its_own_rules_and_profile(
    keryx: Cli, work: FakeTelegram, home: FakeTelegram
) -> None:
    with keryx.serving():
        home.say("seven is a stranger here", chat=7)
        work.say("seven at work", chat=7)
        home.say("eight at home", chat=8)
        assert work.wait_for(lambda: work.texts(7) == ["seven at work"], 60)
        assert home.wait_for(lambda: home.texts(8) == ["eight at home"], 60)
        assert home.texts(7) == []
        status = keryx.json("gateway", "status")["connections"]
    assert [c["account"] for c in status if c["platform"] == "telegram"] == ["424242", "515151"]
    office = Cli(keryx.home, KERYX_PROFILE="office", WORK_TOKEN=TOKEN, HOME_TOKEN=OTHER)
    assert "seven at work" in office.ok("sessions", "list").out
    assert "eight at home" in keryx.ok("sessions", "list").out
    assert (
        len(office.json("sessions", "list")["sessions"])
        == len(keryx.json("sessions", "list")["sessions"])
        == 1
    )


def test_a_target_names_the_account_that_sends(keryx: Cli, work: FakeTelegram, home: FakeTelegram) -> None:
    with keryx.serving():
        keryx.ok("send", "--target", "telegram.work:7", "from work")
        keryx.ok("send", "--target", "telegram.home:8", "from home")
        assert work.wait_for(lambda: work.texts(7) == ["from work"], 60)
        assert home.wait_for(lambda: home.texts(8) == ["from home"], 60)
        done = keryx("send", "--target", "telegram.wrok:7", "nowhere")
    assert done.code == 2
    assert "there is no account 'wrok' of telegram: choose among telegram.home, telegram.work" in done.err


def test_a_plain_account_stands_beside_named_ones(keryx: Cli, work: FakeTelegram, home: FakeTelegram) -> None:
    (keryx.home / "keryx.toml").write_text(
        f'[telegram.home]\ntoken = "env:HOME_TOKEN"\nbase_url = "{home.url}"\n[access.telegram]\nallow = ["*"]\n'
    )
    plain = {"KERYX_TELEGRAM_TOKEN": TOKEN, "KERYX_TELEGRAM_BASE_URL": work.url}
    with keryx.serving(KERYX_TELEGRAM_HOME_ALLOW="8", **plain):
        work.say("anybody", chat=9)
        home.say("anybody", chat=9)
        home.say("eight", chat=8)
        assert work.wait_for(lambda: work.texts(9) == ["anybody"], 60)
        assert home.wait_for(lambda: home.texts(8) == ["eight"], 60)
        assert home.wait_for(lambda: len(home.texts(9)) == 1, 60)
        assert "pairing approve telegram" in home.texts(9)[0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("[access.telegram.wrok]\nallow = [7]\n", "no account 'wrok' of telegram; there are home, work"),
        (
            '[telegram.third]\ntoken = "env:WORK_TOKEN"\n',
            "[telegram.third] and [telegram.work] are the same account",
        ),
        ('[telegram.third]\ntoken = "x"\n', "telegram.third.token: write env:NAME or file:PATH"),
        ('[telegram.third]\nbase_url = "http://x"\n', "set KERYX_TELEGRAM_THIRD_TOKEN"),
    ],
)
def test_wrong_accounts_are_refused_in_words(keryx: Cli, settings: str, words: str) -> None:
    file = keryx.home / "keryx.toml"
    file.write_text(file.read_text() + settings)
    done = keryx("serve")
    assert done.code == 2 and words in " ".join(done.err.split())


def test_a_rule_for_an_account_that_is_not_there_is_told_by_the_doctor_and_at_the_start(keryx: Cli) -> None:
    file = keryx.home / "keryx.toml"
    file.write_text(
        file.read_text()
        .replace('account = "work" }', 'account = "wrok" }, { account = "424242" }, { account = "home" }')
        .replace("[profiles", '[access.telegarm]\nallow = ["7"]\n[profiles')
    )
    findings = {f["text"]: (f["level"], f["remedy"]) for f in keryx("doctor", "--json").json["findings"]}
    account = (
        "profiles.office.rules[0].account: there is no account 'wrok' of telegram, so the rule fits nothing."
    )
    assert findings[account] == ("warning", "did you mean work?")
    assert findings["access.telegarm: there is no platform 'telegarm'."] == (
        "warning",
        "did you mean telegram?",
    )
    assert not any("rules[1]" in text or "rules[2]" in text for text in findings)
    process = keryx.start("serve", "--json")
    assert process.stdout and process.stderr
    process.stdout.readline()
    process.terminate()
    told = process.communicate(timeout=60)[1]
    assert f"{account} Did you mean work?" in told
    assert "access.telegarm: there is no platform 'telegarm'. Did you mean telegram?" in told


def test_a_profile_that_is_not_there_is_refused_in_words(keryx: Cli) -> None:
    done = Cli(keryx.home, KERYX_PROFILE="ofice")("sessions", "list")
    assert done.code == 2 and "there is no profile 'ofice': there are default, office" in done.err
    assert "KERYX_PROFILE" in done.err and "did you mean office?" in done.err
    done = Cli(keryx.home, KERYX_PROFILE="club")("sessions", "list")
    assert done.code == 2 and "write [profiles.club] to have it" in done.err
    Cli(keryx.home, KERYX_PROFILE="default").ok("sessions", "list")
    Cli(keryx.home.parent / "without-tables", KERYX_PROFILE="club").ok("sessions", "list")


def test_setup_writes_the_table_of_a_named_account(tmp_path: Path, home: FakeTelegram) -> None:
    keryx = Cli(tmp_path / "home", KERYX_TELEGRAM_HOME_BASE_URL=home.url)
    (tmp_path / "token").write_text(OTHER)
    keryx.home.mkdir()
    (keryx.home / "keryx.toml").write_text("[telegram.home]\nper_second = 20\n")
    keryx.ok("gateway", "setup", "telegram", "--name", "home", "--token-file", str(tmp_path / "token"))
    written = tomllib.loads((keryx.home / "keryx.toml").read_text())
    kept = keryx.home / "secrets" / "telegram-home-token"
    assert written == {"telegram": {"home": {"token": f"file:{kept}", "per_second": 20}}}
    assert kept.read_text().strip() == OTHER
    done = keryx("gateway", "setup", "telegram", "--name", "Über", "--token-file", str(tmp_path / "token"))
    assert done.code == 2 and "no name for an account" in done.err
