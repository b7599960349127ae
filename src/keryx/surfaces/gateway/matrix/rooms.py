"""Rooms: what Keryx knows of the rooms it is in. A cache that can be thrown away at any time."""

from collections import OrderedDict

import msgspec

from keryx.surfaces.gateway.matrix.api import Homeserver
from keryx.surfaces.gateway.matrix.events import NAME, TOPIC, Event, State, state_of
from keryx.surfaces.gateway.matrix.parse import Me, Room

_DIRECT = "m.direct"
_MOST = 1000


class Rooms:
    """Rooms are asked for when something is said in them, and follow what happens there."""

    def __init__(self, server: Homeserver, me: Me) -> None:
        self._server = server
        self._me = me
        self._known: OrderedDict[str, Room] = OrderedDict()
        self._direct: frozenset[str] | None = None

    async def get(self, room: str) -> Room:
        known = self._known.get(room)
        if known is None:
            known = self._known[room] = await self._ask(room)
        self._known.move_to_end(room)
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
        return known

    def forget(self, room: str) -> None:
        self._known.pop(room, None)

    def follow(self, room: str, event: Event) -> None:
        """Take over a change of who is in a room or what it is called."""
        known = self._known.get(room)
        if known is None or event.state_key is None:
            return
        state = state_of(event)
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

    async def _ask(self, room: str) -> Room:
        names = await self._server.members(room)
        name = await self._server.state(room, NAME, State)
        topic = await self._server.state(room, TOPIC, State)
        return Room(
            room,
            name=name.name if name else "",
            topic=topic.topic if topic else "",
            direct=room in await self._directs(),
            names=names,
        )

    async def _directs(self) -> frozenset[str]:
        """The rooms that the account itself calls direct."""
        if self._direct is None:
            data = await self._server.account_data(self._me.user, _DIRECT)
            try:
                lists = msgspec.convert(data, dict[str, list[str]])
            except msgspec.ValidationError:
                lists = {}
            self._direct = frozenset(room for rooms in lists.values() for room in rooms)
        return self._direct
