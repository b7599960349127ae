"""The Megolm sessions of rooms: those that read the messages of other devices, and the one that encrypts the messages of this device. Every change is put into the key file; the caller flushes it before anything is sent. Files lie encrypted on the homeserver, and their keys are in the messages."""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from vodozemac import ExportedSessionKey, GroupSession, InboundGroupSession, MegolmMessage, SessionKey

from keryx.core.errors import Invalid
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.matrix.encryption import MEGOLM, RoomKeyMissing, UndecryptableMessage
from keryx.surfaces.gateway.matrix.encryption.device_list import Device
from keryx.surfaces.gateway.matrix.encryption.key_file import KeyFile
from keryx.surfaces.gateway.matrix.encryption.olm_account import PICKLE_KEY, decode_base64, encode_base64
from keryx.surfaces.gateway.matrix.event_types import EncryptedFile, EncryptionState

# Of the key of a file, and of the counter of its blocks.
_FILE_KEY_BYTES = 32
_COUNTER_BYTES = 8
_INBOUND = "inbound/"
_OUTBOUND = "outbound/"
_INDEXES = "indexes/"
# Of how many sessions it is remembered which message had which index.
_MAX_INDEXED_SESSIONS = 500
# A room may ask for more frequent rotation, but not for one with every message.
_MIN_PERIOD_MS = 3600 * 1000


class RoomKey(msgspec.Struct, frozen=True, kw_only=True):
    """A session that reads messages of one device in one room."""

    pickle: str
    # The device that encrypts with it.
    sender_key: str
    ed25519: str = ""
    # The user who has sent the key from the device that it belongs to. Empty for a key from a backup: the homeserver
    # could have made it.
    sender: str = ""
    backed_up: bool = False


class OutboundRoomKey(msgspec.Struct, frozen=True, kw_only=True):
    """The session that encrypts messages of this device in one room."""

    pickle: str
    # In milliseconds since 1970.
    created_at: int
    # The devices that have the key: their Curve25519 keys.
    shared: list[str] = []


class RoomPayload(msgspec.Struct, frozen=True, kw_only=True):
    """A decrypted message."""

    type: str
    content: msgspec.Raw
    room_id: str


class RoomKeys:
    def __init__(self, keys: KeyFile) -> None:
        self._keys = keys
        # The names of those that are not in the backup.
        self._unsaved = dict.fromkeys(
            name for name, value in keys.items(_INBOUND) if not value.get("backed_up")
        )

    def has(self, room: str, session: str) -> bool:
        return self._keys.get(_name(room, session)) is not None

    def list_unsaved(self, most: int) -> list[tuple[str, str, RoomKey]]:
        """Return room, session and key of those that are not in the backup."""
        found: list[tuple[str, str, RoomKey]] = []
        for name in islice(self._unsaved, most):
            room, _, session = name.rpartition(" ")
            found.append((room, session, msgspec.convert(self._keys.get(_INBOUND + name), RoomKey)))
        return found

    def mark_unsaved(self) -> None:
        """A new backup has none of them."""
        for name, value in self._keys.items(_INBOUND):
            self._keys.set(_INBOUND + name, {**value, "backed_up": False})
            self._unsaved[name] = None

    def mark_saved(self, saved: Iterable[tuple[str, str, RoomKey]]) -> None:
        """Record that keys are in the backup, unless better ones have come meanwhile."""
        for room, session, key in saved:
            name = _name(room, session)
            value = self._keys.get(name)
            if value is not None and value["pickle"] == key.pickle:
                self._keys.set(name, {**value, "backed_up": True})
                self._unsaved.pop(name.removeprefix(_INBOUND), None)

    def add(self, room: str, session_key: str, *, sender: str, sender_key: str, ed25519: str) -> str:
        """Add a key that its own device has sent. Return the id of its session. Raise `UndecryptableMessage` if it is
        malformed."""
        try:
            session = InboundGroupSession(SessionKey(session_key))
        except ValueError as exc:
            raise UndecryptableMessage(f"the room key is malformed: {exc}") from exc
        self._save(room, session, RoomKey(pickle="", sender=sender, sender_key=sender_key, ed25519=ed25519))
        return session.session_id

    def add_export(
        self,
        room: str,
        session_key: str,
        *,
        sender: str = "",
        sender_key: str,
        ed25519: str,
        saved: bool = False,
    ) -> str:
        """Add a key from a backup, or one that was forwarded. Return the id of its session. Raise `UndecryptableMessage`."""
        try:
            session = InboundGroupSession.import_session(ExportedSessionKey(session_key))
        except ValueError as exc:
            raise UndecryptableMessage(f"the room key is malformed: {exc}") from exc
        key = RoomKey(pickle="", sender=sender, sender_key=sender_key, ed25519=ed25519, backed_up=saved)
        self._save(room, session, key)
        return session.session_id

    def export(self, key: RoomKey) -> tuple[str, int]:
        """Return a key as it is put into a backup, and the index of the first message that it reads."""
        session = InboundGroupSession.from_pickle(key.pickle, PICKLE_KEY)
        exported = session.export_at(session.first_known_index)
        assert exported is not None, "a session can be exported at its first index"
        return exported.to_base64(), session.first_known_index

    def decrypt(
        self, room: str, event: str, content: Mapping[str, Any], *, replay_check: bool
    ) -> tuple[RoomPayload, RoomKey]:
        """Return the message and the key that has read it. Raise `RoomKeyMissing` if the key is not there, and
        `UndecryptableMessage` if the message is malformed, or if it is another one repeated (`replay_check`)."""
        try:
            session_id, ciphertext = str(content["session_id"]), str(content["ciphertext"])
            algorithm = content["algorithm"]
            message = MegolmMessage.from_base64(ciphertext)
        except (KeyError, ValueError) as exc:
            raise UndecryptableMessage("it is malformed") from exc
        if algorithm != MEGOLM:
            raise UndecryptableMessage("it is encrypted in a way that is not supported")
        value = self._keys.get(_name(room, session_id))
        if value is None:
            raise RoomKeyMissing("its key has not arrived")
        key = msgspec.convert(value, RoomKey)
        session = InboundGroupSession.from_pickle(key.pickle, PICKLE_KEY)
        if message.message_index() < session.first_known_index:
            raise RoomKeyMissing("its key begins with a later message")
        try:
            found = session.decrypt(message)
            payload = msgspec.json.decode(found.plaintext, type=RoomPayload)
        except (ValueError, msgspec.DecodeError, RecursionError) as exc:
            raise UndecryptableMessage(f"it cannot be decrypted: {exc}") from exc
        if payload.room_id != room:
            raise UndecryptableMessage("it was written for another room")
        if replay_check:
            self._check_index(session_id, found.message_index, event)
        return payload, key

    def _check_index(self, session: str, index: int, event: str) -> None:
        """Record which event has an index of a session. Raise `UndecryptableMessage` if another event had it."""
        known: dict[str, str] = self._keys.get(_INDEXES + session) or {}
        if known.get(str(index), event) != event:
            raise UndecryptableMessage("it repeats an earlier message")
        if str(index) not in known:
            self._keys.set(_INDEXES + session, {**known, str(index): event})

    def drop_old_indexes(self) -> None:
        names = [name for name, _ in self._keys.items(_INDEXES)]
        for name in names[:-_MAX_INDEXED_SESSIONS]:
            self._keys.remove(_INDEXES + name)

    def get_outbound(self, room: str) -> OutboundRoomKey | None:
        value = self._keys.get(_OUTBOUND + room)
        return msgspec.convert(value, OutboundRoomKey) if value else None

    def needs_rotation(
        self, key: OutboundRoomKey, state: EncryptionState, recipients: Iterable[Device], *, now_ms: int
    ) -> bool:
        """Whether a key is too old, or a device has it that should not read on."""
        age, most = now_ms - key.created_at, max(1, state.rotation_period_msgs)
        present = {device.curve25519 for device in recipients}
        return (
            age < 0
            or age >= max(_MIN_PERIOD_MS, state.rotation_period_ms)
            or GroupSession.from_pickle(key.pickle, PICKLE_KEY).message_index >= most
            or not present.issuperset(key.shared)
        )

    def create_outbound(self, room: str, owner: Device, *, now_ms: int) -> OutboundRoomKey:
        """Replace the session of a room by a new one, which this device can read, too."""
        session = GroupSession()
        self.add(
            room,
            session.session_key.to_base64(),
            sender=owner.user,
            sender_key=owner.curve25519,
            ed25519=owner.ed25519,
        )
        key = OutboundRoomKey(pickle=session.pickle(PICKLE_KEY), created_at=now_ms)
        self._keys.set(_OUTBOUND + room, msgspec.to_builtins(key))
        return key

    def build_share(self, room: str, key: OutboundRoomKey) -> dict[str, Any]:
        """Return the `m.room_key` content that lets a device read from the next message on."""
        session = GroupSession.from_pickle(key.pickle, PICKLE_KEY)
        return {
            "algorithm": MEGOLM,
            "room_id": room,
            "session_id": session.session_id,
            "session_key": session.session_key.to_base64(),
        }

    def mark_shared(self, room: str, devices: Iterable[Device]) -> None:
        key = self.get_outbound(room)
        if key is not None:
            shared = list(dict.fromkeys([*key.shared, *(d.curve25519 for d in devices)]))
            self._keys.set(_OUTBOUND + room, msgspec.to_builtins(msgspec.structs.replace(key, shared=shared)))

    def encrypt(self, room: str, owner: Device, kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of the encrypted event. The index is used up, even if the event is never sent."""
        key = self.get_outbound(room)
        assert key is not None, "a room gets its session before its messages"
        session = GroupSession.from_pickle(key.pickle, PICKLE_KEY)
        payload = {"type": kind, "content": content, "room_id": room}
        message = session.encrypt(msgspec.json.encode(payload))
        new = msgspec.structs.replace(key, pickle=session.pickle(PICKLE_KEY))
        self._keys.set(_OUTBOUND + room, msgspec.to_builtins(new))
        relation = content.get("m.relates_to")
        return {
            "algorithm": MEGOLM,
            "ciphertext": message.to_base64(),
            "sender_key": owner.curve25519,
            "device_id": owner.id,
            "session_id": session.session_id,
            # The homeserver counts and lists replies, threads and edits by it.
            **({"m.relates_to": relation} if relation else {}),
        }

    def drop_outbound(self, rooms: Iterable[str] | None = None) -> None:
        """Begin a new session with the next message in these rooms, or in all."""
        names = [name for name, _ in self._keys.items(_OUTBOUND)] if rooms is None else list(rooms)
        for name in names:
            self._keys.remove(_OUTBOUND + name)

    def share_again(self, curve25519: str) -> None:
        """Send the keys of all rooms to a device again, with the next message in each, because it has lost them."""
        for room, value in self._keys.items(_OUTBOUND):
            key = msgspec.convert(value, OutboundRoomKey)
            if curve25519 in key.shared:
                shared = [other for other in key.shared if other != curve25519]
                self._keys.set(
                    _OUTBOUND + room, msgspec.to_builtins(msgspec.structs.replace(key, shared=shared))
                )

    def _save(self, room: str, session: InboundGroupSession, key: RoomKey) -> None:
        """Add a session, unless the one that is there reads more and is as reliable."""
        name = _name(room, session.session_id)
        value = self._keys.get(name)
        if value is not None:
            known = msgspec.convert(value, RoomKey)
            first = InboundGroupSession.from_pickle(known.pickle, PICKLE_KEY).first_known_index
            if known.sender and (not key.sender or known.sender_key != key.sender_key):
                return
            if bool(known.sender) == bool(key.sender) and first <= session.first_known_index:
                return
        self._keys.set(
            name, msgspec.to_builtins(msgspec.structs.replace(key, pickle=session.pickle(PICKLE_KEY)))
        )
        if not key.backed_up:
            self._unsaved[name.removeprefix(_INBOUND)] = None


def _name(room: str, session: str) -> str:
    # Neither has spaces; a session may have slashes.
    return f"{_INBOUND}{room} {session}"


def encrypt_file(body: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes to upload, and the `file` of the message without its `url`."""
    key = secrets.token_bytes(_FILE_KEY_BYTES)
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
        valid = file.key.alg == "A256CTR" and len(key) == _FILE_KEY_BYTES and len(iv) == 2 * _COUNTER_BYTES
    except ValueError:
        valid = False
        key = iv = digest = b""
    if not valid:
        raise Invalid(Phrase("file.undecryptable"))
    if not hmac.compare_digest(hashlib.sha256(body).digest(), digest):
        raise Invalid(Phrase("file.changed"))
    decryptor = Cipher(AES(key), CTR(iv)).decryptor()
    return decryptor.update(body) + decryptor.finalize()
