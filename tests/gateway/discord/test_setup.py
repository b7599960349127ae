"""The setup of Discord against the fake."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tests.fakes.discord import APPLICATION_ID, BOT_ID, TOKEN, FakeDiscord

from keryx.core.errors import Forbidden, Invalid
from keryx.core.ports.setup import ENTRY_POINT_GROUP
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.discord import DiscordSettings, make
from keryx.surfaces.gateway.discord.gateway_session import MISSING_INTENT
from keryx.surfaces.gateway.discord.rest_api import BAD_TOKEN
from keryx.surfaces.gateway.discord.setup import SETUP


class Dialog:
    label = "discord"
    configured: Mapping[str, object] = {}

    def show(self, text: str) -> None:
        raise AssertionError("nothing is shown while the check runs")


def answers(discord: FakeDiscord, **more: str) -> dict[str, str]:
    return {"token": TOKEN, "base_url": discord.api_url, **more}


async def test_a_right_token_tells_who_the_bot_is_and_how_to_invite_it(discord: FakeDiscord) -> None:
    outcome = await SETUP.check(answers(discord, allow="7, 8"), Dialog())
    assert outcome.summary == f"Keryx is keryx on Discord ({BOT_ID})."
    assert (outcome.secrets, outcome.allow) == ({"token": TOKEN}, ("7", "8"))
    assert f"client_id={APPLICATION_ID}&scope=bot+applications.commands&permissions=" in outcome.steps[0]
    assert TOKEN not in str((outcome.summary, outcome.settings, outcome.steps, outcome.details))


async def test_what_is_written_makes_an_adapter(discord: FakeDiscord) -> None:
    outcome = await SETUP.check(answers(discord, mentions_only="yes", threads="yes"), Dialog())
    setup = AdapterSetup(
        platform="discord",
        home=Path(),
        table={**outcome.settings, "token": "env:TOKEN"},
        environ={"TOKEN": TOKEN},
    )
    settings = setup.read(DiscordSettings)
    assert settings is not None
    assert (settings.message_content, settings.threads, settings.base_url) == (False, True, discord.api_url)
    assert make(setup) is not None


async def test_without_the_switch_for_message_content_the_setup_says_where_it_is(
    discord: FakeDiscord,
) -> None:
    discord.privileged = False
    with pytest.raises(Invalid) as caught:
        await SETUP.check(answers(discord), Dialog())
    assert str(caught.value) == MISSING_INTENT
    assert await SETUP.check(answers(discord, mentions_only="yes"), Dialog())


async def test_a_refused_token_says_what_to_do(discord: FakeDiscord) -> None:
    discord.token = "another"
    with pytest.raises(Forbidden) as caught:
        await SETUP.check(answers(discord), Dialog())
    assert str(caught.value) == BAD_TOKEN


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"token": "abc"}, "does not look like the token"),
        ({"allow": "@ann"}, "is no person on Discord"),
        ({"base_url": "discord"}, "base_url"),
    ],
)
async def test_wrong_answers_are_refused_without_a_request(
    discord: FakeDiscord, more: dict[str, str], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        await SETUP.check(answers(discord, **more), Dialog())
    assert discord.requests == []


def test_the_setup_is_found_by_its_entry_point() -> None:
    [found] = entry_points(group=ENTRY_POINT_GROUP, name="discord")
    assert found.load() is SETUP
    assert [field.name for field in SETUP.fields if field.secret] == ["token"]
