"""Accounts behind the relay for the contract suite: a connector with the real adapter, and the adapter of an instance."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.contracts import slack
from tests.contracts.adapters import CASES as OWN_CASES
from tests.contracts.adapters import AdapterCase
from tests.contracts.discord import open_discord
from tests.contracts.email import open_harness
from tests.gateway.relay.pair import LocallyRenderedAdapter, open_pair

from keryx.testing.contracts import AdapterHarness, Trait
from keryx.testing.wire import UNREACHABLE_URL

# The connector keeps the position, and what the adapter stores.
_KEPT_THERE = {Trait.RESUMES, Trait.KEEPS_STATE}
_TELEGRAM = next(case for case in OWN_CASES if case.name == "telegram")
_EMAIL = AdapterCase(name="email", open=lambda folder: open_harness())
CASES = (_TELEGRAM, AdapterCase(name="discord", open=open_discord), slack.STREAMING_CASE, _EMAIL)


@asynccontextmanager
async def open_relayed(case: AdapterCase, folder: Path, store: Path) -> AsyncGenerator[AdapterHarness]:
    async with (
        case.open(folder) as origin,
        open_pair(folder, [origin.adapter], store=store, cursor=origin.cursor) as pair,
    ):
        build = partial(LocallyRenderedAdapter, origin=origin.adapter)
        yield replace(
            origin,
            adapter=build(pair.link),
            unreachable=build(pair.build_link(url=UNREACHABLE_URL.replace("http", "ws"))),
            traits=origin.traits - _KEPT_THERE,
            cursor=None,
            restart=None,
        )
