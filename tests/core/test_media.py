"""What a file is, by its bytes and by what was said of it."""

import pytest

from keryx.core import media
from keryx.core.messages import Audio, File, Image

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


@pytest.mark.parametrize(
    ("body", "declared", "mime"),
    [
        (PNG, "", "image/png"),
        (PNG, "text/html", "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg", "image/jpeg"),
        (b"GIF89a....", "", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "", "image/webp"),
        (b"RIFF\0\0\0\0WAVEfmt ", "", "audio/wav"),
        (b"%PDF-1.7", "", "application/pdf"),
        (b"OggS\0", "", "audio/ogg"),
        (b"ID3\x04", "", "audio/mpeg"),
        (b"\xff\xfb\x90\x00", "", "audio/mpeg"),
        (b"\0\0\0\x18ftypmp42", "", "video/mp4"),
        (b"\0\0\0\x18ftypM4A ", "", "audio/mp4"),
        (b"PK\x03\x04", "", "application/zip"),
        (b"PK\x03\x04", "application/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.text"),
        (b"PK\x03\x04", "text/html", "application/zip"),
        (b"a,b", "text/csv; charset=utf-8", "text/csv"),
        (b"no picture", "image/png", media.UNKNOWN_MIME),
        (b"x", "not a type", media.UNKNOWN_MIME),
        (b"x", "text/html\r\nx: y", media.UNKNOWN_MIME),
        (b"", "", media.UNKNOWN_MIME),
        (SVG, "image/svg+xml", "image/svg+xml"),
    ],
)
def test_the_bytes_decide_what_a_file_is(body: bytes, declared: str, mime: str) -> None:
    assert media.detect_mime(declared, body) == mime


def test_what_can_hold_a_script_is_never_a_picture() -> None:
    assert isinstance(media.build_part("m", "image/svg+xml", ""), File)
    assert isinstance(media.build_part("m", "text/html", ""), File)
    assert isinstance(media.build_part("m", "image/png", ""), Image)
    assert isinstance(media.build_part("m", "audio/ogg", ""), Audio)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("cat.png", "cat.png"),
        ("../../etc/passwd", "passwd"),
        ("C:\\temp\\a b.txt", "a b.txt"),
        ("..", ""),
        ("", ""),
        ("x\r\ny\u202etxt.exe", "x ytxt.exe"),
        ("folder/", "folder"),
    ],
)
def test_a_name_is_one_line_without_folders(given: str, kept: str) -> None:
    assert media.clean_name(given) == kept
    assert len(media.clean_name("n" * 1000)) == 200
