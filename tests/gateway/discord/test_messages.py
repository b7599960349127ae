"""What the Discord adapter sends: messages, edits, files, buttons, and responses to interactions; and what it says when it cannot."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes.discord import APPLICATION_ID, BOT_ID, TOKEN, FakeDiscord, Interaction
from tests.gateway.discord.conftest import MENU, Bot, texts

from keryx.core.deliveries import REPEAT_MARK, ReplyContext, Target
from keryx.core.errors import (
    Invalid,
    MessageGone,
    NotSent,
    Refused,
    SendError,
    TargetGone,
    Throttled,
    Unavailable,
    Uncertain,
)
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment, RemoteFile
from keryx.core.ports.adapter import InboundEvent, MenuItem, OutgoingPart, Receipt
from keryx.core.questions import Button
from keryx.core.source import ChatType
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.discord import DiscordSettings, check_token, make, slash_commands
from keryx.surfaces.gateway.discord.message_sender import NONCE_LIFETIME, add_mentions, build_nonce
from keryx.testing.fault_injection import PlatformFaults

GENERAL = "600000000000000001"
MENTION = [{"id": BOT_ID, "username": "keryx", "discriminator": "0", "avatar": None}]
BUTTONS = (Button("Yes", "/answer 01jd0 1"), Button("No", "/answer 01jd0 2"))


def keyed(bot: Bot, text: str = "hello", chat: str = "7001") -> OutgoingPart:
    """A part with a key of the adapter, as the engine sends it."""
    part = OutgoingPart(
        delivery=DeliveryId("d"), number=0, key=f"{text}.0", target=Target("discord", BOT_ID, chat), text=text
    )
    return msgspec.structs.replace(part, key=bot.adapter.create_send_key(part))


async def test_a_message_pings_nobody_but_named_people(bot: Bot) -> None:
    await bot.send("hello @everyone", chat=GENERAL)
    [post] = bot.discord.bot_posts(GENERAL)
    assert post.allowed_mentions == {"parse": ["users"], "replied_user": True}


async def test_only_the_first_part_is_a_reply(bot: Bot) -> None:
    asked = bot.discord.say("?", channel=GENERAL)
    await bot.send("one", chat=GENERAL, reply_to=asked)
    await bot.send("two", chat=GENERAL, reply_to=asked, number=1, key="d.1")
    assert [post.reference for post in bot.discord.bot_posts(GENERAL)] == [asked, ""]


def add_thread(bot: Bot, *, owner: str = BOT_ID) -> tuple[Target, dict[str, Any]]:
    bot.discord.add_channel("601", type=11, name="Travel", parent_id=GENERAL, owner_id=owner)
    return Target("discord", BOT_ID, GENERAL, "601"), bot.discord.channels["601"]


async def test_a_thread_of_the_bot_is_renamed_and_archived(bot: Bot) -> None:
    target, thread = add_thread(bot)
    for _ in range(2):
        await bot.adapter.rename_thread(target, "Rome\n" + "x" * 200)
    assert thread["name"].startswith("Rome x") and len(thread["name"]) == 100
    for _ in range(2):
        await bot.adapter.archive_thread(target)
    assert thread["thread_metadata"]["archived"]
    assert [method for method, path in bot.discord.requests if path == "/channels/601"].count("PATCH") == 2
    await bot.adapter.rename_thread(target, "Rome")
    assert thread["name"] == "Rome" and thread["thread_metadata"]["archived"]


async def test_a_thread_that_a_person_has_opened_stays_as_it_is(bot: Bot) -> None:
    target, thread = add_thread(bot, owner="7")
    await bot.adapter.rename_thread(target, "Rome")
    await bot.adapter.archive_thread(target)
    await bot.adapter.archive_thread(Target("discord", BOT_ID, GENERAL))
    assert thread["name"] == "Travel" and "thread_metadata" not in thread


async def test_a_rename_that_discord_puts_off_is_told_with_its_time(bot: Bot) -> None:
    target, thread = add_thread(bot)
    bot.discord.renames_left = 0
    with pytest.raises(Throttled) as caught:
        await bot.adapter.rename_thread(target, "Rome")
    assert caught.value.after == timedelta(minutes=10) and thread["name"] == "Travel"
    bot.discord.refused["601"] = (404, 10003)
    with pytest.raises(TargetGone):
        await bot.adapter.archive_thread(target)


async def test_a_thread_is_a_channel_of_its_own(bot: Bot) -> None:
    bot.discord.add_channel("601", type=11, name="Travel", parent_id=GENERAL, owner_id=BOT_ID)
    await bot.send("hello", chat=GENERAL, thread="601")
    assert (bot.discord.texts("601"), bot.discord.texts(GENERAL)) == (["hello"], [])


@pytest.mark.parametrize("key", ["d.0", "k0123456789a-0123456789ab", "a-very-long-key-of-some-preview.17"])
def test_every_key_is_a_nonce(key: str) -> None:
    assert 0 < len(build_nonce(key)) <= 25
    assert build_nonce(key) != build_nonce(f"{key}x")


async def test_a_lost_reply_is_repeated_under_the_same_nonce(bot: Bot) -> None:
    part = keyed(bot)
    bot.discord.set_faults(PlatformFaults(lost_reply=1))
    with pytest.raises(Uncertain):
        await bot.adapter.send(part)
    bot.discord.set_faults(PlatformFaults())
    assert await bot.adapter.send(part) == bot.discord.bot_posts()[0].id
    assert bot.discord.texts() == ["hello"]


async def test_after_the_time_of_the_nonce_the_message_is_searched_for(bot: Bot) -> None:
    """The nonce is forgotten after some minutes, for instance while Keryx was not running."""
    part, file = keyed(bot), keyed(bot, "")
    file = msgspec.structs.replace(file, attachment=Attachment(name="a.txt", mime="text/plain", body=b"abc"))
    for one in (part, file):
        bot.discord.set_faults(PlatformFaults(lost_reply=1))
        with pytest.raises(Uncertain):
            await bot.adapter.send(one)
    bot.discord.set_faults(PlatformFaults())
    bot.discord.forget_nonces()
    bot.later = NONCE_LIFETIME + timedelta(seconds=1)
    first, second = bot.discord.bot_posts()
    assert [await bot.adapter.send(part), await bot.adapter.send(file)] == [first.id, second.id]
    assert len(bot.discord.bot_posts()) == 2
    # What did not arrive is sent, even if somebody else wrote the same.
    bot.discord.say("news")
    missing = msgspec.structs.replace(part, text="news")
    assert await bot.adapter.send(missing) not in (first.id, second.id)
    assert bot.discord.texts() == ["hello", "news"]


@pytest.mark.parametrize("minutes", [10, -10])
async def test_a_clock_that_is_wrong_hides_no_message_of_the_search(bot: Bot, minutes: int) -> None:
    bot.skew = timedelta(minutes=minutes)
    await bot.adapter.send(keyed(bot, "first"))
    part = keyed(bot)
    bot.discord.set_faults(PlatformFaults(lost_reply=1))
    with pytest.raises(Uncertain):
        await bot.adapter.send(part)
    bot.discord.set_faults(PlatformFaults())
    bot.discord.forget_nonces()
    bot.later = NONCE_LIFETIME + timedelta(seconds=1)
    await bot.adapter.send(part)
    assert bot.discord.texts() == ["first", "hello"]


async def test_an_older_message_with_the_same_text_is_another_message(bot: Bot) -> None:
    bot.later = -NONCE_LIFETIME
    old = await bot.adapter.send(keyed(bot))
    bot.later = timedelta(seconds=5)
    part = keyed(bot)
    bot.later = NONCE_LIFETIME + timedelta(seconds=10)
    assert await bot.adapter.send(part) != old
    assert bot.discord.texts() == ["hello", "hello"]


@pytest.mark.parametrize(
    ("status", "code", "error", "words"),
    [
        (404, 10003, TargetGone, "no such channel"),
        (403, 50001, TargetGone, "may not see"),
        (403, 50007, TargetGone, "does not accept direct messages"),
        (403, 50013, TargetGone, "may not write"),
        (403, 50278, TargetGone, "shares no server"),
        (400, 160005, TargetGone, "locked"),
        (400, 200000, Refused, "200000"),
        (413, 40005, Refused, "40005"),
        (500, 0, Uncertain, "broke down"),
        (503, 0, Uncertain, "broke down"),
    ],
)
async def test_refusals_are_translated_once(
    bot: Bot, status: int, code: int, error: type[SendError], words: str
) -> None:
    bot.discord.refused["7001"] = (status, code)
    with pytest.raises(error, match=words) as caught:
        await bot.send()
    assert type(caught.value) is error
    assert TOKEN not in str(caught.value)


async def test_a_forum_takes_no_message_and_the_error_says_how_to_address_a_post(bot: Bot) -> None:
    bot.discord.add_channel("80", type=15, name="help")
    with pytest.raises(TargetGone, match="discord:<forum>:<post>"):
        await bot.send(chat="80")


@pytest.mark.parametrize("chat", ["", "general", "７"])
async def test_a_target_without_an_id_is_refused_before_it_is_sent(bot: Bot, chat: str) -> None:
    with pytest.raises(Refused):
        await bot.send(chat=chat)
    assert bot.discord.requests == []


async def test_a_deleted_message_is_gone(bot: Bot) -> None:
    sent = await bot.send()
    bot.discord.delete(sent)
    with pytest.raises(MessageGone):
        await bot.send("new", edits=sent)


async def test_an_exhausted_bucket_is_waited_for_without_a_request(discord: FakeDiscord) -> None:
    discord.bucket = (2, 3.0)
    bot = Bot(discord)
    for number in range(2):
        await bot.send(key=f"d.{number}")
    with pytest.raises(Throttled) as caught:
        await bot.send(key="d.2")
    assert timedelta(0) < caught.value.after <= timedelta(seconds=3) and not caught.value.account
    assert [path for _, path in discord.requests] == ["/channels/7001/messages"] * 2
    discord.add_channel("7002", guild=None)
    await bot.send(chat="7002")
    await bot.close()


async def test_a_global_limit_holds_for_the_account(bot: Bot) -> None:
    bot.discord.global_limit = 7.5
    with pytest.raises(Throttled) as caught:
        await bot.send()
    assert (caught.value.after, caught.value.account) == (timedelta(seconds=7.5), True)
    with pytest.raises(Throttled) as caught:
        await bot.send(chat="7002")
    assert caught.value.account and len(bot.discord.requests) == 1


async def test_a_revoked_token_ends_requests_and_deliveries_wait(bot: Bot) -> None:
    bot.discord.token = "another"
    for _ in range(3):
        with pytest.raises(NotSent, match="does not accept this token"):
            await bot.send()
    assert len(bot.discord.requests) == 1


async def test_refused_buttons_are_left_out(bot: Bot) -> None:
    bot.discord.no_buttons = True
    sent = await bot.send("May I?", buttons=BUTTONS)
    assert await bot.send("May I, please?", edits=sent, buttons=BUTTONS) == sent
    [post] = bot.discord.bot_posts()
    assert (post.content, post.buttons) == ("May I, please?", {})


async def test_buttons_stand_in_rows_of_five(bot: Bot) -> None:
    many = tuple(Button(f"b{n}", f"/answer x {n}") for n in range(12))
    await bot.send("Which?", buttons=many)
    assert list(bot.discord.bot_posts()[0].buttons) == [f"b{n}" for n in range(12)]
    await bot.send("Which?", buttons=(Button("b", "/answer " + "x" * 100),), key="d.1")
    assert not bot.discord.bot_posts()[1].buttons


async def test_files_arrive_with_their_names(bot: Bot) -> None:
    picture = Attachment(name="a cat.png", mime="image/png", body=b"\x89PNG")
    await bot.send("x", text="", attachment=picture)
    [post] = bot.discord.bot_posts()
    assert [file["filename"] for file in post.files] == ["a cat.png"]


async def test_a_person_is_mentioned_by_name(bot: Bot) -> None:
    async with bot.listening():
        bot.discord.say("hi", channel=GENERAL, user="7", name="Ann_B")
        bot.discord.say("hi", channel=GENERAL, user="8", name="Bob")
        bot.discord.say("hi", channel=GENERAL, user="9", name="Bob")
        await bot.wait(3)
    await bot.send("@Ann_B and @Bob, see `@Ann_B` or mail@Ann_B", chat=GENERAL)
    assert bot.discord.texts(GENERAL) == ["<@7> and @Bob, see `@Ann_B` or mail@Ann\\_B"]


def test_a_text_that_mentions_would_make_too_long_stays_as_it_is() -> None:
    text = "@Al " * 480
    assert add_mentions(text, {"Al": "1" * 18}) == text
    assert add_mentions("@al!", {"Al": "7"}) == "<@7>!"
    assert add_mentions("@alfred", {"Al": "7"}) == "@alfred"


async def test_typing_is_shown_in_the_thread(bot: Bot) -> None:
    bot.discord.add_channel("601", type=11, name="Travel", parent_id=GENERAL, owner_id=BOT_ID)
    await bot.adapter.typing(Target("discord", BOT_ID, GENERAL, "601"))
    assert bot.discord.typing == ["601"]
    bot.discord.refused["601"] = (403, 50001)
    with pytest.raises(TargetGone):
        await bot.adapter.typing(Target("discord", BOT_ID, GENERAL, "601"))


async def give_command(bot: Bot, *, channel: str = "7001") -> tuple[Interaction, ReplyContext]:
    """Give a command and return it, acknowledged, with the context of its reply."""
    given = bot.discord.command("undo-reset", "2", channel=channel)
    event = (await bot.wait(1))[-1]
    assert texts([event]) == ["/undo-reset 2"]
    assert event.reply is not None and event.reply.reply_context is not None
    return given, event.reply.reply_context


async def test_a_slash_command_is_acknowledged_and_its_response_becomes_the_answer(bot: Bot) -> None:
    async with bot.listening():
        given, context = await give_command(bot)
    assert (given.acknowledged, context.token) == (5, f"{APPLICATION_ID}:{given.token}")
    assert await bot.send("Done.", context=context) == given.original
    assert bot.discord.texts() == ["Done."]
    # Everything after that is an ordinary message.
    await bot.send("more", context=context, number=1, key="d.1")
    await bot.send("another", context=context, key="e.0")
    assert bot.discord.texts() == ["Done.", "more", "another"]


async def test_a_response_that_may_have_arrived_is_not_repeated(bot: Bot) -> None:
    async with bot.listening():
        given, context = await give_command(bot)
    bot.discord.set_faults(PlatformFaults(lost_reply=1))
    with pytest.raises(Uncertain):
        await bot.send("Done.", context=context)
    bot.discord.set_faults(PlatformFaults())
    assert await bot.send("Done.", context=context) == given.original
    bot.restart()
    assert await bot.send("Done.", context=context) == given.original
    assert bot.discord.texts() == ["Done."]


async def test_an_expired_interaction_is_answered_by_an_ordinary_message(bot: Bot) -> None:
    async with bot.listening():
        given, context = await give_command(bot)
    given.expired = True
    await bot.send("Late.", context=context)
    assert bot.discord.texts() == ["Late."]


async def test_where_the_bot_may_not_write_a_follow_up_is_sent_and_marked_if_repeated(bot: Bot) -> None:
    async with bot.listening():
        _, context = await give_command(bot, channel=GENERAL)
    await bot.send("one", chat=GENERAL, context=context)
    bot.discord.refused[GENERAL] = (403, 50001)
    part = msgspec.structs.replace(
        keyed(bot, "two", GENERAL),
        number=1,
        target=Target("discord", BOT_ID, GENERAL, reply_context=context),
    )
    bot.discord.set_faults(PlatformFaults(lost_reply=1))
    with pytest.raises(Uncertain):
        await bot.adapter.send(part)
    bot.discord.set_faults(PlatformFaults())
    await bot.adapter.send(part)
    assert bot.discord.texts(GENERAL) == ["one", "two", f"{REPEAT_MARK}two"]


async def test_a_command_that_comes_again_after_a_crash_may_still_be_answered(bot: Bot) -> None:
    async def crash(inbound: InboundEvent) -> Receipt:
        raise RuntimeError("the process ends")

    async with bot.listening():
        pass
    bot.restart()
    bot.context.set_receive(crash)
    given = bot.discord.command("new")
    with pytest.raises(RuntimeError):
        await bot.adapter.listen(bot.context)
    bot.restart()
    [event] = await bot.hear()
    assert event.reply is not None and event.reply.reply_context is not None
    assert await bot.send("New.", context=event.reply.reply_context) == given.original


async def test_a_command_that_is_acknowledged_too_late_is_answered_by_a_message(bot: Bot) -> None:
    async with bot.listening():
        pass
    given = bot.discord.command("new")
    given.expired = True
    bot.restart()
    [event] = await bot.hear()
    assert event.reply == Target("discord", BOT_ID, "7001")


async def test_the_reply_to_a_press_is_shown_to_the_person_who_pressed(bot: Bot) -> None:
    async def answer(inbound: InboundEvent) -> Receipt:
        return Receipt(duplicate=False, reply="Allowed once.")

    bot.context.set_receive(answer)
    await bot.send("May I?", buttons=BUTTONS)
    async with bot.listening():
        press = bot.discord.press("Yes")
        await bot.until(lambda: bool(press.notices))
    assert (press.acknowledged, press.notices) == (6, ["Allowed once."])
    assert texts(bot.context.events) == ["/answer 01jd0 1"]
    assert bot.discord.texts() == ["May I?"]


async def test_commands_are_registered_once_with_their_arguments(bot: Bot) -> None:
    bot.context.menus = {"de": [MenuItem("new", "Fange neu an.")], "en": [MenuItem("new", "Start afresh.")]}
    async with bot.listening():
        pass
    new, undo, steer = bot.discord.commands
    assert (new["name"], new["description"], "options" in new) == ("new", "Start afresh.", False)
    assert new["description_localizations"] == {"de": "Fange neu an."} and new["contexts"] == [0, 1]
    assert len(undo["description"]) == 100
    assert steer["options"] == [{"type": 3, "name": "arguments", "description": "text", "required": True}]
    async with bot.listening():
        pass
    assert bot.discord.command_writes == 1


def test_a_command_for_direct_chats_is_not_shown_in_servers() -> None:
    [command] = slash_commands.build_commands([MenuItem("whoami", "Who?", direct=True)], {})
    assert command.contexts == (1,)


def test_a_name_that_discord_refuses_is_not_registered() -> None:
    menu = [*MENU, MenuItem("Über", "x"), MenuItem("x" * 33, "x")]
    assert [c.name for c in slash_commands.build_commands(menu, {})] == [item.name for item in MENU]
    many = [MenuItem(f"c{n}", "") for n in range(130)]
    assert len(slash_commands.build_commands(many, {})) == 100
    optional = slash_commands.build_commands([MenuItem("undo", "Undo.", "[number]")], {})[0]
    assert [option.required for option in optional.options] == [False]


async def test_a_conversation_in_a_channel_gets_a_thread(discord: FakeDiscord) -> None:
    bot = Bot(discord, threads=True, archive=60)
    async with bot.listening():
        first = discord.say(f"<@{BOT_ID}> Plan a trip", channel=GENERAL, mentions=MENTION)
        discord.say("to others", channel=GENERAL)
        events = await bot.wait(2)
        discord.say("and a hotel", channel=first)
        events = await bot.wait(3)
    assert discord.channels[first]["name"] == "Plan a trip"
    assert events[0].reply == Target("discord", BOT_ID, GENERAL, first)
    assert (events[1].source.chat_type, events[1].source.thread) == (ChatType.GROUP, None)
    assert (events[2].source.thread, events[2].source.chat) == (first, GENERAL)
    await bot.send("Where to?", chat=GENERAL, thread=first)
    assert discord.texts(first) == ["Where to?"]
    await bot.close()


async def test_a_thread_is_opened_once_and_its_refusal_leads_to_the_channel(discord: FakeDiscord) -> None:
    bot = Bot(discord, threads=True)
    async with bot.listening():
        pass
    first = discord.say(f"<@{BOT_ID}> one", channel=GENERAL, mentions=MENTION)
    discord.add_channel(first, type=11, name="one", parent_id=GENERAL, owner_id=BOT_ID)
    bot.restart()
    [event] = await bot.hear()
    assert event.source.thread == first
    bot.restart()
    discord.refused[GENERAL] = (403, 50013)
    second = discord.say(f"<@{BOT_ID}> two", channel=GENERAL, mentions=MENTION)
    [event] = await bot.hear()
    assert event.source.thread is None
    assert event.reply == Target("discord", BOT_ID, GENERAL, reply_to=second)
    await bot.close()


async def test_no_thread_is_opened_for_a_stranger(discord: FakeDiscord) -> None:
    bot = Bot(discord, threads=True, stranger=True)
    async with bot.listening():
        discord.say(f"<@{BOT_ID}> hello", channel=GENERAL, mentions=MENTION)
        [event] = await bot.wait(1)
    assert (event.source.chat_type, len(discord.channels)) == (ChatType.GROUP, 2)
    await bot.close()


async def attach(bot: Bot, name: str = "a.pdf", body: bytes = b"%PDF-1", mime: str = "") -> RemoteFile:
    """Send a file as a person; return how its event names it."""
    async with bot.listening():
        message = bot.discord.attach("look", name, body, mime)
        # A resumed connection may bring earlier events again.
        while True:
            events = bot.context.events
            found = [file for event in events for file in event.files if message in file.reference.split()]
            if found:
                return found[0]
            await bot.wait(len(events) + 1)


async def test_a_file_is_fetched_without_the_token(bot: Bot) -> None:
    file = await attach(bot, mime="application/pdf")
    fetched = await bot.adapter.download(file, limit=1000)
    assert fetched == Attachment(name="a.pdf", mime="application/pdf", body=b"%PDF-1")


async def test_a_file_whose_address_no_longer_holds_is_fetched_by_a_new_one(bot: Bot) -> None:
    file = await attach(bot)
    bot.discord.signatures += 1
    assert (await bot.adapter.download(file, limit=1000)).body == b"%PDF-1"


async def test_a_file_that_is_too_large_or_gone_says_so(discord: FakeDiscord) -> None:
    bot = Bot(discord, download=10)
    big = await attach(bot, "big.bin", b"x" * 11)
    with pytest.raises(Invalid, match="it is larger than 10 bytes"):
        await bot.adapter.download(big, limit=1000)
    lying = msgspec.structs.replace(big, size=1)
    with pytest.raises(Invalid, match="it is larger than 10 bytes"):
        await bot.adapter.download(lying, limit=1000)
    file = await attach(bot)
    channel, message, _ = file.reference.split()
    other = msgspec.structs.replace(file, reference=f"{channel} {message} 1")
    with pytest.raises(Invalid, match="it was deleted"):
        await bot.adapter.download(other, limit=1000)
    discord.files.clear()
    with pytest.raises(Invalid, match=r"\(404\)"):
        await bot.adapter.download(file, limit=1000)
    discord.delete(message)
    with pytest.raises(Invalid, match="its message was deleted"):
        await bot.adapter.download(file, limit=1000)
    await bot.close()


async def test_a_file_is_tried_again_unless_discord_refuses_it(bot: Bot) -> None:
    file = await attach(bot)
    for status in (429, 503):
        bot.discord.broken_files = status
        with pytest.raises(Unavailable, match=str(status)):
            await bot.adapter.download(file, limit=1000)
    bot.discord.broken_files = 0
    bot.discord.token = "another"
    with pytest.raises(Unavailable, match="does not accept this token"):
        await bot.adapter.download(file, limit=1000)


async def test_a_slow_file_holds_up_no_event(bot: Bot) -> None:
    bot.discord.hold("slow.bin")
    async with bot.listening():
        bot.discord.attach("look", "slow.bin", b"x")
        bot.discord.say("hello", channel="7002")
        one, other = await bot.wait(2)
    assert (one.files[0].placeholder, other.files) == ("[slow.bin]", ())
    bot.discord.release("slow.bin")
    assert (await bot.adapter.download(one.files[0], limit=1000)).body == b"x"


@pytest.mark.parametrize(
    "text",
    ["", "abc", "MTIz.x.y", "a.b.c", "client-secret-of-32-characters-xx", "MTIzNDU2Nzg5MDEyMzQ1Njc4.Gtest0"],
)
def test_what_is_no_token_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(Invalid, match="does not look like the token"):
        check_token(text)


def test_a_token_tells_the_id_of_the_bot() -> None:
    assert check_token(TOKEN) == BOT_ID


def read(**table: Any) -> Any:
    return make(AdapterSetup(platform="discord", home=Path(), table=table, environ={"TOKEN": TOKEN}))


def test_settings_are_checked() -> None:
    assert make(AdapterSetup(platform="discord", home=Path())) is None
    assert read(token="env:TOKEN").account == BOT_ID
    with pytest.raises(Invalid, match="token is missing"):
        read(threads=True)
    with pytest.raises(Invalid, match="60, 1440, 4320, 10080"):
        read(token="env:TOKEN", archive=7)
    with pytest.raises(Invalid, match="base_url"):
        read(token="env:TOKEN", base_url="discord")
    with pytest.raises(Invalid, match="Unknown setting"):
        read(token="env:TOKEN", guild="5")
    assert DiscordSettings().message_content


def test_threads_have_titles_if_the_bot_opens_them() -> None:
    assert read(token="env:TOKEN", threads=True).capabilities.thread_titles
    assert not read(token="env:TOKEN").capabilities.thread_titles
