"""Cleaning of foreign text: which characters are removed or replaced where, single lines, and truncation at character boundaries; and numbers with their nouns."""

import re
from unicodedata import category

_MOST_COMBINING = 16

REPLACEMENT = "\ufffd"
CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff"
"""For a character class: control characters other than tab and line ends, lone surrogates, and noncharacters."""
LINE_SEPARATORS = "\x85\u2028\u2029"
"""For a character class: line ends other than CR and LF."""
_BIDI_CONTROLS = "\u200e\u200f\u202a-\u202e\u2066-\u2069"

_PAGE_CONTROLS = re.compile(f"[{CONTROLS}]")
# A carriage return or a change of direction would let a message overwrite or reorder what the terminal shows.
_TERMINAL_CONTROLS = re.compile(f"[{CONTROLS}\r\x85{_BIDI_CONTROLS}]")
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")
# Characters that are invisible or change the direction of the text after them. White space is not among them, because
# it becomes a blank.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_WHITESPACE = re.compile(r"[\s\u2800]+")
# How much more of a text is looked at for a short line than the line is long: it may begin with white space.
_LINE_MARGIN = 4_000
_FLAG_LETTERS = re.compile("[\U0001f1e6-\U0001f1ff]+\\Z")


def to_sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop, unless it ends otherwise."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", "\n")) else ".")


def to_single_line(text: str) -> str:
    """Return the text on one line, without control, zero-width and bidi characters and lone surrogates."""
    return _WHITESPACE.sub(" ", _INVISIBLE.sub("", text)).strip()


def to_short_line(text: str, limit: int) -> str:
    """Return the beginning of a text on one line of at most `limit` characters, in a time that does not depend on its length."""
    return truncate(to_single_line(text[: limit + _LINE_MARGIN]), limit)


def replace_for_page(text: str) -> str:
    """Replace, one for one, what a page of HTML cannot hold."""
    return _PAGE_CONTROLS.sub(REPLACEMENT, text)


def replace_for_terminal(text: str) -> str:
    """Replace, one for one, what would control the terminal of the reader. Tabs and newlines stay."""
    return _TERMINAL_CONTROLS.sub(REPLACEMENT, text)


def has_unwritable(text: str) -> bool:
    return _UNWRITABLE.search(text) is not None


def replace_unwritable(text: str) -> str:
    """Replace NUL and lone surrogates, which files and many JSON readers refuse. The two halves of a character become one."""
    if (text.isascii() and "\0" not in text) or not has_unwritable(text):
        return text
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _UNWRITABLE.sub(REPLACEMENT, joined)


def truncate(text: str, limit: int) -> str:
    """Cut to `limit` characters, without splitting a letter from its accents or the parts of an emoji or flag."""
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


def format_count(number: int, noun: str, several: str = "") -> str:
    """Return a number with its noun, in the plural unless it is 1: by default with an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {several or f'{noun}s'}"
