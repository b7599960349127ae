"""The secret storage of the account on the homeserver: the keys of its identity and of its key backup, encrypted with the recovery key (`m.secret_storage.v1.aes-hmac-sha2`)."""

import hmac
import os
import secrets
from collections.abc import Mapping
from typing import Any, cast

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from keryx.surfaces.gateway.matrix.encryption.olm_account import decode_base64, encode_base64
from keryx.surfaces.gateway.matrix.homeserver import Homeserver

BACKUP_SECRET = "m.megolm_backup.v1"
_ALGORITHM = "m.secret_storage.v1.aes-hmac-sha2"
_DEFAULT_KEY = "m.secret_storage.default_key"
_KEY = "m.secret_storage.key."
# A key is recognised by what it makes of these bytes, under the empty name.
_PROBE = bytes(32)
_KEY_BYTES = 32
_IV_BYTES = 16


class SecretStorage:
    def __init__(self, server: Homeserver, user: str) -> None:
        self._server = server
        self._user = user

    async def ensure(self, key: bytes, values: Mapping[str, str]) -> bool:
        """Store secrets by their names, encrypted with a key. Return false, and change nothing, if the account has a storage
        with another key. Raise what the homeserver raises."""
        id_ = await self._find_default_key()
        if id_ and not await self._is_key(id_, key):
            return False
        if not id_:
            id_ = secrets.token_urlsafe(24)
            described = encrypt_secret(key, "", _PROBE)
            await self._put(
                f"{_KEY}{id_}", {"algorithm": _ALGORITHM, "iv": described["iv"], "mac": described["mac"]}
            )
        for name, value in values.items():
            stored: Any = (await self._get(name)).get("encrypted")
            kept = cast(dict[str, Any], stored) if isinstance(stored, dict) else {}
            if _decrypt_for(kept, id_, key, name) != value:
                encrypted = encrypt_secret(key, name, value.encode())
                await self._put(name, {"encrypted": {**kept, id_: encrypted}})
        # Other clients look for secrets when there is a default key, so it comes last.
        if not await self._find_default_key():
            await self._put(_DEFAULT_KEY, {"key": id_})
        return True

    async def read(self, key: bytes, names: tuple[str, ...]) -> dict[str, str] | None:
        """Return the secrets of these names that are there. `None` if this is not the key of the storage. Raise what the
        homeserver raises."""
        id_ = await self._find_default_key()
        if not id_ or not await self._is_key(id_, key):
            return None
        found: dict[str, str] = {}
        for name in names:
            value = _decrypt_for((await self._get(name)).get("encrypted"), id_, key, name)
            if value is not None:
                found[name] = value
        return found

    async def _find_default_key(self) -> str:
        id_: Any = (await self._get(_DEFAULT_KEY)).get("key")
        return id_ if isinstance(id_, str) else ""

    async def _is_key(self, id_: str, key: bytes) -> bool:
        described = await self._get(f"{_KEY}{id_}")
        try:
            if described["algorithm"] != _ALGORITHM:
                return False
            found = encrypt_secret(key, "", _PROBE, iv=decode_base64(described["iv"]))
            return hmac.compare_digest(decode_base64(found["mac"]), decode_base64(described["mac"]))
        except (KeyError, ValueError):
            return False

    async def _get(self, kind: str) -> dict[str, Any]:
        return await self._server.get_account_data(self._user, kind)

    async def _put(self, kind: str, value: Mapping[str, Any]) -> None:
        await self._server.set_account_data(self._user, kind, value)


def encrypt_secret(key: bytes, name: str, value: bytes, *, iv: bytes | None = None) -> dict[str, str]:
    """Return a secret as the homeserver stores it."""
    if iv is None:
        drawn = bytearray(os.urandom(_IV_BYTES))
        # Implementations of the counter differ when this bit is set.
        drawn[8] &= 0x7F
        iv = bytes(drawn)
    aes, signing = _derive_keys(key, name)
    ciphertext = Cipher(AES(aes), CTR(iv)).encryptor().update(value)
    return {
        "iv": encode_base64(iv),
        "ciphertext": encode_base64(ciphertext),
        "mac": encode_base64(hmac.digest(signing, ciphertext, "sha256")),
    }


def decrypt_secret(key: bytes, name: str, stored: Mapping[str, Any]) -> bytes:
    """Return a secret that was stored under this name. Raise `ValueError` if the key or the name is another one."""
    try:
        iv, ciphertext, mac = (decode_base64(stored[part]) for part in ("iv", "ciphertext", "mac"))
    except (KeyError, TypeError) as exc:
        raise ValueError("this is no encrypted secret") from exc
    aes, signing = _derive_keys(key, name)
    if len(iv) != _IV_BYTES or not hmac.compare_digest(hmac.digest(signing, ciphertext, "sha256"), mac):
        raise ValueError("the secret was encrypted with another key")
    return Cipher(AES(aes), CTR(iv)).decryptor().update(ciphertext)


def _decrypt_for(stored: Any, id_: str, key: bytes, name: str) -> str | None:
    """Return what is stored for a key. `None` if that is nothing, or nothing that the key reads."""
    try:
        return decrypt_secret(key, name, stored[id_]).decode()
    except (KeyError, TypeError, ValueError):
        return None


def _derive_keys(key: bytes, name: str) -> tuple[bytes, bytes]:
    derived = HKDF(SHA256(), 2 * _KEY_BYTES, salt=bytes(_KEY_BYTES), info=name.encode()).derive(key)
    return derived[:_KEY_BYTES], derived[_KEY_BYTES:]
