"""Feishu as the how-to connects it: the setup on a terminal, a node, a pairing code, and a conversation."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.driver import Cli
from tests.fakes.feishu import APP_ID, APP_SECRET, PERSON, FakeFeishu

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "feishu.md"
SETUP = ("gateway", "setup", "feishu")


@pytest.fixture
def feishu() -> Iterator[FakeFeishu]:
    with FakeFeishu() as fake:
        yield fake


@pytest.fixture
def keryx(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


def answer_setup(keryx: Cli, feishu: FakeFeishu) -> None:
    with keryx.terminal(*SETUP, "--base-url", feishu.url) as terminal:
        terminal.see("Permissions & Scopes")
        terminal.see("App ID (such as cli_a1b2c3d4e5f60001): ")
        terminal.type("12345\n")
        terminal.see("does not look like the App ID")
        terminal.type(f"{APP_ID}\n")
        terminal.see("App Secret (not shown): ")
        terminal.type(f"{APP_SECRET}\n")
        terminal.see("Platform (feishu, lark; empty for feishu): ")
        terminal.type("\n")
        terminal.see("Who may talk to the bot")
        terminal.type("\n")
        terminal.see(f"The bot is Keryx ({APP_ID}).")
        assert terminal.exit() == 0
        assert APP_SECRET not in terminal.raw


def test_the_how_to_leads_from_the_setup_to_an_answer(keryx: Cli, feishu: FakeFeishu) -> None:
    answer_setup(keryx, feishu)
    table = tomllib.loads((keryx.home / "keryx.toml").read_text())["feishu"]
    assert table["app_id"] == APP_ID and table["app_secret"].startswith("file:")
    assert f"The bot is Keryx ({APP_ID})." in PAGE.read_text(encoding="utf-8")
    with keryx.serving():
        feishu.say("hello")
        assert feishu.wait_for(lambda: bool(feishu.texts()))
        [greeting] = feishu.texts()
        code = re.search(r"keryx pairing approve feishu (\w+)", greeting)
        assert code is not None and greeting.startswith("I don't know you yet.")
        keryx.ok("pairing", "approve", "feishu", code[1], "--operator")
        feishu.say("hello again")
        assert feishu.wait_for(lambda: feishu.texts()[-1] == "hello again"), feishu.texts()
        status = keryx.ok("gateway", "status").out
        assert "feishu" in status and "connected" in status
    assert feishu.problems == []


def test_wrong_credentials_write_nothing_and_are_one_sentence(keryx: Cli, feishu: FakeFeishu) -> None:
    secret = keryx.home.parent / "secret"
    secret.write_text("wrong")
    options = ("--app-id", APP_ID, "--app-secret-file", str(secret), "--base-url", feishu.url)
    result = keryx(*SETUP, *options)
    assert result.code != 0 and not (keryx.home / "keryx.toml").exists()
    assert result.err.strip() in PAGE.read_text(encoding="utf-8")


def test_a_secret_that_is_revoked_is_told_by_the_status_and_other_surfaces_go_on(
    tmp_path: Path, feishu: FakeFeishu
) -> None:
    keryx = Cli(
        tmp_path,
        KERYX_FEISHU_APP_ID=APP_ID,
        KERYX_FEISHU_APP_SECRET=APP_SECRET,
        KERYX_FEISHU_BASE_URL=feishu.url,
        KERYX_FEISHU_ALLOW=PERSON,
    )
    with keryx.serving():
        feishu.say("one")
        assert feishu.wait_for(lambda: feishu.texts() == ["one"])
        feishu.secret = "another"
        feishu.revoke_tokens()
        feishu.disconnect()
        keryx.until("does not accept the App ID", "gateway", "status")
        assert keryx.ok("send", "--wait", "still here").out.strip().endswith("still here")
