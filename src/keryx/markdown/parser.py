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

from keryx.core.text import LINE_SEPARATORS, replace_for_page
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

# Levels of quotes and lists (a list counts as two). Deeper nesting stays as text.
MAX_BLOCK_DEPTH = 16
MAX_IMAGE_DEPTH = 3
# A longer address is shown as text, so that it can be split between parts.
MAX_URL_LENGTH = 1000
_LINE_ENDS = re.compile(f"\r\n?|[{LINE_SEPARATORS}]")
_BACKTICKS = re.compile("`+")
_MARK_PATTERN = re.compile(r"\\.|[\[\]`]", re.DOTALL)
_CONTAINS_LINK = -2
_URL_PATTERN = re.compile(r"(https?|ftp|mailto|magnet):[^\s<>\"|`]+", re.IGNORECASE)
# A web address within a text. CJK and full-width punctuation ends it: such texts have no spaces around addresses.
_BARE_URL_PATTERN = re.compile(
    r"(?<![a-z0-9])https?://(?:[^\W_]|\[[\da-f:]+\])[^\s<>\"|`\\\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]*",
    re.IGNORECASE,
)
_URL_PUNCTUATION = ".,;:!?'"
_LANGUAGE_PATTERN = re.compile(r"[\w+#.-]{1,32}", re.ASCII)
_STYLE_NODES: dict[str, type[BoldNode] | type[ItalicNode] | type[StrikeNode]] = {
    "strong": BoldNode,
    "em": ItalicNode,
    "s": StrikeNode,
}


def clean_text(markdown: str) -> str:
    """Return the text with `\\n` as line ends, and U+FFFD for each control character, lone surrogate and noncharacter."""
    return replace_for_page(_LINE_ENDS.sub("\n", markdown))


def parse(markdown: str) -> DocumentNode:
    """Return the tree of any text. `clean_text` says which characters are replaced."""
    return DocumentNode(tuple(block for _, block in parse_blocks(markdown)))


def parse_blocks(markdown: str) -> Iterator[tuple[int, Block]]:
    """Yield the top-level blocks of a text, each with the number of the line on which it begins."""
    group: list[Token] = []
    for token in _PARSER.parse(clean_text(markdown)):
        group.append(token)
        if token.level == 0 and token.nesting <= 0:
            assert group[0].map is not None
            yield group[0].map[0], next(_parse_blocks(iter(group), ""))
            group = []


def _build_parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough; no HTML, no reference definitions (they stay visible)."""
    md = MarkdownIt("commonmark", {"html": False, "maxNesting": 100})
    md.enable(["table", "strikethrough"]).disable("reference")
    ends = ["paragraph", "reference", "blockquote"]
    md.block.ruler.at("list", _list_rule, {"alt": ends})
    md.block.ruler.at("blockquote", _quote_rule, {"alt": [*ends, "list"]})
    md.block.ruler.at("table", _table_rule, {"alt": ["paragraph", "reference"]})
    md.inline.ruler.at("image", _image_rule)
    # Typed as a module, but any object with these functions works.
    md.helpers = SimpleNamespace(  # pyright: ignore[reportAttributeAccessIssue]
        parseLinkLabel=_find_label_end,
        parseLinkDestination=parseLinkDestination,
        parseLinkTitle=parseLinkTitle,
    )
    # Accept any address here: `_build_reference` decides, and keeps the text of a refused link.
    md.validateLink = lambda url: True
    return md


def _list_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    return state.level < MAX_BLOCK_DEPTH and list_block(state, start, end, silent)


def _quote_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    return state.level < MAX_BLOCK_DEPTH and blockquote(state, start, end, silent)


def _table_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a table; cells beyond the columns of the header are appended to the last cell of their row."""
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
    """Return the position of the `]` for the `[` at `start`, or -1. All brackets of a text are paired in one pass."""
    if not state.cache:
        state.cache.update(_pair_brackets(state.src))
    end = state.cache.get(start, -1)
    if disable_nested and state.cache.get(~start) == _CONTAINS_LINK:
        return -1
    return end if end < state.posMax else -1


def _pair_brackets(src: str) -> dict[int, int]:
    """Map each `[` to its `]`, and the complement of a `[` that contains another link to `_CONTAINS_LINK`."""
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
            start, contains_link = opened.pop()
            pairs[start] = at
            if contains_link:
                pairs[~start] = _CONTAINS_LINK
            linked = src.startswith("(", at + 1) and not src.startswith("!", max(start - 1, 0), start)
            if opened and (contains_link or linked):
                opened[-1] = (opened[-1][0], True)
    return pairs


def _find_code_spans(src: str) -> dict[int, int]:
    """Map the start of each run of backticks to the end of its code span: the next run of the same length."""
    spans: dict[int, int] = {}
    latest: dict[int, int] = {}
    for run in reversed(list(_BACKTICKS.finditer(src))):
        size = run.end() - run.start()
        spans[run.start()] = latest.get(size, run.end())
        latest[size] = run.end()
    return spans


def _parse_blocks(tokens: Iterator[Token], end: str) -> Iterator[Block]:
    for token in tokens:
        match token.type:
            case _ if token.type == end:
                return
            case "paragraph_open":
                yield ParagraphNode(_parse_content(tokens), tight=token.hidden)
            case "heading_open":
                yield HeadingNode(_parse_content(tokens), int(token.tag[1:]))
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


def _parse_content(tokens: Iterator[Token]) -> tuple[Inline, ...]:
    """Parse the text after an opening token, and consume the closing one."""
    inline = next(tokens)
    next(tokens)
    return _parse_inlines(inline.children or [])


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
    """Return the cells of a row without empty ones at its end, but at least one."""
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
    """Build the inline tree without recursion. A style within the same style is dropped, so depth stays small."""
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
        return _build_reference(LinkNode, _merge_texts(children), opener, "href")
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
            return _build_reference(ImageNode, _parse_inlines(token.children or [], "a"), token, "src")
        case _ if linked or "://" not in token.content:
            return [TextNode(token.content)] if token.content else []
        case _:
            return _link_addresses(token.content)


def _link_addresses(text: str) -> Sequence[Inline]:
    """Split a text at its web addresses, which become links. Punctuation after an address stays text."""
    nodes: list[Inline] = []
    end = 0
    for match in _BARE_URL_PATTERN.finditer(text):
        url = _trim_url(match.group())
        if len(url) <= MAX_URL_LENGTH:
            nodes += [TextNode(text[end : match.start()])] if match.start() > end else []
            nodes.append(LinkNode((TextNode(url),), url, bare=True))
            end = match.start() + len(url)
    return [*nodes, TextNode(text[end:])] if end < len(text) else nodes


def _trim_url(url: str) -> str:
    """Remove punctuation and unbalanced closing brackets from the end of an address."""
    surplus = {close: url.count(close) - url.count(open_) for open_, close in ("()", "[]")}
    end = len(url)
    while (last := url[end - 1]) in _URL_PUNCTUATION or surplus.get(last, 0) > 0:
        if last in surplus:
            surplus[last] -= 1
        end -= 1
    return url[:end]


def _build_reference(
    kind: type[LinkNode] | type[ImageNode], label: tuple[Inline, ...], token: Token, attribute: str
) -> Sequence[Inline]:
    """Build a link whose address may be followed, or else its text and address as text."""
    url = str(token.attrs.get(attribute, ""))
    shown = "".join(map(visible_text, label))
    bare = token.markup == "autolink" or not shown or shown == url
    if len(url) <= MAX_URL_LENGTH and _URL_PATTERN.fullmatch(url):
        return [kind(label or (TextNode(url),), url, bare, title=str(token.attrs.get("title", "")))]
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


_PARSER = _build_parser()
