"""Parts of plain text: the simplest rendering to test splitting with."""

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import parse, plain
from keryx.markdown.split import LengthLimit, has_visible_text, split_document


def plain_parts(markdown: str, limit: LengthLimit = LengthLimit(4096, LengthUnit.UTF16)) -> list[str]:
    parts = split_document(parse(markdown), plain.render, limit.fill_ratio)
    return [part for part in parts if has_visible_text(part)]
