"""Telegram markup: text with entities whose offsets count UTF-16 units."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager

import msgspec

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import parse, plain, tree
from keryx.markdown.range_writer import RangeStyles, RangeWriter
from keryx.markdown.split import LengthLimit, has_visible_text, split_document

LIMIT = LengthLimit(4096, LengthUnit.UTF16)
MAX_ENTITIES = 100
_QUOTE, _LINK = "blockquote", "text_link"
_TYPES = RangeStyles(bold="bold", italic="italic", strike="strikethrough", code="code", code_block="pre")


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
    text, ranges = _EntityWriter(_TYPES).write_document(document)
    entities = tuple(TelegramEntity(*one) for one in ranges)
    return TelegramText(text, entities, plain.render(document))


class _EntityWriter(RangeWriter):
    def write_quote(self, blocks: Iterable[tree.Block]) -> None:
        with self.add_range(_QUOTE):
            self.write_blocks(blocks, "\n\n")

    def write_code(self, text: str, style: str, language: str = "") -> None:
        if style == self.styles.code and _LINK in self.open_ranges:
            self.write(text)
            return
        with self._suspend_ranges():
            super().write_code(text, style, language)

    def write_link(self, node: tree.LinkNode | tree.ImageNode) -> None:
        """Write a web address as a link, and any other address after the text: Telegram has no links to it."""
        if not node.web:
            super().write_link(node)
            return
        with self.add_range(_LINK, url=node.url):
            self.write_inlines(node.children)

    @contextmanager
    def _suspend_ranges(self) -> Generator[None]:
        """Close all entities except a quotation, and open them again afterwards: Telegram allows code in no other entity."""
        quote = self.open_ranges.pop(_QUOTE, None)
        outer = self.open_ranges
        for entity in outer.values():
            self.close_range(entity)
        self.open_ranges = {} if quote is None else {_QUOTE: quote}
        yield
        self.open_ranges |= {style: one._replace(start=self.position) for style, one in outer.items()}
