"""The keys of temporary sessions, one file each outside of the database. What such a session says is sealed before it is stored and
opened when it is read; without the key nobody can read it."""

import base64
import binascii
import hashlib
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from keryx.core.errors import Invalid, NotFound, StoreBroken, format_install_command
from keryx.core.ids import SessionId, is_temporary
from keryx.core.texts import Phrase

if TYPE_CHECKING:
    from keryx.store.db import Row

FIND_TEMPORARY = "select 1 from sessions where substr(id, 1, 4) = 'tmp-' limit 1"
# A sealed text begins with this. No JSON text does, and no title, because it is a control character.
_MARK = "\x1f"
_FILE_MARK = b"\x1fkeryx sealed file "
_NONCE_BYTES = 12
_KEY_BYTES = 32
_SUFFIX = ".key"
# In the place of what cannot be read: an empty value of the same kind, by its first character. A reader may see rows of a
# session whose key another transaction has just destroyed.
_EMPTY = {"[": "[]", "{": "{}", '"': '""'}
# A key may be older than its session by the time of one transaction.
_YOUNG_SECONDS = 600


class SessionCipher:
    """Encrypts with the key of one session."""

    def __init__(self, key: bytes, session: SessionId) -> None:
        """Raise `Invalid` if the package for it is not installed."""
        try:
            from cryptography.exceptions import InvalidTag  # noqa: PLC0415 an optional extra, and slow to import
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 the same
        except ImportError as exc:
            command = format_install_command("temporary")
            raise Invalid(
                f"temporary conversations need an extra: run `{command}`",
                Phrase("temporary.no_extra", command=command),
            ) from exc
        self._cipher = AESGCM(key)
        self._context = session.encode()
        self._wrong = InvalidTag

    def encrypt(self, body: bytes) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, body, self._context)

    def decrypt(self, sealed: bytes) -> bytes | None:
        """Return what was encrypted; `None` if it was changed, or belongs to another session."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self._context)
        except self._wrong:
            return None


def is_sealed(text: str) -> bool:
    """Whether a stored text was sealed and could not be opened."""
    return text.startswith(_MARK)


class SessionKeys:
    """The keys in one folder, which several processes may use at once. Without a folder there are no temporary sessions."""

    def __init__(self, folder: Path | None, *, raw: bool = False) -> None:
        """With `raw` sealed rows stay as they are."""
        self._folder = folder
        self._path = "" if folder is None else str(folder)
        self._raw = raw
        self._ciphers: dict[SessionId, SessionCipher] = {}
        # Whether no session was temporary when the store was last cleared: then one can only have a key in the folder.
        self._none_left = False
        # Whether a row may be sealed. Checked at the beginning of every transaction, because another process may begin one.
        self.in_use = not raw

    def refresh(self) -> None:
        # Faster than to look for a folder: most stores have none.
        has_keys = os.access(self._path, os.F_OK)
        self.in_use = not self._raw and (has_keys or not self._none_left)
        # Another process may destroy a key, so keys are read anew for each transaction.
        self._ciphers.clear()

    def create(self, session: SessionId) -> None:
        """Make the key of a new session durable. Raise `Invalid` if this store cannot have temporary sessions."""
        if self._folder is None:
            raise Invalid(
                "temporary conversations on PostgreSQL need a folder for their keys that all nodes share:"
                " set `keys` in [temporary] of keryx.toml",
                Phrase("temporary.no_folder"),
            )
        # Before anything is stored that could not be read again.
        SessionCipher(bytes(_KEY_BYTES), session)
        path = self._find_path(session)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            _sync_folder(self._folder)
        except FileExistsError:
            # An attempt of the same unit of work has made it.
            pass
        except OSError as exc:
            raise StoreBroken(
                f"the key of a temporary conversation cannot be written to {self._folder}: {exc.strerror}"
            ) from exc
        self._none_left = False
        self.in_use = True

    def note_sessions(self, found: "Sequence[object]") -> None:
        """Take note of the temporary sessions that there are now, so that no row is looked at if there are none."""
        self._none_left = not found and self._folder is not None

    def has(self, session: SessionId) -> bool:
        return self._folder is not None and os.path.exists(self._find_path(session))

    def discard(self, session: SessionId) -> None:
        """Destroy the key of a session. What is left of it in files and backups cannot be read from now on."""
        self._ciphers.pop(session, None)
        if self._folder is not None:
            _remove(self._find_path(session))
            _sync_folder(self._folder)

    def discard_orphans(self, sessions: Sequence[SessionId]) -> None:
        """Destroy the keys of all other sessions, as after a crash between the removal of a session and that of its key."""
        self.note_sessions(sessions)
        if self._folder is None or not os.path.isdir(self._folder):
            return
        kept = {self._find_path(session).name for session in sessions}
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path.name not in kept and time.time() - path.stat().st_mtime > _YOUNG_SECONDS:
                _remove(path)
        idle = time.time() - self._folder.stat().st_mtime > _YOUNG_SECONDS
        if idle and not any(self._folder.iterdir()):
            self._folder.rmdir()

    def seal(self, session: str | None, text: str) -> str:
        """Return the stored form of a JSON text or a title of a session: the text itself, unless the session is temporary.
        Raise `NotFound` if the key is gone."""
        if session is None or not is_temporary(session) or not text:
            return text
        sealed = base64.urlsafe_b64encode(
            self._encrypt(SessionId(session), text.encode("utf-8", "surrogatepass"))
        )
        kind = text[0] if text[0] in _EMPTY else " "
        return f"{_MARK}{kind}{session}{_MARK}{sealed.decode()}"

    def unseal_rows(self, rows: "Sequence[Row]") -> "list[Row]":
        """Return rows with every sealed text opened."""
        return [self._unseal_row(row) for row in rows]

    def seal_file(self, session: SessionId, body: bytes) -> bytes:
        """Return the stored form of a file of a session."""
        if not is_temporary(session):
            return body
        return _FILE_MARK + session.encode() + b"\n" + self._encrypt(session, body)

    def unseal_file(self, body: bytes) -> bytes:
        """Return a file as it was. Raise `NotFound` if its key is gone."""
        session = self.find_file_session(body[:300])
        if session is None:
            return body
        opened = self._decrypt(session, body[body.index(b"\n") + 1 :])
        if opened is None:
            raise _build_missing_error(session)
        return opened

    @staticmethod
    def find_file_session(head: bytes) -> SessionId | None:
        """Return the temporary session that a file is sealed for, by its first bytes."""
        if not head.startswith(_FILE_MARK) or b"\n" not in head:
            return None
        return SessionId(head[len(_FILE_MARK) : head.index(b"\n")].decode("utf-8", "replace"))

    def _unseal_row(self, row: "Row") -> "Row":
        for value in row:
            if value.__class__ is str and value[:1] == _MARK:
                return tuple(self._unseal(v) if v.__class__ is str and v[:1] == _MARK else v for v in row)
        return row

    def _unseal(self, value: str) -> str:
        session, mark, sealed = value[2:].partition(_MARK)
        if not mark:
            return value
        try:
            opened = self._decrypt(SessionId(session), base64.urlsafe_b64decode(sealed))
        except (binascii.Error, ValueError):
            opened = None
        return _EMPTY.get(value[1], "") if opened is None else opened.decode("utf-8", "surrogatepass")

    def _encrypt(self, session: SessionId, body: bytes) -> bytes:
        cipher = self._find_cipher(session)
        if cipher is None:
            raise _build_missing_error(session)
        return cipher.encrypt(body)

    def _decrypt(self, session: SessionId, sealed: bytes) -> bytes | None:
        cipher = self._find_cipher(session)
        return None if cipher is None else cipher.decrypt(sealed)

    def _find_cipher(self, session: SessionId) -> SessionCipher | None:
        """Return the cipher of a session; `None` if its key was destroyed."""
        if known := self._ciphers.get(session):
            return known
        if self._folder is None:
            return None
        path = self._find_path(session)
        try:
            key = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise StoreBroken(f"the key {path} cannot be read: {exc.strerror}") from exc
        if len(key) != _KEY_BYTES:
            return None
        cipher = self._ciphers[session] = SessionCipher(key, session)
        return cipher

    def _find_path(self, session: SessionId) -> Path:
        assert self._folder is not None
        # An id that a client has chosen need not be a file name.
        return self._folder / (hashlib.sha256(session.encode()).hexdigest()[:40] + _SUFFIX)


def _build_missing_error(session: SessionId) -> NotFound:
    return NotFound(f"the key of the temporary session {session} is gone", Phrase("temporary.gone"))


def _remove(path: Path) -> None:
    """Overwrite a key before its file is removed. On many file systems and disks that does not reach the old blocks."""
    try:
        with path.open("r+b") as file:
            file.write(bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()
    except FileNotFoundError:
        return


def _sync_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
