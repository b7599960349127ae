"""The setup of WhatsApp: what is checked with the platform, and what is written."""

from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.whatsapp import DISPLAY, KEY, NUMBER, TOKEN, FakeWhatsAppAgent, FakeWhatsAppCloud

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.core.ports.setup import ENTRY_POINT_GROUP, SetupOutcome
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.whatsapp import WhatsAppCloudAdapter, make
from keryx.surfaces.gateway.whatsapp.setup import SETUP
from keryx.surfaces.gateway.whatsapp.whatsapp_settings import BAD_KEY, BAD_TOKEN
from keryx.testing.wire import UNREACHABLE_URL


class Dialog:
    """A terminal that nobody looks at."""

    label = "whatsapp"
    configured: Mapping[str, object] = {}

    def show(self, text: str) -> None:
        raise AssertionError("there is nothing to show")


@pytest.fixture
def cloud() -> Iterator[FakeWhatsAppCloud]:
    with FakeWhatsAppCloud() as fake:
        yield fake


def build_answers(address: str, **answers: str) -> dict[str, str]:
    given = {
        "mode": "cloud",
        "token": TOKEN,
        "phone_number_id": NUMBER,
        "app_secret": "s3cret",
        "base_url": address,
    }
    return {**given, **answers}


async def check(answers: dict[str, str]) -> SetupOutcome:
    return await SETUP.check(answers, Dialog())


def test_the_setup_is_found_by_its_entry_point() -> None:
    [found] = entry_points(group=ENTRY_POINT_GROUP, name="whatsapp")
    assert found.load() is SETUP


async def test_a_number_is_shown_and_its_settings_make_an_adapter(cloud: FakeWhatsAppCloud) -> None:
    outcome = await check(build_answers(cloud.url, url="https://keryx.example"))
    assert outcome.summary == f"The number is {DISPLAY} (Keryx)."
    assert outcome.secrets["token"] == TOKEN and len(outcome.secrets["verify_token"]) >= 24
    assert "15 January 2026" in outcome.note and "callback URL" not in " ".join(outcome.steps)
    table: dict[str, Any] = {**outcome.settings, **{name: f"env:{name}" for name in outcome.secrets}}
    adapter = make(AdapterSetup(platform="whatsapp", home=Path(), table=table, environ=outcome.secrets))
    assert isinstance(adapter, WhatsAppCloudAdapter) and adapter.account == NUMBER


async def test_without_an_address_the_person_is_told_what_to_enter(cloud: FakeWhatsAppCloud) -> None:
    outcome = await check(build_answers(cloud.url, verify_token="mine"))
    step = next(step for step in outcome.steps if "callback URL" in step)
    assert "/hooks/whatsapp" in step and step.endswith("the verify token mine")


async def test_an_agent_needs_its_key_only() -> None:
    with FakeWhatsAppAgent() as fake:
        outcome = await check({"mode": "agent", "token": f" {KEY}\n", "base_url": fake.url})
        assert outcome.summary == "WhatsApp knows the agent." and outcome.secrets == {"token": KEY}
        assert outcome.settings == {"mode": "agent", "base_url": fake.url}
        with pytest.raises(Forbidden) as caught:
            await check({"mode": "agent", "token": "wrong", "base_url": fake.url})
        assert str(caught.value) == BAD_KEY


async def test_a_wrong_token_is_one_sentence(cloud: FakeWhatsAppCloud) -> None:
    with pytest.raises(Forbidden) as caught:
        await check(build_answers(cloud.url, token="wrong"))
    assert str(caught.value) == BAD_TOKEN


async def test_a_platform_that_cannot_be_reached_is_not_a_wrong_answer() -> None:
    with pytest.raises(Unavailable):
        await check(build_answers(UNREACHABLE_URL))
    with pytest.raises(Unavailable):
        await check({"mode": "agent", "token": KEY, "base_url": UNREACHABLE_URL})


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"token": ""}, "token is missing"),
        ({"phone_number_id": "+1 555"}, "write the Phone number ID, .* not the number itself"),
        ({"phone_number_id": "99999"}, "does not exist .* 99999 is not the Phone number ID, which API Setup"),
        ({"app_secret": ""}, "app secret is missing"),
        ({"url": "http://keryx.example"}, "https addresses only"),
        ({"url": "keryx.example"}, "write the public address of Keryx"),
        ({"base_url": "graph"}, "web address"),
    ],
)
async def test_a_wrong_answer_is_named(cloud: FakeWhatsAppCloud, answers: dict[str, str], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        await check(build_answers(cloud.url, **answers))


def test_only_secrets_are_hidden() -> None:
    assert {f.name for f in SETUP.fields if f.secret} == {"token", "app_secret", "verify_token"}
