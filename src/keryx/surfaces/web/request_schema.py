"""Types of API requests: query parameters and JSON bodies. Unknown fields are refused.

The docstrings of bodies are published in the OpenAPI document, and their names without the suffix `Form`.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from keryx.core.deliveries import DeliveryState
from keryx.core.sessions import Activity, SettingsChange
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
MediaIds = Annotated[list[Name], Meta(max_length=20)]
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
    choose."""

    name: Name
    person: Annotated[str, Meta(max_length=400, pattern="^[^:]+:.+$")] | None = None


class SessionQuery(RequestForm, frozen=True, kw_only=True):
    """Filters of the list. `archived=any` shows both; `after` is `next` of the page before."""

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


class UploadQuery(RequestForm, frozen=True, kw_only=True):
    name: Annotated[str, Meta(max_length=255)] = ""


class BeginForm(RequestForm, frozen=True, kw_only=True):
    """The first message of a new conversation. `media` are ids of uploads."""

    text: MessageText = ""
    media: MediaIds = []
    settings: SettingsChange = SettingsChange()
    project: Name | None = None
    cwd: WorkingDirectory = ""


class SendForm(RequestForm, frozen=True, kw_only=True):
    """A message. `busy` says what it does while a turn runs; without it the conversation's setting does."""

    text: MessageText = ""
    media: MediaIds = []
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


class RewriteForm(RequestForm, frozen=True, kw_only=True):
    text: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT_CHARS)]


class EditForm(RequestForm, frozen=True, kw_only=True):
    """The question in other words. `media` are ids of files."""

    text: MessageText = ""
    media: MediaIds = []


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
    """Conversations without a message since `before`; only of one surface or owner, if named. With `delete`, archived ones
    count too."""

    before: Timestamp
    delete: bool = False
    surface: Name | None = None
    owner: Name | None = None
    limit: Limit = 50


class PruneForm(RequestForm, frozen=True, kw_only=True):
    """Which conversations, as in the preview: archived, or with `delete` deleted."""

    before: Timestamp
    delete: bool = False
    surface: Name | None = None
    owner: Name | None = None


class ForkForm(RequestForm, frozen=True, kw_only=True):
    """A copy up to message `through`; without it, up to the last complete turn. With `text`, that is sent to the copy:
    to edit and resend message 7, fork through 6 with the new text."""

    through: Seq | None = None
    title: Title | None = None
    text: MessageText = ""
    media: MediaIds = []


class ComposeForm(RequestForm, frozen=True, kw_only=True):
    text: MessageText = ""
    media: MediaIds = []


class ReadForm(RequestForm, frozen=True, kw_only=True):
    """The last message that was seen."""

    seq: Seq


class AddProjectForm(RequestForm, frozen=True, kw_only=True):
    name: Name
    colour: Colour = ""


class ProjectChangeForm(RequestForm, frozen=True, kw_only=True):
    name: Name | UnsetType = UNSET
    colour: Colour | UnsetType = UNSET


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
    """The password or the token."""

    secret: Annotated[str, Meta(min_length=1, max_length=1000)]


class PreferForm(RequestForm, frozen=True, kw_only=True):
    theme: Theme | UnsetType = UNSET
    send_with: SendWith | UnsetType = UNSET
    details: bool | UnsetType = UNSET
    model: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    # What the viewer is not told of while the page is out of sight.
    muted: Annotated[list[AlertKind], Meta(max_length=3)] | UnsetType = UNSET
    sound: bool | UnsetType = UNSET
    # Conversations in which it is different; the others stay as they are.
    conversations: Annotated[dict[Name, AlertLevel], Meta(max_length=100)] = {}


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
    paused: bool
