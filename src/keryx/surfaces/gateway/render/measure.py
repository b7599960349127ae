"""How long a text is to a platform, and where a text may be cut."""

import unicodedata
from dataclasses import dataclass
from enum import StrEnum

LONGEST_CLUSTER = 64
"""Code points kept together as one character. A longer run of marks on one letter is cut."""

_LONGEST_RUN = 16_384
_JOINER = "\u200d"
_VIRAMA = 9


class Unit(StrEnum):
    UTF16 = "utf16"
    BYTES = "bytes"
    RUNES = "runes"


@dataclass(frozen=True, slots=True)
class Limit:
    """What one message of a platform may hold. Below `SMALLEST` a link might not fit into a part."""

    size: int
    unit: Unit

    def __post_init__(self) -> None:
        if self.size < SMALLEST:
            raise ValueError(f"a limit of {self.size} is too small: at least {SMALLEST}")

    def share(self, text: str) -> float:
        """How much of the limit the text takes; above 1 it does not fit."""
        return length(text, self.unit) / self.size


SMALLEST = 1500


def length(text: str, unit: Unit) -> int:
    match unit:
        case Unit.RUNES:
            return len(text)
        case Unit.UTF16:
            return len(text.encode("utf-16-le", "surrogatepass")) // 2
        case Unit.BYTES:
            return len(text.encode("utf-8", "surrogatepass"))


def inked(text: str) -> bool:
    """Whether a reader sees anything of the text."""
    return any(not char.isspace() and unicodedata.category(char)[0] != "C" for char in text)


def glued(before: str, after: str) -> bool:
    """Whether the two texts meet within one character as a reader sees it."""
    return bool(before and after) and within(
        before[-_LONGEST_RUN:] + after[0], min(len(before), _LONGEST_RUN)
    )


def width(text: str) -> int:
    """Columns in a fixed-width font."""
    return sum(0 if _extends(char) else 1 + (unicodedata.east_asian_width(char) in "WF") for char in text)


def within(text: str, at: int) -> bool:
    """Whether a place inside the text, not at one of its ends, is within one character as a reader sees it."""
    before, after = text[at - 1], text[at]
    if before < "\u0300" and after < "\u0300":
        return before == "\r" and after == "\n"
    if _extends(after) or (before == _JOINER and not after.isspace()):
        return True
    if _regional(before) and _regional(after):
        return _flags(text, at) % 2 == 1
    return _syllable(before, after)


def _extends(char: str) -> bool:
    """Marks, joiners, variation selectors, skin tones and the tags of a flag belong to what stands before them."""
    if char < "\u0300":
        return False
    return (
        unicodedata.category(char)[0] == "M"
        or char in "\u200c\u200d"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\U000e0020" <= char <= "\U000e007f"
    )


def _regional(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _flags(text: str, at: int) -> int:
    """How many flag letters, two of which make a flag, stand in a row before `at`."""
    start = at
    while start > 0 and at - start < _LONGEST_RUN and _regional(text[start - 1]):
        start -= 1
    return at - start


def _syllable(before: str, after: str) -> bool:
    """Hangul letters of one syllable, and an Indic consonant joined to the next."""
    if unicodedata.combining(before) == _VIRAMA:
        return unicodedata.category(after) == "Lo"
    if "\u1100" <= before <= "\u115f":
        return "\u1100" <= after <= "\u11a7" or "\uac00" <= after <= "\ud7a3"
    if "\u1160" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3":
        return "\u1160" <= after <= "\u11ff"
    return False
