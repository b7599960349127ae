"""Adapters of other packages: found by their entry points, and harmless when they are broken."""

import signal
import time
from pathlib import Path

import pytest
from tests.cli.driver import WAIT, Cli

PIGEON = '''
"""A platform of one message: it says what stands in the loft, and writes answers beside it."""
import asyncio
from pathlib import Path

import msgspec

from keryx.core.deliveries import Idempotency, Target
from keryx.core.messages import text_parts
from keryx.core.ports.adapter import Capabilities, InboundMessage, LinkState, RenderedPart
from keryx.core.source import ChatType, Source


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    loft: str = ""


def make(setup):
    settings = setup.read(Settings)
    return settings and Pigeon(Path(settings.loft))


class Pigeon:
    platform, account, hook = "carrier", "grey", None
    capabilities = Capabilities(idempotency=Idempotency.NATIVE)

    def __init__(self, loft):
        self.loft = loft

    async def listen(self, context):
        context.report(LinkState.CONNECTED)
        source = Source(platform="carrier", account="grey", chat="1", chat_type=ChatType.DM, user="ann")
        reply = Target("carrier", "grey", "1")
        parts = text_parts((self.loft / "said").read_text())
        await context.receive(InboundMessage(event="1", source=source, parts=parts, surface="carrier", reply=reply))
        await asyncio.Event().wait()

    async def typing(self, target):
        pass

    def parts(self, text):
        return [RenderedPart(text)]

    async def send(self, part):
        (self.loft / "answer").write_text(part.text)
        return part.key
'''


def package(site: Path, platform: str, source: str) -> None:
    """Installs a package with one module and the entry point of an adapter."""
    (site / f"{platform}_pigeon.py").write_text(source)
    about = site / f"{platform}_pigeon-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {platform}-pigeon\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[keryx.adapters]\n{platform} = {platform}_pigeon:make\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "site"
    made.mkdir()
    monkeypatch.syspath_prepend(str(made))  # pyright: ignore[reportUnknownMemberType]
    monkeypatch.setenv("PYTHONPATH", str(made))
    return made


def test_an_adapter_of_another_package_answers_beside_one_that_is_broken(tmp_path: Path, site: Path) -> None:
    package(site, "carrier", PIGEON)
    package(site, "lame", "import a_library_that_is_missing\n")
    (tmp_path / "said").write_text("coo")
    keryx = Cli(tmp_path / "home", KERYX_CARRIER_LOFT=str(tmp_path), KERYX_CARRIER_ALLOW="*")
    keryx.home.mkdir()
    (keryx.home / "keryx.toml").write_text("[lame]\nloft = 'cellar'\n")
    with keryx.serving():
        out = keryx.until("broken", "gateway", "status")
        assert "the adapter, lame_pigeon:make, cannot be used (ModuleNotFoundError)" in " ".join(out.split())
        keryx.until("carrier", "deliveries", "list", "--state", "sent")
        assert keryx.json("gateway", "status")["connections"][0]["link"] == "connected"
    assert (tmp_path / "answer").read_text() == "coo"


WILD = """
import os
import time

from keryx import TextDelta


async def agent(context):
    word = context.turn_messages[-1].text
    if word == "exit":
        raise SystemExit(3)
    if word == "hang":
        os.mkdir(os.environ["KERYX_CARRIER_LOFT"] + "/hangs")
        time.sleep(1000)
    yield TextDelta("said " + word)
"""


def test_a_node_outlives_plug_ins_that_exit_and_block(tmp_path: Path, site: Path) -> None:
    package(
        site,
        "carrier",
        PIGEON.replace("context.report(LinkState.CONNECTED)", "__import__('time').sleep(1000)"),
    )
    package(site, "lame", "def make(setup):\n    raise SystemExit(3)\n")
    (site / "wild.py").write_text(WILD)
    (site / "gone.py").write_text("raise SystemExit(4)\n")
    keryx = Cli(
        tmp_path / "home", KERYX_CARRIER_LOFT=str(tmp_path), KERYX_AGENT="wild:agent", KERYX_DRAIN="0s"
    )
    keryx.home.mkdir()
    (keryx.home / "keryx.toml").write_text(
        "[lame]\nloft = 'cellar'\n[agents.gone]\nkind = 'python'\npath = 'gone:agent'\n"
    )
    with keryx.serving() as node:
        for word, told in (("exit", "The agent failed (SystemExit)"), ("hello", "said hello")):
            session = str(keryx.json("send", word)["session"])
            keryx.until(told, "sessions", "show", session)
        keryx.ok("send", "hang")
        # A turn that had begun before it would hang too.
        deadline = time.monotonic() + WAIT
        while not (tmp_path / "hangs").exists():
            assert time.monotonic() < deadline
        keryx.until("said again", "sessions", "show", str(keryx.json("send", "again")["session"]))
        out = " ".join(keryx.until("blocked for", "gateway", "status").split())
        assert "the adapter, lame_pigeon:make, cannot be used (SystemExit)" in out
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(WAIT) == 0
        assert node.process.stderr
        log = node.process.stderr.read()
    assert "the carrier adapter has been blocked" in log and "in listen" in log
    assert "importing gone failed: SystemExit" in log


def test_settings_that_such_an_adapter_does_not_know_are_refused_by_name(tmp_path: Path, site: Path) -> None:
    package(site, "carrier", PIGEON)
    keryx = Cli(tmp_path / "home")
    keryx.home.mkdir()
    (keryx.home / "keryx.toml").write_text("[carrier]\nloftt = 'tower'\n")
    done = keryx("serve")
    told = "keryx.toml, line 2: Unknown setting carrier.loftt; did you mean carrier.loft?"
    assert done.code == 2 and told in " ".join(done.err.split())


FREEZE = """
    async def send(self, part):
        if part.text == "freeze":
            # Holds the interpreter lock for ever.
            __import__("re").match(r"(a|a)*b", "a" * 60)
"""


def test_a_delivery_that_freezes_its_sender_is_set_aside(tmp_path: Path, site: Path) -> None:
    source = PIGEON.replace("\n    async def send(self, part):\n", FREEZE).replace(
        'event="1"', "event=parts[0].text"
    )
    package(site, "carrier", source)
    (tmp_path / "said").write_text("freeze")
    keryx = Cli(
        tmp_path / "home",
        KERYX_CARRIER_LOFT=str(tmp_path),
        KERYX_CARRIER_ALLOW="*",
        KERYX_WATCHDOG_REPORT="1s",
        KERYX_WATCHDOG_EXIT="2s",
    )
    keryx.home.mkdir()
    for _ in range(4):
        process = keryx.start("serve")
        process.communicate(timeout=WAIT)
        assert process.returncode == -signal.SIGKILL
    (tmp_path / "said").write_text("hello")
    with keryx.serving() as node:
        out = keryx.until("dead", "deliveries", "list", "--state", "dead")
        assert "4 processes ended while they were sending this" in " ".join(out.split())
        keryx.until("carrier", "deliveries", "list", "--state", "sent")
        assert node.process.poll() is None
    assert (tmp_path / "answer").read_text() == "hello"
