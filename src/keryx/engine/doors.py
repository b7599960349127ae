"""Doors: what the engine lets an adapter that listens ask for."""

from collections.abc import Sequence

from keryx.core.messages import Audio, File, Image
from keryx.core.ports import Adapter, Attachment, Inbound, Link, MenuItem, Receipt
from keryx.core.source import Source
from keryx.engine import commands, media
from keryx.engine.connections import Connections
from keryx.engine.hub import Hub
from keryx.engine.roles import Roles


class HubDoor:
    """One adapter's door, opened where its platform was last."""

    def __init__(
        self, hub: Hub, adapter: Adapter, connections: Connections, roles: Roles, cursor: str | None
    ) -> None:
        self._hub = hub
        self._roles = roles
        self._adapter = adapter
        self._connections = connections
        self.cursor = cursor
        self.menu: Sequence[MenuItem] = [MenuItem(c.name, c.help) for c in commands.COMMANDS]

    async def receive(self, inbound: Inbound) -> Receipt:
        known = await self._roles.heard(inbound) if self._roles.matter else inbound
        receipt = await self._hub.receive(known)
        self._connections.count(self._adapter, "received")
        return receipt

    async def begin(self, position: str) -> None:
        await self._hub.begin(_name(self._adapter), position)

    async def keep(self, attachment: Attachment) -> Image | File | Audio:
        owner = media.door(self._adapter.platform, self._adapter.account)
        return await self._hub.media.keep(owner, attachment)

    async def allowed(self, source: Source) -> bool:
        known = await self._roles.now(source) if self._roles.matter else source
        return await self._hub.people.allowed(known)

    async def moved(self, old: str, new: str) -> None:
        await self._hub.lanes.move_chat(self._adapter.platform, self._adapter.account, old, new)

    async def alias(self, source: Source, other: str) -> None:
        await self._hub.people.known_as(source, other)

    def report(self, link: Link, detail: str = "") -> None:
        self._connections.report(self._adapter, link, detail)


async def opened(hub: Hub, adapter: Adapter, connections: Connections, roles: Roles) -> HubDoor:
    return HubDoor(hub, adapter, connections, roles, await hub.position(_name(adapter)))


def _name(adapter: Adapter) -> str:
    return f"{adapter.platform}:{adapter.account}"
