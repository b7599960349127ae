"""Types of API responses. Times are UTC, HTML is sanitised, and fields with their default value are left out of the JSON.

The docstrings are published in the OpenAPI document. So are the names, without the suffix `Schema`, which tells a type from
the core class that it shows.
"""

from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from keryx.core.deliveries import DeliveryState, WaitReason
from keryx.core.jobs import JobState
from keryx.core.messages import Mark, Role
from keryx.core.ports.setup import AgentEntry, ModelEntry, ProfileEntry, ToolServerEntry
from keryx.core.questions import Consent
from keryx.core.sessions import Activity, EndReason, ProgramState, SessionSettings, TagColour, TitleBy
from keryx.core.turns import BusyMode, TurnState
from keryx.core.usage import Tokens


class Schema(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base of response types."""


class SessionSchema(Schema, frozen=True, kw_only=True):
    """A conversation, in lists and alone. `platform` and `place` say where it began; `read` is the last message that
    the viewer has seen, known in lists and snapshots only: there is something unread if `last_seq` is above it. `tags`
    are ids, those of other people too. `erase_at`: when a deleted one is erased. `cost` is in millionths. Without `title_by`,
    `title` is the beginning of the first question."""

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
    tags: list[str] = []
    pinned: bool = False
    archived: bool = False
    # Not searched, exported or kept.
    temporary: bool = False
    deleted_at: datetime | None = None
    erase_at: datetime | None = None
    ended_at: datetime | None = None
    end_reason: EndReason | None = None
    parent: str | None = None
    parent_seq: int | None = None
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


class SessionPage(Schema, frozen=True, kw_only=True):
    """Sessions, pinned first, then by last message. `next` is what `after` takes for the next page."""

    sessions: list[SessionSchema]
    next: str | None = None


class PhraseSchema(Schema, frozen=True, kw_only=True):
    """A text of Keryx that clients may show in another language: its key in the reference of texts, and its fields."""

    key: str
    fields: dict[str, str] = {}


class TextSchema(Schema, frozen=True, kw_only=True, tag="text", tag_field="type"):
    """`cut`: only the beginning; the message asked for alone has it all."""

    text: str
    html: str
    cut: bool = False
    phrase: PhraseSchema | None = None


class ReasoningSchema(Schema, frozen=True, kw_only=True, tag="reasoning", tag_field="type"):
    """`cut`: only the beginning; the message asked for alone has it all."""

    text: str
    html: str
    cut: bool = False


class NoticeSchema(Schema, frozen=True, kw_only=True, tag="notice", tag_field="type"):
    text: str
    kind: str = ""
    phrase: PhraseSchema | None = None


class ToolCallSchema(Schema, frozen=True, kw_only=True, tag="tool_call", tag_field="type"):
    """`input` is the JSON text as the model wrote it; `main` its first short value, for one line."""

    id: str
    name: str
    input: str
    main: str = ""
    cut: bool = False


class ToolResultSchema(Schema, frozen=True, kw_only=True, tag="tool_result", tag_field="type"):
    """`cut`: only the beginning; the message asked for alone has it all."""

    id: str
    name: str
    output: str
    failed: bool = False
    cut: bool = False


class Media(Schema, frozen=True, kw_only=True, tag="media", tag_field="type"):
    """A picture, sound or file. `kind` is image, audio or file. `size` is in bytes; windows of messages have it."""

    media: str
    url: str
    kind: str
    mime: str = ""
    name: str = ""
    transcript: str = ""
    size: int = 0


PartSchema: TypeAlias = (
    TextSchema | ReasoningSchema | NoticeSchema | ToolCallSchema | ToolResultSchema | Media
)


class MessageSchema(Schema, frozen=True, kw_only=True):
    """One entry of a conversation; `id` is `<session>.<seq>`. `client` is the idempotency key it was sent with.
    `undone` is above zero for what an undo took back, and -1 for a message that was deleted alone."""

    id: str
    session: str
    seq: int
    role: Role
    at: datetime
    parts: list[PartSchema]
    turn: str | None = None
    epoch: int = 0
    author: str = ""
    surface: str = ""
    client: str = ""
    mark: Mark | None = None
    observed: bool = False
    undone: int = 0


class AnswerFactsSchema(Schema, frozen=True, kw_only=True):
    """How the answer of a finished turn came about: `model` wrote it in `seconds`. `cost` is in millionths; it is left out
    where no price is known."""

    turn: str
    model: str = ""
    seconds: float | None = None
    tokens: Tokens = Tokens()
    cost: int | None = None
    estimated: bool = False


class Version(Schema, frozen=True, kw_only=True):
    """A version of a question: its turn, and the number of its message."""

    turn: str
    seq: int


class Versions(Schema, frozen=True, kw_only=True):
    """`questions`: for each question that was edited or asked again, its versions, oldest first. One of them is in use.
    `hidden`: the values of `undone` of messages that belong to the others."""

    questions: list[list[Version]] = []
    hidden: list[int] = []


class MessageWindow(Schema, frozen=True, kw_only=True):
    """Messages without a gap, oldest first. `earlier` and `later`: there are more in that direction. `answers` belong to these
    messages, `versions` to the whole conversation."""

    messages: list[MessageSchema]
    earlier: bool = False
    later: bool = False
    answers: list[AnswerFactsSchema] = []
    versions: Versions = Versions()


class Passage(Schema, frozen=True, kw_only=True):
    """A message that has what was searched for. `html` is the passage with `<mark>` around it. `count` is how often its text
    has one of the words, at least 1: what was searched for may be in what a tool did."""

    seq: int
    role: Role
    at: datetime
    html: str
    count: int


class Passages(Schema, frozen=True, kw_only=True):
    """What was found in one conversation, from its beginning on. `words` are the texts that are marked, as they are written
    there, in lower case. With `more`, there are further ones: search for something rarer."""

    passages: list[Passage]
    words: list[str] = []
    more: bool = False


class QuestionLine(Schema, frozen=True, kw_only=True):
    """The beginning of a question."""

    seq: int
    at: datetime
    text: str


class Outline(Schema, frozen=True, kw_only=True):
    """The questions of a conversation, oldest first. `earlier`: there are more before these."""

    questions: list[QuestionLine]
    earlier: bool = False


class ShareSchema(Schema, frozen=True, kw_only=True):
    """A link to a conversation. It shows messages up to number `through`."""

    id: str
    through: int
    created_at: datetime


class Shares(Schema, frozen=True, kw_only=True):
    shares: list[ShareSchema]


class NewShare(Schema, frozen=True, kw_only=True):
    """`address` is shown this once: only a hash of what is in it is stored."""

    share: ShareSchema
    address: str


class PushStatus(Schema, frozen=True, kw_only=True):
    """`key` is what a browser gives its push service; empty where nothing is sent, for the reason in `problem`."""

    key: str
    problem: str = ""


class PushSubscribed(Schema, frozen=True, kw_only=True):
    """A browser that is told of what happens while the page is closed."""

    id: str
    with_text: bool


class Imported(Schema, frozen=True, kw_only=True):
    """What was added from a file of `program`. `losses`: what it has that could not be kept."""

    program: str
    created: int = 0
    extended: int = 0
    unchanged: int = 0
    messages: int = 0
    losses: list[str] = []


class FolderFiles(Schema, frozen=True, kw_only=True):
    """Paths below the folder of a conversation."""

    files: list[str]


class TurnSchema(Schema, frozen=True, kw_only=True):
    """One unit of work of an agent. `to` is where the answer goes beside the conversation. `held_until`: a queued turn waits
    for the limit of the model `held_by` to reset; a change of the session's model lets it begin now."""

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
    held_until: datetime | None = None
    held_by: str = ""


class DraftPart(Schema, frozen=True, kw_only=True):
    """A stretch of the answer that is being written: reasoning, text, or a picture or file. `blocks` are the html of its
    paragraphs."""

    thought: bool = False
    text: str = ""
    blocks: list[str] = []
    media: Media | None = None


class Draft(Schema, frozen=True, kw_only=True):
    """What a running turn has said since its last message. `n` counts the pieces it was made of."""

    turn: str
    n: int = 0
    parts: list[DraftPart] = []


class Waiting(Schema, frozen=True, kw_only=True):
    """A turn in the queue, with the message that it will answer."""

    turn: TurnSchema
    message: MessageSchema


class Queue(Schema, frozen=True, kw_only=True):
    waiting: list[Waiting]


class EpochSchema(Schema, frozen=True, kw_only=True):
    """A stretch between two compactions: `summary` stands for all messages below `first_seq`."""

    number: int
    first_seq: int
    summary: str
    html: str
    created_at: datetime


class Composer(Schema, frozen=True, kw_only=True):
    """What was typed and not sent."""

    text: str = ""
    media: list[Media] = []


class Sent(Schema, frozen=True, kw_only=True):
    """What became of a message. `reply` is the answer of a slash command; it starts no turn. `session` is where to
    go on, which a command may change."""

    duplicate: bool
    session: str | None = None
    turn: str | None = None
    seq: int | None = None
    reply: str | None = None


class Forked(Schema, frozen=True, kw_only=True):
    """The new conversation, and what became of the message that was sent to it."""

    session: SessionSchema
    sent: Sent | None = None


class Stopped(Schema, frozen=True, kw_only=True):
    turn: TurnSchema | None = None


class Pruned(Schema, frozen=True, kw_only=True):
    """How many conversations were archived or deleted. With `more`, some are left: ask again."""

    count: int
    more: bool = False


class PrunePreview(Schema, frozen=True, kw_only=True):
    """What would go, oldest first. `count` is how many there are, up to a thousand. Given `before` of the preview, what is
    used after it stays."""

    count: int
    sessions: list[SessionSchema]
    before: datetime


class ChangedSessions(Schema, frozen=True, kw_only=True):
    """The conversations as they are now; those that were erased are left out."""

    sessions: list[SessionSchema]


class Undone(Schema, frozen=True, kw_only=True):
    """`turns` is how many were taken back; `text` is the last question of them, for editing."""

    turns: int
    text: str


class Redone(Schema, frozen=True, kw_only=True):
    messages: int


class StoryEvent(Schema, frozen=True, kw_only=True):
    at: datetime
    what: str


class Story(Schema, frozen=True, kw_only=True):
    """All that happened to one message. `outcome` says how it ended."""

    message: str
    outcome: str
    events: list[StoryEvent]


class Branch(Schema, frozen=True, kw_only=True):
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
    epochs: list[EpochSchema] = []
    after: str | None = None
    why: str = ""


class Lineage(Schema, frozen=True, kw_only=True):
    """The forks that a conversation belongs to and its neighbours in its lanes, oldest first."""

    branches: list[Branch]


class Transcription(Schema, frozen=True, kw_only=True):
    text: str


class Preferences(Schema, frozen=True, kw_only=True):
    """The viewer's preferences for the page: kept on the server, the same in every browser. `model`: what new conversations
    begin with; empty for the one in force. `muted`: what a browser does not tell the viewer of; it tells the rest, with
    a `sound` if wanted. `conversations`: those of which it tells all or none."""

    theme: str = "system"
    send_with: str = "enter"
    details: bool = False
    model: str = ""
    muted: list[str] = []
    sound: bool = False
    # The guided start was left or finished.
    guided: bool = False
    conversations: dict[str, str] = {}


class Who(Schema, frozen=True, kw_only=True):
    """The person who looks. `signed_in`: by a cookie, which can be given up. `password`: signing in is required here."""

    principal: str
    profile: str
    operator: bool
    signed_in: bool = False
    password: bool = False
    # What a user signed in with; empty for the operator.
    name: str = ""


class SignedIn(Schema, frozen=True, kw_only=True):
    """A browser that is signed in. `current`: the one that asks."""

    id: str
    created_at: datetime
    seen_at: datetime
    expires_at: datetime
    browser: str = ""
    current: bool = False


class SignIns(Schema, frozen=True, kw_only=True):
    sign_ins: list[SignedIn]


class KeySchema(Schema, frozen=True, kw_only=True):
    """A key with which a program calls the API. It has the rights of the person."""

    id: str
    name: str
    principal: str
    created_at: datetime
    # The name of the person, if it is known.
    person: str = ""
    # To the hour.
    seen_at: datetime | None = None
    # It may say something in a conversation by a tool of MCP, without a question to that person.
    may_speak: bool = False


class Keys(Schema, frozen=True, kw_only=True):
    keys: list[KeySchema]


class NewKey(Schema, frozen=True, kw_only=True):
    """`secret` is shown this once: only a hash of it is stored."""

    key: KeySchema
    secret: str


class PairingSchema(Schema, frozen=True, kw_only=True):
    """Somebody who waits to be let in."""

    id: str
    platform: str
    person: str
    created_at: datetime
    expires_at: datetime
    name: str = ""


class GrantSchema(Schema, frozen=True, kw_only=True):
    """Somebody who was let in."""

    id: str
    platform: str
    person: str
    at: datetime
    name: str = ""
    by: str = ""
    operator: bool = False


class Pairings(Schema, frozen=True, kw_only=True):
    waiting: list[PairingSchema]
    granted: list[GrantSchema]


class DeliverySchema(Schema, frozen=True, kw_only=True):
    """One answer on its way to a platform. In the list of deliveries, `waits` is why a ready one is not sent at once, and
    `waits_until` how long at least."""

    id: str
    target: str
    platform: str
    text: str
    state: DeliveryState
    attempts: int
    created_at: datetime
    session: str | None = None
    turn: str | None = None
    parts_sent: int = 0
    not_before: datetime | None = None
    error: str | None = None
    sent_at: datetime | None = None
    account: str = ""
    waits: WaitReason | None = None
    waits_until: datetime | None = None


class Deliveries(Schema, frozen=True, kw_only=True):
    deliveries: list[DeliverySchema]


class OptionSchema(Schema, frozen=True, kw_only=True):
    id: str
    label: str
    consent: Consent = Consent.OTHER
    phrase: PhraseSchema | None = None


class QuestionSchema(Schema, frozen=True, kw_only=True):
    """What an agent asks a person. Without options the answer is free text. `state`: open, answered, expired or
    cancelled. `note`: what has to be known to answer, such as that the program that asked is gone."""

    id: str
    session: str
    turn: str
    title: str
    phrase: PhraseSchema | None = None
    state: str
    asked_at: datetime
    detail: str = ""
    tool: str = ""
    options: list[OptionSchema] = []
    answer: str | None = None
    note: str = ""
    expires_at: datetime | None = None


class Questions(Schema, frozen=True, kw_only=True):
    questions: list[QuestionSchema]


class ProjectSchema(Schema, frozen=True, kw_only=True):
    id: str
    name: str
    created_at: datetime
    colour: str = ""
    sessions: int = 0


class Projects(Schema, frozen=True, kw_only=True):
    projects: list[ProjectSchema]


class TagSchema(Schema, frozen=True, kw_only=True):
    id: str
    name: str
    created_at: datetime
    colour: TagColour
    sessions: int = 0


class Tags(Schema, frozen=True, kw_only=True):
    tags: list[TagSchema]


class PersonName(Schema, frozen=True, kw_only=True):
    id: str
    name: str


class PersonNames(Schema, frozen=True, kw_only=True):
    people: list[PersonName]


class Hit(Schema, frozen=True, kw_only=True):
    """Something found: a message, or a title (`seq` is left out). `html` is the passage with `<mark>` around hits."""

    session: SessionSchema
    html: str
    text: str
    seq: int | None = None
    role: Role | None = None
    # What became of the message, such as `withdrawn`.
    mark: Mark | None = None
    at: datetime | None = None
    before: str = ""
    after: str = ""


class Found(Schema, frozen=True, kw_only=True):
    hits: list[Hit]
    more: bool = False


class LaneSchema(Schema, frozen=True, kw_only=True):
    """A place to talk: a chat, a group member, a thread. `id` names it in addresses."""

    id: str
    key: str
    platform: str
    chat_type: str
    shared: bool
    suspended: bool
    created_at: datetime
    active_at: datetime
    session: str | None = None
    title: str = ""
    place: str = ""
    person: str = ""
    topic: str = ""
    # What the platform calls the chat, and the account that hears it.
    chat: str = ""
    account: str = ""
    expires_at: datetime | None = None


class Lanes(Schema, frozen=True, kw_only=True):
    lanes: list[LaneSchema]


class AnsweringSchema(Schema, frozen=True, kw_only=True):
    """Who answers in a conversation: `agent`, unless its settings name another one, and the models of each agent, the default
    first. An agent without models, or whose models are not known yet, is left out."""

    agent: str
    models: dict[str, list[str]] = {}


class Snapshot(Schema, frozen=True, kw_only=True):
    """A conversation as one read saw it. The stream from `cursor` misses nothing and repeats nothing."""

    session: SessionSchema
    messages: list[MessageSchema]
    cursor: str
    earlier: bool = False
    later: bool = False
    running: TurnSchema | None = None
    draft: Draft | None = None
    queue: list[Waiting] = []
    deliveries: list[DeliverySchema] = []
    epochs: list[EpochSchema] = []
    questions: list[QuestionSchema] = []
    composer: Composer = Composer()
    lanes: list[LaneSchema] = []
    answers: list[AnswerFactsSchema] = []
    versions: Versions = Versions()
    answering: AnsweringSchema


class Move(Schema, frozen=True, kw_only=True):
    at: datetime
    why: str
    session: str | None = None
    title: str = ""


class LaneHistory(Schema, frozen=True, kw_only=True):
    """A lane, and the conversations it had, newest first."""

    lane: LaneSchema
    moves: list[Move]


class Running(Schema, frozen=True, kw_only=True):
    """A row of the board: a turn that runs or waits, its conversation, and what it does. `step` is the tool it called
    last."""

    turn: TurnSchema
    session: SessionSchema
    asked: str = ""
    step: str = ""
    question: QuestionSchema | None = None


class Board(Schema, frozen=True, kw_only=True):
    turns: list[Running]


class UsageRow(Schema, frozen=True, kw_only=True):
    """What one day, model and surface used. `cost` is in millionths; null when no price is known."""

    day: str
    model: str
    surface: str
    turns: int = 0
    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: int | None = None
    estimated: bool = False


class Spent(Schema, frozen=True, kw_only=True):
    """What one person or conversation used in the same time: tokens of every kind, over so many calls of a model."""

    id: str
    name: str
    calls: int
    tokens: int
    cost: int | None = None
    estimated: bool = False


class UsageSchema(Schema, frozen=True, kw_only=True):
    """All of it by day, and the people and conversations that used most."""

    days: list[UsageRow]
    people: list[Spent]
    sessions: list[Spent]


class ModelSchema(Schema, frozen=True, kw_only=True):
    name: str
    host: str = ""
    context: int | None = None
    images: bool = False
    default: bool = False


class ModelsSchema(Schema, frozen=True, kw_only=True):
    models: list[ModelSchema]


class Command(Schema, frozen=True, kw_only=True):
    """A slash command, for completion. `busy`: may be given while a turn runs."""

    name: str
    help: str
    usage: str = ""
    aliases: list[str] = []
    busy: bool = True


class Setting(Schema, frozen=True, kw_only=True):
    """A setting in force, and where it comes from. Secrets are not shown."""

    name: str
    value: str
    source: str


class AllSettings(Schema, frozen=True, kw_only=True):
    settings: list[Setting]


class Connection(Schema, frozen=True, kw_only=True):
    """How an account stands with its platform: `link` is connecting, connected, standby, throttled, refused or broken. The counters
    run since the process began."""

    platform: str
    account: str
    link: str
    detail: str = ""
    since: datetime | None = None
    received: int = 0
    sent: int = 0
    failed: int = 0
    throttled: int = 0
    # Requests to the hook that were not taken in: not signed with the secret, malformed or too large.
    rejected: int = 0


class Connections(Schema, frozen=True, kw_only=True):
    connections: list[Connection]


class SetupFieldSchema(Schema, frozen=True, kw_only=True):
    """One answer that a setup needs. `secret` is not to be shown while it is typed; `flag` takes "yes" or nothing. `unless` names fields
    of which any answer makes this one needless, `when` the answers of other fields that make it needed."""

    name: str
    label: str
    help: str = ""
    example: str = ""
    default: str = ""
    choices: list[str] = []
    unless: list[str] = []
    when: dict[str, str] = {}
    secret: bool = False
    optional: bool = False
    flag: bool = False


class PlatformSetupSchema(Schema, frozen=True, kw_only=True):
    """How a platform is connected. `intro` tells how to get the answers, `accounts` are the tables that keryx.toml has for it,
    `allow_example` is the id of a person as the platform writes it. With `error` it cannot be set up now."""

    platform: str
    title: str
    summary: str = ""
    intro: str = ""
    fields: list[SetupFieldSchema] = []
    allow_example: str = ""
    accounts: list[str] = []
    error: str = ""


class PlatformSetups(Schema, frozen=True, kw_only=True):
    setups: list[PlatformSetupSchema]


class RemovedAccountSchema(Schema, frozen=True, kw_only=True):
    """An account that is connected no more after a restart, unless `variables` of the server connect it still."""

    account: str
    settings: str
    variables: list[str] = []


class SetupResult(Schema, frozen=True, kw_only=True):
    """What a setup has found and written: `table` in the file `settings`, and the people who may talk. It takes effect when Keryx is
    started again. `shown` is what the setup had to say meanwhile, `details` what the platform told."""

    table: str
    settings: str
    summary: str
    allow: list[str] = []
    steps: list[str] = []
    note: str = ""
    shown: list[str] = []
    details: dict[str, Any] = {}


class Start(Schema, frozen=True, kw_only=True):
    """All that the page needs to begin. The stream from `cursor` misses nothing. `open` is the conversation that was asked
    for, if there is such a one. `profiles` are those that the viewer may choose: `/p/<profile>` before a path chooses one."""

    who: Who
    version: str
    agent: str
    cursor: str
    sessions: SessionPage
    projects: list[ProjectSchema]
    # The first conversations of projects that have more than are among `sessions`.
    sections: dict[str, SessionPage]
    # Up to 100 conversations with something unread, among the 2,000 that were used last.
    unread: list[str]
    tags: list[TagSchema]
    turns: list[TurnSchema]
    questions: list[QuestionSchema]
    deliveries: int
    models: list[ModelSchema]
    commands: list[Command]
    preferences: Preferences
    composer: Composer
    connections: list[Connection]
    # In new conversations.
    answering: AnsweringSchema
    profiles: list[str] = []
    open: Snapshot | None = None
    # Where others reach this Keryx; empty if conversations cannot be shared.
    public_address: str = ""
    # Of costs.
    currency: str = "USD"
    # Whether a model is configured that writes down what is said, and one that reads texts aloud.
    transcribes: bool = False
    speaks: bool = False
    # Those that a conversation may be answered by, the one in force first.
    agents: list[str] = []


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, and in `detail` what to do next. `after` says in how many seconds to try again."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    after: int | None = None
    # The field of a form that is wrong.
    field: str = ""


class Run(Schema, frozen=True, kw_only=True):
    """What became of one due time of a job. `status` is how the answer stands, `delivery` how its way to people stands;
    `silent` means that there was nothing to send."""

    due_at: datetime
    at: datetime
    status: str
    delivery: str = ""
    session: str | None = None
    turn: str | None = None
    error: str | None = None
    deliveries: list[DeliverySchema] = []


class JobSchema(Schema, frozen=True, kw_only=True):
    """A prompt that runs by a schedule. `written` is the schedule as it can be written in `zone`. `to` are the places that its
    answers are sent to; `last` is its last run."""

    id: str
    name: str
    prompt: str
    schedule: str
    written: str
    zone: str
    to: list[str]
    state: JobState
    owner: str
    created_at: datetime
    next_at: datetime | None = None
    why: str = ""
    last: Run | None = None


class Jobs(Schema, frozen=True, kw_only=True):
    jobs: list[JobSchema]


class JobRuns(Schema, frozen=True, kw_only=True):
    """A job with its last runs, newest first."""

    job: JobSchema
    runs: list[Run]


class ProgramStatus(Schema, frozen=True, kw_only=True):
    """The program that keeps a conversation, empty if none does, and what it does with it. `refusal` says why the conversation
    cannot be continued here now; with `can_take_over` it can all the same, if a person wants it."""

    program: str = ""
    title: str = ""
    machine: str = ""
    state: ProgramState = ProgramState.IDLE
    refusal: str = ""
    can_take_over: bool = False


class WatchedFiles(Schema, frozen=True, kw_only=True):
    """Paths, escaped, each with the stamp that the file had."""

    files: dict[str, str]


class PushedRecords(Schema, frozen=True, kw_only=True):
    """Hashes of the records that are here, as hexadecimal numbers."""

    fingerprint: str = ""
    records: list[str] = []


class Pushed(Schema, frozen=True, kw_only=True):
    """What was added."""

    created: int = 0
    extended: int = 0
    messages: int = 0
    usage: int = 0


class SchedulePreview(Schema, frozen=True, kw_only=True):
    """What a schedule means, and when it is due next."""

    schedule: str
    meaning: str
    zone: str
    next: list[datetime]


class SetupOverview(Schema, frozen=True, kw_only=True):
    """What is configured now, in the file `path`. `restart`: it is not all in force yet. `password`: the page asks for one.
    `problem`: why the file cannot be used as it is."""

    path: str
    models: list[ModelEntry]
    tools: list[ToolServerEntry]
    agents: list[AgentEntry]
    profiles: list[ProfileEntry]
    restart: bool = False
    password: bool = False
    problem: str = ""


class PersonIdentity(Schema, frozen=True, kw_only=True):
    """A way in which a person is known. `grant` is the id of the grant that lets them in, if there is one."""

    platform: str
    person: str
    name: str = ""
    grant: str = ""
    operator: bool = False


class PersonSchema(Schema, frozen=True, kw_only=True):
    """A person who has talked, or can sign in as `user`."""

    id: str
    name: str
    since: datetime
    identities: list[PersonIdentity]
    lanes: int = 0
    sessions: int = 0
    user: str = ""


class People(Schema, frozen=True, kw_only=True):
    people: list[PersonSchema]


class LastingConsentSchema(Schema, frozen=True, kw_only=True):
    """What was allowed or denied for good in a conversation. `rule` is what it covers."""

    session: str
    title: str
    rule: str
    allowed: bool
    at: datetime
    by: str = ""


class Consents(Schema, frozen=True, kw_only=True):
    consents: list[LastingConsentSchema]


class UserSchema(Schema, frozen=True, kw_only=True):
    """Somebody who can sign in on the page, beside the operator."""

    name: str
    principal: str
    created_at: datetime
    passkeys: int = 0
    seen_at: datetime | None = None


class Users(Schema, frozen=True, kw_only=True):
    users: list[UserSchema]


class PasskeySchema(Schema, frozen=True, kw_only=True):
    id: str
    name: str
    created_at: datetime
    seen_at: datetime | None = None


class Passkeys(Schema, frozen=True, kw_only=True):
    """`available`: this address can have passkeys, which need a name and an encrypted connection, or localhost."""

    passkeys: list[PasskeySchema]
    available: bool = False


class PasskeyOptions(Schema, frozen=True, kw_only=True):
    """What a browser needs to make or use a passkey, in base64url."""

    challenge: str
    host: str
    user: str = ""
    user_name: str = ""
    known: list[str] = []
