"""Every command as data, and the parser for the text of a command."""

import re
from enum import StrEnum

import msgspec

from keryx.core.messages import Parts, Text
from keryx.core.ports.adapter import InboundMessage
from keryx.core.sessions import EFFORTS

_PATTERN = re.compile(r"/([a-z][a-z-]{0,31})(?:@\S+)?(?:\s+(.*))?\Z", re.S | re.I)


class CommandAudience(StrEnum):
    """Who may give a command."""

    EVERYONE = "everyone"
    # In a shared lane, only the owner of the session and operators.
    OWNER = "owner"
    OPERATOR = "operator"


class CommandScope(StrEnum):
    """Where a command may be given."""

    ANYWHERE = "anywhere"
    # Without an argument, in a direct chat only: it lists private things.
    BARE = "bare"
    # In a direct chat only.
    ALONE = "alone"


class CommandSpec(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    help: str
    usage: str = ""
    aliases: tuple[str, ...] = ()
    # May be given while a turn runs.
    busy: bool = True
    # Needs a session.
    session: bool = True
    # With an argument, creates the session if there is none.
    begins: bool = False
    who: CommandAudience = CommandAudience.EVERYONE
    direct: CommandScope = CommandScope.ANYWHERE
    # The reply is not stored.
    secret: bool = False


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
    CommandSpec(name="new", aliases=("reset",), help="Start a new conversation here.", session=False),
    CommandSpec(
        name="resume",
        usage="[title or id]",
        help="Go on with an earlier conversation.",
        session=False,
        direct=CommandScope.BARE,
    ),
    CommandSpec(name="undo-reset", help="Go back to the conversation before the last reset.", session=False),
    CommandSpec(
        name="sessions", help="List your last conversations.", session=False, direct=CommandScope.ALONE
    ),
    CommandSpec(name="title", usage="[text]", help="Show or set the title.", begins=True),
    CommandSpec(name="fork", usage="[title]", help="Go on in a copy of this conversation."),
    CommandSpec(name="undo", usage="[n]", help="Take back the last turns.", busy=False),
    CommandSpec(name="redo", help="Bring back what the last undo took.", busy=False),
    CommandSpec(
        name="compact",
        usage="[what to keep]",
        help="Let a summary stand for the old part of this conversation.",
    ),
    CommandSpec(name="retry", help="Ask the last question again.", busy=False),
    CommandSpec(name="stop", help="Stop the running answer; what was said so far stays."),
    CommandSpec(
        name="queue", usage="[clear | text]", help="Show what waits, clear it, or add to it.", begins=True
    ),
    CommandSpec(name="steer", usage="text", help="Give the running turn something to consider.", begins=True),
    CommandSpec(
        name="busy",
        usage="[queue | steer | collect | interrupt]",
        help="What a message does while a turn runs.",
        begins=True,
    ),
    CommandSpec(name="allow", help="Let the agent do what it asks for."),
    CommandSpec(name="always", help="Let it, now and whenever it asks for the same here."),
    CommandSpec(name="deny", help="Do not let it."),
    CommandSpec(
        name="permissions",
        usage="[forget name | forget all]",
        help="Show or take back what the agent may always do here.",
        who=CommandAudience.OWNER,
    ),
    CommandSpec(
        name="answer", usage="[number or id] answer", help="Answer a question of the agent.", session=False
    ),
    CommandSpec(name="pin", help="Pin or unpin this conversation.", who=CommandAudience.OWNER),
    CommandSpec(name="archive", help="Archive or unarchive this conversation.", who=CommandAudience.OWNER),
    CommandSpec(
        name="project",
        usage="[name | none]",
        help="Put this conversation into a project.",
        begins=True,
        who=CommandAudience.OWNER,
        direct=CommandScope.BARE,
    ),
    CommandSpec(
        name="delete",
        help="Delete this conversation; it is erased after a grace period.",
        busy=False,
        who=CommandAudience.OWNER,
    ),
    CommandSpec(
        name="instructions",
        usage="[text | none]",
        help="Show or set what every conversation in this chat is told.",
        session=False,
        who=CommandAudience.OWNER,
    ),
    CommandSpec(
        name="handoff",
        usage="platform[:chat]",
        help="Go on with this conversation in another of your chats.",
        busy=False,
        who=CommandAudience.OWNER,
    ),
    CommandSpec(
        name="mirror",
        usage="[on | off]",
        help="Show here what is said to this conversation elsewhere.",
        session=False,
        who=CommandAudience.OWNER,
    ),
    CommandSpec(
        name="jobs",
        usage="[add schedule prompt | pause, resume, run, runs, continue or remove name]",
        help="What runs here by a schedule, and what became of it.",
        session=False,
        direct=CommandScope.BARE,
    ),
    CommandSpec(
        name="home",
        usage="[off]",
        help="Make this chat the home channel of its platform.",
        session=False,
        who=CommandAudience.OPERATOR,
    ),
    CommandSpec(
        name="agent",
        usage="[name | default]",
        help="Show who answers here; an operator can set it.",
        begins=True,
    ),
    CommandSpec(
        name="model",
        usage="[name | default]",
        help="Show or set the model of this conversation.",
        begins=True,
    ),
    CommandSpec(
        name="effort",
        usage=f"[{' | '.join(EFFORTS)} | default]",
        help="Show or set how hard the model thinks here.",
        begins=True,
    ),
    CommandSpec(
        name="personality",
        usage="[words | off]",
        help="Show or set how the agent speaks here.",
        begins=True,
        who=CommandAudience.OWNER,
    ),
    CommandSpec(
        name="tools", usage="[on | off name]", help="Show the sets of tools here, or switch one.", begins=True
    ),
    CommandSpec(name="status", help="What this conversation is and does.", session=False),
    CommandSpec(name="usage", help="Tokens and cost of this conversation."),
    CommandSpec(
        name="search",
        usage="words",
        help="Search your conversations.",
        session=False,
        direct=CommandScope.ALONE,
    ),
    CommandSpec(
        name="link",
        usage="[code | list | cut]",
        help="Show that you are the same person in two chats.",
        session=False,
        direct=CommandScope.ALONE,
        secret=True,
    ),
    CommandSpec(name="whoami", help="How Keryx knows you.", session=False, direct=CommandScope.ALONE),
    CommandSpec(name="help", help="List the commands.", session=False),
)
_BY_NAME = {name: c for c in COMMANDS for name in (c.name, *c.aliases)}


def parse_inbound(inbound: InboundMessage) -> ParsedCommand | None:
    """Return the command of an event, or `None` if it has none or may not run one."""
    return parse(inbound.parts) if inbound.commands and not inbound.observed else None


def parse(parts: Parts) -> ParsedCommand | None:
    """Return the command of a message, or `None` for ordinary text. A path such as /etc/hosts is text."""
    if len(parts) != 1 or not isinstance(parts[0], Text):
        return None
    match = _PATTERN.match(parts[0].text.strip())
    if match is None:
        return None
    name = match[1].lower()
    return ParsedCommand(name, _BY_NAME.get(name), (match[2] or "").strip())
