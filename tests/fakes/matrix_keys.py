"""The part of a Matrix homeserver that keys pass through, for several accounts: what each device uploads, claims and sends."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import msgspec

from keryx.surfaces.gateway.matrix.event_types import SyncResponse
from keryx.testing.wire import WireFake, WireRequest, WireResponse, json_response

_CLIENT = "/_matrix/client/v3"


@dataclass
class FakeKeyServer(WireFake):
    """The token of an account is its user id, a space, and its device."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.members: dict[str, list[str]] = {}
        self.devices: dict[str, dict[str, dict[str, Any]]] = {}
        self.identities: dict[str, dict[str, Any]] = {}
        self.one_time_keys: dict[tuple[str, str], dict[str, Any]] = {}
        self.fallback_keys: dict[tuple[str, str], dict[str, Any]] = {}
        self.uploaded_names: list[str] = []
        self.queues: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.account_data: dict[str, Any] = {}
        # By user, and the keys in them by user and room.
        self.backups: dict[str, dict[str, Any]] = {}
        self.saved: dict[str, dict[str, dict[str, Any]]] = {}
        # What was sent to each room.
        self.events: dict[str, list[dict[str, Any]]] = {}
        # Requests whose path contains one of these get an error.
        self.broken: set[str] = set()

    def sync(
        self, user: str, device: str, *, changed: tuple[str, ...] = (), keep: bool = False
    ) -> SyncResponse:
        """What the next sync of a device brings. With `keep` the sync after it brings it again, as after a crash."""
        queue = self.queues.setdefault((user, device), [])
        fallback = ["signed_curve25519"] if self.fallback_keys.get((user, device)) else []
        body = {
            "next_batch": "s1",
            "to_device": {"events": list(queue)},
            "device_lists": {"changed": list(changed)},
            "device_one_time_keys_count": {
                "signed_curve25519": len(self.one_time_keys.get((user, device), {}))
            },
            "device_unused_fallback_key_types": fallback,
        }
        if not keep:
            queue.clear()
        return msgspec.json.decode(json.dumps(body), type=SyncResponse)

    def handle(self, request: WireRequest) -> WireResponse | None:
        if any(part in request.path for part in self.broken):
            return json_response({"errcode": "M_UNKNOWN", "error": "broken"}, status=502)
        self.wait_until_released(request.path.removeprefix(_CLIENT))
        user, _, device = request.headers["authorization"].removeprefix("Bearer ").partition(" ")
        body: dict[str, Any] = json.loads(request.body) if request.body else {}
        routes: list[tuple[str, str, Callable[..., Any]]] = [
            ("GET", "/account/whoami", lambda: {"user_id": user, "device_id": device}),
            ("POST", "/keys/upload", partial(self._upload, user, device, body)),
            ("POST", "/keys/query", partial(self._query, body)),
            ("POST", "/keys/claim", partial(self._claim, body)),
            ("POST", "/keys/device_signing/upload", partial(self._identify, user, body)),
            ("POST", "/keys/signatures/upload", partial(self._sign, body)),
            ("PUT", "/sendToDevice/([^/]+)/[^/]+", partial(self._send, user, body)),
            ("GET", "/rooms/([^/]+)/members", self._list_members),
            ("GET", "/rooms/[^/]+/state/m.room.encryption", lambda: {"algorithm": "m.megolm.v1.aes-sha2"}),
            ("PUT", "/rooms/([^/]+)/send/([^/]+)/[^/]+", partial(self._add, user, body)),
            ("GET", "(/user/.*/account_data/.*)", self.account_data.get),
            ("PUT", "(/user/.*/account_data/.*)", partial(self._put_data, body)),
            ("GET", "/room_keys/version", lambda: self.backups.get(user)),
            ("POST", "/room_keys/version", partial(self._create_backup, user, body)),
            ("PUT", "/room_keys/keys", partial(self._save, user, body)),
            ("GET", "/room_keys/keys", partial(self._list_saved, user)),
        ]
        for method, pattern, handle in routes:
            found = re.fullmatch(f"{_CLIENT}{pattern}", request.path)
            if found and method == request.method:
                with self.lock:
                    answer = handle(*map(unquote, found.groups()))
                return (
                    json_response(answer)
                    if answer is not None
                    else json_response({"errcode": "M_NOT_FOUND", "error": "nothing"}, status=404)
                )
        return json_response({"errcode": "M_UNRECOGNIZED", "error": request.path}, status=404)

    def _upload(self, user: str, device: str, body: dict[str, Any]) -> dict[str, Any]:
        if "device_keys" in body:
            assert device not in self.devices.get(user, {}), "the keys of a device never change"
            self.devices.setdefault(user, {})[device] = body["device_keys"]
        created = body.get("one_time_keys", {})
        names = [f"{user} {device} {name}" for name in created]
        assert not set(names) & set(self.uploaded_names), "a one-time key is uploaded once"
        self.uploaded_names += names
        self.one_time_keys.setdefault((user, device), {}).update(created)
        if "fallback_keys" in body:
            self.fallback_keys[user, device] = body["fallback_keys"]
        return {"one_time_key_counts": {}}

    def _query(self, body: dict[str, Any]) -> dict[str, Any]:
        wanted = body["device_keys"]
        return {
            "device_keys": {user: self.devices.get(user, {}) for user in wanted},
            "master_keys": {u: self.identities[u]["master_key"] for u in wanted if u in self.identities},
            "self_signing_keys": {
                u: self.identities[u]["self_signing_key"] for u in wanted if u in self.identities
            },
            "failures": {},
        }

    def _claim(self, body: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, dict[str, Any]] = {}
        for user, devices in body["one_time_keys"].items():
            for device in devices:
                keys = self.one_time_keys.get((user, device), {})
                if keys:
                    name = next(iter(keys))
                    found.setdefault(user, {})[device] = {name: keys.pop(name)}
                elif (user, device) in self.fallback_keys:
                    found.setdefault(user, {})[device] = self.fallback_keys[user, device]
        return {"one_time_keys": found}

    def _identify(self, user: str, body: dict[str, Any]) -> dict[str, Any]:
        self.identities[user] = body
        return {}

    def _sign(self, body: dict[str, Any]) -> dict[str, Any]:
        for user, objects in body.items():
            for name, value in objects.items():
                if name in self.devices[user]:
                    self.devices[user][name] = value
        return {}

    def _send(self, sender: str, body: dict[str, Any], kind: str) -> dict[str, Any]:
        for user, devices in body["messages"].items():
            for device, content in devices.items():
                names = list(self.devices.get(user, {})) if device == "*" else [device]
                for name in names:
                    event = {"type": kind, "sender": sender, "content": content}
                    self.queues.setdefault((user, name), []).append(event)
        return {}

    def _list_members(self, room: str) -> dict[str, Any]:
        return {
            "chunk": [
                {
                    "type": "m.room.member",
                    "sender": user,
                    "state_key": user,
                    "content": {"membership": "join"},
                }
                for user in self.members[room]
            ]
        }

    def _add(self, sender: str, content: dict[str, Any], room: str, kind: str) -> dict[str, Any]:
        events = self.events.setdefault(room, [])
        name = f"$sent{len(events)}"
        events.append({"type": kind, "sender": sender, "event_id": name, "content": content})
        return {"event_id": name}

    def _put_data(self, body: dict[str, Any], path: str) -> dict[str, Any]:
        self.account_data[path] = body
        return {}

    def _create_backup(self, user: str, body: dict[str, Any]) -> dict[str, Any]:
        self.backups[user] = {**body, "version": str(len(self.backups) + 1), "count": 0, "etag": "0"}
        return {"version": self.backups[user]["version"]}

    def _save(self, user: str, body: dict[str, Any]) -> dict[str, Any]:
        for room, value in body["rooms"].items():
            self.saved.setdefault(user, {}).setdefault(room, {}).update(value["sessions"])
        return {"count": 0, "etag": "0"}

    def _list_saved(self, user: str) -> dict[str, Any]:
        return {"rooms": {room: {"sessions": found} for room, found in self.saved.get(user, {}).items()}}
