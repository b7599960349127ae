"""A siege of one node: it is started, measured in quiet, attacked, and judged by what its well-behaved users saw."""

import json
import os
import random
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.faults.node import Node
from tests.faults.siege import model, plugins
from tests.faults.siege.floor import FLOOR
from tests.faults.siege.neighbour import SmallDisk
from tests.faults.storm import Report, Storm, bare
from tests.free_ports import find_free_port
from tests.hostile.corpus import build_messages

from keryx.testing.wire import WireRequest, WireResponse

ATTACKERS = ("person", "network", "model", "plugins", "neighbour")
CHATS = 20
PER_SECOND = 10
DESCRIPTORS = 1_024
FULL_DISK_SECONDS = 10
# The first ids of the chats of hostile people: those of the corpus, of the model's ways and of the plug-in agents.
_CORPUS_CHAT, _MODEL_CHAT, _PLUGIN_CHAT = 5_000, 6_000, 7_000
_FIRST_CHAT = 1_001
# What the node may keep of a siege in memory, in MiB, and how long it may take to end and how much it may log.
_MEMORY_MARGIN = 150
_HIGHEST_MARGIN = 600
_WEB_TOKEN = "the-token-of-the-siege-which-strangers-lack"
_STOP_SECONDS = 30
_LONGEST_STOP = 120
_LOG_BYTES = 20_000_000
# Those who would act from other machines. Here they leave the processors to the node, except for what they make it do.
_ELSEWHERE = ("person", "network", "model")
Goal: TypeAlias = Callable[[float, float], bool]
_GOALS: dict[tuple[str, float], Goal] = {
    ("answer in a chat", 0.95): lambda quiet, siege: siege <= 2 * quiet,
    ("health", 0.99): lambda quiet, siege: siege < 50,
    ("list", 0.95): lambda quiet, siege: siege < max(500, 3 * quiet),
    ("open", 0.95): lambda quiet, siege: siege < max(500, 3 * quiet),
    ("event", 0.95): lambda quiet, siege: siege < max(1_000, 3 * quiet),
}
# How much of each second the node used: on all its threads, on the event loop, and how long its loop was ready and had no
# processor, which is the machine's part of a slow answer.
_SHARES: dict[str, Callable[["_Reading"], float]] = {
    "processor time of the node": lambda reading: reading.whole,
    "processor time of its loop": lambda reading: reading.loop,
    "its loop without a processor": lambda reading: reading.waited,
}
_ROOT = Path(__file__).parents[3]
_SETTINGS = """
agent = "echo"
[telegram]
[access.telegram]
allow = ["*"]
[[models]]
name = "siege"
base_url = "{model}"
id = "{id}"
key = "env:SIEGE_KEY"
titles = false
[agents.model]
kind = "llm"
rules = [{model_rules}]
"""
_PLUGIN = """
[agents.{name}]
kind = "python"
path = "tests.faults.siege.plugins:{name}"
rules = [{{ platform = "telegram", chat = {chat} }}]
"""


class Telegram(FakeTelegram):
    """Notes when each text was first shown."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shown_at: dict[str, float] = {}

    def handle(self, request: WireRequest) -> WireResponse | None:
        response = super().handle(request)
        if request.path.endswith(("/sendMessage", "/editMessageText")):
            text = str(json.loads(request.body).get("text"))
            self.shown_at.setdefault(bare(text), time.monotonic())
        return response


class Chats:
    """The well-behaved chats, named as the storm names them."""

    def __init__(self, telegram: Telegram) -> None:
        self._telegram = telegram
        self.said_at: dict[str, float] = {}

    def say(self, chat: str, text: str) -> None:
        self.said_at[text] = time.monotonic()
        self._telegram.say(text, chat=_FIRST_CHAT + int(chat.rpartition("-")[2]))

    def texts(self, chat: str) -> list[str]:
        return self._telegram.texts(_FIRST_CHAT + int(chat.rpartition("-")[2]))

    def delays(self, begin: float, end: float) -> list[float]:
        """How long the answers took to what was said in this time."""
        shown = self._telegram.shown_at
        return [shown[text] - at for text, at in self.said_at.items() if begin <= at < end and text in shown]


@dataclass
class Samples:
    """Seconds by name and time; `None` is a failure."""

    rows: list[tuple[str, float, float | None]] = field(default_factory=list[tuple[str, float, float | None]])

    def between(self, name: str, begin: float, end: float) -> list[float]:
        return [s for n, at, s in self.rows if n == name and begin <= at < end and s is not None]

    def failures(self, name: str, begin: float, end: float) -> int:
        return sum(n == name and begin <= at < end and s is None for n, at, s in self.rows)


@dataclass(frozen=True)
class Figure:
    """A figure before the siege, if there is one, and during it, and whether its goal was met, if it has one."""

    name: str
    quiet: float | None
    siege: float
    unit: str = ""
    ok: bool | None = None

    def __str__(self) -> str:
        sign = {True: "ok", False: "MISSED", None: ""}[self.ok]
        quiet = "" if self.quiet is None else f"{self.quiet:.4g} {self.unit}"
        return f"{self.name:34}{quiet:>14}{f'{self.siege:.4g} {self.unit}':>14}  {sign}".rstrip()


@dataclass
class Verdict:
    chats: Report
    figures: list[Figure]

    @property
    def clean(self) -> bool:
        return self.chats.clean and all(figure.ok is not False for figure in self.figures)

    def table(self) -> str:
        return "\n".join([f"{'':34}{'quiet':>14}{'siege':>14}", *map(str, self.figures), self.chats.table()])


@dataclass
class Siege:
    home: Path
    seconds: float
    quiet_seconds: float
    attackers: Sequence[str]
    database: str = ""
    seed: int = 1
    # Attackers that ended before their time.
    failed: int = field(default=0, init=False)

    def run(self) -> Verdict:
        disk = SmallDisk(self.home) if "neighbour" in self.attackers and not self.database else None
        if disk and not disk.mounted:
            print("the full disk is left out: a small disk cannot be mounted", flush=True)
        try:
            with _process("model") as address, Telegram(seed=self.seed) as telegram:
                self._configure(address.line)
                return self._run(telegram, disk if disk and disk.mounted else None)
        finally:
            if disk:
                disk.remove()

    def _run(self, telegram: Telegram, disk: SmallDisk | None) -> Verdict:
        site = self.home / "site"
        environ = {
            "KERYX_TELEGRAM_TOKEN": TOKEN,
            "KERYX_TELEGRAM_BASE_URL": telegram.url,
            "SIEGE_KEY": model.KEY,
            "KERYX_WEB_TOKEN": _WEB_TOKEN,
            "PYTHONPATH": f"{_ROOT}:{site}",
        }
        port = find_free_port()
        command = [str(Path(sys.executable).with_name("keryx")), "serve", "--port", str(port), "--json"]
        limited = ["sh", "-c", f'ulimit -Sn {DESCRIPTORS}; exec "$@"', "sh", *command]
        with Node(telegram.url, self.home, database=self.database, command=limited, **environ) as node:
            node.start()
            assert node.process.poll() is None, f"the node does not start:\n{node.log[-3000:]}"
            chats = Chats(telegram)
            storm = Storm(chats, node, chats=CHATS, per_second=PER_SECOND, seed=self.seed)
            watch = _Usage(node.process.pid)
            over = threading.Event()
            speaker = threading.Thread(target=storm.speak, args=(over,))
            whole = self.quiet_seconds + self.seconds + 60
            with (
                _process("probe", port, whole, KERYX_WEB_TOKEN=_WEB_TOKEN) as probe,
                _process("floor", self.home, whole) as floor,
                watch,
            ):
                speaker.start()
                time.sleep(self.quiet_seconds)
                began = time.monotonic()
                # The editor of the hostile person uses the same store.
                store = {"KERYX_HOME": str(self.home), "KERYX_DATABASE": self.database, "KERYX_AGENT": "echo"}
                full = self._attack(telegram, port, disk, {**environ, **store})
                ended = time.monotonic()
                time.sleep(10)
                over.set()
                speaker.join()
                storm.settle()
                time.sleep(20)
            lived = node.process.poll() is None
            stop = time.monotonic()
            node.process.terminate()
            try:
                node.end(_LONGEST_STOP)
            except subprocess.TimeoutExpired:
                node.kill()
            stopping = time.monotonic() - stop
            return self._judge(
                storm.report(),
                chats,
                Samples(probe.samples + floor.samples),
                watch,
                (began, ended),
                full,
                lived,
                stopping,
                node,
            )

    def _attack(
        self, telegram: Telegram, port: int, disk: SmallDisk | None, environ: Mapping[str, str]
    ) -> tuple[float, float]:
        """Let all attackers act for the time; gives when the disk was full."""
        until = time.monotonic() + self.seconds
        half = time.monotonic() + self.seconds / 2
        full = (0.0, 0.0)
        running = [
            _spawn(name, *arguments, **environ)
            for name, arguments in (
                ("person", (port, self.seconds)),
                ("network", (port, self.seconds)),
                ("neighbour", (self.seconds,)),
            )
            if name in self.attackers
        ]
        said = self._hostile_messages()
        try:
            while time.monotonic() < until:
                if said:
                    chat, text = said[random.randrange(len(said))]
                    telegram.say(text, chat=chat, name="Mallory")
                if disk and full == (0.0, 0.0) and time.monotonic() > half:
                    disk.fill()
                    filled = time.monotonic()
                    time.sleep(FULL_DISK_SECONDS)
                    disk.free()
                    full = (filled, time.monotonic() + 5)
                time.sleep(0.3)
        finally:
            for process in running:
                self.failed += process.poll() not in (None, 0)
                process.kill()
                process.wait(30)
        return full

    def _hostile_messages(self) -> list[tuple[int, str]]:
        """What hostile people write, with the chats in which they do."""
        said: list[tuple[int, str]] = []
        if "person" in self.attackers:
            said += [(_CORPUS_CHAT + n % 20, text) for n, text in enumerate(build_messages(3_000))]
        if "model" in self.attackers:
            said += [(_MODEL_CHAT + n, way) for n, way in enumerate(model.NAMES)] * 5
        if "plugins" in self.attackers:
            said += [(_PLUGIN_CHAT + n, "go") for n in range(len(plugins.AGENTS))] * 5
        return said

    def _configure(self, address: str) -> None:
        rules = ", ".join(
            f'{{ platform = "telegram", chat = {_MODEL_CHAT + n} }}' for n in range(len(model.NAMES))
        )
        settings = _SETTINGS.format(model=address, id=model.MODEL, model_rules=rules)
        if "plugins" in self.attackers:
            for number, agent in enumerate(plugins.AGENTS):
                settings += _PLUGIN.format(name=agent.__name__, chat=_PLUGIN_CHAT + number)
            settings += f"[{plugins.PLATFORM}]\n[access.{plugins.PLATFORM}]\nallow = ['*']\n"
            about = self.home / "site" / "rogue-1.dist-info"
            about.mkdir(parents=True)
            (about / "METADATA").write_text("Metadata-Version: 2.1\nName: rogue\nVersion: 1\n")
            (about / "entry_points.txt").write_text(
                f"[keryx.adapters]\n{plugins.PLATFORM} = tests.faults.siege.plugins:make\n"
            )
        (self.home / "keryx.toml").write_text(settings)

    def _judge(
        self,
        report: Report,
        chats: Chats,
        samples: Samples,
        usage: "_Usage",
        siege: tuple[float, float],
        full: tuple[float, float],
        lived: bool,
        stopping: float,
        node: Node,
    ) -> Verdict:
        began, ended = siege
        # The time of the full disk is left out of the delays: nothing can be stored then, so nothing is answered.
        parts = [(began, full[0]), (full[1], ended)] if full[0] else [(began, ended)]
        # The first answers are slow: caches are empty.
        quiet = (began - self.quiet_seconds + 5, began)
        figures: list[Figure] = []

        def compare(name: str, share: float, before: list[float], during: list[float]) -> None:
            quiet, siege = (_share(values, share) * 1000 for values in (before, during))
            goal = _GOALS.get((name, share))
            figures.append(
                Figure(f"{name}, p{share * 100:g}", quiet, siege, "ms", goal and goal(quiet, siege))
            )

        for share in (0.5, 0.95):
            during = [delay for part in parts for delay in chats.delays(*part)]
            compare("answer in a chat", share, chats.delays(*quiet), during)
        for name, share in (
            (FLOOR, 0.5),
            (FLOOR, 0.95),
            ("health", 0.5),
            ("health", 0.99),
            ("event", 0.95),
            ("commit to event", 0.95),
            ("list", 0.95),
            ("open", 0.95),
        ):
            during = [taken for part in parts for taken in samples.between(name, *part)]
            compare(name, share, samples.between(name, *quiet), during)
        for name in ("health", "event", "list", "open"):
            failed = sum(samples.failures(name, *part) for part in parts)
            figures.append(Figure(f"{name}, failed", samples.failures(name, *quiet), failed, ok=failed == 0))
        for name, read in _SHARES.items():
            figures.append(Figure(name, usage.share(read, *quiet), usage.share(read, *siege), "ms/s"))
        before, after = usage.most(*quiet), usage.last()
        highest = usage.most(*siege)
        figures += [
            Figure("memory, highest", before, highest, "MiB", highest <= before + _HIGHEST_MARGIN),
            Figure("memory, afterwards", before, after, "MiB", after <= before + _MEMORY_MARGIN),
            Figure("attackers that failed", None, self.failed, ok=not self.failed),
            Figure("the node ended", None, not lived, ok=lived),
            Figure("SIGTERM to end", None, stopping, "s", stopping < _STOP_SECONDS),
            Figure("log", None, len(node.log) / 1e6, "MB", len(node.log) < _LOG_BYTES),
        ]
        return Verdict(report, figures)


@dataclass(frozen=True)
class _Reading:
    """What a process has used so far: memory in MiB, seconds of processor time of all its threads and of the main one,
    and seconds for which the main one was ready and had no processor."""

    at: float
    mib: int
    whole: float
    loop: float
    waited: float


class _Usage:
    """What a process uses, read each second."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        self._readings: list[_Reading] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "_Usage":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def most(self, begin: float, end: float) -> int:
        return max((reading.mib for reading in self._between(begin, end)), default=0)

    def last(self) -> int:
        return self._readings[-1].mib if self._readings else 0

    def share(self, read: Callable[[_Reading], float], begin: float, end: float) -> float:
        """How many milliseconds of each second were used."""
        readings = self._between(begin, end)
        if len(readings) < 2:
            return 0.0
        first, last = readings[0], readings[-1]
        return 1000 * (read(last) - read(first)) / (last.at - first.at)

    def _between(self, begin: float, end: float) -> list[_Reading]:
        return [reading for reading in self._readings if begin <= reading.at <= end]

    def _watch(self) -> None:
        loop = self._folder / "task" / self._folder.name / "schedstat"
        while not self._over.wait(1):
            try:
                status = (self._folder / "status").read_text()
                # User and system time are the 12th and 13th field behind the name, which may have spaces.
                times = (self._folder / "stat").read_text().rpartition(")")[2].split()
                ran, waited = (int(value) / 1e9 for value in loop.read_text().split()[:2])
            except OSError:
                return
            kib = next((line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")), "0")
            whole = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
            self._readings.append(_Reading(time.monotonic(), int(kib) // 1024, whole, ran, waited))


class _Started:
    """A program of the siege: its first line, or the samples that it prints."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.samples: list[tuple[str, float, float | None]] = []

    @property
    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def collect(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, at, seconds = json.loads(line)
            self.samples.append((name, at, seconds))


def _spawn(name: str, *arguments: Any, **environ: str) -> "subprocess.Popen[str]":
    # The attackers may open more files than the node.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    command = [sys.executable, "-m", f"tests.faults.siege.{name}", *map(str, arguments)]
    return subprocess.Popen(
        ["nice", "-n", "10", *command] if name in _ELSEWHERE else command,
        cwd=_ROOT,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def _process(name: str, *arguments: Any, **environ: str) -> Generator[_Started]:
    process = _spawn(name, *arguments, **environ)
    started = _Started(process)
    collector = threading.Thread(target=started.collect)
    if arguments:
        collector.start()
    try:
        yield started
    finally:
        process.kill()
        process.wait(30)
        if arguments:
            collector.join()


def _share(values: list[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else float("inf")
