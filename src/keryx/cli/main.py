"""The tree of commands. Each is loaded when it is used, so that none pays for another."""

import io
import sys
from collections.abc import Sequence

from cyclopts import App

from keryx.cli import errors, output

OVERVIEW = """\
Keryx keeps your conversations with an agent, wherever you talk to it.

  keryx chat             talk in this terminal
  keryx serve            answer everywhere, until stopped
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
for name, place, about in (
    ("chat", "chat:chat", "Talk to the agent in this terminal."),
    ("send", "send:send", "Send one message, and wait for the answer if wanted."),
    ("serve", "serve:serve", "Run Keryx: answer, send and listen until stopped."),
    ("sessions", "sessions:app", "List, read, search and change conversations."),
    ("turns", "turns:turns", "List what runs and waits now."),
    ("why", "turns:why", "Tell the whole story of one message."),
    ("lanes", "lanes:app", "The places people talk from, and the session each is in."),
    ("deliveries", "deliveries:app", "Answers on their way, and those that did not arrive."),
    ("projects", "projects:app", "Named groups of conversations."),
    ("config", "config:app", "The settings in force, and where each comes from."),
    ("version", "version:version", "Print the version."),
):
    app.command(f"keryx.cli.{place}", name=name, help=about)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; gives the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return errors.guarded(lambda: _dispatch(list(arguments)))


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def _dispatch(arguments: list[str]) -> int | None:
    if not arguments:
        output.write(OVERVIEW)
        return 0
    return app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
