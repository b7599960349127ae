"""An OpenTelemetry collector on loopback that keeps the spans it is sent over OTLP/HTTP."""

from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from keryx.testing.wire import WireFake, WireRequest, WireResponse


@dataclass(frozen=True, slots=True)
class SeenSpan:
    service: str
    trace: str
    id: str
    parent: str
    name: str
    start: int
    end: int
    attributes: dict[str, str]
    failed: bool


@dataclass
class Collector(WireFake):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.spans: list[SeenSpan] = []

    def handle(self, request: WireRequest) -> WireResponse | None:
        if request.path != "/v1/traces":
            return WireResponse(404)
        batch = ExportTraceServiceRequest.FromString(request.body)
        with self.lock:
            for resource in batch.resource_spans:
                service = next(
                    a.value.string_value for a in resource.resource.attributes if a.key == "service.name"
                )
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        self.spans.append(
                            SeenSpan(
                                service,
                                span.trace_id.hex(),
                                span.span_id.hex(),
                                span.parent_span_id.hex(),
                                span.name,
                                span.start_time_unix_nano,
                                span.end_time_unix_nano,
                                {
                                    a.key: a.value.string_value or str(a.value.int_value)
                                    for a in span.attributes
                                },
                                span.status.code == span.status.STATUS_CODE_ERROR,
                            )
                        )
            self.lock.notify_all()
        return WireResponse(
            200,
            ExportTraceServiceResponse().SerializeToString(),
            {"content-type": "application/x-protobuf"},
        )

    def has_names(self, *names: str) -> bool:
        """Wait until spans of all these names have come."""
        return self.wait_for(lambda: set(names) <= {span.name for span in self.spans})
