"""The receipt of an event over the corpus. An event that is not stored yet cannot be set aside, so no text may stop its way to the store."""

import time
from typing import Any

import msgspec
import pytest
from tests.engine.world import World, inbound, viewer
from tests.hostile import budget, corpus

from keryx.core import codec
from keryx.core.errors import Invalid
from keryx.core.source import ChatType, Source
from keryx.store.db import Engine
from keryx.surfaces.gateway import webhook
from keryx.surfaces.gateway.discord import event_parser as discord
from keryx.surfaces.gateway.discord.event_parser import DiscordIdentity
from keryx.surfaces.gateway.discord.payloads import DiscordChannel, DiscordMessage
from keryx.surfaces.gateway.feishu import event_parser as feishu
from keryx.surfaces.gateway.feishu.payloads import FeishuEventHeader, FeishuMessageEvent
from keryx.surfaces.gateway.imessage import event_parser as imessage
from keryx.surfaces.gateway.imessage.payloads import BlueBubblesMessage
from keryx.surfaces.gateway.matrix import messages
from keryx.surfaces.gateway.matrix.event_types import MatrixContent, parse_content, parse_event
from keryx.surfaces.gateway.matrix.messages import MatrixAccount, MatrixRoom, RelatedEvents
from keryx.surfaces.gateway.signal import event_parser as signal
from keryx.surfaces.gateway.signal.payloads import SignalEnvelope
from keryx.surfaces.gateway.slack import event_parser as slack
from keryx.surfaces.gateway.slack.payloads import SlackEvent, SlackIdentity
from keryx.surfaces.gateway.telegram.event_parser import BotIdentity, TelegramUpdate, parse_update
from keryx.surfaces.gateway.webhook import WebhookMessage
from keryx.surfaces.gateway.wechat import event_parser as wechat
from keryx.surfaces.gateway.whatsapp import event_parser as whatsapp
from keryx.surfaces.gateway.whatsapp.payloads import WhatsAppPayload

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


class NoNames:
    def find_channel_name(self, channel: str) -> str:
        return ""

    def find_role_name(self, role: str) -> str:
        return ""


def read_discord(given: str) -> object:
    """Parse a message in a thread, whose every text and mention is hostile."""
    user = {"id": "7", "username": given, "global_name": given}
    mentioned = [{**user, "id": str(n), "member": {"nick": given}} for n in range(100)]
    files = [{"id": "8", "filename": given, "url": given, "content_type": given}]
    message: dict[str, Any] = {
        "id": "5",
        "channel_id": "9",
        "guild_id": "3",
        "author": user,
        "content": given,
        "type": 19,
        "mentions": mentioned,
        "attachments": files,
        "sticker_items": [{"name": given}],
        "poll": {"question": {"text": given}, "answers": [{"poll_media": {"text": given}}]},
        "message_snapshots": [{"message": {"content": given, "attachments": files}}],
    }
    message["referenced_message"] = {**message, "id": "4"}
    channel = DiscordChannel(id="9", name=given, topic=given)
    me = DiscordIdentity(id="42", commands=frozenset({"new"}))
    parsed = msgspec.convert(message, DiscordMessage)
    return discord.parse_message(parsed, discord.ChannelPlace(channel), me, NoNames(), threads=True)


def read_slack(given: str) -> object:
    """Parse a message and an edit of it."""
    shown = [
        {"is_share": n % 2 == 0, "author_name": given, "text": given, "fallback": given} for n in range(10)
    ]
    files = [{"id": "F1", "name": given, "title": given, "mimetype": given}]
    message = {"type": "message", "ts": "1.2", "user": "U1", "username": given, "text": given}
    message |= {"attachments": shown, "files": files, "team": given}
    context = slack.SlackContext(
        account="T1", me=SlackIdentity(user_id="U9", team_id="T1"), commands=frozenset({"new"})
    )
    events = [
        {**message, "channel": "C1"},
        {"type": "message", "subtype": "message_changed", "channel": "C1", "message": message},
    ]
    found = [msgspec.convert(event, SlackEvent) for event in events]
    return [(slack.find_named_ids(event), slack.parse_message(event, context)) for event in found]


def read_whatsapp(given: str) -> object:
    card = {"name": {"formatted_name": given}, "phones": [{"phone": given}], "emails": [{"email": given}]}
    kinds: dict[str, Any] = {
        "text": {"body": given},
        "document": {"id": "1", "mime_type": given, "caption": given, "filename": given},
        "location": {"latitude": 1.0, "longitude": 1.0, "name": given, "address": given},
        "contacts": [card],
        "interactive": {"button_reply": {"id": given, "title": given}},
        "button": {"text": given, "payload": given},
        given: given,
    }
    entries = [{"id": kind, "type": kind, "from": "491", kind: value} for kind, value in kinds.items()]
    contact = {"wa_id": "491", "profile": {"name": given, "username": given}}
    value = {
        "metadata": {"phone_number_id": "1", "display_phone_number": given},
        "contacts": [contact],
        "messages": entries,
    }
    changes = [{"field": "messages", "value": value}]
    payload = msgspec.convert({"object": "x", "entry": [{"id": "1", "changes": changes}]}, WhatsAppPayload)
    return whatsapp.parse_payload(payload, whatsapp.WhatsAppIdentity(account="1", number="1"))


def read_feishu(given: str) -> object:
    """Parse a text and a rich text, with mentions."""
    node = {"tag": "text", "text": given, "style": ["bold", "italic"]}
    nodes = [node, {"tag": "a", "text": given, "href": given}, {"tag": "at", "user_id": given}]
    contents = {
        "text": {"text": given},
        "post": {"en_us": {"title": given, "content": [nodes] * 5}},
        "file": {"file_key": given, "file_name": given},
        given: {},
    }
    mentions = [{"key": f"@_user_{n}", "name": given, "id": {"open_id": f"o{n}"}} for n in range(50)]
    context = feishu.FeishuContext(account="1", me="o0")
    header = FeishuEventHeader(event_id="1", event_type="x", tenant_key="t")
    found: list[object] = []
    for kind, content in contents.items():
        message = {"message_id": "m", "chat_id": "c", "message_type": kind, "mentions": mentions}
        message["content"] = codec.dumps(content)
        event = msgspec.convert(
            {"sender": {"sender_id": {"open_id": "o9"}}, "message": message}, FeishuMessageEvent
        )
        found.append(feishu.parse_message(event, header, context))
    return found


def read_signal(given: str) -> object:
    mentions = [{"uuid": f"u{n}", "start": n, "length": 1} for n in range(200)]
    name = {"nickname": given, "given": given}
    data = {
        "timestamp": 5,
        "message": given,
        "mentions": mentions,
        "quote": {"id": 4, "authorUuid": "u1", "text": given, "mentions": mentions},
        "attachments": [{"id": "1", "contentType": given, "filename": given}],
        "contacts": [{"name": name, "phone": [{"value": given}]}],
        "pollCreate": {"question": given, "options": [given] * 10},
        "groupInfo": {"groupId": "g", "groupName": given},
    }
    envelope = {"sourceUuid": "u9", "sourceName": given, "timestamp": 5, "dataMessage": data}
    parsed = msgspec.convert(envelope, SignalEnvelope)
    names = {f"u{n}": given[:200] for n in range(200)}
    return signal.parse_envelope(parsed, signal.SignalIdentity(number="+491"), names)


def read_wechat(given: str) -> object:
    media = {"encrypt_query_param": given, "aes_key": given, "full_url": given}
    item = {"type": 1, "text_item": {"text": given}}
    items = [
        {**item, "ref_msg": {"message_item": item, "title": given}},
        {"type": 2, "image_item": {"media": media, "aeskey": given}},
        {"type": 3, "voice_item": {"media": media, "text": given}},
        {"type": 4, "file_item": {"media": media, "file_name": given}},
    ]
    raw = {"message_id": "1", "from_user_id": "u", "item_list": items, "context_token": "t"}
    return wechat.parse_message(wechat.read_message(raw), wechat.WeChatIdentity(account="1", bot="b"))


def read_imessage(given: str) -> object:
    files = [{"guid": "f", "transferName": given, "mimeType": given}]
    chat = {"guid": "iMessage;+;c", "style": 43, "displayName": given}
    message = {
        "originalROWID": 1,
        "guid": "g",
        "text": given,
        "subject": given,
        "handle": {"address": given},
        "chats": [chat],
        "attachments": files,
        "attributedBody": [{"runs": [{"attributes": {given: given}}]}],
    }
    row = imessage.read_bluebubbles(msgspec.convert(message, BlueBubblesMessage), {})
    me = imessage.IMessageIdentity(names=("keryx", "Agent"))
    return imessage.parse_row(row, me)


READERS = [
    read_telegram,
    read_webhook,
    read_matrix,
    read_discord,
    read_slack,
    read_whatsapp,
    read_feishu,
    read_signal,
    read_wechat,
    read_imessage,
]


@pytest.mark.parametrize("read", READERS)
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
