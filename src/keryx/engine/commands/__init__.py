"""Slash commands: defined once, as data, for every surface, and run inside the transaction of their message. To add one: an entry in `command_table.COMMANDS`, a function in the module of its noun, and its name in `_HANDLERS`."""

from difflib import get_close_matches

from keryx.core.access import CommandAudience
from keryx.core.errors import Forbidden, KeryxError, NotFound
from keryx.core.source import ChatType
from keryx.core.text import to_sentence
from keryx.core.texts import Phrase, explain
from keryx.engine.commands import jobs, lanes, people, questions, session_settings, sessions, turns
from keryx.engine.commands.call import CommandCall, CommandHandler, CommandResult
from keryx.engine.commands.command_table import (
    COMMANDS,
    CommandScope,
    CommandSpec,
    ParsedCommand,
    list_commands,
    parse,
    parse_inbound,
)
from keryx.engine.commands.sessions import SEARCH_LIMIT, needs_search, render_hits
from keryx.engine.units import revisions

__all__ = [
    "COMMANDS",
    "SEARCH_LIMIT",
    "CommandCall",
    "CommandResult",
    "CommandScope",
    "CommandSpec",
    "ParsedCommand",
    "list_commands",
    "needs_search",
    "parse",
    "parse_inbound",
    "render_hits",
    "run",
]

_HANDLERS: dict[str, CommandHandler] = {
    "new": sessions.start_new,
    "temp": sessions.start_temporary,
    "resume": sessions.resume,
    "undo-reset": sessions.undo_reset,
    "sessions": sessions.list_recent,
    "title": sessions.set_title,
    "takeover": sessions.take_over,
    "fork": sessions.fork,
    "pin": sessions.toggle_pin,
    "archive": sessions.toggle_archive,
    "project": sessions.set_project,
    "delete": sessions.delete,
    "search": sessions.search,
    "undo": turns.undo,
    "redo": turns.redo,
    "compact": turns.compact,
    "retry": turns.retry,
    "stop": turns.stop,
    "queue": turns.queue,
    "steer": turns.steer,
    "busy": turns.set_busy_mode,
    "answer": questions.answer,
    "allow": questions.build_answer_handler("allow"),
    "always": questions.build_answer_handler("always"),
    "deny": questions.build_answer_handler("deny"),
    "permissions": questions.manage_consents,
    "agent": session_settings.set_agent,
    "model": session_settings.set_model,
    "mode": session_settings.set_mode,
    "effort": session_settings.set_effort,
    "personality": session_settings.set_personality,
    "tools": session_settings.switch_tools,
    "status": session_settings.show_status,
    "usage": session_settings.show_usage,
    "help": session_settings.show_help,
    "start": session_settings.greet,
    "home": lanes.set_home,
    "instructions": lanes.set_instructions,
    "mirror": lanes.set_mirror,
    "handoff": lanes.hand_over,
    "whoami": people.show_identity,
    "link": people.link,
    "zone": people.set_zone,
    "jobs": jobs.manage,
}


def run(parsed: ParsedCommand, call: CommandCall) -> CommandResult:
    """Run a command. An error becomes its reply, and the event still counts as received."""
    try:
        command = parsed.command
        if command is None:
            near = get_close_matches(parsed.name, _HANDLERS, n=1)
            if near:
                raise NotFound(Phrase("command.unknown_near", name=parsed.name, near=near[0]))
            raise NotFound(Phrase("command.unknown", name=parsed.name))
        # Raise if this person may not run the command, or not here, or not now.
        who = call.policy.commands.get(command.name, command.who)
        if who is CommandAudience.OPERATOR and not call.is_operator:
            raise Forbidden(Phrase("command.operators_only", name=command.name))
        if who is CommandAudience.OWNER and call.lane and call.lane.shared:
            owner = call.session.owner if call.session else call.lane.owner
            if owner != call.viewer.principal and not call.is_operator:
                raise Forbidden(Phrase("command.owner_only", name=command.name))
        alone = command.direct is CommandScope.ALONE or (
            command.direct is CommandScope.BARE and not call.text
        )
        if alone and call.inbound.source.chat_type is not ChatType.DM:
            raise Forbidden(Phrase("command.direct_only", name=command.name))
        if command.session and not command.begins:
            _ = call.current_session
        if not command.busy and call.session:
            revisions.refuse_while_busy(call.tx, call.session.id, command.name)
        return _HANDLERS[command.name](call)
    except KeryxError as exc:
        reply = to_sentence(call.texts.render(explain(exc, "command.failed", name=parsed.name)))
        return CommandResult(reply, call.session.id if call.session else None)
