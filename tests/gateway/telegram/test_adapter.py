"""The Telegram adapter against a strict Bot API: what is sent, what comes in, and what it says when it cannot."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes.telegram import TOKEN, FakeTelegram

from keryx.core.deliveries import REPEAT_MARK, Target
from keryx.core.errors import (
    Forbidden,
    Invalid,
    NotSent,
    Refused,
    TargetGone,
    Throttled,
    Unavailable,
    Uncertain,
)
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment, RemoteFile
from keryx.core.messages import Text
from keryx.core.ports.adapter import (
    InboundEvent,
    InboundMessage,
    LinkState,
    MenuItem,
    OutgoingPart,
    Receipt,
    WebhookRequest,
)
from keryx.core.questions import Button
from keryx.core.source import ChatType, Source
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.telegram import TelegramAdapter, TelegramSettings, UpdateMode, make
from keryx.surfaces.gateway.telegram.bot_api import BAD_TOKEN, BOT_IN_USE, WEBHOOK_IN_USE, FloodDetector
from keryx.testing import RecordingAdapterContext
from keryx.testing.fault_injection import PlatformFaults

SECONDS = 60
SECRET = "hook-secret"


class Bot:
    """An adapter, its platform and a context; pauses are counted and take no time."""

    def __init__(
        self, telegram: FakeTelegram, *, token: str = TOKEN, mode: UpdateMode = UpdateMode.POLLING
    ) -> None:
        self.telegram = telegram
        self.pauses: list[float] = []
        settings = TelegramSettings(base_url=telegram.url, mode=mode, url="https://keryx.example/")
        self.adapter = TelegramAdapter(token, settings, secret=SECRET, sleep=self.pause)
        self.context = RecordingAdapterContext(
            menu=[
                MenuItem("new", "Start afresh."),
                MenuItem("undo-reset", "x" * 300),
                MenuItem("whoami", "Who?", direct=True),
            ]
        )

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    async def hear(self, count: int = 1) -> list[InboundMessage]:
        task = asyncio.create_task(self.adapter.listen(self.context))
        events = await self.context.wait_for(count, seconds=SECONDS)
        await _cancel(task)
        return events

    async def fail(self) -> str:
        """Listen until the adapter gives up; what it says."""
        async with asyncio.timeout(SECONDS):
            with pytest.raises(Forbidden) as caught:
                await self.adapter.listen(self.context)
        return str(caught.value)

    async def send(self, said: str = "hello", *, chat: str = "7", **fields: Any) -> str:
        target = Target("telegram", "424242", chat, fields.pop("thread", ""), fields.pop("reply_to", ""))
        [part] = self.adapter.parts(said)
        whole = OutgoingPart(
            delivery=DeliveryId("d"), number=0, key="d.0", target=target, text=part.text, markup=part.markup
        )
        return await self.adapter.send(msgspec.structs.replace(whole, **fields))


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait({task})


@pytest.fixture
async def bot() -> AsyncIterator[Bot]:
    with FakeTelegram() as telegram:
        made = Bot(telegram)
        yield made
        await made.adapter.close()


async def test_formatted_text_arrives_with_its_entities(bot: Bot) -> None:
    await bot.send("some **bold** text", again=True)
    [shown] = bot.telegram.bubbles
    assert shown.text == f"{REPEAT_MARK}some bold text"
    assert shown.entities == [{"type": "bold", "offset": len(REPEAT_MARK) + 5, "length": 4}]


async def test_formatting_that_is_refused_becomes_plain_text(bot: Bot) -> None:
    bot.telegram.plain_only = True
    await bot.send("some **bold** [text](https://example.org)")
    assert bot.telegram.texts() == ["some bold text (https://example.org)"]


async def test_a_long_answer_fits_with_its_mark(bot: Bot) -> None:
    parts = bot.adapter.parts("😀 word " * 3000)
    for number, part in enumerate(parts):
        await bot.send(number=number, text=part.text, markup=part.markup, again=True)
    assert len(bot.telegram.bubbles) == len(parts) > 4


async def test_only_the_first_part_in_a_group_is_a_reply(bot: Bot) -> None:
    await bot.send(chat="-5", reply_to="3")
    await bot.send(chat="-5", reply_to="3", number=1)
    await bot.send(chat="7", reply_to="3")
    await bot.send(chat="-5", thread="12")
    assert [(b.reply_to, b.thread) for b in bot.telegram.bubbles] == [
        (3, None),
        (None, None),
        (None, None),
        (None, 12),
    ]


async def test_a_group_that_moved_is_followed(bot: Bot) -> None:
    bot.telegram.moved[-5] = -100
    await bot.send(chat="-5", reply_to="3")
    assert bot.telegram.texts(-100) == ["hello"]


async def test_a_person_who_blocked_the_bot_is_told_of(bot: Bot) -> None:
    bot.telegram.blocked.add(7)
    with pytest.raises(TargetGone, match="the person has blocked the bot"):
        await bot.send()


@pytest.mark.parametrize("chat", ["", "7"])
async def test_a_target_that_cannot_be_is_refused(bot: Bot, chat: str) -> None:
    with pytest.raises(Refused):
        await bot.send(chat=chat, thread="general")


async def test_a_token_that_telegram_forgot_is_no_reason_to_drop_an_answer() -> None:
    with FakeTelegram() as telegram:
        bot = Bot(telegram, token="424242:another-token")
        with pytest.raises(NotSent, match="token"):
            await bot.send()
        await bot.adapter.close()


async def test_a_broken_server_leaves_doubt(bot: Bot) -> None:
    bot.telegram.faults = PlatformFaults(broken=1)
    with pytest.raises(Uncertain):
        await bot.send()


async def test_a_pause_for_many_chats_at_once_is_one_for_the_bot(bot: Bot) -> None:
    bot.telegram.faults = PlatformFaults(throttle=1, retry_after=30)
    found: list[bool] = []
    for chat in ("7", "7", "8", "9", "10"):
        with pytest.raises(Throttled) as caught:
            await bot.send(chat=chat)
        found.append(caught.value.account)
    assert found == [False, False, False, True, True]


def test_a_pause_that_is_over_counts_no_more() -> None:
    now = 0.0
    flood = FloodDetector(lambda: now)
    short = Throttled("wait", after=timedelta(seconds=5))
    assert [flood.classify(short, chat).account for chat in "ab"] == [False, False]
    now = 6.0
    assert not flood.classify(short, "c").account


async def test_a_repeated_file_carries_the_mark(bot: Bot) -> None:
    await bot.send(attachment=Attachment(name="a.png", mime="image/png", body=b"png"), again=True)
    [shown] = bot.telegram.bubbles
    assert (shown.media, shown.text) == ("photo", REPEAT_MARK.strip())


async def test_a_file_that_telegram_never_takes_is_refused_before_it_is_sent(bot: Bot) -> None:
    with pytest.raises(Refused, match="50 MB"):
        await bot.send(attachment=Attachment(name="a", mime="", body=bytes(50_000_001)))


async def test_the_menu_shows_the_commands_as_telegram_takes_them(bot: Bot) -> None:
    bot.telegram.say("hello")
    await bot.hear()
    assert [c["command"] for c in bot.telegram.commands] == ["new", "undo_reset"]
    assert max(len(c["description"]) for c in bot.telegram.commands) == 256
    # What works in direct chats only is in the menu of these.
    assert [c["command"] for c in bot.telegram.direct_commands] == ["new", "undo_reset", "whoami"]


async def test_updates_that_are_no_messages_are_passed_by_the_next_message(bot: Bot) -> None:
    bot.telegram.push("poll", {"id": "1"})
    bot.telegram.say("hello")
    bot.telegram.push("poll", {"id": "2"})
    [event] = await bot.hear()
    assert event.cursor == "1002"


async def test_a_number_that_starts_again_lower_is_followed(bot: Bot) -> None:
    bot.context = RecordingAdapterContext("1")
    bot.telegram.say("hello")
    [event] = await bot.hear()
    assert event.cursor == "1001"
    bot.telegram.updates = [{**bot.telegram.updates[0], "update_id": 3}]
    again = RecordingAdapterContext("2")
    bot.context = again
    assert (await bot.hear())[0].event == event.event


async def test_an_event_that_the_engine_calls_wrong_blocks_nothing(bot: Bot) -> None:
    async def choosy(inbound: InboundEvent) -> Receipt:
        assert isinstance(inbound, InboundMessage)
        if any(isinstance(p, Text) and p.text == "bad" for p in inbound.parts):
            raise Invalid("this can never be taken in")
        return Receipt(duplicate=False)

    bot.context = RecordingAdapterContext(receive=choosy)
    bot.telegram.say("bad")
    bot.telegram.say("good")
    assert [m.parts for m in await bot.hear()] == [(Text("good"),)]


async def test_a_moved_group_is_told_of(bot: Bot) -> None:
    bot.telegram.say(None, chat=-5, migrate_to_chat_id=-100)
    bot.telegram.say("hello")
    await bot.hear()
    assert bot.context.chat_moves == [("-5", "-100")]


async def test_a_file_beyond_the_limit_is_not_even_asked_for(bot: Bot) -> None:
    bot.telegram.say(None, document={"file_id": "f", "file_name": "film.mkv", "file_size": 20_000_001})
    [event] = await bot.hear()
    with pytest.raises(Invalid, match="it is larger than 20,000,000 bytes"):
        await bot.adapter.download(event.files[0], limit=100_000_000)


async def test_a_file_that_is_gone_cannot_be_fetched(bot: Bot) -> None:
    bot.telegram.say(None, caption="see", document={"file_id": "none", "file_name": "a.txt"})
    [event] = await bot.hear()
    with pytest.raises(Invalid):
        await bot.adapter.download(event.files[0], limit=1000)


async def test_files_are_named_and_not_fetched_before_the_event_is_stored(bot: Bot) -> None:
    bot.telegram.files["f"] = b"bytes"
    bot.telegram.say(None, document={"file_id": "f", "file_name": "a.txt"})
    [event] = await bot.hear()
    assert (event.parts, bot.context.attachments) == ((), [])
    assert event.files == (RemoteFile(reference="f", name="a.txt", mime="application/octet-stream"),)


async def test_a_wrong_token_is_said_clearly() -> None:
    with FakeTelegram() as telegram:
        bot = Bot(telegram, token="424242:another-token")
        assert await bot.fail() == BAD_TOKEN
        assert "another-token" not in str(bot.context.link_states)
        await bot.adapter.close()


async def test_a_webhook_of_another_program_is_left_alone(bot: Bot) -> None:
    bot.telegram.webhook = {"url": "https://other.example/telegram"}
    assert await bot.fail() == WEBHOOK_IN_USE
    assert bot.telegram.webhook


async def test_our_own_webhook_ends_when_we_poll(bot: Bot) -> None:
    bot.telegram.say("hello")
    bot.telegram.webhook = {"url": "https://keryx.example/hooks/telegram"}
    assert len(await bot.hear()) == 1
    assert not bot.telegram.webhook


async def test_a_second_listener_gives_up_with_a_sentence(bot: Bot) -> None:
    other = Bot(bot.telegram)
    both = [asyncio.create_task(b.adapter.listen(b.context)) for b in (bot, other)]
    async with asyncio.timeout(SECONDS):
        done, rest = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    assert [str(task.exception()) for task in done] == [BOT_IN_USE] * len(done)
    for task in rest:
        await _cancel(task)
    await other.adapter.close()


async def test_a_server_out_of_reach_is_waited_for_with_growing_pauses(bot: Bot) -> None:
    nowhere = Bot(bot.telegram)
    nowhere.adapter = TelegramAdapter(
        TOKEN, TelegramSettings(base_url="http://127.0.0.1:9"), sleep=nowhere.pause
    )
    task = asyncio.create_task(nowhere.adapter.listen(nowhere.context))
    async with asyncio.timeout(SECONDS):
        while len(nowhere.pauses) < 7:  # noqa: ASYNC110 counted by the adapter's own pauses
            await asyncio.sleep(0.01)
    assert nowhere.pauses[:7] == [1, 2, 4, 8, 16, 30, 30]
    await _cancel(task)


async def test_how_the_connection_stands_is_reported_once(bot: Bot) -> None:
    bot.telegram.say("hello")
    await bot.hear()
    assert bot.context.link_states == [(LinkState.CONNECTED, "")]


@pytest.fixture
async def hooked() -> AsyncIterator[Bot]:
    with FakeTelegram() as telegram:
        made = Bot(telegram, mode=UpdateMode.WEBHOOK)
        task = asyncio.create_task(made.adapter.listen(made.context))
        assert await asyncio.to_thread(telegram.wait_for, lambda: bool(telegram.webhook))
        yield made
        await _cancel(task)


async def post(bot: Bot, body: bytes | object, *, secret: str = SECRET) -> int:
    hook = bot.adapter.hook
    assert hook is not None
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = WebhookRequest(headers={"x-telegram-bot-api-secret-token": secret}, body=raw)
    return (await hook.handle(request)).status


UPDATE = {
    "update_id": 1,
    "message": {"message_id": 5, "chat": {"id": 7, "type": "private"}, "from": {"id": 7}, "text": "hello"},
}


async def test_a_webhook_is_set_so_that_order_holds_and_nothing_is_dropped(hooked: Bot) -> None:
    assert hooked.telegram.webhook["url"] == "https://keryx.example/hooks/telegram"
    assert hooked.telegram.webhook["max_connections"] == 1
    assert hooked.telegram.webhook["drop_pending_updates"] is False
    assert hooked.telegram.webhook["secret_token"] == SECRET


async def test_a_posted_update_is_taken_in_before_it_is_acknowledged(hooked: Bot) -> None:
    assert await post(hooked, UPDATE) == 200
    assert [m.event for m in hooked.context.events] == ["7.5"]


@pytest.mark.parametrize(
    ("body", "secret", "status"),
    [
        (UPDATE, "", 401),
        (UPDATE, "hook-secres", 401),
        (UPDATE, "höök", 401),
        (b"{", SECRET, 400),
        (b"\xff\xfe", SECRET, 400),
        (b"[]", SECRET, 400),
        (b"[" * 100_000, SECRET, 400),
        ({"update_id": "x"}, SECRET, 200),
    ],
)
async def test_bad_posts_are_turned_away(hooked: Bot, body: object, secret: str, status: int) -> None:
    assert await post(hooked, body, secret=secret) == status
    assert hooked.context.events == []


async def test_an_update_that_cannot_be_stored_now_is_asked_for_again() -> None:
    async def away(inbound: InboundEvent) -> Receipt:
        raise Unavailable("the disk is full")

    with FakeTelegram() as telegram:
        bot = Bot(telegram, mode=UpdateMode.WEBHOOK)
        assert await post(bot, UPDATE) == 503
        bot.context = RecordingAdapterContext(receive=away)
        task = asyncio.create_task(bot.adapter.listen(bot.context))
        await asyncio.to_thread(telegram.wait_for, lambda: bool(telegram.webhook))
        assert await post(bot, UPDATE) == 503
        await _cancel(task)


def setup(**table: object) -> AdapterSetup:
    return AdapterSetup(
        platform="telegram", home=Path("/nowhere"), table=table, environ={"T": TOKEN, "BAD": "x y"}
    )


def test_the_settings_make_a_bot() -> None:
    assert make(setup()) is None
    made = make(setup(token="env:T", per_chat=2))
    assert made is not None and made.account == "424242" and made.hook is None
    assert made.capabilities.chat_interval.total_seconds() == 0.5


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"mode": "polling"}, "telegram.token is missing"),
        ({"token": "env:BAD"}, "does not look like a Telegram token"),
        ({"token": "env:NONE"}, "set the variable NONE"),
        ({"token": "env:T", "mode": "webhook"}, "needs `url`"),
        ({"token": "env:T", "mode": "webhook", "url": "https://x", "secret": "env:BAD"}, "telegram.secret"),
        ({"token": "env:T", "base_url": "api.telegram.org"}, "telegram.base_url"),
        ({"token": "env:T", "mode": "carrier pigeon"}, "telegram.mode"),
    ],
)
def test_settings_that_make_no_bot_say_why(table: dict[str, object], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        make(setup(**table))


@pytest.mark.parametrize(
    ("user", "status", "roles"),
    [
        ("7", "creator", ["creator", "administrator"]),
        ("7", "administrator", ["administrator"]),
        ("7", "left", []),
        ("7", "hologram", []),
        ("-5", "member", ["administrator"]),
        ("-6", "creator", []),
    ],
)
async def test_who_runs_a_group_has_a_role_there(bot: Bot, user: str, status: str, roles: list[str]) -> None:
    bot.telegram.members[-5, int(user)] = status
    source = Source(platform="telegram", chat="-5", chat_type=ChatType.GROUP, user=user)
    assert list(await bot.adapter.roles(source)) == roles


async def test_a_token_that_telegram_forgot_tells_of_no_roles() -> None:
    with FakeTelegram() as telegram:
        bot = Bot(telegram, token="424242:another-token")
        with pytest.raises(Unavailable):
            await bot.adapter.roles(Source(platform="telegram", chat="-5", user="7"))
        await bot.adapter.close()


OFFERED = (Button("Allow", "/answer 01jd0 1"), Button("Deny", "/answer 01jd0 2"))


async def test_a_press_is_acknowledged_with_what_it_led_to_and_only_once_it_is_stored(bot: Bot) -> None:
    early: list[list[str]] = []

    async def stored(inbound: InboundEvent) -> Receipt:
        early.append(list(bot.telegram.toasts))
        return Receipt(duplicate=False, reply="Allowed once: " + "x" * 300)

    bot.context = RecordingAdapterContext(receive=stored)
    await bot.send("May I?", chat="-5", thread="12", buttons=OFFERED)
    bot.telegram.press("Allow", chat=-5, user=7)
    bot.telegram.say("after")
    press, _ = await bot.hear(2)
    assert (press.source.chat, press.source.user, press.parts) == ("-5", "7", (Text("/answer 01jd0 1"),))
    assert press.addressed and press.reply is None and press.cursor == "1001"
    assert early[0] == [] and bot.telegram.toasts == [("Allowed once: " + "x" * 300)[:200]]


async def test_a_press_that_comes_twice_is_one_event_and_its_late_word_is_borne(bot: Bot) -> None:
    await bot.send("May I?", buttons=OFFERED)
    bot.telegram.press("Deny", times=2)
    events = await bot.hear(2)
    assert len({m.event for m in events}) == 1 and bot.telegram.toasts == [""]


@pytest.mark.parametrize("data", ["", "/stop", "answer", "x" * 500])
async def test_a_press_of_what_is_no_button_of_ours_says_nothing(bot: Bot, data: str) -> None:
    bot.telegram.claim(data, message=3)
    bot.telegram.say("after")
    assert [m.parts for m in await bot.hear()] == [(Text("after"),)]
    assert bot.telegram.toasts == [""]


async def test_a_press_that_cannot_be_acknowledged_holds_nothing_up(bot: Bot) -> None:
    bot.telegram.claim("/answer 01jd0 1", message=3)
    bot.telegram.say("after")
    bot.telegram.faults = PlatformFaults(broken=1)
    assert len(await bot.hear(2)) == 2 and bot.telegram.toasts == []


async def test_buttons_that_telegram_does_not_take_leave_the_text(bot: Bot) -> None:
    bot.telegram.no_buttons = True
    await bot.send("**May** I?", buttons=OFFERED)
    bot.telegram.no_buttons = False
    await bot.send("May I?", buttons=(Button("Long", "/answer " + "x" * 60),))
    assert [(b.text, b.buttons) for b in bot.telegram.bubbles] == [("May I?", {})] * 2


async def test_formatting_and_buttons_are_refused_apart(bot: Bot) -> None:
    bot.telegram.plain_only = True
    await bot.send("**May** I?", buttons=OFFERED)
    [shown] = bot.telegram.bubbles
    assert (shown.entities, list(shown.buttons)) == ([], ["Allow", "Deny"])


@pytest.mark.parametrize("date", [10**30, -(10**30), 10**14, -(10**14)])
async def test_an_update_with_a_date_that_no_calendar_has_blocks_nothing(bot: Bot, date: int) -> None:
    """An error would end the listener, and come again with the same update."""
    chat = {"id": 7, "type": "private", "first_name": "Ann"}
    dated = {"message_id": 1, "date": date, "chat": chat}
    reactions = {"old_reaction": [], "new_reaction": [{"type": "emoji", "emoji": "x"}]}
    bot.telegram.push("message", {**dated, "from": chat, "text": "when?"})
    bot.telegram.push("message_reaction", {**dated, **reactions})
    bot.telegram.say("after it")
    assert [m.parts for m in await bot.hear()] == [(Text("after it"),)]
