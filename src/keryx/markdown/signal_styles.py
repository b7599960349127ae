"""Signal markup: text with style ranges whose positions count UTF-16 units. Signal reads no markup, so nothing is escaped."""

from enum import StrEnum

import msgspec

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import parse, tree
from keryx.markdown.range_writer import RangeStyles, RangeWriter
from keryx.markdown.split import LengthLimit, has_visible_text, split_document

# What a message holds itself. A longer text would be an attachment that each device has to fetch.
LIMIT = LengthLimit(2000, LengthUnit.BYTES)
# Apps ignore the ranges after these.
MAX_STYLES = 250


class SignalStyle(StrEnum):
    BOLD = "BOLD"
    ITALIC = "ITALIC"
    STRIKETHROUGH = "STRIKETHROUGH"
    MONOSPACE = "MONOSPACE"
    SPOILER = "SPOILER"


_STYLES = RangeStyles(
    bold=SignalStyle.BOLD,
    italic=SignalStyle.ITALIC,
    strike=SignalStyle.STRIKETHROUGH,
    code=SignalStyle.MONOSPACE,
    code_block=SignalStyle.MONOSPACE,
)


class SignalStyleRange(msgspec.Struct, frozen=True):
    start: int
    length: int
    style: SignalStyle


class SignalText(msgspec.Struct, frozen=True):
    text: str
    styles: tuple[SignalStyleRange, ...] = ()


def render_parts(markdown: str, limit: LengthLimit = LIMIT) -> list[SignalText]:
    """Return the parts in order; none if the text shows nothing."""

    def share(part: SignalText) -> float:
        return max(limit.fill_ratio(part.text), len(part.styles) / MAX_STYLES)

    return [part for part in split_document(parse(markdown), render, share) if has_visible_text(part.text)]


def render(document: tree.DocumentNode) -> SignalText:
    """Return the whole document as one part of any length."""
    text, ranges = RangeWriter(_STYLES).write_document(document)
    styles = sorted(
        (SignalStyleRange(one.start, one.length, SignalStyle(one.style)) for one in ranges),
        key=lambda one: (one.start, -one.length, one.style),
    )
    return SignalText(text, tuple(styles))
