"""Content: the blocks of a prompt as the parts of a message."""

from collections.abc import Iterable
from typing import Any

import msgspec

from keryx.core.errors import Invalid
from keryx.core.messages import Parts, Text, join
from keryx.core.titles import line
from keryx.surfaces.acp.peer import Json


class _TextBlock(msgspec.Struct, frozen=True, tag="text", tag_field="type"):
    text: str


class _Link(msgspec.Struct, frozen=True, tag="resource_link", tag_field="type"):
    uri: str
    name: str = ""


class _Contents(msgspec.Struct, frozen=True, rename="camel"):
    uri: str = ""
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class _Resource(msgspec.Struct, frozen=True, tag="resource", tag_field="type"):
    resource: _Contents


class _Image(msgspec.Struct, frozen=True, tag="image", tag_field="type"):
    data: str = ""


class _Audio(msgspec.Struct, frozen=True, tag="audio", tag_field="type"):
    data: str = ""


_Block = _TextBlock | _Link | _Resource | _Image | _Audio


def parts(blocks: Iterable[Json]) -> Parts:
    """What a person said. `Invalid` for a block that was not offered, and for a prompt without any content."""
    found = join(Text(_text(_read(block))) for block in blocks)
    if not any(isinstance(p, Text) and p.text.strip() for p in found):
        raise Invalid("the prompt is empty: write something")
    return found


def _read(block: dict[str, Any]) -> _Block:
    try:
        return msgspec.convert(block, _Block)
    except msgspec.ValidationError as exc:
        raise Invalid(f"a block of the prompt is not understood: {exc}") from exc


def _text(block: _Block) -> str:
    match block:
        case _TextBlock(text):
            return text
        case _Link(uri, name):
            return f"[{_label(name or uri)}]({line(uri)})"
        case _Resource(resource):
            return _embedded(resource)
        case _Image() | _Audio():
            raise Invalid("images and audio are not taken here: attach them as files, or describe them")


def _embedded(resource: _Contents) -> str:
    if resource.text is None:
        return f"\n[file {_label(resource.uri)}: it is not text]\n"
    return f"\n[file {_label(resource.uri)}]\n{resource.text}\n[end of file]\n"


def _label(text: str) -> str:
    """Foreign text on one line, without what would end the brackets around it."""
    return line(text).replace("[", "(").replace("]", ")")
