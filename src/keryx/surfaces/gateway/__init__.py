"""Adapters for chat platforms, one module or package each; how they decode what a platform sends, and encrypt with AES."""

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.modes import CBC, ECB
    from cryptography.hazmat.primitives.padding import PKCS7

T = TypeVar("T")
# Of AES.
BLOCK_BYTES = 16


class EventDecoder:
    """Decodes the events of a platform. One that cannot be read is counted and logged, and the others go on."""

    def __init__(self, platform: str, log: logging.Logger) -> None:
        self._platform = platform
        self._log = log
        # The number of events that could not be read or were refused as invalid.
        self.skipped = 0

    def decode(self, payload: bytes, kind: type[T]) -> T | None:
        """Return an event, or `None` for one that cannot be read."""
        try:
            return msgspec.json.decode(payload, type=kind)
        except (msgspec.DecodeError, RecursionError) as exc:
            self.skip(str(exc))
            return None

    def skip(self, why: str) -> None:
        """Leave an event out."""
        self.skipped += 1
        self._log.warning("an event of %s is left out, %d so far: %s", self._platform, self.skipped, why)


def has_cipher() -> bool:
    """Whether `encrypt_aes` and `decrypt_aes` work: the library for them is an optional extra."""
    return find_spec("cryptography") is not None


def encrypt_aes(body: bytes, key: bytes) -> bytes:
    """Encrypt with AES in the mode ECB and padding by PKCS #7. The length of the key decides between AES-128 and AES-256."""
    cipher, padding = _build_cipher(key, None)
    padder, encryptor = padding.padder(), cipher.encryptor()
    return encryptor.update(padder.update(body) + padder.finalize()) + encryptor.finalize()


def decrypt_aes(body: bytes, key: bytes, *, vector: bytes | None = None) -> bytes:
    """Decrypt what was padded by PKCS #7: in the mode CBC with an initialization vector, in ECB without one. Raise
    `ValueError` if it was not encrypted with the key."""
    cipher, padding = _build_cipher(key, vector)
    unpadder, decryptor = padding.unpadder(), cipher.decryptor()
    return unpadder.update(decryptor.update(body) + decryptor.finalize()) + unpadder.finalize()


def _build_cipher(key: bytes, vector: bytes | None) -> "tuple[Cipher[ECB | CBC], PKCS7]":
    # An optional extra.
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415
    from cryptography.hazmat.primitives.padding import PKCS7  # noqa: PLC0415

    mode = modes.ECB() if vector is None else modes.CBC(vector)
    return Cipher(algorithms.AES(key), mode), PKCS7(BLOCK_BYTES * 8)
