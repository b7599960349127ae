"""The section of the prompt about the chat. It is identical for all messages of a chat, so that prompts can be cached."""

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
from keryx.store.db import Transaction

_NO_PROFILE = Profile()


class PlaceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows about the place of a turn."""

    source: Source
    # Several people read the answers.
    shared: bool = False
    homes: tuple[Home, ...] = ()
    # Where the agent may send messages.
    targets: tuple[str, ...] = ("origin",)
    # Those of the project, the lane and the session.
    instructions: tuple[str, ...] = ()


def load(tx: Transaction, session: Session, turn: Turn) -> PlaceFacts:
    """Return the place of a turn as it was when its session or its lane began."""
    session_lanes = lanes.list_for_session(tx, session.id)
    reply = turn.reply
    lane = next((x for x in session_lanes if reply and x.target.key == reply.key), None)
    homes = platforms.list_homes(tx, session.profile)
    of_project = projects.get_instructions(tx, session.project) if session.project else ""
    of_lane = lane.instructions if lane else ""
    # The answers of a job that was created in a group are sent to that group.
    origin = session.origin if session.surface == JOB_SURFACE else None
    in_group = origin is not None and origin.chat_type is not ChatType.DM
    return PlaceFacts(
        source=find_source(session, lane, reply),
        shared=lane.shared if lane else in_group or any(x.shared for x in session_lanes),
        homes=tuple(homes),
        targets=("origin", *_list_targets(tx, session, homes)),
        instructions=tuple(text for text in (of_project, of_lane, session.settings.personality) if text),
    )


def describe(
    facts: PlaceFacts, adapters: Sequence[Adapter], profiles: Profiles, *, salt: bytes, show_ids: bool = False
) -> str:
    """Return the section of the prompt for a place. `show_ids` adds the ids that tools need, unless the profile hides
    them."""
    source = facts.source
    profile = profiles.get(source.profile, _NO_PROFILE)
    capabilities = _find_capabilities(source.platform, adapters, account=source.account)

    def redacts(platform: str, able: Capabilities) -> bool:
        if profile.hide_ids is not None:
            return profile.hide_ids
        return not show_ids and (able.pii_safe or platform in prompt.PII_SAFE_PLATFORMS)

    def name_home(home: Home) -> str:
        if not redacts(home.platform, _find_capabilities(home.platform, adapters)):
            return home.name or str(home.target)
        return prompt.redact_home(home.platform, home.name, home.target.chat, salt)

    redact = redacts(source.platform, capabilities)
    notes = capabilities.notes
    if capabilities.markup != Capabilities().markup:
        notes = (f"Answers are shown as {capabilities.markup}; other markup is lost.", *notes)
    place = prompt.Place(
        platform=source.platform,
        chat_type=source.chat_type.value,
        chat_name=source.chat_name or "",
        chat_id=source.chat or "",
        topic=source.topic or "",
        thread_id=source.thread or "",
        person_name=source.user_name or "",
        person_id=source.user or "",
        shared=facts.shared,
        connected=tuple(a.platform for a in adapters),
        homes=tuple((home.platform, name_home(home)) for home in facts.homes),
        targets=facts.targets,
        notes=notes,
        instructions=(profile.instructions, *facts.instructions),
        show_ids=show_ids and not redact,
    )
    return prompt.build_context(place, salt=salt, redact=redact)


def _find_capabilities(platform: str, adapters: Sequence[Adapter], *, account: str = "") -> Capabilities:
    """Return those of the account. Any account of the platform will do if that one is not connected."""
    candidates = [adapter for adapter in adapters if adapter.platform == platform]
    candidates.sort(key=lambda adapter: adapter.account != account)
    return candidates[0].capabilities if candidates else Capabilities()


def _list_targets(tx: Transaction, session: Session, homes: Sequence[Home]) -> list[str]:
    """Return the platforms that the agent may post to: all for the operator, a guest only where the home is theirs."""
    if session.owner == OPERATOR:
        return [LOCAL, *(home.platform for home in homes)]
    if not homes:
        return []
    own = {x.target.key for x in lanes.list_for_owner(tx, profile=session.profile, owner=session.owner)}
    return [home.platform for home in homes if home.target.key in own]


def find_source(session: Session, lane: Lane | None, reply: Target | None = None) -> Source:
    """Return the source of a conversation: where it began, unless it continues in another chat now."""
    origin = session.origin
    if lane is None:
        platform = reply.platform if reply else session.surface
        return origin or Source(platform=platform, profile=session.profile)
    here = lane.source
    if origin is not None and (origin.platform, origin.account, origin.chat, origin.thread) == (
        here.platform,
        here.account,
        here.chat,
        here.thread,
    ):
        return origin
    return here
