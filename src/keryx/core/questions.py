"""Questions: what an agent asks a person in the middle of a turn, above all whether a tool may run."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TypeAlias

import msgspec


class Consent(StrEnum):
    """What choosing an option means for a permission. `OTHER` for options that are no permission."""

    ALLOW_ONCE = "allow_once"
    ALLOW_ALWAYS = "allow_always"
    DENY_ONCE = "deny_once"
    DENY_ALWAYS = "deny_always"
    OTHER = "other"


class Option(msgspec.Struct, frozen=True):
    id: str
    label: str
    consent: Consent = Consent.OTHER


PERMISSION = (
    Option("allow", "Allow", Consent.ALLOW_ONCE),
    Option("always", "Always allow in this conversation", Consent.ALLOW_ALWAYS),
    Option("deny", "Deny", Consent.DENY_ONCE),
)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """`key` names it within its turn (for a permission the id of the tool call): asked again under the same key after
    a crash, it gets the answer that was given. `title` is one line; `detail` the exact command or input. With no
    options the answer is free text."""

    key: str
    title: str
    detail: str = ""
    tool: str = ""
    options: tuple[Option, ...] = PERMISSION


Ask: TypeAlias = Callable[[Question], Awaitable[str | None]]


async def nobody(question: Question) -> str | None:
    """For turns that nobody can be asked in: no answer, which is never consent."""
    return None
