"""Table: every command as data, the same for every surface, and how one is written."""

import re
from enum import StrEnum

import msgspec

from keryx.core.messages import Parts, Text
from keryx.core.ports import Inbound
from keryx.core.sessions import EFFORTS

_COMMAND = re.compile(r"/([a-z][a-z-]{0,31})(?:@\S+)?(?:\s+(.*))?\Z", re.S | re.I)


class Who(StrEnum):
    """Who may give a command. `OWNER`: in a place that several people share, whoever began the conversation."""

    EVERYONE = "everyone"
    OWNER = "owner"
    OPERATOR = "operator"


class Direct(StrEnum):
    """Where a command may be given. `ALONE`: in a direct chat only. `BARE`: elsewhere only with an argument, since
    without one it lists what is private."""

    ANYWHERE = "anywhere"
    BARE = "bare"
    ALONE = "alone"


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """`busy`: may be given while a turn runs. `session`: has a meaning only within a conversation. `begins`: with an
    argument it begins one where there is none. `secret`: its reply is not kept."""

    name: str
    help: str
    usage: str = ""
    aliases: tuple[str, ...] = ()
    busy: bool = True
    session: bool = True
    begins: bool = False
    who: Who = Who.EVERYONE
    direct: Direct = Direct.ANYWHERE
    secret: bool = False


class Asked(msgspec.Struct, frozen=True):
    """A command as it was written. `command` is `None` for one that does not exist."""

    name: str
    command: Command | None
    text: str


COMMANDS = (
    Command(name="new", aliases=("reset",), help="Start a new conversation here.", session=False),
    Command(
        name="resume",
        usage="[title or id]",
        help="Go on with an earlier conversation.",
        session=False,
        direct=Direct.BARE,
    ),
    Command(name="undo-reset", help="Go back to the conversation before the last reset.", session=False),
    Command(name="sessions", help="List your last conversations.", session=False, direct=Direct.ALONE),
    Command(name="title", usage="[text]", help="Show or set the title.", begins=True),
    Command(name="fork", usage="[title]", help="Go on in a copy of this conversation."),
    Command(name="undo", usage="[n]", help="Take back the last turns.", busy=False),
    Command(name="redo", help="Bring back what the last undo took.", busy=False),
    Command(
        name="compact",
        usage="[what to keep]",
        help="Let a summary stand for the old part of this conversation.",
    ),
    Command(name="retry", help="Ask the last question again.", busy=False),
    Command(name="stop", help="Stop the running answer; what was said so far stays."),
    Command(
        name="queue", usage="[clear | text]", help="Show what waits, clear it, or add to it.", begins=True
    ),
    Command(name="steer", usage="text", help="Give the running turn something to consider.", begins=True),
    Command(
        name="busy",
        usage="[queue | steer | collect | interrupt]",
        help="What a message does while a turn runs.",
        begins=True,
    ),
    Command(name="allow", help="Let the agent do what it asks for."),
    Command(name="always", help="Let it, now and whenever it asks for the same here."),
    Command(name="deny", help="Do not let it."),
    Command(
        name="permissions",
        usage="[forget name | forget all]",
        help="Show or take back what the agent may always do here.",
        who=Who.OWNER,
    ),
    Command(
        name="answer", usage="[number or id] answer", help="Answer a question of the agent.", session=False
    ),
    Command(name="pin", help="Pin or unpin this conversation.", who=Who.OWNER),
    Command(name="archive", help="Archive or unarchive this conversation.", who=Who.OWNER),
    Command(
        name="project",
        usage="[name | none]",
        help="Put this conversation into a project.",
        begins=True,
        who=Who.OWNER,
        direct=Direct.BARE,
    ),
    Command(
        name="delete",
        help="Delete this conversation; it is erased after a grace period.",
        busy=False,
        who=Who.OWNER,
    ),
    Command(
        name="instructions",
        usage="[text | none]",
        help="Show or set what every conversation in this chat is told.",
        session=False,
        who=Who.OWNER,
    ),
    Command(
        name="handoff",
        usage="platform[:chat]",
        help="Go on with this conversation in another of your chats.",
        busy=False,
        who=Who.OWNER,
    ),
    Command(
        name="mirror",
        usage="[on | off]",
        help="Show here what is said to this conversation elsewhere.",
        session=False,
        who=Who.OWNER,
    ),
    Command(
        name="jobs",
        usage="[add schedule prompt | pause, resume, run, runs, continue or remove name]",
        help="What runs here by a schedule, and what became of it.",
        session=False,
        direct=Direct.BARE,
    ),
    Command(
        name="home",
        usage="[off]",
        help="Make this chat the home channel of its platform.",
        session=False,
        who=Who.OPERATOR,
    ),
    Command(
        name="agent",
        usage="[name | default]",
        help="Show who answers here; an operator can set it.",
        begins=True,
    ),
    Command(
        name="model",
        usage="[name | default]",
        help="Show or set the model of this conversation.",
        begins=True,
    ),
    Command(
        name="effort",
        usage=f"[{' | '.join(EFFORTS)} | default]",
        help="Show or set how hard the model thinks here.",
        begins=True,
    ),
    Command(
        name="personality",
        usage="[words | off]",
        help="Show or set how the agent speaks here.",
        begins=True,
        who=Who.OWNER,
    ),
    Command(
        name="tools", usage="[on | off name]", help="Show the sets of tools here, or switch one.", begins=True
    ),
    Command(name="status", help="What this conversation is and does.", session=False),
    Command(name="usage", help="Tokens and cost of this conversation."),
    Command(
        name="search", usage="words", help="Search your conversations.", session=False, direct=Direct.ALONE
    ),
    Command(
        name="link",
        usage="[code | list | cut]",
        help="Show that you are the same person in two chats.",
        session=False,
        direct=Direct.ALONE,
        secret=True,
    ),
    Command(name="whoami", help="How Keryx knows you.", session=False, direct=Direct.ALONE),
    Command(name="help", help="List the commands.", session=False),
)
_BY_NAME = {name: c for c in COMMANDS for name in (c.name, *c.aliases)}


def parse(parts: Parts) -> Asked | None:
    """The command that a message gives, or `None` for ordinary speech. A path such as /etc/hosts is speech."""
    if len(parts) != 1 or not isinstance(parts[0], Text):
        return None
    match = _COMMAND.match(parts[0].text.strip())
    if match is None:
        return None
    name = match[1].lower()
    return Asked(name, _BY_NAME.get(name), (match[2] or "").strip())


def secret(inbound: Inbound) -> bool:
    """Whether an event gives a command whose reply is not kept."""
    asked = parse(inbound.parts) if inbound.commands else None
    return asked is not None and asked.command is not None and asked.command.secret
