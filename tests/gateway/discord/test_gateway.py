"""The gateway session of the Discord adapter: sign-in, resumption, close codes, and what was missed."""

import asyncio
import json
from datetime import timedelta

import pytest
from tests.fakes.discord import BOT_ID, GUILD, ROLE, TOKEN, FakeDiscord
from tests.gateway.discord.conftest import Bot, read_position, texts

from keryx.core.errors import Unavailable
from keryx.core.ports.adapter import InboundEvent, LinkState, Receipt
from keryx.core.source import ChatType
from keryx.surfaces.gateway.discord.gateway_session import INTENTS, MESSAGE_CONTENT, MISSING_INTENT
from keryx.surfaces.gateway.discord.rest_api import BAD_TOKEN
from keryx.testing import RecordingAdapterContext

GENERAL = "600000000000000001"
MENTION = [{"id": BOT_ID, "username": "keryx", "discriminator": "0", "avatar": None}]


async def test_the_position_moves_with_each_event_and_a_restart_resumes(bot: Bot) -> None:
    async with bot.listening():
        bot.discord.say("one")
        await bot.wait(1)
    first = read_position(bot.context.events[0].cursor)
    bot.restart()
    bot.discord.say("two")
    [event] = await bot.hear()
    second = read_position(event.cursor)
    assert texts([event]) == ["two"]
    assert (bot.discord.identifies, bot.discord.resumes) == (1, 1)
    assert second["session"] == first["session"] and second["seq"] > first["seq"]
    assert int(second["last"]) > int(first["last"])


async def test_a_restart_before_the_first_event_resumes_too(bot: Bot) -> None:
    async with bot.listening():
        pass
    bot.restart()
    bot.discord.say("hello")
    assert texts(await bot.hear()) == ["hello"]
    assert bot.discord.resumes == 1


async def test_the_intents_are_those_that_are_needed(discord: FakeDiscord) -> None:
    for content, intents in ((True, INTENTS | MESSAGE_CONTENT), (False, INTENTS)):
        bot = Bot(discord, message_content=content)
        async with bot.listening():
            await bot.until(lambda: bool(discord.sessions))
        assert discord.sessions.popitem()[1].intents == intents


@pytest.mark.parametrize("code", [4000, 4001, 4002, 4008])
async def test_after_a_lost_connection_the_session_is_resumed(bot: Bot, code: int) -> None:
    async with bot.listening():
        bot.discord.order(code)
        await bot.until(lambda: bot.discord.resumes == 1)
        bot.discord.say("hello")
        assert texts(await bot.wait(1)) == ["hello"]
    assert (bot.discord.identifies, bot.discord.resumes) == (1, 1)


@pytest.mark.parametrize("code", [1000, 1001, 4003, 4005, 4007, 4009])
async def test_after_an_ended_session_a_new_one_begins_and_nothing_is_lost(bot: Bot, code: int) -> None:
    async with bot.listening():
        bot.discord.say("one")
        await bot.wait(1)
        bot.discord.sessions.popitem()[1].orders.append(code)
        bot.discord.say("two")
        events = await bot.wait(2)
        assert bot.discord.identifies == 2
    assert texts(events)[:2] == ["one", "two"]


async def test_discord_may_ask_to_connect_again(bot: Bot) -> None:
    async with bot.listening():
        bot.discord.order({"op": 7, "d": None, "s": None, "t": None})
        await bot.until(lambda: bot.discord.resumes == 1)
        bot.discord.say("hello")
        assert texts(await bot.wait(1)) == ["hello"]
    assert bot.discord.identifies == 1


@pytest.mark.parametrize(("resumable", "resumes", "identifies"), [(True, 1, 1), (False, 0, 2)])
async def test_an_invalid_session_is_resumed_or_begun_anew(
    bot: Bot, resumable: bool, resumes: int, identifies: int
) -> None:
    async with bot.listening():
        bot.discord.order({"op": 9, "d": resumable, "s": None, "t": None})
        await bot.until(lambda: bot.discord.resumes + bot.discord.identifies == 2)
    assert (bot.discord.resumes, bot.discord.identifies) == (resumes, identifies)


async def test_a_heartbeat_that_is_asked_for_is_sent_at_once(bot: Bot) -> None:
    async with bot.listening():
        bot.discord.order({"op": 1, "d": None, "s": None, "t": None})
        await bot.until(lambda: bot.discord.heartbeats == 1)
    assert bot.discord.identifies == 1


async def test_a_connection_without_answers_to_heartbeats_is_made_anew(bot: Bot) -> None:
    async with bot.listening():
        bot.beat.set()
        await bot.until(lambda: bot.discord.heartbeats == 1)
        assert bot.discord.resumes == 0
        bot.discord.silent_heartbeats = True
        bot.beat.set()
        await bot.until(lambda: bot.discord.heartbeats == 2)
        bot.beat.set()
        await bot.until(lambda: bot.discord.resumes == 1)
        bot.discord.say("hello")
        assert texts(await bot.wait(1)) == ["hello"]
    assert bot.discord.identifies == 1


async def test_a_refused_token_says_what_to_do_and_ends_all_requests(discord: FakeDiscord) -> None:
    bot = Bot(discord, token=TOKEN[:-1] + "x")
    assert await bot.fail() == BAD_TOKEN
    requests = len(discord.requests)
    with pytest.raises(Exception, match="does not accept this token"):
        await bot.send()
    assert len(discord.requests) == requests
    await bot.close()


@pytest.mark.parametrize(
    ("code", "words"),
    [(4004, BAD_TOKEN), (4010, "shard"), (4011, "too many servers"), (4012, "version 10"), (4013, "intent")],
)
async def test_a_final_close_code_says_what_to_do(bot: Bot, code: int, words: str) -> None:
    failing = asyncio.create_task(bot.fail())
    await bot.until(lambda: bool(bot.discord.sessions))
    bot.discord.order(code)
    assert words in await failing


async def test_without_the_switch_for_message_content_the_adapter_says_where_it_is(bot: Bot) -> None:
    bot.discord.privileged = False
    assert await bot.fail() == MISSING_INTENT


async def test_without_message_content_mentions_and_direct_messages_are_read(discord: FakeDiscord) -> None:
    discord.privileged = False
    bot = Bot(discord, message_content=False)
    async with bot.listening():
        discord.say("to all", channel=GENERAL)
        discord.say(f"<@{BOT_ID}> to you", channel=GENERAL, mentions=MENTION)
        discord.say("direct")
        assert texts(await bot.wait(2)) == ["to you", "direct"]
    await bot.close()


async def test_no_sign_in_is_tried_when_discord_allows_no_more(bot: Bot) -> None:
    bot.discord.starts_left = 0
    task = asyncio.create_task(bot.adapter.listen(bot.context))
    await bot.until(lambda: any("no more sign-ins" in detail for _, detail in bot.context.link_states))
    task.cancel()
    await asyncio.wait({task})
    assert bot.discord.identifies == 0


async def test_the_session_survives_the_end_of_the_process(bot: Bot) -> None:
    """Discord ends a session whose connection is closed with 1000 or 1001."""
    async with bot.listening():
        bot.discord.say("one")
        await bot.wait(1)
    assert len(bot.discord.sessions) == 1


async def test_a_second_connection_that_evicts_ours_loses_nothing(bot: Bot) -> None:
    other = Bot(bot.discord)
    async with bot.listening():
        bot.discord.say("one")
        await bot.wait(1)
        other.context.cursor = bot.context.events[0].cursor
        async with other.listening():
            await bot.until(lambda: bot.discord.resumes >= 2)
        bot.discord.say("two")
        events = await bot.wait(2)
    assert texts(events) == ["one", "two"]
    await other.close()


async def test_a_frame_that_cannot_be_read_is_left_out(bot: Bot) -> None:
    async with bot.listening():
        bot.discord.order({"op": "zero"})
        bot.discord.order({"op": 0, "t": None, "s": None, "d": None})
        bot.discord.say("hello")
        assert texts(await bot.wait(1)) == ["hello"]
    assert bot.discord.identifies == 1


async def test_what_was_written_after_a_lost_session_is_fetched_in_order(bot: Bot) -> None:
    post = bot.discord.add_channel("601", type=11, name="post", parent_id=GENERAL, owner_id="7")
    async with bot.listening():
        bot.discord.say("first")
        await bot.wait(1)
    bot.discord.invalidate()
    for number in range(250):
        bot.discord.say(f"m{number}")
    bot.discord.say(f"<@{BOT_ID}> in a channel", channel=GENERAL, mentions=MENTION, roles=[ROLE])
    bot.discord.say("in a thread", channel=post, user="8", name="Bob")
    bot.discord.say("to others", channel=GENERAL, user="8", name="Bob")
    bot.restart()
    async with bot.listening():
        events = await bot.wait(254)
        bot.discord.say("live")
        events = await bot.wait(255)
    said = texts(events)
    assert said[:251] == ["first", *(f"m{n}" for n in range(250))] and said[-1] == "live"
    by_text = dict(zip(said, events, strict=True))
    in_channel = by_text["in a channel"]
    assert (in_channel.source.scope, in_channel.source.roles) == (GUILD, (ROLE,))
    assert in_channel.addressed and not by_text["to others"].addressed
    assert (by_text["in a thread"].source.chat_type, by_text["in a thread"].source.thread) == (
        ChatType.THREAD,
        post,
    )


async def test_channels_that_cannot_be_read_do_not_stop_the_others(bot: Bot) -> None:
    bot.discord.add_channel("599", name="private")
    bot.discord.add_channel("598", type=15, name="help")
    async with bot.listening():
        bot.discord.say("first")
        await bot.wait(1)
    bot.discord.invalidate()
    for channel in ("599", "598", GENERAL):
        bot.discord.say(f"in {channel}", channel=channel)
    bot.discord.refused["599"] = (403, 50001)
    bot.restart()
    async with bot.listening():
        await bot.until(lambda: f"in {GENERAL}" in texts(bot.context.events))
    assert "in 599" not in texts(bot.context.events)


async def test_an_address_of_a_session_that_is_gone_is_replaced(bot: Bot) -> None:
    async with bot.listening():
        pass
    position = read_position(bot.context.cursor)
    bot.restart()
    bot.context.cursor = json.dumps({**position, "url": "ws://127.0.0.1:9"})
    bot.discord.say("hello")
    assert texts(await bot.hear()) == ["hello"]
    assert (bot.discord.identifies, bot.discord.resumes) == (1, 1)


async def test_a_crash_while_missed_messages_are_fetched_fetches_them_again(bot: Bot) -> None:
    async with bot.listening():
        bot.discord.say("first")
        await bot.wait(1)
    bot.discord.invalidate()
    bot.discord.say("one")
    bot.discord.say("two")
    bot.restart()
    received: list[InboundEvent] = []

    async def refuse_second(inbound: InboundEvent) -> Receipt:
        received.append(inbound)
        if len(received) == 3:
            raise Unavailable("the store is not available")
        return Receipt(duplicate=False)

    bot.context.set_receive(refuse_second)
    with pytest.raises(Unavailable):
        async with asyncio.timeout(60):
            await bot.adapter.listen(bot.context)
    assert read_position(received[1].cursor).get("session", "") == ""
    bot.restart()
    async with bot.listening():
        events = await bot.wait(3)
        await bot.until(lambda: "position" in bot.context.state)
    assert texts(events) == ["first", "one", "two"]
    assert read_position(events[-1].cursor).get("session", "") == ""
    # When all is fetched, the session can be resumed again.
    assert read_position(bot.context.state["position"])["session"]
    bot.restart()
    bot.discord.say("three")
    assert "three" in texts(await bot.hear())
    assert bot.discord.resumes >= 1


async def test_a_direct_chat_that_was_not_known_is_read_from_its_beginning_even_over_a_crash(
    bot: Bot,
) -> None:
    async with bot.listening():
        pass
    bot.discord.invalidate()
    for text in ("one", "two", "three"):
        bot.discord.say(text, channel="7009")
    bot.restart()
    async with bot.listening():
        await bot.until(lambda: "position" in bot.context.state)
    received: list[InboundEvent] = []

    async def crash(inbound: InboundEvent) -> Receipt:
        received.append(inbound)
        if len(received) == 2:
            raise Unavailable("the store is not available")
        return Receipt(duplicate=False)

    bot.restart()
    bot.context.set_receive(crash)
    bot.discord.say("four", channel="7009")
    with pytest.raises(Unavailable):
        async with asyncio.timeout(60):
            await bot.adapter.listen(bot.context)
    bot.restart()
    assert texts(await bot.hear(4)) == ["one", "two", "three", "four"]


async def test_a_crash_between_deletions_of_one_event_repeats_them(bot: Bot) -> None:
    async with bot.listening():
        one, two = bot.discord.say("one"), bot.discord.say("two")
        await bot.wait(2)
        bot.discord.delete(one, two)
        await bot.until(lambda: len(bot.context.deletions) == 2)
    first, second = (read_position(deletion.cursor)["seq"] for deletion in bot.context.deletions)
    assert first == second - 1


async def test_nothing_older_than_the_first_sign_in_is_fetched(bot: Bot) -> None:
    bot.discord.say("long ago")
    async with bot.listening():
        bot.discord.say("one")
        await bot.wait(1)
        bot.discord.invalidate()
        await bot.until(lambda: bot.discord.identifies == 2)
        bot.discord.say("two")
        await bot.until(lambda: "two" in texts(bot.context.events))
    assert "long ago" not in texts(bot.context.events)


async def test_the_position_is_stored_without_events_for_the_bot(bot: Bot) -> None:
    async with bot.listening():
        for _ in range(120):
            bot.discord.dispatch("TYPING_START", {})
        await bot.until(lambda: "position" in bot.context.state)
    bot.restart()
    bot.discord.say("hello")
    assert texts(await bot.hear()) == ["hello"]
    assert read_position(bot.context.state["position"])["seq"] >= 100


async def test_a_channel_that_is_not_known_is_looked_up_after_a_resume(bot: Bot) -> None:
    async with bot.listening():
        pass
    bot.discord.add_channel("601", type=11, name="Travel", parent_id=GENERAL, owner_id=BOT_ID)
    bot.restart()
    bot.discord.say("hello", channel="601")
    [event] = await bot.hear()
    assert (event.source.chat, event.source.thread) == (GENERAL, "601")
    assert (event.source.chat_name, event.source.topic) == ("general", "Travel")


async def test_connection_states_are_reported(bot: Bot) -> None:
    async with bot.listening():
        bot.discord.say("hello")
        await bot.wait(1)
        await bot.until(lambda: (LinkState.CONNECTED, "") in bot.context.link_states)
    assert bot.context.link_states[0][0] is LinkState.CONNECTING


async def test_a_pause_after_an_outage_is_short(bot: Bot) -> None:
    async with bot.listening():
        bot.discord.order(4000)
        await bot.until(lambda: bot.discord.resumes == 1)
    assert max(bot.pauses) <= timedelta(seconds=2).total_seconds()


async def test_events_that_wait_for_the_store_come_again(bot: Bot) -> None:
    async def refuse(inbound: InboundEvent) -> Receipt:
        raise Unavailable("the store is not available")

    context = RecordingAdapterContext(receive=refuse)
    listening = asyncio.create_task(bot.adapter.listen(context))
    await bot.until(lambda: context.cursor is not None)
    bot.discord.say("hello")
    with pytest.raises(Unavailable):
        await listening
    bot.context.cursor = context.cursor
    assert texts(await bot.hear()) == ["hello"]
