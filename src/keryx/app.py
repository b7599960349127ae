"""The composition root: builds the engine with agents, adapters and store from the settings."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import msgspec

from keryx import agent_registry, logs, tracing
from keryx.agents.editor_tools import EditorTools
from keryx.bootstrap import BaseApp
from keryx.config import Settings
from keryx.core import ids
from keryx.core.ports.adapter import Adapter
from keryx.core.turns import Turn
from keryx.engine import threaded_adapter
from keryx.engine.builtin_tools import BuiltinTools
from keryx.engine.service import Service
from keryx.engine.units import place
from keryx.engine.units.turn_writes import TurnInput
from keryx.store import inbox
from keryx.store.db import Database, Transaction

_SALT_KEY = "prompt:salt"


class App(BaseApp):
    """Keryx, built from the settings."""

    def __init__(
        self, settings: Settings, *, adapters: Sequence[Adapter] = (), database: Database | None = None
    ) -> None:
        super().__init__(settings, adapters=adapters, database=database)
        self._salt = b""

    @asynccontextmanager
    async def service(
        self,
        kind: str,
        *,
        everything: bool = False,
        drain: float = 0,
        editor_tools: EditorTools | None = None,
    ) -> AsyncGenerator[Service]:
        """Run the engine in this process. Only a node does `everything`. `editor_tools` are those that an editor provides."""
        adapters = self.all_adapters if everything else self.usable_adapters
        policy = msgspec.structs.replace(self.policy, reach=self.reachable_platforms)
        async with (
            tracing.exporting(),
            self.database,
            self.open_hub(policy) as hub,
            agent_registry.open_agents(self.settings, BuiltinTools(hub), self.clock, editor_tools) as agents,
            agent_registry.open_transcriber(self.settings) as transcribe,
        ):
            self._salt = (await self.database.write("salt", self._read_salt)).encode()
            logs.set_salt(self._salt)
            service = Service(
                self.database,
                self.clock,
                policy=policy,
                choose=agents.choose,
                place=self._describe_place,
                folder=lambda session: (
                    (editor_tools.find_cwd(session.id) if editor_tools else None) or session.cwd
                ),
                transcribe=transcribe,
                adapters=adapters,
                kind=kind,
                everything=everything,
            )
            try:
                async with service.running(drain=drain):
                    yield service
            finally:
                await threaded_adapter.close_all(adapters)

    def _describe_place(self, reading: TurnInput, turn: Turn) -> str:
        """Describe the chat for the prompt. The text is the same for every turn of a lane."""
        return place.describe(
            reading.place_facts, self.usable_adapters, self.settings.profiles, salt=self._salt
        )

    def _read_salt(self, tx: Transaction) -> str:
        """Return the salt of hashes in prompts. It is created once per store, so that hashes are stable."""
        salt = inbox.get_cursor(tx, _SALT_KEY)
        if salt is None:
            salt = ids.new_token() + ids.new_token()
            inbox.set_cursor(tx, _SALT_KEY, salt)
        return salt
