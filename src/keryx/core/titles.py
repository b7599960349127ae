"""Titles of sessions: how a person's text is made fit to be one, and how the titles of a line are numbered."""

import re
from unicodedata import category, normalize

from keryx.core.errors import Invalid

LONGEST = 100
UNTITLED = "Untitled"

_AUTOMATIC = 60
_READ = 4_000
_CROWD = 16
_NUMBERED = re.compile(r"(.*\S) #([1-9][0-9]{0,8})\Z", re.DOTALL)

# Characters that take no room on the screen, or that turn around the text after them.
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_BLANKS = re.compile(r"[\s\u2800]+")
_FLAG = re.compile("[\U0001f1e6-\U0001f1ff]+\\Z")

_FENCE = re.compile(r"^\s*(```|~~~).*$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*\)")
_OPENING = re.compile(r"^\s*(?:>+\s*|(?:#+|[-*+]|[0-9]{1,3}[.)]|\[[ xX]\])(?:\s+|\Z))+")
_EMPHASIS = re.compile(
    r"(?<![A-Za-z0-9*_~`])(\*{1,3}+|_{1,3}+|~~|`++)(?=\S)(.+?)(?<=\S)\1(?![A-Za-z0-9]|\.\w)"
)
_SENTENCE = re.compile(r".{12,}?[.!?…]+(?=\s)|.{4,}?[。！？]+")


def line(text: str) -> str:
    """The text on one line: no control, zero-width or bidi characters, no lone surrogates, blanks collapsed."""
    return _BLANKS.sub(" ", _UNSEEN.sub("", text)).strip()


def capped(text: str, limit: int) -> str:
    """At most `limit` characters. A letter keeps its accents, an emoji its colour, a flag both its halves."""
    if len(text) <= limit:
        return text
    cut = limit
    while cut > max(0, limit - _CROWD) and _clings(text[cut]):
        cut -= 1
    cut = limit if _clings(text[cut]) else cut
    flags = _FLAG.search(text, 0, cut)
    if flags and len(flags.group()) % 2 and _FLAG.match(text, cut, cut + 1):
        cut -= 1
    return text[: cut or limit].rstrip()


def clean(text: str) -> str:
    """A person's title as it is kept: one line of at most `LONGEST` characters. `Invalid` if nothing is left."""
    title = capped(normalize("NFC", line(text)[: 4 * LONGEST]), LONGEST)
    if all(category(character)[0] in "MZ" for character in title):
        raise Invalid("a title needs at least one character that can be seen")
    return title


def automatic(text: str) -> str:
    """A title from the first message, by rule: its first sentence without Markdown. `UNTITLED` if it has none."""
    for row in _FENCE.sub("", text[:_READ]).splitlines():
        plain = line(_unmarked(row))
        sentence = _SENTENCE.match(plain)
        title = _shortened(sentence.group() if sentence else plain).rstrip(" .,:;。")
        if any(category(character)[0] in "LNS" for character in title):
            return clean(title)
    return UNTITLED


def base(title: str) -> tuple[str, int]:
    """The line that a title belongs to, and its number there: `Trip #3` is the third `Trip`."""
    found = _NUMBERED.match(title)
    if found is None or found[2] == "1":
        return title, 1
    return found[1], int(found[2])


def numbered(base: str, n: int) -> str:
    """The title with number `n` of a line. The first has none. Never longer than `LONGEST`."""
    suffix = "" if n <= 1 else f" #{n}"
    return capped(base, LONGEST - len(suffix)) + suffix


def _clings(character: str) -> bool:
    return category(character)[0] == "M" or "\U0001f3fb" <= character <= "\U0001f3ff"


def _unmarked(row: str) -> str:
    row = _OPENING.sub("", row)
    row = _LINK.sub(r"\1", row)
    return _EMPHASIS.sub(r"\2", _EMPHASIS.sub(r"\2", row))


def _shortened(text: str) -> str:
    if len(text) <= _AUTOMATIC:
        return text
    head = capped(text, _AUTOMATIC - 1)
    words, blank, _ = head.rpartition(" ")
    whole = text[len(head) : len(head) + 1] == " " or not blank or len(words) < _AUTOMATIC // 2
    return (head if whole else words).rstrip(" .,:;") + "…"
