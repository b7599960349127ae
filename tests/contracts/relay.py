"""Telegram through the relay for the contract suite: a connector with the real adapter, and the adapter of an instance."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.contracts.adapters import CASES
from tests.gateway.relay.pair import LocallyRenderedAdapter, open_pair

from keryx.testing.contracts import AdapterHarness, Trait
from keryx.testing.wire import UNREACHABLE_URL


@asynccontextmanager
async def open_relayed_telegram(folder: Path, store: Path) -> AsyncGenerator[AdapterHarness]:
    [telegram] = [case for case in CASES if case.name == "telegram"]
    async with telegram.open(folder) as origin, open_pair(folder, [origin.adapter], store=store) as pair:
        away = pair.build_link(url=UNREACHABLE_URL.replace("http", "ws"))
        yield replace(
            origin,
            adapter=LocallyRenderedAdapter(pair.link, origin.adapter),
            unreachable=LocallyRenderedAdapter(away, origin.adapter),
            # The connector keeps the position.
            traits=origin.traits - {Trait.RESUMES},
        )
