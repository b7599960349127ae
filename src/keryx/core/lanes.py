"""The lane of a source: its key, and whether several people share it.

A key reads `agent:<main or profile>:<platform>[@account]:<chat type>[:chat][:thread][:user]`. A part that is
missing before one that is present leaves its place empty (`group:42::7` is person 7 in chat 42, `group:42:7`
is thread 7), an empty part is written `%`, and odd characters are percent-escaped. Different parts therefore
never make one key, and every key is printable ASCII. Keys are compared, never taken apart.
"""

import msgspec

from keryx.core import identity, ids
from keryx.core.errors import Invalid
from keryx.core.identity import NO_ALIASES, Aliases
from keryx.core.ids import DEFAULT_PROFILE, LaneKey
from keryx.core.source import ChatType, Source

_EMPTY = "%"


class Sharing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who talks in one lane: by default each person alone in a group, and all together in a thread."""

    groups_per_person: bool = True
    threads_shared: bool = True


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A lane's key, and whether more than one person may write to the lane."""

    key: LaneKey
    shared: bool


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    chat: str | None
    thread: str | None
    person: str | None
    shared: bool


def address(source: Source, *, sharing: Sharing = Sharing(), aliases: Aliases = NO_ALIASES) -> Address:
    """The lane a source talks in. The same place gives the same key, and two places never share one.

    Names, topic and message id do not count. A source that names no place is refused with `Invalid`.
    """
    direct = source.chat_type is ChatType.DM
    place = _direct(source, aliases) if direct else _common(source, sharing, aliases)
    return Address(key=_key(source, place), shared=place.shared)


def _direct(source: Source, aliases: Aliases) -> _Place:
    # An empty id names nobody: it must not gather strangers, so the next id is asked for.
    person = None if source.chat else _person(source, aliases)
    if not (source.chat or person or source.thread):
        raise Invalid(
            f"a direct message from {source.platform!r} names no chat, sender or thread: set one of them"
        )
    chat = source.chat and identity.person(source.platform, source.chat, aliases=aliases)
    return _Place(chat=chat, thread=source.thread, person=person, shared=False)


def _common(source: Source, sharing: Sharing, aliases: Aliases) -> _Place:
    if not (source.chat or source.thread):
        raise Invalid(
            f"a {source.chat_type} message from {source.platform!r} names no chat or thread: set one of them"
        )
    person = _person(source, aliases) if _apart(source, sharing) else None
    return _Place(chat=source.chat, thread=source.thread, person=person, shared=not person)


def _apart(source: Source, sharing: Sharing) -> bool:
    if source.thread or source.chat_type is ChatType.THREAD:
        return not sharing.threads_shared
    return sharing.groups_per_person


def _person(source: Source, aliases: Aliases) -> str | None:
    user = source.user_alt or source.user
    return user and identity.person(source.platform, user, aliases=aliases)


def _key(source: Source, place: _Place) -> LaneKey:
    parts = [
        "agent",
        "main" if source.profile == DEFAULT_PROFILE else source.profile,
        _platform(source),
        source.chat_type.value,
        *_slots(place),
    ]
    return LaneKey(":".join(parts))


def _platform(source: Source) -> str:
    name = ids.plain(source.platform).replace("@", "%40")
    return f"{name}@{ids.plain(source.account)}" if source.account else name


def _slots(place: _Place) -> list[str]:
    slots = [
        "" if part is None else ids.plain(part) or _EMPTY for part in (place.chat, place.thread, place.person)
    ]
    while slots and not slots[-1]:
        slots.pop()
    return slots
