"""The parts of a mail: its text and its files. The time to split a mail is linear in its size, for any content."""

import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import collapse_rfc2231_value

from keryx.core.media import Attachment, clean_name
from keryx.surfaces.gateway.email import mail_text
from keryx.surfaces.gateway.email.mail_headers import MailHeaders, decode_bytes, decode_words, split_header

MAX_TEXT_CHARS = 200_000
_MAX_DEPTH = 12
_MAX_PARTS = 200
_MAX_FILES = 50
_EXTENSIONS = {
    "text/calendar": ".ics",
    "message/rfc822": ".eml",
    "application/ms-tnef": ".dat",
    "text/html": ".html",
    "text/plain": ".txt",
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "application/pdf": ".pdf",
}
_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/]+")


@dataclass(slots=True)
class MailContent:
    """What a mail holds. `lost` are the names of files that were left out, each with the reason."""

    text: str = ""
    files: list[Attachment] = field(default_factory=list[Attachment])
    lost: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _MailPart:
    headers: MailHeaders
    # The mail, and where the body of the part is in it: a hostile mail nests deeply, so nothing is copied.
    raw: bytes
    start: int
    end: int
    # The parts below it.
    children: "list[_MailPart]" = field(default_factory=list["_MailPart"])
    # The boundary after it is there.
    complete: bool = True

    @property
    def kind(self) -> str:
        return self.headers.content.get_content_type()

    @property
    def is_text(self) -> bool:
        if self.kind not in ("text/plain", "text/html", "text/enriched", "text/markdown"):
            return False
        return self.headers.content.get_content_disposition() != "attachment" and not _find_name(self.headers)

    def read_text(self) -> str:
        charset = self.headers.content.get_param("charset") or "utf-8"
        data = self.decode_body()[: 4 * MAX_TEXT_CHARS]
        text = decode_bytes(data, collapse_rfc2231_value(charset)).replace("\r\n", "\n").replace("\r", "\n")
        if self.kind == "text/html":
            return mail_text.render_html(text[: 2 * MAX_TEXT_CHARS])
        if str(self.headers.content.get_param("format", "")).lower() == "flowed":
            return mail_text.unfold_flowed(
                text, delete_space=str(self.headers.content.get_param("delsp", "")).lower() == "yes"
            )
        return text

    def decode_body(self) -> bytes:
        body = self.raw[self.start : self.end]
        encoding = str(self.headers.content.get("content-transfer-encoding", "")).strip().lower()
        if encoding == "base64":
            data = _NOT_BASE64.sub(b"", body)
            # A single letter at the end does not encode a byte.
            data = data[: len(data) - (len(data) % 4 == 1)]
            return binascii.a2b_base64(data + b"=" * (-len(data) % 4))
        return binascii.a2b_qp(body) if encoding == "quoted-printable" else body


def read_content(raw: bytes, *, truncated: bool = False) -> MailContent:
    """Return the text and the files of a mail. Of a mail that was fetched in part only, the last part is left out if it is
    a file."""
    budget = [_MAX_PARTS]
    root = _build_part(raw, 0, len(raw), 0, budget, complete=not truncated)
    content = MailContent()
    texts: list[str] = []
    _collect(root, texts, content)
    if budget[0] < 0:
        content.lost.append("more parts (the mail has too many)")
    content.text = "\n\n".join(text for text in texts if text.strip())[:MAX_TEXT_CHARS]
    return content


def list_bodies(raw: bytes) -> list[tuple[str, bytes]]:
    """Return the type and the decoded body of every part that has no parts below it, in order."""
    bodies: list[tuple[str, bytes]] = []
    waiting = [_build_part(raw, 0, len(raw), 0, [_MAX_PARTS], complete=True)]
    while waiting:
        part = waiting.pop()
        if part.children:
            waiting += reversed(part.children)
        else:
            bodies.append((part.kind, part.decode_body()))
    return bodies


def _build_part(
    raw: bytes, start: int, end: int, depth: int, budget: list[int], *, complete: bool
) -> _MailPart:
    budget[0] -= 1
    headers, body = split_header(raw, start, end)
    part = _MailPart(headers, raw, body, end, complete=complete)
    boundary = headers.content.get_boundary() if part.kind.startswith("multipart/") else None
    if boundary and depth < _MAX_DEPTH:
        marker = b"--" + boundary.encode("utf-8", "surrogateescape")
        for first, last, closed in _split_multipart(raw, body, end, marker):
            if budget[0] < 0:
                break
            part.children.append(
                _build_part(raw, first, last, depth + 1, budget, complete=closed or complete)
            )
    return part


def _split_multipart(raw: bytes, start: int, end: int, marker: bytes) -> Iterator[tuple[int, int, bool]]:
    """Yield where the parts between boundaries begin and end, each with whether a boundary ends it."""
    at = start if raw.startswith(marker, start, end) else _find_boundary(raw, marker, start, end)
    while at >= 0:
        line_end = raw.find(b"\n", at, end)
        if line_end < 0 or raw.startswith(b"--", at + len(marker)):
            return
        # The line end before a boundary belongs to the boundary; that of this one may be it.
        following = _find_boundary(raw, marker, line_end, end)
        last = end if following < 0 else max(line_end + 1, following - 1)
        if following >= 0 and raw[last - 1 : last] == b"\r" and last - 1 > line_end:
            last -= 1
        yield line_end + 1, last, following >= 0
        at = following


def _find_boundary(raw: bytes, marker: bytes, start: int, end: int) -> int:
    found = raw.find(b"\n" + marker, start, end)
    return found + 1 if found >= 0 else -1


def _collect(part: _MailPart, texts: list[str], content: MailContent) -> None:
    """Add the texts and files of a part and of those below it."""
    if part.kind == "multipart/alternative" and part.children:
        # The plain text of alternatives, or else the best other one. Files among them are kept.
        found: list[tuple[bool, list[str], MailContent]] = []
        for child in part.children:
            below, files = list[str](), MailContent()
            _collect(child, below, files)
            found.append((child.kind == "text/plain", below, files))
            content.files += files.files[: _MAX_FILES - len(content.files)]
            content.lost += files.lost
        readable = [entry for entry in found if "".join(entry[1]).strip()]
        if readable:
            texts += next((entry for entry in readable if entry[0]), readable[-1])[1]
    elif part.children:
        for child in part.children:
            _collect(child, texts, content)
    elif part.is_text:
        texts.append(part.read_text())
    elif not part.kind.startswith("multipart/"):
        name = _find_name(part.headers) or f"file-{len(content.files) + 1}{_EXTENSIONS.get(part.kind, '')}"
        if not part.complete:
            content.lost.append(f"{name!r} (the mail is too large)")
        elif len(content.files) >= _MAX_FILES:
            content.lost.append(f"{name!r} (the mail has too many files)")
        else:
            content.files.append(Attachment(name=name, mime=part.kind, body=part.decode_body()))


def _find_name(headers: MailHeaders) -> str:
    """Return the name of a file, from either of the two fields that may hold it, in either of the two encodings."""
    for field_, parameter in (("content-disposition", "filename"), ("content-type", "name")):
        value = headers.content.get_param(parameter, header=field_)
        if isinstance(value, tuple):
            charset, _, text = value
            return clean_name(decode_bytes(text.encode("latin-1", "replace"), charset or "utf-8"))
        if value:
            return clean_name(decode_words(str(value)))
    return ""
