"""Entries of the change feed. A cursor is a position in the feed."""

from datetime import datetime
from enum import StrEnum

import msgspec

from keryx.core.ids import Cursor, PrincipalId, ProfileId, SessionId, TurnId
from keryx.core.media import Media
from keryx.core.messages import Message


class ChangeKind(StrEnum):
    SESSION = "session"
    SESSION_GONE = "session_gone"
    MESSAGE = "message"
    DRAFT = "draft"
    TURN = "turn"
    CANCEL = "cancel"
    DELIVERY = "delivery"
    QUESTION = "question"
    LANE = "lane"
    PROJECT = "project"
    JOB = "job"
    READ = "read"
    ACCESS = "access"


class DraftChunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stretch of a running turn's draft: text, reasoning, or a picture or file."""

    n: int
    text: str
    thought: bool = False
    media: Media | None = None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One entry. `subject` is the id of what changed; `note` is its new state in a word or two.

    `message` and `piece` are filled from the rows they name when these still exist."""

    cursor: Cursor
    at: datetime
    kind: ChangeKind
    profile: ProfileId
    owner: PrincipalId
    subject: str
    session: SessionId | None = None
    turn: TurnId | None = None
    note: str = ""
    message: Message | None = None
    piece: DraftChunk | None = None
