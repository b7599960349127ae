"""Where a message came from: platform, account, chat, thread and author, the aliases of one person, and the profile rules that match a source."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from keryx.core import codec, ids
from keryx.core.errors import Invalid
from keryx.core.ids import DEFAULT_PROFILE, ProfileId
from keryx.core.text import truncate

MAX_ID_LENGTH = 1_000
MAX_NAME_LENGTH = 200
MAX_ROLES = 1_000
_OLD_SCOPE = "guild_id"
_WHATSAPP = "whatsapp"
_ALIASED_PLATFORMS = frozenset({_WHATSAPP, "feishu", "imessage", "signal", "webhook"})
# A telephone number or LID as people and programs write it: with `+`, spaces and dashes, device and domain. The ids of
# groups, lists and channels are not people.
_WHATSAPP_PERSON = re.compile(
    r"\+?([\d\s().-]+)(?::\d+)?(?:@(?!g\.us|broadcast|newsletter).*)?", re.ASCII | re.DOTALL
)


class ChatType(StrEnum):
    DM = "dm"
    GROUP = "group"
    CHANNEL = "channel"
    THREAD = "thread"


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Chat and author of a message, in the ids of the platform. Raises `Invalid` for a wrong profile name."""

    platform: str
    # The bot that received the message.
    account: str = ""
    chat: str | None = None
    chat_name: str | None = None
    chat_type: ChatType = ChatType.DM
    user: str | None = None
    user_name: str | None = None
    thread: str | None = None
    topic: str | None = None
    # Ids that outlive the ordinary ones (a Signal UUID, a Feishu union id).
    user_alt: str | None = None
    chat_alt: str | None = None
    # The author is a bot.
    bot: bool = False
    # The server or workspace of the chat.
    scope: str | None = None
    # The chat that a thread belongs to.
    parent_chat: str | None = None
    # The platform's id of the message.
    message: str | None = None
    profile: ProfileId = DEFAULT_PROFILE
    # The roles of the author in the chat.
    roles: tuple[str, ...] = ()
    # The author has access because of a role.
    by_role: bool = False
    # The language of the author as the platform tells it, such as `de` or `pt-BR`.
    language: str | None = None

    def __post_init__(self) -> None:
        if self.profile != DEFAULT_PROFILE:
            ids.parse_profile(self.profile)


def limit_lengths(source: Source) -> Source:
    """Return a source whose names are short enough to be stored with every message. Raise `Invalid` for ids that are too
    long: a part of one could be the id of another."""
    ids_ = (source.chat, source.user, source.thread, source.account, source.scope, source.parent_chat)
    others = (source.user_alt, source.chat_alt, source.message, *source.roles)
    if (
        max(map(len, filter(None, (*ids_, *others))), default=0) > MAX_ID_LENGTH
        or len(source.roles) > MAX_ROLES
    ):
        raise Invalid(
            f"a message from {source.platform!r} has an id of more than {MAX_ID_LENGTH} characters, or more than"
            f" {MAX_ROLES} roles"
        )
    names = (source.chat_name, source.user_name, source.topic, source.language)
    if max(map(len, filter(None, names)), default=0) <= MAX_NAME_LENGTH:
        return source
    chat_name, user_name, topic, language = (name and truncate(name, MAX_NAME_LENGTH) for name in names)
    return msgspec.structs.replace(
        source, chat_name=chat_name, user_name=user_name, topic=topic, language=language
    )


def encode(source: Source) -> str:
    """Return JSON text that any database can store; the inverse of `decode`."""
    return codec.dumps(source)


def decode(text: str) -> Source:
    """Parse the text of `encode`. Raise `Invalid` for malformed text, unknown keys and wrong types."""
    if f'"{_OLD_SCOPE}"' in text:
        fields = codec.loads(text, dict[str, Any])
        if _OLD_SCOPE in fields:
            if "scope" in fields:
                raise Invalid(
                    f"a source names its scope once: it has both `scope` and the old `{_OLD_SCOPE}`"
                )
            fields["scope"] = fields.pop(_OLD_SCOPE)
        text = codec.dumps(fields)
    return codec.loads(text, Source)


@dataclass(frozen=True, slots=True)
class Aliases:
    """Several ids of one person. The canonical one is the shortest, then the first in order, so a phone number precedes
    a LID. The order of learning does not matter."""

    # The canonical id of each alias.
    canonical: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        for alias, target in self.canonical.items():
            if target in self.canonical or _rank_user(target) >= _rank_user(alias):
                raise Invalid(f"{target!r} cannot be the canonical id of {alias!r}: learn the two ids again")

    def resolve(self, user: str) -> str:
        """Return the canonical id of a person, or the id itself if it has no aliases. Idempotent."""
        return self.canonical.get(user, user)

    def learn(self, one: str, other: str) -> "Aliases":
        """Merge two ids and all aliases of either into one person."""
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
    """Return the digits of a telephone number, LID or JID of WhatsApp, and any other id unchanged. Never raises, and never
    returns an empty id for one that is not."""
    found = _WHATSAPP_PERSON.fullmatch(user.strip()) if platform == _WHATSAPP else None
    return (re.sub(r"\D", "", found[1], flags=re.ASCII) if found else "") or user


def resolve_user(platform: str, user: str, *, aliases: Aliases = NO_ALIASES) -> str:
    """Return the normalized id of a person, with aliases resolved on platforms that have them."""
    return aliases.resolve(normalize_user(platform, user)) if supports_aliases(platform) else user


def build_handle(platform: str, user: str, *, aliases: Aliases = NO_ALIASES) -> str:
    """Return the printable id of a person for lists and commands, the same for all of their aliases."""
    return ids.escape(resolve_user(platform, user, aliases=aliases))


def parse_handle(text: str) -> str:
    """Return the handle for a text that is an id or a handle."""
    return text if "%" in text else ids.escape(text)


def _rank_user(user: str) -> tuple[int, str]:
    return len(user), user


class SourceRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A pattern for sources; all fields that are set must match."""

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
        """Sorts rules: a thread counts more than a chat, then scope, account and platform."""
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
    """The settings of a profile."""

    # Which sources belong to it.
    rules: tuple[SourceRule, ...] = ()
    instructions: str = ""
    # Replace ids and telephone numbers in prompts with hashes; `None` lets the platform decide.
    hide_ids: bool | None = None
    # The agent of its sessions, unless a session has chosen another.
    agent: str = ""


Profiles = Mapping[str, Profile]
SourceRules = Mapping[str, tuple[SourceRule, ...]]
"""Rules by the name of the profile or agent."""


def choose_profile(source: Source, profiles: Profiles) -> ProfileId:
    """Return the profile that the source names, or else the one with the most specific rule."""
    if source.profile != DEFAULT_PROFILE:
        return source.profile
    return ids.parse_profile(
        find_matching(source, {name: p.rules for name, p in profiles.items()}) or DEFAULT_PROFILE
    )


def find_matching(source: Source, rules: SourceRules) -> str | None:
    """Return the name with the most specific rule that matches, of equals the first in order; `None` without a match."""
    found = [
        (rule.specificity, name) for name in sorted(rules) for rule in rules[name] if rule.matches(source)
    ]
    return max(found, key=lambda entry: entry[0])[1] if found else None
