"""Broken: stands in for an adapter that fails before it is made, so that the others run and its state is seen."""

from collections.abc import Sequence

from keryx.core.deliveries import Target
from keryx.core.errors import NotSent, Unavailable
from keryx.core.ports import Capabilities, Door, Parcel


class BrokenAdapter:
    """`told` says what is wrong. What is to be sent waits."""

    account = ""
    hook = None
    # Rules of access are kept as they are written: nobody knows what the platform has.
    capabilities = Capabilities(roles=("*",), threads=True)

    def __init__(self, platform: str, told: str) -> None:
        self.platform = platform
        self._told = told

    async def listen(self, door: Door) -> None:
        raise Unavailable(self._told)

    async def typing(self, target: Target) -> None:
        """Nothing is shown."""

    def parts(self, text: str) -> Sequence[str]:
        return [text]

    async def send(self, parcel: Parcel) -> str:
        raise NotSent(self._told)
