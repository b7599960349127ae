"""The WhatsApp storm: `keryx serve` with the real adapters, fakes of both platforms of Meta that misbehave, and kill -9 again and again.

python -m tests.faults.whatsapp_storm --kills 100
"""

import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.fakes.whatsapp import (
    APP_SECRET,
    KEY,
    NUMBER,
    TOKEN,
    VERIFY_TOKEN,
    FakeWhatsAppAgent,
    FakeWhatsAppCloud,
)
from tests.faults.campaign import command
from tests.faults.node import Node
from tests.faults.storm import Report, Storm

from keryx.testing.fault_injection import PlatformFaults

ROUGH = PlatformFaults(duplicate=0.05, throttle=0.02, lost_reply=0.02)
CHATS = 20
PER_SECOND = 25


class Chats:
    """Direct chats on a fake, named as the storm names them."""

    def __init__(self, whatsapp: FakeWhatsAppCloud | FakeWhatsAppAgent, name: Callable[[int], str]) -> None:
        self._whatsapp = whatsapp
        self._name = name

    def say(self, chat: str, text: str) -> None:
        self._whatsapp.write(self._find(chat), text)

    def texts(self, chat: str) -> list[str]:
        return self._whatsapp.texts(self._find(chat))

    def _find(self, chat: str) -> str:
        return self._name(int(chat.rpartition("-")[2]))


@dataclass(frozen=True)
class BothReports:
    reports: dict[str, Report]

    @property
    def clean(self) -> bool:
        return all(report.clean for report in self.reports.values())

    def table(self) -> str:
        return "\n".join(f"{name}:\n{report.table()}" for name, report in self.reports.items())


def run_agent(
    home: Path,
    kills: int,
    *,
    seed: int,
    between: tuple[float, float],
    database: str = "",
    progress: bool = False,
) -> Report:
    people = tuple(_name_user(number) for number in range(CHATS))
    with FakeWhatsAppAgent(ROUGH, seed=seed, people=people) as whatsapp:
        environ = {
            "KERYX_WHATSAPP_MODE": "agent",
            "KERYX_WHATSAPP_TOKEN": KEY,
            "KERYX_WHATSAPP_BASE_URL": whatsapp.url,
            "KERYX_WHATSAPP_PER_MINUTE": "0",
            "KERYX_WHATSAPP_POLLS_PER_MINUTE": "0",
            "KERYX_WHATSAPP_ALLOW": "*",
        }
        with Node(whatsapp.url, home, database=database, command=_build_command(0), **environ) as node:
            chats = Chats(whatsapp, _name_user)
            storm = Storm(chats, node, chats=CHATS, per_second=PER_SECOND, seed=seed)
            report = storm.run(kills, between=between, progress=progress)
        assert whatsapp.problems == [], whatsapp.problems[:5]
        return report


def run_cloud(
    home: Path,
    kills: int,
    *,
    seed: int,
    between: tuple[float, float],
    database: str = "",
    progress: bool = False,
) -> Report:
    """WhatsApp posts in order, each again until it is taken. The real one does not keep the order of what it repeats."""
    port, over = _find_port(), threading.Event()
    with FakeWhatsAppCloud(ROUGH, seed=seed) as whatsapp:
        environ = {
            "KERYX_WHATSAPP_MODE": "cloud",
            "KERYX_WHATSAPP_TOKEN": TOKEN,
            "KERYX_WHATSAPP_APP_SECRET": APP_SECRET,
            "KERYX_WHATSAPP_VERIFY_TOKEN": VERIFY_TOKEN,
            "KERYX_WHATSAPP_PHONE_NUMBER_ID": NUMBER,
            "KERYX_WHATSAPP_BASE_URL": whatsapp.url,
            "KERYX_WHATSAPP_ALLOW": "*",
        }
        url = f"http://127.0.0.1:{port}/hooks/whatsapp"
        poster = threading.Thread(target=whatsapp.post_to, args=(lambda: url, over))
        with Node(whatsapp.url, home, database=database, command=_build_command(port), **environ) as node:
            storm = Storm(Chats(whatsapp, _name_person), node, chats=CHATS, per_second=PER_SECOND, seed=seed)
            poster.start()
            try:
                report = storm.run(kills, between=between, progress=progress)
            finally:
                over.set()
                poster.join()
        assert whatsapp.problems == [], whatsapp.problems[:5]
        return report


def run(
    home: Path,
    kills: int,
    *,
    seed: int,
    between: tuple[float, float],
    database: str = "",
    progress: bool = False,
) -> BothReports:
    reports: dict[str, Report] = {}
    for name, storm in (("agent", run_agent), ("cloud", run_cloud)):
        folder = home / name
        folder.mkdir()
        reports[name] = storm(folder, kills, seed=seed, between=between, database=database, progress=progress)
    return BothReports(reports)


def _name_user(number: int) -> str:
    return f"user:{1001 + number}"


def _name_person(number: int) -> str:
    return f"US.{1001 + number}"


def _build_command(port: int) -> list[str]:
    return [str(Path(sys.executable).with_name("keryx")), "serve", "--port", str(port), "--json"]


def _find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(command(__doc__, 100, partial(run, between=(0.05, 2.5), progress=True)))
