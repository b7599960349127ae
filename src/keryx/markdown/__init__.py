"""Markdown: the parser to one tree, with rules that keep any input in linear time and lose no text. The modules render the tree for each platform."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

from markdown_it import MarkdownIt
from markdown_it.common.utils import mdTrim
from markdown_it.helpers import parseLinkDestination, parseLinkTitle
from markdown_it.rules_block import StateBlock, blockquote, list_block
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline, image
from markdown_it.token import Token

from keryx.core.text import LINE_SEPARATORS, replace_for_page
from keryx.markdown import mathml, tree

# A longer text is shown as it is, without markup.
MAX_CHARS = 100_000
# Levels of quotes and lists (a list counts as two). Deeper nesting stays as text.
MAX_BLOCK_DEPTH = 16
MAX_IMAGE_DEPTH = 3
# Paragraphs, headings, items of lists and other blocks of a text, and lines within them. What follows is one paragraph,
# shown as it is.
MAX_BLOCKS = 3_000
MAX_LINES = 10_000
# Of a text outside code blocks, each character that may begin or end a style, a link or a code span. The paragraph or
# cell that exceeds it is shown as it is, and so are those after it.
MAX_MARKS = 10_000
_MARKS = "[]*_~`<"
# The type of a token whose content is shown as it is.
_PLAIN = "plain"
# A table with more columns stays as text.
MAX_TABLE_COLUMNS = 100
# Of all tables of a text, with those that a row leaves out: most renderers fill them in. The table that exceeds it stays
# as text, and so do those after it.
MAX_TABLE_CELLS = 10_000
# Dollar signs of which the first may turn out to end a formula.
_MAX_MATH_ENDS = 8
# The signs around formulas, and those of formulas on lines of their own.
_MATH_SIGNS = {"$$": "$$", "\\[": "\\]", "\\(": "\\)"}
_MATH_BLOCKS = {"$$": "$$", "\\[": "\\]"}
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
_TABLE_RULER = re.compile(r"(?!-(?:\s|\Z))\|?+(?:[ \t]*+:?+-++:?+[ \t]*+\|)*+[ \t]*+(?::?+-++:?+)?+")
_URL_PUNCTUATION = ".,;:!?'"
_BREAK = tree.BreakNode()
_BlockRule = Callable[[StateBlock, int, int, bool], bool]
_LANGUAGE_PATTERN = re.compile(r"[\w+#.-]{1,32}", re.ASCII)
_STYLE_NODES: dict[str, type[tree.BoldNode] | type[tree.ItalicNode] | type[tree.StrikeNode]] = {
    "strong": tree.BoldNode,
    "em": tree.ItalicNode,
    "s": tree.StrikeNode,
}


def clean_text(markdown: str) -> str:
    """Return the text with `\\n` as line ends, and U+FFFD for each control character, lone surrogate and noncharacter."""
    return replace_for_page(_LINE_ENDS.sub("\n", markdown))


def parse(markdown: str) -> tree.DocumentNode:
    """Return the tree of any text. `clean_text` says which characters are replaced."""
    return tree.DocumentNode(tuple(block for _, block in parse_blocks(markdown)))


def parse_blocks(markdown: str) -> Iterator[tuple[int, tree.Block]]:
    """Yield the top-level blocks of a text, each with the number of the line on which it begins."""
    group: list[Token] = []
    text = clean_text(markdown)
    if len(text) > MAX_CHARS:
        # A paragraph for each run of lines between empty ones.
        paragraph: list[str] = []
        for number, line in enumerate([*text.split("\n"), ""]):
            if line.strip():
                paragraph.append(line)
            elif paragraph:
                yield number - len(paragraph), tree.ParagraphNode(_build_lines(paragraph))
                paragraph = []
        return
    for token in _PARSER.parse(text):
        group.append(token)
        if token.level == 0 and token.nesting <= 0:
            assert group[0].map is not None
            yield group[0].map[0], next(_parse_blocks(iter(group), ""))
            group = []


def _build_lines(lines: Sequence[str]) -> tuple[tree.Inline, ...]:
    """Return lines as they are, with breaks between them."""
    nodes = [node for line in lines for node in (_BREAK, tree.TextNode(line)) if line or node is _BREAK]
    return tuple(nodes[1:])


def _build_parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough; no HTML, no reference definitions (they stay visible)."""
    md = MarkdownIt("commonmark", {"html": False, "maxNesting": 100})
    md.enable(["table", "strikethrough"]).disable("reference")
    ends = ["paragraph", "reference", "blockquote"]
    md.block.ruler.before("table", "rest", _rest_rule, {"alt": [*ends, "list"]})
    md.block.ruler.before("table", "math", _math_block_rule, {"alt": [*ends, "list"]})
    md.inline.ruler.before("text", "math", _math_rule)
    md.block.ruler.at("list", _limit_depth(list_block), {"alt": ends})
    md.block.ruler.at("blockquote", _limit_depth(blockquote), {"alt": [*ends, "list"]})
    md.block.ruler.at("table", _table_rule, {"alt": ["paragraph", "reference"]})
    md.core.ruler.at("inline", _inline_rule)
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


def _limit_depth(rule: _BlockRule) -> _BlockRule:
    def limited(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        return state.level < MAX_BLOCK_DEPTH and rule(state, start, end, silent)

    return limited


def _rest_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Count the blocks and lines of a text. After too many, end what is open, and take the other lines as one paragraph."""
    counts: _BlockCounts = state.env.setdefault("counts", _BlockCounts())
    if not silent:
        counts.blocks += 1
    elif state.parentType == "list":
        counts.end_item()
    elif state.parentType != "table":
        counts.add_line(start)
    if silent or not counts.exceeded(start):
        return counts.exceeded(start)
    line = start
    while line < end and (state.isEmpty(line) or state.sCount[line] >= state.blkIndent):
        line += 1
    paragraph = state.push("paragraph_open", "p", 1)
    rest = state.push(_PLAIN, "", 0)
    rest.content = state.getLines(start, line, state.blkIndent, False).strip("\n")
    paragraph.map = rest.map = [start, line]
    state.push("paragraph_close", "p", -1)
    state.line = line
    return True


class _BlockCounts:
    """What `_rest_rule` has been asked for: each block, the end of each item of a list, and each line of a paragraph or a
    quote, of which the rules look at some several times."""

    def __init__(self) -> None:
        self.blocks: int = 0
        self._blocks_before_item: int = 0
        self._lines = 0
        self._last_line = -1
        # The first line after too many.
        self._rest: int | None = None

    def end_item(self) -> None:
        """Count an item that has no block."""
        if self.blocks == self._blocks_before_item:
            self.blocks += 1
        self._blocks_before_item = self.blocks

    def add_line(self, line: int) -> None:
        if line > self._last_line:
            self._last_line = line
            self._lines += 1
            if self._lines > MAX_LINES and self._rest is None:
                self._rest = line

    def exceeded(self, line: int) -> bool:
        return self.blocks > MAX_BLOCKS or (self._rest is not None and line >= self._rest)


def _table_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a table. Cells beyond the columns of the header are appended to the last cell of their row; missing ones get
    no token, so that the cost of a row does not depend on the header."""
    if start + 2 > end or state.sCount[start + 1] < state.blkIndent:
        return False
    if state.is_code_block(start) or state.is_code_block(start + 1):
        return False
    header, ruler = _read_line(state, start), _read_line(state, start + 1)
    columns = _split_row(header)
    if "|" not in header or not 0 < len(columns) <= MAX_TABLE_COLUMNS or not _TABLE_RULER.fullmatch(ruler):
        return False
    if len(_split_row(ruler)) != len(columns) or _count_cells(state) > MAX_TABLE_CELLS:
        return False
    if silent:
        return True
    rows = _read_rows(state, start + 2, end, len(columns))
    if _count_cells(state) > MAX_TABLE_CELLS:
        return False
    table = state.push("table_open", "table", 1)
    table.meta["alignments"] = tuple(map(_find_alignment, _split_row(ruler)))
    state.push("thead_open", "thead", 1)
    _add_row(state, columns, "th", start)
    state.push("thead_close", "thead", -1)
    for line, row in enumerate(rows, start + 2):
        _add_row(state, row, "td", line)
    state.push("table_close", "table", -1)
    state.line = start + 2 + len(rows)
    table.map = [start, state.line]
    return True


def _count_cells(state: StateBlock, more: int = 0) -> int:
    """Count more cells, and return those of all tables of the text. The count is never lowered: after a table that has
    too many, no other is tried, so that each line is read once."""
    state.env["cells"] = int(state.env.get("cells", 0)) + more
    return state.env["cells"]


def _read_rows(state: StateBlock, line: int, end: int, columns: int) -> list[Sequence[str]]:
    """Return the rows of a table below its ruler, up to the limit of cells."""
    rows: list[Sequence[str]] = []
    outer, state.parentType = state.parentType, "table"
    terminators = state.md.block.ruler.getRules("blockquote")
    while line < end and state.sCount[line] >= state.blkIndent and not state.is_code_block(line):
        row = _read_line(state, line)
        if not row or any(ends(state, line, end, True) for ends in terminators):
            break
        if _count_cells(state, columns) > MAX_TABLE_CELLS:
            break
        cells = _split_row(row)
        last = columns - 1
        rows.append([*cells[:last], " | ".join(cells[last:])] if len(cells) > last else cells)
        line += 1
    state.parentType = outer
    return rows


def _read_line(state: StateBlock, line: int) -> str:
    return mdTrim(state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]])


def _split_row(row: str) -> list[str]:
    """Return the cells of a line, without the empty texts outside its outer bars."""
    cells = list(map(mdTrim, escapedSplit(row)))
    if cells and not cells[0]:
        cells.pop(0)
    if cells and not cells[-1]:
        cells.pop()
    return cells


def _find_alignment(ruler: str) -> str:
    """Return where the cells below a part of the ruler stand: left, center or right, or an empty text for no choice."""
    return {(True, True): "center", (True, False): "left", (False, True): "right"}.get(
        (ruler.startswith(":"), ruler.endswith(":")), ""
    )


def _add_row(state: StateBlock, cells: Sequence[str], tag: str, line: int) -> None:
    state.push("tr_open", "tr", 1)
    for cell in cells or [""]:
        state.push(f"{tag}_open", tag, 1)
        inline = state.push("inline", "", 0)
        inline.content, inline.map, inline.children = cell, [line, line + 1], []
        state.push(f"{tag}_close", tag, -1)
    state.push("tr_close", "tr", -1)


def _inline_rule(state: StateCore) -> None:
    """Parse what is inside paragraphs, headings and cells, up to the limit of marks."""
    marks = 0
    for token in state.tokens:
        if token.type != "inline":
            continue
        marks += sum(map(token.content.count, _MARKS))
        if marks <= MAX_MARKS:
            token.children = []
            state.md.inline.parse(token.content, state.md, state.env, token.children)
        else:
            token.type = _PLAIN


def _math_block_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Take the lines of a formula as one paragraph, whatever else they may look like."""
    text = _read_line(state, start)
    closing = _MATH_BLOCKS.get(text[:2])
    if closing is None or state.is_code_block(start):
        return False
    last = start if len(text) > 4 and text.endswith(closing) else _find_math_line(state, start, end, closing)
    if last is None:
        return False
    if silent:
        return True
    paragraph = state.push("paragraph_open", "p", 1)
    inline = state.push("inline", "", 0)
    inline.content = state.getLines(start, last + 1, state.blkIndent, False).strip()
    paragraph.map = inline.map = [start, last + 1]
    inline.children = []
    state.push("paragraph_close", "p", -1)
    state.line = last + 1
    return True


def _find_math_line(state: StateBlock, start: int, end: int, closing: str) -> int | None:
    """Return the line below `start` that ends a formula. Lines are read once for all formulas that may begin above them."""
    scans: dict[str, tuple[int, int, bool]] = state.env.setdefault("math", {})
    first, line, found = scans.get(closing, (0, 0, False))
    if not first <= start < line:
        line, text = start + 1, ""
        while line < end and state.sCount[line] >= state.blkIndent and (text := _read_line(state, line)):
            if text.endswith(closing):
                break
            line += 1
        found = text.endswith(closing)
        scans[closing] = start, line, found
    return line if found and line < end else None


def _math_rule(state: StateInline, silent: bool) -> bool:
    """Take a formula in TeX as it is, with its backslashes. What is an amount of money is not one."""
    found = _find_math(state.src, state.pos)
    if found is None or found[1] > state.posMax:
        return False
    sign, end = found
    if not silent:
        token = state.push("math", "", 0)
        token.content = state.src[state.pos : end]
        token.info = token.content[len(sign) : -len(sign)]
        token.block = sign in _MATH_BLOCKS
    state.pos = end
    return True


def _find_math(src: str, start: int) -> tuple[str, int] | None:
    """Return the sign with which a formula begins at a position, and the end of the formula."""
    sign = src[start : start + 2]
    limit = start + mathml.MAX_TEX_CHARS
    if sign in _MATH_SIGNS:
        end = src.find(_MATH_SIGNS[sign], start + 2, limit)
        return (sign, end + 2) if end > start + 2 else None
    if not sign.startswith("$") or len(sign) < 2 or sign[1].isspace():
        return None
    end = start
    for _ in range(_MAX_MATH_ENDS):
        end = src.find("$", end + 1, limit)
        if end < 0:
            return None
        if not src[end - 1].isspace() and src[end - 1] != "\\":
            return None if src[end + 1 : end + 2].isdigit() else ("$", end + 1)
    return None


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
    # The start of each run of backticks, and the end of its code span: the next run of the same length.
    spans: dict[int, int] = {}
    latest: dict[int, int] = {}
    for run in reversed(list(_BACKTICKS.finditer(src))):
        size = run.end() - run.start()
        spans[run.start()] = latest.get(size, run.end())
        latest[size] = run.end()
    pairs = {~len(src): 0}
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


def _parse_blocks(tokens: Iterator[Token], end: str) -> Iterator[tree.Block]:
    for token in tokens:
        match token.type:
            case _ if token.type == end:
                return
            case "paragraph_open":
                yield tree.ParagraphNode(_parse_content(tokens), tight=token.hidden)
            case "heading_open":
                yield tree.HeadingNode(_parse_content(tokens), int(token.tag[1:]))
            case "blockquote_open":
                yield tree.QuoteNode(tuple(_parse_blocks(tokens, "blockquote_close")))
            case "bullet_list_open":
                yield tree.ListNode(tuple(_parse_items(tokens, "bullet_list_close", None)))
            case "ordered_list_open":
                yield tree.ListNode(
                    tuple(_parse_items(tokens, "ordered_list_close", int(token.attrs.get("start", 1))))
                )
            case "table_open":
                alignments: tuple[str, ...] = token.meta["alignments"]
                yield tree.TableNode(tuple(_parse_rows(tokens)), alignments if any(alignments) else ())
            case "fence" | "code_block":
                language = _LANGUAGE_PATTERN.match(token.info.strip())
                yield tree.CodeBlockNode(
                    token.content.removesuffix("\n"), language.group() if language else ""
                )
            case "hr":
                yield tree.RuleNode()
            case _:
                raise AssertionError(f"unknown token {token.type}")


def _parse_content(tokens: Iterator[Token]) -> tuple[tree.Inline, ...]:
    """Parse the text after an opening token, and consume the closing one."""
    inline = next(tokens)
    next(tokens)
    if inline.type == _PLAIN:
        return _build_lines(inline.content.split("\n"))
    return _parse_inlines(inline.children or [])


def _parse_items(tokens: Iterator[Token], end: str, number: int | None) -> Iterator[tree.ListItemNode]:
    for token in tokens:
        if token.type == end:
            return
        yield tree.ListItemNode(tuple(_parse_blocks(tokens, "list_item_close")), number)
        number = None if number is None else number + 1


def _parse_rows(tokens: Iterator[Token]) -> Iterator[tree.TableRowNode]:
    """Yield the rows of a table without empty cells at their end, but with at least one cell."""
    header = False
    cells: list[tree.TableCellNode] = []
    for token in tokens:
        match token.type:
            case "table_close":
                return
            case "thead_open" | "thead_close":
                header = token.type == "thead_open"
            case "th_open" | "td_open":
                cells.append(tree.TableCellNode(_parse_content(tokens)))
            case "tr_close":
                while len(cells) > 1 and not cells[-1].children:
                    cells.pop()
                yield tree.TableRowNode(tuple(cells), header)
                cells = []
            case _:
                pass


def _parse_inlines(tokens: Sequence[Token], *inside: str) -> tuple[tree.Inline, ...]:
    """Build the inline tree without recursion. A style within the same style is dropped, so depth stays small."""
    stack: list[tuple[Token | None, list[tree.Inline]]] = [(None, [])]
    open_tags = Counter(inside)
    for token in tokens:
        if token.nesting > 0:
            stack.append((None, stack[-1][1]) if open_tags[token.tag] else (token, []))
            open_tags[token.tag] += 1
        elif token.nesting < 0:
            opener, children = stack.pop()
            open_tags[token.tag] -= 1
            if opener is not None and opener.tag == "a":
                stack[-1][1].extend(_build_reference(tree.LinkNode, _merge_texts(children), opener, "href"))
            elif opener is not None and children:
                stack[-1][1].append(_STYLE_NODES[opener.tag](_merge_texts(children)))
        else:
            stack[-1][1].extend(_parse_leaf(token, open_tags["a"] > 0))
    return _merge_texts(stack[0][1])


def _parse_leaf(token: Token, linked: bool) -> Sequence[tree.Inline]:
    match token.type:
        case "softbreak" | "hardbreak":
            return [tree.BreakNode()]
        case "code_inline":
            return [tree.CodeNode(token.content)]
        case "math":
            return [tree.MathNode(token.content, tex=token.info, display=token.block)]
        case "image" if linked:
            return _parse_inlines(token.children or [], "a")
        case "image":
            return _build_reference(tree.ImageNode, _parse_inlines(token.children or [], "a"), token, "src")
        case _ if linked or "://" not in token.content:
            return [tree.TextNode(token.content)] if token.content else []
        case _:
            # Split a text at its web addresses, which become links. Punctuation and unbalanced closing brackets
            # after an address stay text.
            text = token.content
            nodes: list[tree.Inline] = []
            end = 0
            for match in _BARE_URL_PATTERN.finditer(text):
                url = match.group()
                surplus = {close: url.count(close) - url.count(open_) for open_, close in ("()", "[]")}
                size = len(url)
                while (last := url[size - 1]) in _URL_PUNCTUATION or surplus.get(last, 0) > 0:
                    if last in surplus:
                        surplus[last] -= 1
                    size -= 1
                if size <= MAX_URL_LENGTH:
                    url = url[:size]
                    nodes += [tree.TextNode(text[end : match.start()])] if match.start() > end else []
                    nodes.append(tree.LinkNode((tree.TextNode(url),), url, bare=True))
                    end = match.start() + size
            return [*nodes, tree.TextNode(text[end:])] if end < len(text) else nodes


def _build_reference(
    kind: type[tree.LinkNode] | type[tree.ImageNode],
    label: tuple[tree.Inline, ...],
    token: Token,
    attribute: str,
) -> Sequence[tree.Inline]:
    """Build a link whose address may be followed, or else its text and address as text."""
    url = str(token.attrs.get(attribute, ""))
    shown = "".join(map(tree.visible_text, label))
    bare = token.markup == "autolink" or not shown or shown == url
    if len(url) <= MAX_URL_LENGTH and _URL_PATTERN.fullmatch(url):
        return [kind(label or (tree.TextNode(url),), url, bare, title=str(token.attrs.get("title", "")))]
    if bare or not url:
        return label or ((tree.TextNode(url),) if url else ())
    return [*label, tree.TextNode(f" ({url})")]


def _merge_texts(nodes: Sequence[tree.Inline]) -> tuple[tree.Inline, ...]:
    merged: list[tree.Inline] = []
    texts: list[str] = []
    for node in nodes:
        if isinstance(node, tree.TextNode) and not isinstance(node, tree.MathNode):
            texts.append(node.text)
            continue
        if texts:
            merged.append(tree.TextNode("".join(texts)))
            texts = []
        merged.append(node)
    if texts:
        merged.append(tree.TextNode("".join(texts)))
    return tuple(merged)


_PARSER = _build_parser()
