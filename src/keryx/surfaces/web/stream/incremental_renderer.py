"""Renders the HTML of a growing answer block by block. Closed blocks are rendered once; a long open block is rendered again only when it has grown by a share of its length."""

from collections.abc import Iterable
from itertools import groupby

import msgspec

from keryx.core.changes import DraftChunk
from keryx.core.media import Media
from keryx.surfaces.web import markdown_html

_SHORT_CHARS = 2_000
_GROWTH_DIVISOR = 8
_LONG_CHARS = 20_000
_LONG_GROWTH_DIVISOR = 2


class RenderStep(msgspec.Struct, frozen=True, kw_only=True):
    """More of part number `part`. With `blocks`, those from number `keep` on are replaced by these. A part with `media`
    is a picture or file, and nothing else."""

    n: int
    part: int
    thought: bool
    text: str
    keep: int = 0
    blocks: list[str] | None = None
    media: Media | None = None


class _OpenPart:
    """One stretch of text or of reasoning. `_open` is where its last block begins."""

    def __init__(self, thought: bool) -> None:
        self.thought = thought
        self._closed_blocks = 0
        self._open_text = ""
        self._rendered_chars = 0

    def append(self, text: str) -> tuple[int, list[str] | None]:
        """Take more text; gives how many blocks stay and what follows them, or no blocks for now."""
        self._open_text += text.replace("\r", "")
        return self._render() if self._render_due else (self._closed_blocks, None)

    @property
    def _render_due(self) -> bool:
        size = len(self._open_text)
        share = _LONG_GROWTH_DIVISOR if size > _LONG_CHARS else _GROWTH_DIVISOR
        return size <= _SHORT_CHARS or (size - self._rendered_chars) * share >= size

    def _render(self) -> tuple[int, list[str]]:
        keep = self._closed_blocks
        made = markdown_html.render_blocks(self._open_text, colours=False)
        starts = markdown_html.find_block_starts(self._open_text) if len(made) > 1 else []
        # A line that begins a block may yet turn out to belong to the one before; two blocks stay open for that.
        if len(starts) == len(made) and len(made) > 2:
            closed = len(made) - 2
            self._open_text = "\n".join(self._open_text.split("\n")[starts[closed] :])
            self._closed_blocks += closed
        self._rendered_chars = len(self._open_text)
        return keep, made


class IncrementalRenderer:
    """The draft of one turn. Pieces that it has already are passed over."""

    def __init__(self) -> None:
        self._parts: list[_OpenPart | None] = []
        self.last_number = 0

    @property
    def empty(self) -> bool:
        return not self._parts

    def reset(self) -> None:
        """The draft has become a message: what comes next begins a new one."""
        self._parts.clear()

    def add(self, pieces: Iterable[DraftChunk]) -> list[RenderStep]:
        """Take more pieces, in order; gives one step for each stretch of text or reasoning among them."""
        return [
            self._render_group(group)
            for group in _group_pieces([p for p in pieces if p.n > self.last_number])
        ]

    def _render_group(self, group: list[DraftChunk]) -> RenderStep:
        first, self.last_number = group[0], group[-1].n
        if first.media is not None:
            self._parts.append(None)
            part = len(self._parts) - 1
            return RenderStep(n=self.last_number, part=part, thought=False, text="", media=first.media)
        text = "".join(piece.text for piece in group)
        current = self._parts[-1] if self._parts else None
        if current is None or current.thought != first.thought:
            current = _OpenPart(first.thought)
            self._parts.append(current)
        keep, made = current.append(text)
        part = len(self._parts) - 1
        return RenderStep(
            n=self.last_number, part=part, thought=first.thought, text=text, keep=keep, blocks=made
        )


def _group_pieces(pieces: list[DraftChunk]) -> list[list[DraftChunk]]:
    """Neighbouring pieces of one kind together; a picture or file is alone."""
    return [list(group) for _, group in groupby(pieces, key=lambda p: (p.thought, p.n if p.media else 0))]
