"""Types of stream events. Each is idempotent: a value with an id replaces the one that had it before."""

from typing import TypeAlias

from keryx.surfaces.web import schema
from keryx.surfaces.web.schema import Schema


class SessionEvent(Schema, frozen=True, kw_only=True, tag="session", tag_field="type"):
    """A conversation is new or has changed: its place in the list, its state, its counts. Comes before the messages
    and turns that changed it. Without `read`: that is the viewer's own."""

    session: schema.SessionSchema


class GoneEvent(Schema, frozen=True, kw_only=True, tag="gone", tag_field="type"):
    """A conversation was deleted or erased."""

    session: str


class RevisedEvent(Schema, frozen=True, kw_only=True, tag="revised", tag_field="type"):
    """An undo, a redo or a compaction changed marks of many messages: ask for the shown ones again."""

    session: str


class MessageEvent(Schema, frozen=True, kw_only=True, tag="message", tag_field="type"):
    """A message is new or was edited. One of the agent's takes the place of its turn's draft, unless its mark is
    `late`."""

    message: schema.MessageSchema


class DraftEvent(Schema, frozen=True, kw_only=True, tag="draft", tag_field="type"):
    """A running turn has said more.

    `text` is added to part number `part` of the draft (a new one if there are not so many yet); with `fresh` the whole
    draft is forgotten first. `n` is the number of the last piece: an event with `n` not above the known one is old.
    With `blocks`, the html blocks of that part from number `keep` on are replaced by these, which show all text up to
    here. With `media` the part is a picture or file, and nothing else. Without `blocks`, the text follows at the end of the last block, until the next event shows it properly."""

    session: str
    turn: str
    n: int
    part: int
    text: str = ""
    thought: bool = False
    fresh: bool = False
    keep: int = 0
    blocks: list[str] | None = None
    media: schema.Media | None = None


class TurnEvent(Schema, frozen=True, kw_only=True, tag="turn", tag_field="type"):
    """A turn was queued, has begun, is asked to stop, or has ended. Once it does not run, its draft is over."""

    turn: schema.TurnSchema
    answer: schema.AnswerFactsSchema | None = None


class DeliveryEvent(Schema, frozen=True, kw_only=True, tag="delivery", tag_field="type"):
    delivery: schema.DeliverySchema


class LaneEvent(Schema, frozen=True, kw_only=True, tag="lane", tag_field="type"):
    lane: schema.LaneSchema


class ProjectEvent(Schema, frozen=True, kw_only=True, tag="project", tag_field="type"):
    project: schema.ProjectSchema


class TagEvent(Schema, frozen=True, kw_only=True, tag="tag", tag_field="type"):
    tag: schema.TagSchema


class TagGoneEvent(Schema, frozen=True, kw_only=True, tag="tag_gone", tag_field="type"):
    tag: str


class ProjectGoneEvent(Schema, frozen=True, kw_only=True, tag="project_gone", tag_field="type"):
    project: str


class QuestionEvent(Schema, frozen=True, kw_only=True, tag="question", tag_field="type"):
    """An agent asks, or a question is over: its `state` says which."""

    question: schema.QuestionSchema


class AccessEvent(Schema, frozen=True, kw_only=True, tag="access", tag_field="type"):
    """Somebody asks to be let in, was let in, or no longer is: `what` says which. Told to operators."""

    platform: str
    what: str


class JobEvent(Schema, frozen=True, kw_only=True, tag="job", tag_field="type"):
    """A job was added, paused, begun, ended or removed: `what` says which. Ask for the jobs again."""

    job: str
    what: str


class ReadEvent(Schema, frozen=True, kw_only=True, tag="read", tag_field="type"):
    """The viewer has read a conversation up to a message, here or in another tab."""

    session: str
    seq: int


class ExpiredEvent(Schema, frozen=True, kw_only=True, tag="expired", tag_field="type"):
    """The cursor is too old. Nothing follows: load again, and follow from the new cursor."""

    detail: str


Event: TypeAlias = (
    SessionEvent
    | GoneEvent
    | RevisedEvent
    | MessageEvent
    | DraftEvent
    | TurnEvent
    | DeliveryEvent
    | LaneEvent
    | ProjectEvent
    | ProjectGoneEvent
    | TagEvent
    | TagGoneEvent
    | QuestionEvent
    | AccessEvent
    | JobEvent
    | ReadEvent
    | ExpiredEvent
)
