"""A door for tests of one adapter: keeps what comes in, and can refuse it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from keryx.core.errors import Invalid
from keryx.core.messages import Audio, File, Image
from keryx.core.ports import Attachment, Inbound, Link, MenuItem, Receipt
from keryx.core.source import Source


class RecordingDoor:
    """`events`, `kept`, `moves`, `aliases` and `links` hold what the adapter handed over. `receive` may be given to refuse or delay."""

    def __init__(
        self,
        cursor: str | None = None,
        *,
        receive: Callable[[Inbound], Awaitable[Receipt]] | None = None,
        menu: Sequence[MenuItem] = (),
        limit: int = 1_000_000,
        stranger: Callable[[Source], bool] = lambda source: False,
    ) -> None:
        self.cursor = cursor
        self.menu = menu
        self.events: list[Inbound] = []
        self.kept: list[Attachment] = []
        self.moves: list[tuple[str, str]] = []
        self.aliases: list[tuple[str, str]] = []
        self.links: list[tuple[Link, str]] = []
        self._receive = receive
        self._limit = limit
        self._stranger = stranger
        self._changed = asyncio.Condition()

    async def receive(self, inbound: Inbound) -> Receipt:
        receipt = await self._receive(inbound) if self._receive else Receipt(duplicate=False)
        async with self._changed:
            self.events.append(inbound)
            self._changed.notify_all()
        return receipt

    async def begin(self, position: str) -> None:
        self.cursor = position

    async def keep(self, attachment: Attachment) -> Image | File | Audio:
        if len(attachment.body) > self._limit:
            raise Invalid(f"{attachment.name} is too large")
        self.kept.append(attachment)
        kind = {"image": Image, "audio": Audio}.get(attachment.mime.partition("/")[0], File)
        return kind(media=f"kept-{len(self.kept)}", mime=attachment.mime, name=attachment.name)

    async def allowed(self, source: Source) -> bool:
        return not self._stranger(source)

    async def moved(self, old: str, new: str) -> None:
        self.moves.append((old, new))

    async def alias(self, source: Source, other: str) -> None:
        self.aliases.append((source.user or "", other))

    def report(self, link: Link, detail: str = "") -> None:
        self.links.append((link, detail))

    async def wait_for(self, count: int, *, seconds: float = 10) -> list[Inbound]:
        """The events, when there are this many."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: len(self.events) >= count)
        return self.events
