"""The pages of platforms, followed with the command line: the setup, its answers, what is wrong, the settings they show, and the way from there to the first answer."""

import re
import shlex
import threading
import tomllib
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cli.driver import WAIT, Cli, Result
from tests.fakes import discord, email, imessage, slack, whatsapp
from tests.faults.platform_storm import post_in_background
from tests.free_ports import find_free_port

from keryx.surfaces.gateway.slack.setup import BOT_SCOPES

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
THERE = "/home/you/.keryx"


@dataclass(frozen=True)
class PlatformPage:
    """A way of a page to a connected platform."""

    platform: str
    open: Callable[..., Any]
    # The secrets that the setup asks for, and its other answers.
    secrets: dict[str, str]
    answer: Callable[[Any], dict[str, str]]
    # What the page has instead of what is here.
    examples: Callable[[Any], dict[str, str]] = lambda fake: {}
    # What the settings have that this way leads to, if the page shows several.
    block: str = ""

    def run_setup(self, keryx: Cli, fake: Any, folder: Path, **changed: str) -> Result:
        """Run the setup with the answers of this way, and some changed."""
        given = ["gateway", "setup", self.platform]
        for name, value in {**self.answer(fake), **changed}.items():
            if name not in self.secrets:
                given += [f"--{name.replace('_', '-')}", value]
        for name, value in self.secrets.items():
            path = folder / name
            path.write_text(f"{changed.get(name, value)}\n")
            given += [f"--{name.replace('_', '-')}-file", str(path)]
        return keryx(*given)


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


# The page of iMessage gives its commands with their options.
IMESSAGE = {
    "imessage-imsg": PlatformPage(
        "imessage",
        imessage.FakeImsg,
        {},
        lambda fake: {"transport": "imsg", "command": shlex.join(fake.ssh_command)},
    ),
    "imessage-bluebubbles": PlatformPage(
        "imessage",
        imessage.FakeBlueBubbles,
        {"password": imessage.PASSWORD},
        lambda fake: {"transport": "bluebubbles", "base_url": fake.url},
    ),
}


@dataclass(frozen=True)
class Person:
    """Somebody who writes to Keryx on a platform, and reads what it answers."""

    say: Callable[[Any, str], object]
    read: Callable[[Any], list[str]]


def write_as(chat: str) -> Person:
    return Person(lambda fake, text: fake.write(chat, text), lambda fake: fake.texts(chat))


def write_mail(fake: email.FakeMail, text: str) -> None:
    # What came before the first connection would not be answered.
    assert fake.wait_for(lambda: "IDLE" in fake.commands)
    fake.write("ann@people.test", text, references=["<thread@people.test>"])


def write_in_messages(fake: imessage.MessagesFake, text: str) -> None:
    assert fake.wait_for(lambda: fake.reads > 0)
    fake.write(imessage.ANN, text)


def write_in_discord(fake: discord.FakeDiscord, text: str) -> None:
    assert fake.wait_for(lambda: fake.identifies > 0)
    fake.say(text)


IN_SLACK = Person(lambda fake, text: fake.say(text), lambda fake: fake.texts())
PEOPLE = {
    "discord": Person(write_in_discord, lambda fake: fake.texts()),
    "slack": IN_SLACK,
    "slack-events": IN_SLACK,
    "whatsapp-agent": write_as(whatsapp.CREATOR),
    "whatsapp-cloud": write_as("US.13491208655302741918"),
    "email": Person(write_mail, lambda fake: fake.texts("ann@people.test")),
    "imessage-imsg": Person(write_in_messages, lambda fake: fake.texts(imessage.ANN)),
    "imessage-bluebubbles": Person(write_in_messages, lambda fake: fake.texts(imessage.ANN)),
}


@contextmanager
def post_cloud_events(fake: whatsapp.FakeWhatsAppCloud, hooks: str) -> Generator[None]:
    over = threading.Event()
    poster = threading.Thread(target=fake.post_to, args=(lambda: f"{hooks}/whatsapp", over))
    poster.start()
    try:
        yield
    finally:
        over.set()
        poster.join()


@pytest.mark.parametrize("way", PEOPLE)
def test_who_follows_the_page_is_given_a_code_and_then_answered(tmp_path: Path, way: str) -> None:
    followed, person, port = (WAYS | IMESSAGE)[way], PEOPLE[way], find_free_port()
    keryx, hooks = Cli(tmp_path / "home", KERYX_PORT=str(port)), f"http://127.0.0.1:{port}/hooks"
    with followed.open(tmp_path / "mac") if way == "imessage-imsg" else followed.open() as fake:
        done = followed.run_setup(keryx, fake, tmp_path)
        assert done.code == 0, done
        assert f"keryx pairing approve {followed.platform} CODE --operator" in done.out
        if way == "slack-events":
            posting = post_in_background(fake.post_events, f"{hooks}/slack")
        else:
            posting = post_cloud_events(fake, hooks) if way == "whatsapp-cloud" else nullcontext()
        with keryx.serving(), posting:
            person.say(fake, "hello")
            assert fake.wait_for(lambda: bool(person.read(fake)), WAIT)
            told = "\n".join(person.read(fake))
            code = re.search(rf"keryx (pairing approve {followed.platform} \w+)", told)
            assert code is not None, told
            keryx.ok(*code[1].split(), "--operator")
            person.say(fake, "hello again")
            assert fake.wait_for(lambda: person.read(fake)[-1] == "hello again", WAIT), person.read(fake)
            links = {c["platform"]: c["link"] for c in keryx.json("gateway", "status")["connections"]}
            assert links[followed.platform] == "connected"


@pytest.mark.parametrize("way", WAYS)
def test_the_setup_and_the_settings_are_as_the_page_shows_them(tmp_path: Path, way: str) -> None:
    followed = WAYS[way]
    platform, secrets = followed.platform, followed.secrets
    page = (PAGES / f"{platform}.md").read_text(encoding="utf-8")
    assert f"```text\nkeryx gateway setup {platform}\n```" in page
    keryx = Cli(tmp_path / "home")
    with followed.open() as fake:

        def shorten(text: str) -> str:
            for here, there in followed.examples(fake).items():
                text = text.replace(here, there)
            return text

        done = followed.run_setup(keryx, fake, tmp_path)
        first, secret = next(iter(secrets.items()))
        wrong = followed.run_setup(keryx, fake, tmp_path, **{first: re.sub(r"\w{4}$", "0000", secret)})
    assert done.code == 0, done
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
