"""The composition root: the only module that knows everyone."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import msgspec

from keryx import roster
from keryx.agents.lent import Lent
from keryx.base import Base
from keryx.config import Settings
from keryx.core import ids
from keryx.core.ports import Adapter
from keryx.core.turns import Turn
from keryx.engine import place
from keryx.engine.builtin import BuiltinTools
from keryx.engine.policy import reachable
from keryx.engine.record import Reading
from keryx.engine.service import Service
from keryx.store import cursors
from keryx.store.database import Database, Transaction

_SALT = "prompt:salt"


class App(Base):
    """Keryx with its parts put together by the settings."""

    def __init__(
        self, settings: Settings, *, adapters: Sequence[Adapter] = (), database: Database | None = None
    ) -> None:
        super().__init__(settings, adapters=adapters, database=database)
        self._salt = b""

    @asynccontextmanager
    async def service(
        self, kind: str, *, everything: bool = False, drain: float = 0, lent: Lent | None = None
    ) -> AsyncGenerator[Service]:
        """The engine at work in this process. Only a node does `everything`. `lent` is what an editor lends to turns."""
        adapters = self.all_adapters if everything else self.usable_adapters
        policy = msgspec.structs.replace(self.settings.policy, reach=reachable(adapters))
        async with (
            self.database,
            self.bare_hub(policy) as hub,
            roster.opened(self.settings, BuiltinTools(hub), self.clock, lent) as agents,
        ):
            self._salt = (await self.database.write("salt", self._read_salt)).encode()
            service = Service(
                self.database,
                self.clock,
                policy=policy,
                choose=agents.choose,
                place=self._place,
                folder=lambda session: (lent.folder(session.id) if lent else None) or session.cwd,
                adapters=adapters,
                kind=kind,
                everything=everything,
            )
            async with service.running(drain=drain):
                yield service

    def _place(self, reading: Reading, turn: Turn) -> str:
        """What the agent is told about its place; the same bytes for every turn of a lane."""
        return place.describe(reading.around, self.usable_adapters, self.settings.profiles, salt=self._salt)

    def _read_salt(self, tx: Transaction) -> str:
        """The salt of hashes in prompts: made once per store, so that they stay the same."""
        salt = cursors.get(tx, _SALT)
        if salt is None:
            salt = ids.token() + ids.token()
            cursors.move(tx, _SALT, salt, now=self.clock.now())
        return salt
