"""The Discord storm: `keryx serve` with the real adapter, a strict Discord that misbehaves and loses sessions, and kill -9 again and again.

python -m tests.faults.discord_storm --kills 100
"""

import random
import sys
from functools import partial
from pathlib import Path

from tests.fakes.discord import BOT, BOT_ID, TOKEN, FakeDiscord
from tests.faults.campaign import command
from tests.faults.node import Node
from tests.faults.storm import Report, Storm

from keryx.testing.fault_injection import PlatformFaults

ROUGH = PlatformFaults(duplicate=0.05, throttle=0.02, lost_reply=0.02, torn=0.002)
CHATS = 20
PER_SECOND = 25
# Discord forgets all sessions in this share of the messages, so that nothing can be resumed.
LOST_SESSIONS = 0.004
_FIRST_CHAT = 7001


class Chats:
    """Channels of a server on the fake, named as the storm names them. Direct chats that nobody has used before cannot be
    asked for missed messages."""

    def __init__(self, discord: FakeDiscord, seed: int) -> None:
        self._discord = discord
        self._random = random.Random(seed)
        for number in range(CHATS):
            discord.add_channel(str(_FIRST_CHAT + number), name=f"chat-{number}")
        self.lost_sessions = 0

    def say(self, chat: str, text: str) -> None:
        # Discord hands over nothing that was written before the first sign-in.
        assert self._discord.wait_for(lambda: self._discord.identifies > 0)
        if self._random.random() < LOST_SESSIONS:
            self.lost_sessions += 1
            self._discord.invalidate()
        self._discord.say(f"<@{BOT_ID}> {text}", channel=_id(chat), user=_id(chat), mentions=[BOT])

    def texts(self, chat: str) -> list[str]:
        return self._discord.texts(_id(chat))


def run(
    home: Path,
    kills: int,
    *,
    seed: int,
    between: tuple[float, float],
    database: str = "",
    progress: bool = False,
) -> Report:
    with FakeDiscord(ROUGH, seed=seed) as discord:
        program = [str(Path(sys.executable).with_name("keryx")), "serve", "--port", "0", "--json"]
        environ = {
            "KERYX_DISCORD_TOKEN": TOKEN,
            "KERYX_DISCORD_BASE_URL": discord.api_url,
            "KERYX_DISCORD_ALLOW": "*",
        }
        with Node(discord.url, home, database=database, command=program, **environ) as node:
            chats = Chats(discord, seed)
            report = Storm(chats, node, chats=CHATS, per_second=PER_SECOND, seed=seed).run(
                kills, between=between, progress=progress
            )
            if progress:
                print(
                    f"{discord.resumes} resumes, {discord.identifies} sign-ins, {chats.lost_sessions} lost sessions"
                )
            return report


def _id(chat: str) -> str:
    return str(_FIRST_CHAT + int(chat.rpartition("-")[2]))


if __name__ == "__main__":
    sys.exit(command(__doc__, 100, partial(run, between=(0.05, 2.5), progress=True)))
