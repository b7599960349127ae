"""Content: the blocks of a prompt as the parts of a message."""

import base64
import binascii
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from keryx.core.errors import Invalid
from keryx.core.messages import Audio, File, Image, Part, Parts, Text, join
from keryx.core.ports import Attachment
from keryx.core.titles import line
from keryx.surfaces.acp.peer import Json

Keep: TypeAlias = Callable[[Attachment], Awaitable[Image | File | Audio]]
"""Stores a file and gives the part that shows it."""


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


class _Image(msgspec.Struct, frozen=True, tag="image", tag_field="type", rename="camel"):
    data: str
    mime_type: str = ""
    uri: str | None = None


class _Audio(msgspec.Struct, frozen=True, tag="audio", tag_field="type", rename="camel"):
    data: str
    mime_type: str = ""


_Block = _TextBlock | _Link | _Resource | _Image | _Audio


async def parts(blocks: Iterable[Json], keep: Keep) -> Parts:
    """What a person said. `Invalid` for a block that is not understood, and for a prompt without any content."""
    found = join([await _part(_read(block), keep) for block in blocks])
    if not any(not isinstance(p, Text) or p.text.strip() for p in found):
        raise Invalid("the prompt is empty: write something")
    return found


def _read(block: dict[str, Any]) -> _Block:
    try:
        return msgspec.convert(block, _Block)
    except msgspec.ValidationError as exc:
        raise Invalid(f"a block of the prompt is not understood: {exc}") from exc


async def _part(block: _Block, keep: Keep) -> Part:
    match block:
        case _TextBlock(text):
            return Text(text)
        case _Link(uri, name):
            return Text(f"[{_label(name or uri)}]({line(uri)})")
        case _Image(data, mime, uri):
            return await keep(_attachment(data, mime or "image/png", uri or ""))
        case _Audio(data, mime):
            return await keep(_attachment(data, mime or "audio/wav", ""))
        case _Resource(resource) if resource.blob is not None:
            mime = resource.mime_type or "application/octet-stream"
            return await keep(_attachment(resource.blob, mime, resource.uri))
        case _Resource(resource):
            return Text(f"\n[file {_label(resource.uri)}]\n{resource.text or ''}\n[end of file]\n")


def _attachment(data: str, mime: str, uri: str) -> Attachment:
    try:
        body = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise Invalid("a file of the prompt is not valid base64") from exc
    return Attachment(name=os.path.basename(uri), mime=mime, body=body)


def _label(text: str) -> str:
    """Foreign text on one line, without what would end the brackets around it."""
    return line(text).replace("[", "(").replace("]", ")")
