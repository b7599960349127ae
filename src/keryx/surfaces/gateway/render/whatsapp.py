"""WhatsApp: its own few marks, and addresses in the text."""

import re

from keryx.surfaces.gateway.render.dialect import ZERO_WIDTH, Dialect, edged, unfenced
from keryx.surfaces.gateway.render.measure import Limit, Unit
from keryx.surfaces.gateway.render.part import Rendered, rendered

LIMIT = Limit(4096, Unit.UTF16)

_LITERAL = re.compile(r"`|(?<!\w)[*_~](?=\S)|^(?:>|[*-]|\d+\.)(?=\s)", re.MULTILINE)


def parts(markdown: str, limit: Limit = LIMIT) -> list[Rendered]:
    return rendered(markdown, _WhatsApp(), limit)


class _WhatsApp(Dialect):
    bold = "*"
    italic = "_"
    strike = "~"
    edged = "*_~"
    quotes_code = False

    def text(self, text: str) -> str:
        """There is no escape: a space of no width keeps a literal mark from opening anything."""
        return _LITERAL.sub(rf"\g<0>{ZERO_WIDTH}", text)

    def code(self, text: str) -> str:
        return self.text(text) if "`" in text or not text.strip() else edged("`", text)

    def fence(self, lines: list[str], lang: str) -> list[str]:
        return ["```", *map(unfenced, lines), "```"]
