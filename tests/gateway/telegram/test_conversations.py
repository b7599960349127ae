"""Conversations over the wire of Telegram, as a person reads them in the chat."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.engine.world import AT_ONCE, SECONDS, Node, Pause, World
from tests.fakes.telegram import TOKEN, Bubble, FakeTelegram

from keryx.core.access import EVERYBODY, AccessRule
from keryx.core.messages import Mark, Message, Notice, Role, ToolCall, ToolResult
from keryx.core.ports.adapter import LinkState
from keryx.core.ports.agent import AgentEvent, TextDelta, ToolCallEvent, ToolResultEvent, TurnContext
from keryx.core.questions import Question
from keryx.core.turns import EditPolicy
from keryx.engine.policy import Policy
from keryx.store import messages
from keryx.store.db import Database, Engine, Transaction
from keryx.surfaces.gateway.telegram import TelegramAdapter, TelegramSettings
from keryx.testing import FakeClock, ScriptedAgent, ScriptStep

pytestmark = pytest.mark.engines(Engine.SQLITE)
# For those that run statements which no other test runs.
BOTH = pytest.mark.engines(*Engine)


class Reader:
    """An agent that plays the script of a question and remembers what it was shown."""

    def __init__(self, scripts: dict[str, Sequence[ScriptStep]]) -> None:
        self._scripts = scripts
        self.views: list[list[str]] = []

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        history = [m for m in await context.history() if m.role is Role.USER]
        self.views.append([m.text for m in history])
        asked = "\n".join(m.text for m in context.turn_messages if m.role is Role.USER)
        script = self._scripts.get(asked, (TextDelta(f"answer to {asked}"),))
        async for event in ScriptedAgent(script).run(context):
            yield event


class Chat:
    """A person in a chat with a bot of Keryx, over the wire."""

    def __init__(self, world: World, telegram: FakeTelegram, agent: Reader) -> None:
        self.world = world
        self.telegram = telegram
        self.agent = agent

    async def reads(self, *texts: str, chat: int = 7) -> None:
        """Wait until the chat shows exactly these messages of the bot."""
        try:
            await self._until(lambda: self.telegram.texts(chat) == list(texts))
        except TimeoutError:
            raise AssertionError(f"the chat shows {self.telegram.texts(chat)}, not {texts}") from None

    async def shows(self, condition: Callable[[list[Bubble]], bool]) -> None:
        await self._until(lambda: condition(self.telegram.bubbles))

    async def recorded(self, count: int) -> None:
        """Wait until this many messages of the bot are known to have arrived."""
        await self.world.until(lambda tx: tx.rows("select count(*) from receipts") == [(count,)])

    async def stored(self) -> list[Message]:
        def load(tx: Transaction) -> list[Message]:
            return messages.list_latest(tx, tx.rows("select id from sessions order by id")[-1][0], limit=99)

        return await self.world.read(load)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition():
                await asyncio.sleep(0.005)
                for node in self.world.nodes:
                    node.check()


OPEN_TO_ALL = AccessRule(allow=(EVERYBODY,))
Open = Callable[..., Awaitable[Chat]]


@pytest.fixture
async def open_chat(database: Database, clock: FakeClock) -> AsyncIterator[Open]:
    with FakeTelegram() as telegram:
        worlds: list[World] = []
        adapter = TelegramAdapter(TOKEN, TelegramSettings(base_url=telegram.url))

        async def make(
            scripts: dict[str, Sequence[ScriptStep]],
            *,
            policy: Policy = AT_ONCE,
            rule: AccessRule = OPEN_TO_ALL,
        ) -> Chat:
            agent = Reader(scripts)
            access = {"telegram": rule}
            world = World(
                database,
                clock,
                agent=agent,
                adapters=[adapter],
                policy=msgspec.structs.replace(policy, access=access),
            )
            worlds.append(world)
            await world.start()
            return Chat(world, telegram, agent)

        yield make
        for world in worlds:
            await world.close()
        await adapter.close()


async def test_what_was_taken_from_the_queue_is_never_shown_to_the_model(open_chat: Open) -> None:
    pause = Pause()
    chat = await open_chat({"first": [pause, TextDelta("done")]})
    chat.telegram.say("first")
    await pause.reached()
    for text in ("book the flight", "to Rome", "/queue clear"):
        chat.telegram.say(text)
    await chat.reads("Removed 2 queued messages.")
    pause.go_on()
    await chat.reads("Removed 2 queued messages.", "done")
    chat.telegram.say("next")
    await chat.reads("Removed 2 queued messages.", "done", "answer to next")
    assert chat.agent.views == [["first"], ["first", "next"]]
    marks = {m.text: m.mark for m in await chat.stored() if m.role is Role.USER}
    assert marks == {
        "first": None,
        "book the flight": Mark.WITHDRAWN,
        "to Rome": Mark.WITHDRAWN,
        "next": None,
    }


@BOTH
async def test_after_a_question_the_answer_is_a_new_message_below_it(open_chat: Open) -> None:
    async def ask(context: TurnContext) -> None:
        await context.ask(Question(key="1", title="May I look?"))

    chat = await open_chat({"find it": [TextDelta("One moment."), ask, TextDelta("In the attic.")]})
    chat.telegram.say("find it")
    await chat.shows(lambda bubbles: bool(bubbles and bubbles[-1].buttons))
    assert [b.text.splitlines()[0] for b in chat.telegram.bubbles] == ["One moment.", "May I look?"]
    chat.telegram.press("Allow")
    await chat.shows(lambda bubbles: bubbles[-1].text == "In the attic.")
    assert len(chat.telegram.bubbles) == 3 and not chat.telegram.bubbles[0].edits


async def test_after_long_work_the_progress_goes_and_the_answer_is_new(
    open_chat: Open, clock: FakeClock
) -> None:
    pause = Pause()
    call = ToolCallEvent((ToolCall("1", "search", "{}"),))
    result = ToolResultEvent(ToolResult("1", "search", "x"))
    chat = await open_chat(
        {"find it": [TextDelta("Let me look."), call, pause, result, TextDelta("In the attic.")]}
    )
    chat.telegram.say("find it")
    await pause.reached()
    await chat.reads("Let me look.")
    await chat.world.flow(chat.reads("Let me look.", "working: search …"), step=0.5)
    typed = len(chat.telegram.actions)
    await chat.world.flow(chat.reads("Let me look.", "still working: search, 1 min"), step=1)
    assert len(chat.telegram.actions) > typed
    clock.advance(60)
    pause.go_on()
    await chat.world.flow(chat.reads("Let me look.", "In the attic."), step=0.5)
    assert all(not b.edits for b in chat.telegram.bubbles)


PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(32)
FROM_BEN = {"type": "user", "sender_user": {"id": 8, "is_bot": False, "first_name": "Ben"}}


def show_picture(talk: Chat, caption: str | None = None, *, album: str = "9", **more: Any) -> None:
    talk.telegram.files["p"] = PICTURE
    photo = [{"file_id": "p", "width": 9, "height": 9}]
    talk.telegram.say(None, caption=caption, photo=photo, media_group_id=album, **more)


async def count_inputs(chat: Chat, count: int) -> None:
    def has_all(tx: Transaction) -> bool:
        return tx.rows("select count(*) from messages where role = 'user'") == [(count,)]

    await chat.world.until(has_all)


@BOTH
async def test_keryx_speaks_the_language_that_telegram_tells_of_a_person(open_chat: Open) -> None:
    chat = await open_chat({})
    ann: dict[str, Any] = {"id": 7, "is_bot": False, "first_name": "Ann", "language_code": "de-AT"}
    more: dict[str, Any] = {"from": ann}
    chat.telegram.say("/hlp", **more)
    english = "There is no command /hlp. Did you mean /help? /help lists them."
    german = "Es gibt keinen Befehl /hlp. Meintest du /help? /help listet alle auf."
    await chat.reads(german)
    chat.telegram.say("/hlp")
    await chat.reads(german, english)


async def test_an_album_of_three_pictures_gets_one_answer(open_chat: Open) -> None:
    chat = await open_chat({"look\n\n": [TextDelta("three")]})
    show_picture(chat, "look")
    await count_inputs(chat, 1)
    show_picture(chat)
    show_picture(chat)
    await count_inputs(chat, 3)
    await chat.world.flow(chat.reads("three"), step=0.3)
    assert [m.mark for m in await chat.stored()] == [None] * 4
    assert len(chat.agent.views) == 1
    chat.telegram.say("/retry")
    await chat.world.flow(chat.reads("three", "three"), step=0.3)
    assert chat.agent.views[-1] == ["look", "", ""]


async def test_a_picture_that_comes_late_restarts_a_turn_that_has_said_nothing(open_chat: Open) -> None:
    pause = Pause()
    chat = await open_chat({"look": [pause, TextDelta("one")], "look\n": [TextDelta("two")]})
    show_picture(chat, "look")
    await chat.world.flow(pause.reached(), step=0.3)
    show_picture(chat)
    await chat.world.flow(chat.reads("two"), step=0.3)
    pause.go_on()
    chat.telegram.say("next")
    await chat.reads("two", "answer to next")
    assert [m.text for m in await chat.stored()] == ["look", "", "two", "next", "answer to next"]


async def test_a_picture_that_comes_after_the_first_word_is_answered_by_itself(open_chat: Open) -> None:
    pause = Pause()
    chat = await open_chat(
        {"look": [TextDelta("I see "), pause, TextDelta("one")], "": [TextDelta("another")]}
    )
    show_picture(chat, "look")
    await chat.world.flow(pause.reached(), step=0.3)
    show_picture(chat)
    await count_inputs(chat, 2)
    pause.go_on()
    await chat.world.flow(chat.reads("I see one", "another"), step=0.3)


async def test_in_a_group_the_caption_speaks_for_the_whole_album(open_chat: Open) -> None:
    chat = await open_chat({"look\n": [TextDelta("two")]}, rule=AccessRule(allow=(EVERYBODY,), groups=("*",)))
    mention = [{"type": "mention", "offset": 0, "length": 10}]
    show_picture(chat, "@keryx_bot look", caption_entities=mention, chat=-5, user=7)
    show_picture(chat, chat=-5, user=7)
    show_picture(chat, album="10", chat=-5, user=7)
    show_picture(chat, chat=-5, user=8)
    await chat.world.flow(chat.reads("two", chat=-5), step=0.3)
    await count_inputs(chat, 2)


async def test_a_forward_with_a_comment_gets_one_answer(open_chat: Open) -> None:
    text = "what is this?\nForwarded from Ben:\n\nabracadabra"
    chat = await open_chat({text: [TextDelta("a spell")]})
    # Both come with one poll.
    with chat.telegram.lock:
        chat.telegram.say("what is this?")
        chat.telegram.say("abracadabra", forward_origin=FROM_BEN)
    await count_inputs(chat, 2)
    await chat.world.flow(chat.reads("a spell"), step=0.3)
    assert len(chat.agent.views) == 1


async def test_a_forward_joins_a_comment_that_is_being_answered(open_chat: Open) -> None:
    pause = Pause()
    text = "what is this?\nForwarded from Ben:\n\nabracadabra"
    chat = await open_chat({"what is this?": [pause, TextDelta("what?")], text: [TextDelta("a spell")]})
    chat.telegram.say("what is this?")
    await pause.reached()
    chat.telegram.say("abracadabra", forward_origin=FROM_BEN)
    await chat.world.flow(chat.reads("a spell"), step=0.3)
    pause.go_on()
    chat.telegram.say("thanks")
    await chat.reads("a spell", "answer to thanks")


async def test_forwards_and_the_comment_below_them_get_one_answer(open_chat: Open) -> None:
    text = "Forwarded from Ben:\n\nhocus\nForwarded from Ben:\n\npocus\nwhat is this?"
    chat = await open_chat({text: [TextDelta("a spell")]})
    for word in ("hocus", "pocus"):
        chat.telegram.say(word, forward_origin=FROM_BEN)
    await count_inputs(chat, 2)
    # The comment ends the wait: the clock stands still.
    chat.telegram.say("what is this?")
    await chat.reads("a spell")


async def test_a_text_that_was_split_gets_one_answer(open_chat: Open) -> None:
    long = "x" * 4096
    chat = await open_chat({f"{long}\nend": [TextDelta("long")]})
    chat.telegram.say(long)
    await count_inputs(chat, 1)
    chat.telegram.say("end")
    await chat.reads("long")


async def test_an_ordinary_message_is_not_held(open_chat: Open) -> None:
    chat = await open_chat({})
    chat.telegram.say("one")
    # The clock stands still.
    await chat.reads("answer to one")
    chat.telegram.say("two")
    await chat.reads("answer to one", "answer to two")


async def test_messages_are_not_gathered_if_the_setting_says_so(open_chat: Open) -> None:
    limits = msgspec.structs.replace(AT_ONCE.limits, gather=timedelta(0))
    pause = Pause()
    chat = await open_chat(
        {"look": [pause, TextDelta("one")], "": [TextDelta("two")]},
        policy=msgspec.structs.replace(AT_ONCE, limits=limits),
    )
    show_picture(chat, "look")
    await pause.reached()
    show_picture(chat)
    await count_inputs(chat, 2)
    pause.go_on()
    await chat.reads("one", "two")


async def test_an_album_that_is_cut_by_a_crash_gets_one_answer(open_chat: Open) -> None:
    chat = await open_chat({"look\n\n": [TextDelta("three")]})
    show_picture(chat, "look")
    await count_inputs(chat, 1)
    await chat.world.crash()
    chat.world.advance(60)
    show_picture(chat)
    show_picture(chat)
    await chat.world.start()
    await count_inputs(chat, 3)
    await chat.world.flow(chat.reads("three"), step=0.3)
    assert len(chat.agent.views) == 1


async def has_mark(chat: Chat, mark: Mark, text: str) -> None:
    def is_marked(tx: Transaction) -> bool:
        rows = tx.rows("select parts from messages where mark = :mark", {"mark": mark.value})
        return any(text in row[0] for row in rows)

    await chat.world.until(is_marked)


@BOTH
async def test_of_two_edits_within_one_second_the_last_one_counts(open_chat: Open) -> None:
    pause = Pause()
    chat = await open_chat({"first": [pause, TextDelta("done")]})
    chat.telegram.say("first")
    await pause.reached()
    message = chat.telegram.say("teh question")
    for text in ("the questoin", "the question", "the questoin", "the question?"):
        chat.telegram.rewrite(text, message=message, edit_date=1_700_000_000)
    await has_mark(chat, Mark.EDITED, "the question?")
    pause.go_on()
    await chat.reads("done", "answer to the question?")


async def test_an_edit_before_the_first_word_is_what_is_answered(open_chat: Open) -> None:
    pause = Pause()
    chat = await open_chat({"teh question": [pause, TextDelta("what?")]})
    message = chat.telegram.say("teh question")
    await pause.reached()
    chat.telegram.rewrite("the question", message=message)
    await chat.reads("answer to the question")
    pause.go_on()
    chat.telegram.say("next")
    await chat.reads("answer to the question", "answer to next")


async def test_an_edit_after_the_answer_is_noted_once(open_chat: Open) -> None:
    chat = await open_chat({})
    message = chat.telegram.say("teh question")
    await chat.reads("answer to teh question")
    for text in ("teh question", "the question", "the question", "teh question"):
        chat.telegram.rewrite(text, message=message, edit_date=1_700_000_000)
    chat.telegram.say("next")
    await chat.reads("answer to teh question", "answer to next")
    notices = [(p.text, m.mark) for m in await chat.stored() for p in m.parts if isinstance(p, Notice)]
    assert notices == [("the question", Mark.EDITED), ("teh question", Mark.EDITED)]


async def test_an_edit_after_the_answer_is_answered_anew_if_the_setting_says_so(open_chat: Open) -> None:
    policy = msgspec.structs.replace(AT_ONCE, edits=EditPolicy.ANSWER)
    chat = await open_chat({}, policy=policy)
    first = chat.telegram.say("teh question")
    await chat.reads("answer to teh question")
    chat.telegram.rewrite("the question", message=first)
    answers = ["answer to teh question", "answer to the question"]
    await chat.reads(*answers)
    assert chat.telegram.bubbles[-1].reply_to == chat.telegram.bubbles[0].reply_to
    chat.telegram.rewrite("the question?", message=first)
    answers.append("answer to the question?")
    await chat.reads(*answers)
    chat.telegram.say("next")
    answers.append("answer to next")
    await chat.reads(*answers)
    # It is not the last message any more.
    chat.telegram.rewrite("another question", message=first)
    chat.telegram.say("last")
    await chat.reads(*answers, "answer to last")
    assert chat.agent.views[-1] == ["the question?", "next", "last"]


async def test_an_edit_of_a_caption_asks_the_whole_album_anew(open_chat: Open) -> None:
    policy = msgspec.structs.replace(AT_ONCE, edits=EditPolicy.ANSWER)
    chat = await open_chat({"look\n": [TextDelta("two")], "count\n": [TextDelta("2")]}, policy=policy)
    show_picture(chat, "look")
    show_picture(chat)
    await count_inputs(chat, 2)
    await chat.world.flow(chat.reads("two"), step=0.3)
    photo = [{"file_id": "p", "width": 9, "height": 9}]
    chat.telegram.rewrite(None, message=1, caption="count", photo=photo, media_group_id="9")
    await chat.reads("two", "2")


def show_slow_picture(chat: Chat, caption: str, **more: Any) -> None:
    chat.telegram.files["slow"] = PICTURE
    chat.telegram.hold("slow")
    photo = [{"file_id": "slow", "width": 9, "height": 9}]
    chat.telegram.say(None, caption=caption, photo=photo, **more)


async def test_a_slow_file_of_one_person_holds_up_nobody_else(open_chat: Open) -> None:
    chat = await open_chat({})
    show_slow_picture(chat, "look")
    chat.telegram.say("hello", chat=8)
    await chat.reads("answer to hello", chat=8)
    assert chat.telegram.texts() == []
    chat.telegram.release("slow")
    await chat.reads("answer to look")
    assert chat.agent.views == [["hello"], ["look"]]
    kept = await chat.world.read(lambda tx: tx.rows("select parts from messages where role = 'user'"))
    assert sum('"image"' in parts for (parts,) in kept) == 1


async def test_messages_behind_a_slow_file_wait_for_it_and_commands_do_not(open_chat: Open) -> None:
    chat = await open_chat({})
    show_slow_picture(chat, "look")
    await count_inputs(chat, 1)
    chat.telegram.say("and now?")
    await count_inputs(chat, 2)
    chat.telegram.say("/queue")
    await chat.reads("1. look\n\n[photo.jpg]\n2. and now?")
    chat.telegram.release("slow")
    await chat.shows(
        lambda bubbles: [b.text for b in bubbles][1:] == ["answer to look", "answer to and now?"]
    )
    assert chat.agent.views == [["look"], ["look", "and now?"]]


async def test_a_stop_gets_through_while_a_file_is_fetched(open_chat: Open) -> None:
    pause = Pause()
    chat = await open_chat({"work": [TextDelta("so far"), pause]})
    chat.telegram.say("work")
    await pause.reached()
    show_slow_picture(chat, "look")
    await count_inputs(chat, 2)
    chat.telegram.say("/stop")
    await chat.shows(lambda bubbles: any("Stopping" in b.text for b in bubbles))
    chat.telegram.release("slow")
    await chat.shows(lambda bubbles: bubbles[-1].text == "answer to look")


async def test_a_stop_ends_a_message_that_waits_for_its_file(open_chat: Open) -> None:
    chat = await open_chat({})
    show_slow_picture(chat, "look")
    chat.telegram.say("and now?")
    await count_inputs(chat, 2)
    chat.telegram.say("/stop")
    await chat.shows(lambda bubbles: len(bubbles) == 2)
    said, answer = chat.telegram.texts()
    assert said.startswith("Stopping") and answer == "answer to and now?"
    assert chat.agent.views == [["and now?"]]
    chat.telegram.release("slow")


async def test_a_file_that_cannot_be_fetched_is_told_in_the_message(open_chat: Open) -> None:
    chat = await open_chat({})
    photo = [{"file_id": "none", "width": 9, "height": 9}]
    chat.telegram.say(None, caption="look", photo=photo)
    await chat.shows(lambda bubbles: bool(bubbles))
    [text] = chat.telegram.texts()
    assert text.startswith("answer to look\n\n[photo.jpg could not be fetched: ")


@BOTH
async def test_a_file_is_fetched_after_the_time_that_telegram_names(open_chat: Open) -> None:
    chat = await open_chat({})
    chat.telegram.files |= {"busy": PICTURE, "other": PICTURE}
    chat.telegram.file_waits["busy"] = [40, 40, 40, 40]
    chat.telegram.say(None, caption="look", photo=[{"file_id": "busy", "width": 9, "height": 9}])
    await chat.world.until(
        lambda tx: tx.rows("select 1 from downloads where worker is null and not_before > 0") != []
    )
    chat.world.advance(39)
    # Telegram has asked for a pause of all files.
    chat.telegram.say(None, chat=8, caption="and", photo=[{"file_id": "other", "width": 9, "height": 9}])
    await count_inputs(chat, 2)
    chat.telegram.say("hello", chat=9)
    await chat.reads("answer to hello", chat=9)
    assert chat.telegram.file_requests == ["busy"]
    # A pause that was asked for is no failure, however often.
    await chat.world.flow(chat.reads("answer to look"), step=5)
    assert chat.telegram.file_requests.count("busy") == 5
    await chat.world.flow(chat.reads("answer to and", chat=8), step=5)
    kept = await chat.world.read(lambda tx: tx.rows("select parts from messages where role = 'user'"))
    assert sum('"image"' in parts for (parts,) in kept) == 2


async def test_a_file_is_given_up_if_telegram_asks_to_wait_for_hours(open_chat: Open) -> None:
    chat = await open_chat({})
    chat.telegram.files["busy"] = PICTURE
    chat.telegram.file_waits["busy"] = [4000]
    chat.telegram.say(None, caption="look", photo=[{"file_id": "busy", "width": 9, "height": 9}])
    await chat.shows(lambda bubbles: bool(bubbles))
    [text] = chat.telegram.texts()
    assert "[photo.jpg could not be fetched: telegram asks to wait 67 minutes]" in text


async def test_a_file_that_was_being_fetched_is_fetched_after_a_restart(open_chat: Open) -> None:
    chat = await open_chat({})
    show_slow_picture(chat, "look")
    await count_inputs(chat, 1)
    await chat.world.restart()
    chat.telegram.release("slow")
    await chat.reads("answer to look")
    [asked] = [m for m in await chat.stored() if m.role is Role.USER]
    assert [type(part).__name__ for part in asked.parts] == ["Text", "Image"]


@BOTH
async def test_files_of_strangers_are_not_fetched(open_chat: Open) -> None:
    chat = await open_chat({}, rule=AccessRule(allow=("7",), pairing=False))
    chat.telegram.files["p"] = PICTURE
    photo = [{"file_id": "p", "width": 9, "height": 9}]
    chat.telegram.say(None, photo=photo, chat=8)
    chat.telegram.say("hello")
    await chat.reads("answer to hello")
    assert await chat.world.read(lambda tx: tx.rows("select 1 from downloads")) == []


@BOTH
async def test_an_edited_caption_before_the_file_is_there_counts(open_chat: Open) -> None:
    chat = await open_chat({})
    show_slow_picture(chat, "lok")
    await count_inputs(chat, 1)
    photo = [{"file_id": "slow", "width": 9, "height": 9}]
    chat.telegram.rewrite(None, message=1, caption="look", photo=photo)

    def is_edited(tx: Transaction) -> bool:
        return bool(tx.rows("select 1 from messages where mark = 'edited'"))

    await chat.world.until(is_edited)
    chat.telegram.release("slow")
    await chat.reads("answer to look")
    [asked] = [m for m in await chat.stored() if m.role is Role.USER]
    assert [type(part).__name__ for part in asked.parts] == ["Text", "Image"]


async def test_a_thumb_on_a_question_allows_it(open_chat: Open) -> None:
    async def ask(context: TurnContext) -> None:
        await context.ask(Question(key="1", title="May I look?"))

    chat = await open_chat({"find it": [ask, TextDelta("In the attic.")]})
    chat.telegram.say("find it")
    await chat.shows(lambda bubbles: bool(bubbles and bubbles[-1].buttons))
    await chat.recorded(1)
    chat.telegram.react("👍", message=chat.telegram.bubbles[-1].id)
    await chat.reads("May I look?\n\n→ Allow", "In the attic.")


async def test_any_other_reaction_is_told_to_the_model_with_the_next_message(open_chat: Open) -> None:
    chat = await open_chat({})
    chat.telegram.say("hello")
    await chat.reads("answer to hello")
    await chat.recorded(1)
    chat.telegram.react("🎉", message=chat.telegram.bubbles[-1].id)
    chat.telegram.say("and now?")
    await chat.reads("answer to hello", "answer to and now?")
    [exact] = [m.exact for m in await chat.stored() if m.exact]
    assert exact == '(noted since your last answer: "Ann reacted with 🎉")\nand now?'


async def test_what_others_say_in_a_group_is_given_to_whoever_asks_next(open_chat: Open) -> None:
    rule = AccessRule(allow=(EVERYBODY,), groups=("*",), observe=True)
    chat = await open_chat({}, rule=rule)
    chat.telegram.say("lunch at noon", chat=-5, user=8, name="Ben")
    mention = [{"type": "mention", "offset": 0, "length": 10}]
    chat.telegram.say("@keryx_bot when?", chat=-5, user=7, entities=mention)
    await chat.reads("answer to when?", chat=-5)
    asked = [m for m in await chat.stored() if m.text == "when?"]
    assert [(m.exact or "").count('- [Ben] "lunch at noon"') for m in asked] == [1]
    assert await chat.world.read(lambda tx: tx.rows("select count(*) from sessions")) == [(1,)]


async def test_in_a_topic_a_mention_is_needed_each_time(open_chat: Open) -> None:
    chat = await open_chat({}, rule=AccessRule(allow=(EVERYBODY,), groups=("*",)))
    mention = [{"type": "mention", "offset": 0, "length": 10}]
    topic: dict[str, Any] = {"chat": -5, "user": 7, "message_thread_id": 3, "is_topic_message": True}
    chat.telegram.say("@keryx_bot one", entities=mention, **topic)
    chat.telegram.say("among ourselves", **topic)
    chat.telegram.say("@keryx_bot two", entities=mention, **topic)
    await chat.reads("answer to one", "answer to two", chat=-5)


async def test_of_two_nodes_with_one_bot_one_listens_and_the_other_takes_over(open_chat: Open) -> None:
    """Telegram ends the poll of one process with a 409 as soon as another one polls too."""
    chat = await open_chat({})
    chat.telegram.say("one")
    await chat.reads("answer to one")
    polling = chat.world.node
    standby = await chat.world.start()
    await chat.world.flow(chat.world.eventually(lambda: link(standby) is LinkState.STANDBY))
    chat.telegram.say("two")
    await chat.reads("answer to one", "answer to two")
    await chat.world.delivered(2)
    polls = chat.telegram.polls
    await polling.crash()
    chat.telegram.say("three")
    lease = chat.world.policy.limits.lease.total_seconds()
    died = chat.world.clock.monotonic()
    await chat.world.flow(chat.world.eventually(lambda: link(standby) is LinkState.CONNECTED), step=0.5)
    assert chat.world.clock.monotonic() - died <= lease + 5
    await chat.reads("answer to one", "answer to two", "answer to three")
    assert chat.telegram.polls > polls and chat.telegram.conflicts == 0


def link(node: Node) -> LinkState | None:
    return next((status.link for status in node.service.platform_status.statuses), None)
