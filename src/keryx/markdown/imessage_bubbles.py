"""Plain text in bubbles, as people write in Messages: a short answer is one, a longer one has a bubble for each few paragraphs."""

from collections.abc import Iterator, Sequence

from keryx.core.deliveries import LONGEST_REPEAT_MARK
from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import parse, plain, tree
from keryx.markdown.split import LengthLimit, has_visible_text, measure_length, split_document

# Messages has no limit that people meet. A longer bubble than this is tiresome, and AppleScript is slow with it.
LIMIT = LengthLimit(4000 - LONGEST_REPEAT_MARK, LengthUnit.CHARACTERS)
# Paragraphs share a bubble up to this length.
_BUBBLE_LENGTH = 600
# A very long answer has longer bubbles instead of more.
_MOST_BUBBLES = 20


def render_parts(markdown: str) -> list[str]:
    """Return the bubbles in order; none if the text shows nothing. No character is lost."""
    # Neither can be part of a message.
    clean = markdown.replace("\x00", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    document = parse(clean)
    length = min(max(_BUBBLE_LENGTH, len(clean) // _MOST_BUBBLES), LIMIT.size)
    return [
        part
        for group in _group_blocks(document.blocks, length)
        for part in split_document(tree.DocumentNode(group), plain.render, LIMIT.fill_ratio)
        if has_visible_text(part)
    ]


def _group_blocks(blocks: Sequence[tree.Block], length: int) -> Iterator[tuple[tree.Block, ...]]:
    """Yield the blocks of each bubble. A heading stays with the block after it, unless there are only headings."""
    group: list[tuple[tree.Block, int]] = []
    total = 0
    for block in blocks:
        # With the empty line before it.
        size = measure_length(plain.render(tree.DocumentNode((block,))), LIMIT.unit) + 2
        if group and total + size > length:
            end = len(group)
            while end and isinstance(group[end - 1][0], tree.HeadingNode):
                end -= 1
            if not end and isinstance(block, tree.HeadingNode):
                end = len(group)
            if end:
                yield tuple(block for block, _ in group[:end])
            group = group[end:]
            total = sum(size for _, size in group)
        group.append((block, size))
        total += size
    if group:
        yield tuple(block for block, _ in group)
