"""CommandCall and CommandResult: what a handler receives and returns, and text helpers for replies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from keryx.core.errors import NotFound
from keryx.core.ids import OPERATOR, PrincipalId, SessionId, TurnId
from keryx.core.lanes import Lane
from keryx.core.ports.adapter import InboundMessage
from keryx.core.sessions import Session, SessionSettings, Viewer
from keryx.core.texts import Phrase, Reader, Texts
from keryx.engine.policy import Policy
from keryx.engine.units import access
from keryx.store import sessions, turns
from keryx.store.db import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCall:
    """What a handler may read and change."""

    tx: Transaction
    inbound: InboundMessage
    lane: Lane | None
    session: Session | None
    viewer: Viewer
    policy: Policy
    now: datetime
    # The arguments of the command.
    text: str
    # Creates the session of this chat, as a first message does.
    begin: Callable[[], Session]
    # The result of a /search, which runs before the transaction.
    search_reply: str | None = None

    @property
    def texts(self) -> Texts:
        """The texts for the person who gave the command, in their language."""
        readers = (Reader.OPERATOR,) if self.is_operator else ()
        return self.tx.texts.speak(self.inbound.source.language, self.inbound.source.platform, *readers)

    def say(self, key: str, /, **fields: Any) -> str:
        """Return a text in the language of the person who gave the command."""
        return self.texts.say(key, **fields)

    @property
    def is_operator(self) -> bool:
        """Whether the viewer has the rights of an operator."""
        if self.viewer.principal == OPERATOR:
            return True
        local = self.inbound.principal is not None
        return not local and access.is_operator(self.tx, self.inbound.source, self.policy.access)

    @property
    def current_session(self) -> Session:
        if self.session is None:
            raise NotFound(Phrase("command.no_session"))
        return self.session

    @property
    def session_id(self) -> SessionId | None:
        return self.session.id if self.session else None

    @property
    def owner(self) -> Viewer:
        """The owner of the session, or of the one that would be created."""
        row = self.session or self.lane
        return Viewer(row.profile, row.owner) if row else self.viewer

    @property
    def settings(self) -> SessionSettings:
        """The settings of the session, or of the one that would be created."""
        return self.session.settings if self.session else self.inbound.settings or SessionSettings()

    def ensure_session(self) -> Session:
        """Return the session, created if there is none. Call it once, after all checks."""
        return self.session or self.begin()

    def configure(self, settings: SessionSettings) -> SessionId:
        """Store new settings of the session, which is created if there is none. Return its id."""
        session = self.ensure_session()
        sessions.set_settings(self.tx, session, settings)
        return session.id

    def release(self) -> str:
        """Begin the held turn of the session now. Return a sentence about it, empty without such a turn."""
        if self.session and turns.release(self.tx, self.session.id):
            return f" {self.say('turn.released')}"
        return ""

    @property
    def current_lane(self) -> Lane:
        if self.lane is None:
            raise NotFound(Phrase("command.no_lane"))
        return self.lane


class CommandResult(msgspec.Struct, frozen=True):
    reply: str
    session: SessionId | None = None
    turn: TurnId | None = None
    seq: int | None = None
    # The new id of the person who gave the command, if it has changed.
    asker: PrincipalId | None = None


CommandHandler: TypeAlias = Callable[[CommandCall], CommandResult]


def quote_title(session: Session) -> Phrase:
    if session.title:
        return Phrase("session.titled", title=session.title)
    return Phrase("session.untitled", id=session.id)


def format_choices(names: Sequence[str]) -> str:
    """Return names as a list for a sentence: `a, b or c`."""
    if len(names) < 2:
        return names[0] if names else Phrase("setting.none")
    return Phrase("setting.or", first=", ".join(names[:-1]), last=names[-1])
