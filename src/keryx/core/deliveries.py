"""Deliveries: targets, delivery states and allowed transitions, and the preview message that shows a running turn."""

from datetime import datetime
from enum import StrEnum
from urllib.parse import unquote

import msgspec

from keryx.core import ids
from keryx.core.errors import Invalid
from keryx.core.ids import DeliveryId, LeaseToken, PrincipalId, ProfileId, SessionId, TurnId
from keryx.core.media import Media
from keryx.core.texts import Phrase, Texts

LOCAL = "local"
REPEAT_MARK = "(possible repeat) "
# Adapters leave room for a mark of this length.
LONGEST_REPEAT_MARK = 40
# After this many ends of a process a delivery is sent alone.
SUSPECT_ENDS = 2
_CERTAIN_ENDS = 4
_MOST_ENDS = 20


class ReplyContext(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a platform hands out to answer one message, such as the token of an interaction."""

    # Only the adapter reads it.
    token: str
    # `None` if it does not expire.
    expires_at: datetime | None = None


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an answer is sent."""

    platform: str
    account: str = ""
    chat: str = ""
    thread: str = ""
    # The platform's id of the message that is answered.
    reply_to: str = ""
    reply_context: ReplyContext | None = None
    # An answer is one message: what an agent says between its tool calls is sent with the rest, as in a mail.
    whole: bool = False

    @property
    def key(self) -> str:
        """The target without the message that is answered. Deliveries with the same key keep their order."""
        return ":".join(ids.escape(p) for p in (self.platform, self.account, self.chat, self.thread))

    @property
    def account_key(self) -> str:
        """The key of the gate for all sends of one account."""
        return f"{ids.escape(self.platform)}:{ids.escape(self.account)}"

    @property
    def without_reply(self) -> "Target":
        if not self.reply_to and self.reply_context is None:
            return self
        return msgspec.structs.replace(self, reply_to="", reply_context=None)

    def without_expired(self, now: datetime) -> "Target":
        """Return the target without a reply context that has expired."""
        context = self.reply_context
        if context is None or context.expires_at is None or now < context.expires_at:
            return self
        return msgspec.structs.replace(self, reply_context=None)

    def __str__(self) -> str:
        parts = [part for part in (self.platform, self.chat, self.thread) if part]
        return ":".join(p.replace("%", "%25").replace(":", "%3A").replace(",", "%2C") for p in parts)


class Home(msgspec.Struct, frozen=True, kw_only=True):
    profile: ProfileId
    platform: str
    target: Target
    name: str
    by: PrincipalId
    at: datetime


class DeliveryState(StrEnum):
    READY = "ready"
    SENDING = "sending"
    SENT = "sent"
    UNKNOWN = "unknown"
    # Waits until the person writes.
    HELD = "held"
    FAILED = "failed"
    DEAD = "dead"
    DISCARDED = "discarded"


UNSENT_STATES = tuple(s for s in DeliveryState if s not in (DeliveryState.SENT, DeliveryState.DISCARDED))
MOVES: dict[DeliveryState, frozenset[DeliveryState]] = {
    DeliveryState.READY: frozenset(
        {
            DeliveryState.SENDING,
            DeliveryState.HELD,
            DeliveryState.DEAD,
            DeliveryState.DISCARDED,
            # A person lets it go before its next try.
            DeliveryState.READY,
        }
    ),
    DeliveryState.SENDING: frozenset(
        {
            DeliveryState.SENT,
            DeliveryState.READY,
            DeliveryState.UNKNOWN,
            DeliveryState.HELD,
            DeliveryState.FAILED,
            DeliveryState.DEAD,
        }
    ),
    DeliveryState.HELD: frozenset({DeliveryState.READY, DeliveryState.DISCARDED}),
    DeliveryState.UNKNOWN: frozenset({DeliveryState.READY, DeliveryState.DISCARDED}),
    DeliveryState.FAILED: frozenset({DeliveryState.READY, DeliveryState.DISCARDED}),
    DeliveryState.DEAD: frozenset({DeliveryState.READY, DeliveryState.DISCARDED}),
    # The platform may say later that it has not delivered a part.
    DeliveryState.SENT: frozenset({DeliveryState.HELD, DeliveryState.FAILED}),
    DeliveryState.DISCARDED: frozenset(),
}


class Idempotency(StrEnum):
    """What a platform does with a send that is repeated under the same key."""

    # It is recognised and shown once.
    NATIVE = "native"
    # It is shown twice, but the platform can be asked whether the first arrived (`SupportsReconciliation`).
    RECONCILE = "reconcile"
    NONE = "none"


class DoubtPolicy(StrEnum):
    """What to do with a part that may or may not have arrived."""

    # Send it again with a visible mark.
    REPEAT = "repeat"
    # Keep it until a person decides.
    HOLD = "hold"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    id: DeliveryId
    profile: ProfileId
    owner: PrincipalId
    session: SessionId | None
    turn: TurnId | None
    target: Target
    text: str
    state: DeliveryState
    attempts: int
    created_at: datetime
    not_before: datetime
    parts_sent: int = 0
    # The next part may have arrived already: it is looked up, or sent with a mark.
    again: bool = False
    # The key of the next part, if the adapter chose one.
    send_key: str = ""
    # The platform's ids of the parts that were sent.
    receipts: tuple[str, ...] = ()
    error: str | None = None
    sent_at: datetime | None = None
    media: tuple[Media, ...] = ()
    # How many processes in a row ended while they were sending it.
    ends: int = 0


class WaitReason(StrEnum):
    """Why a delivery that is ready is not sent at once."""

    # Its last try failed.
    RETRY = "retry"
    # The platform wants fewer messages.
    LIMIT = "limit"
    # An earlier one to the same place comes first.
    ORDER = "order"


class Wait(msgspec.Struct, frozen=True):
    reason: WaitReason
    until: datetime | None = None


def is_poisonous(ends: int, *, alone: bool) -> bool:
    """Whether to set a delivery aside, because the processes that send it end: two while they sent it alone, or far too
    many."""
    return (ends >= _CERTAIN_ENDS and alone) or ends >= _MOST_ENDS


def format_note(state: DeliveryState, target: Target) -> str:
    """How the feed tells that a delivery has moved: its state, and the key of the account that sends it."""
    return f"{state.value} {target.account_key}"


def parse_note(note: str) -> tuple[DeliveryState, str]:
    """Return the state and the account key that `format_note` wrote."""
    state, _, account = note.partition(" ")
    return DeliveryState(state), account


def parse_targets(text: str, *, origin: Target | None = None) -> list[Target]:
    """Read `origin`, `local`, `<platform>`, `<platform>:<chat>[:<thread>]`, or a list of these with commas. A colon or
    a comma within an id is written `%3A` or `%2C`, as `str(target)` does. `<platform>.<name>` names one account; the name
    is then the `account` of the target."""
    found: list[Target] = []
    for item in (piece.strip() for piece in text.split(",")):
        target = _parse_target(item, origin)
        if target not in found:
            found.append(target)
    return found


def _parse_target(item: str, origin: Target | None) -> Target:
    if item == "origin":
        if origin is None:
            raise Invalid(Phrase("target.no_origin"))
        return origin
    place, _, rest = item.partition(":")
    platform, _, account = place.partition(".")
    if not platform.replace("_", "").replace("-", "").isalnum() or not platform.isascii():
        raise Invalid(Phrase("target.malformed", target=repr(item[:80])))
    chat, _, thread = rest.partition(":")
    return Target(platform.lower(), account, unquote(chat), unquote(thread))


class PreviewState(StrEnum):
    # The first send has begun.
    SENDING = "sending"
    SHOWN = "shown"
    # It is unknown whether the first send succeeded.
    LOST = "lost"


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The message that shows a running turn in a chat."""

    turn: TurnId
    target: Target
    state: PreviewState
    # The platform's id of the message.
    receipt: str
    # How often the message was sent or edited.
    revision: int
    # Fences the writes of the sender.
    token: LeaseToken
    # The idempotency key of the first send, the same for every attempt.
    key: str
    # When it was first sent.
    at: datetime
    # From then on it is removed, and what would take its place is sent as a new message.
    replace_until: datetime
    # The delivery that takes its place.
    delivery: DeliveryId | None = None


def format_progress(tool: str, minutes: int, texts: Texts) -> str:
    """Return the preview of a turn that has no text yet."""
    if minutes:
        key = "progress.still_tool" if tool else "progress.still"
    else:
        key = "progress.tool" if tool else "progress.begun"
    return texts.say(key, tool=tool, minutes=minutes)
