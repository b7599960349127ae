"""Where one message came from, and the one codec by which that is stored and sent."""

from enum import StrEnum
from typing import Any

import msgspec

from keryx.core import ids, wire
from keryx.core.errors import Invalid
from keryx.core.ids import DEFAULT_PROFILE, ProfileId

_OLD_SCOPE = "guild_id"


class ChatType(StrEnum):
    DM = "dm"
    GROUP = "group"
    CHANNEL = "channel"
    THREAD = "thread"


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Place and author of a message, in the platform's own ids.

    `account` is the bot that heard it. `user_alt` and `chat_alt` are ids that outlive the ordinary ones
    (a Signal UUID, a Feishu union id). `scope` is the server or workspace around the chat. `roles` are those that
    the author has there; `by_role` says that one of them lets the author in. A profile that is not a profile name is refused with `Invalid`.
    """

    platform: str
    account: str = ""
    chat: str | None = None
    chat_name: str | None = None
    chat_type: ChatType = ChatType.DM
    user: str | None = None
    user_name: str | None = None
    thread: str | None = None
    topic: str | None = None
    user_alt: str | None = None
    chat_alt: str | None = None
    bot: bool = False
    scope: str | None = None
    parent_chat: str | None = None
    message: str | None = None
    profile: ProfileId = DEFAULT_PROFILE
    roles: tuple[str, ...] = ()
    by_role: bool = False

    def __post_init__(self) -> None:
        if self.profile != DEFAULT_PROFILE:
            ids.profile(self.profile)


def encode(source: Source) -> str:
    """JSON text that any database can store; `decode` gives the same source back."""
    return wire.dumps(source)


def decode(text: str) -> Source:
    """Read what `encode` wrote. Raises `Invalid` on malformed text, unknown keys and wrong types."""
    if f'"{_OLD_SCOPE}"' in text:
        return wire.loads(_renamed(text), Source)
    return wire.loads(text, Source)


def _renamed(text: str) -> str:
    fields = wire.loads(text, dict[str, Any])
    if _OLD_SCOPE in fields:
        if "scope" in fields:
            raise Invalid(f"a source names its scope once: it has both `scope` and the old `{_OLD_SCOPE}`")
        fields["scope"] = fields.pop(_OLD_SCOPE)
    return wire.dumps(fields)
