"""The setup of Feishu asks Feishu itself, and says what is wrong."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.feishu import APP_ID, APP_SECRET, BOT, ENCRYPT_KEY, VERIFICATION_TOKEN, FakeFeishu

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.feishu import FeishuDomain, find_base_url, make
from keryx.surfaces.gateway.feishu.setup import CALLBACKS, EVENTS, SETUP, build_scopes
from keryx.testing.wire import UNREACHABLE_URL

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "feishu.md"


class Dialog:
    def __init__(self, label: str = "feishu") -> None:
        self.label = label
        self.configured: Mapping[str, object] = {}

    def show(self, text: str) -> None:
        raise AssertionError("nothing is shown")


def answer(feishu: FakeFeishu, **more: str) -> dict[str, str]:
    return {"app_id": APP_ID, "app_secret": APP_SECRET, "base_url": feishu.url, **more}


async def test_the_credentials_are_checked_and_the_settings_make_an_adapter(tmp_path: Path) -> None:
    with FakeFeishu() as feishu:
        outcome = await SETUP.check(answer(feishu), Dialog())
    assert outcome.summary == f"The bot is Keryx ({APP_ID})."
    assert outcome.secrets == {"app_secret": APP_SECRET}
    assert outcome.details == {"app": APP_ID, "bot": BOT, "name": "Keryx"}
    assert APP_SECRET not in str(outcome.settings) + str(outcome.steps) + str(outcome.details)
    assert "persistent connection" in outcome.steps[1] and "pairing approve feishu" in outcome.steps[-1]
    table: dict[str, Any] = {**outcome.settings, "app_secret": "env:app_secret"}
    setup = AdapterSetup(platform="feishu", home=tmp_path, table=table, environ=outcome.secrets)
    assert make(setup) is not None


async def test_posts_need_an_address_and_both_keys() -> None:
    with FakeFeishu() as feishu:
        more = {
            "mode": "webhook",
            "encrypt_key": ENCRYPT_KEY,
            "verification_token": VERIFICATION_TOKEN,
            "url": "https://keryx.example.org",
        }
        outcome = await SETUP.check(answer(feishu, **more), Dialog("feishu.work"))
        assert outcome.settings["mode"] == "webhook" and len(outcome.secrets) == 3
        assert "https://keryx.example.org/hooks/feishu/work" in outcome.steps[1]
        with pytest.raises(Invalid, match="Encrypt Key and the Verification Token"):
            await SETUP.check(answer(feishu, mode="webhook", encrypt_key="x"), Dialog())


async def test_people_are_let_in_by_id() -> None:
    with FakeFeishu() as feishu:
        outcome = await SETUP.check(answer(feishu, allow="ou_1, on_2 e33ggbyz@2ed2"), Dialog())
        assert outcome.allow == ("ou_1", "on_2", "e33ggbyz@2ed2")
        assert "pairing" not in "".join(outcome.steps)
        with pytest.raises(Invalid, match="no person on Feishu"):
            await SETUP.check(answer(feishu, allow="Ann Lee!"), Dialog())


@pytest.mark.parametrize(
    ("answers", "kind", "words"),
    [
        ({"app_id": "5"}, Invalid, "cli_"),
        ({"app_secret": ""}, Invalid, "App Secret is missing"),
        ({"app_secret": "wrong"}, Forbidden, "does not accept"),
        ({"app_id": "cli_another"}, Forbidden, "does not accept"),
        ({"base_url": UNREACHABLE_URL}, Unavailable, "cannot be reached"),
        ({"base_url": "feishu"}, Invalid, "web address"),
        ({"url": "keryx"}, Invalid, "https://keryx.example.org"),
    ],
)
async def test_a_wrong_answer_is_told(answers: dict[str, str], kind: type[Exception], words: str) -> None:
    with FakeFeishu() as feishu:
        with pytest.raises(kind, match=words):
            await SETUP.check(answer(feishu, **answers), Dialog())


async def test_a_connection_that_feishu_does_not_open_is_told() -> None:
    with FakeFeishu() as feishu:
        feishu.endpoint_code = 1000040350
        with pytest.raises(Forbidden, match="50 long connections"):
            await SETUP.check(answer(feishu), Dialog())
        feishu.endpoint_code = 1
        with pytest.raises(Unavailable):
            await SETUP.check(answer(feishu), Dialog())


def test_both_platforms_have_their_address() -> None:
    assert find_base_url(FeishuDomain.FEISHU, "") == "https://open.feishu.cn"
    assert find_base_url(FeishuDomain.LARK, "") == "https://open.larksuite.com"
    assert find_base_url(FeishuDomain.LARK, "http://x/") == "http://x"


def test_the_page_has_the_permissions_and_events_that_the_setup_names() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert build_scopes() in page and build_scopes() in SETUP.intro
    assert all(f"`{name}`" in page for name in (*EVENTS, *CALLBACKS))
