"""Slack: mrkdwn."""

import re

from keryx.surfaces.gateway.render.dialect import ZERO_WIDTH, Dialect, edged, unfenced
from keryx.surfaces.gateway.render.measure import Limit, Unit
from keryx.surfaces.gateway.render.part import Rendered, rendered
from keryx.surfaces.gateway.render.tree import Image, Link, visible

LIMIT = Limit(4000, Unit.UTF16)
"""Slack advises 4,000 characters. UTF-16 units are never fewer than characters."""

_LITERAL = re.compile(r"`|(?<!\w)[*_~](?=\S)")


def parts(markdown: str, limit: Limit = LIMIT) -> list[Rendered]:
    return rendered(markdown, _Slack(), limit)


class _Slack(Dialect):
    bold = "*"
    italic = "_"
    strike = "~"
    edged = "*_~"
    quotes_code = False

    def text(self, text: str) -> str:
        """Slack knows no escape for its marks: a space of no width keeps a literal one from opening anything."""
        return _escape(_LITERAL.sub(rf"\g<0>{ZERO_WIDTH}", text))

    def code(self, text: str) -> str:
        return self.text(text) if "`" in text or not text.strip() else edged("`", _escape(text))

    def fence(self, lines: list[str], lang: str) -> list[str]:
        return ["```", *(_escape(unfenced(line)) for line in lines), "```"]

    def link(self, node: Link | Image) -> str:
        label = "".join(map(visible, node.children)).replace("\n", " ")
        return f"<{_escape(node.url)}|{_escape(unfenced(label))}>"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
