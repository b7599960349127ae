"""The export format: a session as lines of JSON that another store can import, and the progress callback of long exports and copies."""

import base64
import hashlib
from datetime import datetime
from typing import Annotated, Protocol, TypeAlias, cast

import msgspec

from keryx.core import codec
from keryx.core.deliveries import Target
from keryx.core.ids import PrincipalId, ProfileId, ProjectId, SessionId, TurnId
from keryx.core.messages import REMOVED, Mark, Message, Notice, Parts, Role
from keryx.core.sessions import EndReason, SessionSettings, TagColour, TitleBy
from keryx.core.source import Source
from keryx.core.turns import BusyMode, TurnState
from keryx.core.usage import Tokens

FORMAT = "keryx-sessions"
VERSION = 1
LOST_KIND = "lost"
LOST_TEXT = "This message was lost: its line in the imported file could not be read."

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
Ordinal = Annotated[int, msgspec.Meta(ge=1, le=1 << 60)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
_Id = Annotated[SessionId, msgspec.Meta(pattern=r"\A[0-9a-z]{18}\Z")]
_TurnId = Annotated[TurnId, msgspec.Meta(pattern=r"\A[!-~]{1,80}\Z")]


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="header", omit_defaults=True):
    format: str = ""
    version: int = 0
    redacted: bool = False


class EpochRecord(msgspec.Struct, frozen=True, kw_only=True):
    number: Ordinal
    first_seq: Count
    summary: str
    created_at: Moment


class ProjectRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: ProjectId
    name: str
    colour: str
    created_at: Moment


class TagRecord(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    colour: TagColour


class VersionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that is a version of a question; `first` is the turn of its first version."""

    turn: _TurnId
    first: _TurnId
    seq: Ordinal


class SessionRecord(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="session", omit_defaults=True
):
    id: _Id
    profile: ProfileId
    owner: PrincipalId
    surface: str
    created_at: Moment
    active_at: Moment
    title: str = ""
    title_by: TitleBy | None = None
    origin: Source | None = None
    parent: _Id | None = None
    parent_seq: Count | None = None
    project: ProjectRecord | None = None
    # Those of its owner.
    tags: tuple[TagRecord, ...] = ()
    pinned: bool = False
    archived: bool = False
    ended_at: Moment | None = None
    end_reason: EndReason | None = None
    cwd: str = ""
    settings: SessionSettings = SessionSettings()
    epoch: Count = 0
    last_seq: Count = 0
    messages: Count = 0
    turns: Count = 0
    undo: Count = 0
    tokens: Tokens = Tokens()
    cost: Count | None = None
    cost_status: str = "unknown"
    context_used: Count | None = None
    context_limit: Count | None = None
    aliases: tuple[str, ...] = ()
    epochs: tuple[EpochRecord, ...] = ()
    versions: tuple[VersionRecord, ...] = ()


class MessageRecord(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="message", omit_defaults=True
):
    session: _Id
    seq: Ordinal
    role: Role
    parts: Parts
    at: Moment
    turn: _TurnId | None = None
    epoch: Count = 0
    author: str = ""
    surface: str = ""
    platform_id: str = ""
    mark: Mark | None = None
    observed: bool = False
    undone: Annotated[int, msgspec.Meta(ge=REMOVED, le=1 << 60)] = 0
    exact: str | None = None

    @property
    def lost(self) -> bool:
        """Whether this replaces a message that could not be read."""
        return self.parts == (Notice(LOST_TEXT, LOST_KIND),)


class TurnRecord(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="turn", omit_defaults=True
):
    session: _Id
    id: _TurnId
    asker: PrincipalId
    state: TurnState
    mode: BusyMode
    input_seq: Count
    created_at: Moment
    surface: str = ""
    attempts: Count = 0
    started_at: Moment | None = None
    finished_at: Moment | None = None
    interrupted_at: Moment | None = None
    reply: Target | None = None
    error: str | None = None
    merged_into: _TurnId | None = None


class UsageRecord(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="usage", omit_defaults=True
):
    session: _Id
    turn: _TurnId
    at: Moment
    surface: str = ""
    model: str = ""
    task: str = "answer"
    input: Count = 0
    output: Count = 0
    reasoning: Count = 0
    cache_read: Count = 0
    cache_write: Count = 0
    cost: Count | None = None
    estimated: bool = True


class MediaRecord(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="media", omit_defaults=True
):
    """One chunk of a file, written before the messages that show the file."""

    session: _Id
    # The hash of the bytes of the file.
    id: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    # Counts from 0.
    n: Count
    # The size of the whole file.
    size: Count
    body: bytes
    mime: str = ""
    name: str = ""


Entry: TypeAlias = MessageRecord | TurnRecord | UsageRecord
Record: TypeAlias = Header | SessionRecord | MediaRecord | Entry


def encode(record: Record) -> str:
    """Return one line of a file, without the newline."""
    return codec.dumps(record)


def decode(line: bytes) -> Record:
    """Parse one line. Raise `Invalid` with the reason if it is not a record."""
    # msgspec accepts a union, but the type checker does not treat it as a `type`.
    return codec.loads(line, cast(type[Record], Record))


def from_message(message: Message) -> MessageRecord:
    fields = msgspec.structs.asdict(message)
    del fields["micros"]
    return MessageRecord(**fields, at=message.at)


def build_lost_message(session: SessionId, seq: int, *, at: datetime, epoch: int) -> MessageRecord:
    """Return a notice in place of a message that could not be read, so that the numbers have no gap."""
    return MessageRecord(
        session=session, seq=seq, role=Role.NOTICE, parts=(Notice(LOST_TEXT, LOST_KIND),), at=at, epoch=epoch
    )


def derive_id(id_: str, *scope: str) -> str:
    """Derive an id from another one and a scope. It keeps the time; equal arguments give equal ids."""
    digest = hashlib.blake2b("\0".join((id_, *scope)).encode(), digest_size=5).digest()
    return id_[:10] + base64.b32hexencode(digest).decode().lower()


class Progress(Protocol):
    """Called from time to time, from any thread; `total` is 0 if it is unknown."""

    def __call__(self, stage: str, done: int, total: int, /) -> None: ...


def ignore_progress(stage: str, done: int, total: int, /) -> None:
    pass
