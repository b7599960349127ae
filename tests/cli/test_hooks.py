"""Webhooks over the real server: good ones are answered, bad ones leave no trace."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.builders import until
from tests.cli.driver import Cli, Node
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.fakes.webhook import SECRET, FakeWebhooks, headers

HELLO = json.dumps({"chat": "c1", "user": "ann", "text": "hello"}).encode()


@pytest.fixture
def hooks() -> Iterator[FakeWebhooks]:
    with FakeWebhooks() as fake:
        yield fake


@pytest.fixture
def keryx(tmp_path: Path, hooks: FakeWebhooks) -> Cli:
    return Cli(tmp_path, KERYX_WEBHOOK_SECRET=SECRET, KERYX_WEBHOOK_URL=hooks.url, KERYX_WEBHOOK_ALLOW="*")


def post(node: Node, body: bytes, given: dict[str, str] | None = None, *, path: str = "webhook") -> int:
    """The status alone: who sends too much is answered before everything is sent."""
    signed = headers("msg_1", body) if given is None else given
    url = f"{node.address}/hooks/{path}"
    with httpx.stream("POST", url, content=body, headers=signed, timeout=30) as answer:
        return answer.status_code


def test_a_signed_message_is_answered_once_however_often_it_is_posted(
    keryx: Cli, hooks: FakeWebhooks
) -> None:
    with keryx.serving() as node:
        assert [post(node, HELLO) for _ in range(3)] == [200, 200, 200]
        assert hooks.wait_for(lambda: bool(hooks.posts))
        assert len(keryx.json("sessions", "list")["sessions"]) == 1
    assert hooks.texts("c1") == ["hello"]


def test_bad_posts_leave_no_trace(keryx: Cli) -> None:
    bad = b'{"chat": "c1", "user": "\xff", "text": "x"}'
    large = b" " * 10_000_000
    with keryx.serving() as node:
        assert post(node, HELLO, headers("msg_1", HELLO, key=b"forged" * 8)) == 401
        assert post(node, HELLO, {}) == 401
        assert post(node, large) == 413
        assert post(node, b"{") == 400
        assert post(node, bad) == 400
        assert post(node, HELLO, path="nothing") == 404
        assert keryx.json("sessions", "list")["sessions"] == []


def test_without_a_secret_nothing_starts(tmp_path: Path) -> None:
    done = Cli(tmp_path, KERYX_WEBHOOK_URL="http://127.0.0.1:9")("serve")
    assert done.code == 2 and "webhook.secret is missing" in done.err


def test_a_token_that_telegram_refuses_harms_no_other_platform(keryx: Cli, hooks: FakeWebhooks) -> None:
    wrong = TOKEN.replace("test", "wrong")
    with FakeTelegram() as telegram:
        given = {"KERYX_TELEGRAM_TOKEN": wrong, "KERYX_TELEGRAM_BASE_URL": telegram.url}
        with keryx.serving(**given) as node:
            out = keryx.until("refused", "gateway", "status")
            assert "Telegram does not know this token" in out and wrong not in out
            assert post(node, HELLO) == 200


async def test_telegram_posts_too(keryx: Cli) -> None:
    given = {
        "KERYX_TELEGRAM_TOKEN": TOKEN,
        "KERYX_TELEGRAM_MODE": "webhook",
        "KERYX_TELEGRAM_URL": "https://keryx.example",
        "KERYX_TELEGRAM_SECRET": "hook-secret",
        "KERYX_TELEGRAM_ALLOW": "*",
    }
    update = {
        "update_id": 1,
        "message": {
            "message_id": 5,
            "chat": {"id": 7, "type": "private"},
            "from": {"id": 7},
            "text": "hello",
        },
    }
    body = json.dumps(update).encode()
    with FakeTelegram() as telegram:
        with keryx.serving(KERYX_TELEGRAM_BASE_URL=telegram.url, **given) as node:
            assert telegram.wait_for(lambda: bool(telegram.webhook))
            secret = {"x-telegram-bot-api-secret-token": "hook-secret"}
            await until(lambda: post(node, body, secret, path="telegram") == 200)
            assert post(node, body, secret, path="telegram") == 200
            assert post(node, body, {}, path="telegram") == 401
            assert telegram.wait_for(lambda: telegram.texts() == ["hello"])
