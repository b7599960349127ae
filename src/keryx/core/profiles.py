"""Profiles by rule: which profile a place belongs to, and what is set for each."""

from collections.abc import Iterator, Mapping

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
            raise Invalid("a rule of a profile names nothing: give platform, account, scope, chat or thread")

    @property
    def weight(self) -> tuple[bool, ...]:
        return bool(self.thread), bool(self.chat), bool(self.scope), bool(self.account), bool(self.platform)

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


def choose(source: Source, profiles: Profiles) -> ProfileId:
    """The profile of a source: that of the most specific rule that fits, of equals the first in order of names."""
    if source.profile != DEFAULT_PROFILE:
        return source.profile
    fitting = [(rule.weight, name) for name, rule in _rules(profiles) if rule.fits(source)]
    if not fitting:
        return DEFAULT_PROFILE
    strongest = max(weight for weight, _ in fitting)
    return parse(next(name for weight, name in fitting if weight == strongest))


def parse(name: str) -> ProfileId:
    return DEFAULT_PROFILE if name == DEFAULT_PROFILE else ids.profile(name)


def _rules(profiles: Profiles) -> Iterator[tuple[str, Where]]:
    for name in sorted(profiles):
        for rule in profiles[name].rules:
            yield name, rule
