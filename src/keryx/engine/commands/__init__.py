"""Slash commands: defined once, as data, for every surface, and run inside the transaction of their message. To add one: an entry in `command_table.COMMANDS`, a function in the module of its noun, and its name in `registry`."""

from keryx.engine.commands.call import CommandCall, CommandResult
from keryx.engine.commands.command_table import (
    COMMANDS,
    CommandAudience,
    CommandScope,
    CommandSpec,
    ParsedCommand,
    parse,
    parse_inbound,
)
from keryx.engine.commands.registry import run
from keryx.engine.commands.sessions import SEARCH_LIMIT, needs_search, render_hits

__all__ = [
    "COMMANDS",
    "SEARCH_LIMIT",
    "CommandAudience",
    "CommandCall",
    "CommandResult",
    "CommandScope",
    "CommandSpec",
    "ParsedCommand",
    "needs_search",
    "parse",
    "parse_inbound",
    "render_hits",
    "run",
]
