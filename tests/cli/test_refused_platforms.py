"""Platforms that refuse the credentials of a running node, and requests that no platform has made: `keryx gateway status`
tells of each, and the others go on."""

import re
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.driver import WAIT, Cli
from tests.fakes.matrix import FakeMatrix
from tests.faults.platform_storm import PLATFORMS, PlatformChats
from tests.free_ports import find_free_port

from keryx.testing.fault_injection import PlatformFaults

Stages = dict[str, PlatformChats[Any]]
CHAT = "chat-2"


def revoke_token(fake: Any) -> None:
    fake.token = "another"


def revoke_slack(fake: Any) -> None:
    fake.valid_tokens.clear()


def revoke_feishu(fake: Any) -> None:
    fake.secret = "another"
    fake.revoke_tokens()


def revoke_password(fake: Any) -> None:
    fake.password = "another"
    # A connection that is signed in may go on.
    fake.disconnect()


def change_password(fake: Any) -> None:
    fake.password = "another"


def end_session(fake: Any) -> None:
    fake.expired = True


def lock_disk(fake: Any) -> None:
    fake.startup_error = "authorization denied (code: 23): the database requires Full Disk Access permission"
    fake.cut()


def forget_account(fake: Any) -> None:
    fake.accounts.clear()


# How the credentials end, and words of the sentence that the status shows.
CASES: dict[str, tuple[Callable[[Any], None], str]] = {
    "telegram": (revoke_token, "keryx gateway setup telegram"),
    "discord": (revoke_token, "keryx gateway setup discord"),
    "slack": (revoke_slack, "keryx gateway setup slack"),
    "whatsapp-cloud": (revoke_token, "keryx gateway setup whatsapp"),
    "email": (revoke_password, "refuses the user name"),
    "signal": (forget_account, "keryx gateway setup signal"),
    "wechat": (end_session, "keryx gateway setup wechat"),
    "feishu": (revoke_feishu, "does not accept the App ID"),
    "imessage-bluebubbles": (change_password, "keryx gateway setup imessage"),
    "whatsapp-agent": (revoke_token, "keryx gateway setup whatsapp"),
    "imessage-imsg": (lock_disk, "Full Disk Access"),
    "matrix": (revoke_token, "keryx gateway setup matrix"),
}
# Those that one node connects at once: one way of each platform.
TOGETHER = [[*CASES][:-3], [*CASES][-3:]]


class MatrixRooms(PlatformChats[FakeMatrix]):
    id_format = "!room{}:fake.test"

    def __init__(self, home: Path, seed: int) -> None:
        fake = FakeMatrix(seed=seed)
        super().__init__(
            fake, "matrix", homeserver=fake.url, user=fake.user, token=fake.token, encryption="false"
        )

    def say(self, chat: str, text: str) -> None:
        self.fake.say(self.find(chat), text)

    def texts(self, chat: str) -> list[str]:
        return self.fake.texts(self.find(chat))


STAGES: dict[str, Callable[[Path, int], PlatformChats[Any]]] = {**PLATFORMS, "matrix": MatrixRooms}


@contextmanager
def serve_platforms(folder: Path, *names: str) -> Generator[tuple[Cli, Stages]]:
    """Yield a node that is connected to fakes without faults."""
    port, stages = find_free_port(), dict[str, PlatformChats[Any]]()
    variables = {"KERYX_PORT": str(port)}
    for name in names:
        home = folder / name
        home.mkdir()
        stages[name] = STAGES[name](home, 1)
        stages[name].fake.set_faults(PlatformFaults())
        stages[name].port = port
        variables |= stages[name].environ
    if "imessage-bluebubbles" in names:
        variables["KERYX_IMESSAGE_URL"] = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        for stage in stages.values():
            stack.enter_context(stage.serve())
        keryx = Cli(folder, **variables)
        stack.enter_context(keryx.serving())
        yield keryx, stages


def has_hello(stage: PlatformChats[Any]) -> bool:
    return "hello" in stage.texts(CHAT)


def list_links(keryx: Cli) -> dict[str, dict[str, Any]]:
    """Return how each platform is connected, by its name."""
    return {each["platform"]: each for each in keryx.json("gateway", "status")["connections"]}


def is_connected(links: dict[str, dict[str, Any]], *names: str) -> bool:
    platforms = [name.partition("-")[0] for name in names]
    return all(each in links and links[each]["link"] == "connected" for each in platforms)


def wait_for_connections(keryx: Cli, *names: str) -> None:
    deadline = time.monotonic() + WAIT
    while not is_connected(links := list_links(keryx), *names):
        assert time.monotonic() < deadline, links
        time.sleep(0.1)


@pytest.mark.parametrize("names", TOGETHER, ids=["nine", "three"])
def test_a_platform_that_refuses_the_credentials_says_so_and_the_others_go_on(
    tmp_path: Path, names: list[str]
) -> None:
    with serve_platforms(tmp_path, *names) as (keryx, stages):
        # Signal is connected when its first call returns, seconds later without a message.
        wait_for_connections(keryx, *(name for name in names if name != "signal"))
        for stage in stages.values():
            stage.say(CHAT, "hello")
        for name, stage in stages.items():
            assert stage.fake.wait_for(partial(has_hello, stage)), name
        for name in names:
            revoke, words = CASES[name]
            revoke(stages[name].fake)
            stages[name].say(CHAT, "again")
            deadline = time.monotonic() + WAIT
            while (link := (links := list_links(keryx))[name.partition("-")[0]])["link"] != "refused":
                assert time.monotonic() < deadline, (name, link)
                time.sleep(0.1)
            assert words in link["detail"], (name, link)
            assert is_connected(links, *names[names.index(name) + 1 :]), (name, links)
        assert keryx.ok("send", "--wait", "still here").out.strip().endswith("still here")


FORGED = {"x-slack-signature": "v0=00", "x-slack-request-timestamp": "1", "x-hub-signature-256": "sha256=00"}
# By the path of the hook: what comes without a proof, with a wrong one, broken, and too large.
BAD_REQUESTS: dict[str, dict[str, tuple[bytes, dict[str, str]]]] = {
    path: {
        "unsigned": (b"{}", {}),
        "forged": (b'{"event": 1}', FORGED),
        "broken": (b'{"encrypt": "', FORGED),
        "oversized": (b"x" * 5_000_000, FORGED),
    }
    for path in ("slack", "whatsapp", "feishu", "imessage")
}


def test_requests_that_no_platform_has_made_are_counted_and_nothing_is_lost(tmp_path: Path) -> None:
    names = ("slack-events", "whatsapp-cloud", "feishu-posts", "imessage-bluebubbles", "telegram")
    with serve_platforms(tmp_path, *names) as (keryx, stages):
        wait_for_connections(keryx, *names)
        assert "Rejected at the hook" not in keryx.ok("gateway", "status").out
        hooks = stages["slack-events"].hooks
        for path, requests in BAD_REQUESTS.items():
            for kind, (body, headers) in requests.items():
                answer = httpx.post(f"{hooks}/{path}", content=body, headers=headers)
                assert answer.status_code == (413 if kind == "oversized" else 401), (path, kind)
        for name, stage in stages.items():
            stage.say(CHAT, "hello")
            assert stage.fake.wait_for(partial(has_hello, stage)), name
        counted = httpx.get(f"{hooks.removesuffix('/hooks')}/metrics").text
        for platform in (*BAD_REQUESTS, "telegram"):
            [count] = re.findall(rf'keryx_adapter_rejected_total{{adapter="{platform}[^"]*"}} (\d+)', counted)
            assert int(count) == len(BAD_REQUESTS.get(platform, {})), platform
        deadline = time.monotonic() + WAIT
        # The first one is written at once, the number of all within seconds.
        while (out := keryx.ok("gateway", "status").out).count("Rejected at the hook of") != len(
            BAD_REQUESTS
        ):
            assert time.monotonic() < deadline, out
            time.sleep(0.1)
        assert is_connected(list_links(keryx), *BAD_REQUESTS, "telegram")
