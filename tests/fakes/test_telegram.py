"""The fake Bot API is as strict as the real one where it matters."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.fakes.telegram import TOKEN, FakeTelegram

from keryx.testing.fault_injection import PlatformFaults


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with FakeTelegram() as running:
        yield running


def call(telegram: FakeTelegram, method: str, *, token: str = TOKEN, **params: Any) -> dict[str, Any]:
    return httpx.post(f"{telegram.url}/bot{token}/{method}", json=params, timeout=10).json()


def test_an_update_is_given_until_a_higher_offset_confirms_it(telegram: FakeTelegram) -> None:
    telegram.say("hello")
    first = call(telegram, "getUpdates")["result"]
    assert call(telegram, "getUpdates")["result"] == first
    assert call(telegram, "getUpdates", offset=first[0]["update_id"] + 1)["result"] == []


def test_a_wrong_token_is_refused(telegram: FakeTelegram) -> None:
    assert call(telegram, "getMe", token="1:x")["error_code"] == 401


def test_text_is_counted_in_utf_16(telegram: FakeTelegram) -> None:
    assert call(telegram, "sendMessage", chat_id=7, text="😀" * 2048)["ok"]
    assert "too long" in call(telegram, "sendMessage", chat_id=7, text="😀" * 2049)["description"]


def test_an_entity_beyond_the_text_is_refused(telegram: FakeTelegram) -> None:
    bold = {"type": "bold", "offset": 3, "length": 3}
    assert call(telegram, "sendMessage", chat_id=7, text="hello", entities=[bold])["error_code"] == 400


def test_an_edit_that_changes_nothing_is_refused(telegram: FakeTelegram) -> None:
    sent = call(telegram, "sendMessage", chat_id=7, text="a")["result"]["message_id"]
    assert call(telegram, "editMessageText", chat_id=7, message_id=sent, text="b")["ok"]
    assert (
        "not modified"
        in call(telegram, "editMessageText", chat_id=7, message_id=sent, text="b")["description"]
    )
    assert telegram.texts() == ["b"]


def test_a_lost_reply_comes_after_the_message_was_taken() -> None:
    with FakeTelegram(PlatformFaults(lost_reply=1)) as telegram:
        with pytest.raises(httpx.RemoteProtocolError):
            call(telegram, "sendMessage", chat_id=7, text="hello")
        assert telegram.texts() == ["hello"]


def test_a_throttled_send_says_how_long_to_wait() -> None:
    with FakeTelegram(PlatformFaults(throttle=1, retry_after=3)) as telegram:
        answer = call(telegram, "sendMessage", chat_id=7, text="hello")
        assert (answer["error_code"], answer["parameters"]) == (429, {"retry_after": 3})
        assert telegram.texts() == []
