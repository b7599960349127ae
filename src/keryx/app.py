"""The composition root: builds the engine with agents, adapters and store from the settings."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial

import msgspec

from keryx import agent_registry, logs, tracing
from keryx.agents import python
from keryx.agents.editor_tools import EditorTools
from keryx.agents.python import SessionEndFunction
from keryx.bootstrap import BaseApp
from keryx.config import Settings
from keryx.core import ids
from keryx.core.ports.adapter import Adapter
from keryx.core.sessions import Session
from keryx.core.turns import Turn
from keryx.engine import threaded_adapter
from keryx.engine.builtin_tools import BuiltinTools
from keryx.engine.loops.sweeps import SessionFinalizer
from keryx.engine.service import Service
from keryx.engine.units import place
from keryx.engine.units.turn_writes import TurnInput
from keryx.store import inbox, messages
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
        link = self.relay_link if everything else None
        if link is not None:
            await link.fetch_accounts()
        adapters = self.all_adapters if everything else self.usable_adapters
        policy = msgspec.structs.replace(self.policy, reach=self.reachable_platforms)
        async with (
            tracing.exporting(),
            self.database,
            self.open_hub(policy) as hub,
            agent_registry.open_agents(self.settings, BuiltinTools(hub), self.clock, editor_tools) as agents,
            agent_registry.open_speech_models(self.settings) as (transcribe, speak),
            self._open_end_hooks(everything) as hooks,
            link.running() if link else nullcontext(),
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
                speak=speak,
                adapters=adapters,
                hooks=hooks,
                kind=kind,
                everything=everything,
            )
            try:
                async with service.running(drain=drain):
                    yield service
            finally:
                await threaded_adapter.close_all(adapters)

    @asynccontextmanager
    async def _open_end_hooks(self, everything: bool) -> AsyncGenerator[dict[str, SessionFinalizer]]:
        """Open the hooks that the settings name, for a node."""
        async with AsyncExitStack() as stack:
            hooks: dict[str, SessionFinalizer] = {}
            for path in self.settings.session_end.hooks if everything else ():
                hook = await stack.enter_async_context(python.open_end_hook(path))
                hooks[path] = partial(self._run_end_hook, hook)
            yield hooks

    async def _run_end_hook(self, hook: SessionEndFunction, session: Session, reason: str) -> None:
        said = await self.database.read(
            "final.messages", lambda tx: messages.list_after(tx, session.id, after=0)
        )
        await hook(session, said, reason)

    def _describe_place(self, reading: TurnInput, turn: Turn) -> str:
        """Describe the chat for the prompt. The text is the same for every turn of a lane."""
        return place.describe(
            reading.place_facts,
            self.usable_adapters,
            self.settings.profiles,
            salt=self._salt,
            show_ids=self.settings.policy.shows_ids(turn.profile, reading.session.settings),
        )

    def _read_salt(self, tx: Transaction) -> str:
        """Return the salt of hashes in prompts. It is created once per store, so that hashes are stable."""
        salt = inbox.get_cursor(tx, _SALT_KEY)
        if salt is None:
            salt = ids.new_token() + ids.new_token()
            inbox.set_cursor(tx, _SALT_KEY, salt)
        return salt
