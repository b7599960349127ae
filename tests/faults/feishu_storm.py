"""The Feishu storm: `keryx serve` with the real adapter by the long connection, a strict Feishu that misbehaves, and kill -9 again and again.

python -m tests.faults.feishu_storm --kills 300
"""

import sys
from functools import partial
from pathlib import Path

from tests.fakes.feishu import APP_ID, APP_SECRET, FakeFeishu
from tests.faults.campaign import command
from tests.faults.node import Node
from tests.faults.storm import Report, Storm

from keryx.testing.fault_injection import PlatformFaults

ROUGH = PlatformFaults(duplicate=0.05, throttle=0.02, broken=0.02, lost_reply=0.02)
CHATS = 20
PER_SECOND = 25


class StormChats:
    """Direct chats, groups and threads of groups on the fake, by turns, named as the storm names them."""

    def __init__(self, feishu: FakeFeishu) -> None:
        self._feishu = feishu
        self._roots: dict[str, str] = {}

    def say(self, chat: str, text: str) -> None:
        number = int(chat.rpartition("-")[2])
        id_ = _build_id(chat)
        if number % 3 == 0:
            self._feishu.say(text, chat=id_, user=f"ou_{number}")
        elif number % 3 == 1:
            self._feishu.say(text, chat=id_, group=True, mention=True)
        else:
            if id_ not in self._roots:
                self._roots[id_] = self._feishu.say("the topic", chat=id_, group=True)
            self._feishu.say_in_thread(text, self._roots[id_], chat=id_, group=True, mention=True)

    def texts(self, chat: str) -> list[str]:
        return self._feishu.texts(_build_id(chat))


def run(
    home: Path,
    kills: int,
    *,
    seed: int,
    between: tuple[float, float],
    database: str = "",
    progress: bool = False,
) -> Report:
    with FakeFeishu(ROUGH, seed=seed) as feishu:
        serve = [str(Path(sys.executable).with_name("keryx")), "serve", "--port", "0", "--json"]
        environ = {
            "KERYX_FEISHU_APP_ID": APP_ID,
            "KERYX_FEISHU_APP_SECRET": APP_SECRET,
            "KERYX_FEISHU_BASE_URL": feishu.url,
            "KERYX_FEISHU_PER_CHAT": "0",
            "KERYX_FEISHU_PER_SECOND": "0",
            "KERYX_FEISHU_ALLOW": "*",
        }
        with Node(feishu.url, home, database=database, command=serve, **environ) as node:
            storm = Storm(StormChats(feishu), node, chats=CHATS, per_second=PER_SECOND, seed=seed)
            report = storm.run(kills, between=between, progress=progress)
        report.strangers += feishu.problems
        return report


def _build_id(chat: str) -> str:
    return f"oc_storm{chat.rpartition('-')[2]}"


if __name__ == "__main__":
    sys.exit(command(__doc__, 100, partial(run, between=(0.05, 2.5), progress=True)))
