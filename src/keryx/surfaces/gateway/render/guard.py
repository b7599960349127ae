"""The Markdown parser, set up so that any input takes linear time and loses no text."""

import re
from types import SimpleNamespace

from markdown_it import MarkdownIt
from markdown_it.common.utils import mdTrim
from markdown_it.helpers import parseLinkDestination, parseLinkTitle
from markdown_it.rules_block import StateBlock, blockquote, list_block, table
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_inline import StateInline, image
from markdown_it.token import Token

DEEPEST_BLOCK = 16
"""Levels of quotes and lists (a list counts two). What is nested deeper stays as text."""

DEEPEST_IMAGE = 3

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_BACKTICKS = re.compile("`+")
_MARK = re.compile(r"\\.|[\[\]`]", re.DOTALL)
_REPLACEMENT = "\ufffd"
_HOLDS_LINK = -2


def clean(markdown: str) -> str:
    """Line ends as `\\n`; NUL, other control characters and lone surrogates as U+FFFD, one for one."""
    return _CONTROL.sub(_REPLACEMENT, markdown.replace("\r\n", "\n").replace("\r", "\n"))


def parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough; no HTML, no reference definitions (they stay visible)."""
    md = MarkdownIt("commonmark", {"html": False, "maxNesting": 100})
    md.enable(["table", "strikethrough"]).disable("reference")
    ends = ["paragraph", "reference", "blockquote"]
    md.block.ruler.at("list", _list, {"alt": ends})
    md.block.ruler.at("blockquote", _quote, {"alt": [*ends, "list"]})
    md.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})
    md.inline.ruler.at("image", _image)
    # The parser takes any object with these functions, although it says a module.
    md.helpers = _HELPERS  # pyright: ignore[reportAttributeAccessIssue]
    md.validateLink = _any_link
    return md


def _any_link(url: str) -> bool:
    """Which addresses may be followed is decided where the tree is built; a refused link must not lose its text."""
    return True


def _list(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    return state.level < DEEPEST_BLOCK and list_block(state, start, end, silent)


def _quote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    return state.level < DEEPEST_BLOCK and blockquote(state, start, end, silent)


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A table whose rows keep the cells that are more than the header has: they join the last one."""
    first = len(state.tokens)
    if not table(state, start, end, silent):
        return False
    cells: list[Token] = []
    source = ""
    for token in state.tokens[first:]:
        if token.type == "tr_open" and token.map:
            cells, line = [], token.map[0]
            source = mdTrim(state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]])
        elif token.type == "inline":
            cells.append(token)
        elif token.type == "tr_close":
            _keep_surplus(cells, source)
    return True


def _keep_surplus(cells: list[Token], source: str) -> None:
    columns = escapedSplit(source)
    columns = columns[columns[0] == "" :]
    if columns and columns[-1] == "":
        columns.pop()
    if len(columns) > len(cells):
        cells[-1].content = " | ".join(map(mdTrim, columns[len(cells) - 1 :]))


def _image(state: StateInline, silent: bool) -> bool:
    depth = int(state.env.get("images", 0))
    if depth >= DEEPEST_IMAGE:
        return False
    state.env["images"] = depth + 1
    try:
        return image(state, silent)
    finally:
        state.env["images"] = depth


def _label_end(state: StateInline, start: int, disable_nested: bool = False) -> int:
    """Where the `]` to the `[` at `start` is, or -1. All brackets of a text are paired once, in one pass."""
    if not state.cache:
        state.cache.update(_brackets(state.src))
    end = state.cache.get(start, -1)
    if disable_nested and state.cache.get(~start) == _HOLDS_LINK:
        return -1
    return end if end < state.posMax else -1


def _brackets(src: str) -> dict[int, int]:
    """`[` to its `]`; and for a `[` around another link, its complement to `_HOLDS_LINK`."""
    pairs = {~len(src): 0}
    spans = _code_spans(src)
    opened: list[tuple[int, bool]] = []
    skip = 0
    for found in _MARK.finditer(src):
        at, mark = found.start(), found.group()
        if at < skip:
            continue
        if mark == "`":
            skip = spans.get(at, at)
        elif mark == "[":
            opened.append((at, False))
        elif mark == "]" and opened:
            start, holds = opened.pop()
            pairs[start] = at
            if holds:
                pairs[~start] = _HOLDS_LINK
            linked = src.startswith("(", at + 1) and not src.startswith("!", max(start - 1, 0), start)
            if opened and (holds or linked):
                opened[-1] = (opened[-1][0], True)
    return pairs


def _code_spans(src: str) -> dict[int, int]:
    """Start to end of what a run of backticks opens: up to the next run of the same length."""
    spans: dict[int, int] = {}
    latest: dict[int, int] = {}
    for run in reversed(list(_BACKTICKS.finditer(src))):
        size = run.end() - run.start()
        spans[run.start()] = latest.get(size, run.end())
        latest[size] = run.end()
    return spans


_HELPERS = SimpleNamespace(
    parseLinkLabel=_label_end, parseLinkDestination=parseLinkDestination, parseLinkTitle=parseLinkTitle
)
