"""Lane keys: the stable address that a source talks in, and whether several people share it."""

from datetime import datetime

import msgspec

from keryx.core import ids
from keryx.core import source as sources
from keryx.core.deliveries import Target
from keryx.core.errors import Invalid
from keryx.core.ids import DEFAULT_PROFILE, LaneKey, PrincipalId, ProfileId, SessionId
from keryx.core.source import NO_ALIASES, Aliases, ChatType, Source

_EMPTY_PART = "%"


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    key: LaneKey
    profile: ProfileId
    owner: PrincipalId
    # The current session.
    session: SessionId | None
    source: Source
    # Several people may write here.
    shared: bool
    # The next message starts a new session.
    suspended: bool
    created_at: datetime
    active_at: datetime
    expires_at: datetime | None
    target: Target
    mirror: bool
    instructions: str


class LaneMove(msgspec.Struct, frozen=True, kw_only=True):
    session: SessionId | None
    why: str
    at: datetime


class LaneSharing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who talks in one lane: by default each person alone in a group, and all together in a thread."""

    groups_per_person: bool = True
    threads_shared: bool = True
    # A thread that is opened on an answer begins with the conversation that led to it.
    threads_inherit: bool = True


class LaneAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A lane's key, and whether more than one person may write to the lane."""

    key: LaneKey
    shared: bool


def build_address(
    source: Source, *, sharing: LaneSharing = LaneSharing(), aliases: Aliases = NO_ALIASES
) -> LaneAddress:
    """Return the lane of a source. The same chat always has the same key, and different chats have different keys.

    Names, topic and message id are ignored. Raise `Invalid` for a source without chat, thread and sender.
    """
    author = source.user_alt or source.user
    author = author and sources.resolve_user(source.platform, author, aliases=aliases)
    if source.chat_type is ChatType.DM:
        # An empty chat id must not put strangers into one lane, so the author is used instead.
        chat = source.chat and sources.resolve_user(source.platform, source.chat, aliases=aliases)
        person = None if source.chat else author
        if not (source.chat or person or source.thread):
            raise Invalid(
                f"a direct message from {source.platform!r} names no chat, sender or thread: set one of them"
            )
        return LaneAddress(key=_build_key(source, chat, person), shared=False)
    if not (source.chat or source.thread):
        raise Invalid(
            f"a {source.chat_type} message from {source.platform!r} names no chat or thread: set one of them"
        )
    in_thread = source.thread or source.chat_type is ChatType.THREAD
    separate = not sharing.threads_shared if in_thread else sharing.groups_per_person
    person = author if separate else None
    return LaneAddress(key=_build_key(source, source.chat, person), shared=not person)


def _build_key(source: Source, chat: str | None, person: str | None) -> LaneKey:
    profile = "main" if source.profile == DEFAULT_PROFILE else source.profile
    platform = ids.escape(source.platform).replace("@", "%40")
    if source.account:
        platform += f"@{ids.escape(source.account)}"
    slots = [
        "" if part is None else ids.escape(part) or _EMPTY_PART for part in (chat, source.thread, person)
    ]
    while slots and not slots[-1]:
        slots.pop()
    return LaneKey(":".join(["agent", profile, platform, source.chat_type.value, *slots]))
