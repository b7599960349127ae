"""Every choice that the engine makes by setting, in one frozen value."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import msgspec

from keryx.core import access
from keryx.core import source as sources
from keryx.core.access import CLOSED, EVERYBODY, AccessRule, AccessRules, CommandAudience
from keryx.core.deliveries import REPEAT_MARK, DoubtPolicy
from keryx.core.errors import Invalid
from keryx.core.jobs import JobSettings
from keryx.core.lanes import LaneSharing
from keryx.core.ports import adapter as adapter_port
from keryx.core.ports.adapter import Adapter, PlatformReach, RelayTransport
from keryx.core.ports.relay import RelayLimits
from keryx.core.resets import ResetPolicies
from keryx.core.sessions import Binding, PruneRule, SessionSettings, TakeoverRules
from keryx.core.source import Profiles, Source, SourceRule, SourceRules
from keryx.core.texts import NO_CHANGES, Catalogue
from keryx.core.turns import BusyMode, EditPolicy, TurnLimits
from keryx.core.usage import Budgets

_CONTACT = re.compile(r"(mailto:[^@\s]+@[^@\s]+|https://[^\s/]+\S*)\Z")
BUILTIN_TOOLS = "keryx"
"""The name of the built-in tools, for sessions to switch them on and off."""


class Retention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long rows are kept."""

    # Ids of inbound events, to recognise duplicates.
    inbox: timedelta = timedelta(days=14)
    feed: timedelta = timedelta(days=7)
    # Lanes without activity.
    lanes: timedelta = timedelta(days=90)
    # Deleted sessions, until they are erased.
    erase: timedelta = timedelta(days=30)
    # Files that no session shows.
    files: timedelta = timedelta(days=1)
    # Temporary sessions without activity. Then their key is destroyed, and nothing of them can be read.
    temporary: timedelta = timedelta(days=1)
    # Runs of jobs.
    runs: timedelta = timedelta(days=90)
    # After how long without activity sessions are archived, and deleted, by surface; `*` for the other surfaces.
    archive: dict[str, timedelta] = {}
    sessions: dict[str, timedelta] = {}

    def __post_init__(self) -> None:
        ages = msgspec.structs.asdict(self)
        flat = {name: age for name, age in ages.items() if isinstance(age, timedelta)}
        for table in ("archive", "sessions"):
            flat |= {f"{table}.{surface}": age for surface, age in ages[table].items()}
        if none := next((name for name, age in flat.items() if age <= timedelta(0)), None):
            raise ValueError(f"{none} must be above zero; 100y keeps everything")

    def list_prune_rules(self, now: datetime) -> list[PruneRule]:
        """Return the rules that are in force, those that delete first."""
        return [
            PruneRule(
                before=now - age,
                delete=delete,
                surface=None if surface == "*" else surface,
                except_surfaces=tuple(sorted(name for name in ages if name != "*")),
            )
            for delete, ages in ((True, self.sessions), (False, self.archive))
            for surface, age in sorted(ages.items())
        ]


class MediaLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # The size of the largest file, in bytes.
    limit: Annotated[int, msgspec.Meta(ge=0)] = 20_000_000
    # How long fetching a file from a platform may take. Later the message says that it is missing.
    timeout: timedelta = timedelta(minutes=2)
    # How many files of one account are fetched at once.
    at_once: Annotated[int, msgspec.Meta(ge=1)] = 4


class Notices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Tell home channels that Keryx has restarted.
    restart: bool = False
    # Tell a chat that its conversation was reset.
    resets: bool = True
    # The platforms whose chats are not told.
    no_resets: tuple[str, ...] = ()

    def tell_reset(self, platform: str) -> bool:
        return self.resets and platform not in self.no_resets


class PushSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Notifications that reach a browser while the page is closed, by the push service of its maker."""

    enabled: bool = True
    # Where a push service writes to if something is wrong, such as mailto:me@keryx.example. Without it, the public address.
    contact: str = ""
    # How long a browser that is not reached keeps a notification waiting.
    keep: timedelta = timedelta(days=1)
    # Whether push services on this machine are allowed, without encryption. For tests.
    loopback: bool = False

    def __post_init__(self) -> None:
        if self.contact and not _CONTACT.match(self.contact):
            raise ValueError(
                f"contact: {self.contact[:80]!r} is not an address: write mailto:me@keryx.example or https://keryx.example"
            )
        if not timedelta(minutes=1) <= self.keep <= timedelta(days=28):
            raise ValueError("keep: give a time from 1m to 28d")


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    # By platform; a platform without a rule is closed.
    access: AccessRules = {}
    # By name.
    profiles: Profiles = {}
    sharing: LaneSharing = LaneSharing()
    resets: ResetPolicies = ResetPolicies()
    # What happens to a message while a turn of its session is running.
    busy: BusyMode = BusyMode.QUEUE
    edits: EditPolicy = EditPolicy.NOTE
    # A lane with a running turn is not reset for this long.
    limits: TurnLimits = TurnLimits()
    # What happens to a part that may or may not have arrived.
    doubt: DoubtPolicy = DoubtPolicy.REPEAT
    # Put before a part that may have arrived already.
    repeat_mark: str = REPEAT_MARK
    keep: Retention = Retention()
    notices: Notices = Notices()
    media: MediaLimits = MediaLimits()
    jobs: JobSettings = JobSettings()
    push: PushSettings = PushSettings()
    # The file of the key that signs pushes; `None` in a process without a folder, which sends none.
    push_key: Path | None = None
    budgets: Budgets = Budgets()
    texts: Catalogue = NO_CHANGES
    # The time zone of people who have not set one.
    zone: str = "UTC"
    # Of the configured prices.
    currency: str = "USD"
    send_timeout: timedelta = timedelta(seconds=60)
    # A delivery that could not be sent for this long is dead.
    give_up: timedelta = timedelta(hours=24)
    # How often the hook at the end of a session is tried.
    final_tries: int = 5
    # What the agent is asked when a session has ended; empty for nothing.
    end_prompt: str = ""
    # The tool sets that a session can switch on and off.
    tools: tuple[str, ...] = (BUILTIN_TOOLS,)
    # The tool sets that need the ids of chats, people and messages, with the profiles that have them; none for all.
    id_tools: Mapping[str, tuple[str, ...]] = {}
    # The models and agents that a session can choose. The first of each is the default.
    models: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    # The agents that use these models, each with its default, empty for the first one. Others have models of their own.
    model_agents: Mapping[str, str] = {}
    # The agents that have no models at all.
    plain_agents: frozenset[str] = frozenset()
    # Who may give a command, if not whom the table of commands names.
    commands: Mapping[str, CommandAudience] = {}
    # Which sources each agent answers.
    agent_rules: SourceRules = {}
    # The connected platforms.
    reach: Mapping[str, PlatformReach] = {}
    # The accounts that have names, such as `telegram.work`.
    account_names: Mapping[str, str] = {}
    # The limits of the queues for other instances; `None` unless this Keryx holds bots for others.
    relay: RelayLimits | None = None
    # Which agents continue the sessions of other programs.
    takeovers: TakeoverRules = TakeoverRules()
    # The accounts, with their platforms, whose events come through the relay.
    relayed: frozenset[tuple[str, str]] = frozenset()

    def assign_profile(self, source: Source) -> Source:
        """Return the source with its profile and with `by_role`."""
        profile = sources.choose_profile(source, self.profiles)
        by_role = bool(source.roles) and access.is_allowed_by_role(
            access.find_rule(self.access, source.platform, source.account) or CLOSED, source
        )
        if profile == source.profile and by_role == source.by_role:
            return source
        return msgspec.structs.replace(source, profile=profile, by_role=by_role)

    def holds(self, platform: str) -> bool:
        """Whether deliveries to a platform may be held until the person writes."""
        return any(found.holds for name, found in self.reach.items() if name.partition(".")[0] == platform)

    def has_topics(self, platform: str) -> bool:
        """Whether the threads of a platform are standing topics."""
        reach = self.reach.get(platform)
        return reach is not None and reach.topics

    def shows_ids(self, profile: str, settings: SessionSettings) -> bool:
        """Whether the model sees the ids of the chat, the person and each message, because a tool of the session needs
        them."""
        hidden = self.profiles.get(profile)
        return not (hidden and hidden.hide_ids) and any(
            (settings.tools is None or name in settings.tools) and (not profiles or profile in profiles)
            for name, profiles in self.id_tools.items()
        )

    def choose_agent(self, settings: SessionSettings, source: Source, *, profile: str) -> str:
        """Return the agent that a session has chosen, or else that of the source, of the profile, or the default."""
        assigned = self.profiles.get(profile)
        return (
            settings.agent
            or sources.find_matching(source, self.agent_rules)
            or (assigned.agent if assigned else "")
            or next(iter(self.agents), "")
        )

    def map_models(self, bindings: Iterable[Binding]) -> dict[str, tuple[str, ...]]:
        """Return the models of each agent, the default first. An agent with models of its own has told them with its binding;
        until then it is left out."""
        told = {b.agent: _put_first(b.model, b.models) for b in bindings if b.model or b.models}
        return told | {agent: _put_first(name, self.models) for agent, name in self.model_agents.items()}


def _put_first(name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((name, *names))) if name else names


def map_reach(adapters: Sequence[Adapter], names: Mapping[str, str] = {}) -> dict[str, PlatformReach]:
    """Return the platforms that messages can be sent to, and the accounts that have a name. Of several accounts, the first
    one sends for its platform."""
    reach = {
        (a.platform, a.account): PlatformReach(
            a.account,
            a.capabilities.ids,
            threads=a.capabilities.threads,
            holds=a.capabilities.reply_window is not None,
            topics=a.capabilities.topics,
        )
        for a in reversed(adapters)
    }
    named = {
        name: reach[key]
        for name, account in names.items()
        if (key := (name.partition(".")[0], account)) in reach
    }
    return {platform: found for (platform, _), found in reach.items()} | named


def map_signs(adapters: Sequence[Adapter]) -> dict[str, str]:
    """Return what people write before the name of a command, by platform."""
    return {a.platform: a.capabilities.command_sign for a in adapters}


def name_accounts(policy: Policy, names: Mapping[str, str]) -> Policy:
    """Return the policy for accounts with names: `names` maps `telegram.work` to the account. Rules that use a name are
    changed to name the account. Raise `Invalid` for access rules of an account that does not exist."""
    rules: dict[str, AccessRule] = {}
    for name, rule in policy.access.items():
        platform, dot, short = name.partition(".")
        if not dot:
            rules[name] = rule
        elif name in names:
            rules[access.build_rule_key(platform, names[name])] = rule
        elif known := sorted(n.partition(".")[2] for n in names if n.startswith(f"{platform}.")):
            raise Invalid(
                f"[access.{name}] is wrong: there is no account {short!r} of {platform}; there are {', '.join(known)}"
            )
        else:
            raise Invalid(
                f"[access.{name}] is wrong: {platform} has no accounts with names; write [{name}] with its settings"
            )

    def resolve(rule: SourceRule) -> SourceRule:
        found = {
            (platform, account)
            for name, account in names.items()
            for platform, _, short in [name.partition(".")]
            if short == rule.account and rule.platform in ("", platform)
        }
        if len(found) != 1:
            return rule
        [(platform, account)] = found
        return msgspec.structs.replace(rule, platform=platform, account=account)

    return msgspec.structs.replace(
        policy,
        account_names=names,
        access=rules,
        agent_rules={agent: tuple(map(resolve, places)) for agent, places in policy.agent_rules.items()},
        profiles={
            name: msgspec.structs.replace(profile, rules=tuple(map(resolve, profile.rules)))
            for name, profile in policy.profiles.items()
        },
    )


def close_unlisted_platforms(policy: Policy, adapters: Sequence[Adapter]) -> Policy:
    """Return the policy with a closed rule for each connected platform that has none."""
    closed = dict.fromkeys((a.platform for a in adapters), CLOSED)
    return msgspec.structs.replace(policy, access={**closed, **policy.access})


def trust_relayed(policy: Policy, adapters: Sequence[Adapter]) -> Policy:
    """Return the policy in which rules that ask for the relay hold for the accounts of its adapters. Only the adapter that
    serves an account in this process decides that, nothing that was received or stored."""
    relayed = [(a.platform, a.account) for a in adapters if isinstance(a, RelayTransport)]
    rules = {
        access.build_rule_key(*key): msgspec.structs.replace(
            access.find_rule(policy.access, *key) or CLOSED, relay=False
        )
        for key in relayed
    }
    return msgspec.structs.replace(policy, access={**policy.access, **rules}, relayed=frozenset(relayed))


def check_access(rules: AccessRules, adapters: Sequence[Adapter]) -> None:
    """Raise `Invalid` for a rule with ids or roles that cannot exist on its platform and would never match."""
    for adapter in adapters:
        rule = access.find_rule(rules, adapter.platform, adapter.account) or CLOSED
        try:
            platform, capabilities = adapter.platform, adapter.capabilities
            for person in (*rule.allow, *rule.operators):
                if person != EVERYBODY:
                    adapter_port.check_id(platform, "person", person, capabilities.ids.person)
            for chat in rule.groups:
                if chat != EVERYBODY:
                    adapter_port.check_id(platform, "chat", chat, capabilities.ids.chat)
            if rule.roles and not capabilities.roles:
                raise Invalid(f"there are no roles on {platform}: take `roles` out")
            unknown = [role for role in rule.roles if role not in (*capabilities.roles, EVERYBODY)]
            if unknown and EVERYBODY not in capabilities.roles:
                raise Invalid(
                    f"{unknown[0]!r} is no role on {platform}: use {' or '.join(capabilities.roles)}"
                )
        except Invalid as exc:
            raise Invalid(f"[access.{adapter.platform}] is wrong: {exc}") from exc
