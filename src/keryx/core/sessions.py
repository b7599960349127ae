"""Sessions: settings, permission modes, titles, visibility, list filters, and bindings to sessions of outside agents."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from unicodedata import category, normalize

import msgspec
from msgspec import UNSET, UnsetType

from keryx.core import text as core_text
from keryx.core.errors import Invalid
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId, ProjectId, SessionId, TagId, TurnId
from keryx.core.source import Source
from keryx.core.texts import Phrase
from keryx.core.usage import CostMeter, Tokens

JOB_SURFACE = "job"
# Of conversations in chat platforms.
GATEWAY_SURFACE = "gateway"
# Of turns that programs ask for through the OpenAI-compatible API.
API_SURFACE = "api"
# Of the turn that the settings may ask for when a session has ended.
END_SURFACE = "end"
SURFACES = frozenset({"web", "cli", "acp", API_SURFACE, JOB_SURFACE, END_SURFACE, GATEWAY_SURFACE})
EFFORTS = ("minimal", "low", "medium", "high")
"""The levels of reasoning effort that a model may be asked for."""
LONGEST_TITLE = 100
UNTITLED = "Untitled"
# The programs whose conversations can be watched, with their titles.
PROGRAM_TITLES = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "opencode": "opencode",
    "goose": "goose",
    "gemini": "Gemini CLI",
    "qwen": "Qwen Code",
}
_LONGEST_DERIVED = 60
_TITLE_SCAN_LIMIT = 4_000
_TITLE_ROW_LIMIT = 600
_NUMBERED_TITLE = re.compile(r"(.*\S) #([1-9][0-9]{0,8})\Z", re.DOTALL)
_CODE_FENCE = re.compile(r"^[ \t]*+(```|~~~).*$", re.MULTILINE)
_MARKDOWN_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*\)")
_LINE_PREFIX = re.compile(r"^\s*(?:>+\s*|(?:#+|[-*+]|[0-9]{1,3}[.)]|\[[ xX]\])(?:\s+|\Z))+")
_EMPHASIS = re.compile(
    r"(?<![A-Za-z0-9*_~`])(\*{1,3}+|_{1,3}+|~~|`++)(?=\S)(.+?)(?<=\S)\1(?![A-Za-z0-9]|\.\w)"
)
# A watcher looks more often at what is not idle.
_STATE_LIFETIME = timedelta(seconds=90)
_FIRST_SENTENCE = re.compile(r".{12,}?[.!?…]+(?=\s)|.{4,}?[。！？]+")


class Project(msgspec.Struct, frozen=True, kw_only=True):
    id: ProjectId
    profile: ProfileId
    owner: PrincipalId
    name: str
    colour: str
    created_at: datetime
    sessions: int = 0
    instructions: str = ""


class TagColour(StrEnum):
    GREY = "grey"
    RED = "red"
    ORANGE = "orange"
    YELLOW = "yellow"
    GREEN = "green"
    TEAL = "teal"
    BLUE = "blue"
    PURPLE = "purple"
    PINK = "pink"


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """A word with a colour that a person puts on sessions."""

    id: TagId
    profile: ProfileId
    owner: PrincipalId
    name: str
    colour: TagColour
    created_at: datetime
    sessions: int = 0


class EndReason(StrEnum):
    RESET = "reset"
    IDLE = "idle"
    DAILY = "daily"
    SUSPENDED = "suspended"
    PERSON = "person"
    MERGED = "merged"


class TitleBy(StrEnum):
    PERSON = "person"
    MODEL = "model"
    RULE = "rule"


class Activity(StrEnum):
    """What a session does now, from its turns."""

    IDLE = "idle"
    WAITING = "waiting"
    RUNNING = "running"
    FAILED = "failed"


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Kept per session over restarts. Never a credential: a model is named, and its endpoint and key are those that the
    configuration has for the name. `personality`: how the agent is to speak, in words."""

    agent: str | None = None
    model: str | None = None
    effort: str | None = None
    mode: str | None = None
    tools: tuple[str, ...] | None = None
    personality: str | None = None
    busy: str | None = None


class SettingsChange(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """New settings of a session: what is left out stays, and null takes the default."""

    agent: str | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    effort: str | UnsetType | None = UNSET
    mode: str | UnsetType | None = UNSET
    tools: tuple[str, ...] | UnsetType | None = UNSET
    personality: str | UnsetType | None = UNSET
    busy: str | UnsetType | None = UNSET

    def apply(self, settings: SessionSettings) -> SessionSettings:
        given = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET}
        return msgspec.structs.replace(settings, **given)


class Session(msgspec.Struct, frozen=True, kw_only=True):
    id: SessionId
    profile: ProfileId
    owner: PrincipalId
    surface: str
    created_at: datetime
    active_at: datetime
    title: str = ""
    title_by: TitleBy | None = None
    origin: Source | None = None
    parent: SessionId | None = None
    parent_seq: int | None = None
    project: ProjectId | None = None
    pinned: bool = False
    archived: bool = False
    deleted_at: datetime | None = None
    # When a deleted session is erased.
    erase_at: datetime | None = None
    ended_at: datetime | None = None
    end_reason: EndReason | None = None
    cwd: str = ""
    settings: SessionSettings = SessionSettings()
    epoch: int = 0
    last_seq: int = 0
    messages: int = 0
    turns: int = 0
    tokens: Tokens = Tokens()
    cost: int | None = None
    cost_status: str = "unknown"
    context_used: int | None = None
    context_limit: int | None = None


class SessionChange(msgspec.Struct, frozen=True, kw_only=True):
    """New values of a session; those that are unset stay."""

    # An empty title is removed: an automatic one may take its place.
    title: str | UnsetType = UNSET
    # The id or name of a project of the viewer, `None` to take the session out of its project.
    project: str | UnsetType | None = UNSET
    settings: SettingsChange | UnsetType = UNSET
    # The working directory.
    cwd: str | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    archived: bool | UnsetType = UNSET
    # `None` reopens the session.
    ended: EndReason | UnsetType | None = UNSET
    # The names of all tags that it has from now on. Unknown ones are made.
    tags: tuple[str, ...] | UnsetType = UNSET
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()


class SessionListItem(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a list: a session, and what it does now."""

    session: Session
    activity: Activity
    # Those of other people too.
    tags: tuple[TagId, ...] = ()
    # What a session without a title is called: the beginning of its first question.
    opening: str = ""


class Viewer(msgspec.Struct, frozen=True):
    """The user of a request. The operator sees every session of the profile, others see only their own."""

    profile: ProfileId
    principal: PrincipalId

    @property
    def owner(self) -> PrincipalId | None:
        """The owner to filter by, `None` for no filter."""
        return None if self.principal == OPERATOR else self.principal

    def sees(self, profile: str, owner: str) -> bool:
        return profile == self.profile and (self.owner is None or owner == self.owner)


class SessionFilter(msgspec.Struct, frozen=True, kw_only=True):
    # Filters as they are typed into a search, such as `is:failed tag:"to do"`. They go before the fields below.
    query: str = ""
    # Of this person, among those that the viewer sees.
    owner: PrincipalId | None = None
    surface: str | None = None
    project: ProjectId | None = None
    pinned: bool | None = None
    # `None` lists both.
    archived: bool | None = False
    activity: Activity | None = None
    cwd: str | None = None
    since: datetime | None = None
    jobs: bool = False
    after: str | None = None
    limit: int = 50


class PruneRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which old sessions are archived or deleted. Pinned ones and those with open turns stay."""

    # Without activity since then.
    before: datetime
    # Delete instead of archiving.
    delete: bool = False
    # Only of this surface; `None` for every surface but `except_surfaces`.
    surface: str | None = None
    except_surfaces: tuple[str, ...] = ()
    owner: PrincipalId | None = None
    # Only those that the filters of a search match, as in `SessionFilter`.
    query: str = ""


class ReservedSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session whose id was given out before its first message. It is not listed, and can be opened."""

    profile: ProfileId
    owner: PrincipalId
    cwd: str = ""
    settings: SessionSettings = SessionSettings()


class Binding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The session of an outside agent that continues one of ours."""

    agent: str
    # The agent's id of its session.
    id: str
    # The working directory of the agent.
    cwd: str
    # The agent knows all messages up to `seq`, and those of `turn`.
    turn: TurnId | None = None
    seq: int = 0
    # The digest of the prompt text about the chat that the agent was given.
    place: str = ""
    model: str = ""
    # The models that the agent offers.
    models: tuple[str, ...] = ()
    mode: str = ""
    # The agent's own cost counter, to compute differences from.
    meter: CostMeter = CostMeter()
    # A program keeps the session for people too: it is never replaced by a new one.
    kept: bool = False


class ProgramState(StrEnum):
    """What a program does with a session that is watched."""

    IDLE = "idle"
    # It is open in a terminal, and waits for a person.
    OPEN = "open"
    # It works on an answer.
    WRITING = "writing"


class WatchedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that another program keeps, and that is watched there."""

    session: SessionId
    program: str
    # The id in the program.
    source: str
    machine: str
    # Another machine has sent it, with the key of a device.
    pushed: bool
    state: ProgramState
    # When the program wrote last without being asked here.
    wrote_at: datetime
    # When the state was seen last.
    seen_at: datetime
    # When a person took the session over although the program was open.
    taken_at: datetime | None = None

    @property
    def title(self) -> str:
        """The name of the program for people."""
        return PROGRAM_TITLES.get(self.program, self.program)

    def get_state(self, now: datetime) -> ProgramState:
        """Return the state, or idle if nobody has looked for a while."""
        return self.state if now - self.seen_at < _STATE_LIFETIME else ProgramState.IDLE

    def is_taken(self) -> bool:
        """Whether a person took it over after the last write of the program."""
        return self.taken_at is not None and self.taken_at >= self.wrote_at


class TakeoverRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which agents continue the sessions of other programs here."""

    # The name of this machine.
    machine: str = ""
    # The agent by program.
    agents: Mapping[str, str] = {}


class PermissionMode(StrEnum):
    # Ask a person.
    ASK = "ask"
    # Allow without asking.
    AUTO = "auto"
    # Deny without asking.
    READ = "read"


MODE_TITLES = {PermissionMode.ASK: "Ask", PermissionMode.AUTO: "Allow all", PermissionMode.READ: "Read only"}
MODE_DESCRIPTIONS = {
    PermissionMode.ASK: "Ask before a tool does what needs permission.",
    PermissionMode.AUTO: "Let tools do what needs permission without asking.",
    PermissionMode.READ: "Deny whatever needs permission.",
}


def parse_mode(setting: str | None) -> PermissionMode:
    """Parse a setting; an unknown mode means `ASK`."""
    return PermissionMode(setting) if setting in {m.value for m in PermissionMode} else PermissionMode.ASK


def clean_title(text: str) -> str:
    """Return a title as one line of at most `LONGEST_TITLE` characters. Raise `Invalid` if nothing is left."""
    title = core_text.truncate(
        normalize("NFC", core_text.to_single_line(text)[: 4 * LONGEST_TITLE]), LONGEST_TITLE
    )
    if all(category(character)[0] in "MZ" for character in title):
        raise Invalid(Phrase("session.title_empty"))
    return title


def derive_title(text: str) -> str:
    """Return the first sentence of a message without Markdown, or `UNTITLED` if there is none."""
    for row in _CODE_FENCE.sub("", text[:_TITLE_SCAN_LIMIT]).splitlines():
        row = _MARKDOWN_LINK.sub(r"\1", _LINE_PREFIX.sub("", row[:_TITLE_ROW_LIMIT]))
        plain = core_text.to_single_line(_EMPHASIS.sub(r"\2", _EMPHASIS.sub(r"\2", row)))
        sentence = _FIRST_SENTENCE.match(plain)
        title = sentence.group() if sentence else plain
        if len(title) > _LONGEST_DERIVED:
            head = core_text.truncate(title, _LONGEST_DERIVED - 1)
            words, blank, _ = head.rpartition(" ")
            whole = title[len(head) : len(head) + 1] == " " or not blank or len(words) < _LONGEST_DERIVED // 2
            title = (head if whole else words).rstrip(" .,:;") + "…"
        title = title.rstrip(" .,:;。")
        if any(category(character)[0] in "LNS" for character in title):
            return clean_title(title)
    return UNTITLED


def split_title_number(title: str) -> tuple[str, int]:
    """Split a numbered title: `Trip #3` into `Trip` and 3."""
    found = _NUMBERED_TITLE.match(title)
    if found is None or found[2] == "1":
        return title, 1
    return found[1], int(found[2])


def number_title(base: str, n: int) -> str:
    """Add a number to a title; 1 is not shown. The result has at most `LONGEST_TITLE` characters."""
    suffix = "" if n <= 1 else f" #{n}"
    return core_text.truncate(base, LONGEST_TITLE - len(suffix)) + suffix
