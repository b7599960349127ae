"""Files of encrypted rooms: they lie encrypted on the homeserver, and their keys are in the messages."""

import hashlib
import hmac
import secrets
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from keryx.core.errors import Invalid
from keryx.surfaces.gateway.matrix.encryption.signed_json import decode_base64, encode_base64
from keryx.surfaces.gateway.matrix.event_types import EncryptedFile

_KEY_BYTES = 32
_COUNTER_BYTES = 8


def encrypt_file(body: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes to upload, and the `file` of the message without its `url`."""
    key = secrets.token_bytes(_KEY_BYTES)
    # The lower half is the counter of blocks.
    iv = secrets.token_bytes(_COUNTER_BYTES) + bytes(_COUNTER_BYTES)
    encryptor = Cipher(AES(key), CTR(iv)).encryptor()
    encrypted = encryptor.update(body) + encryptor.finalize()
    return encrypted, {
        "v": "v2",
        "key": {
            "kty": "oct",
            "key_ops": ["encrypt", "decrypt"],
            "alg": "A256CTR",
            "k": encode_base64(key).replace("+", "-").replace("/", "_"),
            "ext": True,
        },
        "iv": encode_base64(iv),
        "hashes": {"sha256": encode_base64(hashlib.sha256(encrypted).digest())},
    }


def decrypt_file(file: EncryptedFile, body: bytes) -> bytes:
    """Return the bytes of a file. Raise `Invalid` if they are not those that were sent."""
    try:
        key, iv = decode_base64(file.key.k), decode_base64(file.iv)
        digest = decode_base64(file.hashes.get("sha256", ""))
        valid = file.key.alg == "A256CTR" and len(key) == _KEY_BYTES and len(iv) == 2 * _COUNTER_BYTES
    except ValueError:
        valid = False
        key = iv = digest = b""
    if not valid:
        raise Invalid("its key is malformed")
    if not hmac.compare_digest(hashlib.sha256(body).digest(), digest):
        raise Invalid("it was changed on its way")
    decryptor = Cipher(AES(key), CTR(iv)).decryptor()
    return decryptor.update(body) + decryptor.finalize()
