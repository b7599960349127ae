"""Deletions and reactions: what a platform reports of messages that were received before."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.engine.conftest import Begin
from tests.engine.world import FAKE, OPERATORS, Pause, Scenes, World, inbound

from keryx.core.deliveries import Idempotency, Target
from keryx.core.ids import SessionId
from keryx.core.messages import Mark, Message, Role
from keryx.core.ports.adapter import (
    Capabilities,
    InboundDeletion,
    InboundMessage,
    InboundReaction,
    OutgoingPart,
    name_cursor,
)
from keryx.core.ports.agent import TextDelta, TurnContext
from keryx.core.questions import AskedQuestion, Question, QuestionState
from keryx.core.source import ChatType, Source
from keryx.core.turns import TurnState
from keryx.store import messages, questions, turns
from keryx.store.admin.verify import verify
from keryx.store.db import Transaction
from keryx.testing import RecordingAdapter

CHAT_STATE = name_cursor(FAKE, "", "chat 1")


def deletion(message: InboundMessage, **fields: Any) -> InboundDeletion:
    return InboundDeletion(
        event=f"del.{message.event}", source=message.source, message_event=message.event, **fields
    )


def reaction(source: Source, message: str, **fields: Any) -> InboundReaction:
    return InboundReaction(event=f"react.{message}.{fields}", source=source, message=message, **fields)


async def stored(world: World, message: InboundMessage) -> list[Message]:
    receipt = await world.hub.receive(message)
    assert receipt.session
    return await world.read(messages.list_latest, receipt.session, limit=50)


async def test_a_message_deleted_while_it_waits_is_not_answered_and_not_shown_to_the_model(
    begin: Begin,
) -> None:
    pause = Pause()
    agent = Scenes({"first": [pause, TextDelta("done")]})
    world = await begin(agent=agent)
    first, second, third = inbound("first"), inbound("second"), inbound("third")
    begun = await world.hub.receive(first)
    await pause.reached()
    waiting = await world.hub.receive(second)
    receipt = await world.hub.receive(deletion(second))
    assert (receipt.session, receipt.seq) == (waiting.session, waiting.seq)
    again = await world.hub.receive(deletion(second))
    assert again == msgspec.structs.replace(receipt, duplicate=True)
    last = await world.hub.receive(third)
    pause.go_on()
    await world.settle(begun)
    await world.settle(last)
    assert agent.asked == ["first", "third"]
    assert waiting.turn and (await world.read(turns.get, waiting.turn)).state is TurnState.CANCELLED
    shown = {m.text: m.mark for m in await stored(world, third) if m.role is Role.USER}
    assert shown == {"first": None, "second": Mark.WITHDRAWN, "third": None}
    assert await verify(world.database) == []


async def test_a_message_deleted_after_its_answer_is_marked(world: World) -> None:
    message = inbound("hello")
    await world.settle(await world.hub.receive(message))
    await world.hub.receive(deletion(message))
    assert [(m.role, m.mark) for m in await stored(world, message)] == [
        (Role.USER, Mark.DELETED),
        (Role.ASSISTANT, None),
    ]


async def test_what_was_overheard_and_deleted_is_not_given_to_the_model(begin: Begin) -> None:
    agent = Scenes({})
    world = await begin(agent=agent)
    group = Source(platform=FAKE, chat="9", chat_type=ChatType.GROUP, user="ann", user_name="Ann")
    secret = inbound("the code is 1234", source=group, observed=True)
    question = inbound("what was said?", source=group)
    await world.hub.receive(secret)
    await world.hub.receive(deletion(secret))
    await world.settle(await world.hub.receive(question))
    exact = [m.exact for m in await stored(world, question) if m.text == "what was said?"]
    assert exact and "1234" not in (exact[0] or "")


async def test_a_deletion_of_an_unknown_message_changes_nothing_and_moves_the_cursor(world: World) -> None:
    receipt = await world.hub.receive(deletion(inbound("never sent"), cursor="77"))
    assert (receipt.session, receipt.seq) == (None, None)
    assert await world.hub.platform_cursor(f"{FAKE}:") == "77"


async def test_a_reaction_to_a_message_of_a_person_is_noted_and_starts_no_turn(world: World) -> None:
    message = inbound("hello")
    await world.settle(await world.hub.receive(message))
    liked = reaction(message.source, "x", message_event=message.event, reaction="👍")
    receipt = await world.hub.receive(liked)
    assert receipt.turn is None
    last = (await stored(world, message))[-1]
    assert (last.role, last.text) == (Role.NOTICE, "ann reacted with 👍")
    await world.hub.receive(
        reaction(message.source, "x", message_event=message.event, reaction="👍", removed=True)
    )
    assert (await stored(world, message))[-1].text == "ann took back the reaction 👍"


async def test_a_reaction_to_an_answer_is_noted_in_its_session(world: World) -> None:
    message = inbound("hello")
    await world.settle(await world.hub.receive(message))
    await world.delivered(1)
    receipt = await world.hub.receive(reaction(message.source, "fake-0", reaction="🎉"))
    assert receipt.session
    unknown = await world.hub.receive(reaction(message.source, "fake-99", reaction="🎉"))
    assert unknown.session is None
    assert [m.text for m in await stored(world, message)][-1] == "ann reacted with 🎉"


async def test_a_stranger_cannot_react(begin: Begin) -> None:
    world = await begin()
    message = inbound("hello")
    await world.settle(await world.hub.receive(message))
    stranger = Source(platform="elsewhere", chat="1", user="eve")
    receipt = await world.hub.receive(reaction(stranger, "x", message_event=message.event, reaction="👎"))
    assert receipt.session is None


async def test_state_of_scopes_is_stored_with_events(world: World) -> None:
    message = inbound("hi", state={"chat 1": "token-1", "chat 2": "token-2"})
    await world.hub.receive(message)
    await world.hub.receive(msgspec.structs.replace(message, state={"chat 1": "token-3"}))
    assert await world.hub.platform_cursor(CHAT_STATE) == "token-3"
    await world.hub.receive(msgspec.structs.replace(message, state={"chat 1": ""}))
    assert await world.hub.platform_cursor(CHAT_STATE) is None
    await world.hub.set_platform_cursor(CHAT_STATE, "")
    assert await world.hub.platform_cursor(CHAT_STATE) is None
    assert await world.hub.platform_cursor(f"{FAKE}:") is None


async def ask(context: TurnContext) -> None:
    await context.ask(Question(key="1", title="May I look?"))


ASKING = {"find": [ask, TextDelta("In the attic.")]}


def by(user: str, **fields: Any) -> Source:
    return Source(
        platform=FAKE, chat="g", chat_type=ChatType.GROUP, thread="t", user=user, user_name=user, **fields
    )


async def begin_question(world: World) -> AskedQuestion:
    """Let ann ask in a thread, so that the agent asks back."""
    event = inbound("find it", source=by("ann"), reply=Target(FAKE, chat="g", thread="t"), principal=None)
    await world.hub.receive(event)
    await world.delivered(1)
    [asked] = await world.hub.questions.list_open(OPERATORS)
    return asked


@pytest.mark.parametrize(
    ("emoji", "outcome"),
    [("👍", "Allowed once"), ("👍🏽", "Allowed once"), ("+1::skin-tone-3", "Allowed once"), ("👎", "Denied")],
)
async def test_a_thumb_on_a_question_answers_it(begin: Begin, emoji: str, outcome: str) -> None:
    world = await begin(agent=Scenes(ASKING))
    asked = await begin_question(world)
    receipt = await world.hub.receive(reaction(by("ann"), "fake-0", reaction=emoji))
    assert receipt.reply and receipt.reply.startswith(outcome)
    texts = await world.sent(3)
    assert texts[1].startswith(outcome) and texts[2] == "In the attic."
    closed = await world.hub.questions.get(OPERATORS, asked.id)
    assert closed.state is QuestionState.ANSWERED


class SlowAdapter(RecordingAdapter):
    """A platform that shows a message before it answers the send, which the test lets go on."""

    def __init__(self, **able: Any) -> None:
        super().__init__(FAKE, capabilities=Capabilities(threads=True, **able))
        self.answer = asyncio.Event()

    async def send(self, part: OutgoingPart) -> str:
        receipt = await super().send(part)
        await self.answer.wait()
        return receipt


async def begin_early(begin: Begin, **able: Any) -> tuple[World, SlowAdapter]:
    """Let ann ask, until the chat shows the question of the agent and Keryx does not know that."""
    adapter = SlowAdapter(**able)
    world = await begin(agent=Scenes(ASKING), adapters=[adapter])
    await world.hub.receive(
        inbound("find it", source=by("ann"), reply=Target(FAKE, chat="g", thread="t"), principal=None)
    )
    await adapter.wait_for(1)
    return world, adapter


@pytest.mark.parametrize("buttons", [False, True])
async def test_a_thumb_before_the_receipt_of_its_question_answers_it(begin: Begin, buttons: bool) -> None:
    world, adapter = await begin_early(begin, edit=buttons, buttons=buttons)
    receipt = await world.hub.receive(reaction(by("ann"), "fake-0", reaction="👍"))
    assert receipt.reply is None
    adapter.answer.set()
    await world.until(lambda tx: messages_of_agent(tx) == ["In the attic."])
    closed = [q.state for q in await world.read(list_questions)]
    assert closed == [QuestionState.ANSWERED]
    assert await world.read(count_states) == 0
    assert await verify(world.database) == []


async def test_a_thumb_before_the_receipt_is_kept_when_the_process_ends(begin: Begin) -> None:
    world, adapter = await begin_early(begin, idempotency=Idempotency.NATIVE)
    await world.hub.receive(reaction(by("ann"), "fake-0", reaction="👍"))
    adapter.answer.set()
    await world.restart()
    await world.until(lambda tx: [q.state for q in list_questions(tx)] == [QuestionState.ANSWERED])


async def test_another_reaction_before_the_receipt_is_noted(begin: Begin) -> None:
    world, adapter = await begin_early(begin)
    await world.hub.receive(reaction(by("ann"), "fake-0", reaction="🎉"))
    await world.hub.receive(reaction(by("ann"), "fake-0", reaction="🎉", removed=True))
    # The same id in another chat is another message.
    elsewhere = msgspec.structs.replace(by("ann"), chat="h")
    await world.hub.receive(reaction(elsewhere, "fake-0", reaction="👍"))
    adapter.answer.set()
    [delivery] = await world.delivered(1)
    assert delivery.session
    notices = [m.text for m in await latest(world, delivery.session) if m.role is Role.NOTICE]
    assert notices == ["ann reacted with 🎉", "ann took back the reaction 🎉"]


async def test_a_reaction_to_an_unknown_message_is_not_kept_while_nothing_is_sent(world: World) -> None:
    await world.ask("hello")
    await world.delivered(1)
    await world.hub.receive(reaction(inbound("").source, "fake-99", reaction="👍"))
    assert await world.read(count_states) == 0


def messages_of_agent(tx: Transaction) -> list[str]:
    rows = tx.rows("select id from sessions")
    found = [m for row in rows for m in messages.list_latest(tx, row[0], limit=50)]
    return [m.text for m in found if m.role is Role.ASSISTANT]


def list_questions(tx: Transaction) -> list[AskedQuestion]:
    return [questions.get(tx, row[0]) for row in tx.rows("select id from questions")]


def count_states(tx: Transaction) -> int:
    row = tx.row("select count(*) from cursors where name like 'early:%'")
    return row[0] if row else 0


async def test_a_reaction_has_the_rights_of_the_person_who_reacted(begin: Begin) -> None:
    world = await begin(agent=Scenes(ASKING))
    asked = await begin_question(world)
    # Bob is known, and may talk here.
    await world.hub.receive(inbound("hi", source=by("bob"), reply=None, principal=None, addressed=False))
    for emoji, removed in (("👍", False), ("🎉", False), ("👍", True)):
        await world.hub.receive(reaction(by("bob"), "fake-0", reaction=emoji, removed=removed))
    assert (await world.hub.questions.get(OPERATORS, asked.id)).state is QuestionState.OPEN
    notices = [m.text for m in await latest(world, asked.session) if m.role is Role.NOTICE]
    assert notices == ["bob reacted with 👍", "bob reacted with 🎉", "bob took back the reaction 👍"]


async def latest(world: World, session: SessionId) -> list[Message]:
    return await world.read(messages.list_latest, session, limit=50)


async def test_a_reaction_to_an_answer_is_told_to_the_model_with_the_next_message(world: World) -> None:
    turn = await world.settle(await world.hub.receive(inbound("hello")))
    await world.delivered(1)
    await world.hub.receive(reaction(inbound("").source, "fake-0", reaction="🎉"))
    await world.ask("and now?")
    await world.ask("again")
    exact = [m.exact for m in await latest(world, turn.session) if m.role is Role.USER]
    assert exact == [None, '(noted since your last answer: "ann reacted with 🎉")\nand now?', None]
