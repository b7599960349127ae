"""Verification by emoji, begun by the client of a person: in a room, or from device to device. The operator confirms on this side."""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
from vodozemac import Curve25519PublicKey, EstablishedSas, Sas

from keryx import logs
from keryx.core.errors import KeryxError
from keryx.surfaces.gateway.matrix.encryption.control_files import Comparison
from keryx.surfaces.gateway.matrix.encryption.device_list import Device, DeviceList
from keryx.surfaces.gateway.matrix.encryption.olm_account import OlmAccount, encode_base64, encode_canonical
from keryx.surfaces.gateway.matrix.event_types import VERIFICATION, EventRelation

log = logging.getLogger(__name__)

_METHOD = "m.sas.v1"
_AGREEMENT = "curve25519-hkdf-sha256"
_HASH = "sha256"
_MAC = "hkdf-hmac-sha256.v2"
_MAX_AT_ONCE = 10
# The table of the specification, in its order.
_EMOJI = (
    "🐶 Dog,🐱 Cat,🦁 Lion,🐎 Horse,🦄 Unicorn,🐷 Pig,🐘 Elephant,🐰 Rabbit,🐼 Panda,🐓 Rooster,🐧 Penguin,🐢 Turtle,🐟 Fish,"
    "🐙 Octopus,🦋 Butterfly,🌷 Flower,🌳 Tree,🌵 Cactus,🍄 Mushroom,🌏 Globe,🌙 Moon,☁️ Cloud,🔥 Fire,🍌 Banana,🍎 Apple,"
    "🍓 Strawberry,🌽 Corn,🍕 Pizza,🎂 Cake,❤️ Heart,😀 Smiley,🤖 Robot,🎩 Hat,👓 Glasses,🔧 Spanner,🎅 Santa,👍 Thumbs Up,"
    "☂️ Umbrella,⌛ Hourglass,⏰ Clock,🎁 Gift,💡 Light Bulb,📕 Book,✏️ Pencil,📎 Paperclip,✂️ Scissors,🔒 Lock,🔑 Key,"
    "🔨 Hammer,☎️ Telephone,🏁 Flag,🚂 Train,🚲 Bicycle,✈️ Aeroplane,🚀 Rocket,🏆 Trophy,⚽ Ball,🎸 Guitar,🎺 Trumpet,"
    "🔔 Bell,⚓ Anchor,🎧 Headphones,📁 Folder,📌 Pin"
)
EMOJI = [(emoji, name) for emoji, _, name in (entry.partition(" ") for entry in _EMOJI.split(","))]


class VerificationContent(msgspec.Struct, frozen=True, kw_only=True):
    """The content of any event of a verification."""

    from_device: str = ""
    transaction_id: str = ""
    relation: EventRelation = msgspec.field(name="m.relates_to", default=EventRelation())
    methods: list[str] = []
    method: str = ""
    key_agreement_protocols: list[str] = []
    hashes: list[str] = []
    message_authentication_codes: list[str] = []
    short_authentication_string: list[str] = []
    key: str = ""
    # The codes of keys by their names, and the code of the names.
    mac: dict[str, str] = {}
    keys: str = ""


# Sends an event of a verification: its recipient, the room or an empty text, its type and its content.
SendEvent: TypeAlias = Callable[[Device, str, str, dict[str, Any]], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class _Verification:
    """The state of one verification."""

    id: str
    # Of the other side.
    device: Device
    # Empty if it goes from device to device.
    room: str
    started: bool = False
    sas: Sas | None = None
    public_key: str = ""
    established: EstablishedSas | None = None
    emoji: list[tuple[str, str]] | None = None
    # The operator has confirmed that the emoji are the same.
    confirmed: bool = False
    # What the other side has sent after its confirmation.
    mac: VerificationContent | None = None


class SasVerifications:
    """All verifications that go on. They end with the process."""

    def __init__(
        self, account: OlmAccount, devices: DeviceList, send: SendEvent, find_master: Callable[[], str]
    ) -> None:
        self._account = account
        self._devices = devices
        self._send = send
        self._find_master = find_master
        self._active: dict[str, _Verification] = {}
        # Sentences for the operator about verifications that have ended.
        self.outcome = ""

    @property
    def active(self) -> bool:
        return bool(self._active)

    def list_comparisons(self) -> list[Comparison]:
        return [
            Comparison(id=v.id, user=v.device.user, device=v.device.id, emoji=v.emoji)
            for v in self._active.values()
            if v.emoji and not v.confirmed
        ]

    async def receive(
        self, kind: str, sender: str, content: Mapping[str, Any], *, room: str = "", event: str = ""
    ) -> None:
        """Handle an event of a verification, which is in a room or was sent to this device. Errors of the homeserver end
        the verification."""
        try:
            parsed = msgspec.convert(content, VerificationContent)
        except msgspec.ValidationError:
            log.warning("ignored a malformed event of a verification with %s", logs.hash_chat(sender))
            return
        name = (parsed.relation.event_id or event) if room else parsed.transaction_id
        step = kind.removeprefix(VERIFICATION)
        current = self._active.get(name)
        try:
            if current is None:
                if step in ("request", "start") and name:
                    await self._begin(step, name, sender, parsed, content, room)
            elif current.device.user == sender and current.room == room:
                await self._continue(step, current, parsed, content)
        except KeryxError as exc:
            log.warning("a verification with %s has failed: %s", logs.hash_chat(sender), exc)
            self._active.pop(name, None)

    async def confirm(self, name: str, *, same: bool) -> None:
        """Take the answer of the operator."""
        current = self._active.get(name)
        if current is None or current.established is None:
            self.outcome = "This verification has ended already."
        elif not same:
            await self._cancel(current, "m.mismatched_sas", "The emoji are not the same.")
        else:
            current.confirmed = True
            await self._send_mac(current, current.established)
            if current.mac is not None:
                await self._check_mac(current, current.established, current.mac)

    async def _begin(
        self,
        step: str,
        name: str,
        sender: str,
        parsed: VerificationContent,
        content: Mapping[str, Any],
        room: str,
    ) -> None:
        await self._devices.refresh([sender])
        device = self._devices.get(sender).devices.get(parsed.from_device)
        if device is None or (sender == self._account.user and device.id == self._account.device):
            return
        if len(self._active) >= _MAX_AT_ONCE:
            # The oldest has probably been given up.
            self._active.pop(next(iter(self._active)))
        current = self._active[name] = _Verification(id=name, device=device, room=room)
        if step == "start":
            await self._accept(current, parsed, content)
        elif _METHOD in parsed.methods:
            await self._reply(current, "ready", {"from_device": self._account.device, "methods": [_METHOD]})
        else:
            await self._cancel(current, "m.unknown_method", "No method is supported by both sides.")

    async def _continue(
        self, step: str, current: _Verification, parsed: VerificationContent, content: Mapping[str, Any]
    ) -> None:
        match step:
            case "start" if not current.started:
                await self._accept(current, parsed, content)
            case "key" if current.sas is not None and current.established is None:
                await self._exchange_keys(current, current.sas, parsed.key)
            case "mac" if current.established is not None and current.mac is None:
                current.mac = parsed
                if current.confirmed:
                    await self._check_mac(current, current.established, parsed)
            case "cancel":
                self._active.pop(current.id, None)
                self.outcome = f"{current.device.user} has cancelled the verification."
            case "request" | "done":
                pass
            case _:
                await self._cancel(current, "m.unexpected_message", "This was not expected now.")

    async def _accept(
        self, current: _Verification, parsed: VerificationContent, content: Mapping[str, Any]
    ) -> None:
        supported = (
            parsed.method == _METHOD
            and _AGREEMENT in parsed.key_agreement_protocols
            and _HASH in parsed.hashes
            and _MAC in parsed.message_authentication_codes
            and "emoji" in parsed.short_authentication_string
        )
        if not supported:
            await self._cancel(current, "m.unknown_method", "No method is supported by both sides.")
            return
        current.started, current.sas = True, Sas()
        current.public_key = current.sas.public_key.to_base64()
        digest = hashlib.sha256(current.public_key.encode() + encode_canonical(content)).digest()
        await self._reply(
            current,
            "accept",
            {
                "method": _METHOD,
                "key_agreement_protocol": _AGREEMENT,
                "hash": _HASH,
                "message_authentication_code": _MAC,
                "short_authentication_string": ["emoji"],
                "commitment": encode_base64(digest),
            },
        )

    async def _exchange_keys(self, current: _Verification, sas: Sas, key: str) -> None:
        try:
            current.established = sas.diffie_hellman(Curve25519PublicKey.from_base64(key))
        except ValueError:
            await self._cancel(current, "m.invalid_message", "The key is malformed.")
            return
        theirs = f"{current.device.user}|{current.device.id}|{key}"
        ours = f"{self._account.user}|{self._account.device}|{current.public_key}"
        info = f"MATRIX_KEY_VERIFICATION_SAS|{theirs}|{ours}|{current.id}"
        current.emoji = [EMOJI[index] for index in current.established.bytes(info).emoji_indices]
        await self._reply(current, "key", {"key": current.public_key})

    async def _send_mac(self, current: _Verification, established: EstablishedSas) -> None:
        info = _mac_info(self._account.user, self._account.device, current.device.user, current.device.id)
        keys = {f"ed25519:{self._account.device}": self._account.ed25519}
        if master := self._find_master():
            keys[f"ed25519:{master}"] = master
        names = ",".join(sorted(keys))
        await self._reply(
            current,
            "mac",
            {
                "mac": {
                    name: established.calculate_mac(key, f"{info}{current.id}{name}")
                    for name, key in keys.items()
                },
                "keys": established.calculate_mac(names, f"{info}{current.id}KEY_IDS"),
            },
        )

    async def _check_mac(
        self, current: _Verification, established: EstablishedSas, content: VerificationContent
    ) -> None:
        """Record the keys that the other side has confirmed. A key that is not known is ignored, a wrong one is not."""
        device = current.device
        info = _mac_info(device.user, device.id, self._account.user, self._account.device) + current.id
        person = self._devices.get(device.user)
        known = {f"ed25519:{other.id}": other.ed25519 for other in person.devices.values()}
        if person.master:
            known[f"ed25519:{person.master}"] = person.master
        try:
            established.verify_mac(",".join(sorted(content.mac)), f"{info}KEY_IDS", content.keys)
            confirmed = [name for name in content.mac if name in known]
            for name in confirmed:
                established.verify_mac(known[name], info + name, content.mac[name])
            if f"ed25519:{device.id}" not in confirmed:
                raise ValueError("the device itself is missing")
        except ValueError:
            await self._cancel(current, "m.key_mismatch", "The keys are not the same.")
            return
        found = {name.removeprefix("ed25519:") for name in confirmed}
        self._devices.verify(
            device.user,
            devices=found & person.devices.keys(),
            master=person.master if person.master in found else "",
        )
        self._active.pop(current.id, None)
        self.outcome = f"{device.user} is verified."
        await self._reply(current, "done", {})

    async def _cancel(self, current: _Verification, code: str, reason: str) -> None:
        self._active.pop(current.id, None)
        self.outcome = f"The verification with {current.device.user} has failed: {reason}"
        await self._reply(current, "cancel", {"code": code, "reason": reason})

    async def _reply(self, current: _Verification, step: str, content: dict[str, Any]) -> None:
        if current.room:
            relation: dict[str, Any] = {"rel_type": "m.reference", "event_id": current.id}
            content = {**content, "m.relates_to": relation}
        else:
            content = {**content, "transaction_id": current.id}
        await self._send(current.device, current.room, f"{VERIFICATION}{step}", content)


def _mac_info(user: str, device: str, other_user: str, other_device: str) -> str:
    return f"MATRIX_KEY_VERIFICATION_MAC{user}{device}{other_user}{other_device}"
