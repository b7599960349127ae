"""One part of a message for platforms that take text, and how parts travel as one string."""

from typing import TypeVar

import msgspec

from keryx.surfaces.gateway.render.dialect import Dialect
from keryx.surfaces.gateway.render.measure import Limit, inked
from keryx.surfaces.gateway.render.parser import parse
from keryx.surfaces.gateway.render.split import split
from keryx.surfaces.gateway.render.tree import Document

S = TypeVar("S", bound=msgspec.Struct)

PLAIN = Dialect()


class Rendered(msgspec.Struct, frozen=True):
    """`plain` says the same without marks, within the same limit, for when the platform refuses `text`."""

    text: str
    plain: str


def dumps(part: msgspec.Struct) -> str:
    """A part as one string, for a parcel. `loads` gives it back."""
    return msgspec.json.encode(part).decode()


def loads(text: str, kind: type[S]) -> S:
    return msgspec.json.decode(text, type=kind)


def rendered(markdown: str, dialect: Dialect, limit: Limit) -> list[Rendered]:
    """Parts that show something, in order; none if the whole shows nothing."""

    def render(document: Document) -> Rendered:
        return Rendered(dialect.render(document), PLAIN.render(document))

    def share(part: Rendered) -> float:
        return max(limit.share(part.text), limit.share(part.plain))

    return [part for part in split(parse(markdown), render, share) if inked(part.plain)]
