"""Deliveries: one answer on its way to one target, its states, and how targets are written."""

from datetime import datetime
from enum import StrEnum
from urllib.parse import unquote

import msgspec

from keryx.core import ids
from keryx.core.errors import Invalid
from keryx.core.ids import DeliveryId, PrincipalId, ProfileId, SessionId, TurnId
from keryx.core.media import Media

LOCAL = "local"
AGAIN = "(again) "


class DeliveryState(StrEnum):
    READY = "ready"
    SENDING = "sending"
    SENT = "sent"
    UNKNOWN = "unknown"
    FAILED = "failed"
    DEAD = "dead"
    DISCARDED = "discarded"


MOVES: dict[DeliveryState, frozenset[DeliveryState]] = {
    DeliveryState.READY: frozenset({DeliveryState.SENDING, DeliveryState.DEAD, DeliveryState.DISCARDED}),
    DeliveryState.SENDING: frozenset(
        {
            DeliveryState.SENT,
            DeliveryState.READY,
            DeliveryState.UNKNOWN,
            DeliveryState.FAILED,
            DeliveryState.DEAD,
        }
    ),
    DeliveryState.UNKNOWN: frozenset({DeliveryState.READY, DeliveryState.DISCARDED}),
    DeliveryState.FAILED: frozenset({DeliveryState.READY, DeliveryState.DISCARDED}),
    DeliveryState.DEAD: frozenset({DeliveryState.READY, DeliveryState.DISCARDED}),
    DeliveryState.SENT: frozenset(),
    DeliveryState.DISCARDED: frozenset(),
}


class Idempotency(StrEnum):
    """What a platform does with a send that is repeated under the same key."""

    NATIVE = "native"
    NONE = "none"


class Doubt(StrEnum):
    """What to do when nobody knows whether a part arrived: repeat it with a visible mark, or hold it for a person."""

    REPEAT = "repeat"
    HOLD = "hold"


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an answer goes. `reply_to` is the platform's id of the message that asked."""

    platform: str
    account: str = ""
    chat: str = ""
    thread: str = ""
    reply_to: str = ""

    @property
    def key(self) -> str:
        """The place alone, without the message: deliveries of one key keep their order."""
        return ":".join(ids.plain(p) for p in (self.platform, self.account, self.chat, self.thread))

    @property
    def account_key(self) -> str:
        """The key of the gate that everything of one account shares."""
        return f"{ids.plain(self.platform)}:{ids.plain(self.account)}"

    @property
    def place(self) -> "Target":
        """The same place, without the message that asked."""
        return msgspec.structs.replace(self, reply_to="") if self.reply_to else self

    def __str__(self) -> str:
        return ":".join(_written(p) for p in (self.platform, self.chat, self.thread) if p)


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
    again: bool = False
    receipts: tuple[str, ...] = ()
    error: str | None = None
    sent_at: datetime | None = None
    media: tuple[Media, ...] = ()


def noted(state: DeliveryState, target: Target) -> str:
    """How the feed tells that a delivery has moved: its state, and the key of the account that sends it."""
    return f"{state.value} {target.account_key}"


def read_note(note: str) -> tuple[DeliveryState, str]:
    """The state and the key of the account that `noted` wrote."""
    state, _, account = note.partition(" ")
    return DeliveryState(state), account


def parse_target(text: str, *, origin: Target | None = None) -> list[Target]:
    """Read `origin`, `local`, `<platform>`, `<platform>:<chat>[:<thread>]`, or a list of these with commas. A colon or
    a comma within an id is written `%3A` or `%2C`, as `str(target)` does."""
    found: list[Target] = []
    for item in (piece.strip() for piece in text.split(",")):
        target = _one_target(item, origin)
        if target not in found:
            found.append(target)
    return found


def _one_target(item: str, origin: Target | None) -> Target:
    if item == "origin":
        if origin is None:
            raise Invalid("`origin` has no meaning here: name a platform, such as telegram:123 or local")
        return origin
    platform, _, rest = item.partition(":")
    if not platform.replace("_", "").replace("-", "").isalnum() or not platform.isascii():
        raise Invalid(f"{item[:80]!r} is not a target: write origin, local, <platform> or <platform>:<chat>")
    chat, _, thread = rest.partition(":")
    return Target(platform.lower(), chat=unquote(chat), thread=unquote(thread))


def _written(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
