"""Media: images, files and sound as the parts of a provider's message, or as a line of text in their place."""

import base64
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from keryx.agents.models import Model
from keryx.core.media import Media
from keryx.core.messages import Audio, File, Image, Message, Role
from keryx.core.prompt import quote

Json: TypeAlias = dict[str, Any]

LONGEST_FILE = 200_000
"""How many characters of a text file go into a prompt."""

_TEXTUAL = ("text/", "application/json", "application/xml", "application/yaml", "application/toml")
_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def wanted(messages: Iterable[Message], model: Model) -> list[str]:
    """The media that a prompt of these messages needs, each once."""
    parts = (p for m in messages if m.role is Role.USER for p in m.parts)
    return list(dict.fromkeys(p.media for p in parts if isinstance(p, Media) and _readable(p, model)))


def render(part: Media, model: Model, data: Mapping[str, bytes]) -> Json | str:
    """A part for the provider, or words that stand for it when the model cannot take it."""
    if not _readable(part, model):
        return _spoken(part) or _note(part, "this model cannot read it")
    content = data.get(part.media)
    if content is None:
        return _note(part, "it is no longer there")
    match part:
        case Image(mime=mime):
            return {"type": "image_url", "image_url": {"url": _url(mime or "image/png", content)}}
        case Audio(mime=mime):
            sound = {"data": base64.b64encode(content).decode(), "format": _SOUNDS[mime]}
            return {"type": "input_audio", "input_audio": sound}
        case File(mime=mime) if _textual(mime):
            return _inlined(part, content)
        case File(mime=mime, name=name):
            file = {
                "filename": name or "file",
                "file_data": _url(mime or "application/octet-stream", content),
            }
            return {"type": "file", "file": file}


def _readable(part: Media, model: Model) -> bool:
    match part:
        case Image(mime=mime):
            return model.images and (not mime or mime.startswith("image/"))
        case Audio(mime=mime, transcript=transcript):
            return model.audio and not transcript.strip() and mime in _SOUNDS
        case File(mime=mime):
            return model.files or _textual(mime)


def _textual(mime: str) -> bool:
    return mime.startswith(_TEXTUAL)


def _spoken(part: Media) -> str:
    return part.transcript.strip() if isinstance(part, Audio) else ""


def _inlined(part: File, content: bytes) -> str:
    text = content.decode("utf-8", "replace")
    cut = "\n[The rest of the file is left out.]" if len(text) > LONGEST_FILE else ""
    return f"[file {quote(part.name or 'file')}]\n{text[:LONGEST_FILE]}{cut}\n[end of file]"


def _note(part: Media, why: str) -> str:
    return f"[{type(part).__name__.lower()} {quote(part.name or part.mime or 'unnamed')}: {why}]"


def _url(mime: str, content: bytes) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"
