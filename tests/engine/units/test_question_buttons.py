"""Questions with buttons: pressed by whoever may answer, and gone once the question is closed, whatever happens between."""

from collections.abc import Awaitable
from contextlib import suppress
from datetime import timedelta

import pytest
from tests.engine.conftest import Begin
from tests.engine.units.test_questions import asked
from tests.engine.world import FAKE, OPERATORS, World, inbound

from keryx.core.deliveries import REPEAT_MARK, DeliveryState, Target
from keryx.core.errors import Conflict, MessageGone, NotSent, Retryable, SendError, Throttled, Uncertain
from keryx.core.ports.adapter import Capabilities, OutgoingPart, Receipt
from keryx.core.source import ChatType, Source
from keryx.engine.hub import HubQuestions
from keryx.store import deliveries
from keryx.store.admin.verify import verify
from keryx.store.db import Database
from keryx.testing import RecordingAdapter
from keryx.testing.fault_injection import CrashingDatabase, DatabaseFault, FaultTiming

ABLE = Capabilities(buttons=True, edit=True)
WHAT = "rm -rf /tmp/x"


class Pressed(RecordingAdapter):
    """A platform with buttons. `sending` is called while a part is on its way."""

    def __init__(self) -> None:
        super().__init__(FAKE, capabilities=ABLE)
        self.sending: list[Awaitable[None]] = []

    async def send(self, part: OutgoingPart) -> str:
        sent = await super().send(part)
        while part.buttons and self.sending:
            await self.sending.pop()
        return sent


async def placed(begin: Begin) -> tuple[World, RecordingAdapter]:
    fake = RecordingAdapter(FAKE, capabilities=ABLE)
    return await begin(adapters=[fake]), fake


async def press(world: World, label: str, fake: RecordingAdapter, *, user: str = "ann") -> Receipt:
    button = next(b for p in fake.sent_parts for b in p.buttons if b.label == label)
    return await world.hub.receive(inbound(button.says, user=user, reply=None))


def labels(fake: RecordingAdapter) -> list[str]:
    return [b.label for p in fake.sent_parts for b in p.buttons]


async def gone(world: World, fake: RecordingAdapter) -> str:
    """Wait until no button is left; gives what stands in its place."""
    await world.eventually(lambda: bool(fake.sent_parts) and not labels(fake))
    await world.until(lambda tx: not tx.row("select 1 from buttons"))
    return next(p.text for p in fake.sent_parts if p.edits)


async def test_a_press_answers_and_the_answer_takes_the_place_of_the_buttons(begin: Begin) -> None:
    world, fake = await placed(begin)
    receipt, question = await asked(world, f"!ask {WHAT}")
    await fake.wait_for(2)
    assert labels(fake) == ["Allow", "Always allow in this conversation", "Deny"]
    assert "Answer 1, 2 or 3" in fake.texts[1]
    await world.until(lambda tx: bool(tx.row("select 1 from buttons")))
    told = await press(world, "Allow", fake)
    assert told.reply == f"Allowed once: {question.question.title}" and told.turn is None
    await world.settle(receipt)
    left = await gone(world, fake)
    assert left.startswith(question.question.title) and left.endswith("→ Allow")
    assert not await verify(world.database)


async def test_a_second_press_and_a_foreign_one_change_nothing(begin: Begin) -> None:
    world, fake = await placed(begin)
    _, question = await asked(world)
    await fake.wait_for(2)
    other = await press(world, "Allow", fake, user="bob")
    assert other.reply and other.reply.startswith("Only the person who asked")
    says = fake.sent_parts[1].buttons
    assert (await press(world, "Deny", fake)).reply
    again = await world.hub.receive(inbound(says[0].says, reply=None))
    assert again.reply and "is closed" in again.reply
    assert (await world.hub.questions.get(OPERATORS, question.id)).answer == "deny"


async def test_a_press_counts_after_the_person_has_gone_to_another_conversation(begin: Begin) -> None:
    world, fake = await placed(begin)
    await world.ask("elsewhere")
    await world.hub.receive(inbound("/new", reply=None))
    receipt, _ = await asked(world)
    await world.eventually(lambda: "Allow" in labels(fake))
    await world.hub.receive(inbound("/resume elsewhere", reply=None))
    assert (await press(world, "Allow", fake)).session == receipt.session


async def test_in_a_group_only_who_was_asked_may_press(begin: Begin) -> None:
    world, fake = await placed(begin)

    def there(user: str) -> Source:
        return Source(platform=FAKE, chat="g", chat_type=ChatType.GROUP, thread="t", user=user)

    await world.say(f"!ask {WHAT}", source=there("ann"), reply=Target(FAKE, chat="g", thread="t"))
    await fake.wait_for(2)
    says = fake.sent_parts[1].buttons[0].says
    refused = await world.hub.receive(inbound(says, user="bob", source=there("bob"), reply=None))
    assert refused.reply and "Only the person who asked" in refused.reply
    taken = await world.hub.receive(inbound(says, source=there("ann"), reply=None))
    assert taken.reply and taken.reply.startswith("Allowed once:")


async def test_an_answer_from_elsewhere_takes_the_buttons_away(begin: Begin) -> None:
    world, fake = await placed(begin)
    _, question = await asked(world)
    await fake.wait_for(2)
    await world.hub.questions.answer(OPERATORS, question.id, "always")
    assert (await gone(world, fake)).endswith("→ Always allow in this conversation")


async def test_what_nobody_answers_and_what_is_stopped_loses_its_buttons(begin: Begin) -> None:
    world, fake = await placed(begin)
    await asked(world)
    await fake.wait_for(2)
    await world.until(lambda tx: bool(tx.row("select 1 from buttons")))
    world.advance(world.policy.limits.question + timedelta(seconds=1))
    assert (await world.flow(gone(world, fake))).endswith("→ No answer came in time.")
    fake.sent_parts.clear()
    await asked(world, chat="2")
    await world.until(lambda tx: bool(tx.row("select 1 from buttons")))
    await world.command("/stop", chat="2", reply=None)
    assert (await gone(world, fake)).endswith("→ This question is closed.")


async def test_a_question_that_was_answered_before_it_was_sent_has_no_buttons(begin: Begin) -> None:
    world, fake = await placed(begin)
    fake.errors_before = [Throttled("wait", after=timedelta(seconds=30))]
    _, question = await asked(world)
    await world.until(lambda tx: bool(tx.row("select 1 from gates")))
    await world.hub.questions.answer(OPERATORS, question.id, "deny")
    world.advance(31)
    await fake.wait_for(2)
    assert labels(fake) == []


async def test_a_question_that_is_answered_on_its_way_loses_its_buttons_again(begin: Begin) -> None:
    fake = Pressed()
    world = await begin(adapters=[fake])

    async def answer() -> None:
        (found,) = await world.hub.questions.list_open(OPERATORS)
        await world.hub.questions.answer(OPERATORS, found.id, "deny")

    fake.sending.append(answer())
    await world.say(f"!ask {WHAT}")
    await fake.wait_for(2)
    assert (await gone(world, fake)).endswith("→ Deny")


async def test_where_there_are_no_buttons_nothing_more_is_sent(world: World) -> None:
    receipt, question = await asked(world)
    await world.sent(2)
    assert world.fake.sent_parts[1].buttons == ()
    await world.hub.questions.answer(OPERATORS, question.id, "allow")
    await world.settle(receipt)
    await world.delivered(2)
    assert all(not p.edits for p in world.fake.sent_parts)


@pytest.mark.parametrize(
    "error", [NotSent("no"), Uncertain("who knows"), Throttled("wait", after=timedelta(seconds=2))]
)
async def test_taking_buttons_away_is_tried_again_and_never_marked(begin: Begin, error: SendError) -> None:
    world, fake = await placed(begin)
    _, question = await asked(world)
    await fake.wait_for(2)
    await world.until(lambda tx: bool(tx.row("select 1 from buttons")))
    fake.errors_before = [error]
    await world.hub.questions.answer(OPERATORS, question.id, "allow")
    await world.eventually(lambda: not fake.errors_before)
    await world.flow(gone(world, fake))
    assert not any(text.startswith(REPEAT_MARK) for text in fake.texts)


async def test_a_message_that_was_deleted_leaves_nothing_to_do(begin: Begin) -> None:
    world, fake = await placed(begin)
    _, question = await asked(world)
    await fake.wait_for(2)
    await world.until(lambda tx: bool(tx.row("select 1 from buttons")))
    fake.errors_before = [MessageGone("deleted")]
    await world.hub.questions.answer(OPERATORS, question.id, "allow")
    await world.until(lambda tx: not tx.row("select 1 from buttons"))
    states = await world.read(lambda tx: {d.state for d in deliveries.list_recent(tx, OPERATORS)})
    assert states <= {DeliveryState.SENT, DeliveryState.READY, DeliveryState.SENDING}


async def test_buttons_are_taken_away_after_a_restart(begin: Begin) -> None:
    world, fake = await placed(begin)
    _, question = await asked(world)
    await fake.wait_for(2)
    await world.until(lambda tx: bool(tx.row("select 1 from buttons")))
    await world.crash()
    await HubQuestions(world.database).answer(OPERATORS, question.id, "allow")
    world.advance(world.policy.limits.lease + timedelta(seconds=1))
    await world.start()
    assert (await gone(world, fake)).endswith("→ Allow")


@pytest.mark.parametrize("when", list(FaultTiming))
@pytest.mark.parametrize("label", ["question.ask", "delivery.settle", "question.answer"])
async def test_no_crash_leaves_buttons_under_a_closed_question(
    begin: Begin, database: Database, label: str, when: FaultTiming
) -> None:
    fault, fake = DatabaseFault(label, when), RecordingAdapter(FAKE, capabilities=ABLE)
    world = await begin(database=CrashingDatabase(database, fault), adapters=[fake])
    await world.say(f"!ask {WHAT}")
    await world.flow(world.until(lambda tx: bool(tx.row("select 1 from buttons"))))
    (question,) = await world.hub.questions.list_open(OPERATORS)
    for _ in range(2):
        with suppress(Retryable, Conflict):
            await world.hub.questions.answer(OPERATORS, question.id, "allow")
    await world.flow(world.until(lambda tx: not tx.row("select 1 from buttons")))
    assert fault.hits == 1
    assert [p.buttons for p in fake.sent_parts if p.edits] == [()]
    assert not await verify(world.database)
