"""Who a platform's user id means, where one person has several ids.

WhatsApp writes one person as a phone number or as a LID, with or without `+`, device and domain. Whoever posts to
the webhook may know a person by several ids as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from keryx.core import ids
from keryx.core.errors import Invalid

_WHATSAPP = "whatsapp"
_ALIASED = frozenset({_WHATSAPP, "webhook"})


@dataclass(frozen=True, slots=True)
class Aliases:
    """Which ids, each as `canonical` writes it, mean the same person: each alias with its one target.

    A person goes by the shortest of all known ids, then the first in order, so a phone number
    goes before a LID. What was learned decides the value; the order in which it was learned does not.
    """

    canonical: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        for alias, target in self.canonical.items():
            if target in self.canonical or _rank(target) >= _rank(alias):
                raise Invalid(f"{target!r} cannot be the canonical id of {alias!r}: learn the two ids again")

    def resolve(self, user: str) -> str:
        """The canonical id of a person; an id without aliases is its own. Resolving twice changes nothing."""
        return self.canonical.get(user, user)

    def learn(self, one: str, other: str) -> "Aliases":
        """Aliases in which both ids, and all ids known for either, mean one person."""
        first, second = sorted((self.resolve(one), self.resolve(other)), key=_rank)
        if first == second:
            return self
        moved = {alias: first if target == second else target for alias, target in self.canonical.items()}
        return Aliases({**moved, second: first})


NO_ALIASES = Aliases()


def aliased(platform: str) -> bool:
    """Whether one person may have several ids on a platform."""
    return platform in _ALIASED


def canonical(platform: str, user: str) -> str:
    """A WhatsApp id without `+`, device and domain; ids of other platforms unchanged.

    Never raises, and never makes an empty id: one with nothing left stays as it was.
    """
    if platform != _WHATSAPP:
        return user
    number = user.partition("@")[0].partition(":")[0].lstrip("+")
    return number or user


def person(platform: str, user: str, *, aliases: Aliases = NO_ALIASES) -> str:
    """The one id of a person: canonical, and with aliases resolved where the platform has them."""
    return aliases.resolve(canonical(platform, user)) if aliased(platform) else user


def handle(platform: str, user: str, *, aliases: Aliases = NO_ALIASES) -> str:
    """A person as lists of people show and name them: printable, and the same for all of their ids."""
    return ids.plain(person(platform, user, aliases=aliases))


def typed(text: str) -> str:
    """The handle that a person means who types an id, or copies a handle."""
    return text if "%" in text else ids.plain(text)


def _rank(user: str) -> tuple[int, str]:
    return len(user), user
