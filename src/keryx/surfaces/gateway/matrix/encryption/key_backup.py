"""The backup of room keys on the homeserver, encrypted for a recovery key that stays with the operator."""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from vodozemac import Curve25519SecretKey, PkDecryption, PkEncryption
from vodozemac import Message as EncryptedKey

from keryx.core.errors import Invalid
from keryx.surfaces.gateway.matrix.encryption import MEGOLM, UndecryptableMessage
from keryx.surfaces.gateway.matrix.encryption.cross_signing import IDENTITY_SECRETS
from keryx.surfaces.gateway.matrix.encryption.key_file import KeyFile
from keryx.surfaces.gateway.matrix.encryption.olm_account import OlmAccount, decode_base64, encode_base64
from keryx.surfaces.gateway.matrix.encryption.room_keys import RoomKeys
from keryx.surfaces.gateway.matrix.encryption.secret_storage import BACKUP_SECRET, SecretStorage
from keryx.surfaces.gateway.matrix.homeserver import Homeserver

log = logging.getLogger(__name__)

ALGORITHM = "m.megolm_backup.v1.curve25519-aes-sha2"
_BACKUP = "backup"
# The key of the secret storage, if it is not that of the backup.
_STORAGE_KEY = "storage_key"
_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_PREFIX = b"\x8b\x01"
_KEY_BYTES = 32
_BATCH = 100


class SavedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A room key in the backup, decrypted."""

    session_key: str
    sender_key: str
    sender_claimed_keys: dict[str, str] = {}
    algorithm: str = MEGOLM


class KeyBackup:
    def __init__(self, keys: KeyFile, server: Homeserver, account: OlmAccount, rooms: RoomKeys) -> None:
        self._keys = keys
        self._server = server
        self._account = account
        self._rooms = rooms
        self._storage = SecretStorage(server, account.user)

    @property
    def recovery_key(self) -> str:
        """The key that reads the backup and the secret storage, as people write it; empty if this device has no backup."""
        key = self._read_key()
        return format_recovery_key(key) if key else ""

    def _read_key(self) -> bytes | None:
        stored = self._keys.get(_BACKUP)
        kept: str = self._keys.get(_STORAGE_KEY) or (stored["key"] if stored else "")
        return decode_base64(kept) if kept else None

    async def ensure(self) -> str:
        """Create a backup if the account has none. Return what keeps this device from using it, as a sentence; empty if
        nothing does. Raise what the homeserver raises."""
        stored: dict[str, str] | None = self._keys.get(_BACKUP)
        present = await self._server.find_backup()
        if present is None:
            stored = stored or {"key": encode_base64(Curve25519SecretKey().to_bytes())}
            # The key is durable before anything is encrypted for it.
            self._keys.set(_BACKUP, {"key": stored["key"]})
            await self._keys.flush()
            auth = self._account.sign_object({"public_key": _public_key(stored["key"])})
            version = await self._server.create_backup(ALGORITHM, auth)
            self._keys.set(_BACKUP, {**stored, "version": version})
            self._rooms.mark_unsaved()
            return ""
        if (
            stored
            and present.algorithm == ALGORITHM
            and present.auth_data.get("public_key") == _public_key(stored["key"])
        ):
            if stored.get("version") != present.version:
                self._keys.set(_BACKUP, {**stored, "version": present.version})
                self._rooms.mark_unsaved()
            return ""
        return (
            "The account has a key backup whose recovery key Keryx does not know: `keryx matrix restore` takes it. "
            "Until then new keys are not backed up."
        )

    async def upload(self) -> None:
        """Upload some keys that are not in the backup. Raise what the homeserver raises."""
        stored = self._keys.get(_BACKUP)
        some = self._rooms.list_unsaved(_BATCH) if stored and "version" in stored else []
        if not some:
            return
        encryption = PkEncryption.from_key(PkDecryption.from_key(_secret_key(stored["key"])).public_key)
        rooms: dict[str, dict[str, Any]] = {}
        for room, session, key in some:
            exported, first_index = self._rooms.export(key)
            saved: dict[str, Any] = {
                "algorithm": MEGOLM,
                "sender_key": key.sender_key,
                "sender_claimed_keys": {"ed25519": key.ed25519},
                "forwarding_curve25519_key_chain": [],
                "session_key": exported,
            }
            message = encryption.encrypt(msgspec.json.encode(saved))
            rooms.setdefault(room, {"sessions": {}})["sessions"][session] = {
                "first_message_index": first_index,
                "forwarded_count": 0,
                "is_verified": bool(key.sender),
                "session_data": {
                    "ciphertext": encode_base64(message.ciphertext),
                    "mac": encode_base64(message.mac),
                    "ephemeral": encode_base64(message.ephemeral_key),
                },
            }
        await self._server.upload_backup(stored["version"], rooms)
        self._rooms.mark_saved(some)

    async def store_secrets(self, identity: Mapping[str, str]) -> str:
        """Keep the identity and the key of the backup on the homeserver, encrypted with the recovery key. Return what keeps
        them from being stored, as a sentence; empty if they are. Raise what the homeserver raises."""
        key, stored = self._read_key(), self._keys.get(_BACKUP)
        if (
            key is None
            or not stored
            or await self._storage.ensure(key, {**identity, BACKUP_SECRET: stored["key"]})
        ):
            return ""
        return (
            "The account has a secret storage whose recovery key Keryx does not know: `keryx matrix restore` takes it. "
            "Until then the encryption identity is in the files of Keryx alone."
        )

    async def read_secrets(self, recovery_key: str) -> dict[str, str] | None:
        """Return what is in the secret storage of the account. `None` if the recovery key is not that of the storage. Raise
        `Invalid` if it is none at all, and what the homeserver raises."""
        return await self._storage.read(parse_recovery_key(recovery_key), (*IDENTITY_SECRETS, BACKUP_SECRET))

    async def restore(self, recovery_key: str, secrets: Mapping[str, str]) -> int:
        """Add the keys of the backup, and use this backup from now on. Its key is among the secrets, or is the recovery key.
        Return how many keys were read. Raise `Invalid` if neither is the key of the backup."""
        given = encode_base64(parse_recovery_key(recovery_key))
        key = secrets.get(BACKUP_SECRET, given)
        present = await self._server.find_backup()
        if present is None or present.algorithm != ALGORITHM:
            raise Invalid("the account has no key backup that Keryx can read")
        if present.auth_data.get("public_key") != _public_key(key):
            raise Invalid("this is not the recovery key of the key backup of the account")
        decryption = PkDecryption.from_key(_secret_key(key))
        count = 0
        for room, sessions in (await self._server.download_backup(present.version)).items():
            for session, value in sessions.items():
                try:
                    data = value["session_data"]
                    message = EncryptedKey(
                        decode_base64(data["ciphertext"]),
                        decode_base64(data["mac"]),
                        decode_base64(data["ephemeral"]),
                    )
                    saved = msgspec.json.decode(decryption.decrypt(message), type=SavedSession)
                    self._rooms.add_export(
                        room,
                        saved.session_key,
                        sender_key=saved.sender_key,
                        ed25519=saved.sender_claimed_keys.get("ed25519", ""),
                        saved=True,
                    )
                    count += 1
                except (KeyError, TypeError, ValueError, msgspec.DecodeError, UndecryptableMessage) as exc:
                    log.warning("the key %s of the backup cannot be read: %s", session, exc)
        self._keys.set(_BACKUP, {"key": key, "version": present.version})
        if key != given:
            self._keys.set(_STORAGE_KEY, given)
        await self._keys.flush()
        return count


def format_recovery_key(key: bytes) -> str:
    """Return a recovery key as people write it: base58 with a checksum, in groups of four."""
    data = _PREFIX + key
    data += bytes([_parity(data)])
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, len(_ALPHABET))
        text = _ALPHABET[digit] + text
    return " ".join(text[start : start + 4] for start in range(0, len(text), 4))


def parse_recovery_key(text: str) -> bytes:
    """Return the bytes of a recovery key. Raise `Invalid` if a character is wrong."""
    number = 0
    for character in "".join(text.split()):
        if character not in _ALPHABET:
            raise Invalid("this is not a recovery key: it has letters and digits in groups of four")
        number = number * len(_ALPHABET) + _ALPHABET.index(character)
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")
    if len(data) != len(_PREFIX) + _KEY_BYTES + 1 or not data.startswith(_PREFIX) or _parity(data):
        raise Invalid("this is not a recovery key: compare its characters")
    return data[len(_PREFIX) : -1]


def _parity(data: bytes) -> int:
    parity = 0
    for byte in data:
        parity ^= byte
    return parity


def _secret_key(key: str) -> Curve25519SecretKey:
    return Curve25519SecretKey.from_bytes(decode_base64(key))


def _public_key(key: str) -> str:
    return _secret_key(key).public_key().to_base64()
