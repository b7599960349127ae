"""The login on WeChat: codes, numbers on the phone, other hosts, and what is written."""

from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.wechat import ANN, BOT, LINK, TOKEN, FakeWeChat

from keryx.core.errors import Conflict, Forbidden, Unavailable
from keryx.core.ports.setup import ENTRY_POINT_GROUP, SetupDialog, SetupOutcome
from keryx.surfaces.gateway import qr_code
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.wechat import WeChatAdapter, make
from keryx.surfaces.gateway.wechat.setup import SETUP
from keryx.testing.wire import UNREACHABLE_URL


class Form:
    """A form of the page: nothing is seen before the end."""

    label = "wechat"
    configured: Mapping[str, object] = {}

    def __init__(self) -> None:
        self.shown: list[str] = []

    def show(self, text: str) -> None:
        self.shown.append(text)


class Terminal(Form):
    """A terminal with a person who reads numbers off a phone."""

    def __init__(self, *numbers: str) -> None:
        super().__init__()
        self.numbers = list(numbers)
        self.asked: list[str] = []

    async def ask(self, question: str) -> str:
        self.asked.append(question)
        return self.numbers.pop(0)


@pytest.fixture
def wechat() -> Iterator[FakeWeChat]:
    with FakeWeChat() as fake:
        yield fake
        assert fake.problems == []


async def check(wechat: FakeWeChat, dialog: SetupDialog, **answers: str) -> SetupOutcome:
    given = {"base_url": wechat.url, "cdn_url": wechat.cdn_url, "login": "", "verify_code": "", **answers}
    return await SETUP.check(given, dialog)


def test_the_setup_is_found_by_its_entry_point() -> None:
    [found] = entry_points(group=ENTRY_POINT_GROUP, name="wechat")
    assert found.load() is SETUP


async def test_a_scanned_code_makes_an_adapter_and_lets_the_person_in(wechat: FakeWeChat) -> None:
    wechat.statuses[:] = [{"status": "wait"}, {"status": "scaned"}, wechat.confirm()]
    terminal = Terminal()
    outcome = await check(wechat, terminal)
    code, link, scanned = terminal.shown
    assert qr_code.render_text(LINK) in code and LINK in link
    assert scanned == "Scanned. Confirm the login on the phone."
    assert outcome.summary == "The bot is connected to Keryx." and outcome.allow == (ANN,)
    assert outcome.secrets == {"token": TOKEN}
    assert outcome.settings == {"bot_id": BOT, "base_url": wechat.url, "cdn_url": wechat.cdn_url}
    table: dict[str, Any] = {**outcome.settings, "token": "env:TOKEN"}
    adapter = make(AdapterSetup(platform="wechat", home=Path(), table=table, environ={"TOKEN": TOKEN}))
    assert isinstance(adapter, WeChatAdapter)


async def test_a_number_on_the_phone_is_asked_for_until_it_is_right(wechat: FakeWeChat) -> None:
    wechat.statuses[:] = [{"status": "need_verifycode"}, {"status": "need_verifycode"}, wechat.confirm()]
    terminal = Terminal("12", "34")
    await check(wechat, terminal)
    assert [query.get("verify_code") for query in wechat.status_queries] == [None, "12", "34"]
    assert terminal.asked[0] == "The number that WeChat shows on the phone"
    assert terminal.asked[1].startswith("This was another number.")


async def test_an_expired_code_is_replaced_three_times(wechat: FakeWeChat) -> None:
    wechat.statuses[:] = [{"status": "expired"}, {"status": "verify_code_blocked"}, wechat.confirm()]
    await check(wechat, Terminal())
    assert wechat.codes == 3
    wechat.statuses[:] = [{"status": "expired"}]
    with pytest.raises(Unavailable, match="the codes have expired"):
        await check(wechat, Terminal())
    assert wechat.codes == 6


async def test_another_host_of_wechat_is_asked_from_then_on(wechat: FakeWeChat) -> None:
    with FakeWeChat() as other:
        here = other.url.removeprefix("http://")
        wechat.statuses[:] = [{"status": "scaned_but_redirect", "redirect_host": here}]
        other.statuses[:] = [other.confirm()]
        outcome = await check(wechat, Terminal())
        assert outcome.settings["base_url"] == other.url and len(wechat.status_queries) == 1


@pytest.mark.parametrize(
    "status",
    [
        {"status": "scaned_but_redirect", "redirect_host": "evil.example.org"},
        {"status": "confirmed", "bot_token": "t", "ilink_bot_id": "b", "baseurl": "https://evil.example.org"},
    ],
)
async def test_a_host_that_is_not_of_wechat_ends_the_login(
    wechat: FakeWeChat, status: dict[str, str]
) -> None:
    wechat.statuses[:] = [status]
    with pytest.raises(Forbidden, match="does not belong to it"):
        await check(wechat, Terminal())


async def test_a_form_gets_the_code_first_and_goes_on_with_it(wechat: FakeWeChat) -> None:
    with pytest.raises(Conflict) as caught:
        await check(wechat, Form())
    assert LINK in str(caught.value) and str(caught.value).endswith("login = code-1")
    wechat.statuses[:] = [{"status": "need_verifycode"}]
    with pytest.raises(Conflict, match="login = code-1 and verify_code"):
        await check(wechat, Form(), login="code-1")
    wechat.statuses[:] = [{"status": "scaned"}, wechat.confirm()]
    outcome = await check(wechat, Form(), login="code-1", verify_code="12")
    assert outcome.allow == (ANN,) and wechat.codes == 1
    assert wechat.status_queries[1] == {"qrcode": "code-1", "verify_code": "12"}
    wechat.statuses[:] = [{"status": "expired"}]
    with pytest.raises(Conflict, match="begin again"):
        await check(wechat, Form(), login="code-1")


async def test_a_bot_that_is_connected_already_is_told(wechat: FakeWeChat) -> None:
    wechat.statuses[:] = [{"status": "binded_redirect"}]
    with pytest.raises(Conflict, match="connected already"):
        await check(wechat, Terminal())


async def test_a_login_without_a_token_is_not_written(wechat: FakeWeChat) -> None:
    wechat.statuses[:] = [wechat.confirm(bot_token=None)]
    with pytest.raises(Unavailable, match="gave no token"):
        await check(wechat, Terminal())


async def test_a_platform_that_cannot_be_reached_is_told(wechat: FakeWeChat) -> None:
    with pytest.raises(Unavailable, match="check the network"):
        await check(wechat, Terminal(), base_url=UNREACHABLE_URL)
