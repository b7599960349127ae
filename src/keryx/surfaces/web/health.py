"""The pages /healthz, /readyz and /metrics. They contain no secrets and no message text."""

import resource
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from keryx import metrics
from keryx.core import ids
from keryx.core.errors import KeryxError
from keryx.core.ports.adapter import LinkState, PlatformStatus
from keryx.engine.hub import Hub
from keryx.process_tuning import read_resident_memory

_READY_TIMEOUT_SECONDS = 5.0
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class TransactionTotals(Protocol):
    """Totals of the units of work of one label."""

    @property
    def units(self) -> int: ...

    @property
    def errors(self) -> int: ...

    @property
    def seconds(self) -> float: ...


ReadTransactionTotals = Callable[[], Mapping[str, TransactionTotals]]


def build_health_routes(
    hub: Hub,
    *,
    meters: ReadTransactionTotals,
    check_writable: Callable[[], Awaitable[None]],
    stopping: Callable[[], bool],
    connections: Callable[[], Sequence[PlatformStatus]] = list,
) -> list[Route]:
    """Build the routes /healthz, /readyz and /metrics."""
    started = time.monotonic()

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        reason = "Keryx is stopping" if stopping() else ""
        try:
            if not reason:
                with anyio.fail_after(_READY_TIMEOUT_SECONDS):
                    await hub.check_ready()
                    await check_writable()
        except TimeoutError:
            reason = f"the store did not answer within {_READY_TIMEOUT_SECONDS:g} seconds"
        except KeryxError as exc:
            reason = str(exc)
        # A platform that does not work is shown, but the node is ready: it serves everything else. The page is public, so it
        # has no details.
        troubles = [
            f"{_name_adapter(c)}: {c.link.value} since {c.since.isoformat(timespec='seconds')}; `keryx gateway status` tells why"
            for c in connections()
            if c.link in (LinkState.REFUSED, LinkState.BROKEN)
        ]
        lines = [reason or "ok", *troubles]
        return PlainTextResponse("\n".join(lines) + "\n", status_code=503 if reason else 200)

    async def show_metrics(_: Request) -> Response:
        gauges = await hub.gauges()
        metrics.OPEN_TURNS.set(_label(gauges.turns))
        metrics.OLDEST_WAITING.set(gauges.oldest_waiting)
        metrics.UNSENT.set(_label(gauges.deliveries))
        metrics.SESSIONS.set(gauges.sessions)
        metrics.LANES.set(gauges.lanes)
        metrics.UPTIME.set(round(time.monotonic() - started, 3))
        metrics.MEMORY.set(_measure_memory())
        totals = meters()
        metrics.TRANSACTIONS.set(_label({name: m.units for name, m in totals.items()}))
        metrics.TRANSACTION_ERRORS.set(_label({name: m.errors for name, m in totals.items()}))
        metrics.TRANSACTION_TIME.set(_label({name: m.seconds for name, m in totals.items()}))
        names = {_name_adapter(c): c for c in connections()}
        metrics.ADAPTER_CONNECTED.set(_label({n: c.link is LinkState.CONNECTED for n, c in names.items()}))
        metrics.ADAPTER_REFUSED.set(_label({n: c.link is LinkState.REFUSED for n, c in names.items()}))
        for counter, metric in metrics.ADAPTER_COUNTERS.items():
            metric.set(_label({n: int(msgspec.structs.asdict(c)[counter]) for n, c in names.items()}))
        return Response(metrics.render(), media_type=_METRICS_TYPE)

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", show_metrics)]


def _name_adapter(status: PlatformStatus) -> str:
    return ids.escape(f"{status.platform}/{status.account}").rstrip("/")


def _label(values: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    return {(name,): value for name, value in values.items()}


def _measure_memory() -> int:
    """Return the resident memory of this process; without /proc, its maximum so far."""
    try:
        return read_resident_memory()
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
