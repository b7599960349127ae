"""The pages of platforms, followed with the command line: the setup, its answers, what is wrong, and the settings they show."""

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cli.driver import Cli
from tests.fakes import discord, email, slack, whatsapp

from keryx.surfaces.gateway.slack.setup import BOT_SCOPES

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
THERE = "/home/you/.keryx"


@dataclass(frozen=True)
class PlatformPage:
    """A way of a page to a connected platform."""

    platform: str
    open: Callable[[], Any]
    # The secrets that the setup asks for, and its other answers.
    secrets: dict[str, str]
    answer: Callable[[Any], dict[str, str]]
    # What the page has instead of what is here.
    examples: Callable[[Any], dict[str, str]] = lambda fake: {}
    # What the settings have that this way leads to, if the page shows several.
    block: str = ""


def open_slack() -> slack.FakeSlack:
    fake = slack.FakeSlack()
    fake.scopes = ",".join(BOT_SCOPES)
    return fake


WAYS: dict[str, PlatformPage] = {
    "discord": PlatformPage(
        "discord",
        discord.FakeDiscord,
        {"token": discord.TOKEN},
        lambda fake: {"base_url": fake.api_url},
        lambda fake: {discord.BOT_ID: "1234"},
    ),
    "slack": PlatformPage(
        "slack",
        open_slack,
        {"token": slack.BOT_TOKEN, "app_token": slack.APP_TOKEN},
        lambda fake: {"base_url": fake.api_url},
        lambda fake: {"workspace Fake": "workspace Example"},
        "app_token =",
    ),
    "slack-events": PlatformPage(
        "slack",
        open_slack,
        {"token": slack.BOT_TOKEN, "signing_secret": slack.SIGNING_SECRET},
        lambda fake: {"mode": "events", "url": "https://keryx.example.org", "base_url": fake.api_url},
        lambda fake: {"workspace Fake": "workspace Example"},
        'mode = "events"',
    ),
    "whatsapp-agent": PlatformPage(
        "whatsapp",
        whatsapp.FakeWhatsAppAgent,
        {"token": whatsapp.KEY},
        lambda fake: {"mode": "agent", "base_url": fake.url},
    ),
    "whatsapp-cloud": PlatformPage(
        "whatsapp",
        whatsapp.FakeWhatsAppCloud,
        {"token": whatsapp.TOKEN, "app_secret": whatsapp.APP_SECRET, "verify_token": whatsapp.VERIFY_TOKEN},
        lambda fake: {
            "mode": "cloud",
            "phone_number_id": whatsapp.NUMBER,
            "url": "https://keryx.example.org",
            "base_url": fake.url,
        },
    ),
    "email": PlatformPage(
        "email",
        email.FakeMail,
        {"password": email.PASSWORD},
        lambda fake: {
            "address": email.ADDRESS,
            "imap": fake.imap,
            "smtp": fake.smtp,
            "authserv": email.AUTHSERV,
        },
        lambda fake: {
            email.ADDRESS: "keryx@example.org",
            "holds 0 mails": "holds 1 mail",
            re.sub(r"^\w+://", "", fake.imap): "imap.example.org:993",
        },
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_setup_and_the_settings_are_as_the_page_shows_them(tmp_path: Path, way: str) -> None:
    followed = WAYS[way]
    platform, secrets = followed.platform, followed.secrets
    page = (PAGES / f"{platform}.md").read_text(encoding="utf-8")
    assert f"```text\nkeryx gateway setup {platform}\n```" in page
    keryx = Cli(tmp_path / "home")
    with followed.open() as fake:
        given = ["gateway", "setup", platform]
        for name, value in followed.answer(fake).items():
            given += [f"--{name.replace('_', '-')}", value]
        files = {name: tmp_path / name for name in secrets}
        for name, value in secrets.items():
            files[name].write_text(f"{value}\n")
            given += [f"--{name.replace('_', '-')}-file", str(files[name])]

        def shorten(text: str) -> str:
            for here, there in followed.examples(fake).items():
                text = text.replace(here, there)
            return text

        done = keryx.ok(*given)
        first = next(iter(files))
        files[first].write_text(re.sub(r"\w{4}$", "0000", secrets[first]))
        wrong = keryx(*given)
    assert shorten(done.out).splitlines()[0] in page, done.out
    assert wrong.code and shorten(wrong.err).strip().removeprefix("keryx: ") in page, wrong.err
    written = tomllib.loads((keryx.home / "keryx.toml").read_text())[platform]
    # The page refers to the same files, and the settings it shows are taken as they stand.
    [block, *_] = [b for b in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if followed.block in b]
    shown = tomllib.loads(block)[platform]
    kept = {name: value for name, value in shown.items() if name in written and "file:" in str(value)}
    assert kept == {name: str(written[name]).replace(str(keryx.home), THERE) for name in kept} != {}
    (keryx.home / "keryx.toml").write_text(block.replace(THERE, str(keryx.home)))
    listed = keryx.ok("config").out
    assert all(f"{platform}.{name}" in listed or f"[{platform}]" in listed for name in shown), listed
