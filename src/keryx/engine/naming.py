"""Naming: after the first answer, the agent may give a conversation a better title than the rule did."""

import logging
from functools import partial

import msgspec

from keryx.core.errors import KeryxError
from keryx.core.messages import Role
from keryx.core.ports import Agent, Titler, TurnContext
from keryx.core.turns import Turn, TurnState
from keryx.engine import record
from keryx.engine.foreign import contained
from keryx.store import messages, turns
from keryx.store.database import Database, Transaction

log = logging.getLogger(__name__)


class Unnamed(msgspec.Struct, frozen=True):
    """A conversation that had no title when its first turn began, and who answered there."""

    agent: Agent
    context: TurnContext


async def name(database: Database, unnamed: Unnamed, turn: Turn) -> None:
    """Ask for a title and store it. Never in the way of an answer: whatever fails, the title by rule stays."""
    agent, context = unnamed.agent, unnamed.context
    if not isinstance(agent, Titler):
        return
    answer = await database.read("title.read", partial(_answer, turn=turn))
    if answer is None:
        return
    try:
        with contained():
            made = await agent.title(context, answer)
        if made is not None:
            now = context.clock.now()
            entitle = partial(record.entitle, turn=turn, title=made[0], used=made[1], now=now)
            await database.write("title.write", entitle)
    except KeryxError as exc:
        log.info("session %s keeps its title by rule: %s", turn.session, exc)


def _answer(tx: Transaction, turn: Turn) -> str | None:
    """What the turn said, if it ended well."""
    if turns.get(tx, turn.id).state is not TurnState.DONE:
        return None
    written = messages.of_turn(tx, turn.session, turn.id, first=turn.input_seq)
    return "\n\n".join(m.text for m in written if m.role is Role.ASSISTANT and m.mark is None and m.text)
