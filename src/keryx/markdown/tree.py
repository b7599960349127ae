"""The nodes of a parsed document: frozen values, the same for every platform. `continued` marks a node that began in an earlier part, `more` one that goes on in a later part."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextNode:
    text: str


@dataclass(frozen=True, slots=True)
class CodeNode:
    text: str


@dataclass(frozen=True, slots=True)
class BreakNode:
    """The end of a line within a paragraph."""


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
class LinkNode:
    """`bare` means that the text is the address itself, so it need not be told twice."""

    children: "tuple[Inline, ...]"
    url: str
    bare: bool = False
    more: bool = False


@dataclass(frozen=True, slots=True)
class ImageNode:
    """A picture by address; the children are its description."""

    children: "tuple[Inline, ...]"
    url: str
    bare: bool = False
    more: bool = False


@dataclass(frozen=True, slots=True)
class ParagraphNode:
    children: "tuple[Inline, ...]"


@dataclass(frozen=True, slots=True)
class HeadingNode:
    children: "tuple[Inline, ...]"
    level: int = 1


@dataclass(frozen=True, slots=True)
class CodeBlockNode:
    """The text has no final line end of its own, unless `more` is set."""

    text: str
    lang: str = ""
    more: bool = False

    @property
    def lines(self) -> list[str]:
        """The lines to show. The line end at which the block was cut is not a line of its own."""
        text = self.text[:-1] if self.more and self.text.endswith("\n") else self.text
        return text.split("\n")


@dataclass(frozen=True, slots=True)
class QuoteNode:
    blocks: "tuple[Block, ...]"


@dataclass(frozen=True, slots=True)
class ListItemNode:
    """`number` is None in a list without numbers."""

    blocks: "tuple[Block, ...]"
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
    """`start` is the column of the first cell: above 0 in the rest of a row that was cut."""

    cells: tuple[TableCellNode, ...]
    header: bool = False
    first_column: int = 0


@dataclass(frozen=True, slots=True)
class TableNode:
    rows: tuple[TableRowNode, ...]


@dataclass(frozen=True, slots=True)
class RuleNode:
    """A line across."""


@dataclass(frozen=True, slots=True)
class DocumentNode:
    blocks: "tuple[Block, ...]"


Inline = TextNode | CodeNode | BreakNode | BoldNode | ItalicNode | StrikeNode | LinkNode | ImageNode
Block = ParagraphNode | HeadingNode | CodeBlockNode | QuoteNode | ListNode | TableNode | RuleNode
Node = DocumentNode | Block | ListItemNode | TableRowNode | TableCellNode | Inline


def child_nodes(node: Node) -> "tuple[Node, ...]":
    """The nodes directly inside, in reading order; none for the nodes that hold text."""
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
    """Every character of the message itself, in reading order: no markers, no addresses behind a text."""
    match node:
        case TextNode() | CodeNode() | CodeBlockNode():
            return node.text
        case BreakNode():
            return "\n"
        case _:
            return "".join(map(visible_text, child_nodes(node)))
