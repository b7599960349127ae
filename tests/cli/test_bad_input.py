"""What no platform would send, against a running node with all of them: the status says what is wrong, and nothing is lost."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from tests.cli.driver import WAIT, Cli
from tests.cli.test_refused_platforms import CHAT, Stages, list_links, serve_platforms
from tests.faults.platform_storm import PlatformChats

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
        assert time.monotonic() < deadline, links
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
