"""Where a message came from: platform, account, chat, thread and author, the aliases of one person, and the profile rules that match a source."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from keryx.core import codec, ids
from keryx.core.errors import Invalid
from keryx.core.ids import DEFAULT_PROFILE, ProfileId

_OLD_SCOPE = "guild_id"
_WHATSAPP = "whatsapp"
_ALIASED_PLATFORMS = frozenset({_WHATSAPP, "webhook"})


class ChatType(StrEnum):
    DM = "dm"
    GROUP = "group"
    CHANNEL = "channel"
    THREAD = "thread"


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Place and author of a message, in the platform's own ids.

    `account` is the bot that heard it. `user_alt` and `chat_alt` are ids that outlive the ordinary ones
    (a Signal UUID, a Feishu union id). `scope` is the server or workspace around the chat. `roles` are those that
    the author has there; `by_role` says that one of them lets the author in. A profile that is not a profile name is refused with `Invalid`.
    """

    platform: str
    account: str = ""
    chat: str | None = None
    chat_name: str | None = None
    chat_type: ChatType = ChatType.DM
    user: str | None = None
    user_name: str | None = None
    thread: str | None = None
    topic: str | None = None
    user_alt: str | None = None
    chat_alt: str | None = None
    bot: bool = False
    scope: str | None = None
    parent_chat: str | None = None
    message: str | None = None
    profile: ProfileId = DEFAULT_PROFILE
    roles: tuple[str, ...] = ()
    by_role: bool = False

    def __post_init__(self) -> None:
        if self.profile != DEFAULT_PROFILE:
            ids.parse_profile(self.profile)


def encode(source: Source) -> str:
    """JSON text that any database can store; `decode` gives the same source back."""
    return codec.dumps(source)


def decode(text: str) -> Source:
    """Read what `encode` wrote. Raises `Invalid` on malformed text, unknown keys and wrong types."""
    if f'"{_OLD_SCOPE}"' in text:
        return codec.loads(_rename_old_scope(text), Source)
    return codec.loads(text, Source)


def _rename_old_scope(text: str) -> str:
    fields = codec.loads(text, dict[str, Any])
    if _OLD_SCOPE in fields:
        if "scope" in fields:
            raise Invalid(f"a source names its scope once: it has both `scope` and the old `{_OLD_SCOPE}`")
        fields["scope"] = fields.pop(_OLD_SCOPE)
    return codec.dumps(fields)


@dataclass(frozen=True, slots=True)
class Aliases:
    """Which ids, each as `canonical` writes it, mean the same person: each alias with its one target.

    A person goes by the shortest of all known ids, then the first in order, so a phone number
    goes before a LID. What was learned decides the value; the order in which it was learned does not.
    """

    canonical: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        for alias, target in self.canonical.items():
            if target in self.canonical or _rank_user(target) >= _rank_user(alias):
                raise Invalid(f"{target!r} cannot be the canonical id of {alias!r}: learn the two ids again")

    def resolve(self, user: str) -> str:
        """The canonical id of a person; an id without aliases is its own. Resolving twice changes nothing."""
        return self.canonical.get(user, user)

    def learn(self, one: str, other: str) -> "Aliases":
        """Aliases in which both ids, and all ids known for either, mean one person."""
        first, second = sorted((self.resolve(one), self.resolve(other)), key=_rank_user)
        if first == second:
            return self
        moved = {alias: first if target == second else target for alias, target in self.canonical.items()}
        return Aliases({**moved, second: first})


NO_ALIASES = Aliases()


def supports_aliases(platform: str) -> bool:
    """Whether one person may have several ids on a platform."""
    return platform in _ALIASED_PLATFORMS


def normalize_user(platform: str, user: str) -> str:
    """A WhatsApp id without `+`, device and domain; ids of other platforms unchanged.

    Never raises, and never makes an empty id: one with nothing left stays as it was.
    """
    if platform != _WHATSAPP:
        return user
    number = user.partition("@")[0].partition(":")[0].lstrip("+")
    return number or user


def resolve_user(platform: str, user: str, *, aliases: Aliases = NO_ALIASES) -> str:
    """The one id of a person: canonical, and with aliases resolved where the platform has them."""
    return aliases.resolve(normalize_user(platform, user)) if supports_aliases(platform) else user


def build_handle(platform: str, user: str, *, aliases: Aliases = NO_ALIASES) -> str:
    """A person as lists of people show and name them: printable, and the same for all of their ids."""
    return ids.escape(resolve_user(platform, user, aliases=aliases))


def parse_handle(text: str) -> str:
    """The handle that a person means who types an id, or copies a handle."""
    return text if "%" in text else ids.escape(text)


def _rank_user(user: str) -> tuple[int, str]:
    return len(user), user


class SourceRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rule: everything that it names must fit. A thread counts more than a chat, a chat more than a scope, a scope
    more than an account, an account more than a platform."""

    platform: str = ""
    account: str = ""
    scope: str = ""
    chat: str = ""
    thread: str = ""

    def __post_init__(self) -> None:
        if not any(self.specificity):
            raise Invalid("a rule names no place: give platform, account, scope, chat or thread")

    @property
    def specificity(self) -> tuple[bool, ...]:
        return bool(self.thread), bool(self.chat), bool(self.scope), bool(self.account), bool(self.platform)

    def __str__(self) -> str:
        return " ".join(f"{key} {value}" for key, value in msgspec.structs.asdict(self).items() if value)

    def matches(self, source: Source) -> bool:
        return (
            self.platform in ("", source.platform)
            and self.account in ("", source.account)
            and self.scope in ("", source.scope)
            and self.chat in ("", source.chat, source.chat_alt, source.parent_chat)
            and self.thread in ("", source.thread)
        )


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is set for a profile. `rules` say which places belong to it. `hide_ids` replaces ids and telephone numbers
    in prompts, or does not; without it the platform decides. `agent` answers in
    its conversations unless one of them has chosen another."""

    rules: tuple[SourceRule, ...] = ()
    instructions: str = ""
    hide_ids: bool | None = None
    agent: str = ""


Profiles = Mapping[str, Profile]
SourceRules = Mapping[str, tuple[SourceRule, ...]]
"""Rules by the name of what they lead to."""


def choose_profile(source: Source, profiles: Profiles) -> ProfileId:
    """The profile of a source, by the rules where it does not name one itself."""
    if source.profile != DEFAULT_PROFILE:
        return source.profile
    return parse_profile_name(
        find_matching(source, {name: p.rules for name, p in profiles.items()}) or DEFAULT_PROFILE
    )


def find_matching(source: Source, rules: SourceRules) -> str | None:
    """The name with the most specific rule that fits, of equals the first in order; `None` if no rule fits."""
    found = [
        (rule.specificity, name) for name in sorted(rules) for rule in rules[name] if rule.matches(source)
    ]
    return max(found, key=lambda entry: entry[0])[1] if found else None


def parse_profile_name(name: str) -> ProfileId:
    return DEFAULT_PROFILE if name == DEFAULT_PROFILE else ids.parse_profile(name)
