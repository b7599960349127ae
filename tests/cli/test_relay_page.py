"""The relay as its how-to connects it: two nodes, of which one holds the bot and the other answers."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.driver import Cli
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.free_ports import find_free_port

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "relay.md").read_text(encoding="utf-8")
PERSON = 4711
WAITS = "The assistant is away at the moment. Your message waits and is answered when it is back."


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with FakeTelegram() as fake:
        yield fake


def find_settings(first_line: str, **changes: str) -> str:
    """Return a file of the page, with what is different here."""
    [block] = [b for b in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL) if first_line in b]
    for written, meant in changes.items():
        block, count = re.subn(rf'(?m)^{written} = ".*"$', f'{written} = "{meant}"', block)
        assert count == 1
    return block


def see_on_page(text: str) -> None:
    """Fail unless the page shows what a command says, whose keys and times differ."""
    for line in filter(None, text.splitlines()):
        shown = re.escape(re.sub(r"krx_\w+", "krx_…", line))
        assert re.search(shown, PAGE), line


def has_texts(telegram: FakeTelegram, *texts: str) -> bool:
    return telegram.wait_for(lambda: telegram.texts(PERSON) == list(texts), 60)


def test_the_how_to_leads_from_a_bot_on_one_machine_to_answers_of_another(
    tmp_path: Path, telegram: FakeTelegram
) -> None:
    port = find_free_port()
    connector = Cli(tmp_path / "connector", KERYX_TELEGRAM_TOKEN=TOKEN, KERYX_TELEGRAM_BASE_URL=telegram.url)
    instance = Cli(tmp_path / "instance")
    listen = find_settings("listen =", listen=f"127.0.0.1:{port}")
    # The notice is not waited for as long as on the page.
    for cli, settings in (
        (connector, f'{listen}notice_after = "1s"\n'),
        (
            instance,
            find_settings(
                "url =", url=f"ws://127.0.0.1:{port}", key_from=f"file:{instance.home / 'relay-key'}"
            ),
        ),
    ):
        cli.home.mkdir()
        (cli.home / "keryx.toml").write_text(settings, encoding="utf-8")
    added = connector.ok("relay", "add", "anna", "--platform", "telegram", "--user", str(PERSON)).out
    see_on_page(added)
    key = next(iter(re.findall(r"krx_\w+", added)))
    (instance.home / "relay-key").write_text(key)
    (instance.home / "relay-key").chmod(0o600)
    assigned = connector.ok("relay", "assign", "anna", "--platform", "slack", "--chat", "C0123456").out
    see_on_page(assigned)
    with connector.serving():
        with instance.serving() as node:
            telegram.say("one", chat=PERSON, user=PERSON)
            assert has_texts(telegram, "one"), telegram.texts(PERSON)
            assert "connected" in instance.until("through the relay", "gateway", "status")
            assert "anna: connected since" in connector.ok("relay", "status").out
            # What no rule names, the connector answers itself.
            telegram.say("who are you", chat=8, user=8)
            assert telegram.wait_for(lambda: bool(telegram.texts(8)))
            node.process.kill()
            node.process.wait()
        assert WAITS in PAGE
        connector.until("anna: away since", "relay", "status")
        telegram.say("two", chat=PERSON, user=PERSON)
        assert has_texts(telegram, "one", WAITS), telegram.texts(PERSON)
        assert "1 event waiting" in connector.ok("relay", "status").out
        with instance.serving():
            assert has_texts(telegram, "one", WAITS, "two"), telegram.texts(PERSON)
            assert len(instance.json("sessions", "list")["sessions"]) == 1
            released = connector.ok("relay", "release", "anna", "--platform", "slack", "--chat", "C0123456")
            see_on_page(released.out)
            see_on_page(connector.ok("relay", "renew", "anna").out)
            instance.until("refuses the key", "gateway", "status")
            see_on_page(connector.ok("relay", "revoke", "anna", "--yes").out)
    assert not connector.json("relay", "list")["instances"]
