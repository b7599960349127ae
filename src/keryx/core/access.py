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
# Without characters that look alike: 0 and O, 1, I and L, 5 and S, B (for 8), U and V.
CODE_ALPHABET = "2346789ACDEFGHJKMNPQRTWXYZ"
CODE_LENGTH = 8


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    profile: ProfileId
    platform: str
    person: str
    name: str
    # The person may use the commands for operators, too.
    operator: bool
    # Who granted access.
    by: PrincipalId
    at: datetime


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """A stranger who was given a pairing code."""

    profile: ProfileId
    platform: str
    person: str
    name: str
    # Where to send the message that access was granted.
    target: Target
    # When the code was sent last.
    told_at: datetime
    expires_at: datetime
    # Of the person, if the platform tells it.
    language: str | None = None


class CommandAudience(StrEnum):
    """Who may give a command."""

    EVERYONE = "everyone"
    # In a shared lane, only the owner of the session and operators.
    OWNER = "owner"
    OPERATOR = "operator"


class Verdict(StrEnum):
    ALLOWED = "allowed"
    # Denied, but offered a pairing code.
    STRANGER = "stranger"
    # Denied without a reply.
    IGNORED = "ignored"


class AccessRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may talk on one platform. `*` in a list matches all."""

    # Ids of people.
    allow: tuple[str, ...] = ()
    # Ids of chats whose members may all talk.
    groups: tuple[str, ...] = ()
    # Roles whose members may talk.
    roles: tuple[str, ...] = ()
    # Ids of people who may talk and use the commands for operators.
    operators: tuple[str, ...] = ()
    # Other bots may talk.
    bots: bool = False
    # Strangers in direct chats get a pairing code.
    pairing: bool = True
    # In groups, answer only messages that are addressed to the agent.
    mention: bool = True
    # In a thread in which the agent takes part, no mention is needed. Permanent topics do not count as threads.
    follow_threads: bool = True
    # Keep the other messages of a group as context.
    observe: bool = False
    # Only what comes through the relay is taken.
    relay: bool = False

    def __post_init__(self) -> None:
        if EVERYBODY in self.operators:
            raise Invalid("operators: `*` is not possible; name each person by id")


CLOSED = AccessRule()
AccessRules = Mapping[str, AccessRule]
"""Rules by platform, and by `build_rule_key` for the accounts that have rules of their own."""
NO_RULES: AccessRules = MappingProxyType({})


def build_rule_key(platform: str, account: str) -> str:
    """Return the key of the rule of one account."""
    return f"{platform}/{account}"


def find_rule(rules: AccessRules, platform: str, account: str) -> AccessRule | None:
    """Return the rule of an account, or else that of its platform."""
    return rules.get(build_rule_key(platform, account)) or rules.get(platform)


def judge(rule: AccessRule, source: Source, *, granted: bool, others: Collection[str] = ()) -> Verdict:
    """Decide whether the author of a message may talk. `granted`: a person gave them access, for instance by pairing.
    `others` are further ids of the author."""
    if (source.bot and not rule.bots) or rule.relay:
        # An account that is connected through the relay has a rule without `relay`.
        return Verdict.IGNORED
    direct = source.chat_type is ChatType.DM
    if granted or is_listed(rule.allow + rule.operators, source, others):
        return Verdict.ALLOWED
    chats = (EVERYBODY, source.chat, source.chat_alt, source.parent_chat)
    if not direct and any(chat in rule.groups for chat in chats if chat):
        return Verdict.ALLOWED
    if is_allowed_by_role(rule, source):
        return Verdict.ALLOWED
    return Verdict.STRANGER if direct and rule.pairing and not source.bot else Verdict.IGNORED


def is_listed(people: tuple[str, ...], source: Source, others: Collection[str] = ()) -> bool:
    """Whether a list of ids names the author of a message."""
    if EVERYBODY in people:
        return True
    known = {sources.normalize_user(source.platform, person) for person in people}
    author = [name for name in (source.user, source.user_alt) if name]
    if not author and source.chat_type is ChatType.DM and source.chat:
        author = [source.chat]
    return any(sources.normalize_user(source.platform, name) in known for name in (*author, *others))


def is_allowed_by_role(rule: AccessRule, source: Source) -> bool:
    """Whether the author of a message has a role that the rule allows."""
    return any(role in rule.roles or EVERYBODY in rule.roles for role in source.roles)


def lacks_mention(rule: AccessRule, source: Source, *, addressed: bool) -> bool:
    """Whether a message in a group is to be ignored because it does not mention the agent."""
    return rule.mention and not addressed and source.chat_type is not ChatType.DM


class CodeHash(msgspec.Struct, frozen=True):
    """The salted hash of a code."""

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
    """Return the code in upper case, without blanks and dashes."""
    return "".join(c for c in text.upper() if c not in " -–\t")


def _digest_code(salt: str, code: str) -> str:
    return hashlib.sha256(f"{salt}:{code}".encode("utf-8", "surrogatepass")).hexdigest()
