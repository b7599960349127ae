"""The e-mail storm: `keryx serve` with the real adapter, a strict provider that misbehaves, and kill -9 again and again.

python -m tests.faults.email_storm --kills 100
"""

import sys
from functools import partial
from pathlib import Path

from tests.fakes.email import ADDRESS, AUTHSERV, PASSWORD, FakeMail
from tests.faults.campaign import command
from tests.faults.node import Node
from tests.faults.storm import Report, Storm

from keryx.testing.fault_injection import PlatformFaults

ROUGH = PlatformFaults(duplicate=0.05, reorder=0.1, torn=0.01, throttle=0.02, broken=0.02, lost_reply=0.02)
CHATS = 20
PER_SECOND = 8


class Threads:
    """One thread of each person with Keryx, named as the storm names chats."""

    def __init__(self, fake: FakeMail) -> None:
        self._fake = fake

    def say(self, chat: str, text: str) -> None:
        self._fake.write(_address(chat), text, references=[f"<{chat}@people.test>"])

    def texts(self, chat: str) -> list[str]:
        return self._fake.texts(_address(chat))


def run(
    home: Path,
    kills: int,
    *,
    seed: int,
    between: tuple[float, float],
    database: str = "",
    progress: bool = False,
    saves_sent: bool = False,
) -> Report:
    with FakeMail(ROUGH, seed=seed, saves_sent=saves_sent) as fake:
        serve = [str(Path(sys.executable).with_name("keryx")), "serve", "--port", "0", "--json"]
        environ = {
            "KERYX_EMAIL_ADDRESS": ADDRESS,
            "KERYX_EMAIL_PASSWORD": PASSWORD,
            "KERYX_EMAIL_IMAP": fake.imap,
            "KERYX_EMAIL_SMTP": fake.smtp,
            "KERYX_EMAIL_AUTHSERV": AUTHSERV,
            "KERYX_EMAIL_SAVES_SENT": "true" if saves_sent else "false",
            "KERYX_EMAIL_PER_HOUR": "0",
            "KERYX_EMAIL_ALLOW": "*",
        }
        with Node(fake.imap, home, database=database, command=serve, **environ) as node:
            storm = Storm(Threads(fake), node, chats=CHATS, per_second=PER_SECOND, seed=seed)
            # What came before the first connection would not be answered.
            node.start()
            assert fake.wait_for(lambda: "IDLE" in fake.commands)
            node.kill()
            report = storm.run(kills, between=between, progress=progress)
        report.strangers += fake.errors
        return report


def _address(chat: str) -> str:
    return f"{chat}@people.test"


if __name__ == "__main__":
    sys.exit(command(__doc__, 100, partial(run, between=(0.05, 2.5), progress=True)))
