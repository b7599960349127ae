"""When a conversation is compacted, and the notices that record a compaction in the transcript."""

from datetime import datetime

import msgspec

from keryx.core import text
from keryx.core.messages import Notice, Part
from keryx.core.texts import Phrase, Texts

REQUEST_KIND = "compact"
DONE_KIND = "compacted"
FAILED_KIND = "not compacted"
_LONGEST_QUOTE = 300


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    # The first message that the model still sees.
    first_seq: int
    # Replaces the earlier messages in the prompt.
    summary: str
    created_at: datetime


class CompactionPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`at` and `keep` are shares of the model's context."""

    # Compact a conversation that is longer than this.
    at: float = 0.75
    # Keep the newest turns that fit into this.
    keep: float = 0.3
    # Send a short marker to the chat.
    tell: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.keep < self.at <= 1:
            raise ValueError("`keep` must be above 0 and below `at`, `at` at most 1")

    def is_due(self, tokens: int, context: int | None) -> bool:
        """Whether a prompt of this many tokens is too long; false if the context of the model is unknown."""
        return context is not None and tokens > context * self.at


def is_request(parts: tuple[Part, ...]) -> bool:
    """Whether a message is a person's request for a compaction."""
    return any(isinstance(p, Notice) and p.kind == REQUEST_KIND for p in parts)


def is_epoch_notice(parts: tuple[Part, ...]) -> bool:
    """Whether a message is the notice of a compaction, which readers show as a marker with its summary."""
    return any(isinstance(p, Notice) and p.kind == DONE_KIND for p in parts)


def build_request(notice: Notice) -> Phrase | None:
    """Return a person's request for a compaction as a sentence, `None` for another notice."""
    if notice.kind != REQUEST_KIND:
        return None
    if notice.text:
        return Phrase("turn.compaction_request_keep", focus=notice.text)
    return Phrase("turn.compaction_request")


def describe_notice(notice: Notice, texts: Texts) -> str:
    """Return a notice as a sentence, for surfaces that do not show it in another way."""
    if request := build_request(notice):
        return texts.render(request)
    if notice.kind == DONE_KIND:
        return f"{texts.say('turn.compaction_notice')}\n\n{notice.text}"
    return notice.text


def format_marker(summary: str) -> Phrase:
    """Return one line for a chat, with the beginning of the summary."""
    line = text.to_single_line(summary)
    quote = text.truncate(line, _LONGEST_QUOTE)
    return Phrase("turn.compaction_marker", quote=f"{quote}…" if quote != line else quote)
