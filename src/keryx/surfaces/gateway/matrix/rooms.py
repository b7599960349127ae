"""A cache of the rooms that the account is in: names, topics and members. It can be dropped at any time."""

import msgspec

from keryx.core.cache import LruCache
from keryx.surfaces.gateway.matrix.event_types import (
    ENCRYPTION,
    NAME,
    TOPIC,
    EncryptionState,
    MatrixEvent,
    RoomState,
    parse_state,
)
from keryx.surfaces.gateway.matrix.homeserver import Homeserver
from keryx.surfaces.gateway.matrix.messages import MatrixAccount, MatrixRoom

_DIRECT_ROOMS_KEY = "m.direct"
_MAX_ROOMS = 1000


class EncryptedRooms:
    """Which rooms are encrypted. Encryption cannot be turned off, so what was encrypted once stays so."""

    def __init__(self, server: Homeserver) -> None:
        # The sync loop calls `forget` when a room is encrypted; otherwise a room is asked for each time.
        self.live = False
        self._server = server
        self._encrypted: dict[str, EncryptionState] = {}
        self._plain: LruCache[str, bool] = LruCache(_MAX_ROOMS)

    async def find(self, room: str) -> EncryptionState | None:
        """Return how a room is encrypted, or `None`. Raise what the homeserver raises."""
        known = self._encrypted.get(room)
        if known is not None or (self.live and room in self._plain):
            return known
        found = await self._server.find_state(room, ENCRYPTION, EncryptionState)
        if found is None:
            self._plain.put(room, True)
        else:
            self._encrypted[room] = found
        return found

    def forget(self, room: str) -> None:
        """Ask for the state of a room again."""
        self._plain.remove(room)
        self._encrypted.pop(room, None)


class RoomCache:
    """Fetches a room when it is first needed, and applies its events afterwards."""

    def __init__(self, server: Homeserver, me: MatrixAccount) -> None:
        self._server = server
        self._account = me
        self._rooms: LruCache[str, MatrixRoom] = LruCache(_MAX_ROOMS)
        self._direct_rooms: frozenset[str] | None = None

    async def get(self, room: str) -> MatrixRoom:
        known = self._rooms.get(room)
        if known is None:
            known = await self._fetch(room)
            self._rooms.put(room, known)
        return known

    def forget(self, room: str) -> None:
        self._rooms.remove(room)

    def apply_event(self, room: str, event: MatrixEvent) -> None:
        """Apply a change of the members, the name or the topic."""
        known = self._rooms.get(room)
        if known is None or event.state_key is None:
            return
        state = parse_state(event)
        match event.type:
            case "m.room.member" if state.membership == "join":
                known.names[event.state_key] = state.displayname or ""
            case "m.room.member":
                known.names.pop(event.state_key, None)
            case "m.room.name":
                known.name = state.name
            case "m.room.topic":
                known.topic = state.topic
            case _:
                pass

    async def _fetch(self, room: str) -> MatrixRoom:
        names = await self._server.list_members(room)
        name = await self._server.find_state(room, NAME, RoomState)
        topic = await self._server.find_state(room, TOPIC, RoomState)
        return MatrixRoom(
            room,
            name=name.name if name else "",
            topic=topic.topic if topic else "",
            direct=room in await self._fetch_direct_rooms(),
            names=names,
        )

    async def _fetch_direct_rooms(self) -> frozenset[str]:
        """Return the rooms that are marked as direct in the data of the account."""
        if self._direct_rooms is None:
            data = await self._server.get_account_data(self._account.user, _DIRECT_ROOMS_KEY)
            try:
                lists = msgspec.convert(data, dict[str, list[str]])
            except msgspec.ValidationError:
                lists = {}
            self._direct_rooms = frozenset(room for rooms in lists.values() for room in rooms)
        return self._direct_rooms
