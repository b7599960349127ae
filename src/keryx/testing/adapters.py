"""An adapter that records what it is given to send, and fails on demand."""

import asyncio
from collections.abc import Sequence

import msgspec

from keryx.core.deliveries import AGAIN, Target
from keryx.core.errors import Gone, SendError
from keryx.core.ports import Capabilities, Door, Link, Parcel


class RecordingAdapter:
    """`arrived` is what the platform shows: parts that were accepted, in order, once per key if the platform has
    native idempotency. Errors in `before` are raised instead of accepting, those in `after` once accepted."""

    account = ""
    hook = None

    def __init__(
        self,
        platform: str = "fake",
        *,
        capabilities: Capabilities = Capabilities(threads=True),
        limit: int = 0,
    ) -> None:
        self.platform = platform
        self.capabilities = capabilities
        self.arrived: list[Parcel] = []
        self.before: list[SendError] = []
        self.after: list[SendError] = []
        self._limit = limit
        self._sent = asyncio.Condition()

        self.typed: list[Target] = []

    @property
    def texts(self) -> list[str]:
        """What a person reads, the mark of a repetition included."""
        return [(AGAIN if p.again else "") + p.text for p in self.arrived]

    async def listen(self, door: Door) -> None:
        door.report(Link.CONNECTED)
        await asyncio.Event().wait()

    async def typing(self, target: Target) -> None:
        self.typed.append(target)

    def parts(self, text: str) -> Sequence[str]:
        if not self._limit:
            return [text]
        return [text[i : i + self._limit] for i in range(0, len(text), self._limit)]

    async def send(self, parcel: Parcel) -> str:
        if self.before:
            raise self.before.pop(0)
        if parcel.edits:
            return await self._edit(parcel)
        known = [n for n, p in enumerate(self.arrived) if p.key == parcel.key]
        if not known or self.capabilities.idempotency == "none":
            self.arrived.append(parcel)
            async with self._sent:
                self._sent.notify_all()
        if self.after:
            raise self.after.pop(0)
        return f"{self.platform}-{known[0] if known else len(self.arrived) - 1}"

    async def _edit(self, parcel: Parcel) -> str:
        number = int(parcel.edits.rpartition("-")[2])
        if number >= len(self.arrived):
            raise Gone("there is no such message")
        self.arrived[number] = msgspec.structs.replace(parcel, key=self.arrived[number].key)
        async with self._sent:
            self._sent.notify_all()
        if self.after:
            raise self.after.pop(0)
        return parcel.edits

    async def wait_for(self, count: int, *, seconds: float = 10) -> None:
        """Return when this many parts have arrived."""
        async with asyncio.timeout(seconds), self._sent:
            await self._sent.wait_for(lambda: len(self.arrived) >= count)
