"""Platforms that refuse the credentials of a running node: each says so in `keryx gateway status`, and the others go on."""

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.cli.driver import WAIT, Cli
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
}


@contextmanager
def serve_platforms(folder: Path, *names: str) -> Generator[tuple[Cli, Stages]]:
    """Yield a node that is connected to fakes without faults."""
    port, stages = find_free_port(), dict[str, PlatformChats[Any]]()
    variables = {"KERYX_PORT": str(port)}
    for name in names:
        home = folder / name
        home.mkdir()
        stages[name] = PLATFORMS[name](home, 1)
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


def find_link(keryx: Cli, platform: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = keryx.json("gateway", "status")["connections"]
    [link] = [each for each in found if each["platform"] == platform]
    return link


def test_a_platform_that_refuses_the_credentials_says_so_and_the_others_go_on(tmp_path: Path) -> None:
    with serve_platforms(tmp_path, *CASES) as (keryx, stages):
        for stage in stages.values():
            stage.say(CHAT, "hello")
        for name, stage in stages.items():
            assert stage.fake.wait_for(partial(has_hello, stage)), name
        for name, (revoke, words) in CASES.items():
            revoke(stages[name].fake)
            stages[name].say(CHAT, "again")
            deadline = time.monotonic() + WAIT
            while (link := find_link(keryx, name.partition("-")[0]))["link"] != "refused":
                assert time.monotonic() < deadline, (name, link)
                time.sleep(0.1)
            assert words in link["detail"], (name, link)
            later = list(CASES)[list(CASES).index(name) + 1 :]
            assert all(find_link(keryx, each.partition("-")[0])["link"] == "connected" for each in later)
        assert keryx.ok("send", "--wait", "still here").out.strip().endswith("still here")
