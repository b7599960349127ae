"""Renders a growing answer as HTML, block by block. Closed blocks are rendered once; a long open block is rendered again only when it has grown by a share of its length, and a very long one stays text."""

from collections.abc import Iterable
from itertools import groupby

import msgspec

from keryx.core.changes import DraftChunk
from keryx.core.media import Media
from keryx.markdown import clean_text, html

_SHORT_CHARS = 2_000
_GROWTH_DIVISOR = 8
_MAX_OPEN_CHARS = 8_000


class RenderStep(msgspec.Struct, frozen=True, kw_only=True):
    """More of one part of a draft."""

    # The number of the last chunk in it.
    n: int
    part: int
    thought: bool
    text: str
    # With `blocks`: how many blocks of the part stay, and the blocks that replace the others.
    keep: int = 0
    blocks: list[str] | None = None
    # The part is this picture or file, and has no text.
    media: Media | None = None


class _OpenPart:
    """A run of text or of reasoning. Only its last blocks, which may still change, are kept as text."""

    def __init__(self, thought: bool, max_chars: int) -> None:
        self.thought = thought
        self._max_chars = max_chars
        self._closed_blocks = 0
        self._open_text = ""
        self._rendered_chars = 0

    def append(self, text: str, *, render: bool) -> tuple[int, list[str] | None]:
        """Return how many blocks stay and the blocks that follow them, or None if rendering is not due yet or not wanted."""
        self._open_text += clean_text(text.replace("\r", ""))
        return self._render() if render and self._render_due else (self._closed_blocks, None)

    @property
    def open_chars(self) -> int:
        """The length of the text that the next rendering takes; 0 if it is not rendered any more."""
        return len(self._open_text) if len(self._open_text) <= self._max_chars else 0

    @property
    def _render_due(self) -> bool:
        size = len(self._open_text)
        if size > self._max_chars:
            return False
        return size <= _SHORT_CHARS or (size - self._rendered_chars) * _GROWTH_DIVISOR >= size

    def _render(self) -> tuple[int, list[str]]:
        keep = self._closed_blocks
        blocks = html.locate_blocks(self._open_text, colours=False)
        # A line that begins a block may turn out to belong to the one before, so two blocks stay open.
        if len(blocks) > 2:
            closed = len(blocks) - 2
            self._open_text = "\n".join(self._open_text.split("\n")[blocks[closed][0] :])
            self._closed_blocks += closed
        self._rendered_chars = len(self._open_text)
        return keep, [block for _, block in blocks]


class IncrementalRenderer:
    """The draft of one turn. Chunks that were added before are ignored."""

    def __init__(self, max_open_chars: int = _MAX_OPEN_CHARS) -> None:
        self._max_open_chars = max_open_chars
        self._parts: list[_OpenPart | None] = []
        self.last_number = 0

    @property
    def empty(self) -> bool:
        return not self._parts

    def reset(self) -> None:
        """Start a new draft: the last one has become a message."""
        self._parts.clear()

    @property
    def open_chars(self) -> int:
        """The length of the text that the next rendering takes."""
        return self._parts[-1].open_chars if self._parts and self._parts[-1] else 0

    def add(self, chunks: Iterable[DraftChunk], *, render: bool = True) -> list[RenderStep]:
        """Add chunks in order; return one step for each run of text or reasoning, and for each picture or file. Without
        `render` the steps have no blocks yet."""
        new = [chunk for chunk in chunks if chunk.n > self.last_number]
        runs = groupby(new, key=lambda chunk: (chunk.thought, chunk.n if chunk.media else 0))
        return [self._render_group(list(run), render) for _, run in runs]

    def _render_group(self, group: list[DraftChunk], render: bool) -> RenderStep:
        first, self.last_number = group[0], group[-1].n
        if first.media is not None:
            self._parts.append(None)
            part = len(self._parts) - 1
            return RenderStep(n=self.last_number, part=part, thought=False, text="", media=first.media)
        text = "".join(chunk.text for chunk in group)
        current = self._parts[-1] if self._parts else None
        if current is None or current.thought != first.thought:
            current = _OpenPart(first.thought, self._max_open_chars)
            self._parts.append(current)
        keep, made = current.append(text, render=render)
        part = len(self._parts) - 1
        return RenderStep(
            n=self.last_number, part=part, thought=first.thought, text=text, keep=keep, blocks=made
        )
