"""python-telegram-bot, which most bots are written with, against the fake, so that the fake does not drift from what Telegram's clients rely on."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests import left_out
from tests.fakes.telegram import BOT, TOKEN, FakeTelegram

from keryx.testing.fault_injection import PlatformFaults

# It may be absent.
try:
    sdk: Any = importlib.import_module("telegram")
    errors: Any = importlib.import_module("telegram.error")
    ext: Any = importlib.import_module("telegram.ext")
except ImportError:
    left_out.skip_module(
        "python-telegram-bot", why="python-telegram-bot is not installed", command="scripts/setup dev"
    )

CHAT = 7


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with FakeTelegram() as fake:
        yield fake


@pytest.fixture
async def bot(telegram: FakeTelegram) -> AsyncIterator[Any]:
    async with build_bot(telegram) as bot:
        yield bot


def build_bot(telegram: FakeTelegram, token: str = TOKEN) -> Any:
    return sdk.Bot(token, base_url=f"{telegram.url}/bot", base_file_url=f"{telegram.url}/file/bot")


async def test_the_sdk_sends_edits_and_deletes(telegram: FakeTelegram, bot: Any) -> None:
    assert (bot.id, bot.username) == (BOT["id"], BOT["username"])
    asked = telegram.say("hello")
    bold = sdk.MessageEntity("bold", 0, 4)
    sent = await bot.send_message(
        CHAT, "wait", entities=[bold], reply_parameters=sdk.ReplyParameters(asked), message_thread_id=3
    )
    [bubble] = telegram.bubbles
    assert (bubble.id, bubble.thread, bubble.reply_to) == (sent.message_id, 3, asked)
    assert bubble.entities == [{"type": "bold", "offset": 0, "length": 4}]
    assert (sent.text, sent.chat_id, sent.from_user.id) == ("wait", CHAT, bot.id)
    changed = await sent.edit_text("done")
    assert (changed.text, telegram.texts(CHAT)) == ("done", ["done"])
    assert await sent.delete()
    assert telegram.texts(CHAT) == []


async def test_the_sdk_exchanges_files(telegram: FakeTelegram, bot: Any) -> None:
    sent = await bot.send_document(CHAT, b"a file", filename="a.txt", caption="look")
    [bubble] = telegram.bubbles
    assert (bubble.media, bubble.text, telegram.uploads[bubble.id]) == ("document", "look", b"a file")
    assert (sent.caption, sent.document.file_name) == ("look", "a.txt")
    telegram.files["voice-1"] = b"sound"
    file = await bot.get_file("voice-1")
    assert bytes(await file.download_as_bytearray()) == b"sound"
    with pytest.raises(errors.BadRequest, match="Invalid file_id"):
        await bot.get_file("another")


async def test_the_sdk_shows_typing_and_a_menu(telegram: FakeTelegram, bot: Any) -> None:
    assert await bot.send_chat_action(CHAT, "typing")
    assert await bot.set_my_commands([sdk.BotCommand("status", "how it is")])
    assert [action["action"] for action in telegram.actions] == ["typing"]
    assert telegram.commands == [{"command": "status", "description": "how it is"}]
    member = await bot.get_chat_member(-CHAT, 8)
    assert (member.status, member.user.id) == ("member", 8)


async def test_the_sdk_reads_the_errors(
    telegram: FakeTelegram, bot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise it warns that times will be given in another way.
    monkeypatch.setenv("PTB_TIMEDELTA", "1")
    sent = await bot.send_message(CHAT, "hello")
    with pytest.raises(errors.BadRequest, match="Message is not modified"):
        await sent.edit_text("hello")
    with pytest.raises(errors.BadRequest, match="Message text is empty"):
        await bot.send_message(CHAT, " ")
    telegram.moved[-CHAT] = -1007
    with pytest.raises(errors.ChatMigrated) as moved:
        await bot.send_message(-CHAT, "hello")
    assert moved.value.new_chat_id == -1007
    telegram.blocked.add(8)
    with pytest.raises(errors.Forbidden, match="blocked by the user"):
        await bot.send_message(8, "hello")
    telegram.set_faults(PlatformFaults(throttle=1, retry_after=3))
    with pytest.raises(errors.RetryAfter, match="Retry in 0:00:03"):
        await bot.send_message(CHAT, "hello")
    telegram.set_faults(PlatformFaults(broken=1))
    with pytest.raises(errors.NetworkError, match="Bad Gateway"):
        await bot.send_message(CHAT, "hello")
    with pytest.raises(errors.InvalidToken):
        async with build_bot(telegram, "424242:another-token"):
            pass


async def test_a_newer_poll_of_the_sdk_ends_an_older_one(telegram: FakeTelegram, bot: Any) -> None:
    telegram.longest_poll = 60
    async with build_bot(telegram) as other:
        older = asyncio.create_task(bot.get_updates(timeout=60))
        await wait_for(telegram, lambda: telegram.polls == 1)
        newer = asyncio.create_task(other.get_updates(timeout=60))
        with pytest.raises(errors.Conflict, match="terminated by other getUpdates request"):
            await older
        telegram.say("hello")
        assert [update.message.text for update in await newer] == ["hello"]


async def test_an_application_of_the_sdk_gets_every_kind_of_update(telegram: FakeTelegram) -> None:
    heard: list[str] = []

    async def hear(update: Any, context: Any) -> None:
        if update.message_reaction:
            heard.append(f"reaction {update.message_reaction.new_reaction[0].emoji}")
        elif update.callback_query:
            heard.append(f"press {update.callback_query.data}")
            await update.callback_query.answer("noted")
        elif update.edited_message:
            heard.append(f"edit {update.edited_message.text}")
        else:
            heard.append(f"{update.message.from_user.first_name}: {update.message.text}")
            keyboard = sdk.InlineKeyboardMarkup(
                [[sdk.InlineKeyboardButton("Yes", callback_data="/answer 1")]]
            )
            await update.message.reply_text("Go on?", reply_markup=keyboard)

    builder = ext.ApplicationBuilder().token(TOKEN).base_url(f"{telegram.url}/bot")
    application = builder.base_file_url(f"{telegram.url}/file/bot").build()
    application.add_handler(ext.TypeHandler(sdk.Update, hear))
    async with application:
        await application.start()
        await application.updater.start_polling(allowed_updates=sdk.Update.ALL_TYPES)
        asked = telegram.say("hello")
        await wait_for(telegram, lambda: telegram.texts(CHAT) == ["Go on?"])
        telegram.rewrite("hello there", message=asked)
        telegram.react("👍", message=asked)
        telegram.press("Yes")
        await wait_for(telegram, lambda: telegram.toasts == ["noted"])
        # The last position is confirmed when it stops.
        await application.updater.stop()
        await application.stop()
    assert heard == ["Ann: hello", "edit hello there", "reaction 👍", "press /answer 1"]
    assert telegram.updates == []


async def wait_for(telegram: FakeTelegram, condition: Any) -> None:
    assert await asyncio.to_thread(telegram.wait_for, condition), telegram.texts(CHAT)
