"""The identity of this device, the JSON that it signs, and its Olm sessions, which carry keys from device to device. Every change is put into the key file; the caller flushes it before anything is sent."""

import base64
import binascii
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import msgspec
from vodozemac import (
    Account,
    AnyOlmMessage,
    Curve25519PublicKey,
    Ed25519PublicKey,
    Ed25519Signature,
    Session,
)

from keryx.surfaces.gateway.matrix.encryption import MEGOLM, OLM, UndecryptableMessage
from keryx.surfaces.gateway.matrix.encryption.key_file import KeyFile

log = logging.getLogger(__name__)

# The file is protected by its mode, not by a password, so a secret key for what is in it would lie beside it.
PICKLE_KEY = bytes(32)
ACCOUNT = "account"
_SESSIONS = "olm/"
_MAX_SESSIONS = 5
_PRE_KEY = 0


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def decode_base64(text: str) -> bytes:
    """Decode base64 with or without padding, of either alphabet. Raise `ValueError` for anything else."""
    try:
        padded = text.replace("-", "+").replace("_", "/").rstrip("=")
        return base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
    except (binascii.Error, UnicodeError, AttributeError) as exc:
        # Foreign JSON may have anything in the place of a text.
        raise ValueError("not base64") from exc


def encode_canonical(value: Any) -> bytes:
    """Encode a value as the canonical JSON that is signed: sorted, without spaces, in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def add_signature(
    value: Mapping[str, Any], user: str, key_id: str, sign: Callable[[bytes], str]
) -> dict[str, Any]:
    """Return the object with one more signature."""
    bare = {name: item for name, item in value.items() if name not in ("signatures", "unsigned")}
    signatures: dict[str, Any] = {**value.get("signatures", {})}
    signatures[user] = {**signatures.get(user, {}), key_id: sign(encode_canonical(bare))}
    return {**value, "signatures": signatures}


def has_signature(value: Mapping[str, Any], user: str, key_id: str, public_key: str) -> bool:
    """Whether the object has a valid signature of this user with this key."""
    try:
        signature = value["signatures"][user][key_id]
        bare = {name: item for name, item in value.items() if name not in ("signatures", "unsigned")}
        key = Ed25519PublicKey.from_base64(public_key)
        key.verify_signature(encode_canonical(bare), Ed25519Signature.from_base64(signature))
    except (KeyError, TypeError, ValueError):
        return False
    return True


class KeyOwner(Protocol):
    """A device that something is encrypted for."""

    @property
    def user(self) -> str: ...

    @property
    def ed25519(self) -> str: ...

    @property
    def curve25519(self) -> str: ...


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    pickle: str
    # Not after the key file was replaced by an old copy: its next message key has been used already.
    sends: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMessage:
    """A message from one device to another, decrypted, with the keys of the device that has encrypted it."""

    type: str
    sender: str
    content: dict[str, Any]
    curve25519: str
    ed25519: str


class _DevicePayload(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    sender: str
    recipient: str
    recipient_keys: dict[str, str]
    keys: dict[str, str]
    content: dict[str, Any] = {}


class OlmAccount:
    """The keys of this device."""

    def __init__(self, keys: KeyFile, user: str, device: str) -> None:
        self.user = user
        self.device = device
        self._keys = keys
        pickle = keys.get(ACCOUNT)
        self._account = Account.from_pickle(pickle, PICKLE_KEY) if pickle else Account()
        if not pickle:
            self._save_account()
        self.ed25519 = self._account.ed25519_key.to_base64()
        self.curve25519 = self._account.curve25519_key.to_base64()

    @property
    def max_one_time_keys(self) -> int:
        """How many one-time keys the server should hold."""
        return self._account.max_number_of_one_time_keys

    def sign(self, data: bytes) -> str:
        return self._account.sign(data).to_base64()

    def sign_object(self, value: dict[str, Any]) -> dict[str, Any]:
        return add_signature(value, self.user, f"ed25519:{self.device}", self.sign)

    def build_device_keys(self) -> dict[str, Any]:
        return self.sign_object(
            {
                "user_id": self.user,
                "device_id": self.device,
                "algorithms": [OLM, MEGOLM],
                "keys": {
                    f"curve25519:{self.device}": self.curve25519,
                    f"ed25519:{self.device}": self.ed25519,
                },
            }
        )

    def create_one_time_keys(self, count: int) -> dict[str, Any]:
        """Return new one-time keys to upload. They are never returned again: a key that was uploaded twice could be used
        by two devices, and the second one would not be understood."""
        self._account.generate_one_time_keys(count)
        created = self._account.one_time_keys
        self._account.mark_keys_as_published()
        self._save_account()
        return {
            f"signed_curve25519:{key_id}": self.sign_object({"key": key.to_base64()})
            for key_id, key in created.items()
        }

    def create_fallback_key(self) -> dict[str, Any]:
        """Return a fallback key to upload: the same one until `confirm_fallback_key`. It replaces the one on the server."""
        # The stubs of vodozemac leave out the fallback key.
        account = cast(Any, self._account)
        if not account.fallback_key:
            account.generate_fallback_key()
            self._save_account()
        created = cast(dict[str, Curve25519PublicKey], account.fallback_key)
        return {
            f"signed_curve25519:{key_id}": self.sign_object({"key": key.to_base64(), "fallback": True})
            for key_id, key in created.items()
        }

    def confirm_fallback_key(self) -> None:
        self._account.mark_keys_as_published()
        self._save_account()

    def has_session(self, curve25519: str) -> bool:
        return any(session.sends for session in self._load_sessions(curve25519))

    def create_session(self, curve25519: str, one_time_key: str) -> None:
        """Begin a session with a device by one of its one-time keys. Raise `UndecryptableMessage` for malformed keys."""
        try:
            session = self._account.create_outbound_session(
                Curve25519PublicKey.from_base64(curve25519), Curve25519PublicKey.from_base64(one_time_key)
            )
        except ValueError as exc:
            raise UndecryptableMessage(f"the keys of the device are malformed: {exc}") from exc
        self._save_session(curve25519, session)

    def stop_sending(self) -> None:
        """Use the sessions there are for reading only."""
        for curve25519, _ in self._keys.items(_SESSIONS):
            stored = [msgspec.structs.replace(s, sends=False) for s in self._load_sessions(curve25519)]
            self._keys.set(_SESSIONS + curve25519, msgspec.to_builtins(stored))

    def encrypt(self, device: KeyOwner, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        """Return the content of the encrypted event for a device with a session."""
        stored = next(s for s in self._load_sessions(device.curve25519) if s.sends)
        session = Session.from_pickle(stored.pickle, PICKLE_KEY)
        payload = {
            "type": kind,
            "content": content,
            "sender": self.user,
            "recipient": device.user,
            "recipient_keys": {"ed25519": device.ed25519},
            "keys": {"ed25519": self.ed25519},
            "sender_device_keys": self.build_device_keys(),
        }
        message_type, ciphertext = session.encrypt(msgspec.json.encode(payload)).to_parts()
        self._save_session(device.curve25519, session, replaces=stored)
        return {
            "algorithm": OLM,
            "sender_key": self.curve25519,
            "ciphertext": {device.curve25519: {"type": message_type, "body": encode_base64(ciphertext)}},
        }

    def decrypt(self, sender: str, content: dict[str, Any]) -> DeviceMessage:
        """Decrypt a message to this device. Raise `UndecryptableMessage` if that fails, or if it was meant for another."""
        try:
            sender_key = str(content["sender_key"])
            message = content["ciphertext"][self.curve25519]
            encrypted = AnyOlmMessage.from_parts(int(message["type"]), decode_base64(message["body"]))
            message_type = int(message["type"])
        except (KeyError, TypeError, ValueError, OverflowError) as exc:
            raise UndecryptableMessage("it is malformed, or not for this device") from exc
        plaintext = self._decrypt_body(sender_key, message_type, encrypted)
        try:
            payload = msgspec.json.decode(plaintext, type=_DevicePayload)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
            raise UndecryptableMessage("its content is malformed") from exc
        if (
            payload.sender != sender
            or payload.recipient != self.user
            or payload.recipient_keys.get("ed25519") != self.ed25519
        ):
            raise UndecryptableMessage("its content names another sender or recipient")
        return DeviceMessage(
            type=payload.type,
            sender=sender,
            content=payload.content,
            curve25519=sender_key,
            ed25519=payload.keys.get("ed25519", ""),
        )

    def _decrypt_body(self, sender_key: str, message_type: int, message: AnyOlmMessage) -> bytes:
        for stored in self._load_sessions(sender_key):
            session = Session.from_pickle(stored.pickle, PICKLE_KEY)
            try:
                plaintext = session.decrypt(message)
            except ValueError:
                continue
            self._save_session(sender_key, session, replaces=stored)
            return plaintext
        pre_key = message.to_pre_key() if message_type == _PRE_KEY else None
        if pre_key is None:
            raise UndecryptableMessage("no session with the device fits")
        try:
            session, plaintext = self._account.create_inbound_session(
                Curve25519PublicKey.from_base64(sender_key), pre_key
            )
        except ValueError as exc:
            raise UndecryptableMessage(f"no session can be created: {exc}") from exc
        # The one-time key is gone from the account.
        self._save_account()
        self._save_session(sender_key, session)
        return plaintext

    def _load_sessions(self, curve25519: str) -> list[StoredSession]:
        """Return the sessions with a device, the one that was used last first."""
        return msgspec.convert(self._keys.get(_SESSIONS + curve25519) or [], list[StoredSession])

    def _save_session(
        self, curve25519: str, session: Session, *, replaces: StoredSession | None = None
    ) -> None:
        new = StoredSession(pickle=session.pickle(PICKLE_KEY), sends=replaces is None or replaces.sends)
        others = [s for s in self._load_sessions(curve25519) if s is not replaces and s != replaces]
        self._keys.set(_SESSIONS + curve25519, msgspec.to_builtins([new, *others][:_MAX_SESSIONS]))

    def _save_account(self) -> None:
        self._keys.set(ACCOUNT, self._account.pickle(PICKLE_KEY))
