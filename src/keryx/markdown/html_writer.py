"""Writes the tree as HTML. The page and Matrix differ in a few elements only, which subclasses override."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import assert_never

from keryx.markdown import tree


class HtmlWriter:
    """No white space is added between elements. All text and all attributes are escaped."""

    strike_tag = "s"

    def blocks(self, blocks: Iterable[tree.Block]) -> str:
        return "".join(map(self.block, blocks))

    def block(self, block: tree.Block) -> str:
        match block:
            case tree.ParagraphNode():
                text = self.inlines(block.children)
                return text if block.tight else f"<p>{text}</p>"
            case tree.HeadingNode():
                return f"<h{block.level}>{self.inlines(block.children)}</h{block.level}>"
            case tree.CodeBlockNode():
                return self.code_block(block)
            case tree.QuoteNode():
                return f"<blockquote>{self.blocks(block.blocks)}</blockquote>"
            case tree.ListNode():
                return self._list(block.items)
            case tree.TableNode():
                return self.table(block)
            case tree.RuleNode():
                return "<hr>"
            case _:
                assert_never(block)

    def code_block(self, block: tree.CodeBlockNode) -> str:
        lang = f' class="language-{escape(block.lang)}"' if block.lang else ""
        code = escape("\n".join(block.lines))
        return f"<pre><code{lang}>{code}\n</code></pre>"

    def list_item(self, item: tree.ListItemNode) -> str:
        return self.blocks(item.blocks)

    def table(self, table: tree.TableNode) -> str:
        return f"<table>{''.join(map(self.table_row, table.rows))}</table>"

    def table_row(self, row: tree.TableRowNode, columns: int = 0, classes: Sequence[str] = ()) -> str:
        """Write a row, with empty cells for those that were cut off before it and those missing up to `columns`. `classes`
        are those of the columns, or empty texts."""
        tag = "th" if row.header else "td"
        missing = columns - row.first_column - len(row.cells)
        empty = tree.TableCellNode(())
        cells = (*[empty] * row.first_column, *row.cells, *[empty] * missing)
        attributes = [f' class="{name}"' if name else "" for name in classes] or [""] * len(cells)
        return (
            "<tr>"
            + "".join(
                f"<{tag}{attribute}>{self.inlines(cell.children)}</{tag}>"
                for attribute, cell in zip(attributes, cells, strict=True)
            )
            + "</tr>"
        )

    def inlines(self, children: Iterable[tree.Inline]) -> str:
        return "".join(map(self.inline, children))

    def inline(self, node: tree.Inline) -> str:
        match node:
            case tree.TextNode():
                return escape(node.text)
            case tree.CodeNode():
                return f"<code>{escape(node.text)}</code>"
            case tree.BreakNode():
                return "<br>"
            case tree.BoldNode():
                return f"<strong>{self.inlines(node.children)}</strong>"
            case tree.ItalicNode():
                return f"<em>{self.inlines(node.children)}</em>"
            case tree.StrikeNode():
                return f"<{self.strike_tag}>{self.inlines(node.children)}</{self.strike_tag}>"
            case tree.LinkNode() | tree.ImageNode():
                return self.link(node)
            case _:
                assert_never(node)

    def link(self, node: tree.LinkNode | tree.ImageNode) -> str:
        return f'<a href="{escape(node.url)}">{self.inlines(node.children)}</a>'

    def _list(self, items: tuple[tree.ListItemNode, ...]) -> str:
        number = items[0].number if items else None
        content = "".join(f"<li>{self.list_item(item)}</li>" for item in items)
        if number is None:
            return f"<ul>{content}</ul>"
        return f'<ol start="{number}">{content}</ol>' if number != 1 else f"<ol>{content}</ol>"
