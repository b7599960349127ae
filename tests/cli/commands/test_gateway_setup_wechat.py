"""`keryx gateway setup wechat`, and the way from nothing to an answered message as the how-to tells it."""

import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.driver import Cli
from tests.fakes.wechat import ANN, BOT, LINK, TOKEN, FakeWeChat

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "wechat.md").read_text(encoding="utf-8")
SETUP = ("gateway", "setup", "wechat")


@pytest.fixture
def wechat() -> Iterator[FakeWeChat]:
    with FakeWeChat() as fake:
        fake.statuses[:] = [{"status": "wait"}, {"status": "scaned"}, fake.confirm()]
        yield fake
        assert fake.problems == []


@pytest.fixture
def keryx(tmp_path: Path, wechat: FakeWeChat) -> Cli:
    return Cli(tmp_path / "home", KERYX_WECHAT_BASE_URL=wechat.url, KERYX_WECHAT_CDN_URL=wechat.cdn_url)


def test_from_nothing_to_an_answer_and_to_the_end_of_the_session(keryx: Cli, wechat: FakeWeChat) -> None:
    done = keryx.ok(*SETUP)
    code, _, rest = done.out.partition(f"{LINK}\n")
    assert "Scan this code with WeChat" in code and "█▀" in code
    assert (
        rest.strip().replace(str(keryx.home), "/home/you/.keryx").replace(ANN, "o9cq80abc@im.wechat") in PAGE
    )
    with keryx.serving():
        wechat.write(ANN, "hello")
        assert wechat.wait_for(lambda: wechat.texts(ANN) == ["hello"]), wechat.texts(ANN)
        assert keryx.until("connected", "gateway", "status")
        wechat.expired = True
        told = " ".join(keryx.until("refused", "gateway", "status").split())
        assert "log in anew with `keryx gateway setup wechat`, and start Keryx again" in told


def test_the_token_is_in_a_file_of_its_own_and_nowhere_else(keryx: Cli, wechat: FakeWeChat) -> None:
    done = keryx.ok(*SETUP, "--name", "work")
    kept = keryx.home / "secrets" / "wechat-work-token"
    assert kept.read_text() == f"{TOKEN}\n" and stat.S_IMODE(kept.stat().st_mode) == 0o600
    written = (keryx.home / "keryx.toml").read_text()
    tables = tomllib.loads(written)
    assert tables["wechat"]["work"]["token"] == f"file:{kept}" and tables["wechat"]["work"]["bot_id"] == BOT
    assert tables["access"]["wechat"]["work"] == {"allow": [ANN]}
    assert TOKEN not in written + done.out + done.err + keryx.ok("config").out


def test_json_is_alone_on_stdout_and_the_code_on_stderr(keryx: Cli) -> None:
    done = keryx.ok(*SETUP, "--json")
    assert done.json["bot_id"] == BOT and done.json["user_id"] == ANN
    assert LINK in done.err and "█▀" in done.err


def test_a_person_is_asked_for_the_number_on_the_phone(keryx: Cli, wechat: FakeWeChat) -> None:
    wechat.statuses[:] = [{"status": "need_verifycode"}, wechat.confirm()]
    with keryx.terminal(*SETUP) as terminal:
        terminal.see("The number that WeChat shows on the phone: ")
        terminal.type("42\n")
        terminal.see("Next:")
        assert terminal.exit() == 0
    assert wechat.status_queries[1]["verify_code"] == "42"


def test_where_nobody_can_be_asked_for_the_number_it_says_so(keryx: Cli, wechat: FakeWeChat) -> None:
    wechat.statuses[:] = [{"status": "need_verifycode"}]
    done = keryx(*SETUP)
    assert done.code == 2 and "nobody can be asked here" in done.err and "use a terminal" in done.err
    assert not (keryx.home / "keryx.toml").exists()
