"""Registry: the function of every command, found by its name and run if it may be given now."""

from difflib import get_close_matches

from keryx.core.errors import Conflict, Forbidden, KeryxError, NotFound
from keryx.core.ids import SessionId
from keryx.core.source import ChatType
from keryx.engine.commands import about, conversations, places, questions, search
from keryx.engine.commands import jobs as job_commands
from keryx.engine.commands import people as people_commands
from keryx.engine.commands import turns as turn_commands
from keryx.engine.commands.call import Call, Done, Run, sentence
from keryx.engine.commands.table import Asked, Command, Direct, Who
from keryx.store import turns
from keryx.store.database import Transaction

_RUN: dict[str, Run] = {
    **conversations.RUN,
    **turn_commands.RUN,
    **questions.RUN,
    **about.RUN,
    **search.RUN,
    **places.RUN,
    **people_commands.RUN,
    **job_commands.RUN,
}


def run(asked: Asked, call: Call) -> Done:
    """Run a command. What it refuses to do becomes its reply; the message counts as taken in."""
    try:
        command = asked.command
        if command is None:
            raise NotFound(f"There is no command /{asked.name}. {_meant(asked.name)}/help lists them.")
        _check(command, call)
        return _RUN[command.name](call)
    except KeryxError as exc:
        return Done(sentence(str(exc)), call.session.id if call.session else None)


def _meant(name: str) -> str:
    """What somebody may have meant to write."""
    near = get_close_matches(name, _RUN, n=1)
    return f"Did you mean /{near[0]}? " if near else ""


def _check(command: Command, call: Call) -> None:
    _check_person(command, call)
    _check_place(command, call)
    if command.session and not command.begins:
        _ = call.current
    if not command.busy and call.session and _at_work(call.tx, call.session.id):
        raise Conflict(
            f"cannot {command.name} while a turn runs or waits: /stop it first, or wait for the answer"
        )


def _check_person(command: Command, call: Call) -> None:
    if command.who is Who.OPERATOR and not call.operates:
        raise Forbidden(f"/{command.name} is for operators: see [access] in the settings")
    if command.who is Who.OWNER and call.lane and call.lane.shared:
        owner = call.session.owner if call.session else call.lane.owner
        if owner != call.viewer.principal and not call.operates:
            raise Forbidden(f"/{command.name} is for whoever began this conversation")


def _check_place(command: Command, call: Call) -> None:
    alone = command.direct is Direct.ALONE or (command.direct is Direct.BARE and not call.text)
    if alone and call.inbound.source.chat_type is not ChatType.DM:
        raise Forbidden(f"give /{command.name} in a direct chat: here others would read the answer")


def _at_work(tx: Transaction, session: SessionId) -> bool:
    return turns.running(tx, session) is not None or bool(turns.queued(tx, session))
