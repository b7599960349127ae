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
    session: SessionId | None
    source: Source
    shared: bool
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


class LaneAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A lane's key, and whether more than one person may write to the lane."""

    key: LaneKey
    shared: bool


class _LaneParts(msgspec.Struct, frozen=True, kw_only=True):
    chat: str | None
    thread: str | None
    person: str | None
    shared: bool


def build_address(
    source: Source, *, sharing: LaneSharing = LaneSharing(), aliases: Aliases = NO_ALIASES
) -> LaneAddress:
    """The lane a source talks in. The same place gives the same key, and two places never share one.

    Names, topic and message id do not count. A source that names no place is refused with `Invalid`.
    """
    direct = source.chat_type is ChatType.DM
    place = _split_direct(source, aliases) if direct else _split_group(source, sharing, aliases)
    return LaneAddress(key=_build_key(source, place), shared=place.shared)


def _split_direct(source: Source, aliases: Aliases) -> _LaneParts:
    # An empty id names nobody: it must not gather strangers, so the next id is asked for.
    person = None if source.chat else _find_author(source, aliases)
    if not (source.chat or person or source.thread):
        raise Invalid(
            f"a direct message from {source.platform!r} names no chat, sender or thread: set one of them"
        )
    chat = source.chat and sources.resolve_user(source.platform, source.chat, aliases=aliases)
    return _LaneParts(chat=chat, thread=source.thread, person=person, shared=False)


def _split_group(source: Source, sharing: LaneSharing, aliases: Aliases) -> _LaneParts:
    if not (source.chat or source.thread):
        raise Invalid(
            f"a {source.chat_type} message from {source.platform!r} names no chat or thread: set one of them"
        )
    person = _find_author(source, aliases) if _separates_people(source, sharing) else None
    return _LaneParts(chat=source.chat, thread=source.thread, person=person, shared=not person)


def _separates_people(source: Source, sharing: LaneSharing) -> bool:
    if source.thread or source.chat_type is ChatType.THREAD:
        return not sharing.threads_shared
    return sharing.groups_per_person


def _find_author(source: Source, aliases: Aliases) -> str | None:
    user = source.user_alt or source.user
    return user and sources.resolve_user(source.platform, user, aliases=aliases)


def _build_key(source: Source, place: _LaneParts) -> LaneKey:
    parts = [
        "agent",
        "main" if source.profile == DEFAULT_PROFILE else source.profile,
        _format_platform(source),
        source.chat_type.value,
        *_format_parts(place),
    ]
    return LaneKey(":".join(parts))


def _format_platform(source: Source) -> str:
    name = ids.escape(source.platform).replace("@", "%40")
    return f"{name}@{ids.escape(source.account)}" if source.account else name


def _format_parts(place: _LaneParts) -> list[str]:
    slots = [
        "" if part is None else ids.escape(part) or _EMPTY_PART
        for part in (place.chat, place.thread, place.person)
    ]
    while slots and not slots[-1]:
        slots.pop()
    return slots
