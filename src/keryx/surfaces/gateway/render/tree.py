"""The tree a message is parsed to: frozen values, the same for every platform.

A tree that was cut keeps its place: `continued` says that a node began in an earlier part, `more` that it goes
on in a later one.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Code:
    text: str


@dataclass(frozen=True, slots=True)
class Break:
    """The end of a line within a paragraph."""


@dataclass(frozen=True, slots=True)
class Bold:
    children: "tuple[Inline, ...]"


@dataclass(frozen=True, slots=True)
class Italic:
    children: "tuple[Inline, ...]"


@dataclass(frozen=True, slots=True)
class Strike:
    children: "tuple[Inline, ...]"


@dataclass(frozen=True, slots=True)
class Link:
    """`bare` means that the text is the address itself, so it need not be told twice."""

    children: "tuple[Inline, ...]"
    url: str
    bare: bool = False
    more: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """A picture by address; the children are its description."""

    children: "tuple[Inline, ...]"
    url: str
    bare: bool = False
    more: bool = False


@dataclass(frozen=True, slots=True)
class Paragraph:
    children: "tuple[Inline, ...]"


@dataclass(frozen=True, slots=True)
class Heading:
    children: "tuple[Inline, ...]"
    level: int = 1


@dataclass(frozen=True, slots=True)
class CodeBlock:
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
class Quote:
    blocks: "tuple[Block, ...]"


@dataclass(frozen=True, slots=True)
class Item:
    """`number` is None in a list without numbers."""

    blocks: "tuple[Block, ...]"
    number: int | None = None
    continued: bool = False


@dataclass(frozen=True, slots=True)
class List:
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    children: "tuple[Inline, ...]"
    continued: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """`start` is the column of the first cell: above 0 in the rest of a row that was cut."""

    cells: tuple[Cell, ...]
    header: bool = False
    start: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across."""


@dataclass(frozen=True, slots=True)
class Document:
    blocks: "tuple[Block, ...]"


Inline = Text | Code | Break | Bold | Italic | Strike | Link | Image
Block = Paragraph | Heading | CodeBlock | Quote | List | Table | Rule
Node = Document | Block | Item | Row | Cell | Inline


def below(node: Node) -> "tuple[Node, ...]":
    """The nodes directly inside, in reading order; none for the nodes that hold text."""
    match node:
        case Document() | Quote() | Item():
            return node.blocks
        case List():
            return node.items
        case Table():
            return node.rows
        case Row():
            return node.cells
        case Text() | Code() | Break() | CodeBlock() | Rule():
            return ()
        case _:
            return node.children


def visible(node: Node) -> str:
    """Every character of the message itself, in reading order: no markers, no addresses behind a text."""
    match node:
        case Text() | Code() | CodeBlock():
            return node.text
        case Break():
            return "\n"
        case _:
            return "".join(map(visible, below(node)))
