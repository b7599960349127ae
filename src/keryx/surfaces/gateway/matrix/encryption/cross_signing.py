"""The cross-signing identity of this account: it signs this device, so that other people trust the device if they trust the account."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from keryx.core.errors import Forbidden, Invalid, NotFound
from keryx.surfaces.gateway.matrix.encryption.key_file import KeyFile
from keryx.surfaces.gateway.matrix.encryption.olm_account import (
    OlmAccount,
    add_signature,
    decode_base64,
    encode_base64,
)
from keryx.surfaces.gateway.matrix.homeserver import Homeserver

log = logging.getLogger(__name__)

_IDENTITY = "cross_signing"
_USAGES = ("master", "self_signing", "user_signing")
# The names of these keys in a secret storage.
IDENTITY_SECRETS = tuple(f"m.cross_signing.{usage}" for usage in _USAGES)


class CrossSigning:
    def __init__(self, keys: KeyFile, server: Homeserver, account: OlmAccount) -> None:
        self._keys = keys
        self._server = server
        self._account = account

    @property
    def master(self) -> str:
        """The public master key, or empty if this process does not have the identity of the account."""
        stored: dict[str, str] = self._keys.get(_IDENTITY) or {}
        return _public_key(_load(stored["master"])) if stored else ""

    @property
    def secrets(self) -> dict[str, str]:
        """The private keys by their names in a secret storage; none if this process does not have the identity."""
        stored: dict[str, str] = self._keys.get(_IDENTITY) or {}
        return {name: stored[usage] for name, usage in zip(IDENTITY_SECRETS, _USAGES, strict=True) if stored}

    def adopt(self, secrets: Mapping[str, str], published_master: str) -> bool:
        """Take the identity of the account from a secret storage. False if it is not there, or is not the one that the
        account has published."""
        try:
            found = {usage: secrets[name] for name, usage in zip(IDENTITY_SECRETS, _USAGES, strict=True)}
            public = {usage: _public_key(_load(seed)) for usage, seed in found.items()}
        except (KeyError, ValueError):
            return False
        if not published_master or public["master"] != published_master:
            return False
        self._keys.set(_IDENTITY, found)
        return True

    async def ensure(self, published_master: str, *, signed: bool) -> str:
        """Create and publish an identity if the account has none, and sign this device with it. Return what keeps the
        device from being signed, as a sentence; empty if it is. Raise what the homeserver raises."""
        if published_master and published_master != self.master:
            return (
                "The encryption identity of the account is held by another client: give its recovery key to `keryx matrix "
                "restore`, or verify this device there, so that people trust it."
            )
        if not self.master:
            created = {
                usage: encode_base64(Ed25519PrivateKey.generate().private_bytes_raw()) for usage in _USAGES
            }
            self._keys.set(_IDENTITY, created)
            await self._keys.flush()
        stored: dict[str, str] = self._keys.get(_IDENTITY)
        if not published_master:
            try:
                await self._server.upload_identity(self._build_identity(stored))
            except (Forbidden, Invalid, NotFound) as exc:
                log.warning("the homeserver does not take a cross-signing identity: %s", exc)
                return (
                    "The homeserver does not let this device create an encryption identity for the account: create one with "
                    "another client, and verify this device there."
                )
            signed = False
        if not signed:
            device = self._account.build_device_keys()
            signing = _load(stored["self_signing"])
            signed_device = add_signature(
                device, self._account.user, f"ed25519:{_public_key(signing)}", _signer(signing)
            )
            master = self._account.sign_object(self._build_identity(stored)["master_key"])
            await self._server.upload_signatures(
                {self._account.user: {self._account.device: signed_device, self.master: master}}
            )
        return ""

    def _build_identity(self, stored: dict[str, str]) -> dict[str, Any]:
        keys = {usage: _load(stored[usage]) for usage in _USAGES}
        master_name = f"ed25519:{_public_key(keys['master'])}"
        found: dict[str, Any] = {}
        for usage, key in keys.items():
            public = _public_key(key)
            value: dict[str, Any] = {
                "user_id": self._account.user,
                "usage": [usage],
                "keys": {f"ed25519:{public}": public},
            }
            if usage != "master":
                value = add_signature(value, self._account.user, master_name, _signer(keys["master"]))
            found[f"{usage}_key"] = value
        return found


def _load(seed: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(decode_base64(seed))


def _public_key(key: Ed25519PrivateKey) -> str:
    return encode_base64(key.public_key().public_bytes_raw())


def _signer(key: Ed25519PrivateKey) -> Callable[[bytes], str]:
    return lambda data: encode_base64(key.sign(data))
