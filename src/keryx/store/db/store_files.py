# The type stubs of apsw name a type that Python 3.11 does not have.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""The files of a SQLite store: notices when they are removed, replaced, overwritten or truncated while the store is open."""

import os
import secrets
import struct
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import apsw

from keryx.core.errors import StoreBroken

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
# The log begins with a header. Before each page in it are the number of the page and, from byte 8, the salt of the header.
_LOG_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_SALT = slice(16, 24)
_FRAME_SALT = slice(8, 16)
# Openings are counted in `user_version` from a random number on, so that other stores and older copies have other counts.
_MAX_FIRST_COUNT = 1 << 30
_MAX_COUNT = (1 << 31) - 1
# How many openings may lie between two looks at the file.
_MAX_STEP = 100_000
_RESTORE = "bring a backup back with `keryx restore`"
_ATTEMPTS, _ATTEMPT_SECONDS = 3, 0.01
_SAVE_ATTEMPTS = 100


class StoreHeader(NamedTuple):
    """What the first page of a store says about the file."""

    page_size: int
    schema: int
    openings: int
    application: int

    def continues(self, before: "StoreHeader", *, shorter: bool) -> bool:
        """Whether it is of the file that had the header `before`. Only a VACUUM makes that file shorter."""
        # Nothing is known of a file whose first checkpoint is still to come.
        same = before.page_size == self.page_size and before.application in (0, self.application)
        later = not before.openings or 0 <= self.openings - before.openings <= _MAX_STEP
        vacuumed = before.schema != self.schema
        return same and later and (vacuumed or not shorter)


class _FileState(NamedTuple):
    """A file as the system knows it."""

    device: int
    number: int
    size: int
    changed: int

    @classmethod
    def read(cls, path: str) -> "_FileState | None":
        try:
            found = os.stat(path)
        except OSError:
            return None
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class StoreFiles:
    """The files of one open store. For use by the thread of its connection."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._paths = [f"{path}{suffix}" for suffix in ("", "-wal", "-shm")]
        self._header = read_header(connection)
        self._states = self._read_states()
        self._log_size = self._states[1].size if self._states[1] else 0
        # What was found wrong with the store, of which nothing may be written from then on.
        self._overwritten: str | None = None

    def find_fault(self) -> str | None:
        """Return a sentence about what was done to the files since the last call, `None` if nothing was that SQLite does not
        do itself. The log of a file that was overwritten is put aside. Must not be called within a transaction."""
        if self._overwritten:
            return self._overwritten
        if self._is_unchanged():
            return None
        before, found = self._states, self._read_states()
        ids, old_ids = [_identify(state) for state in found], [_identify(state) for state in before]
        # With its index removed as well, nobody else has opened the store since: that would have made both again.
        if ids in ([old_ids[0], None, old_ids[2]], [old_ids[0], None, None]) and self._save_log():
            return f"the log of {self._path} was removed while it was in use, and what it had is in the store now: start again"
        if ids != old_ids:
            return f"{self._path} or its log was removed or replaced while it was in use: put it back, or {_RESTORE}"
        (old_store, old_log, _), (store, log, _) = before, found
        if store and old_store and store != old_store and not self._is_successor(store.size < old_store.size):
            self._overwritten = (
                f"{self._path} was overwritten while it was in use: start again to use it as it is, or {_RESTORE};"
                f" its log is {self._put_log_aside()} now"
            )
            return self._overwritten
        if log and old_log and log.size < self._log_size and not self._is_log_whole(log.size):
            return f"the log of {self._path} was cut while it was in use: {_RESTORE}"
        self._states = found
        self._log_size = log.size if log else 0
        return None

    def _is_unchanged(self) -> bool:
        """Whether at most the log has grown, as it does from commit to commit. Called twice in every commit."""
        known = self._states
        try:
            store, log, index = map(os.stat, self._paths)
        except OSError:
            return False
        if known[0] is None or known[1] is None or known[2] is None or log.st_size < self._log_size:
            return False
        if store.st_mtime_ns != known[0].changed or store.st_size != known[0].size:
            return False
        self._log_size = log.st_size
        return (
            store.st_ino == known[0].number
            and log.st_ino == known[1].number
            and index.st_ino == known[2].number
        )

    def _read_states(self) -> list[_FileState | None]:
        return [_FileState.read(path) for path in self._paths]

    def _save_log(self) -> bool:
        """Move all pages of a log that has lost its name to the store. Return whether that was possible."""
        for _ in range(_SAVE_ATTEMPTS):
            try:
                pages, saved = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except apsw.Error:
                return False
            if 0 <= pages == saved:
                return True
            # A read of this process needs the pages as they were.
            time.sleep(_ATTEMPT_SECONDS)
        return False

    def _put_log_aside(self) -> Path:
        """Rename the log, or SQLite would add its pages to the other store at the next opening. Return its name."""
        log = Path(f"{self._path}-wal")
        aside = self._path.with_name(f"{self._path.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%S%f}-wal")
        with suppress(OSError):
            return log.rename(aside)
        return log

    def _is_successor(self, shorter: bool) -> bool:
        """Return whether the file is the one that it was, with the pages of a checkpoint. Only a VACUUM makes it shorter."""
        for _ in range(_ATTEMPTS):
            before, header = self._header, read_header(self._connection)
            if before and header and header.continues(before, shorter=shorter):
                self._header = header
                return True
            # A process that moves pages to the file may be writing this one.
            time.sleep(_ATTEMPT_SECONDS)
        return False

    def _is_log_whole(self, size: int) -> bool:
        """Return whether the log has all pages that SQLite counts in it. A checkpoint of another program may have emptied it."""
        if self._header is None:
            return False
        try:
            pages, _ = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.IOError:
            return False
        return not pages or size >= _LOG_HEADER_BYTES + pages * (_FRAME_HEADER_BYTES + self._header.page_size)


def read_header(connection: apsw.Connection) -> StoreHeader | None:
    """Return the header of the file itself, without the log; `None` if it is not one of SQLite."""
    # Another descriptor of the file would release the locks of SQLite when it is closed.
    whole, page = connection.read("main", 0, 0, _HEADER_BYTES)
    return _parse_header(page) if whole else None


def count_opening(connection: apsw.Connection) -> None:
    """Count in the store that it was opened, within the transaction of the caller."""
    count = connection.pragma("user_version")
    assert isinstance(count, int)
    following = count + 1 if 0 < count < _MAX_COUNT else 1 + secrets.randbelow(_MAX_FIRST_COUNT)
    connection.pragma("user_version", following)


def check_log(connection: apsw.Connection, path: Path) -> None:
    """Raise `StoreBroken` if the log of a store does not continue its file: SQLite would mix the two."""
    # Another process may move pages from the log to the file between the two looks.
    for _ in range(_ATTEMPTS):
        header, logged = read_header(connection), _read_logged_header(Path(f"{path}-wal"))
        if header is None or logged is None or not header.openings or not logged.openings:
            return
        if -_MAX_STEP <= logged.openings - header.openings <= 1:
            return
    raise StoreBroken(
        f"{path} and its log {path.name}-wal are not of the same store, as if the file was replaced without its log:"
        " put the file back that was here; or bring a backup back with `keryx restore`, which keeps both aside"
    )


def _read_logged_header(log: Path) -> StoreHeader | None:
    """Return the header in the first copy of the first page that a log has, `None` if it has none."""
    try:
        with log.open("rb") as file:
            start = file.read(_LOG_HEADER_BYTES)
            if len(start) < _LOG_HEADER_BYTES:
                return None
            (page_size,) = struct.unpack(">I", start[8:12])
            while len(frame := file.read(_FRAME_HEADER_BYTES)) == _FRAME_HEADER_BYTES:
                # What follows is of an earlier use of the log.
                if frame[_FRAME_SALT] != start[_SALT]:
                    return None
                if struct.unpack(">I", frame[:4]) == (1,):
                    return _parse_header(file.read(_HEADER_BYTES))
                file.seek(page_size, os.SEEK_CUR)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise StoreBroken(f"{log} cannot be read ({exc.strerror}): check its rights") from exc
    return None


def _parse_header(page: bytes) -> StoreHeader | None:
    if len(page) < _HEADER_BYTES or not page.startswith(_MAGIC):
        return None
    (page_size,) = struct.unpack(">H", page[16:18])
    (schema,) = struct.unpack(">I", page[40:44])
    (openings,) = struct.unpack(">i", page[60:64])
    (application,) = struct.unpack(">I", page[68:72])
    return StoreHeader(page_size, schema, openings, application)


def _identify(state: _FileState | None) -> tuple[int, int] | None:
    return None if state is None else state[:2]
