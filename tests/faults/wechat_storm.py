"""The WeChat storm: `keryx serve` with the real adapter, a fake iLink API that misbehaves, and kill -9 again and again.

python -m tests.faults.wechat_storm --kills 100
"""

import sys
from functools import partial
from pathlib import Path

from tests.fakes.wechat import BOT, TOKEN, FakeWeChat
from tests.faults.campaign import command
from tests.faults.node import Node
from tests.faults.storm import Report, Storm

from keryx.testing.fault_injection import PlatformFaults

ROUGH = PlatformFaults(duplicate=0.05, reorder=0.1, torn=0.02, throttle=0.02, broken=0.01, lost_reply=0.02)
CHATS = 20
PER_SECOND = 25


class Chats:
    """People on the fake, named as the storm names them."""

    def __init__(self, wechat: FakeWeChat) -> None:
        self._wechat = wechat

    def say(self, chat: str, text: str) -> None:
        self._wechat.write(f"{chat}@im.wechat", text)

    def texts(self, chat: str) -> list[str]:
        return self._wechat.texts(f"{chat}@im.wechat")


def run(
    home: Path,
    kills: int,
    *,
    seed: int,
    between: tuple[float, float],
    database: str = "",
    progress: bool = False,
) -> Report:
    with FakeWeChat(ROUGH, seed=seed) as wechat:
        serve = [str(Path(sys.executable).with_name("keryx")), "serve", "--port", "0", "--json"]
        environ = {
            "KERYX_WECHAT_TOKEN": TOKEN,
            "KERYX_WECHAT_BOT_ID": BOT,
            "KERYX_WECHAT_BASE_URL": wechat.url,
            "KERYX_WECHAT_CDN_URL": wechat.cdn_url,
            "KERYX_WECHAT_ALLOW": "*",
        }
        with Node(wechat.url, home, database=database, command=serve, **environ) as node:
            storm = Storm(Chats(wechat), node, chats=CHATS, per_second=PER_SECOND, seed=seed)
            report = storm.run(kills, between=between, progress=progress)
        assert wechat.problems == [], wechat.problems[:5]
        stale = [bubble for bubble in wechat.bubbles if not bubble.token]
        assert not stale, f"{len(stale)} answers without a context token"
        return report


if __name__ == "__main__":
    sys.exit(command(__doc__, 100, partial(run, between=(0.05, 2.5), progress=True)))
