"""Traces for an OpenTelemetry collector. Ids follow from the id of the turn, so that all processes write into one trace and nothing is passed or stored."""

import contextlib
import hashlib
import logging
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol

import anyio
import anyio.to_thread
import msgspec

from keryx.core.errors import format_install_command

log = logging.getLogger(__name__)
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_DELAY_VARIABLE = "OTEL_BSP_SCHEDULE_DELAY"
# What a killed process loses at most.
_DELAY_MILLIS = 500
_FLUSH_SECONDS = 2.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AttributeValue = str | int | float | bool


class SpanRole(StrEnum):
    INTERNAL = "internal"
    # Takes a message in.
    CONSUMER = "consumer"
    # Calls a model or a tool.
    CLIENT = "client"
    # Sends an answer.
    PRODUCER = "producer"


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a trace, with the times of the store."""

    # What the trace is named after: the turn.
    trace: str
    name: str
    # Tells it apart from other steps of the trace. A step that is exported again has the same one.
    key: str
    # The key of the step that it belongs to, empty for the first.
    parent: str = ""
    role: SpanRole = SpanRole.INTERNAL
    start: datetime
    end: datetime
    attributes: Mapping[str, AttributeValue] = {}
    # In a few words, without message text.
    error: str = ""


class SpanSink(Protocol):
    def write(self, span: Span) -> None: ...

    def close(self) -> None: ...


_sinks: list[SpanSink] = []


def is_enabled() -> bool:
    return bool(_sinks)


def export(spans: Iterable[Span]) -> None:
    """Hand spans to the exporter, which sends them from a thread of its own. Without one, nothing happens."""
    for sink in _sinks:
        for span in spans:
            sink.write(span)


def derive_trace_id(trace: str) -> int:
    return int.from_bytes(hashlib.blake2b(trace.encode(), digest_size=16).digest())


def derive_span_id(trace: str, key: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{trace}/{key}".encode(), digest_size=8).digest())


@asynccontextmanager
async def exporting() -> AsyncGenerator[None]:
    """Export the traces of this process while the block runs, if the environment names a collector."""
    named = any(os.environ.get(name) for name in ENDPOINT_VARIABLES)
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    sink: SpanSink | None = None
    if named and not disabled and not _sinks:
        try:
            sink = _open_otlp_sink()
        except ImportError as exc:
            log.warning("no traces are sent (%s): run `%s`", exc, format_install_command("otel"))
    if sink is None:
        yield
        return
    _sinks.append(sink)
    try:
        yield
    finally:
        _sinks.remove(sink)
        with anyio.CancelScope(shield=True), anyio.move_on_after(_FLUSH_SECONDS):
            await anyio.to_thread.run_sync(sink.close, abandon_on_cancel=True)


def _open_otlp_sink() -> SpanSink:
    # An optional extra, imported only where a collector is named.
    from opentelemetry import trace as api  # noqa: PLC0415
    from opentelemetry.context import Context  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.id_generator import IdGenerator  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import Decision  # noqa: PLC0415

    class DerivedIds(IdGenerator):
        """Returns the ids of the span that is about to be made."""

        trace = span = 0

        def generate_trace_id(self) -> int:
            return self.trace

        def generate_span_id(self) -> int:
            return self.span

    class OtlpSink:
        def __init__(self) -> None:
            resource = Resource.create({})
            if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
                resource = resource.merge(Resource({SERVICE_NAME: "keryx"}))
            self._ids = DerivedIds()
            self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
            delay = None if os.environ.get(_DELAY_VARIABLE) else _DELAY_MILLIS
            self._provider.add_span_processor(
                BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=delay)
            )
            self._tracer = self._provider.get_tracer("keryx")

        def write(self, span: Span) -> None:
            self._ids.trace = derive_trace_id(span.trace)
            self._ids.span = derive_span_id(span.trace, span.key)
            made = self._tracer.start_span(
                span.name,
                context=self._build_parent(span),
                kind=api.SpanKind[span.role.name],
                attributes=dict(span.attributes),
                start_time=_to_nanos(span.start),
            )
            if span.error:
                made.set_status(api.StatusCode.ERROR, span.error)
            made.end(end_time=_to_nanos(max(span.start, span.end)))

        def _build_parent(self, span: Span) -> Context:
            if not span.parent:
                return Context()
            # The decision about the whole trace, which the sampler takes by its id.
            chosen = self._provider.sampler.should_sample(None, self._ids.trace, span.name).decision
            sampled = chosen is Decision.RECORD_AND_SAMPLE
            parent = api.SpanContext(
                self._ids.trace,
                derive_span_id(span.trace, span.parent),
                is_remote=True,
                trace_flags=api.TraceFlags(api.TraceFlags.SAMPLED if sampled else api.TraceFlags.DEFAULT),
            )
            return api.set_span_in_context(api.NonRecordingSpan(parent), Context())

        def close(self) -> None:
            with contextlib.suppress(RuntimeError):
                self._provider.shutdown()

    return OtlpSink()


def _to_nanos(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000
