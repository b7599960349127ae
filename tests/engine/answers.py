"""Answers: the chores of a node that has something to answer."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from tests.builders import OPERATORS
from tests.engine.chores import LEASES, SECOND, Chore, Done, Work, after, answered, say
from tests.engine.setting import fresh
from tests.engine.world import World

from keryx.agents.echo import EchoAgent
from keryx.core.ports.adapter import (
    Capabilities,
    Receipt,
    Streaming,
)
from keryx.core.ports.agent import TurnContext
from keryx.core.turns import BusyMode, TurnState
from keryx.core.usage import Usage
from keryx.store import questions, sessions, turns
from keryx.store.db import Transaction

EDITS = Capabilities(threads=True, edit=True, streaming=Streaming.EDIT)


class Titling(EchoAgent):
    """Names every conversation."""

    async def title(self, context: TurnContext, answer: str) -> tuple[str, Usage]:
        return f"about {answer}", Usage(model="echo", input=1, output=1, cost=0)


def ended(receipt: Receipt, *states: TurnState) -> Done:
    turn = receipt.turn
    assert turn is not None
    return lambda tx: turns.get(tx, turn).state in (states or (TurnState.DONE,))


def said(text: str, *states: TurnState) -> Callable[[World], Awaitable[Work]]:
    """Somebody says something that leads to the write at once."""

    async def begin(world: World) -> Work:
        receipts: list[Receipt] = []

        async def cause() -> None:
            receipts.append(await say(world, f"{text} {fresh()}"))

        return Work(cause, lambda tx: ended(receipts[0], *states)(tx) and answered(receipts[0])(tx))

    return begin


async def parts(world: World) -> Work:
    return await said("one two three four")(world)


async def cancelled(world: World) -> Work:
    receipt = await say(world, "!silence")
    await world.running(receipt)
    session = receipt.session
    assert session
    return Work(lambda: world.hub.stop(OPERATORS, session), ended(receipt, TurnState.CANCELLED))


async def handed_back(world: World) -> Work:
    """A node ends in the middle of a turn, beside another node."""
    receipt = await say(world, "slow 2 one two")
    await world.drafted(receipt, "one ")
    ending = world.node
    await world.start()
    stopping: list[asyncio.Task[None]] = []

    async def cause() -> None:
        stopping.append(asyncio.create_task(ending.stop()))

    return Work(cause, lambda tx: stopping[0].done() and answered(receipt)(tx))


async def stolen(world: World) -> Work:
    """A turn whose lease somebody else has by now goes on talking."""
    receipt = await say(world, "slow 4 one two")
    await world.drafted(receipt, "one ")
    await world.write(
        lambda tx: tx.run("update turns set lease = 'stolen' where id = :id", {"id": receipt.turn})
    )
    return Work(after(world, 3 * SECOND), answered(receipt))


async def steered(world: World) -> Work:
    name = fresh()
    receipt = await world.say("!wait 9", chat=name, user=name)
    await world.drafted(receipt, "Waiting. ")
    hint = await world.say("hint", chat=name, user=name, busy=BusyMode.STEER)
    done = ended(hint, TurnState.MERGED)
    return Work(after(world, 10 * SECOND), lambda tx: done(tx) and answered(receipt)(tx))


async def asking(world: World) -> Work:
    receipts: list[Receipt] = []

    async def cause() -> None:
        receipts.append(await say(world, "!ask rm"))

    def done(tx: Transaction) -> bool:
        session = receipts[0].session
        assert session
        return len(questions.list_open(tx, session)) == 1 and answered(receipts[0])(tx)

    return Work(cause, done)


async def taking(world: World) -> Work:
    """An answer was given, and the agent is told."""
    work = await asking(world)
    await work.cause()
    await world.until(work.done)
    (asked,) = await world.hub.questions.list_open(OPERATORS)
    return Work(
        lambda: world.hub.questions.answer(OPERATORS, asked.id, "allow"),
        lambda tx: turns.get(tx, asked.turn).state is TurnState.DONE,
    )


async def shown(world: World) -> Work:
    """A turn takes long enough to be shown while it runs."""
    receipt = await say(world, "slow 6 one two three")
    await world.drafted(receipt, "one ")
    return Work(after(world, 2 * SECOND), answered(receipt))


async def taken_away(world: World) -> Work:
    """What was shown of a turn is no longer there when its answer comes."""
    receipt = await say(world, "slow 9 one")
    await world.drafted(receipt, "one")
    before = len(world.fake.sent_parts)
    world.advance(2)
    await world.fake.wait_for(before + 1)
    await world.until(lambda tx: tx.row("select 1 from previews where state = 'shown'") is not None)
    world.fake.sent_parts.clear()
    return Work(after(world, 8 * SECOND), answered(receipt))


async def named(world: World) -> Work:
    receipts: list[Receipt] = []

    async def cause() -> None:
        receipts.append(await say(world, f"hello {fresh()}"))

    def done(tx: Transaction) -> bool:
        session = receipts[0].session
        assert session
        return bool(sessions.get(tx, session).title) and answered(receipts[0])(tx)

    return Work(cause, done)


ANSWERERS: Mapping[str, Chore] = {
    "delivery.part": Chore(parts, step=LEASES, limit=6, retried=False),
    "turn.fail": Chore(said("!fail", TurnState.FAILED)),
    "turn.cancel": Chore(cancelled),
    "turn.hand_back": Chore(handed_back),
    "turn.late": Chore(stolen, step=1),
    "turn.steer": Chore(steered),
    "question.ask": Chore(asking),
    "question.take": Chore(taking),
    "preview.begin": Chore(shown, able=EDITS),
    "preview.end": Chore(shown, able=EDITS),
    "preview.withdraw": Chore(taken_away, able=EDITS, step=LEASES, retried=False),
    "title.write": Chore(named, agent=Titling(), retried=False),
}
