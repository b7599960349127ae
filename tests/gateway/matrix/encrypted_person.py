"""A person with an encrypted client: matrix-nio, which shares only vodozemac with Keryx, in a thread of its own."""

import asyncio
import base64
import hashlib
import threading
import time
from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests import left_out
from tests.gateway.matrix.person import WAIT, Person

from keryx.surfaces.gateway.matrix.encryption.sas_verification import EMOJI

T = TypeVar("T")
# It has no types.
nio: Any = pytest.importorskip(
    "nio", reason=left_out.reason("matrix-nio", why="it is not installed", command=left_out.SYNAPSE)
)
Sas: Any = import_module("nio.crypto.sas").Sas
_SYNC_MS = 1000


def correct_sas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the verification of the library that of the specification: it names the old code for a MAC that it computes in
    the new way, and encodes the commitment as hexadecimal digits."""

    def check_commitment(self: Any, key: str) -> bool:
        start = nio.Api.to_canonical_json(self.start_verification().content)
        digest = hashlib.sha256(f"{key}{start}".encode()).digest()
        return bool(self.commitment == base64.b64encode(digest).decode().rstrip("="))

    monkeypatch.setattr(Sas, "_mac_normal", "hkdf-hmac-sha256.v2")
    monkeypatch.setattr(Sas, "_mac_v1", ["hkdf-hmac-sha256.v2"])
    monkeypatch.setattr(Sas, "_check_commitment", check_commitment)


class EncryptedPerson:
    """Syncs from its start to `close`, and keeps what it has read. `plain` is the same account without encryption."""

    def __init__(self, plain: Person, url: str, folder: Path) -> None:
        self.plain = plain
        self.user = plain.user
        self.device = str(plain.call("GET", "/client/v3/account/whoami")["device_id"])
        # Every event by its id, decrypted as soon as that is possible.
        self.events: dict[str, dict[str, Any]] = {}
        self._unread: dict[str, Any] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        folder.mkdir(parents=True, exist_ok=True)
        self._task: asyncio.Task[None] | None = None
        self.run(self._start(url, folder))

    async def _start(self, url: str, folder: Path) -> None:
        config = nio.AsyncClientConfig(encryption_enabled=True, store_sync_tokens=True)
        self.client = nio.AsyncClient(
            url, self.user, device_id=self.device, store_path=str(folder), config=config
        )
        self.client.restore_login(self.user, self.device, self.plain.token)
        self.client.add_event_callback(self._see, nio.Event)
        await self.client.sync(timeout=0, full_state=True)
        await self._exchange_keys()
        self._task = asyncio.create_task(self._sync())

    async def _sync(self) -> None:
        while True:
            await self.client.sync(timeout=_SYNC_MS)
            await self._exchange_keys()

    async def _exchange_keys(self) -> None:
        await self.client.send_to_device_messages()
        if self.client.should_upload_keys:
            await self.client.keys_upload()
        if self.client.should_query_keys:
            await self.client.keys_query()
        if self.client.should_claim_keys:
            await self.client.keys_claim(self.client.get_users_for_key_claiming())
        for event in list(self._unread.values()):
            await self._see(nio.MatrixRoom(event.room_id, self.user), event)

    async def _see(self, room: Any, event: Any) -> None:
        if isinstance(event, nio.MegolmEvent):
            self._unread[event.event_id] = event
            event.room_id = room.room_id
            try:
                event = self.client.decrypt_event(event)
            except nio.EncryptionError:
                return
            self._unread.pop(event.event_id, None)
        self.events[event.event_id] = {**event.source, "room_id": room.room_id, "encrypted": event.decrypted}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT)

    def close(self) -> None:
        async def stop() -> None:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait({self._task})
            await self.client.close()

        self.run(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT)
        self._loop.close()

    @property
    def undecrypted(self) -> set[str]:
        return set(self._unread)

    def room(self, *invited: Any, direct: bool = False, **more: Any) -> str:
        """An encrypted room."""
        state = [{"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2", **more}}]
        return self.plain.room(*invited, direct=direct, initial_state=state)

    def wait_for(self, condition: Callable[[], bool], seconds: float = WAIT) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not come in time"
            time.sleep(0.05)

    def wait_for_room(self, room: str, *members: str) -> None:
        """Until this client knows that the room is encrypted, who is in it, and their devices."""

        def ready() -> bool:
            found = self.client.rooms.get(room)
            if found is None or not found.encrypted or not set(members) <= set(found.users):
                return False
            return all(list(self.client.device_store.active_user_devices(user)) for user in members)

        self.wait_for(ready)

    def send(self, room: str, content: dict[str, Any], kind: str = "m.room.message") -> str:
        answer = self.run(self.client.room_send(room, kind, content, ignore_unverified_devices=True))
        assert isinstance(answer, nio.RoomSendResponse), answer
        return str(answer.event_id)

    def say(self, room: str, text: str, **more: Any) -> str:
        return self.send(room, {"msgtype": "m.text", "body": text, **more})

    def send_file(self, room: str, body: bytes, *, name: str, mime: str) -> str:
        encrypted, keys = nio.crypto.encrypt_attachment(body)
        mxc = self.plain.upload(encrypted, name=name, mime="application/octet-stream")
        info = {"mimetype": mime, "size": len(body)}
        return self.send(
            room,
            {
                "msgtype": "m.image",
                "body": "look",
                "filename": name,
                "file": {**keys, "url": mxc},
                "info": info,
            },
        )

    def download(self, file: dict[str, Any]) -> bytes:
        body = self.plain.download(file["url"])
        return nio.crypto.decrypt_attachment(body, file["key"]["k"], file["hashes"]["sha256"], file["iv"])

    def messages(self, room: str, *, by: str) -> list[dict[str, Any]]:
        """The messages of a user in a room in their order, with the last edit in the place of each, all read by this client."""
        found: dict[str, dict[str, Any]] = {}
        for entry in self.plain.events(room):
            event = self.events.get(entry["event_id"])
            if event is None or event["sender"] != by or event["type"] != "m.room.message":
                continue
            content = event["content"]
            relation = content.get("m.relates_to", {})
            if relation.get("rel_type") == "m.replace":
                if relation["event_id"] in found:
                    found[relation["event_id"]] = {**event, "content": content["m.new_content"]}
            else:
                found[event["event_id"]] = event
        return list(found.values())

    def texts(self, room: str, *, by: str) -> list[str]:
        return [event["content"]["body"] for event in self.messages(room, by=by)]

    def send_without_key(self, room: str, text: str) -> str:
        """Send a message with a new key, which nobody gets."""

        async def send() -> str:
            self.client.olm.outbound_group_sessions.pop(room)
            self.client.olm.create_outbound_group_session(room)
            self.client.olm.outbound_group_sessions[room].shared = True
            content = {"msgtype": "m.text", "body": text}
            answer = await self.client.room_send(
                room, "m.room.message", content, ignore_unverified_devices=True
            )
            assert isinstance(answer, nio.RoomSendResponse), answer
            return str(answer.event_id)

        return self.run(send())

    def forward_key(self, room: str, user: str) -> None:
        """Send the present key of a room to a user, from its first message on."""
        olm = self.client.olm
        identity = olm.account.identity_keys
        session = olm.outbound_group_sessions[room].id
        key = olm.inbound_group_store.get(room, identity["curve25519"], session)
        content: dict[str, Any] = {
            "algorithm": "m.megolm.v1.aes-sha2",
            "forwarding_curve25519_key_chain": [],
            "room_id": room,
            "sender_claimed_ed25519_key": identity["ed25519"],
            "sender_key": identity["curve25519"],
            "session_id": session,
            "session_key": key.export_session(0),
        }

        async def send() -> None:
            device = self.find_device(user)
            channel = olm.session_store.get(device.curve25519)
            encrypted = olm._olm_encrypt(channel, device, "m.forwarded_room_key", content)
            await self.client.to_device(nio.ToDeviceMessage("m.room.encrypted", user, device.id, encrypted))

        self.run(send())

    def find_device(self, user: str) -> Any:
        return next(iter(self.client.device_store.active_user_devices(user)))

    def start_verification(self, user: str) -> None:
        self.run(self.client.start_key_verification(self.find_device(user)))

    def read_emoji(self) -> list[tuple[str, str]]:
        """The emoji that the client compares, with their names."""
        [sas] = self.client.key_verifications.values()
        self.wait_for(lambda: sas.established_sas is not None)
        return [EMOJI[index] for index in sas.established_sas.bytes(sas._extra_info).emoji_indices]

    def confirm_emoji(self) -> None:
        [sas] = self.client.key_verifications.values()
        self.run(self.client.confirm_short_auth_string(sas.transaction_id))

    def has_verified(self, user: str) -> bool:
        return bool(self.find_device(user).verified)
