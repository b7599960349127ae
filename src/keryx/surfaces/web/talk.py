"""Talk: what the HTTP API says of conversations. Times are UTC; html is rendered and sanitised, ready to be shown.

Fields with their default value are left out of the JSON.
"""

from datetime import datetime
from typing import TypeAlias

import msgspec

from keryx.core.messages import Mark, Role
from keryx.core.sessions import Activity, EndReason, Settings, TitleBy, Tokens
from keryx.core.turns import BusyMode, TurnState


class View(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all answers have in common."""


class Session(View, frozen=True, kw_only=True):
    """A conversation, in lists and alone. `platform` and `place` say where it began; `read` is the last message that
    the viewer has seen, known in lists and snapshots only: there is something unread if `last_seq` is above it. `cost`
    is in millionths."""

    id: str
    surface: str
    created_at: datetime
    active_at: datetime
    title: str = ""
    title_by: TitleBy | None = None
    platform: str = ""
    place: str = ""
    activity: Activity = Activity.IDLE
    read: int | None = None
    project: str | None = None
    pinned: bool = False
    archived: bool = False
    deleted_at: datetime | None = None
    ended_at: datetime | None = None
    end_reason: EndReason | None = None
    parent: str | None = None
    parent_seq: int | None = None
    cwd: str = ""
    settings: Settings = Settings()
    epoch: int = 0
    last_seq: int = 0
    messages: int = 0
    turns: int = 0
    tokens: Tokens = Tokens()
    cost: int | None = None
    cost_status: str = "unknown"
    context_used: int | None = None
    context_limit: int | None = None


class SessionPage(View, frozen=True, kw_only=True):
    """Sessions, pinned first, then by last message. `next` is what `after` takes for the next page."""

    sessions: list[Session]
    next: str | None = None


class Text(View, frozen=True, kw_only=True, tag="text", tag_field="type"):
    """`cut`: only the beginning; the message asked for alone has it all."""

    text: str
    html: str
    cut: bool = False


class Reasoning(View, frozen=True, kw_only=True, tag="reasoning", tag_field="type"):
    text: str
    html: str


class Notice(View, frozen=True, kw_only=True, tag="notice", tag_field="type"):
    text: str
    kind: str = ""


class ToolCall(View, frozen=True, kw_only=True, tag="tool_call", tag_field="type"):
    """`input` is the JSON text as the model wrote it; `main` its first short value, for one line."""

    id: str
    name: str
    input: str
    main: str = ""
    cut: bool = False


class ToolResult(View, frozen=True, kw_only=True, tag="tool_result", tag_field="type"):
    """`cut`: only the beginning; the message asked for alone has it all."""

    id: str
    name: str
    output: str
    failed: bool = False
    cut: bool = False


class Media(View, frozen=True, kw_only=True, tag="media", tag_field="type"):
    """A picture, sound or file. `kind` is image, audio or file."""

    media: str
    url: str
    kind: str
    mime: str = ""
    name: str = ""
    transcript: str = ""


Part: TypeAlias = Text | Reasoning | Notice | ToolCall | ToolResult | Media


class Message(View, frozen=True, kw_only=True):
    """One entry of a conversation; `id` is `<session>.<seq>`. `client` is the idempotency key it was sent with.
    `undone` is above zero for what an undo took back."""

    id: str
    session: str
    seq: int
    role: Role
    at: datetime
    parts: list[Part]
    turn: str | None = None
    epoch: int = 0
    author: str = ""
    surface: str = ""
    client: str = ""
    mark: Mark | None = None
    observed: bool = False
    undone: int = 0


class MessageWindow(View, frozen=True, kw_only=True):
    """Messages without a gap, oldest first. `earlier` and `later`: there are more in that direction."""

    messages: list[Message]
    earlier: bool = False
    later: bool = False


class Turn(View, frozen=True, kw_only=True):
    """One unit of work of an agent. `to` is where the answer goes beside the conversation."""

    id: str
    session: str
    state: TurnState
    mode: BusyMode
    created_at: datetime
    input_seq: int
    surface: str = ""
    attempts: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    cancelling: bool = False
    error: str | None = None
    merged_into: str | None = None
    to: str = ""


class DraftPart(View, frozen=True, kw_only=True):
    """A stretch of the answer that is being written: reasoning, text, or a picture or file. `blocks` are the html of its
    paragraphs."""

    thought: bool = False
    text: str = ""
    blocks: list[str] = []
    media: Media | None = None


class Draft(View, frozen=True, kw_only=True):
    """What a running turn has said since its last message. `n` counts the pieces it was made of."""

    turn: str
    n: int = 0
    parts: list[DraftPart] = []


class Waiting(View, frozen=True, kw_only=True):
    """A turn in the queue, with the message that it will answer."""

    turn: Turn
    message: Message


class Queue(View, frozen=True, kw_only=True):
    waiting: list[Waiting]


class Epoch(View, frozen=True, kw_only=True):
    """A stretch between two compactions: `summary` stands for all messages below `first_seq`."""

    number: int
    first_seq: int
    summary: str
    html: str
    created_at: datetime


class Composer(View, frozen=True, kw_only=True):
    """What was typed and not sent."""

    text: str = ""
    media: list[Media] = []


class Sent(View, frozen=True, kw_only=True):
    """What became of a message. `reply` is the answer of a slash command; it starts no turn. `session` is where to
    go on, which a command may change."""

    duplicate: bool
    session: str | None = None
    turn: str | None = None
    seq: int | None = None
    reply: str | None = None


class Forked(View, frozen=True, kw_only=True):
    """The new conversation, and what became of the message that was sent to it."""

    session: Session
    sent: Sent | None = None


class Stopped(View, frozen=True, kw_only=True):
    turn: Turn | None = None


class Undone(View, frozen=True, kw_only=True):
    """`text` is the last question that was taken back, for editing."""

    text: str


class Redone(View, frozen=True, kw_only=True):
    messages: int


class StoryEvent(View, frozen=True, kw_only=True):
    at: datetime
    what: str


class Story(View, frozen=True, kw_only=True):
    """All that happened to one message. `outcome` says how it ended."""

    message: str
    outcome: str
    events: list[StoryEvent]


class Branch(View, frozen=True, kw_only=True):
    """A conversation among its relatives. `parent` is what it was forked from; `after` what its lane had before a
    reset, for the reason `why`."""

    id: str
    title: str
    created_at: datetime
    active_at: datetime
    last_seq: int
    parent: str | None = None
    parent_seq: int | None = None
    activity: Activity = Activity.IDLE
    archived: bool = False
    ended_at: datetime | None = None
    end_reason: EndReason | None = None
    epochs: list[Epoch] = []
    after: str | None = None
    why: str = ""


class Lineage(View, frozen=True, kw_only=True):
    """The forks that a conversation belongs to and its neighbours in its lanes, oldest first."""

    branches: list[Branch]
