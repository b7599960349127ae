"""Table: one line per figure, with its floor, its target, and whether it was met."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

_WIDTHS = (34, 22, 16, 16, 7, 22, 4)
_HEADS = ("measured", "size", "Keryx", "floor", "ratio", "target", "")


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """`unit` is ms, /s, MiB or empty for a count. A line without a target is there to be read, not judged."""

    name: str
    size: str
    figure: float
    unit: str
    floor: float | None = None
    ratio: float | None = None
    target: str = ""
    ok: bool | None = None


def line(
    name: str,
    size: str,
    figure: float,
    unit: str,
    *,
    floor: float | None = None,
    against: float | None = None,
    most: float | None = None,
    least: float | None = None,
    under: float | None = None,
    what: str = "the floor",
) -> Line:
    """A line, judged. `most` and `least` bound the ratio of the figure to `against` (the floor if not given),
    which is called `what`; `under` bounds the figure itself."""
    base = floor if against is None else against
    ratio = figure / base if base else None
    if under is not None:
        target, ok = f"under {_number(under)} {unit}".strip(), figure < under
    elif most is not None:
        target, ok = f"<= {most:g}x {what}", ratio is not None and ratio <= most
    elif least is not None:
        target, ok = f">= {least:g}x {what}", ratio is not None and ratio >= least
    else:
        target, ok = "", None
    return Line(
        name=name, size=size, figure=figure, unit=unit, floor=floor, ratio=ratio, target=target, ok=ok
    )


def none_of(name: str, size: str, count: float) -> Line:
    """A count that must be zero."""
    return Line(name=name, size=size, figure=count, unit="", target="0", ok=count == 0)


def head() -> str:
    return _row(_HEADS) + "\n" + _row(tuple("-" * width for width in _WIDTHS))


def show(line: Line) -> str:
    verdict = {True: "ok", False: "MISS", None: ""}[line.ok]
    return _row(
        (
            line.name,
            line.size,
            f"{_number(line.figure)} {line.unit}",
            "" if line.floor is None else f"{_number(line.floor)} {line.unit}",
            "" if line.ratio is None else f"{line.ratio:.2f}",
            line.target,
            verdict,
        )
    )


def save(path: Path, lines: Iterable[Line]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(list(lines))) + b"\n")


def _row(cells: tuple[str, ...]) -> str:
    first, second, *rest = zip(cells, _WIDTHS, strict=True)
    left = [f"{text:<{width}}" for text, width in (first, second)]
    middle = [f"{text:>{width}}" for text, width in rest[:3]]
    right = [f"{text:<{width}}" for text, width in rest[3:]]
    return "  ".join([*left, *middle, *right]).rstrip()


def _number(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"
