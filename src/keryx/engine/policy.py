"""Every choice that the engine makes by setting, in one frozen value."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated

import msgspec

from keryx.core import access
from keryx.core import source as sources
from keryx.core.access import CLOSED, EVERYBODY, AccessRule, AccessRules
from keryx.core.deliveries import DoubtPolicy
from keryx.core.errors import Invalid
from keryx.core.jobs import JobSettings
from keryx.core.lanes import LaneSharing
from keryx.core.ports import adapter as adapter_port
from keryx.core.ports.adapter import Adapter, Capabilities, PlatformReach
from keryx.core.resets import BUSY_LIMIT, ResetPolicies
from keryx.core.sessions import Session
from keryx.core.source import Profiles, Source, SourceRules
from keryx.core.turns import BusyMode, TurnLimits
from keryx.core.usage import Budgets

BUILTIN_TOOLS = "keryx"
"""How the set of built-in tools is called where sessions switch it on and off."""


class Retention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long things are remembered. `erase`: the grace period of a deleted session. `files`: how long a file is
    kept that no session shows. `runs`: what became of scheduled prompts."""

    inbox: timedelta = timedelta(days=14)
    feed: timedelta = timedelta(days=7)
    lanes: timedelta = timedelta(days=90)
    erase: timedelta = timedelta(days=30)
    files: timedelta = timedelta(days=1)
    runs: timedelta = timedelta(days=90)


class MediaLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of pictures, sounds and files. `limit`: the size of the largest, in bytes."""

    limit: Annotated[int, msgspec.Meta(ge=0)] = 20_000_000


class Notices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What people are told without having asked. `restart`: home channels hear that Keryx is back."""

    restart: bool = False


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """`access` holds the rule of each platform; one without a rule is closed. `tools` names the sets of tools that a
    session can switch on and off, `agents` those that it can have, the usual one first; `agent_rules` are their places.
    `reach` are the connected platforms."""

    access: AccessRules = {}
    profiles: Profiles = {}
    sharing: LaneSharing = LaneSharing()
    resets: ResetPolicies = ResetPolicies()
    busy: BusyMode = BusyMode.QUEUE
    busy_limit: timedelta = BUSY_LIMIT
    limits: TurnLimits = TurnLimits()
    doubt: DoubtPolicy = DoubtPolicy.REPEAT
    keep: Retention = Retention()
    notices: Notices = Notices()
    media: MediaLimits = MediaLimits()
    jobs: JobSettings = JobSettings()
    budgets: Budgets = Budgets()
    send_timeout: timedelta = timedelta(seconds=60)
    give_up: timedelta = timedelta(hours=24)
    final_tries: int = 5
    tools: tuple[str, ...] = (BUILTIN_TOOLS,)
    models: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    agent_rules: SourceRules = {}
    reach: Mapping[str, PlatformReach] = {}

    def assign_profile(self, source: Source) -> Source:
        """The source with the profile that its place belongs to, and the word on whether a role lets its author in."""
        profile = sources.choose_profile(source, self.profiles)
        by_role = bool(source.roles) and access.is_allowed_by_role(
            self.access.get(source.platform, CLOSED), source
        )
        if profile == source.profile and by_role == source.by_role:
            return source
        return msgspec.structs.replace(source, profile=profile, by_role=by_role)

    def choose_agent(self, session: Session, place: Source) -> str:
        """Who answers: whom the session has chosen, else the one of the place, else of the profile, else the usual one."""
        profile = self.profiles.get(session.profile)
        return (
            session.settings.agent
            or sources.find_matching(place, self.agent_rules)
            or (profile.agent if profile else "")
            or next(iter(self.agents), "")
        )


def map_reach(adapters: Sequence[Adapter]) -> dict[str, PlatformReach]:
    """The platforms that something can be sent to; of several accounts, the first one sends."""
    return {
        a.platform: PlatformReach(a.account, a.capabilities.ids, a.capabilities.threads)
        for a in reversed(adapters)
    }


def close_unlisted_platforms(policy: Policy, adapters: Sequence[Adapter]) -> Policy:
    """The policy of a node that serves these platforms: one that it was told nothing of is closed here, whatever
    other nodes were told."""
    closed = dict.fromkeys((a.platform for a in adapters), CLOSED)
    return msgspec.structs.replace(policy, access={**closed, **policy.access})


def check_access(rules: AccessRules, adapters: Sequence[Adapter]) -> None:
    """`Invalid` for a rule that names what cannot be on its platform: it would let nobody in, and say nothing."""
    for adapter in adapters:
        rule = rules.get(adapter.platform, CLOSED)
        try:
            _check_ids(adapter.platform, rule, adapter.capabilities)
            _check_roles(adapter.platform, rule, adapter.capabilities)
        except Invalid as exc:
            raise Invalid(f"[access.{adapter.platform}] is wrong: {exc}") from exc


def _check_ids(platform: str, rule: AccessRule, able: Capabilities) -> None:
    for person in (*rule.allow, *rule.operators):
        if person != EVERYBODY:
            adapter_port.check_id(platform, "person", person, able.ids.person)
    for chat in rule.groups:
        if chat != EVERYBODY:
            adapter_port.check_id(platform, "chat", chat, able.ids.chat)


def _check_roles(platform: str, rule: AccessRule, able: Capabilities) -> None:
    if rule.roles and not able.roles:
        raise Invalid(f"there are no roles on {platform}: take `roles` out")
    unknown = [role for role in rule.roles if role not in (*able.roles, EVERYBODY)]
    if unknown and EVERYBODY not in able.roles:
        raise Invalid(f"{unknown[0]!r} is no role on {platform}: use {' or '.join(able.roles)}")
