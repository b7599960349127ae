"""Types of API requests: query parameters and JSON bodies. Unknown fields are refused.

The docstrings of bodies are published in the OpenAPI document, and their names without the suffix `Form`.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from keryx.core.deliveries import DeliveryState
from keryx.core.sessions import Activity, ProgramState, SettingsChange, TagColour
from keryx.core.turns import BusyMode

MAX_TEXT_CHARS = 1_000_000
MAX_ANSWER_CHARS = 10_000

Limit = Annotated[int, Meta(ge=1, le=200)]
Seq = Annotated[int, Meta(ge=0, le=1 << 53)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
MessageText = Annotated[str, Meta(max_length=MAX_TEXT_CHARS)]
Timestamp = Annotated[datetime, Meta(tz=True)]
Title = Annotated[str, Meta(max_length=1000)]
Colour = Annotated[str, Meta(max_length=32, pattern=r"^[#a-zA-Z0-9(),.% -]*$")]
TagName = Annotated[str, Meta(min_length=1, max_length=40)]
TagNames = Annotated[list[TagName], Meta(max_length=50)]
SessionIds = Annotated[list[Name], Meta(min_length=1, max_length=500)]
MediaIds = Annotated[list[Name], Meta(max_length=20)]
# The names of files in the same order, where one differs from that of the last upload of the same bytes.
MediaNames = Annotated[list[Annotated[str, Meta(max_length=255)]], Meta(max_length=20)]
WorkingDirectory = Annotated[str, Meta(max_length=4096)]


class Archived(StrEnum):
    NO = "no"
    YES = "yes"
    ANY = "any"


class Format(StrEnum):
    MARKDOWN = "markdown"
    HTML = "html"
    JSONL = "jsonl"


class Theme(StrEnum):
    SYSTEM = "system"
    LIGHT = "light"
    DARK = "dark"


class SendWith(StrEnum):
    ENTER = "enter"
    CTRL_ENTER = "ctrl_enter"


class AlertKind(StrEnum):
    FINISHED = "finished"
    QUESTION = "question"
    FAILED = "failed"


class AlertLevel(StrEnum):
    """Which alerts of one conversation are wanted: all, none, or as in the preferences."""

    ALL = "all"
    NONE = "none"
    DEFAULT = "default"


class RequestForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of request types."""


class EmptyQuery(RequestForm, frozen=True, kw_only=True):
    pass


class AddKeyForm(RequestForm, frozen=True, kw_only=True):
    """`name`: the program or device that gets the key. `person`: whose rights it has, as platform:id, for the operator to
    choose. `may_speak`: it says something in a conversation by a tool of MCP without a question to that person."""

    name: Name
    may_speak: bool = False
    person: Annotated[str, Meta(max_length=400, pattern="^[^:]+:.+$")] | None = None


class SessionQuery(RequestForm, frozen=True, kw_only=True):
    """Filters of the list. `q` has them as they are typed into a search, such as `is:failed tag:"to do" after:7d`;
    `is:deleted` is the trash. `archived=any` shows both; `after` is `next` of the page before."""

    q: Annotated[str, Meta(max_length=2000)] = ""
    surface: Name | None = None
    owner: Name | None = None
    project: Name | None = None
    pinned: bool | None = None
    archived: Archived = Archived.NO
    activity: Activity | None = None
    cwd: WorkingDirectory | None = None
    since: Timestamp | None = None
    jobs: bool = False
    after: Annotated[str, Meta(max_length=200)] | None = None
    limit: Limit = 50


class WindowQuery(RequestForm, frozen=True, kw_only=True):
    """Which messages: the last ones below `before`, the first ones above `after`, those `around` one, or around the first one
    `at` a time or later. Without any of them, the last ones."""

    before: Seq | None = None
    after: Seq | None = None
    around: Seq | None = None
    at: Timestamp | None = None
    limit: Limit = 50


class StartQuery(WindowQuery, frozen=True, kw_only=True):
    """`session`: a conversation that is to be shown at once, with this window of it."""

    session: Name | None = None


class NameQuery(RequestForm, frozen=True, kw_only=True):
    name: Name


class EraseQuery(RequestForm, frozen=True, kw_only=True):
    """`erase`: at once, instead of after the grace period."""

    erase: bool = False


class SearchQuery(RequestForm, frozen=True, kw_only=True):
    q: Annotated[str, Meta(max_length=1000)]
    limit: Limit = 20
    offset: Annotated[int, Meta(ge=0, le=10_000)] = 0


class FindQuery(RequestForm, frozen=True, kw_only=True):
    q: Annotated[str, Meta(max_length=1000)]


class OutlineQuery(RequestForm, frozen=True, kw_only=True):
    """`before`: the number of a message, for the questions above those that are known."""

    before: Seq | None = None


class RangeQuery(RequestForm, frozen=True, kw_only=True):
    """From which message to which."""

    first: Seq = 1
    last: Seq = 1 << 53


class FilesQuery(RequestForm, frozen=True, kw_only=True):
    """`q`: letters that the path has in this order."""

    q: Annotated[str, Meta(max_length=200)] = ""


class LaneQuery(RequestForm, frozen=True, kw_only=True):
    """`minutes`: only places where somebody spoke within this time."""

    minutes: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    limit: Limit = 200


class DeliveryQuery(RequestForm, frozen=True, kw_only=True):
    """Without `state`, those that wait or went wrong."""

    state: DeliveryState | None = None
    limit: Limit = 100


class DaysQuery(RequestForm, frozen=True, kw_only=True):
    days: Annotated[int, Meta(ge=1, le=3660)] = 30


class ExportQuery(RequestForm, frozen=True, kw_only=True):
    format: Format = Format.MARKDOWN
    redact: bool = False


class StreamQuery(RequestForm, frozen=True, kw_only=True):
    """Where to begin: the cursor of a snapshot. The header Last-Event-ID goes before it."""

    cursor: Annotated[str, Meta(min_length=1, max_length=2000)] | None = None


class DownloadQuery(RequestForm, frozen=True, kw_only=True):
    """`name`: under which it is saved."""

    name: Annotated[str, Meta(max_length=255)] = ""


class UploadQuery(RequestForm, frozen=True, kw_only=True):
    """`session` is needed for a file of a temporary conversation, which is sealed with its key."""

    name: Annotated[str, Meta(max_length=255)] = ""
    session: Annotated[str, Meta(max_length=200)] = ""


class SpeechForm(RequestForm, frozen=True, kw_only=True):
    text: Annotated[str, Meta(min_length=1, max_length=4000)]


class BeginForm(RequestForm, frozen=True, kw_only=True):
    """The first message of a new conversation. `media` are ids of uploads. A `temporary` conversation is not searched,
    exported or kept: after its end nothing of it can be read."""

    text: MessageText = ""
    media: MediaIds = []
    names: MediaNames = []
    settings: SettingsChange = SettingsChange()
    project: Name | None = None
    cwd: WorkingDirectory = ""
    temporary: bool = False


class SendForm(RequestForm, frozen=True, kw_only=True):
    """A message. `busy` says what it does while a turn runs; without it the conversation's setting does."""

    text: MessageText = ""
    media: MediaIds = []
    names: MediaNames = []
    busy: BusyMode | None = None


class SessionChangeForm(RequestForm, frozen=True, kw_only=True):
    """What is left out stays, also of `settings`, where null takes the default. An empty `title` is removed; `project` null
    takes it out of its project; `ended` false opens it again."""

    title: Title | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    archived: bool | UnsetType = UNSET
    ended: bool | UnsetType = UNSET
    project: Name | UnsetType | None = UNSET
    settings: SettingsChange | UnsetType = UNSET
    cwd: WorkingDirectory | UnsetType = UNSET
    # All that it has from now on, by name; unknown ones are made.
    tags: TagNames | UnsetType = UNSET


class SessionsChangeForm(RequestForm, frozen=True, kw_only=True):
    """The same change of several conversations, all or nothing. `deleted` true hides them, to be erased after the grace
    period, and false brings them back; `erase` erases them at once; `stop` stops what runs there. Tags go by name."""

    sessions: SessionIds
    pinned: bool | UnsetType = UNSET
    archived: bool | UnsetType = UNSET
    project: Name | UnsetType | None = UNSET
    add_tags: TagNames = []
    remove_tags: TagNames = []
    deleted: bool | UnsetType = UNSET
    erase: bool = False
    stop: bool = False


class SessionsExportForm(RequestForm, frozen=True, kw_only=True):
    sessions: SessionIds
    format: Format = Format.JSONL
    redact: bool = False


class RewriteForm(RequestForm, frozen=True, kw_only=True):
    text: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT_CHARS)]


class EditForm(RequestForm, frozen=True, kw_only=True):
    """The question in other words. `media` are ids of files."""

    text: MessageText = ""
    media: MediaIds = []
    names: MediaNames = []


class RetryForm(RequestForm, frozen=True, kw_only=True):
    """Without `message`, the last question. `model` answers this time only."""

    message: Seq | None = None
    model: Name | None = None


class ChooseVersionForm(RequestForm, frozen=True, kw_only=True):
    """The turn of a version."""

    turn: Name


class StopForm(RequestForm, frozen=True, kw_only=True):
    """`queue`: drop what waits too."""

    queue: bool = False


class UndoForm(RequestForm, frozen=True, kw_only=True):
    """How many turns; or `message`, the number of a message whose turn is taken back with all later ones."""

    count: Annotated[int, Meta(ge=1, le=1000)] = 1
    message: Seq | None = None


class PruneQuery(RequestForm, frozen=True, kw_only=True):
    """Conversations without a message since `before`; only of one surface or owner, or that the filters of the list in `q`
    match, if given. One of `before` and `q` is needed. With `delete`, archived ones count too."""

    before: Timestamp | None = None
    delete: bool = False
    surface: Name | None = None
    owner: Name | None = None
    q: Annotated[str, Meta(max_length=2000)] = ""
    limit: Limit = 50


class PruneForm(RequestForm, frozen=True, kw_only=True):
    """Which conversations, as in the preview: archived, or with `delete` deleted."""

    before: Timestamp
    delete: bool = False
    surface: Name | None = None
    owner: Name | None = None
    q: Annotated[str, Meta(max_length=2000)] = ""


class ForkForm(RequestForm, frozen=True, kw_only=True):
    """A copy up to message `through`; without it, up to the last complete turn. With `text`, that is sent to the copy:
    to edit and resend message 7, fork through 6 with the new text."""

    through: Seq | None = None
    title: Title | None = None
    text: MessageText = ""
    media: MediaIds = []
    names: MediaNames = []


class ComposeForm(RequestForm, frozen=True, kw_only=True):
    text: MessageText = ""
    media: MediaIds = []
    names: MediaNames = []


class ReadForm(RequestForm, frozen=True, kw_only=True):
    """The last message that was seen."""

    seq: Seq


class AddProjectForm(RequestForm, frozen=True, kw_only=True):
    name: Name
    colour: Colour = ""


class ProjectChangeForm(RequestForm, frozen=True, kw_only=True):
    name: Name | UnsetType = UNSET
    colour: Colour | UnsetType = UNSET


class AddTagForm(RequestForm, frozen=True, kw_only=True):
    name: TagName
    colour: TagColour | None = None


class TagChangeForm(RequestForm, frozen=True, kw_only=True):
    name: TagName | UnsetType = UNSET
    colour: TagColour | UnsetType = UNSET


class PersonNameQuery(RequestForm, frozen=True, kw_only=True):
    """`prefix`: how the name begins."""

    prefix: Annotated[str, Meta(max_length=200)] = ""
    limit: Limit = 20


class LaneChangeForm(RequestForm, frozen=True, kw_only=True):
    suspended: bool


class AnswerForm(RequestForm, frozen=True, kw_only=True):
    """The id of an option, or free text where there are none."""

    answer: Annotated[str, Meta(min_length=1, max_length=10_000)]


class ApproveForm(RequestForm, frozen=True, kw_only=True):
    platform: Name
    code: Annotated[str, Meta(min_length=1, max_length=32)]


class SetupForm(RequestForm, frozen=True, kw_only=True):
    """`answers` by the names of the fields. `name` is for one of several accounts, `allow` for the people who may talk, by their ids on
    the platform."""

    answers: Annotated[
        dict[Name, Annotated[str, Meta(max_length=MAX_ANSWER_CHARS)]], Meta(max_length=100)
    ] = {}
    name: Annotated[str, Meta(max_length=32)] = ""
    allow: Annotated[list[Name], Meta(max_length=1000)] = []


class SignInForm(RequestForm, frozen=True, kw_only=True):
    """The password or the token. `name` is that of a user; the operator has none."""

    secret: Annotated[str, Meta(min_length=1, max_length=1000)]
    name: Annotated[str, Meta(max_length=64)] = ""


class PreferForm(RequestForm, frozen=True, kw_only=True):
    theme: Theme | UnsetType = UNSET
    send_with: SendWith | UnsetType = UNSET
    details: bool | UnsetType = UNSET
    model: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    # What the viewer is not told of while the page is out of sight.
    muted: Annotated[list[AlertKind], Meta(max_length=3)] | UnsetType = UNSET
    sound: bool | UnsetType = UNSET
    # The guided start is not shown by itself any more.
    guided: bool | UnsetType = UNSET
    # Conversations in which it is different; the others stay as they are.
    conversations: Annotated[dict[Name, AlertLevel], Meta(max_length=100)] = {}


class PushForm(RequestForm, frozen=True, kw_only=True):
    """What the push service of a browser gave it: an address, and the keys in base64url. `with_text`: notifications have the
    title of the conversation and the beginning of the answer; left out, it stays as it is."""

    endpoint: Annotated[str, Meta(max_length=2_000)]
    public_key: Annotated[str, Meta(max_length=100)]
    secret: Annotated[str, Meta(max_length=40)]
    with_text: bool | UnsetType = UNSET


class JobsQuery(RequestForm, frozen=True, kw_only=True):
    """`done`: those that are over too."""

    done: bool = False


class RunsQuery(RequestForm, frozen=True, kw_only=True):
    limit: Limit = 20


class AddJobForm(RequestForm, frozen=True, kw_only=True):
    """`schedule`: 30m (once), every 2h, 0 9 * * mon-fri, @daily or 2030-01-31T09:00. `to`: local, a platform, or
    platform:chat, with commas; without it the answers stay in the conversations of the runs."""

    schedule: Name
    prompt: Annotated[str, Meta(min_length=1, max_length=20_000)]
    to: Annotated[str, Meta(max_length=2000)] = ""
    name: Annotated[str, Meta(max_length=200)] = ""
    zone: Annotated[str, Meta(max_length=100)] = ""


class JobChangeForm(RequestForm, frozen=True, kw_only=True):
    """What is left out stays as it is; an empty `to` sends the answers nowhere."""

    schedule: Name | None = None
    prompt: Annotated[str, Meta(min_length=1, max_length=20_000)] | None = None
    to: Annotated[str, Meta(max_length=2000)] | None = None
    name: Annotated[str, Meta(max_length=200)] | None = None
    zone: Annotated[str, Meta(max_length=100)] | None = None
    paused: bool | None = None


class WatchedFilesQuery(RequestForm, frozen=True, kw_only=True):
    machine: Name
    program: Name


class KnownRecordsForm(RequestForm, frozen=True, kw_only=True):
    """A conversation of a program, by the id that it has there."""

    program: Name
    id: Annotated[str, Meta(min_length=1, max_length=1000)]


class KeptSessionForm(RequestForm, frozen=True, kw_only=True):
    """What a program does with one of its conversations."""

    program: Name
    id: Annotated[str, Meta(min_length=1, max_length=1000)]
    state: ProgramState


class ProgramStatesForm(RequestForm, frozen=True, kw_only=True):
    states: Annotated[list[KeptSessionForm], Meta(max_length=1000)]


Secret = Annotated[str, Meta(max_length=MAX_ANSWER_CHARS)]
Revision = Annotated[str, Meta(max_length=64)]
Address = Annotated[str, Meta(max_length=2000)]
References = Annotated[dict[Name, Secret], Meta(max_length=50)]


class ModelSetupForm(RequestForm, frozen=True, kw_only=True):
    """A model behind an endpoint of OpenAI's API. `secret` is its key, which is written to a file that only its owner can
    read; `key` is instead where the key is, as `env:NAME` or `file:PATH`. `revision` is that of the model as it was read,
    empty for a new one. Prices are for a million tokens."""

    base_url: Address
    id: Annotated[str, Meta(max_length=200)]
    key: Address = ""
    secret: Secret = ""
    context: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None
    images: bool | None = None
    tools: bool = True
    input_price: Annotated[float, Meta(ge=0, le=1_000_000)] | None = None
    output_price: Annotated[float, Meta(ge=0, le=1_000_000)] | None = None
    revision: Revision = ""


class DefaultModelForm(RequestForm, frozen=True, kw_only=True):
    name: Name


class RevisionQuery(RequestForm, frozen=True, kw_only=True):
    """`revision`: that of what is to be removed, as it was read."""

    revision: Revision


class ToolServerSetupForm(RequestForm, frozen=True, kw_only=True):
    """A server of tools: a `command` with its arguments, or a `url`. Values of `env` and `headers` are references, as
    `env:NAME`, `file:PATH` or `text:VALUE`; any other value is a secret and is written to a file. `policy`: allow, ask or
    deny; empty leaves it to the tools. `profiles`: empty for all."""

    command: Annotated[str, Meta(max_length=4000)] = ""
    url: Address = ""
    env: References = {}
    headers: References = {}
    cwd: WorkingDirectory = ""
    policy: Annotated[str, Meta(max_length=20)] = ""
    profiles: Annotated[list[Name], Meta(max_length=100)] = []
    revision: Revision = ""


class AgentSetupForm(RequestForm, frozen=True, kw_only=True):
    """An agent that is a program: a `command` with its arguments. Values of `env` are references, as `env:NAME`, `file:PATH` or
    `text:VALUE`; any other value is a secret and is written to a file. `login`: the id of the login method to choose."""

    command: Annotated[str, Meta(max_length=4000)] = ""
    env: References = {}
    cwd: WorkingDirectory = ""
    login: Annotated[str, Meta(max_length=200)] = ""
    model: Annotated[str, Meta(max_length=200)] = ""
    mode: Annotated[str, Meta(max_length=200)] = ""
    revision: Revision = ""


class ProfileSetupForm(RequestForm, frozen=True, kw_only=True):
    """`agent`: empty for the one in force. `hide_ids`: null lets the platform decide."""

    agent: Annotated[str, Meta(max_length=200)] = ""
    instructions: Annotated[str, Meta(max_length=20_000)] = ""
    hide_ids: bool | None = None
    revision: Revision = ""


class DialogAnswerForm(RequestForm, frozen=True, kw_only=True):
    answer: Annotated[str, Meta(max_length=MAX_ANSWER_CHARS)]


class MergeForm(RequestForm, frozen=True, kw_only=True):
    """Two people who are one, by their ids. Without `other`, one is merged with the operator."""

    one: Name
    other: Name | None = None


class IdentityForm(RequestForm, frozen=True, kw_only=True):
    """A way in which a person is known."""

    platform: Name
    person: Name


class GrantRoleForm(RequestForm, frozen=True, kw_only=True):
    """`operator`: may give commands for operators in chats."""

    operator: bool


class ScheduleQuery(RequestForm, frozen=True, kw_only=True):
    schedule: Name
    zone: Annotated[str, Meta(max_length=100)] = ""


class AddUserForm(RequestForm, frozen=True, kw_only=True):
    """`name` is what they sign in with."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    password: Annotated[str, Meta(min_length=1, max_length=1000)]


class PasswordForm(RequestForm, frozen=True, kw_only=True):
    """`current` is needed to change one's own."""

    password: Annotated[str, Meta(min_length=1, max_length=1000)]
    current: Annotated[str, Meta(max_length=1000)] = ""


class NewPasskeyForm(RequestForm, frozen=True, kw_only=True):
    """A new passkey as the browser has made it, all in base64url."""

    challenge: Annotated[str, Meta(max_length=500)]
    client_data: Annotated[str, Meta(max_length=10_000)]
    attestation: Annotated[str, Meta(max_length=100_000)]
    name: Annotated[str, Meta(max_length=100)] = ""


class PasskeySignInForm(RequestForm, frozen=True, kw_only=True):
    """The proof of a passkey as the browser has made it, all in base64url."""

    challenge: Annotated[str, Meta(max_length=500)]
    id: Annotated[str, Meta(max_length=2000)]
    client_data: Annotated[str, Meta(max_length=10_000)]
    authenticator_data: Annotated[str, Meta(max_length=10_000)]
    signature: Annotated[str, Meta(max_length=10_000)]


class ConsentQuery(RequestForm, frozen=True, kw_only=True):
    """`rule`: what it covers, as it is listed."""

    rule: Annotated[str, Meta(min_length=1, max_length=1000)]
