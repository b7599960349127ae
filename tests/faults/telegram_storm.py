"""The Telegram storm: `keryx serve` with the real adapter, a strict Bot API that misbehaves, and kill -9 again and again.

python -m tests.faults.telegram_storm --kills 300
"""

import sys
from functools import partial
from pathlib import Path

from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.faults.campaign import command
from tests.faults.node import Node
from tests.faults.storm import Report, Storm

from keryx.testing.fault_injection import PlatformFaults

ROUGH = PlatformFaults(duplicate=0.05, throttle=0.02, lost_reply=0.02)
CHATS = 20
PER_SECOND = 25
_FIRST_CHAT = 1001


class Chats:
    """Direct chats on the fake, named as the storm names them."""

    def __init__(self, telegram: FakeTelegram) -> None:
        self._telegram = telegram

    def say(self, chat: str, text: str) -> None:
        self._telegram.say(text, chat=_id(chat))

    def texts(self, chat: str) -> list[str]:
        return self._telegram.texts(_id(chat))


def run(
    home: Path,
    kills: int,
    *,
    seed: int,
    between: tuple[float, float],
    database: str = "",
    progress: bool = False,
) -> Report:
    with FakeTelegram(ROUGH, seed=seed) as telegram:
        command = [str(Path(sys.executable).with_name("keryx")), "serve", "--port", "0", "--json"]
        environ = {
            "KERYX_TELEGRAM_TOKEN": TOKEN,
            "KERYX_TELEGRAM_BASE_URL": telegram.url,
            "KERYX_TELEGRAM_ALLOW": "*",
        }
        with Node(telegram.url, home, database=database, command=command, **environ) as node:
            storm = Storm(Chats(telegram), node, chats=CHATS, per_second=PER_SECOND, seed=seed)
            return storm.run(kills, between=between, progress=progress)


def _id(chat: str) -> int:
    return _FIRST_CHAT + int(chat.rpartition("-")[2])


if __name__ == "__main__":
    sys.exit(command(__doc__, 300, partial(run, between=(0.05, 2.5), progress=True)))
