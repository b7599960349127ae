"""Sessions: the value, its settings, who may see it, and how a list of them is asked for."""

from datetime import datetime
from enum import StrEnum

import msgspec

from keryx.core.ids import OPERATOR, PrincipalId, ProfileId, ProjectId, SessionId
from keryx.core.source import Source

JOB_SURFACE = "job"


class EndReason(StrEnum):
    RESET = "reset"
    IDLE = "idle"
    DAILY = "daily"
    SUSPENDED = "suspended"
    PERSON = "person"
    MERGED = "merged"


class TitleBy(StrEnum):
    PERSON = "person"
    MODEL = "model"
    RULE = "rule"


class Activity(StrEnum):
    """What a session does now, from its turns."""

    IDLE = "idle"
    WAITING = "waiting"
    RUNNING = "running"
    FAILED = "failed"


EFFORTS = ("minimal", "low", "medium", "high")
"""How hard a model may be told to think."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Kept per session over restarts. Never a credential: a model is named, and its endpoint and key are those that the
    configuration has for the name. `personality`: how the agent is to speak, in words."""

    agent: str | None = None
    model: str | None = None
    effort: str | None = None
    mode: str | None = None
    tools: tuple[str, ...] | None = None
    personality: str | None = None
    busy: str | None = None


class Tokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0


class Session(msgspec.Struct, frozen=True, kw_only=True):
    id: SessionId
    profile: ProfileId
    owner: PrincipalId
    surface: str
    created_at: datetime
    active_at: datetime
    title: str = ""
    title_by: TitleBy | None = None
    origin: Source | None = None
    parent: SessionId | None = None
    parent_seq: int | None = None
    project: ProjectId | None = None
    pinned: bool = False
    archived: bool = False
    deleted_at: datetime | None = None
    ended_at: datetime | None = None
    end_reason: EndReason | None = None
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


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a list: a session, and what it does now."""

    session: Session
    activity: Activity


class Viewer(msgspec.Struct, frozen=True):
    """Who asks. The operator sees every session of the profile; anybody else only their own."""

    profile: ProfileId
    principal: PrincipalId

    @property
    def owner(self) -> PrincipalId | None:
        """The owner to filter by, `None` for no filter."""
        return None if self.principal == OPERATOR else self.principal

    def sees(self, profile: str, owner: str) -> bool:
        return profile == self.profile and (self.owner is None or owner == self.owner)


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of a session list. `archived=None` shows both."""

    surface: str | None = None
    project: ProjectId | None = None
    pinned: bool | None = None
    archived: bool | None = False
    activity: Activity | None = None
    cwd: str | None = None
    since: datetime | None = None
    jobs: bool = False
    after: str | None = None
    limit: int = 50
