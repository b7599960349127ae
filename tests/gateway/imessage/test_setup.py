"""The setup of iMessage: what is checked with the Mac, and what is written."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.imessage import OWN, PASSWORD, FakeBlueBubbles, FakeImsg

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.core.ports.setup import ENTRY_POINT_GROUP, SetupOutcome
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.imessage import (
    BAD_PASSWORD,
    NO_DISK_ACCESS,
    BlueBubblesAdapter,
    ImsgAdapter,
    make,
)
from keryx.surfaces.gateway.imessage.setup import SETUP
from keryx.testing.wire import UNREACHABLE_URL


class Dialog:
    """A terminal that nobody looks at."""

    label = "imessage"
    configured: Mapping[str, object] = {}

    def show(self, text: str) -> None:
        raise AssertionError("there is nothing to show")


async def check(**answers: str) -> SetupOutcome:
    return await SETUP.check(answers, Dialog())


def build(outcome: SetupOutcome, **more: Any) -> object:
    table: dict[str, Any] = {**outcome.settings, **{name: f"env:{name}" for name in outcome.secrets}, **more}
    return make(AdapterSetup(platform="imessage", home=Path(), table=table, environ=outcome.secrets))


def test_the_setup_is_found_by_its_entry_point() -> None:
    [found] = entry_points(group=ENTRY_POINT_GROUP, name="imessage")
    assert found.load() is SETUP


async def test_imsg_needs_its_command_only(tmp_path: Path) -> None:
    with FakeImsg(tmp_path) as mac:
        outcome = await check(transport="imsg", command=" ".join(mac.ssh_command))
        assert outcome.settings == {"transport": "imsg", "command": mac.ssh_command}
        assert isinstance(build(outcome), ImsgAdapter) and "pairing = false" in outcome.note
        mac.startup_error = "authorization denied: allow Full Disk Access"
        with pytest.raises(Forbidden) as caught:
            await check(transport="imsg", command=" ".join(mac.command))
        assert str(caught.value) == NO_DISK_ACCESS


async def test_a_mac_that_cannot_be_reached_is_not_a_wrong_answer(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="by hand"):
        await check(transport="imsg", command=f"{tmp_path}/ssh mac imsg rpc")
    with pytest.raises(Unavailable, match="that the server runs"):
        await check(transport="bluebubbles", base_url=UNREACHABLE_URL, password=PASSWORD)


async def test_bluebubbles_is_shown_and_its_settings_make_an_adapter() -> None:
    with FakeBlueBubbles() as mac:
        outcome = await check(
            transport="bluebubbles", base_url=f"{mac.url}/", password=PASSWORD, url="http://keryx.test:8420"
        )
        assert outcome.summary == f"BlueBubbles 1.9.9 is signed in as {OWN}."
        assert outcome.secrets["password"] == PASSWORD and len(outcome.secrets["secret"]) >= 32
        assert outcome.settings == {
            "transport": "bluebubbles",
            "base_url": mac.url,
            "url": "http://keryx.test:8420",
        }
        adapter = build(outcome)
        assert isinstance(adapter, BlueBubblesAdapter) and adapter.hook is not None
        assert adapter.hook.path == "imessage" and "typing is not shown" not in outcome.note
        mac.private_api = False
        outcome = await check(transport="bluebubbles", base_url=mac.url, password=PASSWORD)
        assert "typing is not shown" in outcome.note
        with pytest.raises(Forbidden) as caught:
            await check(transport="bluebubbles", base_url=mac.url, password="wrong")
        assert str(caught.value) == BAD_PASSWORD


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"transport": "imsg", "command": "imsg chats"}, "its command `rpc`"),
        ({"transport": "imsg", "command": "imsg 'rpc"}, "no command"),
        ({"transport": "bluebubbles", "base_url": "mac", "password": "x"}, "web address"),
        ({"transport": "bluebubbles", "base_url": "http://mac:1234"}, "password is missing"),
        (
            {"transport": "bluebubbles", "base_url": "http://mac:1234", "password": "x", "url": "keryx"},
            "web address",
        ),
    ],
)
async def test_a_wrong_answer_is_named(answers: dict[str, str], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        await check(**answers)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"transport": "bluebubbles"}, "needs `base_url` and `password`"),
        (
            {
                "transport": "bluebubbles",
                "base_url": "http://mac:1",
                "password": "env:P",
                "url": "http://keryx:1",
            },
            "needs a `secret`",
        ),
        ({"transport": "pigeon"}, "transport"),
        ({"comand": "imsg rpc"}, "comand"),
        ({"poll": "0s"}, "imessage.poll: give at least 0.1s"),
    ],
)
def test_a_wrong_setting_is_named(table: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        make(AdapterSetup(platform="imessage", home=Path(), table=table, environ={"P": "x"}))


def test_without_settings_there_is_no_adapter() -> None:
    assert make(AdapterSetup(platform="imessage", home=Path())) is None


def test_only_secrets_are_hidden() -> None:
    assert {f.name for f in SETUP.fields if f.secret} == {"password"}
