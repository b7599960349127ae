"""The metrics of this process: every counter, histogram and gauge is defined here, counted where things happen, and shown at /metrics."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from enum import StrEnum

_PREFIX = "keryx_"
# Further label values of one metric are counted as `OTHER`, so that it cannot grow without bound.
MAX_SERIES = 200
_MAX_LABEL_LENGTH = 80
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
OTHER = "other"
Labels = tuple[str, ...]


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


REGISTRY: "list[Metric]" = []


class Metric:
    """One metric with its values by label. Used from the event loop alone."""

    kind: MetricKind

    def __init__(self, name: str, about: str, *labels: str) -> None:
        self.name = _PREFIX + name
        self.about = about
        self.labels = labels
        REGISTRY.append(self)

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its lines at /metrics."""
        return (self.name,)

    def format_values(self) -> Iterator[str]:
        """Return the lines of its values."""
        raise NotImplementedError

    def _format_line(self, suffix: str, labels: Labels, value: float, *extra: tuple[str, str]) -> str:
        pairs = [*zip(self.labels, labels, strict=True), *extra]
        tags = ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in pairs)
        number = int(value) if value == int(value) else round(value, 6)
        return f"{self.name}{suffix}{{{tags}}} {number}" if tags else f"{self.name}{suffix} {number}"


class Counter(Metric):
    kind = MetricKind.COUNTER

    def __init__(self, name: str, about: str, *labels: str) -> None:
        super().__init__(name, about, *labels)
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, *labels: str, by: float = 1) -> None:
        values = self._values
        if labels not in values:
            labels = _bound(labels, len(values))
        values[labels] = values.get(labels, 0) + by

    def get(self, *labels: str) -> float:
        return self._values.get(labels, 0)

    def format_values(self) -> Iterator[str]:
        for labels, value in sorted(self._values.items()):
            yield self._format_line("", labels, value)


class Histogram(Metric):
    """Counts durations in seconds."""

    kind = MetricKind.HISTOGRAM

    def __init__(self, name: str, about: str, *labels: str, buckets: tuple[float, ...]) -> None:
        super().__init__(name, about, *labels)
        self.buckets = buckets
        # For each series, the count of each bucket and beyond the last one, then the sum.
        self._values: dict[Labels, list[float]] = {}

    @property
    def series(self) -> tuple[str, ...]:
        return tuple(f"{self.name}_{suffix}" for suffix in ("bucket", "sum", "count"))

    def observe(self, seconds: float, *labels: str) -> None:
        row = self._values.get(labels)
        if row is None:
            labels = _bound(labels, len(self._values))
            row = self._values.setdefault(labels, [0] * (len(self.buckets) + 2))
        # Times of the store come from the wall clock, which may be set back.
        seconds = max(seconds, 0.0)
        row[bisect_left(self.buckets, seconds)] += 1
        row[-1] += seconds

    def count(self, *labels: str) -> int:
        return int(sum(self._values.get(labels, [0, 0])[:-1]))

    def format_values(self) -> Iterator[str]:
        for labels, row in sorted(self._values.items()):
            total = 0.0
            for bound, number in zip((*self.buckets, float("inf")), row[:-1], strict=True):
                total += number
                edge = "+Inf" if bound == float("inf") else f"{bound:g}"
                yield self._format_line("_bucket", labels, total, ("le", edge))
            yield self._format_line("_sum", labels, row[-1])
            yield self._format_line("_count", labels, total)


class SampledMetric(Metric):
    """A metric whose values are read from elsewhere for each scrape."""

    def __init__(
        self, name: str, about: str, *labels: str, kind: MetricKind = MetricKind.GAUGE, most: int = MAX_SERIES
    ) -> None:
        super().__init__(name, about, *labels)
        self.kind = kind
        self._most = most
        self._values: dict[Labels, float] = {}

    def set(self, values: Mapping[Labels, float] | float) -> None:
        """Replace all values; a number is the value of a metric without labels."""
        found = dict(values) if isinstance(values, Mapping) else {(): values}
        self._values = dict(sorted(found.items())[: self._most])

    def format_values(self) -> Iterator[str]:
        for labels, value in self._values.items():
            yield self._format_line("", labels, value)


def render() -> str:
    """Return all metrics in the text format of Prometheus."""
    lines: list[str] = []
    for metric in REGISTRY:
        lines += [f"# HELP {metric.name} {metric.about}", f"# TYPE {metric.name} {metric.kind}"]
        lines += metric.format_values()
    return "\n".join(lines) + "\n"


def _bound(labels: Labels, known: int) -> Labels:
    """Return the labels of a new series: shortened, and `OTHER` if the metric has too many already."""
    if known >= MAX_SERIES:
        return (OTHER,) * len(labels)
    return tuple(text[:_MAX_LABEL_LENGTH] for text in labels)


_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SLOW = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
_DELIVERY = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)

RECEIVED = Counter(
    "received_total",
    "Messages and other events taken in. outcome: queued, replied (a command or an answer), stored, duplicate, ignored.",
    "platform",
    "outcome",
)
TURNS = Counter(
    "turns_total",
    "Attempts at turns that ended. outcome: done, failed, timeout, cancelled, requeued (this process stopped), held (until the limit of its model resets), interrupted (a process died), parked, expired.",
    "outcome",
)
TURN_WAIT = Histogram(
    "turn_wait_seconds", "From the receipt of a message until its turn begins.", buckets=_SLOW
)
FIRST_TOKEN = Histogram(
    "turn_first_token_seconds",
    "From the receipt of a message until the first output of the agent: text, reasoning or a tool call.",
    buckets=_SLOW,
)
TURN_TIME = Histogram(
    "turn_seconds", "From the receipt of a message until its turn has ended.", "outcome", buckets=_SLOW
)
OPEN_TURNS = SampledMetric("turns", "Turns of the whole store that run or wait.", "state")
OLDEST_WAITING = SampledMetric(
    "oldest_waiting_turn_seconds",
    "Age of the oldest queued turn of the whole store that could run now, 0 without one.",
)
TOKENS = Counter(
    "model_tokens_total",
    "Tokens used. kind: input, output, reasoning, cache_read, cache_write.",
    "model",
    "kind",
)
COST = Counter("model_cost_total", "Cost in the currency of the configured prices.", "model")
MODEL_ERRORS = Counter(
    "model_errors_total", "Calls of a model that failed, by the class of the error.", "model", "error"
)
MODEL_RETRIES = Counter("model_retries_total", "Calls of a model that were repeated after an error.", "model")
TOOL_CALLS = Counter(
    "tool_calls_total",
    "Tool calls. outcome: ok, failed, refused, cancelled. Tools of an ACP agent are counted by their kind, unknown ones as other.",
    "tool",
    "outcome",
)
DELIVERIES = Counter(
    "deliveries_total",
    "Attempts at deliveries that ended. outcome: sent, retry, throttled, held, unknown, failed, dead.",
    "platform",
    "outcome",
)
DELIVERY_TIME = Histogram(
    "delivery_seconds",
    "From the end of a turn until its answer is sent completely.",
    "platform",
    buckets=_DELIVERY,
)
UNSENT = SampledMetric("deliveries", "Deliveries of the whole store that are not sent.", "state")
HTTP_REQUESTS = Counter(
    "http_requests_total", "HTTP requests by route, method and class of status.", "route", "method", "status"
)
HTTP_TIME = Histogram(
    "http_request_seconds", "Time until the response to a request begins.", "route", buckets=_FAST
)
ADAPTER_CONNECTED = SampledMetric(
    "adapter_connected", "Whether the platform is connected. 0 also while another node listens.", "adapter"
)
ADAPTER_REFUSED = SampledMetric("adapter_refused", "Whether the platform refuses the credentials.", "adapter")
ADAPTER_COUNTERS = {
    name: SampledMetric(f"adapter_{name}_total", about, "adapter", kind=MetricKind.COUNTER)
    for name, about in (
        ("received", "Events taken in from the platform."),
        ("sent", "Parts of answers sent."),
        ("failed", "Attempts to send that failed."),
        ("throttled", "Attempts that the platform asked to make later."),
        ("rejected", "Requests to the hook that were not signed with the secret, malformed or too large."),
    )
}
SESSIONS = SampledMetric("sessions", "Sessions of the whole store.")
LANES = SampledMetric("lanes", "Lanes of the whole store.")
TRANSACTIONS = SampledMetric(
    "transactions_total", "Units of work on the store.", "label", kind=MetricKind.COUNTER
)
TRANSACTION_ERRORS = SampledMetric(
    "transaction_errors_total", "Units of work that failed.", "label", kind=MetricKind.COUNTER
)
TRANSACTION_TIME = SampledMetric(
    "transaction_seconds_total",
    "Time in units of work, waiting included.",
    "label",
    kind=MetricKind.COUNTER,
)
UPTIME = SampledMetric("uptime_seconds", "Since this process serves.")
MEMORY = SampledMetric("resident_memory_bytes", "Memory in use.")
