"""Every command as data, and the parser for the text of a command."""

import re
from enum import StrEnum

import msgspec

from keryx.core.access import CommandAudience
from keryx.core.messages import Parts, Text
from keryx.core.ports.adapter import InboundMessage
from keryx.core.sessions import EFFORTS
from keryx.core.texts import Texts

_PATTERN = re.compile(r"/([a-z][a-z-]{0,31})(?:@\S+)?(?:\s+(.*))?\Z", re.S | re.I)


class CommandScope(StrEnum):
    """Where a command may be given."""

    ANYWHERE = "anywhere"
    # Without an argument, in a direct chat only: it lists private things.
    BARE = "bare"
    # In a direct chat only.
    ALONE = "alone"


class CommandSpec(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    aliases: tuple[str, ...] = ()
    # May be given while a turn runs.
    busy: bool = True
    # Needs a session.
    session: bool = True
    # Needs a lane: a chat of a platform, or a terminal.
    lane: bool = False
    # Needs a chat that messages can be sent to.
    chat: bool = False
    # With an argument, creates the session if there is none.
    begins: bool = False
    who: CommandAudience = CommandAudience.EVERYONE
    direct: CommandScope = CommandScope.ANYWHERE
    # The reply is not stored.
    secret: bool = False
    # Needs a session that another program keeps.
    watched: bool = False
    # In menus and in /help.
    listed: bool = True

    def describe(self, texts: Texts) -> str:
        """Return what the command does, in a sentence."""
        return texts.say(f"help.{self.name}")

    def format_usage(self, texts: Texts) -> str:
        """Return the arguments of the command, empty if it has none."""
        key = f"usage.{self.name}"
        return texts.say(key, efforts=" | ".join(EFFORTS)) if texts.has(key) else ""


class ParsedCommand(msgspec.Struct, frozen=True):
    """A command as it was written."""

    name: str
    # `None` for a command that does not exist.
    command: CommandSpec | None
    text: str

    @property
    def secret(self) -> bool:
        """Whether the reply must not be stored."""
        return self.command is not None and self.command.secret


COMMANDS = (
    CommandSpec(name="new", aliases=("reset",), session=False, lane=True, who=CommandAudience.OWNER),
    CommandSpec(name="temp", session=False, lane=True, who=CommandAudience.OWNER),
    CommandSpec(name="resume", session=False, lane=True, who=CommandAudience.OWNER, direct=CommandScope.BARE),
    CommandSpec(name="undo-reset", session=False, lane=True, who=CommandAudience.OWNER),
    CommandSpec(name="sessions", session=False, direct=CommandScope.ALONE),
    CommandSpec(name="title", begins=True, who=CommandAudience.OWNER),
    CommandSpec(name="takeover", watched=True, who=CommandAudience.OWNER),
    CommandSpec(name="fork", who=CommandAudience.OWNER),
    CommandSpec(name="undo", busy=False, who=CommandAudience.OWNER),
    CommandSpec(name="redo", busy=False, who=CommandAudience.OWNER),
    CommandSpec(name="compact", who=CommandAudience.OWNER),
    CommandSpec(name="retry", busy=False),
    CommandSpec(name="stop"),
    CommandSpec(name="queue", begins=True),
    CommandSpec(name="steer", begins=True),
    CommandSpec(name="busy", begins=True, who=CommandAudience.OWNER),
    CommandSpec(name="allow"),
    CommandSpec(name="always"),
    CommandSpec(name="deny"),
    CommandSpec(name="permissions", who=CommandAudience.OWNER),
    CommandSpec(name="answer", session=False),
    CommandSpec(name="pin", who=CommandAudience.OWNER),
    CommandSpec(name="archive", who=CommandAudience.OWNER),
    CommandSpec(name="project", begins=True, who=CommandAudience.OWNER, direct=CommandScope.BARE),
    CommandSpec(name="delete", busy=False, who=CommandAudience.OWNER),
    CommandSpec(name="instructions", session=False, lane=True, who=CommandAudience.OWNER),
    CommandSpec(name="handoff", busy=False, who=CommandAudience.OWNER),
    CommandSpec(name="mirror", session=False, lane=True, chat=True, who=CommandAudience.OWNER),
    CommandSpec(name="jobs", session=False, direct=CommandScope.BARE),
    CommandSpec(name="home", session=False, chat=True, who=CommandAudience.OPERATOR),
    CommandSpec(name="agent", begins=True),
    CommandSpec(name="model", begins=True, who=CommandAudience.OWNER),
    CommandSpec(name="mode", begins=True, who=CommandAudience.OWNER),
    CommandSpec(name="effort", begins=True, who=CommandAudience.OWNER),
    CommandSpec(name="personality", begins=True, who=CommandAudience.OWNER),
    CommandSpec(name="tools", begins=True, who=CommandAudience.OWNER),
    CommandSpec(name="status", session=False),
    CommandSpec(name="usage"),
    CommandSpec(name="search", session=False, direct=CommandScope.ALONE),
    CommandSpec(name="link", session=False, direct=CommandScope.ALONE, secret=True),
    CommandSpec(name="zone", session=False),
    CommandSpec(name="whoami", session=False, direct=CommandScope.ALONE),
    CommandSpec(name="help", session=False),
    CommandSpec(name="start", session=False, chat=True, listed=False),
)
_BY_NAME = {name: c for c in COMMANDS for name in (c.name, *c.aliases)}


def parse_inbound(inbound: InboundMessage) -> ParsedCommand | None:
    """Return the command of an event, or `None` if it has none or may not run one. The caption of a file is none."""
    return parse(inbound.said) if inbound.commands and not inbound.observed and not inbound.files else None


def parse(parts: Parts) -> ParsedCommand | None:
    """Return the command of a message, or `None` for ordinary text. A path such as /etc/hosts is text."""
    if len(parts) != 1 or not isinstance(parts[0], Text):
        return None
    match = _PATTERN.match(parts[0].text.strip())
    if match is None:
        return None
    name = match[1].lower()
    return ParsedCommand(name, _BY_NAME.get(name), (match[2] or "").strip())


def list_commands(
    *, lane: bool = False, chat: bool = False, direct: bool = True, watched: bool = False
) -> list[CommandSpec]:
    """Return the commands that work somewhere: on a surface with lanes or without, with chats of a platform or without, in a
    direct chat or in a group, in a session that another program keeps or in another one."""
    return [
        c
        for c in COMMANDS
        if c.listed
        and (lane or not c.lane)
        and (chat or not c.chat)
        and (direct or c.direct is not CommandScope.ALONE)
        and (watched or not c.watched)
    ]
