"""The encryption of one account on one device: reads and writes events of encrypted rooms, and exchanges keys with other devices.

Everything that a message depends on is on disk before it is sent, and everything that was received is on disk before it is
acknowledged by the next sync."""

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec

from keryx import logs
from keryx.core import ids
from keryx.core.errors import KeryxError
from keryx.core.text import format_count
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.matrix.encryption import (
    MEGOLM,
    DeviceTrust,
    EncryptionUnavailable,
    UndecryptableMessage,
    UntrustedDevice,
    room_keys,
)
from keryx.surfaces.gateway.matrix.encryption.control_files import (
    AcceptRequest,
    ConfirmRequest,
    EncryptionReport,
    OperatorRequest,
    RestoreRequest,
    take_requests,
    write_report,
)
from keryx.surfaces.gateway.matrix.encryption.cross_signing import CrossSigning
from keryx.surfaces.gateway.matrix.encryption.device_list import Device, DeviceList
from keryx.surfaces.gateway.matrix.encryption.key_backup import KeyBackup
from keryx.surfaces.gateway.matrix.encryption.key_file import KeyFile
from keryx.surfaces.gateway.matrix.encryption.olm_account import (
    ACCOUNT,
    DeviceMessage,
    OlmAccount,
    has_signature,
)
from keryx.surfaces.gateway.matrix.encryption.room_keys import RoomKey, RoomKeys
from keryx.surfaces.gateway.matrix.encryption.sas_verification import SasVerifications
from keryx.surfaces.gateway.matrix.event_types import (
    DUMMY,
    ENCRYPTED,
    ROOM_KEY,
    ROOM_KEY_REQUEST,
    ROOM_KEY_WITHHELD,
    VERIFICATION,
    DeviceEvent,
    EncryptedFile,
    EncryptionState,
    MatrixEvent,
    SyncResponse,
    parse_device_event,
)
from keryx.surfaces.gateway.matrix.homeserver import Homeserver, HomeserverThrottled, HomeserverUnavailable

log = logging.getLogger(__name__)

_STARTS = "starts"
_STARTS_KEY = "org.keryx.encryption"
_PUBLISHED = "published"
_RECEIVED = "received/"
_ROOMS = "rooms/"
_UNREAD = "unread/"
_NOTICES = "notices/"
_WITHHELD = "withheld/"
_OPEN_SECONDS = 5.0
_MAX_RECEIVED = 500
_MAX_UNREAD = 1000
# Of devices that one request goes to.
_BATCH = 50
# How long a device without one-time keys is left alone, and how often a broken session is replaced at most.
_RETRY_SECONDS = 300.0
_REPAIR_SECONDS = 3600.0
# How long a key may be on its way before the room gets a notice.
_KEY_GRACE_SECONDS = 5.0
_KEY_MISSING = Phrase("matrix.key_missing")
# Why a device gives no key, by the codes of Matrix. Another one says nothing that a person could do something about.
_WITHHELD_REASONS = {
    "m.unverified": Phrase("matrix.key_unverified"),
    "m.blacklisted": Phrase("matrix.key_blocked"),
    "m.unauthorised": Phrase("matrix.key_refused"),
}
_MAX_SESSION_ID = 255


class UnreadMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message whose key has not arrived."""

    room: str
    session: str
    # The event as JSON.
    event: str

    @property
    def withheld_name(self) -> str:
        """Under which name it is stored why the sender gives no key."""
        sender = msgspec.json.decode(self.event, type=MatrixEvent).sender
        return f"{_WITHHELD}{sender} {self.session}"


class _RoomKeyContent(msgspec.Struct, frozen=True, kw_only=True):
    """`m.room_key` and `m.forwarded_room_key`."""

    algorithm: str
    room_id: str
    session_id: str
    session_key: str
    sender_key: str = ""
    sender_claimed_ed25519_key: str = ""


class OlmMachine:
    def __init__(
        self,
        server: Homeserver,
        user: str,
        folder: Path,
        *,
        trust: DeviceTrust = DeviceTrust.FIRST_USE,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.user = user
        self.folder = folder
        # The sync loop applies the changes of rooms, so that members may be cached.
        self.live = False
        self._server = server
        self._trust = trust
        self._now = now
        self._monotonic = monotonic
        self._opening = asyncio.Lock()
        self._opened = asyncio.Event()
        self._keys: KeyFile | None = None
        self._problems: dict[str, str] = {}
        self._members: dict[str, list[str]] = {}
        self._room_locks: dict[str, asyncio.Lock] = {}
        self._retry_at: dict[str, float] = {}
        self._repaired_at: dict[str, float] = {}
        # Users and the Curve25519 keys of their devices, in order.
        self._to_repair: dict[tuple[str, str], None] = {}
        self._requested: set[str] = set()
        self._unread_since: dict[str, float] = {}
        self._one_time_keys: int | None = None
        self._fallback_key_used = False
        self._identity_checked = False
        self._reported: tuple[object, ...] = ()
        self._outcome = ""
        # Not from 0, so that a report of this process is never taken for one of the process before it.
        self._requests = int(now() * 1000)

    @property
    def problems(self) -> list[str]:
        """What does not work, as sentences."""
        unread = self._keys.count(_UNREAD) if self._keys is not None else 0
        waiting = (
            [f"Unreadable so far, because their keys have not arrived: {format_count(unread, 'message')}."]
            if unread
            else []
        )
        return [*self._problems.values(), *waiting]

    async def open(self) -> None:
        """Read or create the keys, and publish them. Raise `EncryptionUnavailable` if encryption cannot be used here, and
        what the homeserver raises. Does nothing if they are open."""
        async with self._opening:
            if self._keys is not None:
                return
            device = await self._server.find_device()
            if not device:
                raise EncryptionUnavailable(Phrase("delivery.no_own_device"))
            path = self.folder / f"{ids.escape(device).replace('/', '%2F')}.keys"
            keys = await _open_file(path)
            try:
                await self._load(keys, device)
            except BaseException:
                keys.close()
                raise
            self._keys = keys
            self._opened.set()

    async def wait_open(self) -> None:
        """Wait for a short time until the keys are open. The process that listens opens them. Raise
        `EncryptionUnavailable` if they stay closed."""
        with anyio.move_on_after(_OPEN_SECONDS):
            await self._opened.wait()
        if self._keys is None:
            raise EncryptionUnavailable(Phrase("delivery.keys_elsewhere"))

    async def _load(self, keys: KeyFile, device: str) -> None:
        if keys.get(ACCOUNT) is None:
            found = await self._server.query_keys([self.user])
            if device in found.device_keys.get(self.user, {}):
                raise EncryptionUnavailable(
                    Phrase("delivery.keys_missing", path=self.folder, name=keys.path.name)
                )
        self._account = OlmAccount(keys, self.user, device)
        self._own = Device(
            user=self.user, id=device, ed25519=self._account.ed25519, curve25519=self._account.curve25519
        )
        self._devices = DeviceList(keys, self._server, self.user, self._trust, monotonic=self._monotonic)
        self._rooms = RoomKeys(keys)
        self._identity = CrossSigning(keys, self._server, self._account)
        self._backup = KeyBackup(keys, self._server, self._account, self._rooms)
        self._verifications = SasVerifications(
            self._account, self._devices, self._send_verification, lambda: self._identity.master
        )
        self._rooms.drop_old_indexes()
        self._requested = {value["session"] for _, value in keys.items(_UNREAD)}
        await keys.flush()
        if not keys.get(_PUBLISHED):
            await self._server.upload_keys({"device_keys": self._account.build_device_keys()})
            keys.set(_PUBLISHED, True)
        await self._count_start(keys, device)
        await keys.flush()

    async def _count_start(self, keys: KeyFile, device: str) -> None:
        """Detect an old copy of the key file by the number of starts, which the homeserver knows, too. Its keys for
        sending have been used already and must not be used again."""
        known = await self._server.get_account_data(self.user, f"{_STARTS_KEY}.{device}")
        stored, published = int(keys.get(_STARTS) or 0), known.get("starts")
        if isinstance(published, int) and published > stored:
            log.warning("the keys of Matrix are an old copy: new ones are used for sending")
            self._rooms.drop_outbound()
            self._account.stop_sending()
            stored = published
        keys.set(_STARTS, stored + 1)
        await keys.flush()
        await self._server.set_account_data(self.user, f"{_STARTS_KEY}.{device}", {"starts": stored + 1})

    def close(self) -> None:
        if self._keys is not None:
            self._keys.close()
            self._keys = None

    @property
    def _file(self) -> KeyFile:
        if self._keys is None:
            raise EncryptionUnavailable(Phrase("delivery.keys_closed"))
        return self._keys

    def find_state(self, room: str) -> EncryptionState | None:
        """Return how a room was encrypted when it was used last. A homeserver cannot take that back."""
        value = self._keys.get(_ROOMS + room) if self._keys is not None else None
        return msgspec.convert(value, EncryptionState) if value else None

    async def receive_sync(self, batch: SyncResponse) -> None:
        """Take the keys and changes of a sync. They are on disk when this returns."""
        keys = self._file
        self._devices.mark_changed(batch.device_lists.changed)
        self._devices.forget(batch.device_lists.left)
        if batch.one_time_keys is not None:
            self._one_time_keys = batch.one_time_keys.get("signed_curve25519", 0)
        if batch.fallback_keys is not None:
            self._fallback_key_used = "signed_curve25519" not in batch.fallback_keys
        for raw in batch.to_device.events:
            event = parse_device_event(raw)
            if event is None:
                log.warning("ignored a malformed message between devices of Matrix")
            elif event.type == ENCRYPTED:
                self._receive_encrypted(event)
            elif event.type == ROOM_KEY_REQUEST:
                self._receive_key_request(event)
            elif event.type == ROOM_KEY_WITHHELD:
                self._receive_withheld(event)
            elif event.type.startswith(VERIFICATION):
                await self._verifications.receive(event.type, event.sender, event.content)
        await keys.flush()

    async def finish_sync(self) -> None:
        """Publish, repair, back up, and do what the operator has asked for. What fails is tried again after the next sync."""
        for step in (
            self._upload_keys,
            self._repair_sessions,
            self._ensure_identity,
            self._take_requests,
            self._backup_keys,
            self._report,
        ):
            try:
                await step()
            except (HomeserverUnavailable, HomeserverThrottled, EncryptionUnavailable, OSError) as exc:
                log.info("a step of encryption is tried again later: %s", exc)
            except KeryxError as exc:
                log.warning("a step of encryption has failed: %s", exc)

    @property
    def busy(self) -> bool:
        """Whether something waits that a long sync would hold up."""
        return self._verifications.active or any(self._unread_since.values())

    async def decrypt(self, room: str, event: MatrixEvent, *, replay_check: bool = True) -> MatrixEvent:
        """Return the event that is in an encrypted one. Raise `RoomKeyMissing`, `UntrustedDevice` or
        `UndecryptableMessage`, and what the homeserver raises."""
        try:
            content = msgspec.json.decode(event.content, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
            raise UndecryptableMessage("it is malformed") from exc
        if self._keys is None:
            raise EncryptionUnavailable(Phrase("delivery.keys_closed"))
        payload, key = self._rooms.decrypt(room, event.id, content, replay_check=replay_check)
        inner = payload.content
        relation = content.get("m.relates_to")
        if relation is not None:
            # The homeserver sees it and could change it, so one within the message counts more.
            try:
                inner_content = msgspec.json.decode(inner, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
                raise UndecryptableMessage("it is malformed") from exc
            inner = msgspec.Raw(msgspec.json.encode({"m.relates_to": relation, **inner_content}))
        plain = msgspec.structs.replace(event, type=payload.type, content=inner)
        if event.sender != self.user or key.sender_key != self._account.curve25519:
            try:
                await self._check_sender(event.sender, key)
            except UntrustedDevice as exc:
                exc.event = plain
                raise
        return plain

    async def _check_sender(self, user: str, key: RoomKey) -> None:
        """Raise `UntrustedDevice` unless a key belongs to a trusted device of the user."""
        if key.sender != user:
            raise UntrustedDevice(
                Phrase("matrix.key_of_other", sender=key.sender, user=user)
                if key.sender
                else Phrase("matrix.key_of_backup", user=user)
            )
        await self._devices.refresh([user])
        device = self._devices.find_device(user, key.sender_key)
        if device is None:
            self._devices.mark_changed([user])
            await self._devices.refresh([user])
            device = self._devices.find_device(user, key.sender_key)
        if device is None or device.ed25519 != key.ed25519:
            raise UntrustedDevice(Phrase("matrix.no_device", user=user))
        if reason := self._devices.find_distrust(device):
            raise UntrustedDevice(reason)

    async def encrypt(
        self, room: str, state: EncryptionState, kind: str, content: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the encrypted content, which all trusted devices in the room can read. Raise `EncryptionUnavailable`, and
        what the homeserver raises."""
        keys = self._file
        if state.algorithm != MEGOLM:
            raise EncryptionUnavailable(Phrase("delivery.other_encryption"))
        async with self._room_locks.setdefault(room, asyncio.Lock()):
            members = await self._find_members(room)
            await self._devices.refresh(members)
            recipients = [
                d for d in self._devices.list_trusted(members) if d.curve25519 != self._own.curve25519
            ]
            now_ms = int(self._now() * 1000)
            outbound = self._rooms.get_outbound(room)
            if outbound is None or self._rooms.needs_rotation(outbound, state, recipients, now_ms=now_ms):
                outbound = self._rooms.create_outbound(room, self._own, now_ms=now_ms)
            missing = [d for d in recipients if d.curve25519 not in outbound.shared]
            if missing:
                await self._share(keys, room, missing)
            self._check_readers(room, members, recipients)
            if keys.get(_ROOMS + room) is None:
                keys.set(_ROOMS + room, msgspec.to_builtins(state))
            encrypted = self._rooms.encrypt(room, self._own, kind, content)
        # The index counts as used before the message can be seen.
        await keys.flush()
        return encrypted

    def _check_readers(self, room: str, members: Sequence[str], recipients: Sequence[Device]) -> None:
        """Raise `EncryptionUnavailable` if only this account could read a message."""
        outbound = self._rooms.get_outbound(room)
        readers = set(outbound.shared if outbound is not None else ()) & {d.curve25519 for d in recipients}
        if readers or set(members) <= {self.user}:
            return
        if recipients:
            raise EncryptionUnavailable(Phrase("delivery.no_device"))
        raise EncryptionUnavailable(Phrase("delivery.no_trusted_device"))

    def encrypt_file(self, body: bytes) -> tuple[bytes, dict[str, Any]]:
        return room_keys.encrypt_file(body)

    def decrypt_file(self, file: EncryptedFile, body: bytes) -> bytes:
        """Raise `Invalid` if the bytes are not those that were sent."""
        return room_keys.decrypt_file(file, body)

    def forget_members(self, room: str) -> None:
        self._members.pop(room, None)

    async def _find_members(self, room: str) -> list[str]:
        members = self._members.get(room) if self.live else None
        if members is None:
            members = await self._server.list_recipients(room)
            self._members[room] = members
        return members

    async def _share(self, keys: KeyFile, room: str, devices: Sequence[Device]) -> None:
        """Send the key of a room to devices. One that cannot be reached now gets it with a later message."""
        for start in range(0, len(devices), _BATCH):
            some = await self._open_sessions(devices[start : start + _BATCH])
            outbound = self._rooms.get_outbound(room)
            if not some or outbound is None:
                continue
            share = self._rooms.build_share(room, outbound)
            await self._send_encrypted(keys, some, ROOM_KEY, share)
            # A crash before this is on disk sends the key again, which does no harm.
            self._rooms.mark_shared(room, some)

    async def _send_encrypted(
        self, keys: KeyFile, devices: Iterable[Device], kind: str, content: dict[str, Any]
    ) -> None:
        messages: dict[str, dict[str, dict[str, Any]]] = {}
        for device in devices:
            messages.setdefault(device.user, {})[device.id] = self._account.encrypt(device, kind, content)
        await keys.flush()
        await self._server.send_to_devices(ENCRYPTED, secrets.token_hex(16), messages)

    async def _open_sessions(self, devices: Sequence[Device], *, fresh: bool = False) -> list[Device]:
        """Return the devices that have a session, after one was begun with those that had none; with `fresh`, with all."""
        now = self._monotonic()
        wanted: dict[str, list[str]] = {}
        needed = {
            (d.user, d.id): d
            for d in devices
            if (fresh or not self._account.has_session(d.curve25519))
            and self._retry_at.get(d.curve25519, 0) <= now
        }
        for user, name in needed:
            wanted.setdefault(user, []).append(name)
        if wanted:
            claimed = await self._server.claim_keys(wanted)
            for (user, name), device in needed.items():
                found = claimed.one_time_keys.get(user, {}).get(name, {})
                if not self._begin_session(device, found):
                    self._retry_at[device.curve25519] = now + _RETRY_SECONDS
                    log.info("the device %s of %s has no usable one-time key", name, logs.hash_chat(user))
        return [d for d in devices if self._account.has_session(d.curve25519)]

    def _begin_session(self, device: Device, keys: Mapping[str, Any]) -> bool:
        for name, value in keys.items():
            if name.startswith("signed_curve25519:") and has_signature(
                value, device.user, f"ed25519:{device.id}", device.ed25519
            ):
                try:
                    self._account.create_session(device.curve25519, str(value.get("key")))
                except UndecryptableMessage:
                    continue
                return True
        return False

    def _receive_encrypted(self, event: DeviceEvent) -> None:
        keys = self._file
        digest = hashlib.sha256(msgspec.json.encode(event.content)).hexdigest()[:32]
        if keys.get(_RECEIVED + digest) is not None:
            # It came before a crash, and what it brought is on disk.
            return
        keys.set(_RECEIVED + digest, True)
        if keys.count(_RECEIVED) > _MAX_RECEIVED:
            keys.remove(_RECEIVED + keys.items(_RECEIVED)[0][0])
        try:
            message = self._account.decrypt(event.sender, event.content)
        except UndecryptableMessage as exc:
            log.warning("a message of a device of %s is not readable: %s", logs.hash_chat(event.sender), exc)
            sender_key = event.content.get("sender_key")
            if isinstance(sender_key, str):
                self._to_repair[event.sender, sender_key] = None
            return
        self._retry_at.pop(message.curve25519, None)
        try:
            self._apply_message(message)
        except (UndecryptableMessage, msgspec.ValidationError) as exc:
            log.warning("ignored a key of %s: %s", logs.hash_chat(event.sender), exc)

    def _apply_message(self, message: DeviceMessage) -> None:
        match message.type:
            case "m.room_key":
                content = msgspec.convert(message.content, _RoomKeyContent)
                if content.algorithm == MEGOLM:
                    self._rooms.add(
                        content.room_id,
                        content.session_key,
                        sender=message.sender,
                        sender_key=message.curve25519,
                        ed25519=message.ed25519,
                    )
            case "m.forwarded_room_key":
                self._receive_forwarded(message, msgspec.convert(message.content, _RoomKeyContent))
            case "m.dummy":
                # The other side has replaced a broken session, and may have missed keys.
                self._rooms.share_again(message.curve25519)
            case _:
                log.debug("ignored a message %s between devices", message.type)

    def _receive_forwarded(self, message: DeviceMessage, content: _RoomKeyContent) -> None:
        """Take a key that was asked for, from a verified device of this account, or from a device of its author."""
        if content.session_id not in self._requested or content.algorithm != MEGOLM:
            log.warning("ignored a forwarded key that was not asked for")
            return
        device = self._devices.find_device(message.sender, message.curve25519)
        author = next(
            (
                user
                for user in (message.sender, *self._devices.list_people())
                if self._devices.find_device(user, content.sender_key)
            ),
            "",
        )
        own = message.sender == self.user and device is not None and device.verified
        if not own and (author != message.sender or device is None):
            log.warning("ignored a key forwarded by %s", logs.hash_chat(message.sender))
            return
        self._rooms.add_export(
            content.room_id,
            content.session_key,
            sender=author,
            sender_key=content.sender_key,
            ed25519=content.sender_claimed_ed25519_key,
        )

    def _receive_key_request(self, event: DeviceEvent) -> None:
        """A device that misses the key of this device gets it again with the next message, if it may read the room."""
        body = event.content.get("body")
        name = event.content.get("requesting_device_id")
        if (
            event.content.get("action") != "request"
            or not isinstance(body, dict)
            or not isinstance(name, str)
        ):
            return
        device = self._devices.get(event.sender).devices.get(name)
        if device is not None and not self._devices.find_distrust(device):
            self._rooms.share_again(device.curve25519)

    def _receive_withheld(self, event: DeviceEvent) -> None:
        """Keep why a device of a person gives no key to messages of that person. What waits for the key is overdue then."""
        session, code = event.content.get("session_id"), event.content.get("code")
        if not isinstance(session, str) or len(session) > _MAX_SESSION_ID or code not in _WITHHELD_REASONS:
            return
        names = [name for name, _ in self._file.items(_WITHHELD)]
        for name in names[: max(0, len(names) + 1 - _MAX_UNREAD)]:
            self._file.remove(_WITHHELD + name)
        stored = f"{_WITHHELD}{event.sender} {session}"
        self._file.set(stored, code)
        for name, value in self._file.items(_UNREAD):
            if msgspec.convert(value, UnreadMessage).withheld_name == stored:
                self._unread_since[name] = self._monotonic() - _KEY_GRACE_SECONDS

    def explain_missing_key(self, unread: UnreadMessage) -> Phrase:
        """Return what a room is told about a message without its key."""
        return _WITHHELD_REASONS.get(str(self._file.get(unread.withheld_name)), _KEY_MISSING)

    async def add_unread(self, room: str, event: MatrixEvent) -> None:
        """Keep a message until its key arrives, and ask for the key. It is on disk when this returns."""
        keys = self._file
        if keys.get(_UNREAD + event.id) is not None:
            self._unread_since.setdefault(event.id, self._monotonic())
            return
        content = msgspec.json.decode(event.content, type=dict[str, Any])
        session = str(content.get("session_id"))
        names = [name for name, _ in keys.items(_UNREAD)]
        for name in names[: max(0, len(names) + 1 - _MAX_UNREAD)]:
            log.warning("gave up the message %s of Matrix: too many wait for their keys", name)
            keys.remove(_UNREAD + name)
        unread = UnreadMessage(room=room, session=session, event=msgspec.json.encode(event).decode())
        keys.set(_UNREAD + event.id, msgspec.to_builtins(unread))
        self._unread_since[event.id] = self._monotonic()
        await keys.flush()
        if session not in self._requested:
            self._requested.add(session)
            await self._request_key(room, event.sender, content)

    async def _request_key(self, room: str, sender: str, content: Mapping[str, Any]) -> None:
        """Ask the devices of the sender and the other devices of this account for a key."""
        request = {
            "action": "request",
            "requesting_device_id": self._account.device,
            "request_id": secrets.token_hex(16),
            "body": {
                "algorithm": MEGOLM,
                "room_id": room,
                "session_id": content.get("session_id"),
                "sender_key": content.get("sender_key", ""),
            },
        }
        try:
            await self._server.send_to_devices(
                ROOM_KEY_REQUEST,
                str(request["request_id"]),
                {user: {"*": request} for user in dict.fromkeys((sender, self.user))},
            )
        except KeryxError as exc:
            log.info("a key cannot be asked for now: %s", exc)

    def list_readable(self) -> list[tuple[str, MatrixEvent]]:
        """Return the messages whose key has arrived, oldest first, with their rooms."""
        found: list[tuple[str, MatrixEvent]] = []
        for name, value in self._file.items(_UNREAD):
            unread = msgspec.convert(value, UnreadMessage)
            if self._rooms.has(unread.room, unread.session):
                found.append((unread.room, msgspec.json.decode(unread.event, type=MatrixEvent)))
            else:
                self._unread_since.setdefault(name, self._monotonic())
        return found

    async def remove_unread(self, event: str) -> None:
        """Forget a message that was handled, or deleted."""
        if self._file.get(_UNREAD + event) is not None:
            self._file.remove(_UNREAD + event)
            self._unread_since.pop(event, None)
            await self._file.flush()

    def list_overdue(self) -> list[UnreadMessage]:
        """Return one message of each session whose key is overdue or withheld, and whose room was not told."""
        limit = self._monotonic() - _KEY_GRACE_SECONDS
        found: dict[str, UnreadMessage] = {}
        for name, value in self._file.items(_UNREAD):
            since = self._unread_since.get(name)
            unread = msgspec.convert(value, UnreadMessage)
            withheld = self._file.get(unread.withheld_name) is not None
            if since and (since <= limit or withheld):
                self._unread_since[name] = 0
                found.setdefault(unread.session, unread)
        return list(found.values())

    def has_notice(self, subject: str) -> bool:
        """Whether a room was told something already."""
        return self._file.get(_NOTICES + subject) is not None

    async def record_notice(self, subject: str) -> None:
        self._file.set(_NOTICES + subject, True)
        await self._file.flush()

    async def receive_verification(self, room: str, event: MatrixEvent, kind: str) -> None:
        """Handle an event of a verification in a room."""
        try:
            content = msgspec.json.decode(event.content, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return
        if event.sender != self.user and content.get("to", self.user) == self.user:
            await self._verifications.receive(kind, event.sender, content, room=room, event=event.id)

    async def _send_verification(self, device: Device, room: str, kind: str, content: dict[str, Any]) -> None:
        transaction = secrets.token_hex(16)
        if not room:
            await self._server.send_to_devices(kind, transaction, {device.user: {device.id: content}})
            return
        state = self.find_state(room)
        if state is None:
            state = await self._server.find_state(room, "m.room.encryption", EncryptionState)
        if state is None or self._devices.find_distrust(device):
            # A device that is not trusted yet gets no key, and could not read an encrypted event.
            await self._server.send(room, transaction, content, kind=kind)
        else:
            encrypted = await self.encrypt(room, state, kind, content)
            await self._server.send(room, transaction, encrypted, kind=ENCRYPTED)

    async def _upload_keys(self) -> None:
        keys = self._file
        if self._fallback_key_used:
            fallback = self._account.create_fallback_key()
            await keys.flush()
            await self._server.upload_keys({"fallback_keys": fallback})
            self._account.confirm_fallback_key()
            self._fallback_key_used = False
            await keys.flush()
        missing = self._account.max_one_time_keys - (self._one_time_keys or 0)
        if self._one_time_keys is not None and missing > self._account.max_one_time_keys // 2:
            created = self._account.create_one_time_keys(missing)
            await keys.flush()
            self._one_time_keys = None
            await self._server.upload_keys({"one_time_keys": created})

    async def _repair_sessions(self) -> None:
        """Begin new sessions with devices whose messages could not be read, at most once per hour with each."""
        now = self._monotonic()
        for user, curve25519 in list(self._to_repair):
            if now - self._repaired_at.get(curve25519, -_REPAIR_SECONDS) >= _REPAIR_SECONDS:
                await self._devices.refresh([user])
                device = self._devices.find_device(user, curve25519)
                if device is not None:
                    if await self._open_sessions([device], fresh=True):
                        await self._send_encrypted(self._file, [device], DUMMY, {})
                    self._repaired_at[curve25519] = now
            # What was not done because the homeserver did not answer is done after the next sync.
            del self._to_repair[user, curve25519]

    async def _ensure_identity(self) -> None:
        if self._identity_checked:
            return
        await self._devices.refresh([self.user])
        own = self._devices.get(self.user)
        device = own.devices.get(self._account.device)
        problem = await self._identity.ensure(own.master, signed=device is not None and device.signed)
        self._set_problem("identity", problem)
        self._devices.mark_changed([self.user])
        no_backup = await self._backup.ensure()
        self._set_problem("backup", no_backup)
        if not problem and not no_backup:
            self._set_problem("storage", await self._backup.store_secrets(self._identity.secrets))
        self._identity_checked = True

    async def _backup_keys(self) -> None:
        await self._backup.upload()
        await self._file.flush()

    def _set_problem(self, name: str, problem: str) -> None:
        if problem:
            self._problems[name] = problem
        else:
            self._problems.pop(name, None)

    async def _take_requests(self) -> None:
        for request in await asyncio.to_thread(lambda: list(take_requests(self.folder))):
            try:
                self._outcome = await self._serve(request)
            except KeryxError as exc:
                self._outcome = f"{str(exc)[:1].upper()}{str(exc)[1:]}."
            self._requests += 1
            await self._file.flush()

    async def _serve(self, request: OperatorRequest) -> str:
        match request:
            case ConfirmRequest():
                self._verifications.outcome = "Waiting for the other side to confirm."
                await self._verifications.confirm(request.comparison, same=request.same)
                return ""
            case AcceptRequest():
                changed = self._devices.accept(request.user)
                return (
                    f"The new identity of {request.user} is accepted."
                    if changed
                    else f"The identity of {request.user} has not changed."
                )
            case RestoreRequest():
                secrets = await self._backup.read_secrets(request.recovery_key) or {}
                await self._devices.refresh([self.user])
                adopted = self._identity.adopt(secrets, self._devices.get(self.user).master)
                # The identity signs this device after the next sync.
                self._identity_checked = False
                count = await self._backup.restore(request.recovery_key, secrets)
                self._set_problem("backup", "")
                keys = f"{format_count(count, 'key was', 'keys were')} restored"
                return f"{keys}, and the encryption identity of the account." if adopted else f"{keys}."

    async def _report(self) -> None:
        """Write the report for `keryx matrix` if something has changed."""
        comparisons = self._verifications.list_comparisons()
        outcome = self._outcome or self._verifications.outcome
        state = (self._file.version, self._requests, comparisons, outcome, self.problems)
        if state == self._reported:
            return
        people = self._devices.list_people()
        report = EncryptionReport(
            user=self.user,
            device=self._account.device,
            fingerprint=self._account.ed25519,
            recovery_key=self._backup.recovery_key,
            problems=self.problems,
            comparisons=comparisons,
            replaced=sorted(user for user, person in people.items() if person.replaced),
            verified=sorted(
                user
                for user, person in people.items()
                if person.verified or any(d.verified for d in person.devices.values())
            ),
            unread=self._file.count(_UNREAD),
            requests=self._requests,
            outcome=outcome,
        )
        await asyncio.to_thread(write_report, self.folder, report)
        self._reported = state


async def _open_file(path: Path) -> KeyFile:
    """Open a key file in a thread. If the caller is cancelled meanwhile, it is closed again."""
    opening = asyncio.ensure_future(asyncio.to_thread(KeyFile.open, path))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(lambda done: None if done.exception() else done.result().close())
        raise
