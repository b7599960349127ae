"""Telegram markup: text with entities whose offsets count UTF-16 units."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import parse, plain, tree
from keryx.markdown.split import LengthLimit, has_visible_text, measure_length, split_document

LIMIT = LengthLimit(4096, LengthUnit.UTF16)
MAX_ENTITIES = 100


class TelegramEntity(msgspec.Struct, frozen=True, omit_defaults=True):
    """As the Bot API has it."""

    type: str
    offset: int
    length: int
    url: str | None = None
    language: str | None = None


class TelegramText(msgspec.Struct, frozen=True):
    text: str
    entities: tuple[TelegramEntity, ...]
    # The same without entities, within the same limit, for when Telegram refuses them.
    plain: str


def render_parts(markdown: str, limit: LengthLimit = LIMIT) -> list[TelegramText]:
    """Return the parts in order; none if the text shows nothing."""

    def share(part: TelegramText) -> float:
        return max(
            limit.fill_ratio(part.text), limit.fill_ratio(part.plain), len(part.entities) / MAX_ENTITIES
        )

    return [part for part in split_document(parse(markdown), render, share) if has_visible_text(part.text)]


def render(document: tree.DocumentNode) -> TelegramText:
    """Return the whole document as one part of any length."""
    writer = _EntityWriter()
    writer.write_blocks(document.blocks, "\n\n")
    text = "".join(writer.pieces).rstrip()
    end = measure_length(text, LengthUnit.UTF16)
    # An inner entity is recorded before the outer one, even if both cover the same text.
    trimmed = (
        msgspec.structs.replace(entity, length=min(entity.length, end - entity.offset))
        for entity in reversed(writer.entities)
    )
    entities = sorted(
        (entity for entity in trimmed if entity.length > 0), key=lambda one: (one.offset, -one.length)
    )
    return TelegramText(text, tuple(entities), plain.render(document))


@dataclass(slots=True)
class _EntityWriter:
    pieces: list[str] = field(default_factory=list[str])
    entities: list[TelegramEntity] = field(default_factory=list[TelegramEntity])
    # By type, outermost first.
    open_entities: dict[str, TelegramEntity] = field(default_factory=dict[str, TelegramEntity])
    margin: str = ""
    offset: int = 0

    def write(self, text: str) -> None:
        if self.margin:
            text = text.replace("\n", f"\n{self.margin}")
        self.pieces.append(text)
        self.offset += measure_length(text, LengthUnit.UTF16)

    @contextmanager
    def add_entity(self, type: str, url: str | None = None, language: str | None = None) -> Generator[None]:
        """Cover what is written in the block with an entity, unless one of its type is open already."""
        if type in self.open_entities:
            yield
            return
        self.open_entities[type] = TelegramEntity(type, self.offset, 0, url, language)
        yield
        self._record(self.open_entities.pop(type))

    @contextmanager
    def suspend_entities(self) -> Generator[None]:
        """Close all entities except a quotation, and open them again afterwards: Telegram allows code in no other entity."""
        quote = self.open_entities.pop("blockquote", None)
        outer = self.open_entities
        for entity in outer.values():
            self._record(entity)
        self.open_entities = {} if quote is None else {"blockquote": quote}
        yield
        self.open_entities |= {
            kind: msgspec.structs.replace(entity, offset=self.offset) for kind, entity in outer.items()
        }

    def _record(self, entity: TelegramEntity) -> None:
        if self.offset > entity.offset:
            self.entities.append(msgspec.structs.replace(entity, length=self.offset - entity.offset))

    def write_blocks(self, blocks: Iterable[tree.Block], gap: str) -> None:
        for index, block in enumerate(blocks):
            if index:
                self.write_gap(gap, block)
            self.write_block(block)

    def write_gap(self, gap: str, block: tree.Block) -> None:
        """Write the gap before a block. Code is not indented in a list."""
        outer, self.margin = (
            self.margin,
            "" if isinstance(block, tree.CodeBlockNode | tree.TableNode) else self.margin,
        )
        self.write(gap)
        self.margin = outer

    def write_block(self, block: tree.Block) -> None:
        match block:
            case tree.ParagraphNode():
                self.write_inlines(block.children)
            case tree.HeadingNode():
                with self.add_entity("bold"):
                    self.write_inlines(block.children)
            case tree.CodeBlockNode():
                self.write_code("\n".join(block.lines), "pre", block.lang or None)
            case tree.TableNode():
                self.write_code("\n".join(plain.render_table(block)), "pre")
            case tree.QuoteNode():
                with self.add_entity("blockquote"):
                    self.write_blocks(block.blocks, "\n\n")
            case tree.ListNode():
                for index, item in enumerate(block.items):
                    self.write("\n" if index else "")
                    self.write_item(item)
            case tree.RuleNode():
                self.write(plain.RULE)
            case _:
                assert_never(block)

    def write_item(self, item: tree.ListItemNode) -> None:
        marker = "• " if item.number is None else f"{item.number}. "
        lead = " " * len(marker) if item.continued else marker
        if item.blocks and isinstance(item.blocks[0], tree.CodeBlockNode | tree.TableNode):
            lead = "" if item.continued else f"{marker.rstrip()}\n"
        outer, self.margin = self.margin, ""
        self.write(lead)
        self.margin = outer + " " * len(marker)
        self.write_blocks(item.blocks, "\n")
        self.margin = outer

    def write_code(self, text: str, type: str, language: str | None = None) -> None:
        outer, self.margin = self.margin, ""
        with self.suspend_entities(), self.add_entity(type, language=language):
            self.write(text)
        self.margin = outer

    def write_inlines(self, children: Iterable[tree.Inline]) -> None:
        for node in children:
            self.write_inline(node)

    def write_inline(self, node: tree.Inline) -> None:
        match node:
            case tree.TextNode():
                self.write(node.text)
            case tree.BreakNode():
                self.write("\n")
            case tree.CodeNode() if "text_link" in self.open_entities:
                self.write(node.text)
            case tree.CodeNode():
                self.write_code(node.text, "code")
            case tree.BoldNode() | tree.ItalicNode() | tree.StrikeNode():
                with self.add_entity(_STYLE_TYPES[type(node)]):
                    self.write_inlines(node.children)
            case tree.LinkNode() | tree.ImageNode():
                self.write_link(node)
            case _:
                assert_never(node)

    def write_link(self, node: tree.LinkNode | tree.ImageNode) -> None:
        """Write a web address as a link, and any other address after the text: Telegram has no links to it."""
        if node.url.lower().startswith(("http:", "https:")):
            with self.add_entity("text_link", url=node.url):
                self.write_inlines(node.children)
            return
        self.write_inlines(node.children)
        self.write("" if node.bare or node.more else f" ({node.url})")


_STYLE_TYPES: dict[type[tree.BoldNode] | type[tree.ItalicNode] | type[tree.StrikeNode], str] = {
    tree.BoldNode: "bold",
    tree.ItalicNode: "italic",
    tree.StrikeNode: "strikethrough",
}
