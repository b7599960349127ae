"""Access rules: who may talk on a platform, and the one-time codes that pairing uses. Access is denied unless a rule allows it."""

import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

import msgspec

from keryx.core import source as sources
from keryx.core.deliveries import Target
from keryx.core.errors import Invalid
from keryx.core.ids import PrincipalId, ProfileId
from keryx.core.source import ChatType, Source

EVERYBODY = "*"
# Without what can be mistaken for another: 0 and O, 1, I and L, 5 and S, B (for 8), U and V.
CODE_ALPHABET = "2346789ACDEFGHJKMNPQRTWXYZ"
CODE_LENGTH = 8


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """`operator`: may also give the commands of operators."""

    profile: ProfileId
    platform: str
    person: str
    name: str
    operator: bool
    by: PrincipalId
    at: datetime


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """A stranger who may be let in by the code. `target` is where they wait for word."""

    profile: ProfileId
    platform: str
    person: str
    name: str
    target: Target
    told_at: datetime
    expires_at: datetime


class Verdict(StrEnum):
    """`STRANGER`: not let in, and may ask to be. `IGNORED`: not let in, and told nothing."""

    ALLOWED = "allowed"
    STRANGER = "stranger"
    IGNORED = "ignored"


class AccessRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


CLOSED = AccessRule()
AccessRules = Mapping[str, AccessRule]
NO_RULES: AccessRules = MappingProxyType({})


def judge(rule: AccessRule, source: Source, *, granted: bool, others: Collection[str] = ()) -> Verdict:
    """What becomes of a message. `granted`: its author was let in by a person, as by pairing. `others` are ids that
    the author goes by as well."""
    if source.bot and not rule.bots:
        return Verdict.IGNORED
    direct = source.chat_type is ChatType.DM
    if granted or is_listed(rule.allow + rule.operators, source, others):
        return Verdict.ALLOWED
    if not direct and _is_group_allowed(rule, source):
        return Verdict.ALLOWED
    if is_allowed_by_role(rule, source):
        return Verdict.ALLOWED
    return Verdict.STRANGER if direct and rule.pairing and not source.bot else Verdict.IGNORED


def is_listed(people: tuple[str, ...], source: Source, others: Collection[str] = ()) -> bool:
    """Whether a list of ids names the author of a message."""
    if EVERYBODY in people:
        return True
    known = {sources.normalize_user(source.platform, person) for person in people}
    return any(
        sources.normalize_user(source.platform, own) in known for own in (*_list_author_ids(source), *others)
    )


def is_allowed_by_role(rule: AccessRule, source: Source) -> bool:
    """Whether a role lets the author of a message in."""
    return any(role in rule.roles or EVERYBODY in rule.roles for role in source.roles)


def lacks_mention(rule: AccessRule, source: Source, *, addressed: bool) -> bool:
    """Whether a message in a group is none of the agent's business."""
    return rule.mention and not addressed and source.chat_type is not ChatType.DM


def _list_author_ids(source: Source) -> list[str]:
    named = [own for own in (source.user, source.user_alt) if own]
    if not named and source.chat_type is ChatType.DM and source.chat:
        return [source.chat]
    return named


def _is_group_allowed(rule: AccessRule, source: Source) -> bool:
    if EVERYBODY in rule.groups:
        return True
    return any(chat in rule.groups for chat in (source.chat, source.chat_alt, source.parent_chat) if chat)


class CodeHash(msgspec.Struct, frozen=True):
    """A code that can be checked and not be read."""

    salt: str
    digest: str

    def matches(self, code: str) -> bool:
        return hmac.compare_digest(self.digest, _digest_code(self.salt, normalize_code(code)))


def generate_code() -> str:
    return "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_LENGTH))


def hash_code(code: str) -> CodeHash:
    salt = secrets.token_hex(16)
    return CodeHash(salt, _digest_code(salt, code))


def normalize_code(text: str) -> str:
    """A code as it was made, however a person wrote it."""
    return "".join(c for c in text.upper() if c not in " -–\t")


def _digest_code(salt: str, code: str) -> str:
    return hashlib.sha256(f"{salt}:{code}".encode("utf-8", "surrogatepass")).hexdigest()
