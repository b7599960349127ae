"""The real gateways of Hermes and OpenClaw talk on a fake Telegram, are stopped, and Keryx goes on with their bots. Each test runs
where its program is installed."""

import json
import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.driver import Cli
from tests.fakes.telegram import FakeTelegram
from tests.free_ports import find_free_port
from tests.importers.fake_model import ANSWER, serve_model
from tests.importers.home_samples import GROUP, TOKEN
from tests.importers.real_programs import Place, find_program
from tests.importers.samples import write_json

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
WAIT = 90.0
TOPIC: dict[str, Any] = {"message_thread_id": 5, "is_topic_message": True}


@contextmanager
def run_gateway(home: Path, log: Path) -> Generator[subprocess.Popen[bytes]]:
    """The gateway of Hermes, until the block ends."""
    program = find_program("hermes")
    env = {"HOME": str(home), "HERMES_HOME": str(home), "PATH": os.environ["PATH"], "NO_COLOR": "1"}
    with log.open("ab") as out:
        process = subprocess.Popen(
            [program, "gateway", "run"], env=env, cwd=home, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def write_home(home: Path, telegram: FakeTelegram, model: str) -> None:
    bot = {"enabled": True, "token": TOKEN, "extra": {"base_url": f"{telegram.url}/bot"}}
    about = {"default": "fake", "provider": "custom", "base_url": f"{model}/v1", "api_key": "sk-x"}
    settings = {"model": {**about, "context_length": 200_000}, "platforms": {"telegram": bot}}
    # JSON is YAML.
    write_json(home / "config.yaml", settings)
    (home / ".env").write_text("TELEGRAM_ALLOWED_USERS=7,4242\nTELEGRAM_HOME_CHANNEL=7\n")


def count_answers(telegram: FakeTelegram, chat: int) -> int:
    # Hermes writes Telegram's Markdown.
    return sum(ANSWER in text.replace("\\", "") for text in telegram.texts(chat))


def ask(telegram: FakeTelegram, text: str, *, chat: int, user: int, name: str, **more: Any) -> None:
    """A person asks, and is answered once."""
    before = count_answers(telegram, chat)
    telegram.say(text, chat=chat, user=user, name=name, **more)
    assert telegram.wait_for(lambda: count_answers(telegram, chat) > before, WAIT), telegram.texts(chat)


def find_request(seen: list[dict[str, Any]], text: str) -> str:
    """The last request in which a person says something last."""
    found = [
        json.dumps(body["messages"])
        for body in seen
        if any(text in json.dumps(m) for m in body["messages"][-1:])
    ]
    assert found, text
    return found[-1]


def test_keryx_goes_on_where_hermes_was_stopped(tmp_path: Path) -> None:
    home, keryx, group = tmp_path / "hermes", Cli(tmp_path / "keryx", KERYX_AGENT="auto"), int(GROUP)
    seen: list[dict[str, Any]] = []
    with FakeTelegram(token=TOKEN) as telegram, serve_model(seen) as model:
        home.mkdir()
        write_home(home, telegram, model)
        with run_gateway(home, tmp_path / "hermes.log") as gateway:
            # What waits when Hermes starts is dropped by it.
            assert telegram.wait_for(lambda: telegram.polls > 0, 2 * WAIT)
            ask(telegram, "my cat is called Miro", chat=7, user=7, name="Ann")
            ask(telegram, "we meet on Friday", chat=group, user=4242, name="Ada")
            ask(telegram, "the topic is bread", chat=group, user=4242, name="Ada", **TOPIC)
            # Hermes runs and has the bot: what is there comes over, and the switch is refused.
            shown = keryx("migrate", "hermes", str(home), "--yes")
            assert shown.code == 0 and f"process {gateway.pid}" in shown.err, shown
            assert keryx("migrate", "switch", "hermes", str(home)).code == 4
            ask(telegram, "and my dog is called Otto", chat=7, user=7, name="Ann")
            gateway.send_signal(signal.SIGTERM)
            gateway.wait(WAIT)
        answers = {chat: count_answers(telegram, chat) for chat in (7, group)}
        # Nobody has the bot now.
        telegram.say("what is my cat called?", chat=7, user=7, name="Ann")
        telegram.say("when do we meet?", chat=group, user=4242, name="Ada")
        switched = keryx.json("migrate", "switch", "hermes", str(home))
        assert switched["unanswered"] == [] and switched["messages"] >= 2, switched
        seen.clear()
        with keryx.serving():
            for chat in (7, group):
                expected = answers[chat] + 1
                assert telegram.wait_for(lambda c=chat, n=expected: count_answers(telegram, c) >= n, 60)
            ask(telegram, "what is the topic?", chat=group, user=4242, name="Ada", **TOPIC)
        # One answer to each question.
        assert count_answers(telegram, 7) == answers[7] + 1
        assert count_answers(telegram, group) == answers[group] + 2
        assert telegram.updates == [] or all("topic" in json.dumps(u) for u in telegram.updates)
    direct = find_request(seen, "what is my cat called?")
    assert "my cat is called Miro" in direct and "my dog is called Otto" in direct and "Friday" not in direct
    in_group = find_request(seen, "when do we meet?")
    assert "we meet on Friday" in in_group and "bread" not in in_group and "Miro" not in in_group
    topic = find_request(seen, "what is the topic?")
    assert "the topic is bread" in topic and "Friday" not in topic
    assert len(keryx.json("sessions", "list")["sessions"]) == 3
    assert keryx.ok("verify").code == 0


def test_keryx_goes_on_where_openclaw_was_stopped(tmp_path: Path) -> None:
    keryx, group = Cli(tmp_path / "keryx", KERYX_AGENT="auto"), int(GROUP)
    seen: list[dict[str, Any]] = []
    with FakeTelegram(token=TOKEN) as telegram, serve_model(seen) as model:
        place = Place(tmp_path / "openclaw", model)
        bot = {"botToken": TOKEN, "apiRoot": telegram.url, "dmPolicy": "open", "allowFrom": ["*"]}
        groups = {"groupPolicy": "open", "groups": {"*": {"requireMention": False}}}
        auth = {"mode": "token", "token": "x" * 32}
        place.set_up_openclaw(
            gateway={"mode": "local", "port": find_free_port(), "auth": auth},
            session={"dmScope": "per-channel-peer"},
            channels={"telegram": {**bot, **groups}},
        )
        home = str(place.home / ".openclaw")
        with place.running("openclaw", "gateway", "run", log=tmp_path / "openclaw.log") as gateway:
            assert telegram.wait_for(lambda: telegram.polls > 0, 2 * WAIT)
            ask(telegram, "my boat is called Vega", chat=7, user=7, name="Ann")
            telegram.say("/new", chat=7, user=7, name="Ann")
            assert telegram.wait_for(lambda: any("session" in t for t in telegram.texts(7)), WAIT)
            ask(telegram, "my cat is called Miro", chat=7, user=7, name="Ann")
            ask(telegram, "we meet on Friday", chat=group, user=4242, name="Ada")
            ask(telegram, "the topic is bread", chat=group, user=4242, name="Ada", **TOPIC)
            shown = keryx("migrate", "openclaw", home, "--yes")
            assert shown.code == 0 and f"process {gateway.pid}" in shown.err, shown
            assert keryx("migrate", "switch", "openclaw", home).code == 4
            ask(telegram, "and my dog is called Otto", chat=7, user=7, name="Ann")
            gateway.send_signal(signal.SIGTERM)
            gateway.wait(WAIT)
        answers = {chat: count_answers(telegram, chat) for chat in (7, group)}
        # Nobody has the bot now.
        telegram.say("what is my cat called?", chat=7, user=7, name="Ann")
        telegram.say("when do we meet?", chat=group, user=4242, name="Ada")
        switched = keryx.json("migrate", "switch", "openclaw", home)
        assert switched["unanswered"] == [] and switched["messages"] == 2, switched
        seen.clear()
        with keryx.serving():
            for chat in (7, group):
                expected = answers[chat] + 1
                assert telegram.wait_for(lambda c=chat, n=expected: count_answers(telegram, c) >= n, 60)
            ask(telegram, "what is the topic?", chat=group, user=4242, name="Ada", **TOPIC)
        assert count_answers(telegram, 7) == answers[7] + 1
        assert count_answers(telegram, group) == answers[group] + 2
    direct = find_request(seen, "what is my cat called?")
    assert "my cat is called Miro" in direct and "my dog is called Otto" in direct and "Friday" not in direct
    # She began anew after that.
    assert "Vega" not in direct
    in_group = find_request(seen, "when do we meet?")
    assert "we meet on Friday" in in_group and "bread" not in in_group and "Miro" not in in_group
    assert "the topic is bread" in find_request(seen, "what is the topic?")
    assert len(keryx.json("sessions", "list")["sessions"]) == 3
    assert keryx.ok("verify").code == 0
