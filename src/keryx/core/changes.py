"""Entries of the change feed. A cursor is a position in the feed."""

from datetime import datetime
from enum import StrEnum

import msgspec

from keryx.core.ids import Cursor, PrincipalId, ProfileId, SessionId, TurnId
from keryx.core.media import Media
from keryx.core.messages import Message


class ChangeKind(StrEnum):
    SESSION = "session"
    # The session was deleted.
    SESSION_GONE = "session_gone"
    # Added or edited.
    MESSAGE = "message"
    # A running turn has shown more of its answer.
    DRAFT = "draft"
    # A turn has another state.
    TURN = "turn"
    # A turn is to be cancelled.
    CANCEL = "cancel"
    DELIVERY = "delivery"
    QUESTION = "question"
    # A lane has another session, or was suspended or freed.
    LANE = "lane"
    PROJECT = "project"
    TAG = "tag"
    JOB = "job"
    # A person has read a session up to a message.
    READ = "read"
    # Who may talk on a platform.
    ACCESS = "access"
    # An instance of the relay has something to take, or was changed.
    RELAY = "relay"


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

    @property
    def size(self) -> int:
        """About how many characters it has."""
        return (self.message.size if self.message else 0) + (len(self.piece.text) if self.piece else 0)
