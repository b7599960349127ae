"""Discord: its dialect of Markdown."""

import re

from keryx.surfaces.gateway.render.dialect import ZERO_WIDTH, Dialect, edged, unfenced
from keryx.surfaces.gateway.render.measure import Limit, Unit
from keryx.surfaces.gateway.render.part import Rendered, rendered
from keryx.surfaces.gateway.render.tree import Image, Link

LIMIT = Limit(2000, Unit.UTF16)
"""UTF-16 units are never fewer than the characters that Discord counts."""

_SMALLEST_HEADING = 3
# An address is left alone: Discord would take the backslash as a part of it.
_SPECIAL = re.compile(
    r"(?P<url>https?://[^\s<>`]+)"
    r"|(?P<mention>@(?=everyone|here)|<(?=[@#:/]|a:|t:|id:))"
    r"|(?P<mark>[\\*_~`|\[\]]|^(?:[>#-]|\d+(?=\.))(?=[\s#.>]))",
    re.MULTILINE,
)


def parts(markdown: str, limit: Limit = LIMIT) -> list[Rendered]:
    return rendered(markdown, _Discord(), limit)


class _Discord(Dialect):
    bold = "**"
    italic = "_"
    strike = "~~"
    edged = "_"
    bullet = "-"

    def text(self, text: str) -> str:
        return _SPECIAL.sub(_escaped, text)

    def code(self, text: str) -> str:
        if not text.strip():
            return text
        return edged("``", f" {text.replace('``', f'`{ZERO_WIDTH}`')} ") if "`" in text else edged("`", text)

    def fence(self, lines: list[str], lang: str) -> list[str]:
        return [f"```{lang}", *map(unfenced, lines), "```"]

    def heading(self, label: str, level: int) -> str:
        if level > _SMALLEST_HEADING:
            return super().heading(label, level)
        return "\n".join(f"{'#' * level} {line}" if line.strip() else line for line in label.split("\n"))

    def link(self, node: Link | Image) -> str:
        label = self.inline(node.children)
        if node.bare or "://" in label or not label.strip() or not node.url.startswith(("http:", "https:")):
            return super().link(node)
        label = label.replace("\n", " ")
        return f"[{label}](<{node.url}>)"


def _escaped(found: re.Match[str]) -> str:
    text = found.group()
    if found.lastgroup == "url":
        return text
    if found.lastgroup == "mention":
        return text + ZERO_WIDTH
    return f"{text}\\" if text.isdigit() else f"\\{text}"
