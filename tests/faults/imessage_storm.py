"""The iMessage storm: `keryx serve` with the real adapters, `imsg` as a program and a BlueBubbles server that misbehave, and kill -9 again and again.

python -m tests.faults.imessage_storm --kills 100 --transport imsg
"""

import argparse
import shlex
import socket
import sys
from functools import partial
from pathlib import Path

from tests.fakes.imessage import PASSWORD, SECRET, FakeBlueBubbles, FakeImsg, MessagesFake
from tests.faults.campaign import command
from tests.faults.node import Node
from tests.faults.storm import Report, Storm

from keryx.testing.fault_injection import PlatformFaults

IMSG_ROUGH = PlatformFaults(duplicate=0.05, torn=0.002, lost_reply=0.02)
# A part of the posts is lost, too.
BLUEBUBBLES_ROUGH = PlatformFaults(duplicate=0.05, reorder=0.2, torn=0.02, lost_reply=0.02)
LOST_POSTS = 0.3
CHATS = 20
PER_SECOND = 25


class Chats:
    """Direct chats on a fake, named as the storm names them. People write after Keryx was there for the first time: it
    does not answer what is older."""

    def __init__(self, messages: MessagesFake) -> None:
        self._messages = messages

    def say(self, chat: str, text: str) -> None:
        assert self._messages.wait_for(lambda: self._messages.reads > 0)
        self._messages.write(_name_person(chat), text)

    def texts(self, chat: str) -> list[str]:
        return self._messages.texts(_name_person(chat))


def run_imsg(
    home: Path,
    kills: int,
    *,
    seed: int,
    between: tuple[float, float],
    database: str = "",
    progress: bool = False,
) -> Report:
    with FakeImsg(home / "mac", IMSG_ROUGH, seed=seed) as messages:
        environ = {"KERYX_IMESSAGE_COMMAND": shlex.join(messages.command)}
        return _run(messages, home, kills, 0, environ, seed, between, database, progress)


def run_bluebubbles(
    home: Path,
    kills: int,
    *,
    seed: int,
    between: tuple[float, float],
    database: str = "",
    progress: bool = False,
) -> Report:
    port = _find_port()
    with FakeBlueBubbles(BLUEBUBBLES_ROUGH, seed=seed) as messages:
        messages.lost_posts = LOST_POSTS
        environ = {
            "KERYX_IMESSAGE_TRANSPORT": "bluebubbles",
            "KERYX_IMESSAGE_BASE_URL": messages.url,
            "KERYX_IMESSAGE_PASSWORD": PASSWORD,
            "KERYX_IMESSAGE_SECRET": SECRET,
            "KERYX_IMESSAGE_URL": f"http://127.0.0.1:{port}",
            "KERYX_IMESSAGE_POLL": "1",
        }
        return _run(messages, home, kills, port, environ, seed, between, database, progress)


def _run(
    messages: MessagesFake,
    home: Path,
    kills: int,
    port: int,
    environ: dict[str, str],
    seed: int,
    between: tuple[float, float],
    database: str,
    progress: bool,
) -> Report:
    serve = [str(Path(sys.executable).with_name("keryx")), "serve", "--port", str(port), "--json"]
    with Node(
        messages.url, home, database=database, command=serve, KERYX_IMESSAGE_ALLOW="*", **environ
    ) as node:
        storm = Storm(Chats(messages), node, chats=CHATS, per_second=PER_SECOND, seed=seed)
        report = storm.run(kills, between=between, progress=progress)
    assert messages.problems == [], messages.problems[:5]
    return report


RUNS = {"imsg": run_imsg, "bluebubbles": run_bluebubbles}


def _name_person(chat: str) -> str:
    return f"+1555{1_000_000 + int(chat.rpartition('-')[2])}"


def _find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--transport", choices=sorted(RUNS), default="imsg")
    chosen, sys.argv[1:] = parser.parse_known_args()
    run = partial(RUNS[chosen.transport], between=(0.05, 2.5), progress=True)
    sys.exit(command(__doc__, 100, run))
