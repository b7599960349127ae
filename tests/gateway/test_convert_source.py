"""Chats of programs that had the same bot before: each adapter names them as it names its own messages."""

from pathlib import Path
from typing import Any

import pytest

from keryx.bootstrap import load_adapters
from keryx.core.ports.adapter import SupportsMigration
from keryx.core.source import ChatType, Source
from keryx.surfaces.gateway.adapter_settings import AdapterSetup

TABLES: dict[str, dict[str, str]] = {
    "telegram": {"token": "env:T"},
    "discord": {"token": "env:D"},
    "slack": {"token": "env:S", "app_token": "env:A"},
    "matrix": {"homeserver": "https://example.org", "user": "@keryx:example.org", "token": "env:T"},
    "signal": {"account": "+15550002222", "url": "http://127.0.0.1:9"},
    "feishu": {"app_id": "cli_a1b2c3d4e5f60708", "app_secret": "env:T"},
}
SECRETS = {
    "T": "900001:abcdefghijklmnopqrstuvwxyzABCDEFGHI",
    "D": "MTIzNDU2Nzg5MDEyMzQ1Njc4.GabcdE.abcdefghijklmnopqrstuvwxyz0123456789AB",
    "S": "xoxb-1-2-abc",
    "A": "xapp-1-abc",
}
GROUP, THREAD, CHANNEL, DM = ChatType.GROUP, ChatType.THREAD, ChatType.CHANNEL, ChatType.DM


@pytest.mark.parametrize(
    ("platform", "foreign", "expected"),
    [
        ("telegram", {"chat": "-7", "chat_type": GROUP}, ("-7", None, GROUP)),
        ("telegram", {"chat": "-7", "chat_type": GROUP, "thread": "5"}, ("-7", "5", THREAD)),
        ("telegram", {"chat": "7", "chat_type": DM, "thread": "5"}, ("7", "5", DM)),
        ("discord", {"chat": "11", "chat_type": GROUP}, ("11", None, GROUP)),
        ("discord", {"chat": "11", "chat_type": DM}, ("11", None, DM)),
        ("discord", {"chat": "55", "thread": "55", "parent_chat": "11", "chat_type": THREAD}, ("11", "55", THREAD)),
        ("discord", {"chat": "55", "thread": "55", "chat_type": THREAD}, None),
        ("slack", {"chat": "C1", "chat_type": GROUP}, ("C1", None, CHANNEL)),
        ("slack", {"chat": "C1", "chat_type": GROUP, "thread": "1.2"}, ("C1", "1.2", THREAD)),
        ("slack", {"chat": "D1", "chat_type": DM}, ("D1", None, DM)),
        ("matrix", {"chat": "!r:x", "chat_type": GROUP, "thread": "$t"}, ("!r:x", "$t", GROUP)),
        ("signal", {"chat": "group:abc=", "chat_type": GROUP}, ("abc=", None, GROUP)),
        ("feishu", {"chat": "oc_1", "chat_type": GROUP, "thread": "omt_1"}, ("oc_1", "omt_1", THREAD)),
    ],
)  # fmt: skip
def test_a_chat_of_another_program_is_named_as_a_message_of_it_will_be(
    platform: str, foreign: dict[str, Any], expected: tuple[str, str | None, ChatType] | None, tmp_path: Path
) -> None:
    setup = AdapterSetup(platform=platform, home=tmp_path, table=TABLES[platform], environ=SECRETS)
    [adapter] = load_adapters([setup]).values()
    assert isinstance(adapter, SupportsMigration)
    found = adapter.convert_source(Source(platform=platform, **foreign))
    assert (found and (found.chat, found.thread, found.chat_type)) == expected
