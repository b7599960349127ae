"""Tokens that rotate: a new pair is in its file before it is used, and nobody else can read it."""

import asyncio
import json
import stat
from pathlib import Path

import pytest
from tests.fakes.slack import APP_TOKEN, FakeSlack

from keryx.core.deliveries import Target
from keryx.core.errors import Forbidden, NotSent
from keryx.core.ids import DeliveryId
from keryx.core.ports.adapter import OutgoingPart
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.slack import SlackAdapter, make
from keryx.surfaces.gateway.slack.token_file import RotatedToken
from keryx.surfaces.gateway.slack.web_api import SlackApiError, SlackUnreachable
from keryx.testing import RecordingAdapterContext
from keryx.testing.wire import UNREACHABLE_URL

FIRST, FIRST_REFRESH = "xoxe.xoxb-1-first", "xoxe-1-first"
HOUR = 3600.0


class Hours:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def build(
    slack: FakeSlack | None, path: Path, clock: Hours, refresh_token: str = FIRST_REFRESH
) -> RotatedToken:
    return RotatedToken(
        path,
        token=FIRST,
        refresh_token=refresh_token,
        client_id="1.2",
        client_secret="client-secret",
        base_url=slack.api_url if slack else UNREACHABLE_URL,
        now=clock,
    )


def inspect(path: Path) -> tuple[dict[str, str], tuple[int, int]]:
    """Return what is stored, and who may read the file and its folder."""
    modes = stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)
    return json.loads(path.read_bytes()), modes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "secrets" / "slack-rotated.json"


@pytest.fixture
def clock() -> Hours:
    return Hours()


async def test_a_refused_token_is_replaced_and_the_new_pair_is_stored(path: Path, clock: Hours) -> None:
    with FakeSlack() as slack:
        slack.refresh_tokens[FIRST_REFRESH] = True
        token = build(slack, path, clock)
        assert await token.read() == FIRST
        fresh = await token.read(refused=FIRST)
        assert fresh in slack.valid_tokens
        stored, modes = inspect(path)
        assert stored["access_token"] == fresh and slack.refresh_tokens[stored["refresh_token"]]
        assert modes == (0o600, 0o700)
        # Another process, and the same one after a restart, use what is stored.
        other = build(slack, path, clock)
        assert await other.read() == fresh
        assert slack.count_calls("oauth.v2.access") == 1
        await token.close()
        await other.close()


async def test_a_token_is_replaced_before_it_expires(path: Path, clock: Hours) -> None:
    with FakeSlack() as slack:
        slack.refresh_tokens[FIRST_REFRESH] = True
        token = build(slack, path, clock)
        one = await token.read(refused=FIRST)
        clock.now += 9 * HOUR
        assert await token.read() == one
        clock.now += 2 * HOUR
        assert await token.read() != one
        await token.close()


async def test_two_processes_refresh_once(path: Path, clock: Hours) -> None:
    with FakeSlack() as slack:
        slack.refresh_tokens[FIRST_REFRESH] = True
        tokens = [build(slack, path, clock) for _ in range(4)]
        found = await asyncio.gather(*(token.read(refused=FIRST) for token in tokens))
        assert len(set(found)) == 1 and slack.count_calls("oauth.v2.access") == 1
        for token in tokens:
            await token.close()


async def test_while_slack_does_not_answer_a_valid_token_is_used(path: Path, clock: Hours) -> None:
    with FakeSlack() as slack:
        slack.refresh_tokens[FIRST_REFRESH] = True
        token = build(slack, path, clock)
        fresh = await token.read(refused=FIRST)
        await token.close()
    lonely = build(None, path, clock)
    clock.now += 11 * HOUR
    assert await lonely.read() == fresh
    clock.now += 2 * HOUR
    with pytest.raises(SlackUnreachable):
        await lonely.read()
    await lonely.close()


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A path in whose place a folder is."""
    (tmp_path / "slack-rotated.json").mkdir()
    return tmp_path / "slack-rotated.json"


async def test_without_its_file_no_refresh_token_is_used_up(blocked: Path, clock: Hours) -> None:
    with FakeSlack() as slack:
        slack.refresh_tokens[FIRST_REFRESH] = True
        token = build(slack, blocked, clock)
        with pytest.raises(SlackUnreachable, match="cannot be read"):
            await token.read(refused=FIRST)
        assert slack.count_calls("oauth.v2.access") == 0
        await token.close()


async def test_a_new_refresh_token_in_the_settings_begins_anew(path: Path, clock: Hours) -> None:
    with FakeSlack() as slack:
        slack.refresh_tokens |= {FIRST_REFRESH: True, "xoxe-1-second": True}
        token = build(slack, path, clock)
        await token.read(refused=FIRST)
        other = build(slack, path, clock, refresh_token="xoxe-1-second")
        assert await other.read() == FIRST
        await token.close()
        await other.close()


async def test_a_used_refresh_token_is_told(path: Path, clock: Hours) -> None:
    with FakeSlack() as slack:
        token = build(slack, path, clock)
        with pytest.raises(SlackApiError, match="install the app again"):
            await token.read(refused=FIRST)
        await token.close()


def open_adapter(slack: FakeSlack, home: Path) -> SlackAdapter:
    environ = {"T": FIRST, "A": APP_TOKEN, "R": FIRST_REFRESH, "C": "client-secret"}
    table = {
        "token": "env:T",
        "app_token": "env:A",
        "refresh_token": "env:R",
        "client_id": "1.2",
        "client_secret": "env:C",
        "base_url": slack.api_url,
    }
    adapter = make(AdapterSetup(platform="slack", name="work", home=home, table=table, environ=environ))
    assert adapter is not None
    return adapter


async def test_an_expired_token_is_replaced_while_sending(tmp_path: Path) -> None:
    part = OutgoingPart(
        delivery=DeliveryId("d1"),
        number=0,
        key="d1.0",
        target=Target("slack", "work", "D0000001"),
        text="hello",
    )
    with FakeSlack() as slack:
        slack.refresh_tokens[FIRST_REFRESH] = True
        adapter = open_adapter(slack, tmp_path)
        await adapter.send(part)
        assert slack.texts() == ["hello"]
        assert (tmp_path / "secrets" / "slack-work-rotated.json").exists()
        # Slack has forgotten every token.
        slack.valid_tokens.clear()
        slack.refresh_tokens.clear()
        with pytest.raises(NotSent, match="install the app again"):
            await adapter.send(part)
        with pytest.raises(Forbidden, match="install the app again"):
            await adapter.listen(RecordingAdapterContext())
        await adapter.close()
