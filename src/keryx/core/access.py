"""Who may talk: the rule of each platform, and what it says of one source. Closed unless something opens it."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

from keryx.core import identity
from keryx.core.errors import Invalid
from keryx.core.source import ChatType, Source

EVERYBODY = "*"


class Verdict(StrEnum):
    """`STRANGER`: not let in, and may ask to be. `IGNORED`: not let in, and told nothing."""

    ALLOWED = "allowed"
    STRANGER = "stranger"
    IGNORED = "ignored"


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may talk on one platform. `allow` and `operators` are ids of people, `groups` ids of chats in which
    everybody may talk, `roles` names of roles that let whoever has one talk. `*` stands for all and must be written out.

    `bots` lets other bots talk. `pairing` gives strangers in direct chats a code. `mention`: in groups only what
    is addressed to the agent is answered; `observe` keeps the rest as context."""

    allow: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    bots: bool = False
    pairing: bool = True
    mention: bool = True
    observe: bool = False

    def __post_init__(self) -> None:
        if EVERYBODY in self.operators:
            raise Invalid("operators cannot be *: name each of them by id")


CLOSED = Rule()
Rules = Mapping[str, Rule]
NO_RULES: Rules = MappingProxyType({})


def judge(rule: Rule, source: Source, *, granted: bool, others: Collection[str] = ()) -> Verdict:
    """What becomes of a message. `granted`: its author was let in by a person, as by pairing. `others` are ids that
    the author goes by as well."""
    if source.bot and not rule.bots:
        return Verdict.IGNORED
    direct = source.chat_type is ChatType.DM
    if granted or listed(rule.allow + rule.operators, source, others):
        return Verdict.ALLOWED
    if not direct and _group(rule, source):
        return Verdict.ALLOWED
    if by_role(rule, source):
        return Verdict.ALLOWED
    return Verdict.STRANGER if direct and rule.pairing and not source.bot else Verdict.IGNORED


def listed(people: tuple[str, ...], source: Source, others: Collection[str] = ()) -> bool:
    """Whether a list of ids names the author of a message."""
    if EVERYBODY in people:
        return True
    known = {identity.canonical(source.platform, person) for person in people}
    return any(identity.canonical(source.platform, own) in known for own in (*_ids(source), *others))


def by_role(rule: Rule, source: Source) -> bool:
    """Whether a role lets the author of a message in."""
    return any(role in rule.roles or EVERYBODY in rule.roles for role in source.roles)


def quiet(rule: Rule, source: Source, *, addressed: bool) -> bool:
    """Whether a message in a group is none of the agent's business."""
    return rule.mention and not addressed and source.chat_type is not ChatType.DM


def _ids(source: Source) -> list[str]:
    named = [own for own in (source.user, source.user_alt) if own]
    if not named and source.chat_type is ChatType.DM and source.chat:
        return [source.chat]
    return named


def _group(rule: Rule, source: Source) -> bool:
    if EVERYBODY in rule.groups:
        return True
    return any(chat in rule.groups for chat in (source.chat, source.chat_alt, source.parent_chat) if chat)
