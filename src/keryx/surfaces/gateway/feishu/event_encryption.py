"""Decrypts the posts of Feishu: AES-256-CBC with the hash of the encrypt key. Needs the extra `feishu`."""

import base64
import binascii
import hashlib

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from keryx.core.errors import Invalid

_BLOCK_BYTES = 16


class EventCipher:
    def __init__(self, encrypt_key: str) -> None:
        self._key = algorithms.AES(hashlib.sha256(encrypt_key.encode()).digest())

    def decrypt(self, text: str) -> bytes:
        """Return what was encrypted. Raise `Invalid`, without a reason, for anything that was not made with the key."""
        try:
            wire = base64.b64decode(text, validate=True)
            decryptor = Cipher(self._key, modes.CBC(wire[:_BLOCK_BYTES])).decryptor()
            padded = decryptor.update(wire[_BLOCK_BYTES:]) + decryptor.finalize()
            unpadder = PKCS7(_BLOCK_BYTES * 8).unpadder()
            return unpadder.update(padded) + unpadder.finalize()
        except (ValueError, binascii.Error):
            raise Invalid("it is not encrypted with the key of the app") from None
