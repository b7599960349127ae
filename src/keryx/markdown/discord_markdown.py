"""Discord markup: its dialect of Markdown, with text that looks like markup escaped. Mentions that an agent writes with an id stay mentions."""

import re
from collections.abc import Iterable
from typing import NamedTuple, assert_never

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import parse, plain, tree
from keryx.markdown.split import LengthLimit, has_visible_text, split_document

# A message of a bot may have 2000 characters.
LIMIT = LengthLimit(2000, LengthUnit.CHARACTERS)
_MAX_HEADING_LEVEL = 3
_ZERO_WIDTH_SPACE = "\u200b"
_SPECIAL = re.compile(r"[\\*_~`|\[\]]|<(?!@!?\d+>|#\d+>)")
# What makes a heading, a list, small text or a quotation at the beginning of a line.
_LINE_START = re.compile(r"^(\s*\d*)(#{1,3}(?=\s)|-(?=[\s#])|\+(?=\s)|>|(?<=\d)[.)](?=\s))", re.MULTILINE)
_BACKTICKS = re.compile(r"`(?=`)")
_CODE = re.compile(r"(```.*?```|``.*?``|`[^`]*`)", re.DOTALL)
_LANGUAGE = re.compile(r"[A-Za-z0-9+#.-]{1,32}\Z")


def render_parts(markdown: str, limit: LengthLimit = LIMIT) -> list[str]:
    """Return the parts in order; none if the text shows nothing."""
    parts = split_document(
        parse(markdown), lambda part: (render(part), part), lambda part: limit.fill_ratio(part[0])
    )
    # The fence of a code block without text would be shown.
    return [text for text, part in parts if has_visible_text(plain.render(part))]


def render(document: tree.DocumentNode) -> str:
    """Return the whole document as one part of any length."""
    lines = _render_blocks(document.blocks, loose=True)
    return "\n".join(line.text for line in lines).strip("\n").rstrip()


def escape(text: str, *, line_start: bool = True) -> str:
    """Return a text that Discord shows as it is. `line_start` says that it begins a line."""
    escaped = _SPECIAL.sub(r"\\\g<0>", text)
    head, newline, rest = ("", "", escaped) if line_start else escaped.partition("\n")
    return head + newline + _LINE_START.sub(r"\1\\\2", rest)


def split_code(text: str) -> list[str]:
    """Return the pieces of a rendered text: ordinary text and code alternate, and the first piece is ordinary text."""
    return _CODE.split(text)


class _MarkdownLine(NamedTuple):
    text: str
    # A line of a code block is not indented in a list.
    code: bool = False


def _render_blocks(blocks: Iterable[tree.Block], *, loose: bool) -> list[_MarkdownLine]:
    """Return the lines of blocks, with an empty line between them; in a list only between paragraphs."""
    lines: list[_MarkdownLine] = []
    last: tree.Block | None = None
    for block in blocks:
        if last is not None and (
            loose or (isinstance(last, tree.ParagraphNode) and isinstance(block, tree.ParagraphNode))
        ):
            lines.append(_MarkdownLine(""))
        lines.extend(_render_block(block))
        last = block
    return lines


def _render_block(block: tree.Block) -> list[_MarkdownLine]:
    match block:
        case tree.ParagraphNode():
            text = _render_inlines(block.children, line_start=True).removesuffix("\n")
            return [_MarkdownLine(line) for line in text.split("\n")]
        case tree.HeadingNode():
            text = _render_inlines(block.children, line_start=False).replace("\n", " ").strip()
            # Discord has three levels of headings; a deeper one is bold.
            heading = (
                f"{'#' * block.level} {text}" if block.level <= _MAX_HEADING_LEVEL else _wrap("**", text)
            )
            return [_MarkdownLine(heading if text else "")]
        case tree.CodeBlockNode():
            return _render_code_block(block.lines, block.lang if _LANGUAGE.match(block.lang) else "")
        case tree.TableNode():
            return _render_code_block(plain.render_table(block), "")
        case tree.QuoteNode():
            # Discord has no quotations within quotations, and no code fences that keep their mark.
            inner = _render_blocks(block.blocks, loose=True)
            return [_MarkdownLine(text if text.startswith("> ") else f"> {text}") for text, _ in inner]
        case tree.ListNode():
            return [line for item in block.items for line in _render_item(item)]
        case tree.RuleNode():
            return [_MarkdownLine(plain.RULE)]
        case _:
            assert_never(block)


def _render_code_block(lines: Iterable[str], lang: str) -> list[_MarkdownLine]:
    text = "\n".join(lines)
    safe = text.replace("```", f"`{_ZERO_WIDTH_SPACE}`{_ZERO_WIDTH_SPACE}`")
    # A backtick at the end would be read as a part of the fence.
    safe += _ZERO_WIDTH_SPACE if safe.endswith("`") else ""
    return [_MarkdownLine(line, True) for line in f"```{lang}\n{safe}\n```".split("\n")]


def _render_item(item: tree.ListItemNode) -> list[_MarkdownLine]:
    marker = "-" if item.number is None else f"{item.number}."
    margin = " " * (len(marker) + 1)
    lines = _render_blocks(item.blocks, loose=False) or [_MarkdownLine("")]
    found: list[_MarkdownLine] = []
    if not item.continued and lines[0].code:
        found.append(_MarkdownLine(marker))
    for index, (text, code) in enumerate(lines):
        first = index == 0 and not item.continued
        found.append(_MarkdownLine(text if code else (f"{marker} " if first else margin) + text, code))
    return found


def _render_inlines(children: Iterable[tree.Inline], *, line_start: bool) -> str:
    text = ""
    for node in children:
        begins_line = text.endswith("\n") if text else line_start
        text += _render_inline(node, line_start=begins_line)
    return text


def _render_inline(node: tree.Inline, *, line_start: bool) -> str:
    match node:
        case tree.TextNode():
            return escape(node.text, line_start=line_start)
        case tree.BreakNode():
            return "\n"
        case tree.CodeNode():
            if not has_visible_text(node.text):
                return node.text
            if "`" not in node.text:
                return f"`{node.text}`"
            return f"`` {_BACKTICKS.sub(f'`{_ZERO_WIDTH_SPACE}', node.text)} ``"
        case tree.BoldNode():
            return _wrap("**", _render_inlines(node.children, line_start=False))
        case tree.ItalicNode():
            return _wrap("*", _render_inlines(node.children, line_start=False))
        case tree.StrikeNode():
            return _wrap("~~", _render_inlines(node.children, line_start=False))
        case tree.LinkNode() | tree.ImageNode():
            return _render_link(node)
        case _:
            assert_never(node)


def _wrap(mark: str, text: str) -> str:
    """Put marks around a text. Discord ignores marks beside white space, so that stays outside."""
    inner = text.strip()
    if not inner:
        return text
    start = text.index(inner)
    return f"{text[:start]}{mark}{inner}{mark}{text[start + len(inner) :]}"


def _render_link(node: tree.LinkNode | tree.ImageNode) -> str:
    """Return a web address as a link, and any other address after the text: Discord has no links to it."""
    web = node.url.lower().startswith(("http:", "https:"))
    if node.bare and web and not node.more and node.url == tree.visible_text(node):
        return node.url
    text = _render_inlines(node.children, line_start=False)
    if not web:
        return text + ("" if node.bare or node.more else f" ({escape(node.url, line_start=False)})")
    address = node.url.replace("(", "%28").replace(")", "%29")
    label = text.replace("\n", " ")
    return f"[{label}]({address})" if has_visible_text(label) else address
