"""Plain text: for terminals, webhooks and what a platform refused. Links read `text (address)`."""

from keryx.surfaces.gateway.render.measure import Limit, Unit, inked
from keryx.surfaces.gateway.render.parser import parse
from keryx.surfaces.gateway.render.part import PLAIN
from keryx.surfaces.gateway.render.split import split

LIMIT = Limit(4096, Unit.UTF16)


def text(markdown: str) -> str:
    """The whole message, uncut."""
    return PLAIN.render(parse(markdown))


def parts(markdown: str, limit: Limit = LIMIT) -> list[str]:
    return [part for part in split(parse(markdown), PLAIN.render, limit.share) if inked(part)]
