"""Files in messages: type detection by content, file names, message parts, and attachments with their bytes."""

import hashlib
import re
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from keryx.core import text as core_text
from keryx.core.messages import Audio, File, Image, Part

UNKNOWN_MIME = "application/octet-stream"
IMAGE_MIMES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_LONGEST_NAME = 200
_MIME = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}\Z")
_SLASHES = re.compile(r"[/\\]+")
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
)
_DETECTABLE_MIMES = frozenset(
    {*IMAGE_MIMES, *(mime for _, mime in _SIGNATURES), "audio/wav", "audio/mp4", "video/mp4"}
)

Media: TypeAlias = Image | File | Audio


def hash_body(body: bytes) -> str:
    """Return the id of a file, which depends on its bytes alone."""
    return hashlib.sha256(body).hexdigest()


def detect_mime(declared: str, body: bytes) -> str:
    """Return the type of a file. The bytes decide for the common types, the declared type for all others."""
    given = declared.partition(";")[0].strip().lower()
    given = given if _MIME.match(given) else UNKNOWN_MIME
    seen = sniff(body)
    if seen is None:
        return UNKNOWN_MIME if given in _DETECTABLE_MIMES else given
    # Office documents are ZIP archives: the declared type says more.
    document = given.startswith("application/") and given != UNKNOWN_MIME
    return given if seen == "application/zip" and document else seen


def sniff(body: bytes) -> str | None:
    """Return the type of a file by its first bytes, or `None` if it is not a common one."""
    for beginning, kind in _SIGNATURES:
        if body.startswith(beginning):
            return kind
    if body[:4] == b"RIFF" and body[8:12] in (b"WEBP", b"WAVE"):
        return "image/webp" if body[8:12] == b"WEBP" else "audio/wav"
    if body[4:8] == b"ftyp":
        return "audio/mp4" if body[8:11] == b"M4A" else "video/mp4"
    # A frame of MPEG audio: eleven set bits, then a layer that exists.
    if len(body) > 2 and body[0] == 0xFF and body[1] & 0xE0 == 0xE0 and body[1] & 0x06:
        return "audio/mpeg"
    return None


def build_part(id_: str, kind: str, name: str) -> Media:
    """Return the part for a file. Only types that cannot contain scripts become images."""
    if kind in IMAGE_MIMES:
        return Image(id_, kind, name)
    return Audio(id_, kind, name) if kind.startswith("audio/") else File(id_, kind, name)


def clean_name(text: str) -> str:
    """Return the name of a file on one line, without folders."""
    last = _SLASHES.split(core_text.to_single_line(text).rstrip("/\\"))[-1].strip()
    return "" if last in {".", ".."} else core_text.truncate(last, _LONGEST_NAME)


def filter_media(parts: Iterable[Part]) -> list[Media]:
    """Return the pictures, sounds and files among the parts of a message, in order."""
    return [p for p in parts if isinstance(p, Media)]


def name_media(part: Media) -> str:
    """Return the words that stand for a file where only text can."""
    return f"[{clean_name(part.name) or 'file'}]"


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """An image, sound or file with its bytes."""

    name: str
    mime: str
    body: bytes


class RemoteFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of an event that is still on its platform."""

    # What the adapter needs to fetch it, such as an id or an address. It is stored, so it holds no secret, and it must be
    # enough after a restart.
    reference: str
    name: str
    mime: str = ""
    # In bytes, 0 if the platform does not say it.
    size: int = 0

    @property
    def placeholder(self) -> str:
        """The placeholder in the message until the file is fetched."""
        return f"[{clean_name(self.name) or 'file'}]"


def may_have_siblings(files: Iterable[RemoteFile]) -> bool:
    """Whether a message has a file of a kind that people send several of at once: any but a sound."""
    return any(not file.mime.startswith("audio/") for file in files)
