"""The pages /healthz, /readyz and /metrics. They contain no secrets and no message text."""

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from keryx.core import ids
from keryx.core.errors import KeryxError
from keryx.core.ports.adapter import LinkState, PlatformStatus
from keryx.engine.hub import Hub

_READY_TIMEOUT_SECONDS = 5.0
_COUNTERS = (
    ("received", "Events taken in."),
    ("sent", "Parts of answers sent."),
    ("failed", "Attempts to send that failed."),
    ("throttled", "Attempts that the platform asked to make later."),
)
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
        except TimeoutError:
            reason = f"the store did not answer within {_READY_TIMEOUT_SECONDS:g} seconds"
        except KeryxError as exc:
            reason = str(exc)
        return PlainTextResponse(f"{reason or 'ok'}\n", status_code=503 if reason else 200)

    async def metrics(_: Request) -> Response:
        uptime = round(time.monotonic() - started, 3)
        gauges = await hub.gauges()
        unsent = list(gauges.deliveries.items())
        lines = [
            *_format_transactions(meters()),
            *_format_metric("turns", "gauge", "Turns that run or wait.", "state", list(gauges.turns.items())),
            *_format_metric("deliveries", "gauge", "Deliveries that are not sent.", "state", unsent),
            *_format_metric("sessions", "gauge", "Sessions.", "", [("", gauges.sessions)]),
            *_format_metric("lanes", "gauge", "Lanes.", "", [("", gauges.lanes)]),
            *_format_adapters(connections()),
            *_format_metric("uptime_seconds", "gauge", "Since this process serves.", "", [("", uptime)]),
            *_format_metric(
                "resident_memory_bytes", "gauge", "Memory in use.", "", [("", _read_resident_memory())]
            ),
        ]
        return Response("\n".join(lines) + "\n", media_type=_METRICS_TYPE)

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]


def _format_transactions(meters: Mapping[str, TransactionTotals]) -> Iterator[str]:
    ordered = sorted(meters.items())
    yield from _format_metric(
        "transactions_total", "counter", "Units of work.", "label", [(k, m.units) for k, m in ordered]
    )
    yield from _format_metric(
        "transaction_errors_total",
        "counter",
        "Units of work that failed.",
        "label",
        [(k, m.errors) for k, m in ordered],
    )
    yield from _format_metric(
        "transaction_seconds_total",
        "counter",
        "Time in units of work, waiting included.",
        "label",
        [(k, round(m.seconds, 6)) for k, m in ordered],
    )


def _format_adapters(statuses: Sequence[PlatformStatus]) -> Iterator[str]:
    names = [(ids.escape(f"{c.platform}/{c.account}").rstrip("/").replace('"', "%22"), c) for c in statuses]
    yield from _format_metric(
        "adapter_connected",
        "gauge",
        "Whether the platform is connected.",
        "adapter",
        [(name, int(c.link is LinkState.CONNECTED)) for name, c in names],
    )
    for what, about in _COUNTERS:
        counts = [(name, int(msgspec.structs.asdict(c)[what])) for name, c in names]
        yield from _format_metric(f"adapter_{what}_total", "counter", about, "adapter", counts)


def _format_metric(
    name: str, kind: str, about: str, label: str, values: list[tuple[str, int]] | list[tuple[str, float]]
) -> Iterator[str]:
    yield f"# HELP keryx_{name} {about}"
    yield f"# TYPE keryx_{name} {kind}"
    for value in values:
        tag = f'{{{label}="{value[0]}"}}' if label else ""
        yield f"keryx_{name}{tag} {value[1]}"


def _read_resident_memory() -> int:
    """Return the resident memory of this process; without /proc, its maximum so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")
