"""Growing: the html of an answer while it is written, block by block, at a cost that grows with the answer only.

What lies before the last block is rendered once. The last block is rendered again while it is short, and once it is
long only when it has grown by a part of its length; between, its text follows as it is."""

from collections.abc import Iterable
from itertools import groupby

import msgspec

from keryx.core.changes import Piece
from keryx.core.media import Media
from keryx.surfaces.web import render

_SHORT = 2_000
_SHARE = 8
_LONG = 20_000
_LONG_SHARE = 2


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """More of part number `part`. With `blocks`, those from number `keep` on are replaced by these. A part with `media`
    is a picture or file, and nothing else."""

    n: int
    part: int
    thought: bool
    text: str
    keep: int = 0
    blocks: list[str] | None = None
    media: Media | None = None


class _Part:
    """One stretch of text or of reasoning. `_open` is where its last block begins."""

    def __init__(self, thought: bool) -> None:
        self.thought = thought
        self._done = 0
        self._open = ""
        self._rendered = 0

    def grow(self, text: str) -> tuple[int, list[str] | None]:
        """Take more text; gives how many blocks stay and what follows them, or no blocks for now."""
        self._open += text.replace("\r", "")
        return self._render() if self._due else (self._done, None)

    @property
    def _due(self) -> bool:
        size = len(self._open)
        share = _LONG_SHARE if size > _LONG else _SHARE
        return size <= _SHORT or (size - self._rendered) * share >= size

    def _render(self) -> tuple[int, list[str]]:
        keep = self._done
        made = render.blocks(self._open, colours=False)
        starts = render.starts(self._open) if len(made) > 1 else []
        # A line that begins a block may yet turn out to belong to the one before; two blocks stay open for that.
        if len(starts) == len(made) and len(made) > 2:
            closed = len(made) - 2
            self._open = "\n".join(self._open.split("\n")[starts[closed] :])
            self._done += closed
        self._rendered = len(self._open)
        return keep, made


class Growing:
    """The draft of one turn. Pieces that it has already are passed over."""

    def __init__(self) -> None:
        self._parts: list[_Part | None] = []
        self.last = 0

    @property
    def empty(self) -> bool:
        return not self._parts

    def reset(self) -> None:
        """The draft has become a message: what comes next begins a new one."""
        self._parts.clear()

    def add(self, pieces: Iterable[Piece]) -> list[Step]:
        """Take more pieces, in order; gives one step for each stretch of text or reasoning among them."""
        return [self._step(group) for group in _joined([p for p in pieces if p.n > self.last])]

    def _step(self, group: list[Piece]) -> Step:
        first, self.last = group[0], group[-1].n
        if first.media is not None:
            self._parts.append(None)
            part = len(self._parts) - 1
            return Step(n=self.last, part=part, thought=False, text="", media=first.media)
        text = "".join(piece.text for piece in group)
        current = self._parts[-1] if self._parts else None
        if current is None or current.thought != first.thought:
            current = _Part(first.thought)
            self._parts.append(current)
        keep, made = current.grow(text)
        part = len(self._parts) - 1
        return Step(n=self.last, part=part, thought=first.thought, text=text, keep=keep, blocks=made)


def _joined(pieces: list[Piece]) -> list[list[Piece]]:
    """Neighbouring pieces of one kind together; a picture or file is alone."""
    return [list(group) for _, group in groupby(pieces, key=lambda p: (p.thought, p.n if p.media else 0))]
