"""Conversations over the wire of Discord, as a person reads them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.engine.world import AT_ONCE, SECONDS, World
from tests.fakes.discord import BOT_ID, ROLE, TOKEN, FakeDiscord

from keryx.core.access import EVERYBODY, AccessRule
from keryx.core.messages import Role
from keryx.core.ports.agent import AgentEvent, TextDelta, TurnContext
from keryx.core.questions import Consent, Option, Question
from keryx.store.db import Database, Engine, Transaction
from keryx.surfaces.gateway.discord import DiscordAdapter, DiscordSettings
from keryx.testing import FakeClock
from keryx.testing.fault_injection import PlatformFaults

pytestmark = pytest.mark.engines(Engine.SQLITE)

GENERAL = "600000000000000001"
MENTION = [{"id": BOT_ID, "username": "keryx", "discriminator": "0", "avatar": None}]
OPEN_TO_ALL = AccessRule(allow=(EVERYBODY,))


class Answerer:
    """An agent that answers each question, and asks for permission if it is told to."""

    def __init__(self) -> None:
        self.turns = 0
        # Of each turn: the questions so far, and the last one as a model is shown it.
        self.views: list[list[str]] = []
        self.exact: list[str] = []

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        self.turns += 1
        said = [m for m in await context.history() if m.role is Role.USER]
        self.views.append([m.text for m in said])
        self.exact.append(said[-1].exact or said[-1].text)
        asked = "\n".join(m.text for m in context.turn_messages if m.role is Role.USER)
        if asked == "May you?":
            options = (
                Option(id="y", label="Yes", consent=Consent.ALLOW_ONCE),
                Option(id="n", label="No", consent=Consent.DENY_ONCE),
            )
            answer = await context.ask(Question(key="1", title="May I look?", options=options))
            asked = str(answer)
        yield TextDelta(f"answer to {asked}")


class Server:
    """A world with one bot, and the people on its Discord."""

    def __init__(self, world: World, discord: FakeDiscord, agent: Answerer) -> None:
        self.world = world
        self.discord = discord
        self.agent = agent

    async def reads(self, *texts: str, channel: str = "7001") -> None:
        """Wait until the channel shows exactly these messages of the bot."""
        try:
            await self.shows(lambda: self.discord.texts(channel) == list(texts))
        except TimeoutError:
            raise AssertionError(f"the channel shows {self.discord.texts(channel)}, not {texts}") from None

    async def shows(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition():
                # The gate of the account opens again after some milliseconds.
                self.world.advance(0.05)
                await asyncio.sleep(0.005)
                for node in self.world.nodes:
                    node.check()


@asynccontextmanager
async def serve(
    database: Database, clock: FakeClock, *, rule: AccessRule = OPEN_TO_ALL, **settings: Any
) -> AsyncGenerator[Server]:
    with FakeDiscord() as discord:
        discord.add_channel("7001", guild=None)
        adapter = DiscordAdapter(TOKEN, DiscordSettings(base_url=discord.api_url, **settings))
        agent = Answerer()
        policy = msgspec.structs.replace(AT_ONCE, access={"discord": rule})
        world = World(database, clock, agent=agent, adapters=[adapter], policy=policy)
        await world.start()
        assert await asyncio.to_thread(discord.wait_for, lambda: bool(discord.sessions), SECONDS)
        yield Server(world, discord, agent)
        await world.close()
        await adapter.close()


@pytest.fixture
async def server(database: Database, clock: FakeClock) -> AsyncIterator[Server]:
    async with serve(database, clock) as running:
        yield running


async def test_a_direct_message_is_answered(server: Server) -> None:
    server.discord.say("hello")
    await server.reads("answer to hello")
    server.discord.say("and again")
    await server.reads("answer to hello", "answer to and again")


async def test_in_a_channel_a_mention_is_answered_as_a_reply(server: Server) -> None:
    server.discord.say("hello all", channel=GENERAL)
    asked = server.discord.say(f"<@{BOT_ID}> hello", channel=GENERAL, mentions=MENTION)
    await server.reads("answer to hello", channel=GENERAL)
    [post] = server.discord.bot_posts(GENERAL)
    assert post.reference == asked


async def test_a_question_has_buttons_and_a_press_answers_it(server: Server) -> None:
    server.discord.say("May you?")
    await server.shows(lambda: any(post.buttons for post in server.discord.bot_posts()))
    press = server.discord.press("Yes")
    await server.shows(lambda: server.discord.texts()[-1] == "answer to y")
    await server.shows(lambda: not any(post.buttons for post in server.discord.bot_posts()))
    assert server.discord.texts() == ["May I look?\n\n→ Yes", "answer to y"]
    await server.shows(lambda: bool(press.notices))
    assert press.acknowledged == 6


@pytest.mark.parametrize(("thumb", "answer"), [("👍", "answer to y"), ("👎", "answer to n")])
async def test_a_thumb_on_a_question_answers_it(server: Server, thumb: str, answer: str) -> None:
    server.discord.say("May you?")
    await server.shows(lambda: any(post.buttons for post in server.discord.bot_posts()))
    # A reaction finds the question by the id that is recorded for it.
    await server.world.delivered(1)
    server.discord.react(server.discord.bot_posts()[-1].id, thumb)
    await server.shows(lambda: server.discord.texts()[-1] == answer)


async def test_a_slash_command_is_answered_in_its_response(server: Server) -> None:
    assert "new" in {command["name"] for command in server.discord.commands}
    given = server.discord.command("help")
    await server.shows(lambda: bool(server.discord.texts()))
    # A long help has several parts; the first one replaces the notice that the command was received.
    post = server.discord.bot_posts()[0]
    assert (post.id, given.acknowledged) == (given.original, 5)
    # The person's Discord is in German.
    assert "/new" in post.content and "neu" in post.content.lower()


async def test_a_lost_reply_to_a_send_shows_the_answer_once(server: Server) -> None:
    server.discord.set_faults(PlatformFaults(lost_reply=0.5))
    for number in range(6):
        server.discord.say(f"m{number}")
    await server.reads(*(f"answer to m{n}" for n in range(6)))


async def test_a_role_gives_access_in_channels(database: Database, clock: FakeClock) -> None:
    rule = AccessRule(roles=(ROLE,))
    async with serve(database, clock, rule=rule) as server:
        server.discord.say(f"<@{BOT_ID}> no", channel=GENERAL, user="8", name="Bob", mentions=MENTION)
        server.discord.say(f"<@{BOT_ID}> yes", channel=GENERAL, roles=[ROLE], mentions=MENTION)
        await server.reads("answer to yes", channel=GENERAL)


async def test_a_stranger_gets_a_pairing_code(database: Database, clock: FakeClock) -> None:
    async with serve(database, clock, rule=AccessRule()) as server:
        server.discord.say("hello")
        await server.shows(lambda: bool(server.discord.texts()))
        assert "code" in server.discord.texts()[0] and not server.agent.turns


async def test_a_conversation_has_a_thread_of_its_own(database: Database, clock: FakeClock) -> None:
    async with serve(database, clock, threads=True) as server:
        first = server.discord.say(f"<@{BOT_ID}> plan a trip", channel=GENERAL, mentions=MENTION)
        await server.reads("answer to plan a trip", channel=first)
        server.discord.say("and a hotel", channel=first)
        await server.reads("answer to plan a trip", "answer to and a hotel", channel=first)
        second = server.discord.say(f"<@{BOT_ID}> cook a soup", channel=GENERAL, mentions=MENTION)
        await server.reads("answer to cook a soup", channel=second)
        assert server.discord.texts(GENERAL) == []


async def test_a_thread_has_the_title_of_its_conversation_and_is_archived_at_its_end(
    database: Database, clock: FakeClock
) -> None:
    async with serve(database, clock, threads=True) as server:
        discord = server.discord
        first = discord.say(f"<@{BOT_ID}> plan a trip", channel=GENERAL, mentions=MENTION)
        await server.reads("answer to plan a trip", channel=first)
        discord.say("/title Rome in May", channel=first)
        await server.shows(lambda: discord.channels[first]["name"] == "Rome in May")
        discord.say("/new", channel=first)
        await server.shows(lambda: discord.channels[first].get("thread_metadata", {}).get("archived", False))
        discord.say("and a hotel", channel=first)
        await server.shows(lambda: discord.texts(first)[-1] == "answer to and a hotel")
        assert not discord.channels[first]["thread_metadata"]["archived"]


async def test_a_thread_on_an_answer_begins_with_what_led_to_it_and_needs_no_mention(server: Server) -> None:
    discord = server.discord
    discord.say(f"<@{BOT_ID}> hello", channel=GENERAL, mentions=MENTION)
    await server.reads("answer to hello", channel=GENERAL)
    await server.world.delivered(1)
    [answer] = discord.bot_posts(GENERAL)
    thread = discord.open_thread(answer.id)
    discord.say("why?", channel=thread)
    await server.reads("answer to why?", channel=thread)
    assert server.agent.views[-1] == ["hello", "why?"]
    # In the channel itself a mention is still needed, and in a thread of others, too.
    other = discord.open_thread(discord.say("lunch?", channel=GENERAL))
    discord.say("pizza?", channel=other)
    discord.say("and then?", channel=thread)
    await server.reads("answer to why?", "answer to and then?", channel=thread)
    assert server.agent.turns == 3


async def test_in_a_thread_a_mention_is_needed_if_the_rule_says_so(
    database: Database, clock: FakeClock
) -> None:
    rule = AccessRule(allow=(EVERYBODY,), follow_threads=False)
    async with serve(database, clock, rule=rule, threads=True) as server:
        thread = server.discord.say(f"<@{BOT_ID}> one", channel=GENERAL, mentions=MENTION)
        await server.reads("answer to one", channel=thread)
        server.discord.say("among ourselves", channel=thread)
        server.discord.say(f"<@{BOT_ID}> two", channel=thread, mentions=MENTION)
        await server.reads("answer to one", "answer to two", channel=thread)


@pytest.mark.parametrize("threads", [False, True])
async def test_what_others_say_in_a_channel_is_given_to_whoever_asks_next(
    database: Database, clock: FakeClock, threads: bool
) -> None:
    rule = AccessRule(allow=(EVERYBODY,), observe=True)
    async with serve(database, clock, rule=rule, threads=threads) as server:
        discord = server.discord
        discord.say("lunch at noon", channel=GENERAL, user="8", name="Ben")
        discord.attach("", "menu.png", b"\x89PNG\r\n\x1a\n", "image/png", channel=GENERAL)
        asked = discord.say(f"<@{BOT_ID}> when?", channel=GENERAL, mentions=MENTION)
        await server.reads("answer to when?", channel=asked if threads else GENERAL)
        assert '- [Ben] "lunch at noon"\n- [Ann] "[menu.png]"\n' in server.agent.exact[0]
        assert await server.world.read(lambda tx: tx.rows("select count(*) from sessions")) == [(1,)]


async def test_a_forward_and_the_comment_below_it_get_one_answer(server: Server) -> None:
    server.discord.say("", message_snapshots=[{"message": {"content": "abracadabra"}}])
    server.discord.say("what is this?")
    await server.reads("answer to Forwarded message:\n\nabracadabra\nwhat is this?")
    assert server.agent.turns == 1


async def test_an_edit_that_removes_the_mention_from_a_waiting_question_counts(server: Server) -> None:
    discord = server.discord
    discord.say(f"<@{BOT_ID}> May you?", channel=GENERAL, mentions=MENTION)
    await server.shows(lambda: any(post.buttons for post in discord.bot_posts(GENERAL)))
    waiting = discord.say(f"<@{BOT_ID}> wrnog", channel=GENERAL, mentions=MENTION)
    discord.edit(waiting, "right")
    discord.react(discord.say("lunch?", channel=GENERAL), "👍")
    discord.react(waiting, "👍")

    def has_reaction(tx: Transaction) -> bool:
        return tx.rows("select count(*) from messages where role = 'notice'") == [(1,)]

    # Events come in order, so the edit was received as well.
    await server.world.until(has_reaction)
    discord.press("Yes", channel=GENERAL)
    await server.shows(lambda: discord.texts(GENERAL)[-1] == "answer to right")


async def test_a_message_that_is_deleted_while_it_waits_is_not_answered(server: Server) -> None:
    server.discord.say("May you?")
    await server.shows(lambda: any(post.buttons for post in server.discord.bot_posts()))
    wrong = server.discord.say("wrong chat")
    server.discord.delete(wrong)
    server.discord.react(server.discord.say("next"), "👍")

    def has_reaction(tx: Transaction) -> bool:
        return tx.rows("select count(*) from messages where role = 'notice'") == [(1,)]

    # Events come in order, so the deletion was received as well.
    await server.world.until(has_reaction)
    server.discord.press("Yes")
    await server.shows(lambda: server.discord.texts()[-1] == "answer to next")
    assert "answer to wrong chat" not in server.discord.texts()


async def test_reactions_that_a_moderator_removes_are_noted(server: Server) -> None:
    asked = server.discord.say(f"<@{BOT_ID}> hello", channel=GENERAL, mentions=MENTION)
    await server.reads("answer to hello", channel=GENERAL)
    server.discord.react(asked, "🎉")
    server.discord.remove_reactions(asked, "🎉")
    server.discord.remove_reactions(asked)

    def read_notices(tx: Transaction) -> list[str]:
        found = tx.rows("select parts from messages where role = 'notice' order by seq")
        return [str(parts) for (parts,) in found]

    await server.world.until(lambda tx: len(read_notices(tx)) == 3)
    notices = await server.world.read(read_notices)
    assert "reacted with 🎉" in notices[0]
    assert "the reactions 🎉 were removed" in notices[1]
    assert "all reactions were removed" in notices[2]


async def test_a_post_of_a_forum_is_a_conversation_of_its_own(server: Server) -> None:
    forum = server.discord.add_channel("600000000000000050", type=15, name="help")
    posts = {
        name: server.discord.add_channel(
            f"60000000000000006{number}", type=11, name=name, parent_id=forum, owner_id="7"
        )
        for number, name in enumerate(("leak", "noise"))
    }
    for name, post in posts.items():
        # The first message of a post has its id.
        server.discord.say(f"<@{BOT_ID}> a {name}", channel=post, mentions=MENTION)
        await server.reads(f"answer to a {name}", channel=post)
    server.discord.say("since when?", channel=posts["leak"])
    await server.reads("answer to a leak", "answer to since when?", channel=posts["leak"])
    assert server.agent.views == [["a leak"], ["a noise"], ["a leak", "since when?"]]
