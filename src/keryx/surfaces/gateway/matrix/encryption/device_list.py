"""The devices of other people and of this account, their cross-signing identities, and which of them are trusted."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from keryx import logs
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.matrix.encryption import OLM, DeviceTrust
from keryx.surfaces.gateway.matrix.encryption.key_file import KeyFile
from keryx.surfaces.gateway.matrix.encryption.olm_account import has_signature
from keryx.surfaces.gateway.matrix.homeserver import Homeserver

log = logging.getLogger(__name__)

_PEOPLE = "people/"
# After a homeserver did not answer for its people.
_RETRY_SECONDS = 300.0
_MAX_QUERY = 250


class Device(msgspec.Struct, frozen=True, kw_only=True):
    user: str
    id: str
    ed25519: str
    curve25519: str
    # The identity of its user has signed it.
    signed: bool = False
    # It was verified itself.
    verified: bool = False


class PersonKeys(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the keys of a person."""

    devices: dict[str, Device] = {}
    # The public master key of their cross-signing identity, or empty.
    master: str = ""
    # The one that they had first, or that was verified or accepted since.
    pinned: str = ""
    # The pinned one was verified.
    verified: bool = False

    @property
    def replaced(self) -> bool:
        """Whether the identity is another than the one that was pinned."""
        return bool(self.pinned) and self.master != self.pinned


class DeviceList:
    """Queries the devices of a person when they are needed, and again after the homeserver has reported a change."""

    def __init__(
        self,
        keys: KeyFile,
        server: Homeserver,
        user: str,
        trust: DeviceTrust,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keys = keys
        self._server = server
        self._user = user
        self._trust = trust
        self._monotonic = monotonic
        # Changes while the process was away are not all reported, so all people are queried once after a start.
        self._current: set[str] = set()
        self._retry_at: dict[str, float] = {}
        # Held during a query, so that people whose devices are still on their way are not taken for current.
        self._querying = asyncio.Lock()

    def get(self, user: str) -> PersonKeys:
        return msgspec.convert(self._keys.get(_PEOPLE + user) or {}, PersonKeys)

    def list_people(self) -> dict[str, PersonKeys]:
        return {user: msgspec.convert(value, PersonKeys) for user, value in self._keys.items(_PEOPLE)}

    def mark_changed(self, users: Iterable[str]) -> None:
        self._current.difference_update(users)

    def forget(self, users: Iterable[str]) -> None:
        """Stop to rely on the devices of people who share no encrypted room any more. What was verified is kept."""
        self._current.difference_update(users)

    async def refresh(self, users: Iterable[str]) -> None:
        """Query the devices of those people whose devices are not known to be current. Raise what the homeserver raises."""
        async with self._querying:
            await self._query(users)

    def find_device(self, user: str, curve25519: str) -> Device | None:
        return next((d for d in self.get(user).devices.values() if d.curve25519 == curve25519), None)

    def find_distrust(self, device: Device) -> Phrase | None:
        """Return why a device is not trusted, as the end of a sentence about it; `None` if it is."""
        person = self.get(device.user)
        if device.verified:
            return None
        if person.replaced:
            return Phrase("matrix.new_identity", user=device.user)
        if self._trust is DeviceTrust.VERIFIED:
            if person.verified and device.signed:
                return None
            return Phrase("matrix.not_verified", user=device.user, device=device.id)
        if person.master and not device.signed:
            return Phrase("matrix.not_signed", user=device.user, device=device.id)
        return None

    def list_trusted(self, users: Iterable[str]) -> list[Device]:
        return [
            device
            for user in users
            for device in self.get(user).devices.values()
            if not self.find_distrust(device)
        ]

    def verify(self, user: str, *, devices: Iterable[str] = (), master: str = "") -> None:
        """Record that devices and an identity were compared with those of the person and are the same."""
        person = self.get(user)
        changed = {
            name: msgspec.structs.replace(person.devices[name], verified=True)
            for name in devices
            if name in person.devices
        }
        person = msgspec.structs.replace(person, devices={**person.devices, **changed})
        if master:
            person = msgspec.structs.replace(person, pinned=master, verified=True)
        self._save(user, person)

    def accept(self, user: str) -> bool:
        """Take the present identity of a person as theirs, unverified. Return whether it differs from the one before."""
        person = self.get(user)
        if not person.replaced:
            return False
        self._save(user, msgspec.structs.replace(person, pinned=person.master, verified=False))
        return True

    async def _query(self, users: Iterable[str]) -> None:
        now = self._monotonic()
        needed = [u for u in users if u not in self._current and self._retry_at.get(u, 0) <= now]
        for start in range(0, len(needed), _MAX_QUERY):
            some = needed[start : start + _MAX_QUERY]
            # Before the request: a change that is reported meanwhile makes them outdated again.
            self._current.update(some)
            try:
                found = await self._server.query_keys(some)
            except BaseException:
                self._current.difference_update(some)
                raise
            for user in some:
                if user in found.device_keys or user.partition(":")[2] not in found.failures:
                    self._retry_at.pop(user, None)
                    self._apply(
                        user,
                        found.device_keys.get(user, {}),
                        found.master_keys.get(user, {}),
                        found.self_signing_keys.get(user, {}),
                    )
                else:
                    self._current.discard(user)
                    self._retry_at[user] = now + _RETRY_SECONDS

    def _apply(
        self,
        user: str,
        devices: Mapping[str, Any],
        master_object: Any,
        self_signing_object: Any,
    ) -> None:
        person = self.get(user)
        master = _read_identity_key(user, master_object, "master")
        self_signing = _read_identity_key(user, self_signing_object, "self_signing")
        if not has_signature(self_signing_object, user, f"ed25519:{master}", master):
            self_signing = ""
        kept: dict[str, Device] = {}
        for name, value in devices.items():
            device = _read_device(user, name, value)
            known = person.devices.get(name)
            if device is None:
                log.warning("ignored the malformed device %s of %s", name, logs.hash_chat(user))
            elif known is not None and known.ed25519 != device.ed25519:
                log.warning("ignored new keys of the device %s of %s", name, logs.hash_chat(user))
                kept[name] = known
            else:
                signed = has_signature(value, user, f"ed25519:{self_signing}", self_signing)
                kept[name] = msgspec.structs.replace(
                    device, signed=signed, verified=known is not None and known.verified
                )
        pinned = person.pinned or master
        new = PersonKeys(devices=kept, master=master, pinned=pinned, verified=person.verified)
        if new != person:
            self._save(user, new)

    def _save(self, user: str, person: PersonKeys) -> None:
        self._keys.set(_PEOPLE + user, msgspec.to_builtins(person))


class _IdentityKey(msgspec.Struct, frozen=True):
    user_id: str
    usage: list[str]
    keys: dict[str, str]


class _DeviceKeys(msgspec.Struct, frozen=True):
    user_id: str
    device_id: str
    algorithms: list[str]
    keys: dict[str, str]


def _read_identity_key(user: str, value: Any, usage: str) -> str:
    """Return the public key of a cross-signing key, or an empty text if it is malformed."""
    try:
        identity = msgspec.convert(value, _IdentityKey)
    except msgspec.ValidationError:
        return ""
    if identity.user_id != user or usage not in identity.usage or len(identity.keys) != 1:
        return ""
    [(name, key)] = identity.keys.items()
    return key if name == f"ed25519:{key}" else ""


def _read_device(user: str, name: str, value: Any) -> Device | None:
    """Return a device whose keys are signed by itself, or `None`."""
    try:
        found = msgspec.convert(value, _DeviceKeys)
    except msgspec.ValidationError:
        return None
    ed25519, curve25519 = found.keys.get(f"ed25519:{name}", ""), found.keys.get(f"curve25519:{name}", "")
    if (found.user_id, found.device_id) != (user, name) or OLM not in found.algorithms or not curve25519:
        return None
    if not has_signature(value, user, f"ed25519:{name}", ed25519):
        return None
    return Device(user=user, id=name, ed25519=ed25519, curve25519=curve25519)
