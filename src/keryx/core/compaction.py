"""Compaction: when a conversation is made shorter for the model, and the notices by which people see it."""

import msgspec

from keryx.core.messages import Notice, Part

ASKED = "compact"
DONE = "compacted"
FAILED = "not compacted"


class Compaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shares of the model's context: a conversation is compacted when it passes `at`, and the newest turns that fit
    into `keep` stay as they are."""

    at: float = 0.75
    keep: float = 0.3

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
