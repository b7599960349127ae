"""The wire types of ACP as an editor sends them: request parameters, client capabilities, and prompt blocks converted to message parts."""

import base64
import binascii
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias, TypeVar

import msgspec

from keryx.core.errors import Invalid
from keryx.core.ids import SessionId
from keryx.core.media import Attachment
from keryx.core.messages import Audio, File, Image, Part, Parts, Text, merge_parts
from keryx.core.text import to_single_line
from keryx.jsonrpc import Json, as_object

T = TypeVar("T", bound="Params")


class Params(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class InitializeParams(Params, frozen=True, kw_only=True):
    protocol_version: int | float | str
    client_capabilities: Any = None


class AuthenticateParams(Params, frozen=True, kw_only=True):
    method_id: str


class NewSessionParams(Params, frozen=True, kw_only=True):
    cwd: str
    mcp_servers: tuple[Json, ...] | None = ()
    additional_directories: tuple[str, ...] | None = ()

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders beside `cwd` that the session may use."""
        return tuple(normalize_folder(path) for path in self.additional_directories or ())

    @property
    def normalized_cwd(self) -> str:
        return normalize_folder(self.cwd)


class SessionParams(Params, frozen=True, kw_only=True):
    session_id: SessionId


class LoadSessionParams(NewSessionParams, frozen=True, kw_only=True):
    """Parameters of load, resume and fork."""

    session_id: SessionId


class ListSessionsParams(Params, frozen=True, kw_only=True):
    cwd: str | None = None
    cursor: str | None = None


class PromptParams(SessionParams, frozen=True, kw_only=True):
    prompt: tuple[Json, ...]


class SetModeParams(SessionParams, frozen=True, kw_only=True):
    mode_id: str


class SetModelParams(SessionParams, frozen=True, kw_only=True):
    model_id: str


class SetOptionParams(SessionParams, frozen=True, kw_only=True):
    config_id: str
    value: Any


def parse_params(values: Json, kind: type[T]) -> T:
    """Convert the parameters of a request. Raise `Invalid` if they do not match."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as exc:
        raise Invalid(f"the parameters are not right: {exc}") from exc


def normalize_folder(path: str) -> str:
    """Return a working directory as it is stored and compared: absolute, without dots and double slashes."""
    if not os.path.isabs(path) or "\0" in path:
        raise Invalid(f"{path[:200]!r} is not an absolute path")
    normal = os.path.normpath(path)
    return normal[1:] if normal.startswith("//") else normal


class EditorCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    read_file: bool = False
    write_file: bool = False
    terminal: bool = False
    form: bool = False
    notices: bool = False
    compaction: bool = False


def parse_capabilities(capabilities: object) -> EditorCapabilities:
    """Read the capabilities of an editor; anything of an unknown shape counts as missing."""
    offered = as_object(capabilities)
    fs, session, elicitation = (as_object(offered.get(key)) for key in ("fs", "session", "elicitation"))
    return EditorCapabilities(
        read_file=fs.get("readTextFile") is True,
        write_file=fs.get("writeTextFile") is True,
        terminal=offered.get("terminal") is True,
        form=isinstance(elicitation.get("form"), dict),
        notices=isinstance(session.get("notices"), dict),
        compaction=isinstance(session.get("compaction"), dict),
    )


# Stores an attachment and returns the message part for it.
StoreAttachment: TypeAlias = Callable[[Attachment], Awaitable[Image | File | Audio]]


class _TextBlock(msgspec.Struct, frozen=True, tag="text", tag_field="type"):
    text: str


class _LinkBlock(msgspec.Struct, frozen=True, tag="resource_link", tag_field="type"):
    uri: str
    name: str = ""


class _ResourceContents(msgspec.Struct, frozen=True, rename="camel"):
    uri: str = ""
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class _ResourceBlock(msgspec.Struct, frozen=True, tag="resource", tag_field="type"):
    resource: _ResourceContents


class _ImageBlock(msgspec.Struct, frozen=True, tag="image", tag_field="type", rename="camel"):
    data: str
    mime_type: str = ""
    uri: str | None = None


class _AudioBlock(msgspec.Struct, frozen=True, tag="audio", tag_field="type", rename="camel"):
    data: str
    mime_type: str = ""


_ContentBlock = _TextBlock | _LinkBlock | _ResourceBlock | _ImageBlock | _AudioBlock


async def parse_prompt(blocks: Iterable[Json], store: StoreAttachment) -> Parts:
    """Convert the blocks of a prompt to message parts. Raise `Invalid` for an unknown block and for an empty prompt."""
    try:
        parsed = [msgspec.convert(block, _ContentBlock) for block in blocks]
    except msgspec.ValidationError as exc:
        raise Invalid(f"a block of the prompt is not understood: {exc}") from exc
    parts = merge_parts([await _convert_block(block, store) for block in parsed])
    if not any(not isinstance(p, Text) or p.text.strip() for p in parts):
        raise Invalid("the prompt is empty: write something")
    return parts


async def _convert_block(block: _ContentBlock, store: StoreAttachment) -> Part:
    match block:
        case _TextBlock(text):
            return Text(text)
        case _LinkBlock(uri, name):
            return Text(f"[{_format_label(name or uri)}]({to_single_line(uri)})")
        case _ImageBlock(data, mime, uri):
            return await store(_decode_attachment(data, mime or "image/png", uri or ""))
        case _AudioBlock(data, mime):
            return await store(_decode_attachment(data, mime or "audio/wav", ""))
        case _ResourceBlock(resource) if resource.blob is not None:
            mime = resource.mime_type or "application/octet-stream"
            return await store(_decode_attachment(resource.blob, mime, resource.uri))
        case _ResourceBlock(resource):
            return Text(f"\n[file {_format_label(resource.uri)}]\n{resource.text or ''}\n[end of file]\n")


def _decode_attachment(data: str, mime: str, uri: str) -> Attachment:
    try:
        body = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise Invalid("a file of the prompt is not valid base64") from exc
    return Attachment(name=os.path.basename(uri), mime=mime, body=body)


def _format_label(text: str) -> str:
    """Return foreign text on one line, without square brackets."""
    return to_single_line(text).replace("[", "(").replace("]", ")")
