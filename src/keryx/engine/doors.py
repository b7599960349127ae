"""Doors: what the engine lets an adapter that listens ask for."""

import logging
from collections.abc import Sequence

from keryx.core.messages import Audio, File, Image
from keryx.core.ports import Adapter, Attachment, Inbound, Link, MenuItem, Receipt
from keryx.core.source import Source
from keryx.engine import commands, media
from keryx.engine.hub import Hub

log = logging.getLogger(__name__)


class HubDoor:
    """One adapter's door, opened where its platform was last."""

    def __init__(self, hub: Hub, adapter: Adapter, cursor: str | None) -> None:
        self._hub = hub
        self._adapter = adapter
        self.cursor = cursor
        self.menu: Sequence[MenuItem] = [MenuItem(c.name, c.help) for c in commands.COMMANDS]

    async def receive(self, inbound: Inbound) -> Receipt:
        return await self._hub.receive(inbound)

    async def keep(self, attachment: Attachment) -> Image | File | Audio:
        owner = media.door(self._adapter.platform, self._adapter.account)
        return await self._hub.media.keep(owner, attachment)

    async def allowed(self, source: Source) -> bool:
        return await self._hub.people.allowed(source)

    def report(self, link: Link, detail: str = "") -> None:
        log.info("%s:%s is %s %s", self._adapter.platform, self._adapter.account, link.value, detail)


async def opened(hub: Hub, adapter: Adapter) -> HubDoor:
    position = await hub.position(f"{adapter.platform}:{adapter.account}")
    return HubDoor(hub, adapter, position)
