"""Finds the handler of a command, checks that it may run now, and runs it."""

from difflib import get_close_matches

from keryx.core.errors import Conflict, Forbidden, KeryxError, NotFound
from keryx.core.ids import SessionId
from keryx.core.source import ChatType
from keryx.engine.commands import jobs as job_commands
from keryx.engine.commands import lanes, questions, session_settings, sessions
from keryx.engine.commands import people as people_commands
from keryx.engine.commands import turns as turn_commands
from keryx.engine.commands.call import CommandCall, CommandHandler, CommandResult, format_sentence
from keryx.engine.commands.command_table import CommandAudience, CommandScope, CommandSpec, ParsedCommand
from keryx.store import turns
from keryx.store.db.database import Transaction

_HANDLERS: dict[str, CommandHandler] = {
    **sessions.SESSION_HANDLERS,
    **turn_commands.HANDLERS,
    **questions.HANDLERS,
    **session_settings.HANDLERS,
    **sessions.SEARCH_HANDLERS,
    **lanes.HANDLERS,
    **people_commands.HANDLERS,
    **job_commands.HANDLERS,
}


def run(asked: ParsedCommand, call: CommandCall) -> CommandResult:
    """Run a command. What it refuses to do becomes its reply; the message counts as taken in."""
    try:
        command = asked.command
        if command is None:
            raise NotFound(f"There is no command /{asked.name}. {_suggest(asked.name)}/help lists them.")
        _check(command, call)
        return _HANDLERS[command.name](call)
    except KeryxError as exc:
        return CommandResult(format_sentence(str(exc)), call.session.id if call.session else None)


def _suggest(name: str) -> str:
    """What somebody may have meant to write."""
    near = get_close_matches(name, _HANDLERS, n=1)
    return f"Did you mean /{near[0]}? " if near else ""


def _check(command: CommandSpec, call: CommandCall) -> None:
    _check_person(command, call)
    _check_scope(command, call)
    if command.session and not command.begins:
        _ = call.current_session
    if not command.busy and call.session and _is_busy(call.tx, call.session.id):
        raise Conflict(
            f"cannot {command.name} while a turn runs or waits: /stop it first, or wait for the answer"
        )


def _check_person(command: CommandSpec, call: CommandCall) -> None:
    if command.who is CommandAudience.OPERATOR and not call.is_operator:
        raise Forbidden(f"/{command.name} is for operators: see [access] in the settings")
    if command.who is CommandAudience.OWNER and call.lane and call.lane.shared:
        owner = call.session.owner if call.session else call.lane.owner
        if owner != call.viewer.principal and not call.is_operator:
            raise Forbidden(f"/{command.name} is for whoever began this conversation")


def _check_scope(command: CommandSpec, call: CommandCall) -> None:
    alone = command.direct is CommandScope.ALONE or (command.direct is CommandScope.BARE and not call.text)
    if alone and call.inbound.source.chat_type is not ChatType.DM:
        raise Forbidden(f"give /{command.name} in a direct chat: here others would read the answer")


def _is_busy(tx: Transaction, session: SessionId) -> bool:
    return turns.find_running(tx, session) is not None or bool(turns.list_queued(tx, session))
