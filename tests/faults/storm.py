"""The storm: messages stream in while the node is killed again and again; then every chat is read as a person would.

python -m tests.faults.storm --kills 500
python -m tests.faults.storm --kills 100 --database postgresql://...
"""

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.fakes.platform import Platform
from tests.faults.campaign import command
from tests.faults.node import Node

from keryx.core.deliveries import REPEAT_MARK
from keryx.testing.fault_injection import PlatformFaults

# Longer than the longest pause between two attempts to deliver, which a slow machine brings about.
QUIET_SECONDS = 150


class Stage(Protocol):
    """A platform as people see it."""

    def say(self, chat: str, text: str) -> None: ...

    def texts(self, chat: str) -> list[str]: ...


class KillableNode(Protocol):
    @property
    def process(self) -> "subprocess.Popen[bytes]": ...

    @property
    def log(self) -> str: ...

    def start(self, *, wait: bool = True) -> None: ...

    def kill(self) -> None: ...


@dataclass
class Report:
    """What a person would have seen."""

    said: int = 0
    lost: list[str] = field(default_factory=list[str])
    # Not answered, in a chat that was told that messages were not taken.
    refused: list[str] = field(default_factory=list[str])
    silent_duplicates: list[str] = field(default_factory=list[str])
    marked: int = 0
    # Marked repeats are no repeats that a platform with a key of its own needs.
    may_mark: bool = True
    inversions: list[str] = field(default_factory=list[str])
    strangers: list[str] = field(default_factory=list[str])
    # What no real platform would have taken.
    problems: list[str] = field(default_factory=list[str])

    @property
    def clean(self) -> bool:
        found = self.lost or self.silent_duplicates or self.inversions or self.strangers or self.problems
        return not found and (self.may_mark or not self.marked)

    def table(self) -> str:
        """The figures, one to a line, and the first few of whatever should not be there."""
        rows = {
            "said": [str(self.said)],
            "lost": self.lost,
            "refused with a notice": [str(len(self.refused))],
            "silent duplicates": self.silent_duplicates,
            "order inversions": self.inversions,
            "in the wrong chat, or never said": self.strangers,
            "refused by the platform": self.problems,
            "marked repeats": [str(self.marked)],
        }
        lines: list[str] = []
        for name, found in rows.items():
            plain = name in ("said", "refused with a notice", "marked repeats")
            lines.append(f"{name:34}{found[0] if plain else len(found):>8}")
            lines += [] if plain else [f"    {text}" for text in found[:10]]
        return "\n".join(lines)

    def __str__(self) -> str:
        return (
            f"{self.said} said, {len(self.lost)} lost, {len(self.refused)} refused with a notice, {len(self.silent_duplicates)} silent duplicates, "
            f"{len(self.inversions)} order inversions, {len(self.strangers)} in the wrong chat or never said, "
            f"{self.marked} marked repeats"
        )


@dataclass
class Storm:
    platform: Stage
    node: KillableNode
    chats: int = 8
    per_second: float = 40
    seed: int = 1
    # Texts by which people are told that messages wait, and that they were not taken.
    waits: str = ""
    refusal: str = ""
    said: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def run(
        self, kills: int, *, between: tuple[float, float] = (0.05, 2.0), progress: bool = False
    ) -> Report:
        rng = random.Random(self.seed)
        over = threading.Event()
        speaker = threading.Thread(target=self.speak, args=(over,))
        self.node.start()
        self._alive()
        speaker.start()
        for number in range(1, kills + 1):
            time.sleep(rng.uniform(*between))
            self.node.kill()
            self.node.start(wait=rng.random() < 0.7)
            if progress and number % 25 == 0:
                print(f"{number} kills, {sum(map(len, self.said.values()))} said", flush=True)
        over.set()
        speaker.join()
        if self.node.process.poll() is not None:
            self.node.start()
            self._alive()
        self.settle()
        return self.report()

    def _alive(self) -> None:
        assert self.node.process.poll() is None, f"the node does not start:\n{self.node.log[-2000:]}"

    def speak(self, over: threading.Event) -> None:
        rng = random.Random(self.seed + 1)
        number = 0
        while not over.wait(rng.expovariate(self.per_second)):
            number += 1
            chat = f"chat-{rng.randrange(self.chats)}"
            text = f"{chat} says {number}"
            self.said.setdefault(chat, []).append(text)
            self.platform.say(chat, text)

    def settle(self, seconds: float = QUIET_SECONDS) -> None:
        """Wait until everything said is answered or was refused, or nothing new has come for long."""
        last, count = time.monotonic(), 0
        while time.monotonic() - last < seconds and self._unanswered():
            shown = sum(len(self.platform.texts(chat)) for chat in self.said)
            if shown > count:
                last, count = time.monotonic(), shown
            time.sleep(0.5)
        time.sleep(1)

    def _unanswered(self) -> bool:
        return any(
            not set(said) <= {bare(text) for text in self.platform.texts(chat)}
            for chat, said in self.said.items()
        )

    def report(self) -> Report:
        report = Report(said=sum(map(len, self.said.values())))
        for chat, said in self.said.items():
            all_shown = self.platform.texts(chat)
            shown = [t for t in all_shown if bare(t) not in (self.waits, self.refusal)]
            report.marked += sum(t.startswith(REPEAT_MARK) for t in shown)
            counts = Counter(t for t in shown if not t.startswith(REPEAT_MARK))
            answered = [bare(t) for t in shown]
            missing = [t for t in said if t not in set(answered)]
            told = self.refusal and self.refusal in map(bare, all_shown)
            (report.refused if told else report.lost).extend(missing)
            report.silent_duplicates += [t for t, n in counts.items() if n > 1]
            report.strangers += [t for t in answered if t not in set(said)]
            first = list(dict.fromkeys(answered))
            wanted = [t for t in said if t in set(first)]
            report.inversions += [t for t, w in zip(first, wanted, strict=False) if t != w]
        return report


def bare(text: str) -> str:
    return text.removeprefix(REPEAT_MARK)


def run(home: Path, kills: int, *, seed: int, database: str) -> Report:
    faults = PlatformFaults(duplicate=0.05, throttle=0.02, broken=0.02, lost_reply=0.02)
    with Platform(faults, seed=seed) as platform, Node(platform.url, home, database=database) as node:
        return Storm(platform, node, seed=seed).run(kills, progress=True)


if __name__ == "__main__":
    sys.exit(command(__doc__, 500, run))
