"""The setup of Slack asks Slack itself, and says what is wrong."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN, METHODS, SIGNING_SECRET, FakeSlack

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.slack import make
from keryx.surfaces.gateway.slack.setup import BOT_SCOPES, SETUP, build_manifest
from keryx.testing.wire import UNREACHABLE_URL

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "slack.md"


class Dialog:
    def __init__(self, label: str = "slack") -> None:
        self.label = label
        self.configured: Mapping[str, object] = {}

    def show(self, text: str) -> None:
        raise AssertionError("nothing is shown")


def answer(slack: FakeSlack, **more: str) -> dict[str, str]:
    return {"token": BOT_TOKEN, "app_token": APP_TOKEN, "base_url": slack.api_url, **more}


async def test_the_tokens_are_checked_and_the_settings_make_an_adapter(tmp_path: Path) -> None:
    with FakeSlack() as slack:
        slack.scopes = ",".join(BOT_SCOPES)
        outcome = await SETUP.check(answer(slack), Dialog())
    assert outcome.summary == "The bot is @keryx in the workspace Fake."
    assert outcome.secrets == {"token": BOT_TOKEN, "app_token": APP_TOKEN} and outcome.note == ""
    assert BOT_TOKEN not in str(outcome.settings) + str(outcome.steps) + str(outcome.details)
    table: dict[str, Any] = {**outcome.settings, **{name: f"env:{name}" for name in outcome.secrets}}
    assert (
        make(AdapterSetup(platform="slack", home=tmp_path, table=table, environ=outcome.secrets)) is not None
    )


async def test_missing_scopes_are_named() -> None:
    with FakeSlack() as slack:
        slack.scopes = ",".join(set(BOT_SCOPES) - {"files:read", "users:read"})
        outcome = await SETUP.check(answer(slack), Dialog())
    assert "will fail: files:read, users:read." in outcome.note


async def test_the_events_api_needs_an_address_and_the_signing_secret() -> None:
    with FakeSlack() as slack:
        more = {"mode": "events", "signing_secret": SIGNING_SECRET, "url": "https://keryx.example.org"}
        outcome = await SETUP.check(answer(slack, app_token="", **more), Dialog("slack.work"))
        assert outcome.settings["mode"] == "events" and "signing_secret" in outcome.secrets
        assert "https://keryx.example.org/hooks/slack/work" in outcome.steps[1]
        with pytest.raises(Invalid, match="signing secret"):
            await SETUP.check(answer(slack, mode="events"), Dialog())


async def test_tokens_that_rotate_are_set_up_with_what_refreshes_them(tmp_path: Path) -> None:
    rotation = {"refresh_token": "xoxe-1-first", "client_id": "1.2", "client_secret": "client-secret"}
    with FakeSlack() as slack:
        outcome = await SETUP.check(answer(slack, **rotation), Dialog())
    assert outcome.settings["client_id"] == "1.2"
    assert outcome.secrets["refresh_token"] == "xoxe-1-first"
    table: dict[str, Any] = {**outcome.settings, **{name: f"env:{name}" for name in outcome.secrets}}
    setup = AdapterSetup(platform="slack", home=tmp_path, table=table, environ=outcome.secrets)
    assert make(setup) is not None
    page = PAGE.read_text(encoding="utf-8")
    assert "--refresh-token-file" in page and "--client-secret-file" in page


@pytest.mark.parametrize(
    ("answers", "kind", "words"),
    [
        ({"refresh_token": "xoxe-1-first"}, Invalid, "client secret"),
        ({"token": "abc"}, Invalid, "xoxb-"),
        ({"token": "xoxb-wrong"}, Forbidden, "does not accept the token"),
        ({"app_token": ""}, Invalid, "xapp-"),
        ({"app_token": "xapp-wrong"}, Forbidden, "does not accept the app token"),
        ({"base_url": UNREACHABLE_URL}, Unavailable, "cannot be reached"),
        ({"url": "keryx"}, Invalid, "https://keryx.example.org"),
    ],
)
async def test_a_wrong_answer_is_told(answers: dict[str, str], kind: type[Exception], words: str) -> None:
    with FakeSlack() as slack:
        with pytest.raises(kind, match=words):
            await SETUP.check(answer(slack, **answers), Dialog())


def test_the_page_has_the_manifest_that_the_setup_shows() -> None:
    assert build_manifest() in PAGE.read_text(encoding="utf-8")
    assert build_manifest() in SETUP.intro


def test_a_manifest_for_the_events_api_names_the_address_of_the_hook() -> None:
    manifest = json.loads(build_manifest(url="https://k.example/hooks/slack", rotation=True))
    settings = manifest["settings"]
    assert not settings["socket_mode_enabled"] and settings["token_rotation_enabled"]
    assert {
        settings["event_subscriptions"]["request_url"],
        settings["interactivity"]["request_url"],
        manifest["features"]["slash_commands"][0]["url"],
    } == {"https://k.example/hooks/slack"}


def test_the_scopes_cover_what_the_adapter_calls() -> None:
    families = {method.partition(".")[0] for method in METHODS} - {
        "auth",
        "apps",
        "oauth",
        "conversations",
        "assistant",
    }
    named = {scope.partition(":")[0] for scope in BOT_SCOPES}
    assert families <= named
