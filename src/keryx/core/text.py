"""Cleaning of foreign text: single lines without control or invisible characters, and truncation at character boundaries."""

import re
from unicodedata import category

_MOST_COMBINING = 16

# Characters that take no room on the screen, or that turn around the text after them.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_WHITESPACE = re.compile(r"[\s\u2800]+")
_FLAG_LETTERS = re.compile("[\U0001f1e6-\U0001f1ff]+\\Z")


def to_single_line(text: str) -> str:
    """The text on one line: no control, zero-width or bidi characters, no lone surrogates, blanks collapsed."""
    return _WHITESPACE.sub(" ", _INVISIBLE.sub("", text)).strip()


def truncate(text: str, limit: int) -> str:
    """At most `limit` characters. A letter keeps its accents, an emoji its colour, a flag both its halves."""
    if len(text) <= limit:
        return text
    cut = limit
    while cut > max(0, limit - _MOST_COMBINING) and _is_combining(text[cut]):
        cut -= 1
    cut = limit if _is_combining(text[cut]) else cut
    flags = _FLAG_LETTERS.search(text, 0, cut)
    if flags and len(flags.group()) % 2 and _FLAG_LETTERS.match(text, cut, cut + 1):
        cut -= 1
    return text[: cut or limit].rstrip()


def _is_combining(character: str) -> bool:
    return category(character)[0] == "M" or "\U0001f3fb" <= character <= "\U0001f3ff"
