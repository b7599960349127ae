"""Parses Markdown to the tree, with rules that keep any input in linear time and lose no text."""

import re
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

from markdown_it import MarkdownIt
from markdown_it.common.utils import mdTrim
from markdown_it.helpers import parseLinkDestination, parseLinkTitle
from markdown_it.rules_block import StateBlock, blockquote, list_block, table
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_inline import StateInline, image
from markdown_it.token import Token

from keryx.core.text import replace_for_chat
from keryx.markdown.tree import (
    Block,
    BoldNode,
    BreakNode,
    CodeBlockNode,
    CodeNode,
    DocumentNode,
    HeadingNode,
    ImageNode,
    Inline,
    ItalicNode,
    LinkNode,
    ListItemNode,
    ListNode,
    ParagraphNode,
    QuoteNode,
    RuleNode,
    StrikeNode,
    TableCellNode,
    TableNode,
    TableRowNode,
    TextNode,
    visible_text,
)

MAX_BLOCK_DEPTH = 16
MAX_IMAGE_DEPTH = 3
_BACKTICKS = re.compile("`+")
_MARK_PATTERN = re.compile(r"\\.|[\[\]`]", re.DOTALL)
_CONTAINS_LINK = -2
MAX_URL_LENGTH = 1000
_URL_PATTERN = re.compile(r"(https?|ftp|mailto|magnet):[^\s<>\"|`]+", re.IGNORECASE)
_LANGUAGE_PATTERN = re.compile(r"[\w+#.-]{1,32}", re.ASCII)
_STYLE_NODES: dict[str, type[BoldNode] | type[ItalicNode] | type[StrikeNode]] = {
    "strong": BoldNode,
    "em": ItalicNode,
    "s": StrikeNode,
}
"""Levels of quotes and lists (a list counts two). What is nested deeper stays as text."""


def clean_text(markdown: str) -> str:
    """Line ends as `\\n`; NUL, other control characters and lone surrogates as U+FFFD, one for one."""
    return replace_for_chat(markdown.replace("\r\n", "\n").replace("\r", "\n"))


def build_parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough; no HTML, no reference definitions (they stay visible)."""
    md = MarkdownIt("commonmark", {"html": False, "maxNesting": 100})
    md.enable(["table", "strikethrough"]).disable("reference")
    ends = ["paragraph", "reference", "blockquote"]
    md.block.ruler.at("list", _list_rule, {"alt": ends})
    md.block.ruler.at("blockquote", _quote_rule, {"alt": [*ends, "list"]})
    md.block.ruler.at("table", _table_rule, {"alt": ["paragraph", "reference"]})
    md.inline.ruler.at("image", _image_rule)
    # The parser takes any object with these functions, although it says a module.
    md.helpers = _HELPERS  # pyright: ignore[reportAttributeAccessIssue]
    md.validateLink = _allow_any_link
    return md


def _allow_any_link(url: str) -> bool:
    """Which addresses may be followed is decided where the tree is built; a refused link must not lose its text."""
    return True


def _list_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    return state.level < MAX_BLOCK_DEPTH and list_block(state, start, end, silent)


def _quote_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    return state.level < MAX_BLOCK_DEPTH and blockquote(state, start, end, silent)


def _table_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
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
            _keep_extra_cells(cells, source)
    return True


def _keep_extra_cells(cells: list[Token], source: str) -> None:
    columns = escapedSplit(source)
    columns = columns[columns[0] == "" :]
    if columns and columns[-1] == "":
        columns.pop()
    if len(columns) > len(cells):
        cells[-1].content = " | ".join(map(mdTrim, columns[len(cells) - 1 :]))


def _image_rule(state: StateInline, silent: bool) -> bool:
    depth = int(state.env.get("images", 0))
    if depth >= MAX_IMAGE_DEPTH:
        return False
    state.env["images"] = depth + 1
    try:
        return image(state, silent)
    finally:
        state.env["images"] = depth


def _find_label_end(state: StateInline, start: int, disable_nested: bool = False) -> int:
    """Where the `]` to the `[` at `start` is, or -1. All brackets of a text are paired once, in one pass."""
    if not state.cache:
        state.cache.update(_pair_brackets(state.src))
    end = state.cache.get(start, -1)
    if disable_nested and state.cache.get(~start) == _CONTAINS_LINK:
        return -1
    return end if end < state.posMax else -1


def _pair_brackets(src: str) -> dict[int, int]:
    """`[` to its `]`; and for a `[` around another link, its complement to `_HOLDS_LINK`."""
    pairs = {~len(src): 0}
    spans = _find_code_spans(src)
    opened: list[tuple[int, bool]] = []
    skip = 0
    for found in _MARK_PATTERN.finditer(src):
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
                pairs[~start] = _CONTAINS_LINK
            linked = src.startswith("(", at + 1) and not src.startswith("!", max(start - 1, 0), start)
            if opened and (holds or linked):
                opened[-1] = (opened[-1][0], True)
    return pairs


def _find_code_spans(src: str) -> dict[int, int]:
    """Start to end of what a run of backticks opens: up to the next run of the same length."""
    spans: dict[int, int] = {}
    latest: dict[int, int] = {}
    for run in reversed(list(_BACKTICKS.finditer(src))):
        size = run.end() - run.start()
        spans[run.start()] = latest.get(size, run.end())
        latest[size] = run.end()
    return spans


_HELPERS = SimpleNamespace(
    parseLinkLabel=_find_label_end, parseLinkDestination=parseLinkDestination, parseLinkTitle=parseLinkTitle
)
"""A longer address is shown as text, so that it can be cut."""
_PARSER = build_parser()


def parse(markdown: str) -> DocumentNode:
    """The tree of any text at all. See `guard.clean` for the characters that are replaced."""
    return DocumentNode(tuple(_parse_blocks(iter(_PARSER.parse(clean_text(markdown))), "")))


def _parse_blocks(tokens: Iterator[Token], end: str) -> Iterator[Block]:
    for token in tokens:
        match token.type:
            case _ if token.type == end:
                return
            case "paragraph_open":
                yield ParagraphNode(_parse_content(tokens))
            case "heading_open":
                yield HeadingNode(_parse_content(tokens, "strong"), int(token.tag[1:]))
            case "blockquote_open":
                yield QuoteNode(tuple(_parse_blocks(tokens, "blockquote_close")))
            case "bullet_list_open":
                yield ListNode(tuple(_parse_items(tokens, "bullet_list_close", None)))
            case "ordered_list_open":
                yield ListNode(
                    tuple(_parse_items(tokens, "ordered_list_close", int(token.attrs.get("start", 1))))
                )
            case "table_open":
                yield TableNode(tuple(_parse_rows(tokens)))
            case "fence" | "code_block":
                yield CodeBlockNode(token.content.removesuffix("\n"), _parse_language(token.info))
            case "hr":
                yield RuleNode()
            case _:
                raise AssertionError(f"unknown token {token.type}")


def _parse_content(tokens: Iterator[Token], *inside: str) -> tuple[Inline, ...]:
    """The text between an opening token, which is read already, and its closing one."""
    inline = next(tokens)
    next(tokens)
    return _parse_inlines(inline.children or [], *inside)


def _parse_items(tokens: Iterator[Token], end: str, number: int | None) -> Iterator[ListItemNode]:
    for token in tokens:
        if token.type == end:
            return
        yield ListItemNode(tuple(_parse_blocks(tokens, "list_item_close")), number)
        number = None if number is None else number + 1


def _parse_rows(tokens: Iterator[Token]) -> Iterator[TableRowNode]:
    header = False
    for token in tokens:
        match token.type:
            case "table_close":
                return
            case "thead_open" | "thead_close":
                header = token.type == "thead_open"
            case "tr_open":
                yield TableRowNode(_parse_cells(tokens), header)
            case _:
                pass


def _parse_cells(tokens: Iterator[Token]) -> tuple[TableCellNode, ...]:
    """The cells of a row up to the last that is not empty, and always one: missing cells cost nothing."""
    cells: list[TableCellNode] = []
    filled = 1
    for token in tokens:
        if token.type == "tr_close":
            break
        cells.append(TableCellNode(_parse_content(tokens)))
        filled = len(cells) if cells[-1].children else filled
    return tuple(cells[:filled])


def _parse_language(info: str) -> str:
    found = _LANGUAGE_PATTERN.match(info.strip())
    return found.group() if found else ""


def _parse_inlines(tokens: Sequence[Token], *inside: str) -> tuple[Inline, ...]:
    """The inline tree, without recursion: a style within the same style adds nothing, so depth stays small."""
    stack: list[tuple[Token | None, list[Inline]]] = [(None, [])]
    open_tags = list(inside)
    for token in tokens:
        if token.nesting > 0:
            stack.append((None if token.tag in open_tags else token, []))
            open_tags.append(token.tag)
        elif token.nesting < 0:
            opener, children = stack.pop()
            open_tags.pop()
            stack[-1][1].extend(_close_node(opener, children))
        else:
            stack[-1][1].extend(_parse_leaf(token, "a" in open_tags))
    return _merge_texts(stack[0][1])


def _close_node(opener: Token | None, children: list[Inline]) -> Sequence[Inline]:
    if opener is None or (opener.tag != "a" and not children):
        return children
    if opener.tag == "a":
        return _build_reference(
            LinkNode, _merge_texts(children), str(opener.attrs.get("href", "")), opener.markup == "autolink"
        )
    return [_STYLE_NODES[opener.tag](_merge_texts(children))]


def _parse_leaf(token: Token, linked: bool) -> Sequence[Inline]:
    match token.type:
        case "softbreak" | "hardbreak":
            return [BreakNode()]
        case "code_inline":
            return [CodeNode(token.content)]
        case "image" if linked:
            return _parse_inlines(token.children or [], "a")
        case "image":
            label = _parse_inlines(token.children or [], "a")
            return _build_reference(ImageNode, label, str(token.attrs.get("src", "")), False)
        case _:
            return [TextNode(token.content)] if token.content else []


def _build_reference(
    kind: type[LinkNode] | type[ImageNode], label: tuple[Inline, ...], url: str, auto: bool
) -> Sequence[Inline]:
    """A link that may be followed, or its text and address as text."""
    shown = "".join(map(visible_text, label))
    bare = auto or not shown or shown == url
    if len(url) <= MAX_URL_LENGTH and _URL_PATTERN.fullmatch(url):
        return [kind(label or (TextNode(url),), url, bare)]
    if bare or not url:
        return label or ((TextNode(url),) if url else ())
    return [*label, TextNode(f" ({url})")]


def _merge_texts(nodes: Sequence[Inline]) -> tuple[Inline, ...]:
    merged: list[Inline] = []
    texts: list[str] = []
    for node in nodes:
        if isinstance(node, TextNode):
            texts.append(node.text)
            continue
        if texts:
            merged.append(TextNode("".join(texts)))
            texts = []
        merged.append(node)
    if texts:
        merged.append(TextNode("".join(texts)))
    return tuple(merged)
