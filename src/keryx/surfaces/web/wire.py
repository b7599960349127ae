"""Wire: what the HTTP API says of all that lies around conversations, and of the place itself."""

from datetime import datetime

import msgspec

from keryx.core.deliveries import DeliveryState
from keryx.core.jobs import JobState
from keryx.core.messages import Role
from keryx.core.questions import Consent
from keryx.surfaces.web import people, talk
from keryx.surfaces.web.talk import View


class Delivery(View, frozen=True, kw_only=True):
    """One answer on its way to a platform."""

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


class Deliveries(View, frozen=True, kw_only=True):
    deliveries: list[Delivery]


class Option(View, frozen=True, kw_only=True):
    id: str
    label: str
    consent: Consent = Consent.OTHER


class Question(View, frozen=True, kw_only=True):
    """What an agent asks a person. Without options the answer is free text. `state`: open, answered, expired or
    cancelled. `note`: what has to be known to answer, such as that the program that asked is gone."""

    id: str
    session: str
    turn: str
    title: str
    state: str
    asked_at: datetime
    detail: str = ""
    tool: str = ""
    options: list[Option] = []
    answer: str | None = None
    note: str = ""
    expires_at: datetime | None = None


class Questions(View, frozen=True, kw_only=True):
    questions: list[Question]


class Project(View, frozen=True, kw_only=True):
    id: str
    name: str
    created_at: datetime
    colour: str = ""
    sessions: int = 0


class Projects(View, frozen=True, kw_only=True):
    projects: list[Project]


class Hit(View, frozen=True, kw_only=True):
    """Something found: a message, or a title (`seq` is left out). `html` is the passage with `<mark>` around hits."""

    session: talk.Session
    html: str
    text: str
    seq: int | None = None
    role: Role | None = None
    at: datetime | None = None
    before: str = ""
    after: str = ""


class Found(View, frozen=True, kw_only=True):
    hits: list[Hit]
    more: bool = False


class Lane(View, frozen=True, kw_only=True):
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
    expires_at: datetime | None = None


class Lanes(View, frozen=True, kw_only=True):
    lanes: list[Lane]


class Snapshot(View, frozen=True, kw_only=True):
    """A conversation as one read saw it. The stream from `cursor` misses nothing and repeats nothing."""

    session: talk.Session
    messages: list[talk.Message]
    cursor: str
    earlier: bool = False
    later: bool = False
    running: talk.Turn | None = None
    draft: talk.Draft | None = None
    queue: list[talk.Waiting] = []
    deliveries: list[Delivery] = []
    epochs: list[talk.Epoch] = []
    questions: list[Question] = []
    composer: talk.Composer = talk.Composer()
    lanes: list[Lane] = []


class Move(View, frozen=True, kw_only=True):
    at: datetime
    why: str
    session: str | None = None
    title: str = ""


class LaneHistory(View, frozen=True, kw_only=True):
    """A lane, and the conversations it had, newest first."""

    lane: Lane
    moves: list[Move]


class Running(View, frozen=True, kw_only=True):
    """A row of the board: a turn that runs or waits, its conversation, and what it does. `step` is the tool it called
    last."""

    turn: talk.Turn
    session: talk.Session
    asked: str = ""
    step: str = ""
    question: Question | None = None


class Board(View, frozen=True, kw_only=True):
    turns: list[Running]


class UsageRow(View, frozen=True, kw_only=True):
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


class Spent(View, frozen=True, kw_only=True):
    """What one person or conversation used in the same time: tokens of every kind, over so many calls of a model."""

    id: str
    name: str
    calls: int
    tokens: int
    cost: int | None = None
    estimated: bool = False


class Usage(View, frozen=True, kw_only=True):
    """All of it by day, and the people and conversations that used most."""

    days: list[UsageRow]
    people: list[Spent]
    sessions: list[Spent]


class Model(View, frozen=True, kw_only=True):
    name: str
    host: str = ""
    context: int | None = None
    images: bool = False
    default: bool = False


class Models(View, frozen=True, kw_only=True):
    models: list[Model]


class Command(View, frozen=True, kw_only=True):
    """A slash command, for completion. `busy`: may be given while a turn runs."""

    name: str
    help: str
    usage: str = ""
    aliases: list[str] = []
    busy: bool = True


class Setting(View, frozen=True, kw_only=True):
    """A setting in force, and where it comes from. Secrets are not shown."""

    name: str
    value: str
    source: str


class AllSettings(View, frozen=True, kw_only=True):
    settings: list[Setting]


class Connection(View, frozen=True, kw_only=True):
    """How an account stands with its platform: `link` is connecting, connected, throttled, refused or broken. The counters
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


class Connections(View, frozen=True, kw_only=True):
    connections: list[Connection]


class Start(View, frozen=True, kw_only=True):
    """All that the page needs to begin. The stream from `cursor` misses nothing. `open` is the conversation that was asked
    for, if there is such a one."""

    who: people.Who
    version: str
    agent: str
    cursor: str
    sessions: talk.SessionPage
    projects: list[Project]
    turns: list[talk.Turn]
    questions: list[Question]
    deliveries: int
    models: list[Model]
    commands: list[Command]
    preferences: people.Preferences
    composer: talk.Composer
    connections: list[Connection]
    open: Snapshot | None = None


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, and in `detail` what to do next. `after` says in how many seconds to try again."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    after: int | None = None


class Run(View, frozen=True, kw_only=True):
    """What became of one due time of a job. `status` is how the answer stands, `delivery` how its way to people stands;
    `silent` means that there was nothing to send."""

    due_at: datetime
    at: datetime
    status: str
    delivery: str = ""
    session: str | None = None
    turn: str | None = None
    error: str | None = None
    deliveries: list[Delivery] = []


class Job(View, frozen=True, kw_only=True):
    """A prompt that runs by a schedule. `to` are the places that its answers are sent to; `last` is its last run."""

    id: str
    name: str
    prompt: str
    schedule: str
    zone: str
    to: list[str]
    state: JobState
    owner: str
    created_at: datetime
    next_at: datetime | None = None
    why: str = ""
    last: Run | None = None


class Jobs(View, frozen=True, kw_only=True):
    jobs: list[Job]


class JobRuns(View, frozen=True, kw_only=True):
    """A job with its last runs, newest first."""

    job: Job
    runs: list[Run]
