"""The section of the prompt about the chat. The same chat gives the same bytes for every message."""

from collections.abc import Sequence

import msgspec

from keryx.core import prompt
from keryx.core.deliveries import LOCAL, Home, Target
from keryx.core.ids import OPERATOR
from keryx.core.lanes import Lane
from keryx.core.ports.adapter import Adapter, Capabilities
from keryx.core.sessions import JOB_SURFACE, Session
from keryx.core.source import ChatType, Profile, Profiles, Source
from keryx.core.turns import Turn
from keryx.store import lanes, platforms, projects
from keryx.store.db.database import Transaction

_NO_PROFILE = Profile()


class PlaceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows of the place of a turn. `targets` are those that may be sent to from here; `instructions` are
    those of the project, the lane and the session."""

    source: Source
    shared: bool = False
    homes: tuple[Home, ...] = ()
    targets: tuple[str, ...] = ("origin",)
    instructions: tuple[str, ...] = ()


def load(tx: Transaction, session: Session, turn: Turn) -> PlaceFacts:
    """The place that a turn was asked at, as it was when its session or its lane began."""
    around = lanes.list_for_session(tx, session.id)
    lane = _find_lane(around, turn.reply)
    known = platforms.list_homes(tx, session.profile)
    of_project = projects.get_instructions(tx, session.project) if session.project else ""
    of_lane = lane.instructions if lane else ""
    return PlaceFacts(
        source=find_source(session, lane, turn.reply),
        shared=lane.shared if lane else any(x.shared for x in around) or _has_listeners(session),
        homes=tuple(known),
        targets=("origin", *_list_targets(tx, session, known)),
        instructions=tuple(text for text in (of_project, of_lane, session.settings.personality) if text),
    )


def describe(around: PlaceFacts, adapters: Sequence[Adapter], profiles: Profiles, *, salt: bytes) -> str:
    """The section of the prompt for a place."""
    source = around.source
    profile = profiles.get(source.profile, _NO_PROFILE)
    able = _find_capabilities(adapters, source)
    place = prompt.Place(
        platform=source.platform,
        chat_type=source.chat_type.value,
        chat_name=source.chat_name or "",
        chat_id=source.chat or "",
        topic=source.topic or "",
        person_name=source.user_name or "",
        person_id=source.user or "",
        shared=around.shared,
        connected=tuple(a.platform for a in adapters),
        homes=tuple((h.platform, h.name or str(h.target)) for h in around.homes),
        targets=around.targets,
        notes=able.notes if able else (),
        instructions=(profile.instructions, *around.instructions),
    )
    return prompt.build_context(place, salt=salt, redact=_hides_ids(profile, able, source.platform))


def _has_listeners(session: Session) -> bool:
    """Whether the answers of a scheduled run go where others listen in: to the group that it was asked for in."""
    origin = session.origin if session.surface == JOB_SURFACE else None
    return origin is not None and origin.chat_type is not ChatType.DM


def _list_targets(tx: Transaction, session: Session, known: Sequence[Home]) -> list[str]:
    """Where else the owner of a session may have something sent: the operator anywhere, a guest to their own chats."""
    if session.owner == OPERATOR:
        return [LOCAL, *(home.platform for home in known)]
    if not known:
        return []
    own = {x.target.key for x in lanes.list_for_owner(tx, profile=session.profile, owner=session.owner)}
    return [home.platform for home in known if home.target.key in own]


def _hides_ids(profile: Profile, able: Capabilities | None, platform: str) -> bool:
    if profile.hide_ids is not None:
        return profile.hide_ids
    return platform in prompt.PII_SAFE_PLATFORMS or (able is not None and able.pii_safe)


def _find_capabilities(adapters: Sequence[Adapter], source: Source) -> Capabilities | None:
    fitting = [a for a in adapters if a.platform == source.platform]
    exact = [a for a in fitting if a.account == source.account]
    return next((a.capabilities for a in (*exact, *fitting)), None)


def _find_lane(around: Sequence[Lane], reply: Target | None) -> Lane | None:
    return next((lane for lane in around if reply and lane.target.key == reply.key), None)


def find_source(session: Session, lane: Lane | None, reply: Target | None = None) -> Source:
    """The place of a conversation: where it began, unless it goes on elsewhere now."""
    origin = session.origin
    if origin is not None and (lane is None or _is_same_chat(origin, lane.source)):
        return origin
    if lane is not None:
        return lane.source
    platform = reply.platform if reply else session.surface
    return Source(platform=platform, profile=session.profile)


def _is_same_chat(origin: Source, place: Source) -> bool:
    def spot(source: Source) -> tuple[str | None, ...]:
        return source.platform, source.account, source.chat, source.thread

    return spot(origin) == spot(place)
