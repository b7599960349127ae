"""The nodes of a parsed document: frozen values, the same for the page, exported files and every chat platform.

A document that is split into parts marks the cut nodes: `continued` began in an earlier part, `more` goes on in a later one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextNode:
    text: str


@dataclass(frozen=True, slots=True)
class MathNode(TextNode):
    """A formula. Its text is what was written, with the signs around it: where formulas are not drawn, it is text."""

    tex: str = ""
    # On a line of its own.
    display: bool = False


@dataclass(frozen=True, slots=True)
class CodeNode:
    text: str


@dataclass(frozen=True, slots=True)
class BreakNode:
    """A line break within a paragraph."""


@dataclass(frozen=True, slots=True)
class BoldNode:
    children: "tuple[Inline, ...]"


@dataclass(frozen=True, slots=True)
class ItalicNode:
    children: "tuple[Inline, ...]"


@dataclass(frozen=True, slots=True)
class StrikeNode:
    children: "tuple[Inline, ...]"


@dataclass(frozen=True, slots=True)
class ReferenceNode:
    children: "tuple[Inline, ...]"
    url: str
    # The text is the address itself.
    bare: bool = False
    more: bool = False
    title: str = ""

    @property
    def web(self) -> bool:
        """Whether the address is one of the web, which is all that most platforms have links to."""
        return self.url.lower().startswith(("http:", "https:"))


@dataclass(frozen=True, slots=True)
class LinkNode(ReferenceNode):
    pass


@dataclass(frozen=True, slots=True)
class ImageNode(ReferenceNode):
    """A picture by address. It is shown as a link, so that nothing is loaded from another host."""


@dataclass(frozen=True, slots=True)
class ParagraphNode:
    children: "tuple[Inline, ...]"
    # In a list without empty lines between its items: HTML shows it without a paragraph of its own.
    tight: bool = False


@dataclass(frozen=True, slots=True)
class HeadingNode:
    children: "tuple[Inline, ...]"
    level: int = 1


@dataclass(frozen=True, slots=True)
class CodeBlockNode:
    # Without a final line end, unless `more` is set.
    text: str
    lang: str = ""
    more: bool = False

    @property
    def lines(self) -> list[str]:
        """The lines to show. A line end at which the block was cut does not add an empty line."""
        text = self.text[:-1] if self.more and self.text.endswith("\n") else self.text
        return text.split("\n")


@dataclass(frozen=True, slots=True)
class QuoteNode:
    blocks: "tuple[Block, ...]"


@dataclass(frozen=True, slots=True)
class ListItemNode:
    blocks: "tuple[Block, ...]"
    # None in a bullet list.
    number: int | None = None
    continued: bool = False


@dataclass(frozen=True, slots=True)
class ListNode:
    items: tuple[ListItemNode, ...]


@dataclass(frozen=True, slots=True)
class TableCellNode:
    children: "tuple[Inline, ...]"
    continued: bool = False


@dataclass(frozen=True, slots=True)
class TableRowNode:
    cells: tuple[TableCellNode, ...]
    header: bool = False
    # The column of the first cell: above 0 in the rest of a row that was cut.
    first_column: int = 0


@dataclass(frozen=True, slots=True)
class TableNode:
    rows: tuple[TableRowNode, ...]
    # Of each column "left", "center", "right" or, where the text does not say, "". Without any, it is empty.
    alignments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleNode:
    """A horizontal rule."""


@dataclass(frozen=True, slots=True)
class DocumentNode:
    blocks: "tuple[Block, ...]"


Inline = TextNode | CodeNode | BreakNode | BoldNode | ItalicNode | StrikeNode | LinkNode | ImageNode
Block = ParagraphNode | HeadingNode | CodeBlockNode | QuoteNode | ListNode | TableNode | RuleNode
Node = DocumentNode | Block | ListItemNode | TableRowNode | TableCellNode | Inline


def child_nodes(node: Node) -> "tuple[Node, ...]":
    """Return the direct children in reading order; nodes of text have none."""
    match node:
        case DocumentNode() | QuoteNode() | ListItemNode():
            return node.blocks
        case ListNode():
            return node.items
        case TableNode():
            return node.rows
        case TableRowNode():
            return node.cells
        case TextNode() | CodeNode() | BreakNode() | CodeBlockNode() | RuleNode():
            return ()
        case _:
            return node.children


def visible_text(node: Node) -> str:
    """Return the text of a node in reading order, without list markers and without the addresses of links."""
    match node:
        case TextNode() | CodeNode() | CodeBlockNode():
            return node.text
        case BreakNode():
            return "\n"
        case _:
            return "".join(map(visible_text, child_nodes(node)))
