"""Policy: every choice the engine makes by setting, in one frozen value."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated

import msgspec

from keryx.core import access, profiles, shapes
from keryx.core.access import CLOSED, EVERYBODY, Rule, Rules
from keryx.core.budgets import Budgets
from keryx.core.deliveries import Doubt
from keryx.core.errors import Invalid
from keryx.core.jobs import Scheduling
from keryx.core.lanes import Sharing
from keryx.core.ports import Adapter, Capabilities
from keryx.core.profiles import Places, Profiles
from keryx.core.resets import BUSY_LIMIT, Resets
from keryx.core.sessions import Session
from keryx.core.shapes import Reach
from keryx.core.source import Source
from keryx.core.turns import BusyMode, Limits

BUILTIN_TOOLS = "keryx"
"""How the set of built-in tools is called where sessions switch it on and off."""


class Keep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long things are remembered. `erase`: the grace period of a deleted session. `files`: how long a file is
    kept that no session shows. `runs`: what became of scheduled prompts."""

    inbox: timedelta = timedelta(days=14)
    feed: timedelta = timedelta(days=7)
    lanes: timedelta = timedelta(days=90)
    erase: timedelta = timedelta(days=30)
    files: timedelta = timedelta(days=1)
    runs: timedelta = timedelta(days=90)


class Files(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of pictures, sounds and files. `limit`: the size of the largest, in bytes."""

    limit: Annotated[int, msgspec.Meta(ge=0)] = 20_000_000


class Notices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What people are told without having asked. `restart`: home channels hear that Keryx is back."""

    restart: bool = False


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """`access` holds the rule of each platform; one without a rule is closed. `tools` names the sets of tools that a
    session can switch on and off, `agents` those that it can have, the usual one first; `agent_rules` are their places.
    `reach` are the connected platforms."""

    access: Rules = {}
    profiles: Profiles = {}
    sharing: Sharing = Sharing()
    resets: Resets = Resets()
    busy: BusyMode = BusyMode.QUEUE
    busy_limit: timedelta = BUSY_LIMIT
    limits: Limits = Limits()
    doubt: Doubt = Doubt.REPEAT
    keep: Keep = Keep()
    notices: Notices = Notices()
    media: Files = Files()
    jobs: Scheduling = Scheduling()
    budgets: Budgets = Budgets()
    send_timeout: timedelta = timedelta(seconds=60)
    give_up: timedelta = timedelta(hours=24)
    final_tries: int = 5
    tools: tuple[str, ...] = (BUILTIN_TOOLS,)
    models: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    agent_rules: Places = {}
    reach: Mapping[str, Reach] = {}

    def placed(self, source: Source) -> Source:
        """The source with the profile that its place belongs to, and the word on whether a role lets its author in."""
        profile = profiles.choose(source, self.profiles)
        by_role = bool(source.roles) and access.by_role(self.access.get(source.platform, CLOSED), source)
        if profile == source.profile and by_role == source.by_role:
            return source
        return msgspec.structs.replace(source, profile=profile, by_role=by_role)

    def agent(self, session: Session, place: Source) -> str:
        """Who answers: whom the session has chosen, else the one of the place, else of the profile, else the usual one."""
        profile = self.profiles.get(session.profile)
        return (
            session.settings.agent
            or profiles.fitting(place, self.agent_rules)
            or (profile.agent if profile else "")
            or next(iter(self.agents), "")
        )


def reachable(adapters: Sequence[Adapter]) -> dict[str, Reach]:
    """The platforms that something can be sent to; of several accounts, the first one sends."""
    return {
        a.platform: Reach(a.account, a.capabilities.ids, a.capabilities.threads) for a in reversed(adapters)
    }


def ruled(policy: Policy, adapters: Sequence[Adapter]) -> Policy:
    """The policy of a node that serves these platforms: one that it was told nothing of is closed here, whatever
    other nodes were told."""
    closed = dict.fromkeys((a.platform for a in adapters), CLOSED)
    return msgspec.structs.replace(policy, access={**closed, **policy.access})


def check_access(rules: Rules, adapters: Sequence[Adapter]) -> None:
    """`Invalid` for a rule that names what cannot be on its platform: it would let nobody in, and say nothing."""
    for adapter in adapters:
        rule = rules.get(adapter.platform, CLOSED)
        try:
            _check_ids(adapter.platform, rule, adapter.capabilities)
            _check_roles(adapter.platform, rule, adapter.capabilities)
        except Invalid as exc:
            raise Invalid(f"[access.{adapter.platform}] is wrong: {exc}") from exc


def _check_ids(platform: str, rule: Rule, able: Capabilities) -> None:
    for person in (*rule.allow, *rule.operators):
        if person != EVERYBODY:
            shapes.check(platform, "person", person, able.ids.person)
    for chat in rule.groups:
        if chat != EVERYBODY:
            shapes.check(platform, "chat", chat, able.ids.chat)


def _check_roles(platform: str, rule: Rule, able: Capabilities) -> None:
    if rule.roles and not able.roles:
        raise Invalid(f"there are no roles on {platform}: take `roles` out")
    unknown = [role for role in rule.roles if role not in (*able.roles, EVERYBODY)]
    if unknown and EVERYBODY not in able.roles:
        raise Invalid(f"{unknown[0]!r} is no role on {platform}: use {' or '.join(able.roles)}")
