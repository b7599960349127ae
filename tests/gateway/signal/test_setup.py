"""The setup of Signal: the account that signal-cli has, or one that is linked by a QR code."""

from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tests.cli.driver import Cli
from tests.fakes.signal import LINK, NUMBER, VERSION, FakeSignalCli, RpcRefusal

from keryx.core.errors import Conflict, Invalid, Unavailable
from keryx.core.ports.setup import ENTRY_POINT_GROUP, SetupOutcome
from keryx.surfaces.gateway import qr_code
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.signal import make
from keryx.surfaces.gateway.signal.setup import SETUP
from keryx.testing.wire import UNREACHABLE_URL


class Form:
    """A form: what is shown is read when the check is over."""

    label = "signal"
    configured: Mapping[str, object] = {}

    def __init__(self) -> None:
        self.shown: list[str] = []

    def show(self, text: str) -> None:
        self.shown.append(text)


class Terminal(Form):
    async def ask(self, question: str) -> str:
        raise AssertionError("there is nothing to ask")


@pytest.fixture
def signal() -> Iterator[FakeSignalCli]:
    with FakeSignalCli() as fake:
        yield fake


async def check(signal: FakeSignalCli, dialog: Form | None = None, **answers: str) -> SetupOutcome:
    return await SETUP.check({"url": signal.url, "use": "keryx", **answers}, dialog or Terminal())


def test_the_setup_is_found_by_its_entry_point() -> None:
    [found] = entry_points(group=ENTRY_POINT_GROUP, name="signal")
    assert found.load() is SETUP and not any(field.secret for field in SETUP.fields)


async def test_the_only_account_is_taken_and_its_settings_make_an_adapter(
    signal: FakeSignalCli, tmp_path: Path
) -> None:
    spool = tmp_path / "received.jsonl"
    spool.touch()
    outcome = await check(signal, spool=str(spool))
    assert outcome.summary == f"The account is {NUMBER}, by signal-cli {VERSION}."
    assert outcome.settings == {"account": NUMBER, "url": signal.url, "spool": str(spool)}
    assert outcome.secrets == {} and outcome.allow == ()
    assert "strangers get a code" in outcome.note and "spool" not in outcome.note
    adapter = make(AdapterSetup(platform="signal", home=tmp_path, table=dict(outcome.settings)))
    assert adapter is not None and adapter.account == NUMBER


async def test_the_account_of_a_person_hears_notes_only_and_lets_them_in(
    signal: FakeSignalCli, tmp_path: Path
) -> None:
    outcome = await check(signal, use="me")
    assert outcome.settings["notes_only"] == "true" and outcome.allow == (NUMBER,)
    assert "notes to self and nothing else" in outcome.note and "can be lost" in outcome.note
    assert make(AdapterSetup(platform="signal", home=tmp_path, table=dict(outcome.settings))) is not None


@pytest.mark.parametrize("link", ["", "yes"])
async def test_a_new_device_is_linked_by_a_code_to_scan(signal: FakeSignalCli, link: str) -> None:
    signal.accounts = ["+15550000000"] if link else []
    dialog = Terminal()
    outcome = await check(signal, dialog, link=link)
    assert outcome.details == {"account": NUMBER, "version": VERSION} and signal.linked.is_set()
    [shown] = dialog.shown
    assert qr_code.render_text(LINK) in shown and LINK in shown


async def test_a_form_links_a_device_by_two_requests(signal: FakeSignalCli) -> None:
    signal.accounts = []
    with pytest.raises(Conflict) as caught:
        await check(signal, Form())
    assert str(caught.value).endswith(f"go on with device_link = {LINK}") and not signal.linked.is_set()
    outcome = await check(signal, Form(), device_link=LINK)
    assert outcome.settings["account"] == NUMBER and signal.linked.is_set()
    signal.accounts = []
    with pytest.raises(Unavailable, match="run the setup again"):
        await check(signal, Form(), device_link="sgnl://linkdevice?uuid=old")


async def test_a_code_that_nobody_scans_is_one_sentence(signal: FakeSignalCli) -> None:
    signal.accounts, signal.link_timeout = [], True
    with pytest.raises(Unavailable, match="not scanned in time"):
        await check(signal)


async def test_one_of_several_accounts_is_chosen(signal: FakeSignalCli) -> None:
    signal.accounts = [NUMBER, "+15550000000"]
    with pytest.raises(Conflict, match=r"\+15550783881, \+15550000000"):
        await check(signal)
    outcome = await check(signal, account="+1 555 000 0000")
    assert outcome.settings["account"] == "+15550000000"
    with pytest.raises(Invalid, match="has no account"):
        await check(signal, account="+15551111111")


async def test_a_daemon_for_one_account_must_be_told_its_number(signal: FakeSignalCli) -> None:
    signal.single = True
    with pytest.raises(Invalid, match="--account"):
        await check(signal)
    assert (await check(signal, account=NUMBER)).settings["account"] == NUMBER


async def test_what_cannot_be_used_says_what_to_do(signal: FakeSignalCli, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"--output=json daemon .* --receive-mode=manual >> FILE"):
        await SETUP.check({"url": UNREACHABLE_URL}, Terminal())
    with pytest.raises(Invalid, match="address of the signal-cli daemon"):
        await SETUP.check({"url": "signal"}, Terminal())
    with pytest.raises(Invalid, match="does not exist"):
        await check(signal, spool=str(tmp_path / "nothing"))
    signal.accounts = []
    signal.refusals["startLink"] = [RpcRefusal(-3, "Link request error: no network")]
    with pytest.raises(Unavailable, match="network of signal-cli"):
        await check(signal)


def test_the_how_to_is_followed_in_a_terminal(signal: FakeSignalCli, tmp_path: Path) -> None:
    """What docs/how-to/signal.md says, from the first command to the first answer."""
    home = tmp_path / "home"
    spool = home / "signal" / "received.jsonl"
    spool.parent.mkdir(parents=True)
    spool.touch(0o600)
    signal.stdout, signal.accounts = spool, []
    keryx = Cli(home)
    process = keryx.start("gateway", "setup", "signal", "--url", signal.url, "--spool", str(spool))
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert LINK in out and "█" in out
    assert f"The account is {NUMBER}, by signal-cli {VERSION}." in out
    assert f"  2. write to {NUMBER} in Signal" in out
    with keryx.serving():
        person = "8a2f3c1e-5b7d-4e90-a1c2-d3e4f5061728"
        signal.write(person, "hello")
        assert signal.wait_for(lambda: len(signal.texts(person)) == 1)
        [code] = [line for line in signal.texts(person)[0].splitlines() if "pairing approve" in line]
        keryx.ok(*code.split()[1:], "--operator")
        signal.write(person, "hello again")
        assert signal.wait_for(lambda: signal.texts(person)[-1:] == ["hello again"])
        status = keryx.json("gateway", "status")
        assert "connected" in str(status)
    assert signal.problems == []
