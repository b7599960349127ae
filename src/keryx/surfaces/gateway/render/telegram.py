"""Telegram: text with entities, whose places are counted in UTF-16 units. Nothing needs an escape."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from keryx.surfaces.gateway.render import plain, table
from keryx.surfaces.gateway.render.measure import Limit, Unit, inked, length
from keryx.surfaces.gateway.render.parser import parse
from keryx.surfaces.gateway.render.split import split
from keryx.surfaces.gateway.render.tree import (
    Block,
    Bold,
    Break,
    Code,
    CodeBlock,
    Document,
    Heading,
    Image,
    Inline,
    Italic,
    Item,
    Link,
    List,
    Paragraph,
    Quote,
    Rule,
    Strike,
    Table,
    Text,
)

LIMIT = Limit(4096, Unit.UTF16)
MOST_ENTITIES = 100


class Entity(msgspec.Struct, frozen=True, omit_defaults=True):
    """As the Bot API has it."""

    type: str
    offset: int
    length: int
    url: str | None = None
    language: str | None = None


class Rendered(msgspec.Struct, frozen=True):
    """`plain` says the same without entities, within the same limit, for when Telegram refuses them."""

    text: str
    entities: tuple[Entity, ...]
    plain: str


def parts(markdown: str, limit: Limit = LIMIT) -> list[Rendered]:
    """Parts that show something, in order; none if the whole shows nothing."""

    def share(part: Rendered) -> float:
        return max(limit.share(part.text), limit.share(part.plain), len(part.entities) / MOST_ENTITIES)

    return [part for part in split(parse(markdown), render, share) if inked(part.text)]


def render(document: Document) -> Rendered:
    """The whole tree as one part, however long."""
    writer = _Writer()
    writer.blocks(document.blocks, "\n\n")
    text = "".join(writer.pieces).rstrip()
    # An inner entity is recorded before the outer, also where both have the same place.
    kept = (_trimmed(entity, length(text, Unit.UTF16)) for entity in reversed(writer.entities))
    entities = sorted(
        (entity for entity in kept if entity.length > 0), key=lambda one: (one.offset, -one.length)
    )
    return Rendered(text, tuple(entities), plain.render(document))


def _trimmed(entity: Entity, end: int) -> Entity:
    return msgspec.structs.replace(entity, length=min(entity.length, end - entity.offset))


@dataclass(slots=True)
class _Writer:
    """`open` holds the entities around the place that is written, outermost first, by type."""

    pieces: list[str] = field(default_factory=list[str])
    entities: list[Entity] = field(default_factory=list[Entity])
    open: dict[str, Entity] = field(default_factory=dict[str, Entity])
    margin: str = ""
    at: int = 0

    def write(self, text: str) -> None:
        if self.margin:
            text = text.replace("\n", f"\n{self.margin}")
        self.pieces.append(text)
        self.at += length(text, Unit.UTF16)

    @contextmanager
    def entity(self, type: str, url: str | None = None, language: str | None = None) -> Generator[None]:
        """What is written meanwhile is of the type. Within the same type there is nothing to add."""
        if type in self.open:
            yield
            return
        self.open[type] = Entity(type, self.at, 0, url, language)
        yield
        self._record(self.open.pop(type))

    @contextmanager
    def alone(self) -> Generator[None]:
        """Code stands in no other entity but a quotation: the others end before it and begin again after it."""
        quote = self.open.pop("blockquote", None)
        outer = self.open
        for entity in outer.values():
            self._record(entity)
        self.open = {} if quote is None else {"blockquote": quote}
        yield
        self.open |= {kind: msgspec.structs.replace(entity, offset=self.at) for kind, entity in outer.items()}

    def _record(self, entity: Entity) -> None:
        if self.at > entity.offset:
            self.entities.append(msgspec.structs.replace(entity, length=self.at - entity.offset))

    def blocks(self, blocks: Iterable[Block], gap: str) -> None:
        for index, block in enumerate(blocks):
            if index:
                self.gap(gap, block)
            self.block(block)

    def gap(self, gap: str, block: Block) -> None:
        """Code is not moved to the right in a list."""
        outer, self.margin = self.margin, "" if isinstance(block, CodeBlock | Table) else self.margin
        self.write(gap)
        self.margin = outer

    def block(self, block: Block) -> None:
        match block:
            case Paragraph():
                self.inlines(block.children)
            case Heading():
                with self.entity("bold"):
                    self.inlines(block.children)
            case CodeBlock():
                self.code("\n".join(block.lines), "pre", block.lang or None)
            case Table():
                self.code("\n".join(table.lines(block)), "pre")
            case Quote():
                with self.entity("blockquote"):
                    self.blocks(block.blocks, "\n\n")
            case List():
                for index, item in enumerate(block.items):
                    self.write("\n" if index else "")
                    self.item(item)
            case Rule():
                self.write(plain.RULE)
            case _:
                assert_never(block)

    def item(self, item: Item) -> None:
        marker = "• " if item.number is None else f"{item.number}. "
        lead = " " * len(marker) if item.continued else marker
        if item.blocks and isinstance(item.blocks[0], CodeBlock | Table):
            lead = "" if item.continued else f"{marker.rstrip()}\n"
        outer, self.margin = self.margin, ""
        self.write(lead)
        self.margin = outer + " " * len(marker)
        self.blocks(item.blocks, "\n")
        self.margin = outer

    def code(self, text: str, type: str, language: str | None = None) -> None:
        outer, self.margin = self.margin, ""
        with self.alone(), self.entity(type, language=language):
            self.write(text)
        self.margin = outer

    def inlines(self, children: Iterable[Inline]) -> None:
        for node in children:
            self.inline(node)

    def inline(self, node: Inline) -> None:
        match node:
            case Text():
                self.write(node.text)
            case Break():
                self.write("\n")
            case Code() if "text_link" in self.open:
                self.write(node.text)
            case Code():
                self.code(node.text, "code")
            case Bold() | Italic() | Strike():
                with self.entity(_STYLES[type(node)]):
                    self.inlines(node.children)
            case Link() | Image():
                self.link(node)
            case _:
                assert_never(node)

    def link(self, node: Link | Image) -> None:
        """Telegram follows web addresses only, so any other is told after the text."""
        if node.url.lower().startswith(("http:", "https:")):
            with self.entity("text_link", url=node.url):
                self.inlines(node.children)
            return
        self.inlines(node.children)
        self.write("" if node.bare or node.more else f" ({node.url})")


_STYLES: dict[type[Bold] | type[Italic] | type[Strike], str] = {
    Bold: "bold",
    Italic: "italic",
    Strike: "strikethrough",
}
