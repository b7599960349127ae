"""Markdown as Slack takes it in `markdown` blocks and streams. A text that fits stays as it is written; a longer one is split on its tree and written anew, with everything escaped that only looks like markup."""

import re
from collections.abc import Iterable, Sequence
from typing import assert_never

from keryx.markdown import clean_text, parse, plain, tree
from keryx.markdown.split import LengthLimit, has_visible_text, split_document

# Whoever writes these notifies a whole channel. An answer must not, whatever the model was told.
_BROADCAST_PATTERN = re.compile(r"<!(here|channel|everyone|subteam)(?:\^[^<>|\s]*)?(?:\|@?([^<>\n]*))?>")
_ENTITY_PATTERN = re.compile(r"&(?=#?\w+;)")
_BACKSLASH_PATTERN = re.compile(r"\\(?=[!-/:-@\[-`{-~]|\Z)")
_EMPHASIS_PATTERN = re.compile(r"\*|(?<![^\W_])_|_(?![^\W_])|~(?=~)|(?<=~)~|`")
_TAG_PATTERN = re.compile(r"<(?=[A-Za-z/!?@#])")
_LINE_START_PATTERN = re.compile(r"^[ \t]*(?:([-+=>#|]|~{3})|(\d{1,9})([.)]))", re.MULTILINE)
_BACKTICKS = re.compile("`+")
_INDENT_PATTERN = re.compile(r"^[ \t]+", re.MULTILINE)


def render_parts(markdown: str, limit: LengthLimit) -> list[str]:
    """Return the parts in order; none if the text shows nothing. While a text grows within the limit, each version begins
    with the one before, so that a stream can show it."""
    text = _BROADCAST_PATTERN.sub(lambda found: f"@{found[2] or found[1]}", clean_text(markdown))
    text = text.lstrip("\n").rstrip()
    if limit.fill_ratio(text) <= 1:
        return [text] if has_visible_text(text) else []
    return [part for part in split_document(parse(text), render, limit.fill_ratio) if has_visible_text(part)]


def render(document: tree.DocumentNode) -> str:
    """Return Markdown that has the tree of the document, apart from white space and the rest of cut tables."""
    return "\n".join(_write_blocks(document.blocks)).strip("\n")


def escape_mrkdwn(text: str) -> str:
    """Return a text without mentions and links, for fields that take Slack's own markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _write_blocks(blocks: Iterable[tree.Block]) -> list[str]:
    lines: list[str] = []
    for block in blocks:
        if lines:
            lines.append("")
        lines.extend(_write_block(block))
    return lines


def _write_block(block: tree.Block) -> Sequence[str]:
    match block:
        case tree.ParagraphNode():
            return _write_text(block.children).split("\n")
        case tree.HeadingNode():
            return [f"{'#' * block.level} {_write_text(block.children).replace(chr(10), ' ')}"]
        case tree.CodeBlockNode():
            return _write_fence(block.lines, block.lang)
        case tree.QuoteNode():
            return [f"> {line}".rstrip() for line in _write_blocks(block.blocks)]
        case tree.ListNode():
            return [line for item in block.items for line in _write_item(item)]
        case tree.TableNode():
            return _write_table(block)
        case tree.RuleNode():
            return ["---"]
        case _:
            assert_never(block)


def _write_fence(lines: Sequence[str], lang: str = "") -> list[str]:
    longest = max((len(run) for line in lines for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{lang}", *lines, fence]


def _write_item(item: tree.ListItemNode) -> list[str]:
    """Return the lines of an item. The rest of one that began in an earlier part has no marker."""
    lines = _write_blocks(item.blocks) or [""]
    if item.continued:
        return lines
    marker = "- " if item.number is None else f"{item.number}. "
    margin = " " * len(marker)
    return [(marker if index == 0 else margin if line else "") + line for index, line in enumerate(lines)]


def _write_table(table: tree.TableNode) -> list[str]:
    """Return a table; what has no header, because it was cut, as text in columns."""
    whole = table.rows[0].header and not any(
        row.first_column or cell.continued for row in table.rows for cell in row.cells
    )
    if not whole:
        return _write_fence(plain.render_table(table))
    width = max(len(row.cells) for row in table.rows)
    rows = [
        [_write_text(cell.children).replace("\n", " ").replace("|", "\\|") for cell in row.cells]
        for row in table.rows
    ]
    lines = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in rows]
    return [lines[0], "|" + "---|" * width, *lines[1:]]


def _write_text(children: Iterable[tree.Inline]) -> str:
    """Return inline markup. What begins a line like a block is escaped."""
    text = _INDENT_PATTERN.sub("", _write_inlines(children)).removesuffix("\n")
    return _LINE_START_PATTERN.sub(lambda m: f"\\{m[1]}" if m[1] else f"{m[2]}\\{m[3]}", text)


def _write_inlines(children: Iterable[tree.Inline]) -> str:
    text = ""
    for node in children:
        match node:
            case tree.TextNode():
                text += _escape(node.text)
            case tree.CodeNode():
                longest = max(map(len, _BACKTICKS.findall(node.text)), default=0)
                fence = "`" * (longest + 1)
                pad = " " if node.text[:1] in " `" or node.text[-1:] in " `" else ""
                text += f"{fence}{pad}{node.text}{pad}{fence}" if node.text else ""
            case tree.BreakNode():
                text += "\n"
            case tree.BoldNode():
                text += _wrap(_write_inlines(node.children), "**")
            case tree.ItalicNode():
                text += _wrap(_write_inlines(node.children), "*")
            case tree.StrikeNode():
                text += _wrap(_write_inlines(node.children), "~~")
            case tree.LinkNode() | tree.ImageNode() if node.bare:
                # It may have been cut.
                text += "".join(map(tree.visible_text, node.children))
            case tree.LinkNode() | tree.ImageNode():
                label = _escape("".join(map(tree.visible_text, node.children)))
                label = label.replace("[", "\\[").replace("]", "\\]")
                url = f"<{node.url}>" if re.search(r"[\s()]", node.url) else node.url
                text += f"[{label or node.url}]({url})"
            case _:
                assert_never(node)
    return text


def _escape(text: str) -> str:
    text = _BACKSLASH_PATTERN.sub(r"\\\\", text)
    text = _EMPHASIS_PATTERN.sub(r"\\\g<0>", text)
    text = _TAG_PATTERN.sub(r"\\<", text).replace("](", "]\\(")
    return _ENTITY_PATTERN.sub("&amp;", text)


def _wrap(text: str, mark: str) -> str:
    """Return a text between two marks. White space at its ends stays outside, or it would not be markup."""
    inner = text.strip()
    if not inner:
        return text
    start = text.index(inner)
    return f"{text[:start]}{mark}{inner}{mark}{text[start + len(inner) :]}"
