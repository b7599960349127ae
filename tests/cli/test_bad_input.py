"""What no platform would send, or sends again, and other programs on its accounts, against a running node with all of them: the
status says what is wrong, and nothing is lost."""

import json
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.driver import WAIT, Cli
from tests.cli.test_refused_platforms import (
    CHAT,
    TOGETHER,
    Stages,
    list_links,
    serve_platforms,
    wait_for_connections,
)
from tests.fakes.discord import FakeDiscord
from tests.faults.platform_storm import PlatformChats
from websockets.sync.client import connect

from keryx.testing.fault_injection import PlatformFaults

# Those that ask for events all the time, so that they notice at once who answers.
POLLING = ("telegram", "signal", "wechat", "imessage-bluebubbles")
# Those that ask for an address before they connect. Discord is told it once, and keeps it.
CONNECTED = ("slack", "feishu")
POSTED = ("slack-events", "whatsapp-cloud", "feishu-posts", "imessage-bluebubbles")
HOOKS = {"slack-events": "slack", "whatsapp-cloud": "whatsapp", "feishu-posts": "feishu"}


def say_and_expect(stages: Stages, *texts: str) -> None:
    """Write the last text on each platform, and wait until each text is answered once and in order."""
    for stage in stages.values():
        stage.say(CHAT, texts[-1])
    for name, stage in stages.items():
        assert stage.fake.wait_for(partial(has_texts, stage, texts)), (name, stage.texts(CHAT))


def has_texts(stage: PlatformChats[Any], texts: tuple[str, ...]) -> bool:
    return stage.texts(CHAT) == list(texts)


def wait_for_link(keryx: Cli, platform: str, fits: Callable[[dict[str, Any]], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not (platform in (links := list_links(keryx)) and fits(links[platform])):
        assert time.monotonic() < deadline, json.dumps(links.get(platform))
        time.sleep(0.1)


def is_connected(link: dict[str, Any]) -> bool:
    return link["link"] == "connected"


def is_explained(link: dict[str, Any]) -> bool:
    return link["link"] == "connecting" and bool(link["detail"])


def test_while_something_else_answers_the_status_says_so_and_afterwards_all_is_answered(
    tmp_path: Path,
) -> None:
    with serve_platforms(tmp_path, *POLLING, *CONNECTED, "discord") as (keryx, stages):
        say_and_expect(stages, "one")
        for stage in stages.values():
            stage.fake.set_faults(PlatformFaults(garbled=1))
        stages["discord"].fake.invalidate()
        stages["slack"].fake.disconnect("refresh_requested")
        stages["feishu"].fake.disconnect()
        for name in POLLING + CONNECTED:
            wait_for_link(keryx, name.partition("-")[0], is_explained)
        assert keryx.ok("send", "--wait", "still here").out.strip().endswith("still here")
        for stage in stages.values():
            stage.fake.set_faults(PlatformFaults())
        say_and_expect(stages, "one", "two")
        for name in stages:
            wait_for_link(keryx, name.partition("-")[0], is_connected)


def test_posts_of_strangers_are_refused_and_change_nothing(tmp_path: Path) -> None:
    with serve_platforms(tmp_path, *POSTED) as (keryx, stages):
        say_and_expect(stages, "one")
        for name, stage in stages.items():
            url = f"{stage.hooks}/{HOOKS.get(name, 'imessage')}"
            signed = {
                "x-slack-signature": "v0=00",
                "x-slack-request-timestamp": str(int(time.time())),
                "x-hub-signature-256": "sha256=00",
                "x-lark-signature": "00",
                "x-lark-request-timestamp": str(int(time.time())),
                "x-lark-request-nonce": "1",
            }
            for headers in ({}, signed):
                for body in (b"{}", b"{broken", b"[" * 100_000):
                    answer = httpx.post(url, content=body, headers=headers, timeout=WAIT)
                    assert answer.status_code in (401, 403, 404), (name, headers, body[:10], answer)
            answer = httpx.post(url, content=b" " * 40_000_000, headers=signed, timeout=WAIT)
            assert answer.status_code in (401, 403, 404, 413), (name, answer)
        say_and_expect(stages, "one", "two")
        links = list_links(keryx)
        assert all(is_connected(links[name.partition("-")[0]]) for name in stages)


@pytest.mark.parametrize("names", TOGETHER, ids=["nine", "three"])
def test_what_a_platform_sends_twice_is_answered_once(tmp_path: Path, names: list[str]) -> None:
    # What comes by a hook too, in the place of a connection.
    names = [{"slack": "slack-events", "feishu": "feishu-posts"}.get(name, name) for name in names]
    with serve_platforms(tmp_path, *names) as (keryx, stages):
        # Signal is connected when its first call returns, seconds later without a message.
        wait_for_connections(keryx, *(name for name in names if name != "signal"))
        for stage in stages.values():
            stage.fake.set_faults(PlatformFaults(duplicate=1))
        say_and_expect(stages, "one")
        say_and_expect(stages, "one", "two")
        for name in names:
            wait_for_link(keryx, name.partition("-")[0], is_connected)


def test_a_clock_that_is_wrong_is_told_and_what_was_refused_is_answered_once(tmp_path: Path) -> None:
    with serve_platforms(tmp_path, "slack-events", "telegram") as (keryx, stages):
        wait_for_connections(keryx, "slack", "telegram")
        slack = stages["slack-events"]
        for minutes, words in ((42, "42 minutes ahead of"), (-42, "42 minutes behind")):
            slack.fake.minutes_ahead = minutes
            slack.say(CHAT, words)
            wait_for_link(keryx, "slack", lambda link, words=words: words in link["detail"])
            assert not slack.texts(CHAT)
            say_and_expect(
                {"telegram": stages["telegram"]},
                *((words,) if minutes > 0 else ("42 minutes ahead of", words)),
            )
        slack.fake.minutes_ahead = 0
        assert slack.fake.wait_for(lambda: len(slack.texts(CHAT)) == 2), slack.texts(CHAT)
        wait_for_link(keryx, "slack", is_connected)


@contextmanager
def poll_elsewhere(url: str, headers: dict[str, str]) -> Generator[None]:
    """Another program that asks for the same events all the time."""
    over = threading.Event()

    def poll() -> None:
        while not over.wait(0.05):
            httpx.get(url, headers=headers, timeout=WAIT)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def evict(discord: FakeDiscord) -> None:
    """Continue the session of the node on another connection."""
    [session] = discord.sessions.values()
    with connect(f"{discord.gateway_url}/?v=10&encoding=json") as socket:
        assert json.loads(socket.recv())["op"] == 10
        place = {"token": discord.token, "session_id": session.id, "seq": len(session.events)}
        socket.send(json.dumps({"op": 6, "d": place}))
        assert json.loads(socket.recv())["t"] == "RESUMED"


@pytest.mark.slow
def test_another_program_on_the_same_account_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    with serve_platforms(tmp_path, "telegram", "whatsapp-agent", "discord", "wechat") as (keryx, stages):
        say_and_expect(stages, "one")
        telegram, whatsapp, discord = (stages[n].fake for n in ("telegram", "whatsapp-agent", "discord"))
        with (
            poll_elsewhere(f"{telegram.url}/bot{telegram.token}/getUpdates?timeout=1", {}),
            poll_elsewhere(
                f"{whatsapp.url}/agent/v1/updates?offset=0&limit=100&timeout=1",
                {"authorization": f"Bearer {whatsapp.token}"},
            ),
        ):
            for name in ("telegram", "whatsapp"):
                wait_for_link(
                    keryx,
                    name,
                    lambda link: link["link"] == "refused" and "another program" in link["detail"],
                )
            evict(discord)
            quiet = {name: stages[name] for name in ("discord", "wechat")}
            say_and_expect(quiet, "one", "two")
            for stage in (stages["telegram"], stages["whatsapp-agent"]):
                stage.say(CHAT, "two")
        for name, stage in stages.items():
            assert stage.fake.wait_for(partial(has_texts, stage, ("one", "two"))), (name, stage.texts(CHAT))
            wait_for_link(keryx, name.partition("-")[0], is_connected)
