"""What the README says of each platform is what its adapter declares, and a platform that is used loads no other."""

import json
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import discord, email, feishu, signal, slack, telegram, wechat, whatsapp

from keryx.core.deliveries import Idempotency
from keryx.surfaces.gateway.adapter_settings import ENTRY_POINT_GROUP, AdapterSetup

ROOT = Path(__file__).parents[2]
# The settings of each platform, with secrets in variables.
ENVIRON = {
    "BOT": slack.BOT_TOKEN,
    "APP": slack.APP_TOKEN,
    "DISCORD": discord.TOKEN,
    "TELEGRAM": telegram.TOKEN,
    "KEY": whatsapp.KEY,
    "WECHAT": wechat.TOKEN,
    "FEISHU": feishu.APP_SECRET,
    "SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
}
TABLES: dict[str, dict[str, Any]] = {
    "telegram": {"token": "env:TELEGRAM"},
    "discord": {"token": "env:DISCORD"},
    "slack": {"token": "env:BOT", "app_token": "env:APP"},
    "whatsapp": {"mode": "agent", "token": "env:KEY"},
    "signal": {"account": signal.NUMBER},
    "matrix": {"homeserver": "https://matrix.example.org", "user": "@k:example.org", "token": "env:KEY"},
    "imessage": {"transport": "imsg"},
    "wechat": {"token": "env:WECHAT", "bot_id": wechat.BOT},
    "feishu": {"app_id": feishu.APP_ID, "app_secret": "env:FEISHU"},
    "email": {
        "address": email.ADDRESS,
        "imap": "imaps://mx.hub.test",
        "smtp": "smtps://mx.hub.test",
        "authserv": email.AUTHSERV,
        "password": "env:KEY",
    },
    "webhook": {"secret": "env:SECRET", "url": "https://agent.example.org/in"},
}
WORDS = {
    Idempotency.NATIVE: "taken once",
    Idempotency.RECONCILE: "looked for first",
    Idempotency.NONE: "marked",
}
# Loads and makes the adapter of a platform, each in a process of its own, and prints what packages of platforms that needed.
LOADING = """
import json, os, sys
from importlib.metadata import entry_points
from pathlib import Path
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
home, tables, environ = map(json.loads, sys.argv[1:])
for point in entry_points(group="keryx.adapters"):
    if point.name in tables:
        sys.stdout.flush()
        if not os.fork():
            setup = AdapterSetup(platform=point.name, home=Path(home), table=tables[point.name], environ=environ)
            assert point.load()(setup)
            loaded = {name.split(".")[3] for name in sys.modules if name.startswith("keryx.surfaces.gateway.")}
            print(json.dumps([point.name, sorted(loaded)]), flush=True)
            os._exit(0)
        os.wait()
"""


def test_every_platform_is_here() -> None:
    assert set(TABLES) == {
        e.name for e in entry_points(group=ENTRY_POINT_GROUP) if e.value.startswith("keryx.")
    }


@pytest.mark.parametrize("platform", TABLES)
def test_the_readme_tells_what_becomes_of_an_answer_that_may_have_arrived(
    platform: str, tmp_path: Path
) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [row] = re.findall(
        rf"^\| \[[^\]]+\]\(docs/how-to/{platform}\.md\) \|[^|]+\| ([^|]+) \|$", readme, re.MULTILINE
    )
    [point] = [e for e in entry_points(group=ENTRY_POINT_GROUP) if e.name == platform]
    setup = AdapterSetup(platform=platform, home=tmp_path, table=TABLES[platform], environ=ENVIRON)
    adapter = point.load()(setup)
    assert row.startswith(WORDS[adapter.capabilities.idempotency])


def test_a_platform_that_is_used_loads_no_other(tmp_path: Path) -> None:
    given = map(json.dumps, (str(tmp_path), TABLES, ENVIRON))
    done = subprocess.run([sys.executable, "-c", LOADING, *given], capture_output=True, text=True, check=True)
    loaded = dict(map(json.loads, done.stdout.splitlines()))
    assert set(loaded) == set(TABLES)
    for platform, modules in loaded.items():
        assert platform in modules and set(modules) & set(TABLES) == {platform}
