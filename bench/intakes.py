"""Intakes: one message as a platform hands it over, until it is stored, by the parser and the receiver of its adapter."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
from tests.fakes import discord, feishu, matrix, signal, slack, telegram, wechat, whatsapp
from tests.gateway.relay.pair import open_pair

from keryx.core.cache import LruCache
from keryx.core.deliveries import Target
from keryx.core.messages import text_parts
from keryx.core.ports.adapter import AdapterContext, InboundMessage
from keryx.core.sessions import GATEWAY_SURFACE
from keryx.core.source import Source
from keryx.store.db.sqlite import SqliteDatabase
from keryx.surfaces.gateway.discord.channels import NameDirectory
from keryx.surfaces.gateway.discord.event_parser import DiscordIdentity
from keryx.surfaces.gateway.discord.event_receiver import EventReceiver
from keryx.surfaces.gateway.discord.gateway_position import GatewayPosition
from keryx.surfaces.gateway.discord.gateway_session import Dispatch
from keryx.surfaces.gateway.discord.payloads import build_snowflake
from keryx.surfaces.gateway.discord.rest_api import DiscordApi
from keryx.surfaces.gateway.email import event_parser
from keryx.surfaces.gateway.email.event_parser import MailAccount
from keryx.surfaces.gateway.feishu.chat_directory import FeishuDirectory
from keryx.surfaces.gateway.feishu.connection_frame import FragmentJoiner, decode_frame
from keryx.surfaces.gateway.feishu.event_receiver import FeishuReceiver
from keryx.surfaces.gateway.feishu.open_api import FeishuApi
from keryx.surfaces.gateway.feishu.payloads import FeishuIdentity
from keryx.surfaces.gateway.imessage.event_parser import IMessageIdentity, read_bluebubbles
from keryx.surfaces.gateway.imessage.event_receiver import RowPosition, RowReceiver
from keryx.surfaces.gateway.imessage.payloads import BlueBubblesMessage
from keryx.surfaces.gateway.matrix.event_types import SyncResponse
from keryx.surfaces.gateway.matrix.homeserver import Homeserver
from keryx.surfaces.gateway.matrix.rooms import EncryptedRooms
from keryx.surfaces.gateway.matrix.sync import SyncLoop
from keryx.surfaces.gateway.signal.event_parser import SignalIdentity
from keryx.surfaces.gateway.signal.event_receiver import SignalReceiver, read_line
from keryx.surfaces.gateway.signal.spool_file import SpoolFile, SpoolLine
from keryx.surfaces.gateway.slack.directory import Directory, ThreadIndex
from keryx.surfaces.gateway.slack.event_receiver import SlackReceiver
from keryx.surfaces.gateway.slack.payloads import SlackIdentity
from keryx.surfaces.gateway.slack.web_api import FixedToken, SlackApi
from keryx.surfaces.gateway.telegram.bot_api import TelegramApi
from keryx.surfaces.gateway.telegram.event_parser import BotIdentity
from keryx.surfaces.gateway.telegram.event_receiver import UpdateReceiver
from keryx.surfaces.gateway.wechat.event_parser import WeChatIdentity
from keryx.surfaces.gateway.wechat.event_receiver import ContextTokens, UpdatePosition, WeChatReceiver
from keryx.surfaces.gateway.wechat.payloads import UpdateBatch
from keryx.surfaces.gateway.whatsapp.agent_adapter import format_position
from keryx.surfaces.gateway.whatsapp.event_parser import WhatsAppIdentity, parse_payload
from keryx.surfaces.gateway.whatsapp.event_receiver import WhatsAppReceiver
from keryx.surfaces.gateway.whatsapp.payloads import WhatsAppPayload
from keryx.testing import RecordingAdapter, RecordingAdapterContext

TEXT = "how long does it take?"
_PEOPLE = 10
_SENT_AT = 1_700_000_000
_TELEGRAM_BOT = BotIdentity(id=int(str(telegram.BOT["id"])), username="keryx_bot")
_NUMBER = WhatsAppIdentity(account=whatsapp.NUMBER, number=whatsapp.NUMBER)
_WECHAT_BOT = WeChatIdentity(bot=wechat.BOT)
_MAILBOX = MailAccount(address="keryx@hub.test", trusted=frozenset({"mx.hub.test"}))

# Receives what a platform hands over, and returns when it is stored.
Receive = Callable[[bytes], Awaitable[object]]


class Intake(NamedTuple):
    # Returns what the platform hands over for the nth message: JSON, or bytes.
    build: Callable[[int], object]
    # Returns what receives it. What it needs is closed with the stack.
    connect: Callable[[RecordingAdapterContext, AsyncExitStack], Awaitable[Receive]]
    # How often the message is committed on its way.
    commits: int = 1

    def encode(self, n: int) -> bytes:
        built = self.build(n)
        return built if isinstance(built, bytes) else json.dumps(built).encode()

    @asynccontextmanager
    async def open(self, context: RecordingAdapterContext) -> AsyncGenerator[Receive]:
        async with AsyncExitStack() as stack:
            yield await self.connect(context, stack)


def _build_update(n: int) -> object:
    person = {"id": 1000 + n % _PEOPLE, "is_bot": False, "first_name": "Ann"}
    chat = {"id": person["id"], "type": "private", "first_name": "Ann"}
    message = {"message_id": n, "date": _SENT_AT, "chat": chat, "from": person, "text": TEXT}
    return [{"update_id": n, "message": message}]


def _build_feishu_frame(n: int) -> bytes:
    person = n % _PEOPLE
    sender = {"sender_id": {"open_id": f"ou_{person}", "union_id": f"on_{person}"}, "sender_type": "user"}
    message = {
        "message_id": f"om_{n}",
        "create_time": str(_SENT_AT * 1000),
        "chat_id": f"oc_{person}",
        "chat_type": "p2p",
        "message_type": "text",
        "content": json.dumps({"text": TEXT}),
    }
    header = {"event_id": f"ev{n}", "event_type": "im.message.receive_v1", "tenant_key": feishu.TENANT}
    event = {"schema": "2.0", "header": header, "event": {"sender": sender, "message": message}}
    [frame] = feishu.FakeFeishu().build_frames(f"ev{n}", json.dumps(event).encode())
    return frame


async def _connect_telegram(context: RecordingAdapterContext, stack: AsyncExitStack) -> Receive:
    receiver = UpdateReceiver(TelegramApi(telegram.TOKEN), context, _TELEGRAM_BOT)
    return lambda wire: receiver.receive_batch(json.loads(wire))


def _build_discord_message(n: int) -> object:
    author = {"id": str(7 + n % _PEOPLE), "username": "ann", "global_name": "Ann", "discriminator": "0"}
    message: dict[str, Any] = {
        "id": str(int(build_snowflake(datetime.fromtimestamp(_SENT_AT, UTC))) + n),
        "channel_id": str(7000 + n % _PEOPLE),
        "author": author,
        "content": TEXT,
        "type": 0,
        "attachments": [],
        "mentions": [],
    }
    return {"op": 0, "t": "MESSAGE_CREATE", "s": n + 1, "d": message}


async def _connect_discord(context: RecordingAdapterContext, stack: AsyncExitStack) -> Receive:
    receiver = EventReceiver(
        DiscordApi(discord.TOKEN),
        context,
        DiscordIdentity(id=discord.BOT_ID),
        GatewayPosition(),
        names=NameDirectory(),
    )

    async def receive(wire: bytes) -> None:
        frame = json.loads(wire)
        stored = len(context.events) + 1
        await receiver.put(Dispatch(frame["t"], frame["d"], "session", "", frame["s"]))
        await context.wait_for(stored)

    _run_beside(receiver.run(), stack)
    return receive


def _build_slack_event(n: int) -> object:
    event = {
        "type": "message",
        "channel": f"D{n % _PEOPLE:07}",
        "channel_type": "im",
        "user": slack.PERSON,
        "text": TEXT,
        "ts": f"{_SENT_AT}.{n:06}",
        "team": slack.TEAM,
    }
    return {"type": "event_callback", "team_id": slack.TEAM, "event_id": f"Ev{n}", "event": event}


async def _connect_slack(context: RecordingAdapterContext, stack: AsyncExitStack) -> Receive:
    fake = stack.enter_context(slack.FakeSlack())
    api = SlackApi(FixedToken(slack.BOT_TOKEN), fake.api_url)
    stack.push_async_callback(api.close)
    receiver = SlackReceiver(
        api,
        context,
        SlackIdentity(user_id=slack.BOT_USER, team_id=slack.TEAM),
        account="",
        base_url=fake.api_url,
        threads=ThreadIndex(api),
        directory=Directory(api),
        prompts=(),
        reply_in_threads=True,
    )
    return receiver.receive_event


def _build_whatsapp_payload(n: int, person: str, **head: Any) -> dict[str, Any]:
    message = {"from": person, "id": f"wamid.{n}", "timestamp": str(_SENT_AT), "type": "text"}
    value: dict[str, Any] = {
        "messaging_product": "whatsapp",
        "contacts": [{"profile": {"name": "Ann"}, "wa_id": person}],
        "messages": [{**message, "text": {"body": TEXT}}],
        **head,
    }
    return {"entry": [{"id": "1", "changes": [{"field": "messages", "value": value}]}]}


def _build_cloud_post(n: int) -> object:
    number = {"display_phone_number": whatsapp.DISPLAY, "phone_number_id": whatsapp.NUMBER}
    payload = _build_whatsapp_payload(n, f"1555000{n % _PEOPLE:04}", metadata=number)
    return {"object": "whatsapp_business_account", **payload}


async def _connect_cloud(context: RecordingAdapterContext, stack: AsyncExitStack) -> Receive:
    receiver = _build_whatsapp_receiver(context)

    async def receive(wire: bytes) -> None:
        payload = msgspec.convert(json.loads(wire), WhatsAppPayload)
        await receiver.receive_payload(parse_payload(payload, _NUMBER))

    return receive


def _build_agent_batch(n: int) -> object:
    payload = _build_whatsapp_payload(n, f"user:{n % _PEOPLE}")
    return {"object": "whatsapp_agent_platform", **payload, "next_offset": n + 1}


async def _connect_agent(context: RecordingAdapterContext, stack: AsyncExitStack) -> Receive:
    receiver = _build_whatsapp_receiver(context)

    async def receive(wire: bytes) -> None:
        payload = msgspec.convert(json.loads(wire), WhatsAppPayload)
        cursors = [format_position(payload.next_offset or 0)]
        await receiver.receive_payload(parse_payload(payload, WhatsAppIdentity(account="")), cursors)

    return receive


def _build_whatsapp_receiver(context: RecordingAdapterContext) -> WhatsAppReceiver:
    async def answer_press(source: Source, text: str) -> None:
        """Do nothing: no button is pressed."""

    async def invite(context: AdapterContext, source: Source) -> dict[str, str]:
        return {}

    return WhatsAppReceiver(context, newest_messages=LruCache(1), answer_press=answer_press, invite=invite)


def _build_wechat_batch(n: int) -> object:
    message = {
        "seq": n,
        "message_id": n,
        "from_user_id": f"person{n % _PEOPLE}@im.wechat",
        "to_user_id": wechat.BOT,
        "create_time_ms": _SENT_AT * 1000,
        "message_type": 1,
        "message_state": 2,
        "item_list": [{"type": 1, "text_item": {"text": TEXT}}],
        "context_token": f"token-{n}",
    }
    return {"ret": 0, "msgs": [message], "get_updates_buf": f"position-{n}"}


async def _connect_wechat(context: RecordingAdapterContext, stack: AsyncExitStack) -> Receive:
    receiver = WeChatReceiver(context, _WECHAT_BOT, ContextTokens(_WECHAT_BOT))

    async def receive(wire: bytes) -> None:
        batch = msgspec.convert(json.loads(wire), UpdateBatch)
        await receiver.receive_batch(batch, UpdatePosition())

    return receive


def _build_mail(n: int) -> bytes:
    person = f"person{n % _PEOPLE}"
    lines = (
        "Authentication-Results: mx.hub.test; dmarc=pass header.from=people.test",
        f"From: Ann <{person}@people.test>",
        "To: keryx@hub.test",
        f"Message-ID: <m{n}@people.test>",
        f"References: <{person}@people.test>",
        "Subject: Re: A question",
        "",
        TEXT,
    )
    return "\r\n".join(lines).encode()


async def _connect_email(context: RecordingAdapterContext, stack: AsyncExitStack) -> Receive:
    """Do what the listener does with a mail that it has fetched."""

    async def receive(wire: bytes) -> None:
        summary = await asyncio.to_thread(event_parser.read_summary, wire.partition(b"\r\n\r\n")[0], _MAILBOX)
        parsed = await asyncio.to_thread(event_parser.parse_content, wire, summary, _MAILBOX, truncated=False)
        root = event_parser.find_root(summary, _MAILBOX)
        inbound = event_parser.build_inbound(
            parsed, summary, _MAILBOX, root=root, at=None, files=(), notes=(), cursor="1.1.0.0"
        )
        await context.receive(inbound)

    return receive


def _build_envelope(n: int) -> object:
    at = 1000 * _SENT_AT + n
    envelope = {
        "sourceNumber": None,
        "sourceUuid": f"00000000-0000-4000-8000-{n % _PEOPLE:012}",
        "sourceName": "Ann",
        "timestamp": at,
        "dataMessage": {"timestamp": at, "message": TEXT},
    }
    return {"envelope": envelope, "account": signal.NUMBER}


async def _connect_signal(context: RecordingAdapterContext, stack: AsyncExitStack) -> Receive:
    spool = SpoolFile(Path("received.jsonl"), shared=True)
    receiver = SignalReceiver(context, SignalIdentity(number=signal.NUMBER), spool)

    async def receive(wire: bytes) -> None:
        line = SpoolLine(wire)
        await receiver.receive_line(line, read_line(line))

    return receive


async def _connect_feishu(context: RecordingAdapterContext, stack: AsyncExitStack) -> Receive:
    fake = stack.enter_context(feishu.FakeFeishu())
    fake.names |= {f"ou_{person}": "Ann" for person in range(_PEOPLE)}
    api = FeishuApi(feishu.APP_ID, feishu.APP_SECRET, fake.url)
    stack.push_async_callback(api.close)
    me = FeishuIdentity(open_id=feishu.BOT)
    receiver = FeishuReceiver(context, FeishuDirectory(api), me, account=feishu.APP_ID)
    joiner = FragmentJoiner(lambda: 0.0)

    async def receive(wire: bytes) -> None:
        await receiver.receive(joiner.join(decode_frame(wire)) or b"")

    return receive


def _build_imsg_line(n: int) -> object:
    handle = f"+1555000{n % _PEOPLE:04}"
    message: dict[str, Any] = {
        "id": n + 1,
        "guid": f"G{n}",
        "sender": handle,
        "is_from_me": False,
        "text": TEXT,
        "created_at": "2026-11-17T08:00:00.000Z",
        "attachments": [],
        "chat_guid": f"iMessage;-;{handle}",
        "chat_identifier": handle,
        "is_group": False,
    }
    params = {"subscription": 1, "message": message}
    return {"jsonrpc": "2.0", "method": "message", "params": params}


async def _connect_imsg(context: RecordingAdapterContext, stack: AsyncExitStack) -> Receive:
    receiver = _build_row_receiver(context)
    return lambda wire: receiver.receive_imsg(json.loads(wire)["params"]["message"])


def _build_bluebubbles_answer(n: int) -> object:
    handle = f"+1555000{n % _PEOPLE:04}"
    message: dict[str, Any] = {
        "originalROWID": n + 1,
        "guid": f"G{n}",
        "text": TEXT,
        "handle": {"address": handle, "service": "iMessage"},
        "attachments": [],
        "chats": [{"guid": f"iMessage;-;{handle}", "style": 45}],
        "dateCreated": _SENT_AT * 1000,
        "isFromMe": False,
    }
    return {"status": 200, "message": "Success", "data": [message]}


async def _connect_bluebubbles(context: RecordingAdapterContext, stack: AsyncExitStack) -> Receive:
    receiver = _build_row_receiver(context)

    async def receive(wire: bytes) -> None:
        for row in json.loads(wire)["data"]:
            await receiver.receive_row(read_bluebubbles(msgspec.convert(row, BlueBubblesMessage), {}))

    return receive


def _build_row_receiver(context: RecordingAdapterContext) -> RowReceiver:
    return RowReceiver(context, IMessageIdentity(), RowPosition(0), known_guids={})


def _build_matrix_sync(n: int) -> object:
    person = f"@person{n % _PEOPLE}:hub.test"
    event = {
        "type": "m.room.message",
        "event_id": f"$event{n}",
        "sender": person,
        "origin_server_ts": _SENT_AT * 1000 + n,
        "content": {"msgtype": "m.text", "body": TEXT},
    }
    room = {"timeline": {"events": [event], "limited": False, "prev_batch": f"s{n}"}}
    return {"next_batch": f"s{n + 1}", "rooms": {"join": {f"!room{n % _PEOPLE}:hub.test": room}}}


class _FedHomeserver(Homeserver):
    """Syncs what it is fed. A mark of reading comes after the commit, and is left out."""

    def __init__(self, url: str) -> None:
        super().__init__(url, matrix.TOKEN)
        self.responses: asyncio.Queue[bytes] = asyncio.Queue()

    async def sync(self, since: str | None, *, filter: str, wait: timedelta) -> SyncResponse:
        if since is None:
            return SyncResponse(next_batch="s0")
        return msgspec.json.decode(await self.responses.get(), type=SyncResponse)

    async def mark_read(self, room: str, event: str) -> None:
        """Do nothing."""


async def _connect_matrix(context: RecordingAdapterContext, stack: AsyncExitStack) -> Receive:
    fake = stack.enter_context(matrix.FakeMatrix(anywhere=True))
    for person in range(_PEOPLE):
        fake.open(f"!room{person}:hub.test", f"@person{person}:hub.test")
    server = _FedHomeserver(fake.url)
    stack.push_async_callback(server.close)
    loop = SyncLoop(server, matrix.USER, context, sleep=asyncio.sleep, encrypted_rooms=EncryptedRooms(server))
    _run_beside(loop.run(), stack)

    async def receive(wire: bytes) -> None:
        stored = len(context.events) + 1
        server.responses.put_nowait(wire)
        await context.wait_for(stored)

    return receive


def _build_relayed_message(n: int) -> object:
    person = str(n % _PEOPLE)
    return {"number": str(n), "person": person}


async def _connect_relay(context: RecordingAdapterContext, stack: AsyncExitStack) -> Receive:
    """Give a message to a connector, whose queue is a store of its own, and wait until the instance has it."""
    folder = Path(stack.enter_context(TemporaryDirectory()))
    async with SqliteDatabase(folder / "empty.db"):
        pass
    pair = await stack.enter_async_context(open_pair(folder, [RecordingAdapter()], store=folder / "empty.db"))
    _run_beside(pair.adapter.listen(context), stack)

    async def receive(wire: bytes) -> None:
        said = json.loads(wire)
        stored = len(context.events) + 1
        number, person = said["number"], said["person"]
        inbound = InboundMessage(
            event=number,
            source=Source(platform="fake", chat=person, user=person, user_name="Ann", message=number),
            parts=text_parts(TEXT),
            surface=GATEWAY_SURFACE,
            reply=Target("fake", "", person),
            cursor=number,
        )
        await pair.service.hub.receive(inbound)
        await context.wait_for(stored)

    return receive


def _run_beside(work: Coroutine[Any, Any, object], stack: AsyncExitStack) -> None:
    """Run something until the stack is closed."""
    running = asyncio.create_task(work)
    stack.push_async_callback(lambda: asyncio.wait({running}))
    stack.callback(running.cancel)


INTAKES: Mapping[str, Intake] = {
    "Telegram": Intake(_build_update, _connect_telegram),
    "Discord": Intake(_build_discord_message, _connect_discord),
    "Slack": Intake(_build_slack_event, _connect_slack),
    "WhatsApp, Cloud API": Intake(_build_cloud_post, _connect_cloud),
    "WhatsApp, agent": Intake(_build_agent_batch, _connect_agent),
    "Feishu": Intake(_build_feishu_frame, _connect_feishu),
    "iMessage, imsg": Intake(_build_imsg_line, _connect_imsg),
    "iMessage, BlueBubbles": Intake(_build_bluebubbles_answer, _connect_bluebubbles),
    "Signal": Intake(_build_envelope, _connect_signal),
    "WeChat": Intake(_build_wechat_batch, _connect_wechat),
    "e-mail": Intake(_build_mail, _connect_email),
    "Matrix": Intake(_build_matrix_sync, _connect_matrix),
    "relay, both nodes": Intake(_build_relayed_message, _connect_relay, commits=2),
}
