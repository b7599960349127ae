"""What /readyz says about the store."""

from types import SimpleNamespace
from typing import cast

import httpx
from starlette.applications import Starlette

from keryx.core.errors import DiskFull
from keryx.engine.hub import Hub
from keryx.surfaces.web.health import build_health_routes


async def test_a_node_whose_store_takes_no_writes_is_not_ready() -> None:
    full = [True, False]

    async def answer() -> None:
        """Reads work."""

    async def check_writable() -> None:
        if full.pop(0):
            raise DiskFull("the disk is full")

    routes = build_health_routes(
        cast(Hub, SimpleNamespace(check_ready=answer)),
        meters=dict,
        check_writable=check_writable,
        stopping=lambda: False,
    )
    transport = httpx.ASGITransport(Starlette(routes=routes))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        refused, ready = await client.get("/readyz"), await client.get("/readyz")
    assert (refused.status_code, refused.text) == (503, "the disk is full\n")
    assert (ready.status_code, ready.text) == (200, "ok\n")
