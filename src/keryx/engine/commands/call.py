"""Call: what a command is given, what it gives back, and the words that several of them use."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

import msgspec

from keryx.core.errors import NotFound
from keryx.core.ids import OPERATOR, PrincipalId, SessionId, TurnId
from keryx.core.ports import Inbound
from keryx.core.sessions import Session, Settings, Viewer
from keryx.engine import access
from keryx.engine.policy import Policy
from keryx.store import sessions
from keryx.store.database import Transaction
from keryx.store.lanes import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a command may know and touch. `begin` makes the conversation of this place, as a first message does."""

    tx: Transaction
    inbound: Inbound
    lane: Lane | None
    session: Session | None
    viewer: Viewer
    policy: Policy
    now: datetime
    text: str
    begin: Callable[[], Session]
    found: str | None = None

    @property
    def operates(self) -> bool:
        """Whether whoever asks has the rights of an operator."""
        if self.viewer.principal == OPERATOR:
            return True
        local = self.inbound.principal is not None
        return not local and access.operates(self.tx, self.inbound.source, self.policy.access)

    @property
    def current(self) -> Session:
        if self.session is None:
            raise NotFound("there is no conversation here yet: say something first")
        return self.session

    @property
    def id(self) -> SessionId | None:
        return self.session.id if self.session else None

    @property
    def owner(self) -> Viewer:
        """Whoever has the conversation, or will have it."""
        owned = self.session or self.lane
        return Viewer(owned.profile, owned.owner) if owned else self.viewer

    @property
    def settings(self) -> Settings:
        """Those of the conversation, or what it would begin with."""
        return self.session.settings if self.session else self.inbound.settings or Settings()

    def opened(self) -> Session:
        """The conversation, begun if there is none. Called once, when nothing can be refused any more."""
        return self.session or self.begin()

    def configure(self, settings: Settings) -> SessionId:
        """Keep other settings for the conversation."""
        session = self.opened()
        sessions.set_settings(self.tx, session, settings, now=self.now)
        return session.id

    @property
    def place(self) -> Lane:
        if self.lane is None:
            raise NotFound("this works in a chat only: here, open the session you want")
        return self.lane


class Done(msgspec.Struct, frozen=True):
    """`asker` is set if whoever asked goes by another id from now on."""

    reply: str
    session: SessionId | None = None
    turn: TurnId | None = None
    seq: int | None = None
    asker: PrincipalId | None = None


Run: TypeAlias = Callable[[Call], Done]


def label(session: Session) -> str:
    return f"“{session.title}”" if session.title else f"untitled {session.id}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
