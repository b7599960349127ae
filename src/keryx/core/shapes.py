"""Shapes: what the ids of a platform look like, so that a wrong one is refused when it is set and not when it is used."""

import re

import msgspec

from keryx.core.deliveries import Target
from keryx.core.errors import Invalid


class Shape(msgspec.Struct, frozen=True):
    """A pattern that fits the whole of an id, and the same in words, as they stand after `an id is`."""

    pattern: str
    words: str

    def fits(self, text: str) -> bool:
        return re.fullmatch(self.pattern, text, re.ASCII) is not None


class Ids(msgspec.Struct, frozen=True, kw_only=True):
    """The shapes of a platform's ids; `None` where any text may be one."""

    chat: Shape | None = None
    thread: Shape | None = None
    person: Shape | None = None


class Reach(msgspec.Struct, frozen=True):
    """The account that sends on a platform, what ids look like there, and whether chats have threads."""

    account: str = ""
    ids: Ids = Ids()
    threads: bool = True


def check(platform: str, kind: str, text: str, shape: Shape | None) -> None:
    """`Invalid` for what cannot be an id of this kind, with a sentence that says what one looks like."""
    if text and shape is not None and not shape.fits(text):
        raise Invalid(f"{text[:80]!r} is no {kind} on {platform}: the id of one is {shape.words}")


def check_target(target: Target, reach: Reach) -> None:
    """`Invalid` for a place that cannot be on its platform."""
    check(target.platform, "chat", target.chat, reach.ids.chat)
    check(target.platform, "thread", target.thread, reach.ids.thread)
    if target.thread and not reach.threads:
        raise Invalid(
            f"{target.platform} has no threads: name the chat alone, as in {target.platform}:{target.chat}"
        )
