"""The adapter for WeChat against a strict fake: positions, context tokens, refusals, typing and files."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.contracts.wechat import build_adapter
from tests.fakes.wechat import ANN, BEN, BOT, TOKEN, FakeWeChat

from keryx.core.deliveries import REPEAT_MARK, ReplyContext, Target
from keryx.core.errors import (
    Forbidden,
    Held,
    Invalid,
    NotSent,
    Refused,
    SendError,
    Throttled,
    Unavailable,
    Uncertain,
)
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment, RemoteFile
from keryx.core.ports.adapter import InboundMessage, LinkState, OutgoingPart
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.wechat import WeChatAdapter, make, message_sender
from keryx.surfaces.gateway.wechat.event_parser import WeChatIdentity
from keryx.surfaces.gateway.wechat.event_receiver import (
    ContextTokens,
    UpdatePosition,
    format_position,
    parse_position,
)
from keryx.surfaces.gateway.wechat.ilink_api import is_own_url
from keryx.testing import RecordingAdapterContext
from keryx.testing.wire import WireResponse, json_response

SECONDS = 30
ME = WeChatIdentity(bot=BOT)
PNG = b"\x89PNG\r\n\x1a\n and more"


class Bot:
    """An adapter, its platform and a context; pauses are counted and take no time."""

    def __init__(self, wechat: FakeWeChat, **settings: Any) -> None:
        self.wechat = wechat
        self.pauses: list[float] = []
        self.adapter = build_adapter(wechat.url, sleep=self._pause, **settings)
        self.context = RecordingAdapterContext()

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0.001)

    async def hear(self, count: int = 1) -> list[InboundMessage]:
        """Listen until this many messages were received since the beginning; gives all of them."""
        task = self.start()
        events = await self.context.wait_for(count, seconds=SECONDS)
        await self.end(task)
        return events

    def start(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.adapter.listen(self.context))

    async def end(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.wait({task})

    async def until(self, condition: Callable[[], bool]) -> None:
        assert await asyncio.to_thread(self.wechat.wait_for, condition, SECONDS)

    async def send(self, text: str = "hello", *, chat: str = ANN, key: str = "d.0", **fields: Any) -> str:
        given: dict[str, Any] = {"target": Target("wechat", "", chat), "text": text, **fields}
        return await self.adapter.send(OutgoingPart(delivery=DeliveryId("d"), number=0, key=key, **given))

    async def fail(self, *refusals: WireResponse, **fields: Any) -> SendError:
        self.wechat.refusals[:] = refusals
        with pytest.raises(SendError) as caught:
            await self.send(**fields)
        return caught.value


@pytest.fixture
async def bot() -> AsyncIterator[Bot]:
    with FakeWeChat() as wechat:
        one = Bot(wechat)
        yield one
        await one.adapter.close()
        assert wechat.problems == []


def refuse(code: int, reason: str = "") -> WireResponse:
    return json_response({"ret": code, "errmsg": reason})


def test_a_position_is_that_of_one_bot() -> None:
    position = UpdatePosition(buf="CAE=", done=("77", "78"))
    assert parse_position(format_position(ME, position), ME) == position
    assert (
        parse_position(format_position(ME, position), WeChatIdentity(bot="other@im.bot")) == UpdatePosition()
    )
    assert parse_position(None, ME) == parse_position("", ME) == UpdatePosition()


async def test_the_position_of_a_batch_moves_with_its_last_message(bot: Bot) -> None:
    for text in ("one", "two", "three"):
        bot.wechat.write(ANN, text)
    events = await bot.hear(3)
    first, second, third = (json.loads(event.cursor or "") for event in events)
    assert first == [BOT, "", [events[0].event]]
    assert second == [BOT, "", [events[0].event, events[1].event]]
    assert third[0] == BOT and third[1] and third[2] == []


async def test_a_late_message_with_an_earlier_time_is_not_taken_for_a_stored_one(bot: Bot) -> None:
    bot.wechat.write(ANN, "one")
    bot.wechat.write(ANN, "three", create_time_ms=1_790_000_000_009)
    task = bot.start()
    [first, *_] = await bot.context.wait_for(2, seconds=SECONDS)
    await bot.end(task)
    again = Bot(bot.wechat)
    again.context.cursor = first.cursor
    bot.wechat.write(BEN, "two", create_time_ms=1)
    assert [event.source.user for event in await again.hear(2)] == [BEN, ANN]
    await again.adapter.close()


async def test_a_restart_reads_on_where_the_last_message_was_stored(bot: Bot) -> None:
    bot.wechat.write(ANN, "one")
    [event] = await bot.hear()
    bot.context.cursor = event.cursor
    bot.wechat.write(ANN, "two")
    bot.wechat.positions.clear()
    assert len(await bot.hear(2)) == 2
    assert bot.wechat.positions[0] == json.loads(event.cursor or "")[1]


async def test_a_batch_without_a_message_moves_the_position_too(bot: Bot) -> None:
    bot.wechat.push({"message_id": 5, "from_user_id": BOT, "message_type": 2})
    task = bot.start()
    await bot.until(lambda: len(bot.wechat.positions) > 1)
    await bot.end(task)
    reached = bot.wechat.positions[-1]
    bot.wechat.positions.clear()
    task = bot.start()
    await bot.until(lambda: bool(bot.wechat.positions))
    await bot.end(task)
    assert reached and bot.wechat.positions[0] == reached


async def test_what_was_noted_before_an_older_message_does_not_count(bot: Bot) -> None:
    """A message may have been stored by another process meanwhile."""
    bot.context.state["position"] = json.dumps(["", format_position(ME, UpdatePosition(buf="b2xk"))])
    bot.context.cursor = format_position(ME, UpdatePosition())
    bot.wechat.write(ANN, "one")
    assert len(await bot.hear()) == 1
    assert bot.wechat.positions[0] == ""


async def test_another_bot_begins_at_the_beginning(bot: Bot) -> None:
    bot.context.cursor = format_position(WeChatIdentity(bot="old@im.bot"), UpdatePosition(buf="b2xk"))
    bot.wechat.write(ANN, "one")
    assert len(await bot.hear()) == 1
    assert bot.wechat.positions[0] == ""


async def test_a_poll_that_fails_is_repeated_after_growing_pauses(bot: Bot) -> None:
    bot.wechat.poll_answers[:] = [WireResponse(502), WireResponse(200, b"{"), json_response({"ret": -1})]
    bot.wechat.write(ANN, "one")
    await bot.hear()
    assert bot.pauses == [1, 2, 4]
    links = [link for link, _ in bot.context.link_states]
    assert links == [*[LinkState.CONNECTING] * 3, LinkState.CONNECTED]


async def test_a_server_that_asks_to_wait_is_obeyed(bot: Bot) -> None:
    bot.wechat.poll_answers[:] = [WireResponse(429, b"", {"retry-after": "9"})]
    bot.wechat.write(ANN, "one")
    await bot.hear()
    assert bot.pauses == [9]
    assert [link for link, _ in bot.context.link_states] == [LinkState.THROTTLED, LinkState.CONNECTED]


async def test_the_same_batch_again_and_again_is_not_asked_for_in_haste(bot: Bot) -> None:
    batch = {"ret": 0, "msgs": [{"message_id": 3, "from_user_id": ANN, "group_id": "g"}]}
    bot.wechat.poll_answers[:] = [json_response(batch)] * 3
    bot.wechat.write(ANN, "one")
    await bot.hear()
    assert bot.pauses == [1, 1, 1]


@pytest.mark.parametrize(
    "answer",
    [
        json_response({"ret": -14, "errmsg": "session timeout"}),
        json_response({"errcode": -14}),
        WireResponse(401),
    ],
)
@pytest.mark.parametrize(("account", "option"), [("", ""), ("work", " --name work")])
async def test_an_ended_session_names_the_command_to_log_in_anew(
    answer: WireResponse, account: str, option: str
) -> None:
    with FakeWeChat() as wechat:
        bot = Bot(wechat, account=account)
        wechat.poll_answers.append(answer)
        with pytest.raises(Forbidden) as caught:
            await bot.adapter.listen(bot.context)
        assert str(caught.value) == (
            f"WeChat has ended the session of this bot: log in anew with `keryx gateway setup wechat{option}`,"
            " and start Keryx again"
        )
        wechat.expired = True
        with pytest.raises(NotSent, match="keryx gateway setup wechat"):
            await bot.send()
        with pytest.raises(NotSent, match="keryx gateway setup wechat"):
            await bot.adapter.typing(Target("wechat", "", ANN))
        await bot.adapter.close()


async def test_the_platform_is_told_when_the_bot_starts_and_ends(bot: Bot) -> None:
    bot.wechat.write(ANN, "one")
    await bot.hear()
    assert bot.wechat.notices == ["start", "stop"]


async def test_an_answer_has_the_newest_token_of_the_person(bot: Bot) -> None:
    bot.wechat.write(ANN, "one")
    bot.wechat.write(BEN, "hi")
    task = bot.start()
    [asked, _] = await bot.context.wait_for(2, seconds=SECONDS)
    bot.wechat.write(ANN, "two")
    await bot.context.wait_for(3, seconds=SECONDS)
    await bot.send(target=asked.reply)
    await bot.send(chat=BEN, key="d.1")
    await bot.end(task)
    assert [bubble.token for bubble in bot.wechat.bubbles] == [bubble.newest for bubble in bot.wechat.bubbles]
    assert all(bubble.token for bubble in bot.wechat.bubbles)


async def test_the_token_of_a_person_survives_a_restart(bot: Bot) -> None:
    bot.wechat.write(ANN, "one")
    await bot.hear()
    other = Bot(bot.wechat)
    other.context.state = dict(bot.context.state)
    task = other.start()
    await other.until(lambda: bot.wechat.notices.count("start") == 2)
    # A job or another session has no message that it answers.
    await other.send()
    await other.end(task)
    await other.adapter.close()
    [bubble] = bot.wechat.bubbles
    assert bubble.token == bubble.newest == bot.wechat.tokens[ANN][-1]


async def test_a_process_that_does_not_listen_answers_with_the_token_of_the_question(bot: Bot) -> None:
    bot.wechat.write(ANN, "one")
    token = bot.wechat.tokens[ANN][0]
    await bot.send(target=Target("wechat", "", ANN, reply_context=ReplyContext(token)))
    await bot.send(key="d.1")
    assert [bubble.token for bubble in bot.wechat.bubbles] == [token, ""]


async def test_nothing_is_sent_while_the_store_cannot_tell_the_token(bot: Bot) -> None:
    class DeafContext(RecordingAdapterContext):
        async def load_state(self, scope: str) -> str | None:
            if scope.startswith("context "):
                raise Unavailable("the store does not answer")
            return await super().load_state(scope)

    bot.context = DeafContext()
    task = bot.start()
    await bot.until(lambda: bool(bot.wechat.positions))
    with pytest.raises(NotSent, match="the store does not answer"):
        await bot.send()
    await bot.end(task)
    assert bot.wechat.bubbles == []


async def test_the_id_of_a_message_is_that_of_wechat_or_else_our_own(bot: Bot) -> None:
    assert await bot.send() == bot.wechat.bubbles[0].id
    bot.wechat.tells_ids = False
    assert await bot.send(key="d.1") == "keryx-d.1" == bot.wechat.bubbles[1].client_id
    bot.wechat.refusals.append(WireResponse(200))
    assert await bot.send(key="d.2") == "keryx-d.2"


async def test_every_attempt_has_the_same_client_id(bot: Bot) -> None:
    await bot.send()
    await bot.send(again=True)
    assert [bubble.client_id for bubble in bot.wechat.bubbles] == ["keryx-d.0"] * 2
    assert bot.wechat.texts(ANN) == ["hello", f"{REPEAT_MARK}hello"]


async def test_ten_answers_in_a_row_and_then_the_person_has_to_write(bot: Bot) -> None:
    bot.wechat.quota = 10
    bot.wechat.write(ANN, "tell me more")
    for number in range(10):
        await bot.send(f"t{number}", key=f"d.{number}")
    with pytest.raises(Held, match="until the person writes"):
        await bot.send("one too many")
    bot.wechat.write(ANN, "go on")
    await bot.send("one too many")
    assert bot.wechat.texts(ANN)[-1] == "one too many" and len(bot.wechat.bubbles) == 11


@pytest.mark.parametrize("reason", ["", "prepare failed", "unknown error"])
async def test_an_old_token_holds_the_message(bot: Bot, reason: str) -> None:
    assert isinstance(await bot.fail(refuse(-2, reason)), Held)


async def test_too_fast_means_longer_and_longer_pauses(bot: Bot) -> None:
    waits: list[timedelta] = []
    for _ in range(9):
        error = await bot.fail(refuse(-2, "rate limited"))
        assert isinstance(error, Throttled) and not error.account
        waits.append(error.after)
    seconds = [wait.total_seconds() for wait in waits]
    assert seconds[:3] == [30, 60, 120] and seconds[-1] == 3600
    await bot.send()
    error = await bot.fail(refuse(-2, "rate limited"))
    assert isinstance(error, Throttled) and error.after == timedelta(seconds=30)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (refuse(-1, "system error"), NotSent, "system error"),
        (refuse(-5, "not a friend"), Refused, r"not a friend \(-5\)"),
        (json_response({"errcode": -5}), Refused, r"no reason is given \(-5\)"),
        (WireResponse(403), Refused, "403"),
        (WireResponse(404), Refused, "404"),
        (WireResponse(502), Uncertain, "may have taken"),
        (WireResponse(200, b"<html>"), Uncertain, "cannot be read"),
        (WireResponse(200, b"[]"), Uncertain, "cannot be read"),
        (json_response({"ret": "x"}), Uncertain, "cannot be read"),
        (WireResponse(429, b"", {"retry-after": "7"}), Throttled, "wait 7 s"),
    ],
)
async def test_a_refusal_says_what_follows(
    bot: Bot, answer: WireResponse, kind: type[SendError], words: str
) -> None:
    error = await bot.fail(answer)
    assert type(error) is kind
    with pytest.raises(kind, match=words):
        raise error
    assert TOKEN not in str(error)


async def test_a_target_without_a_person_is_refused(bot: Bot) -> None:
    with pytest.raises(Refused, match="wechat:<id"):
        await bot.send(chat="")


async def test_markdown_becomes_plain_text(bot: Bot) -> None:
    [part] = bot.adapter.parts("# Title\n\nIt is **bold** and [here](https://example.org).\n\n- one\n- `two`")
    assert part.text == "Title\n\nIt is bold and here (https://example.org).\n\n• one\n• two"


async def test_the_longest_part_of_wide_characters_fits_what_wechat_accepts(bot: Bot) -> None:
    for number, part in enumerate(bot.adapter.parts("汉" * 9000 + "𝄞" * 5000)):
        await bot.send(part.text, key=f"d.{number}", again=True)
    assert len(bot.wechat.bubbles) == 5


async def test_typing_asks_for_a_ticket_once_and_ends_with_the_answer(bot: Bot) -> None:
    bot.wechat.write(ANN, "hello")
    [event] = await bot.hear()
    assert event.reply is not None
    await bot.adapter.typing(event.reply)
    await bot.adapter.typing(event.reply)
    await bot.send()
    await bot.send(key="d.1")
    assert bot.wechat.typing == [(ANN, 1), (ANN, 1), (ANN, 2)] and bot.wechat.configs == 1


async def test_typing_that_is_shown_during_the_answer_is_ended_after_it(bot: Bot) -> None:
    bot.wechat.hold("up")
    target = Target("wechat", "", ANN)
    await bot.adapter.typing(target)
    picture = Attachment(name="a.png", mime="image/png", body=PNG)
    sending = asyncio.create_task(bot.send("", attachment=picture))
    await bot.until(lambda: (ANN, 2) in bot.wechat.typing)
    await bot.adapter.typing(target)
    bot.wechat.release("up")
    await sending
    assert bot.wechat.typing == [(ANN, 1), (ANN, 2), (ANN, 1), (ANN, 2)]


async def test_typing_that_cannot_be_ended_does_not_hold_up_the_answer(bot: Bot) -> None:
    await bot.adapter.typing(Target("wechat", "", ANN))
    bot.wechat.token = "another"
    with pytest.raises(NotSent):
        await bot.send()
    bot.wechat.token = TOKEN
    await bot.send()
    assert bot.wechat.texts(ANN) == ["hello"]


@pytest.mark.parametrize(
    ("mime", "kind", "name"),
    [
        ("image/png", 2, ""),
        ("IMAGE/JPEG; q=1", 2, ""),
        ("video/mp4", 5, ""),
        ("image/svg+xml", 4, "a.bin"),
        ("audio/ogg", 4, "a.bin"),
        ("application/pdf", 4, "a.bin"),
    ],
)
async def test_a_file_is_encrypted_and_sent_as_what_it_is(bot: Bot, mime: str, kind: int, name: str) -> None:
    await bot.send("", attachment=Attachment(name="a.bin", mime=mime, body=PNG))
    [bubble] = bot.wechat.bubbles
    assert (bubble.type, bubble.filename, bubble.media) == (kind, name, PNG)


async def test_a_file_that_may_have_arrived_says_so_in_its_name(bot: Bot) -> None:
    await bot.send("", attachment=Attachment(name="a.png", mime="image/png", body=PNG), again=True)
    [bubble] = bot.wechat.bubbles
    assert (bubble.type, bubble.filename) == (4, f"{REPEAT_MARK}a.png")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(WireResponse(500), NotSent), (WireResponse(200), Refused), (WireResponse(413), Refused)],
)
async def test_a_file_that_is_not_taken_was_not_sent(
    bot: Bot, answer: WireResponse, kind: type[SendError]
) -> None:
    bot.wechat.file_answers.append(answer)
    with pytest.raises(kind) as caught:
        await bot.send("", attachment=Attachment(name="a.png", mime="image/png", body=PNG))
    assert type(caught.value) is kind and bot.wechat.bubbles == []


async def receive_file(bot: Bot, body: bytes = PNG, **media: Any) -> RemoteFile:
    known = bot.wechat.add_file("p1", body, hex_key=False)
    bot.wechat.push_items(ANN, [{"type": 2, "image_item": {"media": {**known, **media}}}])
    [event] = await bot.hear()
    [file] = event.files
    return file


async def test_a_picture_is_fetched_and_decrypted(bot: Bot) -> None:
    file = await receive_file(bot)
    assert await bot.adapter.download(file, limit=1000) == Attachment(
        name="picture.jpg", mime="image/jpeg", body=PNG
    )


async def test_a_file_on_another_host_is_fetched_from_the_cdn_that_is_known(bot: Bot) -> None:
    file = await receive_file(bot, full_url="http://169.254.169.254/secrets")
    assert (await bot.adapter.download(file, limit=1000)).body == PNG
    only = change_reference(file, param="")
    with pytest.raises(Invalid, match="it is not on WeChat"):
        await bot.adapter.download(only, limit=1000)


def change_reference(file: RemoteFile, **changes: str) -> RemoteFile:
    reference = {**json.loads(file.reference), **changes}
    return msgspec.structs.replace(file, reference=json.dumps(reference))


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (WireResponse(503), Unavailable, "503"),
        (WireResponse(429), Unavailable, "429"),
        (WireResponse(404, b"", {"x-error-message": "gone"}), Invalid, "gone"),
        (WireResponse(200, b"x" * 64), Invalid, "cannot be decrypted"),
        (WireResponse(200, b"x" * 17), Invalid, "cannot be decrypted"),
        (WireResponse(200, b"x" * 5000), Invalid, "larger than 1,000 bytes"),
    ],
)
async def test_a_file_that_cannot_be_fetched_says_why(
    bot: Bot, answer: WireResponse, kind: type[Exception], words: str
) -> None:
    file = await receive_file(bot)
    bot.wechat.file_answers.append(answer)
    with pytest.raises(kind, match=words):
        await bot.adapter.download(file, limit=1000)


@pytest.mark.parametrize("size", [999, 1000, 1001, 1015])
async def test_the_limit_of_a_file_counts_its_own_bytes(bot: Bot, size: int) -> None:
    file = await receive_file(bot, b"x" * size)
    if size <= 1000:
        assert len((await bot.adapter.download(file, limit=1000)).body) == size
    else:
        with pytest.raises(Invalid, match="larger than 1,000 bytes"):
            await bot.adapter.download(file, limit=1000)


async def test_without_the_extra_texts_work_and_files_say_what_to_install(
    bot: Bot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = await receive_file(bot)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    plain = Bot(bot.wechat)
    assert plain.adapter.capabilities.attachments is None
    with pytest.raises(Invalid, match=r"\[wechat\]"):
        await plain.adapter.download(file, limit=1000)
    with pytest.raises(Refused, match=r"\[wechat\]"):
        await plain.send("", attachment=Attachment(name="a.png", mime="image/png", body=PNG))
    with caplog.at_level(logging.WARNING):
        await plain.hear()
    assert "need an extra" in caplog.text
    await plain.send()
    await plain.adapter.close()


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("https://ilinkai.weixin.qq.com", True),
        ("https://sz.ilinkai.weixin.qq.com/x", True),
        ("https://api.wechat.com", True),
        ("http://other.weixin.qq.com", False),
        ("https://weixin.qq.com.example.org", False),
        ("https://evilweixin.qq.com", False),
        ("file:///etc/passwd", False),
        ("http://[bad", False),
    ],
)
def test_only_hosts_of_wechat_get_the_token(url: str, own: bool) -> None:
    assert is_own_url(url, "https://ilinkai.weixin.qq.com") is own


def build_setup(**table: Any) -> AdapterSetup:
    return AdapterSetup(platform="wechat", name="work", home=Path(), table=table, environ={"T": TOKEN})


def test_the_settings_make_an_adapter() -> None:
    adapter = make(build_setup(token="env:T", bot_id=BOT))
    assert isinstance(adapter, WeChatAdapter) and adapter.account == "work"
    assert adapter.capabilities.chat_interval == timedelta(seconds=0.3)
    assert adapter.capabilities.limit == message_sender.LIMIT.size
    assert make(build_setup()) is None


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"bot_id": BOT}, "keryx gateway setup wechat --name work"),
        ({"token": "env:T"}, "nobody has logged in"),
        ({"token": "env:T", "bot_id": BOT, "base_url": "ilink"}, "wechat.base_url"),
        ({"token": "env:T", "bot_id": BOT, "cdn_url": "ilink"}, "wechat.cdn_url"),
        ({"token": "env:T", "bot_id": BOT, "interval": "2m"}, "wechat.work.interval: give at most 1m"),
        ({"token": "env:T", "bot_id": BOT, "intervall": 1}, "intervall"),
    ],
)
def test_a_wrong_setting_is_named(table: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        make(build_setup(**table))


async def test_a_token_that_is_read_while_listening_ends_is_not_kept() -> None:
    class Ending(RecordingAdapterContext):
        async def load_state(self, scope: str) -> str | None:
            tokens.attach(None)
            return "old"

    tokens = ContextTokens(WeChatIdentity(bot="bot"))
    tokens.attach(Ending())
    assert await tokens.find("ann") == "old"
    assert await tokens.find("ann") == ""
