"""The tokenizer for indexing and for queries: words, CJK bigrams, emoji, and identifiers as written."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from typing import NamedTuple
from unicodedata import category, normalize

LONGEST_TOKEN = 64

_CJK = (
    "\u1100-\u11ff\u3005-\u3007\u303b\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
_EMOJI = "\u00a9\u00ae\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2b00-\u2bff\u3030\u303d\U0001f000-\U0001faff"
_TAGS = "\U000e0020-\U000e007f"
_JOINER = "\u200d"
# A zero-width joiner would split a token in an index, so this joins the parts of an emoji instead.
_TIE = "\u2040"
_CONNECTORS = r"@#./~_$\\+:\-"
_URL = r"https?://[a-z0-9\-._~:/?#@!$&*+,;=%]+"
_LEADING = "-:+\\."
_TRAILING = ".:-/\\@~$?=&%,;!*"
# No token begins with one of these. Skipping them first makes the search three times as fast.
_BLANKS = r"\x00-\x22%-),;<->\[\]^`{|}\x7f\u2000-\u203f"
_FIRST_CJK = "\u1100"
_KEYCAP = "\u20e3"
# Each of these folds to one character, independent of its neighbours except for joining marks.
_SINGLE = "\x00-\x7f\u3041-\u3096\u30a1-\u30fa\u30fc\u4e00-\u9fff\uac00-\ud7a3"

_ASCII_PART = re.compile("[a-z0-9]+")
_ASCII_PIECE = re.compile(rf"{_URL}|[a-z0-9{_CONNECTORS}]+")
_CJK_CHARACTER = re.compile(f"[{_CJK}]")
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180b-\u180f\u200c\u200e\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]+"
)
_EMOJI_JOINER = re.compile(f"(?<=[{_EMOJI}]){_JOINER}(?=[{_EMOJI}])")
_TAG_FLAG = re.compile("\U0001f3f4([\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,16})\U000e007f")
# Normalising is quadratic in the length of a run of combining marks. No language needs thirty of them.
_EXCESS_MARKS = re.compile(rf"([^\w\s\x00-\u02ff{_EMOJI}]{{30}})[^\w\s\x00-\u02ff{_EMOJI}]+")


@dataclass(frozen=True, slots=True)
class TokenizedText:
    # In order.
    words: list[str]
    # Identifiers as written, each once.
    marks: list[str]


class Token(NamedTuple):
    """A word or a mark, and its position in the text."""

    text: str
    start: int
    end: int
    mark: bool = False


def tokenize(text: str) -> TokenizedText:
    """Tokenize any text, in linear time."""
    folded = fold(text)
    words: list[str] = []
    marks: dict[str, None] = {}
    for piece in _get_piece_pattern(folded).findall(folded):
        if piece.isalnum() and piece < _FIRST_CJK:
            words.append(piece[:LONGEST_TOKEN])
        elif is_cjk(piece):
            words += [piece[i : i + 2] for i in range(len(piece))]
        elif _build_unicode_patterns().emoji.match(piece):
            words.append(piece[:LONGEST_TOKEN])
        else:
            body, _ = _trim_punctuation(piece)
            parts = _get_part_pattern(body).findall(body)
            words += [part[:LONGEST_TOKEN] for part in parts]
            if parts and parts[0] != body:
                marks[body[:LONGEST_TOKEN]] = None
    return TokenizedText(words, list(marks))


def tokenize_query(text: str) -> TokenizedText:
    """Tokenize a query. A CJK run at its end has no final single character, so that it matches within longer runs."""
    found = tokenize(text)
    *rest, last = found.words or [""]
    if rest and is_cjk(last) and len(last) == 1 and len(rest[-1]) == 2 and rest[-1][1] == last:
        return TokenizedText(rest, found.marks)
    return found


def locate_tokens(
    text: str, wanted: Iterable[str] = ("",), length: int = 1, most: int | None = None
) -> Iterator[list[Token]]:
    """Yield the tokens of `tokenize(text)` with their positions, a mark before its parts: one list for each piece that
    contains a wanted text, with the `length - 1` words that follow it. Of more than `most` pieces, those around the rarest text are chosen."""
    folded, locate = _fold_with_positions(text)
    pieces = list(_get_piece_pattern(folded).finditer(folded))
    starts = [piece.start() for piece in pieces]
    by_word: list[set[int]] = []
    for word in wanted:
        by_word.append(set())
        spot = folded.find(word)
        while 0 <= spot < len(folded):
            index = bisect_right(starts, spot) - 1
            by_word[-1].add(index)
            # One occurrence in a piece is enough.
            spot = folded.find(word, max(spot + 1, pieces[index].end() if index >= 0 else 0))
    matching = set[int]().union(*by_word) - {-1}
    if most is not None and len(matching) > most:
        rarest = min(min(filter(None, by_word), key=len))
        matching = set(sorted(matching, key=lambda index: abs(index - rarest))[:most])
    for first in sorted(matching):
        run = [
            Token(word, *locate(start, end), mark)
            for word, start, end, mark in _locate_in_piece(pieces[first])
        ]
        following = (
            token
            for i in range(first + 1, len(pieces))
            for token in _locate_in_piece(pieces[i])
            if not token.mark
        )
        run += [
            Token(word, *locate(start, end)) for word, start, end, _ in islice(following, max(0, length - 1))
        ]
        yield run


def is_cjk(text: str) -> bool:
    """Whether the text begins with a character that is indexed in pairs."""
    return _CJK_CHARACTER.match(text) is not None


def fold(text: str) -> str:
    """Return the form for comparison: NFKC, without case, accents on Latin and Greek, and invisible characters."""
    if text.isascii():
        return text.lower()

    def spell_tags(flag: re.Match[str]) -> str:
        letters = "".join(chr(ord(tag) - 0xE0000) for tag in flag[1])
        return f"\U0001f3f4{_TIE}{letters}{_TIE}"

    text = _TAG_FLAG.sub(spell_tags, _INVISIBLE.sub("", text))
    text = _EMOJI_JOINER.sub(_TIE, text).replace(_JOINER, "")
    text = _EXCESS_MARKS.sub(r"\1", text.replace("\uff9e", "\u3099").replace("\uff9f", "\u309a"))
    return normalize("NFKC", normalize("NFKC", text).casefold().translate(_build_accent_table()))


def _get_piece_pattern(folded: str) -> re.Pattern[str]:
    return _ASCII_PIECE if folded.isascii() else _build_unicode_patterns().piece


def _get_part_pattern(body: str) -> re.Pattern[str]:
    return _ASCII_PART if body.isascii() else _build_unicode_patterns().part


def _trim_punctuation(piece: str) -> tuple[str, int]:
    """Strip the punctuation around an identifier. Return it, and how many characters were cut from the front."""
    body = piece.lstrip(_LEADING)
    return body.rstrip(_TRAILING), len(piece) - len(body)


def _locate_in_piece(found: re.Match[str]) -> Iterator[Token]:
    """Yield the tokens of one piece, in the same way as `tokenize`, with their positions in the folded text."""
    piece, (first, end) = found.group(), found.span()
    if is_cjk(piece):
        yield from (Token(piece[i : i + 2], first + i, min(first + i + 2, end)) for i in range(len(piece)))
    elif (piece.isalnum() and piece < _FIRST_CJK) or _build_unicode_patterns().emoji.match(piece):
        yield Token(piece[:LONGEST_TOKEN], first, end)
    else:
        body, shift = _trim_punctuation(piece)
        first += shift
        parts = list(_get_part_pattern(body).finditer(body))
        if parts and parts[0].group() != body:
            yield Token(body[:LONGEST_TOKEN], first, first + len(body), mark=True)
        for part in parts:
            yield Token(part.group()[:LONGEST_TOKEN], first + part.start(), first + part.end())


@dataclass(frozen=True, slots=True)
class _UnicodePatterns:
    """Patterns that need all combining marks of Unicode, which takes some milliseconds to collect."""

    piece: re.Pattern[str]
    part: re.Pattern[str]
    emoji: re.Pattern[str]
    cluster: re.Pattern[str]


@cache
def _build_unicode_patterns() -> _UnicodePatterns:
    scripts = map(
        chr,
        chain(range(0x370, 0x3400), range(0xA000, 0xAC00), range(0xFB00, 0xFE00), range(0x10000, 0x1F000)),
    )
    marks = "".join(c for c in scripts if category(c)[0] == "M" and not is_cjk(c) and c != _KEYCAP)
    joiners = (
        f"\u0300-\u036f\u3099\u309a\uff9e\uff9f\ufe00-\ufe2f{marks}{_KEYCAP}{_JOINER}{_TAGS}"
        "\u1160-\u11ff\u314f-\u3163\uffc2-\uffdc"
    )
    emoji = (
        rf"[0-9#*]{_KEYCAP}|[\U0001f1e6-\U0001f1ff]{{2}}|\U0001f3f4{_TIE}[a-z0-9]{{1,16}}{_TIE}"
        rf"|[{_EMOJI}][\U0001f3fb-\U0001f3ff]?(?:{_TIE}[{_EMOJI}][\U0001f3fb-\U0001f3ff]?){{0,9}}"
    )
    return _UnicodePatterns(
        piece=re.compile(
            rf"(?![{_BLANKS}])(?:{_URL}|[{_CJK}]+|{emoji}"
            rf"|(?:[^\W_{_CJK}{_EMOJI}]+|[{_CONNECTORS}]+|(?![{_BLANKS}])[{marks}]+)+)"
        ),
        part=re.compile(rf"(?:[^\W_]+[{marks}]*)+"),
        emoji=re.compile(emoji),
        cluster=re.compile(
            f"(?P<single>[{_SINGLE}]+(?![{joiners}]))|.(?:[{joiners}]|(?<={_JOINER}).)*", re.DOTALL
        ),
    )


@cache
def _build_accent_table() -> dict[int, str]:
    """Latin and Greek letters without their accents. Letters of other scripts are whole as they are."""
    letters = map(chr, chain(range(0xC0, 0x250), range(0x370, 0x400), range(0x1E00, 0x2000)))
    strokes = dict(zip(map(ord, "øđłħŧıæœ"), ["o", "d", "l", "h", "t", "i", "ae", "oe"], strict=True))
    plain = {ord(c): re.sub("[\u0300-\u036f]", "", normalize("NFD", c)).translate(strokes) for c in letters}
    loose = chain(range(0x300, 0x370), range(0x1AB0, 0x1B00), range(0x1DC0, 0x1E00), range(0xFE20, 0xFE30))
    return plain | dict.fromkeys(loose, "")


def _fold_with_positions(text: str) -> tuple[str, Callable[[int, int], tuple[int, int]]]:
    """Return the folded text, and a function from a range of it to the range of `text` that it came from."""
    if text.isascii():
        return text.lower(), lambda start, end: (start, end)
    folded: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for cluster in _build_unicode_patterns().cluster.finditer(text):
        plain = fold(cluster.group())
        folded.append(plain)
        if cluster.lastgroup:
            starts += range(cluster.start(), cluster.end())
            ends += range(cluster.start() + 1, cluster.end() + 1)
        else:
            starts += [cluster.start()] * len(plain)
            ends += [cluster.end()] * len(plain)
    return "".join(folded), lambda start, end: (starts[start], ends[end - 1])
