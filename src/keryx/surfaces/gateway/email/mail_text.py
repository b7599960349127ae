"""The text of a mail: HTML as readable text, flowed paragraphs, and what a person wrote without the history they quote and without their signature."""

import re
from html import unescape

import nh3

_BLOCKS = frozenset(
    {
        "p",
        "div",
        "tr",
        "li",
        "ul",
        "ol",
        "table",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "pre",
        "blockquote",
        "hr",
    }
)
_SPACED = frozenset({"p", "ul", "ol", "table", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "blockquote"})
_TAGS = _BLOCKS | {"br", "a", "td", "th", "img"}
_ATTRIBUTES = {"a": {"href"}, "img": {"alt"}}
_DROPPED = {"script", "style", "title", "head", "template"}
_MARKUP = re.compile(r'<(/?)([a-z0-9]+)((?: [a-z-]+="[^"]*")*+)>')
_HREF = re.compile(r'href="([^"]*)"')
_ALT = re.compile(r'alt="([^"]*)"')
_ANY_TAG = re.compile(r"<[^<>]*>\s*")
# The time to sanitise nested tags grows with the square of their number.
_MOST_TAGS = 10_000
_BLANKS = re.compile(r"[ \t\n\r\f\xa0]+")
_EMPTY_LINES = re.compile(r"\n{3,}")
_MAX_QUOTE_DEPTH = 8

_QUOTED = re.compile(r"\s{0,3}>")
# The line before a quotation, in the languages of the common mail programs: a date or a name, and the verb. It may take
# up to three lines if it begins with one of these words.
_ATTRIBUTION = re.compile(
    r"(?:on|am|le|el|il|em|op|den|dne|w dniu|il giorno)\b[^\n]{0,400}"
    r"(?:wrote|schrieb|écrit|escribió|scritto|escreveu|schreef|skrev|napsal|napisał)[^\n]{0,100}[:：]\s*\Z",
    re.IGNORECASE,
)
_SHORT_ATTRIBUTION = re.compile(
    r"[^\n]{0,300}(?:wrote|schrieb|пишет|писал|написал|写道|寫道|のメール)\s*[:：]\s*\Z", re.IGNORECASE
)
_SEPARATOR = re.compile(
    r"\s*-{3,}\s*(?:original message|original appointment|ursprüngliche nachricht|originalnachricht|message d'origine|"
    r"mensaje original|messaggio originale|mensagem original|oorspronkelijk bericht|исходное сообщение|原始邮件)\s*-{3,}\s*\Z",
    re.IGNORECASE,
)
_RULE = re.compile(r"\s*_{20,}\s*\Z")
_HEADER_LINE = re.compile(r"\s*\*{0,2}(?:from|von|de|da|van|från|от|发件人)\s*:\*{0,2}\s*\S", re.IGNORECASE)
_OTHER_HEADER_LINE = re.compile(
    r"\s*\*{0,2}(?:sent|gesendet|date|datum|envoyé|enviado|inviato|verzonden|to|an|à|para|subject|betreff|objet|asunto)\s*:",
    re.IGNORECASE,
)
_SIGNATURE = re.compile(r"--\s?\Z")
_DEVICE = re.compile(
    r"\s*(?:sent from my|get outlook for|von meinem .{1,40} gesendet|gesendet von|gesendet mit der|"
    r"envoyé de mon|enviado desde mi|inviato da)\b.{0,80}\Z",
    re.IGNORECASE,
)
_LONGEST_SIGNATURE = 15
_LONGEST_ATTRIBUTION = 600


def render_html(html: str) -> str:
    """Return the text that a person sees, with quotations marked by `>` and links as `text (address)`."""
    if html.count("<") > _MOST_TAGS:
        return "\n".join(_BLANKS.sub(" ", unescape(line)).strip() for line in _ANY_TAG.split(html)).strip()
    clean = nh3.clean(
        html, tags=set(_TAGS), attributes=_ATTRIBUTES, clean_content_tags=_DROPPED, link_rel=None
    )
    return _HtmlText().render(clean)


class _HtmlText:
    """Writes sanitised HTML, whose tags are all well-formed, as lines."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line = ""
        self._depth = 0
        self._preformatted = False
        self._links: list[tuple[str, int]] = []

    def render(self, html: str) -> str:
        at = 0
        for tag in _MARKUP.finditer(html):
            self._write(html[at : tag.start()])
            at = tag.end()
            if tag[1]:
                self._close(tag[2])
            else:
                self._open(tag[2], tag[3])
        self._write(html[at:])
        self._end_line()
        return _EMPTY_LINES.sub("\n\n", "\n".join(self._lines)).strip("\n")

    def _write(self, text: str) -> None:
        text = unescape(text)
        if self._preformatted:
            first, *rest = text.split("\n")
            self._line += first
            for line in rest:
                self._end_line(keep=True)
                self._line = line
            return
        text = _BLANKS.sub(" ", text)
        self._line += text.lstrip() if not self._line or self._line.endswith(" ") else text

    def _open(self, name: str, attributes: str) -> None:
        if name in _BLOCKS:
            self._begin_block(name)
        match name:
            case "br":
                self._end_line(keep=True)
            case "li":
                self._line = "• "
            case "hr":
                self._line = "———"
                self._end_line()
            case "td" | "th" if self._line:
                self._line += " | "
            case "pre":
                self._preformatted = True
            case "blockquote":
                self._depth += 1
            case "img" if alt := _ALT.search(attributes):
                self._write(f"[{alt[1]}]" if alt[1].strip() else "")
            case "a":
                url = _HREF.search(attributes)
                self._links.append((unescape(url[1]) if url else "", len(self._line)))
            case _:
                pass

    def _close(self, name: str) -> None:
        if name == "a" and self._links:
            url, start = self._links.pop()
            shown = self._line[start:].strip()
            if url.startswith(("http://", "https://")) and shown and shown.rstrip("/") not in url:
                self._line += f" ({url})"
        if name in _BLOCKS:
            self._end_line()
        if name == "pre":
            self._preformatted = False
        elif name == "blockquote":
            self._depth = max(0, self._depth - 1)
        if name in _BLOCKS:
            self._begin_block(name)

    def _begin_block(self, name: str) -> None:
        self._end_line()
        if name in _SPACED and self._lines and self._lines[-1].strip("> "):
            self._lines.append(self._prefix.rstrip())

    @property
    def _prefix(self) -> str:
        return "> " * min(self._depth, _MAX_QUOTE_DEPTH)

    def _end_line(self, *, keep: bool = False) -> None:
        if self._line.strip() or keep:
            line = self._line.rstrip()
            self._lines.append((self._prefix + line).rstrip())
        self._line = ""


def unfold_flowed(text: str, *, delete_space: bool = False) -> str:
    """Return a text of the format `flowed` (RFC 3676) with its paragraphs on one line each."""
    lines: list[str] = []
    open_quotes: int | None = None
    for line in text.split("\n"):
        bare = line.lstrip(">")
        quotes = len(line) - len(bare)
        bare = bare.removeprefix(" ")
        flows = bare.endswith(" ") and bare != "-- "
        content = bare[:-1] if flows and delete_space else bare
        if open_quotes == quotes and lines:
            lines[-1] += content
        else:
            lines.append(f"{'>' * quotes} {content}" if quotes else content)
        open_quotes = quotes if flows else None
    return "\n".join(line.rstrip() if line != "-- " else line for line in lines)


def strip_history(text: str, *, known: bool) -> str:
    """Return what the person wrote: without signature and, if the history is `known` already, without the history that
    they quote at the end. A quotation between answers stays, and so does everything in a mail that is nothing else."""
    lines = _strip_signature(_strip_end(text.split("\n")))
    end = _find_history(lines) if known else len(lines)
    kept = _strip_signature(_strip_end(lines[:end]))
    said = "\n".join(kept).strip()
    return said or text.strip()


def quote_beginning(text: str, *, lines: int, characters: int) -> str:
    """Return the beginning of a text for the tail of an answer, with a mark if it is cut."""
    rows = text.strip().split("\n")
    shown = "\n".join(rows[:lines])[:characters].rstrip()
    return shown if shown == text.strip() else f"{shown}\n[…]"


def _find_history(lines: list[str]) -> int:
    """Return the number of the line at which the quoted history at the end begins."""
    for number, line in enumerate(lines):
        if _SEPARATOR.match(line) or (_RULE.match(line) and _has_header_block(lines, number + 1)):
            return number
        if _HEADER_LINE.match(line) and _has_header_block(lines, number):
            return number
    end = len(_strip_end(lines))
    start = end
    while start and (_QUOTED.match(lines[start - 1]) or not lines[start - 1].strip()):
        start -= 1
    if start == end:
        return end
    for size in (1, 2, 3):
        attribution = " ".join(part.strip() for part in lines[max(0, start - size) : start])
        if len(attribution) <= _LONGEST_ATTRIBUTION and _ATTRIBUTION.match(attribution):
            return max(0, start - size)
    last = lines[start - 1] if start else ""
    return start - 1 if len(last) <= _LONGEST_ATTRIBUTION and _SHORT_ATTRIBUTION.match(last) else start


def _has_header_block(lines: list[str], start: int) -> bool:
    block = [line for line in lines[start : start + 8] if line.strip()]
    return (
        bool(block)
        and _HEADER_LINE.match(block[0]) is not None
        and sum(_OTHER_HEADER_LINE.match(line) is not None for line in block[1:5]) >= 2
    )


def _strip_end(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]


def _strip_signature(lines: list[str]) -> list[str]:
    first = max(0, len(lines) - _LONGEST_SIGNATURE - 1)
    for number in range(first, len(lines)):
        if _SIGNATURE.match(lines[number]) and number:
            lines = _strip_end(lines[:number])
            break
    if len(lines) > 1 and _DEVICE.match(lines[-1]):
        lines = _strip_end(lines[:-1])
    return lines
