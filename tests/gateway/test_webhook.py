"""The generic webhook: who may speak, what is understood, and what a receiver is told."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes.webhook import KEY, SECRET, FakeWebhooks, headers

from keryx.core.deliveries import REPEAT_MARK, Target
from keryx.core.errors import Invalid, Refused, Throttled
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment
from keryx.core.messages import Text, text_parts
from keryx.core.ports.adapter import (
    InboundEvent,
    OutgoingPart,
    Receipt,
    WebhookRequest,
    WebhookResponse,
)
from keryx.core.source import ChatType
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.webhook import (
    DEFAULT_BODY_BYTES,
    MAX_FILES,
    WebhookAdapter,
    WebhookSettings,
    make,
    parse_secrets,
    sign,
)
from keryx.testing import RecordingAdapterContext
from keryx.testing.fault_injection import PlatformFaults

HELLO = b'{"chat": "c1", "user": "ann", "text": "hello"}'
OTHER = b"another secret of 32 bytes ....."
URL = "http://127.0.0.1:9/answers"


class Ear:
    """An adapter that listens, and how to post to it."""

    def __init__(self, *secrets: bytes, now: float | None = None) -> None:
        self.context = RecordingAdapterContext(stranger=lambda source: source.user == "eve")
        clock = time.time if now is None else lambda: now
        self.adapter = WebhookAdapter(WebhookSettings(url=URL), secrets=secrets or (KEY,), now=clock)

    async def post(self, body: bytes, given: dict[str, str] | None = None) -> WebhookResponse:
        return await self.adapter.hook.handle(
            WebhookRequest(headers=headers("msg_1", body) if given is None else given, body=body)
        )


@pytest.fixture
async def ear() -> AsyncIterator[Ear]:
    made = Ear(KEY, OTHER)
    task = asyncio.create_task(made.adapter.listen(made.context))
    await asyncio.sleep(0)
    yield made
    task.cancel()
    await asyncio.wait({task})


def test_the_signature_is_that_of_the_specification() -> None:
    """The example of the Standard Webhooks specification."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_a_signed_message_is_taken_in(ear: Ear) -> None:
    answer = await ear.post(HELLO)
    assert (answer.status, json.loads(answer.body)) == (200, {"duplicate": False})
    [event] = ear.context.events
    assert (event.event, event.parts, event.addressed) == ("msg_1", text_parts("hello"), True)
    assert event.reply == Target("webhook", chat="c1", reply_to="msg_1")
    assert (event.source.chat, event.source.user, event.source.chat_type) == ("c1", "ann", ChatType.DM)


async def test_everything_that_can_be_said(ear: Ear) -> None:
    told = {
        "chat": "c1",
        "user": "ann",
        "text": "hi",
        "name": "Ann",
        "chat_name": "Friends",
        "type": "group",
        "thread": "t",
        "addressed": False,
        "quote": "before",
        "edits": "msg_0",
        "topic": "Lunch",
        "scope": "club",
        "parent_chat": "c0",
        "user_alt": "uuid-1",
        "chat_alt": "uuid-2",
        "bot": True,
    }
    await ear.post(json.dumps(told).encode())
    [event] = ear.context.events
    source = event.source
    assert (source.topic, source.scope, source.parent_chat) == ("Lunch", "club", "c0")
    assert (source.user_alt, source.chat_alt, source.bot) == ("uuid-1", "uuid-2", True)
    assert (source.user_name, source.chat_name, source.chat_type) == ("Ann", "Friends", ChatType.GROUP)
    assert (source.thread, event.addressed, event.quote, event.edits) == ("t", False, "before", "msg_0")


async def test_an_old_secret_is_good_while_it_is_listed(ear: Ear) -> None:
    assert (await ear.post(HELLO, headers("msg_1", HELLO, key=OTHER))).status == 200


async def test_several_signatures_may_be_given(ear: Ear) -> None:
    both = headers("msg_1", HELLO)
    both["webhook-signature"] = f"v1a,xyz v1,AAAA {both['webhook-signature']}"
    assert (await ear.post(HELLO, both)).status == 200


@pytest.mark.parametrize(
    "given",
    [
        {},
        headers("msg_1", HELLO, key=b"a forged secret of 32 bytes ...."),
        headers("msg_1", b"another body"),
        {**headers("msg_2", HELLO), "webhook-id": "msg_1"},
        headers("", HELLO),
        headers("x" * 300, HELLO),
        headers("msg_1", HELLO, at=str(int(time.time()) - 90_000)),
        headers("msg_1", HELLO, at=str(int(time.time()) + 90_000)),
        headers("msg_1", HELLO, at="soon"),
        headers("msg_1", HELLO, at="²"),
        headers("msg_1", HELLO, at="9" * 400),
        {**headers("msg_1", HELLO), "webhook-signature": "v1,ümlaut"},
    ],
)
async def test_what_is_not_signed_by_us_is_turned_away(ear: Ear, given: dict[str, str]) -> None:
    assert (await ear.post(HELLO, given)).status == 401
    assert ear.context.events == []


@pytest.mark.parametrize(("apart", "status"), [(-299, 200), (-301, 401), (299, 200), (301, 401)])
async def test_a_timestamp_holds_for_five_minutes(apart: int, status: int) -> None:
    ear = Ear(now=1_700_000_000)
    task = asyncio.create_task(ear.adapter.listen(ear.context))
    await asyncio.sleep(0)
    given = headers("msg_1", HELLO, at=str(1_700_000_000 + apart))
    assert (await ear.post(HELLO, given)).status == status
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"chat": 3}',
        b'{"chat": "c", "user": "u"}',
        b'{"chat": "c", "user": "u", "text": ""}',
        b'{"chat": "c", "user": "u", "text": " "}',
        b'{"chat": "c", "user": "u", "files": [{"data": "?"}]}',
        b"[" * 100_000,
        b'{"chat": "c", "user": "u", "text": "t", "type": "crowd"}',
    ],
)
async def test_what_cannot_be_read_is_called_wrong(ear: Ear, body: bytes) -> None:
    answer = await ear.post(body)
    assert answer.status == 400 and ear.context.events == []
    assert json.loads(answer.body)["error"].startswith("this is not a message")


async def test_what_the_engine_calls_wrong_is_called_wrong(ear: Ear) -> None:
    async def refuse(inbound: InboundEvent) -> Receipt:
        raise Invalid("a direct message names no chat")

    wrong = Ear()
    wrong.context = RecordingAdapterContext(receive=refuse)
    task = asyncio.create_task(wrong.adapter.listen(wrong.context))
    await asyncio.sleep(0)
    assert (await wrong.post(HELLO)).status == 400
    task.cancel()
    await asyncio.wait({task})


async def test_nothing_is_taken_in_before_the_door_is_open() -> None:
    assert (await Ear().post(HELLO)).status == 503


async def test_files_are_stored_with_the_message(ear: Ear) -> None:
    files = [{"name": "a.txt", "mime": "text/plain", "data": base64.b64encode(b"words").decode()}]
    await ear.post(json.dumps({"chat": "c1", "user": "ann", "files": files}).encode())
    [event] = ear.context.events
    [stored] = ear.context.attachments
    assert (stored.name, stored.mime, stored.body) == ("a.txt", "text/plain", b"words")
    assert [type(part).__name__ for part in event.parts] == ["File"]


async def test_a_message_with_too_many_files_is_refused_and_none_is_stored(ear: Ear) -> None:
    files = [{"name": "a.txt", "data": "YQ=="}] * (MAX_FILES + 1)
    refused = await ear.post(json.dumps({"chat": "c1", "user": "ann", "files": files}).encode())
    assert refused.status == 400 and b"files" in refused.body
    assert ear.context.events == [] and ear.context.attachments == []
    await ear.post(json.dumps({"chat": "c1", "user": "ann", "files": files[1:]}).encode())
    assert len(ear.context.attachments) == MAX_FILES


async def test_files_of_a_stranger_are_named_and_not_stored(ear: Ear) -> None:
    files = [{"name": "a.txt", "data": base64.b64encode(b"words").decode()}]
    await ear.post(json.dumps({"chat": "c1", "user": "eve", "text": "look", "files": files}).encode())
    [event] = ear.context.events
    assert event.parts == (Text("look"), Text("[a.txt]")) and ear.context.attachments == []


async def test_a_file_of_an_answer_is_posted_where_the_receiver_takes_files() -> None:
    with FakeWebhooks() as hooks:
        file = Attachment(name="a.png", mime="image/png", body=b"dots")
        await sent(hooks, text="", attachment=file)
        [post] = hooks.posts
    assert post.body["file"] == {"name": "a.png", "mime": "image/png", "data": "ZG90cw=="}
    assert WebhookAdapter(WebhookSettings(url=URL), secrets=[KEY]).capabilities.attachments is None
    assert WebhookAdapter(WebhookSettings(url=URL, files=True), secrets=[KEY]).capabilities.attachments


def test_the_body_is_limited() -> None:
    assert Ear().adapter.hook.limit == DEFAULT_BODY_BYTES < 10_000_000


async def sent(hooks: FakeWebhooks, **fields: Any) -> str:
    adapter = WebhookAdapter(WebhookSettings(url=hooks.url), secrets=[KEY, OTHER])
    target = Target("webhook", chat="c1", thread="t", reply_to="msg_1")
    whole = OutgoingPart(delivery=DeliveryId("d"), number=0, key="d.0", target=target, text="hello **you**")
    try:
        return await adapter.send(msgspec.structs.replace(whole, **fields))
    finally:
        await adapter.close()


async def test_an_answer_is_posted_signed_under_the_key_of_its_part() -> None:
    with FakeWebhooks() as hooks:
        assert await sent(hooks, again=True) == "post-0"
        [post] = hooks.posts
    assert post.id == "d.0"
    assert post.body == {
        "chat": "c1",
        "thread": "t",
        "reply_to": "msg_1",
        "text": f"{REPEAT_MARK}hello **you**",
        "again": True,
        "delivery": "d",
        "part": 0,
    }


async def test_a_receiver_that_knows_another_secret_refuses() -> None:
    with FakeWebhooks() as hooks:
        adapter = WebhookAdapter(WebhookSettings(url=hooks.url), secrets=[OTHER])
        target = Target("webhook", chat="c1")
        with pytest.raises(Refused, match="401"):
            await adapter.send(
                OutgoingPart(delivery=DeliveryId("d"), number=0, key="d.0", target=target, text="x")
            )
        await adapter.close()


async def test_a_pause_is_as_long_as_the_receiver_says() -> None:
    with FakeWebhooks(PlatformFaults(throttle=1, retry_after=7)) as hooks:
        with pytest.raises(Throttled) as caught:
            await sent(hooks)
    assert caught.value.after.total_seconds() == 7


def setup(**table: object) -> AdapterSetup:
    environ = {
        "S": f"{SECRET}\nwhsec_{base64.b64encode(OTHER).decode()}",
        "SHORT": "whsec_AAAA",
        "BARE": "hunter2",
    }
    return AdapterSetup(platform="webhook", home=Path("/nowhere"), table=table, environ=environ)


def test_the_settings_make_an_adapter() -> None:
    assert make(setup()) is None
    made = make(setup(secret="env:S", url="https://example.org/answers", idempotent=True))
    assert made is not None and made.capabilities.idempotency == "native"
    assert parse_secrets(f"{SECRET} {SECRET}") == (KEY, KEY)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"url": "https://example.org"}, "webhook.secret is missing"),
        ({"url": "https://example.org", "secret": "env:SHORT"}, "at least 24 random bytes"),
        ({"url": "https://example.org", "secret": "env:BARE"}, "whsec_"),
        ({"secret": "env:S"}, "webhook.url is missing"),
        ({"secret": "env:S", "url": "ftp://example.org"}, "webhook.url"),
        ({"secret": "env:S", "link": "https://example.org"}, "link"),
    ],
)
def test_settings_that_make_no_adapter_say_why(table: dict[str, object], why: str) -> None:
    with pytest.raises(Invalid, match=why) as caught:
        make(setup(**table))
    assert "hunter2" not in str(caught.value)
