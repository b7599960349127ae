"""The Slack storm: `keryx serve` with the real adapter by Socket Mode, a strict Slack that misbehaves, and kill -9 again and again.

python -m tests.faults.slack_storm --kills 300
"""

import sys
from functools import partial
from pathlib import Path

from tests.fakes.slack import APP_TOKEN, BOT_TOKEN, BOT_USER, FakeSlack
from tests.faults.campaign import command
from tests.faults.node import Node
from tests.faults.storm import Report, Storm

from keryx.testing.fault_injection import PlatformFaults

ROUGH = PlatformFaults(duplicate=0.05, throttle=0.02, lost_reply=0.02)
CHATS = 20
PER_SECOND = 25


class StormChats:
    """Direct chats and threads of channels on the fake, by turns, named as the storm names them."""

    def __init__(self, slack: FakeSlack) -> None:
        self._slack = slack

    def say(self, chat: str, text: str) -> None:
        number = _read_number(chat)
        if number % 2:
            self._slack.say(
                f"<@{BOT_USER}> {text}", channel=_build_id(number), thread_ts=f"1690000000.{number:06}"
            )
        else:
            self._slack.say(text, channel=_build_id(number))

    def texts(self, chat: str) -> list[str]:
        return self._slack.texts(_build_id(_read_number(chat)))


def run(
    home: Path,
    kills: int,
    *,
    seed: int,
    between: tuple[float, float],
    database: str = "",
    progress: bool = False,
) -> Report:
    with FakeSlack(ROUGH, seed=seed) as slack:
        command = [str(Path(sys.executable).with_name("keryx")), "serve", "--port", "0", "--json"]
        environ = {
            "KERYX_SLACK_TOKEN": BOT_TOKEN,
            "KERYX_SLACK_APP_TOKEN": APP_TOKEN,
            "KERYX_SLACK_BASE_URL": slack.api_url,
            "KERYX_SLACK_ALLOW": "*",
        }
        with Node(slack.url, home, database=database, command=command, **environ) as node:
            storm = Storm(StormChats(slack), node, chats=CHATS, per_second=PER_SECOND, seed=seed)
            return storm.run(kills, between=between, progress=progress)


def _read_number(chat: str) -> int:
    return int(chat.rpartition("-")[2])


def _build_id(number: int) -> str:
    return f"{'C' if number % 2 else 'D'}{1001 + number:07}"


if __name__ == "__main__":
    sys.exit(command(__doc__, 300, partial(run, between=(0.05, 2.5), progress=True)))
