"""Files that go with a message from a terminal: by path, dropped on the window, or as a picture in the clipboard."""

import mimetypes
import shlex
import shutil
import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit

from keryx.cli import output
from keryx.core.errors import Invalid
from keryx.core.media import UNKNOWN_MIME, Attachment
from keryx.core.texts import Phrase, explain_os_error

_CLIPBOARD_NAME = "clipboard.png"
# Programs that write the picture in the clipboard to stdout: Wayland, X11, macOS.
_CLIPBOARD_COMMANDS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
_CLIPBOARD_SECONDS = 5.0
_MAX_DROPPED = 20


def read_attachment(name: str, *, limit: int) -> Attachment:
    """Read a file. Raise `Invalid` if it cannot be read, is empty or has more than `limit` bytes. Blocking."""
    path = Path(name).expanduser()
    try:
        if path.is_dir():
            raise Invalid(Phrase("terminal.attach_folder", name=name))
        size = path.stat().st_size
        if size > limit:
            raise Invalid(
                Phrase(
                    "terminal.attach_large",
                    name=name,
                    size=output.format_size(size),
                    limit=output.format_size(limit),
                )
            )
        body = path.read_bytes()
    except OSError as exc:
        raise Invalid(Phrase("terminal.attach_unreadable", name=name, reason=explain_os_error(exc))) from exc
    if not body:
        raise Invalid(Phrase("terminal.attach_empty", name=name))
    return Attachment(name=path.name, mime=mimetypes.guess_type(path.name)[0] or UNKNOWN_MIME, body=body)


def read_clipboard() -> Attachment:
    """Return the picture in the clipboard. Raise `Invalid` if there is none, or no program to read it with. Blocking."""
    found = [command for command in _CLIPBOARD_COMMANDS if shutil.which(command[0])]
    if not found:
        raise Invalid(Phrase("terminal.clipboard_missing"))
    for command in found:
        try:
            done = subprocess.run(command, capture_output=True, timeout=_CLIPBOARD_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0 and done.stdout:
            return Attachment(name=_CLIPBOARD_NAME, mime="image/png", body=done.stdout)
    raise Invalid(Phrase("terminal.clipboard_empty"))


def find_dropped(text: str) -> list[str]:
    """Return the paths in a text that a terminal pastes when pictures, sounds or PDF files are dropped on it. Empty if the
    text is anything else."""
    try:
        words = shlex.split(text.strip())
    except ValueError:
        return []
    if not 0 < len(words) <= _MAX_DROPPED:
        return []
    paths = [unquote(urlsplit(word).path) if word.startswith("file://") else word for word in words]
    return paths if all(map(_is_media, paths)) else []


def _is_media(name: str) -> bool:
    kind = mimetypes.guess_type(name)[0] or ""
    if not name.startswith(("/", "~")) or not (
        kind.startswith(("image/", "audio/")) or kind == "application/pdf"
    ):
        return False
    try:
        return Path(name).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):
        return False
