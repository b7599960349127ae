"""What the docs say of a platform and several nodes, with real nodes on PostgreSQL."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cli.driver import Cli
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.postgres import own_database

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use-postgresql.md"
_ROW = re.compile(r"^\| (every node|one node|[^|]+?) \| (.+) \|$", re.M)
LEASE = "2s"
SECONDS = 60


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with FakeTelegram() as fake:
        yield fake


@pytest.fixture
def address(postgres: str) -> Iterator[str]:
    with own_database(postgres) as address:
        yield address


def read_section() -> str:
    text = PAGE.read_text(encoding="utf-8")
    return text.partition("## Where a platform is configured\n")[2].partition("\n## ")[0]


def make_node(home: Path, address: str, telegram: FakeTelegram | None, *, more: str = "") -> Cli:
    """A node with the settings of the page, and with the bot if there is a Telegram for it."""
    [settings] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    lines = [line.strip() for line in settings.splitlines()]
    written = "\n".join(lines).replace("postgresql://keryx@db.example/keryx", address)
    written = written.replace('lease = "15s"', f'lease = "{LEASE}"\n{more}')
    if telegram is not None:
        written += f'\n[telegram]\ntoken = "env:BOT"\nbase_url = "{telegram.url}"\n[access.telegram]\nallow = ["*"]\n'
    home.mkdir()
    (home / "keryx.toml").write_text(written, encoding="utf-8")
    return Cli(home, BOT=TOKEN)


def test_each_row_of_the_page_is_tried() -> None:
    rows = [name for name, _ in _ROW.findall(read_section())]
    assert rows == ["in the settings of", "every node", "one node"]


@pytest.mark.slow
def test_with_the_account_on_every_node_another_one_takes_over(
    tmp_path: Path, address: str, telegram: FakeTelegram
) -> None:
    first, second = (make_node(tmp_path / name, address, telegram) for name in ("a", "b"))
    with ExitStack() as stack:
        listening = stack.enter_context(first.serving())
        telegram.say("one")
        assert telegram.wait_for(lambda: telegram.texts() == ["one"], SECONDS), telegram.texts()
        stack.enter_context(second.serving())
        second.until("standby", "gateway", "status")
        telegram.say("two")
        assert telegram.wait_for(lambda: telegram.texts() == ["one", "two"], SECONDS), telegram.texts()
        first.until("sent", "deliveries", "list", "--state", "sent")
        listening.process.kill()
        listening.process.wait()
        telegram.say("three")
        assert telegram.wait_for(lambda: len(telegram.texts()) == 3, SECONDS), telegram.texts()
        assert telegram.texts()[2] == "three" and telegram.conflicts == 0


@pytest.mark.slow
def test_with_the_account_on_one_node_the_others_run_turns_and_nothing_is_heard_while_it_is_away(
    tmp_path: Path, address: str, telegram: FakeTelegram
) -> None:
    # This one runs no turns, so that the answers are of the other one.
    listens = make_node(tmp_path / "a", address, telegram, more="at_once = 0")
    runs = make_node(tmp_path / "b", address, None)
    with listens.serving() as node:
        telegram.say("one")
        listens.until("queued", "turns")
        node.process.kill()
        node.process.wait()
    polls = telegram.polls
    telegram.say("two")
    with runs.serving():
        runs.until("ready", "deliveries", "list")
        refused = runs("send", "--target", "telegram:7", "three")
        assert (refused.code, "telegram is not connected" in refused.err) == (2, True)
        assert telegram.polls == polls and telegram.texts() == []
        with listens.serving():
            assert telegram.wait_for(lambda: telegram.texts() == ["one", "two"], SECONDS), telegram.texts()
