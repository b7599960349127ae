"""Registry: the function of every command, found by its name and run if it may be given now."""

from keryx.core.errors import Conflict, KeryxError, NotFound
from keryx.core.ids import OPERATOR, SessionId
from keryx.engine.commands import about, conversations, questions, search
from keryx.engine.commands import turns as turn_commands
from keryx.engine.commands.call import Call, Done, Run, sentence
from keryx.engine.commands.table import Asked, Command, Who
from keryx.store import turns
from keryx.store.database import Transaction

_RUN: dict[str, Run] = {**conversations.RUN, **turn_commands.RUN, **questions.RUN, **about.RUN, **search.RUN}


def run(asked: Asked, call: Call) -> Done:
    """Run a command. What it refuses to do becomes its reply; the message counts as taken in."""
    try:
        command = asked.command
        if command is None:
            raise NotFound(f"There is no command /{asked.name}. /help lists them.")
        _check(command, call)
        return _RUN[command.name](call)
    except KeryxError as exc:
        return Done(sentence(str(exc)), call.session.id if call.session else None)


def _check(command: Command, call: Call) -> None:
    if command.who is Who.OPERATOR and call.viewer.principal != OPERATOR:
        raise NotFound(f"/{command.name} is for the operator.")
    if command.session:
        _ = call.current
    if not command.busy and call.session and _at_work(call.tx, call.session.id):
        raise Conflict(
            f"cannot {command.name} while a turn runs or waits: /stop it first, or wait for the answer"
        )


def _at_work(tx: Transaction, session: SessionId) -> bool:
    return turns.running(tx, session) is not None or bool(turns.queued(tx, session))
