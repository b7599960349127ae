"""The setups of platforms over HTTP."""

import logging
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engine.world import World
from tests.fakes import discord, email, feishu, imessage, matrix, signal, slack, whatsapp
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.fakes.wechat import ANN, LINK, FakeWeChat
from tests.web.site import INSTALLATION, Site, open_site
from tests.web.site import TOKEN as WEB_TOKEN

from keryx.core.ids import DEFAULT_PROFILE, PrincipalId
from keryx.core.sessions import Viewer
from keryx.store.db import Engine

SETUPS = "/api/platforms/setups"
pytestmark = pytest.mark.engines(Engine.SQLITE)


@pytest.fixture
def telegram(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTelegram]:
    with FakeTelegram() as fake:
        for name in ("KERYX_TELEGRAM_BASE_URL", "KERYX_TELEGRAM_WORK_BASE_URL"):
            monkeypatch.setenv(name, fake.url)
        yield fake


@pytest.fixture
async def site(world: World, tmp_path: Path) -> AsyncIterator[Site]:
    installation = msgspec.structs.replace(INSTALLATION, home=tmp_path)
    async with open_site(world.hub, world.clock, installation=installation) as made:
        yield made


async def test_each_platform_tells_what_it_needs(site: Site, tmp_path: Path) -> None:
    (tmp_path / "keryx.toml").write_text('[telegram]\nper_second = 1\n[telegram.work]\ntoken = "env:X"\n')
    found = {s["platform"]: s for s in (await site.get(SETUPS))["setups"]}
    assert found["telegram"]["title"] == "Telegram" and "@BotFather" in found["telegram"]["intro"]
    assert found["telegram"]["accounts"] == ["telegram", "telegram.work"]
    assert [f["name"] for f in found["telegram"]["fields"]] == ["token", "take_over"]
    assert found["telegram"]["fields"][0]["secret"] and found["telegram"]["fields"][1]["flag"]
    assert [f["name"] for f in found["webhook"]["fields"]] == ["url", "secret"]
    assert found["matrix"]["allow_example"] == "@you:example.org"
    assert found["matrix"]["fields"][1]["unless"] == ["token"]


async def test_a_person_who_cannot_exist_is_refused_before_the_platform_is_asked(
    site: Site, tmp_path: Path
) -> None:
    body = {"answers": {"homeserver": "http://127.0.0.1:9", "token": "x"}, "allow": ["ann"]}
    told = await site.problem(400, "POST", f"{SETUPS}/matrix", json=body)
    assert "'ann' is no person on Matrix" in told and "@ann:example.org" in told
    assert not (tmp_path / "keryx.toml").exists()


# What is the same in German: words of the platforms, and names.
_SAME = frozenset(
    {"Token", "Homeserver", "Signing secret", "Encrypt Key", "Verification Token", "App ID", "App Secret"}
    | {"Phone number ID", "Verify token", "Slack", "Discord", "Signal", "iMessage"}
)


ACCOUNTS = """\
# mine
[telegram]
token = "file:{secrets}/telegram-token"

[telegram.work]
token = "file:{secrets}/telegram-work-token"  # at work
per_second = 1

[access.telegram]
allow = ["7"]

[access.telegram.work]
allow = ["8"]

[slack]
token = "env:X"
"""


async def test_an_account_is_removed_with_its_secrets_and_the_others_stay(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERYX_TELEGRAM_TOKEN", "x")
    path, secrets = tmp_path / "keryx.toml", tmp_path / "secrets"
    secrets.mkdir()
    for name in ("telegram-token", "telegram-work-token", "other"):
        (secrets / name).write_text("s")
    path.write_text(ACCOUNTS.format(secrets=secrets))
    accounts = "/api/platforms/accounts"
    assert "no account 'telegram.no'" in await site.problem(404, "DELETE", f"{accounts}/telegram.no")
    await site.problem(404, "DELETE", f"{accounts}/access.telegram")
    removed = await site.delete(f"{accounts}/telegram")
    assert removed["variables"] == ["KERYX_TELEGRAM_TOKEN"]
    found = tomllib.loads(path.read_text())
    assert list(found["telegram"]) == ["work"]
    assert found["access"]["telegram"] == {"allow": ["7"], "work": {"allow": ["8"]}}
    assert sorted(file.name for file in secrets.iterdir()) == ["other", "telegram-work-token"]
    await site.delete(f"{accounts}/telegram.work")
    assert path.read_text() == '# mine\n[slack]\ntoken = "env:X"\n'
    assert [file.name for file in secrets.iterdir()] == ["other"]
    assert "KERYX_TELEGRAM_TOKEN" in await site.problem(404, "DELETE", f"{accounts}/telegram")


async def test_each_setup_is_told_in_german(site: Site) -> None:
    def read(setup: dict[str, Any]) -> dict[str, str]:
        fields = {f"{f['name']}.{k}": f[k] for f in setup["fields"] for k in ("label", "help") if f.get(k)}
        return fields | {k: setup[k] for k in ("intro", "summary") if setup.get(k)}

    english, german = [
        {
            s["platform"]: read(s)
            for s in (await site.get(SETUPS, headers={"Accept-Language": name}))["setups"]
        }
        for name in ("en", "de")
    ]
    assert len(german) == 11 and english.keys() == german.keys()
    for platform, texts in english.items():
        same = {text for name, text in texts.items() if german[platform][name] == text}
        assert same <= _SAME, platform


async def test_the_outcome_of_a_setup_is_told_in_german(site: Site, telegram: FakeTelegram) -> None:
    german = {"Accept-Language": "de"}
    done = await site.post(f"{SETUPS}/telegram", {"answers": {"token": TOKEN}}, headers=german)
    assert done["summary"] == "Der Bot ist @keryx_bot (Keryx)."
    assert done["steps"][0] == "starte Keryx, oder starte es neu: keryx serve"
    telegram.webhook = {"url": "https://other.example/bot"}
    body = {"answers": {"token": TOKEN}}
    problem = await site.problem(409, "POST", f"{SETUPS}/telegram", json=body, headers=german)
    assert problem.startswith("ein anderes Programm bekommt die Nachrichten von @keryx_bot")


async def test_answers_are_checked_and_written_and_not_logged(
    site: Site, tmp_path: Path, telegram: FakeTelegram, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = {"answers": {"token": TOKEN}, "name": "work", "allow": ["7"]}
    done = await site.post(f"{SETUPS}/telegram", body)
    assert done["table"] == "telegram.work" and done["details"]["username"] == "keryx_bot"
    assert done["summary"] == "The bot is @keryx_bot (Keryx)." and done["allow"] == ["7"] and done["steps"]
    secret = tmp_path / "secrets" / "telegram-work-token"
    written = tomllib.loads((tmp_path / "keryx.toml").read_text())
    assert written == {
        "telegram": {"work": {"token": f"file:{secret}"}},
        "access": {"telegram": {"work": {"allow": ["7"]}}},
    }
    assert secret.read_text() == f"{TOKEN}\n"
    assert TOKEN not in caplog.text and TOKEN not in str(done)


async def test_wrong_answers_are_problems_and_nothing_is_written(
    site: Site, tmp_path: Path, telegram: FakeTelegram
) -> None:
    telegram.webhook = {"url": "https://other.example/bot"}
    cases: list[tuple[int, str, dict[str, object], str]] = [
        (404, "pigeon", {}, "there is no setup of 'pigeon'"),
        (400, "telegram", {}, "Telegram needs token"),
        (400, "telegram", {"answers": {"token": "hunter2"}}, "does not look like a Telegram token"),
        (400, "telegram", {"answers": {"token": TOKEN, "colour": "red"}}, "does not ask for 'colour'"),
        (400, "telegram", {"answers": {"token": TOKEN, "take_over": "no"}}, "choose yes"),
        (400, "telegram", {"answers": {"token": TOKEN}, "name": "Über"}, "no name for an account"),
        (400, "telegram", {"answers": {"token": f"{TOKEN}\x00"}}, "cannot be printed"),
        (403, "telegram", {"answers": {"token": "424242:another-token"}}, "does not know this token"),
        (409, "telegram", {"answers": {"token": TOKEN}}, "by a webhook"),
    ]
    for status, platform, body, words in cases:
        told = await site.problem(status, "POST", f"{SETUPS}/{platform}", json=body)
        assert words in told
    (tmp_path / "keryx.toml").write_text("telegram = { per_second = 1 }\n")
    answers = {"token": TOKEN, "take_over": "yes"}
    told = await site.problem(400, "POST", f"{SETUPS}/telegram", json={"answers": answers})
    assert "write in it, under [telegram]" in told
    assert not (tmp_path / "secrets").exists()


async def test_a_login_by_qr_code_goes_on_with_a_second_request(site: Site, tmp_path: Path) -> None:
    with FakeWeChat() as wechat:
        answers = {"base_url": wechat.url, "cdn_url": wechat.cdn_url}
        told = await site.problem(409, "POST", f"{SETUPS}/wechat", json={"answers": answers})
        assert LINK in told and told.endswith("login = code-1")
        wechat.statuses[:] = [{"status": "scaned"}, wechat.confirm()]
        done = await site.post(f"{SETUPS}/wechat", {"answers": {**answers, "login": "code-1"}})
        assert done["allow"] == [ANN] and done["shown"] == ["Scanned. Confirm the login on the phone."]
        written = tomllib.loads((tmp_path / "keryx.toml").read_text())
        assert written["access"]["wechat"] == {"allow": [ANN]} and wechat.problems == []


SECRETS = (
    discord.TOKEN,
    slack.BOT_TOKEN,
    slack.APP_TOKEN,
    whatsapp.TOKEN,
    whatsapp.KEY,
    email.PASSWORD,
    feishu.APP_SECRET,
    imessage.PASSWORD,
    matrix.TOKEN,
    matrix.FakeMatrix.password,
)
# By name, with a variant after a comma: the fake, the answers, and what the page says when they are right.
PLATFORMS: dict[str, tuple[Callable[[], Any], Callable[[Any], dict[str, str]], str]] = {
    "discord": (
        discord.FakeDiscord,
        lambda fake: {"token": discord.TOKEN, "base_url": fake.api_url},
        "Keryx is keryx on Discord",
    ),
    "slack": (
        slack.FakeSlack,
        lambda fake: {"token": slack.BOT_TOKEN, "app_token": slack.APP_TOKEN, "base_url": fake.api_url},
        "The bot is @keryx in the workspace Fake.",
    ),
    "whatsapp": (
        whatsapp.FakeWhatsAppCloud,
        lambda fake: {
            "mode": "cloud",
            "token": whatsapp.TOKEN,
            "phone_number_id": whatsapp.NUMBER,
            "app_secret": "s3cret-of-the-app",
            "base_url": fake.url,
        },
        f"The number is {whatsapp.DISPLAY} (Keryx).",
    ),
    "whatsapp, agent": (
        whatsapp.FakeWhatsAppAgent,
        lambda fake: {"mode": "agent", "token": whatsapp.KEY, "base_url": fake.url},
        "WhatsApp knows the agent.",
    ),
    "matrix": (
        matrix.FakeMatrix,
        lambda fake: {"homeserver": fake.url, "user": fake.user, "password": fake.password},
        f"Keryx speaks as {matrix.USER}.",
    ),
    "imessage": (
        imessage.FakeBlueBubbles,
        lambda fake: {
            "transport": "bluebubbles",
            "base_url": fake.url,
            "password": imessage.PASSWORD,
            "url": "http://keryx.test:8420",
        },
        f"BlueBubbles 1.9.9 is signed in as {imessage.OWN}.",
    ),
    "email": (
        email.FakeMail,
        lambda fake: {
            "address": email.ADDRESS,
            "password": email.PASSWORD,
            "imap": fake.imap,
            "smtp": fake.smtp,
            "authserv": email.AUTHSERV,
        },
        email.ADDRESS,
    ),
    "feishu": (
        feishu.FakeFeishu,
        lambda fake: {"app_id": feishu.APP_ID, "app_secret": feishu.APP_SECRET, "base_url": fake.url},
        f"The bot is Keryx ({feishu.APP_ID}).",
    ),
    "signal": (
        signal.FakeSignalCli,
        lambda fake: {"url": fake.url},
        f"The account is {signal.NUMBER}",
    ),
}


@pytest.mark.parametrize("name", PLATFORMS)
async def test_each_platform_is_set_up_by_the_page(site: Site, tmp_path: Path, name: str) -> None:
    open_fake, build_answers, words = PLATFORMS[name]
    platform = name.partition(",")[0]
    with open_fake() as fake:
        done = await site.post(f"{SETUPS}/{platform}", {"answers": build_answers(fake)})
    assert words in done["summary"]
    written = (tmp_path / "keryx.toml").read_text()
    assert platform in tomllib.loads(written)
    assert not [secret for secret in SECRETS if secret in written + str(done)]


async def test_only_the_operator_of_a_process_with_settings_may_do_it(world: World, site: Site) -> None:
    guest = Viewer(DEFAULT_PROFILE, PrincipalId("ann"))
    async with open_site(world.hub, world.clock, operator=guest, token=WEB_TOKEN) as other:
        other.client.headers["Authorization"] = f"Bearer {WEB_TOKEN}"
        assert "only the operator" in await other.problem(403, "GET", SETUPS)
        assert "only the operator" in await other.problem(403, "POST", f"{SETUPS}/telegram", json={})
    async with open_site(world.hub, world.clock) as bare:
        assert "keryx gateway setup" in await bare.problem(503, "GET", SETUPS)
