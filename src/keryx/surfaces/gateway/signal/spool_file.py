"""The file that holds what was taken from Signal until it is stored: one JSON object a line, written by signal-cli or by Keryx. Signal hands over each message once."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from keryx.core.errors import Unavailable

_MAX_BYTES = 64_000_000


class SpoolLine(msgspec.Struct, frozen=True):
    text: bytes

    @property
    def digest(self) -> str:
        """Identifies the line. The line that was stored last is remembered by it."""
        return hashlib.blake2b(self.text, digest_size=12).hexdigest()


class SpoolFile:
    """All methods block, and raise `Unavailable` with a sentence if the file cannot be used."""

    def __init__(self, path: Path, *, shared: bool) -> None:
        self.path = path
        # Written by signal-cli, which must be told to do so, so that it is not created here.
        self.shared = shared

    def read(self) -> list[SpoolLine]:
        """Return the complete lines. The rest of the last one may still be written."""
        try:
            with self.path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            if self.shared:
                raise Unavailable(
                    f"{self.path} does not exist: start signal-cli with its output appended to it, >> {self.path}"
                ) from None
            return []
        except OSError as exc:
            raise self._translate(exc) from exc
        if len(data) > _MAX_BYTES:
            # What is not read would be lost with what is cleared.
            raise Unavailable(f"{self.path} has more than {_MAX_BYTES:,} bytes: move it away")
        whole = data.rpartition(b"\n")[0]
        # A file that signal-cli does not append to has zeros in the place of what was cleared.
        lines = (line.strip(b"\0 \r\t") for line in whole.split(b"\n"))
        return [SpoolLine(line) for line in lines if line]

    def append(self, lines: Iterable[bytes]) -> None:
        """Write lines. They survive the end of the process; the store, which is next, survives the end of the machine."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            target = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(target, "wb") as file:
                file.write(b"".join(line + b"\n" for line in lines))
        except OSError as exc:
            raise self._translate(exc) from exc

    def clear(self) -> None:
        """Remove all lines. There must be no writer meanwhile: signal-cli writes only while a call of `receive` is running."""
        try:
            os.truncate(self.path, 0)
        except FileNotFoundError:
            return
        except OSError as exc:
            raise self._translate(exc) from exc

    def _translate(self, error: OSError) -> Unavailable:
        return Unavailable(
            f"{self.path} cannot be used ({error.strerror}): Keryx must be able to read and write it"
        )


def find_next(lines: Sequence[SpoolLine], digest: str | None) -> int:
    """Return the index of the line after the one that was stored last; 0 if that is not there."""
    return next((index + 1 for index, line in enumerate(lines) if digest and line.digest == digest), 0)
