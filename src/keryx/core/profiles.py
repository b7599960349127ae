"""Profiles by rule: which profile a place belongs to, and what is set for each."""

from collections.abc import Mapping

import msgspec

from keryx.core import ids
from keryx.core.errors import Invalid
from keryx.core.ids import DEFAULT_PROFILE, ProfileId
from keryx.core.source import Source


class Where(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rule: everything that it names must fit. A thread counts more than a chat, a chat more than a scope, a scope
    more than an account, an account more than a platform."""

    platform: str = ""
    account: str = ""
    scope: str = ""
    chat: str = ""
    thread: str = ""

    def __post_init__(self) -> None:
        if not any(self.weight):
            raise Invalid("a rule names no place: give platform, account, scope, chat or thread")

    @property
    def weight(self) -> tuple[bool, ...]:
        return bool(self.thread), bool(self.chat), bool(self.scope), bool(self.account), bool(self.platform)

    def __str__(self) -> str:
        return " ".join(f"{key} {value}" for key, value in msgspec.structs.asdict(self).items() if value)

    def fits(self, source: Source) -> bool:
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

    rules: tuple[Where, ...] = ()
    instructions: str = ""
    hide_ids: bool | None = None
    agent: str = ""


Profiles = Mapping[str, Profile]
Places = Mapping[str, tuple[Where, ...]]
"""Rules by the name of what they lead to."""


def choose(source: Source, profiles: Profiles) -> ProfileId:
    """The profile of a source, by the rules where it does not name one itself."""
    if source.profile != DEFAULT_PROFILE:
        return source.profile
    return parse(fitting(source, {name: p.rules for name, p in profiles.items()}) or DEFAULT_PROFILE)


def fitting(source: Source, rules: Places) -> str | None:
    """The name with the most specific rule that fits, of equals the first in order; `None` if no rule fits."""
    found = [(rule.weight, name) for name in sorted(rules) for rule in rules[name] if rule.fits(source)]
    return max(found, key=lambda entry: entry[0])[1] if found else None


def parse(name: str) -> ProfileId:
    return DEFAULT_PROFILE if name == DEFAULT_PROFILE else ids.profile(name)
