"""Compaction: when a conversation is made shorter for the model, and the notices by which people see it."""

import msgspec

from keryx.core import titles
from keryx.core.messages import Notice, Part

ASKED = "compact"
DONE = "compacted"
FAILED = "not compacted"

_LONGEST_QUOTE = 300


class Compaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shares of the model's context: a conversation is compacted when it passes `at`, and the newest turns that fit
    into `keep` stay as they are. `tell`: a chat is told of it with a short marker."""

    at: float = 0.75
    keep: float = 0.3
    tell: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.keep < self.at <= 1:
            raise ValueError("compaction: `keep` must be above 0 and below `at`, and `at` at most 1")

    def due(self, tokens: int, context: int | None) -> bool:
        """Whether a prompt of this many tokens is too long for a model; never where its context is not known."""
        return context is not None and tokens > context * self.at


def asks(parts: tuple[Part, ...]) -> bool:
    """Whether a message is a person's wish for a compaction."""
    return any(isinstance(p, Notice) and p.kind == ASKED for p in parts)


def shows_epoch(parts: tuple[Part, ...]) -> bool:
    """Whether a message is the notice of a compaction, which readers show as a marker with its summary."""
    return any(isinstance(p, Notice) and p.kind == DONE for p in parts)


def shown(notice: Notice) -> str:
    """A notice in words, for readers that tell people nothing else of its kind."""
    if notice.kind == ASKED:
        return f"Compact this conversation{f'; keep above all: {notice.text}' if notice.text else ''}."
    if notice.kind == DONE:
        return f"Older messages were summed up to make room. The model goes on from this:\n\n{notice.text}"
    return notice.text


def marker(summary: str) -> str:
    """One line for a chat, with how the summary begins."""
    line = titles.line(summary)
    quote = titles.capped(line, _LONGEST_QUOTE)
    return f"— Older messages were summed up to make room: “{quote}{'…' if quote != line else ''}” —"
