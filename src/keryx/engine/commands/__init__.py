"""Commands: defined once, as data, for every surface; run inside the transaction of the message that gave them.

To add one: an entry in `table.COMMANDS`, and a function in the module of its noun, named in that module's `RUN`."""

from keryx.engine.commands.call import Call, Done
from keryx.engine.commands.registry import run
from keryx.engine.commands.search import FOUND, listed, sought
from keryx.engine.commands.table import COMMANDS, Asked, Command, Direct, Who, parse, secret

__all__ = [
    "COMMANDS",
    "FOUND",
    "Asked",
    "Call",
    "Command",
    "Direct",
    "Done",
    "Who",
    "listed",
    "parse",
    "run",
    "secret",
    "sought",
]
