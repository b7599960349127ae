"""The Signal storm: `keryx serve` with the real adapter, a strict signal-cli that misbehaves, and kill -9 again and again.

signal-cli goes on with a call of a killed Keryx, takes the next message from Signal and hands it to nobody: it is in the
spool, or lost.

python -m tests.faults.signal_storm --kills 100
"""

import sys
from functools import partial
from pathlib import Path

from tests.fakes.signal import NUMBER, FakeSignalCli
from tests.faults.campaign import command
from tests.faults.node import Node
from tests.faults.storm import Report, Storm

from keryx.testing.fault_injection import PlatformFaults

ROUGH = PlatformFaults(duplicate=0.05, torn=0.02, throttle=0.02, broken=0.02, lost_reply=0.02, retry_after=1)
CHATS = 20
PER_SECOND = 25
_LONGEST_WAIT = 5.0


class Chats:
    """Direct chats on the fake, named as the storm names them."""

    def __init__(self, signal: FakeSignalCli) -> None:
        self._signal = signal

    def say(self, chat: str, text: str) -> None:
        self._signal.write(_name_person(chat), text)

    def texts(self, chat: str) -> list[str]:
        return self._signal.texts(_name_person(chat))


def run(
    home: Path,
    kills: int,
    *,
    seed: int,
    between: tuple[float, float],
    database: str = "",
    progress: bool = False,
    spool: bool = True,
) -> Report:
    """Without a spool, what signal-cli hands to a killed process is lost."""
    output = home / "received.jsonl"
    output.touch()
    stdout = output if spool else None
    with FakeSignalCli(ROUGH, seed=seed, stdout=stdout, longest_wait=_LONGEST_WAIT) as signal:
        serve = [str(Path(sys.executable).with_name("keryx")), "serve", "--port", "0", "--json"]
        environ = {
            "KERYX_SIGNAL_ACCOUNT": NUMBER,
            "KERYX_SIGNAL_URL": signal.url,
            "KERYX_SIGNAL_SPOOL": str(stdout or ""),
            "KERYX_SIGNAL_ALLOW": "*",
        }
        with Node(signal.url, home, database=database, command=serve, **environ) as node:
            storm = Storm(Chats(signal), node, chats=CHATS, per_second=PER_SECOND, seed=seed)
            report = storm.run(kills, between=between, progress=progress)
        assert signal.problems == [], signal.problems[:5]
        return report


def _name_person(chat: str) -> str:
    return f"00000000-0000-4000-8000-{1001 + int(chat.rpartition('-')[2]):012}"


if __name__ == "__main__":
    sys.exit(command(__doc__, 100, partial(run, between=(0.05, 2.5), progress=True)))
