"""The file that holds the keys of one device: an append-only log of changes that is read whole when it is opened. One process at a time may open it."""

import asyncio
import errno
import fcntl
import logging
import os
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from keryx.core.texts import Phrase
from keryx.surfaces.gateway.matrix.encryption import EncryptionUnavailable

log = logging.getLogger(__name__)

# A log that has grown to this size, and to this many times what it holds, is written anew.
_MIN_COMPACTION_BYTES = 1_000_000
_MAX_GROWTH = 4
_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
_CRC_LENGTH = 8


class KeyFile:
    """Values by name. `set` and `remove` change them in memory; `flush` returns when everything changed before it is on
    disk. A crash keeps all changes of a flush or none of them. Values are anything that JSON can hold.

    Names that begin alike, up to their first slash, are a group that can be listed."""

    def __init__(self, path: Path, values: dict[str, Any], file: int, size: int) -> None:
        self.path = path
        # Counts changes.
        self.version = 0
        self._groups: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            self._groups.setdefault(_get_group(name), {})[name] = value
        self._file = file
        self._size = size
        self._base_size = size
        self._changes: dict[str, Any] = {}
        self._broken = ""
        # Held for an instant by readers and writers of `_changes`, and during a write to the file, respectively.
        self._changes_lock = threading.Lock()
        self._file_lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> "KeyFile":
        """Open the file, or create it. Raise `EncryptionUnavailable` if another process has it open, or if it is damaged."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
            while True:
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, _FILE_MODE)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # Another process may have replaced the file between the two calls.
                    if os.path.samestat(os.fstat(file), path.stat()):
                        break
                except BaseException:
                    os.close(file)
                    raise
                os.close(file)
            try:
                os.fchmod(file, _FILE_MODE)
                values, size = _read_log(path)
                os.ftruncate(file, size)
                _sync_folder(path.parent)
            except BaseException:
                os.close(file)
                raise
        except BlockingIOError as exc:
            raise EncryptionUnavailable(Phrase("delivery.keys_in_use", path=path)) from exc
        except OSError as exc:
            raise EncryptionUnavailable(
                Phrase("delivery.keys_unreadable", path=path, reason=exc.strerror)
            ) from exc
        return cls(path, values, file, size)

    def close(self) -> None:
        with self._file_lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def get(self, name: str) -> Any:
        """Return the value, or `None`. The caller does not change it."""
        return self._groups.get(_get_group(name), {}).get(name)

    def items(self, group: str) -> list[tuple[str, Any]]:
        """Return the values of a group, such as `inbound/`, by the rest of their names, the oldest name first."""
        return [(name.removeprefix(group), value) for name, value in self._groups.get(group, {}).items()]

    def count(self, group: str) -> int:
        return len(self._groups.get(group, {}))

    def set(self, name: str, value: Any) -> None:
        with self._changes_lock:
            self.version += 1
            self._groups.setdefault(_get_group(name), {})[name] = value
            self._changes[name] = value

    def remove(self, name: str) -> None:
        with self._changes_lock:
            if self._groups.get(_get_group(name), {}).pop(name, None) is not None:
                self.version += 1
                self._changes[name] = None

    async def flush(self) -> None:
        """Write all changes to disk. Raise `EncryptionUnavailable` if that fails; the changes are kept for the next flush."""
        # Even without a change here: another flush may be writing, in vain, what was changed before this call.
        await asyncio.to_thread(self._write)

    def _write(self) -> None:
        with self._file_lock:
            if self._broken or self._file < 0:
                raise EncryptionUnavailable(self._broken or "the keys are closed")
            with self._changes_lock:
                changes, self._changes = self._changes, {}
                line = _encode_line(changes) if changes else b""
            if line:
                try:
                    self._append(line)
                except EncryptionUnavailable:
                    with self._changes_lock:
                        self._changes = {**changes, **self._changes}
                    raise
            if self._size > max(_MIN_COMPACTION_BYTES, _MAX_GROWTH * self._base_size):
                self._compact()

    def _append(self, line: bytes) -> None:
        try:
            written = os.write(self._file, line)
            if written < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as exc:
            try:
                os.ftruncate(self._file, self._size)
            except OSError as failure:
                # Another line behind a part of this one would make the whole file unreadable.
                raise self._break(failure) from failure
            raise EncryptionUnavailable(
                Phrase("delivery.keys_not_written", path=self.path, reason=exc.strerror)
            ) from exc
        try:
            os.fsync(self._file)
        except OSError as exc:
            # What is on disk is unknown now. Nothing may be sent that depends on it.
            raise self._break(exc) from exc
        self._size += len(line)

    def _break(self, error: OSError) -> EncryptionUnavailable:
        """Return the error of this write and of all that follow."""
        self._broken = f"the keys in {self.path} cannot be written ({error.strerror}): restart Keryx"
        return EncryptionUnavailable(self._broken)

    def _compact(self) -> None:
        """Write the values to a new file, which takes the place and the lock of the old one. If it cannot be written, the old
        one is kept until it has grown as much again."""
        with self._changes_lock:
            line = _encode_line(
                {name: value for group in self._groups.values() for name, value in group.items()}
            )
        draft = self.path.with_name(f"{self.path.name}.new")
        try:
            # Write a new file and return its handle, which holds the lock of the file. Raise `OSError`.
            draft.unlink(missing_ok=True)
            file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, _FILE_MODE)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.write(file, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file)
            except OSError:
                os.close(file)
                draft.unlink(missing_ok=True)
                raise
            draft.replace(self.path)
        except OSError as exc:
            log.warning("the keys in %s cannot be written anew: %s", self.path, exc.strerror)
            self._base_size = self._size
            return
        os.close(self._file)
        self._file, self._size, self._base_size = file, len(line), len(line)
        try:
            _sync_folder(self.path.parent)
        except OSError as exc:
            raise self._break(exc) from exc


def _get_group(name: str) -> str:
    head, slash, _ = name.partition("/")
    return head + slash if slash else ""


def _encode_line(changes: Mapping[str, Any]) -> bytes:
    body = msgspec.json.encode(changes)
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _read_log(path: Path) -> tuple[dict[str, Any], int]:
    """Return the values and the length of the log without a last line that a crash has cut off. Raise
    `EncryptionUnavailable` if an earlier line is damaged."""
    values: dict[str, Any] = {}
    size = 0
    data = path.read_bytes()
    for line in data.splitlines(keepends=True):
        body = line[_CRC_LENGTH + 1 : -1]
        try:
            complete = line.endswith(b"\n") and int(line[:_CRC_LENGTH], 16) == zlib.crc32(body)
            changes = msgspec.json.decode(body, type=dict[str, Any]) if complete else None
        except (ValueError, msgspec.DecodeError):
            changes = None
        if changes is None:
            if size + len(line) < len(data):
                raise EncryptionUnavailable(Phrase("delivery.keys_damaged", path=path))
            break
        for name, value in changes.items():
            if value is None:
                values.pop(name, None)
            else:
                values[name] = value
        size += len(line)
    return values, size


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
