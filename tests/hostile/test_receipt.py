"""The receipt of an event over the corpus. An event that is not stored yet cannot be set aside, so no text may stop its way to the store."""

import time
from typing import Any

import msgspec
import pytest
from tests.engine.world import World, inbound, viewer
from tests.hostile import budget, corpus

from keryx.core.errors import Invalid
from keryx.core.source import ChatType, Source
from keryx.store.db import Engine
from keryx.surfaces.gateway import webhook
from keryx.surfaces.gateway.matrix import messages
from keryx.surfaces.gateway.matrix.event_types import MatrixContent, parse_content, parse_event
from keryx.surfaces.gateway.matrix.messages import MatrixAccount, MatrixRoom, RelatedEvents
from keryx.surfaces.gateway.telegram.event_parser import BotIdentity, TelegramUpdate, parse_update
from keryx.surfaces.gateway.webhook import WebhookMessage

BOT = BotIdentity(id=42, username="keryx_bot", commands=frozenset({"new"}))
ACCOUNT = MatrixAccount("@keryx:example.org", "Keryx")
MARKS = ("mention", "bot_command", "text_mention")
# For all texts of 16,000 characters together, which take two or three seconds.
SECONDS = 60.0


def read_telegram(given: str) -> object:
    """Parse a message whose every text is hostile."""
    names = {"first_name": given, "last_name": given, "username": given}
    marks = [{"type": kind, "offset": n, "length": len(given)} for n in range(0, 100, 10) for kind in MARKS]
    replied = {"message_id": 4, "date": 1, "chat": {"id": -1, "type": "group"}, "text": given}
    message: dict[str, Any] = {
        "message_id": 5,
        "date": 1,
        "chat": {"id": -1, "type": "supergroup", "title": given},
        "from": {"id": 7, "is_bot": False, **names},
        "text": given,
        "entities": marks,
        "reply_to_message": replied,
    }
    return parse_update(msgspec.convert({"update_id": 1, "message": message}, TelegramUpdate), BOT)


def read_webhook(given: str) -> object:
    message = WebhookMessage(chat="1", user="ann", text=given, name=given, chat_name=given, topic=given)
    try:
        return webhook.parse("1", message)
    except Invalid:
        return None


def read_matrix(given: str) -> object:
    """Parse a message with hostile text and hostile HTML."""
    given = given.encode(errors="replace").decode()
    content = {
        "msgtype": "m.text",
        "body": given,
        "format": "org.matrix.custom.html",
        "formatted_body": given,
    }
    event = {
        "type": "m.room.message",
        "event_id": "$1",
        "sender": "@ann:example.org",
        "origin_server_ts": 1,
        "content": content,
    }
    found = parse_event(msgspec.Raw(msgspec.json.encode(event)))
    assert found is not None
    room = MatrixRoom("!r:example.org", names={ACCOUNT.user: "Keryx", "@ann:example.org": given}, name=given)
    return messages.build_inbound(
        found,
        parse_content(found) or MatrixContent(),
        room=room,
        me=ACCOUNT,
        menu=frozenset({"new"}),
        related=RelatedEvents(),
    )


@pytest.mark.parametrize("read", [read_telegram, read_webhook, read_matrix])
def test_an_event_of_a_platform_takes_a_time_that_grows_with_its_length(read: Any) -> None:
    assert budget.find_slow(read, corpus.TEXTS.items(), milliseconds_per_kilobyte=20) == []


@pytest.mark.engines(Engine.SQLITE)
async def test_every_text_is_received(world: World) -> None:
    """With hostile names too, in a group, while the node works. What comes after it is received as well."""
    began = time.process_time()
    for n, make in enumerate(corpus.TEXTS.values()):
        given = make(budget.LARGE)
        source = Source(
            platform="fake",
            chat=f"g{n}",
            chat_type=ChatType.GROUP,
            chat_name=given,
            user="ann",
            user_name=given,
            topic=given,
        )
        receipt = await world.hub.receive(inbound(given, source=source, quote=given))
        assert receipt.session or receipt.reply is not None
    assert (await world.ask("hello", chat="2")).state.finished
    assert time.process_time() - began < SECONDS


LONG_IDS = ("chat", "user", "thread", "scope", "parent_chat", "user_alt", "chat_alt", "message")


@pytest.mark.parametrize("field", LONG_IDS)
async def test_an_id_that_is_too_long_is_refused_on_every_engine(world: World, field: str) -> None:
    """An index of PostgreSQL could not hold it, and SQLite would store it with every message."""
    source = Source(platform="fake", chat="1", chat_type=ChatType.GROUP, user="ann")
    with pytest.raises(Invalid, match="id of more than"):
        await world.hub.receive(
            inbound("hello", source=msgspec.structs.replace(source, **{field: "x" * 1_001}))
        )
    with pytest.raises(Invalid, match="id of an event"):
        await world.hub.receive(msgspec.structs.replace(inbound("hello", source=source), event="e" * 1_001))


async def test_long_names_are_cut(world: World) -> None:
    source = Source(
        platform="fake",
        chat="g",
        chat_type=ChatType.GROUP,
        user="ann",
        user_name="n" * 50_000,
        chat_name="c" * 50_000,
        topic="t" * 50_000,
    )
    receipt = await world.hub.receive(inbound("hello", source=source))
    assert receipt.session
    shown = await world.hub.open(viewer("ann"), receipt.session)
    assert shown.messages[0].author == "n" * 200
