"""The settings of Slack."""

from pathlib import Path
from typing import Any

import pytest
from tests.fakes.slack import (
    APP_TOKEN,
    BOT_TOKEN,
    SIGNING_SECRET,
)

from keryx.core.errors import (
    Invalid,
)
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.slack import (
    SlackAdapter,
    make,
)


def make_with(tmp_path: Path, **table: Any) -> SlackAdapter | None:
    environ = {"A": BOT_TOKEN, "B": APP_TOKEN, "S": SIGNING_SECRET, "R": "xoxe-1-x", "C": "client-secret"}
    return make(AdapterSetup(platform="slack", name="work", home=tmp_path, table=table, environ=environ))


def test_an_account_that_is_not_configured_has_no_adapter(tmp_path: Path) -> None:
    assert make_with(tmp_path) is None


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"mode": "socket"}, "slack.work.token is missing"),
        ({"token": "env:A"}, "slack.work.app_token is missing"),
        ({"token": "env:A", "mode": "events"}, "slack.work.signing_secret is missing"),
        ({"token": "env:B", "app_token": "env:B"}, "xoxb-"),
        ({"token": "env:A", "app_token": "env:A"}, "xapp-"),
        ({"token": "env:A", "app_token": "env:B", "refresh_token": "env:R"}, "client_id and client_secret"),
        ({"token": "env:A", "app_token": "env:B", "base_url": "slack.com"}, "slack.base_url"),
        ({"token": "env:A", "app_token": "env:B", "mod": "x"}, "mod"),
    ],
)
def test_a_wrong_setting_is_told(tmp_path: Path, table: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        make_with(tmp_path, **table)


def test_the_name_of_an_account_is_part_of_its_hook_and_lanes(tmp_path: Path) -> None:
    adapter = make_with(tmp_path, token="env:A", mode="events", signing_secret="env:S")
    assert adapter is not None and adapter.account == "work"
    assert adapter.hook is not None and adapter.hook.path == "slack/work"
