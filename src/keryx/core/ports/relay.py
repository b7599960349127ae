"""The relay: instances and the rules that assign chats to them, keys and their proofs, and the events and sends that are on their way."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from keryx.core import access
from keryx.core.deliveries import Target
from keryx.core.errors import Invalid
from keryx.core.media import RemoteFile
from keryx.core.source import Source, normalize_user

MEDIA_PREFIX = "media:"
"""The reference of a file in the store of the connector; what follows is its id."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
_KEY = re.compile(r"krx_([0-9a-f]{12})_([0-9a-f]{64})\Z")
_NONCE = re.compile(r"[0-9a-f]{64}\Z")
_INSTANCE_LABEL = b"keryx relay instance"
_CONNECTOR_LABEL = b"keryx relay connector"


class RelayRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which events belong to an instance; all fields that are set must match."""

    platform: str
    account: str = ""
    chat: str = ""
    person: str = ""

    @property
    def specificity(self) -> tuple[bool, ...]:
        """Sorts rules: a chat counts more than a person, then the account."""
        return bool(self.chat), bool(self.person), bool(self.account)

    def __str__(self) -> str:
        return " ".join(f"{key} {value}" for key, value in msgspec.structs.asdict(self).items() if value)

    def matches(self, source: Source) -> bool:
        return (
            self.platform == source.platform
            and self.account in ("", source.account)
            and self.chat in ("", source.chat, source.chat_alt, source.parent_chat)
            and (not self.person or access.is_listed((self.person,), source))
        )

    def allows(self, target: Target) -> bool:
        """Whether the chat of a target belongs to the instance without an event from there. In direct chats of many
        platforms the id of the chat is that of the person."""
        person = normalize_user(self.platform, self.person)
        return (
            self.platform == target.platform
            and self.account in ("", target.account)
            and self.chat in ("", target.chat)
            and person in ("", normalize_user(target.platform, target.chat))
        )


def choose_rule(rules: Iterable[tuple[RelayRule, str]], source: Source) -> tuple[RelayRule, str] | None:
    """Return the most specific rule that matches, with its instance."""
    found = [entry for entry in rules if entry[0].matches(source)]
    return max(found, key=lambda entry: entry[0].specificity, default=None)


class RelayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept for an instance that is away, and when people are told."""

    events: int
    size: int
    age: timedelta
    notice_after: timedelta


class RelayInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A Keryx for which this one, the connector, holds the bots."""

    name: str
    # The public part of the key, and the hash of the secret part.
    key_id: str
    digest: str
    created_at: datetime
    # `None` while it is not connected.
    connected_at: datetime | None = None
    # When the last connection ended, or when the instance was added.
    left_at: datetime
    # Of the last connection.
    address: str = ""
    # When a second connection with the same key has ended the first.
    evicted_at: datetime | None = None


class RelayOverview(msgspec.Struct, frozen=True, kw_only=True):
    """An instance for an operator."""

    name: str
    key_id: str
    created_at: datetime
    connected_at: datetime | None
    left_at: datetime
    address: str
    evicted_at: datetime | None
    rules: list[RelayRule]
    # The events that wait, and their size in bytes.
    waiting: int
    waiting_bytes: int
    # Events that were not taken: beyond the limits, or refused by the instance.
    dropped: int


class RelayEventKind(StrEnum):
    MESSAGE = "message"
    DELETION = "deletion"
    REACTION = "reaction"
    FAILURE = "failure"
    # A chat has a new id.
    MOVE = "move"
    # A person has another id.
    ALIAS = "alias"


class RelayEventState(StrEnum):
    WAITING = "waiting"
    TAKEN = "taken"
    # The instance could not read it.
    REJECTED = "rejected"
    # Beyond the limits of the queue.
    REFUSED = "refused"
    EXPIRED = "expired"


class QueuedEvent(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    instance: str
    platform: str
    account: str
    event: str
    kind: RelayEventKind
    chat: str
    # Where the person is told that the instance is away; `None` for events that get no answer.
    reply: Target | None
    language: str | None
    # JSON; empty when the event does not wait any more.
    body: str
    files: tuple[RemoteFile, ...]


class RelayedMove(msgspec.Struct, frozen=True):
    """The body of a `MOVE`."""

    old: str
    new: str


class RelayedAlias(msgspec.Struct, frozen=True):
    """The body of an `ALIAS`."""

    source: Source
    other: str


class RelaySendState(StrEnum):
    # The platform is being asked. If no process does so, the outcome is unknown.
    SENDING = "sending"
    # It is unknown whether the platform has taken it.
    DOUBT = "doubt"
    # An operator was asked, because the settings say so: the next attempt sends it with a mark.
    HELD = "held"
    SENT = "sent"
    # It was sent with the mark of a possible repetition, which stays when the message is edited.
    MARKED = "marked"


class RelayedSend(msgspec.Struct, frozen=True, kw_only=True):
    """A part that an instance has asked to send."""

    instance: str
    # Chosen by the instance.
    key: str
    delivery: str
    # The key of its target.
    target: str
    # The key that the platform gets.
    send_key: str
    state: RelaySendState
    receipt: str = ""


class RelayKey(msgspec.Struct, frozen=True):
    """A key of an instance: its public id, and 256 secret bits."""

    id: str
    secret: bytes

    def __str__(self) -> str:
        return f"krx_{self.id}_{self.secret.hex()}"

    def __repr__(self) -> str:
        return f"RelayKey({self.id!r})"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.secret).hexdigest()


def parse_name(text: str) -> str:
    """Return the name of an instance. Raise `Invalid` for any other text."""
    if not _NAME.match(text):
        raise Invalid(f"{text[:80]!r} is not a name for an instance: use lower-case letters, digits, - and _")
    return text


def generate_key() -> RelayKey:
    return RelayKey(secrets.token_hex(6), secrets.token_bytes(32))


def generate_nonce() -> str:
    return secrets.token_hex(32)


def parse_key(text: str) -> RelayKey:
    """Return the key that `str` wrote. Raise `Invalid`, without the text, for any other."""
    found = _KEY.match(text.strip())
    if found is None:
        raise Invalid("this is not the key of a relay: copy the whole text that `keryx relay add` has shown")
    return RelayKey(found[1], bytes.fromhex(found[2]))


# The proofs are those of SCRAM (RFC 5802): the secret is neither sent nor stored by the connector, a recorded proof is
# worth nothing in another connection, and both sides prove who they are. The secret is random, so it needs no salt.
def prove_key(key: RelayKey, challenge: str, nonce: str) -> str:
    """Return the proof of an instance that it has the key. Both nonces are fresh for each connection."""
    signature = _sign(key.digest, _INSTANCE_LABEL, challenge, nonce)
    return _combine(key.secret, signature).hex()


def check_proof(digest: str, proof: str, challenge: str, nonce: str) -> bool:
    """Whether a proof was made with the key of this digest and for these nonces."""
    if not _NONCE.match(proof) or not _NONCE.match(nonce):
        return False
    secret = _combine(bytes.fromhex(proof), _sign(digest, _INSTANCE_LABEL, challenge, nonce))
    return hmac.compare_digest(hashlib.sha256(secret).hexdigest(), digest)


def prove_digest(digest: str, challenge: str, nonce: str) -> str:
    """Return the proof of a connector that it knows the key of an instance."""
    return _sign(digest, _CONNECTOR_LABEL, challenge, nonce).hex()


def _sign(digest: str, label: bytes, challenge: str, nonce: str) -> bytes:
    message = b"\0".join((label, challenge.encode(), nonce.encode()))
    return hmac.digest(bytes.fromhex(digest), message, "sha256")


def _combine(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
