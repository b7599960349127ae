"""The commands of `keryx`, one module for each noun as the user types it; and the tree of them. Each command is
imported when it is used, so that start-up stays fast."""

import io
import sys
from collections.abc import Sequence
from itertools import takewhile

from cyclopts import App

from keryx.cli import exit_codes, output

OVERVIEW = """\
Keryx keeps your conversations with an agent, wherever you talk to it.

  keryx chat             talk in this terminal
  keryx serve            answer everywhere, until stopped
  keryx acp              be the agent of an editor, which starts it
  keryx send "hello"     send one message; --wait prints the answer
  keryx sessions list    what was said so far
  keryx config           what is set, and where

keryx --help lists every command, and keryx COMMAND --help shows examples."""

app = App(
    name="keryx",
    help="A session hub for AI agents: one durable conversation, reached from everywhere.",
    help_format="plaintext",
    version_flags=[],
)
for path in (
    "chat:chat",
    "send:send",
    "serve:serve",
    "acp:acp",
    "tools:mcp",
    "sessions:app",
    "export_import:import_app",
    "migration:migrate_app",
    "watch:watch",
    "turns:turns",
    "turns:why",
    "platforms.lanes:app",
    "platforms.deliveries:app",
    "platforms.gateway:app",
    "platforms.matrix_keys:matrix_app",
    "questions:app",
    "questions:permissions_app",
    "usage:usage",
    "tools:app",
    "agents:app",
    "projects:app",
    "tags:app",
    "jobs:app",
    "platforms.pairing:app",
    "people:app",
    "platforms.relay:app",
    "keys:app",
    "store:verify",
    "store:backup",
    "store:restore",
    "store:store",
    "doctor:doctor",
    "config:app",
    "doctor:version",
):
    module, _, part = path.partition(":")
    name = module.rpartition(".")[2] if part == "app" else part.removesuffix("_app")
    app.command(f"keryx.cli.commands.{path}", name=name)

app.register_install_completion_command(  # pyright: ignore[reportUnknownMemberType]
    help="Let the shell complete commands: bash, zsh or fish."
)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    if list(arguments) in (["--version"], ["-V"]):
        arguments = ["version"]

    def dispatch() -> int | None:
        if not arguments:
            output.write(OVERVIEW)
            return 0
        # The summaries of commands are in their modules: load those of a noun that is given alone or with --help.
        words = list(takewhile(lambda word: word not in app.help_flags, arguments))
        _, trees, rest = app.parse_commands(words)
        if not rest:
            trees[-1].resolved_commands()
        if len(words) < len(arguments):
            with output.translate_errors():
                app(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")
                sys.stdout.flush()
            return 0
        return app(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")

    return exit_codes.run_guarded(dispatch)
