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
    """A piece of the draft of a running turn: text, reasoning, or an image or file."""

    n: int
    text: str
    # The text is reasoning.
    thought: bool = False
    media: Media | None = None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    cursor: Cursor
    at: datetime
    kind: ChangeKind
    profile: ProfileId
    owner: PrincipalId
    # The id of what changed.
    subject: str
    session: SessionId | None = None
    turn: TurnId | None = None
    # The new state, in a word or two.
    note: str = ""
    # Loaded with the change; `None` if the row no longer exists.
    message: Message | None = None
    piece: DraftChunk | None = None
